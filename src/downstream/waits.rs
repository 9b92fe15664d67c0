//! What may end a connection's wait, whoever speaks on it: the call to drain, and a phase that lasts too long.
//! Law: one timer for each connection, set anew only where it would come too early; nothing asks for the clock per byte.
//! Next: `http_task.rs` and `usual_task.rs`, which wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::futures::Notified;
use tokio::time::{Instant, Sleep};

use crate::downstream::front::{Drain, Limits};
use crate::downstream::tap::Phase;

/// Whether a connection was told of the drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Not even asked to be told.
    Nothing,
    /// It will be woken.
    Listens,
    /// It was told just now.
    ToFinish,
    /// It knows.
    Finishes,
}

impl Told {
    /// Of a connection that begins now. One that comes while the drain is on is served like any other: its answer says
    /// `Connection: close`.
    pub(crate) fn by(drain: &Drain) -> Self {
        if drain.has_begun() {
            Self::Finishes
        } else {
            Self::Nothing
        }
    }

    /// The next state. `ToFinish` is answered once.
    pub(crate) fn hear(
        &mut self,
        drain: &Drain,
        called: Pin<&mut Notified<'_>>,
        cx: &mut Context<'_>,
    ) -> Self {
        // Registered once: a task's waker stays the same, and asking again would take a lock that all share.
        if *self == Self::Nothing {
            let _ = called.poll(cx);
            *self = Self::Listens;
        }
        match *self {
            Self::Nothing | Self::Listens if drain.has_begun() => {
                *self = Self::Finishes;
                Self::ToFinish
            }
            Self::Nothing | Self::Listens | Self::ToFinish | Self::Finishes => *self,
        }
    }
}

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    idle: Duration,
    stalled: Duration,
    head: Duration,
    body: Duration,
}

impl Waits {
    /// Of these limits, but for an idle connection.
    pub(crate) const fn of(limits: Limits, idle: Duration) -> Self {
        Self {
            idle,
            stalled: limits.idle_timeout,
            head: limits.head_timeout,
            body: limits.body_timeout,
        }
    }

    /// How long a connection may be idle.
    pub(crate) const fn idle(self) -> Duration {
        self.idle
    }
}

/// Since when a connection has been doing what it does.
pub(crate) struct Wait {
    waits: Waits,
    phase: Phase,
    since: Instant,
    timer: Timer,
}

/// Whether a connection's task will be woken by its timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Timer {
    /// It was set since it was asked.
    Set,
    /// It will be.
    Wakes,
}

impl Wait {
    /// Of a connection that is idle from now on.
    pub(crate) fn new(waits: Waits) -> Self {
        Self {
            waits,
            phase: Phase::Idle { arrived: 0 },
            since: Instant::now(),
            timer: Timer::Set,
        }
    }

    /// Ready when the phase has lasted too long.
    pub(crate) fn poll_overdue(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        now: Phase,
        cx: &mut Context<'_>,
    ) -> Poll<Phase> {
        let limit = match now {
            Phase::Busy => {
                self.phase = now;
                return Poll::Pending;
            }
            Phase::Idle { .. } => self.waits.idle,
            Phase::Stalled { .. } => self.waits.stalled,
            Phase::Head { .. } => self.waits.head,
            Phase::Body { .. } => self.waits.body,
        };
        if self.phase != now {
            (self.phase, self.since) = (now, Instant::now());
        }
        let due = self.since + limit;
        if timer.deadline() > due {
            timer.as_mut().reset(due);
            self.timer = Timer::Set;
        }
        // Asked once: a task's waker stays the same, and asking again costs as much as a lock.
        if self.timer == Timer::Wakes && !timer.is_elapsed() {
            return Poll::Pending;
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= due {
                return Poll::Ready(now);
            }
            timer.as_mut().reset(due);
        }
        // Without budget the timer was not asked at all.
        self.timer = if tokio::task::coop::has_budget_remaining() {
            Timer::Wakes
        } else {
            Timer::Set
        };
        Poll::Pending
    }
}

//! One session's life: live, ending, ended; when it expires; what its client asked for that a reset must know.
//! Law: ended is sticky: after the first "session not found" no request of it ever succeeds.
//! `ending` comes before a DELETE is forwarded: meanwhile nothing re-attaches and new requests find no session.
//! Absent on purpose: credentials, generations and repeats; they are rooms of their own beside this one, and what of
//! them belongs under the same lock is `beside`.
//! Next: `streams.rs`.

use crate::pure::log::Millis;
use crate::pure::refusal::LogLevel;
use crate::pure::session::streams::{Origin, Streams};
use crate::pure::session::subscriptions::Subscriptions;
use crate::pure::session_token::Flags;

/// Where a session stands. Call: [`Record::begin_end`] or [`Record::end`] when live; [`Record::restore`] or
/// [`Record::end`] when ending. Next: nothing follows `Ended`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Requests are served.
    Live,
    /// A DELETE is under way.
    Ending,
    /// It is over.
    Ended(Ended),
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ended {
    /// Its client deleted it.
    Deleted,
    /// It was neither attached nor used for `session_idle`.
    Idle,
    /// It reached `session_max`.
    TooOld,
    /// The backend does not know it any more.
    BackendLost,
    /// Its client left the one stream that carried it, for `detached_max`.
    Detached,
}

impl Ended {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::Deleted,
        Self::Idle,
        Self::TooOld,
        Self::BackendLost,
        Self::Detached,
    ];

    /// The word for it in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Idle => "idle",
            Self::TooOld => "too_old",
            Self::BackendLost => "backend_lost",
            Self::Detached => "detached",
        }
    }
}

/// A step that the session's phase does not allow; nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sticky {
    /// Where the session stands.
    pub phase: Phase,
}

/// Whether a session is in use, whatever its clock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Busy {
    /// So many connections are attached or requests under way, at least one.
    By(u32),
    /// Not.
    No,
}

/// How long sessions live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// Neither attached nor used for so long, it ends (`session_idle`).
    pub idle: Millis,
    /// So many seconds after its token was issued, it ends (`session_max`).
    pub max_seconds: u64,
}

/// Whether a session's time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// Not before this time; look again then.
    NotBefore(Millis),
    /// It is.
    Now(Ended),
}

/// One session. `H` is whatever leads to a stream's owner, `K` whatever else is kept with it.
#[derive(Clone, Debug)]
pub struct Record<H, K = ()> {
    phase: Phase,
    issued: u32,
    used_at: Millis,
    spoke_at: Millis,
    busy: u32,
    declared: Flags,
    level: Option<LogLevel>,
    subscriptions: Subscriptions,
    /// Its streams.
    pub streams: Streams<H>,
    /// What is kept beside it.
    pub beside: K,
}

impl<H: Clone, K: Default> Record<H, K> {
    /// A live session whose token was issued at `issued` (seconds since 1970).
    pub fn new(origin: Origin, declared: Flags, issued: u32, now: Millis) -> Self {
        Self {
            phase: Phase::Live,
            issued,
            used_at: now,
            spoke_at: now,
            busy: 0,
            declared,
            level: None,
            subscriptions: Subscriptions::default(),
            streams: Streams::new(origin),
            beside: K::default(),
        }
    }

    /// Where it stands.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// A DELETE is about to be forwarded.
    ///
    /// # Errors
    /// [`Sticky`] if it is not live.
    pub const fn begin_end(&mut self) -> Result<(), Sticky> {
        match self.phase {
            Phase::Live => {
                self.phase = Phase::Ending;
                Ok(())
            }
            Phase::Ending | Phase::Ended(_) => Err(Sticky { phase: self.phase }),
        }
    }

    /// The backend refused to delete it (405): it goes on.
    ///
    /// # Errors
    /// [`Sticky`] if no DELETE was under way.
    pub const fn restore(&mut self, now: Millis) -> Result<(), Sticky> {
        match self.phase {
            Phase::Ending => {
                self.phase = Phase::Live;
                self.used_at = now;
                Ok(())
            }
            Phase::Live | Phase::Ended(_) => Err(Sticky { phase: self.phase }),
        }
    }

    /// It is over: the handles of its streams, for their end; tombstones stay.
    ///
    /// # Errors
    /// [`Sticky`] if it was over before; the first reason stays.
    pub fn end(&mut self, why: Ended) -> Result<Vec<H>, Sticky> {
        match self.phase {
            Phase::Live | Phase::Ending => {
                self.phase = Phase::Ended(why);
                Ok(self.streams.take_all())
            }
            Phase::Ended(_) => Err(Sticky { phase: self.phase }),
        }
    }

    /// A request of it came, or was answered.
    pub const fn used(&mut self, now: Millis) {
        self.used_at = now;
    }

    /// Its backend is told something.
    pub const fn spoke(&mut self, now: Millis) {
        self.spoke_at = now;
    }

    /// When its backend last heard of it.
    pub const fn spoke_at(&self) -> Millis {
        self.spoke_at
    }

    /// A connection was attached, or a request is under way: it is busy until [`Record::released`].
    pub const fn engaged(&mut self, now: Millis) {
        self.used_at = now;
        self.busy = self.busy.saturating_add(1);
    }

    /// A connection was detached, or a request answered.
    pub const fn released(&mut self, now: Millis) {
        self.used_at = now;
        self.busy = self.busy.saturating_sub(1);
    }

    /// Whether it is in use.
    pub const fn busy(&self) -> Busy {
        match self.busy {
            0 => Busy::No,
            n => Busy::By(n),
        }
    }

    /// When it was last used.
    pub const fn used_at(&self) -> Millis {
        self.used_at
    }

    /// Decides whether its time is over. `unix` is the wall clock in seconds since 1970: a token outlives processes,
    /// so its age is not told by a clock that begins with one.
    pub fn expiry(&self, lifetimes: Lifetimes, now: Millis, unix: u64) -> Expiry {
        let age = unix.saturating_sub(u64::from(self.issued));
        let Some(left) = lifetimes.max_seconds.checked_sub(age).filter(|left| *left > 0) else {
            return Expiry::Now(Ended::TooOld);
        };
        let end_of_life = now.0.saturating_add(left.saturating_mul(1_000));
        let idle_until = match self.busy() {
            Busy::By(_) => now.0.saturating_add(lifetimes.idle.0),
            Busy::No => self.used_at.0.saturating_add(lifetimes.idle.0),
        };
        if now.0 >= idle_until && self.busy() == Busy::No {
            return Expiry::Now(Ended::Idle);
        }
        Expiry::NotBefore(Millis(end_of_life.min(idle_until)))
    }

    /// What the backend declared.
    pub const fn declared(&self) -> Flags {
        self.declared
    }

    /// The log level that the client asked for, if it did.
    pub const fn level(&self) -> Option<LogLevel> {
        self.level
    }

    /// The backend accepted a `logging/setLevel`.
    pub const fn set_level(&mut self, level: LogLevel) {
        self.level = Some(level);
    }

    /// What the client subscribed to.
    pub const fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// The same, to be changed when the backend accepts a change.
    pub const fn subscriptions_mut(&mut self) -> &mut Subscriptions {
        &mut self.subscriptions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::epoch::Epoch;

    const LIFETIMES: Lifetimes = Lifetimes {
        idle: Millis(1_000),
        max_seconds: 100,
    };

    fn record() -> Record<u8> {
        Record::new(Origin::Fresh, Flags::NONE, 1_000, Millis(0))
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        BeginEnd,
        Restore,
        End(Ended),
    }

    #[test]
    fn every_step_is_taken_from_its_phase_only() {
        let over = Phase::Ended(Ended::Idle);
        for (from, step, expected) in [
            (Phase::Live, Step::BeginEnd, Ok(Phase::Ending)),
            (Phase::Live, Step::Restore, Err(Phase::Live)),
            (Phase::Live, Step::End(Ended::Idle), Ok(over)),
            (Phase::Ending, Step::BeginEnd, Err(Phase::Ending)),
            (Phase::Ending, Step::Restore, Ok(Phase::Live)),
            (
                Phase::Ending,
                Step::End(Ended::Deleted),
                Ok(Phase::Ended(Ended::Deleted)),
            ),
            (over, Step::BeginEnd, Err(over)),
            (over, Step::Restore, Err(over)),
            (over, Step::End(Ended::Deleted), Err(over)),
        ] {
            let mut record = record();
            record.phase = from;
            let done = match step {
                Step::BeginEnd => record.begin_end(),
                Step::Restore => record.restore(Millis(5)),
                Step::End(why) => record.end(why).map(|_| ()),
            };
            let told = done.map(|()| record.phase()).map_err(|sticky| sticky.phase);
            assert_eq!(told, expected, "{step:?} from {from:?}");
            assert_eq!(record.phase(), expected.unwrap_or(from));
        }
    }

    #[test]
    fn the_end_hands_every_stream_over_once() {
        let mut record = record();
        record.streams.open_standalone(Epoch::from_random(1), 1);
        record.streams.open_post(Epoch::from_random(2), 2, 8).unwrap();
        assert_eq!(record.end(Ended::Deleted), Ok(vec![1, 2]));
        assert!(record.end(Ended::Idle).is_err());
        assert_eq!(record.phase(), Phase::Ended(Ended::Deleted));
    }

    #[test]
    fn a_session_expires_by_idleness_or_age() {
        let at = |ms| Expiry::NotBefore(Millis(ms));
        for (used, busy, now, unix, expected) in [
            (0, 0, 0, 1_000, at(1_000)),
            (0, 0, 999, 1_001, at(1_000)),
            (0, 0, 1_000, 1_001, Expiry::Now(Ended::Idle)),
            (500, 0, 1_000, 1_001, at(1_500)),
            (0, 1, 5_000, 1_005, at(6_000)),
            (0, 1, 99_500, 1_099, at(100_500)),
            (99_500, 0, 99_600, 1_099, at(100_500)),
            (0, 1, 99_500, 1_100, Expiry::Now(Ended::TooOld)),
            (0, 0, 0, 5_000, Expiry::Now(Ended::TooOld)),
            // A clock of another machine that is behind does no harm.
            (0, 0, 0, 900, at(1_000)),
        ] {
            let mut record = record();
            for _ in 0..busy {
                record.engaged(Millis(used));
            }
            record.used(Millis(used));
            let decided = record.expiry(LIFETIMES, Millis(now), unix);
            assert_eq!(
                decided, expected,
                "used {used}, busy {busy}, now {now}, unix {unix}"
            );
        }
    }

    #[test]
    fn release_begins_the_idle_time_anew() {
        let mut record = record();
        record.engaged(Millis(0));
        record.engaged(Millis(0));
        record.released(Millis(10));
        assert_eq!(record.busy(), Busy::By(1));
        record.released(Millis(5_000));
        record.released(Millis(5_000));
        assert_eq!((record.busy(), record.used_at()), (Busy::No, Millis(5_000)));
        assert_eq!(
            record.expiry(LIFETIMES, Millis(5_999), 1_000),
            Expiry::NotBefore(Millis(6_000))
        );
    }
}

//! The task that owns a stream: the backend's body, the log and the client's connection are its alone.
//! Law: log first, client second. One wake carries a batch from the backend's socket through the log to the client's.
//! It decides nothing: `pure::stream` says what an event does, `ask.rs` what a client gets, `turn.rs` ends an epoch.
//! Arms of its poll, all cancel-safe: the mailbox, the clock, the log's promise, the backend, the clients.
//! Absent on purpose: timers (the sweep nudges) and channels (the mailbox is one atomic read when empty).
//! Next: `intake.rs`, `reader.rs`, `farewell.rs`, `ask.rs`, `turn.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tracing::{debug, info};

use crate::pure::epoch::{Epoch, EpochEnd, Seq};
use crate::pure::event_id::{Conn, IdPrefix, StreamName};
use crate::pure::limits::EVENT_ID_BYTES_MAX;
use crate::pure::log::Millis;
use crate::pure::session::Generation;
use crate::pure::sse::Block;
use crate::pure::stream::{Agent, Life, Positions, SourceEnd, Testimony};
use crate::relay::Relay;
use crate::relay::again::Acknowledged;
use crate::relay::ask::{Awaited, Early};
use crate::relay::backend_side::{BackendSide, prior};
use crate::relay::chronicle::Counted;
use crate::relay::gap::Gap;
use crate::relay::intake::{Counts, Intake, Remembered};
use crate::relay::mailbox::{Command, Mailbox};
use crate::relay::outcome::{FirstHead, Settled};
use crate::relay::reader::{Flushed, Reader};
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::spill::{Poured, Spill};
use crate::relay::turn::Turning;
use crate::relay::world::World;
use crate::store::{Store, StreamLog};
use crate::upstream::{Backoff, EventError, Read};

/// Batches that one wake carries before the task lets others run.
const ROUNDS_MAX: usize = 16;

/// How long the end of a backend's body may take once all that matters was read, in milliseconds.
const DRAINING_MS_MAX: u64 = 1_000;

/// A log in this world.
pub(crate) type LogOf<W> = <<W as World>::Store as Store>::Log;

/// Everything that one stream is.
pub(crate) struct StreamTask<W: World> {
    pub(crate) relay: Arc<Relay<W>>,
    pub(crate) session: Arc<Session<W>>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) name: StreamName,
    pub(crate) agent: Agent,
    /// Which life of the session its source belongs to.
    pub(crate) generation: Generation,
    pub(crate) epoch: Epoch,
    pub(crate) prefix: IdPrefix,
    pub(crate) log: LogOf<W>,
    /// The log's promise reaches this far.
    pub(crate) kept: Seq,
    pub(crate) life: Life,
    pub(crate) source: Source<W>,
    pub(crate) backoff: Backoff,
    /// What may be missing already, though nobody could be told yet: the upstream GET is to be opened again.
    pub(crate) gap: Gap,
    /// What is known of the backend besides.
    pub(crate) backend: BackendSide,
    pub(crate) spill: Spill,
    pub(crate) reader: Option<Reader>,
    pub(crate) awaited: Option<Box<Awaited>>,
    pub(crate) early: Vec<Early>,
    pub(crate) asks: u32,
    pub(crate) first_head: FirstHead,
    pub(crate) turning: Option<Box<Turning<W>>>,
    /// Up to here the last connection acknowledged.
    pub(crate) acked: Seq,
    /// Up to here something was written to any connection.
    pub(crate) written: Seq,
    pub(crate) detached_since: Millis,
    pub(crate) counts: Counts,
    pub(crate) remind_at: Millis,
    pub(crate) phase: Phase,
    /// Its session is over: it leaves with its client.
    pub(crate) ending: Option<EpochEnd>,
    pub(crate) settled: Settled,
    /// As what it is counted.
    pub(crate) counted: Counted,
    /// Whether its client is known to have all of it.
    pub(crate) receipt: Acknowledged,
    /// Calls of an HTTP+SSE session that a drain waits for.
    pub(crate) under_way: usize,
}

/// Where a stream's task stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It was not polled yet.
    New,
    /// It runs.
    Running,
    /// It leaves nothing behind but this.
    Over(EpochEnd),
}

impl<W: World> Unpin for StreamTask<W> {}

impl<W: World> Future for StreamTask<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        let now = task.relay.now();
        if task.phase == Phase::New {
            task.phase = Phase::Running;
            task.mailbox.register(cx);
        }
        let mut rounds = 0;
        let mut last = Progress::Made;
        loop {
            last = task.round(cx, now, last);
            if last == Progress::None {
                break;
            }
            rounds += 1;
            if rounds == ROUNDS_MAX {
                cx.waker().wake_by_ref();
                break;
            }
        }
        debug_assert_eq!(task.positions().in_order(), Ok(()), "{}", task.name);
        task.counts.evicted(task.log.span());
        task.counts.report(&task.session.pool.instruments);
        task.count_under_way();
        if let Phase::Over(end) = task.phase {
            task.leave(cx, end);
            return Poll::Ready(());
        }
        if task.life.is_over() && task.reader.is_none() && task.awaited.is_none() {
            task.settle();
        }
        task.recount();
        task.ask_for_reminder(now);
        Poll::Pending
    }
}

/// Whether a round moved something, so that another may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Something that a whole round must follow.
    Made,
    /// The backend's events, which were passed on: nothing is to be done but to see whether more have come.
    Read,
    None,
}

impl<W: World> StreamTask<W> {
    fn round(&mut self, cx: &mut Context<'_>, now: Millis, mut last: Progress) -> Progress {
        if self.poll_turn(cx, now).is_pending() {
            return Progress::None;
        }
        for command in self.mailbox.take() {
            last = Progress::Made;
            self.obey(command, now);
            if matches!(self.phase, Phase::Over(_)) {
                return Progress::None;
            }
        }
        self.look_at_clock(now);
        // A turn that was just asked for is polled now: nothing else would wake the task for it.
        if self.poll_turn(cx, now).is_pending() {
            return Progress::None;
        }
        let is_passed_on = last == Progress::Read && self.spill.is_empty();
        let read = self.read_source(cx, now);
        if is_passed_on && read == Progress::None {
            return Progress::None;
        }
        self.poll_promise(cx, now);
        let written = self.written;
        self.end_if_draining(now);
        self.flush(cx, now);
        self.leave_if_ending();
        if matches!(self.phase, Phase::Over(_)) {
            Progress::None
        } else if self.turning.is_some() || (!self.spill.is_empty() && self.written > written) {
            // A turn wants to be polled, or there is room again for what waits.
            Progress::Made
        } else {
            read
        }
    }

    fn obey(&mut self, command: Command, now: Millis) {
        match command {
            Command::Ask { asked, waiting } => self.ask(asked, waiting, now),
            Command::Attach { ask, sink } => self.attach(ask, sink, now),
            Command::Abandon { ask } => self.abandon(ask, now),
            Command::Cancelled(id) => self.cancelled(&id, now),
            Command::Answered(id) => self.client_answered(&id),
            Command::End(cause) => self.end(cause, now),
            Command::Drain { retry_ms } => self.drain(retry_ms, now),
            Command::Lost => self.session_lost(now),
            Command::Regained => self.session_regained(),
            Command::Shed => self.shed(now),
            Command::Had => self.had(now),
            Command::Carried(what) => self.obey_carried(what, now),
        }
    }

    fn read_source(&mut self, cx: &mut Context<'_>, now: Millis) -> Progress {
        if self
            .spill
            .pour(&mut self.log, &self.prefix, &mut self.counts, now)
            == Poured::Some
        {
            // Nothing more is read until there is room: the backend is held back.
            return Progress::None;
        }
        let presence = self.presence();
        match &mut self.source {
            Source::Reading(body) => {
                let mut intake = Intake {
                    log: &mut self.log,
                    life: &mut self.life,
                    prefix: self.prefix.as_bytes(),
                    spill: &mut self.spill,
                    counts: &mut self.counts,
                    trail: &mut self.backend.trail,
                    witness: self.backend.witness.as_deref_mut(),
                    isolation: self.session.isolation.as_ref(),
                    prior: prior(&mut self.backend.reattaching, &mut self.backend.had),
                    remembered: Remembered::of(&self.name),
                    agent: self.agent,
                    generation: self.generation,
                    client: presence,
                    pings: &mut self.backend.pings,
                    answered_here: self.session.answered_here(),
                    now,
                };
                let Poll::Ready(read) = body.poll_events(cx, &mut intake) else {
                    return Progress::None;
                };
                self.was_read(read, now);
                self.progress_of_reading()
            }
            Source::Draining(body, _) => match body.poll_events(cx, &mut |_: Block<'_>| {}) {
                Poll::Pending => Progress::None,
                Poll::Ready(Ok(Read::Events)) => Progress::Made,
                Poll::Ready(Ok(Read::End(_)) | Err(_)) => {
                    self.source = Source::Over;
                    Progress::Made
                }
            },
            Source::Opening(opening) => match opening.as_mut().poll(cx) {
                Poll::Pending => Progress::None,
                Poll::Ready(opened) => {
                    self.opened(opened, now);
                    Progress::Made
                }
            },
            Source::Answering(answering, _) => match answering.as_mut().poll(cx) {
                Poll::Pending => Progress::None,
                Poll::Ready(late) => {
                    self.answered_late(late, now);
                    Progress::Made
                }
            },
            Source::Waiting { back: Some(back), .. } => match back.as_mut().poll(cx) {
                Poll::Pending => Progress::None,
                Poll::Ready(()) => {
                    self.replica_is_back(now);
                    Progress::Made
                }
            },
            Source::Waiting { back: None, .. } | Source::Polled { .. } | Source::Over => Progress::None,
        }
    }

    /// What a round has to do once this one has passed on what was read.
    const fn progress_of_reading(&self) -> Progress {
        match self.source {
            Source::Reading(_) => Progress::Read,
            Source::Draining(..)
            | Source::Opening(_)
            | Source::Answering(..)
            | Source::Waiting { .. }
            | Source::Polled { .. }
            | Source::Over => Progress::Made,
        }
    }

    /// The backend's body was read: what followed from its events is looked at, then its end, if it came.
    fn was_read(&mut self, read: Result<Read, EventError>, now: Millis) {
        match self.backend.testimony() {
            Testimony::Agrees => {}
            Testimony::Contradicts => return self.contradicted(now),
        }
        self.answer_displaced(now);
        if self.backend.pursuit.is_some() {
            self.heard(now);
            if !matches!(self.source, Source::Reading(_)) {
                // What was said is not believed: the stream goes on in another way, or not at all.
                return;
            }
        }
        match read {
            Ok(Read::Events) => {}
            Ok(Read::End(_)) => self.source_ended(self.clean_end(), now),
            Err(error) => {
                debug!(session = %self.session.label(), stream = %self.name, %error, "backend stream broke");
                self.session.standing.doubt();
                self.source_ended(SourceEnd::Broken, now);
            }
        }
        self.answer_pings();
        self.note_carried();
        if self.life.is_over() {
            self.session.finished(self.epoch);
            self.drain_source(now);
        }
    }

    /// All that matters was read: the rest of the body is read only to give its connection back.
    pub(crate) fn drain_source(&mut self, now: Millis) {
        self.source = match std::mem::replace(&mut self.source, Source::Over) {
            Source::Reading(body) => Source::Draining(body, Millis(now.0 + DRAINING_MS_MAX)),
            Source::Draining(body, until) => Source::Draining(body, until),
            Source::Opening(_)
            | Source::Answering(..)
            | Source::Waiting { .. }
            | Source::Polled { .. }
            | Source::Over => Source::Over,
        };
    }

    fn poll_promise(&mut self, cx: &mut Context<'_>, now: Millis) {
        if self.counts.last_pushed() <= self.kept {
            return;
        }
        match self.log.poll_kept(cx, self.kept) {
            Poll::Pending => {}
            Poll::Ready(Ok(kept)) => self.kept = kept,
            Poll::Ready(Err(loss)) => self.log_lost(loss, now),
        }
    }

    /// Brings the clients up to date, and lets go of those that are gone or done.
    fn flush(&mut self, cx: &mut Context<'_>, now: Millis) {
        let Some(reader) = &mut self.reader else { return };
        let flushed = match reader.poll_gone(cx) {
            Poll::Ready(gone) => Flushed::Gone(gone),
            Poll::Pending => reader.flush(cx, &self.log, self.kept, now),
        };
        self.note_written();
        match flushed {
            Flushed::Blocked => {}
            Flushed::UpToDate => {
                if self.is_up_to_date() {
                    if self.life.is_over() {
                        self.finish_reader(cx, now);
                    } else {
                        self.send_to_poll(now);
                    }
                }
            }
            Flushed::Gone(gone) => self.reader_gone(gone, now),
            Flushed::Lost { oldest } => {
                // The window let go of what an attached reader needs: the connection ends, and its next resume says so.
                info!(session = %self.session.label(), stream = %self.name, %oldest, "attached client fell out of the window");
                self.end_connection(now);
            }
        }
    }

    /// Where it stands, an attached client's own word included.
    fn positions(&self) -> Positions {
        Positions {
            acked: self.reader.as_ref().map_or(self.acked, Reader::acked),
            written: self.stood_at(),
            kept: self.kept,
        }
    }

    /// Up to here something was written to any connection, the one that stands included.
    pub(crate) fn stood_at(&self) -> Seq {
        let reader = self.reader.as_ref();
        reader.map_or(self.written, |reader| self.written.max(reader.written()))
    }

    pub(crate) fn note_written(&mut self) {
        let Some(reader) = &self.reader else { return };
        let written = reader.written();
        self.log.hold(Some(written));
        if written > self.written {
            if self.written == Seq::START && self.name == StreamName::Get {
                self.session.standalone_was_written();
            }
            self.counts.sent(written.since(self.written));
            self.written = written;
        }
    }

    /// Its session is over: once nobody is attached, or will be, it leaves.
    fn leave_if_ending(&mut self) {
        if self.reader.is_none()
            && self.awaited.is_none()
            && let Some(end) = self.ending.take()
        {
            self.phase = Phase::Over(end);
        }
    }

    /// A priming id for this position, new each time.
    pub(crate) fn prime_id(&self, at: Seq) -> Vec<u8> {
        let mut id = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        self.prefix
            .prime(at, Conn::from_random(self.relay.chance()), &mut id);
        id
    }
}

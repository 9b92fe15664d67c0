//! How a stream ends, or goes on without its backend: every request gets exactly one outcome.
//! Law: an end is written into the log before anybody is told of it, and leaves a tombstone that says why.
//! What ends a stream: its last response, its backend, its client's cancel, its session, time, and this proxy.
//! Next: `pure/stream/life.rs`, which knows what is still open.

use std::task::Context;

use tracing::{debug, info};

use crate::pure::epoch::{EpochEnd, Reason, Tombstone};
use crate::pure::event_id::StreamName;
use crate::pure::limits::REPEAT_MS_MAX;
use crate::pure::log::{EndMark, Entry, Full, Millis};
use crate::pure::refusal::{self, Execution, Failure, Unserved};
use crate::pure::resume::Again;
use crate::pure::rpc::RequestId;
use crate::pure::sse::Text;
use crate::pure::stream::admission::Before;
use crate::pure::stream::{AfterSource, SourceEnd, Withdrawn};
use crate::relay::again::Acknowledged;
use crate::relay::chronicle::Counted;
use crate::relay::gap::Gap;
use crate::relay::intake::Presence;
use crate::relay::mailbox::{EndCause, Reply};
use crate::relay::source::{Opened, Source};
use crate::relay::stream_task::{Phase, StreamTask};
use crate::relay::turn::Told;
use crate::relay::world::World;
use crate::store::{Closing, StreamLog};

/// How long a finished answer that was written whole stays readable, in milliseconds. A client that lost its
/// connection at the very end comes back within seconds; a longer wait would hold memory for nobody.
const FINISHED_MS_MAX: u64 = 30_000;

impl<W: World> StreamTask<W> {
    /// The backend's stream ended.
    pub(crate) fn source_ended(&mut self, how: SourceEnd, now: Millis) {
        self.source = Source::Over;
        match self.life.source_ended(how, self.session.revision.primes()) {
            AfterSource::Nothing => {}
            AfterSource::SessionOver => self.session_over(),
            // What was asked for with proof is not polled: there it is one of the ways to bring nothing.
            AfterSource::Poll if self.backend.reattaching.is_some() => {
                self.broke(how, Reason::BackendLost, now)
            }
            AfterSource::Poll => self.polled(now),
            AfterSource::Fail(reason) | AfterSource::Reopen(reason) => self.broke(how, reason, now),
        }
    }

    pub(crate) fn reopen_later(&mut self, now: Millis) {
        let wait = self.backoff.next_wait(self.relay.chance());
        self.source = Source::Waiting {
            until: Millis(now.0 + wait.as_millis() as u64),
            back: Some(Box::pin(self.session.replica().when_back())),
        };
    }

    /// An upstream GET was answered.
    pub(crate) fn opened(&mut self, opened: Opened<W>, now: Millis) {
        self.remember_said();
        match self.name {
            StreamName::Get | StreamName::Post(_) if self.backend.reattaching.is_some() => {
                return self.reattach_opened(opened, now);
            }
            StreamName::Post(_) => return self.asked_again(opened, now),
            // Its connection stood before it did.
            StreamName::HttpSse => return,
            StreamName::Get => {}
        }
        match opened {
            Opened::Streaming(body, generation) => {
                if generation != self.generation {
                    // It began in one life of the session and stands in the next, whose ids mean other things.
                    self.backend.forget(now);
                }
                self.generation = generation;
                self.get_let_in(now);
                self.source = Source::Reading(body);
                self.first_head = FirstHead::Had;
                if let Some(reason) = self.gap.reason() {
                    // Told only now: what a client reads again before the stream stands could change unseen.
                    self.turn(reason, Again::Nothing, None);
                }
            }
            Opened::NotOffered if self.is_asked_early() => {
                // Within the first wait: the clients are told what the backend said.
                return self.never_began(|| Reply::NotOffered);
            }
            // Held on comments: a 405 on a reconnect costs some clients their session.
            Opened::NotOffered => {
                self.source = Source::Over;
                let gap = std::mem::replace(&mut self.gap, Gap::None);
                match (gap.reason(), self.backend.admission.before()) {
                    // There never was anything to miss.
                    (None, _) | (Some(Reason::UpstreamGap), Before::Never) => {}
                    (Some(reason), Before::Never | Before::Once) => {
                        self.turn(reason, Again::Nothing, None);
                    }
                }
            }
            Opened::SessionGone => {
                for early in self.early.drain(..) {
                    early.waiting.answer(Reply::SessionGone);
                }
                self.source = Source::Over;
            }
            Opened::Denied(answer) if self.is_asked_early() => {
                // The client's own request was denied: it hears so, and asks again with another credential.
                return self.never_began(|| Reply::Denied(answer.clone()));
            }
            // On a request of ours it is no loss: it waits for the client's next accepted credential.
            Opened::Denied(_) => self.reopen_later(now),
            Opened::Refused(how) => self.get_refused(how, now),
            Opened::Unreachable => self.reopen_later(now),
        }
        self.first_head = FirstHead::Had;
        self.answer_early(Millis(u64::MAX));
    }

    /// Whether clients wait for the backend's first head, and nobody was answered before it.
    fn is_asked_early(&self) -> bool {
        self.first_head == FirstHead::Due
            && !self.early.is_empty()
            && self.reader.is_none()
            && self.awaited.is_none()
    }

    /// The backend's first head says that there is no stream: all who wait for it hear so, and the next one asks anew.
    fn never_began(&mut self, reply: impl Fn() -> Reply) {
        for early in self.early.drain(..) {
            early.waiting.answer(reply());
        }
        self.source = Source::Over;
        self.phase = Phase::Over(EpochEnd::Finished);
    }

    /// Answers the clients that waited for the backend's first head and may wait no longer, oldest first.
    pub(crate) fn answer_early(&mut self, now: Millis) {
        while self.early.first().is_some_and(|early| now >= early.until) {
            let early = self.early.remove(0);
            self.ask_standalone(early.asked, early.waiting);
        }
        if self.early.is_empty() {
            // An idle stream holds no room for them.
            self.early = Vec::new();
        }
    }

    /// Answers every open request with an error, the last with the end mark.
    pub(crate) fn fail_open(&mut self, reason: Reason, now: Millis) {
        let failure = Failure::Reset {
            reason,
            epoch: self.epoch,
        };
        self.answer_open(failure, now);
    }

    pub(crate) fn answer_open(&mut self, failure: Failure, now: Millis) {
        let answered = self.answer_each(now, |id| refusal::error(id, failure));
        if answered > 0 {
            self.relay
                .calls_failed(&self.session, &self.name, failure, answered);
        }
    }

    /// Answers every open request in our own name, the last with the end mark: so many.
    pub(crate) fn answer_each(&mut self, now: Millis, answer: impl Fn(&RequestId) -> Vec<u8>) -> usize {
        let open = self.life.fail();
        for (nth, id) in open.iter().enumerate() {
            let end = if nth + 1 == open.len() {
                EndMark::Last
            } else {
                EndMark::Open
            };
            self.append(end, b"", &answer(id), now);
            self.life.failed_at(self.spill.newest(&self.counts));
        }
        match self.name {
            StreamName::Get | StreamName::HttpSse => {}
            // It takes no place among those that run.
            StreamName::Post(_) => self.session.finished(self.epoch),
        }
        open.len()
    }

    /// Appends events in our own name, or again.
    pub(crate) fn tell(&mut self, what: Vec<Told>, now: Millis) {
        for Told { event, data } in what {
            self.append(EndMark::Open, &event, &data, now);
        }
    }

    /// Appends one event behind what waits; it waits too while there is no room.
    pub(crate) fn append(&mut self, end: EndMark, event: &[u8], data: &[u8], now: Millis) {
        let entry = Entry {
            prefix: self.prefix.as_bytes(),
            end,
            event,
            data: Text::of(data),
        };
        let pushed = if self.spill.is_empty() {
            self.log.push(entry, now)
        } else {
            Err(Full)
        };
        match pushed {
            Ok(seq) => self.counts.pushed(seq),
            Err(Full) => self.spill.keep(end, event, data),
        }
    }

    /// The client cancelled a request: its stream ends with that word, and a tombstone answers resumes and repeats. One of
    /// several has that word for itself, and the others go on.
    pub(crate) fn cancelled(&mut self, id: &RequestId, now: Millis) {
        let failure = Failure::Unserved {
            why: Unserved::Cancelled,
            execution: Execution::Unknown,
        };
        match self.life.withdraw(id) {
            Withdrawn::NotOpen => {}
            Withdrawn::One => {
                self.append(EndMark::Open, b"", &refusal::error(id, failure), now);
                self.life.answered_at(self.spill.newest(&self.counts));
                self.relay.calls_failed(&self.session, &self.name, failure, 1);
            }
            Withdrawn::All => {
                self.answer_open(failure, now);
                self.drain_source(now);
            }
        }
    }

    /// A cursor of a stream that still runs could not be honoured: its requests have had their outcome.
    pub(crate) fn give_up(&mut self, reason: Reason, now: Millis) {
        self.life.fail();
        self.end_connection(now);
        self.phase = Phase::Over(EpochEnd::Lost(reason));
    }

    /// The session or this proxy ends: open requests get their error, then the connection its end.
    pub(crate) fn end(&mut self, cause: EndCause, now: Millis) {
        let reason = match cause {
            EndCause::SessionOver | EndCause::SessionLost => Reason::BackendLost,
            EndCause::OwnerLost => Reason::OwnerLost,
        };
        match (&mut self.source, cause) {
            // Whether it ran is what its own answer says.
            (Source::Answering(_, until), EndCause::SessionLost) => {
                *until = self.session.last_word_by(now);
            }
            (_, EndCause::SessionLost | EndCause::SessionOver | EndCause::OwnerLost) => {
                self.fail_open(reason, now);
                self.source = Source::Over;
            }
        }
        let end = match self.name {
            StreamName::Get => EpochEnd::Lost(reason),
            StreamName::HttpSse => {
                self.say_when_to_come_back(cause);
                EpochEnd::Lost(reason)
            }
            StreamName::Post(_) => EpochEnd::Finished,
        };
        match (&self.reader, &self.awaited) {
            // It leaves when its client has the last of it; one that was answered brings its connection yet.
            (Some(_), _) | (None, Some(_)) => self.ending = Some(end),
            (None, None) => self.phase = Phase::Over(end),
        }
    }

    /// The proxy drains: a standalone stream's client is sent away with a `retry`; an answer goes on.
    pub(crate) fn drain(&mut self, retry_ms: u64, now: Millis) {
        match self.name {
            // Its calls have time; who waits for nothing is sent away at the end of this wake.
            StreamName::Post(_) | StreamName::HttpSse => {}
            StreamName::Get => {
                self.answer_early(Millis(u64::MAX));
                self.send_away(retry_ms, now);
            }
        }
    }

    /// When a stream without a client lets go of its data.
    pub(crate) fn expires_at(&self) -> Millis {
        let detached_max = self.session.patience().detached.0;
        let wait = if self.wrote_all() {
            detached_max.min(match self.receipt {
                Acknowledged::Unknown => FINISHED_MS_MAX,
                Acknowledged::All => REPEAT_MS_MAX,
            })
        } else {
            detached_max
        };
        Millis(self.detached_since.0.saturating_add(wait))
    }

    /// Nobody came in time.
    pub(crate) fn expire(&mut self) {
        if self.life.is_over() {
            self.phase = Phase::Over(EpochEnd::Finished);
            return;
        }
        info!(session = %self.session.label(), stream = %self.name, "stream without a client expired");
        self.answer_for_client(&[]);
        match self.name {
            StreamName::Get => {}
            StreamName::Post(_) => self.session.cancel_upstream(&self.relay, self.life.open_ids()),
            StreamName::HttpSse => return self.abandoned(),
        }
        self.phase = Phase::Over(EpochEnd::Lost(Reason::Evicted));
    }

    /// Memory is short and nobody is attached.
    pub(crate) fn shed(&mut self, now: Millis) {
        if self.reader.is_some() || self.awaited.is_some() {
            return;
        }
        if self.life.is_over() {
            self.phase = Phase::Over(EpochEnd::Finished);
        } else {
            let held = self.log.span().bytes;
            self.log.shed(now, Some(held));
        }
    }

    /// A drain need not wait for this stream any more.
    pub(crate) fn settle(&mut self) {
        if self.settled == Settled::No {
            self.settled = Settled::Yes;
            match self.name {
                StreamName::Get | StreamName::HttpSse => {}
                StreamName::Post(_) => self.relay.running.settled(),
            }
        }
    }

    /// Counts it as what it is now.
    pub(crate) fn recount(&mut self) {
        let is_over = self.life.is_over();
        self.count_as(match self.presence() {
            Presence::Attached => Counted::Attended,
            Presence::Away if is_over => Counted::Held,
            Presence::Away => Counted::Detached,
        });
    }

    fn count_as(&mut self, what: Counted) {
        self.counted
            .change(what, &self.name, &self.session.pool.instruments);
    }

    /// The last act: the data goes, the tombstone stays with the session.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>, end: EpochEnd) {
        let tombstone = Tombstone {
            epoch: self.epoch,
            last: self.log.span().last,
            end,
        };
        debug!(session = %self.session.label(), stream = %self.name, last = %tombstone.last, "stream was let go");
        self.hand_on();
        self.bury(tombstone);
        let _ = self.log.poll_close(cx, Closing::Bury(tombstone));
        self.mailbox.close();
        self.source = Source::Over;
        // A connection that is still here is dropped with the stream.
        drop(self.release_reader(self.relay.now()));
        self.count_as(Counted::Not);
        self.count_under_way();
        self.settle();
    }
}

/// Whether a drain still waits for this stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// It does.
    No,
    /// It does not.
    Yes,
}

/// Whether the backend has answered the first upstream GET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstHead {
    /// Not yet: a 405 may still be passed on.
    Due,
    /// Yes, or the first wait is over.
    Had,
}

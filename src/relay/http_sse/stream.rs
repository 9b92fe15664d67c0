//! The one stream of an HTTP+SSE session: whose answers are awaited on it, how a client is told where to POST, its end.
//! Law: exactly one outcome for each request that was sent; with the backend's connection the session is over, since no
//! server of this transport takes a session up again. It never begins another epoch.
//! Everything else (log, clients, back-pressure, times) is the stream's as for every other.
//! Next: `../stream_task.rs`.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::pure::epoch::{Epoch, EpochEnd, Reason};
use crate::pure::event_id::StreamName;
use crate::pure::http_sse::{self, ENDPOINT};
use crate::pure::log::{EndMark, Millis};
use crate::pure::refusal::{self, Execution, Failure};
use crate::pure::resume::Resume;
use crate::pure::rpc::{EventKind, RequestId, classify_event};
use crate::pure::session::{self, Ended, Left, LossCause};
use crate::pure::sse::encode;
use crate::pure::stream::Take;
use crate::relay::Relay;
use crate::relay::answer::NotExecuted;
use crate::relay::exchange::CANCEL_MAX;
use crate::relay::mailbox::{Asked, Command, EndCause, Reply};
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::stream_task::{Phase, StreamTask};
use crate::relay::turn::{Told, Waiting};
use crate::relay::world::World;

/// What concerns one POST of the session.
pub(crate) enum Carried {
    /// It is about to be sent.
    Begin {
        /// Its requests.
        ids: Vec<RequestId>,
        /// Its mark.
        post: Epoch,
        /// Where it is told whether it may go.
        reply: oneshot::Sender<Begin>,
    },
    /// The backend refused it in words that its client gets: no answers come.
    Refused {
        /// Its mark.
        post: Epoch,
    },
    /// Those of its requests that have no outcome yet have this one.
    Failed {
        /// Its mark.
        post: Epoch,
        /// The outcome.
        outcome: Outcome,
    },
    /// The client cancelled one of its requests.
    Cancelled(RequestId),
}

/// Whether a POST may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    /// Its answers are awaited.
    Open,
    /// Too many requests are under way: each of its own was told so, on the stream.
    Full,
    /// The client reads nothing: not even that could be told it.
    Stalled,
    /// The stream is over.
    Over,
}

/// Whether the answer to a POST may say that it was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Nothing else was said of it, or will be.
    InTime,
    /// The session's end has said on the stream what became of it.
    TooLate,
}

/// What became of requests that the backend will not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// This.
    Failed(Failure),
    /// The backend refused them with this HTTP status.
    BackendRefused(u16),
}

impl Outcome {
    fn words(self, id: &RequestId) -> Vec<u8> {
        match self {
            Self::Failed(failure) => refusal::error(id, failure),
            Self::BackendRefused(status) => refusal::backend_status(id, status),
        }
    }

    /// What the same POST is from now on.
    const fn left(self) -> Left {
        match self {
            Self::Failed(failure) => match failure.execution() {
                Execution::NotExecuted => Left::Had,
                Execution::Unknown => Left::Unheld(Reason::BackendLost),
            },
            Self::BackendRefused(_) => Left::Had,
        }
    }
}

impl<W: World> Session<W> {
    /// The client cancelled a request whose answer would come on the one stream.
    pub(crate) fn carried_is_cancelled(&self, id: &RequestId) {
        if let Some(stream) = self.standalone_mailbox() {
            stream.post(Command::Carried(Carried::Cancelled(id.clone())));
        }
    }

    /// A POST was not executed, and its client is told so by the answer to it, unless the session's end was there first.
    pub(crate) fn post_is_refused(&self, post: Epoch) -> Refusal {
        // Said under the lock, which an end takes before it is told to the stream.
        let record = self.record();
        match record.phase() {
            session::Phase::Live => {}
            session::Phase::Ending | session::Phase::Ended(_) => return Refusal::TooLate,
        }
        if let Some(stream) = record.streams.standalone() {
            stream.post(Command::Carried(Carried::Refused { post }));
        }
        Refusal::InTime
    }

    /// What a POST is if it comes again.
    fn post_left(self: &Arc<Self>, relay: &Relay<W>, post: Epoch, left: Left) {
        let now = relay.now();
        let again = {
            let repeats = &mut self.record().beside.repeats;
            repeats.left(post, left, now);
            repeats.remind_at()
        };
        self.remind_of_repeats(relay, again, now);
    }
}

impl<W: World> StreamTask<W> {
    /// Does what concerns one POST of the session.
    pub(crate) fn obey_carried(&mut self, what: Carried, now: Millis) {
        match what {
            Carried::Begin { ids, post, reply } => self.begin_post((&ids, post), reply, now),
            Carried::Refused { post } => {
                self.life.withdraw_post(post);
                self.session.post_left(&self.relay, post, Left::Had);
            }
            Carried::Failed { post, outcome } => {
                let failed = self.life.fail_post(post);
                self.tell_outcome(&failed, outcome, now);
                self.session.post_left(&self.relay, post, outcome.left());
            }
            Carried::Cancelled(id) => {
                self.life.cancel(&id);
                self.note_carried();
            }
        }
    }

    fn begin_post(&mut self, (ids, post): (&[RequestId], Epoch), reply: oneshot::Sender<Begin>, now: Millis) {
        if self.life.is_over() {
            // If the asker is gone, nobody need know.
            let _ = reply.send(Begin::Over);
            return;
        }
        let max = self.session.pool.config.session.streams_max;
        if self.spill.len() >= max {
            // Each outcome waits for room in the log: a client that asks on and reads nothing must not make them many.
            let _ = reply.send(Begin::Stalled);
            return;
        }
        let begun = match self.life.begin(ids, post, max) {
            Ok(()) => Begin::Open,
            Err(full) => {
                warn!(session = %self.session.label(), running = full.running, "call refused: streams_max run already");
                let failure = NotExecuted::Overloaded.failure();
                self.tell_outcome(ids, Outcome::Failed(failure), now);
                Begin::Full
            }
        };
        if reply.send(begun).is_err() {
            // Nothing will be sent.
            self.life.withdraw_post(post);
        }
    }

    fn tell_outcome(&mut self, ids: &[RequestId], outcome: Outcome, now: Millis) {
        if ids.is_empty() {
            return;
        }
        for id in ids {
            self.append(EndMark::Open, b"", &outcome.words(id), now);
        }
        match outcome {
            Outcome::Failed(failure) => {
                self.relay
                    .calls_failed(&self.session, &self.name, failure, ids.len())
            }
            Outcome::BackendRefused(status) => {
                info!(session = %self.session.label(), status, "backend refused a call; its client is told in JSON-RPC");
            }
        }
    }

    /// Tells the ledger which POSTs have all their answers.
    pub(crate) fn note_carried(&mut self) {
        for post in self.life.take_settled() {
            self.session
                .post_left(&self.relay, post, Left::Unheld(Reason::Evicted));
        }
    }

    /// Counts the calls that a drain waits for: those without an answer, and one that the client has not whole.
    pub(crate) fn count_under_way(&mut self) {
        if self.name != StreamName::HttpSse {
            return;
        }
        let owed = self.reader.is_some() && !self.is_up_to_date();
        let now = match self.phase {
            Phase::New | Phase::Running => self.life.open_ids().len() + usize::from(owed),
            Phase::Over(_) => 0,
        };
        while self.under_way < now {
            self.relay.running.began();
            self.under_way += 1;
        }
        while self.under_way > now {
            self.relay.running.settled();
            self.under_way -= 1;
        }
    }

    /// The proxy drains: once no call is under way, the session ends with it, and its client begins anew elsewhere.
    pub(crate) fn end_if_draining(&mut self, now: Millis) {
        let idle = self.name == StreamName::HttpSse
            && self.relay.running.is_draining()
            && !self.life.is_over()
            && self.life.open_ids().is_empty()
            && self.awaited.is_none()
            && (self.reader.is_none() || self.is_up_to_date());
        if idle {
            self.end(EndCause::OwnerLost, now);
        }
    }

    /// The client is told when to come back, where it is this proxy that goes.
    pub(crate) fn say_when_to_come_back(&mut self, cause: EndCause) {
        match (cause, &mut self.reader) {
            (EndCause::OwnerLost, Some(reader)) if self.agent.bears_retry() => {
                let mut frame = Vec::new();
                encode::retry(&mut frame, self.relay.jittered_retry_ms(&self.session));
                reader.say(&frame);
            }
            (EndCause::OwnerLost | EndCause::SessionOver | EndCause::SessionLost, _) => {}
        }
    }

    /// Writes where the client's POSTs go, with the id of the position from which this connection goes on.
    pub(crate) fn announce(&self, id: &[u8], frames: &mut Vec<u8>) {
        let announced = http_sse::announced(&self.session.pool.config.path, self.session.token.as_bytes());
        encode::frame(frames, id, ENDPOINT, &announced);
    }

    /// Takes what the backend said in one breath with its endpoint.
    pub(crate) fn take_first(&mut self, said: Vec<Told>, now: Millis) {
        for told in said {
            let kind = classify_event(&told.data);
            let taken = self.life.take(&kind, &told.event, self.agent);
            let request = match kind {
                EventKind::Request { id, method: _ } => Some(id),
                EventKind::Notification | EventKind::Response(_) | EventKind::Batch(_) | EventKind::Other => {
                    None
                }
            };
            match taken {
                Take::Append | Take::AppendLast => self.tell(vec![told], now),
                Take::Drop(why) => self.counts.drop(why),
            }
            if let (Some(id), Take::Append) = (request, taken) {
                self.client_is_asked_again(&id);
            }
        }
    }

    /// Answers a client that comes back. What can't be met whole is not met at all.
    pub(crate) fn ask_http_sse(&mut self, asked: Asked, waiting: Waiting) {
        let seq = match asked {
            Asked::At(epoch, seq) if epoch == self.epoch => seq,
            Asked::At(..) | Asked::Nothing | Asked::Again | Asked::Unusable(_) => {
                return waiting.answer(Reply::Closed);
            }
        };
        match self.decide(seq) {
            Resume::UpToDate { at: from } | Resume::Replay { from, .. } => {
                self.promise_resumed(from, waiting)
            }
            Resume::Ended => waiting.answer(Reply::Ended),
            Resume::Gap { reason, .. } | Resume::OtherEpoch { reason } => {
                waiting.answer(unmet(reason));
            }
            Resume::FromTheFuture { .. } => waiting.answer(unmet(Reason::CursorFuture)),
        }
    }

    /// The backend's connection is no more, or what it said can't be kept: the session is over.
    pub(crate) fn session_over(&mut self) {
        self.source = Source::Over;
        let _ = self
            .relay
            .lost(&self.session, self.generation, LossCause::StreamEnded);
    }

    /// Nobody came back in time: the backend hears that nobody waits, then its connection ends, and the session with it.
    pub(crate) fn abandoned(&mut self) {
        let open = self.life.fail();
        let source = std::mem::replace(&mut self.source, Source::Over);
        if !open.is_empty() {
            let (relay, session) = (Arc::clone(&self.relay), Arc::clone(&self.session));
            tokio::spawn(async move {
                let telling = async {
                    for id in &open {
                        session.send_cancel(&relay, session.cancel_of(id)).await;
                    }
                };
                let _ = timeout(CANCEL_MAX, telling).await;
                // Held until now: with it the backend would have forgotten what is to be cancelled.
                drop(source);
            });
        }
        self.relay.end_session(&self.session, Ended::Detached);
        self.phase = Phase::Over(EpochEnd::Lost(Reason::Evicted));
    }
}

/// A cursor that can't be met: its session goes on, and every request of it has its outcome on the stream.
const fn unmet(reason: Reason) -> Reply {
    Reply::Unmet {
        reason,
        unanswered: Vec::new(),
    }
}

//! A log that can't go on: its store failed, broke its promise, or gave the stream to another owner.
//! Law: nothing is shown that the promise does not cover, and what is lost is said: on the connection that is there or on
//! its way, as the errors of calls or as a reset, else to whoever comes back.
//! A store that keeps nothing is not asked again and again: the stream leaves, and its client's next visit asks.
//! Next: `turn.rs`, `outcome.rs`.

use tracing::warn;

use crate::pure::epoch::{EpochEnd, Reason, Seq};
use crate::pure::event_id::StreamName;
use crate::pure::log::Millis;
use crate::pure::refusal::{self, Failure};
use crate::pure::resume::Again;
use crate::pure::rpc::{EventKind, Message, RequestId, classify_event};
use crate::relay::aside;
use crate::relay::farewell::Late;
use crate::relay::sink::Ending;
use crate::relay::source::Source;
use crate::relay::stream_task::{Phase, StreamTask};
use crate::relay::turn::told_after;
use crate::relay::world::World;
use crate::store::{LogLoss, StreamLog};

impl<W: World> StreamTask<W> {
    /// The log can't go on.
    pub(crate) fn log_lost(&mut self, loss: LogLoss, now: Millis) {
        if self.lost_its_log().is_some() {
            // A client is on its way, and hears of it.
            return;
        }
        warn!(session = %self.session.label(), stream = %self.name, ?loss, "log was lost");
        let reason = match loss {
            LogLoss::Fenced => Reason::OwnerLost,
            LogLoss::Failed(_) => Reason::Evicted,
            LogLoss::Truncated { kept } => {
                // What nobody was shown yet may be gone; a frame that is half sent is finished.
                self.kept = self.kept.min(kept).max(self.stood_at()).max(self.begun());
                Reason::Evicted
            }
        };
        match self.name {
            StreamName::Get if self.kept == Seq::START => self.leave_unkept(reason, now),
            StreamName::Get => self.turn(reason, Again::Nothing, None),
            StreamName::Post(_) => self.answer_unkept(reason, now),
            StreamName::HttpSse => {
                self.session_over();
                self.give_up(reason, now);
            }
        }
    }

    /// The standalone stream goes, with a word when to come back: whoever comes opens it anew, and hears of the loss.
    pub(crate) fn leave_unkept(&mut self, reason: Reason, now: Millis) {
        self.answer_for_client(&[]);
        self.end_connection(now);
        self.phase = Phase::Over(EpochEnd::Lost(reason));
    }

    /// Calls whose answers can't be kept have their errors for it, told to the client that is attached, or will be.
    fn answer_unkept(&mut self, reason: Reason, now: Millis) {
        self.source = Source::Over;
        let end = EpochEnd::Lost(reason);
        match (&self.reader, &self.awaited) {
            // The rest of what is begun is sent first.
            (Some(_), _) => self.tell_unkept(self.begun(), reason, now),
            (None, Some(_)) => self.ending = Some(end),
            (None, None) => self.phase = Phase::Over(end),
        }
    }

    /// The newest event whose frame the attached client has, or has a part of.
    fn begun(&self) -> Seq {
        let Some(reader) = &self.reader else {
            return Seq::START;
        };
        let next = reader.written().next();
        if reader.is_within(next) {
            next
        } else {
            reader.written()
        }
    }

    /// Why the answer of a call can't be kept, if that is still to be told to a client that is on its way.
    pub(crate) fn lost_its_log(&self) -> Option<Reason> {
        match (&self.name, self.ending) {
            (StreamName::Post(_), Some(EpochEnd::Lost(reason))) => Some(reason),
            (StreamName::Post(_), Some(EpochEnd::Finished) | None)
            | (StreamName::Get | StreamName::HttpSse, _) => None,
        }
    }

    /// The calls of whose outcome a client that had everything up to `had` knows nothing: those that are open, and those
    /// whose answers stand behind it, in the log or on their way there.
    fn unheard(&mut self, had: Seq) -> Vec<RequestId> {
        let mut calls = self.life.answers_between(had, Seq::new(u64::MAX));
        calls.extend(self.life.open_ids().iter().cloned());
        let last = self.log.span().last;
        let mut behind = told_after(&self.log, had, last);
        behind.extend(self.spill.take());
        for told in &behind {
            for call in answered_in(&told.data) {
                if !calls.contains(&call) {
                    calls.push(call);
                }
            }
        }
        match &self.name {
            // The window let go of what nobody had.
            StreamName::Post(rid) if calls.is_empty() && had < last => calls.extend(rid.request_id()),
            StreamName::Post(_) | StreamName::Get | StreamName::HttpSse => {}
        }
        calls
    }

    /// Tells the attached client, who had everything up to `had`, the errors of the calls that it knows no outcome of, and
    /// ends its connection. They are in no log: whoever is cut before it heard them is told the same by its cursor.
    pub(crate) fn tell_unkept(&mut self, had: Seq, reason: Reason, now: Millis) {
        let calls = self.unheard(had);
        self.life.fail();
        self.phase = Phase::Over(EpochEnd::Lost(reason));
        let failure = Failure::Reset {
            reason,
            epoch: self.epoch,
        };
        let Some(reader) = self.release_reader(now) else {
            return;
        };
        let mut parting = reader.part(&self.log, self.kept);
        aside::tell(
            (&self.relay, &self.session),
            (&self.name, &self.prefix),
            (&calls, had),
            |call| refusal::error(call, failure),
            &mut parting.rest,
        );
        if !calls.is_empty() {
            self.relay
                .calls_failed(&self.session, &self.name, failure, calls.len());
        }
        self.see_off(parting, Ending::Complete, Late::LetGo);
    }
}

/// The requests that an event answers.
fn answered_in(data: &[u8]) -> Vec<RequestId> {
    let messages = match classify_event(data) {
        EventKind::Response(id) => return vec![id],
        EventKind::Notification | EventKind::Request { .. } | EventKind::Other => return Vec::new(),
        EventKind::Batch(messages) => messages,
    };
    let answered = messages.into_iter().filter_map(|message| match message {
        Message::Response { id, .. } => id,
        Message::Request { .. } | Message::Notification { .. } => None,
    });
    answered.collect()
}

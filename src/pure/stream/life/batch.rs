//! A stream that answers several requests: which of them have their outcome, and where it stands.
//! Law: each has one outcome, whatever becomes of the others; an event with several messages counts for each of them.
//! Next: `../attach.rs`.

use super::{Dropped, Life, Phase, Take};
use crate::pure::epoch::Seq;
use crate::pure::rpc::{Message, RequestId};

/// How many answers a stream brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// One, or none.
    One,
    /// One for each request of a batch.
    Several,
}

/// What a client's word that it withdraws a request means to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Withdrawn {
    /// The stream answers no such request, or has answered it.
    NotOpen,
    /// It is one of several: it needs its error, and the others go on.
    One,
    /// It is the last that is open.
    All,
}

impl Life {
    /// What was taken last stands in the log at `at`: if it was an answer, that is where its client finds it.
    pub fn answered_at(&mut self, at: Seq) {
        let answered = self.asked.len() - self.open;
        if self.asked.len() > 1 && self.answers.len() < answered {
            self.answers.resize(answered, at);
        }
    }

    /// The next of the errors that ended the stream stands in the log at `at`.
    pub fn failed_at(&mut self, at: Seq) {
        if self.asked.len() > 1 && self.answers.len() < self.asked.len() {
            self.answers.push(at);
        }
    }

    /// The requests whose answers stand in the log after `had` and before `held`: a client that had everything up to
    /// the one can't be given them by a log that begins with the other. None for a single request.
    pub fn answers_between(&self, had: Seq, held: Seq) -> Vec<RequestId> {
        self.placed_between(had, held)
            .into_iter()
            .map(|(_, id)| id)
            .collect()
    }

    /// The same, each with the place of its answer.
    pub fn placed_between(&self, had: Seq, held: Seq) -> Vec<(Seq, RequestId)> {
        let in_order = self.asked[self.open..].iter().rev();
        let placed = in_order.zip(&self.answers);
        let mut missed: Vec<(Seq, RequestId)> = placed
            .filter(|(_, at)| **at > had && **at < held)
            .map(|(id, at)| (*at, id.clone()))
            .collect();
        missed.reverse();
        missed
    }

    /// Whether it answers one request or several.
    pub const fn brings(&self) -> Answers {
        if self.asked.len() > 1 {
            Answers::Several
        } else {
            Answers::One
        }
    }

    /// Which of these messages answer a request that has its outcome: another one does not pass.
    pub fn late_among(&self, messages: &[Message<'_>]) -> Vec<usize> {
        let settled = &self.asked[self.open..];
        let open = self.open_ids();
        let is_late = |message: &Message<'_>| match message {
            Message::Response { id: Some(id), .. } => settled.contains(id) && !open.contains(id),
            Message::Response { id: None, .. } | Message::Request { .. } | Message::Notification { .. } => {
                false
            }
        };
        let numbered = messages.iter().enumerate();
        numbered
            .filter(|(_, message)| is_late(message))
            .map(|(nth, _)| nth)
            .collect()
    }

    /// The client withdraws one of several requests that are open; the others go on.
    pub fn withdraw(&mut self, id: &RequestId) -> Withdrawn {
        match self.open_ids().iter().position(|open| open == id) {
            None => Withdrawn::NotOpen,
            Some(_) if self.open == 1 => Withdrawn::All,
            Some(nth) => {
                let _ = self.settle(nth);
                Withdrawn::One
            }
        }
    }

    /// Several messages in one event: it is left out if nothing but late answers is in it.
    pub(super) fn take_batch(&mut self, messages: &[Message<'_>]) -> Take {
        let mut take = Take::Drop(Dropped::LateResponse);
        for message in messages {
            match message {
                Message::Request { id, .. } => {
                    self.wait_for(id);
                    take = Take::Append;
                }
                Message::Notification { .. } | Message::Response { id: None, .. } => take = Take::Append,
                Message::Response { id: Some(id), .. } => {
                    match self.asked.iter().position(|asked| asked == id) {
                        Some(nth) if nth < self.open => {
                            self.settle(nth);
                            take = Take::Append;
                        }
                        Some(_) => {}
                        None => take = Take::Append,
                    }
                }
            }
        }
        match (self.phase, take) {
            (Phase::Over, Take::Append) => Take::AppendLast,
            (Phase::Open | Phase::Over, take) => take,
        }
    }
}

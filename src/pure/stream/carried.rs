//! The requests under way on a stream that carries the answers of a whole session (HTTP+SSE; wire contract, section 10).
//! Law: one outcome for each request: what was answered here in the backend's place is not answered again by the backend.
//! A POST is known by a mark of its own, since clients may use a request's id again while its first use still runs.
//! Absent on purpose: what an outcome says, and who is told (`relay/http_sse`).
//! Next: `life.rs`, which has one of these for such a stream.

use std::collections::VecDeque;

use crate::pure::epoch::Epoch;
use crate::pure::limits::LATE_ANSWERS_MAX;
use crate::pure::rpc::{Message, RequestId};
use crate::pure::session::Full;
use crate::pure::stream::life::{Dropped, Life, Phase, Take};

/// The requests under way, oldest first.
#[derive(Debug, Default)]
pub(super) struct Carried {
    open: Vec<RequestId>,
    /// The POST of each of them.
    posts: Vec<Epoch>,
    /// POSTs whose requests all have their outcome, until somebody asks.
    settled: Vec<Epoch>,
    /// Requests that were answered in the backend's place, newest last.
    answered_here: VecDeque<RequestId>,
}

/// What a response is to the requests under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answers {
    /// It is the outcome of one of them.
    One,
    /// Its request had its outcome from us.
    Late,
    /// Nobody asked for it here.
    Nobody,
}

impl Carried {
    /// The requests that have no outcome yet.
    pub(super) fn open(&self) -> &[RequestId] {
        &self.open
    }

    /// A POST with these requests is about to be sent; at most `max` may be under way.
    pub(super) fn begin(&mut self, ids: &[RequestId], post: Epoch, max: usize) -> Result<(), Full> {
        let running = self.open.len();
        if running + ids.len() > max.max(ids.len()) {
            return Err(Full { running });
        }
        self.answered_here.retain(|late| !ids.contains(late));
        self.open.extend_from_slice(ids);
        self.posts.extend(ids.iter().map(|_| post));
        Ok(())
    }

    /// A response came.
    pub(super) fn answer(&mut self, id: &RequestId) -> Answers {
        match self.open.iter().position(|open| open == id) {
            Some(nth) => {
                self.settle(nth);
                Answers::One
            }
            None => match self.answered_here.iter().position(|late| late == id) {
                Some(nth) => {
                    self.answered_here.remove(nth);
                    Answers::Late
                }
                None => Answers::Nobody,
            },
        }
    }

    /// The client does not wait for it any more.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if let Some(nth) = self.open.iter().rposition(|open| open == id) {
            self.settle(nth);
        }
    }

    /// Those of a POST that have no outcome yet: they are not under way any more.
    pub(super) fn withdraw(&mut self, post: Epoch) -> Vec<RequestId> {
        let mut withdrawn = Vec::new();
        while let Some(nth) = self.posts.iter().position(|of| *of == post) {
            self.posts.remove(nth);
            withdrawn.push(self.open.remove(nth));
        }
        withdrawn
    }

    /// These are answered here: what the backend still says to them is late.
    pub(super) fn answered_here(&mut self, ids: &[RequestId]) {
        self.answered_here.extend(ids.iter().cloned());
        while self.answered_here.len() > LATE_ANSWERS_MAX {
            self.answered_here.pop_front();
        }
    }

    /// All of them, for their errors: the stream is over.
    pub(super) fn take_all(&mut self) -> Vec<RequestId> {
        self.posts.clear();
        std::mem::take(&mut self.open)
    }

    /// POSTs whose requests all have their outcome, since the last call.
    pub(super) fn take_settled(&mut self) -> Vec<Epoch> {
        std::mem::take(&mut self.settled)
    }

    fn settle(&mut self, nth: usize) {
        self.open.remove(nth);
        let post = self.posts.remove(nth);
        if !self.posts.contains(&post) {
            self.settled.push(post);
        }
    }
}

impl Life {
    /// A POST of the session with these requests is about to be sent; `post` is its mark. At most `max` may be under way.
    /// Call: on the stream of an HTTP+SSE session that is not over.
    ///
    /// # Errors
    /// [`Full`]: the POST is refused as overloaded.
    pub fn begin(&mut self, ids: &[RequestId], post: Epoch, max: usize) -> Result<(), Full> {
        match &mut self.carried {
            Some(carried) if self.phase == Phase::Open => carried.begin(ids, post, max),
            Some(_) | None => Err(Full { running: 0 }),
        }
    }

    /// A POST of the session was answered in such a way that no answers follow on the stream.
    pub fn withdraw_post(&mut self, post: Epoch) -> Vec<RequestId> {
        self.carried
            .as_mut()
            .map_or_else(Vec::new, |carried| carried.withdraw(post))
    }

    /// The requests of a POST of the session that are still open, for the errors that answer them; what the backend says
    /// to them later is dropped.
    pub fn fail_post(&mut self, post: Epoch) -> Vec<RequestId> {
        let failed = self.withdraw_post(post);
        if let Some(carried) = &mut self.carried {
            carried.answered_here(&failed);
        }
        failed
    }

    /// The client cancelled one request of the session: nobody waits for its answer.
    pub fn cancel(&mut self, id: &RequestId) {
        if let Some(carried) = &mut self.carried {
            carried.cancel(id);
        }
    }

    /// POSTs of the session whose requests all have their outcome, since the last call.
    pub fn take_settled(&mut self) -> Vec<Epoch> {
        self.carried
            .as_mut()
            .map_or_else(Vec::new, |carried| carried.take_settled())
    }

    /// A response on the stream of a whole session.
    pub(super) fn carry(&mut self, id: &RequestId) -> Take {
        if id.is_own() {
            return Take::Drop(Dropped::Own);
        }
        match self.carried.as_mut().map(|carried| carried.answer(id)) {
            Some(Answers::Late) => Take::Drop(Dropped::LateResponse),
            Some(Answers::One | Answers::Nobody) | None => Take::Append,
        }
    }

    /// Several messages in one event of such a stream: it is left out only if nothing but late answers is in it.
    pub(super) fn carry_batch(&mut self, messages: &[Message<'_>]) -> Take {
        let mut take = Take::Drop(Dropped::LateResponse);
        for message in messages {
            let of_one = match message {
                Message::Request { id, .. } => {
                    self.wait_for(id);
                    Take::Append
                }
                Message::Notification { .. } | Message::Response { id: None, .. } => Take::Append,
                Message::Response { id: Some(id), .. } => self.carry(id),
            };
            match of_one {
                Take::Append | Take::AppendLast => take = Take::Append,
                Take::Drop(_) => {}
            }
        }
        take
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &str) -> RequestId {
        RequestId::from_raw(raw.as_bytes()).expect("an id")
    }

    fn post(n: u64) -> Epoch {
        Epoch::from_random(n)
    }

    #[test]
    fn each_request_has_one_outcome() {
        let mut carried = Carried::default();
        carried.begin(&[id("1"), id("2")], post(1), 8).expect("room");
        carried.begin(&[id("1")], post(2), 8).expect("room");
        for (answer, is, settled) in [
            ("1", Answers::One, vec![]),
            ("3", Answers::Nobody, vec![]),
            ("2", Answers::One, vec![post(1)]),
            ("1", Answers::One, vec![post(2)]),
            // As the backend would have it without us.
            ("1", Answers::Nobody, vec![]),
        ] {
            assert_eq!(carried.answer(&id(answer)), is, "{answer}");
            assert_eq!(carried.take_settled(), settled, "{answer}");
        }
    }

    #[test]
    fn what_was_answered_here_is_not_answered_twice() {
        let mut carried = Carried::default();
        carried.begin(&[id("1")], post(1), 8).expect("room");
        let withdrawn = carried.withdraw(post(1));
        assert_eq!(withdrawn, [id("1")]);
        carried.answered_here(&withdrawn);
        assert_eq!(carried.answer(&id("1")), Answers::Late);
        assert_eq!(carried.answer(&id("1")), Answers::Nobody);
        // The id is used again: its answer is awaited.
        carried.answered_here(&[id("1")]);
        carried.begin(&[id("1")], post(2), 8).expect("room");
        assert_eq!(carried.answer(&id("1")), Answers::One);
        let many: Vec<RequestId> = (0..LATE_ANSWERS_MAX + 3).map(|n| id(&n.to_string())).collect();
        carried.answered_here(&many);
        assert_eq!(carried.answered_here.len(), LATE_ANSWERS_MAX);
        assert_eq!(
            carried.answer(&id("2")),
            Answers::Nobody,
            "the oldest is forgotten"
        );
    }

    #[test]
    fn so_many_may_be_under_way() {
        let mut carried = Carried::default();
        carried.begin(&[id("1"), id("2")], post(1), 3).expect("room");
        assert_eq!(
            carried.begin(&[id("3"), id("4")], post(2), 3),
            Err(Full { running: 2 })
        );
        carried.cancel(&id("2"));
        assert_eq!(carried.take_settled(), []);
        carried.cancel(&id("1"));
        assert_eq!(carried.take_settled(), [post(1)]);
        // One POST alone is not refused for its size.
        carried
            .begin(&[id("3"), id("4"), id("5"), id("6")], post(3), 3)
            .expect("room");
        assert_eq!(carried.take_all().len(), 4);
        assert!(carried.open().is_empty() && carried.withdraw(post(3)).is_empty());
    }
}

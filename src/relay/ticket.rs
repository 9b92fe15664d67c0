//! A POST that is under way: what it holds on to, and what it leaves when it is answered.
//! Law: each is settled once, with its answer or, if it is dropped, without: what ran is never taken for what did not.
//! One lock at its end: the session's idle time, the word on its credential, its entry among the repeats.
//! Next: `held.rs`, for what is kept; `repeat.rs`, which makes it.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tokio::sync::watch;

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::log::Millis;
use crate::pure::session::{Ledger, Left, Number, Settled, Shown, Taken};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Refused};
use crate::relay::exchange::Sent;
use crate::relay::gate::{self, Heard};
use crate::relay::held::{self, Held};
use crate::relay::passing::Passing;
use crate::relay::pool::Unanswered;
use crate::relay::session::Session;
use crate::relay::sweep_task::{Due, Sleeper};
use crate::relay::world::World;

/// The POSTs of one session.
pub(crate) type Repeats = Ledger<Waits, Held>;

/// Where those wait who sent the same POST; dropped without a word, the request has no outcome.
pub(crate) type Waits = watch::Sender<Option<Outcome>>;

/// What became of a request, for those who sent it again.
#[derive(Clone)]
pub(crate) enum Outcome {
    /// This is the answer.
    Whole(Arc<Response<Bytes>>),
    /// It was refused in our own name.
    Refused(Refused),
    /// A stream answers it.
    Stream(Epoch),
    /// It ran, and its answer can't be had, for this reason.
    Unheld(Reason),
    /// It was not run: whoever sent it is told why, each in the same words.
    NotRun,
}

/// Those who wait for an outcome, if anybody does.
pub(crate) struct Waiters(Option<Waits>);

impl Waiters {
    /// Tells them.
    pub(crate) fn ring(self, outcome: Outcome) {
        if let Waiters(Some(waits)) = self {
            let _ = waits.send_replace(Some(outcome));
        }
    }
}

/// What an answer is to whoever sends the same request again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Worth {
    /// What the request came to.
    Result,
    /// A refusal, in whatever words: nothing ran, and whoever had it asks again on purpose.
    Refusal,
}

/// A POST of a session that is under way: meanwhile the session does not expire, and the same POST is not sent again.
pub(crate) struct Ticket<W: World> {
    pub(crate) session: Arc<Session<W>>,
    pub(crate) relay: Arc<Relay<W>>,
    pub(crate) course: Course,
}

/// What a POST that is under way has come to so far. Apart from its ticket, so that who executes it can note this down
/// while it uses the ticket's session.
pub(crate) struct Course {
    shown: Option<Shown>,
    heard: Heard,
    worth: Worth,
    number: Option<Number>,
}

impl<W: World> Ticket<W> {
    /// One for a request that begins, with its entry among the repeats if it must not run twice. The session is engaged
    /// by whoever makes it, under the same lock.
    pub(crate) fn new(
        (session, relay): (&Arc<Session<W>>, &Arc<Relay<W>>),
        shown: Shown,
        number: Option<Number>,
    ) -> Self {
        Self {
            session: Arc::clone(session),
            relay: Arc::clone(relay),
            course: Course {
                shown: Some(shown),
                heard: Heard::Nothing,
                worth: Worth::Result,
                number,
            },
        }
    }

    /// It was answered.
    pub(crate) fn settle(mut self, answer: &Answer<Passing<W>>, taken: Taken) {
        let settled = match (self.course.number, self.course.worth, taken) {
            // Nobody looks for it.
            (None, _, _) | (Some(_), Worth::Refusal, Taken::At(_)) => Settled::Forget,
            (Some(_), Worth::Result, _) | (Some(_), Worth::Refusal, Taken::Not { .. }) => {
                held::settled(answer, taken, &self.relay.answers)
            }
        };
        let now = match taken {
            Taken::At(now) | Taken::Not { since: now, .. } => now,
        };
        if let Waiters(Some(waits)) = self.close(settled, now) {
            let outcome = match answer {
                Answer::Whole(response) => Outcome::Whole(Arc::new((**response).clone())),
                Answer::Refused(refused) => Outcome::Refused(refused.clone()),
                Answer::Stream(_) if self.course.worth == Worth::Refusal => Outcome::NotRun,
                Answer::Passing(_) | Answer::Stream(_) => Outcome::Unheld(Reason::Evicted),
            };
            Waiters(Some(waits)).ring(outcome);
        }
    }

    fn close(&mut self, settled: Settled<Held>, now: Millis) -> Waiters {
        // Taken out once: whatever comes after is a drop.
        let Some(shown) = self.course.shown.take() else {
            return Waiters(None);
        };
        let mut record = self.session.record();
        record.released(now);
        let heard = std::mem::replace(&mut self.course.heard, Heard::Nothing);
        gate::note(&mut record, &self.relay, &self.session.pool, (shown, heard), now);
        let Some(number) = self.course.number else {
            return Waiters(None);
        };
        let waits = record.beside.repeats.settle(number, settled);
        let remind_at = record.beside.repeats.remind_at();
        drop(record);
        self.session.remind_of_repeats(&self.relay, remind_at, now);
        Waiters(waits)
    }
}

impl Course {
    /// Notes what the backend's answer says of the credential that it was asked with.
    pub(crate) fn heard<W: World>(
        &mut self,
        sent: Result<Sent<W>, Unanswered>,
    ) -> Result<Sent<W>, Unanswered> {
        self.heard = Heard::of(&sent);
        sent
    }

    /// Its answer is a refusal, though it looks like a result: it is not given to whoever asks again after having had it.
    pub(crate) const fn is_refused(&mut self) {
        self.worth = Worth::Refusal;
    }

    /// A stream of this epoch is about to answer it. Next: ring, when it is registered; or [`streams_not`].
    pub(crate) fn streams_as<W: World>(&self, session: &Session<W>, epoch: Epoch) -> Waiters {
        let Some(number) = self.number else {
            return Waiters(None);
        };
        Waiters(session.record().beside.repeats.streaming(number, epoch))
    }
}

/// The stream of this epoch, which was to answer a POST, did not begin.
pub(crate) fn streams_not<W: World>(session: &Session<W>, epoch: Epoch, now: Millis) {
    let left = Left::Unheld(Reason::BackendLost);
    session.record().beside.repeats.left(epoch, left, now);
}

impl<W: World> Drop for Ticket<W> {
    fn drop(&mut self) {
        if self.course.shown.is_some() {
            // It ran for longer than anybody waits, or this proxy ends: whoever waits hears nothing, which says so.
            let reason = Reason::Evicted;
            let now = self.relay.now();
            let until = Taken::At(now).until();
            drop(self.close(Settled::Unheld { reason, until }, now));
        }
    }
}

impl<W: World> Session<W> {
    /// Asks for a reminder of what is remembered for a while.
    pub(crate) fn remind_of_repeats(self: &Arc<Self>, relay: &Relay<W>, at: Option<Millis>, now: Millis) {
        if let Some(at) = at {
            let itself = Arc::clone(self) as Arc<dyn Due>;
            let sleeper = Sleeper::Repeats(Arc::downgrade(&itself));
            relay.sweep.remind(at, now, sleeper);
        }
    }
}

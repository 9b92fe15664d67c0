//! A POST of an HTTP+SSE session: sent once to the backend's own endpoint; its answers come on the stream.
//! Law: a request is known to the stream before a byte of it is sent, and has one outcome there: the backend's answer, or
//! our error. Only a refusal of the backend's own, relayed with its status, is an outcome of its own.
//! Why 202 and an error on the stream where a request could not be sent: any other status ends the whole of one SDK's
//! client, and a 2xx with an error in its body is read by nobody, so that the call would hang.
//! Next: `stream.rs`.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;
use tracing::debug;

use crate::config::resolved::Errors;
use crate::pure::epoch::{Epoch, Reason};
use crate::pure::refusal::Failure;
use crate::pure::rpc::RequestId;
use crate::pure::session::Asks;
use crate::relay::Relay;
use crate::relay::answer::{Answer, NotExecuted, RETRY_AFTER, Refused};
use crate::relay::exchange::{Sent, WholeAnswer};
use crate::relay::http_sse::stream::{Begin, Carried, Outcome, Refusal};
use crate::relay::mailbox::{Command, Mailbox};
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{Request, Unanswered};
use crate::relay::session::Session;
use crate::relay::ticket::Course;
use crate::relay::world::World;
use crate::telemetry::words;

/// The answers of one POST, where they are awaited.
struct Awaiting {
    /// The stream on which they come, if it is held here.
    stream: Option<Arc<Mailbox>>,
    /// The mark of the POST.
    post: Epoch,
}

impl Awaiting {
    /// The backend refused the POST in its own words: no answers come.
    fn withdraw<W: World>(&self, session: &Session<W>) -> Refusal {
        match &self.stream {
            Some(_) => session.post_is_refused(self.post),
            None => Refusal::InTime,
        }
    }

    /// The requests have this outcome.
    fn fail<W: World>(&self, outcome: Outcome) -> Answer<Passing<W>> {
        self.tell(outcome);
        match &self.stream {
            Some(_) => accepted(),
            // Another proxy holds the stream: this is all that the client can be told.
            None => Answer::Refused(Refused::BackendUnreachable),
        }
    }

    fn tell(&self, outcome: Outcome) {
        if let Some(stream) = &self.stream {
            let post = self.post;
            stream.post(Command::Carried(Carried::Failed { post, outcome }));
        }
    }
}

/// A POST that is under way. If it is waited for no more before its end is known, its requests have an error all the same:
/// their client went away from the POST, not from the stream.
struct Owed<'a>(Option<&'a Awaiting>);

impl Owed<'_> {
    /// Its end is known.
    fn settle(mut self) {
        self.0 = None;
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if let Some(awaiting) = self.0 {
            awaiting.tell(LOST);
        }
    }
}

/// Whether it ran is unknown.
const LOST: Outcome = Outcome::Failed(Failure::Lost {
    reason: Reason::BackendLost,
});

/// What a POST is answered whose answers come on the stream.
fn accepted<W: World>() -> Answer<Passing<W>> {
    passing::whole(
        StatusCode::ACCEPTED,
        HeaderMap::new(),
        Bytes::from_static(b"Accepted"),
    )
}

/// The same POST came again: it runs, or has just run, and its one outcome is on the stream.
pub(crate) fn again<W: World>(session: &Session<W>) -> Answer<Passing<W>> {
    debug!(session = %session.label(), "the same POST came again; its answer is on the stream");
    session.pool.instruments.repeats.one(words::Repeated::Waited);
    accepted()
}

/// Sends requests whose answers come on the session's stream.
pub(crate) async fn execute<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (mut request, asks): (Request, Asks),
    ids: Vec<RequestId>,
    course: &mut Course,
) -> Answer<Passing<W>> {
    let awaiting = match begin(relay, session, ids).await {
        Begun::Awaiting(awaiting) => awaiting,
        Begun::Full => {
            // Nothing ran: the same is a new request.
            course.is_refused();
            return accepted();
        }
        Begun::Stalled => {
            return Answer::Refused(Refused::StreamStalled {
                retry_after: RETRY_AFTER,
            });
        }
        Begun::Over => return Answer::Refused(Refused::SessionGone),
    };
    request.post = awaiting.stream.is_some().then_some(awaiting.post);
    // Where its answers come elsewhere, nobody here hears of them: it is remembered as an answer is.
    if awaiting.stream.is_some() {
        // Nobody waits for it yet: whoever sends the same is answered without.
        drop(course.streams_as(session, awaiting.post));
    }
    let owed = Owed(Some(&awaiting));
    let sending = pin!(session.call(relay, &mut request, asks));
    let ended = relay.running.within(sending).await;
    owed.settle();
    let Some((_, sent)) = ended else {
        // The time to drain is over: the stream says so to every call.
        return accepted();
    };
    let not_sent = |why: NotExecuted| Outcome::Failed(why.failure());
    match course.heard(sent) {
        Ok(Sent::Answer(incoming)) if incoming.head.status.is_success() => {
            // What it says besides is for nobody; read, so that its connection can be used again.
            passing::pass(incoming).await.unwrap_or_else(|_| accepted())
        }
        Ok(Sent::Answer(incoming)) => match translated(session, &awaiting, incoming.head.status) {
            Some(said) => {
                let answer = awaiting.fail(said);
                let _ = passing::content::<W>(incoming).await;
                answer
            }
            None => match awaiting.withdraw(session) {
                Refusal::InTime => passing::pass_on(incoming).await,
                Refusal::TooLate => accepted(),
            },
        },
        Ok(Sent::Whole(answer)) => refused(session, &awaiting, answer),
        Ok(Sent::SessionGone) => Answer::Refused(Refused::SessionGone),
        Ok(Sent::NotRun | Sent::Refused) => awaiting.fail(Outcome::Failed(Failure::NotRun)),
        Ok(Sent::Strange) | Err(Unanswered::Lost(_) | Unanswered::TimedOut) => awaiting.fail(LOST),
        Err(Unanswered::NoReplica) => awaiting.fail(not_sent(NotExecuted::Unavailable)),
        Err(Unanswered::NotSent(why)) => awaiting.fail(not_sent(why)),
    }
}

/// A backend's refusal that had to be read to be understood.
fn refused<W: World>(session: &Session<W>, awaiting: &Awaiting, answer: WholeAnswer) -> Answer<Passing<W>> {
    match translated(session, awaiting, answer.status()) {
        Some(said) => awaiting.fail(said),
        None => match awaiting.withdraw(session) {
            Refusal::InTime => answer.into_answer(),
            Refusal::TooLate => accepted(),
        },
    }
}

/// The error on the stream in place of a backend's refusal with this status, where that is asked for (`errors`).
fn translated<W: World>(session: &Session<W>, awaiting: &Awaiting, status: StatusCode) -> Option<Outcome> {
    let meant = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND
    );
    match (session.pool.config.errors, &awaiting.stream) {
        (Errors::Jsonrpc, Some(_)) if !meant => Some(Outcome::BackendRefused(status.as_u16())),
        (Errors::Jsonrpc | Errors::Pass, _) => None,
    }
}

/// What came of announcing a POST to the stream.
enum Begun {
    /// It may be sent.
    Awaiting(Awaiting),
    /// Too many are under way; the stream has said so.
    Full,
    /// Nothing can be told on the stream.
    Stalled,
    /// The session is over.
    Over,
}

/// Tells the stream which answers will come on it, before anything is sent: a fast backend answers before its 202.
async fn begin<W: World>(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, ids: Vec<RequestId>) -> Begun {
    let post = Epoch::from_random(relay.chance());
    let stream = match (session.carrier(), session.standalone_mailbox()) {
        (Some(_), Some(stream)) => stream,
        (Some(_), None) => return Begun::Over,
        (None, _) => return Begun::Awaiting(Awaiting { stream: None, post }),
    };
    let (reply, begun) = oneshot::channel();
    stream.post(Command::Carried(Carried::Begin { ids, post, reply }));
    match begun.await {
        Ok(Begin::Open) => Begun::Awaiting(Awaiting {
            stream: Some(stream),
            post,
        }),
        Ok(Begin::Full) => Begun::Full,
        Ok(Begin::Stalled) => Begun::Stalled,
        Ok(Begin::Over) | Err(_) => Begun::Over,
    }
}

//! A POST within a session: sent once, answered once.
//! Law: a request is never sent again after a byte of it was written; what is not known to be unexecuted is said so.
//! An event stream becomes a stream of ours, with a log before it has a reader; JSON passes whole.
//! A client that goes away before the head cancels nothing: the exchange goes on without it (`Kept`).
//! Next: `stream_task.rs`.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tracing::{debug, info, warn};

use crate::pure::epoch::Reason;
use crate::pure::event_id::{Rid, StreamName};
use crate::pure::rpc::RequestId;
use crate::pure::stream::{Agent, Life};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, NotExecuted, Refused};
use crate::relay::birth::{Beginning, Place};
use crate::relay::exchange::Sent;
use crate::relay::headers;
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{BackendAnswer, Request, Unanswered};
use crate::relay::said::Said;
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;

/// Answers a POST of a session.
pub(crate) async fn post<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: Call,
    said: Said,
) -> Answer<Passing<W>> {
    let agent = headers::agent_of(&call.headers);
    let request = Request::of(call);
    match said {
        // Not JSON-RPC: the backend's to judge.
        Said::Unreadable | Said::Nothing => Box::pin(plain(relay, session, request)).await,
        Said::Initialize { id } => {
            let asking = Asking { ids: vec![id], agent };
            Box::pin(execute(relay, session, request, asking)).await
        }
        Said::Requests { ids, note } => {
            session.note(note);
            execute(relay, session, request, Asking { ids, agent }).await
        }
        Said::Notices { cancelled } => {
            let answer = Box::pin(notify(relay, session, request)).await;
            if let Some(id) = cancelled {
                session.cancelled(&id);
            }
            answer
        }
    }
}

/// What a POST of requests asks for.
struct Asking {
    ids: Vec<RequestId>,
    agent: Agent,
}

/// Something that is no JSON-RPC, on its session's replica.
async fn plain<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    request: Request,
) -> Answer<Passing<W>> {
    match session.send(relay, request).await {
        Ok(Sent::Answer(incoming)) => pass_on(incoming).await,
        Ok(Sent::Whole(answer)) => answer.into_answer(),
        Ok(Sent::SessionGone) => Answer::Refused(Refused::SessionGone),
        Err(_) => Answer::Refused(Refused::BackendUnreachable),
    }
}

async fn pass_on<W: World>(incoming: BackendAnswer<W>) -> Answer<Passing<W>> {
    passing::pass(incoming)
        .await
        .unwrap_or(Answer::Refused(Refused::BackendUnreachable))
}

/// Notifications and answers: 202 while the session is alive, whatever becomes of them (wire contract, section 7): a
/// client that gets anything else may give its whole session up. What is lost is counted and logged.
async fn notify<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    request: Request,
) -> Answer<Passing<W>> {
    match session.send(relay, request).await {
        Ok(Sent::SessionGone) => Answer::Refused(Refused::SessionGone),
        // A credential that is not accepted is the client's to know.
        Ok(Sent::Answer(incoming))
            if matches!(
                incoming.head.status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            ) =>
        {
            pass_on(incoming).await
        }
        Ok(Sent::Whole(answer)) if answer.denies() => answer.into_answer(),
        Ok(Sent::Answer(incoming)) => {
            let status = incoming.head.status;
            // Mostly empty; reading it gives the connection back.
            let _ = passing::content::<W>(incoming).await;
            accepted(session, status)
        }
        Ok(Sent::Whole(answer)) => accepted(session, answer.status()),
        Err(why) => {
            warn!(session = %session.label(), ?why, "notification was lost on its way to the backend");
            passing::whole(StatusCode::ACCEPTED, HeaderMap::new(), Bytes::new())
        }
    }
}

fn accepted<W: World>(session: &Session<W>, status: StatusCode) -> Answer<Passing<W>> {
    if !status.is_success() {
        info!(session = %session.label(), %status, "backend did not accept a notification");
    }
    passing::whole(StatusCode::ACCEPTED, HeaderMap::new(), Bytes::new())
}

/// Requests: sent once; the answer is a stream of ours, or the backend's whole answer, or an error for each.
async fn execute<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    request: Request,
    asking: Asking,
) -> Answer<Passing<W>> {
    let ids = asking.ids;
    if let Err(full) = session.room_for_post() {
        warn!(session = %session.label(), running = full.running, "call refused: streams_max run already");
        let why = NotExecuted::Overloaded;
        return Answer::Refused(Refused::NotExecuted { ids, why });
    }
    // Pinned here: what is handed on by value is copied whole, and it is large.
    let sending = pin!(session.send(relay, request));
    let Some(sent) = relay.running.within(sending).await else {
        let reason = Reason::OwnerLost;
        return Answer::Refused(Refused::OutcomeUnknown { ids, reason });
    };
    let incoming = match sent {
        Ok(Sent::Answer(incoming)) => incoming,
        Ok(Sent::Whole(answer)) => return answer.into_answer(),
        Ok(Sent::SessionGone) => return Answer::Refused(Refused::SessionGone),
        Err(Unanswered::NoReplica) => {
            return Answer::Refused(Refused::NotExecuted {
                ids,
                why: NotExecuted::Unavailable,
            });
        }
        Err(Unanswered::NotSent(why)) => return Answer::Refused(Refused::NotExecuted { ids, why }),
        Err(Unanswered::Lost(_) | Unanswered::TimedOut) => {
            return Answer::Refused(lost(ids));
        }
    };
    if incoming.head.status.is_success() && headers::is_event_stream(&incoming.head.headers) {
        let agent = asking.agent;
        return Box::pin(stream(relay, session, incoming, Asking { ids, agent })).await;
    }
    match passing::pass(incoming).await {
        Ok(answer) => answer,
        Err(error) => {
            debug!(session = %session.label(), %error, "backend's answer broke off");
            Answer::Refused(lost(ids))
        }
    }
}

/// They were sent, and what became of them can't be known any more.
fn lost(ids: Vec<RequestId>) -> Refused {
    let reason = Reason::BackendLost;
    Refused::OutcomeUnknown { ids, reason }
}

/// Makes the backend's event stream one of ours.
async fn stream<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    incoming: BackendAnswer<W>,
    asking: Asking,
) -> Answer<Passing<W>> {
    let Asking { ids, agent } = asking;
    let name = match ids.as_slice() {
        [one] => StreamName::Post(Rid::from_request_id(one)),
        several => match Rid::from_batch(several) {
            Some(rid) => StreamName::Post(rid),
            None => return passing::untouched(incoming),
        },
    };
    let (head, body) = incoming.into_events(session.pool.config.stream.event_bytes_max);
    let source = Source::Reading(Box::new(body));
    let life = Life::post(ids.clone());
    let place = Place::new(relay, name);
    let mut task = match StreamTask::open(relay, session, place, Beginning { life, source, agent }).await {
        Ok(task) => task,
        Err(loss) => {
            warn!(session = %session.label(), ?loss, "no log could be opened for an answer");
            return Answer::Refused(lost(ids));
        }
    };
    let opening = task.first_opening(head.headers);
    match task.spawn_post() {
        Ok(()) => Answer::Stream(opening),
        Err(full) => {
            warn!(session = %session.label(), running = full.running, "answer refused: streams_max run already");
            Answer::Refused(lost(ids))
        }
    }
}

//! A POST within a session: sent once, answered once.
//! Law: a request is never sent again after a byte of it was written; what is not known to be unexecuted is said so.
//! An event stream becomes a stream of ours, with a log before it has a reader; JSON passes whole.
//! A client that goes away before the head cancels nothing: the exchange goes on without it (`Kept`).
//! Next: `stream_task.rs`; before it stands `repeat.rs`.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::pure::epoch::Reason;
use crate::pure::event_id::{Rid, StreamName};
use crate::pure::refusal::{self, Execution, Failure, Unserved};
use crate::pure::rpc::RequestId;
use crate::pure::session::{Asks, Generation, Restored};
use crate::pure::session_token::Transport;
use crate::pure::stream::{Agent, Life};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, NotExecuted, Refused};
use crate::relay::birth::{Beginning, Place};
use crate::relay::exchange::Sent;
use crate::relay::headers;
use crate::relay::http_sse;
use crate::relay::isolated::{self, Unfit};
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{BackendAnswer, Request, Unanswered};
use crate::relay::refuse::{self, Refusing};
use crate::relay::said::Said;
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::ticket::{self, Course, Outcome};
use crate::relay::translated;
use crate::relay::upgrade::{self, Began};
use crate::relay::withdrawals::GivenUp;
use crate::relay::world::World;

/// Answers a POST of a session.
pub(crate) async fn post<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: Box<Call>,
    said: Said,
    course: &mut Course,
) -> Answer<Passing<W>> {
    let mut request = Request::of(call);
    request.body = session.outward(request.body);
    match said {
        // Not JSON-RPC: the backend's to judge.
        Said::Unreadable | Said::Nothing => Box::pin(plain(relay, session, request, course)).await,
        Said::Initialize { id } => {
            let asking = (&mut request, Asks::Other);
            Box::pin(execute(relay, session, asking, vec![id], course)).await
        }
        Said::Requests {
            ids,
            note,
            cancelled,
            answered,
        } => {
            let asks = note.asks();
            session.note(note);
            if !answered.is_empty() {
                session.client_answered(&answered);
                // Its requests are left in any case.
                without_late(session, &mut request);
            }
            let answer = match session.transport {
                Transport::Streamable => execute(relay, session, (&mut request, asks), ids, course).await,
                Transport::HttpSse => {
                    Box::pin(http_sse::post::execute(
                        relay,
                        session,
                        (request, asks),
                        ids,
                        course,
                    ))
                    .await
                }
            };
            for id in cancelled {
                session.cancelled(&id);
            }
            answer
        }
        Said::Notices { cancelled, answered } => {
            session.client_answered(&answered);
            match without_late(session, &mut request) {
                Left::Some => {}
                Left::Nothing => return passing::whole(StatusCode::ACCEPTED, HeaderMap::new(), Bytes::new()),
            }
            let answer = Box::pin(notify(relay, session, request, course)).await;
            for id in cancelled {
                session.cancelled(&id);
            }
            answer
        }
    }
}

/// What is left of a POST without answers that came after the proxy's own.
enum Left {
    Some,
    Nothing,
}

/// Takes answers out that came after the proxy's own.
fn without_late<W: World>(session: &Session<W>, request: &mut Request) -> Left {
    let Some(answered) = session.answered_here() else {
        return Left::Some;
    };
    match answered.restore(&request.body) {
        Restored::AsItCame => Left::Some,
        Restored::Like { body, dropped } => {
            session.pool.instruments.notices_dropped.add(dropped);
            request.body = Bytes::from(body);
            Left::Some
        }
        Restored::Dropped { dropped: answers } => {
            session.pool.instruments.notices_dropped.add(answers);
            debug!(session = %session.label(), answers, "answers came after the proxy's own and were dropped");
            Left::Nothing
        }
    }
}

/// What a POST of requests asks for.
struct Asking {
    ids: Vec<RequestId>,
    agent: Agent,
}

impl Asking {
    /// Of this request, for a stream.
    fn of(request: &Request, ids: Vec<RequestId>) -> Self {
        let agent = headers::agent_of(&request.headers);
        Self { ids, agent }
    }
}

/// Something that is no JSON-RPC, on its session's replica.
async fn plain<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    request: Request,
    course: &mut Course,
) -> Answer<Passing<W>> {
    match course.heard(session.send(relay, request).await) {
        Ok(Sent::Answer(incoming)) => passing::pass_on(incoming).await,
        Ok(Sent::Whole(answer)) => answer.into_answer(),
        Ok(Sent::SessionGone) => Answer::Refused(Refused::SessionGone),
        Ok(Sent::Refused | Sent::NotRun | Sent::Strange) | Err(_) => {
            Answer::Refused(Refused::BackendUnreachable)
        }
    }
}

/// Notifications and answers: 202 while the session is alive, whatever becomes of them (wire contract, section 7): a
/// client that gets anything else may give its whole session up. What is lost is counted and logged.
async fn notify<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    mut request: Request,
    course: &mut Course,
) -> Answer<Passing<W>> {
    let until = Instant::now() + session.pool.config.exchange.replica_retry_max;
    let _in_line = match session.standing.line_up(session.label(), until).await {
        Ok(place) => place,
        Err(why) => return dropped(session, why.as_str()),
    };
    let sent = session.call(relay, &mut request, Asks::Notices).await.1;
    match course.heard(sent) {
        Ok(Sent::SessionGone) => Answer::Refused(Refused::SessionGone),
        Ok(Sent::Refused | Sent::NotRun | Sent::Strange) => dropped(session, "backend_lost"),
        // A credential that is not accepted is the client's to know.
        Ok(Sent::Answer(incoming))
            if matches!(
                incoming.head.status,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            ) =>
        {
            passing::pass_on(incoming).await
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
            dropped(session, "lost")
        }
    }
}

/// It belongs to what is gone, or could not be sent: its client need not know.
fn dropped<W: World>(session: &Session<W>, why: &str) -> Answer<Passing<W>> {
    session.pool.instruments.notices_dropped.one();
    debug!(session = %session.label(), why, "a notification or an answer was dropped");
    passing::whole(StatusCode::ACCEPTED, HeaderMap::new(), Bytes::new())
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
    (request, asks): (&mut Request, Asks),
    ids: Vec<RequestId>,
    course: &mut Course,
) -> Answer<Passing<W>> {
    let (generation, sent) = match begin(relay, session, (&mut *request, asks), &ids).await {
        Ok(Began::Answered(sent)) => sent,
        Ok(Began::Slow(source, generation)) => {
            let answering = (HeaderMap::new(), source, generation);
            let asking = Asking::of(request, ids);
            return Box::pin(stream(relay, session, answering, asking, course)).await;
        }
        Err(GivenUp::Withdrawn) => return withdrawn(session, &ids),
        Err(GivenUp::DrainOver) => {
            let reason = Reason::OwnerLost;
            return Answer::Refused(Refused::OutcomeUnknown { ids, reason });
        }
    };
    let incoming = match course.heard(sent) {
        Ok(Sent::Answer(incoming)) => incoming,
        Ok(Sent::Whole(answer)) => {
            let translated = translated::error(session, &ids, answer.status(), course);
            return translated.unwrap_or_else(|| answer.into_answer());
        }
        Ok(Sent::SessionGone) => return Answer::Refused(Refused::SessionGone),
        Ok(Sent::NotRun) => return refuse::not_run(&ids, course),
        Ok(Sent::Strange) => return Answer::Refused(lost(ids)),
        Ok(Sent::Refused) => {
            let refusing = Refusing {
                ids: &ids,
                body: &request.body,
                fields: &request.headers,
                agent: headers::agent_of(&request.headers),
            };
            return refuse::tell(relay, session, &refusing, course);
        }
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
        let (head, body) = incoming.into_events(session.pool.config.stream.event_bytes_max);
        let answering = (head.headers, Source::Reading(Box::new(body)), generation);
        let asking = Asking::of(request, ids);
        return Box::pin(stream(relay, session, answering, asking, course)).await;
    }
    if let Some(answer) = translated::error(session, &ids, incoming.head.status, course) {
        return answer;
    }
    whole(session, incoming, ids).await
}

/// Sends requests, until their answer begins or they are given up.
async fn begin<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (request, asks): (&mut Request, Asks),
    ids: &[RequestId],
) -> Result<Began<W>, GivenUp> {
    match upgrade::upgrades_after(session, request) {
        None => {
            // Pinned here: what is handed on by value is copied whole, and it is large.
            let sending = pin!(session.call(relay, request, asks));
            let sent = session.while_wanted(relay, ids, sending).await;
            sent.map(Began::Answered)
        }
        Some(after) => {
            let mut sending = Box::pin(upgrade::send(relay, session, (request.clone(), asks), after));
            session.while_wanted(relay, ids, sending.as_mut()).await
        }
    }
}

/// An answer that is no stream, with the client's own ids.
async fn whole<W: World>(
    session: &Session<W>,
    incoming: BackendAnswer<W>,
    ids: Vec<RequestId>,
) -> Answer<Passing<W>> {
    let passed = match &session.isolation {
        None => passing::pass(incoming).await.map_err(Unfit::Body),
        Some(isolation) => Box::pin(isolated::pass(session, isolation, incoming)).await,
    };
    match passed {
        Ok(answer) => answer,
        Err(error) => {
            debug!(session = %session.label(), %error, "backend's answer broke off");
            Answer::Refused(lost(ids))
        }
    }
}

/// Their client does not want the answer any more, and the backend was told so: that is the answer.
fn withdrawn<W: World>(session: &Session<W>, ids: &[RequestId]) -> Answer<Passing<W>> {
    debug!(session = %session.label(), "a call was cancelled before its answer began");
    let failure = Failure::Unserved {
        why: Unserved::Cancelled,
        execution: Execution::Unknown,
    };
    passing::json(HeaderMap::new(), refusal::errors(ids, failure).into())
}

/// They were sent, and what became of them can't be known any more.
fn lost(ids: Vec<RequestId>) -> Refused {
    let reason = Reason::BackendLost;
    Refused::OutcomeUnknown { ids, reason }
}

/// Makes the backend's answer a stream of ours, with these fields of its head.
async fn stream<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (head, source, generation): (HeaderMap, Source<W>, Generation),
    asking: Asking,
    course: &mut Course,
) -> Answer<Passing<W>> {
    let Asking { ids, agent } = asking;
    let name = match ids.as_slice() {
        [one] => StreamName::Post(Rid::from_request_id(one)),
        several => match Rid::from_batch(several) {
            Some(rid) => StreamName::Post(rid),
            None => return Answer::Refused(lost(ids)),
        },
    };
    let life = Life::post(ids.clone());
    let place = Place::new(relay, name);
    let beginning = Beginning {
        life,
        source,
        agent,
        generation,
    };
    let mut task = match StreamTask::open(relay, session, place, beginning).await {
        Ok(task) => task,
        Err(loss) => {
            warn!(session = %session.label(), ?loss, "no log could be opened for an answer");
            return Answer::Refused(lost(ids));
        }
    };
    let opening = task.first_opening(head);
    let (epoch, waiting) = (task.epoch, course.streams_as(session, task.epoch));
    match task.spawn_post() {
        Ok(()) => {
            waiting.ring(Outcome::Stream(epoch));
            Answer::Stream(Box::new(opening))
        }
        Err(full) => {
            ticket::streams_not(session, epoch, relay.now());
            warn!(session = %session.label(), running = full.running, "answer refused: streams_max run already");
            Answer::Refused(lost(ids))
        }
    }
}

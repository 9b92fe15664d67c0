//! Requests without a session, and those of the revision that has none (wire contract, section 11).
//! Law: they pass byte for byte, header fields and refusals too; nothing is ever sent again after a byte of it was
//! written. A client that goes away drops what is here, and with it the connection to the backend: that is its cancel.
//! What contradicts itself (field and body, method and name) is the backend's to judge: it is the one that acts on it.
//! Why 5xx where there is no answer: clients learn from answers below 500 which era a server speaks, and remember it.
//! Next: `events_task.rs`, for answers that are event streams.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::CONTENT_ENCODING;
use tracing::debug;

use crate::pure::epoch::Reason;
use crate::pure::http1::head::{Framing, ResponseHead};
use crate::pure::revision::Era;
use crate::pure::rpc::RequestId;
use crate::pure::stateless::{Errand, TaskKey};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, NoAnswer, NotExecuted, RETRY_AFTER, Refused, Resource};
use crate::relay::beside;
use crate::relay::events_task::{Events, Waits};
use crate::relay::headers;
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{BackendAnswer, KnownBy, Pool, Request, Unanswered};
use crate::relay::said::Said;
use crate::relay::world::World;
use crate::routing::{Replica, Wants};
use crate::upstream::Deadline;

/// Passes a request to any replica, or to the one that has the task it is about.
pub(crate) async fn pass<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    (call, said): (Box<Call>, Said),
    era: Era,
) -> Answer<Passing<W>> {
    let errand = match (era, &said) {
        (Era::Stateless, Said::Requests { .. }) => Errand::of(&call.body),
        (Era::Stateless | Era::Session, _) => Errand::Other,
    };
    // A stream that anybody may open has nothing to finish, and neither has a listener: a drain does not wait for them.
    let waits = call.method == Method::POST && errand != Errand::Listen;
    let ids = said.into_ids();
    let resource = call.resource.clone();
    let sending = pin!(send(relay, pool, call, errand));
    let sent = if waits {
        relay.running.within(sending).await
    } else {
        Some(sending.await)
    };
    let (replica, incoming) = match sent {
        Some(Ok(answered)) => answered,
        Some(Err(why)) => return Answer::Refused(unanswered(why, ids, era)),
        None => return Answer::Refused(lost(ids, Reason::OwnerLost, era)),
    };
    if is_followed::<W>(&incoming) {
        let waits = match errand {
            Errand::Listen => ids.into_iter().next().map_or(Waits::Nothing, Waits::Changes),
            Errand::Task(_) | Errand::Other if ids.is_empty() => Waits::Nothing,
            Errand::Task(_) | Errand::Other => Waits::Answers(ids),
        };
        return follow((relay, pool), replica, (incoming, None), waits);
    }
    match passing::pass(incoming).await {
        Ok(answer) if resource != Resource::Endpoint => beside::publish(pool, &replica, &resource, answer),
        Ok(answer) => {
            if let (Answer::Whole(response), Era::Stateless) = (&answer, era)
                && let Some(task) = TaskKey::begun_by(response.body())
            {
                pool.tasks().begun(task, replica.key(), relay.now());
            }
            answer
        }
        Err(error) => {
            debug!(upstream = %pool.config.name, replica = %replica.authority(), %error, "backend's answer broke off");
            Answer::Refused(lost(ids, Reason::BackendLost, era))
        }
    }
}

/// Passes on what answered a GET that might have begun a session and did not, as where none can begin. This was read of
/// it already, if it is an event stream.
pub(super) async fn pass_unfounded<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    replica: Arc<Replica>,
    (incoming, ahead): (BackendAnswer<W>, Option<Bytes>),
) -> Answer<Passing<W>> {
    if is_followed::<W>(&incoming) {
        return follow((relay, pool), replica, (incoming, ahead), Waits::Nothing);
    }
    match ahead {
        // Its frames can't be seen.
        Some(_) => passing::untouched(incoming, ahead),
        None => passing::pass_on(incoming).await,
    }
}

/// Passes an event stream on, frame by frame, of which this was read already.
fn follow<W: World>(
    owners: (&Arc<Relay<W>>, &Arc<Pool<W>>),
    replica: Arc<Replica>,
    (incoming, ahead): (BackendAnswer<W>, Option<Bytes>),
    waits: Waits,
) -> Answer<Passing<W>> {
    let ResponseHead { status, headers, .. } = incoming.head;
    let events = Events::new(owners, replica, incoming.body, waits).behind(ahead);
    passing::framed(status, headers, events)
}

/// Sends it where it belongs, if that is known and answers; else to any replica, the least busy one by default.
async fn send<W: World>(
    relay: &Relay<W>,
    pool: &Pool<W>,
    call: Box<Call>,
    errand: Errand,
) -> Result<(Arc<Replica>, BackendAnswer<W>), Unanswered> {
    let from = call.peer;
    let request = Request::of(call);
    let home = match errand {
        Errand::Task(task) => pool.tasks().of(task, relay.now()),
        Errand::Listen | Errand::Other => None,
    };
    if let Some(replica) = home.and_then(|key| pool.table.get(key)) {
        let sent = pool
            .send_once(&replica, KnownBy::Nothing, &request, Deadline::Never)
            .await;
        match sent.map_err(Unanswered::from) {
            Ok(answer) => return Ok((replica, answer)),
            // Not a byte of it was written. If the task outlives its replica, any other has it; if not, they say so.
            Err(Unanswered::NotSent(NotExecuted::Unavailable)) => {}
            Err(why) => return Err(why),
        }
    }
    let sending = pool.send_any(
        (from, Wants::Exchange),
        KnownBy::Nothing,
        &request,
        Deadline::Never,
    );
    let (seat, answer) = sending.await?;
    Ok((Arc::clone(seat.replica()), answer))
}

/// Whether it is an event stream whose frames can be seen.
fn is_followed<W: World>(incoming: &BackendAnswer<W>) -> bool {
    let head = &incoming.head;
    let has_body = match head.framing {
        Framing::Empty => false,
        Framing::Length(_) | Framing::Chunked | Framing::UntilClose => true,
    };
    has_body && headers::is_event_stream(&head.headers) && !head.headers.contains_key(CONTENT_ENCODING)
}

fn unanswered(why: Unanswered, ids: Vec<RequestId>, era: Era) -> Refused {
    if ids.is_empty() {
        return match why {
            Unanswered::TimedOut => Refused::BackendTimeout,
            Unanswered::NoReplica | Unanswered::NotSent(_) | Unanswered::Lost(_) => {
                Refused::BackendUnreachable
            }
        };
    }
    let why = match why {
        Unanswered::NoReplica => NotExecuted::Unavailable,
        Unanswered::NotSent(why) => why,
        Unanswered::Lost(_) | Unanswered::TimedOut => return lost(ids, Reason::BackendLost, era),
    };
    match era {
        Era::Session => Refused::NotExecuted { ids, why },
        Era::Stateless => {
            let retry_after = RETRY_AFTER;
            let why = NoAnswer::NotExecuted { why, retry_after };
            Refused::StandsAlone { ids, why }
        }
    }
}

/// It was sent, and its answer is lost.
fn lost(ids: Vec<RequestId>, reason: Reason, era: Era) -> Refused {
    if ids.is_empty() {
        return Refused::BackendUnreachable;
    }
    match era {
        Era::Session => Refused::OutcomeUnknown { ids, reason },
        Era::Stateless => {
            let why = NoAnswer::OutcomeUnknown { reason };
            Refused::StandsAlone { ids, why }
        }
    }
}

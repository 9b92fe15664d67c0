//! `initialize`: the one exchange that makes a session.
//! Law: a client gets a session id only with an answer that a session can be made of; the answer is held until it is
//! read whole, since the token holds what was negotiated (wire contract, section 2).
//! It is answered as JSON, never primed and never logged. Other messages on its stream go to the head of the
//! session's standalone stream.
//! Next: `session.rs`.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::pure::revision::{Era, Revision};
use crate::pure::rpc::{self, EventKind, RequestId};
use crate::pure::session::{Opening, Presented};
use crate::pure::session_token::{self, BackendId, Flags, Sealed, Transport};
use crate::pure::sse::Block;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, RETRY_AFTER, Refused};
use crate::relay::headers;
use crate::relay::home::Signs;
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{BackendAnswer, KnownBy, Pool, Request, Unanswered};
use crate::relay::session::Fresh;
use crate::relay::world::World;
use crate::routing::{Seat, Wants};
use crate::upstream::{BodyError, Deadline, Read};

/// Messages on an initialize stream, before the answer, that are kept for the standalone stream.
const EARLY_MESSAGES_MAX: usize = 16;

/// A backend's answer to `initialize`, read whole.
pub(crate) struct Answered {
    /// The answer.
    pub(crate) response: Bytes,
    /// Messages before it.
    pub(crate) early: Vec<Box<[u8]>>,
}

/// Who answered, the head of the answer, and the credential that it answers.
struct Answering<'a> {
    seat: Seat,
    head: &'a HeaderMap,
    opener: Presented,
}

/// Answers an `initialize` request with this id.
pub(crate) async fn initialize<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    call: Box<Call>,
    id: RequestId,
) -> Answer<Passing<W>> {
    if relay.registry.count(pool.index) >= pool.config.session.sessions_max {
        warn!(upstream = %pool.config.name, "session refused: sessions_max is reached");
        return Answer::Refused(Refused::TooManySessions {
            retry_after: RETRY_AFTER,
        });
    }
    let limit = pool.config.exchange.initialize_max;
    let from = call.peer;
    let opener = Presented::of(relay.keys.current(), &pool.credentials, &call.headers);
    let request = Request::of(call);
    let sending = pool.send_any(
        (from, Wants::Session),
        KnownBy::Nothing,
        &request,
        Deadline::after(limit),
    );
    let (seat, incoming) = match sending.await {
        Ok(found) => found,
        Err(why) => return Answer::Refused(refused(why)),
    };
    if !incoming.head.status.is_success() {
        info!(upstream = %pool.config.name, replica = %seat.replica().authority(), status = %incoming.head.status, "initialize was refused by the backend");
        return passing::pass_on(incoming).await;
    }
    let head = incoming.head.headers.clone();
    let answered = match timeout(limit, read(pool, incoming, &id)).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(what)) => return Answer::Refused(Refused::BadInitialize { what }),
        Err(_) => return Answer::Refused(Refused::BackendTimeout),
    };
    let mut sent = headers::to_client(head.clone());
    sent.remove(CONTENT_LENGTH);
    sent.remove(TRANSFER_ENCODING);
    let answering = Answering {
        seat,
        head: &head,
        opener,
    };
    match begin(relay, pool, &request, answering, answered) {
        Ok((token, response)) => {
            if let Some(token) = token {
                sent.insert(headers::SESSION_ID, token);
            }
            passing::json(sent, response)
        }
        Err(what) => {
            warn!(upstream = %pool.config.name, what, "no session could be made");
            Answer::Refused(Refused::BadInitialize { what })
        }
    }
}

fn refused(why: Unanswered) -> Refused {
    match why {
        Unanswered::NoReplica | Unanswered::NotSent(_) => Refused::NoReplica {
            retry_after: RETRY_AFTER,
        },
        Unanswered::Lost(_) => Refused::BackendUnreachable,
        Unanswered::TimedOut => Refused::BackendTimeout,
    }
}

/// Makes the session, if the answer negotiated one. The token, if any, and the answer.
fn begin<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    request: &Request,
    answering: Answering<'_>,
    answered: Answered,
) -> Result<(Option<HeaderValue>, Bytes), &'static str> {
    let Answering { seat, head, opener } = answering;
    let negotiated = rpc::lookup(&answered.response, &["result", "protocolVersion"]).and_then(rpc::text);
    let Some(revision) = negotiated.and_then(|text| Revision::parse(&*text)) else {
        // An error, or a revision that nobody here knows: the backend's word, and no session of ours.
        debug!(upstream = %pool.config.name, "initialize was answered without a session");
        return Ok((None, answered.response));
    };
    match revision.era() {
        Era::Stateless => return Ok((None, answered.response)),
        Era::Session => {}
    }
    let backend_id = head.get(headers::SESSION_ID);
    let backend_id = match backend_id.map(|value| BackendId::new(value.as_bytes())) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(_)) => return Err("the backend's session id is too long or not visible ASCII"),
    };
    let facts = Sealed {
        uid: relay.fresh_uid(),
        issued: relay.issue_time(),
        instance: relay.peers.instance(),
        flags: Flags::of_initialize(&answered.response),
        replica: seat.replica().key(),
        revision,
        transport: Transport::Streamable,
        backend_id,
    };
    let token = session_token::seal(relay.keys.current(), &pool.config.name, &facts, relay.random())
        .map_err(|_| "the session does not fit a token")?;
    let token = HeaderValue::try_from(token).map_err(|_| "the session does not fit a header")?;
    let instance_header = pool.config.session.instance_header.as_deref();
    let signs = Signs {
        backend_id: Signs::of_token(&facts).backend_id,
        ..Signs::of_answer(head, &answered.response, instance_header)
    };
    if let Some(server) = signs.server {
        seat.replica().saw(server);
    }
    let opening = Opening::of(&request.body, &answered.response);
    let fresh = Fresh {
        facts,
        signs,
        opening: opening.and_then(|opening| relay.beginnings.keep(opening)),
        token: token.clone(),
        carrier: None,
        seat,
        early: answered.early,
        opener: Some(opener),
    };
    let _ = relay.begin_session(pool, fresh);
    Ok((Some(token), answered.response))
}

/// Reads the answer to `initialize` out of a JSON body or an event stream.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) async fn read<W: World>(
    pool: &Pool<W>,
    incoming: BackendAnswer<W>,
    id: &RequestId,
) -> Result<Answered, &'static str> {
    if !headers::is_event_stream(&incoming.head.headers) {
        return match incoming.body.collect(pool.config.exchange.answer_bytes_max).await {
            Ok(response) => Ok(Answered {
                response,
                early: Vec::new(),
            }),
            Err(BodyError::TooLarge { .. }) => Err("the answer to initialize is too large"),
            Err(_) => Err("the connection broke within the answer to initialize"),
        };
    }
    let (_, mut events) = incoming.into_events(pool.config.exchange.answer_bytes_max);
    let (mut response, mut early) = (None, Vec::new());
    loop {
        let read = poll_fn(|cx| {
            events.poll_events(cx, &mut |block: Block<'_>| {
                if block.id.is_some_and(|id| !id.is_empty()) {
                    pool.seen_to_keep_events();
                }
                let data = block.data().unwrap_or_default();
                match rpc::classify_event(data) {
                    EventKind::Response(answers) if answers == *id && response.is_none() => {
                        response = Some(Bytes::copy_from_slice(data));
                    }
                    EventKind::Notification | EventKind::Request { .. }
                        if early.len() < EARLY_MESSAGES_MAX =>
                    {
                        early.push(data.into());
                    }
                    EventKind::Notification
                    | EventKind::Request { .. }
                    | EventKind::Response(_)
                    | EventKind::Batch(_)
                    | EventKind::Other => {}
                }
            })
        })
        .await;
        match (read, response.take()) {
            (_, Some(response)) => {
                return Ok(Answered { response, early });
            }
            (Ok(Read::Events), None) => {}
            (Ok(Read::End(_)), None) => return Err("the stream ended before initialize was answered"),
            (Err(_), None) => return Err("the stream broke before initialize was answered"),
        }
    }
}

//! A GET without a session: the stream that begins an HTTP+SSE session, if its answer begins with an `endpoint` event.
//! Law: a client is answered when it is known what it gets: our endpoint, or the backend's answer byte for byte, or what
//! is wrong with it. A backend's endpoint is never shown.
//! A client that leaves meanwhile leaves nothing behind: until a session stands, the exchange is its request's alone.
//! Next: `stream.rs`; the endpoint's rules are in `pure/http_sse.rs`.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::config::resolved::Transport as Spoken;
use crate::pure::event_id::StreamName;
use crate::pure::http_sse::{Base, ENDPOINT, Endpoint};
use crate::pure::revision::Revision;
use crate::pure::session::{Ended, Generation, Presented};
use crate::pure::session_token::{self, BackendId, Flags, Sealed, Transport};
use crate::pure::sse::{Block, Decoder};
use crate::pure::stream::{Agent, Life};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, RETRY_AFTER, Refused};
use crate::relay::birth::{Beginning, Place};
use crate::relay::headers;
use crate::relay::home::Signs;
use crate::relay::http_sse::Known;
use crate::relay::passing::Passing;
use crate::relay::pool::{BackendAnswer, KnownBy, Pool, Request, Unanswered};
use crate::relay::session::Fresh;
use crate::relay::source::Source;
use crate::relay::stateless;
use crate::relay::stream_task::StreamTask;
use crate::relay::turn::Told;
use crate::relay::world::World;
use crate::routing::{Seat, Wants};
use crate::upstream::{Deadline, EventBody};

/// How long an event stream of unknown transport may be silent before it is passed on as one of another: servers of this
/// transport name their endpoint at once.
const ENDPOINT_WAIT_MAX: Duration = Duration::from_secs(5);

/// How much may come before the first event is whole, in bytes: comments, and an event of whatever kind.
const FIRST_BYTES_MAX: usize = 64 * 1024;

/// What an event stream turned out to be.
enum Begins {
    /// HTTP+SSE.
    HttpSse(Box<Named>),
    /// Something else.
    Otherwise(&'static str),
}

/// An endpoint was named.
struct Named {
    /// The data of its event.
    data: Box<[u8]>,
    /// What came behind it.
    behind: Vec<Told>,
    /// Where the stream goes on.
    decoder: Decoder,
}

/// What the client that asks shows.
struct Asker {
    agent: Agent,
    opener: Presented,
    bears: Bears,
}

/// Whether a client brings signs of an earlier session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bears {
    Nothing,
    /// A cursor that nobody here gave.
    Cursor,
    /// What it negotiated once, and no cursor.
    Revision,
}

impl Asker {
    fn of<W: World>(relay: &Relay<W>, pool: &Pool<W>, fields: &HeaderMap) -> Self {
        let bears = match headers::cursor_of(fields) {
            None if fields.contains_key(headers::PROTOCOL_VERSION) => Bears::Revision,
            None => Bears::Nothing,
            Some(_) => Bears::Cursor,
        };
        Self {
            agent: headers::agent_of(fields),
            opener: Presented::of(relay.keys.current(), &pool.credentials, fields),
            bears,
        }
    }
}

/// Answers a GET without a session.
pub(super) async fn open<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    call: Box<Call>,
    known: Known,
) -> Answer<Passing<W>> {
    let deadline = match known {
        Known::Yes => match no_room(relay, pool) {
            Some(refused) => return Answer::Refused(refused),
            None => Deadline::after(pool.config.exchange.initialize_max),
        },
        Known::NotYet => Deadline::Never,
    };
    let asker = Asker::of(relay, pool, &call.headers);
    let from = call.peer;
    let request = Request::of(call);
    let sent = pool
        .send_any((from, Wants::Session), KnownBy::Nothing, &request, deadline)
        .await;
    let (seat, incoming) = match sent {
        Ok(found) => found,
        Err(why) => return Answer::Refused(unanswered(why, known)),
    };
    match recognise(pool, incoming, known).await {
        First::Otherwise(incoming, ahead) => {
            stateless::pass_unfounded(relay, pool, Arc::clone(seat.replica()), (incoming, ahead)).await
        }
        First::Bad(what) => bad(pool, &seat, what),
        First::HttpSse(incoming, named) => found(relay, pool, (seat, asker), (incoming, *named)).await,
    }
}

/// What a backend's answer to the GET turned out to be.
enum First<W: World> {
    HttpSse(BackendAnswer<W>, Box<Named>),
    /// The client's, as it is; this was read of it already.
    Otherwise(BackendAnswer<W>, Option<Bytes>),
    /// This is wrong with it.
    Bad(&'static str),
}

async fn recognise<W: World>(pool: &Pool<W>, mut incoming: BackendAnswer<W>, known: Known) -> First<W> {
    let succeeds = incoming.head.status.is_success();
    if !succeeds || !headers::is_event_stream(&incoming.head.headers) {
        return match pool.config.transport {
            Spoken::Sse if succeeds => First::Bad("the GET was not answered with an event stream"),
            Spoken::Auto | Spoken::Streamable | Spoken::Sse => First::Otherwise(incoming, None),
        };
    }
    let wait = match known {
        Known::Yes => pool.config.exchange.initialize_max,
        Known::NotYet => ENDPOINT_WAIT_MAX,
    };
    let mut read = BytesMut::new();
    let beginning = timeout(wait, begins(pool, &mut incoming, &mut read)).await;
    let late = Begins::Otherwise("the endpoint event did not come in time");
    match (beginning.unwrap_or(late), pool.config.transport) {
        (Begins::HttpSse(named), _) => {
            pool.seen_to_speak(Transport::HttpSse);
            First::HttpSse(incoming, named)
        }
        (Begins::Otherwise(what), Spoken::Sse) => First::Bad(what),
        (Begins::Otherwise(what), Spoken::Auto | Spoken::Streamable) => {
            debug!(upstream = %pool.config.name, what, "an event stream without a session was passed on as it is");
            pool.seen_to_speak(Transport::Streamable);
            First::Otherwise(incoming, Some(read.freeze()))
        }
    }
}

/// A session is to be founded on this, unless there is something against it.
async fn found<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    (seat, asker): (Seat, Asker),
    (incoming, named): (BackendAnswer<W>, Named),
) -> Answer<Passing<W>> {
    match asker.bears {
        Bears::Nothing => {}
        Bears::Cursor => {
            info!(upstream = %pool.config.name, "a cursor of a stream that is not known here was refused");
            return Answer::Refused(Refused::SessionGone);
        }
        // Which session it had, nobody can say.
        Bears::Revision => {
            warn!(upstream = %pool.config.name, "a client that had a session came back without a cursor; it begins anew, and what it missed is lost to it");
        }
    }
    if let Some(refused) = no_room(relay, pool) {
        return Answer::Refused(refused);
    }
    let Named {
        data,
        behind,
        decoder,
    } = named;
    let base = Base {
        origin: seat.replica().origin(),
        path: seat.replica().path(),
    };
    let endpoint = match Endpoint::resolve(base, &data) {
        Ok(endpoint) => endpoint,
        Err(why) => return bad(pool, &seat, why.as_str()),
    };
    let beginning = Beginning {
        life: Life::http_sse(),
        source: Source::Reading(Box::new(EventBody::behind(incoming.body, decoder))),
        agent: asker.agent,
        generation: Generation::FIRST,
    };
    let founding = Founding {
        seat,
        head: incoming.head.headers,
        opener: asker.opener,
        endpoint,
        behind,
    };
    begin(relay, pool, founding, beginning).await
}

fn no_room<W: World>(relay: &Relay<W>, pool: &Pool<W>) -> Option<Refused> {
    let retry_after = RETRY_AFTER;
    if relay.running.is_draining() {
        // It would end with this proxy.
        return Some(Refused::NoReplica { retry_after });
    }
    if relay.registry.count(pool.index) >= pool.config.session.sessions_max {
        warn!(upstream = %pool.config.name, "session refused: sessions_max is reached");
        return Some(Refused::TooManySessions { retry_after });
    }
    None
}

fn unanswered(why: Unanswered, known: Known) -> Refused {
    match (why, known) {
        (Unanswered::NoReplica | Unanswered::NotSent(_), Known::Yes) => Refused::NoReplica {
            retry_after: RETRY_AFTER,
        },
        (Unanswered::TimedOut, _) => Refused::BackendTimeout,
        (Unanswered::NoReplica | Unanswered::NotSent(_) | Unanswered::Lost(_), _) => {
            Refused::BackendUnreachable
        }
    }
}

fn bad<W: World>(pool: &Pool<W>, seat: &Seat, what: &'static str) -> Answer<Passing<W>> {
    warn!(upstream = %pool.config.name, replica = %seat.replica().authority(), what, "no session could be made of a stream");
    Answer::Refused(Refused::BadEndpoint { what })
}

/// Reads up to the first event. What was read is kept, for passing it on.
async fn begins<W: World>(pool: &Pool<W>, incoming: &mut BackendAnswer<W>, read: &mut BytesMut) -> Begins {
    let mut decoder = Decoder::new(pool.config.stream.event_bytes_max);
    let mut endpoint: Option<Box<[u8]>> = None;
    let mut behind = Vec::new();
    let mut other = false;
    loop {
        let piece = match poll_fn(|cx| incoming.body.poll_bytes(cx)).await {
            None => return Begins::Otherwise("the stream ended before its endpoint event"),
            Some(Err(_)) => return Begins::Otherwise("the stream broke before its endpoint event"),
            Some(Ok(piece)) => piece,
        };
        read.extend_from_slice(&piece);
        let fed = decoder.feed(&piece, &mut |block: Block<'_>| match (&endpoint, block.data()) {
            (Some(_), data) => behind.push(Told {
                event: block.event.into(),
                data: data.unwrap_or_default().into(),
            }),
            (None, Some(data)) if block.event == ENDPOINT => endpoint = Some(data.into()),
            // An id or a `retry` alone is no event.
            (None, None) => {}
            (None, Some(_)) => other = true,
        });
        if other || fed.is_err() {
            return Begins::Otherwise("the first event is not an endpoint event");
        }
        if let Some(data) = endpoint.take() {
            behind.retain(|told| !told.data.is_empty());
            return Begins::HttpSse(Box::new(Named {
                data,
                behind,
                decoder,
            }));
        }
        if read.len() > FIRST_BYTES_MAX {
            return Begins::Otherwise("the endpoint event is too long");
        }
    }
}

/// What a session is founded on.
struct Founding {
    seat: Seat,
    head: HeaderMap,
    opener: Presented,
    endpoint: Endpoint,
    behind: Vec<Told>,
}

/// Makes the session and its stream; the stream begins with our own endpoint.
async fn begin<W: World>(
    relay: &Arc<Relay<W>>,
    pool: &Arc<Pool<W>>,
    founding: Founding,
    beginning: Beginning<W>,
) -> Answer<Passing<W>> {
    let Founding {
        seat,
        head,
        opener,
        endpoint,
        behind,
    } = founding;
    let facts = Sealed {
        uid: relay.fresh_uid(),
        issued: relay.issue_time(),
        instance: relay.peers.instance(),
        flags: Flags::NONE,
        replica: seat.replica().key(),
        // What is negotiated later is between client and backend; nothing here depends on it.
        revision: Revision::OF_HTTP_SSE,
        transport: Transport::HttpSse,
        backend_id: BackendId::new(endpoint.as_str().as_bytes()).ok(),
    };
    let sealed = session_token::seal(relay.keys.current(), &pool.config.name, &facts, relay.random());
    let Some(token) = sealed.ok().and_then(|token| HeaderValue::try_from(token).ok()) else {
        return bad(pool, &seat, "the session does not fit a token");
    };
    let place = Place::new(relay, StreamName::HttpSse);
    let (epoch, mailbox) = (place.epoch, Arc::clone(&place.mailbox));
    let instance_header = pool.config.session.instance_header.as_deref();
    let signs = Signs {
        instance: Signs::of_answer(&head, &[], instance_header).instance,
        ..Signs::of_token(&facts)
    };
    let fresh = Fresh {
        facts,
        token,
        signs,
        opening: None,
        carrier: Some(epoch),
        seat,
        early: Vec::new(),
        opener: Some(opener),
    };
    let session = relay.begin_session(pool, fresh);
    session.add_standalone(epoch, &mailbox);
    match StreamTask::open(relay, &session, place, beginning).await {
        Ok(mut task) => {
            task.take_first(behind, relay.now());
            let opening = task.first_opening(headers::to_client(head));
            task.spawn_standalone();
            Answer::Stream(Box::new(opening))
        }
        Err(loss) => {
            warn!(session = %session.label(), ?loss, "no log could be opened for a session's stream");
            relay.end_session(&session, Ended::BackendLost);
            Answer::Refused(Refused::NoReplica {
                retry_after: RETRY_AFTER,
            })
        }
    }
}

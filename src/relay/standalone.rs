//! The standalone stream: one for each session, with the one upstream GET that the proxy owns.
//! Law: it is opened once, by whoever asks first, and re-opened by its own task; a client's connection never decides it.
//! The first client waits a little for the backend's head, so that a plain 405 can be passed on; afterwards it is
//! held on comments whatever the backend does (wire contract, section 7).
//! Next: `stream_task.rs`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use tracing::{debug, warn};

use crate::pure::epoch::{EpochEnd, Reason, Seq, Tombstone};
use crate::pure::event_id::StreamName;
use crate::pure::session::{Asks, Generation};
use crate::pure::stream::Life;
use crate::pure::stream::admission::Refusal;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Refused, Resource};
use crate::relay::birth::{Beginning, Place};
use crate::relay::exchange::{Sent, WholeAnswer};
use crate::relay::get::{self, Looked};
use crate::relay::headers;
use crate::relay::mailbox::{Asked, Mailbox, Reply};
use crate::relay::pool::{Request, Unanswered};
use crate::relay::session::Session;
use crate::relay::source::{Opened, Opening, Source};
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;
use crate::upstream::Deadline;

/// Asks the standalone stream, opening it if there is none.
pub(crate) async fn ask<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: &Call,
    asked: Asked,
) -> Looked<W> {
    let agent = headers::agent_of(&call.headers);
    let standing = session.standalone_mailbox();
    let mailbox = standing.unwrap_or_else(|| open(relay, session, call));
    Looked::Answer(match get::ask(&mailbox, asked, agent).await {
        Reply::Open(opening) => Answer::Stream(Box::new(opening)),
        Reply::Ended | Reply::NotOffered => Answer::Refused(Refused::NothingToResume),
        Reply::SessionGone => Answer::Refused(Refused::SessionGone),
        Reply::Denied(answer) => answer.into_answer(),
        Reply::Private(reason) => get::private(relay, session, agent, reason),
        Reply::Unmet { .. } | Reply::Closed => return Looked::Again,
    })
}

/// Opens the standalone stream, unless another client was faster: that one's is answered. The place is taken before the
/// log is opened, since a second log of one stream would fence the first. A client that leaves meanwhile stops nothing.
fn open<W: World>(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, call: &Call) -> Arc<Mailbox> {
    let place = Place::new(relay, StreamName::Get);
    let mailbox = Arc::clone(&place.mailbox);
    let standing = session.add_standalone(place.epoch, &mailbox);
    if !Arc::ptr_eq(&standing, &mailbox) {
        return standing;
    }
    let request = Request {
        resource: Resource::Endpoint,
        method: Method::GET,
        query: call.query.clone(),
        headers: call.headers.clone(),
        body: Bytes::new(),
        cursor: None,
        post: None,
    };
    let beginning = Beginning {
        life: Life::standalone(),
        source: Source::Opening(opening(relay, session, request)),
        agent: headers::agent_of(&call.headers),
        generation: session.home().generation,
    };
    let (relay, session) = (Arc::clone(relay), Arc::clone(session));
    tokio::spawn(async move {
        let epoch = place.epoch;
        match StreamTask::open(&relay, &session, place, beginning).await {
            Ok(mut task) => {
                task.tell(session.take_early(), relay.now());
                task.spawn_standalone();
            }
            Err(loss) => {
                warn!(session = %session.label(), ?loss, "no log could be opened for the standalone stream");
                let end = EpochEnd::Lost(Reason::Evicted);
                let last = Seq::START;
                session.bury(Tombstone { epoch, last, end });
                standing.close();
            }
        }
    });
    mailbox
}

/// The future of an upstream GET with these fields.
pub(crate) fn opening<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    mut request: Request,
) -> Opening<W> {
    let (relay, session) = (Arc::clone(relay), Arc::clone(session));
    Box::pin(async move {
        let (generation, sent) = session.call(&relay, &mut request, Asks::Other).await;
        answered(&session, generation, sent).await
    })
}

/// What a backend's answer to an upstream GET comes to.
async fn answered<W: World>(
    session: &Session<W>,
    generation: Generation,
    sent: Result<Sent<W>, Unanswered>,
) -> Opened<W> {
    match sent {
        Ok(Sent::Answer(incoming)) => {
            let status = incoming.head.status;
            if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
                return WholeAnswer::read::<W>(incoming)
                    .await
                    .map_or(Opened::Unreachable, Opened::Denied);
            }
            if status.is_success() && headers::is_event_stream(&incoming.head.headers) {
                let (_, body) = incoming.into_events(session.pool.config.stream.event_bytes_max);
                Opened::Streaming(Box::new(body), generation)
            } else if status == StatusCode::METHOD_NOT_ALLOWED {
                Opened::NotOffered
            } else {
                debug!(session = %session.label(), %status, "backend refused its standalone stream");
                Opened::Refused(refusal(status))
            }
        }
        Ok(Sent::Whole(answer)) if answer.denies() => Opened::Denied(answer),
        Ok(Sent::Whole(answer)) => Opened::Refused(refusal(answer.status())),
        Ok(Sent::SessionGone) => Opened::SessionGone,
        Ok(Sent::Refused | Sent::NotRun | Sent::Strange) | Err(_) => Opened::Unreachable,
    }
}

const fn refusal(status: StatusCode) -> Refusal {
    match status {
        StatusCode::CONFLICT => Refusal::Conflict,
        StatusCode::BAD_REQUEST => Refusal::BadRequest,
        _ => Refusal::Other,
    }
}

/// The future of an upstream GET that is tried again, with what was kept of the newest client's fields, and with the
/// backend's own cursor if one is asked for.
pub(crate) fn again<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    cursor: Option<HeaderValue>,
) -> Opening<W> {
    let request = Request {
        resource: Resource::Endpoint,
        method: Method::GET,
        query: None,
        headers: session.own_fields(),
        body: Bytes::new(),
        cursor,
        post: None,
    };
    let home = session.home();
    if !session.is_pinned(&home) {
        return opening(relay, session, request);
    }
    // Once: whoever waits for a replica that is away waits with the stream's own back-off, not within the exchange.
    let (relay, session) = (Arc::clone(relay), Arc::clone(session));
    Box::pin(async move {
        let sent = session.send_once(&relay, request, Deadline::Never).await;
        if session.home().generation != home.generation {
            // It moved meanwhile: whom this came from can't be told.
            return Opened::Unreachable;
        }
        answered(&session, home.generation, sent).await
    })
}

//! A new session at a backend for one that was lost: the client's own `initialize`, played again, and what it asked for.
//! Law: it takes the client's place only if it keeps what the client was promised, and only when it stands whole.
//! Nothing that a client asked to be executed is ever played again.
//! Next: `recover.rs`, which decides when.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::pure::refusal;
use crate::pure::rpc;
use crate::pure::session::loss::Hopeless;
use crate::pure::session_token::BackendId;
use crate::relay::Relay;
use crate::relay::exchange::{NOBODY, WholeAnswer};
use crate::relay::headers;
use crate::relay::home::Signs;
use crate::relay::initialize;
use crate::relay::pool::{BackendAnswer, KnownBy, Request, Unanswered};
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::routing::{Replica, Seat, Wants};
use crate::upstream::Deadline;

/// How long a backend may take for each thing that it is told beside `initialize`.
const STEP_MAX: Duration = Duration::from_secs(5);

/// Longest answer to such a thing that is read, in bytes: it says "yes".
const STEP_BYTES_MAX: usize = 64 * 1024;

/// A new session at a backend, ready to be used.
pub(crate) struct Renewed {
    /// Its place there.
    pub(crate) seat: Seat,
    /// By what it is known.
    pub(crate) signs: Signs,
}

/// What a try came to.
pub(crate) enum Renewal {
    /// A session stands.
    Renewed(Renewed),
    /// Nobody could be reached, or nobody is ready to begin one.
    Nobody,
    /// A backend was reached, and none was begun, or not whole.
    Failed,
    /// The backend does not accept the client's credential.
    Denied(WholeAnswer),
    /// The backend does not keep what the client was promised.
    Hopeless(Hopeless),
}

/// Begins the session anew at a healthy replica, with the newest credential of its client.
pub(crate) async fn renew<W: World>(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>) -> Renewal {
    let Some(opening) = session.opening.as_ref() else {
        return Renewal::Hopeless(Hopeless::NotRemembered);
    };
    let Some(id) = opening.id() else {
        return Renewal::Hopeless(Hopeless::NotRemembered);
    };
    let pool = &session.pool;
    let limit = pool.config.exchange.initialize_max;
    let mut fields = said_by(session);
    // The revision is negotiated by this request; nothing stands yet.
    fields.remove(headers::PROTOCOL_VERSION);
    let body = Bytes::copy_from_slice(opening.request());
    let request = Request::own(Method::POST, fields, body);
    let sent = pool.send_any(
        (NOBODY, Wants::Session),
        KnownBy::Nothing,
        &request,
        Deadline::after(limit),
    );
    let (seat, incoming) = match sent.await {
        Ok(found) => found,
        Err(Unanswered::NoReplica | Unanswered::NotSent(_)) => return Renewal::Nobody,
        Err(Unanswered::Lost(_) | Unanswered::TimedOut) => return Renewal::Failed,
    };
    let status = incoming.head.status;
    if !status.is_success() {
        info!(session = %session.label(), replica = %seat.replica().authority(), %status, "a lost session was not begun anew");
        return refused::<W>(incoming).await;
    }
    let head = incoming.head.headers.clone();
    let Ok(Ok(answered)) = timeout(limit, initialize::read(pool, incoming, &id)).await else {
        return Renewal::Failed;
    };
    let Some(mut signs) = signs(session, &head, &answered.response) else {
        return Renewal::Failed;
    };
    if let Some(server) = signs.server {
        seat.replica().saw(server);
    }
    if let Err(why) = opening.keeps(session.revision, &answered.response) {
        end(session, seat.replica(), &signs).await;
        return Renewal::Hopeless(why);
    }
    if !answered.early.is_empty() {
        debug!(session = %session.label(), messages = answered.early.len(), "messages before the answer to initialize were left out; the resync stands for them");
    }
    let whole = timeout(limit, furnish(relay, session, seat.replica(), &signs)).await;
    if whole != Ok(Furnished::Yes) {
        end(session, seat.replica(), &signs).await;
        return Renewal::Failed;
    }
    signs.server = signs.server.or(seat.replica().server());
    Renewal::Renewed(Renewed { seat, signs })
}

/// What a refusal to begin a session means.
async fn refused<W: World>(incoming: BackendAnswer<W>) -> Renewal {
    match incoming.head.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => WholeAnswer::read::<W>(incoming)
            .await
            .filter(|answer| answer.bytes() <= STEP_BYTES_MAX)
            .map_or(Renewal::Failed, Renewal::Denied),
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Renewal::Nobody,
        _ => Renewal::Failed,
    }
}

/// By what the new session is known; `None` if none was begun.
fn signs<W: World>(session: &Session<W>, head: &HeaderMap, answer: &[u8]) -> Option<Signs> {
    rpc::lookup(answer, &["result"])?;
    let instance_header = session.pool.config.session.instance_header.as_deref();
    let mut signs = Signs::of_answer(head, answer, instance_header);
    if let Some(id) = head.get(headers::SESSION_ID) {
        let id = BackendId::new(id.as_bytes()).ok()?;
        signs.backend_id = HeaderValue::try_from(id.as_str()).ok();
    }
    Some(signs)
}

/// Whether a new session was told all that it must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Furnished {
    Yes,
    No,
}

/// `initialized`, the log level and the subscriptions.
async fn furnish<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    replica: &Arc<Replica>,
    signs: &Signs,
) -> Furnished {
    let at = (session, replica, signs);
    match say(at, refusal::initialized().to_vec()).await {
        Some(status) if status.is_success() => {}
        said => {
            info!(session = %session.label(), ?said, "a session that was begun anew could not be completed");
            return Furnished::No;
        }
    }
    let (level, subscribed) = {
        let record = session.record();
        (record.level(), record.subscriptions().uris().to_vec())
    };
    let wishes = level
        .map(refusal::set_level)
        .into_iter()
        .chain(subscribed.iter().map(|uri| refusal::subscribe(uri)));
    for wish in wishes {
        match say(at, wish).await {
            Some(status) if status.is_success() => {}
            // It goes on without: the resync makes its client look again.
            said => {
                warn!(session = %session.label(), ?said, "a wish of the client's was not taken on by the new session")
            }
        }
    }
    debug!(session = %session.label(), now = relay.now().0, "a session was begun anew");
    Furnished::Yes
}

/// Says one thing in the new session; the status of the answer, whose body is read to its end, bounded.
async fn say<W: World>(
    (session, replica, signs): (&Arc<Session<W>>, &Arc<Replica>, &Signs),
    body: Vec<u8>,
) -> Option<StatusCode> {
    let request = Request::own(Method::POST, said_by(session), Bytes::from(body));
    let deadline = Deadline::after(STEP_MAX);
    let sent = session.pool.send_once(
        replica,
        KnownBy::id(signs.backend_id.as_ref()),
        &request,
        deadline,
    );
    let answer = sent.await.ok()?;
    let status = answer.head.status;
    let _ = timeout(STEP_MAX, answer.body.collect(STEP_BYTES_MAX)).await;
    Some(status)
}

/// The fields of a POST in this session's client's name.
fn said_by<W: World>(session: &Session<W>) -> HeaderMap {
    let mut fields = session.own_fields();
    session
        .standing
        .lend_tried(&session.pool.credentials, &mut fields);
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(
        headers::PROTOCOL_VERSION,
        HeaderValue::from_static(session.revision.as_str()),
    );
    fields
}

/// Ends a session at a backend that was begun in vain.
pub(crate) async fn end<W: World>(session: &Session<W>, replica: &Arc<Replica>, signs: &Signs) {
    let request = Request::own(Method::DELETE, said_by(session), Bytes::new());
    let deadline = Deadline::after(STEP_MAX);
    let told = session.pool.send_once(
        replica,
        KnownBy::id(signs.backend_id.as_ref()),
        &request,
        deadline,
    );
    if told.await.is_err() {
        debug!(session = %session.label(), "a backend was not told that a session was begun in vain");
    }
}

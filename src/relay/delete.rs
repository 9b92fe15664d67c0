//! DELETE: the client ends its session.
//! Law: from the moment that it is asked nothing of the session succeeds any more: the state is `ending` before the
//! backend hears of it. Only a 405, or a refused credential, takes that back (wire contract, section 7). A client that does not wait for the
//! answer ends its session all the same (`Kept`).
//! Next: `session.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tokio::time::timeout;
use tracing::info;

use crate::pure::session::Ended;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Refused};
use crate::relay::exchange::Sent;
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{Request, Unanswered};
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::upstream::Deadline;

/// How long a backend may take to answer a DELETE; then the session ends here.
pub(crate) const DELETE_MAX: Duration = Duration::from_secs(10);

/// Answers a DELETE of a session.
pub(crate) async fn delete<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: Box<Call>,
) -> Answer<Passing<W>> {
    if session.begin_end().is_err() {
        return Answer::Refused(Refused::SessionGone);
    }
    let asking = session.send_once(relay, Request::of(call), Deadline::after(DELETE_MAX));
    // Bounded with the body too: an answer that is read to be understood may never end.
    let sent = timeout(DELETE_MAX, asking)
        .await
        .unwrap_or(Err(Unanswered::TimedOut));
    match sent {
        // A 405 says that sessions end otherwise; a refused credential ends nobody's.
        Ok(Sent::Answer(incoming))
            if matches!(
                incoming.head.status,
                StatusCode::METHOD_NOT_ALLOWED | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
            ) =>
        {
            session.restore(relay.now());
            passing::pass_on(incoming).await
        }
        Ok(Sent::Answer(incoming)) => {
            let status = incoming.head.status;
            info!(session = %session.label(), %status, "session was deleted");
            relay.end_session(session, Ended::Deleted);
            passing::pass(incoming).await.unwrap_or(gone_here())
        }
        Ok(Sent::Whole(answer)) if answer.denies() => {
            session.restore(relay.now());
            answer.into_answer()
        }
        Ok(Sent::Whole(answer)) => {
            relay.end_session(session, Ended::Deleted);
            answer.into_answer()
        }
        Ok(Sent::SessionGone) => {
            relay.end_session(session, Ended::Deleted);
            Answer::Refused(Refused::SessionGone)
        }
        Ok(Sent::Refused | Sent::NotRun | Sent::Strange) => {
            relay.end_session(session, Ended::Deleted);
            gone_here()
        }
        Err(why) => {
            info!(session = %session.label(), ?why, "session was deleted here; its backend was not reached");
            relay.end_session(session, Ended::Deleted);
            gone_here()
        }
    }
}

/// The session ended here, whatever its backend knows of it.
fn gone_here<W: World>() -> Answer<Passing<W>> {
    passing::whole(StatusCode::OK, HeaderMap::new(), Bytes::new())
}

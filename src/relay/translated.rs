//! A backend's refusal of a call, in terms that no client takes for the end of its connection.
//! Law: off unless asked for (`errors = "jsonrpc"`); 401, 403 and 404 mean something to clients and always pass; only a
//! POST with one id has an error to be answered with.
//! Why: one SDK's whole client dies of any other status on a POST.
//! Next: `post.rs`.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tracing::info;

use crate::config::resolved::Errors;
use crate::pure::refusal;
use crate::pure::rpc::RequestId;
use crate::relay::answer::Answer;
use crate::relay::passing::{self, Passing};
use crate::relay::session::Session;
use crate::relay::ticket::Course;
use crate::relay::world::World;

/// The answer in place of a backend's with this status, if it is to be replaced; it stays a refusal to the ticket.
pub(crate) fn error<W: World>(
    session: &Session<W>,
    ids: &[RequestId],
    status: StatusCode,
    course: &mut Course,
) -> Option<Answer<Passing<W>>> {
    let meant = matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND
    );
    match (session.pool.config.errors, ids) {
        (Errors::Jsonrpc, [id]) if !status.is_success() && !meant => {
            info!(session = %session.label(), %status, "backend refused a call; its client is told in JSON-RPC");
            course.is_refused();
            let body = Bytes::from(refusal::backend_status(id, status.as_u16()));
            Some(passing::json(HeaderMap::new(), body))
        }
        (Errors::Pass | Errors::Jsonrpc, _) => None,
    }
}

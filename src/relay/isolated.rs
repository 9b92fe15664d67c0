//! Request ids on their way to the backend and back, where they are made unique for each session.
//! Law: towards the backend a client's id is the session's own, towards the client it is the client's; an answer to
//! another session's request reaches nobody (`isolate_request_ids`).
//! Where ids pass as they are, nothing here costs more than a look.
//! Next: `pure/isolation.rs`.

use std::fmt;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;

use crate::pure::isolation::{Isolation, Restored};
use crate::relay::answer::Answer;
use crate::relay::headers;
use crate::relay::passing::{self, Passing};
use crate::relay::pool::BackendAnswer;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::upstream::BodyError;

/// Why an answer can't be given.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It broke, or is longer than one that ids are restored in (`event_bytes_max`).
    Body(BodyError),
    /// It answers a request of another session.
    Foreign,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(error) => error.fmt(f),
            Self::Foreign => f.write_str("it answers a request of another session"),
        }
    }
}

impl<W: World> Session<W> {
    /// A POST's body as the backend gets it.
    pub(crate) fn outward(&self, body: Bytes) -> Bytes {
        match &self.isolation {
            None => body,
            Some(isolation) => isolation.request(&body).map_or(body, Bytes::from),
        }
    }
}

/// Passes a backend's answer to a call on, with the client's own ids.
///
/// # Errors
/// [`Unfit`]; nothing was passed on yet.
pub(crate) async fn pass<W: World>(
    session: &Session<W>,
    isolation: &Isolation,
    mut incoming: BackendAnswer<W>,
) -> Result<Answer<Passing<W>>, Unfit> {
    if headers::is_event_stream(&incoming.head.headers) {
        return passing::pass(incoming).await.map_err(Unfit::Body);
    }
    let status = incoming.head.status;
    let mut head = headers::to_client(std::mem::take(&mut incoming.head.headers));
    head.remove(CONTENT_LENGTH);
    let max = session.pool.config.stream.event_bytes_max;
    let body = incoming.body.collect(max).await.map_err(Unfit::Body)?;
    match isolation.answer(&body) {
        Restored::Unchanged => Ok(passing::whole(status, head, body)),
        Restored::Changed(own) => Ok(passing::whole(status, head, Bytes::from(own))),
        Restored::Foreign => Err(Unfit::Foreign),
    }
}

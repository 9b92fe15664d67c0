//! A client of HTTP+SSE that comes back: its cursor is all that it brings.
//! Law: it gets its `endpoint` again, and exactly what it missed, or 404. Nothing is half met: to this transport a reset
//! is unknown, and a silent new endpoint would leave the client uninitialised for ever (wire contract, section 10).
//! Absent on purpose: the credential, which was judged before (`../gate.rs`).
//! Next: `../ask.rs`.

use std::sync::Arc;

use tracing::info;

use crate::pure::event_id::Mark;
use crate::pure::session::Known;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Refused};
use crate::relay::get::{self, Cursor};
use crate::relay::headers;
use crate::relay::mailbox::{Asked, Reply};
use crate::relay::passing::Passing;
use crate::relay::session::Session;
use crate::relay::world::World;

/// Answers a GET with a cursor that may be of this session, whose credential is accepted.
pub(crate) async fn resume<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: &Call,
) -> Answer<Passing<W>> {
    let refused = |why: &str| {
        info!(session = %session.label(), why, "a stream could not be resumed");
        Answer::Refused(Refused::SessionGone)
    };
    let id = match get::judge(relay, session, &call.headers) {
        Cursor::Ours(id) => id,
        Cursor::None => return refused("no cursor"),
        Cursor::Unproved(reason) => return refused(reason.as_str()),
    };
    match id.mark {
        Mark::Event | Mark::Prime(_) => {}
        Mark::End => return refused("at the end"),
    }
    let Known::Live(mailbox) = session.find(id.epoch) else {
        return refused("the stream is no more");
    };
    match get::ask(
        &mailbox,
        Asked::At(id.epoch, id.seq),
        headers::agent_of(&call.headers),
    )
    .await
    {
        Reply::Open(opening) => Answer::Stream(Box::new(opening)),
        Reply::Unmet { reason, .. } => refused(reason.as_str()),
        Reply::Denied(answer) => answer.into_answer(),
        Reply::Ended | Reply::Private(_) | Reply::NotOffered | Reply::SessionGone | Reply::Closed => {
            refused("the stream is over")
        }
    }
}

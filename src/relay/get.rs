//! A GET within a session: a resume of the stream that its cursor names, or the standalone stream.
//! Law: the stream that the cursor names and no other. A cursor that proves nothing is believed in nothing, and
//! whoever presents it learns nothing (wire contract, section 5). Never 400, 409, 410 or 5xx for a bad cursor.
//! Next: `ask.rs`, `standalone.rs`.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::oneshot;
use tracing::{debug, info};

use crate::pure::epoch::{Epoch, EpochEnd, Reason};
use crate::pure::event_id::{EventId, Mark, Rid, StreamName};
use crate::pure::rpc::RequestId;
use crate::pure::session::{Known, Phase};
use crate::pure::session_token::Transport;
use crate::pure::stream::Agent;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Opening, Refused};
use crate::relay::canned_task::Canned;
use crate::relay::headers::{self, Verdict};
use crate::relay::http_sse;
use crate::relay::mailbox::{Asked, Command, Mailbox, Reply};
use crate::relay::passing::Passing;
use crate::relay::session::Session;
use crate::relay::standalone;
use crate::relay::turn::Waiting;
use crate::relay::world::World;

/// How often a stream that ends while it is asked is looked up again.
const LOOKS_MAX: usize = 4;

/// What a `Last-Event-ID` says, once it is judged.
pub(crate) enum Cursor {
    /// There is none.
    None,
    /// It is no id of ours, or of another session: it names nothing.
    Unproved(Reason),
    /// It is ours.
    Ours(EventId),
}

/// Answers a GET of a session whose credential is accepted.
pub(crate) async fn get<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: &Call,
) -> Answer<Passing<W>> {
    match session.transport {
        Transport::Streamable => {}
        Transport::HttpSse => return http_sse::resume::resume(relay, session, call).await,
    }
    let agent = headers::agent_of(&call.headers);
    let cursor = judge(relay, session, &call.headers);
    for _ in 0..LOOKS_MAX {
        let looked = match &cursor {
            Cursor::None => standalone::ask(relay, session, call, Asked::Nothing).await,
            Cursor::Unproved(reason) => standalone::ask(relay, session, call, Asked::Unusable(*reason)).await,
            Cursor::Ours(id) => match id.mark {
                Mark::End => return Answer::Refused(Refused::NothingToResume),
                Mark::Event | Mark::Prime(_) => resume(relay, session, call, id, agent).await,
            },
        };
        match looked {
            Looked::Answer(answer) => return answer,
            // The stream ended between the look and the question; its tombstone knows more.
            Looked::Again => {}
        }
    }
    match (session.phase(), &cursor) {
        // Streams came and went at each look. 404 is for a dead session only; this client is told what is certain.
        (Phase::Live, Cursor::Ours(id)) if id.stream != StreamName::Get => {
            unmet(relay, session, (id, &[]), Reason::EpochChanged, agent)
        }
        // Held, it would wait on a stream that nobody writes: it comes again, and looks again.
        (Phase::Live, Cursor::Ours(_) | Cursor::Unproved(_) | Cursor::None) => {
            sent_away(relay, session, agent, Reason::CursorUnknown)
        }
        (Phase::Ending | Phase::Ended(_), _) => Answer::Refused(Refused::SessionGone),
    }
}

/// What one look came to.
pub(crate) enum Looked<W: World> {
    /// An answer.
    Answer(Answer<Passing<W>>),
    /// What was found ended meanwhile.
    Again,
}

/// Judges the cursor in these fields by the session that it should be of.
pub(crate) fn judge<W: World>(relay: &Relay<W>, session: &Session<W>, fields: &HeaderMap) -> Cursor {
    let Some(cursor) = headers::cursor_of(fields) else {
        return Cursor::None;
    };
    match EventId::decode(cursor) {
        Err(_) => Cursor::Unproved(Reason::CursorUnknown),
        Ok(id) => match id.verify(&relay.keys, &session.uid) {
            Ok(()) => Cursor::Ours(id),
            Err(_) => Cursor::Unproved(Reason::CursorForeign),
        },
    }
}

async fn resume<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: &Call,
    id: &EventId,
    agent: Agent,
) -> Looked<W> {
    match (session.find(id.epoch), &id.stream) {
        (Known::Live(mailbox), _) => match ask(&mailbox, Asked::At(id.epoch, id.seq), agent).await {
            Reply::Open(opening) => Looked::Answer(Answer::Stream(Box::new(opening))),
            Reply::Ended => Looked::Answer(Answer::Refused(Refused::NothingToResume)),
            Reply::Unmet { reason, unanswered } => {
                let fewer = naming(id, &unanswered);
                let fewer = fewer.map(|stream| id.renamed(relay.keys.current(), &session.uid, stream));
                let id = fewer.as_ref().unwrap_or(id);
                Looked::Answer(unmet(relay, session, (id, &unanswered), reason, agent))
            }
            Reply::Private(reason) => Looked::Answer(private(relay, session, agent, reason)),
            Reply::NotOffered => Looked::Answer(Answer::Refused(Refused::NothingToResume)),
            Reply::SessionGone => Looked::Answer(Answer::Refused(Refused::SessionGone)),
            Reply::Denied(answer) => Looked::Answer(answer.into_answer()),
            Reply::Closed => Looked::Again,
        },
        (Known::Buried(tombstone), StreamName::Post(_)) => Looked::Answer(match tombstone.end {
            EpochEnd::Finished if id.seq >= tombstone.last => Answer::Refused(Refused::NothingToResume),
            EpochEnd::Finished => unmet(relay, session, (id, &[]), Reason::Evicted, agent),
            EpochEnd::Lost(reason) => unmet(relay, session, (id, &[]), reason, agent),
        }),
        // A token of this session opens nothing but Streamable HTTP: such a cursor was never given here.
        (Known::Buried(_) | Known::Nothing, StreamName::HttpSse) => {
            Looked::Answer(Answer::Refused(Refused::NothingToResume))
        }
        (Known::Buried(tombstone), StreamName::Get) => {
            let reason = match tombstone.end {
                EpochEnd::Finished => Reason::EpochChanged,
                EpochEnd::Lost(reason) => reason,
            };
            standalone::ask(relay, session, call, Asked::Unusable(reason)).await
        }
        (Known::Nothing, StreamName::Post(_)) => {
            Looked::Answer(unmet(relay, session, (id, &[]), Reason::EpochChanged, agent))
        }
        (Known::Nothing, StreamName::Get) => {
            standalone::ask(relay, session, call, Asked::Unusable(Reason::EpochChanged)).await
        }
    }
}

/// The name of a cursor's stream if only these of its requests were in it: what is said to the cursor now, and what an id
/// of that is told when it comes back, is the same. `None`: it is its name already, or there is none.
fn naming(cursor: &EventId, unanswered: &[RequestId]) -> Option<StreamName> {
    let name = StreamName::Post(Rid::of(unanswered)?);
    (name != cursor.stream).then_some(name)
}

/// Asks a stream's task.
pub(crate) async fn ask(mailbox: &Mailbox, asked: Asked, agent: Agent) -> Reply {
    let (reply, answer) = oneshot::channel();
    mailbox.post(Command::Ask {
        asked,
        waiting: Waiting { agent, reply },
    });
    answer.await.unwrap_or(Reply::Closed)
}

/// The answer to a cursor of a POST stream that can't be honoured: an error for each request that it names, derived
/// from the cursor alone, so that the same cursor gets the same answer again, with or without memory.
fn unmet<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (id, known): (&EventId, &[RequestId]),
    reason: Reason,
    agent: Agent,
) -> Answer<Passing<W>> {
    info!(session = %session.label(), stream = %id.stream, %reason, "cursor could not be honoured");
    let verdict = Verdict::Reset {
        reason,
        epoch: id.epoch,
    };
    relay.verdict(session, &id.stream, verdict);
    let canned = Canned::unmet(relay, session, (id, known), reason, agent);
    Answer::Stream(Box::new(Opening {
        headers: headers::of_stream(HeaderMap::new(), verdict),
        ticket: Box::new(canned),
    }))
}

/// A stream of its own for a cursor that proves nothing, while somebody else holds the standalone stream: primed, then
/// comments only. It tells nothing of the session and takes nothing from whoever holds it.
pub(crate) fn private<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    agent: Agent,
    reason: Reason,
) -> Answer<Passing<W>> {
    debug!(session = %session.label(), %reason, "a cursor that proves nothing was given a stream of its own");
    beside(relay, session, Canned::private(relay, session, agent), reason)
}

/// The same for a client that can't be answered now, since no stream of its session stands or can be begun: it ends at once.
fn sent_away<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    agent: Agent,
    reason: Reason,
) -> Answer<Passing<W>> {
    info!(session = %session.label(), "no stream could be had for a client; it was sent away");
    beside(relay, session, Canned::sent_away(relay, session, agent), reason)
}

fn beside<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (canned, epoch): (Canned<W>, Epoch),
    reason: Reason,
) -> Answer<Passing<W>> {
    let verdict = Verdict::Reset { reason, epoch };
    relay.verdict(session, &StreamName::Get, verdict);
    Answer::Stream(Box::new(Opening {
        headers: headers::of_stream(HeaderMap::new(), verdict),
        ticket: Box::new(canned),
    }))
}

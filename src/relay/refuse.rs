//! Calls that are not run since the session was lost: the model is told first, in words, before it acts again.
//! Law: told is told when the client's connection took the whole of it (the kernel, for HTTP/1.1): so it is said as an
//! event stream, whose connection the relay holds itself. Until then every further call is refused too.
//! A client that takes JSON only is told when the answer is handed to its connection: nothing better is known there.
//! Next: `pure/refusal.rs`, which has the words.

use std::sync::Arc;

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use tracing::{info, warn};

use crate::pure::epoch::{Epoch, Seq};
use crate::pure::event_id::{Conn, IdPrefix, Rid, StreamName};
use crate::pure::refusal::{self, Failure};
use crate::pure::rpc::{self, RequestId};
use crate::pure::session::Losses;
use crate::pure::stream::Agent;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Attach, Opening};
use crate::relay::aside;
use crate::relay::ask;
use crate::relay::headers::{self, Verdict};
use crate::relay::passing::{self, Passing};
use crate::relay::reader::Parting;
use crate::relay::session::Session;
use crate::relay::sink::{ClientSink, Ending};
use crate::relay::ticket::Course;
use crate::relay::world::World;

/// The calls that are refused.
pub(crate) struct Refusing<'a> {
    /// Their ids, at least one.
    pub(crate) ids: &'a [RequestId],
    /// The body that they came in.
    pub(crate) body: &'a [u8],
    /// The fields that they came with.
    pub(crate) fields: &'a HeaderMap,
    /// What kind of client asks.
    pub(crate) agent: Agent,
}

/// Requests that were not executed since the session was lost before: an error for each.
pub(crate) fn not_run<W: World>(ids: &[RequestId], course: &mut Course) -> Answer<Passing<W>> {
    course.is_refused();
    passing::json(HeaderMap::new(), refusal::errors(ids, Failure::NotRun).into())
}

/// Refuses them, and notes when that was delivered.
pub(crate) fn tell<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    refusing: &Refusing<'_>,
    course: &mut Course,
) -> Answer<Passing<W>> {
    course.is_refused();
    say(relay, session, refusing)
}

/// The same, to whoever sent the same call and waited for its answer: it was not run for either.
pub(crate) fn say<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    refusing: &Refusing<'_>,
) -> Answer<Passing<W>> {
    let ids = refusing.ids;
    session.pool.instruments.calls_refused.add(ids.len() as u64);
    info!(session = %session.label(), calls = ids.len(), "calls were refused: the model is told of the loss first");
    let words = Words::of(ids.len(), refusing.body);
    match Rid::of(ids) {
        Some(rid) if takes_events(refusing.fields) => {
            as_stream(relay, session, (rid, ids), words, refusing.agent)
        }
        Some(_) | None => {
            session.standing.change(Losses::told);
            let said: Vec<Vec<u8>> = ids.iter().map(|id| words.to(id)).collect();
            let body = match said.as_slice() {
                [one] => one.clone(),
                several => [b"[", several.join(&b","[..]).as_slice(), b"]"].concat(),
            };
            passing::json(HeaderMap::new(), body.into())
        }
    }
}

/// In which words calls are refused.
#[derive(Clone, Copy)]
pub(crate) enum Words {
    /// A tool's result, for the model.
    ForTheModel,
    /// An error.
    Error,
}

impl Words {
    /// For so many requests with this body. A call that is to become a task has no result that is read as a tool's.
    pub(crate) fn of(requests: usize, body: &[u8]) -> Self {
        // A batch may be one of one: it is asked for more than a tool's result all the same.
        let alone = requests == 1 && rpc::elements(body).is_none();
        match rpc::lookup(body, &["params", "task"]) {
            None if alone => Self::ForTheModel,
            None | Some(_) => Self::Error,
        }
    }

    /// To one request.
    pub(crate) fn to(self, id: &RequestId) -> Vec<u8> {
        match self {
            Self::ForTheModel => refusal::tool_refused(id),
            Self::Error => refusal::error(id, Failure::NotRun),
        }
    }
}

fn takes_events(fields: &HeaderMap) -> bool {
    let mut accepted = fields
        .get_all(ACCEPT)
        .iter()
        .map(HeaderValue::as_bytes)
        .peekable();
    let takes = |value: &[u8]| {
        let value = value.to_ascii_lowercase();
        ["text/event-stream", "text/*", "*/*"]
            .iter()
            .any(|kind| memchr::memmem::find(&value, kind.as_bytes()).is_some())
    };
    accepted.peek().is_none() || accepted.any(takes)
}

/// The words as a stream that ends with them.
fn as_stream<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (rid, ids): (Rid, &[RequestId]),
    words: Words,
    agent: Agent,
) -> Answer<Passing<W>> {
    let name = StreamName::Post(rid);
    let epoch = Epoch::from_random(relay.chance());
    let prefix = IdPrefix::new(relay.keys.current(), &session.uid, epoch, &name);
    let mut frames = Vec::new();
    let mut id = Vec::new();
    prefix.prime(Seq::START, Conn::from_random(relay.chance()), &mut id);
    ask::greet(
        &mut frames,
        &id,
        session.greeting(agent),
        relay.base_retry_ms(session),
    );
    aside::tell(
        (relay, session),
        (&name, &prefix),
        (ids, Seq::START),
        |id| words.to(id),
        &mut frames,
    );
    let verdict = Verdict::Live { epoch };
    relay.verdict(session, &name, verdict);
    let ticket = Box::new(Telling {
        session: Arc::clone(session),
        frames,
    });
    Answer::Stream(Box::new(Opening {
        headers: headers::of_stream(HeaderMap::new(), verdict),
        ticket,
    }))
}

/// A refusal on its way to the client's connection.
struct Telling<W: World> {
    session: Arc<Session<W>>,
    frames: Vec<u8>,
}

impl<W: World> Attach for Telling<W> {
    fn attach(self: Box<Self>, sink: Box<dyn ClientSink>) {
        let Self { session, frames } = *self;
        tokio::spawn(deliver(session, Parting::saying(sink, frames)));
    }
}

async fn deliver<W: World>(session: Arc<Session<W>>, mut parting: Parting) {
    let bound = session.pool.config.stream.stall_max;
    match tokio::time::timeout(bound, parting.send()).await {
        Ok(Ok(())) => session.standing.change(Losses::told),
        Ok(Err(error)) => {
            warn!(session = %session.label(), %error, "a refusal did not reach its client; the next call is refused too");
            return;
        }
        Err(_) => return parting.abort(),
    }
    if tokio::time::timeout(bound, parting.end(Ending::Complete))
        .await
        .is_err()
    {
        parting.abort();
    }
}

//! HTTP+SSE of 2024-11-05: the same relay behind another door (wire contract, section 10).
//! Law: a session here is its one stream: whoever holds a cursor of it may come back, and with the backend's connection
//! it is over. Its stream is a stream like the others, with a log, one task and the newest client.
//! What differs: a GET begins it (`open.rs`), a cursor alone leads back to it (`resume.rs`), the answers of POSTs come on
//! the stream (`post.rs`), and who asked what is known to its task (`stream.rs`).
//! Why the token is in a query: clients of this transport send no header of ours.
//! Next: `open.rs`.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};
use tracing::info;

use crate::config::resolved::Transport as Spoken;
use crate::pure::event_id::{EventId, StreamName};
use crate::pure::http_sse;
use crate::pure::revision::Recognised;
use crate::pure::session_token::{self, Transport};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Refused, Resource};
use crate::relay::dispatch::Carried;
use crate::relay::headers::{self, Bearings};
use crate::relay::passing::Passing;
use crate::relay::said::{Note, Said};
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::relay::{gate, repeat};
use crate::telemetry::words::RequestKind;

mod open;
pub(crate) mod post;
pub(crate) mod resume;
pub(crate) mod stream;

/// A request that is over HTTP+SSE, or may turn out to be.
pub(crate) enum Arrival<W: World> {
    /// A GET without a session: the backend's answer says what it is.
    Opens(Known),
    /// A GET with a cursor of this session, if it proves to be one.
    Resumes(Arc<Session<W>>),
    /// A GET with a cursor that names no session here.
    Lost,
    /// A POST with a token.
    Posts(Carried<W>),
}

/// Whether the upstream is known to speak HTTP+SSE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// It is configured so, or was seen to.
    Yes,
    /// Its answer will say it.
    NotYet,
}

impl<W: World> Arrival<W> {
    /// What kind of request it is.
    pub(crate) const fn kind(&self, said: &Said) -> RequestKind {
        match (self, said) {
            (Self::Opens(Known::Yes), _) => RequestKind::Get,
            (Self::Opens(Known::NotYet), _) => RequestKind::Passing,
            (Self::Resumes(_) | Self::Lost, _) => RequestKind::Resume,
            (Self::Posts(_), Said::Initialize { .. }) => RequestKind::Initialize,
            (Self::Posts(_), Said::Requests { .. }) => RequestKind::Call,
            (Self::Posts(_), Said::Notices { .. } | Said::Unreadable | Said::Nothing) => RequestKind::Notice,
        }
    }
}

impl<W: World> Relay<W> {
    /// Whether a request is over HTTP+SSE, by its method, its query and these of its fields.
    pub(super) fn over_http_sse(
        self: &Arc<Self>,
        upstream: usize,
        call: &Call,
        bearings: Bearings<'_>,
    ) -> Option<Arrival<W>> {
        match (&call.resource, bearings.session) {
            (Resource::Endpoint, None) => {}
            (Resource::Beside(_), _) | (Resource::Endpoint, Some(_)) => return None,
        }
        // Asked last: most requests are none of these by their method or their query.
        let stands_alone = || {
            let version = bearings.version.map(HeaderValue::as_bytes);
            matches!(Recognised::of(version, &call.body), Recognised::Stateless(_))
        };
        let pool = &self.pools[upstream];
        match call.method {
            Method::GET => {
                let known = match pool.speaks() {
                    Spoken::Streamable => return None,
                    Spoken::Sse => Known::Yes,
                    Spoken::Auto => Known::NotYet,
                };
                if stands_alone() {
                    return None;
                }
                Some(match cursor(&call.headers) {
                    Cursor::None => Arrival::Opens(known),
                    Cursor::Of(id) => match self.registry.carried_by(id.epoch) {
                        Some(session) if session.pool.index == pool.index => Arrival::Resumes(session),
                        Some(_) | None => Arrival::Lost,
                    },
                    // Somebody else's: this may be a stream of another transport.
                    Cursor::Strange if known == Known::NotYet => Arrival::Opens(known),
                    Cursor::Strange => Arrival::Lost,
                })
            }
            Method::POST => {
                let token = call.query.as_deref().and_then(http_sse::token_in)?;
                // A parameter of somebody else's may have this name.
                let may_be_ours = pool.speaks() == Spoken::Sse || token.starts_with(session_token::BEGINS);
                if !may_be_ours || stands_alone() {
                    return None;
                }
                let token = HeaderValue::from_str(token).ok();
                let carried = match token {
                    Some(token) => self.session_of(pool, Some(&token), Transport::HttpSse),
                    None => Carried::Gone,
                };
                match (carried, pool.config.transport) {
                    (Carried::Nothing | Carried::Gone, Spoken::Streamable) => None,
                    (carried, Spoken::Auto | Spoken::Streamable | Spoken::Sse) => {
                        Some(Arrival::Posts(carried))
                    }
                }
            }
            _ => None,
        }
    }
}

/// What a `Last-Event-ID` is to this transport.
enum Cursor {
    None,
    Of(EventId),
    Strange,
}

fn cursor(fields: &HeaderMap) -> Cursor {
    match headers::cursor_of(fields) {
        None => Cursor::None,
        Some(bytes) => match EventId::decode(bytes) {
            Ok(id) if id.stream == StreamName::HttpSse => Cursor::Of(id),
            Ok(_) | Err(_) => Cursor::Strange,
        },
    }
}

/// Answers a request that is over HTTP+SSE, or may turn out to be.
pub(crate) async fn answer<W: World>(
    relay: &Arc<Relay<W>>,
    upstream: usize,
    (mut call, said): (Box<Call>, Said),
    arrival: Arrival<W>,
) -> Answer<Passing<W>> {
    match arrival {
        Arrival::Opens(known) => open::open(relay, &relay.pools[upstream], call, known).await,
        Arrival::Resumes(session) => gate::get(relay, &session, call).await,
        Arrival::Lost => {
            info!(upstream = %relay.pools[upstream].config.name, "a cursor of a stream that is no more was refused");
            Answer::Refused(Refused::SessionGone)
        }
        Arrival::Posts(Carried::Nothing | Carried::Gone) => Answer::Refused(Refused::SessionGone),
        Arrival::Posts(Carried::Live(session)) => {
            call.query = call.query.as_deref().and_then(http_sse::without_token);
            let said = match said {
                // Its answer comes on the stream like every other.
                Said::Initialize { id } => Said::Requests {
                    ids: vec![id],
                    note: Note::Nothing,
                    cancelled: Vec::new(),
                    answered: Vec::new(),
                },
                said @ (Said::Nothing | Said::Unreadable | Said::Requests { .. } | Said::Notices { .. }) => {
                    said
                }
            };
            repeat::post(relay, &session, (call, said), relay.now()).await
        }
    }
}

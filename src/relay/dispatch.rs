//! From a request on a configured path to the one who answers it: a session's GET, POST or DELETE, or any replica.
//! Law: a token is looked up before it is opened; a session that ended is never taken up again. What is not a session's,
//! and what belongs to a revision without sessions, passes through untouched and streaming.
//! Next: `stateless.rs`; `initialize.rs`; `http_sse/mod.rs`; `repeat.rs`, then `post.rs`; `gate.rs`, then `get.rs`,
//! `delete.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method};
use tracing::info;

use crate::config::resolved::Sessions;
use crate::pure::log::Millis;
use crate::pure::revision::{Era, Recognised};
use crate::pure::session::{Expiry, Origin};
use crate::pure::session_token::{self, Transport};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Refused, Resource, Serve};
use crate::relay::counted::{Counted, request_kind};
use crate::relay::headers::Bearings;
use crate::relay::home::Signs;
use crate::relay::kept::Kept;
use crate::relay::passing::Passing;
use crate::relay::pool::Pool;
use crate::relay::said::Said;
use crate::relay::session::{Fresh, Session};
use crate::relay::world::World;
use crate::relay::{gate, http_sse, initialize, repeat, stateless};

/// The relay as the client side sees it.
pub struct Door<W: World>(pub Arc<Relay<W>>);

impl<W: World> Serve for Door<W> {
    type Body = Passing<W>;

    async fn serve(&self, upstream: usize, call: Box<Call>) -> Answer<Passing<W>> {
        let instruments = &self.0.pools[upstream].instruments;
        let said = match call.resource {
            Resource::Endpoint => Said::of(&call),
            Resource::Beside(_) => Said::Nothing,
        };
        let bearings = Bearings::of(&call.headers);
        let arrival = self.0.over_http_sse(upstream, &call, bearings);
        let kind = match &arrival {
            Some(arrival) => arrival.kind(&said),
            None => request_kind(&call.method, bearings, &said),
        };
        let counted = Counted::new(instruments.requests(kind));
        let asked = self.0.now();
        let answer = match arrival {
            Some(arrival) => Box::pin(http_sse::answer(&self.0, upstream, (call, said), arrival)).await,
            None => {
                let whose = self.0.whose(upstream, (&call, &said), bearings);
                self.0.answer(upstream, (call, said), whose, asked).await
            }
        };
        counted.answered(&answer);
        instruments
            .first_byte
            .took(Duration::from_millis(self.0.now().0.saturating_sub(asked.0)));
        answer
    }
}

impl<W: World> Relay<W> {
    /// Whose a request is, by its method, its body and these of its fields.
    fn whose(
        self: &Arc<Self>,
        upstream: usize,
        (call, said): (&Call, &Said),
        bearings: Bearings<'_>,
    ) -> Whose<W> {
        match call.resource {
            Resource::Endpoint => {}
            Resource::Beside(_) => return Whose::Anybodys(Era::Session),
        }
        match Recognised::of(bearings.version.map(HeaderValue::as_bytes), &call.body) {
            Recognised::Stateless(_) => return Whose::Anybodys(Era::Stateless),
            Recognised::Session(_) => {}
        }
        match call.method {
            Method::POST | Method::GET | Method::DELETE => {
                if let Said::Initialize { .. } = said {
                    // A stale session id on `initialize` is dropped, not refused.
                    return Whose::Newcomers;
                }
                Whose::Sessions(self.session_of(
                    &self.pools[upstream],
                    bearings.session,
                    Transport::Streamable,
                ))
            }
            _ => Whose::Anybodys(Era::Session),
        }
    }

    async fn answer(
        self: &Arc<Self>,
        upstream: usize,
        (call, said): (Box<Call>, Said),
        whose: Whose<W>,
        now: Millis,
    ) -> Answer<Passing<W>> {
        let pool = &self.pools[upstream];
        let carried = match whose {
            Whose::Anybodys(era) => return Box::pin(stateless::pass(self, pool, (call, said), era)).await,
            Whose::Newcomers => Carried::Nothing,
            Whose::Sessions(carried) => carried,
        };
        if let Said::Initialize { id } = said {
            return Box::pin(initialize::initialize(self, pool, call, id)).await;
        }
        match carried {
            Carried::Nothing => Box::pin(stateless::pass(self, pool, (call, said), Era::Session)).await,
            Carried::Gone => Answer::Refused(Refused::SessionGone),
            Carried::Live(session) => match call.method {
                Method::POST => repeat::post(self, &session, (call, said), now).await,
                Method::GET => gate::get(self, &session, call).await,
                _ => {
                    let relay = Arc::clone(self);
                    let ending = async move { gate::delete(&relay, &session, call).await };
                    Kept::new(gate::DELETE_MAX, ending).await
                }
            },
        }
    }

    /// The session of a token that came where one of this transport stands.
    pub(super) fn session_of(
        self: &Arc<Self>,
        pool: &Arc<Pool<W>>,
        token: Option<&HeaderValue>,
        transport: Transport,
    ) -> Carried<W> {
        let Some(token) = token else {
            return Carried::Nothing;
        };
        if let Some(session) = self.registry.find(token) {
            let serves =
                session.is_live() && session.pool.index == pool.index && session.transport == transport;
            return if serves {
                Carried::Live(session)
            } else {
                Carried::Gone
            };
        }
        let Ok(facts) = session_token::open(&self.keys, &pool.config.name, token.as_bytes()) else {
            return Carried::Gone;
        };
        self.look_for_peers(&pool.config.name, &facts);
        if facts.transport != transport || self.registry.has_ended(&facts.uid) {
            return Carried::Gone;
        }
        let replica = match (pool.config.sessions, &facts.backend_id) {
            _ if transport == Transport::HttpSse => pool.table.get(facts.replica),
            (Sessions::Replica, Some(_)) => pool.table.get(facts.replica),
            // The session lives nowhere in particular: any replica is its replica.
            (Sessions::Replica, None) | (Sessions::Shared | Sessions::None, _) => pool
                .table
                .get(facts.replica)
                .or_else(|| pool.table.replicas().first().cloned()),
        };
        let Some(replica) = replica else {
            info!(upstream = %pool.config.name, "a session's replica is not configured any more");
            return Carried::Gone;
        };
        // Copied: the field pins the buffer that the request was read into.
        let Ok(token) = HeaderValue::from_bytes(token.as_bytes()) else {
            return Carried::Gone;
        };
        let signs = Signs::of_token(&facts);
        let fresh = Fresh {
            facts,
            signs,
            opening: None,
            token,
            carrier: None,
            seat: replica.seat(),
            early: Vec::new(),
            opener: None,
        };
        let session = Session::new(self, pool, fresh, Origin::Revived);
        match session.expiry(self, self.now()) {
            Expiry::Now(_) => Carried::Gone,
            Expiry::NotBefore(_) => {
                info!(upstream = %pool.config.name, replica = %session.replica().authority(), session = %session.label(), "session was taken up from its token");
                Carried::Live(self.registry.add(session))
            }
        }
    }
}

/// What a request carries as the token of a session.
pub(super) enum Carried<W: World> {
    /// Nothing.
    Nothing,
    /// A live session of this upstream.
    Live(Arc<Session<W>>),
    /// Something that opens nothing here, or has ended.
    Gone,
}

/// Whose a request is.
enum Whose<W: World> {
    /// No session's, whatever it carries: it passes through, as is the way of its era.
    Anybodys(Era),
    /// Its session begins with it.
    Newcomers,
    /// A session's, or none's yet.
    Sessions(Carried<W>),
}

//! One upstream as the relay uses it: its replicas, its client, and how a request is sent so that it runs once.
//! Law: a request is tried again, here or elsewhere, only while not one byte of it was written.
//! A session's request waits for its replica (`standing.rs`); a new session takes another replica at once.
//! Next: `initialize.rs`, `post.rs`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::warn;

use crate::config::live::Live;
use crate::config::resolved::{self, EventStore, RequestIds, Transport};
use crate::net::tls::TlsProblem;
use crate::net::{Lack, Net};
use crate::pure::epoch::Epoch;
use crate::pure::revision::{Priming, Revision};
use crate::pure::session::CredentialFields;
use crate::pure::session_token::{self, ReplicaKey};
use crate::pure::stateless::TaskHomes;
use crate::relay::answer::{Call, NotExecuted, Resource};
use crate::relay::beside;
use crate::relay::headers;
use crate::relay::world::World;
use crate::routing::{Asker, Replica, Seat, Table, Wants};
use crate::telemetry::instruments::UpstreamInstruments;
use crate::telemetry::words::Exchanged;
use crate::upstream::{Cause, Client, Deadline, Incoming, Outgoing, SendError};

/// New beginnings under way with one upstream: replicas that lose a crowd of sessions must not get them back all at once.
const BEGINNINGS_AT_ONCE_MAX: usize = 16;

/// An answer of a backend in this world.
pub(crate) type BackendAnswer<W> = Box<Incoming<<<W as World>::Net as Net>::Io>>;

/// One upstream.
pub struct Pool<W: World> {
    /// Its place in the configuration.
    pub(crate) index: usize,
    /// Its settings; a reload may change them. Who its replicas are is the table's to say.
    pub(crate) config: Live<resolved::Upstream>,
    /// Its configuration as it was read last: replicas come and go more often than settings change.
    pub(super) stated: Mutex<Arc<resolved::Upstream>>,
    /// Its replicas.
    pub(crate) table: Table,
    /// What is measured of it.
    pub(crate) instruments: Arc<UpstreamInstruments>,
    /// Whether the server was seen to keep events.
    keeps_events: AtomicBool,
    /// Whether the server was seen to speak HTTP+SSE.
    speaks_http_sse: AtomicBool,
    few: Semaphore,
    /// On which of them tasks were begun.
    tasks: Mutex<TaskHomes>,
    pub(super) client: Live<Client<W::Net>>,
    pub(super) world: Arc<W>,
    /// Where its clients' credentials stand.
    pub(crate) credentials: Live<CredentialFields>,
}

/// What is sent to a backend: everything but the session id and the fields that depend on the replica.
#[derive(Clone)]
pub(crate) struct Request {
    /// The method.
    pub(crate) method: Method,
    /// What it is about.
    pub(crate) resource: Resource,
    /// The query, without `?`.
    pub(crate) query: Option<Box<str>>,
    /// The client's fields.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
    /// The backend's own cursor, where its stream is asked again; a client's never reaches it.
    pub(crate) cursor: Option<HeaderValue>,
    /// The mark of a POST whose answers come on the stream of its session (HTTP+SSE).
    pub(crate) post: Option<Epoch>,
}

/// By what a backend knows the session that a request belongs to.
#[derive(Clone, Copy)]
pub(crate) enum KnownBy<'a> {
    /// Nothing: it is no session's, or the backend keeps none.
    Nothing,
    /// This `Mcp-Session-Id`.
    Id(&'a HeaderValue),
    /// The path and query of this endpoint, which it named (HTTP+SSE).
    Endpoint(&'a HeaderValue),
}

impl<'a> KnownBy<'a> {
    /// An id, if there is one.
    pub(crate) fn id(id: Option<&'a HeaderValue>) -> Self {
        id.map_or(Self::Nothing, Self::Id)
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unanswered {
    /// No replica is healthy.
    NoReplica,
    /// It was not sent: nothing was executed.
    NotSent(NotExecuted),
    /// It was sent and its answer is lost.
    Lost(Cause),
    /// It was sent and not answered in time.
    TimedOut,
}

impl Request {
    /// What a client asks.
    pub(crate) fn of(call: Box<Call>) -> Self {
        let Call {
            resource,
            method,
            query,
            headers,
            body,
            peer: _,
        } = *call;
        Self {
            method,
            resource,
            query,
            headers,
            body,
            cursor: None,
            post: None,
        }
    }

    /// A POST of JSON of our own.
    pub(crate) fn posted(mut headers: HeaderMap, body: impl Into<Bytes>) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self::own(Method::POST, headers, body.into())
    }

    /// A request of our own.
    pub(crate) const fn own(method: Method, headers: HeaderMap, body: Bytes) -> Self {
        Self {
            method,
            resource: Resource::Endpoint,
            query: None,
            headers,
            body,
            cursor: None,
            post: None,
        }
    }
}

impl From<SendError> for Unanswered {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotSent(Cause::Overloaded { .. } | Cause::Lacking(_)) => {
                Self::NotSent(NotExecuted::Overloaded)
            }
            SendError::NotSent(_) => Self::NotSent(NotExecuted::Unavailable),
            SendError::Unknown(Cause::HeadTimeout) => Self::TimedOut,
            SendError::Unknown(cause) => Self::Lost(cause),
        }
    }
}

impl<W: World> Pool<W> {
    /// The upstream that this configuration describes.
    ///
    /// # Errors
    /// A TLS file that can't be used.
    pub(crate) fn new(
        index: usize,
        config: Arc<resolved::Upstream>,
        world: Arc<W>,
        instruments: Arc<UpstreamInstruments>,
    ) -> Result<Self, TlsProblem> {
        let client = Arc::new(Client::for_upstream(Arc::clone(world.net()), &config)?);
        let table = Table::new(&config);
        Ok(Self {
            index,
            stated: Mutex::new(Arc::clone(&config)),
            config: Live::new(Arc::clone(&config)),
            table,
            instruments,
            client: Live::new(client),
            keeps_events: AtomicBool::new(false),
            speaks_http_sse: AtomicBool::new(false),
            credentials: Live::new(Arc::new(credentials_of(&config))),
            world,
            few: Semaphore::new(BEGINNINGS_AT_ONCE_MAX),
            tasks: Mutex::default(),
        })
    }

    /// Its client, for probes.
    pub fn client(&self) -> &Arc<Client<W::Net>> {
        Live::get(&self.client)
    }

    /// Its replicas, for probes and readiness.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// What is measured of it.
    pub const fn instruments(&self) -> &Arc<UpstreamInstruments> {
        &self.instruments
    }

    /// Its configuration, as it was read last.
    pub fn config(&self) -> Arc<resolved::Upstream> {
        Arc::clone(&self.stated.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A turn to begin a session anew, which a whole crowd of sessions may want at one moment.
    pub(crate) async fn few_at_a_time(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.few.acquire().await.ok()
    }

    /// On which of them tasks were begun. Held for a line.
    pub(super) fn tasks(&self) -> MutexGuard<'_, TaskHomes> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server gave an event of its own an id: it keeps events, perhaps those of all sessions together.
    pub(crate) fn seen_to_keep_events(&self) {
        self.keeps_events.store(true, Ordering::Relaxed);
    }

    /// The server was seen to speak this transport.
    pub(crate) fn seen_to_speak(&self, transport: session_token::Transport) {
        let http_sse = transport == session_token::Transport::HttpSse;
        self.speaks_http_sse.store(http_sse, Ordering::Relaxed);
    }

    /// What is known of the transport that the server speaks: what is configured, or what it was seen to speak.
    pub(crate) fn speaks(&self) -> Transport {
        match self.config.transport {
            Transport::Auto if self.speaks_http_sse.load(Ordering::Relaxed) => Transport::Sse,
            said => said,
        }
    }

    /// Whether the request ids of a session of this revision are made its own.
    pub(crate) fn isolates(&self, revision: Revision) -> bool {
        match (
            self.config.request_ids,
            self.config.event_store,
            revision.primes(),
        ) {
            (RequestIds::Isolated, _, _) => true,
            (RequestIds::Auto, EventStore::Undeclared, Priming::Yes) => {
                self.keeps_events.load(Ordering::Relaxed)
            }
            (RequestIds::Auto, EventStore::Undeclared | EventStore::PerSession, _)
            | (RequestIds::Passed, _, _) => false,
        }
    }

    fn chance(&self) -> u64 {
        let mut bits = [0; 8];
        self.world.fill_random(&mut bits);
        u64::from_ne_bytes(bits)
    }

    /// Sends once, on this replica.
    pub(crate) async fn send_once(
        &self,
        replica: &Arc<Replica>,
        session: KnownBy<'_>,
        request: &Request,
        deadline: Deadline,
    ) -> Result<BackendAnswer<W>, SendError> {
        let origin = headers::own_origin(&request.headers, replica);
        let (id, path) = match (session, &request.resource) {
            // Visible ASCII, by construction.
            (KnownBy::Endpoint(endpoint), _) => {
                (None, Cow::Borrowed(endpoint.to_str().unwrap_or(replica.path())))
            }
            (KnownBy::Id(id), Resource::Endpoint) => (Some(id), Cow::Borrowed(replica.path())),
            (KnownBy::Nothing, Resource::Endpoint) => (None, Cow::Borrowed(replica.path())),
            (KnownBy::Id(_) | KnownBy::Nothing, Resource::Beside(path)) => {
                (None, Cow::Owned(beside::at(self, replica, path)))
            }
        };
        let target = match &request.query {
            None => path,
            Some(query) => Cow::Owned(join(&path, query)),
        };
        let outgoing = Outgoing {
            method: request.method.clone(),
            target: &target,
            headers: &request.headers,
            withheld: headers::stays_here,
            own: &[
                origin.as_ref().map(|origin| ("origin", origin)),
                id.map(|id| ("mcp-session-id", id)),
                request.cursor.as_ref().map(|cursor| ("last-event-id", cursor)),
            ],
            body: request.body.clone(),
        };
        let mut answer = self.client.send(replica, outgoing, deadline).await;
        if let (Ok(answer), Some(url)) = (&mut answer, &self.config.oauth.public_url) {
            beside::publish_challenge(self, (replica, url), &mut answer.head.headers);
        }
        self.instruments.exchanges.one(exchanged(&answer));
        self.note_health(replica, &answer);
        answer
    }

    /// Sends to a replica of the balance's choice, and to another one while nothing was written.
    /// The seat is taken with the choice, so that the next choice sees it.
    pub(crate) async fn send_any(
        &self,
        (from, wants): (IpAddr, Wants),
        session: KnownBy<'_>,
        request: &Request,
        deadline: Deadline,
    ) -> Result<(Seat, BackendAnswer<W>), Unanswered> {
        let asker = Asker {
            address: from,
            chance: self.chance(),
            now: self.world.now(),
            wants,
        };
        let mut tried: Vec<ReplicaKey> = Vec::new();
        let mut last = Unanswered::NoReplica;
        loop {
            let Ok(replica) = self.table.choose(asker, &tried) else {
                return Err(last);
            };
            let seat = replica.seat();
            match self.send_once(&replica, session, request, deadline).await {
                Ok(answer) => return Ok((seat, answer)),
                // The next one would lack the same, but for ports: each address has its own.
                Err(
                    error @ (SendError::Unknown(_)
                    | SendError::NotSent(Cause::Lacking(
                        Lack::Descriptors | Lack::Files | Lack::Memory,
                    ))),
                ) => {
                    return Err(error.into());
                }
                Err(error @ SendError::NotSent(_)) => {
                    warn!(upstream = %self.config.name, replica = %replica.authority(), %error, "replica passed over");
                    tried.push(replica.key());
                    last = error.into();
                }
            }
        }
    }
}

/// Where the credentials of an upstream's clients stand.
pub(super) fn credentials_of(config: &resolved::Upstream) -> CredentialFields {
    let names = config.session.credential_headers.iter();
    CredentialFields::new(names.map(|name| &**name))
}

fn exchanged<T>(answer: &Result<T, SendError>) -> Exchanged {
    match answer {
        Ok(_) => Exchanged::Answered,
        Err(SendError::NotSent(Cause::Overloaded { .. })) => Exchanged::Overloaded,
        Err(SendError::NotSent(Cause::Lacking(_))) => Exchanged::Lacking,
        Err(SendError::NotSent(_)) => Exchanged::NotSent,
        Err(SendError::Unknown(cause)) => match cause {
            Cause::EarlyEof => Exchanged::EarlyEof,
            Cause::BadHead(_) => Exchanged::BadHead,
            Cause::HeadTimeout => Exchanged::HeadTimeout,
            Cause::Refused
            | Cause::Unreachable(_)
            | Cause::ConnectTimeout
            | Cause::Tls(_)
            | Cause::Broken(_)
            | Cause::Lacking(_)
            | Cause::Overloaded { .. } => Exchanged::Broken,
        },
    }
}

fn join(path: &str, query: &str) -> String {
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_joins_the_replicas_own() {
        for (path, query, expected) in [("/mcp", "a=1", "/mcp?a=1"), ("/mcp?k=v", "a=1", "/mcp?k=v&a=1")] {
            assert_eq!(join(path, query), expected);
        }
    }
}

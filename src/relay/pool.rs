//! One upstream as the relay uses it: its replicas, its client, and how a request is sent so that it runs once.
//! Law: a request is tried again, here or elsewhere, only while not one byte of it was written.
//! A session's request waits for its replica for a bounded time; a new session takes another replica at once.
//! Next: `initialize.rs`, `post.rs`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use tracing::{debug, warn};

use crate::config::resolved;
use crate::net::Net;
use crate::net::tls::TlsProblem;
use crate::pure::session_token::ReplicaKey;
use crate::relay::answer::{Call, NotExecuted};
use crate::relay::headers;
use crate::relay::world::World;
use crate::routing::{Asker, Replica, Seat, Table};
use crate::telemetry::instruments::UpstreamInstruments;
use crate::telemetry::words::Exchanged;
use crate::upstream::{Backoff, Cause, Client, Deadline, Incoming, Outgoing, SendError};

/// First wait before a refused connection is tried again.
const RETRY_BASE: Duration = Duration::from_millis(50);
/// Longest wait between two tries.
const RETRY_CAP: Duration = Duration::from_secs(1);

/// An answer of a backend in this world.
pub(crate) type BackendAnswer<W> = Box<Incoming<<<W as World>::Net as Net>::Io>>;

/// One upstream.
pub struct Pool<W: World> {
    /// Its place in the configuration.
    pub(crate) index: usize,
    /// Its configuration.
    pub(crate) config: Arc<resolved::Upstream>,
    /// Its replicas.
    pub(crate) table: Table,
    /// What is measured of it.
    pub(crate) instruments: Arc<UpstreamInstruments>,
    client: Arc<Client<W::Net>>,
    world: Arc<W>,
}

/// What is sent to a backend: everything but the session id and the fields that depend on the replica.
pub(crate) struct Request {
    /// The method.
    pub(crate) method: Method,
    /// The query, without `?`.
    pub(crate) query: Option<Box<str>>,
    /// The client's fields.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
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
    pub(crate) fn of(call: Call) -> Self {
        let Call {
            method,
            query,
            headers,
            body,
            peer: _,
        } = call;
        Self {
            method,
            query,
            headers,
            body,
        }
    }

    /// A request of our own.
    pub(crate) const fn own(method: Method, headers: HeaderMap, body: Bytes) -> Self {
        Self {
            method,
            query: None,
            headers,
            body,
        }
    }
}

impl From<SendError> for Unanswered {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NotSent(Cause::Overloaded { .. }) => Self::NotSent(NotExecuted::Overloaded),
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
            config,
            table,
            instruments,
            client,
            world,
        })
    }

    /// Its client, for probes.
    pub const fn client(&self) -> &Arc<Client<W::Net>> {
        &self.client
    }

    /// Its replicas, for probes and readiness.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// What is measured of it.
    pub const fn instruments(&self) -> &Arc<UpstreamInstruments> {
        &self.instruments
    }

    /// Its configuration.
    pub const fn config(&self) -> &Arc<resolved::Upstream> {
        &self.config
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
        session: Option<&HeaderValue>,
        request: &Request,
        deadline: Deadline,
    ) -> Result<BackendAnswer<W>, SendError> {
        let origin = headers::own_origin(&request.headers, replica);
        let target = match &request.query {
            None => std::borrow::Cow::Borrowed(replica.path()),
            Some(query) => std::borrow::Cow::Owned(join(replica.path(), query)),
        };
        let outgoing = Outgoing {
            method: request.method.clone(),
            target: &target,
            headers: &request.headers,
            withheld: headers::stays_here,
            own: &[
                origin.as_ref().map(|origin| ("origin", origin)),
                session.map(|id| ("mcp-session-id", id)),
            ],
            body: request.body.clone(),
        };
        let answer = self.client.send(replica, outgoing, deadline).await;
        self.instruments.exchanges.one(exchanged(&answer));
        answer
    }

    /// Sends to the replica of a session, trying again while it refuses connections, for `replica_retry_max`.
    pub(crate) async fn send_to(
        &self,
        replica: &Arc<Replica>,
        session: Option<&HeaderValue>,
        request: Request,
    ) -> Result<BackendAnswer<W>, Unanswered> {
        let mut backoff = Backoff::new(RETRY_BASE, RETRY_CAP);
        // The clock is read when something goes wrong, not for each call.
        let mut until = None;
        loop {
            let error = match self.send_once(replica, session, &request, Deadline::Never).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            debug!(upstream = %self.config.name, replica = %replica.authority(), %error, "backend did not answer");
            let again = match &error {
                SendError::NotSent(Cause::Overloaded { .. }) | SendError::Unknown(_) => {
                    return Err(error.into());
                }
                SendError::NotSent(_) => backoff.next_wait(self.chance()),
            };
            let now = self.world.now().0;
            let patience = self.config.exchange.replica_retry_max.as_millis() as u64;
            if now + again.as_millis() as u64 >= *until.get_or_insert(now + patience) {
                return Err(error.into());
            }
            tokio::time::sleep(again).await;
        }
    }

    /// Sends to a replica of the balance's choice, and to another one while nothing was written.
    /// The seat is taken with the choice, so that the next choice sees it.
    pub(crate) async fn send_any(
        &self,
        from: IpAddr,
        session: Option<&HeaderValue>,
        request: Request,
        deadline: Deadline,
    ) -> Result<(Seat, BackendAnswer<W>), Unanswered> {
        let asker = Asker {
            address: from,
            chance: self.chance(),
        };
        let mut tried: Vec<ReplicaKey> = Vec::new();
        let mut last = Unanswered::NoReplica;
        loop {
            let Ok(replica) = self.table.choose(asker, &tried) else {
                return Err(last);
            };
            let seat = replica.seat();
            match self.send_once(&replica, session, &request, deadline).await {
                Ok(answer) => return Ok((seat, answer)),
                Err(error @ SendError::Unknown(_)) => return Err(error.into()),
                Err(error @ SendError::NotSent(_)) => {
                    warn!(upstream = %self.config.name, replica = %replica.authority(), %error, "replica passed over");
                    tried.push(replica.key());
                    last = error.into();
                }
            }
        }
    }
}

fn exchanged<T>(answer: &Result<T, SendError>) -> Exchanged {
    match answer {
        Ok(_) => Exchanged::Answered,
        Err(SendError::NotSent(Cause::Overloaded { .. })) => Exchanged::Overloaded,
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

//! The client of one upstream: takes a connection from the pool or dials, sends one request, hands back its answer.
//! Law: [`SendError::NotSent`] is said only if no byte of the request left; nothing is ever sent twice after one did.
//! Absent on purpose: the choice of a replica, and a second try elsewhere (both are the caller's).
//! Why a pooled connection is read from before it is used: one that the backend closed must be found before a byte.
//! Next: `upstream/failure.rs`, `upstream/exchange.rs`.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::config::resolved::{self, Scheme};
use crate::net::tls::{ClientTls, TlsFault, TlsProblem, client_config};
use crate::net::transport::Transport;
use crate::net::{Io, Lack, Net};
use crate::pure::http1::head::ResponseHead;
use crate::routing::Replica;
use crate::upstream::body::{Body, Held};
use crate::upstream::event_body::EventBody;
use crate::upstream::exchange::{Answered, Exchange};
use crate::upstream::failure::{Cause, SendError, SpeaksOf};
use crate::upstream::pool::Pool;

/// That this machine lacks something is said at first, and again after this time.
const SAID_AGAIN: Duration = Duration::from_secs(10);

/// A request to send.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: &'a str,
    /// Fields; those of the connection, `host` and the lengths are written by the client whatever stands here.
    pub headers: &'a HeaderMap,
    /// Which of them stay here.
    pub withheld: fn(&HeaderName) -> bool,
    /// Fields in the proxy's own name.
    pub own: &'a [Option<(&'static str, &'a HeaderValue)>],
    /// The body, whole.
    pub body: Bytes,
}

/// An answer whose head has come.
pub struct Incoming<I> {
    /// The head.
    pub head: ResponseHead,
    /// The body.
    pub body: Body<I>,
}

impl<I: Io> Incoming<I> {
    /// The body as events of at most `event_bytes_max` bytes each.
    pub fn into_events(self, event_bytes_max: usize) -> (ResponseHead, EventBody<I>) {
        (self.head, EventBody::new(self.body, event_bytes_max))
    }
}

/// Until when the head of an answer may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// As long as it takes; the connection is still bounded by `connect_timeout`.
    Never,
    /// Until this moment.
    At(Instant),
}

impl Deadline {
    /// So long from now.
    pub fn after(wait: Duration) -> Self {
        // A wait past the end of the clock is no limit.
        Instant::now().checked_add(wait).map_or(Self::Never, Self::At)
    }

    fn or_sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, sooner) | (sooner, Self::Never) => sooner,
            (Self::At(one), Self::At(another)) => Self::At(one.min(another)),
        }
    }

    async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, Late> {
        match self {
            Self::Never => Ok(work.await),
            Self::At(moment) => timeout_at(moment, work).await.map_err(|_| Late),
        }
    }
}

/// A deadline has passed.
struct Late;

/// The client of one upstream's replicas.
pub struct Client<N> {
    net: Arc<N>,
    exchange: resolved::Exchange,
    tls: Option<ClientTls>,
    /// When it was said last that this machine lacks something.
    said: Mutex<Option<Instant>>,
}

impl<N: Net> Client<N> {
    /// A client with these bounds and times. `tls` is needed if any replica is `https`.
    pub const fn new(net: Arc<N>, exchange: resolved::Exchange, tls: Option<ClientTls>) -> Self {
        Self {
            net,
            exchange,
            tls,
            said: Mutex::new(None),
        }
    }

    /// The client that an upstream's configuration asks for; TLS files are read only if a replica is `https`.
    ///
    /// # Errors
    /// [`TlsProblem`] names the file and what is wrong with it.
    pub fn for_upstream(net: Arc<N>, upstream: &resolved::Upstream) -> Result<Self, TlsProblem> {
        let wants_tls = upstream
            .replicas
            .iter()
            .any(|replica| replica.scheme == Scheme::Https);
        let tls = if wants_tls {
            Some(client_config(&upstream.tls)?)
        } else {
            None
        };
        Ok(Self::new(net, upstream.exchange.clone(), tls))
    }

    /// Sends a request and waits for the head of its answer. Dropping the future closes the connection.
    ///
    /// A POST goes only on a connection that was idle for no longer than `post_idle_max`. A pooled connection that is
    /// found dead before a byte was written is replaced without a word (wire contract, section 7).
    ///
    /// # Errors
    /// [`SendError`] says whether a byte may have been written, and what happened.
    pub async fn send(
        &self,
        to: &Arc<Replica>,
        request: Outgoing<'_>,
        deadline: Deadline,
    ) -> Result<Box<Incoming<N::Io>>, SendError> {
        let mut held = self.admit(to, &request.method).map_err(SendError::NotSent)?;
        let idle_max = if request.method == Method::GET || request.method == Method::HEAD {
            self.exchange.idle_timeout
        } else {
            self.exchange.post_idle_max
        };
        while let Some(io) = self.pooled(to, idle_max).await {
            match exchange(io, held, &request, deadline).await {
                Ok(incoming) => return Ok(incoming),
                Err((SendError::NotSent(Cause::Broken(_)), again)) => held = again,
                Err((error, _)) => return Err(error),
            }
        }
        self.on_its_own(to, held, &request, deadline).await
    }

    /// The same on a connection of its own, which no pool ever saw: what a probe asks is also whether the replica
    /// still accepts connections.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn send_afresh(
        &self,
        to: &Arc<Replica>,
        request: Outgoing<'_>,
        deadline: Deadline,
    ) -> Result<Box<Incoming<N::Io>>, SendError> {
        self.on_its_own(to, Held::Free(Arc::clone(to)), &request, deadline)
            .await
    }

    async fn on_its_own(
        &self,
        to: &Replica,
        held: Held,
        request: &Outgoing<'_>,
        deadline: Deadline,
    ) -> Result<Box<Incoming<N::Io>>, SendError> {
        // Boxed: dialling is rare, and its future large.
        let io = Box::pin(self.dial(to, deadline))
            .await
            .map_err(SendError::NotSent)?;
        exchange(io, held, request, deadline)
            .await
            .map_err(|(error, _)| error)
    }

    /// Connects, shakes hands where the replica is `https`, and notes a failure as the replica's trouble, if it is.
    ///
    /// # Errors
    /// [`Cause`]; nothing of a request was sent.
    pub async fn dial(&self, to: &Replica, deadline: Deadline) -> Result<Transport<N::Io>, Cause> {
        let until = deadline.or_sooner(Deadline::after(self.exchange.connect_timeout));
        let outcome = match until.bound(self.connect(to)).await {
            Ok(outcome) => outcome,
            Err(Late) => Err(Cause::ConnectTimeout),
        };
        outcome.inspect_err(|cause| {
            match cause.speaks_of() {
                SpeaksOf::Replica => to.note_trouble(),
                SpeaksOf::Ourselves => {}
            }
            if let Cause::Lacking(lack) = cause {
                self.say(to, *lack);
            }
        })
    }

    /// Says what this machine lacks, once in a while: it lacks it for each of very many connections.
    fn say(&self, to: &Replica, lack: Lack) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SAID_AGAIN) {
            *said = Some(Instant::now());
            warn!(
                replica = %to.authority(), lacks = lack.as_str(), advice = lack.advice(),
                "connections to replicas can't be opened"
            );
        }
    }

    /// Closes connections to this replica that were idle for too long, by the bounds of this client. Answers how many
    /// stay.
    pub fn sweep(&self, replica: &Replica) -> usize {
        let settings = &self.exchange;
        replica.slot::<Pool<Transport<N::Io>>>().map_or(0, |pool| {
            pool.set_bounds(settings.idle_connections_max, settings.idle_timeout);
            pool.sweep(Instant::now())
        })
    }

    /// A GET is not counted: it is a session's standing stream, which the bounds on sessions bound, and would be
    /// mistaken for work under way.
    fn admit(&self, to: &Arc<Replica>, method: &Method) -> Result<Held, Cause> {
        if method == Method::GET {
            return Ok(Held::Free(Arc::clone(to)));
        }
        let in_flight_max = self.exchange.in_flight_max;
        to.lease(in_flight_max)
            .map(Held::Lease)
            .ok_or(Cause::Overloaded { in_flight_max })
    }

    async fn pooled(&self, to: &Replica, idle_max: Duration) -> Option<Transport<N::Io>> {
        let settings = &self.exchange;
        let pool = to.slot_or_make(|| Pool::new(settings.idle_connections_max, settings.idle_timeout))?;
        loop {
            let mut io: Transport<N::Io> = pool.take(Instant::now(), idle_max)?;
            match glance(&mut io).await {
                Glance::Quiet => return Some(io),
                Glance::Dead => {}
            }
        }
    }

    async fn connect(&self, to: &Replica) -> Result<Transport<N::Io>, Cause> {
        let authority = to.authority();
        let io = self
            .net
            .dial(authority)
            .await
            .map_err(|error| match (Lack::of(&error), error.kind()) {
                (Some(lack), _) => Cause::Lacking(lack),
                (None, io::ErrorKind::ConnectionRefused) => Cause::Refused,
                (None, kind) => Cause::Unreachable(kind),
            })?;
        match (to.scheme(), &self.tls) {
            (Scheme::Http, Some(_) | None) => Ok(Transport::Plain(io)),
            (Scheme::Https, Some(tls)) => tls.connect(io, &authority.host).await.map_err(Cause::Tls),
            (Scheme::Https, None) => Err(Cause::Tls(TlsFault::Protocol(
                "this client was made without TLS".into(),
            ))),
        }
    }
}

/// What an idle connection looks like before it is used.
enum Glance {
    Quiet,
    /// Closed, broken, or it said something unasked.
    Dead,
}

async fn glance<I: Io>(io: &mut Transport<I>) -> Glance {
    if !io.may_read() {
        return Glance::Quiet;
    }
    poll_fn(|cx| {
        let mut byte = [0; 1];
        Poll::Ready(
            match Pin::new(&mut *io).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
                Poll::Pending => Glance::Quiet,
                Poll::Ready(_) => Glance::Dead,
            },
        )
    })
    .await
}

/// One exchange on one connection. A failure gives back what was held of the replica, for the next connection.
async fn exchange<I: Io>(
    io: Transport<I>,
    held: Held,
    request: &Outgoing<'_>,
    deadline: Deadline,
) -> Result<Box<Incoming<I>>, (SendError, Held)> {
    let mut exchange = Exchange::new(io, request, held.replica().host());
    match deadline.bound(poll_fn(|cx| exchange.poll(cx))).await {
        Ok(Ok(Answered { head, ahead })) => {
            let io = exchange.into_io();
            let body = Body::new(io, &head, ahead, held);
            Ok(Box::new(Incoming { head, body }))
        }
        Ok(Err(cause)) => Err((exchange.verdict(cause), held)),
        Err(Late) => Err((exchange.verdict(Cause::HeadTimeout), held)),
    }
}

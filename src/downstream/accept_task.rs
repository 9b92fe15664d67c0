//! The door: binds the listeners, takes connections within the bound, and closes in an orderly way.
//! Law: a connection beyond the bound is told so; beyond what can be told, it is closed. Nothing waits unseen.
//! Polled, in this order, all cancel-safe: the call to drain, `Net::accept`.
//! Why errors back off: out of descriptors, accept fails at once and for as long as it takes; it must not spin.
//! Next: `front.rs`, then `http_task.rs`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::config::resolved::Config;
use crate::downstream::front::{Bodies, Drain, Front, Link, Seat, Seats, Shared};
use crate::downstream::http_task;
use crate::downstream::meter::{Meter, Metered};
use crate::downstream::origin::HostGate;
use crate::downstream::reject::Unheard;
use crate::net::tls::{self, ServerTls, TlsProblem};
use crate::net::transport::{Alpn, Transport};
use crate::net::{Io, Net};
use crate::relay::answer::Serve;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::words::Turned;

/// First pause after a failed accept.
const BACK_OFF_MIN: Duration = Duration::from_millis(5);

/// Longest pause between two attempts to accept.
const BACK_OFF_MAX: Duration = Duration::from_secs(1);

/// Refusals that are being said at a time; connections beyond them are closed without a word.
const REFUSALS_MAX: usize = 64;

/// How long a refusal may take to be said.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why clients can't be served.
#[derive(Debug)]
pub enum ServeError {
    /// The network refuses the address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the network says of it.
        source: io::Error,
    },
    /// The listener's certificate or key can't be used.
    Tls {
        /// The listener's address.
        address: SocketAddr,
        /// What is wrong.
        source: TlsProblem,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => write!(f, "can't listen on {address}: {source}"),
            Self::Tls { address, source } => write!(f, "can't serve TLS on {address}: {source}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } => Some(source),
            Self::Tls { source, .. } => Some(source),
        }
    }
}

/// The client side at work. Dropping it stops accepting; open connections go on.
#[derive(Debug)]
pub struct Serving {
    addresses: Vec<SocketAddr>,
    drain: Arc<Drain>,
    shut: Arc<Drain>,
    seats: Arc<Seats>,
    loops: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Where clients connect, in the order of the configuration; port 0 became the port given.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Client connections open now, parked streams included.
    pub fn connections(&self) -> usize {
        self.seats.taken()
    }

    /// Closes idle connections, and lets the others and new ones finish with `Connection: close` (wire contract,
    /// section 7, "drain of the proxy"): calls that come meanwhile are still answered. Parked streams are the relay's to end. Saying it twice changes nothing.
    pub fn drain(&self) {
        self.drain.begin();
    }

    /// Stops accepting. Saying it twice changes nothing.
    pub fn close(&self) {
        self.shut.begin();
    }

    /// Waits until every connection is closed. Cancel-safe; the caller bounds its time.
    pub async fn closed(&self) {
        self.seats.empty().await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        for accepting in &self.loops {
            accepting.abort();
        }
    }
}

/// Binds every listener of the configuration and serves clients there.
///
/// # Errors
/// The first listener that can't be bound or has no usable certificate; then none is served.
pub fn serve<N: Net, S: Serve>(
    net: &Arc<N>,
    config: &Config,
    answers: &Arc<S>,
    instruments: &Arc<Instruments>,
) -> Result<Serving, ServeError> {
    let shared = Shared {
        drain: Arc::new(Drain::default()),
        instruments: Arc::clone(instruments),
        bodies: Bodies::new(config.server.body_bytes_max),
    };
    let seats = Seats::new(config.server.connections_max);
    let shut = Arc::new(Drain::default());
    let mut doors = Vec::new();
    for listener in &config.listeners {
        let address = listener.address;
        let tls = listener.tls.as_ref().map(tls::server_config).transpose();
        let tls = tls.map_err(|source| ServeError::Tls { address, source })?;
        let at = |source| ServeError::Listen { address, source };
        let socket = net.listen(listener.address).map_err(at)?;
        let address = net.local_addr(&socket).map_err(at)?;
        let gate = HostGate::new(
            address,
            &config.server.allowed_hosts,
            &config.server.allowed_origins,
        );
        let front = Front::new(config, gate, Arc::clone(answers), &shared);
        let front = Arc::new(front);
        doors.push((
            address,
            Door {
                net: Arc::clone(net),
                socket,
                tls,
                front,
                seats: Arc::clone(&seats),
                shut: Arc::clone(&shut),
            },
        ));
    }
    let addresses = doors.iter().map(|(address, _)| *address).collect();
    let loops = doors
        .into_iter()
        .map(|(_, door)| tokio::spawn(door.stand_open()))
        .collect();
    Ok(Serving {
        addresses,
        drain: shared.drain,
        shut,
        seats,
        loops,
    })
}

/// One listener at work.
struct Door<N: Net, S: Serve> {
    net: Arc<N>,
    socket: N::Listener,
    tls: Option<ServerTls>,
    front: Arc<Front<S>>,
    seats: Arc<Seats>,
    shut: Arc<Drain>,
}

impl<N: Net, S: Serve> Door<N, S> {
    async fn stand_open(self) {
        let refusals = Seats::new(REFUSALS_MAX);
        let mut pause = BACK_OFF_MIN;
        let shut = Arc::clone(&self.shut);
        let mut called = std::pin::pin!(shut.called());
        called.as_mut().enable();
        while !shut.has_begun() {
            let accepted = tokio::select! {
                biased;
                () = called.as_mut() => return,
                accepted = self.net.accept(&self.socket) => accepted,
            };
            match accepted {
                Ok(io) => {
                    pause = BACK_OFF_MIN;
                    self.welcome(io, &refusals);
                }
                Err(error) if concerns_one_connection(&error) => {}
                Err(_) => {
                    tokio::select! {
                        biased;
                        () = called.as_mut() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (pause * 2).min(BACK_OFF_MAX);
                }
            }
        }
    }

    fn welcome(&self, io: N::Io, refusals: &Arc<Seats>) {
        let instruments = &self.front.instruments;
        instruments.connections.one();
        match (self.seats.take(&instruments.connections_live), &self.tls) {
            (Some(seat), None) => {
                let link = plain(io, seat);
                tokio::spawn(http_task::connection(Arc::clone(&self.front), link));
            }
            (Some(seat), Some(tls)) => {
                tokio::spawn(shake_hands(Arc::clone(&self.front), tls.clone(), io, seat));
            }
            (None, tls) => {
                let why = Unheard::TooManyConnections;
                self.front.refused(why.word(), io.peer().ip());
                // Under TLS a refusal is not worth a handshake.
                if tls.is_none()
                    && let Some(seat) = refusals.take(&instruments.connections_live)
                {
                    tokio::spawn(http_task::refuse(plain(io, seat), why, REFUSAL_TIMEOUT));
                }
            }
        }
    }
}

/// A plain connection. It has the type of one under TLS, so that everything above is compiled once.
fn plain<I: Io>(io: I, seat: Seat) -> Link<Transport<Metered<I>>> {
    let io = Transport::Plain(Metered::new(io, Meter::Writer));
    Link::new(io, Meter::Writer, seat)
}

/// Begins a connection under TLS. A client that fails at it, or takes too long, is let go.
async fn shake_hands<I: Io, S: Serve>(front: Arc<Front<S>>, tls: ServerTls, io: I, seat: Seat) {
    let meter = Meter::Beneath(Arc::default());
    let peer = io.peer().ip();
    let metered = Metered::new(io, meter.clone());
    let Ok(Ok(io)) = tokio::time::timeout(front.limits.head_timeout, tls.accept(metered)).await else {
        front.refused(Turned::Tls, peer);
        return;
    };
    let alpn = io.alpn();
    let link = Link::new(io, meter, seat);
    match alpn {
        Alpn::Http2 => http_task::http2_connection(front, link).await,
        Alpn::Http11 | Alpn::Plain => http_task::connection(front, link).await,
    }
}

/// Whether only the connection that was about to be accepted is lost.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

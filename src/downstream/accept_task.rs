//! The door: binds the listeners, takes connections within the bound, and closes in an orderly way.
//! Law: a connection beyond the bound is told so; beyond what can be told, it is closed. Nothing waits unseen.
//! Polled, in this order, all cancel-safe: the call to drain, `Net::accept`.
//! Why errors back off: out of descriptors, accept fails at once and for as long as it takes; it must not spin.
//! Next: `front.rs`, then `http_task.rs`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::warn;

use crate::config::live::{Full, Live};
use crate::config::resolved::Config;
use crate::downstream::endpoint::Routes;
use crate::downstream::front::{Bodies, Drain, Front, Limits, Link, Seat, Seats, Shared};
use crate::downstream::http_task;
use crate::downstream::meter::{Meter, Metered};
use crate::downstream::origin::HostGate;
use crate::downstream::reject::Unheard;
use crate::net::tls::{self, ServerTls, TlsProblem};
use crate::net::transport::{Alpn, Transport};
use crate::net::{Io, Lack, Net};
use crate::relay::answer::Serve;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::words::Turned;

/// That accepting fails is said at first, and again after this time: what is missing then comes and goes.
const SAID_AGAIN: Duration = Duration::from_secs(10);

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

/// What a reload may change of the client side: who may ask, bounds and times, certificates.
#[derive(Debug)]
pub struct Terms {
    doors: Vec<DoorTerms>,
    routes: Arc<Live<Routes>>,
    limits: Arc<Live<Limits>>,
    seats: Arc<Seats>,
    bodies: Arc<Bodies>,
}

/// The terms of one listener.
#[derive(Debug)]
struct DoorTerms {
    address: SocketAddr,
    gate: Arc<Live<HostGate>>,
    /// Read once for each connection.
    tls: Arc<Mutex<Option<ServerTls>>>,
}

/// Terms that can be put in force.
#[derive(Debug)]
pub struct NewTerms {
    doors: Vec<(HostGate, Option<ServerTls>)>,
    routes: Routes,
    limits: Limits,
    connections_max: usize,
}

impl Terms {
    /// Reads certificates and lists anew; nothing has changed then. The listeners are those of the start.
    ///
    /// # Errors
    /// A certificate or a key that can't be used.
    pub fn prepare(&self, config: &Config) -> Result<NewTerms, ServeError> {
        let doors = self.doors.iter().zip(&config.listeners).map(|(door, listener)| {
            let address = door.address;
            let tls = listener.tls.as_ref().map(tls::server_config).transpose();
            let tls = tls.map_err(|source| ServeError::Tls { address, source })?;
            Ok((gate(address, config), tls))
        });
        Ok(NewTerms {
            doors: doors.collect::<Result<_, ServeError>>()?,
            routes: Routes::new(&config.upstreams),
            limits: Limits::of(&config.server),
            connections_max: config.server.connections_max,
        })
    }

    /// Whether other terms can be put in force.
    ///
    /// # Errors
    /// [`Full`]: they were changed too often for one process.
    pub fn room(&self) -> Result<(), Full> {
        self.doors.iter().try_for_each(|door| Live::room(&door.gate))?;
        Live::room(&self.routes)?;
        Live::room(&self.limits)
    }

    /// Puts them in force: paths, lists and times hold for the next request, certificates for the next connection.
    /// Call: once whoever answers knows every upstream of them.
    pub fn put_in_force(&self, terms: NewTerms) {
        // There was room a moment ago, and there is one writer.
        for (door, (gate, tls)) in self.doors.iter().zip(terms.doors) {
            if **door.gate != gate {
                let _ = Live::put(&door.gate, Arc::new(gate));
            }
            *door.tls.lock().unwrap_or_else(PoisonError::into_inner) = tls;
        }
        if **self.routes != terms.routes {
            let _ = Live::put(&self.routes, Arc::new(terms.routes));
        }
        if **self.limits != terms.limits {
            let _ = Live::put(&self.limits, Arc::new(terms.limits));
        }
        self.seats.set_max(terms.connections_max);
        self.bodies.fit_one(terms.limits.body_bytes_max);
    }
}

fn gate(address: SocketAddr, config: &Config) -> HostGate {
    HostGate::new(
        address,
        &config.server.allowed_hosts,
        &config.server.allowed_origins,
    )
}

/// The client side at work. Dropping it stops accepting; open connections go on.
#[derive(Debug)]
pub struct Serving {
    addresses: Vec<SocketAddr>,
    drain: Arc<Drain>,
    shut: Arc<Drain>,
    seats: Arc<Seats>,
    terms: Arc<Terms>,
    loops: Vec<JoinHandle<()>>,
}

impl Serving {
    /// What a reload may change.
    pub const fn terms(&self) -> &Arc<Terms> {
        &self.terms
    }

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
        routes: Arc::new(Live::new(Arc::new(Routes::new(&config.upstreams)))),
        limits: Arc::new(Live::new(Arc::new(Limits::of(&config.server)))),
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
        let terms = DoorTerms {
            address,
            gate: Arc::new(Live::new(Arc::new(gate(address, config)))),
            tls: Arc::new(Mutex::new(tls)),
        };
        let front = Front::new(Arc::clone(&terms.gate), Arc::clone(answers), &shared);
        let front = Arc::new(front);
        let tls = Arc::clone(&terms.tls);
        doors.push((
            terms,
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
    let addresses = doors.iter().map(|(terms, _)| terms.address).collect();
    let (doors, loops) = doors
        .into_iter()
        .map(|(terms, door)| (terms, tokio::spawn(door.stand_open())))
        .unzip();
    let terms = Terms {
        doors,
        routes: shared.routes,
        limits: shared.limits,
        seats: Arc::clone(&seats),
        bodies: shared.bodies,
    };
    Ok(Serving {
        addresses,
        drain: shared.drain,
        shut,
        seats,
        terms: Arc::new(terms),
        loops,
    })
}

/// One listener at work.
struct Door<N: Net, S: Serve> {
    net: Arc<N>,
    socket: N::Listener,
    tls: Arc<Mutex<Option<ServerTls>>>,
    front: Arc<Front<S>>,
    seats: Arc<Seats>,
    shut: Arc<Drain>,
}

impl<N: Net, S: Serve> Door<N, S> {
    async fn stand_open(self) {
        let refusals = Seats::new(REFUSALS_MAX);
        let mut pause = BACK_OFF_MIN;
        let mut said: Option<Instant> = None;
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
                Err(error) => {
                    if said.is_none_or(|said| said.elapsed() >= SAID_AGAIN) {
                        let lack = Lack::of(&error);
                        warn!(
                            %error,
                            lacks = lack.map(Lack::as_str),
                            advice = lack.map(Lack::advice),
                            "client connections can't be accepted"
                        );
                        said = Some(Instant::now());
                    }
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
        let tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (self.seats.take(&instruments.connections_live), tls) {
            (Some(seat), None) => {
                let link = plain(io, seat);
                tokio::spawn(http_task::connection(Arc::clone(&self.front), link));
            }
            (Some(seat), Some(tls)) => {
                tokio::spawn(shake_hands(Arc::clone(&self.front), tls, io, seat));
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

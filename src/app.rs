//! The one place that knows every room: builds them, wires them, and takes them down in order.
//! Law: no logic but order. Built from the store up, drained from the client's side down.
//! A process has one `App`; an example or a test may have several.
//! Next: `relay/mod.rs`.

mod operator;
mod probers;
mod reload_task;

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::admin;
use crate::app::operator::Known;
use crate::app::probers::Probers;
use crate::app::reload_task::{InForce, Reload, unix_seconds};
use crate::cli::Hangup;
use crate::config::Flags;
use crate::config::resolved::{Config, Upstream};
use crate::downstream::{self, ServeError, Serving};
use crate::net::tcp::Tcp;
use crate::net::tls::TlsProblem;
use crate::pure::keys::{KeyId, KeyRing};
use crate::pure::log::Millis;
use crate::relay::world::World;
use crate::relay::{Door, Relay};
use crate::store::memory::Memory;
use crate::telemetry::instruments::{Instruments, Labelled};

/// The world as it is: TCP, this process's memory, the system's clock and randomness.
pub struct Here {
    net: Arc<Tcp>,
    store: Memory,
    began: Instant,
}

impl World for Here {
    type Net = Tcp;
    type Store = Memory;

    fn net(&self) -> &Arc<Tcp> {
        &self.net
    }

    fn store(&self) -> &Memory {
        &self.store
    }

    fn unix_seconds(&self) -> u64 {
        unix_seconds()
    }

    fn now(&self) -> Millis {
        Millis(self.began.elapsed().as_millis() as u64)
    }

    fn fill_random(&self, out: &mut [u8]) {
        // A process without randomness can't make a single id that is safe to give out.
        crate::net::fill_random(out).expect("the system gives random bytes");
    }
}

/// Why a proxy did not start.
#[derive(Debug)]
pub enum StartError {
    /// A listener of the client side could not be opened.
    Serve(ServeError),
    /// The admin listener could not be bound.
    Admin {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// TLS towards an upstream can't be set up.
    UpstreamTls(TlsProblem),
    /// The secrets make no key ring.
    Keys(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serve(error) => error.fmt(f),
            Self::Admin { address, source } => {
                write!(f, "can't listen on {address} for the operator: {source}")
            }
            Self::UpstreamTls(problem) => write!(f, "TLS towards an upstream: {problem}"),
            Self::Keys(what) => write!(f, "secrets: {what}"),
        }
    }
}

impl std::error::Error for StartError {}

/// How a drain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// Everything ended by itself.
    InOrder,
    /// The time ran out; so many running answers were cut, each with its error.
    RanOut {
        /// How many.
        cut: usize,
    },
}

/// A proxy at work.
pub struct App {
    relay: Arc<Relay<Here>>,
    world: Arc<Here>,
    serving: Serving,
    admin_address: Option<SocketAddr>,
    draining: Arc<AtomicBool>,
    stop_admin: Arc<Notify>,
    instruments: Arc<Instruments>,
    tasks: JoinSet<()>,
    /// Until somebody follows changes, and ends and begins them with the replicas.
    probers: Option<Probers>,
    in_force: Arc<InForce>,
}

impl App {
    /// Starts a proxy: when it answers, clients can connect. Call: within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError`] says what could not be had; nothing is left running then.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let world = Arc::new(Here {
            net: Arc::new(Tcp::new()),
            store: Memory::new(config.replay_bytes_max),
            began: Instant::now(),
        });
        let keys = key_ring(&config, &world)?;
        let instruments = Arc::new(instruments(&config));
        let relay =
            Relay::new(Arc::clone(&world), keys, &config, &instruments).map_err(StartError::UpstreamTls)?;
        let draining = Arc::new(AtomicBool::new(false));
        let stop_admin = Arc::new(Notify::new());
        let in_force = Arc::new(InForce::new(config.clone()));
        instruments
            .loaded
            .set(i64::try_from(in_force.loaded()).unwrap_or(i64::MAX));
        let mut tasks = JoinSet::new();
        let admin_address = match config.admin {
            None => None,
            Some(address) => {
                let at = |source| StartError::Admin { address, source };
                let listener = TcpListener::bind(address).await.map_err(at)?;
                let bound = listener.local_addr().map_err(at)?;
                let known = Known {
                    relay: Arc::clone(&relay),
                    world: Arc::clone(&world),
                    instruments: Arc::clone(&instruments),
                    in_force: Arc::clone(&in_force),
                    draining: Arc::clone(&draining),
                };
                let admin = Arc::new(operator::admin(known, bound));
                let stop = Arc::clone(&stop_admin);
                tasks.spawn(admin::serve(
                    listener,
                    admin,
                    async move { stop.notified().await },
                ));
                Some(bound)
            }
        };
        let door = Arc::new(Door(Arc::clone(&relay)));
        let serving =
            downstream::serve(world.net(), &config, &door, &instruments).map_err(StartError::Serve)?;
        tasks.spawn(Arc::clone(&relay).keep_time(Arc::clone(&instruments)));
        for pool in relay.pools() {
            relay.drain_as_said(pool, &[]);
        }
        let probers = Probers::of(&*relay, &*world);
        for upstream in &config.upstreams {
            say_what_holds(upstream);
        }
        for address in serving.local_addrs() {
            info!(%address, "listening");
        }
        if let Some(address) = admin_address {
            info!(%address, "listening for the operator");
        }
        Ok(Self {
            relay,
            world,
            serving,
            admin_address,
            draining,
            stop_admin,
            instruments,
            tasks,
            probers: Some(probers),
            in_force,
        })
    }

    /// From now on the configuration is read again when it changes or when the signal comes. `flags` are those that it
    /// was read with. Call: once, within a tokio runtime.
    pub fn follow(&mut self, flags: Flags, hangup: Hangup) {
        let Some(probers) = self.probers.take() else {
            return;
        };
        let reload = Reload {
            flags,
            in_force: Arc::clone(&self.in_force),
            relay: Arc::clone(&self.relay),
            world: Arc::clone(&self.world),
            terms: Arc::clone(self.serving.terms()),
            instruments: Arc::clone(&self.instruments),
            probers,
        };
        self.tasks.spawn(reload.follow(hangup));
    }

    /// Where clients connect, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.serving.local_addrs()
    }

    /// Where the operator looks, if anywhere.
    pub const fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Drains and stops: not ready, listeners sent away with a `retry`, running answers and what calls still come until
    /// `drain_max` (wire contract, section 7).
    pub async fn drain(self) -> Drained {
        self.drain_until(std::future::pending()).await
    }

    /// The same, but cut short at `hurry`: what runs then gets its error at once.
    pub async fn drain_until(mut self, hurry: impl Future<Output = ()>) -> Drained {
        let max = self.in_force.config().server.drain_max;
        info!(drain_max = ?max, connections = self.serving.connections(), "drain began");
        self.draining.store(true, Ordering::Relaxed);
        self.instruments.draining.set(1);
        self.serving.drain();
        let until = Instant::now() + max;
        let mut hurry = Hurry::Waits(pin!(hurry));
        let cut = self.relay.drain(max, poll_fn(|cx| hurry.poll(cx))).await;
        self.serving.close();
        {
            let mut closed = pin!(self.serving.closed());
            let in_time = poll_fn(|cx| match closed.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => hurry.poll(cx),
            });
            let rest = until.saturating_duration_since(Instant::now());
            let _ = tokio::time::timeout(rest, in_time).await;
        }
        let closed = tokio::time::timeout(LAST_CLOSES, self.serving.closed()).await;
        self.stop_admin.notify_waiters();
        self.tasks.shutdown().await;
        if cut > 0 || closed.is_err() {
            warn!(
                cut,
                connections = self.serving.connections(),
                "drain ran out of time"
            );
            Drained::RanOut { cut }
        } else {
            info!("drained");
            Drained::InOrder
        }
    }
}

/// Somebody who may not want to wait any more.
enum Hurry<'a, F> {
    Waits(Pin<&'a mut F>),
    Came,
}

impl<F: Future<Output = ()>> Hurry<'_, F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Waits(future) => {
                let came = future.as_mut().poll(cx);
                if came.is_ready() {
                    *self = Self::Came;
                }
                came
            }
            Self::Came => Poll::Ready(()),
        }
    }
}

fn instruments(config: &Config) -> Instruments {
    let labels: Vec<Labelled<'_>> = config.upstreams.iter().map(|one| labelled(one)).collect();
    Instruments::new(&labels)
}

fn labelled(upstream: &Upstream) -> Labelled<'_> {
    Labelled {
        name: &upstream.name,
        replicas: upstream
            .replicas
            .iter()
            .map(|replica| replica.authority.to_string())
            .collect(),
    }
}

/// One line for each upstream: what somebody who reads the log later wants to know that held.
fn say_what_holds(upstream: &Upstream) {
    let replicas: Vec<String> = upstream
        .replicas
        .iter()
        .map(|replica| replica.authority.to_string())
        .collect();
    info!(
        upstream = %upstream.name,
        path = %upstream.path,
        replicas = replicas.join(" "),
        transport = ?upstream.transport,
        sessions = ?upstream.sessions,
        balance = ?upstream.balance,
        probe = ?upstream.health.probe,
        detached_max = ?upstream.stream.detached_max,
        session_idle = ?upstream.session.idle,
        drain_deadline = ?upstream.drain_deadline,
        "upstream is served"
    );
}

/// How long connections may take to close at the very end.
const LAST_CLOSES: Duration = Duration::from_secs(2);

fn key_ring(config: &Config, world: &Here) -> Result<KeyRing, StartError> {
    let own: [u8; 32];
    let mut secrets = Vec::new();
    for secret in &config.secrets {
        let kid = KeyId::new(secret.kid)
            .ok_or_else(|| StartError::Keys("a kid is one ASCII letter or digit".to_owned()))?;
        secrets.push((kid, secret.bytes.as_slice()));
    }
    if secrets.is_empty() {
        own = {
            let mut bytes = [0; 32];
            world.fill_random(&mut bytes);
            bytes
        };
        secrets.push((KeyId::RANDOM, &own));
    }
    let newest = secrets.remove(0);
    KeyRing::new(newest, secrets).map_err(|bad| StartError::Keys(bad.to_string()))
}

//! The one place that knows every room: builds them, wires them, and takes them down in order.
//! Law: no logic but order. Built from the store up, drained from the client's side down.
//! A process has one `App`; an example or a test may have several.
//! Next: `relay/mod.rs`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::admin::{self, Admin, Readiness};
use crate::config::resolved::Config;
use crate::downstream::{self, ServeError, Serving};
use crate::net::tcp::Tcp;
use crate::net::tls::TlsProblem;
use crate::pure::keys::{KeyId, KeyRing};
use crate::pure::log::Millis;
use crate::relay::world::World;
use crate::relay::{Door, Relay};
use crate::routing::Condition;
use crate::store::memory::Memory;
use crate::telemetry::instruments::{Instruments, Labelled};
use crate::upstream::prober_task;

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
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
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
    serving: Serving,
    admin_address: Option<SocketAddr>,
    draining: Arc<AtomicBool>,
    stop_admin: Arc<Notify>,
    instruments: Arc<Instruments>,
    tasks: JoinSet<()>,
    config: Config,
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
        let labels: Vec<Labelled<'_>> = config
            .upstreams
            .iter()
            .map(|upstream| Labelled {
                name: &upstream.name,
                replicas: upstream
                    .replicas
                    .iter()
                    .map(|replica| replica.authority.to_string())
                    .collect(),
            })
            .collect();
        let instruments = Arc::new(Instruments::new(&labels));
        let relay =
            Relay::new(Arc::clone(&world), keys, &config, &instruments).map_err(StartError::UpstreamTls)?;
        let draining = Arc::new(AtomicBool::new(false));
        let stop_admin = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        let admin_address = match config.admin {
            None => None,
            Some(address) => {
                let at = |source| StartError::Admin { address, source };
                let listener = TcpListener::bind(address).await.map_err(at)?;
                let bound = listener.local_addr().map_err(at)?;
                let admin = operator(&relay, &instruments, &draining);
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
        watch_replicas(&relay, &world, &mut tasks);
        for address in serving.local_addrs() {
            info!(%address, "listening");
        }
        if let Some(address) = admin_address {
            info!(%address, "listening for the operator");
        }
        Ok(Self {
            relay,
            serving,
            admin_address,
            draining,
            stop_admin,
            instruments,
            tasks,
            config,
        })
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
    pub async fn drain(mut self) -> Drained {
        let max = self.config.server.drain_max;
        info!(drain_max = ?max, connections = self.serving.connections(), "drain began");
        self.draining.store(true, Ordering::Relaxed);
        self.instruments.draining.set(1);
        self.serving.drain();
        let until = Instant::now() + max;
        let cut = self.relay.drain(max).await;
        self.serving.close();
        let rest = until.saturating_duration_since(Instant::now()).max(LAST_CLOSES);
        let closed = tokio::time::timeout(rest, self.serving.closed()).await;
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

/// How long connections may take to close at the very end.
const LAST_CLOSES: std::time::Duration = std::time::Duration::from_secs(2);

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

fn operator(
    relay: &Arc<Relay<Here>>,
    instruments: &Arc<Instruments>,
    draining: &Arc<AtomicBool>,
) -> Arc<Admin> {
    let (relay, draining) = (Arc::clone(relay), Arc::clone(draining));
    Arc::new(Admin::new(Arc::clone(instruments), move || {
        let healthy = |pool: &Arc<crate::relay::pool::Pool<Here>>| {
            pool.table()
                .replicas()
                .iter()
                .any(|replica| replica.condition() == Condition::Healthy)
        };
        if draining.load(Ordering::Relaxed) {
            Readiness::Draining
        } else if relay.pools().iter().any(healthy) {
            Readiness::Ready
        } else {
            Readiness::NoHealthyReplica
        }
    }))
}

fn watch_replicas(relay: &Arc<Relay<Here>>, world: &Here, tasks: &mut JoinSet<()>) {
    for pool in relay.pools() {
        for (index, replica) in pool.table().replicas().into_iter().enumerate() {
            let mut phase = [0; 8];
            world.fill_random(&mut phase);
            let (client, health) = (Arc::clone(pool.client()), pool.config().health.clone());
            let instruments = Arc::clone(pool.instruments());
            instruments.replica_healthy[index].set(1);
            tasks.spawn(async move {
                prober_task::watch(
                    client,
                    replica,
                    health,
                    u64::from_ne_bytes(phase),
                    move |replica, _| {
                        let healthy = i64::from(replica.condition() == Condition::Healthy);
                        instruments.replica_healthy[index].set(healthy);
                    },
                )
                .await;
            });
        }
    }
}

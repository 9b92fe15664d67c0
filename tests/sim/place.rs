//! A proxy in a simulated world: the relay, the upstream client, the sinks and hyper of production, over wires in memory.
//! Law: nothing of the program is played by something else here but the network, the store, the clock and chance.
//! Next: `fleet.rs`.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline::config::resolved::Config;
use throughline::config::{self, Flags};
use throughline::downstream::{self, Serving};
use throughline::pure::keys::{KeyId, KeyRing};
use throughline::pure::log::Millis;
use throughline::relay::pool::Pool;
use throughline::relay::reconfigure::{NotInForce, TlsFiles};
use throughline::relay::world::World;
use throughline::relay::{Door, Relay};
use throughline::store::Store;
use throughline::telemetry::instruments::{Instruments, Labelled};
use throughline::telemetry::words::StreamKind;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::chance::Chance;
use crate::oracle::Process;
use crate::shelf::Shelf;
use crate::wires::{Cut, Host};

/// How long connections may take to close at the very end.
const LAST_CLOSES: Duration = Duration::from_secs(2);

/// Where a proxy listens.
pub(crate) fn proxy_address(nth: usize) -> SocketAddr {
    ([10, 0, 0, 100 + nth as u8], 8080).into()
}

/// Where a replica listens.
pub(crate) fn replica_address(nth: usize) -> SocketAddr {
    ([10, 0, 0, 1 + nth as u8], 3000).into()
}

/// The world as one process of the proxy has it.
pub(crate) struct Sphere {
    pub(crate) net: Arc<Host>,
    pub(crate) store: Shelf,
    pub(crate) chance: Mutex<Chance>,
    pub(crate) began: Instant,
}

impl World for Sphere {
    type Net = Host;
    type Store = Shelf;

    fn net(&self) -> &Arc<Host> {
        &self.net
    }

    fn store(&self) -> &Shelf {
        &self.store
    }

    fn unix_seconds(&self) -> u64 {
        1_764_547_200 + self.began.elapsed().as_secs()
    }

    fn now(&self) -> Millis {
        Millis(self.began.elapsed().as_millis() as u64)
    }

    fn fill_random(&self, out: &mut [u8]) {
        self.chance.lock().expect("no panic while it is held").fill(out);
    }
}

/// A running proxy.
pub(crate) struct Place {
    world: Arc<Sphere>,
    relay: Arc<Relay<Sphere>>,
    serving: Serving,
    clock: JoinHandle<()>,
    drain_max: Duration,
}

/// What an operator orders of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Drain,
    Undrain,
}

/// What a process of the proxy is started with.
pub(crate) struct Start<'a> {
    /// Where it listens.
    pub(crate) at: SocketAddr,
    /// The replicas behind it.
    pub(crate) replicas: usize,
    /// Settings beside them.
    pub(crate) settings: &'a [String],
}

impl Start<'_> {
    fn config(&self) -> Config {
        let upstreams = (0..self.replicas).map(|nth| format!("http://{}/mcp", replica_address(nth)));
        let mut set = vec![
            "upstream.health.probe=off".to_owned(),
            "server.workers=1".to_owned(),
        ];
        set.extend(self.settings.iter().cloned());
        let flags = Flags {
            listen: vec![self.at.to_string()],
            upstreams: upstreams.collect(),
            admin: Some("off".to_owned()),
            set,
            ..Flags::default()
        };
        let (config, _) = config::read_in(&flags, &|_| None).unwrap_or_else(|bad| panic!("{bad}"));
        config
    }
}

impl Place {
    /// A proxy, started.
    pub(crate) fn open(world: &Arc<Sphere>, start: &Start<'_>) -> Self {
        let config = start.config();
        let labels: Vec<Labelled<'_>> = config
            .upstreams
            .iter()
            .map(|upstream| Labelled {
                name: &upstream.name,
                replicas: upstream
                    .replicas
                    .iter()
                    .map(|one| one.authority.to_string())
                    .collect(),
            })
            .collect();
        let instruments = Arc::new(Instruments::new(&labels));
        let kid = KeyId::new(b'a').expect("a letter");
        let keys = KeyRing::new((kid, b"a secret of the simulation"), Vec::new()).expect("a key ring");
        let relay = Relay::new(Arc::clone(world), keys, &config, &instruments).expect("no TLS here");
        let door = Arc::new(Door(Arc::clone(&relay)));
        let serving = downstream::serve(world.net(), &config, &door, &instruments).expect("it listens");
        let clock = tokio::spawn(Arc::clone(&relay).keep_time(instruments));
        Self {
            world: Arc::clone(world),
            relay,
            serving,
            clock,
            drain_max: config.server.drain_max,
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.world.net.process
    }

    /// It dies at once; its connections end like this.
    pub(crate) fn die(self, how: Cut) {
        self.world.net.wires.kill(self.process(), how);
    }

    /// It goes away in order, as the program does it when it is told to.
    pub(crate) async fn drain(self) {
        let until = Instant::now() + self.drain_max;
        self.serving.drain();
        self.relay.drain(self.drain_max, pending()).await;
        self.serving.close();
        let _ = timeout_at(until, self.serving.closed()).await;
        let _ = timeout(LAST_CLOSES, self.serving.closed()).await;
        self.die(Cut::Reset);
    }

    /// Puts another configuration of its upstream in force. Whether there was room for one more.
    pub(crate) fn reload(&self, start: &Start<'_>) -> Result<(), NotInForce> {
        let config = start.config();
        for (pool, upstream) in self.relay.pools().iter().zip(&config.upstreams) {
            let prepared = pool.prepare(upstream, TlsFiles::Same)?;
            self.relay.put_in_force(pool, prepared);
        }
        Ok(())
    }

    /// Drains a replica, or takes it back.
    pub(crate) fn order(&self, nth: usize, order: Order) {
        let pool = &self.relay.pools()[0];
        let at = replica_address(nth).to_string();
        let replicas = pool.table().replicas();
        let found = replicas.iter().find(|one| one.authority().to_string() == at);
        let replica = found.expect("it is configured");
        match order {
            Order::Drain => self.relay.drain_replica(pool, replica),
            Order::Undrain => self.relay.undrain_replica(pool, replica),
        };
    }

    /// What is left of what clients had, when all are gone and every time is over.
    pub(crate) fn left(&self) -> Vec<String> {
        let of = |what: &str, count: usize| (count > 0).then(|| format!("{count} {what} are left"));
        let pools = self.relay.pools();
        let sessions = pools.iter().map(|pool| self.relay.sessions(pool)).sum();
        let in_flight = pools
            .iter()
            .flat_map(|pool| pool.table().replicas())
            .map(|replica| replica.in_flight())
            .sum();
        let streams = |kind| {
            let live = |pool: &Arc<Pool<Sphere>>| pool.instruments().streams_live(kind).get();
            usize::try_from(pools.iter().map(live).sum::<i64>()).unwrap_or(usize::MAX)
        };
        [
            of("connections", self.serving.connections()),
            of("sessions", sessions),
            of("bytes of logs", self.world.store.held()),
            of("requests at replicas", in_flight),
            of("standalone streams", streams(StreamKind::Get)),
            of("streams of answers", streams(StreamKind::Post)),
        ]
        .into_iter()
        .flatten()
        .map(|what| format!("{what}, and nobody is there"))
        .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clock.abort();
    }
}

//! A proxy in a simulated world: the relay, the upstream client, the sinks and hyper of production, over wires in memory.
//! Law: nothing of the program is played by something else here but the network, the store, the clock and chance.
//! Next: `http.rs`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use throughline::config::{self, Flags};
use throughline::downstream::{self, Serving};
use throughline::pure::keys::{KeyId, KeyRing};
use throughline::pure::log::Millis;
use throughline::relay::world::World;
use throughline::relay::{Door, Relay};
use throughline::telemetry::instruments::{Instruments, Labelled};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::shelf::Shelf;
use crate::wires::Wires;

/// Where the proxy listens.
pub(crate) fn proxy_address() -> SocketAddr {
    ([10, 0, 0, 9], 8080).into()
}

/// Where a replica listens.
pub(crate) fn replica_address(nth: usize) -> SocketAddr {
    ([10, 0, 0, 1 + nth as u8], 3000).into()
}

/// The world.
pub(crate) struct Sphere {
    pub(crate) net: Arc<Wires>,
    pub(crate) store: Shelf,
    pub(crate) chance: Mutex<Chance>,
    pub(crate) began: Instant,
}

impl World for Sphere {
    type Net = Wires;
    type Store = Shelf;

    fn net(&self) -> &Arc<Wires> {
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
    serving: Serving,
    clock: JoinHandle<()>,
}

impl Place {
    /// A proxy before so many replicas, with these settings.
    pub(crate) fn open(world: &Arc<Sphere>, replicas: usize, settings: &[String]) -> Self {
        let upstreams = (0..replicas).map(|nth| format!("http://{}/mcp", replica_address(nth)));
        let mut set = vec![
            "upstream.health.probe=off".to_owned(),
            "server.workers=1".to_owned(),
        ];
        set.extend(settings.iter().cloned());
        let flags = Flags {
            listen: vec![proxy_address().to_string()],
            upstreams: upstreams.collect(),
            admin: Some("off".to_owned()),
            set,
            ..Flags::default()
        };
        let (config, _) = config::read_in(&flags, &|_| None).unwrap_or_else(|bad| panic!("{bad}"));
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
        Self { serving, clock }
    }

    /// Client connections open now.
    pub(crate) fn connections(&self) -> usize {
        self.serving.connections()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clock.abort();
    }
}

//! The proxies of a world: one, or two with the same key and nothing else in common; each may die and be followed by
//! another at its address, which knows nothing of it.
//! Law: what a process knew is gone with it. Its tasks may linger in the simulation, but nothing of them reaches anybody.
//! Next: `http.rs`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::chance::Chance;
use crate::client::Calm;
use crate::clock::pass;
use crate::oracle::{Oracle, Process};
use crate::place::{Order, Place, Sphere, Start, proxy_address};
use crate::plant::Plant;
use crate::shelf::{Owner, Shelf};
use crate::weather::{Succession, Weather};
use crate::wires::{Cut, Host, Wires};

/// What all logs of a process may hold, in bytes.
const BUDGET: usize = 1 << 20;

/// The proxies.
pub(crate) struct Fleet {
    net: Arc<Wires>,
    oracle: Arc<Oracle>,
    calm: Arc<Calm>,
    weather: Weather,
    plant: Plant,
    chance: Chance,
    began: Instant,
    begun: AtomicU32,
    stands: Vec<Mutex<Option<Place>>>,
}

impl Fleet {
    pub(crate) fn open(
        (net, oracle, calm): (&Arc<Wires>, &Arc<Oracle>, &Arc<Calm>),
        (weather, plant): (&Weather, Plant),
        chance: Chance,
    ) -> Arc<Self> {
        let fleet = Arc::new(Self {
            net: Arc::clone(net),
            oracle: Arc::clone(oracle),
            calm: Arc::clone(calm),
            weather: weather.clone(),
            plant,
            chance,
            began: Instant::now(),
            begun: AtomicU32::new(0),
            stands: (0..weather.proxies).map(|_| Mutex::default()).collect(),
        });
        for nth in 0..weather.proxies {
            fleet.begin(nth);
        }
        fleet
    }

    fn stand(&self, nth: usize) -> MutexGuard<'_, Option<Place>> {
        self.stands[nth].lock().expect("no panic while it is held")
    }

    /// Starts a process where a proxy listens.
    fn begin(&self, nth: usize) {
        let process = Process(self.begun.fetch_add(1, Ordering::Relaxed));
        let own = self.chance.fork(&format!("process {}", process.0));
        let store = Shelf::new(
            BUDGET,
            own.fork("store"),
            (self.weather.store, self.plant),
            Owner {
                process,
                oracle: Arc::clone(&self.oracle),
                calm: Arc::clone(&self.calm),
            },
        );
        let host = Host {
            wires: Arc::clone(&self.net),
            process,
        };
        let world = Arc::new(Sphere {
            net: Arc::new(host),
            store,
            chance: Mutex::new(own.fork("proxy")),
            began: self.began,
        });
        let start = Start {
            at: proxy_address(nth),
            replicas: self.weather.replicas,
            settings: &self.weather.settings,
        };
        let place = Place::open(&world, &start);
        self.oracle
            .saw(format!("{process:?} serves at {}", proxy_address(nth)));
        *self.stand(nth) = Some(place);
    }

    /// The process at this place dies, if there is one, and another follows after so long.
    pub(crate) fn kill(self: &Arc<Self>, nth: usize, how: Cut, away: Duration) {
        let Some(place) = self.stand(nth).take() else {
            return;
        };
        self.oracle.saw(format!(
            "fault: {:?} dies ({how:?}), away for {away:?}",
            place.process()
        ));
        self.oracle.counted("proxies killed");
        place.die(how);
        let fleet = Arc::clone(self);
        tokio::spawn(async move {
            pass(away).await;
            fleet.begin(nth);
        });
    }

    /// The process at this place drains, if there is one, and another follows.
    pub(crate) fn replace(self: &Arc<Self>, nth: usize, when: Succession) {
        let Some(place) = self.stand(nth).take() else {
            return;
        };
        self.oracle
            .saw(format!("fault: {:?} drains ({when:?})", place.process()));
        self.oracle.counted("proxies drained");
        let fleet = Arc::clone(self);
        tokio::spawn(async move {
            match when {
                Succession::AtOnce => {
                    fleet.begin(nth);
                    place.drain().await;
                }
                Succession::Afterwards => {
                    place.drain().await;
                    fleet.begin(nth);
                }
            }
        });
    }

    /// The process at this place, if there is one, has other settings from now on.
    pub(crate) fn reload(&self, nth: usize, settings: &[String]) {
        let start = Start {
            at: proxy_address(nth),
            replicas: self.weather.replicas,
            settings,
        };
        let Some(reloaded) = self.stand(nth).as_ref().map(|place| place.reload(&start)) else {
            return;
        };
        self.oracle
            .saw(format!("the proxy {nth} reads {settings:?}: {reloaded:?}"));
        self.oracle.counted("reloads");
    }

    /// Every proxy is told to drain a replica, or to take it back.
    pub(crate) fn order(&self, replica: usize, order: Order) {
        self.oracle.saw(format!("replica {replica}: {order:?}"));
        for nth in 0..self.stands.len() {
            if let Some(place) = self.stand(nth).as_ref() {
                place.order(replica, order);
            }
        }
    }

    /// What must be true of every process when nobody is there any more.
    pub(crate) fn judge(&self) {
        for nth in 0..self.stands.len() {
            let left = self.stand(nth).as_ref().map(Place::left);
            for what in left.unwrap_or_default() {
                self.oracle.violated(what);
            }
        }
    }
}

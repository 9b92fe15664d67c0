//! Who is probed: one task for each configured replica, begun and ended as the configuration says.
//! Law: a replica has one prober; dropping this ends them all.
//! Absent on purpose: what a probe is (`upstream/prober_task.rs`).
//! Next: `reload_task.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::config::resolved::Probe;
use crate::pure::session_token::ReplicaKey;
use crate::relay::Relay;
use crate::relay::pool::Pool;
use crate::relay::reconfigure::{Changed, Probing};
use crate::relay::world::World;
use crate::routing::{Condition, Replica};
use crate::upstream::prober_task::{self, Watched};

/// The probers at work, by the upstream's number and the replica's key.
#[derive(Default)]
pub(super) struct Probers {
    tasks: HashMap<(usize, ReplicaKey), JoinHandle<()>>,
}

impl Probers {
    /// Probes every replica of the relay. Call: within a tokio runtime.
    pub(super) fn of<W: World>(relay: &Relay<W>, world: &W) -> Self {
        let mut probers = Self::default();
        for pool in relay.pools().iter().enumerate() {
            probers.begin_all(pool, world);
        }
        probers
    }

    /// Probes every replica of one upstream.
    pub(super) fn begin_all<W: World>(&mut self, (number, pool): (usize, &Arc<Pool<W>>), world: &W) {
        for replica in pool.table().replicas() {
            self.begin((number, pool), replica, world);
        }
    }

    /// Follows what changed of one upstream.
    pub(super) fn follow<W: World>(
        &mut self,
        (number, pool): (usize, &Arc<Pool<W>>),
        changed: &Changed,
        world: &W,
    ) {
        for replica in &changed.went {
            self.end(number, replica);
        }
        let anew = match changed.probing {
            Probing::AsBefore => changed.came.clone(),
            Probing::Anew => pool.table().replicas(),
        };
        for replica in anew {
            self.begin((number, pool), replica, world);
        }
    }

    fn begin<W: World>(&mut self, (number, pool): (usize, &Arc<Pool<W>>), replica: Arc<Replica>, world: &W) {
        self.end(number, &replica);
        let mut phase = [0; 8];
        world.fill_random(&mut phase);
        let health = pool.config().health.clone();
        match health.probe {
            Probe::Off => {
                // What probes said before, no probe will take back.
                replica.set_condition(Condition::Healthy);
                replica.vouch();
            }
            Probe::Connect | Probe::Http(_) => {}
        }
        pool.measure(&replica);
        let key = (number, replica.key());
        let watched = Watched {
            upstream: pool.config().name.clone(),
            replica,
            health,
            phase: u64::from_ne_bytes(phase),
        };
        let (client, pool) = (Arc::clone(pool.client()), Arc::clone(pool));
        let task = tokio::spawn(async move {
            prober_task::watch(client, watched, move |replica, _| pool.measure(replica)).await;
        });
        self.tasks.insert(key, task);
    }

    fn end(&mut self, number: usize, replica: &Replica) {
        if let Some(task) = self.tasks.remove(&(number, replica.key())) {
            task.abort();
        }
    }
}

impl Drop for Probers {
    fn drop(&mut self) {
        for task in self.tasks.values() {
            task.abort();
        }
    }
}

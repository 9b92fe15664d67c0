//! The drain of a replica: no new session, the old ones until a deadline, then session loss (wire contract, section 7).
//! Law: until the deadline nothing changes for the sessions that it has; after it, nothing of them succeeds there.
//! Sessions that no replica owns (`sessions = "shared"` or `"none"`) lose nothing: it is just not chosen any more.
//! No lock is held while sessions are ended: they are collected shard by shard, and ended a few at a time.
//! Next: `reconfigure.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tracing::{debug, info, warn};

use crate::pure::log::Millis;
use crate::pure::session::LossCause;
use crate::relay::Relay;
use crate::relay::pool::Pool;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::routing::{Duty, Replica};

/// Sessions that are ended before other tasks have their turn.
const ENDED_AT_ONCE: usize = 64;

/// How often it is looked whether a session began on a drained replica after all: its `initialize` was under way.
const LATECOMER_INTERVAL: Duration = Duration::from_secs(1);

/// The drains that wait for their deadline.
#[derive(Default)]
pub(crate) struct Drains {
    waiting: Mutex<Vec<Waiting>>,
}

struct Waiting {
    replica: Arc<Replica>,
    until: Millis,
    task: AbortHandle,
}

/// What an order to drain a replica came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordered {
    /// It is drained from now on.
    Begun {
        /// Sessions that live on it.
        sessions: usize,
        /// How long they have.
        deadline: Duration,
    },
    /// It is being drained, or was drained, already.
    Already,
    /// It takes new sessions again.
    Undrained,
    /// It was not being drained.
    Serving,
}

impl Drains {
    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, replica: &Arc<Replica>) -> Option<Waiting> {
        let mut waiting = self.waiting();
        let at = waiting
            .iter()
            .position(|one| Arc::ptr_eq(&one.replica, replica))?;
        Some(waiting.swap_remove(at))
    }
}

impl<W: World> Relay<W> {
    /// Begins to drain a replica. Call: within a tokio runtime.
    pub fn drain_replica(self: &Arc<Self>, pool: &Arc<Pool<W>>, replica: &Arc<Replica>) -> Ordered {
        let deadline = pool.config.drain_deadline;
        {
            let mut waiting = self.drains.waiting();
            match replica.duty() {
                Duty::Draining | Duty::Drained => return Ordered::Already,
                Duty::Serving => replica.set_duty(Duty::Draining),
            }
            let (relay, pool, drained) = (Arc::downgrade(self), Arc::clone(pool), Arc::clone(replica));
            let task = tokio::spawn(async move {
                tokio::time::sleep(deadline).await;
                if let Some(relay) = relay.upgrade() {
                    relay.deadline(&pool, &drained).await;
                }
            });
            waiting.push(Waiting {
                replica: Arc::clone(replica),
                until: Millis(self.now().0.saturating_add(deadline.as_millis() as u64)),
                task: task.abort_handle(),
            });
        }
        // Listeners without a session have nothing that keeps them there.
        self.bell.ring();
        let sessions = replica.sessions();
        info!(upstream = %pool.config.name, replica = %replica.authority(), sessions, ?deadline, "replica is being drained");
        pool.measure(replica);
        Ordered::Begun { sessions, deadline }
    }

    /// Takes a drain back, whether its deadline has passed or not.
    pub fn undrain_replica(&self, pool: &Pool<W>, replica: &Arc<Replica>) -> Ordered {
        if let Some(waiting) = self.drains.take(replica) {
            waiting.task.abort();
        }
        match replica.duty() {
            Duty::Serving => return Ordered::Serving,
            Duty::Draining | Duty::Drained => replica.set_duty(Duty::Serving),
        }
        info!(upstream = %pool.config.name, replica = %replica.authority(), "replica takes new sessions again");
        pool.measure(replica);
        Ordered::Undrained
    }

    /// When the drain of a replica reaches its deadline, if it waits for that.
    pub fn drained_at(&self, replica: &Arc<Replica>) -> Option<Millis> {
        let waiting = self.drains.waiting();
        let found = waiting.iter().find(|one| Arc::ptr_eq(&one.replica, replica));
        found.map(|one| one.until)
    }

    /// The deadline of a drain: its sessions are lost, and one that left the configuration is forgotten.
    async fn deadline(self: &Arc<Self>, pool: &Arc<Pool<W>>, replica: &Arc<Replica>) {
        replica.set_duty(Duty::Drained);
        self.bell.ring();
        let lost = self.lose_sessions_of(replica).await;
        if lost > 0 {
            warn!(upstream = %pool.config.name, replica = %replica.authority(), sessions = lost, "replica was drained; sessions were lost");
        } else {
            info!(upstream = %pool.config.name, replica = %replica.authority(), "replica was drained");
        }
        let rounds = pool.config.exchange.initialize_max.as_secs();
        for _ in 0..rounds {
            if replica.sessions() == 0 {
                break;
            }
            tokio::time::sleep(LATECOMER_INTERVAL).await;
            self.lose_sessions_of(replica).await;
        }
        self.drains.take(replica);
        pool.forget_if_left(replica);
    }

    async fn lose_sessions_of(self: &Arc<Self>, replica: &Arc<Replica>) -> usize {
        let on_it = |session: &Session<W>| {
            let home = session.home();
            session.is_pinned(&home) && Arc::ptr_eq(&home.replica, replica)
        };
        let sessions = self.registry.those(on_it);
        for some in sessions.chunks(ENDED_AT_ONCE) {
            for session in some {
                self.lose(session);
            }
            tokio::task::yield_now().await;
        }
        sessions.len()
    }

    /// A session's replica is gone for good.
    fn lose(self: &Arc<Self>, session: &Arc<Session<W>>) {
        self.lost(session, session.home().generation, LossCause::Drained);
    }
}

impl<W: World> Pool<W> {
    /// A drained replica that is not configured any more is forgotten.
    pub(super) fn forget_if_left(&self, replica: &Arc<Replica>) {
        let left = self.table.leaving().iter().any(|one| Arc::ptr_eq(one, replica));
        if !left {
            return;
        }
        self.table.forget(replica);
        // One that is configured in another way may have the same name.
        let name = replica.authority().to_string();
        let again = |one: &Arc<Replica>| one.authority() == replica.authority();
        if !self.table.replicas().iter().any(again) {
            self.instruments.replicas.forget(&name);
        }
        debug!(upstream = %self.config.name, replica = %name, "replica was forgotten");
    }
}

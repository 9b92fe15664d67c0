//! What the operator is shown and may order, of this process: the desk behind the admin listener.
//! Law: looking at everything costs a look at each replica, never one at each session.
//! Absent on purpose: HTTP (`admin/`), and what a drain is (`relay/replica_drain.rs`).
//! Next: `../admin/status.rs`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, Uri, Version};

use crate::admin::status::{Course, Mishap, Peers, ReplicaStatus, State, Status, UpstreamStatus};
use crate::admin::{Admin, Desk, Obeyed, Order};
use crate::app::Here;
use crate::app::reload_task::InForce;
use crate::downstream;
use crate::pure::log::Millis;
use crate::relay::Relay;
use crate::relay::peers::Company;
use crate::relay::pool::Pool;
use crate::relay::replica_drain::Ordered;
use crate::relay::world::World;
use crate::routing::choose::Standing;
use crate::routing::{Condition, Duty, Replica};
use crate::store::Store;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::words::StreamKind;

/// What the desk knows.
pub(super) struct Known {
    pub(super) relay: Arc<Relay<Here>>,
    pub(super) world: Arc<Here>,
    pub(super) instruments: Arc<Instruments>,
    pub(super) in_force: Arc<InForce>,
    pub(super) draining: Arc<AtomicBool>,
}

/// The operator's desk; `bound` is where the admin listener is.
pub(super) fn admin(known: Known, bound: SocketAddr) -> Admin {
    let known = Arc::new(known);
    let instruments = Arc::clone(&known.instruments);
    let (status, order, judge) = (Arc::clone(&known), Arc::clone(&known), known);
    let judge = move |version: Version, target: &Uri, fields: &HeaderMap| {
        downstream::judge_caller(bound, &judge.in_force.config().server, (version, target, fields))
    };
    let desk = Desk {
        status: Box::new(move || status.status()),
        order: Box::new(move |what| order.obey(what)),
        judge: Box::new(judge),
    };
    Admin::new(instruments, desk)
}

impl Known {
    fn status(&self) -> Status {
        let config = self.in_force.config();
        let course = if self.draining.load(Ordering::Relaxed) {
            Course::Draining
        } else {
            Course::Serving
        };
        Status {
            version: env!("CARGO_PKG_VERSION"),
            config: config.source.as_ref().map(|path| path.display().to_string()),
            loaded: self.in_force.loaded(),
            course,
            peers: match self.relay.company() {
                Company::None => Peers::None,
                Company::Said => Peers::Possible,
                Company::Seen { since } => Peers::Seen { since },
            },
            connections: usize::try_from(self.instruments.connections_live.get()).unwrap_or(0),
            held: self.world.store().held(),
            budget: config.replay_bytes_max,
            upstreams: self
                .relay
                .pools()
                .iter()
                .map(|pool| self.upstream(pool))
                .collect(),
        }
    }

    fn upstream(&self, pool: &Arc<Pool<Here>>) -> UpstreamStatus {
        let instruments = pool.instruments();
        let table = pool.table();
        let replicas = table.replicas().into_iter().chain(table.leaving());
        UpstreamStatus {
            name: pool.config().name.to_string(),
            path: pool.config().path.to_string(),
            sessions: self.relay.sessions(pool),
            listening: instruments.streams_live(StreamKind::Get).get(),
            answering: instruments.streams_live(StreamKind::Post).get(),
            held: instruments.streams_held.get(),
            detached: instruments.streams_detached.get(),
            replicas: replicas.map(|replica| self.replica(&replica)).collect(),
        }
    }

    fn replica(&self, replica: &Arc<Replica>) -> ReplicaStatus {
        ReplicaStatus {
            authority: replica.authority().to_string(),
            state: self.state(replica),
            sessions: replica.sessions(),
            in_flight: replica.in_flight(),
            last_error: replica.last_error().map(|last| Mishap {
                what: last.text.into(),
                ago_s: last.at.elapsed().as_secs(),
            }),
        }
    }

    fn state(&self, replica: &Arc<Replica>) -> State {
        let now = self.world.now();
        let left = |until: Option<Millis>| until.map_or(0, |until| until.0.saturating_sub(now.0));
        match (replica.duty(), replica.standing(now), replica.condition()) {
            (Duty::Draining, ..) => State::Draining {
                ms: left(self.relay.drained_at(replica)),
            },
            (Duty::Drained, ..) => State::Drained,
            (Duty::Serving, Standing::Ejected(_), _) => State::Ejected {
                ms: left(replica.ejected_until(now)),
            },
            (Duty::Serving, _, Condition::Unhealthy) => State::Unhealthy,
            (Duty::Serving, _, Condition::Healthy) if replica.is_vouched() => State::Healthy,
            (Duty::Serving, _, Condition::Healthy) => State::Unproved,
        }
    }

    fn obey(&self, order: Order<'_>) -> Obeyed {
        let (Order::Drain { upstream, replica } | Order::Undrain { upstream, replica }) = order;
        let found = self.relay.pools().iter().find_map(|pool| {
            let mut replicas = pool.table().replicas().into_iter();
            let named = |one: &Arc<Replica>| one.authority().to_string() == replica;
            (*pool.config().name == *upstream)
                .then(|| replicas.find(named))
                .flatten()
                .map(|replica| (pool, replica))
        });
        let Some((pool, replica)) = found else {
            return Obeyed::NoSuchReplica(self.names());
        };
        let ordered = match order {
            Order::Drain { .. } => self.relay.drain_replica(pool, &replica),
            Order::Undrain { .. } => self.relay.undrain_replica(pool, &replica),
        };
        Obeyed::Done(match ordered {
            Ordered::Begun { sessions, deadline } => format!(
                "{} is being drained: no new sessions; {sessions} sessions have {} s",
                replica.authority(),
                deadline.as_secs()
            ),
            Ordered::Already => format!("{} is {} already", replica.authority(), replica.duty().as_str()),
            Ordered::Undrained => format!("{} takes new sessions again", replica.authority()),
            Ordered::Serving => format!("{} was not being drained", replica.authority()),
        })
    }

    fn names(&self) -> Vec<String> {
        let of = |pool: &Arc<Pool<Here>>| {
            let name = pool.config().name.clone();
            let replicas = pool.table().replicas();
            let names = replicas
                .iter()
                .map(|replica| format!("{name}/{}", replica.authority()));
            names.collect::<Vec<_>>()
        };
        self.relay.pools().iter().flat_map(of).collect()
    }
}

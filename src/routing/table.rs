//! The replicas of one upstream: looked up by key, chosen for new sessions, swapped as a whole.
//! Law: a replica that stays keeps its counters, health and connections across a swap; order never identifies one.
//! Absent on purpose: partial changes. A reader has the old rows or the new ones.
//! Why a lock and not an atomic pointer: it is taken once for each new session, never for each event.
//! Next: `upstream/mod.rs`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use pingora_ketama::{Bucket, Continuum, DEFAULT_POINT_MULTIPLE};

use crate::config::resolved::{self, Balance};
use crate::pure::session_token::ReplicaKey;
use crate::routing::choose::{Load, NoReplica, Rule, Standing, choose};
use crate::routing::health::Condition;
use crate::routing::replica::Replica;

/// The replicas of one upstream.
pub struct Table {
    upstream: Box<str>,
    balance: Balance,
    turn: AtomicUsize,
    rows: RwLock<Arc<Rows>>,
}

/// Who asks for a replica, and the chance that decides where chance does.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The client's address.
    pub address: IpAddr,
    /// 64 random bits.
    pub chance: u64,
}

struct Rows {
    replicas: Vec<Arc<Replica>>,
    by_key: HashMap<ReplicaKey, usize>,
    ring: Ring,
}

/// Where askers fall in consistent hashing.
enum Ring {
    /// Another balance is configured.
    Unused,
    /// The ring, and which replica each of its nodes stands for.
    Hashed {
        continuum: Continuum,
        nodes: HashMap<SocketAddr, usize>,
    },
}

impl Table {
    /// The table of one upstream.
    pub fn new(upstream: &resolved::Upstream) -> Self {
        let rows = Rows::new(&upstream.name, upstream.balance, &upstream.replicas, |_| None);
        Self {
            upstream: upstream.name.clone(),
            balance: upstream.balance,
            turn: AtomicUsize::new(0),
            rows: RwLock::new(Arc::new(rows)),
        }
    }

    /// Chooses a replica for a new session. `excluded` names those that were tried and refused.
    ///
    /// # Errors
    /// [`NoReplica`]: none is healthy and untried (wire contract, section 7: 503 for an `initialize`).
    pub fn choose(&self, asker: Asker, excluded: &[ReplicaKey]) -> Result<Arc<Replica>, NoReplica> {
        let rows = self.rows();
        let replicas = &rows.replicas;
        let standing = |index: usize| {
            let replica = &replicas[index];
            if excluded.contains(&replica.key()) {
                return Standing::Excluded;
            }
            match replica.condition() {
                Condition::Unhealthy => Standing::Unhealthy,
                Condition::Healthy => Standing::Candidate(Load {
                    sessions: replica.sessions(),
                    in_flight: replica.in_flight(),
                }),
            }
        };
        let mut order = rows.order(asker.address);
        let rule = match self.balance {
            Balance::LeastSessions => Rule::LeastSessions {
                turn: self.next_turn(),
            },
            Balance::RoundRobin => Rule::RoundRobin {
                turn: self.next_turn(),
            },
            Balance::Random => Rule::Random { chance: asker.chance },
            Balance::Consistent => Rule::Consistent { order: &mut order },
        };
        choose(rule, replicas.len(), standing).map(|index| Arc::clone(&replicas[index]))
    }

    /// The replica that a token names; `None` means that it is gone (wire contract, section 2: session loss).
    pub fn get(&self, key: ReplicaKey) -> Option<Arc<Replica>> {
        let rows = self.rows();
        rows.by_key
            .get(&key)
            .map(|&index| Arc::clone(&rows.replicas[index]))
    }

    /// All replicas, in the configuration's order.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.rows().replicas.clone()
    }

    /// Puts other replicas in place of all. One with the same authority, scheme and path goes on as it is.
    pub fn replace(&self, replicas: &[resolved::Replica]) {
        let old = self.rows();
        let rows = Rows::new(&self.upstream, self.balance, replicas, |config| {
            old.replicas
                .iter()
                .find(|replica| replica.config() == config)
                .cloned()
        });
        *self.rows.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rows);
    }

    fn rows(&self) -> Arc<Rows> {
        Arc::clone(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

impl Rows {
    /// A replica configured twice counts once.
    fn new(
        upstream: &str,
        balance: Balance,
        configs: &[resolved::Replica],
        known: impl Fn(&resolved::Replica) -> Option<Arc<Replica>>,
    ) -> Self {
        let mut replicas = Vec::with_capacity(configs.len());
        let mut by_key = HashMap::with_capacity(configs.len());
        for config in configs {
            let replica = known(config).unwrap_or_else(|| Arc::new(Replica::new(upstream, config.clone())));
            by_key.entry(replica.key()).or_insert_with(|| {
                replicas.push(replica);
                replicas.len() - 1
            });
        }
        let ring = match balance {
            Balance::LeastSessions | Balance::RoundRobin | Balance::Random => Ring::Unused,
            Balance::Consistent => Ring::new(&replicas),
        };
        Self {
            replicas,
            by_key,
            ring,
        }
    }

    /// The indices in the order in which this asker prefers them.
    fn order(&self, asker: IpAddr) -> impl Iterator<Item = usize> {
        let hashed = match &self.ring {
            Ring::Unused => None,
            Ring::Hashed { continuum, nodes } => {
                let points = nodes.len() * DEFAULT_POINT_MULTIPLE as usize;
                let start = match asker {
                    IpAddr::V4(address) => continuum.node_iter(&address.octets()),
                    IpAddr::V6(address) => continuum.node_iter(&address.octets()),
                };
                // The iterator goes round for ever; one round sees every node.
                Some(start.take(points).filter_map(|node| nodes.get(node).copied()))
            }
        };
        hashed.into_iter().flatten()
    }
}

impl Ring {
    fn new(replicas: &[Arc<Replica>]) -> Self {
        let node = |replica: &Replica| node_of(replica.key());
        let buckets: Vec<_> = replicas
            .iter()
            .map(|replica| Bucket::new(node(replica), 1))
            .collect();
        let nodes = replicas
            .iter()
            .enumerate()
            .map(|(index, replica)| (node(replica), index))
            .collect();
        Self::Hashed {
            continuum: Continuum::new(&buckets),
            nodes,
        }
    }
}

/// The ring knows nodes as socket addresses. A replica's key written as one places it alike on every proxy, whatever
/// its name resolves to.
fn node_of(key: ReplicaKey) -> SocketAddr {
    let low = u128::from(u64::from_be_bytes(*key.as_bytes()));
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from_bits(low)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolved::Scheme;
    use crate::net::Authority;

    fn configs(hosts: &str) -> Vec<resolved::Replica> {
        let config = |host: &str| resolved::Replica {
            authority: Authority {
                host: host.into(),
                port: 80,
            },
            scheme: Scheme::Http,
            path: "/mcp".into(),
        };
        hosts.split_whitespace().map(config).collect()
    }

    fn table(balance: Balance, hosts: &str) -> Table {
        let rows = Rows::new("tools", balance, &configs(hosts), |_| None);
        let rows = RwLock::new(Arc::new(rows));
        Table {
            upstream: "tools".into(),
            balance,
            turn: AtomicUsize::new(0),
            rows,
        }
    }

    fn asker(number: u32) -> Asker {
        Asker {
            address: IpAddr::V4(number.into()),
            chance: u64::from(number) << 32,
        }
    }

    fn host(replica: &Replica) -> String {
        replica.authority().host.to_string()
    }

    /// Who is chosen by askers 0, 1, 2, …
    fn chosen(table: &Table, askers: u32) -> String {
        let one = |number| {
            table
                .choose(asker(number), &[])
                .map_or("-".into(), |replica| host(&replica))
        };
        (0..askers).map(one).collect::<Vec<_>>().join(" ")
    }

    fn set(table: &Table, host_of: &str, condition: Condition) {
        let replicas = table.replicas();
        replicas
            .iter()
            .find(|replica| host(replica) == host_of)
            .unwrap()
            .set_condition(condition);
    }

    #[test]
    fn each_balance_chooses_in_its_way() {
        let check = |balance, askers, expected: &str| {
            assert_eq!(chosen(&table(balance, "a b c"), askers), expected, "{balance:?}");
        };
        check(Balance::RoundRobin, 5, "a b c a b");
        // Nobody takes a seat here, so all are equal, and turns decide.
        check(Balance::LeastSessions, 5, "a b c a b");
        check(Balance::Random, 3, "a a a");
    }

    #[test]
    fn seats_and_health_are_seen_by_the_next_choice() {
        let table = table(Balance::LeastSessions, "a b c");
        let first = table.choose(asker(0), &[]).unwrap().seat();
        let second = table.choose(asker(0), &[]).unwrap().seat();
        let third = table.choose(asker(0), &[]).unwrap().seat();
        let seated = [&first, &second, &third].map(|seat| host(seat.replica()));
        assert_eq!(seated, ["a", "b", "c"]);
        drop(second);
        assert_eq!(chosen(&table, 3), "b b b");
        set(&table, "b", Condition::Unhealthy);
        assert_eq!(chosen(&table, 2), "a c");

        let excluded = [first.replica().key(), third.replica().key()];
        assert_eq!(
            table.choose(asker(0), &excluded).unwrap_err(),
            NoReplica::Excluded {
                tried: 2,
                unhealthy: 1
            }
        );
        set(&table, "a", Condition::Unhealthy);
        set(&table, "c", Condition::Unhealthy);
        assert_eq!(
            table.choose(asker(0), &[]).unwrap_err(),
            NoReplica::Unhealthy { replicas: 3 }
        );
    }

    #[test]
    fn consistent_hashing_moves_only_whom_it_must() {
        const ASKERS: u32 = 600;
        let whole = table(Balance::Consistent, "a b c");
        let before = chosen(&whole, ASKERS);
        assert_eq!(
            before,
            chosen(&table(Balance::Consistent, "c a b"), ASKERS),
            "order does not matter"
        );
        for host in ["a", "b", "c"] {
            let share = before.split(' ').filter(|chosen| *chosen == host).count();
            assert!(share > ASKERS as usize / 10, "{host} got {share} of {ASKERS}");
        }
        set(&whole, "b", Condition::Unhealthy);
        let after = chosen(&whole, ASKERS);
        for (before, after) in before.split(' ').zip(after.split(' ')) {
            assert!(
                before == after || (before == "b" && after != "b"),
                "{before} moved to {after}"
            );
        }
        set(&whole, "b", Condition::Healthy);
        assert_eq!(before, chosen(&whole, ASKERS));
    }

    #[test]
    fn a_swap_keeps_who_stays_and_forgets_who_goes() {
        let table = table(Balance::LeastSessions, "a b a");
        assert_eq!(table.replicas().len(), 2, "one named twice counts once");
        let [a, b] = table.replicas().try_into().unwrap();
        let seat = a.seat();
        set(&table, "a", Condition::Unhealthy);
        table.replace(&configs("c a"));
        assert!(Arc::ptr_eq(&table.get(a.key()).unwrap(), &a));
        assert_eq!((a.sessions(), a.condition()), (1, Condition::Unhealthy));
        assert!(table.get(b.key()).is_none());
        assert_eq!(chosen(&table, 2), "c c");
        drop(seat);
        table.replace(&[]);
        assert_eq!(
            table.choose(asker(0), &[]).unwrap_err(),
            NoReplica::Unhealthy { replicas: 0 }
        );
    }
}

//! The replicas of one upstream: looked up by key, chosen for new sessions, swapped as a whole.
//! Law: a replica that stays keeps its counters, health and connections across a swap; order never identifies one.
//! A replica that left the configuration is found by the sessions that it has until it is forgotten, and never chosen.
//! Absent on purpose: partial changes. A reader has the old rows or the new ones.
//! Why a lock and not an atomic pointer: it is taken once for each new session, never for each event.
//! Next: `upstream/mod.rs`.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use pingora_ketama::{Bucket, Continuum, DEFAULT_POINT_MULTIPLE};

use crate::config::resolved::{self, Balance};
use crate::pure::log::Millis;
use crate::pure::session_token::ReplicaKey;
use crate::routing::choose::{NoReplica, Rule, Standing, choose};
use crate::routing::replica::{Duty, Replica};

/// The replicas of one upstream.
pub struct Table {
    upstream: Box<str>,
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
    /// The relay's clock.
    pub now: Millis,
    /// For what it is chosen.
    pub wants: Wants,
}

/// For what a replica is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// For a session, which stays there.
    Session,
    /// For one exchange, which any replica may have.
    Exchange,
}

/// What a swap changed.
#[derive(Debug, Default)]
pub struct Swapped {
    /// Replicas that were not there before, or are there again.
    pub came: Vec<Arc<Replica>>,
    /// Replicas that are not configured any more. They are found, and not chosen, until [`Table::forget`].
    pub went: Vec<Arc<Replica>>,
}

#[derive(Clone)]
struct Rows {
    balance: Balance,
    replicas: Vec<Arc<Replica>>,
    leaving: Vec<Arc<Replica>>,
    by_key: HashMap<ReplicaKey, Arc<Replica>>,
    ring: Arc<Ring>,
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
        let rows = Rows::new(&upstream.name, upstream.balance, &upstream.replicas, &[]);
        Self {
            upstream: upstream.name.clone(),
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
            replica.standing(asker.now)
        };
        let mut order = rows.order(asker.address);
        let rule = match (rows.balance, asker.wants) {
            (Balance::LeastSessions, Wants::Session) => Rule::LeastSessions {
                turn: self.next_turn(),
            },
            (Balance::LeastSessions, Wants::Exchange) => Rule::LeastBusy {
                turn: self.next_turn(),
            },
            (Balance::RoundRobin, Wants::Session | Wants::Exchange) => Rule::RoundRobin {
                turn: self.next_turn(),
            },
            (Balance::Random, Wants::Session | Wants::Exchange) => Rule::Random { chance: asker.chance },
            (Balance::Consistent, Wants::Session | Wants::Exchange) => Rule::Consistent { order: &mut order },
        };
        choose(rule, replicas.len(), standing).map(|index| Arc::clone(&replicas[index]))
    }

    /// The replica that a token names; `None` means that it is gone (wire contract, section 2: session loss).
    pub fn get(&self, key: ReplicaKey) -> Option<Arc<Replica>> {
        let found = self.rows().by_key.get(&key).cloned()?;
        match found.duty() {
            Duty::Serving | Duty::Draining => Some(found),
            Duty::Drained => None,
        }
    }

    /// The configured replicas, in the configuration's order.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.rows().replicas.clone()
    }

    /// Replicas that are configured no more and still have sessions.
    pub fn leaving(&self) -> Vec<Arc<Replica>> {
        self.rows().leaving.clone()
    }

    /// Puts other replicas in place of all. One with the same authority, scheme and path goes on as it is.
    pub fn replace(&self, balance: Balance, replicas: &[resolved::Replica]) -> Swapped {
        let mut place = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let old = Arc::clone(&place);
        let known: Vec<Arc<Replica>> = old.replicas.iter().chain(&old.leaving).cloned().collect();
        let rows = Rows::new(&self.upstream, balance, replicas, &known);
        let has =
            |list: &[Arc<Replica>], one: &Arc<Replica>| list.iter().any(|other| Arc::ptr_eq(other, one));
        let only = |of: &[Arc<Replica>], without: &[Arc<Replica>]| {
            of.iter().filter(|one| !has(without, one)).cloned().collect()
        };
        let swapped = Swapped {
            came: only(&rows.replicas, &old.replicas),
            went: only(&old.replicas, &rows.replicas),
        };
        *place = Arc::new(rows);
        swapped
    }

    /// A replica that left has no session any more.
    pub fn forget(&self, replica: &Arc<Replica>) {
        let mut place = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let mut rows = Rows::clone(&place);
        rows.leaving.retain(|other| !Arc::ptr_eq(other, replica));
        if rows
            .by_key
            .get(&replica.key())
            .is_some_and(|found| Arc::ptr_eq(found, replica))
            && !rows.replicas.iter().any(|other| Arc::ptr_eq(other, replica))
        {
            rows.by_key.remove(&replica.key());
        }
        *place = Arc::new(rows);
    }

    fn rows(&self) -> Arc<Rows> {
        Arc::clone(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

impl Rows {
    /// A replica configured twice counts once; one of `known` with the same configuration goes on, and those of `known`
    /// that are not configured leave.
    fn new(upstream: &str, balance: Balance, configs: &[resolved::Replica], known: &[Arc<Replica>]) -> Self {
        let mut replicas: Vec<Arc<Replica>> = Vec::with_capacity(configs.len());
        let mut by_key = HashMap::with_capacity(configs.len());
        for config in configs {
            let standing = known.iter().find(|replica| replica.config() == config);
            let replica = standing
                .cloned()
                .unwrap_or_else(|| Arc::new(Replica::new(upstream, config.clone())));
            by_key.entry(replica.key()).or_insert_with(|| {
                replicas.push(Arc::clone(&replica));
                replica
            });
        }
        let stays = |one: &Arc<Replica>| replicas.iter().any(|other| Arc::ptr_eq(other, one));
        let leaving: Vec<Arc<Replica>> = known.iter().filter(|one| !stays(one)).cloned().collect();
        for replica in &leaving {
            by_key.entry(replica.key()).or_insert_with(|| Arc::clone(replica));
        }
        let ring = match balance {
            Balance::LeastSessions | Balance::RoundRobin | Balance::Random => Ring::Unused,
            Balance::Consistent => Ring::new(&replicas),
        };
        Self {
            balance,
            replicas,
            leaving,
            by_key,
            ring: Arc::new(ring),
        }
    }

    /// The indices in the order in which this asker prefers them.
    fn order(&self, asker: IpAddr) -> impl Iterator<Item = usize> {
        let hashed = match &*self.ring {
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
    use crate::routing::health::Condition;

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
        let rows = Rows::new("tools", balance, &configs(hosts), &[]);
        let rows = RwLock::new(Arc::new(rows));
        Table {
            upstream: "tools".into(),
            turn: AtomicUsize::new(0),
            rows,
        }
    }

    fn asker(number: u32) -> Asker {
        Asker {
            address: IpAddr::V4(number.into()),
            chance: u64::from(number) << 32,
            now: Millis(0),
            wants: Wants::Session,
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
    fn a_swap_keeps_who_stays_and_lets_who_goes_finish() {
        let table = table(Balance::LeastSessions, "a b a");
        assert_eq!(table.replicas().len(), 2, "one named twice counts once");
        let [a, b] = table.replicas().try_into().unwrap();
        let seat = a.seat();
        set(&table, "a", Condition::Unhealthy);
        let names = |list: &[Arc<Replica>]| list.iter().map(|one| host(one)).collect::<Vec<_>>().join(" ");
        let swapped = table.replace(Balance::LeastSessions, &configs("c a"));
        assert_eq!(
            (names(&swapped.came), names(&swapped.went)),
            ("c".into(), "b".into())
        );
        assert!(Arc::ptr_eq(&table.get(a.key()).unwrap(), &a));
        assert_eq!((a.sessions(), a.condition()), (1, Condition::Unhealthy));
        assert_eq!(chosen(&table, 2), "c c");

        // Who left is found by its sessions until it is forgotten, and is the same one if it comes back before that.
        assert!(Arc::ptr_eq(&table.get(b.key()).unwrap(), &b));
        assert_eq!(names(&table.leaving()), "b");
        let swapped = table.replace(Balance::RoundRobin, &configs("b c a"));
        assert_eq!(
            (names(&swapped.came), names(&swapped.went)),
            ("b".into(), String::new())
        );
        assert!(table.leaving().is_empty());
        assert!(chosen(&table, 4).contains('b'), "the balance is swapped too");
        table.replace(Balance::RoundRobin, &configs("c a"));
        table.forget(&b);
        assert!(table.get(b.key()).is_none() && table.leaving().is_empty());

        drop(seat);
        table.replace(Balance::RoundRobin, &[]);
        assert_eq!(
            table.choose(asker(0), &[]).unwrap_err(),
            NoReplica::Unhealthy { replicas: 0 }
        );
    }

    #[test]
    fn a_draining_replica_is_found_and_not_chosen_and_a_drained_one_is_not_found() {
        let table = table(Balance::RoundRobin, "a b");
        let [a, _] = table.replicas().try_into().unwrap();
        a.set_duty(Duty::Draining);
        assert_eq!(chosen(&table, 3), "b b b");
        assert!(table.get(a.key()).is_some());
        a.set_duty(Duty::Drained);
        assert!(table.get(a.key()).is_none());
        a.set_duty(Duty::Serving);
        assert_eq!(chosen(&table, 2), "b a");
    }
}

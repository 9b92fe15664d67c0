//! The choice of a replica: facts in, an index out.
//! Law: an unhealthy, draining or excluded replica is never chosen; the same facts always give the same choice.
//! An ejected one is the last resort: passive health must not be what makes a whole server unreachable.
//! Absent on purpose: counters and chance of its own; the turn and the random number are arguments.
//! Why ties go by turn: new replicas all have no session, and a herd must not land on the first of them.
//! Next: `routing/table.rs`.

use std::fmt;

/// What the choice must know of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It may be chosen.
    Candidate(Load),
    /// Its exchanges failed: it is chosen only where there is no candidate, since it may be well again.
    Ejected(Load),
    /// Its probes failed.
    Unhealthy,
    /// It is being drained.
    Draining,
    /// The caller has tried it already.
    Excluded,
}

/// How busy a replica is; compared in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Load {
    /// Sessions that live on it.
    pub sessions: usize,
    /// Exchanges under way: what tells replicas of a server without sessions apart.
    pub in_flight: usize,
}

/// How to choose.
pub enum Rule<'a> {
    /// The smallest load; of equals, the first one at or after `turn`.
    LeastSessions {
        /// A number that grows by one with every choice.
        turn: usize,
    },
    /// The fewest exchanges under way, then the fewest sessions; of equals, the first one at or after `turn`.
    LeastBusy {
        /// A number that grows by one with every choice.
        turn: usize,
    },
    /// The first one at or after `turn`.
    RoundRobin {
        /// A number that grows by one with every choice.
        turn: usize,
    },
    /// By chance.
    Random {
        /// 64 random bits.
        chance: u64,
    },
    /// The first candidate in this order of indices, which a hash of the asker gives.
    Consistent {
        /// Indices in the order of preference; repetitions are harmless.
        order: &'a mut dyn Iterator<Item = usize>,
    },
}

/// No replica can be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoReplica {
    /// Every replica is unhealthy or is being drained.
    Unhealthy {
        /// How many there are.
        replicas: usize,
    },
    /// Every replica that takes new sessions has been tried.
    Excluded {
        /// How many have been tried.
        tried: usize,
        /// How many others are unhealthy or drained.
        unhealthy: usize,
    },
}

impl fmt::Display for NoReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unhealthy { replicas } => {
                write!(f, "all {replicas} replicas are unhealthy or being drained")
            }
            Self::Excluded { tried, unhealthy } => {
                write!(
                    f,
                    "{tried} replicas were tried, {unhealthy} others are unhealthy or being drained"
                )
            }
        }
    }
}

impl std::error::Error for NoReplica {}

/// Chooses one of `count` replicas; `standing` tells of the replica with an index below `count`.
///
/// # Errors
/// [`NoReplica`]: none is a candidate.
pub fn choose(
    rule: Rule<'_>,
    count: usize,
    standing: impl Fn(usize) -> Standing,
) -> Result<usize, NoReplica> {
    let resort = if (0..count).any(|index| matches!(standing(index), Standing::Candidate(_))) {
        Resort::Candidates
    } else {
        Resort::Ejected
    };
    let load = |index| match (standing(index), resort) {
        (Standing::Candidate(load), _) | (Standing::Ejected(load), Resort::Ejected) => Some(load),
        (Standing::Ejected(_), Resort::Candidates)
        | (Standing::Unhealthy | Standing::Draining | Standing::Excluded, _) => None,
    };
    let from = |turn: usize| {
        let start = turn.checked_rem(count).unwrap_or(0);
        (start..count).chain(0..start)
    };
    let chosen = match rule {
        Rule::LeastSessions { turn } => {
            // `min_by_key` keeps the first of equals, which is the first in turn.
            from(turn)
                .filter_map(|i| load(i).map(|load| (load, i)))
                .min_by_key(|(load, _)| *load)
                .map(|(_, i)| i)
        }
        Rule::LeastBusy { turn } => {
            let busy = |load: Load| (load.in_flight, load.sessions);
            from(turn)
                .filter_map(|i| load(i).map(|load| (busy(load), i)))
                .min_by_key(|(load, _)| *load)
                .map(|(_, i)| i)
        }
        Rule::RoundRobin { turn } => from(turn).find(|&i| load(i).is_some()),
        Rule::Random { chance } => {
            let candidates = || (0..count).filter(|&i| load(i).is_some());
            let nth = (u128::from(chance) * candidates().count() as u128) >> 64;
            candidates().nth(usize::try_from(nth).unwrap_or(0))
        }
        Rule::Consistent { mut order } => Iterator::find(&mut order, |&i| i < count && load(i).is_some()),
    };
    chosen.ok_or_else(|| none(count, standing))
}

/// Among whom is chosen.
#[derive(Clone, Copy)]
enum Resort {
    /// Those that nothing is held against.
    Candidates,
    /// There is none of them.
    Ejected,
}

fn none(count: usize, standing: impl Fn(usize) -> Standing) -> NoReplica {
    let tried = (0..count).filter(|&i| standing(i) == Standing::Excluded).count();
    if tried == 0 {
        return NoReplica::Unhealthy { replicas: count };
    }
    NoReplica::Excluded {
        tried,
        unhealthy: count - tried,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: Standing = Standing::Unhealthy;
    const X: Standing = Standing::Excluded;

    fn load(sessions: usize, in_flight: usize) -> Standing {
        Standing::Candidate(Load { sessions, in_flight })
    }

    fn check(rule: Rule<'_>, standings: &[Standing], expected: Result<usize, NoReplica>) {
        assert_eq!(
            choose(rule, standings.len(), |i| standings[i]),
            expected,
            "{standings:?}"
        );
    }

    #[test]
    fn least_sessions_takes_the_smallest_and_of_equals_the_next_in_turn() {
        let least = |turn| Rule::LeastSessions { turn };
        check(least(0), &[load(3, 0), load(1, 9), load(2, 0)], Ok(1));
        check(least(5), &[load(3, 0), load(1, 9), load(2, 0)], Ok(1));
        check(least(0), &[load(0, 0), load(0, 0), load(0, 0)], Ok(0));
        check(least(1), &[load(0, 0), load(0, 0), load(0, 0)], Ok(1));
        check(least(5), &[load(0, 0), load(0, 0), load(0, 0)], Ok(2));
        check(least(2), &[load(0, 0), load(0, 0), load(7, 0)], Ok(0));
        check(least(0), &[load(0, 2), load(0, 1)], Ok(1));
        check(least(0), &[U, load(9, 0), X], Ok(1));
        check(least(0), &[U, U], Err(NoReplica::Unhealthy { replicas: 2 }));
        check(
            least(0),
            &[U, X],
            Err(NoReplica::Excluded {
                tried: 1,
                unhealthy: 1,
            }),
        );
        check(least(9), &[], Err(NoReplica::Unhealthy { replicas: 0 }));
    }

    #[test]
    fn least_busy_looks_at_exchanges_first() {
        let least = |turn| Rule::LeastBusy { turn };
        check(least(0), &[load(0, 2), load(9, 1), load(3, 2)], Ok(1));
        check(least(0), &[load(4, 1), load(3, 1)], Ok(1));
        check(least(4), &[load(0, 0), load(0, 0), load(0, 0)], Ok(1));
        check(least(0), &[U, load(9, 9)], Ok(1));
    }

    #[test]
    fn the_ejected_are_the_last_resort_and_the_draining_are_none() {
        let out = |sessions| {
            Standing::Ejected(Load {
                sessions,
                in_flight: 0,
            })
        };
        let least = || Rule::LeastSessions { turn: 0 };
        check(least(), &[out(0), load(9, 9), Standing::Draining], Ok(1));
        check(least(), &[out(4), out(3), U, Standing::Draining], Ok(1));
        check(
            least(),
            &[Standing::Draining, U],
            Err(NoReplica::Unhealthy { replicas: 2 }),
        );
        check(
            least(),
            &[X, Standing::Draining],
            Err(NoReplica::Excluded {
                tried: 1,
                unhealthy: 1,
            }),
        );
        let mut order = [0, 1].into_iter();
        check(Rule::Consistent { order: &mut order }, &[out(0), U], Ok(0));
    }

    #[test]
    fn round_robin_skips_what_is_no_candidate() {
        let robin = |turn| Rule::RoundRobin { turn };
        for (turn, expected) in [(0, 0), (1, 1), (2, 2), (3, 0), (usize::MAX, 0)] {
            check(robin(turn), &[load(9, 9), load(0, 0), load(0, 0)], Ok(expected));
        }
        check(robin(1), &[load(0, 0), U, load(0, 0)], Ok(2));
        check(robin(2), &[load(0, 0), U, X], Ok(0));
        check(
            robin(2),
            &[X, U, X],
            Err(NoReplica::Excluded {
                tried: 2,
                unhealthy: 1,
            }),
        );
    }

    #[test]
    fn chance_is_spread_over_the_candidates_alone() {
        let random = |chance| Rule::Random { chance };
        let two = [load(0, 0), U, load(0, 0)];
        check(random(0), &two, Ok(0));
        check(random((1 << 63) - 1), &two, Ok(0));
        check(random(1 << 63), &two, Ok(2));
        check(random(u64::MAX), &two, Ok(2));
        check(random(7), &[U], Err(NoReplica::Unhealthy { replicas: 1 }));
        check(random(7), &[], Err(NoReplica::Unhealthy { replicas: 0 }));
    }

    #[test]
    fn consistent_takes_the_first_candidate_in_the_given_order() {
        let check = |order: &[usize], standings: &[Standing], expected| {
            check(
                Rule::Consistent {
                    order: &mut order.iter().copied(),
                },
                standings,
                expected,
            );
        };
        check(&[2, 0, 1], &[load(0, 0), load(0, 0), load(0, 0)], Ok(2));
        check(&[2, 2, 0, 1], &[load(0, 0), load(0, 0), U], Ok(0));
        check(&[7, 1], &[load(0, 0), load(0, 0)], Ok(1));
        check(
            &[0, 1],
            &[U, X],
            Err(NoReplica::Excluded {
                tried: 1,
                unhealthy: 1,
            }),
        );
    }
}

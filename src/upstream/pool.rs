//! Idle connections to one replica, newest last.
//! Law: the newest goes first, and no connection is handed out that was idle for longer than its caller allows.
//! Absent on purpose: a task or a timer for each connection. What is too old goes when the pool is next touched or swept.
//! Why not pingora-pool: it hands out the oldest first and knows no age, but the younger a connection is, the less
//! likely its server closes it under a POST; it also bounds all replicas together and wants a watching task for each.
//! Next: `upstream/scratch.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Idle connections to one replica.
pub(super) struct Pool<C> {
    idle: Mutex<VecDeque<Idle<C>>>,
    connections_max: AtomicUsize,
    idle_max_ms: AtomicU64,
}

struct Idle<C> {
    connection: C,
    since: Instant,
}

impl<C> Pool<C> {
    /// An empty pool that keeps so many connections for so long.
    pub(super) fn new(connections_max: usize, idle_max: Duration) -> Self {
        Self {
            idle: Mutex::new(VecDeque::new()),
            connections_max: AtomicUsize::new(connections_max),
            idle_max_ms: AtomicU64::new(millis(idle_max)),
        }
    }

    /// From now on it keeps so many for so long. What is too much goes when connections come and go.
    pub(super) fn set_bounds(&self, connections_max: usize, idle_max: Duration) {
        self.connections_max.store(connections_max, Ordering::Relaxed);
        self.idle_max_ms.store(millis(idle_max), Ordering::Relaxed);
    }

    /// The connection that became idle last, if that was no longer ago than `idle_max`.
    pub(super) fn take(&self, now: Instant, idle_max: Duration) -> Option<C> {
        let (newest, expired) = self.locked(|idle| {
            let expired = self.expire(idle, now);
            let fresh = idle.back().is_some_and(|newest| age(newest, now) <= idle_max);
            let newest = if fresh { idle.pop_back() } else { None };
            (newest, expired)
        });
        drop(expired);
        newest.map(|idle| idle.connection)
    }

    /// Keeps a connection; if there are too many, the oldest goes.
    pub(super) fn put(&self, connection: C, now: Instant) {
        let gone = self.locked(|idle| {
            idle.push_back(Idle {
                connection,
                since: now,
            });
            if idle.len() > self.connections_max.load(Ordering::Relaxed) {
                idle.pop_front()
            } else {
                None
            }
        });
        drop(gone);
    }

    /// Closes what is too old. Answers how many stay.
    pub(super) fn sweep(&self, now: Instant) -> usize {
        let (left, expired) = self.locked(|idle| {
            let expired = self.expire(idle, now);
            (idle.len(), expired)
        });
        drop(expired);
        left
    }

    fn expire(&self, idle: &mut VecDeque<Idle<C>>, now: Instant) -> VecDeque<Idle<C>> {
        let idle_max = Duration::from_millis(self.idle_max_ms.load(Ordering::Relaxed));
        // The oldest stands first.
        if idle.front().is_none_or(|oldest| age(oldest, now) <= idle_max) {
            return VecDeque::new();
        }
        let expired = idle.partition_point(|old| age(old, now) > idle_max);
        let kept = idle.split_off(expired);
        std::mem::replace(idle, kept)
    }

    /// What is dropped is dropped after this: closing a socket is a system call, and nobody should wait for it.
    fn locked<R>(&self, change: impl FnOnce(&mut VecDeque<Idle<C>>) -> R) -> R {
        change(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn age<C>(idle: &Idle<C>, now: Instant) -> Duration {
    now.saturating_duration_since(idle.since)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens to a pool: seconds since its beginning, and a deed.
    enum Deed {
        Put(u32),
        Take { idle_max: u64, expected: Option<u32> },
        Sweep { left: usize },
    }

    fn check(connections_max: usize, idle_max: u64, deeds: &[(u64, Deed)]) {
        let pool = Pool::new(connections_max, Duration::from_secs(idle_max));
        let start = Instant::now();
        for (step, (at, deed)) in deeds.iter().enumerate() {
            let now = start + Duration::from_secs(*at);
            match deed {
                Deed::Put(connection) => pool.put(*connection, now),
                Deed::Take { idle_max, expected } => {
                    assert_eq!(
                        pool.take(now, Duration::from_secs(*idle_max)),
                        *expected,
                        "step {step}"
                    );
                }
                Deed::Sweep { left } => assert_eq!(pool.sweep(now), *left, "step {step}"),
            }
        }
    }

    #[tokio::test]
    async fn the_newest_goes_first_and_the_old_go_by_themselves() {
        use Deed::{Put, Sweep, Take};
        let take = |idle_max, expected| Take { idle_max, expected };
        check(
            4,
            60,
            &[
                (0, take(60, None)),
                (0, Put(1)),
                (1, Put(2)),
                (2, take(3, Some(2))),
                (2, take(3, Some(1))),
            ],
        );
        check(4, 60, &[(0, Put(1)), (3, take(3, Some(1)))]);
        check(4, 60, &[(0, Put(1)), (4, take(3, None)), (4, take(60, Some(1)))]);
        check(
            2,
            60,
            &[
                (0, Put(1)),
                (0, Put(2)),
                (0, Put(3)),
                (0, Sweep { left: 2 }),
                (0, take(3, Some(3))),
            ],
        );
        check(
            4,
            60,
            &[
                (0, Put(1)),
                (30, Put(2)),
                (61, Sweep { left: 1 }),
                (61, take(60, Some(2))),
            ],
        );
        check(
            4,
            60,
            &[(0, Put(1)), (61, take(99, None)), (61, Sweep { left: 0 })],
        );
        check(0, 60, &[(0, Put(1)), (0, take(60, None))]);
    }

    #[test]
    fn bounds_may_change() {
        let pool = Pool::new(9, Duration::from_secs(60));
        let start = Instant::now();
        for connection in 0..4 {
            pool.put(connection, start);
        }
        pool.set_bounds(2, Duration::from_secs(5));
        pool.put(4, start + Duration::from_secs(1));
        assert_eq!(pool.sweep(start + Duration::from_secs(1)), 4, "one in, one out");
        assert_eq!(pool.sweep(start + Duration::from_secs(6)), 1);
    }
}

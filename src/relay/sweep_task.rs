//! One clock for everything that waits: keep-alives, detached streams, idle sessions.
//! Law: nothing per stream is on a timer of its own, and no tick looks at a stream whose time has not come.
//! A wheel of slots; what is due is nudged and says itself when it wants to be reminded next.
//! A reminder may come early or twice, never late by more than one tick.
//! Next: `stream_task.rs`.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::pure::log::Millis;
use crate::relay::mailbox::Mailbox;

/// How often the wheel turns: the coarseness of keep-alives and expiries.
pub(crate) const TICK: Duration = Duration::from_millis(TICK_MS);
const TICK_MS: u64 = 250;

/// Slots of the wheel. A reminder further away than this many ticks comes early, and is asked for again.
const SLOTS: u64 = 256;

/// Who is reminded.
pub(crate) enum Sleeper {
    /// A stream's task.
    Stream(Weak<Mailbox>),
    /// A session; the function decides whether its time is over.
    Session(Weak<dyn Due>),
    /// A session whose answers to POSTs that came again may be forgotten.
    Repeats(Weak<dyn Due>),
}

/// Something that is told that its time may have come.
pub(crate) trait Due: Send + Sync {
    /// Its time may have come; it asks to be reminded again by itself.
    fn due(self: Arc<Self>, now: Millis);

    /// What it remembers for a while may have had its time; it asks to be reminded again by itself.
    fn lapsed(self: Arc<Self>, now: Millis);
}

/// The wheel.
pub(crate) struct Sweep {
    slots: Vec<Mutex<Vec<Sleeper>>>,
    turned: Mutex<u64>,
}

impl Sweep {
    /// A wheel that stands at `now`.
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Mutex::new(Vec::new())).collect(),
            turned: Mutex::new(tick_of(now)),
        }
    }

    /// The moment of the reminder that `at` would get: a tick at or soon after it, within the wheel's horizon.
    pub(crate) fn moment(&self, at: Millis, now: Millis) -> Millis {
        let earliest = tick_of(now) + 1;
        let wanted = at.0.div_ceil(TICK_MS).max(tick_of(at) + 1);
        Millis(wanted.clamp(earliest, earliest + SLOTS - 2) * TICK_MS)
    }

    /// Asks for a reminder, and answers its moment.
    pub(crate) fn remind(&self, at: Millis, now: Millis, sleeper: Sleeper) -> Millis {
        let moment = self.moment(at, now);
        let slot = &self.slots[((moment.0 / TICK_MS) % SLOTS) as usize];
        slot.lock().unwrap_or_else(PoisonError::into_inner).push(sleeper);
        moment
    }

    /// Turns the wheel up to `now` and reminds whoever is due.
    pub(crate) fn turn(&self, now: Millis) {
        let to = tick_of(now);
        let from = {
            let mut turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
            let from = *turned;
            *turned = to.max(from);
            from
        };
        // After a long pause (a suspended machine) one full turn reaches everyone.
        for tick in from + 1..=to.min(from + SLOTS) {
            let due = {
                let mut slot = self.slots[(tick % SLOTS) as usize]
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *slot)
            };
            for sleeper in due {
                match sleeper {
                    Sleeper::Stream(mailbox) => {
                        if let Some(mailbox) = mailbox.upgrade() {
                            mailbox.nudge();
                        }
                    }
                    Sleeper::Session(session) => {
                        if let Some(session) = session.upgrade() {
                            session.due(now);
                        }
                    }
                    Sleeper::Repeats(session) => {
                        if let Some(session) = session.upgrade() {
                            session.lapsed(now);
                        }
                    }
                }
            }
        }
    }
}

fn tick_of(at: Millis) -> u64 {
    at.0 / TICK_MS
}

/// Does something at each tick, for ever.
pub(crate) async fn run(at_each_tick: impl Fn()) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        at_each_tick();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Probe(AtomicU64);
    impl Due for Probe {
        fn due(self: Arc<Self>, now: Millis) {
            self.0.store(now.0, Ordering::SeqCst);
        }

        fn lapsed(self: Arc<Self>, _: Millis) {}
    }

    fn check(asked: u64, turns: &[u64], expected: u64) {
        let sweep = Sweep::new(Millis(10_000));
        let probe = Arc::new(Probe(AtomicU64::new(0)));
        let weak: Weak<dyn Due> = Arc::downgrade(&(probe.clone() as Arc<dyn Due>));
        sweep.remind(Millis(asked), Millis(10_000), Sleeper::Session(weak));
        for turn in turns {
            sweep.turn(Millis(*turn));
        }
        assert_eq!(
            probe.0.load(Ordering::SeqCst),
            expected,
            "asked {asked}, turned {turns:?}"
        );
    }

    #[test]
    fn reminders_come_at_or_soon_after_their_time() {
        check(10_100, &[10_100], 0);
        check(10_100, &[10_250], 10_250);
        check(10_900, &[10_500, 10_750, 11_000], 11_000);
        check(5_000, &[10_250], 10_250); // what is past already comes with the next tick
        check(10_900, &[500_000], 500_000); // a clock that jumps reaches everyone
        check(900_000, &[10_000 + 254 * 250], 0); // beyond the horizon: early, not never
        check(900_000, &[10_000 + 255 * 250], 10_000 + 255 * 250);
    }
}

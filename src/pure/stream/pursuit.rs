//! How long a backend is asked again for the rest of an answer, and when that is given up.
//! Law: bounded twice: the second time in a row that nothing comes, or `reattach_max` without a sign of life.
//! What counts as one: an event, an id that is new, and bytes on a connection that stands.
//! Absent on purpose: what may be believed of what then comes (`../overlap.rs`), and the clock.
//! Next: `life.rs`.

use crate::pure::limits::{EMPTY_ANSWERS_MAX, REASK_MS_MAX};
use crate::pure::log::Millis;

/// Whether a connection that was asked for brought anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Brought {
    /// An event, or an id that was not the one asked for.
    Something,
    /// Nothing new.
    Nothing,
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The backend is asked again after this time, in milliseconds.
    AskIn(u64),
    /// No more: the answer can't be had.
    GiveUp,
}

/// One stream's asking. Call: [`Pursuit::ended`] or [`Pursuit::refused`] when a try is over, [`Pursuit::alive`] at
/// each sign of life. Next: nothing after [`Step::GiveUp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pursuit {
    alive_at: Millis,
    empty: u32,
    tries: u32,
}

impl Pursuit {
    /// It begins now.
    pub const fn new(now: Millis) -> Self {
        Self {
            alive_at: now,
            empty: 0,
            tries: 0,
        }
    }

    /// A sign of life.
    pub const fn alive(&mut self, now: Millis) {
        self.alive_at = now;
    }

    /// A connection stood until it was closed for the next asking: it was no empty answer.
    pub const fn stood(&mut self) {
        self.empty = 0;
    }

    /// Until when a sign of life must come. `max` is `reattach_max`.
    pub const fn deadline(&self, max: Millis) -> Millis {
        Millis(self.alive_at.0.saturating_add(max.0))
    }

    /// A connection ended in an orderly way before the answer was complete. `retry` is the wait that the backend
    /// asks for, in milliseconds.
    pub const fn ended(&mut self, brought: Brought, retry: u64, now: Millis) -> Step {
        self.tries = 0;
        match brought {
            Brought::Something => {
                self.empty = 0;
                self.alive_at = now;
            }
            Brought::Nothing => {
                self.empty += 1;
                if self.empty >= EMPTY_ANSWERS_MAX {
                    return Step::GiveUp;
                }
            }
        }
        Step::AskIn(retry)
    }

    /// A try was refused, or a connection was silent for the time that it was given: the wait doubles from `retry` to
    /// [`REASK_MS_MAX`].
    pub const fn refused(&mut self, retry: u64, now: Millis, max: Millis) -> Step {
        let doubled = retry.saturating_mul(1 << if self.tries < 16 { self.tries } else { 16 });
        let cap = if retry > REASK_MS_MAX { retry } else { REASK_MS_MAX };
        let wait = if doubled < cap { doubled } else { cap };
        self.tries = self.tries.saturating_add(1);
        let end = self.deadline(max).0;
        if now.0 >= end {
            return Step::GiveUp;
        }
        // The last try lies within the bound, not behind it.
        let left = end - now.0;
        Step::AskIn(if wait < left { wait } else { left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Millis = Millis(30_000);

    #[test]
    fn the_second_empty_answer_in_a_row_ends_it() {
        let mut pursuit = Pursuit::new(Millis(0));
        for (brought, expected) in [
            (Brought::Nothing, Step::AskIn(500)),
            (Brought::Something, Step::AskIn(500)),
            (Brought::Nothing, Step::AskIn(500)),
            (Brought::Nothing, Step::GiveUp),
        ] {
            assert_eq!(pursuit.ended(brought, 500, Millis(9)), expected);
        }
    }

    #[test]
    fn a_connection_that_stood_is_no_empty_answer() {
        let mut pursuit = Pursuit::new(Millis(0));
        assert_eq!(pursuit.ended(Brought::Nothing, 500, Millis(9)), Step::AskIn(500));
        pursuit.stood();
        assert_eq!(pursuit.ended(Brought::Nothing, 500, Millis(9)), Step::AskIn(500));
        assert_eq!(pursuit.ended(Brought::Nothing, 500, Millis(9)), Step::GiveUp);
    }

    #[test]
    fn refusals_wait_longer_each_time_until_the_bound() {
        let mut pursuit = Pursuit::new(Millis(0));
        let mut now = 0;
        let mut waits = Vec::new();
        while let Step::AskIn(wait) = pursuit.refused(1_000, Millis(now), MAX) {
            waits.push(wait);
            now += wait;
        }
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 10_000, 5_000]);
        pursuit.alive(Millis(now));
        assert_eq!(pursuit.deadline(MAX), Millis(now + 30_000));
        assert_eq!(pursuit.refused(60_000, Millis(now), MAX), Step::AskIn(30_000));
        assert_eq!(pursuit.refused(0, Millis(now), MAX), Step::AskIn(0));
        assert_eq!(pursuit.refused(u64::MAX, Millis(u64::MAX), MAX), Step::GiveUp);
    }
}

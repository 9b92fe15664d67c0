//! How often a session's backend is asked about credentials that nobody knows.
//! Law: whoever makes credentials up makes the proxy ask no faster than this; one that was accepted before, and one that
//! turns out to be accepted, draw nothing. Who finds nothing left is held, and asks again later: nothing is lost by it.
//! Absent on purpose: the asking (`relay/gate.rs`), and the clock.
//! Next: `credential.rs`.

use crate::pure::limits::{PROOF_EVERY_MS, PROOFS_MAX};
use crate::pure::log::Millis;

/// What is left: [`PROOFS_MAX`] at once, and one more each [`PROOF_EVERY_MS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowance {
    drawn: usize,
    /// From when on what was drawn is forgotten, one after the other.
    since: Millis,
}

/// Whether another question may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Draw {
    /// It may, and is drawn.
    Granted,
    /// Not now.
    Spent,
}

impl Allowance {
    /// Draws one.
    pub fn draw(&mut self, now: Millis) -> Draw {
        let forgotten = now.0.saturating_sub(self.since.0) / PROOF_EVERY_MS;
        self.drawn = self
            .drawn
            .saturating_sub(usize::try_from(forgotten).unwrap_or(usize::MAX));
        self.since = match self.drawn {
            0 => now,
            _ => Millis(self.since.0 + forgotten * PROOF_EVERY_MS),
        };
        if self.drawn >= PROOFS_MAX {
            return Draw::Spent;
        }
        self.drawn += 1;
        Draw::Granted
    }

    /// One that was drawn was well spent: it counts no more.
    pub const fn give_back(&mut self) {
        self.drawn = self.drawn.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At each of these times, in ms, so many are drawn; how many are granted in all.
    fn check(draws: &[(u64, usize)], expected: usize) {
        let mut allowance = Allowance::default();
        let mut granted = 0;
        for (at, times) in draws {
            for _ in 0..*times {
                match allowance.draw(Millis(*at)) {
                    Draw::Granted => granted += 1,
                    Draw::Spent => {}
                }
            }
        }
        assert_eq!(granted, expected, "{draws:?}");
    }

    #[test]
    fn so_many_at_once_and_then_one_by_one() {
        const T: u64 = 1_000_000;
        const NEXT: u64 = T + PROOF_EVERY_MS;
        check(&[(T, 3)], 3);
        check(&[(T, 100)], PROOFS_MAX);
        check(&[(T, 100), (NEXT - 1, 100)], PROOFS_MAX);
        check(&[(T, 100), (NEXT, 100)], PROOFS_MAX + 1);
        check(&[(T, 100), (NEXT, 100), (NEXT, 100)], PROOFS_MAX + 1);
        check(
            &[
                (T, 100),
                (T + 5 * PROOF_EVERY_MS / 2, 100),
                (T + 3 * PROOF_EVERY_MS, 100),
            ],
            PROOFS_MAX + 3,
        );
        check(&[(T, 100), (T + 1_000 * PROOF_EVERY_MS, 100)], 2 * PROOFS_MAX);
        // A clock that stands still, or is behind.
        check(&[(T, 100), (0, 100)], PROOFS_MAX);
    }

    #[test]
    fn what_was_well_spent_counts_no_more() {
        let mut allowance = Allowance::default();
        for _ in 0..100 {
            assert_eq!(allowance.draw(Millis(7)), Draw::Granted);
            allowance.give_back();
        }
        allowance.give_back();
        assert_eq!(allowance.drawn, 0);
    }
}

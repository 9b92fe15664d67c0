//! How long to wait before the next try.
//! Law: a wait is never shorter than half its ceiling and never longer than it; ceilings double up to a cap.
//! Absent on purpose: clock and chance (both are arguments or the caller's), and a bound on tries, which the caller
//! has a reason for.
//! Why half is fixed: a wait near zero would hammer a backend that just refused.
//! Next: `upstream/prober_task.rs`.

use std::time::Duration;

/// Doubling waits with jitter.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    base_ms: u32,
    cap_ms: u32,
    failures: u32,
}

impl Backoff {
    /// Waits around `base` at first and `cap` at last, in whole milliseconds, up to 49 days.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base_ms: millis(base),
            cap_ms: millis(cap),
            failures: 0,
        }
    }

    /// The wait after one more failure. `chance` is 64 random bits.
    pub fn next_wait(&mut self, chance: u64) -> Duration {
        let doubled = 2_u32
            .checked_pow(self.failures)
            .and_then(|factor| self.base_ms.checked_mul(factor));
        let ceiling = doubled.unwrap_or(self.cap_ms).min(self.cap_ms);
        let ceiling = Duration::from_millis(u64::from(ceiling));
        self.failures = self.failures.saturating_add(1);
        let half = ceiling / 2;
        half + share(half, chance)
    }

    /// Notes a success: the next wait is around `base` again.
    pub const fn succeed(&mut self) {
        self.failures = 0;
    }
}

const fn millis(wait: Duration) -> u32 {
    let ms = wait.as_millis();
    if ms < u32::MAX as u128 {
        ms as u32
    } else {
        u32::MAX
    }
}

/// A part of `whole` between nothing and all of it. `chance` is 64 random bits.
pub(super) fn share(whole: Duration, chance: u64) -> Duration {
    let nanos = (whole.as_nanos() * u128::from(chance)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: u64, cap: u64, chance: u64, waits: &[u64]) {
        let mut backoff = Backoff::new(Duration::from_millis(base), Duration::from_millis(cap));
        for (failure, wait) in waits.iter().enumerate() {
            assert_eq!(
                backoff.next_wait(chance).as_millis(),
                u128::from(*wait),
                "failure {failure}"
            );
        }
        backoff.succeed();
        assert_eq!(backoff.next_wait(chance).as_millis(), u128::from(waits[0]));
    }

    #[test]
    fn waits_double_up_to_the_cap_and_begin_again_after_a_success() {
        check(1_000, 10_000, 0, &[500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        check(1_000, 10_000, 1 << 63, &[750, 1_500, 3_000, 6_000, 7_500, 7_500]);
        check(1_000, 10_000, u64::MAX, &[999, 1_999, 3_999, 7_999, 9_999, 9_999]);
        check(8_000, 1_000, 0, &[500, 500]);
        check(0, 0, u64::MAX, &[0, 0]);
    }

    #[test]
    fn a_long_outage_overflows_nothing() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for _ in 0..100 {
            assert!(backoff.next_wait(u64::MAX) <= Duration::from_secs(60));
        }
        assert_eq!(backoff.failures, 100);
        assert_eq!(share(Duration::MAX, 0), Duration::ZERO);
    }
}

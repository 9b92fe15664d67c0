//! When a session's backend hears of it again, so that it does not forget a session that its client still wants.
//! Law: silence towards the backend is what counts, whatever the client hears; one `ping`, then silence again.
//! Why spread: thousands of sessions that began together would ping together for ever.
//! Absent on purpose: the end of a session's time (`life.rs`), which a ping does not move.
//! Next: `streams.rs`.

use crate::pure::log::Millis;

/// Part of the time by which pings are spread: each session's are at most this much early.
const SPREAD_PART: u64 = 4;

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tend {
    /// A `ping` to the backend.
    Ping,
    /// Nothing before this time; look again then.
    NotBefore(Millis),
}

/// Decides whether the backend is told that the session lives. `spoke_at` is when it last heard of it, `after` the
/// silence that it may have at most (`ping_after`), `share` a number of the session's own that spreads them.
pub const fn tend(spoke_at: Millis, after: Millis, share: u32, now: Millis) -> Tend {
    let early = ((after.0 / SPREAD_PART) as u128 * share as u128) >> u32::BITS;
    let due = spoke_at.0.saturating_add(after.0 - early as u64);
    if now.0 >= due {
        Tend::Ping
    } else {
        Tend::NotBefore(Millis(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_due_after_silence_spread_over_a_quarter_of_it() {
        let at = |ms| Tend::NotBefore(Millis(ms));
        for (spoke_at, share, now, expected) in [
            (1_000, 0, 1_000, at(121_000)),
            (1_000, 0, 120_999, at(121_000)),
            (1_000, 0, 121_000, Tend::Ping),
            (1_000, u32::MAX / 2 + 1, 1_000, at(106_000)),
            (1_000, u32::MAX, 91_000, at(91_001)),
            (1_000, u32::MAX, 91_001, Tend::Ping),
            (u64::MAX, 7, 0, at(u64::MAX)),
        ] {
            let decided = tend(Millis(spoke_at), Millis(120_000), share, Millis(now));
            assert_eq!(decided, expected, "{spoke_at} {share} {now}");
        }
        // However long it is, it is counted without overflow.
        assert_ne!(tend(Millis(5), Millis(u64::MAX), u32::MAX, Millis(6)), Tend::Ping);
    }
}

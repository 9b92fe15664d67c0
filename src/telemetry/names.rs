//! The one vocabulary of log fields, metrics and labels.
//! Law: a thing has one name; a field in a log line is spelt as its metric's label is.
//! Absent on purpose: the values of labels (`words.rs`), and anything that a client sent.
//! Next: `words.rs`.

use crate::pure::calendar::civil;

/// Before every metric's name.
pub const PREFIX: &str = "throughline";

/// Label and field: an upstream's name.
pub const UPSTREAM: &str = "upstream";
/// Label and field: a replica's `host:port`.
pub const REPLICA: &str = "replica";
/// Label and field: what kind of request or stream.
pub const KIND: &str = "kind";
/// Label and field: how something went.
pub const OUTCOME: &str = "outcome";
/// Label and field: why something ended or began anew (the words of `pure::epoch::Reason` for streams).
pub const REASON: &str = "reason";
/// Label and field: what was concluded of a reconnect.
pub const VERDICT: &str = "verdict";
/// Label and field: why something was left out or refused.
pub const WHY: &str = "why";
/// Label and field: which bound took something.
pub const BY: &str = "by";
/// Field: a client's address.
pub const PEER: &str = "peer";
/// Field: the first 8 hexadecimal digits of a session's uid; never a whole session id.
pub const SESSION: &str = "session";
/// Field: the stream part of an event id (`g`, `pi7`).
pub const STREAM: &str = "stream";
/// Field: an epoch, as it stands in an event id.
pub const EPOCH: &str = "epoch";
/// Field: a position in an epoch.
pub const SEQ: &str = "seq";

/// The least digits of a session's uid that tell sessions apart in a log, and too few to be a key to anything.
pub const SESSION_DIGITS: usize = 8;

/// A session in a log line: the first digits of its uid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionTag([u8; 4]);

impl SessionTag {
    /// Of a session's uid. The last bytes are taken: the first ones of a version 7 UUID are the time.
    pub const fn of(uid: &[u8; 16]) -> Self {
        Self([uid[12], uid[13], uid[14], uid[15]])
    }
}

impl std::fmt::Display for SessionTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// A moment as people and programs read it (ISO 8601, in UTC): `2025-12-01T00:00:00Z`.
pub fn utc(unix_seconds: u64) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let (days, seconds) = (unix_seconds / DAY, unix_seconds % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_764_547_200, "2025-12-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (u64::from(u32::MAX), "2106-02-07T06:28:15Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }

    #[test]
    fn a_session_is_shown_by_its_random_end() {
        let uid = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0xab, 0xcd, 0xef];
        assert_eq!(SessionTag::of(&uid).to_string(), "00abcdef");
        assert_eq!(SessionTag::of(&uid).to_string().len(), SESSION_DIGITS);
    }
}

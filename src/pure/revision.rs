//! MCP revisions, and what each of them permits.
//! Law: no other file compares dates; whoever must know asks a question here and gets an enum for an answer.
//! Absent on purpose: transport. A session at 2024-11-05 may well run over Streamable HTTP.
//! Next: `session_token.rs`, which keeps a session's revision in one byte.

use std::fmt;

/// A revision of the Model Context Protocol, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Revision {
    /// 2024-11-05: HTTP+SSE.
    V2024_11_05,
    /// 2025-03-26: Streamable HTTP, sessions, resumption; the only one with JSON-RPC batches.
    V2025_03_26,
    /// 2025-06-18: batches removed.
    V2025_06_18,
    /// 2025-11-25: priming events and polling.
    V2025_11_25,
    /// 2026-07-28: no sessions, no GET stream, no resumption.
    V2026_07_28,
}

/// Whether a revision has sessions and resumption at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// Sessions, GET stream, `Last-Event-ID` (wire contract, sections 2 to 10).
    Session,
    /// Each request for itself (wire contract, section 11).
    Stateless,
}

/// Whether a client takes an event with an id and empty data (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priming {
    /// Yes: connections are primed.
    Yes,
    /// No: it would parse the empty data and fail.
    No,
}

/// Whether a POST may carry an array of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batches {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
}

/// What it means that a client's connection ends while its request runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disconnect {
    /// Nothing: the request runs on and its answer may be had later (wire contract, section 7).
    Detaches,
    /// The request is cancelled (wire contract, section 11).
    Cancels,
}

impl Revision {
    /// Every revision, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// Reads `protocolVersion`, or the header `MCP-Protocol-Version`. `None` = not one of these.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// What a request of a session says in `MCP-Protocol-Version`; nothing before 2025-06-18, which introduced it.
    pub const fn header(self) -> Option<&'static str> {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 => None,
            Self::V2025_06_18 | Self::V2025_11_25 | Self::V2026_07_28 => Some(self.as_str()),
        }
    }

    /// The date that names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Its byte in a session token. Never changed, never used again.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::V2024_11_05 => 1,
            Self::V2025_03_26 => 2,
            Self::V2025_06_18 => 3,
            Self::V2025_11_25 => 4,
            Self::V2026_07_28 => 5,
        }
    }

    /// The revision of this byte.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.to_byte() == byte)
    }

    /// Sessions, or each request for itself.
    pub const fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Session,
            Self::V2026_07_28 => Era::Stateless,
        }
    }

    /// Whether connections are primed.
    pub const fn primes(self) -> Priming {
        match self {
            Self::V2025_11_25 => Priming::Yes,
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2026_07_28 => Priming::No,
        }
    }

    /// Whether a POST may carry an array of messages.
    pub const fn batches(self) -> Batches {
        match self {
            Self::V2025_03_26 => Batches::Allowed,
            Self::V2024_11_05 | Self::V2025_06_18 | Self::V2025_11_25 | Self::V2026_07_28 => Batches::Refused,
        }
    }

    /// What the end of a client's connection means to its request.
    pub const fn disconnect(self) -> Disconnect {
        match self.era() {
            Era::Session => Disconnect::Detaches,
            Era::Stateless => Disconnect::Cancels,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, byte: u8, era: Era, primes: Priming, batches: Batches) {
        let revision = Revision::parse(text).expect("a known revision");
        assert_eq!(revision.to_string(), text);
        assert_eq!(revision.to_byte(), byte);
        assert_eq!(Revision::from_byte(byte), Some(revision));
        assert_eq!(revision.era(), era, "{text}");
        assert_eq!(revision.primes(), primes, "{text}");
        assert_eq!(revision.batches(), batches, "{text}");
        let cancels = revision.disconnect() == Disconnect::Cancels;
        assert_eq!(cancels, era == Era::Stateless, "{text}");
    }

    #[test]
    fn what_each_revision_permits() {
        check("2024-11-05", 1, Era::Session, Priming::No, Batches::Refused);
        check("2025-03-26", 2, Era::Session, Priming::No, Batches::Allowed);
        check("2025-06-18", 3, Era::Session, Priming::No, Batches::Refused);
        check("2025-11-25", 4, Era::Session, Priming::Yes, Batches::Refused);
        check("2026-07-28", 5, Era::Stateless, Priming::No, Batches::Refused);
    }

    #[test]
    fn they_are_in_order_of_time() {
        assert!(Revision::ALL.is_sorted());
        assert!(Revision::ALL.map(Revision::as_str).is_sorted());
    }

    #[test]
    fn what_is_none_of_them() {
        for text in [
            "",
            "2025-11-2",
            "2025-11-25 ",
            "2025-11-26",
            "DRAFT-2026-v1",
            "2025‑11‑25",
        ] {
            assert_eq!(Revision::parse(text), None, "{text:?}");
        }
        for byte in [0, 6, 255] {
            assert_eq!(Revision::from_byte(byte), None);
        }
    }
}

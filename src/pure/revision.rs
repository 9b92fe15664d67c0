//! MCP revisions, what each of them permits, and how a request shows of which era it is.
//! Law: no other file compares dates; whoever must know asks a question here and gets an enum for an answer. Each
//! request is recognised by itself: what one said, a probe above all, says nothing of the next one or of the backend.
//! Absent on purpose: transport. A session at 2024-11-05 may well run over Streamable HTTP.
//! Next: `revision/eras.md`, what a client and a server get of each; `session_token.rs`, which keeps one in a byte.
#![doc = include_str!("revision/eras.md")]

use std::borrow::Cow;
use std::fmt;

use crate::pure::rpc;

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

/// Of which era a request is, and what shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recognised {
    /// Of the era of sessions.
    Session(Evidence),
    /// It stands for itself.
    Stateless(Evidence),
}

/// What shows of which era a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The field `MCP-Protocol-Version`.
    Field,
    /// The version that the request itself names in `params._meta`, as every one of 2026-07-28 does.
    Envelope,
    /// Nothing: clients of 2025-03-26 send neither.
    Silence,
}

/// The member of `params._meta` by which a request names its version.
const ENVELOPE_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

impl Recognised {
    /// Of which era a request is that came with this `MCP-Protocol-Version` and this body.
    ///
    /// The field decides if it names a known revision: the body is not looked at then, and where the two contradict
    /// each other the backend says so, as it must. Without one, or with one that nobody here knows, a body that names a
    /// version itself is of the newer era, whatever that version is: no request of the older one does.
    pub fn of(field: Option<&[u8]>, body: &[u8]) -> Self {
        if let Some(revision) = field.and_then(Revision::parse) {
            return Self::at(revision, Evidence::Field);
        }
        match claimed(body).map(|text| Revision::parse(&*text)) {
            Some(Some(revision)) => Self::at(revision, Evidence::Envelope),
            Some(None) => Self::Stateless(Evidence::Envelope),
            None => Self::Session(Evidence::Silence),
        }
    }

    const fn at(revision: Revision, evidence: Evidence) -> Self {
        match revision.era() {
            Era::Session => Self::Session(evidence),
            Era::Stateless => Self::Stateless(evidence),
        }
    }
}

/// The version that a request names itself.
fn claimed(body: &[u8]) -> Option<Cow<'_, str>> {
    rpc::lookup(body, &["params", "_meta", ENVELOPE_VERSION]).and_then(rpc::text)
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

    /// What a session over HTTP+SSE is taken for. What its client and its backend agree on is between them.
    pub const OF_HTTP_SSE: Self = Self::V2024_11_05;

    /// Reads `protocolVersion`, or the header `MCP-Protocol-Version`. `None` = not one of these.
    pub fn parse(text: impl AsRef<[u8]>) -> Option<Self> {
        let text = text.as_ref();
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str().as_bytes() == text)
    }

    /// The newest one with sessions and resumption.
    pub const fn newest_with_sessions() -> Self {
        Self::V2025_11_25
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
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, byte: u8, era: Era, primes: Priming) {
        let revision = Revision::parse(text).expect("a known revision");
        assert_eq!(revision.to_string(), text);
        assert_eq!(revision.to_byte(), byte);
        assert_eq!(Revision::from_byte(byte), Some(revision));
        assert_eq!(revision.era(), era, "{text}");
        assert_eq!(revision.primes(), primes, "{text}");
    }

    #[test]
    fn what_each_revision_permits() {
        check("2024-11-05", 1, Era::Session, Priming::No);
        check("2025-03-26", 2, Era::Session, Priming::No);
        check("2025-06-18", 3, Era::Session, Priming::No);
        check("2025-11-25", 4, Era::Session, Priming::Yes);
        check("2026-07-28", 5, Era::Stateless, Priming::No);
    }

    #[test]
    fn of_which_era_a_request_is() {
        #[track_caller]
        fn check(field: &str, version: &str, expected: Recognised) {
            let body = match version {
                "" => {
                    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":1}}}"#
                        .to_owned()
                }
                version => format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{version}}}}}}}"#
                ),
            };
            let field = (!field.is_empty()).then_some(field.as_bytes());
            assert_eq!(
                Recognised::of(field, body.as_bytes()),
                expected,
                "{field:?} {version}"
            );
        }
        use Evidence::{Envelope, Field, Silence};
        use Recognised::{Session, Stateless};
        check("", "", Session(Silence));
        check("2025-03-26", "", Session(Field));
        check("2025-11-25", "", Session(Field));
        check("2026-07-28", "", Stateless(Field));
        check("2026-07-28", r#""2026-07-28""#, Stateless(Field));
        check("", r#""2026-07-28""#, Stateless(Envelope));
        // They contradict each other: the backend's to judge, and the field says to which kind of it.
        check("2025-11-25", r#""2026-07-28""#, Session(Field));
        check("2026-07-28", r#""2025-11-25""#, Stateless(Field));
        // Versions that nobody here knows yet.
        check("2027-01-01", r#""2027-01-01""#, Stateless(Envelope));
        check("2027-01-01", "", Session(Silence));
        check("\u{ff}", "", Session(Silence));
        check("", r#""1900-01-01""#, Stateless(Envelope));
        check("", r#""2025-11-25""#, Session(Envelope));
        // No version at all.
        check("", "7", Session(Silence));
        for body in [
            "",
            "[]",
            "{",
            r#"{"params":[]}"#,
            r#"[{"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}]"#,
        ] {
            assert_eq!(Recognised::of(None, body.as_bytes()), Session(Silence), "{body}");
        }
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

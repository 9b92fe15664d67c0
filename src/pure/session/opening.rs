//! How a session began: its client's `initialize`, and what the backend offered; what may not change when it begins anew.
//! Law: a client goes on only with what it was promised: the revision, and everything that was declared.
//! What a backend declares beyond that is its own matter. Bounded: a beginning that is too long is not kept.
//! Next: `loss.rs`.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::pure::limits::{CAPABILITY_DEPTH_MAX, OPENING_BYTES_MAX};
use crate::pure::revision::Revision;
use crate::pure::rpc::{self, RequestId};
use crate::pure::session::loss::Hopeless;

/// How a session began.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Opening {
    request: Box<[u8]>,
    capabilities: Box<[u8]>,
}

/// Who a server says it is, as far as two answers can be told apart: a hash of its `serverInfo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server(u64);

impl Opening {
    /// The beginning that this request and this answer to it make. `None` if they are longer than
    /// [`OPENING_BYTES_MAX`], or the answer says nothing that could be compared.
    pub fn of(request: &[u8], answer: &[u8]) -> Option<Self> {
        let capabilities = rpc::lookup(answer, &["result", "capabilities"])?;
        if request.len() + capabilities.len() > OPENING_BYTES_MAX {
            return None;
        }
        Some(Self {
            request: request.into(),
            capabilities: capabilities.into(),
        })
    }

    /// The client's `initialize`, byte for byte.
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Its id.
    pub fn id(&self) -> Option<RequestId> {
        RequestId::from_raw(rpc::lookup(&self.request, &["id"])?).ok()
    }

    /// How many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.request.len() + self.capabilities.len()
    }

    /// Whether a new answer keeps what the first one promised to a client of this revision.
    ///
    /// # Errors
    /// [`Hopeless`] says what it does not keep.
    pub fn keeps(&self, revision: Revision, answer: &[u8]) -> Result<(), Hopeless> {
        let negotiated = rpc::lookup(answer, &["result", "protocolVersion"]).and_then(rpc::text);
        if negotiated.and_then(|text| Revision::parse(&*text)) != Some(revision) {
            return Err(Hopeless::OtherRevision);
        }
        let now = rpc::lookup(answer, &["result", "capabilities"]);
        if now.is_some_and(|now| covers(&self.capabilities, now, CAPABILITY_DEPTH_MAX)) {
            Ok(())
        } else {
            Err(Hopeless::CapabilityMissing)
        }
    }
}

impl Server {
    /// Who answers like this to `initialize`; `None` if it does not say.
    pub fn of(answer: &[u8]) -> Option<Self> {
        let info = rpc::lookup(answer, &["result", "serverInfo"])?;
        let mut hasher = DefaultHasher::new();
        info.hash(&mut hasher);
        Some(Self(hasher.finish()))
    }

    /// Its number.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// From its number.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// Whether everything that was declared is declared still: members stay, and what was `true` is.
fn covers(before: &[u8], now: &[u8], depth: usize) -> bool {
    if before == now || matches!(before, b"false" | b"null") {
        return true;
    }
    if before == b"true" {
        return false;
    }
    let Some(members) = rpc::members(before) else {
        // A number or a list is a detail of something that is still there.
        return now != b"false" && now != b"null";
    };
    depth > 0
        && rpc::members(now).is_some()
        && members
            .iter()
            .all(|(name, value)| match rpc::lookup(now, &[name]) {
                Some(now) => covers(value, now, depth - 1),
                None => matches!(*value, b"false" | b"null"),
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = br#"{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}"#;

    fn answer(revision: &str, capabilities: &str) -> Vec<u8> {
        format!(
            r#"{{"jsonrpc":"2.0","id":"i","result":{{"protocolVersion":"{revision}","capabilities":{capabilities},"serverInfo":{{"name":"s"}}}}}}"#
        )
        .into_bytes()
    }

    fn check(before: &str, now: &str, expected: Result<(), Hopeless>) {
        let revision = Revision::parse("2025-06-18").unwrap();
        let opening = Opening::of(REQUEST, &answer("2025-06-18", before)).unwrap();
        assert_eq!(
            opening.keeps(revision, &answer("2025-06-18", now)),
            expected,
            "{before} {now}"
        );
        assert_eq!(
            opening.keeps(revision, &answer("2025-03-26", now)),
            Err(Hopeless::OtherRevision)
        );
    }

    #[test]
    fn what_was_declared_must_be_declared_still() {
        let missing = Err(Hopeless::CapabilityMissing);
        check("{}", "{}", Ok(()));
        check("{}", r#"{"tools":{}}"#, Ok(()));
        check(r#"{"tools":{}}"#, "{}", missing);
        check(
            r#"{"tools":{},"logging":{}}"#,
            r#"{"logging":{},"tools":{"listChanged":true}}"#,
            Ok(()),
        );
        check(
            r#"{"tools":{"listChanged":true}}"#,
            r#"{"tools":{ "listChanged" : true }}"#,
            Ok(()),
        );
        check(
            r#"{"tools":{"listChanged":true}}"#,
            r#"{"tools":{"listChanged":false}}"#,
            missing,
        );
        check(r#"{"tools":{"listChanged":true}}"#, r#"{"tools":{}}"#, missing);
        check(r#"{"tools":{"listChanged":false}}"#, r#"{"tools":{}}"#, Ok(()));
        check(
            r#"{"experimental":{"x":{"v":1}}}"#,
            r#"{"experimental":{"x":{"v":2}}}"#,
            Ok(()),
        );
        check(
            r#"{"experimental":{"x":{"v":1}}}"#,
            r#"{"experimental":{"y":{}}}"#,
            missing,
        );
        check(r#"{"tools":{}}"#, r#"{"tools":null}"#, missing);
        check(r#"{"tools":{}}"#, "null", missing);
        let deep = format!("{}1{}", r#"{"a":"#.repeat(50), "}".repeat(50));
        check(&deep, &deep.replace('1', "2"), missing);
    }

    #[test]
    fn a_beginning_is_kept_within_bounds() {
        let opening = Opening::of(REQUEST, &answer("2025-06-18", "{}")).unwrap();
        assert_eq!((opening.request(), opening.bytes()), (REQUEST, REQUEST.len() + 2));
        assert_eq!(opening.id(), RequestId::from_raw(br#""i""#).ok());
        let long = vec![b' '; OPENING_BYTES_MAX];
        assert_eq!(Opening::of(&long, &answer("2025-06-18", "{}")), None);
        assert_eq!(Opening::of(REQUEST, b"{}"), None);
    }

    #[test]
    fn a_server_is_told_by_what_it_says_of_itself() {
        let one = answer("2025-06-18", "{}");
        let other = String::from_utf8(one.clone())
            .unwrap()
            .replace(r#""s""#, r#""t""#);
        assert!(Server::of(&one).is_some());
        assert_eq!(
            Server::of(&one),
            Server::of(&answer("2025-03-26", r#"{"tools":{}}"#))
        );
        assert_ne!(Server::of(&one), Server::of(other.as_bytes()));
        assert_eq!(Server::of(b"{}"), None);
    }
}

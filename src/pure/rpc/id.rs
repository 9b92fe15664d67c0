//! A JSON-RPC id: the token as it came, compared by what it means.
//! Law: two ids are equal by the rules of the wire contract, section 3; what is echoed is the raw token.
//! Absent on purpose: numbers. An id of forty digits is as good as one of two.
//! Next: `../event_id/mod.rs`, which spells an id into the name of a stream.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::pure::limits::REQUEST_ID_BYTES_MAX;
use crate::pure::rpc::malformed::{Fault, Malformed};
use crate::pure::rpc::scan::{Scan, decode};

/// The id of a request: a string or a number, at most [`REQUEST_ID_BYTES_MAX`] bytes as a token. Cheap to clone.
///
/// Equal are two strings of equal decoded text, two integers of equal value (of any size), and two other numbers
/// of equal double; `1` is not `"1"`, and `1.0` is not `1` (wire contract, section 3).
#[derive(Clone)]
pub struct RequestId(Arc<str>);

/// What an id is compared by.
#[derive(PartialEq, Eq, Hash)]
enum Meaning<'a> {
    Text(Cow<'a, str>),
    /// The decimal digits, `-0` told as `0`; JSON has no leading zeros.
    Integer(&'a str),
    /// The bits of a double that is no `-0`.
    Double(u64),
}

impl RequestId {
    /// Reads a raw JSON token that nothing surrounds.
    ///
    /// # Errors
    /// [`Malformed`]: it is not one JSON string or number, it is too long, or it holds half of a surrogate pair.
    pub fn from_raw(token: &[u8]) -> Result<Self, Malformed> {
        let mut scan = Scan::new(token)?;
        if scan.at() > 0 {
            return Err(Malformed::new(0, Fault::Syntax));
        }
        let raw = scan.value()?;
        if raw.len() != token.len() {
            return Err(scan.fault(Fault::Trailing));
        }
        Self::from_value(raw, 0)
    }

    /// How the tokens of our own requests begin.
    pub const OWN: &str = "\"throughline-";

    /// The id of a request of ours. `name` is of letters, digits and `-`.
    pub fn own(name: &str) -> Self {
        Self(format!("{}{name}\"", Self::OWN).into())
    }

    /// Whether it is one of ours.
    pub fn is_own(&self) -> bool {
        self.0.starts_with(Self::OWN)
    }

    /// From a value that was scanned at byte `at`.
    pub(super) fn from_value(raw: &str, at: usize) -> Result<Self, Malformed> {
        if raw.len() > REQUEST_ID_BYTES_MAX {
            return Err(Malformed::new(at, Fault::IdTooLong));
        }
        match raw.as_bytes().first() {
            Some(b'"') if decode(raw).is_none() => Err(Malformed::new(at, Fault::LoneSurrogate)),
            Some(b'"' | b'-' | b'0'..=b'9') => Ok(Self(raw.into())),
            Some(_) | None => Err(Malformed::new(at, Fault::IdKind)),
        }
    }

    /// The token as it came: what our own answers echo.
    pub fn raw(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The token as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The decoded text, if it is a string.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self.meaning() {
            Meaning::Text(text) => Some(text),
            Meaning::Integer(_) | Meaning::Double(_) => None,
        }
    }

    fn meaning(&self) -> Meaning<'_> {
        let raw = &*self.0;
        if raw.starts_with('"') {
            // It decodes: the constructor saw to it.
            return Meaning::Text(decode(raw).unwrap_or(Cow::Borrowed(raw)));
        }
        if !raw.contains(['.', 'e', 'E']) {
            return Meaning::Integer(if raw == "-0" { "0" } else { raw });
        }
        // Every JSON number is a Rust one; what is too large becomes an infinity, as it does for other readers.
        let double: f64 = raw.parse().unwrap_or(f64::INFINITY);
        Meaning::Double(if double == 0.0 { 0 } else { double.to_bits() })
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.meaning() == other.meaning()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meaning().hash(state);
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({})", self.0)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    fn id(token: &str) -> RequestId {
        RequestId::from_raw(token.as_bytes()).expect("an id")
    }

    fn hash(id: &RequestId) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(id)
    }

    #[test]
    fn equality_is_by_meaning() {
        // Within a row all are equal; between rows none are.
        let forty = "1234567890123456789012345678901234567890";
        let forty_and_one = "1234567890123456789012345678901234567891";
        let rows: &[&[&str]] = &[
            &["1"],
            &["\"1\"", r#""\u0031""#],
            &["1.0", "1e0", "1E0", "10e-1", "1.00000000000000000000000001"],
            &["0", "-0"],
            &["0.0", "-0.0", "0e5", "1e-999"],
            &["-1"],
            &["-1.0", "-1e0"],
            &["9007199254740992"],
            &["9007199254740993"],
            &["9007199254740993.0", "9007199254740992.0"],
            &[forty],
            &[forty_and_one],
            &["1e400", "9e999"],
            &["-1e400"],
            &["\"\"", r#""""#],
            &["\"a\"", r#""\u0061""#],
            &["\"A\""],
            &["\"é\"", r#""\u00e9""#, r#""\u00E9""#],
            &["\"e\u{301}\""],
            &["\"/\"", r#""\/""#],
            &["\"\u{1f980}\"", r#""\ud83e\udd80""#],
            &["\"null\""],
        ];
        let all: Vec<(usize, RequestId)> = rows
            .iter()
            .enumerate()
            .flat_map(|(row, tokens)| tokens.iter().map(move |token| (row, id(token))))
            .collect();
        for (row_a, a) in &all {
            for (row_b, b) in &all {
                assert_eq!(a == b, row_a == row_b, "{a} {b}");
                assert!(a != b || hash(a) == hash(b), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_raw_token_is_kept() {
        for token in ["1", "-0", "1.50", "1E+2", r#""\u0061""#, "\"\""] {
            assert_eq!(id(token).raw(), token.as_bytes());
            assert_eq!(id(token).clone().as_str(), token);
        }
        assert_eq!(id(r#""\u0061""#).text().as_deref(), Some("a"));
        assert_eq!(id("1").text(), None);
    }

    #[test]
    fn what_is_no_id() {
        let long = format!("\"{}\"", "x".repeat(REQUEST_ID_BYTES_MAX - 1));
        for (token, fault, at) in [
            ("", Fault::Truncated, 0),
            ("null", Fault::IdKind, 0),
            ("true", Fault::IdKind, 0),
            ("[1]", Fault::IdKind, 0),
            ("{}", Fault::IdKind, 0),
            (" 1", Fault::Syntax, 0),
            ("1 ", Fault::Trailing, 1),
            ("01", Fault::Trailing, 1),
            ("1,2", Fault::Trailing, 1),
            ("+1", Fault::Syntax, 0),
            (".5", Fault::Syntax, 0),
            ("1.", Fault::Truncated, 2),
            ("-", Fault::Truncated, 1),
            ("1e", Fault::Truncated, 2),
            ("1e+", Fault::Truncated, 3),
            ("0x1", Fault::Trailing, 1),
            ("NaN", Fault::Syntax, 0),
            ("\"a", Fault::Truncated, 2),
            ("\"\n\"", Fault::Syntax, 1),
            (r#""\x""#, Fault::Syntax, 2),
            (r#""\u12""#, Fault::Syntax, 5),
            (r#""\ud800""#, Fault::LoneSurrogate, 0),
            (r#""\udc00""#, Fault::LoneSurrogate, 0),
            (r#""\ud800\u0041""#, Fault::LoneSurrogate, 0),
            (r#""\ud800\n""#, Fault::LoneSurrogate, 0),
            (&long, Fault::IdTooLong, 0),
        ] {
            let refused = RequestId::from_raw(token.as_bytes()).expect_err(token);
            assert_eq!((refused.fault(), refused.at()), (fault, at), "{token}");
        }
        assert!(RequestId::from_raw(&long.as_bytes()[1..]).is_err());
        assert_eq!(id(&long.replacen('x', "", 1)).raw().len(), REQUEST_ID_BYTES_MAX);
        assert!(RequestId::from_raw(b"\"\xff\"").is_err());
    }
}

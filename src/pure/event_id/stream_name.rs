//! The name of a stream within its session, as it stands in every event id: `g`, `e`, or `p` and the request's id.
//! Law: a name has one spelling; reading one and spelling it again gives the same bytes, or it was no name.
//! Absent on purpose: what a stream does. The name lets a proxy without memory say which request a cursor belongs to.
//! Next: `mod.rs`, which puts the name into an id.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::pure::limits::{INTEGER_ID_DIGITS_MAX, STRING_ID_BYTES_MAX};
use crate::pure::rpc::{self, RequestId};

/// Which of a session's streams: the standalone GET stream, the answer to one POST, or the one stream that there is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum StreamName {
    /// The standalone GET stream: `g`.
    Get,
    /// The one stream of a session over HTTP+SSE, which carries everything: `e`.
    HttpSse,
    /// The answer to a POST: `p` and its request's id.
    Post(Rid),
}

impl StreamName {
    /// The name as it stands in an event id: `g`, `pi7`, …
    pub fn spell(&self) -> Box<str> {
        match self {
            Self::Get => "g".into(),
            Self::HttpSse => "e".into(),
            Self::Post(rid) => format!("p{}", rid.0).into(),
        }
    }

    /// Reads a name as it stands in an event id. `None`: it is none, or not in its one spelling.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix('p') {
            Some(rid) => Some(Self::Post(Rid::parse(rid)?)),
            None => match text {
                "g" => Some(Self::Get),
                "e" => Some(Self::HttpSse),
                _ => None,
            },
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("g"),
            Self::HttpSse => f.write_str("e"),
            Self::Post(rid) => write!(f, "p{}", rid.0),
        }
    }
}

/// A request's id, or those of a batch, spelled for the name of a stream (wire contract, section 3: `rid`).
///
/// Two equal ids may have two spellings (`1.0` and `1e0`): the name keeps the raw token of a number, since an
/// answer echoes it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rid(Box<str>);

/// The letter that a [`Rid`] begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// `i`: an integer that is not negative, as it came.
    Integer,
    /// `m`: the digits of a negative integer.
    Negative,
    /// `n`: any other number, its raw token in base64url (`-0` and integers of more digits too).
    Number,
    /// `s`: a string, its decoded text in base64url.
    Text,
    /// `b`: a batch, the compact JSON array of its ids in base64url.
    Batch,
    /// `h`: what is too long for the others, half of a SHA-256 in base64url.
    Hash,
}

/// What a [`Rid`] says of the requests whose answers its stream carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// One request.
    One(RequestId),
    /// Those of a batch, in its order.
    Batch(Vec<RequestId>),
    /// It was too long to be spelled: without memory these requests can't be answered with an error.
    Hashed,
}

impl Rid {
    /// Spells a request's id.
    pub fn from_request_id(id: &RequestId) -> Self {
        let raw = id.as_str();
        if let Some(text) = id.text() {
            return if text.len() <= STRING_ID_BYTES_MAX {
                Self::encoded(Kind::Text, text.as_bytes())
            } else {
                Self::hashed(raw)
            };
        }
        match integer(raw) {
            Some((kind, digits)) => Self(format!("{}{digits}", kind.letter()).into()),
            None if raw.len() <= STRING_ID_BYTES_MAX => Self::encoded(Kind::Number, raw.as_bytes()),
            None => Self::hashed(raw),
        }
    }

    /// Spells the ids of a batch's requests, in its order. `None` without one: such a batch is not answered.
    pub fn from_batch(ids: &[RequestId]) -> Option<Self> {
        if ids.is_empty() {
            return None;
        }
        let array = compact(ids);
        Some(if array.len() <= STRING_ID_BYTES_MAX {
            Self::encoded(Kind::Batch, array.as_bytes())
        } else {
            Self::hashed(&array)
        })
    }

    /// Spells these ids, one as it is; `None` without any.
    pub fn of(ids: &[RequestId]) -> Option<Self> {
        match ids {
            [one] => Some(Self::from_request_id(one)),
            several => Self::from_batch(several),
        }
    }

    /// The request's id, its raw token as it came (a string's in its shortest spelling).
    /// `None`: it was hashed, or it is a batch.
    pub fn request_id(&self) -> Option<RequestId> {
        match self.asked() {
            Asked::One(id) => Some(id),
            Asked::Batch(_) | Asked::Hashed => None,
        }
    }

    /// Which requests are answered on this stream.
    pub fn asked(&self) -> Asked {
        // What can't be read was refused by the constructor; if it were here, nothing could be said of it.
        asked(&self.0).unwrap_or(Asked::Hashed)
    }

    /// The spelling, without the `p` of the stream's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let spelled = match asked(text)? {
            Asked::One(id) => Self::from_request_id(&id),
            Asked::Batch(ids) => Self::from_batch(&ids)?,
            Asked::Hashed => Self(text.into()),
        };
        (&*spelled.0 == text).then_some(spelled)
    }

    fn encoded(kind: Kind, bytes: &[u8]) -> Self {
        let mut out = String::from(kind.letter());
        URL_SAFE_NO_PAD.encode_string(bytes, &mut out);
        Self(out.into())
    }

    fn hashed(raw: &str) -> Self {
        Self::encoded(Kind::Hash, &Sha256::digest(raw)[..16])
    }
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Integer,
        Self::Negative,
        Self::Number,
        Self::Text,
        Self::Batch,
        Self::Hash,
    ];

    const fn letter(self) -> char {
        match self {
            Self::Integer => 'i',
            Self::Negative => 'm',
            Self::Number => 'n',
            Self::Text => 's',
            Self::Batch => 'b',
            Self::Hash => 'h',
        }
    }
}

/// The digits of a raw token that is an integer short enough to be spelled out.
fn integer(raw: &str) -> Option<(Kind, &str)> {
    let (kind, digits) = match raw.strip_prefix('-') {
        Some("0") => return None,
        Some(digits) => (Kind::Negative, digits),
        None => (Kind::Integer, raw),
    };
    let short = digits.len() <= INTEGER_ID_DIGITS_MAX && digits.bytes().all(|b| b.is_ascii_digit());
    short.then_some((kind, digits))
}

/// What a spelling says, if it says anything. Whether it is the one spelling of that, the caller compares.
fn asked(text: &str) -> Option<Asked> {
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| text.starts_with(kind.letter()))?;
    let rest = &text[1..];
    let one = |token: &[u8]| RequestId::from_raw(token).ok().map(Asked::One);
    match kind {
        Kind::Integer => one(rest.as_bytes()),
        Kind::Negative => one(format!("-{rest}").as_bytes()),
        Kind::Number => one(&decoded(rest)?),
        Kind::Text => {
            let text = String::from_utf8(decoded(rest)?).ok()?;
            one(rpc::quoted(&text).as_bytes())
        }
        Kind::Batch => {
            let array = decoded(rest)?;
            let ids: Option<Vec<_>> = rpc::elements(&array)?
                .into_iter()
                .map(|raw| RequestId::from_raw(raw).ok())
                .collect();
            ids.map(Asked::Batch)
        }
        Kind::Hash => (decoded(rest)?.len() == 16).then_some(Asked::Hashed),
    }
}

/// Strict: no padding, no bits left over.
fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

fn compact(ids: &[RequestId]) -> String {
    let raws: Vec<&str> = ids.iter().map(RequestId::as_str).collect();
    format!("[{}]", raws.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(token: &str) -> RequestId {
        RequestId::from_raw(token.as_bytes()).expect("an id")
    }

    fn b64u(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    fn check(token: &str, spelled: &str, echoed: Option<&str>) {
        let name = StreamName::Post(Rid::from_request_id(&id(token)));
        assert_eq!(&*name.spell(), spelled, "{token}");
        assert_eq!(name.to_string(), spelled);
        assert_eq!(StreamName::parse(spelled).as_ref(), Some(&name), "{token}");
        let StreamName::Post(rid) = name else {
            unreachable!()
        };
        let raw = rid.request_id().map(|again| {
            assert_eq!(again, id(token), "equal by meaning");
            again.as_str().to_owned()
        });
        assert_eq!(raw.as_deref(), echoed, "{token}");
    }

    #[test]
    fn every_kind_of_request_id() {
        for token in ["0", "7", "42", "9999999999999999999"] {
            check(token, &format!("pi{token}"), Some(token));
        }
        for digits in ["1", "7", "9223372036854775808", "9999999999999999999"] {
            let token = format!("-{digits}");
            check(&token, &format!("pm{digits}"), Some(&token));
        }
        // A number keeps its raw token, also where it could be written shorter.
        for token in [
            "-0",
            "1.0",
            "1e0",
            "1E+2",
            "-0.0",
            "10000000000000000000",
            "-10000000000000000000",
        ] {
            check(token, &format!("pn{}", b64u(token)), Some(token));
        }
        for text in ["", "a", "7", "ü", "a.b~-c", "\u{1f980}"] {
            check(
                &format!("\"{text}\""),
                &format!("ps{}", b64u(text)),
                Some(&format!("\"{text}\"")),
            );
        }
        // A string is echoed in its shortest spelling: equal by decoded text.
        check(r#""\u0061\/""#, &format!("ps{}", b64u("a/")), Some(r#""a/""#));
        check(
            r#""\ud83e\udd80""#,
            &format!("ps{}", b64u("\u{1f980}")),
            Some("\"\u{1f980}\""),
        );
        check(
            r#""\n\u0000\"\\""#,
            &format!("ps{}", b64u("\n\0\"\\")),
            Some(r#""\n\u0000\"\\""#),
        );
    }

    #[test]
    fn the_longest_that_is_spelled_and_the_first_that_is_hashed() {
        let text = "x".repeat(42);
        check(
            &format!("\"{text}\""),
            &format!("ps{}", b64u(&text)),
            Some(&format!("\"{text}\"")),
        );
        // The literal was computed elsewhere: SHA-256 of the raw token, quotes included, first half.
        check(&format!("\"{text}x\""), "phYWKm8LYPKGCpcSckwoGn6A", None);
        let digits = format!("1{}", "0".repeat(41));
        check(&digits, &format!("pn{}", b64u(&digits)), Some(&digits));
        let hashed = Rid::from_request_id(&id(&format!("{digits}0")));
        assert!(hashed.as_str().starts_with('h') && hashed.as_str().len() == 23);
        // 14 characters of three bytes are 42 bytes; what counts is the decoded text.
        let wide = "€".repeat(14);
        check(
            &format!("\"{wide}\""),
            &format!("ps{}", b64u(&wide)),
            Some(&format!("\"{wide}\"")),
        );
        let escaped = "\\u20ac".repeat(14);
        check(
            &format!("\"{escaped}\""),
            &format!("ps{}", b64u(&wide)),
            Some(&format!("\"{wide}\"")),
        );
    }

    #[test]
    fn batches() {
        fn check(tokens: &[&str], spelled: &str) {
            let ids: Vec<_> = tokens.iter().map(|token| id(token)).collect();
            let name = StreamName::Post(Rid::from_batch(&ids).expect("not empty"));
            assert_eq!(&*name.spell(), spelled);
            assert_eq!(StreamName::parse(spelled).as_ref(), Some(&name));
            let StreamName::Post(rid) = name else {
                unreachable!()
            };
            assert_eq!(rid.request_id(), None);
            let hashed = spelled.starts_with("ph");
            assert_eq!(
                rid.asked(),
                if hashed { Asked::Hashed } else { Asked::Batch(ids) }
            );
        }
        check(&["1", "\"a\""], "pbWzEsImEiXQ");
        check(&["1"], &format!("pb{}", b64u("[1]")));
        check(&["1", "1"], &format!("pb{}", b64u("[1,1]")));
        let long = "1".repeat(40);
        check(&[&long], &format!("pb{}", b64u(&format!("[{long}]"))));
        let longer = "1".repeat(41);
        let ids = [id(&longer)];
        let hashed = Rid::from_batch(&ids).expect("not empty");
        check(&[&longer], &format!("p{}", hashed.as_str()));
        assert_ne!(hashed, Rid::hashed(&longer), "a batch of one is not that one");
        assert_eq!(Rid::from_batch(&[]), None);
    }

    #[test]
    fn what_is_no_name_or_not_its_one_spelling() {
        let b = |kind: &str, text: &str| format!("p{kind}{}", b64u(text));
        let refused = [
            "".into(),
            "G".into(),
            "gg".into(),
            "g7".into(),
            "p".into(),
            "P7".into(),
            "p7".into(),
            "px7".into(),
            "pi".into(),
            "pi-7".into(),
            "pi+7".into(),
            "pi07".into(),
            "pi00".into(),
            "pi7 ".into(),
            "pi7a".into(),
            "pi1.0".into(),
            "pi1e0".into(),
            "pi10000000000000000000".into(), // twenty digits: "n"
            "pm".into(),
            "pm0".into(), // not below zero: "n"
            "pm07".into(),
            "pm-7".into(),
            "pm10000000000000000000".into(),
            "pn".into(),
            b("n", "7"),     // "i"
            b("n", "-7"),    // "m"
            b("n", "\"a\""), // "s"
            b("n", " 1.0"),  // no raw token
            b("n", "1.0 "),  // no raw token
            b("n", "01.0"),  // no number
            b("n", "+1.0"),  // no number
            b("n", "NaN"),   // no number
            b("n", "null"),  // no id
            b("n", "[1.0]"), // no id
            b("n", &"1".repeat(43)),
            "psYQ=".into(), // padding
            "psYR".into(),  // bits left over
            "psY".into(),   // no whole byte
            "psY+".into(),  // another alphabet
            "psYQ YQ".into(),
            "ps_w".into(), // 0xff is no UTF-8
            b("s", &"x".repeat(43)),
            "pb".into(),
            b("b", ""),
            b("b", "[]"),
            b("b", "1"),
            b("b", "[1, 2]"), // not compact
            b("b", "[1,2] "),
            b("b", "[1,null]"), // no id
            b("b", "[[1]]"),
            b("b", "[1"),
            b("b", &format!("[{}]", "1".repeat(41))),
            "ph".into(),
            "phYWKm8LYPKGCpcSckwoGn6".into(),
            "phYWKm8LYPKGCpcSckwoGn6B".into(), // bits left over
            "phYWKm8LYPKGCpcSckwoGn6AA".into(),
        ];
        for text in refused {
            assert_eq!(StreamName::parse(&text), None, "{text:?}");
        }
    }
}

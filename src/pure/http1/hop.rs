//! Which header fields belong to one connection and not to the message (RFC 9110, section 7.6.1).
//! Law: such a field is never carried from one connection to another, in either direction.
//! Absent on purpose: what they say, but for the tokens of `connection`.
//! Next: `field.rs`.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName};

/// Whether a field belongs to one connection and not to the message (RFC 9110, section 7.6.1).
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
    )
}

/// Drops the fields that belong to one connection: those of [`is_hop_by_hop`], and those that `connection` names.
pub fn drop_hop_by_hop(headers: &mut HeaderMap) {
    // What `connection` names is there only with `connection`, which is one of them.
    if !headers.keys().any(is_hop_by_hop) {
        return;
    }
    let named: Vec<HeaderName> = {
        let nominated = Nominated::of(headers);
        headers
            .keys()
            .filter(|name| is_hop_by_hop(name) || nominated.has(name))
            .cloned()
            .collect()
    };
    for name in named {
        headers.remove(name);
    }
}

/// The tokens of all `connection` fields: options such as `close`, and names of fields.
#[derive(Default)]
pub(super) struct Nominated<'a> {
    tokens: Vec<&'a [u8]>,
}

impl<'a> Nominated<'a> {
    /// Reads the fields; empty tokens are skipped.
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let mut nominated = Self::default();
        // Looked through: there are few fields, and mostly none of this name.
        for (name, field) in headers {
            if *name == CONNECTION {
                nominated.add(field.as_bytes());
            }
        }
        nominated
    }

    /// Reads one more field.
    pub(super) fn add(&mut self, field: &'a [u8]) {
        let tokens = field.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        self.tokens.extend(tokens.filter(|token| !token.is_empty()));
    }

    /// The tokens, in their order.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &'a [u8]> {
        self.tokens.iter().copied()
    }

    /// Whether a field of this name belongs to the connection.
    pub(super) fn has(&self, name: &HeaderName) -> bool {
        self.says(name.as_str())
    }

    /// Whether this token is there, in any case.
    pub(super) fn says(&self, word: &str) -> bool {
        self.tokens
            .iter()
            .any(|token| token.eq_ignore_ascii_case(word.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn what_belongs_to_the_connection_is_dropped() {
        fn check(fields: &[(&'static str, &str)], wanted: &[&str]) {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(*name, HeaderValue::from_str(value).unwrap());
            }
            drop_hop_by_hop(&mut headers);
            let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
            left.sort_unstable();
            assert_eq!(left, wanted, "{fields:?}");
        }
        check(&[], &[]);
        check(
            &[("accept", "a"), ("content-length", "5")],
            &["accept", "content-length"],
        );
        check(
            &[("connection", "close"), ("close", "x"), ("te", "x"), ("x-a", "1")],
            &["x-a"],
        );
        check(
            &[
                ("connection", ", X-A\t,,x-b"),
                ("x-a", "1"),
                ("x-a", "2"),
                ("x-b", "1"),
                ("x-c", "1"),
            ],
            &["x-c"],
        );
        check(
            &[
                ("connection", "a"),
                ("connection", "x-b"),
                ("x-b", "1"),
                ("x-bb", "1"),
            ],
            &["x-bb"],
        );
        check(&[("connection", "\"x-a\""), ("x-a", "1")], &["x-a"]);
    }
}

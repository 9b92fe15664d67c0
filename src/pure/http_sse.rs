//! HTTP+SSE of 2024-11-05: what its `endpoint` event says, and how the proxy says it in its own name.
//! Law: where a backend wants its POSTs is never shown, and never believed outside the backend's own origin: a URI of
//! another one is refused, whatever it says (wire contract, section 10).
//! The client's endpoint is a path and one query parameter, since that survives how clients resolve it: some against
//! the URL that they asked, some against the origin alone, some by putting one behind the other.
//! Absent on purpose: the token in the parameter (`session_token.rs`), sockets, and what a session is.
//! Next: `session_token.rs`, which keeps a backend's endpoint sealed.

use std::fmt;

use crate::pure::limits::BACKEND_SESSION_BYTES_MAX;

/// The type of the first event of such a stream.
pub const ENDPOINT: &[u8] = b"endpoint";

/// The query parameter in which a client brings its session's token to a POST. Named as servers name theirs, since some
/// clients look for it there.
pub const PARAMETER: &str = "sessionId";

/// Where a backend is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Base<'a> {
    /// Scheme and authority, the port left out where it is the scheme's own: `http://127.0.0.1:3001`.
    pub origin: &'a str,
    /// The path that was asked, perhaps with a query.
    pub path: &'a str,
}

/// Where a backend wants the POSTs of one session: a path, perhaps with a query, in its own origin; at most
/// [`BACKEND_SESSION_BYTES_MAX`] bytes of visible ASCII. Prints as its length only: it names the session.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Box<str>);

/// Why an `endpoint` event can't be followed: the backend's fault, and no session begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadEndpoint {
    /// It says nothing.
    Empty,
    /// It holds something that no URI holds: a space, a control character, or anything but ASCII.
    NotAUri,
    /// It names another origin than the one that was asked.
    OtherOrigin,
    /// It has this many bytes, more than [`BACKEND_SESSION_BYTES_MAX`].
    TooLong(usize),
}

impl BadEndpoint {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "the endpoint event says nothing",
            Self::NotAUri => "the endpoint event holds no URI",
            Self::OtherOrigin => "the endpoint event names another origin",
            Self::TooLong(_) => "the endpoint event is too long",
        }
    }
}

impl Endpoint {
    /// Reads the data of an `endpoint` event: a URI, or a reference that is resolved against what was asked (RFC 3986,
    /// section 5.2). A fragment means nothing to a server and is left out.
    ///
    /// # Errors
    /// [`BadEndpoint`].
    pub fn resolve(base: Base<'_>, data: &[u8]) -> Result<Self, BadEndpoint> {
        let text = match std::str::from_utf8(data.trim_ascii()) {
            Ok(text) if text.bytes().all(|b| b.is_ascii_graphic()) => text,
            Ok(_) | Err(_) => return Err(BadEndpoint::NotAUri),
        };
        let text = text.split('#').next().unwrap_or_default();
        if text.is_empty() {
            return Err(BadEndpoint::Empty);
        }
        let target = match within_origin(base.origin, text)? {
            Within::Target(target) => target,
            Within::Reference(reference) => relative(base.path, reference),
        };
        if target.len() > BACKEND_SESSION_BYTES_MAX {
            return Err(BadEndpoint::TooLong(target.len()));
        }
        Ok(Self(target.into()))
    }

    /// The path and query, as a request line has them.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint(… {} bytes)", self.0.len())
    }
}

/// What a text is, once its origin was looked at.
enum Within<'a> {
    /// It named the origin: this is the rest, from the path on.
    Target(String),
    /// It named none.
    Reference(&'a str),
}

fn within_origin<'a>(origin: &str, text: &'a str) -> Result<Within<'a>, BadEndpoint> {
    let (own_scheme, own_authority) = origin.split_once("://").unwrap_or(("http", origin));
    let rest = match text.strip_prefix("//") {
        Some(rest) => rest,
        None => match scheme_of(text) {
            None => return Ok(Within::Reference(text)),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(own_scheme) => {
                rest.strip_prefix("//").ok_or(BadEndpoint::OtherOrigin)?
            }
            Some(_) => return Err(BadEndpoint::OtherOrigin),
        },
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let default_port = if own_scheme == "https" { ":443" } else { ":80" };
    let plain = authority.strip_suffix(default_port).unwrap_or(authority);
    if !plain.eq_ignore_ascii_case(own_authority) {
        return Err(BadEndpoint::OtherOrigin);
    }
    Ok(Within::Target(rooted(target)))
}

/// A scheme and what follows its colon, if the text begins with one (RFC 3986, section 3.1).
fn scheme_of(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut bytes = scheme.bytes();
    let begins = bytes.next().is_some_and(|b| b.is_ascii_alphabetic());
    let goes_on = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    (begins && goes_on).then_some((scheme, rest))
}

/// A reference without an origin, resolved against the path that was asked.
fn relative(asked: &str, reference: &str) -> String {
    if reference.starts_with('/') {
        return rooted(reference);
    }
    let path = asked.split('?').next().unwrap_or("/");
    if reference.starts_with('?') {
        return format!("{path}{reference}");
    }
    let directory = &path[..path.rfind('/').map_or(0, |at| at + 1)];
    rooted(&format!("{directory}{reference}"))
}

/// A path with its query, beginning at the root and without dot segments (RFC 3986, section 5.2.4).
fn rooted(target: &str) -> String {
    let (path, query) = match target.find('?') {
        Some(at) => target.split_at(at),
        None => (target, ""),
    };
    let mut segments: Vec<&str> = Vec::new();
    let mut last = "";
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
        last = segment;
    }
    if matches!(last, "." | "..") {
        segments.push("");
    }
    format!("/{}{query}", segments.join("/"))
}

/// The data of the `endpoint` event that a client gets: the proxy's own path, and the session's token.
pub fn announced(path: &str, token: &[u8]) -> Vec<u8> {
    [path.as_bytes(), b"?", PARAMETER.as_bytes(), b"=", token].concat()
}

/// The token in a query, if there is one; of several the first.
pub fn token_in(query: &str) -> Option<&str> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix(PARAMETER)?.strip_prefix('='))
}

/// What is left of a query without the token: what a client adds of its own is the backend's to read.
pub fn without_token(query: &str) -> Option<Box<str>> {
    let is_token = |pair: &&str| {
        pair.strip_prefix(PARAMETER)
            .is_some_and(|rest| rest.starts_with('='))
    };
    let left: Vec<&str> = query.split('&').filter(|pair| !is_token(pair)).collect();
    (!left.is_empty()).then(|| left.join("&").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_resolve_within_their_origin() {
        let base = Base {
            origin: "http://10.0.0.1:3001",
            path: "/api/sse?key=1",
        };
        let check = |data: &str, expected: Result<&str, BadEndpoint>| {
            let resolved = Endpoint::resolve(base, data.as_bytes());
            let resolved = resolved.as_ref().map(Endpoint::as_str).map_err(|bad| *bad);
            assert_eq!(resolved, expected, "{data}");
        };
        for (data, target) in [
            ("/messages/?session_id=ab", "/messages/?session_id=ab"),
            ("/messages", "/messages"),
            ("messages?s=1", "/api/messages?s=1"),
            ("./messages?s=1", "/api/messages?s=1"),
            ("../messages?s=1", "/messages?s=1"),
            ("../../../m/./n/../", "/m/"),
            ("?sessionId=1", "/api/sse?sessionId=1"),
            ("/m?next=../x", "/m?next=../x"),
            ("/m?a=http://b.example/", "/m?a=http://b.example/"),
            ("http://10.0.0.1:3001/m?s=1", "/m?s=1"),
            ("HTTP://10.0.0.1:3001/m", "/m"),
            ("http://10.0.0.1:3001", "/"),
            ("http://10.0.0.1:3001?s=1", "/?s=1"),
            ("//10.0.0.1:3001/m", "/m"),
            ("/m?s=1#part", "/m?s=1"),
            (" /m ", "/m"),
        ] {
            check(data, Ok(target));
        }
        for (data, bad) in [
            ("", BadEndpoint::Empty),
            ("#x", BadEndpoint::Empty),
            ("/a b", BadEndpoint::NotAUri),
            ("/\u{e4}", BadEndpoint::NotAUri),
            ("/a\nb", BadEndpoint::NotAUri),
            ("http://10.0.0.1:3002/m", BadEndpoint::OtherOrigin),
            ("http://10.0.0.1/m", BadEndpoint::OtherOrigin),
            ("https://10.0.0.1:3001/m", BadEndpoint::OtherOrigin),
            ("http://a@10.0.0.1:3001/m", BadEndpoint::OtherOrigin),
            ("//evil.example/m", BadEndpoint::OtherOrigin),
            ("file:///etc/passwd", BadEndpoint::OtherOrigin),
            ("http:/m", BadEndpoint::OtherOrigin),
            // A colon in a first segment reads as a scheme, as everywhere.
            ("messages:post", BadEndpoint::OtherOrigin),
        ] {
            check(data, Err(bad));
        }
        let long = format!("/{}", "a".repeat(BACKEND_SESSION_BYTES_MAX));
        check(&long, Err(BadEndpoint::TooLong(BACKEND_SESSION_BYTES_MAX + 1)));
    }

    #[test]
    fn a_default_port_need_not_be_said() {
        for (origin, data) in [
            ("http://a.example", "http://A.example:80/m"),
            ("https://a.example", "https://a.example:443/m"),
            ("http://a.example", "http://a.example/m"),
        ] {
            let base = Base { origin, path: "/sse" };
            let resolved = Endpoint::resolve(base, data.as_bytes());
            assert_eq!(resolved.as_ref().map(Endpoint::as_str), Ok("/m"), "{data}");
        }
    }

    #[test]
    fn tokens_in_queries() {
        let check = |query: &str, token: Option<&str>, left: Option<&str>| {
            assert_eq!(token_in(query), token, "{query}");
            assert_eq!(without_token(query).as_deref(), left, "{query}");
        };
        check("sessionId=t1a.x", Some("t1a.x"), None);
        check("a=1&sessionId=t1a.x&b", Some("t1a.x"), Some("a=1&b"));
        check("sessionId=", Some(""), None);
        check("sessionId", None, Some("sessionId"));
        check("sessionIds=1", None, Some("sessionIds=1"));
        check("a=1", None, Some("a=1"));
        assert_eq!(announced("/sse", b"t1a.x"), b"/sse?sessionId=t1a.x");
    }
}

//! Which header fields cross the proxy, in each direction, and which are ours.
//! Law: the client's cursor and session id never reach a backend, a backend's session id never reaches a client.
//! Hop-by-hop fields are gone before this file sees a request (`downstream/endpoint.rs`, `pure/http1/head.rs`).
//! Next: `post.rs`, `get.rs`.

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName,
    ORIGIN, USER_AGENT,
};
use http::{HeaderMap, HeaderValue};

use crate::config::resolved::{Replica, Scheme};
use crate::pure::stream::Agent;
use crate::pure::verdict;
pub(crate) use crate::pure::verdict::Verdict;

/// `Mcp-Session-Id`.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `Last-Event-ID`.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// `MCP-Protocol-Version`.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The verdict on every SSE answer of ours (wire contract, section 4).
pub(crate) const CONTINUITY: HeaderName = HeaderName::from_static(verdict::FIELD);
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Makes a client's fields into what this replica's backend is sent, with the backend's own session id. In place, and
/// as often as replicas are tried: what it makes for one it makes again into what another is sent.
pub(crate) fn to_backend(headers: &mut HeaderMap, replica: &Replica, session: Option<&HeaderValue>) {
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    headers.remove(LAST_EVENT_ID);
    // Nothing may transform what is read: an encoded event stream could not be followed.
    headers.remove(ACCEPT_ENCODING);
    if headers.contains_key(ORIGIN) {
        // Judged against our own list already; towards the backend we are our own, local, origin.
        match HeaderValue::try_from(origin_of(replica)) {
            Ok(own) => headers.insert(ORIGIN, own),
            Err(_) => headers.remove(ORIGIN),
        };
    }
    match session {
        Some(id) => headers.insert(SESSION_ID, id.clone()),
        None => headers.remove(SESSION_ID),
    };
}

fn origin_of(replica: &Replica) -> String {
    let (scheme, default) = match replica.scheme {
        Scheme::Http => ("http", 80),
        Scheme::Https => ("https", 443),
    };
    if replica.authority.port == default {
        let host = &replica.authority.host;
        if host.contains(':') {
            format!("{scheme}://[{host}]")
        } else {
            format!("{scheme}://{host}")
        }
    } else {
        format!("{scheme}://{}", replica.authority)
    }
}

/// What passes of a backend's answer that is not an event stream of ours.
pub(crate) fn to_client(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(SESSION_ID);
    headers
}

/// The head of an event stream that the proxy answers.
pub(crate) fn of_stream(mut headers: HeaderMap, verdict: Verdict) -> HeaderMap {
    headers.remove(SESSION_ID);
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_ENCODING);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    headers.insert(CONTINUITY, spelled(verdict));
    headers
}

fn spelled(verdict: Verdict) -> HeaderValue {
    HeaderValue::try_from(verdict.spell()).expect("the parts are ASCII without control characters")
}

/// What kind of client this request comes from.
pub(crate) fn agent_of(headers: &HeaderMap) -> Agent {
    Agent::of(headers.get(USER_AGENT).map_or(&[][..], HeaderValue::as_bytes))
}

/// Whether an answer is an event stream.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes();
        let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
        value[..end]
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Authority;

    fn replica(scheme: Scheme, host: &str, port: u16) -> Replica {
        Replica {
            authority: Authority {
                host: host.into(),
                port,
            },
            scheme,
            path: "/mcp".into(),
        }
    }

    #[test]
    fn what_a_backend_is_sent() {
        let mut sent = HeaderMap::new();
        for (name, value) in [
            ("host", "public.example"),
            ("origin", "https://app.example"),
            ("last-event-id", "abc"),
            ("mcp-session-id", "t1a.token"),
            ("accept-encoding", "gzip, br"),
            ("authorization", "Bearer x"),
            ("mcp-protocol-version", "2025-11-25"),
            ("x-own", "1"),
        ] {
            sent.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let own = HeaderValue::from_static("backend-id");
        // Another replica was tried before.
        for replica in [
            replica(Scheme::Https, "10.0.0.2", 443),
            replica(Scheme::Http, "10.0.0.1", 9000),
        ] {
            to_backend(&mut sent, &replica, Some(&own));
        }
        let mut names: Vec<_> = sent
            .iter()
            .map(|(n, v)| format!("{n}: {}", v.to_str().unwrap()))
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "authorization: Bearer x",
                "mcp-protocol-version: 2025-11-25",
                "mcp-session-id: backend-id",
                "origin: http://10.0.0.1:9000",
                "x-own: 1"
            ]
        );
    }

    #[test]
    fn an_origin_leaves_out_the_default_port() {
        for (replica, origin) in [
            (replica(Scheme::Http, "a", 80), "http://a"),
            (replica(Scheme::Https, "a", 443), "https://a"),
            (replica(Scheme::Https, "a", 80), "https://a:80"),
            (replica(Scheme::Http, "::1", 80), "http://[::1]"),
            (replica(Scheme::Http, "::1", 8080), "http://[::1]:8080"),
        ] {
            assert_eq!(origin_of(&replica), origin);
        }
    }

    #[test]
    fn media_types() {
        for (value, expected) in [
            ("text/event-stream", true),
            ("text/event-stream; charset=utf-8", true),
            ("Text/Event-Stream ;x", true),
            ("text/event-streams", false),
            ("application/json", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            assert_eq!(is_event_stream(&headers), expected, "{value}");
        }
        assert!(!is_event_stream(&HeaderMap::new()));
    }
}

//! Which header fields cross the proxy, in each direction, and which are ours.
//! Law: the client's cursor and session id never reach a backend, a backend's session id never reaches a client.
//! Hop-by-hop fields are gone before this file sees a request (`downstream/endpoint.rs`, `pure/http1/head.rs`).
//! Next: `post.rs`, `get.rs`.

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, ORIGIN,
    USER_AGENT,
};
use http::{HeaderMap, HeaderValue};

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::stream::Agent;
use crate::routing::Replica;

/// `Mcp-Session-Id`.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `Last-Event-ID`.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// `MCP-Protocol-Version`.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The verdict on every SSE answer of ours (wire contract, section 4).
pub(crate) const CONTINUITY: HeaderName = HeaderName::from_static("throughline-continuity");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a client's field stays here: its cursor, and what is said anew for each backend.
pub(crate) fn stays_here(name: &HeaderName) -> bool {
    // Nothing may transform what is read: an encoded event stream could not be followed.
    *name == ACCEPT_ENCODING || *name == ORIGIN || *name == SESSION_ID || *name == LAST_EVENT_ID
}

/// What a backend is told as its `Origin` if the client named any: the client's was judged against our own list
/// already; towards the backend we are our own, local, origin.
pub(crate) fn own_origin(headers: &HeaderMap, replica: &Replica) -> Option<HeaderValue> {
    if headers.contains_key(ORIGIN) {
        HeaderValue::try_from(replica.origin()).ok()
    } else {
        None
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
    headers.insert(CONTINUITY, verdict.header());
    headers
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

/// The evidence that an SSE answer begins with (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// No cursor was asked and nothing was ever written on this stream.
    Live {
        /// The stream's epoch.
        epoch: Epoch,
    },
    /// Everything after the cursor is held and follows.
    Resumed {
        /// The stream's epoch.
        epoch: Epoch,
        /// The position that the client presented.
        from: u64,
        /// Events held after it.
        replayed: u64,
        /// The window's capacity, in events.
        window: u32,
    },
    /// Continuity is lost, and why.
    Reset {
        /// Why.
        reason: Reason,
        /// The epoch that goes on from here.
        epoch: Epoch,
    },
}

impl Verdict {
    /// As an RFC 9651 dictionary with one member.
    pub(crate) fn header(self) -> HeaderValue {
        let text = match self {
            Self::Live { epoch } => format!("live; epoch=\"{}\"", epoch.spelled()),
            Self::Resumed {
                epoch,
                from,
                replayed,
                window,
            } => format!(
                "resumed; epoch=\"{}\"; from=\"{from}\"; replayed={replayed}; window={window}",
                epoch.spelled()
            ),
            Self::Reset { reason, epoch } => format!("reset; reason={reason}; epoch=\"{}\"", epoch.spelled()),
        };
        HeaderValue::try_from(text).expect("the parts are ASCII without control characters")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolved;
    use crate::net::Authority;

    #[test]
    fn what_stays_here() {
        for (name, stays) in [
            ("origin", true),
            ("last-event-id", true),
            ("mcp-session-id", true),
            ("accept-encoding", true),
            ("authorization", false),
            ("mcp-protocol-version", false),
            ("x-own", false),
        ] {
            assert_eq!(stays_here(&HeaderName::from_static(name)), stays, "{name}");
        }
    }

    #[test]
    fn an_origin_is_told_only_if_one_was_named() {
        let replica = Replica::new(
            "tools",
            resolved::Replica {
                authority: Authority {
                    host: "10.0.0.1".into(),
                    port: 9000,
                },
                scheme: resolved::Scheme::Http,
                path: "/mcp".into(),
            },
        );
        let mut sent = HeaderMap::new();
        assert_eq!(own_origin(&sent, &replica), None);
        sent.insert(ORIGIN, HeaderValue::from_static("https://app.example"));
        assert_eq!(own_origin(&sent, &replica).unwrap(), "http://10.0.0.1:9000");
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

    #[test]
    fn the_verdict_is_a_dictionary() {
        let epoch = Epoch::from_random(0);
        for (verdict, expected) in [
            (Verdict::Live { epoch }, "live; epoch=\"AAAAAAAAAAA\""),
            (
                Verdict::Resumed {
                    epoch,
                    from: 5,
                    replayed: 12,
                    window: 1024,
                },
                "resumed; epoch=\"AAAAAAAAAAA\"; from=\"5\"; replayed=12; window=1024",
            ),
            (
                Verdict::Reset {
                    reason: Reason::WindowExceeded,
                    epoch,
                },
                "reset; reason=window_exceeded; epoch=\"AAAAAAAAAAA\"",
            ),
        ] {
            assert_eq!(verdict.header(), expected);
        }
    }
}

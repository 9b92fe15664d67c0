//! Which header fields cross the proxy, in each direction, and which are ours.
//! Law: the client's cursor and session id never reach a backend, a backend's session id never reaches a client.
//! Hop-by-hop fields are gone before this file sees a request (`downstream/endpoint.rs`, `pure/http1/head.rs`).
//! Next: `post.rs`, `get.rs`.

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, ORIGIN,
    USER_AGENT,
};
use http::{HeaderMap, HeaderValue};

use crate::pure::stream::Agent;
use crate::pure::verdict;
pub(crate) use crate::pure::verdict::Verdict;
use crate::routing::Replica;

/// `Mcp-Session-Id`.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `Last-Event-ID`.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// `MCP-Protocol-Version`.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The verdict on every SSE answer of ours (wire contract, section 4).
pub(crate) const CONTINUITY: HeaderName = HeaderName::from_static(verdict::FIELD);
/// The content type of an event stream.
const EVENT_STREAM: &[u8] = b"text/event-stream";
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a client's field stays here: its cursor, and what is said anew for each backend.
pub(crate) fn stays_here(name: &HeaderName) -> bool {
    // Nothing may transform what is read: an encoded event stream could not be followed.
    *name == ACCEPT_ENCODING || *name == ORIGIN || *name == SESSION_ID || *name == LAST_EVENT_ID
}

/// What a backend is told as its `Origin` if the client named any: the client's was judged against our own list
/// already; towards the backend we are our own, local, origin.
pub(crate) fn own_origin(headers: &HeaderMap, replica: &Replica) -> Option<HeaderValue> {
    // Looked through: there are few fields, and mostly none of this name.
    if headers.keys().any(|name| *name == ORIGIN) {
        HeaderValue::try_from(replica.origin()).ok()
    } else {
        None
    }
}

/// What passes of a backend's answer that is not an event stream of ours.
pub(crate) fn to_client(mut headers: HeaderMap) -> HeaderMap {
    // Looked through first, as above.
    if headers.keys().any(|name| *name == SESSION_ID) {
        headers.remove(SESSION_ID);
    }
    headers
}

/// The head of an event stream that the proxy answers.
pub(crate) fn of_stream(mut headers: HeaderMap, verdict: Verdict) -> HeaderMap {
    headers.remove(SESSION_ID);
    headers.remove(CONTENT_LENGTH);
    headers.remove(CONTENT_ENCODING);
    say_stream(&mut headers);
    headers.insert(CONTINUITY, spelled(verdict));
    headers
}

/// The head of an event stream on which nothing is said yet, not even how its reader stands.
pub(crate) fn of_unproved_stream() -> HeaderMap {
    let mut headers = HeaderMap::new();
    say_stream(&mut headers);
    headers
}

/// Says that an event stream follows, and that nobody may hold it back or change it.
fn say_stream(headers: &mut HeaderMap) {
    headers.insert(
        CONTENT_TYPE,
        const { HeaderValue::from_static("text/event-stream") },
    );
    headers.insert(
        CACHE_CONTROL,
        const { HeaderValue::from_static("no-cache, no-transform") },
    );
    headers.insert(ACCEL_BUFFERING, const { HeaderValue::from_static("no") });
}

fn spelled(verdict: Verdict) -> HeaderValue {
    HeaderValue::try_from(verdict.spell()).expect("the parts are ASCII without control characters")
}

/// What a request's fields say of where it belongs, found in one look at their names.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bearings<'a> {
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<&'a HeaderValue>,
    /// `MCP-Protocol-Version`.
    pub(crate) version: Option<&'a HeaderValue>,
    /// `Last-Event-ID`.
    pub(crate) cursor: Option<&'a HeaderValue>,
}

impl<'a> Bearings<'a> {
    /// Of these fields; of several of one name the first.
    pub(crate) fn of(fields: &'a HeaderMap) -> Self {
        let mut bearings = Self::default();
        for (name, value) in fields {
            let place = match name.as_str() {
                "mcp-session-id" => &mut bearings.session,
                "mcp-protocol-version" => &mut bearings.version,
                "last-event-id" => &mut bearings.cursor,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        bearings
    }
}

/// The cursor that a client presents. An empty one is how EventSource says that it has none.
pub(crate) fn cursor_of(fields: &HeaderMap) -> Option<&[u8]> {
    let cursor = fields.get(LAST_EVENT_ID)?.as_bytes().trim_ascii();
    (!cursor.is_empty()).then_some(cursor)
}

/// What kind of client this request comes from.
pub(crate) fn agent_of(headers: &HeaderMap) -> Agent {
    Agent::of(headers.get(USER_AGENT).map_or(&[][..], HeaderValue::as_bytes))
}

/// What an answer says that its body is. Looked through, as above.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut fields = headers.iter();
    fields.find_map(|(name, value)| (*name == CONTENT_TYPE).then_some(value))
}

/// Whether an answer is an event stream.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    content_type(headers).is_some_and(|value| {
        let value = value.as_bytes().trim_ascii_start();
        value
            .split_at_checked(EVENT_STREAM.len())
            .is_some_and(|(kind, rest)| {
                kind.eq_ignore_ascii_case(EVENT_STREAM)
                    && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
            })
    })
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
}

//! One field of a head: how its name and its value are read and how it is written, in either direction.
//! Law: `name: value`, CR LF; whoever gives a name and a value has them from a reader that lets no line end through.
//! Absent on purpose: which fields are written, and in which order.
//! Next: `head.rs`.

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE,
    HOST, HeaderName, HeaderValue, SERVER, USER_AGENT,
};

/// Most digits of a length.
const LENGTH_DIGITS_MAX: usize = 20;

/// What a field has beside its name and its value, in bytes.
const FIELD_BYTES: usize = 4;

/// A field's name; nothing if it is none. Those that most heads bear are told by their spelling, without being read
/// letter by letter or copied.
pub(super) fn named(name: &str) -> Option<HeaderName> {
    const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
    const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    Some(match name {
        "host" | "Host" => HOST,
        "accept" | "Accept" => ACCEPT,
        "accept-encoding" | "Accept-Encoding" => ACCEPT_ENCODING,
        "authorization" | "Authorization" => AUTHORIZATION,
        "cache-control" | "Cache-Control" => CACHE_CONTROL,
        "connection" | "Connection" => CONNECTION,
        "content-length" | "Content-Length" => CONTENT_LENGTH,
        "content-type" | "Content-Type" => CONTENT_TYPE,
        "date" | "Date" => DATE,
        "server" | "Server" => SERVER,
        "user-agent" | "User-Agent" => USER_AGENT,
        "mcp-session-id" | "Mcp-Session-Id" => SESSION_ID,
        "mcp-protocol-version" | "Mcp-Protocol-Version" | "MCP-Protocol-Version" => PROTOCOL_VERSION,
        _ => return HeaderName::from_bytes(name.as_bytes()).ok(),
    })
}

/// A value that very many heads bear, if it is one: it is told by its spelling, and neither copied nor shared.
pub(super) fn known(value: &[u8]) -> Option<HeaderValue> {
    macro_rules! spelled {
        ($text:literal) => {
            const { HeaderValue::from_static($text) }
        };
    }
    // By length: each is compared with one.
    let known = match (value.len(), value.first()?) {
        (1, _) => spelled!("*"),
        (4, b'c') => spelled!("cors"),
        (4, _) => spelled!("node"),
        (8, _) => spelled!("no-cache"),
        (13, _) => spelled!("gzip, deflate"),
        (16, _) => spelled!("application/json"),
        (17, _) => spelled!("text/event-stream"),
        (35, b'a') => spelled!("application/json, text/event-stream"),
        (35, _) => spelled!("text/event-stream, application/json"),
        _ => return None,
    };
    (known.as_bytes() == value).then_some(known)
}

/// Appends a `content-length`.
pub fn push_length(out: &mut Vec<u8>, length: u64) {
    let mut digits = [0; LENGTH_DIGITS_MAX];
    let (mut from, mut left) = (LENGTH_DIGITS_MAX, length);
    loop {
        from -= 1;
        digits[from] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    push_field(out, CONTENT_LENGTH.as_str(), &digits[from..]);
}

/// Appends one field, as it is.
pub fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + FIELD_BYTES + value.len());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_however_it_is_told() {
        for name in [
            "host",
            "Host",
            "accept",
            "Accept",
            "accept-encoding",
            "Accept-Encoding",
            "authorization",
            "Authorization",
            "cache-control",
            "Cache-Control",
            "connection",
            "Connection",
            "content-length",
            "Content-Length",
            "content-type",
            "Content-Type",
            "date",
            "Date",
            "server",
            "Server",
            "user-agent",
            "User-Agent",
            "mcp-session-id",
            "Mcp-Session-Id",
            "mcp-protocol-version",
            "Mcp-Protocol-Version",
            "MCP-Protocol-Version",
            "mCP-protocol-version",
            "x-other",
            "aCCEPT",
            "",
            "a b",
        ] {
            assert_eq!(
                named(name),
                HeaderName::from_bytes(name.as_bytes()).ok(),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_known_value_is_what_was_said() {
        let known_ones = [
            "application/json",
            "application/json, text/event-stream",
            "text/event-stream",
            "text/event-stream, application/json",
            "gzip, deflate",
            "no-cache",
            "cors",
            "node",
            "*",
        ];
        for value in known_ones {
            assert_eq!(known(value.as_bytes()).unwrap(), value);
            for other in [&value[1..], &value.to_uppercase()[..], &format!("{value} ")] {
                let told = known(other.as_bytes());
                assert!(told.is_none_or(|told| told == *other), "{other:?}");
            }
        }
        assert_eq!(known(b""), None);
    }
}

//! What browsers must be told before a page of an allowed origin may speak, and read what it is answered (CORS).
//! Law: it is told to an origin that the gate let in, on every answer, also on those that the proxy makes itself; what a
//! backend says of it is replaced, so that no field stands there twice.
//! Absent on purpose: `Access-Control-Allow-Credentials`. Cookies of another origin are no way to prove who one is here;
//! a page sends its token in a field of its own.
//! Next: `reject.rs`.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method};

/// What a page may read of an answer beside what every page may.
const EXPOSED: &str =
    "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Throughline-Continuity, Retry-After";

/// What a page may send.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");

/// How long a browser may remember that, in seconds: as long as common ones do at most.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// Whether a browser asks what a page of another origin may send.
pub(crate) fn is_preflight(method: &Method, fields: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && fields.contains_key(ORIGIN)
        && fields.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// What it is told. The fields that it asks for are allowed: which of them mean anything is the backend's business, and
/// clients have their own.
pub(crate) fn preflight(asked: &HeaderMap) -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    fields.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    for names in asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
        fields.append(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    fields.insert(
        VARY,
        HeaderValue::from_static("Access-Control-Request-Method, Access-Control-Request-Headers"),
    );
    fields
}

/// Lets a caller that was let in read an answer with these fields; one that names no origin needs nothing.
pub(crate) fn grant(caller: Option<&HeaderValue>, fields: &mut HeaderMap) {
    let Some(origin) = caller else { return };
    fields.remove(ACCESS_CONTROL_ALLOW_CREDENTIALS);
    fields.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    let mut exposed = EXPOSED.to_owned();
    for name in fields.get_all(ACCESS_CONTROL_EXPOSE_HEADERS) {
        for name in name.to_str().unwrap_or_default().split(',').map(str::trim) {
            let known = exposed.split(", ").any(|one| one.eq_ignore_ascii_case(name));
            if !name.is_empty() && !known {
                exposed.push_str(", ");
                exposed.push_str(name);
            }
        }
    }
    let exposed = HeaderValue::try_from(exposed).unwrap_or(HeaderValue::from_static(EXPOSED));
    fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    let varies = |value: &HeaderValue| {
        let mut names = value.to_str().unwrap_or_default().split(',').map(str::trim);
        names.any(|name| name == "*" || name.eq_ignore_ascii_case("origin"))
    };
    if !fields.get_all(VARY).iter().any(varies) {
        fields.append(VARY, HeaderValue::from_static("Origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> HeaderMap {
        text.lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[track_caller]
    fn check(answered: &str, expected: &[(&str, &[&str])]) {
        let mut answered = fields(answered);
        grant(
            Some(&HeaderValue::from_static("https://app.example")),
            &mut answered,
        );
        for (name, values) in expected {
            let found: Vec<&str> = answered
                .get_all(*name)
                .iter()
                .map(|v| v.to_str().unwrap())
                .collect();
            assert_eq!(found, *values, "{name}");
        }
    }

    #[test]
    fn an_answer_says_each_field_once() {
        const OWN: &[&str] = &["https://app.example"];
        check(
            "content-type: text/plain",
            &[
                ("access-control-allow-origin", OWN),
                ("access-control-expose-headers", &[EXPOSED]),
                ("vary", &["Origin"]),
            ],
        );
        check(
            "access-control-allow-origin: *\naccess-control-allow-credentials: true\naccess-control-expose-headers: mcp-session-id, X-Own\nvary: Accept",
            &[
                ("access-control-allow-origin", OWN),
                ("access-control-allow-credentials", &[]),
                (
                    "access-control-expose-headers",
                    &[
                        "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Throughline-Continuity, Retry-After, X-Own",
                    ],
                ),
                ("vary", &["Accept", "Origin"]),
            ],
        );
        check("vary: accept, ORIGIN", &[("vary", &["accept, ORIGIN"])]);
        check("vary: *", &[("vary", &["*"])]);
        let mut same = fields("access-control-allow-origin: *");
        grant(None, &mut same);
        assert_eq!(same, fields("access-control-allow-origin: *"));
    }

    #[test]
    fn what_is_a_preflight() {
        for (method, text, expected) in [
            (
                Method::OPTIONS,
                "origin: https://a\naccess-control-request-method: POST",
                true,
            ),
            (Method::OPTIONS, "origin: https://a", false),
            (Method::OPTIONS, "access-control-request-method: POST", false),
            (
                Method::POST,
                "origin: https://a\naccess-control-request-method: POST",
                false,
            ),
        ] {
            assert_eq!(is_preflight(&method, &fields(text)), expected, "{method} {text}");
        }
    }
}

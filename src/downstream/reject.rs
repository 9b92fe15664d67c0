//! The only file that knows HTTP status codes: what is refused, and what a client is told.
//! Law: every refusal is matched; a request with an id that was not executed gets 200 and a JSON-RPC error, since a
//! status other than 404 ends whole clients (wire contract, section 6).
//! Why plain text for refusals of the connection's kind: one SDK hangs on a JSON-RPC error without an id.
//! Next: `relay/mod.rs`.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::pure::refusal::{self, Failure};
use crate::pure::rpc::RequestId;
use crate::relay::answer::{NoAnswer, Refused};
use crate::telemetry::words::Turned;

/// What the client side itself refuses, before anybody was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reject {
    /// The request contradicts itself or HTTP.
    Malformed {
        /// What it has.
        what: &'static str,
    },
    /// Its host is not served by this listener: 421.
    HostNotServed {
        /// The host; empty if there was none.
        host: String,
    },
    /// Its origin is not allowed: 403.
    OriginNotAllowed {
        /// The origin as it came.
        origin: String,
    },
    /// No upstream has this path: 404.
    NoSuchPath {
        /// Those that are served, one a line.
        paths: String,
    },
    /// CONNECT and TRACE are never served: 405.
    MethodNotServed,
    /// A transfer coding other than `chunked`: 501.
    CodingNotServed,
    /// Its body is longer than allowed: 413.
    BodyTooLarge {
        /// The bound, in bytes.
        bytes_max: usize,
    },
    /// Its body did not arrive in time: 408.
    BodyTooSlow,
    /// Its body is malformed, or broke off: 400.
    BodyBroken,
    /// Too many long bodies are being read: 503.
    TooManyBodies,
}

/// What is said to a connection whose request could not even be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unheard {
    /// All seats are taken.
    TooManyConnections,
    /// The head did not arrive in time.
    HeadTooSlow,
}

/// Longest part of a request that is repeated to the client, in bytes.
const ECHO_BYTES_MAX: usize = 100;

impl Reject {
    /// The response.
    pub(crate) fn response(&self) -> Response<Bytes> {
        match self {
            Self::Malformed { what } => text(StatusCode::BAD_REQUEST, &format!("The request has {what}.\n")),
            Self::HostNotServed { host } => text(
                StatusCode::MISDIRECTED_REQUEST,
                &format!(
                    "The host `{}` is not served here. If it should be, add it to `allowed_hosts` under \
                     `[server]` in the proxy's configuration.\n",
                    echo(host)
                ),
            ),
            Self::OriginNotAllowed { origin } => text(
                StatusCode::FORBIDDEN,
                &format!(
                    "The origin `{}` may not ask here. If it should, add it to `allowed_origins` under \
                     `[server]` in the proxy's configuration.\n",
                    echo(origin)
                ),
            ),
            Self::NoSuchPath { paths } => text(
                StatusCode::NOT_FOUND,
                &format!("Nothing is served at this path. Served are:\n{paths}\n"),
            ),
            Self::MethodNotServed => allow(text(
                StatusCode::METHOD_NOT_ALLOWED,
                "This method is not served.\n",
            )),
            Self::CodingNotServed => text(
                StatusCode::NOT_IMPLEMENTED,
                "The only transfer coding served is `chunked`.\n",
            ),
            Self::BodyTooLarge { bytes_max } => text(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!(
                    "The body is longer than {bytes_max} bytes, which is `body_bytes_max` under `[server]` in the \
                     proxy's configuration.\n"
                ),
            ),
            Self::BodyTooSlow => text(StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time.\n"),
            Self::BodyBroken => text(StatusCode::BAD_REQUEST, "The body is malformed or incomplete.\n"),
            Self::TooManyBodies => again(
                text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Too many long bodies are being read.\n",
                ),
                Duration::from_secs(1),
            ),
        }
    }

    /// The word for it in metrics and logs.
    pub(crate) const fn word(&self) -> Turned {
        match self {
            Self::Malformed { .. } | Self::CodingNotServed | Self::BodyBroken => Turned::Malformed,
            Self::HostNotServed { .. } => Turned::Host,
            Self::OriginNotAllowed { .. } => Turned::Origin,
            Self::NoSuchPath { .. } => Turned::NoSuchPath,
            Self::MethodNotServed => Turned::Method,
            Self::BodyTooLarge { .. } => Turned::BodyTooLarge,
            Self::BodyTooSlow => Turned::BodyTimeout,
            Self::TooManyBodies => Turned::TooManyBodies,
        }
    }
}

impl Unheard {
    /// The word for it in metrics and logs.
    pub(crate) const fn word(self) -> Turned {
        match self {
            Self::TooManyConnections => Turned::TooManyConnections,
            Self::HeadTooSlow => Turned::HeadTimeout,
        }
    }

    /// The whole response, literally: there is no request for hyper to answer.
    pub(crate) const fn bytes(self) -> &'static [u8] {
        match self {
            Self::TooManyConnections => {
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-type: text/plain; charset=utf-8\r\n\
                  content-length: 46\r\nconnection: close\r\n\r\nThe proxy's bound on connections was reached.\n"
            }
            Self::HeadTooSlow => {
                b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\n\
                  content-length: 43\r\nconnection: close\r\n\r\nThe request's head did not arrive in time.\n"
            }
        }
    }
}

/// A refusal of the relay as a response.
pub(crate) fn refused(refused: Refused) -> Response<Bytes> {
    match refused {
        Refused::SessionGone => json(StatusCode::NOT_FOUND, Bytes::from_static(refusal::session_gone())),
        Refused::NothingToResume => allow(text(
            StatusCode::METHOD_NOT_ALLOWED,
            "There is no stream here, and nothing to resume.\n",
        )),
        Refused::NotExecuted { ids, why } => errors(StatusCode::OK, &ids, why.failure()),
        Refused::OutcomeUnknown { ids, reason } => errors(StatusCode::OK, &ids, Failure::Lost { reason }),
        Refused::StandsAlone { ids, why } => match why {
            NoAnswer::NotExecuted { why, retry_after } => again(
                errors(StatusCode::SERVICE_UNAVAILABLE, &ids, why.failure()),
                retry_after,
            ),
            NoAnswer::OutcomeUnknown { reason } => {
                errors(StatusCode::BAD_GATEWAY, &ids, Failure::Lost { reason })
            }
        },
        Refused::Unproved { retry_after } => again(
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "Whether the server accepts this credential could not be learnt. Nothing was done.\n",
            ),
            retry_after,
        ),
        Refused::StreamStalled { retry_after } => again(
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "Too much waits on the session's stream, which is not read.\n",
            ),
            retry_after,
        ),
        Refused::NoReplica { retry_after } => again(
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "No replica of the server is healthy.\n",
            ),
            retry_after,
        ),
        Refused::TooManySessions { retry_after } => again(
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "The bound on sessions was reached.\n",
            ),
            retry_after,
        ),
        Refused::BadInitialize { what } | Refused::BadEndpoint { what } => text(
            StatusCode::BAD_GATEWAY,
            &format!("No session can be made of the server's answer: {what}.\n"),
        ),
        Refused::BackendUnreachable => text(StatusCode::BAD_GATEWAY, "The server could not be reached.\n"),
        Refused::BackendTimeout => text(
            StatusCode::GATEWAY_TIMEOUT,
            "The server did not answer in time.\n",
        ),
    }
}

/// The answer to a preflight, with these fields.
pub(crate) fn preflight(fields: HeaderMap) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    *response.headers_mut() = fields;
    response
}

/// One JSON-RPC error for each request.
fn errors(status: StatusCode, ids: &[RequestId], failure: Failure) -> Response<Bytes> {
    json(status, refusal::errors(ids, failure).into())
}

fn text(status: StatusCode, words: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(words.as_bytes()));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn allow(mut response: Response<Bytes>) -> Response<Bytes> {
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    response
}

/// Whole seconds, at least one: `Retry-After: 0` invites a hot loop.
fn again(mut response: Response<Bytes>, after: Duration) -> Response<Bytes> {
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    response
}

/// What of a request is repeated in an answer: printable ASCII, cut at a bound.
fn echo(text: &str) -> String {
    text.chars()
        .take(ECHO_BYTES_MAX)
        .map(|c| if c.is_ascii_graphic() && c != '`' { c } else { '?' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_refusals_have_the_length_they_say() {
        for why in [Unheard::TooManyConnections, Unheard::HeadTooSlow] {
            let text = std::str::from_utf8(why.bytes()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("content-length: {}\r\n", body.len())),
                "{why:?}: {}",
                body.len()
            );
        }
    }
}

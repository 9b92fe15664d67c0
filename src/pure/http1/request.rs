//! A request as nearly every client sends it: its head from the bytes of one read, its body from them or the next ones.
//! Law: what is taken here means the same to every reader of HTTP, hyper among them. Whatever is not so is left to
//! hyper, byte for byte: this reader refuses nothing, so it can be too narrow and never wrong.
//! Absent on purpose: chunked bodies, a head in pieces, `Expect`, `Origin`, upgrades, HTTP/1.0, other methods.
//! Why beside hyper: of what a small call costs, two fifths were hyper's machinery around such a request.
//! Next: `chunk.rs`.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, ORIGIN, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use super::field::{known, named};
use super::head::decimal;
use crate::pure::limits::USUAL_FIELDS_MAX;

/// How long a request may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestBounds {
    /// Longest head, in bytes.
    pub head_bytes_max: usize,
    /// Longest body, in bytes.
    pub body_bytes_max: usize,
}

/// What stands at the start of some bytes.
#[derive(Debug)]
pub enum Reading {
    /// A usual request, and all of it.
    Whole(Usual),
    /// The head of a usual request, and not all of its body. Some clients send the two one after the other.
    Headed(Headed),
    /// Something else, or less than a head.
    Unusual,
}

/// A request that came whole.
#[derive(Debug)]
pub struct Usual {
    /// The request, without the fields that only frame it; its fields and its body are slices of what was read, but for
    /// values that very many requests bear. Boxed: it is handed on many times.
    pub request: Box<Request<Bytes>>,
    /// Bytes that it took. *Next*: what stands behind them belongs to the next request.
    pub consumed: usize,
}

/// A request whose body is still to come, or a part of it.
#[derive(Debug)]
pub struct Headed {
    /// With what has come of its body.
    request: Box<Request<Bytes>>,
    missing: usize,
}

impl Headed {
    /// Bytes of the body still to come; at least one.
    pub const fn missing(&self) -> usize {
        self.missing
    }

    /// The whole request, with the bytes that came next, of which it takes [`Headed::missing`]; nothing if they are
    /// fewer.
    pub fn followed_by(self, rest: &Bytes) -> Option<Usual> {
        let Self {
            mut request,
            missing: consumed,
        } = self;
        if rest.len() < consumed {
            return None;
        }
        let rest = rest.slice(..consumed);
        let body = request.body_mut();
        *body = if body.is_empty() {
            rest
        } else {
            [&body[..], &rest[..]].concat().into()
        };
        Some(Usual { request, consumed })
    }
}

/// Reads the request at the start of `bytes`, if it is a usual one.
pub fn read_usual(bytes: &Bytes, bounds: RequestBounds) -> Reading {
    let Some((mut request, head_len, body_len)) = read_head(bytes, bounds) else {
        return Reading::Unusual;
    };
    let consumed = head_len + body_len;
    *request.body_mut() = bytes.slice(head_len..consumed.min(bytes.len()));
    match consumed.saturating_sub(bytes.len()) {
        0 => Reading::Whole(Usual { request, consumed }),
        missing => Reading::Headed(Headed { request, missing }),
    }
}

/// The head of a usual request, as a request without its body, its length, and its body's.
fn read_head(bytes: &Bytes, bounds: RequestBounds) -> Option<(Box<Request<Bytes>>, usize, usize)> {
    let mut fields = [const { MaybeUninit::uninit() }; USUAL_FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status =
        httparse::ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, bytes, &mut fields);
    let Ok(httparse::Status::Complete(head_len)) = status else {
        return None;
    };
    // A blank line with a bare LF is one that another reader could end elsewhere.
    let ends_in_one_way = bytes[..head_len].ends_with(b"\r\n\r\n");
    if !ends_in_one_way || head_len > bounds.head_bytes_max || parsed.version != Some(1) {
        return None;
    }
    let method = match parsed.method? {
        "POST" => Method::POST,
        "GET" => Method::GET,
        "DELETE" => Method::DELETE,
        _ => return None,
    };
    let target = parsed.path.filter(|path| path.starts_with('/'))?;
    let target = Uri::from_maybe_shared(bytes.slice_ref(target.as_bytes())).ok()?;
    let (headers, length) = sort(bytes, parsed.headers)?;
    let body_len = match length {
        Length::Never if method == Method::POST => return None,
        Length::Never => 0,
        Length::Once(length) => usize::try_from(length).ok()?,
    };
    if body_len > bounds.body_bytes_max {
        return None;
    }
    let mut request = Box::new(Request::new(Bytes::new()));
    *request.method_mut() = method;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    Some((request, head_len, body_len))
}

/// Whether a length was said.
#[derive(Clone, Copy)]
enum Length {
    Never,
    Once(u64),
}

/// The fields but those that only frame the request, and the length that they say; nothing if one of them makes the request an unusual one.
fn sort(bytes: &Bytes, fields: &[httparse::Header<'_>]) -> Option<(HeaderMap, Length)> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    let mut length = Length::Never;
    for field in fields {
        match Meaning::of(field.name) {
            Meaning::Length => {
                length = match length {
                    Length::Never => Length::Once(decimal(field.value)?),
                    Length::Once(_) => return None,
                };
            }
            Meaning::Reuse if field.value.eq_ignore_ascii_case(b"keep-alive") => {}
            Meaning::Reuse | Meaning::Unusual => return None,
            Meaning::Message => {
                let value = match known(field.value) {
                    Some(value) => value,
                    None => HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?,
                };
                headers.try_append(named(field.name)?, value).ok()?;
            }
        }
    }
    Some((headers, length))
}

/// What a field is about.
#[derive(Clone, Copy)]
enum Meaning {
    /// The message.
    Message,
    /// The length of its body.
    Length,
    /// What becomes of the connection.
    Reuse,
    /// Something that makes the request an unusual one.
    Unusual,
}

impl Meaning {
    /// By its name. Its length tells most fields of the message apart from the others.
    fn of(name: &str) -> Self {
        let is = |other: &HeaderName| name.eq_ignore_ascii_case(other.as_str());
        match name.len() {
            6 if is(&EXPECT) => Self::Unusual,
            // Browsers are told more (CORS), and are in no hurry.
            6 if is(&ORIGIN) => Self::Unusual,
            7 if is(&UPGRADE) => Self::Unusual,
            10 if is(&CONNECTION) => Self::Reuse,
            14 if is(&CONTENT_LENGTH) => Self::Length,
            17 if is(&TRANSFER_ENCODING) => Self::Unusual,
            _ => Self::Message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: RequestBounds = RequestBounds {
        head_bytes_max: 200,
        body_bytes_max: 20,
    };

    /// Reads; answers the request in one line, or nothing if it is not usual.
    fn read(text: &str) -> Option<String> {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        match read_usual(&bytes, BOUNDS) {
            Reading::Whole(usual) => Some(print(&usual, text.len() - usual.consumed)),
            Reading::Headed(_) | Reading::Unusual => None,
        }
    }

    fn print(usual: &Usual, ahead: usize) -> String {
        let request = &usual.request;
        let fields = request.headers().iter();
        let fields: Vec<String> = fields
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        let body = std::str::from_utf8(request.body()).unwrap();
        format!(
            "{} {} [{}] {body:?} +{ahead}",
            request.method(),
            request.uri(),
            fields.join(" "),
        )
    }

    /// Reads the head of a text that is cut there, and then what follows; nothing if there was no head.
    fn read_in_two(text: &str, cut: usize) -> Option<String> {
        let [begun, rest] = [&text[..cut], &text[cut..]].map(|part| Bytes::copy_from_slice(part.as_bytes()));
        let Reading::Headed(headed) = read_usual(&begun, BOUNDS) else {
            return None;
        };
        let missing = headed.missing();
        let usual = headed.followed_by(&rest).expect("all of it");
        assert_eq!(usual.consumed, missing);
        Some(print(&usual, rest.len() - missing))
    }

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(read(text).as_deref(), expected, "{text:?}");
        let Some(whole) = &expected else { return };
        let ahead: usize = whole.rsplit('+').next().unwrap().parse().unwrap();
        let headed = text.find("\r\n\r\n").unwrap() + 4;
        for cut in 0..text.len() - ahead {
            assert_eq!(read(&text[..cut]), None, "cut at {cut}: {text:?}");
            let in_two = expected.filter(|_| cut >= headed);
            assert_eq!(
                read_in_two(text, cut).as_deref(),
                in_two,
                "cut at {cut}: {text:?}"
            );
        }
    }

    #[test]
    fn what_is_usual() {
        for (text, expected) in [
            (
                "POST /mcp HTTP/1.1\r\nHost: a:1\r\nContent-Length: 2\r\n\r\n{}",
                r#"POST /mcp [host=a:1] "{}" +0"#,
            ),
            (
                "POST /mcp?x=1 HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\nconnection: Keep-Alive\r\nmcp-session-id: s\r\nMcp-Session-Id: t\r\n\r\n",
                r#"POST /mcp?x=1 [host=a mcp-session-id=s mcp-session-id=t] "" +0"#,
            ),
            (
                "GET /mcp HTTP/1.1\r\nhost: a\r\naccept: x\r\naccept:  y \r\n\r\n",
                r#"GET /mcp [host=a accept=x accept=y] "" +0"#,
            ),
            ("DELETE / HTTP/1.1\r\n\r\n", r#"DELETE / [] "" +0"#),
            (
                "GET / HTTP/1.1\r\ncontent-length: 1\r\n\r\nxGET /",
                r#"GET / [] "x" +5"#,
            ),
        ] {
            check(text, Some(expected));
        }
    }

    #[test]
    fn what_is_left_to_hyper() {
        let long_body = format!("POST / HTTP/1.1\r\ncontent-length: 21\r\n\r\n{}", "x".repeat(21));
        let long_head = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(200));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a:\r\n".repeat(USUAL_FIELDS_MAX + 1));
        for text in [
            "",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "POST / HTTP/1.0\r\ncontent-length: 0\r\n\r\n",
            "POST / HTTP/1.1\r\n\r\n",
            "PUT / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
            "HEAD / HTTP/1.1\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\n\r\n",
            "post / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\n\r\n",
            "GET a HTTP/1.1\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\nx\r\n\r\n",
            "GET / HTTP/1.1\r\n\nx\r\n\r\n",
            "GET / HTTP/1.1\r\na : b\r\n\r\n",
            "GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\na: b\0\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\nx",
            "POST / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\nx",
            "POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\nx",
            "POST / HTTP/1.1\r\ncontent-length:\r\n\r\nx",
            "POST / HTTP/1.1\r\ncontent-length: 18446744073709551615\r\n\r\nx",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\nx",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\nx",
            "GET / HTTP/1.1\r\nconnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\norigin: https://a\r\n\r\n",
            "GET / HTTP/1.1\r\nconnection: keep-alive, x-own\r\n\r\n",
            "GET / HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: h2c\r\n\r\n",
            "GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n",
            &long_body,
            &long_head,
            &many,
        ] {
            check(text, None);
        }
    }
}

//! The head of a request to write, and the head of an answer to read.
//! Law: an answer whose end can be found in two ways is refused (RFC 9112, section 6.3, without its leniences).
//! What belongs to one connection is dropped on both ways: framing and reuse are told by types instead.
//! Absent on purpose: bodies, upgrades and trailers. Heads are read whole: a partial one is read again when more came.
//! Next: `request.rs`.

use std::fmt;
use std::mem::MaybeUninit;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use memchr::memchr_iter;

use super::field::{known, named, push_field, push_length};
use super::hop::{Nominated, is_hop_by_hop};
use crate::pure::limits::{INTERIM_ANSWERS_MAX, RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};

/// How the end of a request's body is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyLength {
    /// There is no body, and nothing is said of one. For a POST, say `Exactly(0)`.
    None,
    /// So many bytes.
    Exactly(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// How the end of an answer's body is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body.
    Empty,
    /// So many bytes; 0 is possible.
    Length(u64),
    /// Chunked transfer coding, and no other.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Whether a connection may carry another request once the body has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reuse {
    /// It may.
    KeepAlive,
    /// It may not: the upstream said so, or the end of the body is the end of the connection.
    Close,
}

/// The head of a final answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseHead {
    /// The status; never 1xx.
    pub status: StatusCode,
    /// The fields, without those that belong to the connection. `content-length` is kept.
    pub headers: HeaderMap,
    /// Where the body ends.
    pub framing: Framing,
    /// What becomes of the connection.
    pub reuse: Reuse,
}

/// What was found at the start of some bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// Not yet a whole head. *Next*: read more and try again with all the bytes.
    Partial,
    /// A whole head. *Next*: its body, which starts behind `consumed`.
    Whole {
        /// The head.
        head: ResponseHead,
        /// Bytes that it took, with the interim answers before it.
        consumed: usize,
    },
}

/// Why a head was refused: always the upstream's fault. The connection can't be used again, and what was asked on it
/// may have been executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeadError {
    /// The bytes are no HTTP/1.x answer at all.
    NotHttp,
    /// A version other than 1.0 and 1.1.
    Version,
    /// A malformed status line.
    Status,
    /// A malformed field: a blank before the colon, a folded line, a byte that may not stand there.
    Field,
    /// A line that ends otherwise than in CR LF.
    LineEnd,
    /// More than [`RESPONSE_HEAD_BYTES_MAX`] bytes, interim answers included.
    TooLong,
    /// More than [`RESPONSE_FIELDS_MAX`] fields.
    TooManyFields,
    /// More than [`INTERIM_ANSWERS_MAX`] interim answers.
    TooManyInterim,
    /// A switch to another protocol, which nobody asked for.
    Switched,
    /// A length that is no decimal number, or past the end of `u64`.
    Length,
    /// More than one length, be they equal or not.
    SeveralLengths,
    /// Both a length and a transfer coding.
    LengthAndCoding,
    /// A transfer coding other than `chunked` alone, or any in an HTTP/1.0 answer.
    Coding,
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::NotHttp => "something that is not HTTP",
            Self::Version => "an HTTP version that is neither 1.0 nor 1.1",
            Self::Status => "a malformed status line",
            Self::Field => "a malformed header field",
            Self::LineEnd => "a header line that does not end in CR LF",
            Self::TooLong => "a head that is too long",
            Self::TooManyFields => "too many header fields",
            Self::TooManyInterim => "too many interim answers",
            Self::Switched => "a switch of protocols that nobody asked for",
            Self::Length => "a content-length that is no number",
            Self::SeveralLengths => "more than one content-length",
            Self::LengthAndCoding => "both a content-length and a transfer-encoding",
            Self::Coding => "a transfer-encoding other than chunked",
        };
        write!(f, "the upstream sent {what}")
    }
}

impl std::error::Error for HeadError {}

/// What the head of a request says.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path with its query.
    pub target: &'a str,
    /// The upstream's own authority.
    pub host: &'a str,
    /// The other fields.
    pub headers: &'a HeaderMap,
    /// Which of them stay here.
    pub withheld: fn(&HeaderName) -> bool,
    /// Fields that the proxy says in its own name.
    pub own: &'a [Option<(&'static str, &'a HeaderValue)>],
    /// How long the body is.
    pub body: BodyLength,
}

/// Appends the head of a request, with its blank line.
///
/// Of `headers`, what belongs to the client's
/// connection is dropped (what `connection` names included), and `host`, `content-length`, `transfer-encoding` and
/// `expect` with it: the first three are written from the arguments, and nobody waits for a `100`.
/// A control character or a blank in `target` or `host` is percent-encoded: no argument can end the line early.
pub fn write_request(out: &mut Vec<u8>, request: &RequestHead<'_>) {
    let RequestHead {
        method,
        target,
        host,
        headers,
        withheld,
        own,
        body,
    } = *request;
    out.extend_from_slice(method.as_str().as_bytes());
    out.push(b' ');
    push_visible(out, target);
    out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    push_visible(out, host);
    out.extend_from_slice(b"\r\n");
    let nominated = Nominated::of(headers);
    for (name, value) in headers {
        let is_ours = *name == HOST || *name == CONTENT_LENGTH || *name == EXPECT;
        if is_ours || is_hop_by_hop(name) || nominated.has(name) || withheld(name) {
            continue;
        }
        push_field(out, name.as_str(), value.as_bytes());
    }
    for (name, value) in own.iter().flatten() {
        push_field(out, name, value.as_bytes());
    }
    match body {
        BodyLength::None => {}
        BodyLength::Exactly(len) => push_length(out, len),
        BodyLength::Chunked => push_field(out, TRANSFER_ENCODING.as_str(), b"chunked"),
    }
    out.extend_from_slice(b"\r\n");
}

fn push_visible(out: &mut Vec<u8>, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, 0..=b' ' | 0x7f)) {
        let byte = rest[at];
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[
            b'%',
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 0xf)],
        ]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Reads the head of the answer to a request of `for_method`, at the start of `buf`. Interim answers (1xx) before it are
/// skipped.
///
/// # Errors
/// [`HeadError`], as soon as it is certain that no head of ours can come of these bytes.
pub fn read_response(buf: &[u8], for_method: &Method) -> Result<Read, HeadError> {
    let mut at = 0;
    for _ in 0..=INTERIM_ANSWERS_MAX {
        let Some(len) = head_len(&buf[at..], RESPONSE_HEAD_BYTES_MAX - at)? else {
            return Ok(Read::Partial);
        };
        let head = read_head(&buf[at..at + len], for_method)?;
        at += len;
        if !head.status.is_informational() {
            return Ok(Read::Whole { head, consumed: at });
        }
    }
    Err(HeadError::TooManyInterim)
}

/// Where the head ends that starts with `buf`, if its blank line has come; at most `max` bytes.
fn head_len(buf: &[u8], max: usize) -> Result<Option<usize>, HeadError> {
    const START: &[u8] = b"HTTP/";
    let len = START.len().min(buf.len());
    if buf[..len] != START[..len] {
        return Err(HeadError::NotHttp);
    }
    let mut line_at = 0;
    for at in memchr_iter(b'\n', &buf[..buf.len().min(max)]) {
        match &buf[line_at..at] {
            [b'\r'] => return Ok(Some(at + 1)),
            [.., b'\r'] => line_at = at + 1,
            [..] => return Err(HeadError::LineEnd),
        }
    }
    if buf.len() >= max {
        Err(HeadError::TooLong)
    } else {
        Ok(None)
    }
}

/// Reads a head that is whole.
fn read_head(bytes: &[u8], for_method: &Method) -> Result<ResponseHead, HeadError> {
    let mut fields = [const { MaybeUninit::uninit() }; RESPONSE_FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut fields,
    );
    let (Some(version), Some(code)) = (match parsed {
        Ok(httparse::Status::Complete(len)) if len == bytes.len() => (response.version, response.code),
        Ok(httparse::Status::Complete(_) | httparse::Status::Partial) => return Err(HeadError::Field),
        Err(error) => return Err(HeadError::from(error)),
    }) else {
        return Err(HeadError::Status);
    };
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::Status)?;
    let version = if version == 0 {
        Version::Http10
    } else {
        Version::Http11
    };
    let (headers, told) = sort(response.headers)?;
    let framing = framing(status, version, &told, for_method)?;
    let reuse = reuse(status, version, &told, framing);
    Ok(ResponseHead {
        status,
        headers,
        framing,
        reuse,
    })
}

/// What the fields of a head say of its body's end and of its connection.
#[derive(Default)]
struct Told<'a> {
    coding: Times<'a>,
    length: Times<'a>,
    connection: Nominated<'a>,
}

/// How often a field that may stand once stands there.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Times<'a> {
    #[default]
    Never,
    Once(&'a [u8]),
    Often,
}

impl<'a> Times<'a> {
    fn and(self, value: &'a [u8]) -> Self {
        match self {
            Self::Never => Self::Once(value),
            Self::Once(_) | Self::Often => Self::Often,
        }
    }
}

/// Parts the fields into those of the message and what those of the connection say.
fn sort<'a>(fields: &[httparse::Header<'a>]) -> Result<(HeaderMap, Told<'a>), HeadError> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    let mut told = Told::default();
    for field in fields {
        let name = named(field.name).ok_or(HeadError::Field)?;
        let value = match known(field.value) {
            Some(value) => value,
            None => HeaderValue::from_bytes(field.value).map_err(|_| HeadError::Field)?,
        };
        if name == CONTENT_LENGTH {
            told.length = told.length.and(field.value);
        } else if name == TRANSFER_ENCODING {
            told.coding = told.coding.and(field.value);
        } else if name == CONNECTION {
            told.connection.add(field.value);
        }
        if !is_hop_by_hop(&name) {
            headers
                .try_append(name, value)
                .map_err(|_| HeadError::TooManyFields)?;
        }
    }
    for token in told.connection.tokens() {
        if let Ok(name) = HeaderName::from_bytes(token) {
            headers.remove(name);
        }
    }
    Ok((headers, told))
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::Version => Self::Version,
            httparse::Error::Status | httparse::Error::Token => Self::Status,
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::HeaderName | httparse::Error::HeaderValue => Self::Field,
            httparse::Error::NewLine => Self::LineEnd,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

/// Where the body ends, if that can be read in one way only.
fn framing(
    status: StatusCode,
    version: Version,
    told: &Told<'_>,
    for_method: &Method,
) -> Result<Framing, HeadError> {
    if status == StatusCode::SWITCHING_PROTOCOLS || (*for_method == Method::CONNECT && status.is_success()) {
        return Err(HeadError::Switched);
    }
    let told = match (coding(version, told.coding)?, length(told.length)?) {
        (Some(_), Some(_)) => return Err(HeadError::LengthAndCoding),
        (Some(framing), None) | (None, Some(framing)) => framing,
        (None, None) => Framing::UntilClose,
    };
    Ok(if has_no_body(status, for_method) {
        Framing::Empty
    } else {
        told
    })
}

/// Whether an answer of this status to such a request never has a body.
pub fn has_no_body(status: StatusCode, for_method: &Method) -> bool {
    status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || *for_method == Method::HEAD
}

fn coding(version: Version, told: Times<'_>) -> Result<Option<Framing>, HeadError> {
    match told {
        Times::Never => Ok(None),
        Times::Once(value) if version == Version::Http11 && value.eq_ignore_ascii_case(b"chunked") => {
            Ok(Some(Framing::Chunked))
        }
        Times::Once(_) | Times::Often => Err(HeadError::Coding),
    }
}

fn length(told: Times<'_>) -> Result<Option<Framing>, HeadError> {
    match told {
        Times::Never => Ok(None),
        Times::Often => Err(HeadError::SeveralLengths),
        Times::Once(several) if several.contains(&b',') => Err(HeadError::SeveralLengths),
        Times::Once(digits) => decimal(digits)
            .map(|len| Some(Framing::Length(len)))
            .ok_or(HeadError::Length),
    }
}

/// A decimal number, digits only.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |n, digit| match digit {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn reuse(status: StatusCode, version: Version, told: &Told<'_>, framing: Framing) -> Reuse {
    // A 204 with a body announced: some servers send one, and the next answer would be read from its middle.
    let may_be_followed = status == StatusCode::NO_CONTENT
        && (told.coding != Times::Never || !matches!(told.length, Times::Never | Times::Once(b"0")));
    let is_kept = match version {
        Version::Http11 => true,
        Version::Http10 => told.connection.says("keep-alive"),
    };
    if is_kept && !told.connection.says("close") && !may_be_followed && framing != Framing::UntilClose {
        Reuse::KeepAlive
    } else {
        Reuse::Close
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    #[test]
    fn a_request_has_one_spelling() {
        fn check(target: &str, fields: &[(&str, &str)], body: BodyLength, wanted: &str) {
            let mut out = Vec::new();
            let headers = map(fields);
            let request = RequestHead {
                method: &Method::POST,
                target,
                host: "h:1",
                headers: &headers,
                withheld: |name| name == "x-withheld",
                own: &[None, Some(("x-own", &HeaderValue::from_static("1")))],
                body,
            };
            write_request(&mut out, &request);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
        check(
            "/mcp",
            &[],
            BodyLength::None,
            "POST /mcp HTTP/1.1\r\nhost: h:1\r\nx-own: 1\r\n\r\n",
        );
        check(
            "/mcp?a=b",
            &[("Accept", "a"), ("accept", "b")],
            BodyLength::Exactly(0),
            "POST /mcp?a=b HTTP/1.1\r\nhost: h:1\r\naccept: a\r\naccept: b\r\nx-own: 1\r\ncontent-length: 0\r\n\r\n",
        );
        check(
            "/",
            &[("x", "")],
            BodyLength::Chunked,
            "POST / HTTP/1.1\r\nhost: h:1\r\nx: \r\nx-own: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        // What is ours or the connection's is not taken from the client.
        check(
            "/",
            &[
                ("host", "evil"),
                ("content-length", "5"),
                ("transfer-encoding", "chunked"),
                ("connection", "close, X-Private ,,keep-alive"),
                ("connection", "x-other"),
                ("x-private", "1"),
                ("x-other", "1"),
                ("keep-alive", "1"),
                ("proxy-connection", "1"),
                ("proxy-authorization", "1"),
                ("te", "trailers"),
                ("trailer", "x"),
                ("upgrade", "h2c"),
                ("expect", "100-continue"),
                ("x-withheld", "1"),
                ("authorization", "Bearer x"),
            ],
            BodyLength::Exactly(u64::MAX),
            "POST / HTTP/1.1\r\nhost: h:1\r\nauthorization: Bearer x\r\nx-own: 1\r\ncontent-length: 18446744073709551615\r\n\r\n",
        );
        // No argument ends the line early.
        check(
            "/a b\r\nx: \u{7f}\u{e9}",
            &[],
            BodyLength::None,
            "POST /a%20b%0D%0Ax:%20%7F\u{e9} HTTP/1.1\r\nhost: h:1\r\nx-own: 1\r\n\r\n",
        );
    }

    /// Tries a head cut at every place: all before its end must be partial, unless the end is an error.
    fn read(bytes: &[u8], method: &Method) -> Result<Read, HeadError> {
        let whole = read_response(bytes, method);
        for at in 0..bytes.len() {
            match (read_response(&bytes[..at], method), &whole) {
                (Ok(Read::Partial), _) => {
                    let is_over = matches!(&whole, Ok(Read::Whole { consumed, .. }) if *consumed <= at);
                    assert!(!is_over, "partial at {at}: {}", bytes.escape_ascii());
                }
                (part, whole) => assert_eq!(part, *whole, "cut at {at}: {}", bytes.escape_ascii()),
            }
        }
        whole
    }

    #[test]
    fn the_end_of_a_body_is_told_in_one_way() {
        fn check(method: Method, head: &str, framing: Framing, reuse: Reuse) {
            let bytes = [head.as_bytes(), b"HTTP"].concat();
            let Ok(Read::Whole { head: got, consumed }) = super::tests::read(&bytes, &method) else {
                panic!("not a whole head: {head:?}: {:?}", read_response(&bytes, &method));
            };
            assert_eq!(
                (got.framing, got.reuse, consumed),
                (framing, reuse, head.len()),
                "{head:?}"
            );
            assert!(!got.headers.keys().any(is_hop_by_hop), "{head:?}");
        }
        use Framing::{Chunked, Empty, Length, UntilClose};
        use Reuse::{Close, KeepAlive};
        let get = |head: &str, framing, reuse| check(Method::GET, head, framing, reuse);
        get(
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
            Length(5),
            KeepAlive,
        );
        get(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Length(0),
            KeepAlive,
        );
        get(
            "HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n",
            Length(u64::MAX),
            KeepAlive,
        );
        get(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            Chunked,
            KeepAlive,
        );
        get(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked \r\n\r\n",
            Chunked,
            KeepAlive,
        );
        get("HTTP/1.1 200 OK\r\n\r\n", UntilClose, Close);
        get("HTTP/1.1 200\r\n\r\n", UntilClose, Close);
        get(
            "HTTP/1.1 200 \r\nconnection: keep-alive\r\n\r\n",
            UntilClose,
            Close,
        );
        get(
            "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 5\r\n\r\n",
            Length(5),
            Close,
        );
        get(
            "HTTP/1.1 202 Accepted\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
            Length(0),
            KeepAlive,
        );
        get("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\n", Length(5), Close);
        get(
            "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 5\r\n\r\n",
            Length(5),
            KeepAlive,
        );
        get("HTTP/1.1 204 No Content\r\n\r\n", Empty, KeepAlive);
        get(
            "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
            Empty,
            KeepAlive,
        );
        get(
            "HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
            Empty,
            Close,
        );
        get(
            "HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
            Empty,
            Close,
        );
        get(
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
            Empty,
            KeepAlive,
        );
        check(
            Method::HEAD,
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
            Empty,
            KeepAlive,
        );
        check(Method::HEAD, "HTTP/1.1 200 OK\r\n\r\n", Empty, KeepAlive);
        check(
            Method::DELETE,
            "HTTP/1.1 405 No\r\nallow: GET\r\ncontent-length: 2\r\n\r\n",
            Length(2),
            KeepAlive,
        );
        // Interim answers are skipped, and may have fields.
        get(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
            Length(5),
            KeepAlive,
        );
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(INTERIM_ANSWERS_MAX);
        get(
            &format!("{hints}HTTP/1.1 204 No Content\r\n\r\n"),
            Empty,
            KeepAlive,
        );
    }

    #[test]
    fn fields_are_kept_but_for_the_connections_own() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nset-cookie: a\r\nx-a: \xff\t1 \r\n\
            Set-Cookie: b\r\nmcp-session-id: s\r\nconnection: x-hop\r\nx-hop: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        let Ok(Read::Whole { head, .. }) = read(bytes, &Method::GET) else {
            panic!("not a whole head")
        };
        let mut wanted = map(&[
            ("content-type", "text/event-stream; charset=utf-8"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("mcp-session-id", "s"),
        ]);
        wanted.insert("x-a", HeaderValue::from_bytes(b"\xff\t1").unwrap());
        assert_eq!((head.status, head.headers), (StatusCode::OK, wanted));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        fn check(bytes: &[u8], wanted: HeadError) {
            assert_eq!(
                read(bytes, &Method::POST),
                Err(wanted),
                "{}",
                bytes.escape_ascii()
            );
        }
        fn field(lines: &str, wanted: HeadError) {
            check(format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n").as_bytes(), wanted);
            check(format!("HTTP/1.1 204 OK\r\n{lines}\r\n\r\n").as_bytes(), wanted);
        }
        field(
            "content-length: 5\r\ntransfer-encoding: chunked",
            HeadError::LengthAndCoding,
        );
        field(
            "content-length: 5\r\ncontent-length: 6",
            HeadError::SeveralLengths,
        );
        field(
            "content-length: 5\r\ncontent-length: 5",
            HeadError::SeveralLengths,
        );
        field("content-length: 5, 5", HeadError::SeveralLengths);
        field("content-length: +5", HeadError::Length);
        field("content-length: -5", HeadError::Length);
        field("content-length: 0x5", HeadError::Length);
        field("content-length: 5 5", HeadError::Length);
        field("content-length:", HeadError::Length);
        field("content-length: 18446744073709551616", HeadError::Length);
        field("transfer-encoding: gzip, chunked", HeadError::Coding);
        field("transfer-encoding: chunked, chunked", HeadError::Coding);
        field(
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            HeadError::Coding,
        );
        field("transfer-encoding: identity", HeadError::Coding);
        field("transfer-encoding: xchunked", HeadError::Coding);
        field("transfer-encoding: \u{b}chunked", HeadError::Field);
        field("transfer-encoding:", HeadError::Coding);
        field("transfer-encoding : chunked", HeadError::Field);
        field("content-length : 5", HeadError::Field);
        field(" content-length: 5", HeadError::Field);
        field("a: b\r\n c", HeadError::Field);
        field("a: b\r\n\tc", HeadError::Field);
        field("a\0: b", HeadError::Field);
        field("a: b\0c", HeadError::Field);
        field("a: b\rc: d", HeadError::Field);
        field("no colon", HeadError::Field);
        field(": no name", HeadError::Field);
        field("a: b\nc: d", HeadError::LineEnd);
        field("\u{e9}: b", HeadError::Field);
        check(
            b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            HeadError::Coding,
        );
        check(b"HTTP/1.1 200 OK\n\n", HeadError::LineEnd);
        check(b"HTTP/1.1 200 OK\r\n\n", HeadError::LineEnd);
        check(b"\r\nHTTP/1.1 200 OK\r\n\r\n", HeadError::NotHttp);
        check(b"http/1.1 200 OK\r\n\r\n", HeadError::NotHttp);
        check(b"\x15\x03\x01", HeadError::NotHttp);
        check(b"GET / HTTP/1.1\r\n\r\n", HeadError::NotHttp);
        check(b"HTTP/2.0 200 OK\r\n\r\n", HeadError::Version);
        check(b"HTTP/1.2 200 OK\r\n\r\n", HeadError::Version);
        check(b"HTTP/1.1  200 OK\r\n\r\n", HeadError::Status);
        check(b"HTTP/1.1 20 OK\r\n\r\n", HeadError::Status);
        check(b"HTTP/1.1 099 OK\r\n\r\n", HeadError::Status);
        check(b"HTTP/1.1 2000 OK\r\n\r\n", HeadError::Status);
        check(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
            HeadError::Switched,
        );
        let connect = read(b"HTTP/1.1 200 OK\r\n\r\n", &Method::CONNECT);
        assert_eq!(connect, Err(HeadError::Switched));
    }

    #[test]
    fn a_head_has_bounds() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(INTERIM_ANSWERS_MAX + 1);
        assert_eq!(
            read(interim.as_bytes(), &Method::GET),
            Err(HeadError::TooManyInterim)
        );

        let fields = |n: usize| format!("HTTP/1.1 204 No\r\n{}\r\n", "a: b\r\n".repeat(n));
        assert!(matches!(
            read(fields(RESPONSE_FIELDS_MAX).as_bytes(), &Method::GET),
            Ok(Read::Whole { .. })
        ));
        let many = read(fields(RESPONSE_FIELDS_MAX + 1).as_bytes(), &Method::GET);
        assert_eq!(many, Err(HeadError::TooManyFields));

        // Cut only around the bound: every cut of so long a head would take a minute.
        fn check(bytes: &[u8], cuts: std::ops::RangeInclusive<usize>, wanted: &Result<Read, HeadError>) {
            for at in cuts {
                assert_eq!(read_response(&bytes[..at], &Method::GET), *wanted, "{at}");
            }
        }
        let start = b"HTTP/1.1 204 No\r\na: ";
        let max = RESPONSE_HEAD_BYTES_MAX;
        let long = |len: usize| [start, vec![b'x'; len - start.len() - 4].as_slice(), b"\r\n\r\n"].concat();
        check(&long(max), max - 9..=max - 1, &Ok(Read::Partial));
        assert!(matches!(
            read_response(&long(max), &Method::GET),
            Ok(Read::Whole { .. })
        ));
        check(&long(max + 1), max - 9..=max - 1, &Ok(Read::Partial));
        check(&long(max + 1), max..=max + 1, &Err(HeadError::TooLong));
        let after_interim = [b"HTTP/1.1 100 C\r\n\r\n".as_slice(), &long(max)].concat();
        check(
            &after_interim,
            max..=after_interim.len(),
            &Err(HeadError::TooLong),
        );
    }
}

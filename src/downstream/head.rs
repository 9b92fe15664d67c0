//! The heads of answers that are written here and not by hyper: those of event streams, and of whole answers.
//! Law: one spelling, hyper's: lower-case names, the length or the coding from what is written, a date in each.
//! Absent on purpose: heads of answers without a length, and of those that may have no body. They are hyper's.
//! Next: `framing.rs`.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, TRANSFER_ENCODING};
use http::{Response, StatusCode};

use crate::downstream::date;
use crate::downstream::framing::BodyEnd;
use crate::downstream::sink_http1::After;
use crate::pure::http1::field::{push_field, push_length};

/// What the head of a stream begins with room for, in bytes.
const STREAM_HEAD_BYTES: usize = 512;

/// The head of an SSE answer. Its status is always 200: everything else is a `Response` or a refusal.
pub(crate) fn of_stream(fields: &HeaderMap, body_end: BodyEnd, after: After) -> Box<[u8]> {
    let mut head = Vec::with_capacity(STREAM_HEAD_BYTES);
    begin(&mut head, StatusCode::OK);
    for (name, value) in fields {
        if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, DATE].contains(name) {
            continue;
        }
        push_field(&mut head, name.as_str(), value.as_bytes());
    }
    push_field(&mut head, "date", &date::now());
    match body_end {
        BodyEnd::Chunked => push_field(&mut head, "transfer-encoding", b"chunked"),
        BodyEnd::Closed => {}
    }
    end(&mut head, after);
    head.into_boxed_slice()
}

/// Appends the head of a whole answer, whose status allows a body. A date that it has is kept.
pub(crate) fn of_whole(head: &mut Vec<u8>, response: &Response<Bytes>, after: After) {
    begin(head, response.status());
    let mut dated = false;
    for (name, value) in response.headers() {
        if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            continue;
        }
        dated |= *name == DATE;
        push_field(head, name.as_str(), value.as_bytes());
    }
    push_length(head, response.body().len() as u64);
    if !dated {
        push_field(head, "date", &date::now());
    }
    end(head, after);
}

fn begin(head: &mut Vec<u8>, status: StatusCode) {
    head.extend_from_slice(b"HTTP/1.1 ");
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    head.extend_from_slice(b"\r\n");
}

fn end(head: &mut Vec<u8>, after: After) {
    match after {
        After::Reuse => {}
        After::Close => push_field(head, "connection", b"close"),
    }
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of this answer, but for its date, which has the right form.
    fn check(status: u16, fields: &[(&str, &str)], body: &'static str, after: After, expected: &str) {
        let mut response = Response::new(Bytes::from_static(body.as_bytes()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            response.headers_mut().append(name, value.parse().unwrap());
        }
        let mut head = Vec::new();
        of_whole(&mut head, &response, after);
        let head = String::from_utf8(head).unwrap();
        let now = String::from_utf8(date::now().to_vec()).unwrap();
        let (day, _) = now.split_at(16);
        let lines: Vec<&str> = head
            .split("\r\n")
            .map(|line| {
                if line.starts_with(&format!("date: {day}")) {
                    "date: now"
                } else {
                    line
                }
            })
            .collect();
        assert_eq!(lines.join("|"), expected);
    }

    #[test]
    fn heads_of_whole_answers() {
        let json = ("content-type", "application/json");
        for (status, fields, body, after, expected) in [
            (
                200,
                vec![json],
                "{}",
                After::Reuse,
                "HTTP/1.1 200 OK|content-type: application/json|content-length: 2|date: now||",
            ),
            (
                202,
                vec![("content-length", "7")],
                "",
                After::Reuse,
                "HTTP/1.1 202 Accepted|content-length: 0|date: now||",
            ),
            (
                404,
                vec![json, ("date", "then"), ("x-a", "1"), ("x-a", "2")],
                "0123456789",
                After::Close,
                "HTTP/1.1 404 Not Found|content-type: application/json|date: then|x-a: 1|x-a: 2|content-length: 10|connection: close||",
            ),
            (
                599,
                vec![("transfer-encoding", "chunked"), ("connection", "x")],
                "x",
                After::Reuse,
                "HTTP/1.1 599 <none>|content-length: 1|date: now||",
            ),
        ] {
            check(status, &fields, body, after, expected);
        }
    }
    #[test]
    fn heads_of_streams() {
        let fields: HeaderMap = [
            (http::header::CONTENT_TYPE, "text/event-stream".parse().unwrap()),
            (CONTENT_LENGTH, "7".parse().unwrap()),
        ]
        .into_iter()
        .collect();
        let rows = [
            (BodyEnd::Chunked, After::Reuse, "transfer-encoding: chunked\r\n"),
            (
                BodyEnd::Chunked,
                After::Close,
                "transfer-encoding: chunked\r\nconnection: close\r\n",
            ),
            (BodyEnd::Closed, After::Close, "connection: close\r\n"),
        ];
        for (body_end, after, last) in rows {
            let head = String::from_utf8(of_stream(&fields, body_end, after).into_vec()).unwrap();
            let (first, rest) = head.split_at(head.find("date: ").unwrap());
            assert_eq!(first, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n");
            assert_eq!(
                &rest["date: ".len() + date::DATE_BYTES..],
                format!("\r\n{last}\r\n")
            );
        }
    }
}

//! The takeover: an SSE answer over HTTP/1 leaves hyper and gets the socket itself.
//! Law: the request is read whole and hyper holds nothing unsent (`tap`); only then is the connection taken apart.
//! How: the request's future leaves a `Takeover` on the desk and stays pending; the loop around hyper finds it, takes
//! socket and read-ahead out of hyper, gives a sink to the stream's ticket, and ends. Nothing of hyper stays in memory.
//! Why: a parked stream costs no task and no buffer, and a burst costs one vectored write for many events.
//! Next: `framing.rs`, `sink_http1.rs`.

use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, TRANSFER_ENCODING};

use crate::downstream::date;
use crate::downstream::framing::BodyEnd;
use crate::downstream::front::{Front, Link};
use crate::downstream::sink_http1::{After, Http1Sink};
use crate::net::Io;
use crate::relay::answer::{Attach, Opening, Serve};

/// An SSE answer that waits for its socket.
pub(crate) struct Takeover {
    head: Box<[u8]>,
    ticket: Box<dyn Attach>,
    body_end: BodyEnd,
    after: After,
}

impl Takeover {
    /// The answer's head is written here; the ticket waits for the socket.
    pub(crate) fn new(opening: Opening, body_end: BodyEnd, after: After) -> Self {
        Self {
            head: head(&opening.headers, body_end, after),
            ticket: opening.ticket,
            body_end,
            after,
        }
    }

    /// Gives the connection to the stream.
    pub(crate) fn attach<T: Io, S: Serve>(self, link: Link<T>, front: Arc<Front<S>>) {
        let sink = Http1Sink::new(link, front, self.head, self.body_end, self.after);
        self.ticket.attach(Box::new(sink));
    }
}

/// The head of an SSE answer. Its status is always 200: everything else is a `Response` or a refusal.
fn head(fields: &HeaderMap, body_end: BodyEnd, after: After) -> Box<[u8]> {
    let mut head = Vec::with_capacity(512);
    head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    for (name, value) in fields {
        if [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, DATE].contains(name) {
            continue;
        }
        field(&mut head, name.as_str(), value.as_bytes());
    }
    field(&mut head, "date", &date::now());
    match body_end {
        BodyEnd::Chunked => field(&mut head, "transfer-encoding", b"chunked"),
        BodyEnd::Closed => {}
    }
    match after {
        After::Reuse => {}
        After::Close => field(&mut head, "connection", b"close"),
    }
    head.extend_from_slice(b"\r\n");
    head.into_boxed_slice()
}

fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_literal() {
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
            let head = String::from_utf8(head(&fields, body_end, after).into_vec()).unwrap();
            let (first, rest) = head.split_at(head.find("date: ").unwrap());
            assert_eq!(first, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n");
            assert_eq!(
                &rest["date: ".len() + date::DATE_BYTES..],
                format!("\r\n{last}\r\n")
            );
        }
    }
}

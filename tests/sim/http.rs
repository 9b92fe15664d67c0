//! Just enough HTTP/1.1 and SSE to play a client or a backend by hand; written apart from the program's own codecs.
//! Law: what a strict reader would refuse is an error here, so that a malformed answer is noticed.
//! Next: `backend.rs`.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::wires::Wire;

/// The head of a request or an answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// The first line, cut at its blanks.
    pub(crate) first: Vec<String>,
    /// Names in lower case.
    pub(crate) fields: BTreeMap<String, String>,
}

impl Head {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub(crate) fn status(&self) -> u16 {
        self.first.get(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.field("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}

/// How a body is framed, and where its reading stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    Length(usize),
    Chunks,
    UntilClose,
    Over,
}

/// One side of a connection, reading by hand.
pub(crate) struct Talk {
    pub(crate) wire: Wire,
    buffer: Vec<u8>,
    body: Body,
}

/// What no strict reader would take.
fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// What a connection that was cut leaves.
fn early(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, what.to_owned())
}

impl Talk {
    pub(crate) fn new(wire: Wire) -> Self {
        Self {
            wire,
            buffer: Vec::new(),
            body: Body::Over,
        }
    }

    pub(crate) async fn send(&mut self, text: &str) -> io::Result<()> {
        self.wire.write_all(text.as_bytes()).await
    }

    /// Reads more; `false` at the orderly end.
    async fn more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        let count = self.wire.read(&mut piece).await?;
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count > 0)
    }

    /// The next head; `None` at the orderly end before it.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if !self.more().await? {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(early("half a head")),
                };
            }
        };
        let text = String::from_utf8(self.buffer.drain(..end + 4).collect())
            .map_err(|_| broken("a head that is no text"))?;
        let mut lines = text.trim_end().split("\r\n");
        let first = lines
            .next()
            .unwrap_or_default()
            .splitn(3, ' ')
            .map(str::to_owned)
            .collect();
        let mut head = Head {
            first,
            fields: BTreeMap::new(),
        };
        for line in lines {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| broken("a field without a colon"))?;
            let fresh = head
                .fields
                .insert(name.to_ascii_lowercase(), value.trim().to_owned());
            if fresh.is_some() {
                return Err(broken(&format!("{name} stands twice")));
            }
        }
        let is_answer = head.first.first().is_some_and(|word| word.starts_with("HTTP/"));
        self.body = match (head.field("transfer-encoding"), head.field("content-length")) {
            (Some(_), _) => Body::Chunks,
            (None, Some(length)) => {
                Body::Length(length.parse().map_err(|_| broken("a length that is none"))?)
            }
            (None, None) if is_answer && !matches!(head.status(), 204 | 304) => Body::UntilClose,
            (None, None) => Body::Over,
        };
        Ok(Some(head))
    }

    /// The next piece of the body; empty at its orderly end.
    pub(crate) async fn piece(&mut self) -> io::Result<Vec<u8>> {
        match self.body {
            Body::Over => Ok(Vec::new()),
            Body::Length(0) => {
                self.body = Body::Over;
                Ok(Vec::new())
            }
            Body::Length(left) => {
                if self.buffer.is_empty() && !self.more().await? {
                    return Err(early("a body that ends early"));
                }
                let count = left.min(self.buffer.len());
                self.body = Body::Length(left - count);
                Ok(self.buffer.drain(..count).collect())
            }
            Body::UntilClose => {
                if self.buffer.is_empty() && !self.more().await? {
                    self.body = Body::Over;
                    return Ok(Vec::new());
                }
                Ok(std::mem::take(&mut self.buffer))
            }
            Body::Chunks => self.chunk().await,
        }
    }

    /// Takes a chunk once it is here whole. Cancel-safe.
    async fn chunk(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(line) = find(&self.buffer, b"\r\n") {
                let size = std::str::from_utf8(&self.buffer[..line]).ok();
                let size = size.and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
                let size = size.ok_or_else(|| broken("a chunk without a size"))?;
                let from = line + 2;
                if self.buffer.len() >= from + size + 2 {
                    if self.buffer[from + size..][..2] != *b"\r\n" {
                        return Err(broken("a chunk without its end"));
                    }
                    let data = self.buffer[from..from + size].to_vec();
                    self.buffer.drain(..from + size + 2);
                    if size == 0 {
                        self.body = Body::Over;
                    }
                    return Ok(data);
                }
            }
            if !self.more().await? {
                return Err(early("a chunk that ends early"));
            }
        }
    }

    /// The whole body.
    pub(crate) async fn whole(&mut self) -> io::Result<String> {
        let mut all = Vec::new();
        loop {
            let piece = self.piece().await?;
            if piece.is_empty() && self.body == Body::Over {
                break;
            }
            all.extend(piece);
        }
        String::from_utf8(all).map_err(|_| broken("a body that is no text"))
    }
}

/// How a request was answered.
pub(crate) enum Answered {
    /// With an event stream.
    Stream(Head, Talk),
    /// With a body that came whole.
    Whole(Head, String),
    /// Not, or not to its end.
    Lost,
}

impl Talk {
    /// The answer to what was sent.
    pub(crate) async fn answered(mut self) -> io::Result<Answered> {
        let Some(head) = self.head().await? else {
            return Ok(Answered::Lost);
        };
        if head.is_stream() && head.status() == 200 {
            return Ok(Answered::Stream(head, self));
        }
        let body = self.whole().await?;
        Ok(Answered::Whole(head, body))
    }
}

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<u64>,
}

/// Cuts a stream's bytes into events.
#[derive(Default)]
pub(crate) struct Blocks(String);

impl Blocks {
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0
            .push_str(std::str::from_utf8(bytes).map_err(|_| broken("a stream that is no text"))?);
        Ok(())
    }

    /// Whether nothing is left over.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// The next event that has come whole; comments are left out.
    pub(crate) fn next(&mut self) -> io::Result<Option<Event>> {
        while let Some(end) = self.0.find("\n\n") {
            let block: String = self.0.drain(..end + 2).collect();
            let mut event = Event::default();
            let mut has_fields = false;
            for line in block.trim_end_matches('\n').split('\n') {
                let Some((name, value)) = line.split_once(':') else {
                    return Err(broken("a line without a colon"));
                };
                let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
                has_fields |= !name.is_empty();
                match name {
                    "" => {}
                    "id" => event.id = Some(value),
                    "event" => event.event = Some(value),
                    "data" => event.data = Some(value),
                    "retry" => event.retry = value.parse().ok(),
                    _ => return Err(broken("an unknown field")),
                }
            }
            if has_fields {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}

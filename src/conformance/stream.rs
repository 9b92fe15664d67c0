//! One event stream of the server under trial, read event by event, and cut where a case says.
//! Law: what was read and not yet taken is lost with the cut, as it is for a client whose connection dies.
//! Why no relay between: the suite owns the client's socket, so closing or resetting it is the very cut that a relay
//! would make, at the very event, with one connection less to go wrong.
//! Next: `session.rs`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use tokio::time::{Instant, timeout_at};

use crate::conformance::trace::Trace;
use crate::net::tcp::TcpIo;
use crate::pure::sse::Block;
use crate::upstream::{EventBody, Read};

/// One event, or the part of one that a client by the standard would dispatch or remember.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Event {
    /// Its id, if it has one that is not empty.
    pub(super) id: Option<String>,
    /// Its type; empty means `message`.
    pub(super) kind: String,
    /// Its data; empty for priming events.
    pub(super) data: String,
    /// When to come back, in milliseconds.
    pub(super) retry: Option<u64>,
}

/// How a stream ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Over {
    /// In an orderly way.
    Ended,
    /// It broke.
    Broke(String),
}

/// What comes next on a stream.
pub(super) enum Next {
    Event(Event),
    Over(Over),
    /// Nothing in time.
    Late,
}

/// One event stream.
pub(super) struct Stream {
    /// Boxed: it is large, and an answer that is no stream must not pay for it.
    body: Box<EventBody<TcpIo>>,
    came: VecDeque<Event>,
    over: Option<Over>,
    trace: Trace,
}

impl Stream {
    pub(super) fn new(body: EventBody<TcpIo>, trace: Trace) -> Self {
        Self {
            body: Box::new(body),
            came: VecDeque::new(),
            over: None,
            trace,
        }
    }

    /// The next event, or how the stream ended, or nothing until this moment.
    pub(super) async fn next(&mut self, until: Instant) -> Next {
        loop {
            if let Some(event) = self.came.pop_front() {
                self.trace.note(&shown(&event));
                return Next::Event(event);
            }
            if let Some(over) = &self.over {
                return Next::Over(over.clone());
            }
            let (body, came) = (&mut self.body, &mut self.came);
            let read = poll_fn(|cx| {
                match body.poll_events(cx, &mut |block: Block<'_>| came.push_back(event_of(&block))) {
                    Poll::Ready(read) => Poll::Ready(read),
                    Poll::Pending => Poll::Pending,
                }
            });
            self.over = match timeout_at(until, read).await {
                Err(_) => return Next::Late,
                Ok(Ok(Read::Events)) => None,
                Ok(Ok(Read::End(_))) => Some(Over::Ended),
                Ok(Err(error)) => Some(Over::Broke(error.to_string())),
            };
            match &self.over {
                Some(Over::Ended) => self.trace.note("< the stream ended"),
                Some(Over::Broke(error)) => self.trace.note(&format!("< the stream broke: {error}")),
                None => {}
            }
        }
    }

    /// Closes the connection.
    pub(super) fn cut(self) {
        self.trace.note("| cut here: closed");
    }

    /// Resets the connection.
    pub(super) fn reset(self) {
        self.trace.note("| cut here: reset");
        self.body.reset_on_close();
    }
}

fn event_of(block: &Block<'_>) -> Event {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Event {
        id: block.id.filter(|id| !id.is_empty()).map(text),
        kind: text(block.event),
        data: block.data().map(text).unwrap_or_default(),
        retry: block.retry,
    }
}

fn shown(event: &Event) -> String {
    let mut line = String::from("<");
    if let Some(id) = &event.id {
        line.push_str(&format!(" id: {id}"));
    }
    if !event.kind.is_empty() && event.kind != "message" {
        line.push_str(&format!(" event: {}", event.kind));
    }
    if let Some(retry) = event.retry {
        line.push_str(&format!(" retry: {retry}"));
    }
    line.push_str(&format!(" data: {}", event.data));
    line
}

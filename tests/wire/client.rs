//! A client that a test plays by hand, with just enough SSE to tell events apart.
//! Law: what the contract forbids on every stream is checked on every stream: LF only, whole frames.
//! Next: the cases.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use crate::peer::{DEADLINE, Head, Peer};

/// One event as it came, comments left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<String>,
}

impl Event {
    pub(crate) fn data(&self) -> &str {
        self.data.as_deref().expect("an event with data")
    }

    pub(crate) fn id(&self) -> &str {
        self.id.as_deref().expect("an event with an id")
    }

    /// A priming event: an id and an empty data line.
    pub(crate) fn is_prime(&self) -> bool {
        self.id.is_some() && self.data.as_deref() == Some("") && self.event.is_none()
    }
}

/// A connection to the proxy.
pub(crate) struct Client {
    pub(crate) peer: Peer,
    text: String,
    /// Comments seen so far.
    pub(crate) comments: usize,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) head: Head,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the proxy accepts");
        Self {
            peer: Peer::new(stream),
            text: String::new(),
            comments: 0,
        }
    }

    /// Sends a request; `fields` beside the ones that every MCP client sends.
    pub(crate) fn send(&mut self, method: &str, fields: &[(&str, &str)], body: &str) {
        self.send_to("/mcp", method, fields, body);
    }

    /// The same, to this target.
    pub(crate) fn send_to(&mut self, target: &str, method: &str, fields: &[(&str, &str)], body: &str) {
        let host = self.peer.stream.peer_addr().expect("a peer").to_string();
        let host = fields
            .iter()
            .find(|(name, _)| *name == "host")
            .map_or(&*host, |(_, value)| value);
        let mut text = format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\naccept: application/json, text/event-stream\r\n"
        );
        let fields = fields.iter().filter(|(name, _)| *name != "host");
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!(
                "content-type: application/json\r\ncontent-length: {}\r\n",
                body.len()
            ));
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.peer.send(text.as_bytes());
    }

    pub(crate) fn head(&mut self) -> Head {
        self.text.clear();
        self.peer
            .try_head(true)
            .expect("a head")
            .expect("an answer before the close")
    }

    pub(crate) fn whole(&mut self) -> Whole {
        let head = self.head();
        let body = self.peer.whole().expect("a whole body");
        Whole {
            head,
            body: String::from_utf8(body).expect("text"),
        }
    }

    /// The next event; `None` at the orderly end of the stream. A stream that says nothing but comments is no answer.
    pub(crate) fn try_event(&mut self) -> std::io::Result<Option<Event>> {
        let since = Instant::now();
        loop {
            match self.try_block()? {
                None => return Ok(None),
                Some(None) => assert!(since.elapsed() < DEADLINE, "nothing but comments came"),
                Some(event) => return Ok(event),
            }
        }
    }

    /// The next block: an event, or `Some(None)` for comments; `None` at the orderly end.
    fn try_block(&mut self) -> std::io::Result<Option<Option<Event>>> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                assert!(!block.contains('\r'), "lines end with LF only");
                return Ok(Some(self.block(block.trim_end_matches('\n'))));
            }
            let piece = self.peer.piece()?;
            if piece.is_empty() {
                assert!(
                    self.text.trim().is_empty(),
                    "half a frame stands at the end: {:?}",
                    self.text
                );
                return Ok(None);
            }
            self.text.push_str(std::str::from_utf8(&piece).expect("UTF-8"));
        }
    }

    fn block(&mut self, block: &str) -> Option<Event> {
        let mut event = Event::default();
        let mut empty = true;
        for line in block.split('\n').filter(|l| !l.is_empty()) {
            let (name, value) = line.split_once(':').expect("every line has a colon");
            if name.is_empty() {
                self.comments += 1;
                continue;
            }
            empty = false;
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match name {
                "id" => event.id = Some(value),
                "event" => event.event = Some(value),
                "retry" => event.retry = Some(value),
                "data" => match &mut event.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(&value);
                    }
                    None => event.data = Some(value),
                },
                other => panic!("unknown field {other}"),
            }
        }
        if empty { None } else { Some(event) }
    }

    pub(crate) fn event(&mut self) -> Event {
        self.try_event()
            .expect("the stream goes on")
            .expect("an event before the end")
    }

    /// The stream ends here, in an orderly way.
    pub(crate) fn ended(&mut self) {
        let more = self.try_event().expect("an orderly end");
        assert_eq!(more, None, "nothing more is sent");
    }

    /// Reads until a comment came; no event may come before.
    pub(crate) fn comment(&mut self) {
        let block = self
            .try_block()
            .expect("the stream goes on")
            .expect("the stream goes on");
        assert_eq!(block, None, "only comments come");
    }

    /// Whether a message comes before a comment.
    pub(crate) fn message_before_comment(&mut self) -> bool {
        self.try_block()
            .expect("the stream goes on")
            .expect("the stream goes on")
            .is_some()
    }

    /// The proxy closed the connection in an orderly way.
    pub(crate) fn closed(&mut self) {
        assert_eq!(
            std::io::Read::read(&mut self.peer.stream, &mut [0]).expect("no reset"),
            0
        );
    }

    /// Closes with a reset.
    pub(crate) fn cut(self) {
        self.peer.cut();
    }
}

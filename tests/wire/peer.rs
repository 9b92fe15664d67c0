//! HTTP/1.1 spoken by hand, for both ends of a test: literal bytes, blocking, bounded by one deadline.
//! Law: nothing here decides by time. A read that finds nothing within the deadline is a failed test.
//! Next: `backend.rs`, `client.rs`.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a test waits for what must come. Never a measure of speed: a generous bound on a hang.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A start line and header fields.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        self.start
            .split(' ')
            .nth(1)
            .expect("a status line")
            .parse()
            .expect("a status")
    }

    /// The method of a request.
    pub(crate) fn method(&self) -> &str {
        self.start.split(' ').next().expect("a request line")
    }

    /// The target of a request.
    pub(crate) fn target(&self) -> &str {
        self.start.split(' ').nth(1).expect("a request line")
    }

    fn is_chunked(&self) -> bool {
        self.get("transfer-encoding")
            .is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
    }
}

/// One connection and what was read ahead on it.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    ahead: Vec<u8>,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Body {
    None,
    Length(usize),
    Chunked { left: usize },
    UntilClose,
    Ended,
}

impl Peer {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("nodelay");
        Self {
            stream,
            ahead: Vec::new(),
            body: Body::None,
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the peer takes what is sent");
    }

    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut buf = [0; 16 * 1024];
        let n = loop {
            match self.stream.read(&mut buf) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.ahead.extend_from_slice(&buf[..n]);
        Ok(n)
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
                self.ahead.drain(..end + 2);
                return Ok(Some(line));
            }
            if self.more()? == 0 {
                return if self.ahead.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// The next head; `None` if the peer closed in an orderly way instead.
    pub(crate) fn try_head(&mut self, answers: bool) -> io::Result<Option<Head>> {
        let Some(start) = self.line()? else {
            return Ok(None);
        };
        let mut head = Head {
            start,
            fields: Vec::new(),
        };
        loop {
            let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').expect("a header field");
            head.fields.push((name.to_owned(), value.trim().to_owned()));
        }
        self.body = match (head.is_chunked(), head.get("content-length")) {
            (true, _) => Body::Chunked { left: 0 },
            (false, Some(length)) => Body::Length(length.parse().expect("a length")),
            (false, None) if answers && ![204, 304].contains(&head.status()) => Body::UntilClose,
            (false, None) => Body::Ended,
        };
        Ok(Some(head))
    }

    /// Some bytes of the body; empty at its orderly end.
    pub(crate) fn piece(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.body {
                Body::None | Body::Ended => return Ok(Vec::new()),
                Body::Length(0) => self.body = Body::Ended,
                Body::Length(left) | Body::Chunked { left } if left > 0 => {
                    if self.ahead.is_empty() && self.more()? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    let n = left.min(self.ahead.len());
                    let piece = self.ahead.drain(..n).collect();
                    match &mut self.body {
                        Body::Length(left) => *left -= n,
                        Body::Chunked { left } => {
                            *left -= n;
                            if *left == 0 {
                                let end = self.line()?;
                                assert_eq!(end.as_deref(), Some(""), "a chunk ends with CRLF");
                            }
                        }
                        _ => unreachable!("only these have bytes left"),
                    }
                    return Ok(piece);
                }
                Body::Length(_) | Body::Chunked { .. } => {
                    let line = self.line()?.ok_or(io::ErrorKind::UnexpectedEof)?;
                    let left = usize::from_str_radix(&line, 16).expect("a chunk size");
                    if left == 0 {
                        assert_eq!(
                            self.line()?.as_deref(),
                            Some(""),
                            "the final chunk ends with CRLF"
                        );
                        self.body = Body::Ended;
                    } else {
                        self.body = Body::Chunked { left };
                    }
                }
                Body::UntilClose => {
                    if self.ahead.is_empty() && self.more()? == 0 {
                        self.body = Body::Ended;
                    } else {
                        return Ok(std::mem::take(&mut self.ahead));
                    }
                }
            }
        }
    }

    /// The whole body. One that goes on for ever, as with comments, is no whole body.
    pub(crate) fn whole(&mut self) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let since = Instant::now();
        loop {
            if since.elapsed() >= DEADLINE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let piece = self.piece()?;
            if piece.is_empty() {
                return Ok(all);
            }
            all.extend(piece);
        }
    }

    /// Closes with a reset.
    pub(crate) fn cut(self) {
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_linger(Some(Duration::ZERO)).expect("linger");
    }
}

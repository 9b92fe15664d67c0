//! A raw HTTP/1.1 client for calls and event streams: 64 KiB at a time, chunks walked in place.
//! Why not hyper: it hands every chunk up as a frame of its own, which costs the client more than the parsing does.
//! Next: `client.rs`.

use crate::client::{BoxErr, Ctx, INIT, Target, tcp};

/// The id of a session's first call: ten digits, so that the next ids fit into its place.
pub(crate) const FIRST_ID: u64 = 1_000_000_000;

/// Gives a prepared call its next id: a call that comes again with the same one is the same call.
pub(crate) fn renumber(call: &mut [u8], id: &mut u64) {
    let digits = id.to_string();
    *id += 1;
    if let Some(at) = memchr::memmem::find(call, digits.as_bytes()) {
        call[at..at + digits.len()].copy_from_slice(id.to_string().as_bytes());
    }
}

pub(crate) struct Raw {
    pub(crate) s: tokio::net::TcpStream,
    pub(crate) buf: Vec<u8>,
    pub(crate) pos: usize,
    pub(crate) end: usize,
    /// of the response at hand
    pub(crate) body: BodyKind,
    pub(crate) left: u64,
    pub(crate) state: Ch,
    pub(crate) chunks: u64,
    pub(crate) reads: u64,
}
#[derive(PartialEq, Clone, Copy, Debug)]
pub(crate) enum BodyKind {
    Chunked,
    Length,
    Close,
}
#[derive(PartialEq, Clone, Copy, Debug)]
pub(crate) enum Ch {
    Size,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerLine,
    Done,
}
impl Raw {
    pub(crate) async fn open(ctx: &Ctx, t: &Target) -> Result<Raw, BoxErr> {
        let s = tcp(ctx, t).await?;
        Ok(Raw { s, buf: vec![0; 64 * 1024], pos: 0, end: 0, body: BodyKind::Close, left: 0, state: Ch::Done, chunks: 0, reads: 0 })
    }
    pub(crate) async fn fill(&mut self) -> std::io::Result<usize> {
        if self.pos == self.end {
            self.pos = 0;
            self.end = 0;
        } else if self.end == self.buf.len() {
            self.buf.copy_within(self.pos..self.end, 0);
            self.end -= self.pos;
            self.pos = 0;
        }
        loop {
            self.s.readable().await?;
            match self.s.try_read(&mut self.buf[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    self.reads += 1;
                    return Ok(n);
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(e) => return Err(e),
            }
        }
    }
    pub(crate) fn bytes(t: &Target, method: &str, sid: Option<&str>, extra: &str, body: &[u8]) -> Vec<u8> {
        let mut h = format!("{method} {} HTTP/1.1\r\nhost: {}\r\naccept: application/json, text/event-stream\r\n", t.path, t.host);
        if let Some(s) = sid {
            h.push_str(&format!("mcp-session-id: {s}\r\nmcp-protocol-version: 2025-06-18\r\n"));
        }
        h.push_str(extra);
        if !body.is_empty() {
            h.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        h.push_str("\r\n");
        let mut b = h.into_bytes();
        b.extend_from_slice(body);
        b
    }
    pub(crate) async fn request(&mut self, t: &Target, method: &str, sid: Option<&str>, extra: &str, body: &[u8]) -> Result<(u16, Option<String>), BoxErr> {
        self.send(&Raw::bytes(t, method, sid, extra, body)).await
    }
    pub(crate) async fn send(&mut self, b: &[u8]) -> Result<(u16, Option<String>), BoxErr> {
        use tokio::io::AsyncWriteExt;
        self.s.write_all(b).await?;
        // head of the response
        loop {
            if let Some(p) = memchr::memmem::find(&self.buf[self.pos..self.end], b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.buf[self.pos..self.pos + p])?;
                let status: u16 = head.get(9..12).and_then(|x| x.parse().ok()).ok_or("status line")?;
                let (mut len, mut chunked, mut sid) = (None, false, None);
                for l in head.split("\r\n").skip(1) {
                    if let Some((k, v)) = l.split_once(':') {
                        let v = v.trim();
                        if k.eq_ignore_ascii_case("content-length") {
                            len = v.parse::<u64>().ok();
                        } else if k.eq_ignore_ascii_case("transfer-encoding") {
                            chunked = v.eq_ignore_ascii_case("chunked");
                        } else if k.eq_ignore_ascii_case("mcp-session-id") {
                            sid = Some(v.to_string());
                        }
                    }
                }
                self.pos += p + 4;
                if chunked {
                    self.body = BodyKind::Chunked;
                    self.state = Ch::Size;
                    self.left = 0;
                } else if let Some(n) = len {
                    self.body = BodyKind::Length;
                    self.left = n;
                    self.state = if n == 0 { Ch::Done } else { Ch::Data };
                } else if status == 202 || status == 204 {
                    self.state = Ch::Done;
                } else {
                    self.body = BodyKind::Close;
                    self.state = Ch::Data;
                }
                return Ok((status, sid));
            }
            if self.fill().await? == 0 {
                return Err("closed before the response".into());
            }
        }
    }
    /// Gives what is there of the body to `f`, reading when nothing is; false at its end.
    pub(crate) async fn next(&mut self, mut f: impl FnMut(&[u8])) -> Result<bool, BoxErr> {
        if self.state == Ch::Done {
            return Ok(false);
        }
        if self.pos == self.end && self.fill().await? == 0 {
            if self.body == BodyKind::Close {
                self.state = Ch::Done;
                return Ok(false);
            }
            return Err("cut in the body".into());
        }
        while self.pos < self.end && self.state != Ch::Done {
            if self.body != BodyKind::Chunked {
                let n = if self.body == BodyKind::Close { self.end - self.pos } else { (self.left as usize).min(self.end - self.pos) };
                f(&self.buf[self.pos..self.pos + n]);
                self.pos += n;
                self.left = self.left.saturating_sub(n as u64);
                if self.body == BodyKind::Length && self.left == 0 {
                    self.state = Ch::Done;
                }
                continue;
            }
            if self.state == Ch::Data {
                let n = (self.left as usize).min(self.end - self.pos);
                f(&self.buf[self.pos..self.pos + n]);
                self.pos += n;
                self.left -= n as u64;
                if self.left == 0 {
                    self.state = Ch::DataCr;
                }
                continue;
            }
            let b = self.buf[self.pos];
            self.pos += 1;
            match self.state {
                Ch::Size => match b {
                    b'0'..=b'9' => self.left = self.left * 16 + (b - b'0') as u64,
                    b'a'..=b'f' => self.left = self.left * 16 + (b - b'a') as u64 + 10,
                    b'A'..=b'F' => self.left = self.left * 16 + (b - b'A') as u64 + 10,
                    b'\r' => self.state = Ch::SizeLf,
                    _ => {}
                },
                Ch::SizeLf => {
                    self.chunks += 1;
                    self.state = if self.left == 0 { Ch::Trailer } else { Ch::Data };
                }
                Ch::DataCr => self.state = Ch::DataLf,
                Ch::DataLf => self.state = Ch::Size,
                Ch::Trailer => self.state = if b == b'\r' { Ch::Trailer } else if b == b'\n' { Ch::Done } else { Ch::TrailerLine },
                Ch::TrailerLine => {
                    if b == b'\n' {
                        self.state = Ch::Trailer
                    }
                }
                Ch::Data | Ch::Done => unreachable!(),
            }
        }
        Ok(true)
    }
    pub(crate) async fn drain(&mut self) -> Result<Vec<u8>, BoxErr> {
        let mut v = Vec::new();
        while self.next(|d| v.extend_from_slice(d)).await? {}
        Ok(v)
    }
    pub(crate) async fn session(ctx: &Ctx, t: &Target) -> Result<(Raw, String), BoxErr> {
        let mut c = Raw::open(ctx, t).await?;
        let (st, sid) = c.request(t, "POST", None, "", INIT).await?;
        let b = c.drain().await?;
        let sid = sid.ok_or_else(|| format!("initialize: {st} {}", String::from_utf8_lossy(&b[..b.len().min(60)])))?;
        if !ctx.no_initialized {
            let (st, _) = c.request(t, "POST", Some(&sid), "", br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
            c.drain().await?;
            if !(200..300).contains(&st) {
                return Err(format!("initialized: {st}").into());
            }
        }
        Ok((c, sid))
    }
}

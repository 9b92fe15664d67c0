//! The connection as hyper holds it, and what its task must know of it while hyper has it.
//! Law: hyper holds nothing unsent exactly if its last call on the write side was a flush (pipelined answers are
//! flushed one by one, so it never holds one back).
//! Also here: the one request shape that hyper lets through without a trace, `Transfer-Encoding` with
//! `Content-Length` in one head. It is seen in the bytes, since hyper drops the length before anybody is told.
//! Next: `http_task.rs`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::downstream::front::note_receipt;
use crate::downstream::takeover::Takeover;
use crate::net::Io;
use crate::relay::sink::Receipt;

/// What the parts of one connection's task tell each other: the tap, the requests, and the loop around hyper.
/// All of it is only a hint for time limits, but for the takeover and the flush.
#[derive(Default)]
pub(crate) struct Desk {
    served: AtomicU32,
    arrived: AtomicU32,
    head_begun: AtomicBool,
    unflushed: AtomicBool,
    wrote: AtomicU32,
    ended: AtomicBool,
    two_lengths: AtomicBool,
    waiting: AtomicBool,
    takeover: Mutex<Option<Takeover>>,
}

/// What a connection is doing, as far as time limits care. The numbers tell one wait from the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// A request is being served: its own limits apply.
    Busy,
    /// Nothing of the next request has come.
    Idle {
        /// Requests so far.
        arrived: u32,
    },
    /// A part of a head has come.
    Head {
        /// Requests so far.
        arrived: u32,
    },
    /// A head has come without its body (`usual_task.rs`; hyper's requests are busy then).
    Body {
        /// Requests so far.
        arrived: u32,
    },
    /// The client does not take what is written.
    Stalled {
        /// Writes so far.
        wrote: u32,
    },
}

impl Desk {
    /// A request has arrived; it is served until the guard is dropped.
    pub(crate) fn arrive(self: &Arc<Self>) -> Busy {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
        self.head_begun.store(false, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// What the connection is doing.
    pub(crate) fn phase(&self) -> Phase {
        if self.unflushed.load(Ordering::Relaxed) {
            return Phase::Stalled {
                wrote: self.wrote.load(Ordering::Relaxed),
            };
        }
        if self.served.load(Ordering::Relaxed) > 0 {
            return Phase::Busy;
        }
        let arrived = self.arrived.load(Ordering::Relaxed);
        if self.head_begun.load(Ordering::Relaxed) {
            Phase::Head { arrived }
        } else {
            Phase::Idle { arrived }
        }
    }

    /// Whether the client has ended its side.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether a head with both `Transfer-Encoding` and `Content-Length` was read on this connection.
    pub(crate) fn saw_two_lengths(&self) -> bool {
        self.two_lengths.load(Ordering::Relaxed)
    }

    /// Leaves a takeover for the loop around hyper.
    pub(crate) fn leave(&self, takeover: Takeover) {
        *self.takeover.lock().unwrap_or_else(PoisonError::into_inner) = Some(takeover);
        self.waiting.store(true, Ordering::Release);
    }

    /// The takeover that waits, once hyper holds nothing unsent.
    pub(crate) fn take(&self) -> Option<Takeover> {
        if !self.waiting.load(Ordering::Acquire) || self.unflushed.load(Ordering::Relaxed) {
            return None;
        }
        self.waiting.store(false, Ordering::Relaxed);
        self.takeover
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// One request is being served; not any more when dropped.
pub(crate) struct Busy(Arc<Desk>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.served.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is looked for in the bytes that are read.
#[derive(Debug)]
pub(crate) enum Scan {
    /// Heads of HTTP/1 requests.
    Http1(HeadLines),
    /// Nothing: HTTP/2 has one way only to say where a body ends.
    Nothing,
}

/// A connection in hyper's hands.
pub(crate) struct Tap<T> {
    io: T,
    left: Bytes,
    scan: Scan,
    desk: Arc<Desk>,
    receipt: Option<Box<dyn Receipt>>,
}

impl<T: Io> Tap<T> {
    /// Puts a tap on a connection. `left` is read first.
    pub(crate) fn new(io: T, left: Bytes, scan: Scan, desk: Arc<Desk>) -> Self {
        Self {
            io,
            left,
            scan,
            desk,
            receipt: None,
        }
    }

    /// The same, with somebody who waits for the proof that the last answer was had.
    pub(crate) fn with_receipt(mut self, receipt: Option<Box<dyn Receipt>>) -> Self {
        self.receipt = receipt;
        self
    }

    /// The connection, what of `left` was not read, and the receipt if nothing came.
    pub(crate) fn into_parts(self) -> (T, Bytes, Option<Box<dyn Receipt>>) {
        (self.io, self.left, self.receipt)
    }

    fn note(&mut self, read: &[u8]) {
        if read.is_empty() {
            self.desk.ended.store(true, Ordering::Relaxed);
            return;
        }
        match &mut self.scan {
            Scan::Http1(lines) => {
                if self.desk.served.load(Ordering::Relaxed) == 0 {
                    self.desk.head_begun.store(true, Ordering::Relaxed);
                }
                if lines.read(read) == Lengths::Both {
                    self.desk.two_lengths.store(true, Ordering::Relaxed);
                }
            }
            // What comes between two requests may be a ping or a window update.
            Scan::Nothing => {}
        }
    }

    fn wrote(&self, outcome: &Poll<io::Result<usize>>) {
        self.desk.unflushed.store(true, Ordering::Relaxed);
        if outcome.is_ready() {
            self.desk.wrote.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<T: Io> AsyncRead for Tap<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.left.is_empty() {
            match Pin::new(&mut self.io).poll_read(cx, buf) {
                Poll::Ready(Ok(())) if self.receipt.is_some() && buf.filled().len() > before => {
                    let tap = &mut *self;
                    note_receipt(&tap.io, &mut tap.receipt);
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.desk.ended.store(true, Ordering::Relaxed);
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => return Poll::Pending,
            }
        } else {
            let n = self.left.len().min(buf.remaining());
            buf.put_slice(&self.left[..n]);
            self.left.advance(n);
            if self.left.is_empty() {
                // An emptied slice would still pin what it was cut from.
                self.left = Bytes::new();
            }
        }
        self.note(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: Io> AsyncWrite for Tap<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.wrote(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.io).poll_flush(cx);
        self.desk.unflushed.store(outcome.is_pending(), Ordering::Relaxed);
        outcome
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Which ways to say where a body ends were found in one head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lengths {
    /// At most one.
    One,
    /// `Transfer-Encoding` and `Content-Length`.
    Both,
}

const TRANSFER_ENCODING: &[u8] = b"transfer-encoding:";
const CONTENT_LENGTH: &[u8] = b"content-length:";
const NAME_BYTES_MAX: usize = TRANSFER_ENCODING.len();

/// Reads a connection as lines, bodies included, and remembers which of two names began one since the last blank
/// line. Text of a body can only make it see too much, and what it sees counts only for chunked requests.
#[derive(Debug)]
pub(crate) struct HeadLines {
    start: [u8; NAME_BYTES_MAX],
    len: u8,
    /// The rest of this line does not matter.
    skip: bool,
    chunked: bool,
    counted: bool,
}

impl HeadLines {
    /// At the start of a connection.
    pub(crate) const fn new() -> Self {
        Self {
            start: [0; NAME_BYTES_MAX],
            len: 0,
            skip: false,
            chunked: false,
            counted: false,
        }
    }

    /// Reads on. `Both` if any head that was read in these bytes had both names so far.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Lengths {
        let mut found = Lengths::One;
        while !bytes.is_empty() {
            let (line, rest, ended) = match memchr::memchr(b'\n', bytes) {
                Some(at) => (&bytes[..at], &bytes[at + 1..], true),
                None => (bytes, &bytes[bytes.len()..], false),
            };
            if ended && self.len == 0 && !self.skip && !could_count(line) {
                // A whole line that is neither of the two names' nor blank: nothing to remember.
                bytes = rest;
                continue;
            }
            self.line_goes_on(line);
            if self.chunked && self.counted {
                found = Lengths::Both;
            }
            if ended {
                self.line_ends();
            }
            bytes = rest;
        }
        found
    }

    fn line_goes_on(&mut self, line: &[u8]) {
        if self.skip {
            return;
        }
        let have = usize::from(self.len);
        let more = line.len().min(NAME_BYTES_MAX - have);
        self.start[have..have + more].copy_from_slice(&line[..more]);
        self.len = (have + more) as u8;
        let start = &self.start[..have + more];
        match start.first().map(u8::to_ascii_lowercase) {
            Some(b't') if begins(start, TRANSFER_ENCODING) => self.chunked = true,
            Some(b'c') if begins(start, CONTENT_LENGTH) => self.counted = true,
            Some(_) | None => {}
        }
        self.skip = start.len() == NAME_BYTES_MAX;
    }

    fn line_ends(&mut self) {
        if !self.skip && matches!(&self.start[..usize::from(self.len)], b"" | b"\r") {
            (self.chunked, self.counted) = (false, false);
        }
        (self.len, self.skip) = (0, false);
    }
}

/// Whether a line may begin with one of the two names, or end a head.
fn could_count(line: &[u8]) -> bool {
    matches!(line, [] | [b'\r' | b't' | b'T' | b'c' | b'C', ..])
}

fn begins(line: &[u8], name: &[u8]) -> bool {
    line.len() >= name.len() && line[..name.len()].eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Lengths) {
        for split in 0..=text.len() {
            let mut lines = HeadLines::new();
            let (a, b) = text.as_bytes().split_at(split);
            let found = [lines.read(a), lines.read(b)];
            let any = if found.contains(&Lengths::Both) {
                Lengths::Both
            } else {
                Lengths::One
            };
            assert_eq!(any, expected, "{text:?} split at {split}");
        }
    }

    #[test]
    fn both_lengths_of_one_head_are_seen() {
        let one = Lengths::One;
        let both = Lengths::Both;
        check("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", one);
        check(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            one,
        );
        check(
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
            both,
        );
        check(
            "POST / HTTP/1.1\r\ncontent-length: 2\r\nx: y\r\nTRANSFER-ENCODING:chunked\r\n\r\n",
            both,
        );
        check(
            "POST / HTTP/1.1\ncontent-length: 2\ntransfer-encoding: chunked\n\n",
            both,
        );
        check(
            "POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            one,
        );
        check(
            "POST / HTTP/1.1\r\nx-content-length: 2\r\nxtransfer-encoding: chunked\r\n\r\n",
            one,
        );
        check(
            "POST / HTTP/1.1\r\ncontent-length-x: 2\r\ntransfer-encoding: chunked\r\n\r\n",
            one,
        );
    }
}

//! A taken-over connection as its sink writes it: one write at a time, and how far the client has it.
//! Law: what is counted is never less than where the bytes written so far end on the wire, and what is unacked covers
//! the difference. So `count - unacked` is what the client has acknowledged, exactly, and an event that was counted
//! as ending at `count` is never taken for had before it is.
//! Why an estimate: TLS may hold a write back, and what it will become is only known within a bound.
//! Next: `sink_http2.rs`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::downstream::front::Link;
use crate::downstream::meter::Meter;
use crate::net::{Io, Unacked};
use crate::relay::sink::Receipt;

/// Most bytes that TLS adds to one record: header, nonce, type, tag, and room for what it has to say itself.
const RECORD_OVERHEAD_MAX: u64 = 128;

/// Payload bytes in a full record (RFC 8446, section 5.1).
const RECORD_BYTES: u64 = 16 * 1024;

/// A connection and how much was written to it.
#[derive(Debug)]
pub(crate) struct Wire<T> {
    link: Link<T>,
    /// Where what was written ends, at most.
    count: u64,
    held: Held,
}

/// Whether a write may be held back beneath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Nothing,
    AWrite,
}

impl<T: Io> Wire<T> {
    /// A connection to which this answer has written nothing.
    pub(crate) fn new(link: Link<T>) -> Self {
        let count = match &link.meter {
            Meter::Writer => 0,
            Meter::Beneath(bytes) => bytes.load(Ordering::Relaxed),
        };
        Self {
            link,
            count,
            held: Held::Nothing,
        }
    }

    /// The connection, for its next owner.
    pub(crate) fn into_link(self) -> Link<T> {
        self.link
    }

    /// Leaves a receipt for the connection's next owner: who comes with another request has had all.
    pub(crate) fn leave_receipt(&mut self, receipt: Box<dyn Receipt>) {
        self.link.receipt = Some(receipt);
    }

    /// Writes some of the parts, once nothing is held back any more.
    pub(crate) fn poll_put(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(cx))?;
        let before = self.on_the_wire();
        let n = ready!(Pin::new(&mut self.link.io).poll_write_vectored(cx, parts))?;
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let written = n as u64;
        match &self.link.meter {
            Meter::Writer => self.count += written,
            Meter::Beneath(_) => {
                self.held = Held::AWrite;
                // A failure is the next write's to tell: these bytes are taken.
                if !matches!(self.poll_flush(cx), Poll::Ready(Ok(()))) {
                    let added = (written / RECORD_BYTES + 2) * RECORD_OVERHEAD_MAX;
                    self.count = self.count.max(before + written + added);
                }
            }
        }
        Poll::Ready(Ok(n))
    }

    /// Waits until nothing is held back.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match (&self.link.meter, self.held) {
            (Meter::Writer, Held::Nothing | Held::AWrite) | (Meter::Beneath(_), Held::Nothing) => {
                Poll::Ready(Ok(()))
            }
            (Meter::Beneath(bytes), Held::AWrite) => {
                ready!(Pin::new(&mut self.link.io).poll_flush(cx))?;
                self.held = Held::Nothing;
                // Never back: what an event was counted at stays.
                self.count = self.count.max(bytes.load(Ordering::Relaxed));
                Poll::Ready(Ok(()))
            }
        }
    }

    /// Whether a write is held back.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.held == Held::AWrite
    }

    /// Reads what the client sends.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.link.io).poll_read(cx, buf)
    }

    /// Where what was written so far ends on the wire, at most.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes up to `count` that the client has not acknowledged, those that are held back included.
    pub(crate) fn unacked(&self) -> Unacked {
        match self.link.io.unacked() {
            Unacked::Bytes(bytes) => {
                let all = u64::from(bytes) + self.count.saturating_sub(self.on_the_wire());
                u32::try_from(all).map_or(Unacked::Unknown, Unacked::Bytes)
            }
            Unacked::Unknown => Unacked::Unknown,
        }
    }

    fn on_the_wire(&self) -> u64 {
        match &self.link.meter {
            Meter::Writer => self.count,
            Meter::Beneath(bytes) => bytes.load(Ordering::Relaxed),
        }
    }
}

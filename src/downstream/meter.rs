//! A connection that counts what is written to it, beneath TLS.
//! Law: `wire_bytes` of a sink and `unacked` of its socket count the same bytes, so that their difference is what the
//! client has. Above TLS that can only be known from beneath.
//! Why not for plain connections: there a sink's own writes are the same count.
//! Next: `accept_task.rs`.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::{Io, Unacked};

/// Where the bytes of a connection are counted, on the scale of TCP.
#[derive(Clone, Debug)]
pub(crate) enum Meter {
    /// By whoever writes: what is written is what TCP carries.
    Writer,
    /// Beneath TLS, by what TLS writes.
    Beneath(Arc<AtomicU64>),
}

/// A connection whose bytes are counted as its meter says.
#[derive(Debug)]
pub(crate) struct Metered<I> {
    io: I,
    meter: Meter,
}

impl<I: Io> Metered<I> {
    /// Counts from here.
    pub(crate) const fn new(io: I, meter: Meter) -> Self {
        Self { io, meter }
    }

    fn count(&self, outcome: &Poll<io::Result<usize>>) {
        match (&self.meter, outcome) {
            (Meter::Beneath(bytes), Poll::Ready(Ok(n))) => {
                bytes.fetch_add(*n as u64, Ordering::Relaxed);
            }
            (Meter::Writer, _) | (_, Poll::Ready(Err(_)) | Poll::Pending) => {}
        }
    }
}

impl<I: Io> Io for Metered<I> {
    fn unacked(&self) -> Unacked {
        self.io.unacked()
    }

    fn reset_on_close(&self) {
        self.io.reset_on_close();
    }

    fn peer(&self) -> SocketAddr {
        self.io.peer()
    }

    fn may_read(&self) -> bool {
        self.io.may_read()
    }
}

impl<I: Io> AsyncRead for Metered<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: Io> AsyncWrite for Metered<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.count(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.io).poll_write_vectored(cx, parts);
        self.count(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

//! A connection with or without TLS on it, as one type.
//! Law: it adds no buffer and no system call of its own to a plain connection.
//! Absent on purpose: a trait object; the choice is one comparison, and vectored writes pass through.
//! Why `unacked` counts the wire's bytes: TLS only adds to what was written, so the count is on the safe side.
//! Next: `routing/mod.rs`.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsStream;

use crate::net::{Io, Unacked};

/// A connection, plain or under TLS, of either side.
#[derive(Debug)]
pub enum Transport<I> {
    /// As it is.
    Plain(I),
    /// Under TLS. Boxed: a session is large, and a plain connection must not pay for it.
    Tls(Box<TlsStream<I>>),
}

/// Which HTTP the handshake agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alpn {
    /// HTTP/2 by agreement.
    Http2,
    /// HTTP/1.1, by agreement or because nothing was agreed on.
    Http11,
    /// There was no handshake.
    Plain,
}

impl<I: Io> Transport<I> {
    /// Which HTTP the handshake agreed on.
    pub fn alpn(&self) -> Alpn {
        match self {
            Self::Plain(_) => Alpn::Plain,
            Self::Tls(stream) => match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Alpn::Http2,
                Some(_) | None => Alpn::Http11,
            },
        }
    }

    fn wire(&self) -> &I {
        match self {
            Self::Plain(io) => io,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

impl<I: Io> Io for Transport<I> {
    fn unacked(&self) -> Unacked {
        self.wire().unacked()
    }

    fn reset_on_close(&self) {
        self.wire().reset_on_close();
    }

    fn peer(&self) -> SocketAddr {
        self.wire().peer()
    }

    fn may_read(&self) -> bool {
        match self {
            Self::Plain(io) => io.may_read(),
            // What came may wait in the session already.
            Self::Tls(_) => true,
        }
    }
}

impl<I: Io> AsyncRead for Transport<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl<I: Io> AsyncWrite for Transport<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

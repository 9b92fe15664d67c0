//! The client's side of a stream, as the relay sees it: bytes in, backpressure and disappearance out.
//! Law: bytes offered and not accepted are offered again first, unchanged; framing (chunks, HTTP/2) is inside the sink.
//! Absent on purpose: frames, events, positions. A sink moves *into* the stream's task; nothing else holds it.
//! Implemented in `downstream/` for HTTP/1 (the taken-over socket) and HTTP/2 (a body with one frame in flight).
//! Next: `stream_task.rs`.

use std::io;
use std::task::{Context, Poll};

use crate::net::Unacked;
use crate::pure::log::Slices;

/// Why a client can't be written to any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// It closed in an orderly way.
    Fin,
    /// The connection was reset or broke.
    Reset,
    /// The kernel gave the peer up (`TCP_USER_TIMEOUT`).
    TimedOut,
}

/// How a connection's answer ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The answer is complete; the connection may carry the next request.
    Complete,
    /// The answer is complete; the connection is closed in an orderly way (FIN, then bounded draining of input).
    Close,
    /// The connection is reset: the peer must not take what it has for a whole answer.
    Abort,
}

/// Told when a client proves that it had an answer whole.
pub trait Receipt: Send + std::fmt::Debug {
    /// It has acknowledged every byte of the answer, and speaks on.
    fn had_all(self: Box<Self>);
}

/// A client connection that an SSE answer is written to. The response head is the sink's own business:
/// it was given when the sink was made, and goes out with or before the first bytes.
pub trait ClientSink: Send + Unpin {
    /// Writes payload. Answers how many payload bytes were taken (by the kernel, or for HTTP/2 by the connection);
    /// what was not taken is offered again, first, in the next call. Empty `parts` only flush the head.
    ///
    /// # Errors
    /// The connection is broken; nothing more may be sent.
    fn poll_send(&mut self, cx: &mut Context<'_>, parts: &Slices<'_>) -> Poll<io::Result<usize>>;

    /// Ready when the client is gone. Polled whenever the stream's task runs; registers for wake-up.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone>;

    /// Bytes put on this connection so far, framing and TLS included: the scale on which `unacked` counts.
    fn wire_bytes(&self) -> u64;

    /// Bytes of those that the peer did not acknowledge. Asked once, when the connection ends or is superseded.
    fn unacked(&self) -> Unacked;

    /// Leaves word for the proof that the client had the answer whole: it goes on on the same connection, and has
    /// acknowledged everything by then. Dropped where that can't be told. Call: before [`ClientSink::poll_end`].
    fn leave_receipt(&mut self, receipt: Box<dyn Receipt>);

    /// Ends the answer. Ready when done; the sink hands its connection back by itself where it can be reused.
    fn poll_end(&mut self, cx: &mut Context<'_>, how: Ending) -> Poll<()>;
}

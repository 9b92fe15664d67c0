//! An HTTP/2 stream that an SSE answer is written to: a sink for the stream's task, a body for hyper.
//! Law: one piece is in flight between the two; the next is taken when hyper has asked for more. hyper holds one
//! piece more and h2 a bounded send buffer, so that a slow client is felt.
//! Taken means: handed to the connection. What the client has can't be known here (`Unacked::Unknown`).
//! Next: `endpoint.rs`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};

use crate::net::Unacked;
use crate::pure::log::Slices;
use crate::relay::sink::{ClientSink, Ending, Gone, Receipt};

/// Most bytes in one piece: one frame of the largest size that a client accepts by default.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// A sink, and the body that hyper reads.
pub(crate) fn channel() -> (Http2Sink, StreamBody) {
    let shared = Arc::new(Mutex::new(Shared::default()));
    (
        Http2Sink {
            shared: Arc::clone(&shared),
            wrote: 0,
        },
        StreamBody { shared },
    )
}

#[derive(Default)]
struct Shared {
    piece: Option<Bytes>,
    life: Life,
    sender: Option<Waker>,
    watcher: Option<Waker>,
    reader: Option<Waker>,
}

/// What the two sides have said.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Life {
    #[default]
    Open,
    /// The sink has ended: the body ends after the piece.
    Ended,
    /// The sink has given up: the body ends in a reset.
    Aborted,
    /// hyper has dropped the body: the client reset the stream, or its connection is gone.
    Dropped,
}

type Guard<'a> = MutexGuard<'a, Shared>;

fn lock(shared: &Mutex<Shared>) -> Guard<'_> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers whom to wake, without a clone where it is the same one.
fn remember(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

fn wake(place: &mut Option<Waker>) {
    if let Some(waker) = place.take() {
        waker.wake();
    }
}

/// The stream task's side.
pub(crate) struct Http2Sink {
    shared: Arc<Mutex<Shared>>,
    wrote: u64,
}

impl Http2Sink {
    fn end(&mut self, life: Life) {
        let mut shared = lock(&self.shared);
        if shared.life == Life::Open {
            shared.life = life;
            wake(&mut shared.reader);
        }
    }
}

impl ClientSink for Http2Sink {
    fn poll_send(&mut self, cx: &mut Context<'_>, parts: &Slices<'_>) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.shared);
        match shared.life {
            Life::Open => {}
            Life::Ended | Life::Aborted | Life::Dropped => {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
        }
        if parts.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if shared.piece.is_some() {
            remember(&mut shared.sender, cx);
            return Poll::Pending;
        }
        let piece = joined(parts);
        let taken = piece.len();
        shared.piece = Some(piece);
        wake(&mut shared.reader);
        drop(shared);
        self.wrote += taken as u64;
        Poll::Ready(Ok(taken))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        let mut shared = lock(&self.shared);
        match shared.life {
            Life::Dropped => Poll::Ready(Gone::Reset),
            Life::Open | Life::Ended | Life::Aborted => {
                remember(&mut shared.watcher, cx);
                Poll::Pending
            }
        }
    }

    fn wire_bytes(&self) -> u64 {
        self.wrote
    }

    fn unacked(&self) -> Unacked {
        Unacked::Unknown
    }

    fn leave_receipt(&mut self, receipt: Box<dyn Receipt>) {
        // Streams of one connection are acknowledged together: which of them was had is not told.
        drop(receipt);
    }

    fn poll_end(&mut self, _: &mut Context<'_>, how: Ending) -> Poll<()> {
        match how {
            Ending::Complete | Ending::Close => self.end(Life::Ended),
            Ending::Abort => self.end(Life::Aborted),
        }
        Poll::Ready(())
    }
}

impl Drop for Http2Sink {
    fn drop(&mut self) {
        // A sink that was not ended leaves an answer that is not whole.
        self.end(Life::Aborted);
    }
}

fn joined(parts: &Slices<'_>) -> Bytes {
    let mut piece = BytesMut::with_capacity(parts.bytes().min(PIECE_BYTES_MAX));
    for part in parts.as_slice() {
        let room = PIECE_BYTES_MAX - piece.len();
        piece.extend_from_slice(&part[..part.len().min(room)]);
    }
    piece.freeze()
}

/// hyper's side.
pub(crate) struct StreamBody {
    shared: Arc<Mutex<Shared>>,
}

impl StreamBody {
    /// The next piece; `None` is the orderly end, an error becomes a reset of the HTTP/2 stream.
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut shared = lock(&self.shared);
        if shared.life == Life::Aborted {
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        }
        if let Some(piece) = shared.piece.take() {
            wake(&mut shared.sender);
            return Poll::Ready(Some(Ok(piece)));
        }
        if shared.life == Life::Ended {
            return Poll::Ready(None);
        }
        remember(&mut shared.reader, cx);
        Poll::Pending
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.life = Life::Dropped;
        shared.piece = None;
        wake(&mut shared.sender);
        wake(&mut shared.watcher);
    }
}

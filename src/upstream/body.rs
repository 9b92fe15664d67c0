//! The body of a backend's answer: one socket read for each poll, chunk framing taken off, nothing kept.
//! Law: when the body ends and the backend keeps the connection, it goes back to the pool by itself; a body dropped or
//! broken before its end closes it. An end or an error is sticky.
//! Absent on purpose: time limits (the caller's), events (`event_body.rs`), content codings.
//! Why spans and not buffers: an event is copied once, from the read buffer into the log.
//! Next: `upstream/event_body.rs`.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use crate::net::Io;
use crate::net::transport::Transport;
use crate::pure::http1::chunk::{ChunkDecoder, ChunkError, Step};
use crate::pure::http1::head::{Framing, ResponseHead, Reuse};
use crate::routing::{Lease, Replica};
use crate::upstream::gathered::{Fits, Gathered};
use crate::upstream::pool::Pool;
use crate::upstream::scratch;

/// What one poll of a body found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Bytes were read (perhaps of framing only); the body goes on.
    Some,
    /// The body is complete. Its last spans may have been handed out in this very call.
    End(Afterlife),
}

/// What became of the connection when its body ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Afterlife {
    /// It went back to the pool.
    Pooled,
    /// It was closed: by the backend, by its wish, or because it sent bytes that nobody asked for.
    Closed,
}

/// Why a body can't be read to its end. The upstream's fault; the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// The connection broke.
    Broken(io::ErrorKind),
    /// The connection ended in an orderly way before the body did.
    EarlyEof,
    /// The chunk framing is malformed.
    BadChunk(ChunkError),
    /// The body is longer than the caller takes.
    TooLarge {
        /// The bound, in bytes.
        max: usize,
    },
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(kind) => write!(f, "the connection broke: {kind}"),
            Self::EarlyEof => f.write_str("the connection ended before the body did"),
            Self::BadChunk(error) => write!(f, "malformed chunk: {error}"),
            Self::TooLarge { max } => write!(f, "the body is longer than {max} bytes"),
        }
    }
}

impl std::error::Error for BodyError {}

/// What a body holds of its replica.
pub(super) enum Held {
    /// Its share of the bound on exchanges.
    Lease(Lease),
    /// Nothing that is counted.
    Free(Arc<Replica>),
}

impl Held {
    pub(super) fn replica(&self) -> &Arc<Replica> {
        match self {
            Self::Lease(lease) => lease.replica(),
            Self::Free(replica) => replica,
        }
    }
}

/// The body of one answer.
pub struct Body<I> {
    state: State<I>,
    /// What came in the same read as the head, still framed.
    ahead: Bytes,
}

enum State<I> {
    Open(Open<I>),
    Ended(Afterlife),
    Failed(BodyError),
}

struct Open<I> {
    /// Given back before the connection closes: who sees it closed finds the replica less busy.
    held: Held,
    io: Transport<I>,
    left: Left,
    reuse: Reuse,
}

/// What is still to come.
enum Left {
    Bytes(u64),
    Chunked(ChunkDecoder),
    UntilClose,
}

/// Where some bytes led.
enum Progress {
    Open,
    Ended(Trailing),
}

/// What stood behind the body's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trailing {
    Nothing,
    Bytes,
    Eof,
}

impl<I: Io> Body<I> {
    /// The body that follows this head. `ahead` was read behind the head already.
    pub(super) fn new(io: Transport<I>, head: &ResponseHead, ahead: Bytes, held: Held) -> Self {
        let left = match head.framing {
            Framing::Empty => Left::Bytes(0),
            Framing::Length(length) => Left::Bytes(length),
            Framing::Chunked => Left::Chunked(ChunkDecoder::new()),
            Framing::UntilClose => Left::UntilClose,
        };
        let nothing_comes = matches!(left, Left::Bytes(0));
        let trailing = if ahead.is_empty() {
            Trailing::Nothing
        } else {
            Trailing::Bytes
        };
        let mut body = Self {
            state: State::Open(Open {
                io,
                left,
                reuse: head.reuse,
                held,
            }),
            ahead,
        };
        if nothing_comes {
            body.ahead = Bytes::new();
            body.end(trailing);
        }
        body
    }

    /// Reads once and hands every span of body bytes to `on`.
    ///
    /// *Next*: after [`Data::Some`], again (more may be readable at once); after [`Data::End`], nothing: it is
    /// answered for ever. Pending registers for wake-up. Cancel-safe.
    ///
    /// # Errors
    /// [`BodyError`]; sticky.
    pub fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        on: &mut impl FnMut(&[u8]),
    ) -> Poll<Result<Data, BodyError>> {
        let open = match &mut self.state {
            State::Open(open) => open,
            State::Ended(afterlife) => return Poll::Ready(Ok(Data::End(*afterlife))),
            State::Failed(error) => return Poll::Ready(Err(error.clone())),
        };
        let progress = if self.ahead.is_empty() {
            ready!(open.poll_read(cx, on))
        } else {
            open.left.unframe(&std::mem::take(&mut self.ahead), on)
        };
        Poll::Ready(match progress {
            Ok(Progress::Open) => Ok(Data::Some),
            Ok(Progress::Ended(trailing)) => Ok(Data::End(self.end(trailing))),
            Err(error) => Err(self.fail(error)),
        })
    }

    /// The next piece of the body, for passing it on; `None` is the end. Cancel-safe.
    ///
    /// # Errors
    /// [`BodyError`]; sticky.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            let mut piece = Gathered::new(usize::MAX, 0);
            let ahead = self.ahead.clone();
            let polled = ready!(self.poll_data(cx, &mut |span| piece.take(span, &ahead)));
            let piece = piece.finish();
            if !piece.is_empty() {
                // An end or an error is sticky, so it is told by the next poll.
                return Poll::Ready(Some(Ok(piece)));
            }
            match polled {
                Ok(Data::Some) => {}
                Ok(Data::End(_)) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// The whole body, if it is no longer than `max` bytes. What came with the head in one piece is not copied.
    ///
    /// # Errors
    /// [`BodyError`], among them [`BodyError::TooLarge`], known from the declared length where there is one.
    pub async fn collect(mut self, max: usize) -> Result<Bytes, BodyError> {
        let declared = self.declared();
        if declared > max as u64 {
            return Err(self.fail(BodyError::TooLarge { max }));
        }
        let mut whole = Gathered::new(max, usize::try_from(declared).unwrap_or(max));
        loop {
            let ahead = self.ahead.clone();
            let polled = poll_fn(|cx| self.poll_data(cx, &mut |span| whole.take(span, &ahead))).await?;
            match (whole.fits(), polled) {
                (Fits::No, Data::Some | Data::End(_)) => return Err(self.fail(BodyError::TooLarge { max })),
                (Fits::Yes, Data::Some) => {}
                (Fits::Yes, Data::End(_)) => return Ok(whole.finish()),
            }
        }
    }

    /// The whole body, if it came in the same read as the head, its length was declared, and it is no longer than
    /// `max` bytes. Most answers to calls are so: nothing has to be waited for.
    pub fn at_hand(&mut self, max: usize) -> Option<Bytes> {
        let whole =
            self.declared() > 0 && self.declared() == self.ahead.len() as u64 && self.ahead.len() <= max;
        if !whole {
            return None;
        }
        let bytes = std::mem::take(&mut self.ahead);
        self.end(Trailing::Nothing);
        Some(bytes)
    }

    /// Bytes still to come if their number was declared, else 0.
    fn declared(&self) -> u64 {
        match &self.state {
            State::Open(Open {
                left: Left::Bytes(left),
                ..
            }) => *left,
            State::Open(_) | State::Ended(_) | State::Failed(_) => 0,
        }
    }

    /// Makes the close of its connection a reset, if the body is dropped before its end.
    pub fn reset_on_close(&self) {
        match &self.state {
            State::Open(open) => open.io.reset_on_close(),
            State::Ended(_) | State::Failed(_) => {}
        }
    }

    fn end(&mut self, trailing: Trailing) -> Afterlife {
        let State::Open(open) = std::mem::replace(&mut self.state, State::Ended(Afterlife::Closed)) else {
            return Afterlife::Closed;
        };
        let afterlife = open.retire(trailing);
        self.state = State::Ended(afterlife);
        afterlife
    }

    /// Closes the connection; every later poll answers this error.
    pub(super) fn fail(&mut self, error: BodyError) -> BodyError {
        self.state = State::Failed(error.clone());
        self.ahead = Bytes::new();
        error
    }
}

impl<I: Io> Open<I> {
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        on: &mut impl FnMut(&[u8]),
    ) -> Poll<Result<Progress, BodyError>> {
        scratch::with_read(|buffer| {
            let mut read = ReadBuf::new(buffer);
            let outcome = ready!(Pin::new(&mut self.io).poll_read(cx, &mut read));
            Poll::Ready(match outcome {
                Err(error) => Err(BodyError::Broken(error.kind())),
                Ok(()) if read.filled().is_empty() => self.left.eof(),
                Ok(()) => self.left.unframe(read.filled(), on),
            })
        })
    }

    /// Gives the connection back if it may carry another exchange.
    fn retire(self, trailing: Trailing) -> Afterlife {
        match (self.reuse, trailing) {
            (Reuse::KeepAlive, Trailing::Nothing) => {}
            (Reuse::Close, Trailing::Nothing | Trailing::Bytes | Trailing::Eof)
            | (Reuse::KeepAlive, Trailing::Bytes | Trailing::Eof) => return Afterlife::Closed,
        }
        match self.held.replica().slot::<Pool<Transport<I>>>() {
            Some(pool) => {
                pool.put(self.io, Instant::now());
                Afterlife::Pooled
            }
            None => Afterlife::Closed,
        }
    }
}

impl Left {
    fn unframe(&mut self, bytes: &[u8], on: &mut impl FnMut(&[u8])) -> Result<Progress, BodyError> {
        match self {
            Self::Bytes(left) => {
                let ours = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                let (body, behind) = bytes.split_at(ours);
                on(body);
                *left -= ours as u64;
                if *left > 0 {
                    return Ok(Progress::Open);
                }
                Ok(Progress::Ended(trailing(behind)))
            }
            Self::Chunked(decoder) => dechunk(decoder, bytes, on),
            Self::UntilClose => {
                on(bytes);
                Ok(Progress::Open)
            }
        }
    }

    fn eof(&self) -> Result<Progress, BodyError> {
        match self {
            Self::UntilClose => Ok(Progress::Ended(Trailing::Eof)),
            Self::Bytes(_) | Self::Chunked(_) => Err(BodyError::EarlyEof),
        }
    }
}

fn dechunk(
    decoder: &mut ChunkDecoder,
    bytes: &[u8],
    on: &mut impl FnMut(&[u8]),
) -> Result<Progress, BodyError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match decoder.next(rest).map_err(BodyError::BadChunk)? {
            Step::Data { data, consumed } => {
                on(data);
                rest = &rest[consumed..];
            }
            Step::More { consumed } => rest = &rest[consumed..],
            Step::End { consumed } => return Ok(Progress::Ended(trailing(&rest[consumed..]))),
        }
    }
    Ok(Progress::Open)
}

const fn trailing(behind: &[u8]) -> Trailing {
    if behind.is_empty() {
        Trailing::Nothing
    } else {
        Trailing::Bytes
    }
}

//! A body of Server-Sent Events: the body's spans through the decoder, blocks handed out in place.
//! Law: a block that the backend did not finish is never handed out; how the stream ended is always said.
//! Absent on purpose: what a block means, logs, positions (the relay's).
//! Why so small: an idle stream is a socket, a place in two machines, and no buffer.
//! Next: `upstream/pool.rs`.

use std::fmt;
use std::task::{Context, Poll, ready};

use crate::net::Io;
use crate::net::tcp::TcpIo;
use crate::pure::sse::{Decoder, OnBlock, Tail, TooLarge};
use crate::upstream::body::{Body, BodyError, Data};

/// What one poll of an event stream found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// Bytes were read, and every block that they completed was handed out (perhaps none); the stream goes on.
    Events,
    /// The backend ended the stream in an orderly way; blocks may have been handed out in this very call.
    End(Tail),
}

/// Why an event stream can't be read on. The upstream's fault; the connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventError {
    /// The body broke.
    Body(BodyError),
    /// An event is larger than its bound.
    TooLarge(TooLarge),
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(error) => error.fmt(f),
            Self::TooLarge(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EventError {}

/// An event stream of a backend.
pub struct EventBody<I> {
    body: Body<I>,
    decoder: Decoder,
    too_large: Option<TooLarge>,
}

/// What an idle event stream may take beside its socket, in bytes: there are two for each session.
const IDLE_BYTES_MAX: usize = 192;
const _: () = assert!(size_of::<EventBody<TcpIo>>() <= IDLE_BYTES_MAX);

impl<I: Io> EventBody<I> {
    /// The events of this body; each at most `event_bytes_max` bytes.
    pub const fn new(body: Body<I>, event_bytes_max: usize) -> Self {
        Self {
            body,
            decoder: Decoder::new(event_bytes_max),
            too_large: None,
        }
    }

    /// The same, where this decoder has taken what was read of it already.
    pub const fn behind(body: Body<I>, decoder: Decoder) -> Self {
        Self {
            body,
            decoder,
            too_large: None,
        }
    }

    /// Makes the close of its connection a reset, if the stream is dropped before its end.
    pub fn reset_on_close(&self) {
        self.body.reset_on_close();
    }

    /// Reads once and hands every block that is complete to `on`.
    ///
    /// *Next*: after [`Read::Events`], again (more may be readable at once); after [`Read::End`], nothing: it is
    /// answered for ever. Pending registers for wake-up. Cancel-safe.
    ///
    /// # Errors
    /// [`EventError`]; sticky. The blocks before the error were handed out.
    pub fn poll_events(
        &mut self,
        cx: &mut Context<'_>,
        on: &mut impl OnBlock,
    ) -> Poll<Result<Read, EventError>> {
        if let Some(too_large) = self.too_large {
            return Poll::Ready(Err(EventError::TooLarge(too_large)));
        }
        let decoder = &mut self.decoder;
        let mut fed = Ok(());
        let polled = self.body.poll_data(cx, &mut |span| {
            if fed.is_ok() {
                fed = decoder.feed_to(span, on);
            }
        });
        if let Err(too_large) = fed {
            self.too_large = Some(too_large);
            self.body.fail(BodyError::TooLarge { max: too_large.max });
            return Poll::Ready(Err(EventError::TooLarge(too_large)));
        }
        Poll::Ready(match ready!(polled) {
            Ok(Data::Some) => Ok(Read::Events),
            Ok(Data::End(_)) => Ok(Read::End(self.decoder.finish())),
            Err(error) => Err(EventError::Body(error)),
        })
    }
}

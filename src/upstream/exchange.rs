//! One request on one connection, up to the head of its answer.
//! Law: it always knows whether a byte of the request may have reached the backend; what it can't know counts as a byte.
//! Absent on purpose: connecting, time, and a second try. An answer may come before the request is written: it is taken,
//! and the connection is not used again.
//! Why one write: head and body in one system call is a third of the cost of a small call.
//! Next: `upstream/body.rs`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::Io;
use crate::net::transport::Transport;
use crate::pure::http1::head::{
    BodyLength, Read, RequestHead, ResponseHead, Reuse, read_response, write_request,
};
use crate::pure::limits::RESPONSE_HEAD_BYTES_MAX;
use crate::upstream::client::Outgoing;
use crate::upstream::failure::{Cause, SendError};
use crate::upstream::scratch;

/// Up to here a body is copied behind its head, in bytes: one plain write is cheaper than one of two parts.
const JOINED_BYTES_MAX: usize = 4 * 1024;

/// One exchange up to the answer's head. Call: [`Exchange::poll`] until it is ready.
/// Next: [`Exchange::into_io`] after an answer, [`Exchange::verdict`] after a failure.
pub(super) struct Exchange<'a, I> {
    io: Transport<I>,
    request: &'a Outgoing<'a>,
    host: &'a str,
    writing: Writing,
    sent: Sent,
    /// The answer's head as far as it came, if it did not come in one read.
    carry: Vec<u8>,
}

/// How far the request is written.
enum Writing {
    /// Nothing is.
    Fresh,
    /// Some of it; what is left of the head, and how many bytes of the body are written.
    Partly { head: Vec<u8>, body_at: usize },
    /// All of it is handed over, and may wait in a TLS session.
    Flushing,
    /// All of it is.
    Done,
    /// The connection took no more. An answer may have come all the same.
    Broken(Cause),
}

/// Whether a byte of the request may have left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Nothing,
    Something,
}

/// An answer's head, and what was read behind it.
pub(super) struct Answered {
    pub(super) head: ResponseHead,
    pub(super) ahead: Bytes,
}

impl<'a, I: Io> Exchange<'a, I> {
    pub(super) const fn new(io: Transport<I>, request: &'a Outgoing<'a>, host: &'a str) -> Self {
        Self {
            io,
            request,
            host,
            writing: Writing::Fresh,
            sent: Sent::Nothing,
            carry: Vec::new(),
        }
    }

    /// Writes what can be written and reads what can be read. Cancel-safe: the state is in `self`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, Cause>> {
        if let Poll::Ready(Err(cause)) = self.poll_write(cx) {
            if self.sent == Sent::Nothing {
                return Poll::Ready(Err(cause));
            }
            self.writing = Writing::Broken(cause);
        }
        if self.sent == Sent::Nothing {
            return Poll::Pending;
        }
        let polled = self.poll_head(cx);
        match &self.writing {
            // What the backend said before it broke off is taken; when there is nothing, nothing more will come.
            Writing::Broken(cause) if polled.is_pending() => Poll::Ready(Err(cause.clone())),
            Writing::Broken(_)
            | Writing::Fresh
            | Writing::Partly { .. }
            | Writing::Flushing
            | Writing::Done => polled,
        }
    }

    /// The connection, for the answer's body.
    pub(super) fn into_io(self) -> Transport<I> {
        self.io
    }

    /// What a failure means for the request.
    pub(super) const fn verdict(&self, cause: Cause) -> SendError {
        match self.sent {
            Sent::Nothing => SendError::NotSent(cause),
            Sent::Something => SendError::Unknown(cause),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        loop {
            match &mut self.writing {
                Writing::Fresh => ready!(self.poll_first_write(cx))?,
                Writing::Partly { head, body_at } => {
                    let body = &self.request.body[*body_at..];
                    let written = ready!(write(&mut self.io, cx, head, body, &mut self.sent))?;
                    let of_head = written.min(head.len());
                    head.drain(..of_head);
                    *body_at += written - of_head;
                    if head.is_empty() && *body_at == self.request.body.len() {
                        self.writing = Writing::Flushing;
                    }
                }
                Writing::Flushing => {
                    let flushed = ready!(Pin::new(&mut self.io).poll_flush(cx));
                    flushed.map_err(|error| Cause::Broken(error.kind()))?;
                    self.writing = Writing::Done;
                }
                Writing::Done | Writing::Broken(_) => return Poll::Ready(Ok(())),
            }
        }
    }

    /// The first write takes head and body together, the head from the thread's buffer: nothing is allocated unless
    /// the kernel takes less than all.
    fn poll_first_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        let Outgoing {
            method,
            target,
            headers,
            withheld,
            own,
            body,
        } = self.request;
        let length = body_length(method, body);
        scratch::with_request(|head| {
            write_request(
                head,
                &RequestHead {
                    method,
                    target,
                    host: self.host,
                    headers,
                    withheld: *withheld,
                    own,
                    body: length,
                },
            );
            let of_head = head.len();
            let apart = if body.len() <= JOINED_BYTES_MAX {
                head.extend_from_slice(body);
                &[][..]
            } else {
                body
            };
            let written = ready!(write(&mut self.io, cx, head, apart, &mut self.sent))?;
            self.writing = if written == of_head + body.len() {
                Writing::Flushing
            } else {
                let of_head = &head[..of_head];
                Writing::Partly {
                    head: of_head[written.min(of_head.len())..].to_vec(),
                    body_at: written.saturating_sub(of_head.len()),
                }
            };
            Poll::Ready(Ok(()))
        })
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, Cause>> {
        loop {
            let read = scratch::with_read(|buffer| {
                let mut read = ReadBuf::new(buffer);
                let outcome = ready!(Pin::new(&mut self.io).poll_read(cx, &mut read));
                Poll::Ready(match outcome {
                    Err(error) => Err(Cause::Broken(error.kind())),
                    Ok(()) if read.filled().is_empty() => Err(Cause::EarlyEof),
                    Ok(()) => self.take(read.filled()),
                })
            });
            if let Some(answered) = ready!(read)? {
                return Poll::Ready(Ok(answered));
            }
        }
    }

    /// Takes what was read; an answer if the head is whole.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<Answered>, Cause> {
        let whole = if self.carry.is_empty() {
            bytes
        } else {
            self.carry.extend_from_slice(bytes);
            // A head ends in a line end; a backend that trickles must not have its head searched for every byte.
            if memchr(b'\n', bytes).is_none() && self.carry.len() < RESPONSE_HEAD_BYTES_MAX {
                return Ok(None);
            }
            &self.carry
        };
        match read_response(whole, &self.request.method).map_err(Cause::BadHead)? {
            Read::Partial => {
                if self.carry.is_empty() {
                    self.carry = bytes.to_vec();
                }
                Ok(None)
            }
            Read::Whole { mut head, consumed } => {
                match self.writing {
                    Writing::Done | Writing::Flushing => {}
                    Writing::Fresh | Writing::Partly { .. } | Writing::Broken(_) => head.reuse = Reuse::Close,
                }
                let ahead = Bytes::copy_from_slice(&whole[consumed..]);
                Ok(Some(Answered { head, ahead }))
            }
        }
    }
}

/// A method that usually has a body says so even if it is empty: some servers refuse a POST without a length.
fn body_length(method: &Method, body: &Bytes) -> BodyLength {
    let means_a_body = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    if body.is_empty() && !means_a_body {
        return BodyLength::None;
    }
    BodyLength::Exactly(body.len() as u64)
}

/// One write of what is left. Under TLS a failed write may have put whole records on the wire before it failed.
fn write<I: Io>(
    io: &mut Transport<I>,
    cx: &mut Context<'_>,
    head: &[u8],
    body: &[u8],
    sent: &mut Sent,
) -> Poll<Result<usize, Cause>> {
    let outcome = if body.is_empty() {
        ready!(Pin::new(&mut *io).poll_write(cx, head))
    } else {
        ready!(Pin::new(&mut *io).poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)]))
    };
    let outcome = match outcome {
        Ok(0) => Err(io::ErrorKind::WriteZero),
        Ok(written) => Ok(written),
        Err(error) => Err(error.kind()),
    };
    match (&outcome, io) {
        (Ok(_), Transport::Plain(_) | Transport::Tls(_)) | (Err(_), Transport::Tls(_)) => {
            *sent = Sent::Something;
        }
        (Err(_), Transport::Plain(_)) => {}
    }
    Poll::Ready(outcome.map_err(Cause::Broken))
}

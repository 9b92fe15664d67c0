//! The body of an answer as hyper wants it: whole, passing, or an HTTP/2 stream's.
//! Law: a request counts as served until its body is dropped (`Busy`), so that its connection is not taken for idle.
//! Next: `sink_http2.rs`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::downstream::sink_http2::StreamBody;
use crate::downstream::tap::Busy;
use crate::relay::answer::PassingBody;

/// The body of one answer.
pub(crate) struct AnswerBody<P> {
    kind: Kind<P>,
    _busy: Busy,
}

/// Where the bytes come from.
pub(crate) enum Kind<P> {
    /// Here they are; empty once given.
    Whole(Bytes),
    /// From a backend.
    Passing(P),
    /// From a stream's task, over HTTP/2.
    Stream(StreamBody),
}

impl<P> AnswerBody<P> {
    /// A body that keeps its connection busy.
    pub(crate) fn new(kind: Kind<P>, busy: Busy) -> Self {
        Self { kind, _busy: busy }
    }
}

impl<P: PassingBody> Body for AnswerBody<P> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = match &mut self.kind {
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Kind::Passing(body) => body.poll_bytes(cx),
            Kind::Stream(body) => body.poll_bytes(cx),
        };
        next.map(|item| item.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Passing(_) | Kind::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Passing(_) | Kind::Stream(_) => SizeHint::default(),
        }
    }
}

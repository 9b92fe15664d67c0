//! A parked HTTP/1 client: the socket that was taken from hyper, written to by a stream's task.
//! Law: `Pending` means that nothing was taken; taken means that it is written, at most one write of it still in
//! TLS's buffer (the next write waits for that). What stands between two chunks is finished whenever the task runs.
//! It costs no task and no buffer while it is idle; the head is freed once sent, and what a pipelining client sends
//! meanwhile is kept within a bound, then left in the kernel.
//! Next: `wire.rs`.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;

use crate::downstream::framing::{BodyEnd, Framing};
use crate::downstream::front::{Front, Link};
use crate::downstream::wire::Wire;
use crate::downstream::{http_task, linger};
use crate::net::{Io, Unacked};
use crate::pure::log::Slices;
use crate::relay::answer::Serve;
use crate::relay::sink::{ClientSink, Ending, Gone, Receipt};

/// Most bytes kept of requests that come before the answer has ended: a POST or two. More stays in the kernel.
const PIPELINED_BYTES_MAX: usize = 16 * 1024;

/// Bytes read at a time while looking for the client's end.
const GLANCE_BYTES: usize = 1024;

/// How much of a chunk is filled up in one write, in bytes.
const FILLER_BYTES: usize = 512;

/// What becomes of the connection after a complete answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// It carries the next request.
    Reuse,
    /// It ends.
    Close,
}

/// A taken-over client connection.
pub(crate) struct Http1Sink<T: Io, S: Serve> {
    line: Line<T>,
    front: Arc<Front<S>>,
    framing: Framing,
    stray: Option<Box<Stray>>,
    body_end: BodyEnd,
    after: After,
    finished: Finished,
}

/// The connection of an answer.
enum Line<T> {
    /// It is being written to.
    Up(Wire<T>),
    /// The answer has ended, and this was counted.
    Left(u64),
}

/// What a client sent before the answer has ended.
#[derive(Default)]
struct Stray {
    bytes: Vec<u8>,
}

impl<T> Line<T> {
    const fn wire(&mut self) -> Option<&mut Wire<T>> {
        match self {
            Self::Up(wire) => Some(wire),
            Self::Left(_) => None,
        }
    }
}

/// Whether the end of the body was added to what is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Finished {
    No,
    Yes,
}

impl<T: Io, S: Serve> Http1Sink<T, S> {
    /// Takes a connection over for one answer with this head.
    pub(crate) fn new(
        mut link: Link<T>,
        front: Arc<Front<S>>,
        head: Box<[u8]>,
        body_end: BodyEnd,
        after: After,
    ) -> Self {
        // Copied, since the slice pins the whole buffer that hyper read into.
        let bytes = std::mem::take(&mut link.left).to_vec();
        link.receipt = None;
        Self {
            line: Line::Up(Wire::new(link)),
            front,
            framing: Framing::new(head, body_end),
            stray: (!bytes.is_empty()).then(|| Box::new(Stray { bytes })),
            body_end,
            after,
            finished: Finished::No,
        }
    }

    /// Writes what was begun and needs no payload: the end of a chunk, the rest of a head, the final chunk.
    fn poll_settle(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(wire) = self.line.wire() else {
            return Poll::Ready(Ok(()));
        };
        loop {
            let plan = self.framing.plan(&[]);
            if plan.parts().is_empty() {
                return wire.poll_flush(cx);
            }
            let n = ready!(wire.poll_put(cx, plan.parts()))?;
            self.framing.wrote(n, 0);
        }
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.finished {
            Finished::Yes => {}
            Finished::No => {
                ready!(self.poll_fill(cx))?;
                self.framing.finish().map_err(|_| io::ErrorKind::UnexpectedEof)?;
                self.finished = Finished::Yes;
            }
        }
        self.poll_settle(cx)
    }

    /// Fills a chunk up that was begun for more than will be said: the answer ends at an event's boundary, and its
    /// framing must hold all the same.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut space = [0; FILLER_BYTES];
        loop {
            let filler = self.framing.filler(&mut space);
            if filler.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let Some(wire) = self.line.wire() else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let offered = [IoSlice::new(filler)];
            let n = ready!(wire.poll_put(cx, self.framing.plan(&offered).parts()))?;
            self.framing.wrote(n, filler.len());
        }
    }

    fn leave(&mut self) -> Option<Link<T>> {
        let count = self.wire_bytes();
        match std::mem::replace(&mut self.line, Line::Left(count)) {
            Line::Up(wire) => Some(wire.into_link()),
            Line::Left(_) => None,
        }
    }

    fn abort(&mut self) {
        if let Some(link) = self.leave() {
            link.io.reset_on_close();
        }
    }

    fn hand_back(&mut self, after: After) {
        let Some(mut link) = self.leave() else { return };
        match after {
            After::Reuse if !self.front.drain.has_begun() => {
                link.left = self
                    .stray
                    .take()
                    .map_or_else(Bytes::new, |stray| stray.bytes.into());
                tokio::spawn(http_task::connection(Arc::clone(&self.front), link));
            }
            After::Reuse | After::Close => {
                tokio::spawn(linger::linger(link));
            }
        }
    }
}

impl<T: Io, S: Serve> ClientSink for Http1Sink<T, S> {
    fn poll_send(&mut self, cx: &mut Context<'_>, parts: &Slices<'_>) -> Poll<io::Result<usize>> {
        let Some(wire) = self.line.wire() else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            self.framing.begin(parts.bytes());
            let plan = self.framing.plan(parts.as_slice());
            if plan.parts().is_empty() {
                return wire.poll_flush(cx).map_ok(|()| 0);
            }
            let Poll::Ready(outcome) = wire.poll_put(cx, plan.parts()) else {
                self.framing.forget_unwritten();
                return Poll::Pending;
            };
            match self.framing.wrote(outcome?, parts.bytes()) {
                0 => {}
                taken => return Poll::Ready(Ok(taken)),
            }
        }
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        if self.framing.has_rest() || self.line.wire().is_some_and(|wire| wire.is_unflushed()) {
            // A failure is found by reading, too, and told there.
            let _ = self.poll_settle(cx);
        }
        let Some(wire) = self.line.wire() else {
            return Poll::Ready(Gone::Fin);
        };
        while self.stray.as_ref().map_or(0, |stray| stray.bytes.len()) < PIPELINED_BYTES_MAX {
            let mut space = [MaybeUninit::uninit(); GLANCE_BYTES];
            let mut glance = ReadBuf::uninit(&mut space);
            match ready!(wire.poll_read(cx, &mut glance)) {
                Ok(()) if glance.filled().is_empty() => return Poll::Ready(Gone::Fin),
                Ok(()) => {
                    let stray = self.stray.get_or_insert_default();
                    stray.bytes.extend_from_slice(glance.filled());
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Poll::Ready(Gone::TimedOut),
                Err(_) => return Poll::Ready(Gone::Reset),
            }
        }
        // A client that sends this much without waiting is found gone by writing to it.
        Poll::Pending
    }

    fn wire_bytes(&self) -> u64 {
        match &self.line {
            Line::Up(wire) => wire.count(),
            Line::Left(count) => *count,
        }
    }

    fn unacked(&self) -> Unacked {
        match &self.line {
            Line::Up(wire) => wire.unacked(),
            Line::Left(_) => Unacked::Unknown,
        }
    }

    fn leave_receipt(&mut self, receipt: Box<dyn Receipt>) {
        if let Some(wire) = self.line.wire() {
            wire.leave_receipt(receipt);
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, how: Ending) -> Poll<()> {
        let after = match (how, self.body_end) {
            (Ending::Abort, BodyEnd::Chunked | BodyEnd::Closed) => {
                self.abort();
                return Poll::Ready(());
            }
            (Ending::Close, BodyEnd::Chunked | BodyEnd::Closed) | (Ending::Complete, BodyEnd::Closed) => {
                After::Close
            }
            (Ending::Complete, BodyEnd::Chunked) => self.after,
        };
        match ready!(self.poll_finish(cx)) {
            Ok(()) => self.hand_back(after),
            Err(_) => self.abort(),
        }
        Poll::Ready(())
    }
}

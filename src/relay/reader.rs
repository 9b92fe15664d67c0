//! One attached client: its connection, where it stands in the log, and what is said to it outside the log.
//! Law: whole frames only. What is not in the log (priming, comments) is queued at a frame's boundary, never inside.
//! The position moves only when the kernel took the bytes; what the peer acknowledged is asked once, at the end.
//! Absent on purpose: a queue of events. The log is the queue; a live event is only a wake-up.
//! Next: `stream_task.rs`.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};

use crate::pure::epoch::Seq;
use crate::pure::log::{Millis, Position, Slices, View};
use crate::pure::stream::Marks;
use crate::pure::stream::attach::Client;
use crate::relay::sink::{ClientSink, Ending, Gone};
use crate::store::StreamLog;

/// What came of trying to bring a reader up to date.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    /// It has everything.
    UpToDate,
    /// It takes nothing more for now.
    Blocked,
    /// It is gone.
    Gone(Gone),
    /// What it needs next is no longer held; the oldest that is, for the log line.
    Lost {
        /// The oldest event still held.
        oldest: Seq,
    },
}

/// Whether something is offered that the client has not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offered {
    Nothing,
    Something,
}

/// An attached client.
pub(crate) struct Reader {
    sink: Box<dyn ClientSink>,
    at: Position,
    /// Bytes outside the log, whole frames, sent before the next event.
    aside: Vec<u8>,
    aside_sent: usize,
    marks: Marks,
    offered: Offered,
    /// When it was attached.
    pub(crate) since: Millis,
    /// When the kernel last took something.
    pub(crate) took_at: Millis,
    /// Payload bytes that the kernel took.
    pub(crate) bytes: u64,
}

impl Reader {
    /// A client that stands at `after` and is told `aside` (priming) first.
    pub(crate) fn new(sink: Box<dyn ClientSink>, after: Seq, aside: Vec<u8>, now: Millis) -> Self {
        Self {
            sink,
            at: Position { after, skip: 0 },
            aside,
            aside_sent: 0,
            marks: Marks::new(after),
            offered: Offered::Nothing,
            since: now,
            took_at: now,
            bytes: 0,
        }
    }

    /// The newest event that was written whole.
    pub(crate) fn written(&self) -> Seq {
        self.at.after
    }

    /// Whether nothing is half sent: the connection may end here, or be told something else.
    pub(crate) fn at_boundary(&self) -> bool {
        self.at.skip == 0 && self.aside_sent == 0
    }

    /// Whether a part of this event's frame is sent, and not all of it.
    pub(crate) fn is_within(&self, seq: Seq) -> bool {
        self.at.skip > 0 && self.at.after.next() == seq
    }

    /// How it stands: whether something is offered that it has not taken. Call: after a flush.
    pub(crate) fn standing(&self) -> Client {
        let took_at = self.took_at;
        match self.offered {
            Offered::Nothing => Client::Idle { took_at },
            Offered::Something => Client::Offered { took_at },
        }
    }

    /// Whether it has taken everything that was offered.
    pub(crate) fn is_idle(&self) -> bool {
        self.offered == Offered::Nothing
    }

    /// Queues whole frames or comments outside the log. They go out at the next frame boundary.
    pub(crate) fn say(&mut self, frames: &[u8]) {
        self.aside.extend_from_slice(frames);
    }

    /// Writes as much as the client takes of what is held up to `upto`.
    pub(crate) fn flush<L: StreamLog>(
        &mut self,
        cx: &mut Context<'_>,
        log: &L,
        upto: Seq,
        now: Millis,
    ) -> Flushed {
        loop {
            let mut parts = Slices::new();
            // A half-sent frame is finished before anything else is said.
            let aside = if self.at.skip == 0 {
                &self.aside[self.aside_sent..]
            } else {
                &[][..]
            };
            let first = aside.len();
            let _ = parts.push(aside);
            match log.view(self.at, upto, &mut parts) {
                View::Here | View::Nothing => {}
                View::Gone { oldest } => return Flushed::Lost { oldest },
                View::Fetch => return Flushed::Blocked,
            }
            if parts.is_empty() {
                self.offered = Offered::Nothing;
                return Flushed::UpToDate;
            }
            let offered = parts.bytes();
            let taken = match self.sink.poll_send(cx, &parts) {
                Poll::Pending => {
                    self.offered = Offered::Something;
                    return Flushed::Blocked;
                }
                Poll::Ready(Ok(taken)) => taken,
                Poll::Ready(Err(_)) => return Flushed::Gone(Gone::Reset),
            };
            debug_assert!(taken <= offered, "a sink took more than it was offered");
            self.took(log, taken, first, now);
        }
    }

    fn took<L: StreamLog>(&mut self, log: &L, taken: usize, aside_offered: usize, now: Millis) {
        if taken == 0 {
            return;
        }
        self.took_at = now;
        self.bytes += taken as u64;
        let of_aside = taken.min(aside_offered);
        self.aside_sent += of_aside;
        if of_aside > 0 && self.aside_sent == self.aside.len() {
            self.aside = Vec::new();
            self.aside_sent = 0;
        }
        let of_log = taken - of_aside;
        if of_log > 0 {
            let before = self.at.after;
            self.at = log.advance(self.at, of_log);
            if self.at.after != before {
                self.marks.push(self.sink.wire_bytes(), self.at.after);
            }
        }
    }

    /// Whether the client went away.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        self.sink.poll_gone(cx)
    }

    /// The newest event that the client's side acknowledged. Asked once, when the connection ends or is superseded.
    pub(crate) fn acked(&self) -> Seq {
        self.marks.acked(self.sink.wire_bytes(), self.sink.unacked())
    }

    /// Moves what this client is still owed of a log that ends in front of what the next log holds.
    pub(crate) fn carry_over<L: StreamLog>(&mut self, log: &L, upto: Seq) {
        let mut owed = self.aside.split_off(0);
        let mut sent = std::mem::take(&mut self.aside_sent);
        let mut at = Position { skip: 0, ..self.at };
        let begun = self.at.skip;
        let mut of_log = Vec::new();
        loop {
            let mut parts = Slices::new();
            match log.view(at, upto, &mut parts) {
                View::Here => {}
                View::Nothing | View::Fetch | View::Gone { .. } => break,
            }
            for part in parts.as_slice() {
                of_log.extend_from_slice(part);
            }
            at = log.advance(at, parts.bytes());
        }
        if begun > 0 {
            // A half-sent frame goes on first; what was to be said beside the log waits behind it.
            of_log.extend_from_slice(&owed);
            (owed, sent) = (of_log, begun);
        } else {
            owed.extend_from_slice(&of_log);
        }
        (self.aside, self.aside_sent) = (owed, sent);
        self.at = Position {
            after: Seq::START,
            skip: 0,
        };
        self.marks = Marks::new(Seq::START);
    }

    /// The connection, for ending it, with the rest of a half-sent frame (empty at a boundary).
    pub(crate) fn part<L: StreamLog>(self, log: &L, upto: Seq) -> Parting {
        let mut rest = Vec::new();
        if self.aside_sent > 0 {
            rest.extend_from_slice(&self.aside[self.aside_sent..]);
        } else if self.at.skip > 0 {
            let mut parts = Slices::new();
            let next = self.at.after.next();
            if next <= upto && matches!(log.view(self.at, next, &mut parts), View::Here) {
                for part in parts.as_slice() {
                    rest.extend_from_slice(part);
                }
            }
        }
        Parting {
            sink: self.sink,
            rest,
        }
    }
}

/// A connection that gets no further frame, only the rest of a half-sent one, and then its end.
pub(crate) struct Parting {
    /// The connection.
    pub(crate) sink: Box<dyn ClientSink>,
    /// What must still be sent so that no half frame stands at its end.
    pub(crate) rest: Vec<u8>,
}

impl Parting {
    /// A connection that is told these frames and then ends.
    pub(crate) fn saying(sink: Box<dyn ClientSink>, frames: Vec<u8>) -> Self {
        Self { sink, rest: frames }
    }

    /// Adds whole frames behind the rest.
    pub(crate) fn and_say(&mut self, frames: &[u8]) {
        self.rest.extend_from_slice(frames);
    }

    /// Sends what is still to be sent. Cancel-safe: what was taken is not sent again.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) async fn send(&mut self) -> io::Result<()> {
        while !self.rest.is_empty() {
            let (sink, rest) = (&mut self.sink, &self.rest);
            let taken = poll_fn(|cx| {
                let mut parts = Slices::new();
                let _ = parts.push(rest);
                sink.poll_send(cx, &parts)
            })
            .await?;
            self.rest.drain(..taken);
        }
        Ok(())
    }

    /// Sends the rest and ends the answer. Cancel-safe; after a bound passed, `abort`.
    pub(crate) async fn end(&mut self, how: Ending) {
        if self.send().await.is_ok() {
            poll_fn(|cx| self.sink.poll_end(cx, how)).await;
        }
    }

    /// Resets the connection: what it has is not a whole answer.
    pub(crate) fn abort(mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let _ = self.sink.poll_end(&mut cx, Ending::Abort);
    }
}

//! How a client's connection to a stream ends: it has all, it left, or it is sent away and may come back.
//! Law: a connection ends at an event's boundary, or is reset; what it acknowledged is read once, as it ends.
//! The stream's task never waits for it: what is still to be written goes on beside it, within a bound.
//! Next: `reader.rs`.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tracing::debug;

use crate::pure::limits::HALF_FRAME_MS_MAX;
use crate::pure::log::Millis;
use crate::pure::sse::encode;
use crate::relay::mailbox::Had;
use crate::relay::reader::{Parting, Reader};
use crate::relay::sink::{Ending, Gone};
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;
use crate::store::StreamLog;

/// How long the rest of a half-sent frame may take when a connection is ended, before it is reset.
const PARTING_MAX: Duration = Duration::from_millis(HALF_FRAME_MS_MAX);

/// What becomes of a connection that does not take its end in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Late {
    /// It is reset: another one took its place, and half a frame must not be taken for a whole one.
    Reset,
    /// It is closed, and has what the kernel took for it.
    LetGo,
}

impl<W: World> StreamTask<W> {
    /// The stream is finished and its client has all of it.
    pub(crate) fn finish_reader(&mut self, cx: &mut Context<'_>, now: Millis) {
        let Some(reader) = self.release_reader(now) else {
            return;
        };
        let mut parting = reader.part(&self.log, self.kept);
        parting
            .sink
            .leave_receipt(Box::new(Had(Arc::clone(&self.mailbox))));
        if parting.sink.poll_end(cx, Ending::Complete).is_pending() {
            self.see_off(parting, Ending::Complete, Late::LetGo);
        }
    }

    pub(crate) fn reader_gone(&mut self, gone: Gone, now: Millis) {
        let Some(reader) = self.release_reader(now) else {
            return;
        };
        debug!(session = %self.session.label(), stream = %self.name, ?gone, written = %reader.written(), acked = %self.acked, "client left");
    }

    /// Ends the client's connection at an event's boundary; it may come back.
    pub(crate) fn end_connection(&mut self, now: Millis) {
        let retry_ms = self.relay.jittered_retry_ms(&self.session);
        self.send_away(retry_ms, now);
    }

    /// Ends the client's connection at an event's boundary, with this `retry`.
    pub(crate) fn send_away(&mut self, retry_ms: u64, now: Millis) {
        let Some(reader) = self.release_reader(now) else {
            return;
        };
        let mut parting = reader.part(&self.log, self.kept);
        if self.agent.bears_retry() {
            encode::retry(&mut parting.rest, retry_ms);
        }
        self.see_off(parting, Ending::Close, Late::LetGo);
    }

    /// Takes the client's connection out of the stream: nobody is attached from now on.
    pub(crate) fn release_reader(&mut self, now: Millis) -> Option<Reader> {
        // One that leaves as it comes is the first to say so.
        self.note_written();
        let reader = self.reader.take()?;
        self.acked = reader.acked();
        self.detached_since = now;
        self.log.hold(self.awaited.as_ref().map(|awaited| awaited.from));
        self.session.detached(now);
        self.relay.idle.add(&self.mailbox);
        let instruments = &self.session.pool.instruments;
        instruments.bytes_sent.add(reader.bytes);
        instruments
            .stream_life
            .took(Duration::from_millis(now.0.saturating_sub(reader.since.0)));
        Some(reader)
    }

    /// Ends a connection without this task. One that has all of its answer may take as long as any client may; one that
    /// is told a last word gets a second for it.
    pub(crate) fn see_off(&self, mut parting: Parting, how: Ending, late: Late) {
        let bound = match how {
            Ending::Complete => self.session.pool.config.stream.stall_max,
            Ending::Close | Ending::Abort => PARTING_MAX,
        };
        tokio::spawn(async move {
            if tokio::time::timeout(bound, parting.end(how)).await.is_err() {
                match late {
                    Late::Reset => parting.abort(),
                    // What the kernel took stands at an event's boundary and may still arrive: it is not thrown away.
                    Late::LetGo => drop(parting),
                }
            }
        });
    }
}

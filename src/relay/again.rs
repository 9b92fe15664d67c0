//! A stream's side of the same POST that comes again: it is given from its beginning, while it is the same.
//! Law: newest wins, as with a cursor; but a repeat presents none, so that what the window let go of ends nothing: it
//! gets what is held, with that word, and the response. A finished answer that was taken whole stands for a repeat a
//! few seconds; then the same bytes are a new request. A client's acknowledgement frees what is long at once: a repeat
//! of it is told so, for as long.
//! Next: `repeat.rs`, which asks; `pure/session/ledger.rs`, which decides.

use crate::pure::epoch::{EpochEnd, Reason, Seq, Tombstone};
use crate::pure::event_id::StreamName;
use crate::pure::limits::REPEAT_STREAM_BYTES_MAX;
use crate::pure::log::Millis;
use crate::pure::resume::Resume;
use crate::pure::session::{Left, Taken};
use crate::pure::stream::attach::Presented;
use crate::relay::headers::Verdict;
use crate::relay::mailbox::Reply;
use crate::relay::outcome::FirstHead;
use crate::relay::stream_task::StreamTask;
use crate::relay::turn::Waiting;
use crate::relay::world::World;
use crate::store::StreamLog;

/// Whether a finished stream's client is known to have all of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Acknowledged {
    /// Nothing is known.
    Unknown,
    /// It acknowledged every byte, and spoke on.
    All,
}

impl<W: World> StreamTask<W> {
    /// Whether everything that was taken so far was written whole to a client.
    pub(crate) fn is_up_to_date(&self) -> bool {
        self.spill.is_empty() && self.written == self.log.span().last
    }

    /// Whether the last event was written whole to a client.
    pub(crate) fn wrote_all(&self) -> bool {
        self.life.is_over() && self.is_up_to_date()
    }

    /// Whether its answer was taken whole so long ago that the same POST is a new request.
    fn is_past_repeats(&self, now: Millis) -> bool {
        self.wrote_all() && now >= Taken::At(self.detached_since).until()
    }

    /// The POST that this stream answers came again.
    pub(crate) fn ask_again(&mut self, waiting: Waiting, now: Millis) {
        let nobody = self.reader.is_none() && self.awaited.is_none();
        if nobody && self.is_past_repeats(now) {
            let repeats = &mut self.session.record().beside.repeats;
            repeats.left(self.epoch, Left::Had, now);
            return waiting.answer(Reply::Closed);
        }
        match self.decide(Seq::START) {
            Resume::UpToDate { at: from } | Resume::Replay { from, .. } => {
                self.promise_resumed(from, waiting)
            }
            Resume::Gap { reason, .. } | Resume::OtherEpoch { reason } => {
                let span = self.log.span();
                let from = Seq::new(span.first.get().saturating_sub(1));
                let epoch = self.epoch;
                let verdict = Verdict::Reset { reason, epoch };
                self.promise(from, Presented::Cursor, verdict, waiting);
            }
            // Nothing was ever in it, or an end: it holds no answer.
            Resume::Ended | Resume::FromTheFuture { .. } => waiting.answer(Reply::Ended),
        }
    }

    /// The client acknowledged all of a finished stream: what is long goes now, what is short may still be repeated.
    pub(crate) fn had(&mut self, now: Millis) {
        let span = self.log.span();
        if span.bytes > REPEAT_STREAM_BYTES_MAX || span.first > Seq::START.next() {
            return self.shed(now);
        }
        if self.reader.is_none() && self.awaited.is_none() {
            self.receipt = Acknowledged::All;
        }
    }

    /// Its tombstone goes to the session, and to repeats how it left.
    pub(crate) fn bury(&self, tombstone: Tombstone) {
        let now = self.relay.now();
        match self.name {
            StreamName::Get if self.first_head == FirstHead::Had || tombstone.last > Seq::START => {
                self.session.bury_standalone(tombstone);
            }
            StreamName::Get | StreamName::HttpSse => self.session.bury(tombstone),
            StreamName::Post(_) => {
                let left = match tombstone.end {
                    EpochEnd::Lost(reason) => Left::Unheld(reason),
                    EpochEnd::Finished if self.is_past_repeats(now) => Left::Had,
                    // Memory is short, or it is long and was acknowledged: it is not held, but it ran.
                    EpochEnd::Finished => Left::Unheld(Reason::Evicted),
                };
                self.session.bury_answer(tombstone, left, now);
            }
        }
    }
}

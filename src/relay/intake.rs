//! What a backend's events become: frames in the log, in order, each once.
//! Law: an event that was read is never dropped for want of room: it waits in the spill, and nothing more is read.
//! The spill is bounded by what one read can hold. Data passes byte for byte.
//! What is left out is left out by name (`Dropped`) and counted.
//! Next: `pure/stream/life.rs`, which decides; `stream_task.rs`, which drives.

use crate::pure::epoch::Seq;
use crate::pure::event_id::StreamName;
use crate::pure::isolation::{Isolation, Restored};
use crate::pure::limits::SERVER_REQUESTS_MAX;
use crate::pure::log::{EndMark, Entry, Full, Millis, Span, TakenBy};
use crate::pure::overlap::{Digest, Overlap, Said};
use crate::pure::rpc::{self, EventKind, Message, RequestId, begins_a_notification, classify_event};
use crate::pure::session::Generation;
use crate::pure::sse::{Block, OnBlock, Text};
use crate::pure::stream::admission::{Had, News};
use crate::pure::stream::life::backend_ping;
use crate::pure::stream::{Agent, Dropped, Life, Take, Testimony, Trail, Witness};
use crate::relay::asks::AnsweredHere;
use crate::relay::spill::Spill;
use crate::store::StreamLog;
use crate::telemetry::instruments::UpstreamInstruments;
use crate::telemetry::words;

/// One batch on its way into the log.
pub(crate) struct Intake<'a, L> {
    pub(crate) log: &'a mut L,
    pub(crate) life: &'a mut Life,
    pub(crate) prefix: &'a [u8],
    pub(crate) spill: &'a mut Spill,
    pub(crate) counts: &'a mut Counts,
    pub(crate) trail: &'a mut Trail,
    /// What was said under its ids, where these are the session's own.
    pub(crate) witness: Option<&'a mut Witness>,
    /// How ids are restored, where they were isolated.
    pub(crate) isolation: Option<&'a Isolation>,
    /// What came on earlier connections.
    pub(crate) prior: Prior<'a>,
    pub(crate) remembered: Remembered,
    pub(crate) agent: Agent,
    /// Ids of the backend's requests bear it, from the second life of the session on.
    pub(crate) generation: Generation,
    /// Whether somebody is there to answer the backend's pings.
    pub(crate) client: Presence,
    /// Pings that were left out, for the proxy to answer.
    pub(crate) pings: &'a mut Vec<RequestId>,
    /// What of the backend's requests the proxy answered.
    pub(crate) answered_here: Option<&'a AnsweredHere>,
    pub(crate) now: Millis,
}

/// What came on earlier connections to the backend.
pub(crate) enum Prior<'a> {
    /// Nothing that could come again.
    Nothing,
    /// A standalone stream had these; what comes again is dropped.
    Had(&'a mut Had),
    /// These must come again before anything else is believed.
    Proof(&'a mut Overlap),
}

/// Where what an event said is found again, if its backend says it once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remembered {
    /// In the log: what the window has let go of is not asked for.
    InTheLog,
    /// With its id: a standalone stream's backend may say it again when the window has long let go of it.
    WithItsId,
}

impl Remembered {
    /// On a stream of this name.
    pub(crate) const fn of(stream: &StreamName) -> Self {
        match stream {
            StreamName::Get => Self::WithItsId,
            StreamName::Post(_) | StreamName::HttpSse => Self::InTheLog,
        }
    }
}

/// Whether a client is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// One is, or is on its way.
    Attached,
    /// None is.
    Away,
}

impl<L: StreamLog> OnBlock for Intake<'_, L> {
    /// Takes one block of the backend's stream. Always inlined: almost every event goes no further.
    #[inline(always)]
    fn on_block(&mut self, block: Block<'_>) {
        if let Some(ms) = block.retry {
            self.trail.retry_in(ms);
        }
        if let Some(line) = block.line()
            && block.is_message()
            && begins_a_notification(line.as_bytes())
            && matches!(self.prior, Prior::Nothing)
            && self.generation == Generation::FIRST
            && !self.life.is_over()
        {
            // What almost every event is, and what `Life` would say of it.
            return match self.testimony(block.id, line.as_bytes()) {
                Testimony::Agrees => self.append(EndMark::Open, block, line.into()),
                Testimony::Contradicts => self.counts.drop(Dropped::Contradicts),
            };
        }
        match block.text() {
            Some(text) if !text.as_bytes().is_empty() => self.consider(block, text),
            Some(_) | None => self.cursor(block.id),
        }
    }
}

impl<L: StreamLog> Intake<'_, L> {
    /// Takes a block that says something, where it takes more to know what becomes of it.
    fn consider(&mut self, block: Block<'_>, text: Text<'_>) {
        let restored = self.isolation.map(|isolation| isolation.answer(text.as_bytes()));
        let text = match &restored {
            None | Some(Restored::Unchanged) => text,
            Some(Restored::Changed(own)) => Text::of(own),
            Some(Restored::Foreign) => {
                // Nothing may stand between what comes again.
                if matches!(self.prior, Prior::Proof(_))
                    && self.judge(block.id, text.as_bytes()) == News::HadBefore
                {
                    return;
                }
                return self.leave_out(Dropped::StrayResponse, block.id);
            }
        };
        let marked = self.generation.mark(text.as_bytes());
        let text = marked.as_deref().map_or(text, Text::of);
        match self.testimony(block.id, text.as_bytes()) {
            Testimony::Agrees => {}
            Testimony::Contradicts => return self.counts.drop(Dropped::Contradicts),
        }
        match self.judge(block.id, text.as_bytes()) {
            News::New => {}
            News::HadBefore => return,
        }
        let kind = classify_event(text.as_bytes());
        if self.client == Presence::Away
            && self.pings.len() < SERVER_REQUESTS_MAX
            && let Some(id) = backend_ping(&kind)
        {
            self.pings.push(id.clone());
            return self.leave_out(Dropped::AnsweredHere, block.id);
        }
        let fewer = match &kind {
            EventKind::Batch(messages) => self.without_late(messages, text.as_bytes()),
            EventKind::Notification
            | EventKind::Request { .. }
            | EventKind::Response(_)
            | EventKind::Other => None,
        };
        let text = fewer.as_deref().map_or(text, Text::of);
        match self.life.take(&kind, block.event, self.agent) {
            Take::Append => self.append(EndMark::Open, block, text),
            Take::AppendLast => self.append(EndMark::Last, block, text),
            Take::Drop(why) => return self.leave_out(why, block.id),
        }
        self.taken(&kind);
    }

    /// The newest event is of this kind: what follows for those who ask and answer.
    fn taken(&mut self, kind: &EventKind<'_>) {
        match kind {
            EventKind::Request { id, .. } => {
                self.asked(id);
                self.life.placed(id, self.newest());
            }
            EventKind::Batch(messages) => {
                self.asked_among(messages);
                self.life.answered_at(self.newest());
            }
            EventKind::Response(_) => self.life.answered_at(self.newest()),
            EventKind::Notification | EventKind::Other => {}
        }
    }

    fn asked(&self, id: &RequestId) {
        if let Some(answered) = self.answered_here {
            answered.asked(id);
        }
    }

    fn asked_among(&self, messages: &[Message<'_>]) {
        for message in messages {
            match message {
                Message::Request { id, .. } => self.asked(id),
                Message::Response { .. } | Message::Notification { .. } => {}
            }
        }
    }

    /// An array of messages without those that come too late, each of the others byte for byte; `None`: none does, or
    /// all do.
    fn without_late(&self, messages: &[Message<'_>], raw: &[u8]) -> Option<Vec<u8>> {
        let late = self.life.late_among(messages);
        if late.is_empty() || late.len() == messages.len() {
            return None;
        }
        let elements = rpc::elements(raw)?;
        let kept = elements.iter().enumerate().filter(|(nth, _)| !late.contains(nth));
        let kept: Vec<&[u8]> = kept.map(|(_, element)| *element).collect();
        Some([b"[", kept.join(&b","[..]).as_slice(), b"]"].concat())
    }

    /// An id or a `retry` without data is a cursor of the backend's, no event.
    fn cursor(&mut self, id: Option<&[u8]>) {
        match &mut self.prior {
            Prior::Proof(overlap) => {
                if id.is_some() {
                    overlap.cursor();
                }
                self.counts.drop(Dropped::Empty);
            }
            Prior::Nothing | Prior::Had(_) => self.leave_out(Dropped::Empty, id),
        }
    }

    /// What is known of the backend with this event.
    fn testimony(&mut self, id: Option<&[u8]>, data: &[u8]) -> Testimony {
        match &mut self.witness {
            Some(witness) => witness.ask(id, data),
            None => Testimony::Agrees,
        }
    }

    /// Judges an event by what came on earlier connections; one that is not to be taken now is left out here.
    fn judge(&mut self, id: Option<&[u8]>, data: &[u8]) -> News {
        match &mut self.prior {
            Prior::Nothing => return News::New,
            Prior::Had(had) => match had.judge(id, data) {
                News::New => return News::New,
                News::HadBefore => self.leave_out(Dropped::Repeated, id),
            },
            Prior::Proof(overlap) => match overlap.take(id, data) {
                Said::News => return News::New,
                // It comes again.
                Said::Later => {}
                Said::Nothing => self.counts.drop(Dropped::Repeated),
            },
        }
        News::HadBefore
    }

    /// An event is left out; its id is a cursor all the same.
    fn leave_out(&mut self, why: Dropped, id: Option<&[u8]>) {
        self.counts.drop(why);
        if let Prior::Proof(overlap) = &mut self.prior {
            overlap.left_out();
        }
        if let Some(id) = id {
            self.trail.cursor_at(self.newest(), id);
        }
    }

    /// The newest event that was taken, whether it is in the log or waits for room there.
    fn newest(&self) -> Seq {
        self.spill.newest(self.counts)
    }

    #[inline(always)]
    fn append(&mut self, end: EndMark, block: Block<'_>, data: Text<'_>) {
        let event = block.event;
        let entry = Entry {
            prefix: self.prefix,
            end,
            event,
            data,
        };
        if !self.spill.is_empty() {
            self.spill.keep(end, event, data.as_bytes());
        } else {
            match self.log.push(entry, self.now) {
                Ok(seq) => self.counts.pushed(seq),
                Err(Full) => self.spill.keep(end, event, data.as_bytes()),
            }
        }
        self.trail.event(self.newest(), block.id);
        if self.remembered == Remembered::WithItsId && block.id.is_some() {
            self.trail.keep_said(self.newest(), Digest::of(data.as_bytes()));
        }
        if let Some(witness) = &mut self.witness {
            witness.heard(block.id, data.as_bytes());
        }
    }
}

/// What one wake of the task did, told to the instruments once.
pub(crate) struct Counts {
    appended: u64,
    sent: u64,
    evicted: u64,
    evicted_by: TakenBy,
    first_held: Seq,
    any_dropped: bool,
    dropped: [u32; Dropped::ALL.len()],
    pushed: Seq,
}

impl Counts {
    /// Nothing happened yet.
    pub(crate) const fn new() -> Self {
        Self {
            appended: 0,
            sent: 0,
            evicted: 0,
            evicted_by: TakenBy::Nothing,
            first_held: Seq::new(1),
            any_dropped: false,
            dropped: [0; Dropped::ALL.len()],
            pushed: Seq::START,
        }
    }

    /// An event went into the log.
    pub(crate) fn pushed(&mut self, seq: Seq) {
        self.appended += 1;
        self.pushed = seq;
    }

    /// An event was left out.
    pub(crate) fn drop(&mut self, why: Dropped) {
        self.dropped[why as usize] += 1;
        self.any_dropped = true;
    }

    /// The newest event that went into the log.
    pub(crate) const fn last_pushed(&self) -> Seq {
        self.pushed
    }

    /// The log begins again.
    pub(crate) fn begin_epoch(&mut self) {
        self.pushed = Seq::START;
        self.first_held = Seq::new(1);
    }

    /// What the log holds now: what left it since the last call is counted.
    pub(crate) fn evicted(&mut self, span: Span) {
        let gone = span.first.since(self.first_held);
        if gone > 0 {
            self.evicted += gone;
            self.evicted_by = span.taken_by;
            self.first_held = span.first;
        }
    }

    /// So many events were written whole.
    pub(crate) fn sent(&mut self, events: u64) {
        self.sent += events;
    }

    /// Tells the instruments what happened since the last call.
    pub(crate) fn report(&mut self, instruments: &UpstreamInstruments) {
        if self.appended > 0 {
            instruments
                .events_appended
                .add(std::mem::take(&mut self.appended));
        }
        if self.sent > 0 {
            instruments.events_sent.add(std::mem::take(&mut self.sent));
        }
        if self.evicted > 0 {
            let by = match self.evicted_by {
                TakenBy::Nothing | TakenBy::Window => words::EvictedBy::Window,
                TakenBy::Budget => words::EvictedBy::Budget,
            };
            instruments
                .events_evicted
                .add(by, std::mem::take(&mut self.evicted));
        }
        if self.any_dropped {
            self.any_dropped = false;
            for why in Dropped::ALL {
                let count = std::mem::take(&mut self.dropped[why as usize]);
                if count > 0 {
                    instruments.events_dropped.add(word(why), u64::from(count));
                }
            }
        }
    }
}

fn word(why: Dropped) -> words::Dropped {
    match why {
        Dropped::Empty => words::Dropped::EmptyData,
        Dropped::UnknownType => words::Dropped::UnknownType,
        Dropped::LateResponse | Dropped::StrayResponse => words::Dropped::LateResponse,
        Dropped::AfterEnd => words::Dropped::AfterEnd,
        Dropped::AnsweredHere => words::Dropped::AnsweredHere,
        Dropped::Repeated => words::Dropped::Repeated,
        Dropped::Contradicts => words::Dropped::Contradicts,
        Dropped::Own => words::Dropped::Own,
    }
}

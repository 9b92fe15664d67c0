//! The bounded replay window: append, evict, view.
//! Law: nothing after a held reader's position is evicted; a log that would have to says `Full` and stays as it was.
//! One event is always taken when nothing is held, however long: a bound must not lose it, and its length has a bound
//! of its own. What is gone is said: how many, what took them, what is the oldest left.
//! Cost: one copy and a few additions per event, no allocation; a look-up tries the newest piece, then halves.
//! Next: `../resume.rs`, which asks the question; `store/memory.rs`, which keeps such windows.

use std::collections::VecDeque;

use crate::pure::epoch::{Epoch, Seq};
use crate::pure::limits::{
    LOG_SEGMENT_BYTES_MAX, LOG_SEGMENT_BYTES_MIN, LOG_SEGMENT_SHARE, LOG_SEGMENTS_MIN,
};
use crate::pure::log::ages::Ages;
use crate::pure::log::frame::{Frame, UsualFrame};
use crate::pure::log::segment::Segment;
use crate::pure::log::{
    Bounds, EndMark, Entry, Full, Millis, Position, Refused, Replay, Slices, Span, Struck, TakenBy, View,
};

/// Growth from one piece of storage to the next, up to the largest.
const GROWTH: usize = 4;

/// The newest events of one epoch, as frames ready to be sent, within bounds on number, bytes and age.
///
/// An event is held at most as long as its age bound says, and at least fifteen sixteenths of that.
/// Empty, it owns no memory but its own fields.
#[derive(Debug)]
pub struct Window {
    epoch: Epoch,
    bounds: Bounds,
    segments: VecDeque<Segment>,
    ages: Ages,
    first: Seq,
    last: Seq,
    bytes: usize,
    hold: Option<Seq>,
    taken_by: TakenBy,
    end: EndMark,
}

impl Window {
    /// An empty window for a new epoch.
    pub const fn new(epoch: Epoch, bounds: Bounds) -> Self {
        Self {
            epoch,
            bounds,
            segments: VecDeque::new(),
            ages: Ages::new(),
            first: Seq::new(1),
            last: Seq::START,
            bytes: 0,
            hold: None,
            taken_by: TakenBy::Nothing,
            end: EndMark::Open,
        }
    }

    /// The epoch.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the stream's last event was appended.
    pub const fn end(&self) -> EndMark {
        self.end
    }

    /// Bytes of storage in use.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends one event and answers its number. What the bounds no longer allow is evicted, oldest first.
    ///
    /// # Errors
    /// [`Full`]: room could be made only by evicting what the held reader has not had, or the stream's last event
    /// was appended before. Nothing was appended, and nothing evicted but what is too old.
    pub fn emit(&mut self, entry: Entry<'_>, now: Millis) -> Result<Seq, Full> {
        match self.emit_usual(entry, now) {
            Some(seq) => Ok(seq),
            None => self.emit_any(entry, now),
        }
    }

    /// Appends a usual event where it finds a place without more ado. A short cut for what [`Window::emit_any`] would do;
    /// if it answers nothing, nothing was done.
    #[inline(always)]
    fn emit_usual(&mut self, entry: Entry<'_>, now: Millis) -> Option<Seq> {
        let seq = self.last.next();
        let frame = UsualFrame::of(entry, seq)?;
        if self.ages.is_due(now) || self.end == EndMark::Last {
            return None;
        }
        if seq.since(self.first) >= u64::from(self.bounds.events) {
            // One event goes for one that comes, if it is not the last of its piece.
            let until = self.first.next();
            let alone = self.segments.front().is_none_or(|oldest| oldest.past() <= until);
            if alone || !self.evictable(self.first) || !self.fits(frame.len()) {
                return None;
            }
            (self.first, self.taken_by) = (until, TakenBy::Window);
        }
        let newest = self.segments.back_mut()?;
        if !newest.fits(frame.len()) {
            return None;
        }
        newest.append_usual(frame);
        self.last = seq;
        Some(seq)
    }

    fn emit_any(&mut self, entry: Entry<'_>, now: Millis) -> Result<Seq, Full> {
        match self.end {
            EndMark::Open => {}
            EndMark::Last => return Err(Full),
        }
        if self.ages.is_due(now) {
            self.expire(now);
        }
        let seq = self.last.next();
        let frame = Frame::measure(entry, seq);
        let mut until = self.room_by_number()?;
        let mut fits = self.fits(frame.len());
        if !fits {
            until = until.max(self.room_by_bytes(frame.len())?);
        }
        if until > self.first {
            self.evict(until, TakenBy::Window);
            // The newest piece goes last.
            fits &= !self.segments.is_empty();
        }
        if !fits {
            let segment = Segment::new(seq, self.capacity_for(frame.len()), frame.len());
            self.bytes += segment.cost();
            if self.segments.is_empty() {
                // An idle stream has one piece, and room for one.
                self.segments.reserve_exact(1);
            }
            self.segments.push_back(segment);
        }
        self.end = entry.end;
        self.last = seq;
        // Whatever emptied the window left it so that this is due.
        if self.ages.is_due(now) {
            self.ages.note(seq, now, self.bounds.age);
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.append(frame);
        }
        Ok(seq)
    }

    /// Bytes of storage that this event would add: 0 if it fits what is there.
    pub fn growth(&self, entry: Entry<'_>) -> usize {
        let len = Frame::measure(entry, self.last.next()).len();
        if self.fits(len) {
            0
        } else {
            Segment::cost_of(self.capacity_for(len))
        }
    }

    /// What a cursor has to come. Look-up is by number, whatever the cursor says.
    ///
    /// # Errors
    /// [`Refused`], with the evidence: another epoch, past the end, or events after it are gone (wire contract,
    /// section 5). All or nothing: a run with a hole is never replayed as whole.
    pub fn resume(&self, epoch: Epoch, after: Seq) -> Result<Replay, Refused> {
        if epoch != self.epoch {
            return Err(Refused::EpochMismatch {
                asked: epoch,
                current: self.epoch,
            });
        }
        self.span().resume(after)
    }

    /// The frames from `from` up to and including event `upto`, as slices of what is held. May offer fewer, if
    /// they lie in more pieces than there are slices; the caller sends them and asks again.
    pub fn view<'a>(&'a self, from: Position, upto: Seq, out: &mut Slices<'a>) -> View {
        let upto = upto.min(self.last);
        if from.after >= upto {
            return View::Nothing;
        }
        let mut next = from.after.next();
        if next < self.first {
            return View::Gone { oldest: self.first };
        }
        let mut skip = from.skip;
        for segment in self.segments.range(self.locate(next)..) {
            let before = segment.past().min(upto.next());
            let frames = segment.frames(next, before);
            if !out.push(&frames[skip.min(frames.len())..]) {
                break;
            }
            if before > upto {
                break;
            }
            (next, skip) = (before, 0);
        }
        View::Here
    }

    /// The position that `sent` further bytes lead to. `sent` never exceeds what [`Window::view`] offered.
    pub fn advance(&self, from: Position, sent: usize) -> Position {
        let mut at = from;
        let mut left = from.skip.saturating_add(sent);
        if from.after >= self.last || from.after.next() < self.first {
            return from;
        }
        for segment in self.segments.range(self.locate(from.after.next())..) {
            let start = segment.start(at.after.next());
            let whole = segment.start(segment.past()) - start;
            if left < whole {
                let event = segment.event_at(start + left);
                return Position {
                    after: Seq::new(event.get() - 1),
                    skip: start + left - segment.start(event),
                };
            }
            left -= whole;
            at = Position {
                after: Seq::new(segment.past().get() - 1),
                skip: 0,
            };
            if left == 0 {
                break;
            }
        }
        at
    }

    /// Puts other data in the place of an event's that must not be shown again: the first of `words` that is no longer.
    pub fn strike(&mut self, seq: Seq, words: &[&[u8]]) -> Struck {
        if seq < self.first || seq > self.last || seq == Seq::START {
            return Struck::NotHeld;
        }
        let nth = self.locate(seq);
        self.segments
            .get_mut(nth)
            .map_or(Struck::NotHeld, |segment| segment.strike(seq, words))
    }

    /// Forbids the eviction of anything after this position, or allows it again.
    pub const fn hold(&mut self, reader: Option<Seq>) {
        self.hold = reader;
    }

    /// What is held.
    pub const fn span(&self) -> Span {
        Span {
            first: self.first,
            last: self.last,
            bytes: self.bytes,
            taken_by: self.taken_by,
        }
    }

    /// Lets go of what is too old and, if `want` is given, of the oldest pieces until that many bytes are free.
    /// A held position is respected. Returns how many bytes went.
    pub fn shed(&mut self, now: Millis, want: Option<usize>) -> usize {
        let before = self.bytes;
        self.expire(now);
        let want = want.unwrap_or(0);
        while before - self.bytes < want {
            match self.segments.front().map(Segment::past) {
                Some(past) if self.evictable(Seq::new(past.get() - 1)) => self.evict(past, TakenBy::Budget),
                Some(_) | None => break,
            }
        }
        before - self.bytes
    }

    /// Gives back storage that the newest piece does not use. For a stream that is finished or long silent.
    pub fn compact(&mut self) {
        if let Some(segment) = self.segments.back_mut() {
            self.bytes -= segment.cost();
            segment.seal();
            self.bytes += segment.cost();
        }
    }

    /// Lets go of everything at once, whoever holds it: the epoch has ended, a tombstone says why.
    pub fn bury(&mut self) {
        self.hold = None;
        self.end = EndMark::Last;
        self.evict(self.last.next(), TakenBy::Budget);
        self.segments = VecDeque::new();
        self.ages = Ages::new();
    }

    fn evictable(&self, seq: Seq) -> bool {
        self.hold.is_none_or(|held| seq <= held)
    }

    fn fits(&self, len: usize) -> bool {
        self.segments.back().is_some_and(|segment| segment.fits(len))
    }

    /// Evicts every event before `until`, as far as the hold allows.
    fn evict(&mut self, until: Seq, by: TakenBy) {
        let until = match self.hold {
            Some(held) if held < self.last => until.min(held.next()),
            Some(_) | None => until,
        };
        if until <= self.first {
            return;
        }
        self.first = until;
        self.taken_by = by;
        // Mostly it was one event of many in its piece.
        if self.segments.front().is_some_and(|oldest| oldest.past() <= until) {
            self.let_go();
        }
    }

    /// Gives back the pieces of which every event is evicted.
    fn let_go(&mut self) {
        while let Some(segment) = self.segments.front()
            && segment.past() <= self.first
        {
            self.bytes -= segment.cost();
            self.segments.pop_front();
        }
        if self.segments.is_empty() {
            self.ages.clear();
        }
    }

    /// Evicts what is too old.
    fn expire(&mut self, now: Millis) {
        self.ages.forget_before(self.first);
        while let Some(until) = self.ages.too_old(now, self.bounds.age, self.last.next()) {
            self.evict(until, TakenBy::Window);
            if self.first < until {
                return;
            }
            self.ages.forget_oldest();
        }
    }

    /// The event up to which the bound on number asks for eviction before one more is appended.
    fn room_by_number(&self) -> Result<Seq, Full> {
        let held = self.last.next().since(self.first);
        if held == 0 || held < u64::from(self.bounds.events) {
            Ok(self.first)
        } else if self.evictable(self.first) {
            Ok(self.first.next())
        } else {
            Err(Full)
        }
    }

    /// The event up to which the bound on bytes asks for eviction before a piece for this frame is begun.
    fn room_by_bytes(&mut self, len: usize) -> Result<Seq, Full> {
        self.compact();
        let need = Segment::cost_of(self.capacity_for(len));
        let mut bytes = self.bytes;
        let mut until = self.first;
        for segment in &self.segments {
            if bytes + need <= self.bounds.bytes {
                break;
            }
            if !self.evictable(Seq::new(segment.past().get() - 1)) {
                return Err(Full);
            }
            bytes -= segment.cost();
            until = segment.past();
        }
        Ok(until)
    }

    /// The capacity of the piece that a frame of this length would begin.
    fn capacity_for(&self, len: usize) -> usize {
        let largest =
            (self.bounds.bytes / LOG_SEGMENTS_MIN).clamp(LOG_SEGMENT_BYTES_MIN, LOG_SEGMENT_BYTES_MAX);
        let own = largest / LOG_SEGMENT_SHARE;
        if len > own {
            return len;
        }
        match self.segments.back() {
            Some(newest) if newest.mean_len() <= own => (newest.capacity() * GROWTH).min(largest).max(len),
            Some(_) | None => LOG_SEGMENT_BYTES_MIN.max(len),
        }
    }

    /// The index of the piece that holds an event which is held.
    fn locate(&self, seq: Seq) -> usize {
        match self.segments.back() {
            Some(newest) if newest.first() <= seq => self.segments.len() - 1,
            Some(_) | None => self.segments.partition_point(|segment| segment.past() <= seq),
        }
    }
}

#[cfg(test)]
mod tests;

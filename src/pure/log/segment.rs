//! One piece of a window's storage: at its front two bytes for each frame's start, and behind them the frames.
//! Law: a frame is written once, never moves within its piece, and lies in one piece whole.
//! Why both in one allocation: the index is bounded with what it indexes, and freed with it.
//! Why room for the index is set aside at the beginning: storage is then filled from front to back and never cleared
//! before it is written. Frames much shorter than the first one fill the index before the piece; the next piece knows.
//! Next: `window.rs`.

use crate::pure::epoch::Seq;
use crate::pure::limits::LOG_SEGMENT_BYTES_MAX;
use crate::pure::log::Struck;
use crate::pure::log::frame::{self, Frame, UsualFrame};

/// Bytes of one entry of the index.
const SLOT: usize = 2;

/// The index has room for this many times as many frames as there were if all were as long as the first.
const SLOTS_SPARE: usize = 2;

const _: () = assert!(
    LOG_SEGMENT_BYTES_MAX <= u16::MAX as usize,
    "a start fits its slot"
);

/// A run of frames in one allocation.
#[derive(Debug)]
pub(super) struct Segment {
    first: Seq,
    count: u32,
    /// Bytes of the index at the front of the storage, written or not.
    index: u32,
    /// The index, and the frames written so far. Its capacity is the piece's.
    buf: Vec<u8>,
}

impl Segment {
    /// An empty piece whose first event will be `first`, with a frame of this length.
    pub(super) fn new(first: Seq, capacity: usize, len: usize) -> Self {
        // The first frame starts at 0 and needs no slot. One that fills most of its piece is alone in it.
        let frames = (capacity / len.max(1)).saturating_sub(1) * SLOTS_SPARE;
        let index = (frames * SLOT).min(capacity - len.min(capacity));
        let mut buf = Vec::with_capacity(capacity);
        buf.resize(index, 0);
        Self {
            first,
            count: 0,
            index: index as u32,
            buf,
        }
    }

    /// Bytes that a piece of this capacity costs.
    pub(super) const fn cost_of(capacity: usize) -> usize {
        capacity + size_of::<Self>()
    }

    /// Bytes that this piece costs.
    pub(super) const fn cost(&self) -> usize {
        Self::cost_of(self.buf.capacity())
    }

    /// Bytes that it may hold, index included.
    pub(super) const fn capacity(&self) -> usize {
        self.buf.capacity()
    }

    /// How long its frames are on the average, in bytes.
    pub(super) fn mean_len(&self) -> usize {
        self.used() / (self.count as usize).max(1)
    }

    /// Whether one more frame of this length has room.
    pub(super) const fn fits(&self, len: usize) -> bool {
        let slots = self.count as usize * SLOT <= self.index as usize;
        slots && self.buf.len() + len <= self.buf.capacity() && self.used() <= u16::MAX as usize
    }

    /// Writes a frame that fits.
    pub(super) fn append(&mut self, frame: Frame<'_>) {
        self.begin_frame();
        frame.write(&mut self.buf);
    }

    /// Writes a usual frame that fits.
    #[inline(always)]
    pub(super) fn append_usual(&mut self, frame: UsualFrame<'_>) {
        self.begin_frame();
        frame.write(&mut self.buf);
    }

    #[inline(always)]
    fn begin_frame(&mut self) {
        if self.count > 0 {
            let (start, slot) = (self.used() as u16, Self::slot(self.count as usize));
            self.buf[slot..slot + SLOT].copy_from_slice(&start.to_le_bytes());
        }
        self.count += 1;
    }

    /// Gives back what is unused, unless it is less than a quarter. Nothing can be appended afterwards.
    pub(super) fn seal(&mut self) {
        let index = (self.count as usize).saturating_sub(1) * SLOT;
        let exact = self.used() + index;
        if (self.buf.capacity() - exact) * 4 <= self.buf.capacity() {
            return;
        }
        let mut buf = Vec::with_capacity(exact);
        buf.extend_from_slice(&self.buf[..index]);
        buf.extend_from_slice(&self.buf[self.index as usize..]);
        (self.buf, self.index) = (buf, index as u32);
    }

    /// The number of its first event.
    pub(super) const fn first(&self) -> Seq {
        self.first
    }

    /// The number of the first event behind it.
    pub(super) const fn past(&self) -> Seq {
        Seq::new(self.first.get() + self.count as u64)
    }

    /// Where an event of this piece starts; for `past()`, where the last one ends.
    pub(super) fn start(&self, seq: Seq) -> usize {
        let nth = seq.since(self.first) as usize;
        if nth == 0 {
            0
        } else if nth >= self.count as usize {
            self.used()
        } else {
            let slot = Self::slot(nth);
            usize::from(u16::from_le_bytes([self.buf[slot], self.buf[slot + 1]]))
        }
    }

    /// The bytes from the start of one event to the end of the event before another.
    pub(super) fn frames(&self, from: Seq, before: Seq) -> &[u8] {
        let frames = &self.buf[self.index as usize..];
        &frames[self.start(from)..self.start(before)]
    }

    /// Puts other data in the place of an event's: the first of these that is no longer.
    pub(super) fn strike(&mut self, seq: Seq, words: &[&[u8]]) -> Struck {
        let (start, end) = (self.start(seq), self.start(seq.next()));
        let index = self.index as usize;
        frame::strike(&mut self.buf[index + start..index + end], words)
    }

    /// The event that this byte belongs to; `past()` for the first byte not used.
    pub(super) fn event_at(&self, byte: usize) -> Seq {
        let (mut low, mut high) = (self.first, self.past());
        // The answer is the last event in low..=high that starts at or before the byte.
        while low < high {
            let middle = Seq::new(low.get() + high.since(low).div_ceil(2));
            if self.start(middle) <= byte {
                low = middle;
            } else {
                high = Seq::new(middle.get() - 1);
            }
        }
        low
    }

    /// Bytes of its frames.
    const fn used(&self) -> usize {
        self.buf.len() - self.index as usize
    }

    const fn slot(nth: usize) -> usize {
        (nth - 1) * SLOT
    }
}

//! The words of a log: how much it may hold, what goes in, where a reader stands, what can be shown.
//! Law: a log holds ready frames, and shows them or says that they are gone; never a run with a hole.
//! Absent on purpose: who reads, who writes, and where the bytes are kept (`store/` decides that).
//! Next: `window.rs`, the bounded replay window that every store keeps its newest events in.

use std::io::IoSlice;

use crate::pure::epoch::{Epoch, Seq};
use crate::pure::sse::Text;

mod ages;
mod frame;
mod segment;
mod window;

pub use window::Window;

/// Milliseconds of a clock that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Millis(pub u64);

/// How much a log may hold. The first bound reached evicts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Most events.
    pub events: u32,
    /// Most bytes of storage (wire bytes and index).
    pub bytes: usize,
    /// Longest time that an event is held, in milliseconds.
    pub age: Millis,
}

/// One event on its way into a log. The log writes the whole frame, ready to be sent:
/// `id: <prefix><seq>[~]`, `event: <event or "message">`, a `data:` line for each line of `data`, a blank line.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What stands before the sequence number in this stream's event ids.
    pub prefix: &'a [u8],
    /// Whether the id carries the end mark: nothing follows this event.
    pub end: EndMark,
    /// The SSE event type; empty means `message`.
    pub event: &'a [u8],
    /// The event's data; lines are separated by LF.
    pub data: Text<'a>,
}

/// What a cursor within the log's epoch has to come: everything after it is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The cursor: the newest event that the reader had.
    pub from: Seq,
    /// Events held after it; 0 if it is up to date.
    pub events: u64,
}

/// Why a cursor can't be honoured by this log, with the evidence. Each is told to the client in its own words
/// (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The cursor belongs to another life of this stream; its number says nothing here.
    EpochMismatch {
        /// The cursor's epoch.
        asked: Epoch,
        /// The log's epoch.
        current: Epoch,
    },
    /// Events after the cursor are gone.
    Gap {
        /// How many events after the cursor are gone.
        missing: u64,
        /// The oldest event still held; one past the newest ever appended if none is.
        oldest: Seq,
        /// What took the newest of those missing.
        by: TakenBy,
    },
    /// The cursor lies past the end.
    Future {
        /// The cursor.
        asked: Seq,
        /// The newest event ever appended.
        last: Seq,
    },
}

/// What became of an event that must not be shown again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Struck {
    /// Other data stands in its place; its id, its type and its length stay.
    Replaced,
    /// It is not held.
    NotHeld,
    /// Nothing that could stand in its place is short enough; it stays.
    TooShort,
}

/// Whether an event is its stream's last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndMark {
    /// More may follow.
    Open,
    /// Nothing follows.
    Last,
}

/// Nothing can be taken: the bounds are reached and a reader's position forbids eviction, or the log is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Where a reader stands: everything up to `after` was sent whole, and `skip` bytes of the event that follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The newest event sent whole.
    pub after: Seq,
    /// Bytes of the next event's frame that were sent already.
    pub skip: usize,
}

/// What a log holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The oldest event held; `last.next()` if none is.
    pub first: Seq,
    /// The newest event ever appended.
    pub last: Seq,
    /// Bytes of storage in use.
    pub bytes: usize,
    /// What took the newest of the events before `first`.
    pub taken_by: TakenBy,
}

impl Span {
    /// What a cursor within this epoch has to come.
    ///
    /// # Errors
    /// [`Refused`]: past the end, or events after it are gone. All or nothing: a run with a hole is never replayed
    /// as whole (wire contract, section 5).
    pub const fn resume(&self, after: Seq) -> Result<Replay, Refused> {
        if after.get() > self.last.get() {
            return Err(Refused::Future {
                asked: after,
                last: self.last,
            });
        }
        match self.first.since(after) {
            0 | 1 => Ok(Replay {
                from: after,
                events: self.last.since(after),
            }),
            distance => Err(Refused::Gap {
                missing: distance - 1,
                oldest: self.first,
                by: self.taken_by,
            }),
        }
    }
}

/// What evicted events from a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenBy {
    /// Nothing was evicted.
    Nothing,
    /// The window's own bounds: `window_exceeded`.
    Window,
    /// A memory budget: `evicted`.
    Budget,
}

/// What a log has to show from a position on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// These slices, at least one.
    Here,
    /// Nothing yet.
    Nothing,
    /// It is held, but not in memory: the caller fetches it through the store.
    Fetch,
    /// It is gone; this is the oldest event still held.
    Gone {
        /// The oldest event still held.
        oldest: Seq,
    },
}

/// Most slices in one vectored write.
pub const SLICES_MAX: usize = 16;

/// A few slices on the stack, for one vectored write.
#[derive(Debug)]
pub struct Slices<'a> {
    buf: [IoSlice<'a>; SLICES_MAX],
    len: usize,
    bytes: usize,
}

impl<'a> Slices<'a> {
    /// None yet.
    pub fn new() -> Self {
        Self {
            buf: [IoSlice::new(&[]); SLICES_MAX],
            len: 0,
            bytes: 0,
        }
    }

    /// Adds one. `false` if it is full. An empty slice is taken and forgotten.
    #[must_use]
    pub fn push(&mut self, slice: &'a [u8]) -> bool {
        if slice.is_empty() {
            return true;
        }
        if self.len == SLICES_MAX {
            return false;
        }
        self.buf[self.len] = IoSlice::new(slice);
        self.len += 1;
        self.bytes += slice.len();
        true
    }

    /// The slices.
    pub fn as_slice(&self) -> &[IoSlice<'a>] {
        &self.buf[..self.len]
    }

    /// Bytes in all of them.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there is nothing to send.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for Slices<'_> {
    fn default() -> Self {
        Self::new()
    }
}

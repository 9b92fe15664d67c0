//! Events that were read and found no room in the log yet.
//! Law: they go in before anything that is read after them, or, where their log ends first, into the next one.
//! Bounded by what one read can hold: while anything waits, nothing more is read.
//! Next: `intake.rs`, which fills it.

use std::collections::VecDeque;

use crate::pure::epoch::Seq;
use crate::pure::event_id::IdPrefix;
use crate::pure::log::{EndMark, Entry, Full, Millis};
use crate::pure::sse::Text;
use crate::relay::intake::Counts;
use crate::relay::turn::Told;
use crate::store::StreamLog;

/// Events that were read and found no room in the log yet, oldest first.
#[derive(Default)]
pub(crate) struct Spill {
    waiting: VecDeque<Spilled>,
}

struct Spilled {
    end: EndMark,
    event: Box<[u8]>,
    data: Box<[u8]>,
}

impl Spill {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The newest event that was taken, whether it is in the log or waits for room there.
    pub(crate) fn newest(&self, counts: &Counts) -> Seq {
        Seq::new(counts.last_pushed().get() + self.waiting.len() as u64)
    }

    /// Keeps an event for later.
    pub(crate) fn keep(&mut self, end: EndMark, event: &[u8], data: &[u8]) {
        self.waiting.push_back(Spilled {
            end,
            event: event.into(),
            data: data.into(),
        });
    }

    /// Takes out everything that waits, in its order: the log that it waited for has ended.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Told> {
        let told = |Spilled { event, data, .. }| Told { event, data };
        std::mem::take(&mut self.waiting).into_iter().map(told)
    }

    /// Moves what waits into the log as far as there is room. Answers whether nothing waits any more.
    pub(crate) fn pour<L: StreamLog>(
        &mut self,
        log: &mut L,
        prefix: &IdPrefix,
        counts: &mut Counts,
        now: Millis,
    ) -> Poured {
        while let Some(next) = self.waiting.front() {
            let entry = Entry {
                prefix: prefix.as_bytes(),
                end: next.end,
                event: &next.event,
                data: Text::of(&next.data),
            };
            match log.push(entry, now) {
                Ok(seq) => counts.pushed(seq),
                Err(Full) => return Poured::Some,
            }
            self.waiting.pop_front();
        }
        if self.waiting.capacity() > 0 {
            self.waiting = VecDeque::new();
        }
        Poured::All
    }
}

/// How far the spill was emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Poured {
    /// Nothing waits.
    All,
    /// The log is full; something waits.
    Some,
}

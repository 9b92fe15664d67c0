//! How old the events of a window are: since when there are events from a certain one on, in a few marks.
//! Law: nothing that is too old is missed; between two marks and before the oldest one's time is up, nobody need look.
//! Cost: one comparison per event. Marks of events that are gone stay until the next look.
//! Absent on purpose: the events, and their eviction (`window.rs`).
//! Next: `window.rs`.

use std::collections::VecDeque;

use crate::pure::epoch::Seq;
use crate::pure::limits::LOG_AGE_PARTS;
use crate::pure::log::Millis;

/// Marks kept at most: one for each part of the bound, one begun, one that expires.
pub(super) const MARKS_MAX: usize = LOG_AGE_PARTS as usize + 2;

/// Since when there are events from this one on.
#[derive(Clone, Copy, Debug)]
struct Mark {
    from: Seq,
    since: Millis,
}

/// The ages of what a window holds. Empty, it owns no memory.
#[derive(Debug)]
pub(super) struct Ages {
    marks: VecDeque<Mark>,
    /// Nothing becomes too old before, and no mark is due.
    quiet_until: Millis,
}

impl Ages {
    /// Of an empty window.
    pub(super) const fn new() -> Self {
        Self {
            marks: VecDeque::new(),
            quiet_until: Millis(0),
        }
    }

    /// Whether something may be too old, or a mark is to be made. Always so while the window is empty.
    #[inline(always)]
    pub(super) fn is_due(&self, now: Millis) -> bool {
        now >= self.quiet_until
    }

    /// The window is empty again.
    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.quiet_until = Millis(0);
    }

    /// The events before this one are gone.
    pub(super) fn forget_before(&mut self, first: Seq) {
        while self.marks.get(1).is_some_and(|mark| mark.from <= first) {
            self.marks.pop_front();
        }
    }

    /// The events of the oldest mark are gone.
    pub(super) fn forget_oldest(&mut self) {
        self.marks.pop_front();
    }

    /// Up to which event, itself excluded, everything is older than `age`; `past` is the one behind the newest.
    /// Call: after [`Ages::forget_before`].
    pub(super) fn too_old(&self, now: Millis, age: Millis, past: Seq) -> Option<Seq> {
        let oldest = self.marks.front()?;
        let is_too_old = now.0.saturating_sub(oldest.since.0) >= age.0;
        is_too_old.then(|| self.marks.get(1).map_or(past, |next| next.from))
    }

    /// An event comes. Call: if [`Ages::is_due`], with the bound on age: a mark is made once for each part of it.
    pub(super) fn note(&mut self, seq: Seq, now: Millis, age: Millis) {
        let part = age.0.div_ceil(LOG_AGE_PARTS).max(1);
        let is_past = |newest: &Mark| now.0.saturating_sub(newest.since.0) >= part;
        if self.marks.back().is_none_or(is_past) {
            self.make_room();
            self.marks.push_back(Mark {
                from: seq,
                since: now,
            });
        }
        let after = |mark: Option<&Mark>, wait: u64| mark.map_or(0, |mark| mark.since.0.saturating_add(wait));
        let too_old = after(self.marks.front(), age.0);
        self.quiet_until = Millis(too_old.min(after(self.marks.back(), part)));
    }

    fn make_room(&mut self) {
        if self.marks.len() == MARKS_MAX
            && let Some(oldest) = self.marks.pop_front()
            && let Some(next) = self.marks.front_mut()
        {
            // Both are too old, and still here only because a reader holds them.
            next.from = oldest.from;
        }
        if self.marks.is_empty() {
            // An idle stream has one mark, and room for one.
            self.marks.reserve_exact(1);
        }
    }

    /// How many marks there are.
    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        self.marks.len()
    }
}

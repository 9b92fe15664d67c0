//! A backend's own event ids beside a stream's log: where each stands, and from which one to ask again.
//! Law: opaque, kept for each stream, compared for equality and never as numbers (wire contract, section 3).
//! Per event one copy into a place that is used again (and a digest, on a standalone stream); a backend that sends no ids
//! costs one comparison and no memory.
//! Absent on purpose: data. What came with an id is in the log, and is read there when something is to be proved; a
//! digest stands for it where the log may let go of it before.
//! Next: `pursuit.rs`, which says when a backend is asked again; `../overlap.rs`, which proves what it then says.

use std::collections::VecDeque;

use crate::pure::epoch::Seq;
use crate::pure::limits::{OVERLAP_EVENTS_MAX, UPSTREAM_ID_BYTES_MAX};
use crate::pure::overlap::Digest;

/// What an id of a backend stands on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stand {
    /// An event of the log.
    Event,
    /// A cursor without an event: a priming id, or an event that was left out.
    Cursor,
}

/// An id of a backend, and the newest event of the log when it came (its own, if it came with one).
#[derive(Clone, Debug)]
struct Mark {
    at: Seq,
    stand: Stand,
    id: Vec<u8>,
    /// What it said, where the log may not say it any more.
    said: Option<Box<Digest>>,
}

/// An event of the log that came with an id of the backend's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Where it stands.
    pub at: Seq,
    /// The backend's id.
    pub id: Box<[u8]>,
    /// What it said, where the log may not say it any more.
    pub said: Option<Digest>,
}

impl Mark {
    fn known(&self) -> Known {
        Known {
            at: self.at,
            id: self.id.as_slice().into(),
            said: self.said.as_deref().copied(),
        }
    }
}

#[derive(Clone, Debug)]
struct Kept {
    marks: VecDeque<Mark>,
    /// Up to here an event came without an id of its own: no overlap reaches back over it.
    blind: Seq,
    retry: Option<u64>,
    news: u64,
}

/// The ids of one stream's backend, newest last. It owns no memory before the first one.
#[derive(Clone, Debug)]
pub struct Trail {
    depth: usize,
    kept: Option<Box<Kept>>,
}

/// From where a backend is asked again, and what it must then say again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The id to present.
    pub cursor: Box<[u8]>,
    /// What it stands on.
    pub stand: Stand,
    /// The events that the log holds from there on, each with its id: first the asked one itself, if it is an event.
    pub held: Vec<Known>,
}

impl Trail {
    /// A trail that keeps so many ids; 0: none.
    pub const fn new(depth: usize) -> Self {
        Self { depth, kept: None }
    }

    /// How many ids it keeps.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// An event went into the log at `at`, with this id of its backend's. An empty id takes the cursor back, as for
    /// every reader of such a stream; one longer than [`UPSTREAM_ID_BYTES_MAX`] is none that could be presented.
    #[inline]
    pub fn event(&mut self, at: Seq, id: Option<&[u8]>) {
        match id {
            Some(id) => self.note(at, Stand::Event, id),
            None => {
                if let Some(kept) = &mut self.kept {
                    kept.blind = at;
                    kept.news += 1;
                }
            }
        }
    }

    /// An id came without an event, when `after` was the log's newest.
    pub fn cursor_at(&mut self, after: Seq, id: &[u8]) {
        if self.cursor() != Some(id) {
            self.note(after, Stand::Cursor, id);
        }
    }

    /// The backend said how long to wait before it is asked again, in milliseconds.
    pub fn retry_in(&mut self, ms: u64) {
        if self.depth > 0 {
            self.kept().retry = Some(ms);
        }
    }

    /// Everything is forgotten but the wait: the log's positions begin again.
    pub fn begin_epoch(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.marks.clear();
            kept.blind = Seq::START;
        }
    }

    /// The id that a reader of the stream would present now.
    pub fn cursor(&self) -> Option<&[u8]> {
        let newest = self.kept.as_ref()?.marks.back()?;
        Some(&*newest.id).filter(|id| !id.is_empty())
    }

    /// The wait that the backend asked for last, in milliseconds.
    pub fn retry(&self) -> Option<u64> {
        self.kept.as_ref()?.retry
    }

    /// A number that moves with everything new: an event, or an id that was not the last one.
    pub fn news(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.news)
    }

    /// From where to ask so that what is held must come again: the oldest id from which everything is still held, at
    /// most [`OVERLAP_EVENTS_MAX`] events back (wire contract, section 8). The log holds `first` to `last`.
    /// `None`: no id reaches up to the log's end without an event in between that had none.
    pub fn ask(&self, first: Seq, last: Seq) -> Option<Ask> {
        let kept = self.kept.as_ref()?;
        let within = |mark: &Mark| {
            let whole = match mark.stand {
                Stand::Event => mark.at >= first,
                Stand::Cursor => mark.at.next() >= first,
            };
            whole && mark.at >= kept.blind && last.since(mark.at) <= OVERLAP_EVENTS_MAX as u64
        };
        let nth = kept
            .marks
            .iter()
            .position(|mark| !mark.id.is_empty() && within(mark))?;
        let asked = &kept.marks[nth];
        let held: Vec<Known> = kept
            .marks
            .range(nth..)
            .filter(|mark| mark.stand == Stand::Event)
            .map(Mark::known)
            .collect();
        let from = match asked.stand {
            Stand::Event => asked.at,
            Stand::Cursor => asked.at.next(),
        };
        let mut places = held.iter().zip(from.get()..);
        let dense = places.all(|(known, n)| known.at.get() == n && !known.id.is_empty());
        let whole = held.len() as u64 == last.next().since(from);
        (dense && whole).then(|| Ask {
            cursor: asked.id.as_slice().into(),
            stand: asked.stand,
            held,
        })
    }

    /// The events that have an id, newest last, at most so many as are kept.
    pub fn events(&self) -> Vec<Known> {
        let marks = self.kept.iter().flat_map(|kept| &kept.marks);
        marks
            .filter(|mark| mark.stand == Stand::Event && !mark.id.is_empty())
            .map(Mark::known)
            .collect()
    }

    /// The log is about to say something else in the place of this event, or may let go of it: what it said.
    pub fn keep_said(&mut self, at: Seq, said: Digest) {
        let marks = self.kept.iter_mut().flat_map(|kept| kept.marks.iter_mut().rev());
        let those = marks
            .skip_while(|mark| mark.at > at)
            .take_while(|mark| mark.at == at);
        for mark in those.filter(|mark| mark.stand == Stand::Event) {
            mark.said.get_or_insert_with(|| Box::new(said));
        }
    }

    fn kept(&mut self) -> &mut Kept {
        self.kept.get_or_insert_with(|| {
            Box::new(Kept {
                marks: VecDeque::new(),
                blind: Seq::START,
                retry: None,
                news: 0,
            })
        })
    }

    fn note(&mut self, at: Seq, stand: Stand, id: &[u8]) {
        if self.depth == 0 {
            return;
        }
        let depth = self.depth;
        let kept = self.kept();
        kept.news += 1;
        let mut place = if kept.marks.len() < depth {
            Vec::new()
        } else {
            kept.marks.pop_front().map(|mark| mark.id).unwrap_or_default()
        };
        place.clear();
        if id.len() <= UPSTREAM_ID_BYTES_MAX {
            place.extend_from_slice(id);
        }
        if kept.marks.is_empty() {
            // An idle stream has one.
            kept.marks.reserve_exact(1);
        }
        kept.marks.push_back(Mark {
            at,
            stand,
            id: place,
            said: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `e ID` (event), `-` (event without id), `c ID` (cursor) and compares the cursor and the ask.
    fn check(depth: usize, first: u64, plays: &[&str], cursor: Option<&str>, asked: Option<(&str, &str)>) {
        let mut trail = Trail::new(depth);
        let mut last = 0;
        for play in plays {
            match play.split_once(' ') {
                Some(("e", id)) => {
                    last += 1;
                    trail.event(Seq::new(last), Some(id.as_bytes()));
                }
                Some(("c", id)) => trail.cursor_at(Seq::new(last), id.as_bytes()),
                _ => {
                    last += 1;
                    trail.event(Seq::new(last), None);
                }
            }
        }
        assert_eq!(trail.cursor(), cursor.map(str::as_bytes), "{plays:?}");
        let text = |id: &[u8]| String::from_utf8_lossy(id).into_owned();
        let found = trail.ask(Seq::new(first), Seq::new(last)).map(|ask| {
            let each = |known: &Known| format!("{}{}", known.at, text(&known.id));
            let held: Vec<String> = ask.held.iter().map(each).collect();
            (text(&ask.cursor), held.join(" "))
        });
        let expected = asked.map(|(cursor, held)| (cursor.to_owned(), held.to_owned()));
        assert_eq!(found, expected, "{plays:?}");
    }

    #[test]
    fn the_oldest_id_from_which_all_is_held_is_asked() {
        check(16, 1, &[], None, None);
        check(16, 1, &["-"], None, None);
        check(16, 1, &["c p"], Some("p"), Some(("p", "")));
        check(16, 1, &["c p", "e a", "e b"], Some("b"), Some(("p", "1a 2b")));
        check(16, 2, &["c p", "e a", "e b"], Some("b"), Some(("b", "2b")));
        check(16, 1, &["e a", "e b"], Some("b"), Some(("a", "1a 2b")));
        check(16, 1, &["e a", "c q", "e b"], Some("b"), Some(("a", "1a 2b")));
        check(16, 3, &["e a", "e b", "c q"], Some("q"), Some(("q", "")));
        check(16, 3, &["e a", "e b"], Some("b"), None);
        // An event without an id can't be recognised when it comes again.
        check(16, 1, &["c p", "e a", "-", "e b"], Some("b"), Some(("b", "3b")));
        check(16, 1, &["c p", "e a", "-"], Some("a"), None);
        check(16, 1, &["c p", "-", "c q", "e b"], Some("b"), Some(("q", "2b")));
        // Before the first id.
        check(16, 1, &["-", "e a"], Some("a"), Some(("a", "2a")));
    }

    #[test]
    fn ids_are_bounded_in_number_and_length() {
        let many: Vec<String> = (1..=40).map(|n| format!("e {n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let held: Vec<String> = (28..=40).map(|n| format!("{n}{n}")).collect();
        check(64, 1, &many, Some("40"), Some(("28", &held.join(" "))));
        check(1, 1, &many, Some("40"), Some(("40", "4040")));
        check(0, 1, &many, None, None);
        let long = format!("e {}", "x".repeat(UPSTREAM_ID_BYTES_MAX + 1));
        check(16, 1, &["e a", &long], None, None);
        let mut trail = Trail::new(2);
        for n in 1..1_000 {
            trail.event(Seq::new(n), Some(b"id"));
        }
        assert_eq!(trail.events().len(), 2);
    }

    #[test]
    fn an_empty_id_takes_the_cursor_back() {
        check(16, 1, &["e a", "e "], None, None);
        check(16, 1, &["e a", "e ", "e b"], Some("b"), None);
    }

    #[test]
    fn news_are_events_and_ids_that_were_not_the_last() {
        let mut trail = Trail::new(1);
        trail.cursor_at(Seq::START, b"p");
        assert_eq!(trail.news(), 1);
        trail.cursor_at(Seq::START, b"p");
        assert_eq!(trail.news(), 1);
        trail.event(Seq::new(1), None);
        trail.event(Seq::new(2), Some(b"a"));
        assert_eq!(trail.news(), 3);
        let said = Digest::of(b"x");
        trail.keep_said(Seq::new(2), said);
        trail.keep_said(Seq::new(2), Digest::of(b"later"));
        assert_eq!(trail.events()[0].said, Some(said));
        trail.retry_in(7);
        trail.begin_epoch();
        assert_eq!((trail.cursor(), trail.retry(), trail.news()), (None, Some(7), 3));
    }
}

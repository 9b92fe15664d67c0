//! The streams of one session by their epochs: which live, how the others ended, which is the standalone one.
//! Law: identity outlives data: an epoch that ended is remembered by its tombstone, the oldest forgotten first.
//! A bound on live streams is met by letting go of the oldest that is finished, never of one that still runs.
//! Why lists and no map: they are short, kept in the order of their age, and cost what they hold.
//! Next: `../resume.rs`, which asks what is known of a cursor's epoch.

use std::collections::VecDeque;

use crate::pure::epoch::{Epoch, Tombstone};
use crate::pure::limits::{SESSION_STREAMS_MAX, SESSION_TOMBSTONES_MAX};

/// Where a session is known from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It began here.
    Fresh,
    /// Its token was presented; what happened before is not known.
    Revived,
}

/// Whether a connection was ever given an event of the standalone stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// None was.
    Never,
    /// One was.
    Something,
    /// Nobody here can say.
    Unknown,
}

/// Whether a stream still runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// More may come.
    Running,
    /// Its last event is in the log; the data is kept for a client that comes back.
    Finished,
}

/// What is known of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known<H> {
    /// Its stream lives; this is its handle.
    Live(H),
    /// It ended, like this.
    Buried(Tombstone),
    /// It was never heard of, or is forgotten.
    Nothing,
}

/// No room for another stream: so many live, and none of them is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// How many run.
    pub running: usize,
}

#[derive(Clone, Debug)]
struct Live<H> {
    epoch: Epoch,
    stage: Stage,
    handle: H,
}

/// How streams ended, oldest first.
#[derive(Clone, Debug, Default)]
struct Buried {
    tombstones: VecDeque<Tombstone>,
}

/// The streams of one session. An idle one has a single stream, and owns the memory for that.
#[derive(Clone, Debug)]
pub struct Streams<H> {
    live: Vec<Live<H>>,
    buried: Option<Box<Buried>>,
    standalone: Option<Epoch>,
    written: Written,
}

impl<H: Clone> Streams<H> {
    /// None yet.
    pub const fn new(origin: Origin) -> Self {
        let written = match origin {
            Origin::Fresh => Written::Never,
            Origin::Revived => Written::Unknown,
        };
        Self {
            live: Vec::new(),
            buried: None,
            standalone: None,
            written,
        }
    }

    /// A POST stream begins. If `max` (at most [`SESSION_STREAMS_MAX`]) live already, the oldest finished one is let
    /// go: its handle is answered, its owner buries it.
    ///
    /// # Errors
    /// [`Full`]: all of them run. The request is refused as overloaded; nothing was executed.
    pub fn open_post(&mut self, epoch: Epoch, handle: H, max: usize) -> Result<Option<H>, Full> {
        let let_go = self.room(max)?.map(|nth| self.live.remove(nth).handle);
        self.live.push(Live {
            epoch,
            stage: Stage::Running,
            handle,
        });
        Ok(let_go)
    }

    /// Whether a POST stream could begin now. Call: before a request is sent that it would answer.
    ///
    /// # Errors
    /// As [`Streams::open_post`].
    pub fn room_for_post(&self, max: usize) -> Result<(), Full> {
        self.room(max).map(drop)
    }

    /// The stream that would have to be let go for another POST stream, if any.
    fn room(&self, max: usize) -> Result<Option<usize>, Full> {
        let posts = || {
            self.live
                .iter()
                .enumerate()
                .filter(|(_, live)| Some(live.epoch) != self.standalone)
        };
        let running = posts().count();
        if running < max.min(SESSION_STREAMS_MAX) {
            return Ok(None);
        }
        let finished = posts().find(|(_, live)| live.stage == Stage::Finished);
        finished.map(|(nth, _)| Some(nth)).ok_or(Full { running })
    }

    /// The standalone stream begins. There is one: the handle of another that still stands is answered, for its end.
    pub fn open_standalone(&mut self, epoch: Epoch, handle: H) -> Option<H> {
        let old = self
            .live
            .iter()
            .position(|live| Some(live.epoch) == self.standalone);
        let old = old.map(|nth| self.live.remove(nth).handle);
        if self.live.is_empty() {
            // An idle session has this one.
            self.live.reserve_exact(1);
        }
        self.live.push(Live {
            epoch,
            stage: Stage::Running,
            handle,
        });
        self.standalone = Some(epoch);
        old
    }

    /// The standalone stream goes on in a new epoch: the old one is buried in the same step, so that no cursor of it
    /// meets neither.
    pub fn turn(&mut self, tombstone: Tombstone, epoch: Epoch, handle: H) {
        self.bury(tombstone);
        self.open_standalone(epoch, handle);
    }

    /// A stream's last event is in its log.
    pub fn finished(&mut self, epoch: Epoch) {
        if let Some(live) = self.live.iter_mut().find(|live| live.epoch == epoch) {
            live.stage = Stage::Finished;
        }
    }

    /// An epoch is over: only its tombstone stays. An epoch that is buried twice keeps its first reason.
    pub fn bury(&mut self, tombstone: Tombstone) {
        self.live.retain(|live| live.epoch != tombstone.epoch);
        if self.standalone == Some(tombstone.epoch) {
            self.standalone = None;
        }
        let tombstones = &mut self.buried.get_or_insert_default().tombstones;
        if tombstones.iter().any(|buried| buried.epoch == tombstone.epoch) {
            return;
        }
        if tombstones.len() == SESSION_TOMBSTONES_MAX {
            tombstones.pop_front();
        }
        tombstones.push_back(tombstone);
    }

    /// What is known of an epoch.
    pub fn find(&self, epoch: Epoch) -> Known<H> {
        if let Some(live) = self.live.iter().find(|live| live.epoch == epoch) {
            return Known::Live(live.handle.clone());
        }
        let tombstones = self.buried.iter().flat_map(|buried| &buried.tombstones);
        tombstones
            .rev()
            .find(|buried| buried.epoch == epoch)
            .map_or(Known::Nothing, |buried| Known::Buried(*buried))
    }

    /// The standalone stream's handle, if it lives.
    pub fn standalone(&self) -> Option<H> {
        let epoch = self.standalone?;
        self.live
            .iter()
            .find(|live| live.epoch == epoch)
            .map(|live| live.handle.clone())
    }

    /// Whether a connection was ever given an event of the standalone stream.
    pub const fn written(&self) -> Written {
        self.written
    }

    /// A connection was given an event of the standalone stream.
    pub const fn note_written(&mut self) {
        self.written = Written::Something;
    }

    /// The standalone stream went, and what was said on it, or is said until there is another one, is not held.
    pub const fn note_missing(&mut self) {
        match self.written {
            Written::Never => self.written = Written::Unknown,
            Written::Something | Written::Unknown => {}
        }
    }

    /// The streams that live, oldest first.
    pub fn handles(&self) -> impl Iterator<Item = &H> {
        self.live.iter().map(|live| &live.handle)
    }

    /// Every stream lets go: their handles, oldest first. Tombstones stay.
    pub fn take_all(&mut self) -> Vec<H> {
        self.standalone = None;
        std::mem::take(&mut self.live)
            .into_iter()
            .map(|live| live.handle)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::epoch::{EpochEnd, Reason, Seq};

    fn epoch(n: u64) -> Epoch {
        Epoch::from_random(n)
    }

    fn tombstone(n: u64, end: EpochEnd) -> Tombstone {
        Tombstone {
            epoch: epoch(n),
            last: Seq::new(n),
            end,
        }
    }

    const EVICTED: EpochEnd = EpochEnd::Lost(Reason::Evicted);

    #[test]
    fn the_oldest_finished_stream_makes_room_and_a_running_one_never() {
        let mut streams = Streams::new(Origin::Fresh);
        streams.open_standalone(epoch(100), "get");
        assert_eq!(streams.open_post(epoch(1), "one", 2), Ok(None));
        assert_eq!(streams.open_post(epoch(2), "two", 2), Ok(None));
        assert_eq!(streams.open_post(epoch(3), "three", 2), Err(Full { running: 2 }));
        streams.finished(epoch(2));
        assert_eq!(streams.open_post(epoch(3), "three", 2), Ok(Some("two")));
        assert_eq!(streams.find(epoch(2)), Known::Nothing, "its owner buries it");
        streams.bury(tombstone(2, EVICTED));
        assert_eq!(streams.find(epoch(2)), Known::Buried(tombstone(2, EVICTED)));
        assert_eq!(
            streams.handles().copied().collect::<Vec<_>>(),
            ["get", "one", "three"]
        );
        assert_eq!(streams.take_all(), ["get", "one", "three"]);
        assert_eq!(
            (streams.standalone(), streams.find(epoch(1))),
            (None, Known::Nothing)
        );
    }

    #[test]
    fn live_streams_are_bounded_whatever_is_asked() {
        let mut streams = Streams::new(Origin::Fresh);
        let opened = (0..1_000)
            .take_while(|n| streams.open_post(epoch(*n), *n, usize::MAX).is_ok())
            .count();
        assert_eq!(opened, SESSION_STREAMS_MAX);
    }

    #[test]
    fn tombstones_outlive_data_and_the_oldest_goes_first() {
        let mut streams = Streams::new(Origin::Fresh);
        for n in 0..SESSION_TOMBSTONES_MAX as u64 + 1 {
            streams.open_post(epoch(n), n, 1).unwrap();
            assert_eq!(streams.find(epoch(n)), Known::Live(n));
            streams.bury(tombstone(n, EVICTED));
        }
        assert_eq!(streams.find(epoch(0)), Known::Nothing);
        assert_eq!(streams.find(epoch(1)), Known::Buried(tombstone(1, EVICTED)));
        streams.bury(tombstone(1, EpochEnd::Finished));
        assert_eq!(
            streams.find(epoch(1)),
            Known::Buried(tombstone(1, EVICTED)),
            "the first reason stays"
        );
    }

    #[test]
    fn the_standalone_stream_goes_on_in_a_new_epoch() {
        let mut streams = Streams::new(Origin::Fresh);
        assert_eq!((streams.standalone(), streams.written()), (None, Written::Never));
        streams.open_standalone(epoch(1), "old");
        streams.note_written();
        streams.turn(tombstone(1, EVICTED), epoch(2), "new");
        assert_eq!(streams.find(epoch(1)), Known::Buried(tombstone(1, EVICTED)));
        assert_eq!(streams.find(epoch(2)), Known::Live("new"));
        assert_eq!(
            (streams.standalone(), streams.written()),
            (Some("new"), Written::Something)
        );
        streams.bury(tombstone(2, EVICTED));
        assert_eq!(
            (streams.standalone(), streams.written()),
            (None, Written::Something)
        );
    }

    #[test]
    fn a_revived_session_never_says_that_nothing_was_written() {
        let mut streams: Streams<()> = Streams::new(Origin::Revived);
        assert_eq!(streams.written(), Written::Unknown);
        streams.open_standalone(epoch(1), ());
        assert_eq!(streams.written(), Written::Unknown);
    }

    #[test]
    fn what_went_with_a_stream_is_not_forgotten() {
        let mut streams: Streams<()> = Streams::new(Origin::Fresh);
        streams.note_missing();
        assert_eq!(streams.written(), Written::Unknown);
        streams.note_written();
        streams.note_missing();
        assert_eq!(streams.written(), Written::Something);
    }
}

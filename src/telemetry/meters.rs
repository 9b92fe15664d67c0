//! What can be done with a metric: count, go up and down, take a time; and one count for each word of a list.
//! Law: counting is one atomic addition; only [`Times`] takes a lock, for a moment.
//! Absent on purpose: names and labels (`instruments.rs`).
//! Next: `instruments.rs`.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::words::Word;

/// Something that is counted.
#[derive(Clone, Debug)]
pub struct Count(pub(super) Counter);

impl Count {
    /// One more.
    pub fn one(&self) {
        self.0.inc();
    }

    /// Several more at once.
    pub fn add(&self, count: u64) {
        self.0.inc_by(count);
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Something that goes up and down.
#[derive(Clone, Debug)]
pub struct Level(pub(super) Gauge);

impl Level {
    /// It is this much now.
    pub fn set(&self, value: i64) {
        self.0.set(value);
    }

    /// It went up (or, negative, down) by this much.
    pub fn shift(&self, by: i64) {
        self.0.inc_by(by);
    }

    /// One more for as long as the answer is kept.
    pub fn enter(&self) -> Within {
        self.0.inc();
        Within(self.clone())
    }

    /// How much it is.
    pub fn get(&self) -> i64 {
        self.0.get()
    }
}

/// One that counts in a [`Level`] until it is dropped.
#[derive(Debug)]
pub struct Within(Level);

impl Drop for Within {
    fn drop(&mut self) {
        self.0.0.dec();
    }
}

/// How long things take. Takes a lock for a moment: for a request or a stream, not for an event.
#[derive(Clone, Debug)]
pub struct Times(pub(super) Histogram);

impl Times {
    /// It took this long.
    pub fn took(&self, time: Duration) {
        self.0.observe(time.as_secs_f64());
    }
}

/// One [`Count`] for each word.
#[derive(Clone)]
pub struct Tally<W> {
    counts: Box<[Count]>,
    words: PhantomData<fn(W)>,
}

impl<W: Word> Tally<W> {
    pub(super) fn new(mut count: impl FnMut(&'static str) -> Count) -> Self {
        Self {
            counts: W::ALL.iter().map(|word| count(word.as_str())).collect(),
            words: PhantomData,
        }
    }

    /// The count of a word, to be kept where it is used often.
    pub fn of(&self, word: W) -> &Count {
        // `ALL` is a closed list and holds every word; the first one stands in rather than a panic.
        let place = W::ALL.iter().position(|other| *other == word).unwrap_or(0);
        &self.counts[place]
    }

    /// One more of this word.
    pub fn one(&self, word: W) {
        self.of(word).one();
    }

    /// Several more of this word at once.
    pub fn add(&self, word: W, count: u64) {
        self.of(word).add(count);
    }
}

impl<W: Word> fmt::Debug for Tally<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(W::ALL.iter().map(|word| (word.as_str(), self.of(*word).get())))
            .finish()
    }
}

//! The oracle: everything that was done and shown in one world, and what must hold of it.
//! Law: it never forgets, and knows nothing of how the program works; only what the wire contract promises.
//! A violation is noted with its moment; the world goes on, so that one seed may show several.
//! Next: `trail.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// Lines of history kept; a world that says more is cut at the front.
const LINES_MAX: usize = 50_000;

/// How a request ended, as its client was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It ran; this is what it said.
    Result,
    /// It did not run: an error or a refusal that says so, or the session was gone.
    NotExecuted(String),
    /// Nobody knows whether it ran.
    Unknown(String),
}

/// What is known of one call.
#[derive(Clone, Debug, Default)]
struct Call {
    executed: u32,
    /// The processes of the proxy that its client sent it to: none of them knows of the others.
    sent_to: BTreeSet<Process>,
    outcome: Option<Outcome>,
    given_up: Option<String>,
    /// When its client went away, which is its cancel.
    left: Option<Instant>,
    /// When a backend first said something of it after that.
    after: Option<Instant>,
}

/// So long after it first spoke to nobody, a backend must have noticed.
const NOTICED: Duration = Duration::from_secs(1);

/// What happened how often, over one world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(pub(crate) BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// The oracle of one world.
pub(crate) struct Oracle {
    began: Instant,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    lines: Vec<String>,
    violations: Vec<String>,
    calls: BTreeMap<String, Call>,
    tally: Tally,
    epochs: BTreeMap<String, Life>,
}

/// One process of the proxy, by its number in this world. No two have the same, even at one address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Process(pub(crate) u32);

/// One epoch of a stream.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// Whose it is.
    of: Process,
    /// How far the store's promise reaches.
    kept: u64,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            book: Mutex::default(),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a line to the history.
    pub(crate) fn saw(&self, what: String) {
        let line = format!("{:>9.3}  {what}", self.began.elapsed().as_secs_f64());
        let lines = &mut self.book().lines;
        if lines.len() < LINES_MAX {
            lines.push(line);
        }
    }

    pub(crate) fn counted(&self, what: &'static str) {
        *self.book().tally.0.entry(what).or_default() += 1;
    }

    /// Something happened that must not.
    pub(crate) fn violated(&self, what: String) {
        self.saw(format!("VIOLATION: {what}"));
        self.book().violations.push(what);
    }

    /// A process of the proxy began a log.
    pub(crate) fn began(&self, process: Process, epoch: &str) {
        let life = Life { of: process, kept: 0 };
        let before = self.book().epochs.insert(epoch.to_owned(), life);
        if before.is_some() {
            self.violated(format!("the epoch {epoch} began twice"));
        }
    }

    /// The store promised everything of an epoch up to this position.
    pub(crate) fn kept(&self, epoch: &str, upto: u64) {
        if let Some(life) = self.book().epochs.get_mut(epoch) {
            life.kept = upto;
        }
    }

    /// An event was shown to a client.
    pub(crate) fn shown(&self, epoch: &str, seq: u64) {
        let life = self.book().epochs.get(epoch).copied();
        match life {
            Some(Life { kept, .. }) if kept < seq => {
                self.violated(format!("{epoch}.{seq} was shown, and {kept} is kept"));
            }
            // What is said of a cursor without a log, and refusals, are made anew each time and kept nowhere.
            Some(_) | None => {}
        }
    }

    /// A process of the proxy said that it goes on with an epoch: only whose it is has its events.
    pub(crate) fn resumed(&self, process: Option<Process>, epoch: &str) {
        let of = self.book().epochs.get(epoch).map(|life| life.of);
        if of != process {
            self.violated(format!("{epoch} of {of:?} was resumed by {process:?}"));
        }
    }

    /// A client sends a call to a process of the proxy.
    pub(crate) fn sent(&self, token: &str, process: Option<Process>) {
        let mut book = self.book();
        let call = book.calls.entry(token.to_owned()).or_default();
        call.sent_to.extend(process);
    }

    /// A backend began to run a call.
    pub(crate) fn executed(&self, token: &str) {
        let (times, most) = {
            let mut book = self.book();
            let call = book.calls.entry(token.to_owned()).or_default();
            call.executed += 1;
            (call.executed as usize, call.sent_to.len())
        };
        if times > most {
            self.violated(format!("{token} was executed {times} times, and sent to {most}"));
        }
    }

    /// A client went away from a call, which cancels it; its connection carried the news.
    pub(crate) fn left(&self, token: &str) {
        let mut book = self.book();
        book.calls.entry(token.to_owned()).or_default().left = Some(Instant::now());
        drop(book);
        self.counted("cancelled by leaving");
    }

    /// A backend said something of a call, on a connection that carries what it says.
    pub(crate) fn spoke(&self, token: &str) {
        let late = {
            let mut book = self.book();
            let call = book.calls.entry(token.to_owned()).or_default();
            let left = call.left;
            left.map(|_| call.after.get_or_insert_with(Instant::now).elapsed())
        };
        if late.is_some_and(|late| late > NOTICED) {
            self.violated(format!("{token} runs on, and its client has gone away"));
        }
    }

    /// A client makes a call.
    pub(crate) fn called(&self, token: &str) {
        self.book().calls.entry(token.to_owned()).or_default();
        self.counted("calls");
    }

    /// A client was told how its call ended.
    pub(crate) fn told(&self, token: &str, outcome: Outcome) {
        self.saw(format!("{token} ended: {outcome:?}"));
        self.counted(match outcome {
            Outcome::Result => "results",
            Outcome::NotExecuted(_) => "not executed",
            Outcome::Unknown(_) => "outcome unknown",
        });
        let before = {
            let mut book = self.book();
            let call = book.calls.entry(token.to_owned()).or_default();
            call.outcome.replace(outcome.clone())
        };
        if let Some(before) = before {
            self.violated(format!("{token} has two outcomes: {before:?}, then {outcome:?}"));
        }
    }

    /// A client waits for a call no more, for a reason of its own.
    pub(crate) fn gave_up(&self, token: &str, why: &str) {
        self.saw(format!("{token} was given up: {why}"));
        self.counted("given up");
        let mut book = self.book();
        book.calls.entry(token.to_owned()).or_default().given_up = Some(why.to_owned());
    }

    /// What must hold once everything has come to rest.
    pub(crate) fn judge(&self) {
        let calls = self.book().calls.clone();
        for (token, call) in calls {
            match (&call.outcome, call.executed, &call.given_up) {
                (None, _, None) => self.violated(format!("{token} has no outcome")),
                (Some(Outcome::NotExecuted(why)), 1.., _) if call.sent_to.len() < 2 => {
                    self.violated(format!(
                        "{token} was executed, and its client was told that it was not: {why}"
                    ));
                }
                (Some(Outcome::Result), 0, _) => {
                    self.violated(format!("{token} has a result and was never executed"));
                }
                (Some(_), ..) | (None, _, Some(_)) => {}
            }
        }
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.book().violations.clone()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.book().tally.clone()
    }

    /// The history as text.
    pub(crate) fn history(&self) -> String {
        let mut text = String::new();
        for line in &self.book().lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// How often this happened until now.
    pub(crate) fn count(&self, what: &str) -> u64 {
        self.book().tally.0.get(what).copied().unwrap_or(0)
    }

    /// The calls whose clients have their results.
    pub(crate) fn results(&self) -> Vec<String> {
        let book = self.book();
        let calls = book.calls.iter();
        let with_result = calls.filter(|(_, call)| call.outcome == Some(Outcome::Result));
        with_result.map(|(token, _)| token.clone()).collect()
    }

    /// Two worlds of one seed have the same.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.book().lines.hash(&mut hasher);
        hasher.finish()
    }
}

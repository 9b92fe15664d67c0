//! The requests of a session that are under way or were just answered, so that the same POST runs once (wire contract, section 7).
//! Law: what runs is never forgotten, and never begun again. What was answered is the same request for a few seconds
//! after its last byte was taken, and longer if nobody took it; then the same bytes are a new request.
//! Same is: this session, this credential, these bytes of the body (its typed ids among them).
//! Absent on purpose: the answers (opaque here), who waits for them, and whether a stream still holds its own.
//! Next: `../stream/life.rs`; `relay/repeat.rs`, which obeys.

use std::collections::VecDeque;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::limits::{REPEAT_BYTES_MAX, REPEAT_MS_MAX, REPEATS_MAX};
use crate::pure::log::Millis;
use crate::pure::session::credential::CredentialHash;

/// What tells one POST of a session from another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PostKey {
    // First, since it is what differs.
    body: [u8; 32],
    credential: CredentialHash,
}

impl PostKey {
    /// Of a body that came with this credential. `digest` is the body's.
    pub const fn new(credential: CredentialHash, digest: BodyDigest) -> Self {
        let body = digest.0;
        Self { credential, body }
    }
}

impl fmt::Debug for PostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostKey({:02x}{:02x}…)", self.body[0], self.body[1])
    }
}

/// SHA-256 of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// Of these bytes.
    pub fn of(body: &[u8]) -> Self {
        Self(Sha256::digest(body).into())
    }
}

/// Which entry: never used twice in a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number(u64);

/// What a POST is that comes. `B` rings for those who wait, `A` is an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Begun<'a, B, A> {
    /// A new request. Call: [`Ledger::streaming`], then [`Ledger::settle`]. Next: its answer.
    New(Number),
    /// The same as one that runs; whoever waits for it hangs a bell here.
    Running(&'a mut Option<B>),
    /// The same as one whose answer is this stream.
    Streaming(Epoch),
    /// The same as one that was answered.
    Answered(&'a A),
    /// The same as one whose answer can't be had again: its outcome is unknown, for this reason.
    Unheld(Reason),
}

/// What becomes of an entry whose request was answered.
#[derive(Debug)]
pub enum Settled<A> {
    /// Nothing ran, or the client was told so: the same bytes are a new request.
    Forget,
    /// This is kept, so many bytes of it, until then.
    Keep {
        /// The answer.
        answer: A,
        /// Its size.
        bytes: usize,
        /// Until when the same bytes are the same request.
        until: Millis,
    },
    /// The answer is not kept, but the request ran.
    Unheld {
        /// Why it is not.
        reason: Reason,
        /// Until when the same bytes are the same request.
        until: Millis,
    },
}

/// How a stream left that was an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Its client had all of it.
    Had,
    /// Its client can't have all of it any more, for this reason.
    Unheld(Reason),
}

/// Whether a finished answer was taken whole by its client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// Its last byte was, at this time.
    At(Millis),
    /// Not, since this time; it is held for its client for so long.
    Not {
        /// Since when it could be taken.
        since: Millis,
        /// For how long it is held (`detached_max`).
        held: Millis,
    },
}

impl Taken {
    /// Until when the same bytes are the same request.
    pub const fn until(self) -> Millis {
        match self {
            Self::At(at) => Millis(at.0.saturating_add(REPEAT_MS_MAX)),
            Self::Not { since, held } => Millis(since.0.saturating_add(held.0)),
        }
    }
}

#[derive(Debug)]
enum State<B, A> {
    Running { bell: Option<B> },
    Streaming { epoch: Epoch },
    Answered { answer: A, bytes: usize, until: Millis },
    Unheld { reason: Reason, until: Millis },
}

impl<B, A> State<B, A> {
    const fn until(&self) -> Option<Millis> {
        match self {
            Self::Running { .. } | Self::Streaming { .. } => None,
            Self::Answered { until, .. } | Self::Unheld { until, .. } => Some(*until),
        }
    }
}

#[derive(Debug)]
struct Entry<B, A> {
    number: Number,
    key: PostKey,
    state: State<B, A>,
}

/// The POSTs of one session, oldest first.
#[derive(Debug)]
pub struct Ledger<B, A> {
    entries: VecDeque<Entry<B, A>>,
    /// Entries that end with time.
    timed: usize,
    /// Bytes of answers.
    bytes: usize,
    next: u64,
    reminder: Reminder,
}

/// Whether the sweep will look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reminder {
    None,
    Asked,
}

impl<B, A> Default for Ledger<B, A> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            timed: 0,
            bytes: 0,
            next: 0,
            reminder: Reminder::None,
        }
    }
}

impl<B, A> Ledger<B, A> {
    /// What a POST is.
    pub fn begin(&mut self, key: PostKey, now: Millis) -> Begun<'_, B, A> {
        // The newest first: who repeats repeats what it has just asked.
        let known = self.entries.iter().rposition(|entry| entry.key == key);
        let Some(nth) = known else {
            return Begun::New(self.add(key));
        };
        if self.entries[nth].state.until().is_some_and(|until| now >= until) {
            drop(self.remove(nth));
            return Begun::New(self.add(key));
        }
        match &mut self.entries[nth].state {
            State::Running { bell } => Begun::Running(bell),
            State::Streaming { epoch } => Begun::Streaming(*epoch),
            State::Answered { answer, .. } => Begun::Answered(answer),
            State::Unheld { reason, .. } => Begun::Unheld(*reason),
        }
    }

    fn add(&mut self, key: PostKey) -> Number {
        let number = Number(self.next);
        self.next += 1;
        let state = State::Running { bell: None };
        self.entries.push_back(Entry { number, key, state });
        number
    }

    fn remove(&mut self, nth: usize) -> Option<Entry<B, A>> {
        let gone = self.entries.remove(nth)?;
        match &gone.state {
            State::Running { .. } | State::Streaming { .. } => {}
            State::Answered { bytes, .. } => {
                self.timed -= 1;
                self.bytes -= bytes;
            }
            State::Unheld { .. } => self.timed -= 1,
        }
        Some(gone)
    }

    fn running(&mut self, number: Number) -> Option<(usize, Option<B>)> {
        let nth = self.entries.iter().rposition(|entry| entry.number == number)?;
        match &mut self.entries[nth].state {
            State::Running { bell } => Some((nth, bell.take())),
            State::Streaming { .. } | State::Answered { .. } | State::Unheld { .. } => None,
        }
    }

    /// A request that runs is answered by a stream, which knows the rest: the bell of those who wait, if any do.
    pub fn streaming(&mut self, number: Number, epoch: Epoch) -> Option<B> {
        let (nth, bell) = self.running(number)?;
        self.entries[nth].state = State::Streaming { epoch };
        bell
    }

    /// A request that runs was answered, or never will be: the bell of those who wait, if any do. Nothing if a stream
    /// answers it.
    pub fn settle(&mut self, number: Number, settled: Settled<A>) -> Option<B> {
        let (nth, bell) = self.running(number)?;
        match settled {
            Settled::Forget => drop(self.remove(nth)),
            Settled::Keep { answer, bytes, until } => {
                let state = if self.bytes + bytes > REPEAT_BYTES_MAX {
                    let reason = Reason::Evicted;
                    State::Unheld { reason, until }
                } else {
                    self.bytes += bytes;
                    State::Answered { answer, bytes, until }
                };
                self.time(nth, state);
            }
            Settled::Unheld { reason, until } => self.time(nth, State::Unheld { reason, until }),
        }
        bell
    }

    /// A stream that was an answer is no more.
    pub fn left(&mut self, epoch: Epoch, how: Left, now: Millis) {
        let is_it =
            |entry: &Entry<B, A>| matches!(entry.state, State::Streaming { epoch: it } if it == epoch);
        let Some(nth) = self.entries.iter().position(is_it) else {
            return;
        };
        match how {
            Left::Had => drop(self.remove(nth)),
            Left::Unheld(reason) => {
                let until = Taken::At(now).until();
                self.time(nth, State::Unheld { reason, until });
            }
        }
    }

    /// An entry ends with time from now on. If there are too many, the oldest goes of those that would end no later, so
    /// that an answer which nobody took yet outlives those that were had; never this one.
    fn time(&mut self, nth: usize, state: State<B, A>) {
        let until = state.until();
        self.entries[nth].state = state;
        self.timed += 1;
        if self.timed > REPEATS_MAX {
            let mut others = self.entries.iter().enumerate().filter_map(|(other, entry)| {
                let ends = entry.state.until().filter(|_| other != nth)?;
                Some((other, ends))
            });
            let goes = others.clone().find(|(_, ends)| Some(*ends) <= until);
            if let Some((oldest, _)) = goes.or_else(|| others.next()) {
                drop(self.remove(oldest));
            }
        }
    }

    /// When the sweep should look, unless it was asked to already, or there is nothing to look at.
    pub fn remind_at(&mut self) -> Option<Millis> {
        if self.timed == 0 || self.reminder == Reminder::Asked {
            return None;
        }
        self.reminder = Reminder::Asked;
        self.entries.iter().filter_map(|entry| entry.state.until()).min()
    }

    /// The sweep looks: forgets what has had its time.
    pub fn sweep(&mut self, now: Millis) {
        self.reminder = Reminder::None;
        let over = |entry: &Entry<B, A>| entry.state.until().is_some_and(|until| now >= until);
        while let Some(nth) = self.entries.iter().position(over) {
            drop(self.remove(nth));
        }
        if self.entries.is_empty() {
            self.entries = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::keys::{KeyId, KeyRing};
    use crate::pure::session::credential::{CredentialFields, Presented};

    type Book = Ledger<&'static str, &'static str>;

    fn key(credential: &str, body: &str) -> PostKey {
        let ring = KeyRing::new((KeyId::RANDOM, b"a secret of more than 16 bytes"), []).expect("a ring");
        let names = CredentialFields::new(["x-api-key"].into_iter());
        let mut fields = http::HeaderMap::new();
        fields.insert("x-api-key", credential.parse().expect("a value"));
        let hash = Presented::of(ring.current(), &names, &fields).hash();
        PostKey::new(hash, BodyDigest::of(body.as_bytes()))
    }

    fn new(book: &mut Book, key: PostKey, now: u64) -> Number {
        match book.begin(key, Millis(now)) {
            Begun::New(number) => number,
            other => panic!("not new: {other:?}"),
        }
    }

    fn keep(answer: &'static str, taken: Taken) -> Settled<&'static str> {
        Settled::Keep {
            answer,
            bytes: answer.len(),
            until: taken.until(),
        }
    }

    const HELD: Taken = Taken::Not {
        since: Millis(100),
        held: Millis(60_000),
    };

    #[test]
    fn what_runs_is_one_request_for_one_credential_and_body() {
        let mut book = Book::default();
        let first = new(&mut book, key("a", "1"), 0);
        for (credential, body) in [("b", "1"), ("a", "2"), ("a", ""), ("", "1")] {
            new(&mut book, key(credential, body), 0);
        }
        let Begun::Running(bell) = book.begin(key("a", "1"), Millis(u64::MAX)) else {
            panic!("however long it runs, it runs once");
        };
        *bell = Some("bell");
        assert_eq!(book.settle(first, Settled::Forget), Some("bell"));
        assert_eq!(book.settle(first, Settled::Forget), None);
        new(&mut book, key("a", "1"), 0);
    }

    #[test]
    fn an_answer_is_given_again_for_a_while() {
        for (settled, until, again) in [
            (
                keep("yes", Taken::At(Millis(100))),
                100 + REPEAT_MS_MAX,
                Begun::Answered(&"yes"),
            ),
            (keep("yes", HELD), 60_100, Begun::Answered(&"yes")),
            (
                Settled::Unheld {
                    reason: Reason::Evicted,
                    until: Millis(500),
                },
                500,
                Begun::Unheld(Reason::Evicted),
            ),
        ] {
            let mut book = Book::default();
            let number = new(&mut book, key("a", "1"), 0);
            assert_eq!(book.settle(number, settled), None);
            for now in [0, 100, until - 1] {
                assert_eq!(book.begin(key("a", "1"), Millis(now)), again);
            }
            assert_ne!(new(&mut book, key("a", "1"), until), number);
            // And that one runs.
            assert!(matches!(
                book.begin(key("a", "1"), Millis(until)),
                Begun::Running(_)
            ));
        }
    }

    #[test]
    fn a_stream_speaks_for_itself_until_it_leaves() {
        let (epoch, other) = (Epoch::from_random(1), Epoch::from_random(2));
        for (how, again) in [
            (Left::Had, None),
            (Left::Unheld(Reason::BackendLost), Some(Reason::BackendLost)),
        ] {
            let mut book = Book::default();
            let number = new(&mut book, key("a", "1"), 0);
            assert_eq!(book.streaming(number, epoch), None);
            // The exchange that made it has nothing more to say.
            assert_eq!(book.settle(number, keep("no", HELD)), None);
            book.left(other, Left::Had, Millis(0));
            assert_eq!(
                book.begin(key("a", "1"), Millis(u64::MAX)),
                Begun::Streaming(epoch)
            );
            book.left(epoch, how, Millis(1_000));
            match again {
                None => drop(new(&mut book, key("a", "1"), 1_000)),
                Some(reason) => {
                    let last = Millis(1_000 + REPEAT_MS_MAX - 1);
                    assert_eq!(book.begin(key("a", "1"), last), Begun::Unheld(reason));
                    new(&mut book, key("a", "1"), 1_000 + REPEAT_MS_MAX);
                }
            }
        }
    }

    #[test]
    fn the_oldest_answers_are_forgotten_first_and_nothing_that_runs() {
        let mut book = Book::default();
        let running = key("a", "running");
        new(&mut book, running, 0);
        let keys: Vec<_> = (0..=REPEATS_MAX).map(|n| key("a", &n.to_string())).collect();
        for each in &keys {
            let number = new(&mut book, *each, 0);
            book.settle(number, keep("x", Taken::At(Millis(0))));
        }
        assert!(matches!(book.begin(running, Millis(0)), Begun::Running(_)));
        for each in &keys[1..] {
            assert_eq!(book.begin(*each, Millis(0)), Begun::Answered(&"x"));
        }
        new(&mut book, keys[0], 0);
    }

    #[test]
    fn what_nobody_took_and_what_was_just_answered_outlive_what_was_had() {
        let mut book = Book::default();
        let (long, left) = (key("a", "long"), key("a", "left"));
        let (long_number, left_number) = (new(&mut book, long, 0), new(&mut book, left, 0));
        book.settle(left_number, keep("left", HELD));
        for n in 0..2 * REPEATS_MAX {
            let number = new(&mut book, key("a", &n.to_string()), 0);
            book.settle(number, keep("x", Taken::At(Millis(0))));
        }
        book.settle(long_number, keep("long", Taken::At(Millis(0))));
        assert_eq!(book.begin(long, Millis(0)), Begun::Answered(&"long"));
        assert_eq!(book.begin(left, Millis(0)), Begun::Answered(&"left"));
        // Where nobody took anything the oldest goes all the same.
        for n in 0..2 * REPEATS_MAX {
            let number = new(&mut book, key("b", &n.to_string()), 0);
            book.settle(number, keep("x", HELD));
        }
        let number = new(&mut book, key("c", "1"), 0);
        book.settle(number, keep("y", Taken::At(Millis(0))));
        assert_eq!(book.begin(key("c", "1"), Millis(0)), Begun::Answered(&"y"));
        assert_eq!(book.timed, REPEATS_MAX);
    }

    #[test]
    fn answers_are_bounded_in_bytes() {
        let mut book = Book::default();
        let big = |bytes| Settled::Keep {
            answer: "big",
            bytes,
            until: Millis(10),
        };
        let number = new(&mut book, key("a", "1"), 0);
        book.settle(number, big(REPEAT_BYTES_MAX));
        let number = new(&mut book, key("a", "2"), 0);
        book.settle(number, big(1));
        assert_eq!(book.begin(key("a", "1"), Millis(0)), Begun::Answered(&"big"));
        assert_eq!(
            book.begin(key("a", "2"), Millis(0)),
            Begun::Unheld(Reason::Evicted)
        );
        book.sweep(Millis(10));
        let number = new(&mut book, key("a", "3"), 10);
        book.settle(number, big(REPEAT_BYTES_MAX));
        assert_eq!(book.begin(key("a", "3"), Millis(0)), Begun::Answered(&"big"));
    }

    #[test]
    fn the_sweep_frees_everything_and_is_asked_once() {
        let mut book = Book::default();
        let first = new(&mut book, key("a", "1"), 0);
        let second = new(&mut book, key("a", "2"), 0);
        assert_eq!(book.remind_at(), None);
        book.settle(first, keep("x", HELD));
        book.settle(second, keep("y", Taken::At(Millis(0))));
        assert_eq!(book.remind_at(), Some(Millis(REPEAT_MS_MAX)));
        assert_eq!(book.remind_at(), None, "once is enough");
        book.sweep(Millis(REPEAT_MS_MAX));
        assert_eq!(book.remind_at(), Some(Millis(60_100)));
        book.sweep(Millis(60_100));
        assert_eq!(book.remind_at(), None);
        assert_eq!((book.entries.capacity(), book.bytes, book.timed), (0, 0, 0));
    }
}

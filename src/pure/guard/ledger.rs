//! The idempotency ledger: which events were run, by a key that the client chose.
//! Law: a key is taken before its event runs, so at most once. What a ledger has forgotten it never calls new.
//! Absent on purpose: persistence. A client that must remember across its own restarts implements [`Ledger`].
//! Next: `../continuity.rs`.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;

use sha2::{Digest, Sha256};

use crate::pure::limits::LEDGER_KEYS_MAX;

/// What a ledger knows of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Claim {
    /// No event with it was run. It is taken now.
    New,
    /// An event with it was run, or is running.
    Applied,
    /// It can't be known: not all keys are remembered. It is not taken.
    Unknown,
}

/// Which events were run.
pub trait Ledger {
    /// Takes a key, if no event with it was run. Call: before the event runs.
    fn claim(&mut self, key: &[u8]) -> Claim;

    /// An event with this key runs whatever is known of it: the stream it comes on is proved to go on.
    fn record(&mut self, key: &[u8]);

    /// Gives a key back: its event did not run after all.
    fn release(&mut self, key: &[u8]);
}

/// No ledger: of nothing it is known whether it was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NoLedger;

impl Ledger for NoLedger {
    fn claim(&mut self, _key: &[u8]) -> Claim {
        Claim::Unknown
    }

    fn record(&mut self, _key: &[u8]) {}

    fn release(&mut self, _key: &[u8]) {}
}

/// A ledger in memory, bounded. The oldest key goes first; from then on a key that is not held is [`Claim::Unknown`]
/// and not [`Claim::New`], since it may be one of those that went.
#[derive(Clone, Debug)]
pub struct MemoryLedger {
    keys_max: usize,
    held: HashSet<Fingerprint>,
    order: VecDeque<Fingerprint>,
    memory: Memory,
}

/// SHA-256 of a key, so that keys of any length take the same room.
type Fingerprint = [u8; 32];

/// Whether every key that was ever taken is still held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    Whole,
    Partial,
}

impl MemoryLedger {
    /// One that remembers so many keys.
    pub fn new(keys_max: NonZeroUsize) -> Self {
        Self {
            keys_max: keys_max.get(),
            held: HashSet::new(),
            order: VecDeque::new(),
            memory: Memory::Whole,
        }
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn keep(&mut self, print: Fingerprint) {
        if !self.held.insert(print) {
            return;
        }
        self.order.push_back(print);
        if self.order.len() > self.keys_max {
            if let Some(oldest) = self.order.pop_front() {
                self.held.remove(&oldest);
            }
            self.memory = Memory::Partial;
        }
    }
}

fn fingerprint(key: &[u8]) -> Fingerprint {
    Sha256::digest(key).into()
}

impl Default for MemoryLedger {
    /// [`LEDGER_KEYS_MAX`] keys.
    fn default() -> Self {
        Self::new(NonZeroUsize::new(LEDGER_KEYS_MAX).unwrap_or(NonZeroUsize::MIN))
    }
}

impl Ledger for MemoryLedger {
    fn claim(&mut self, key: &[u8]) -> Claim {
        let print = fingerprint(key);
        match (self.held.contains(&print), self.memory) {
            (true, _) => Claim::Applied,
            (false, Memory::Partial) => Claim::Unknown,
            (false, Memory::Whole) => {
                self.keep(print);
                Claim::New
            }
        }
    }

    fn record(&mut self, key: &[u8]) {
        self.keep(fingerprint(key));
    }

    fn release(&mut self, key: &[u8]) {
        let print = fingerprint(key);
        if self.held.remove(&print) {
            self.order.retain(|other| *other != print);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: usize) -> MemoryLedger {
        MemoryLedger::new(NonZeroUsize::new(keys).unwrap())
    }

    #[test]
    fn a_key_is_new_once() {
        let mut ledger = of(3);
        assert!(ledger.is_empty());
        assert_eq!(ledger.claim(b"a"), Claim::New);
        assert_eq!(ledger.claim(b"a"), Claim::Applied);
        ledger.release(b"a");
        ledger.release(b"never taken");
        assert_eq!(ledger.claim(b"a"), Claim::New);
        assert_eq!(ledger.len(), 1);
    }

    #[test]
    fn what_was_forgotten_is_never_new() {
        let mut ledger = of(2);
        for key in [b"a", b"b", b"c"] {
            assert_eq!(ledger.claim(key), Claim::New);
        }
        assert_eq!(ledger.len(), 2);
        assert_eq!(ledger.claim(b"c"), Claim::Applied);
        for again in 0..2 {
            // An event that is refused did not run: its key is not taken.
            assert_eq!(ledger.claim(b"a"), Claim::Unknown, "{again}");
        }
        ledger.record(b"a");
        ledger.record(b"a");
        assert_eq!(ledger.claim(b"a"), Claim::Applied);
        assert_eq!(ledger.claim(b"b"), Claim::Unknown);
        assert_eq!(ledger.len(), 2);
    }

    #[test]
    fn no_ledger_knows_nothing() {
        assert_eq!(NoLedger.claim(b"a"), Claim::Unknown);
        assert_eq!(NoLedger.claim(b"a"), Claim::Unknown);
    }
}

//! How sessions began, each distinct beginning kept once: clients of one kind begin alike.
//! Law: bounded in bytes; a beginning that finds no room is not kept, and its session ends if its backend loses it.
//! A beginning gives its bytes back with the last session that holds it: to be refused costs no look at the others.
//! Next: `recover.rs`, which plays them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::pure::session::Opening;

/// Bytes of all distinct beginnings: tens of thousands of clients, each unlike all others.
const BYTES_MAX: usize = 64 << 20;

/// Beginnings that are kept before those that nobody holds are first looked for.
const LOOK_FIRST: usize = 64;

/// The beginnings.
#[derive(Default)]
pub(crate) struct Beginnings {
    kept: Mutex<Kept>,
    /// Bytes of those that somebody holds.
    bytes: Arc<AtomicUsize>,
    /// Keyed anew in each process: nobody can find two that are taken for one.
    hasher: RandomState,
}

/// One that is kept, and counted.
pub(crate) struct SharedOpening {
    opening: Opening,
    counted: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Kept {
    by_hash: HashMap<u64, Weak<SharedOpening>>,
    /// Look for those that nobody holds at this many.
    look_at: usize,
}

impl Deref for SharedOpening {
    type Target = Opening;

    fn deref(&self) -> &Opening {
        &self.opening
    }
}

impl Drop for SharedOpening {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.opening.bytes(), Ordering::Relaxed);
    }
}

impl Beginnings {
    /// Keeps a beginning, or answers the like one that is kept already; `None` if there is no room.
    pub(crate) fn keep(&self, opening: Opening) -> Option<Arc<SharedOpening>> {
        let hash = self.hasher.hash_one(&opening);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = kept.by_hash.get(&hash).and_then(Weak::upgrade)
            && standing.opening == opening
        {
            return Some(standing);
        }
        // Others only give back meanwhile: who adds holds the lock.
        if self.bytes.load(Ordering::Relaxed) + opening.bytes() > BYTES_MAX {
            return None;
        }
        self.bytes.fetch_add(opening.bytes(), Ordering::Relaxed);
        let counted = Arc::clone(&self.bytes);
        let beginning = Arc::new(SharedOpening { opening, counted });
        kept.forget_if_many();
        kept.by_hash.insert(hash, Arc::downgrade(&beginning));
        Some(beginning)
    }
}

impl Kept {
    /// Forgets those that nobody holds, when as many have come as were left the last time.
    fn forget_if_many(&mut self) {
        if self.by_hash.len() < self.look_at.max(LOOK_FIRST) {
            return;
        }
        self.by_hash.retain(|_, beginning| beginning.strong_count() > 0);
        self.look_at = self.by_hash.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Beginnings {
        fn bytes(&self) -> usize {
            self.bytes.load(Ordering::Relaxed)
        }
    }

    fn opening(name: &str) -> Opening {
        let answer = br#"{"result":{"capabilities":{}}}"#;
        Opening::of(name.as_bytes(), answer).expect("a beginning")
    }

    #[test]
    fn like_beginnings_are_kept_once_and_forgotten_with_their_sessions() {
        let beginnings = Beginnings::default();
        let one = beginnings.keep(opening("one")).unwrap();
        let again = beginnings.keep(opening("one")).unwrap();
        assert!(Arc::ptr_eq(&one, &again));
        let other = beginnings.keep(opening("other")).unwrap();
        assert!(!Arc::ptr_eq(&one, &other));
        drop((one, again));
        for n in 0..LOOK_FIRST {
            beginnings.keep(opening(&n.to_string())).unwrap();
        }
        let kept = beginnings.kept.lock().unwrap();
        assert!(
            kept.by_hash.len() < LOOK_FIRST,
            "those that nobody holds are gone"
        );
        assert!(
            kept.by_hash
                .values()
                .any(|beginning| beginning.strong_count() > 0)
        );
        drop(other);
    }

    #[test]
    fn what_finds_no_room_is_not_kept_and_leaves_no_trace() {
        let beginnings = Beginnings::default();
        let long = |n: usize| opening(&format!("{n:060000}"));
        let mut held: Vec<_> = (0..).map_while(|n| beginnings.keep(long(n))).collect();
        assert_eq!(held.len(), BYTES_MAX / 60_002);
        let (bytes, known) = (beginnings.bytes(), beginnings.kept.lock().unwrap().by_hash.len());
        assert!((0..100).all(|n| beginnings.keep(long(BYTES_MAX + n)).is_none()));
        assert_eq!(beginnings.bytes(), bytes);
        assert_eq!(beginnings.kept.lock().unwrap().by_hash.len(), known);
        // One that goes makes room for one, at once.
        held.pop();
        held.push(beginnings.keep(long(usize::MAX)).expect("room"));
        assert!(beginnings.keep(long(BYTES_MAX)).is_none());
        drop(held);
        assert_eq!(beginnings.bytes(), 0);
    }
}

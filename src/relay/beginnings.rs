//! How sessions began, each distinct beginning kept once: clients of one kind begin alike.
//! Law: bounded in bytes; a beginning that finds no room is not kept, and its session ends if its backend loses it.
//! What nobody holds any more goes when room is made.
//! Next: `recover.rs`, which plays them.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
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
}

#[derive(Default)]
struct Kept {
    by_hash: HashMap<u64, Weak<Opening>>,
    bytes: usize,
    /// Look for those that nobody holds at this many.
    look_at: usize,
}

impl Beginnings {
    /// Keeps a beginning, or answers the like one that is kept already; `None` if there is no room.
    pub(crate) fn keep(&self, opening: Opening) -> Option<Arc<Opening>> {
        let mut hasher = DefaultHasher::new();
        opening.hash(&mut hasher);
        let hash = hasher.finish();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(standing) = kept.by_hash.get(&hash).and_then(Weak::upgrade)
            && *standing == opening
        {
            return Some(standing);
        }
        if kept.by_hash.len() >= kept.look_at.max(LOOK_FIRST) || kept.bytes + opening.bytes() > BYTES_MAX {
            kept.forget();
        }
        if kept.bytes + opening.bytes() > BYTES_MAX {
            return None;
        }
        kept.bytes += opening.bytes();
        let opening = Arc::new(opening);
        kept.by_hash.insert(hash, Arc::downgrade(&opening));
        Some(opening)
    }
}

impl Kept {
    fn forget(&mut self) {
        self.by_hash.retain(|_, opening| opening.strong_count() > 0);
        self.bytes = self
            .by_hash
            .values()
            .filter_map(Weak::upgrade)
            .map(|opening| opening.bytes())
            .sum();
        self.look_at = self.by_hash.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(kept.by_hash.values().any(|opening| opening.strong_count() > 0));
        drop(other);
    }

    #[test]
    fn what_finds_no_room_is_not_kept() {
        let beginnings = Beginnings::default();
        let long = |n: usize| opening(&format!("{n:060000}"));
        let mut held: Vec<_> = (0..).map_while(|n| beginnings.keep(long(n))).collect();
        assert_eq!(held.len(), BYTES_MAX / 60_002);
        held.pop();
        assert!(beginnings.keep(long(usize::MAX)).is_some());
    }
}

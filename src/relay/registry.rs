//! The sessions that this proxy knows, by the token that clients present; the only door of dashmap.
//! Law: a session is found by its token before any seal is opened. Clones are handed out, never guards: a guard held
//! across an await would dead-lock the map. A session that ended is never made anew from its token.
//! Next: `session.rs`.

use std::borrow::Borrow;
use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use http::HeaderValue;

use crate::pure::epoch::Epoch;
use crate::pure::event_id::Uid;
use crate::relay::session::Session;
use crate::relay::world::World;

/// Ended sessions that are remembered: about 64 bytes each, once the sweep's wheel has let go of them (a minute). The oldest
/// goes first; its token then ends at the backend.
const ENDED_MAX: usize = 262_144;

/// The sessions.
pub(crate) struct Registry<W: World> {
    live: DashMap<Named<W>, (), BuildHasherDefault<TagHasher>>,
    /// Sessions over HTTP+SSE by the stream that carries them: who comes back presents nothing but a cursor.
    carried: DashMap<Epoch, Arc<Session<W>>>,
    counts: Vec<AtomicUsize>,
    ended: Mutex<Ended>,
}

#[derive(Default)]
struct Ended {
    set: HashSet<[u8; 16]>,
    order: VecDeque<[u8; 16]>,
}

impl<W: World> Registry<W> {
    /// An empty registry for this many upstreams.
    pub(crate) fn new(upstreams: usize) -> Self {
        Self {
            live: DashMap::default(),
            carried: DashMap::default(),
            counts: (0..upstreams).map(|_| AtomicUsize::new(0)).collect(),
            ended: Mutex::default(),
        }
    }

    /// The live session with this token.
    pub(crate) fn find(&self, token: &HeaderValue) -> Option<Arc<Session<W>>> {
        self.live.get(token).map(|entry| Arc::clone(&entry.key().0))
    }

    /// The live session over HTTP+SSE that this stream carries. Nothing is proved by knowing it: the cursor must be
    /// verified.
    pub(crate) fn carried_by(&self, epoch: Epoch) -> Option<Arc<Session<W>>> {
        self.carried.get(&epoch).map(|entry| Arc::clone(entry.value()))
    }

    /// Adds a session; if another task was faster with the same token, that one is answered.
    pub(crate) fn add(&self, session: Arc<Session<W>>) -> Arc<Session<W>> {
        let index = session.pool.index;
        let mut added = false;
        let standing = {
            let entry = self.live.entry(Named(session)).or_insert_with(|| added = true);
            Arc::clone(&entry.key().0)
        };
        if added {
            if let Some(epoch) = standing.carrier() {
                self.carried.insert(epoch, Arc::clone(&standing));
            }
            self.counts[index].fetch_add(1, Ordering::Relaxed);
            standing.pool.instruments.sessions_live.shift(1);
        }
        standing
    }

    /// Ends a session: its token opens nothing any more.
    pub(crate) fn end(&self, session: &Session<W>) {
        {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let uid = *session.uid.as_bytes();
            if ended.set.insert(uid) {
                ended.order.push_back(uid);
            }
            if ended.order.len() > ENDED_MAX
                && let Some(oldest) = ended.order.pop_front()
            {
                ended.set.remove(&oldest);
            }
        }
        if let Some(epoch) = session.carrier() {
            self.carried.remove(&epoch);
        }
        if self.live.remove(&session.token).is_some() {
            self.counts[session.pool.index].fetch_sub(1, Ordering::Relaxed);
            session.pool.instruments.sessions_live.shift(-1);
        }
    }

    /// Whether a session ended here.
    pub(crate) fn has_ended(&self, uid: &Uid) -> bool {
        self.ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .set
            .contains(uid.as_bytes())
    }

    /// Live sessions of an upstream.
    pub(crate) fn count(&self, upstream: usize) -> usize {
        self.counts[upstream].load(Ordering::Relaxed)
    }

    /// All live sessions, as they are now. For draining; never on a request's path.
    pub(crate) fn all(&self) -> Vec<Arc<Session<W>>> {
        self.those(|_| true)
    }

    /// Those live sessions for which this holds; a part of the map is locked at a time, for a look at each. For
    /// draining; never on a request's path.
    pub(crate) fn those(&self, wanted: impl Fn(&Session<W>) -> bool) -> Vec<Arc<Session<W>>> {
        let found = self.live.iter().filter(|entry| wanted(&entry.key().0));
        found.map(|entry| Arc::clone(&entry.key().0)).collect()
    }
}

/// A session by its token, which it has itself: a place in the map is one pointer.
struct Named<W: World>(Arc<Session<W>>);

impl<W: World> Borrow<HeaderValue> for Named<W> {
    fn borrow(&self) -> &HeaderValue {
        &self.0.token
    }
}

impl<W: World> PartialEq for Named<W> {
    fn eq(&self, other: &Self) -> bool {
        self.0.token == other.0.token
    }
}

impl<W: World> Eq for Named<W> {}

impl<W: World> Hash for Named<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.token.hash(state);
    }
}

/// Hashes a token by its last sixteen characters: they spell most of the seal's tag, which nobody can choose.
///
/// A hash against crafted keys is not needed: only what this proxy sealed is ever kept in the map, and a made-up
/// token that falls among the kept ones is compared whole and found to be none of them.
#[derive(Default)]
pub(crate) struct TagHasher(u64);

impl Hasher for TagHasher {
    fn write(&mut self, bytes: &[u8]) {
        const ODD: u128 = 0x9e37_79b9_7f4a_7c15;
        let Some((_, tail)) = bytes.split_last_chunk::<16>() else {
            // The length that is hashed with a slice, or a token that is none.
            return;
        };
        let tail = u128::from_le_bytes(*tail);
        let mixed = ((tail as u64 ^ (tail >> 71) as u64) as u128) * ODD;
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    /// How many of so many tokens share the bits by which the map tells its shards and its slots apart.
    fn check(tokens: usize) {
        let hasher = BuildHasherDefault::<TagHasher>::default();
        let hash = |n: usize| {
            // A tag as base64 spells one, made of a number by a hash that has nothing to do with the one tried.
            let bits = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(n);
            let text: String = format!("{bits:016x}").chars().rev().collect();
            hasher.hash_one(HeaderValue::try_from(format!("t1aAAAAAAAA{text}")).expect("a header value"))
        };
        let hashes: Vec<u64> = (0..tokens).map(hash).collect();
        let kinds = |of: fn(u64) -> u64| hashes.iter().map(|hash| of(*hash)).collect::<HashSet<_>>().len();
        assert_eq!(kinds(|hash| hash), tokens, "no two are alike");
        // By chance alone 4,096 balls in 4,096 boxes leave 63 of 100 boxes with a ball.
        assert!(
            kinds(|hash| hash & 0xfff) > tokens / 2,
            "the low bits tell slots apart"
        );
        assert!(
            kinds(|hash| hash >> 52) > tokens / 2,
            "the high bits tell shards apart"
        );
    }

    #[test]
    fn tokens_spread() {
        check(4_096);
    }
}

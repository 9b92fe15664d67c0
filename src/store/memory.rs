//! The store that keeps logs in this process's memory, and the process's account of their bytes.
//! Law: what is pushed is kept at once, for as long as the process lives and the log is open; ends outlive data.
//! Over the process budget a log pays with its own oldest events before it grows; if a reader holds them it is `Full`.
//! The lock is taken when a log opens, closes or is peeked at, and once per batch for its own facts; never per event.
//! Next: `contract.rs`, the suite that every store passes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::pure::epoch::{Epoch, EpochEnd, Reason, Seq, Tombstone};
use crate::pure::log::{Entry, Full, Millis, Position, Slices, Span, Struck, View, Window};
use crate::store::{Claim, Closing, Found, LogLoss, Pressure, Promise, Store, StreamKey, StreamLog};

/// Streams whose ends are remembered, for `peek`. About 200 bytes each; sessions keep their own tombstones.
const ENDED_STREAMS_MAX: usize = 16_384;

/// Ends remembered of one stream. A stream that starts over more often than this forgets the oldest.
const ENDS_MAX: usize = 8;

/// The process's account of the bytes that logs hold. Kept in steps of a piece of storage, not of an event.
#[derive(Debug)]
pub struct Ledger {
    held: AtomicUsize,
    budget: AtomicUsize,
}

impl Ledger {
    const fn new(budget: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            budget: AtomicUsize::new(budget),
        }
    }

    /// Bytes held by all logs.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that all logs together may hold.
    pub fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// So many from now on. Where that is less than they hold, the oldest go as under any pressure.
    pub fn set_budget(&self, budget: usize) {
        self.budget.store(budget, Ordering::Relaxed);
    }

    /// How the account stands. A log may pass the budget by the piece that it just began.
    pub fn pressure(&self) -> Pressure {
        let (held, budget) = (self.held(), self.budget());
        match held.checked_sub(budget) {
            None | Some(0) => Pressure::Within { free: budget - held },
            Some(by) => Pressure::Over { by },
        }
    }

    fn book(&self, before: usize, after: usize) {
        // Wrapping: the difference, whatever its sign.
        self.held.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// Logs in this process's memory.
#[derive(Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ledger: Ledger,
    shelf: Mutex<Shelf>,
}

impl Shared {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Nothing is left half done while the lock is held, so a panic elsewhere spoils nothing.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// An empty store whose logs may hold `budget` bytes together.
    pub fn new(budget: usize) -> Self {
        let shelf = Mutex::new(Shelf::default());
        Self {
            shared: Arc::new(Shared {
                ledger: Ledger::new(budget),
                shelf,
            }),
        }
    }

    /// The account of bytes.
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }
}

impl Store for Memory {
    type Log = MemoryLog;

    fn promise(&self) -> Promise {
        Promise::Memory
    }

    fn held(&self) -> usize {
        self.ledger().held()
    }

    fn pressure(&self) -> Pressure {
        self.ledger().pressure()
    }

    async fn open(&self, key: &StreamKey, claim: Claim) -> Result<MemoryLog, LogLoss> {
        let window = Window::new(claim.epoch, claim.bounds);
        let facts = Arc::new(Facts {
            key: key.clone(),
            epoch: claim.epoch,
            fenced: AtomicBool::new(false),
            kept: Mutex::new(Kept {
                span: window.span(),
                owner: None,
            }),
        });
        self.shared.shelf().claim(&facts)?;
        Ok(MemoryLog {
            window,
            facts,
            shared: Arc::clone(&self.shared),
            booked: 0,
        })
    }

    async fn peek(&self, key: &StreamKey) -> Result<Found, LogLoss> {
        Ok(self.shared.shelf().found(key))
    }
}

/// What others may know of an open log.
#[derive(Debug)]
struct Facts {
    key: StreamKey,
    epoch: Epoch,
    fenced: AtomicBool,
    kept: Mutex<Kept>,
}

/// What is kept, and who waits for more of it (or for the news that it is fenced).
#[derive(Debug)]
struct Kept {
    span: Span,
    owner: Option<Waker>,
}

impl Facts {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fences the log and answers what it kept.
    fn fence(&self) -> Span {
        self.fenced.store(true, Ordering::Release);
        let mut kept = self.kept();
        if let Some(owner) = kept.owner.take() {
            owner.wake();
        }
        kept.span
    }
}

/// Which streams have an open log, and how others ended.
#[derive(Debug, Default)]
struct Shelf {
    streams: HashMap<StreamKey, Slot>,
    forget: VecDeque<StreamKey>,
}

/// One stream. Its place in the order of forgetting is taken with its first end.
#[derive(Debug, Default)]
struct Slot {
    open: Option<Arc<Facts>>,
    ends: Option<Box<Ends>>,
}

/// How a stream's epochs ended, oldest first.
#[derive(Debug, Default)]
struct Ends {
    tombstones: VecDeque<Tombstone>,
}

impl Slot {
    fn ends(&self) -> impl Iterator<Item = &Tombstone> {
        self.ends.iter().flat_map(|ends| &ends.tombstones)
    }
}

impl Shelf {
    fn claim(&mut self, facts: &Arc<Facts>) -> Result<(), LogLoss> {
        let slot = self.streams.entry(facts.key.clone()).or_default();
        let current = slot.open.as_ref().is_some_and(|open| open.epoch == facts.epoch);
        if current || slot.ends().any(|end| end.epoch == facts.epoch) {
            // An epoch is never used again: this claim is the older one.
            return Err(LogLoss::Fenced);
        }
        if let Some(older) = slot.open.replace(Arc::clone(facts)) {
            let last = older.fence().last;
            let end = EpochEnd::Lost(Reason::EpochChanged);
            self.bury(
                &facts.key,
                Tombstone {
                    epoch: older.epoch,
                    last,
                    end,
                },
            );
        }
        Ok(())
    }

    /// Takes a log off, if it still stands, and remembers its end.
    fn end(&mut self, facts: &Facts, tombstone: Tombstone) {
        if let Some(slot) = self.streams.get_mut(&facts.key)
            && slot.open.as_ref().is_some_and(|open| open.epoch == facts.epoch)
        {
            slot.open = None;
        }
        self.bury(&facts.key, tombstone);
    }

    fn bury(&mut self, key: &StreamKey, tombstone: Tombstone) {
        let slot = self.streams.entry(key.clone()).or_default();
        if slot.ends.is_none() {
            self.forget.push_back(key.clone());
        }
        let ends = &mut slot.ends.get_or_insert_default().tombstones;
        match ends.iter_mut().find(|end| end.epoch == tombstone.epoch) {
            Some(end) => *end = tombstone,
            None => {
                if ends.len() == ENDS_MAX {
                    ends.pop_front();
                }
                ends.push_back(tombstone);
            }
        }
        if self.forget.len() > ENDED_STREAMS_MAX
            && let Some(oldest) = self.forget.pop_front()
            && let Some(slot) = self.streams.get_mut(&oldest)
        {
            slot.ends = None;
            if slot.open.is_none() {
                self.streams.remove(&oldest);
            }
        }
    }

    fn found(&self, key: &StreamKey) -> Found {
        match self.streams.get(key) {
            None => Found::Nothing,
            Some(Slot {
                open: Some(facts), ..
            }) => Found::Alive {
                epoch: facts.epoch,
                span: facts.kept().span,
            },
            Some(slot @ Slot { open: None, .. }) => Found::Ended(slot.ends().copied().collect()),
        }
    }
}

/// The owner's side of a log in memory. Dropped without a close, its end is `owner_lost`.
#[derive(Debug)]
pub struct MemoryLog {
    window: Window,
    facts: Arc<Facts>,
    shared: Arc<Shared>,
    booked: usize,
}

impl MemoryLog {
    /// Tells the account what the window holds now.
    fn book(&mut self) {
        let bytes = self.window.bytes();
        if bytes != self.booked {
            self.shared.ledger.book(self.booked, bytes);
            self.booked = bytes;
        }
    }

    /// Pays for the process's budget with the oldest events of this log.
    fn relieve(&mut self, entry: Entry<'_>, now: Millis, by: usize) -> Result<(), Full> {
        let gone = self.window.shed(now, Some(by));
        self.book();
        if gone < by && self.window.bytes() > 0 && self.window.growth(entry) > 0 {
            return Err(Full);
        }
        Ok(())
    }

    fn standing(&self) -> Result<(), LogLoss> {
        if self.facts.fenced.load(Ordering::Acquire) {
            Err(LogLoss::Fenced)
        } else {
            Ok(())
        }
    }

    fn end(&self, tombstone: Tombstone) {
        self.shared.shelf().end(&self.facts, tombstone);
    }
}

impl StreamLog for MemoryLog {
    fn push(&mut self, entry: Entry<'_>, now: Millis) -> Result<Seq, Full> {
        match self.shared.ledger.pressure() {
            Pressure::Within { .. } => {}
            Pressure::Over { by } => self.relieve(entry, now, by)?,
        }
        let pushed = self.window.emit(entry, now);
        self.book();
        pushed
    }

    fn poll_kept(&mut self, cx: &mut Context<'_>, past: Seq) -> Poll<Result<Seq, LogLoss>> {
        // The waker is left before the fence is looked at, so that no fence falls between the two.
        let span = self.window.span();
        let mut kept = self.facts.kept();
        kept.span = span;
        if span.last > past {
            drop(kept);
            return Poll::Ready(self.standing().map(|()| span.last));
        }
        match &mut kept.owner {
            Some(owner) => owner.clone_from(cx.waker()),
            none @ None => *none = Some(cx.waker().clone()),
        }
        drop(kept);
        match self.standing() {
            Ok(()) => Poll::Pending,
            Err(loss) => Poll::Ready(Err(loss)),
        }
    }

    fn view<'a>(&'a self, from: Position, upto: Seq, out: &mut Slices<'a>) -> View {
        self.window.view(from, upto, out)
    }

    fn advance(&self, from: Position, sent: usize) -> Position {
        self.window.advance(from, sent)
    }

    fn strike(&mut self, seq: Seq, words: &[&[u8]]) -> Struck {
        self.window.strike(seq, words)
    }

    fn hold(&mut self, reader: Option<Seq>) {
        self.window.hold(reader);
    }

    fn span(&self) -> Span {
        self.window.span()
    }

    fn shed(&mut self, now: Millis, want: Option<usize>) -> usize {
        let gone = self.window.shed(now, want);
        self.book();
        self.facts.kept().span = self.window.span();
        gone
    }

    fn poll_close(&mut self, _: &mut Context<'_>, how: Closing) -> Poll<Result<(), LogLoss>> {
        match how {
            Closing::End => {
                if let Err(loss) = self.standing() {
                    return Poll::Ready(Err(loss));
                }
                self.window.compact();
                let last = self.window.span().last;
                self.end(Tombstone {
                    epoch: self.facts.epoch,
                    last,
                    end: EpochEnd::Finished,
                });
            }
            Closing::Bury(tombstone) => {
                self.window.bury();
                self.end(tombstone);
            }
        }
        self.book();
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryLog {
    fn drop(&mut self) {
        self.shared.ledger.book(self.booked, 0);
        let mut shelf = self.shared.shelf();
        let stands = shelf
            .streams
            .get(&self.facts.key)
            .and_then(|slot| slot.open.as_ref())
            .is_some_and(|open| Arc::ptr_eq(open, &self.facts));
        if stands {
            let last = self.window.span().last;
            let end = EpochEnd::Lost(Reason::OwnerLost);
            shelf.end(
                &self.facts,
                Tombstone {
                    epoch: self.facts.epoch,
                    last,
                    end,
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::log::{Bounds, EndMark};
    use crate::store::contract;

    const BOUNDS: Bounds = Bounds {
        events: 10_000,
        bytes: 1 << 20,
        age: Millis(60_000),
    };

    fn key(n: usize) -> StreamKey {
        StreamKey {
            session: [1; 16],
            stream: format!("pi{n}").into(),
        }
    }

    fn claim(bits: u64) -> Claim {
        Claim {
            epoch: Epoch::from_random(bits),
            bounds: BOUNDS,
        }
    }

    fn entry(data: &[u8]) -> Entry<'_> {
        Entry {
            prefix: b"p.",
            end: EndMark::Open,
            event: b"",
            data: crate::pure::sse::Text::of(data),
        }
    }

    #[tokio::test]
    async fn it_keeps_the_contract() {
        contract::check(|| Memory::new(64 << 20)).await;
    }

    #[tokio::test]
    async fn the_account_follows_every_log() {
        let memory = Memory::new(1 << 20);
        assert_eq!(memory.ledger().pressure(), Pressure::Within { free: 1 << 20 });
        let mut one = memory.open(&key(1), claim(1)).await.unwrap();
        let mut two = memory.open(&key(2), claim(2)).await.unwrap();
        assert_eq!(
            memory.ledger().held(),
            0,
            "an open log costs nothing before its first event"
        );
        for n in 0..500 {
            one.push(entry(&[b'x'; 200]), Millis(n)).unwrap();
            two.push(entry(&[b'y'; 100]), Millis(n)).unwrap();
            assert_eq!(memory.ledger().held(), one.span().bytes + two.span().bytes);
        }
        let gone = one.shed(Millis(500), Some(1));
        assert!(gone > 0);
        assert_eq!(memory.ledger().held(), one.span().bytes + two.span().bytes);
        drop(one);
        assert_eq!(memory.ledger().held(), two.span().bytes);
        drop(two);
        assert_eq!(memory.ledger().held(), 0);
    }

    #[tokio::test]
    async fn over_the_budget_a_log_pays_with_its_own_oldest_or_is_full() {
        let budget = 64 << 10;
        let memory = Memory::new(budget);
        let mut free = memory.open(&key(1), claim(1)).await.unwrap();
        for n in 0..2_000 {
            free.push(entry(&[b'x'; 200]), Millis(n)).unwrap();
            assert!(
                memory.ledger().held() <= budget + (17 << 10),
                "{}",
                memory.ledger().held()
            );
        }
        assert_eq!(free.span().taken_by, crate::pure::log::TakenBy::Budget);
        let mut held = memory.open(&key(2), claim(2)).await.unwrap();
        held.hold(Some(Seq::START));
        let taken = (0..2_000)
            .take_while(|n| held.push(entry(&[b'x'; 200]), Millis(*n)).is_ok())
            .count();
        assert!((1..2_000).contains(&taken), "a held log took {taken}");
        assert_eq!(held.span().first, Seq::new(1), "nothing of it was lost");
        held.hold(Some(held.span().last));
        assert!(
            held.push(entry(&[b'x'; 200]), Millis(9)).is_ok(),
            "what was had makes room"
        );
    }

    #[tokio::test]
    async fn ends_are_remembered_within_a_bound() {
        let memory = Memory::new(1 << 20);
        for n in 0..ENDED_STREAMS_MAX + 10 {
            drop(memory.open(&key(n), claim(n as u64)).await.unwrap());
        }
        assert_eq!(memory.peek(&key(9)).await, Ok(Found::Nothing));
        assert!(matches!(memory.peek(&key(10)).await, Ok(Found::Ended(_))));
        let shelf = memory.shared.shelf();
        assert_eq!(
            (shelf.streams.len(), shelf.forget.len()),
            (ENDED_STREAMS_MAX, ENDED_STREAMS_MAX)
        );
    }

    #[tokio::test]
    async fn one_stream_remembers_its_newest_ends() {
        let memory = Memory::new(1 << 20);
        for n in 0..2 * ENDS_MAX as u64 {
            drop(memory.open(&key(1), claim(n)).await.unwrap());
        }
        let Ok(Found::Ended(ends)) = memory.peek(&key(1)).await else {
            panic!("it ended")
        };
        let epochs: Vec<u64> = ends.iter().map(|end| end.epoch.bits()).collect();
        assert_eq!(epochs, (ENDS_MAX as u64..2 * ENDS_MAX as u64).collect::<Vec<_>>());
    }
}

//! A store that takes its time, and fails: logs in memory that are slow to open or can't be, whose promise reaches an event
//! only a while after it was pushed, or never, or is broken.
//! Law: it says so whenever it does not keep what it promised. The oracle hears of each promise, and of what is shown
//! before it.
//! Absent on purpose: the log's own logic; that is the one of production.
//! Next: `place.rs`.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use throughline::pure::epoch::Seq;
use throughline::pure::log::{Entry, Full, Millis, Position, Slices, Span, Struck, View};
use throughline::store::memory::{Memory, MemoryLog};
use throughline::store::{Claim, Closing, Found, LogLoss, Pressure, Promise, Store, StreamKey, StreamLog};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::chance::Chance;
use crate::client::Calm;
use crate::clock::pass;
use crate::oracle::{Oracle, Process};
use crate::plant::Plant;
use crate::weather::StoreWays;

/// The store.
pub(crate) struct Shelf {
    memory: Memory,
    chance: Mutex<Chance>,
    ways: StoreWays,
    plant: Plant,
    owner: Owner,
    /// When logs were last opened, and how many at that moment.
    opened: Mutex<(Instant, u32)>,
}

/// More logs than this no world opens at one moment.
const AT_ONCE_MAX: u32 = 1_000;

/// Whose store it is.
#[derive(Clone)]
pub(crate) struct Owner {
    pub(crate) process: Process,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) calm: Arc<Calm>,
}

impl Owner {
    /// Whether something fails now, that fails so often in a thousand times.
    fn is_hit(&self, chance: &mut Chance, of_thousand: u64, what: &'static str) -> bool {
        let is_hit = of_thousand > 0 && chance.below(1_000) < of_thousand && !self.calm.is_here();
        if is_hit {
            self.oracle.saw(format!("fault: {what} at {:?}", self.process));
            self.oracle.counted(what);
        }
        is_hit
    }
}

impl Shelf {
    pub(crate) fn new(
        budget: usize,
        chance: Chance,
        (ways, plant): (StoreWays, Plant),
        owner: Owner,
    ) -> Self {
        Self {
            memory: Memory::new(budget),
            chance: Mutex::new(chance),
            ways,
            plant,
            owner,
            opened: Mutex::new((Instant::now(), 0)),
        }
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        self.chance.lock().expect("no panic while it is held")
    }

    /// Whoever opens logs without an end, and lets no time pass, gets no more of them.
    async fn count_opening(&self) {
        let count = {
            let mut opened = self.opened.lock().expect("no panic while it is held");
            let now = Instant::now();
            let before = if opened.0 == now { opened.1 } else { 0 };
            *opened = (now, before + 1);
            before
        };
        if count == AT_ONCE_MAX {
            self.owner
                .oracle
                .violated(format!("{AT_ONCE_MAX} logs were opened at one moment"));
            std::future::pending().await
        }
    }
}

impl Store for Shelf {
    type Log = SlowLog;

    fn promise(&self) -> Promise {
        self.memory.promise()
    }

    fn held(&self) -> usize {
        self.memory.held()
    }

    fn pressure(&self) -> Pressure {
        self.memory.pressure()
    }

    async fn open(&self, key: &StreamKey, claim: Claim) -> Result<SlowLog, LogLoss> {
        if self.ways.delay_ms > 0 {
            let time = self.chance().millis(0, self.ways.delay_ms);
            pass(time).await;
        }
        let chance = self.chance().fork(&key.stream);
        self.count_opening().await;
        let mut fails = self.chance().fork(&format!("fails {:?}", claim.epoch));
        if self.owner.is_hit(&mut fails, self.ways.opens, "logs not opened") {
            return Err(failed());
        }
        let inner = self.memory.open(key, claim).await?;
        let epoch = claim.epoch.spelled();
        self.owner.oracle.began(self.owner.process, &epoch);
        Ok(SlowLog {
            inner,
            epoch,
            promised: Seq::START,
            waiting: VecDeque::new(),
            lost: None,
            alarm: None,
            chance,
            fails,
            ways: self.ways,
            plant: self.plant,
            owner: self.owner.clone(),
        })
    }

    async fn peek(&self, key: &StreamKey) -> Result<Found, LogLoss> {
        self.memory.peek(key).await
    }
}

fn failed() -> LogLoss {
    LogLoss::Failed("the weather".to_owned())
}

/// What becomes of an event that was pushed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Kept,
    /// With it the log fails.
    Fails,
    /// It comes to nothing, and some of what was promised is gone too.
    Forgets,
}

/// One log.
pub(crate) struct SlowLog {
    inner: MemoryLog,
    epoch: String,
    promised: Seq,
    waiting: VecDeque<(Seq, Instant, Fate)>,
    /// Why it can't go on.
    lost: Option<LogLoss>,
    alarm: Option<Pin<Box<Sleep>>>,
    chance: Chance,
    fails: Chance,
    ways: StoreWays,
    plant: Plant,
    owner: Owner,
}

impl SlowLog {
    fn fate(&mut self) -> Fate {
        let (ways, chance) = (self.ways, &mut self.fails);
        if self.owner.is_hit(chance, ways.appends, "appends failed") {
            Fate::Fails
        } else if self.owner.is_hit(chance, ways.forgets, "promises broken") {
            Fate::Forgets
        } else {
            Fate::Kept
        }
    }

    /// What became of an event is known by now.
    fn settle(&mut self, seq: Seq, fate: Fate) {
        match (fate, self.plant) {
            (Fate::Fails | Fate::Forgets, Plant::HushesStore) => self.promised = seq,
            (Fate::Kept, _) => {
                self.promised = seq;
                self.owner.oracle.kept(&self.epoch, seq.get());
            }
            (Fate::Fails, _) => self.lost = Some(failed()),
            (Fate::Forgets, _) => {
                let kept = self.promised.get().saturating_sub(self.fails.below(4));
                self.lost = Some(LogLoss::Truncated { kept: Seq::new(kept) });
            }
        }
    }
}

impl StreamLog for SlowLog {
    fn push(&mut self, entry: Entry<'_>, now: Millis) -> Result<Seq, Full> {
        let seq = self.inner.push(entry, now)?;
        let due = Instant::now() + self.chance.millis(0, self.ways.delay_ms);
        // One after the other, as a disk does it.
        let due = self.waiting.back().map_or(due, |(_, last, _)| due.max(*last));
        let fate = self.fate();
        self.waiting.push_back((seq, due, fate));
        Ok(seq)
    }

    fn poll_kept(&mut self, cx: &mut Context<'_>, past: Seq) -> Poll<Result<Seq, LogLoss>> {
        let last = self.inner.span().last;
        if let Poll::Ready(Err(loss)) = self.inner.poll_kept(cx, last.max(past)) {
            return Poll::Ready(Err(loss));
        }
        loop {
            let now = Instant::now();
            while let Some((seq, _, fate)) = self.waiting.front().copied().filter(|(_, due, _)| *due <= now)
                && self.lost.is_none()
            {
                self.settle(seq, fate);
                self.waiting.pop_front();
            }
            if self.plant == Plant::ShowsUnkept && last > past {
                return Poll::Ready(Ok(last));
            }
            if self.promised > past {
                return Poll::Ready(Ok(self.promised));
            }
            if let Some(lost) = &self.lost {
                return Poll::Ready(Err(lost.clone()));
            }
            let Some((_, due, _)) = self.waiting.front() else {
                return Poll::Pending;
            };
            let mut alarm = Box::pin(sleep_until(*due));
            if alarm.as_mut().poll(cx).is_pending() {
                self.alarm = Some(alarm);
                return Poll::Pending;
            }
        }
    }

    fn view<'a>(&'a self, from: Position, upto: Seq, out: &mut Slices<'a>) -> View {
        self.inner.view(from, upto, out)
    }

    fn advance(&self, from: Position, sent: usize) -> Position {
        self.inner.advance(from, sent)
    }

    fn strike(&mut self, seq: Seq, words: &[&[u8]]) -> Struck {
        self.inner.strike(seq, words)
    }

    fn hold(&mut self, reader: Option<Seq>) {
        // Whoever reads it holds what it has had whole, or where the held events begin: what is gone is promised no more.
        let begins = self.inner.span().first;
        if let Some(at) = reader.filter(|at| *at > self.promised && *at >= begins) {
            let (epoch, promised) = (&self.epoch, self.promised);
            self.owner
                .oracle
                .violated(format!("{epoch}.{at} was written, and {promised} is kept"));
        }
        self.inner.hold(reader);
    }

    fn span(&self) -> Span {
        self.inner.span()
    }

    fn shed(&mut self, now: Millis, want: Option<usize>) -> usize {
        self.inner.shed(now, want)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, how: Closing) -> Poll<Result<(), LogLoss>> {
        let closed = self.inner.poll_close(cx, how);
        if self
            .owner
            .is_hit(&mut self.fails, self.ways.closes, "ends not written")
        {
            return Poll::Ready(Err(failed()));
        }
        closed
    }
}

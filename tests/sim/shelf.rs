//! A store that takes its time: logs in memory that are slow to open, and whose promise reaches an event only a
//! while after it was pushed.
//! Law: it keeps what it promises. The oracle hears of each promise, and of what is shown before it.
//! Absent on purpose: the log's own logic; that is the one of production.
//! Next: `place.rs`.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use throughline::pure::epoch::Seq;
use throughline::pure::log::{Entry, Full, Millis, Position, Slices, Span, Struck, View};
use throughline::store::memory::{Memory, MemoryLog};
use throughline::store::{Claim, Closing, Found, LogLoss, Pressure, Promise, Store, StreamKey, StreamLog};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::chance::Chance;
use crate::clock::pass;
use crate::oracle::{Oracle, Process};
use crate::plant::Plant;

/// The store.
pub(crate) struct Shelf {
    memory: Memory,
    chance: Mutex<Chance>,
    /// Longest time until an event is kept, in milliseconds.
    delay_ms: u64,
    plant: Plant,
    process: Process,
    oracle: Arc<Oracle>,
}

impl Shelf {
    pub(crate) fn new(
        budget: usize,
        chance: Chance,
        (delay_ms, plant): (u64, Plant),
        (process, oracle): (Process, Arc<Oracle>),
    ) -> Self {
        Self {
            memory: Memory::new(budget),
            chance: Mutex::new(chance),
            delay_ms,
            plant,
            process,
            oracle,
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
        if self.delay_ms > 0 {
            let time = self
                .chance
                .lock()
                .expect("no panic while it is held")
                .millis(0, self.delay_ms);
            pass(time).await;
        }
        let inner = self.memory.open(key, claim).await?;
        let chance = self
            .chance
            .lock()
            .expect("no panic while it is held")
            .fork(&key.stream);
        self.oracle.began(self.process, &claim.epoch.spelled());
        Ok(SlowLog {
            inner,
            epoch: claim.epoch.spelled(),
            promised: Seq::START,
            waiting: VecDeque::new(),
            alarm: None,
            chance,
            delay_ms: self.delay_ms,
            plant: self.plant,
            oracle: Arc::clone(&self.oracle),
        })
    }

    async fn peek(&self, key: &StreamKey) -> Result<Found, LogLoss> {
        self.memory.peek(key).await
    }
}

/// One log.
pub(crate) struct SlowLog {
    inner: MemoryLog,
    epoch: String,
    promised: Seq,
    waiting: VecDeque<(Seq, Instant)>,
    alarm: Option<Pin<Box<Sleep>>>,
    chance: Chance,
    delay_ms: u64,
    plant: Plant,
    oracle: Arc<Oracle>,
}

impl StreamLog for SlowLog {
    fn push(&mut self, entry: Entry<'_>, now: Millis) -> Result<Seq, Full> {
        let seq = self.inner.push(entry, now)?;
        let due = Instant::now() + self.chance.millis(0, self.delay_ms);
        // One after the other, as a disk does it.
        let due = self.waiting.back().map_or(due, |(_, last)| due.max(*last));
        self.waiting.push_back((seq, due));
        Ok(seq)
    }

    fn poll_kept(&mut self, cx: &mut Context<'_>, past: Seq) -> Poll<Result<Seq, LogLoss>> {
        let last = self.inner.span().last;
        if let Poll::Ready(Err(loss)) = self.inner.poll_kept(cx, last.max(past)) {
            return Poll::Ready(Err(loss));
        }
        loop {
            let now = Instant::now();
            while let Some((seq, due)) = self.waiting.front() {
                if *due > now {
                    break;
                }
                self.promised = *seq;
                self.oracle.kept(&self.epoch, seq.get());
                self.waiting.pop_front();
            }
            if self.plant == Plant::ShowsUnkept && last > past {
                return Poll::Ready(Ok(last));
            }
            if self.promised > past {
                return Poll::Ready(Ok(self.promised));
            }
            let Some((_, due)) = self.waiting.front() else {
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
        // Whoever reads it holds what it has had whole.
        if let Some(at) = reader.filter(|at| *at > self.promised) {
            let (epoch, promised) = (&self.epoch, self.promised);
            self.oracle
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
        self.inner.poll_close(cx, how)
    }
}

//! The end of an epoch on a standalone stream, and the next one's beginning.
//! Law: an epoch ends with a tombstone that says why; the new one begins with what the client must be told.
//! A client that is attached has first what it was still owed of the old epoch, then the reset, on the same connection.
//! Opening a log may take time (a store may be remote): meanwhile nothing is read and nobody is answered.
//! Next: `pure/stream/reset.rs`, which says what a reset tells.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::pure::epoch::{Epoch, EpochEnd, Reason, Seq, Tombstone};
use crate::pure::event_id::IdPrefix;
use crate::pure::log::{Millis, Position, Slices, View};
use crate::pure::resume::Again;
use crate::pure::rpc::RequestId;
use crate::pure::sse::{Block, Decoder};
use crate::pure::stream::Agent;
use crate::pure::stream::attach::Presented;
use crate::relay::asks;
use crate::relay::headers::Verdict;
use crate::relay::mailbox::Reply;
use crate::relay::stream_task::{LogOf, StreamTask};
use crate::relay::world::World;
use crate::store::{Claim, Closing, LogLoss, Store, StreamLog};

/// A new epoch's log on its way.
pub(crate) struct Turning<W: World> {
    reason: Reason,
    epoch: Epoch,
    log: Pin<Box<dyn Future<Output = Result<LogOf<W>, LogLoss>> + Send>>,
    again: Vec<Told>,
    waiting: Option<(Presented, Waiting)>,
}

/// A client that asked and is answered when the new epoch stands.
pub(crate) struct Waiting {
    /// What kind of client.
    pub(crate) agent: Agent,
    /// Where the answer goes.
    pub(crate) reply: oneshot::Sender<Reply>,
}

impl Waiting {
    /// Answers it. If it went away meanwhile, nobody is told.
    pub(crate) fn answer(self, reply: Reply) {
        let _ = self.reply.send(reply);
    }
}

/// An event to be told: its type and its data.
pub(crate) struct Told {
    /// SSE event type; empty means `message`.
    pub(crate) event: Box<[u8]>,
    /// The data.
    pub(crate) data: Box<[u8]>,
}

impl<W: World> StreamTask<W> {
    /// Ends the epoch for this reason.
    pub(crate) fn turn(&mut self, reason: Reason, again: Again, waiting: Option<(Presented, Waiting)>) {
        let again = match again {
            Again::Nothing => Vec::new(),
            Again::Events { after, upto } => told_after(&self.log, after, upto),
        };
        if let Some(turning) = &mut self.turning {
            // Two clients met the same turn: the newer one gets the stream, and what it did not have; the older one is held.
            // Asking again, both would take it from each other without an end.
            if let Some(waiting) = waiting {
                turning.again = again;
                if let Some((_, older)) = turning.waiting.replace(waiting) {
                    older.answer(Reply::Private(turning.reason));
                }
            }
            return;
        }
        let epoch = Epoch::from_random(self.relay.chance());
        let (relay, key) = (self.relay.clone(), self.session.stream_key(&self.name, epoch));
        let claim = Claim {
            epoch,
            bounds: self.session.bounds(),
        };
        let log = Box::pin(async move { relay.world.store().open(&key, claim).await });
        self.turning = Some(Box::new(Turning {
            reason,
            epoch,
            log,
            again,
            waiting,
        }));
    }

    /// Brings the new epoch in, once its log is there.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>, now: Millis) -> Poll<()> {
        let Some(turning) = &mut self.turning else {
            return Poll::Ready(());
        };
        let opened = ready!(turning.log.as_mut().poll(cx));
        let Some(turning) = self.turning.take() else {
            return Poll::Ready(());
        };
        match opened {
            Ok(log) => self.begin_epoch(log, *turning, cx, now),
            Err(loss) => {
                warn!(session = %self.session.label(), stream = %self.name, ?loss, "no new log could be opened");
                self.leave_unkept(turning.reason, now);
            }
        }
        Poll::Ready(())
    }

    fn begin_epoch(&mut self, log: LogOf<W>, turning: Turning<W>, cx: &mut Context<'_>, now: Millis) {
        let Turning {
            reason,
            epoch,
            again,
            waiting,
            ..
        } = turning;
        let last = self.log.span().last;
        let tombstone = Tombstone {
            epoch: self.epoch,
            last,
            end: EpochEnd::Lost(reason),
        };
        info!(session = %self.session.label(), stream = %self.name, %reason, "epoch ended");
        match &waiting {
            None => {
                if let Some(reader) = &mut self.reader {
                    reader.carry_over(&self.log, self.kept);
                }
                // Whoever was promised a position of the old epoch and is not here yet may not take it into this one:
                // its connection ends when it comes, and its next cursor is told the reset.
                self.awaited = None;
            }
            Some((presented, _)) => self.make_way(*presented, now),
        }
        self.remember_so_far();
        let mut old = std::mem::replace(&mut self.log, log);
        if waiting.is_some() || self.reader.is_some() {
            // What a client is about to be told must not push itself out of a small window.
            self.log.hold(Some(Seq::START));
        }
        let _ = old.poll_close(cx, Closing::Bury(tombstone));
        self.session.turn(tombstone, epoch, &self.mailbox);
        self.epoch = epoch;
        self.prefix = IdPrefix::new(self.relay.keys.current(), &self.session.uid, epoch, &self.name);
        (self.kept, self.acked, self.written) = (Seq::START, Seq::START, Seq::START);
        self.counts.begin_epoch();
        self.backend.trail.begin_epoch();
        self.gap = self.gap_until_it_stands();
        // What waited for room in the old log was read after everything in it, and was never shown.
        let mut again = again;
        again.extend(self.spill.take());
        if reason == Reason::BackendLost {
            // What the lost backend asked nobody waits for.
            again.retain(|told| asks::request_of(told).is_none());
        }
        let asked_again: Vec<RequestId> = again.iter().filter_map(asks::request_of).collect();
        let pending = self.answer_for_client(&asked_again);
        let reread = self.reread(reason, waiting.as_ref());
        let words = self
            .session
            .resync((reason, epoch), (self.agent, &pending), reread);
        self.tell(words, now);
        for told in again {
            let request = asks::request_of(&told);
            self.tell(vec![told], now);
            if let Some(id) = request {
                self.client_is_asked_again(&id);
            }
        }
        match waiting {
            Some((presented, waiting)) => {
                self.promise(Seq::START, presented, Verdict::Reset { reason, epoch }, waiting);
            }
            None => self.relay.reset_in_band(&self.session, &self.name, reason),
        }
    }
}

/// The events after `after` up to `upto`, as they are held; nothing if they are gone.
pub(crate) fn told_after<L: StreamLog>(log: &L, after: Seq, upto: Seq) -> Vec<Told> {
    let mut told = Vec::new();
    let mut decoder = Decoder::new(usize::MAX);
    let mut at = Position { after, skip: 0 };
    loop {
        let mut parts = Slices::new();
        match log.view(at, upto, &mut parts) {
            View::Here => {}
            View::Nothing | View::Fetch | View::Gone { .. } => return told,
        }
        for part in parts.as_slice() {
            let fed = decoder.feed(part, &mut |block: Block<'_>| {
                told.push(Told {
                    event: block.event.into(),
                    data: block.data().unwrap_or_default().into(),
                });
            });
            assert!(fed.is_ok(), "a frame of our own is without bound");
        }
        at = log.advance(at, parts.bytes());
    }
}

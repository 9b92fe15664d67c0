//! A backend's event stream on its way to a client without a session: byte for byte, frame by frame.
//! Law: what is ours (a keep-alive, an error, the end of a subscription) stands between whole frames, never inside one,
//! and each request gets one outcome: nothing is said after its answer. One byte order mark is left out, since it would
//! stand behind our first comment, and hide the first line from its reader.
//! It is the client's to end: dropped, it closes the backend's connection, which is the cancel (wire contract, section 11).
//! Polled, in this order, all of them safe to drop: what was read ahead, the backend, what sends listeners away, the keep-alive's timer.
//! Absent on purpose: a log, ids, replay. What a client did not take is lost with its connection, as its revision has it.
//! Next: `passing.rs`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::{Instant, Sleep, sleep};
use tracing::{debug, info};

use crate::net::Net;
use crate::pure::epoch::Reason;
use crate::pure::refusal::{self, Failure};
use crate::pure::rpc::{EventKind, Message, RequestId, classify_event};
use crate::pure::sse::{BOM, Block, Decoder, Whole, encode};
use crate::pure::stateless::{TaskKey, listening_ended};
use crate::relay::Relay;
use crate::relay::pool::Pool;
use crate::relay::world::World;
use crate::routing::{Duty, Replica};
use crate::upstream::{Body, BodyError};

/// What the client of a stream waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// The answers to these requests, at least one.
    Answers(Vec<RequestId>),
    /// Notifications, until this `subscriptions/listen` is answered.
    Changes(RequestId),
    /// Nothing that has an answer.
    Nothing,
}

/// Why a stream is ended here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    /// The proxy or the replica drains, and a listener has nothing to finish.
    SentAway,
    /// The time for what ran is over.
    Cut(Reason),
}

/// How far what the client was given reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Given {
    /// Nothing, not even a comment.
    Nothing,
    /// To the end of a frame.
    Whole,
    /// Into a frame that is too long to be held back.
    Part,
}

/// How far what passed of the backend reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Passed {
    /// Nothing: a byte order mark may come.
    Nothing,
    /// Past the start.
    Start,
}

/// A stream on its way.
pub(crate) struct Events<W: World> {
    relay: Arc<Relay<W>>,
    pool: Arc<Pool<W>>,
    replica: Arc<Replica>,
    /// What was read of the body before it came here.
    ahead: Option<Bytes>,
    /// Until the end is said.
    body: Option<Body<<W::Net as Net>::Io>>,
    waits: Waits,
    whole: Whole,
    given: Given,
    passed: Passed,
    /// A frame whose end has not come.
    held: BytesMut,
    /// Reads what passes; nothing more after an event longer than any that is read.
    reads: Option<Decoder>,
    keepalive: Duration,
    timer: Pin<Box<Sleep>>,
    gave_at: Instant,
    leaving: Pin<Box<dyn Future<Output = Leaving> + Send>>,
    /// Whether a drain waits for it.
    counts: Counts,
}

/// Whether a drain waits for a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counts {
    Yes,
    No,
}

impl<W: World> Events<W> {
    /// This body, which answers what its client waits for.
    pub(crate) fn new(
        (relay, pool): (&Arc<Relay<W>>, &Arc<Pool<W>>),
        replica: Arc<Replica>,
        body: Body<<W::Net as Net>::Io>,
        waits: Waits,
    ) -> Self {
        let counts = match waits {
            Waits::Answers(_) => Counts::Yes,
            Waits::Changes(_) | Waits::Nothing => Counts::No,
        };
        if counts == Counts::Yes {
            relay.running.began();
        }
        let stream = &pool.config.stream;
        let leaving = leaving(Arc::clone(relay), Arc::clone(&replica), counts);
        Self {
            relay: Arc::clone(relay),
            pool: Arc::clone(pool),
            replica,
            ahead: None,
            body: Some(body),
            waits,
            whole: Whole::new(),
            given: Given::Nothing,
            passed: Passed::Nothing,
            held: BytesMut::new(),
            reads: Some(Decoder::new(stream.event_bytes_max)),
            keepalive: stream.keepalive,
            timer: Box::pin(sleep(stream.keepalive)),
            gave_at: Instant::now(),
            leaving: Box::pin(leaving),
            counts,
        }
    }

    /// The same, where this was read of it already.
    pub(crate) fn behind(mut self, ahead: Option<Bytes>) -> Self {
        self.ahead = ahead;
        self
    }

    /// What the client gets next; `None` is the orderly end.
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(body) = &mut self.body else {
                return Poll::Ready(None);
            };
            let polled = match self.ahead.take() {
                Some(ahead) => Poll::Ready(Some(Ok(ahead))),
                None => body.poll_bytes(cx),
            };
            match polled {
                Poll::Ready(Some(Ok(piece))) => match self.take(piece) {
                    Some(whole) => return Poll::Ready(Some(Ok(whole))),
                    None => continue,
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(self.broke(&error)),
                Poll::Ready(None) => return Poll::Ready(self.ended()),
                Poll::Pending => {}
            }
            if let Poll::Ready(why) = self.leaving.as_mut().poll(cx) {
                return Poll::Ready(self.leave(why));
            }
            return self.poll_keepalive(cx).map(|comment| Some(Ok(comment)));
        }
    }

    /// Takes what the backend said; what of it may pass.
    fn take(&mut self, piece: Bytes) -> Option<Bytes> {
        let end = self.whole.feed(&piece);
        let mut passes = match end {
            Some(end) => {
                let rest = piece.slice(end..);
                let passes = self.joined(piece.slice(..end));
                self.held.extend_from_slice(&rest);
                self.given = Given::Whole;
                passes
            }
            None if self.given == Given::Part => piece,
            None => {
                self.held.extend_from_slice(&piece);
                if self.held.len() <= self.pool.config.stream.event_bytes_max {
                    return None;
                }
                self.given = Given::Part;
                self.held.split().freeze()
            }
        };
        self.gave_at = Instant::now();
        self.read(&passes);
        // No line has ended within a mark: it comes whole.
        if self.passed == Passed::Nothing && passes.starts_with(&BOM) {
            passes.advance(BOM.len());
        }
        self.passed = Passed::Start;
        Some(passes)
    }

    /// What was held, and this behind it.
    fn joined(&mut self, more: Bytes) -> Bytes {
        if self.held.is_empty() {
            return more;
        }
        self.held.extend_from_slice(&more);
        self.held.split().freeze()
    }

    /// Reads what passes: which requests it answers, and which tasks it says were begun.
    fn read(&mut self, passes: &[u8]) {
        let Some(decoder) = &mut self.reads else { return };
        let (waits, pool, replica) = (&mut self.waits, &self.pool, &self.replica);
        let now = self.relay.now();
        let fed = decoder.feed(passes, &mut |block: Block<'_>| {
            let Some(data) = block.data() else { return };
            match classify_event(data) {
                EventKind::Response(id) => {
                    waits.answered(&id);
                    if let Some(task) = TaskKey::begun_by(data) {
                        pool.tasks().begun(task, replica.key(), now);
                    }
                }
                EventKind::Batch(messages) => {
                    for message in messages {
                        if let Message::Response { id: Some(id), .. } = message {
                            waits.answered(&id);
                        }
                    }
                }
                EventKind::Notification | EventKind::Request { .. } | EventKind::Other => {}
            }
        });
        if fed.is_err() {
            self.reads = None;
        }
    }

    /// The backend ended the stream in an orderly way. What it did not finish is no frame, and passes as it is: it is
    /// the backend's word, and a frame that was not ended is dropped by its reader.
    fn ended(&mut self) -> Option<io::Result<Bytes>> {
        self.body = None;
        let rest = self.held.split().freeze();
        (!rest.is_empty()).then_some(Ok(rest))
    }

    /// The backend's connection broke.
    fn broke(&mut self, error: &BodyError) -> Option<io::Result<Bytes>> {
        let (name, replica) = (&self.pool.config.name, self.replica.authority());
        info!(upstream = %name, %replica, %error, "a stream without a session broke at its backend");
        let words = self.last_words(Reason::BackendLost);
        match (words, &self.waits) {
            (Some(words), _) => self.say_last(words),
            // It was answered: nothing is missing.
            (None, Waits::Answers(open)) if open.is_empty() && self.given == Given::Whole => {
                self.say_last(Vec::new())
            }
            (None, Waits::Answers(_) | Waits::Changes(_) | Waits::Nothing) => {
                self.body = None;
                Some(Err(io::Error::other(error.clone())))
            }
        }
    }

    /// It is ended here.
    fn leave(&mut self, why: Leaving) -> Option<io::Result<Bytes>> {
        debug!(upstream = %self.pool.config.name, replica = %self.replica.authority(), ?why, "a stream without a session is ended");
        let words = match (why, &self.waits) {
            (Leaving::SentAway, Waits::Changes(id)) => message(&listening_ended(id)),
            (Leaving::SentAway, Waits::Answers(_) | Waits::Nothing) => Vec::new(),
            (Leaving::Cut(reason), _) => self.last_words(reason).unwrap_or_default(),
        };
        if self.given == Given::Part {
            self.body = None;
            return Some(Err(io::Error::other("cut within a frame")));
        }
        self.say_last(words)
    }

    /// An error for each request that is still open; `None`: there is none, or it can't be told where frames end or what
    /// was answered.
    fn last_words(&self, reason: Reason) -> Option<Vec<u8>> {
        let open = match (&self.waits, self.given) {
            (_, Given::Part) => return None,
            (Waits::Answers(open), Given::Nothing | Given::Whole) => open.as_slice(),
            (Waits::Changes(id), Given::Nothing | Given::Whole) => std::slice::from_ref(id),
            (Waits::Nothing, Given::Nothing | Given::Whole) => &[],
        };
        if open.is_empty() || self.reads.is_none() {
            return None;
        }
        let errors = open.iter().map(|id| refusal::error(id, Failure::Lost { reason }));
        Some(errors.flat_map(|error| message(&error)).collect())
    }

    /// Says this, and ends; half a frame that is held is no frame.
    fn say_last(&mut self, words: Vec<u8>) -> Option<io::Result<Bytes>> {
        self.body = None;
        self.held.clear();
        (!words.is_empty()).then_some(Ok(words.into()))
    }

    /// A comment, when nothing was given for so long, or nothing at all: intermediaries wait for the first byte.
    fn poll_keepalive(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        match self.given {
            Given::Nothing => return Poll::Ready(self.comment()),
            Given::Whole | Given::Part => {}
        }
        loop {
            if self.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let due = self.gave_at + self.keepalive;
            let now = Instant::now();
            match self.given {
                Given::Whole if due <= now => return Poll::Ready(self.comment()),
                Given::Whole => self.timer.as_mut().reset(due),
                Given::Nothing | Given::Part => self.timer.as_mut().reset(now + self.keepalive),
            }
        }
    }

    fn comment(&mut self) -> Bytes {
        self.given = Given::Whole;
        self.gave_at = Instant::now();
        self.timer.as_mut().reset(self.gave_at + self.keepalive);
        Bytes::from_static(encode::COMMENT)
    }
}

impl<W: World> Drop for Events<W> {
    fn drop(&mut self) {
        if self.counts == Counts::Yes {
            self.relay.running.settled();
        }
    }
}

impl Waits {
    fn answered(&mut self, id: &RequestId) {
        match self {
            Self::Answers(open) => open.retain(|one| one != id),
            Self::Changes(listen) if listen == id => *self = Self::Nothing,
            Self::Changes(_) | Self::Nothing => {}
        }
    }
}

fn message(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::message(&mut out, data);
    out
}

/// Waits until a stream has to end: a listener with the beginning of a drain, what runs with its end.
async fn leaving<W: World>(relay: Arc<Relay<W>>, replica: Arc<Replica>, counts: Counts) -> Leaving {
    loop {
        let mut rung = pin!(relay.bell.heard());
        rung.as_mut().enable();
        match (counts, replica.duty()) {
            (Counts::No, Duty::Draining | Duty::Drained) => return Leaving::SentAway,
            (Counts::No, Duty::Serving) if relay.running.is_draining() => return Leaving::SentAway,
            (Counts::Yes, Duty::Drained) => return Leaving::Cut(Reason::BackendLost),
            (Counts::Yes, Duty::Serving | Duty::Draining) if relay.running.is_over() => {
                return Leaving::Cut(Reason::OwnerLost);
            }
            (Counts::No, Duty::Serving) | (Counts::Yes, Duty::Serving | Duty::Draining) => {}
        }
        poll_fn(|cx| rung.as_mut().poll(cx)).await;
    }
}

//! Answers that need no stream: what a dead cursor is told, and connections that are held on comments.
//! Law: what is told is derived from the cursor alone. It holds no log and no place among a session's streams.
//! It ends with its session and with the proxy: a bell wakes it, and it looks.
//! Arms of its select, all cancel-safe: the client's going, the bell, the keep-alive's tick.
//! Next: `get.rs`.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::select;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::pure::epoch::{Epoch, Reason, Seq};
use crate::pure::event_id::{Asked, Conn, EventId, IdPrefix, StreamName};
use crate::pure::refusal::{self, Failure};
use crate::pure::rpc::RequestId;
use crate::pure::session::Phase;
use crate::pure::sse::encode;
use crate::pure::stream::Agent;
use crate::relay::Relay;
use crate::relay::answer::Attach;
use crate::relay::aside;
use crate::relay::ask;
use crate::relay::reader::Parting;
use crate::relay::session::Session;
use crate::relay::sink::{ClientSink, Ending};
use crate::relay::world::World;

/// An answer that is ready, for a connection that is on its way.
pub(crate) struct Canned<W: World> {
    relay: Arc<Relay<W>>,
    session: Arc<Session<W>>,
    agent: Agent,
    frames: Vec<u8>,
    then: Then,
}

/// Wakes the connections that are held on comments, and those whose backend says what they are: a session ended, or the
/// proxy or a replica drains.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Notify,
}

impl Bell {
    /// Something ended; whom it concerns sees for itself.
    pub(crate) fn ring(&self) {
        self.rung.notify_waiters();
    }

    /// Its next ringing.
    pub(crate) fn heard(&self) -> Notified<'_> {
        self.rung.notified()
    }
}

/// What follows the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    /// The answer is complete.
    End,
    /// Comments, until the client leaves.
    Comments,
}

impl<W: World> Canned<W> {
    /// What the cursor of a POST stream is told that can't be honoured: one error for each request that it names, the
    /// last with the end mark; for these that are known, where its stream knew them. Requests whose ids the cursor can't
    /// name, and which nobody knows, are held on comments instead.
    pub(crate) fn unmet(
        relay: &Arc<Relay<W>>,
        session: &Arc<Session<W>>,
        (cursor, known): (&EventId, &[RequestId]),
        reason: Reason,
        agent: Agent,
    ) -> Self {
        let mut frames = Vec::new();
        let own = cursor.prefix();
        let mut prime = Vec::new();
        own.prime(cursor.seq, Conn::from_random(relay.chance()), &mut prime);
        ask::greet(
            &mut frames,
            &prime,
            session.greeting(agent),
            relay.base_retry_ms(session),
        );
        let requests = match &cursor.stream {
            StreamName::Get | StreamName::HttpSse => Vec::new(),
            StreamName::Post(_) if !known.is_empty() => known.to_vec(),
            StreamName::Post(rid) => match rid.asked() {
                Asked::Hashed => Vec::new(),
                Asked::One(request) => vec![request],
                Asked::Batch(requests) => requests,
            },
        };
        let failure = Failure::Reset {
            reason,
            epoch: cursor.epoch,
        };
        aside::tell(
            (relay, session),
            (&cursor.stream, &own),
            (&requests, cursor.seq),
            |request| refusal::error(request, failure),
            &mut frames,
        );
        let then = if requests.is_empty() {
            Then::Comments
        } else {
            Then::End
        };
        Self::new((relay, session), agent, frames, then)
    }

    /// A stream of its own for a cursor that proves nothing, and its epoch, which nobody will ever know again.
    pub(crate) fn private(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, agent: Agent) -> (Self, Epoch) {
        Self::beside(relay, session, agent, Then::Comments)
    }

    /// The same for a client that can't be answered now: it ends at once, with a word when to come back.
    pub(crate) fn sent_away(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, agent: Agent) -> (Self, Epoch) {
        let (mut canned, epoch) = Self::beside(relay, session, agent, Then::End);
        if agent.bears_retry() {
            encode::retry(&mut canned.frames, relay.jittered_retry_ms(session));
        }
        (canned, epoch)
    }

    fn beside(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, agent: Agent, then: Then) -> (Self, Epoch) {
        let epoch = Epoch::from_random(relay.chance());
        let prefix = IdPrefix::new(relay.keys.current(), &session.uid, epoch, &StreamName::Get);
        let mut id = Vec::new();
        prefix.prime(Seq::START, Conn::from_random(relay.chance()), &mut id);
        let mut frames = Vec::new();
        ask::greet(
            &mut frames,
            &id,
            session.greeting(agent),
            relay.base_retry_ms(session),
        );
        (Self::new((relay, session), agent, frames, then), epoch)
    }

    fn new(whose: (&Arc<Relay<W>>, &Arc<Session<W>>), agent: Agent, frames: Vec<u8>, then: Then) -> Self {
        Self {
            relay: Arc::clone(whose.0),
            session: Arc::clone(whose.1),
            agent,
            frames,
            then,
        }
    }
}

impl<W: World> Attach for Canned<W> {
    fn attach(self: Box<Self>, sink: Box<dyn ClientSink>) {
        let Self {
            relay,
            session,
            agent,
            frames,
            then,
        } = *self;
        let parting = Parting::saying(sink, frames);
        match then {
            Then::End => drop(tokio::spawn(end(session, parting))),
            Then::Comments => hold(&relay, &session, agent, parting),
        }
    }
}

async fn end<W: World>(session: Arc<Session<W>>, mut parting: Parting) {
    let bound = session.pool.config.stream.stall_max;
    if timeout(bound, parting.end(Ending::Complete)).await.is_err() {
        parting.abort();
    }
}

/// Holds a connection on comments until its client leaves, its session ends or the proxy drains.
pub(crate) fn hold<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    agent: Agent,
    parting: Parting,
) {
    tokio::spawn(comments(Arc::clone(relay), Arc::clone(session), agent, parting));
}

async fn comments<W: World>(
    relay: Arc<Relay<W>>,
    session: Arc<Session<W>>,
    agent: Agent,
    mut parting: Parting,
) {
    let busy = session.held(&relay);
    let stream = &session.pool.config.stream;
    let mut tick = interval_at(tokio::time::Instant::now() + stream.keepalive, stream.keepalive);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        match timeout(stream.stall_max, parting.send()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        let mut rung = std::pin::pin!(relay.bell.heard());
        rung.as_mut().enable();
        if let Phase::Ended(_) = session.phase() {
            break;
        }
        if relay.running.is_draining() {
            if agent.bears_retry() {
                encode::retry(&mut parting.rest, relay.jittered_retry_ms(&session));
            }
            break;
        }
        select! {
            biased;
            _ = poll_fn(|cx| parting.sink.poll_gone(cx)) => return,
            () = rung => {}
            _ = tick.tick() => parting.and_say(encode::COMMENT),
        }
    }
    drop(busy);
    if timeout(stream.stall_max, parting.end(Ending::Close))
        .await
        .is_err()
    {
        parting.abort();
    }
}

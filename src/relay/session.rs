//! One session: what the client knows by its token, and everything that belongs to it here.
//! Law: the record is a leaf: its lock is taken for a few lines and never across an await or another lock.
//! A session known only from its token (`Origin::Revived`) can't claim that anything never happened.
//! Next: `exchange.rs` for its requests, `registry.rs`; the record's own rules are in `pure/session/`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use http::HeaderValue;

use crate::config::resolved::EarlyCursor;
use crate::pure::epoch::{Epoch, Reason, Tombstone};
use crate::pure::event_id::{Rid, StreamName, Uid};
use crate::pure::isolation::Isolation;
use crate::pure::log::{Bounds, Millis};
use crate::pure::revision::Revision;
use crate::pure::rpc::RequestId;
use crate::pure::session::{
    Ended, Expiry, Full, Known, Left, Lifetimes, Moment, Origin, Phase, Presented, Record, Shown, Sticky,
    Written,
};
use crate::pure::session_token::{Sealed, Transport};
use crate::pure::stream::attach::Patience;
use crate::pure::stream::reset::{self, Listener, Reread};
use crate::pure::stream::{Agent, Early, Greeting};
use crate::relay::Relay;
use crate::relay::beginnings::SharedOpening;
use crate::relay::gate::Recorded;
use crate::relay::home::{Homes, Signs};
use crate::relay::mailbox::{Command, EndCause, Mailbox};
use crate::relay::pool::Pool;
use crate::relay::said::Note;
use crate::relay::seldom::Seldom;
use crate::relay::standing::Standing;
use crate::relay::sweep_task::{Due, Sleeper};
use crate::relay::turn::Told;
use crate::relay::withdrawals::Withdrawals;
use crate::relay::world::World;
use crate::routing::Seat;
use crate::store::StreamKey;
use crate::telemetry::names::SessionTag;

/// One session.
pub(crate) struct Session<W: World> {
    pub(crate) relay: Weak<Relay<W>>,
    pub(crate) pool: Arc<Pool<W>>,
    pub(crate) uid: Uid,
    pub(crate) token: HeaderValue,
    pub(crate) revision: Revision,
    /// How its messages travel.
    pub(crate) transport: Transport,
    /// Where it lives.
    pub(crate) homes: Homes,
    /// Where it stands with its backend.
    pub(crate) standing: Standing,
    /// How it began; `None` = not known, or too long to be kept.
    pub(crate) opening: Option<Arc<SharedOpening>>,
    /// How the ids of its requests are made its own, where they are.
    pub(crate) isolation: Option<Isolation>,
    record: Mutex<Recorded>,
    /// Whether the record says that it lives.
    live: AtomicBool,
    pub(super) seldom: OnceLock<Box<Seldom>>,
    /// What its client withdraws.
    pub(crate) withdrawals: Withdrawals,
}

/// What a session is made of.
pub(crate) struct Fresh {
    /// What its token says.
    pub(crate) facts: Sealed,
    /// Its token.
    pub(crate) token: HeaderValue,
    /// By what it is known there.
    pub(crate) signs: Signs,
    /// How it began, if that is kept.
    pub(crate) opening: Option<Arc<SharedOpening>>,
    /// Over HTTP+SSE, the one stream that carries it, if that is held here.
    pub(crate) carrier: Option<Epoch>,
    /// Its place on a replica.
    pub(crate) seat: Seat,
    /// Messages that came before its standalone stream.
    pub(crate) early: Vec<Box<[u8]>>,
    /// The credential that its backend accepted with `initialize`, if that was here.
    pub(crate) opener: Option<Presented>,
}

impl<W: World> Session<W> {
    /// A session with this memory of its past.
    pub(crate) fn new(relay: &Arc<Relay<W>>, pool: &Arc<Pool<W>>, fresh: Fresh, origin: Origin) -> Arc<Self> {
        let Fresh {
            facts,
            signs,
            opening,
            token,
            carrier,
            seat,
            early,
            opener,
        } = fresh;
        let now = relay.now();
        let isolation = pool.isolates(facts.revision).then(|| Isolation::of(&facts.uid));
        let session = Arc::new(Self {
            relay: Arc::downgrade(relay),
            pool: Arc::clone(pool),
            uid: facts.uid,
            token,
            revision: facts.revision,
            transport: facts.transport,
            homes: Homes::new(seat, signs),
            standing: Standing::default(),
            opening,
            isolation,
            record: Mutex::new(Record::new(origin, facts.flags, facts.issued, now)),
            live: AtomicBool::new(true),
            seldom: Seldom::begun(early, carrier).map_or_else(OnceLock::new, OnceLock::from),
            withdrawals: Withdrawals::default(),
        });
        if let Some(presented) = opener {
            let unix = relay.world.unix_seconds();
            let rule = pool.config.session.resume_principal;
            let shown = Shown::Other(Box::new(presented));
            let mut record = session.record();
            record
                .beside
                .credentials
                .accept(shown, rule, Moment { now, unix });
        }
        session.look_again(relay, now);
        session
    }

    /// Its record. Held for a few lines, never across an await or another lock.
    pub(crate) fn record(&self) -> MutexGuard<'_, Recorded> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its name in logs: never the token.
    pub(crate) fn label(&self) -> SessionTag {
        SessionTag::of(self.uid.as_bytes())
    }

    /// The key of one of its streams' logs. There is one standalone stream, whose newest life stands for it; but every
    /// POST has a log of its own, whatever id it bears: a client may use an id again while its first use still runs.
    pub(crate) fn stream_key(&self, name: &StreamName, epoch: Epoch) -> StreamKey {
        let stream = match name {
            StreamName::Get | StreamName::HttpSse => name.spell(),
            StreamName::Post(_) => format!("{}.{}", name.spell(), epoch.spelled()).into(),
        };
        StreamKey {
            session: *self.uid.as_bytes(),
            stream,
        }
    }

    /// How much each of its logs may hold.
    pub(crate) fn bounds(&self) -> Bounds {
        let stream = &self.pool.config.stream;
        Bounds {
            events: stream.replay_events_max,
            bytes: stream.replay_bytes_max,
            age: Millis(stream.replay_age_max.as_millis() as u64),
        }
    }

    /// How long its streams wait for what.
    pub(crate) fn patience(&self) -> Patience {
        let stream = &self.pool.config.stream;
        let millis = |time: std::time::Duration| Millis(time.as_millis() as u64);
        Patience {
            keepalive: millis(stream.keepalive),
            stall: millis(stream.stall_max),
            detached: millis(stream.detached_max),
        }
    }

    /// How a connection of this client is greeted.
    pub(crate) fn greeting(&self, agent: Agent) -> Greeting {
        let early = match self.pool.config.stream.early_cursor {
            EarlyCursor::On => Early::Wanted,
            EarlyCursor::Off => Early::Off,
        };
        Greeting::of(self.revision.primes(), early, agent)
    }

    /// A client attached to one of its streams.
    pub(crate) fn attached(&self, now: Millis) {
        self.record().engaged(now);
    }

    /// A client left one of its streams.
    pub(crate) fn detached(&self, now: Millis) {
        self.record().released(now);
    }

    /// Where it stands.
    pub(crate) fn phase(&self) -> Phase {
        self.record().phase()
    }

    /// Whether it lives: neither ends nor has ended. Without its record's lock.
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire)
    }

    /// Changes its phase; whoever asks for it without the lock hears of it before the lock is free.
    fn change_phase<T>(&self, change: impl FnOnce(&mut Recorded) -> Result<T, Sticky>) -> Result<T, Sticky> {
        let mut record = self.record();
        let changed = change(&mut record)?;
        self.live.store(record.phase() == Phase::Live, Ordering::Release);
        Ok(changed)
    }

    /// Begins its end, if nobody else did.
    ///
    /// # Errors
    /// It ends or has ended already.
    pub(crate) fn begin_end(&self) -> Result<(), Sticky> {
        self.change_phase(Record::begin_end)?;
        self.withdrawals.stir();
        Ok(())
    }

    /// The backend refused to end it.
    pub(crate) fn restore(&self, now: Millis) {
        // If it ended meanwhile in another way, it stays so.
        let _ = self.change_phase(|record| record.restore(now));
        self.standing.ring();
    }

    /// Ends it: nothing of it is found any more. Its streams are told why.
    ///
    /// # Errors
    /// It had ended before.
    pub(crate) fn end(&self, why: Ended, cause: EndCause) -> Result<(), Sticky> {
        let streams = self.change_phase(|record| record.end(why))?;
        self.standing.ring();
        self.withdrawals.stir();
        for mailbox in streams {
            mailbox.post(Command::End(cause));
        }
        Ok(())
    }

    /// The tasks of its streams.
    pub(crate) fn mailboxes(&self) -> Vec<Arc<Mailbox>> {
        self.record().streams.handles().cloned().collect()
    }

    /// What is known of an epoch.
    pub(crate) fn find(&self, epoch: Epoch) -> Known<Arc<Mailbox>> {
        self.record().streams.find(epoch)
    }

    /// The standalone stream's task, if there is one.
    pub(crate) fn standalone_mailbox(&self) -> Option<Arc<Mailbox>> {
        self.record().streams.standalone()
    }

    /// Whether anything was ever written on the standalone stream.
    pub(crate) fn standalone_written(&self) -> Written {
        self.record().streams.written()
    }

    /// Something was written on the standalone stream.
    pub(crate) fn standalone_was_written(&self) {
        self.record().streams.note_written();
    }

    /// Registers the stream of a POST. If the bound is met, the oldest finished one is let go.
    ///
    /// # Errors
    /// [`Full`]: every stream of the session still runs.
    pub(crate) fn add_post(&self, epoch: Epoch, mailbox: &Arc<Mailbox>) -> Result<(), Full> {
        let max = self.pool.config.session.streams_max;
        let let_go = self.record().streams.open_post(epoch, Arc::clone(mailbox), max)?;
        if let Some(oldest) = let_go {
            oldest.post(Command::Shed);
        }
        Ok(())
    }

    /// Registers the standalone stream, unless one stands already: that one is answered.
    pub(crate) fn add_standalone(&self, epoch: Epoch, mailbox: &Arc<Mailbox>) -> Arc<Mailbox> {
        let mut record = self.record();
        match record.streams.standalone() {
            Some(standing) => standing,
            None => {
                record.streams.open_standalone(epoch, Arc::clone(mailbox));
                Arc::clone(mailbox)
            }
        }
    }

    /// The standalone stream goes on in another epoch.
    pub(crate) fn turn(&self, ended: Tombstone, epoch: Epoch, mailbox: &Arc<Mailbox>) {
        let mut record = self.record();
        record.streams.bury(ended);
        record.streams.open_standalone(epoch, Arc::clone(mailbox));
    }

    /// A stream's last event is in its log.
    pub(crate) fn finished(&self, epoch: Epoch) {
        self.record().streams.finished(epoch);
    }

    /// A stream is no more; its tombstone stays.
    pub(crate) fn bury(&self, tombstone: Tombstone) {
        self.record().streams.bury(tombstone);
    }

    /// The same, for a standalone stream on which the backend may have said something: what nobody had of it, and what it
    /// says until another one stands, is missing there.
    pub(crate) fn bury_standalone(&self, tombstone: Tombstone) {
        let mut record = self.record();
        record.streams.bury(tombstone);
        record.streams.note_missing();
    }

    /// The same, for the answer to a POST: its repeats are told how it left.
    pub(crate) fn bury_answer(&self, tombstone: Tombstone, left: Left, now: Millis) {
        let mut record = self.record();
        record.streams.bury(tombstone);
        record.beside.repeats.left(tombstone.epoch, left, now);
    }

    /// Tells the call, or the stream that answers this request, that its client cancelled it. Streams that answer
    /// batches know for themselves whether they do.
    pub(crate) fn cancelled(&self, id: &RequestId) {
        self.withdrawals.withdraw(id);
        match self.transport {
            Transport::Streamable => {}
            Transport::HttpSse => return self.carried_is_cancelled(id),
        }
        let name = StreamName::Post(Rid::from_request_id(id));
        let mut answering = Vec::new();
        let mut newest = None;
        for stream in self.record().streams.handles() {
            match &stream.name {
                StreamName::Post(_) if stream.name == name => newest = Some(Arc::clone(stream)),
                StreamName::Post(rid) if rid.request_id().is_none() => answering.push(Arc::clone(stream)),
                StreamName::Post(_) | StreamName::Get | StreamName::HttpSse => {}
            }
        }
        answering.extend(newest);
        for mailbox in answering {
            mailbox.post(Command::Cancelled(id.clone()));
        }
    }

    /// Notes what matters later of what the client asks for.
    pub(crate) fn note(&self, note: Note) {
        match note {
            Note::Nothing => {}
            Note::Called | Note::CalledAmong => self.standing.note_call(),
            Note::Level(level) => self.record().set_level(level),
            Note::Subscribed(uri) => {
                // Beyond the bound the record says that some are not remembered.
                let _ = self.record().subscriptions_mut().add(&uri);
            }
            Note::Unsubscribed(uri) => {
                self.record().subscriptions_mut().remove(&uri);
            }
        }
    }

    /// What a client is told when continuity is lost on its standalone stream.
    pub(crate) fn resync(
        &self,
        (reason, epoch): (Reason, Epoch),
        asker: (Agent, &[RequestId]),
        reread: Reread,
    ) -> Vec<Told> {
        let record = self.record();
        let listener = Listener {
            declared: record.declared(),
            level: record.level(),
            subscribed: record.subscriptions(),
            pending: asker.1,
            agent: asker.0,
            reread,
        };
        let told = reset::Told { reason, epoch };
        reset::of_standalone(listener)
            .map(|say| Told {
                event: say.event().into(),
                data: say.data(told).into(),
            })
            .collect()
    }

    /// Whether its time is over.
    pub(crate) fn expiry(&self, relay: &Relay<W>, now: Millis) -> Expiry {
        let config = &self.pool.config.session;
        let lifetimes = Lifetimes {
            idle: Millis(config.idle.as_millis() as u64),
            max_seconds: config.max.as_secs(),
        };
        self.record().expiry(lifetimes, now, relay.world.unix_seconds())
    }

    fn look_again(self: &Arc<Self>, relay: &Arc<Relay<W>>, now: Millis) {
        match self.expiry(relay, now) {
            Expiry::NotBefore(at) => {
                let at = at.min(self.keep_alive(relay, now));
                let itself = Arc::clone(self) as Arc<dyn Due>;
                relay
                    .sweep
                    .remind(at, now, Sleeper::Session(Arc::downgrade(&itself)));
            }
            Expiry::Now(why) => relay.expire(self, why),
        }
    }
}

impl<W: World> Due for Session<W> {
    fn due(self: Arc<Self>, now: Millis) {
        let Some(relay) = self.relay.upgrade() else { return };
        if let Phase::Ended(_) = self.phase() {
            return;
        }
        self.look_again(&relay, now);
    }

    fn lapsed(self: Arc<Self>, now: Millis) {
        let Some(relay) = self.relay.upgrade() else { return };
        let again = {
            let repeats = &mut self.record().beside.repeats;
            repeats.sweep(now);
            repeats.remind_at()
        };
        self.remind_of_repeats(&relay, again, now);
    }
}

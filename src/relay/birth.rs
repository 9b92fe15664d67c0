//! A stream's beginning: its log is opened, its task made, registered with its session, and let run.
//! Law: a stream that runs is registered; a session has one standalone stream, whoever was faster.
//! Next: `stream_task.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::pure::epoch::{Epoch, Seq};
use crate::pure::event_id::{IdPrefix, StreamName};
use crate::pure::log::Millis;
use crate::pure::session::{Full, Generation};
use crate::pure::stream::{Agent, Life};
use crate::relay::Relay;
use crate::relay::again::Acknowledged;
use crate::relay::backend_side::BackendSide;
use crate::relay::chronicle::Counted;
use crate::relay::gap::Gap;
use crate::relay::intake::Counts;
use crate::relay::mailbox::Mailbox;
use crate::relay::outcome::{FirstHead, Settled};
use crate::relay::seldom::Legacy;
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::spill::Spill;
use crate::relay::stream_task::{Phase, StreamTask};
use crate::relay::world::World;
use crate::store::{Claim, LogLoss, Store};
use crate::upstream::Backoff;

/// First wait before a standalone stream's upstream GET is tried again, and the longest.
const REOPEN_BASE: Duration = Duration::from_millis(250);
pub(crate) const REOPEN_CAP: Duration = Duration::from_secs(10);

/// What a stream begins with.
pub(crate) struct Beginning<W: World> {
    /// Which requests it answers.
    pub(crate) life: Life,
    /// Where its events come from.
    pub(crate) source: Source<W>,
    /// What kind of client asks for it.
    pub(crate) agent: Agent,
    /// Which life of the session it belongs to.
    pub(crate) generation: Generation,
}

/// A stream's place in its session: what others find, and the epoch that it begins with.
pub(crate) struct Place {
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// Where its task is spoken to, also before it runs.
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Place {
    /// A place for a stream of this name.
    pub(crate) fn new<W: World>(relay: &Relay<W>, name: StreamName) -> Self {
        Self {
            epoch: Epoch::from_random(relay.chance()),
            mailbox: Mailbox::new(name),
        }
    }
}

impl<W: World> StreamTask<W> {
    /// Opens a log and makes the task that owns it. It runs when it is spawned.
    ///
    /// # Errors
    /// The store could not open a log.
    pub(crate) async fn open(
        relay: &Arc<Relay<W>>,
        session: &Arc<Session<W>>,
        place: Place,
        beginning: Beginning<W>,
    ) -> Result<Self, LogLoss> {
        let Beginning {
            life,
            source,
            agent,
            generation,
        } = beginning;
        let Place { epoch, mailbox } = place;
        let name = mailbox.name.clone();
        let claim = Claim {
            epoch,
            bounds: session.bounds(),
        };
        let log = relay
            .world
            .store()
            .open(&session.stream_key(&name, epoch), claim)
            .await?;
        // Now that it begins: what the one before it left is taken once.
        let legacy = match name {
            StreamName::Get => session.take_legacy(generation),
            StreamName::Post(_) | StreamName::HttpSse => Legacy::default(),
        };
        let witness = session.witness(legacy.witness);
        let mut backend = BackendSide::new(session.trail_depth(&name), witness, relay.now());
        backend.had = legacy.had;
        Ok(Self {
            relay: Arc::clone(relay),
            session: Arc::clone(session),
            mailbox,
            prefix: IdPrefix::new(relay.keys.current(), &session.uid, epoch, &name),
            name,
            agent,
            generation,
            epoch,
            log,
            kept: Seq::START,
            life,
            source,
            backoff: Backoff::new(REOPEN_BASE, REOPEN_CAP),
            gap: Gap::None,
            backend,
            spill: Spill::default(),
            reader: None,
            awaited: None,
            early: Vec::new(),
            asks: 0,
            first_head: FirstHead::Due,
            turning: None,
            acked: Seq::START,
            written: Seq::START,
            detached_since: relay.now(),
            counts: Counts::new(),
            remind_at: Millis(u64::MAX),
            phase: Phase::New,
            ending: None,
            settled: Settled::No,
            counted: Counted::Not,
            receipt: Acknowledged::Unknown,
            under_way: 0,
        })
    }

    /// Registers the stream of a POST with its session and lets it run.
    ///
    /// # Errors
    /// [`Full`]: the session has too many streams that still run. The task is dropped.
    pub(crate) fn spawn_post(self) -> Result<(), Full> {
        self.session.add_post(self.epoch, &self.mailbox)?;
        self.relay.stream_began(&self.session, &self.name);
        tokio::spawn(self);
        Ok(())
    }

    /// Lets the standalone stream run. Its place was taken before its log was opened.
    pub(crate) fn spawn_standalone(self) {
        self.relay.stream_began(&self.session, &self.name);
        tokio::spawn(self);
    }
}

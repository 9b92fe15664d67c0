//! The relay: sessions, their streams, and every request between a client and its backend.
//! Law: one task owns a stream; a session is a record behind a leaf lock; nothing else is shared.
//! What it takes from outside is one parameter, `World`; what it gives is `answer::Serve`.
//! Reading order: `answer.rs`, `dispatch.rs`, `repeat.rs`, `post.rs`, `stream_task.rs`, `gate.rs`, `get.rs`, `ask.rs`,
//! `turn.rs`, `outcome.rs`; then `standing.rs`, `doubt.rs`, `recover.rs`.
//! The backend's side: `upstream_get.rs`, `pursue.rs` (polls), `reattach.rs` and `confirm.rs` (proofs), `asks.rs`,
//! `tend.rs`. Without sessions: `stateless.rs`. HTTP+SSE of 2024-11-05 has a door of its own: `http_sse/mod.rs`.
//! Next: `answer.rs`.

use std::sync::Arc;

use http::Method;
use tracing::{debug, info};

use crate::config::UPSTREAMS_MAX;
use crate::config::live::Live;
use crate::config::resolved::Config;
use crate::net::tls::TlsProblem;
use crate::pure::event_id::Uid;
use crate::pure::keys::KeyRing;
use crate::pure::log::Millis;
use crate::pure::session::{Ended, Origin};
use crate::pure::session_token::Transport;
use crate::relay::beginnings::Beginnings;
use crate::relay::canned_task::Bell;
use crate::relay::held::Allowance;
use crate::relay::idle::Idle;
use crate::relay::mailbox::EndCause;
use crate::relay::peers::Peers;
use crate::relay::pool::{Pool, Request};
use crate::relay::registry::Registry;
use crate::relay::replica_drain::Drains;
use crate::relay::running::{LAST_WORDS_MAX, Running};
use crate::relay::session::{Fresh, Session};
use crate::relay::sweep_task::Sweep;
use crate::relay::world::World;
use crate::store::{Pressure, Store};
use crate::telemetry::instruments::Instruments;
use crate::telemetry::words;
use crate::upstream::Deadline;

mod aftermath;
mod again;
pub mod answer;
mod aside;
mod ask;
mod asks;
mod backend_side;
mod beginnings;
mod beside;
mod birth;
mod busy;
mod canned_task;
mod chronicle;
mod confirm;
mod contradiction;
mod counted;
mod delete;
mod dispatch;
mod doubt;
mod events_task;
mod exchange;
mod farewell;
mod gap;
mod gate;
mod get;
mod headers;
mod held;
mod home;
mod http_sse;
mod idle;
mod initialize;
mod intake;
mod isolated;
mod kept;
mod log_lost;
mod mailbox;
mod missed;
mod outcome;
pub mod passing;
mod patience;
pub mod peers;
pub mod pool;
mod pool_health;
mod post;
mod pursue;
mod queue;
mod reader;
mod reattach;
pub mod reconfigure;
mod recover;
mod refuse;
mod registry;
mod renew;
mod repeat;
pub mod replica_drain;
mod running;
mod said;
mod seldom;
mod session;
pub mod sink;
mod source;
mod spill;
mod standalone;
mod standing;
mod stateless;
mod stream_task;
mod sweep_task;
mod sync;
mod tend;
mod ticket;
mod translated;
mod turn;
mod unproved_task;
mod upgrade;
mod upstream_get;
mod withdrawals;
pub mod world;

pub use dispatch::Door;

/// The relay of one process.
pub struct Relay<W: World> {
    world: Arc<W>,
    keys: Live<KeyRing>,
    peers: Peers,
    pools: Live<Vec<Arc<Pool<W>>>>,
    registry: Registry<W>,
    sweep: Arc<Sweep>,
    running: Running,
    idle: Idle,
    beginnings: Beginnings,
    bell: Bell,
    drains: Drains,
    answers: Allowance,
}

impl<W: World> Relay<W> {
    /// A relay of these upstreams, with these keys. `instruments` are in the order of the configuration.
    ///
    /// # Errors
    /// A TLS file that can't be used.
    pub fn new(
        world: Arc<W>,
        keys: KeyRing,
        config: &Config,
        instruments: &Instruments,
    ) -> Result<Arc<Self>, TlsProblem> {
        let mut pools = Vec::with_capacity(config.upstreams.len());
        for (index, upstream) in config.upstreams.iter().enumerate() {
            let instruments = Arc::clone(&instruments.upstreams[index]);
            pools.push(Arc::new(Pool::new(
                index,
                Arc::clone(upstream),
                Arc::clone(&world),
                instruments,
            )?));
        }
        let mut instance = [0; 4];
        world.fill_random(&mut instance);
        let instance = u32::from_ne_bytes(instance);
        Ok(Arc::new(Self {
            keys: Live::new(Arc::new(keys)),
            peers: Peers::new(config.server.peers, instance, issue_time(&*world)),
            registry: Registry::new(UPSTREAMS_MAX),
            sweep: Arc::new(Sweep::new(world.now())),
            running: Running::default(),
            idle: Idle::default(),
            beginnings: Beginnings::default(),
            bell: Bell::default(),
            drains: Drains::default(),
            pools: Live::new(Arc::new(pools)),
            answers: Allowance::default(),
            world,
        }))
    }

    /// Turns the wheel that reminds streams and sessions, and frees memory when it is short; for ever. Call: in a task
    /// of its own.
    pub async fn keep_time(self: Arc<Self>, instruments: Arc<Instruments>) {
        sweep_task::run(|| {
            self.sweep.turn(self.now());
            instruments
                .log_bytes
                .set(i64::try_from(self.world.store().held()).unwrap_or(i64::MAX));
            match self.world.store().pressure() {
                Pressure::Within { .. } => {}
                Pressure::Over { .. } => self.idle.shed(),
            }
        })
        .await;
    }

    /// The upstreams' pools, for probes and readiness, by the upstream's number.
    pub fn pools(&self) -> &[Arc<Pool<W>>] {
        &self.pools
    }

    /// Live sessions of an upstream.
    pub fn sessions(&self, pool: &Pool<W>) -> usize {
        self.registry.count(pool.index)
    }

    fn begin_session(self: &Arc<Self>, pool: &Arc<Pool<W>>, fresh: Fresh) -> Arc<Session<W>> {
        let session = Session::new(self, pool, fresh, Origin::Fresh);
        match session.transport {
            Transport::Streamable => {
                info!(upstream = %pool.config.name, replica = %session.replica().authority(), session = %session.label(), transport = session.transport.as_str(), revision = session.revision.as_str(), "session began");
            }
            // What its client and its backend negotiate is theirs.
            Transport::HttpSse => {
                info!(upstream = %pool.config.name, replica = %session.replica().authority(), session = %session.label(), transport = session.transport.as_str(), "session began");
            }
        }
        pool.instruments.sessions_opened.one();
        self.registry.add(session)
    }

    /// Ends a session here: its token opens nothing any more, its streams are told.
    fn end_session(&self, session: &Session<W>, why: Ended) {
        let cause = match why {
            Ended::Deleted | Ended::Idle | Ended::TooOld | Ended::Detached => EndCause::SessionOver,
            Ended::BackendLost => EndCause::SessionLost,
        };
        self.registry.end(session);
        if session.end(why, cause).is_ok() {
            self.bell.ring();
            info!(upstream = %session.pool.config.name, session = %session.label(), reason = why.as_str(), "session ended");
            session
                .pool
                .instruments
                .sessions_ended
                .one(words::SessionEnd::from(why));
        }
    }

    /// A session's time is over: it ends here, and its backend is told.
    fn expire(self: &Arc<Self>, session: &Arc<Session<W>>, why: Ended) {
        self.end_session(session, why);
        match session.transport {
            Transport::Streamable => {}
            // Its backend sees that its connection ends.
            Transport::HttpSse => return,
        }
        let (relay, session) = (Arc::clone(self), Arc::clone(session));
        tokio::spawn(async move {
            let request = Request::own(Method::DELETE, session.own_fields(), bytes::Bytes::new());
            if session
                .send_once(&relay, request, Deadline::after(LAST_WORDS_MAX))
                .await
                .is_err()
            {
                debug!(session = %session.label(), "the backend was not told that a session expired");
            }
        });
    }

    fn now(&self) -> Millis {
        self.world.now()
    }

    fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.world.fill_random(&mut bytes);
        bytes
    }

    fn chance(&self) -> u64 {
        u64::from_ne_bytes(self.random())
    }

    fn issue_time(&self) -> u32 {
        issue_time(&*self.world)
    }

    /// A session's uid: a version 7 UUID, so that logs and stores sort by time.
    fn fresh_uid(&self) -> Uid {
        let random: [u8; 10] = self.random();
        let millis = self.world.unix_seconds() * 1_000;
        Uid::new(
            *uuid::Builder::from_unix_timestamp_millis(millis, &random)
                .as_uuid()
                .as_bytes(),
        )
    }

    fn base_retry_ms(&self, session: &Session<W>) -> u64 {
        session.pool.config.stream.retry.as_millis() as u64
    }

    /// The base `retry` and up to as much again: clients that are sent away together come back apart.
    fn jittered_retry_ms(&self, session: &Session<W>) -> u64 {
        let base = self.base_retry_ms(session).max(1);
        base + self.chance() % base
    }
}

/// Now, as a token says it: in seconds since 1970.
fn issue_time<W: World>(world: &W) -> u32 {
    u32::try_from(world.unix_seconds()).unwrap_or(u32::MAX)
}

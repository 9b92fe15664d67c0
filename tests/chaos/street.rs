//! What the clients of one round have in common: where the proxy is, the oracle, the load, and how far the round is.
//! Law: the round's own progress is counted in events that clients had; whoever waits for it waits on that count.
//! Next: `client.rs`.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use crate::chance::Chance;
use crate::oracle::{Oracle, Process};
use crate::plant::Plant;
use crate::trail::Verdicts;

/// The proxy, one for its clients whichever of its processes stands there: what it was asked for once runs once.
pub(crate) const THE_PROXY: Process = Process(0);

/// How much is asked of the servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Load {
    /// Raw clients at a time.
    pub(crate) clients: u64,
    /// Notes of a session.
    pub(crate) notes: u64,
    /// Time between two of them, in milliseconds.
    pub(crate) notes_interval_ms: u64,
    /// Calls of a session.
    pub(crate) calls: u64,
    /// Most steps of a call.
    pub(crate) steps_max: u64,
    /// Time between two of them, in milliseconds.
    pub(crate) steps_interval_ms: u64,
}

/// Whether a client sends a request again that was lost before its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// Now and then, as long as a proxy that keeps its memory knows it for the same.
    WithinBound,
    /// It does not: a proxy that lost its memory would run it again, and couldn't know.
    Never,
}

/// What every client of a round has.
#[derive(Clone)]
pub(crate) struct Street {
    /// Where the proxy is, by way of a relay.
    pub(crate) at: SocketAddr,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) chance: Chance,
    pub(crate) load: Load,
    pub(crate) plant: Plant,
    pub(crate) again: Again,
    pub(crate) verdicts: Verdicts,
    /// Whether new sessions are begun.
    pub(crate) going: watch::Receiver<bool>,
    /// Events that clients had.
    pub(crate) events: watch::Sender<u64>,
}

impl Street {
    /// Whether the round goes on.
    pub(crate) fn goes_on(&self) -> bool {
        *self.going.borrow()
    }

    /// A client had an event.
    pub(crate) fn event(&self) {
        self.oracle.counted("events");
        self.events.send_modify(|events| *events += 1);
    }
}

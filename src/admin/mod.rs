//! Health, readiness and metrics, on a listener of their own.
//! Law: nothing here can hold a client of the proxy up: few connections, one request each, a deadline on each.
//! Absent on purpose: any way to change something, and any credential; the listener is for this machine by default.
//! Readiness is asked of the caller, who knows replicas and drains.
//! Next: `answer.rs`, then `accept_task.rs`.

mod accept_task;
mod answer;

use std::fmt;
use std::sync::Arc;

use crate::telemetry::instruments::Instruments;

pub use accept_task::serve;

/// Whether new clients should be sent here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// They should.
    Ready,
    /// The process is draining (wire contract, section 7).
    Draining,
    /// No upstream has a healthy replica, so that every new session would be refused.
    NoHealthyReplica,
}

impl Readiness {
    /// The word for it in `/readyz` and in logs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::NoHealthyReplica => "no_healthy_replica",
        }
    }
}

/// What the admin listener answers from.
pub struct Admin {
    instruments: Arc<Instruments>,
    readiness: Box<dyn Fn() -> Readiness + Send + Sync>,
}

impl Admin {
    /// Answers from these instruments; `readiness` is asked at each `/readyz` and must not wait.
    pub fn new(
        instruments: Arc<Instruments>,
        readiness: impl Fn() -> Readiness + Send + Sync + 'static,
    ) -> Self {
        Self {
            instruments,
            readiness: Box::new(readiness),
        }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("readiness", &(self.readiness)())
            .finish_non_exhaustive()
    }
}

//! Health, readiness, metrics, inspection and the drain of a replica, on a listener of their own.
//! Law: nothing here can hold a client of the proxy up: few connections, one request each, a deadline on each.
//! What changes something is a POST whose `Host` and `Origin` are judged like a client's: no web page can send it.
//! Absent on purpose: any credential; the listener is for this machine by default. What is known and what is done is
//! the caller's, who knows replicas and drains.
//! Next: `status.rs`, `answer.rs`, then `accept_task.rs`.

mod accept_task;
mod answer;
pub mod status;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, StatusCode, Uri, Version};

use crate::admin::status::Status;
use crate::telemetry::instruments::Instruments;

pub use accept_task::serve;

/// Whether new clients should be sent here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// They should.
    Ready,
    /// Nothing is known of any replica yet: the first probes are under way.
    Starting,
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
            Self::Starting => "starting",
            Self::Draining => "draining",
            Self::NoHealthyReplica => "no_healthy_replica",
        }
    }
}

/// What the operator orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order<'a> {
    /// `POST /replicas/UPSTREAM/AUTHORITY/drain`
    Drain {
        /// The upstream's name.
        upstream: &'a str,
        /// The replica's `host:port`.
        replica: &'a str,
    },
    /// `POST /replicas/UPSTREAM/AUTHORITY/undrain`
    Undrain {
        /// The upstream's name.
        upstream: &'a str,
        /// The replica's `host:port`.
        replica: &'a str,
    },
}

/// What came of an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obeyed {
    /// Done, or done before; in words.
    Done(String),
    /// There is no such replica; these are.
    NoSuchReplica(Vec<String>),
}

/// Who knows and who does what the operator asks for. None of them may wait.
pub struct Desk {
    /// How everything stands.
    pub status: Box<dyn Fn() -> Status + Send + Sync>,
    /// Does what is ordered.
    pub order: Box<dyn Fn(Order<'_>) -> Obeyed + Send + Sync>,
    /// Judges `Host` and `Origin` of an order, as of a client's request; the status to refuse it with.
    pub judge: Box<Judge>,
}

/// Judges a request by its `Host` and `Origin`.
pub type Judge = dyn Fn(Version, &Uri, &HeaderMap) -> Result<(), StatusCode> + Send + Sync;

/// What the admin listener answers from.
pub struct Admin {
    instruments: Arc<Instruments>,
    desk: Desk,
}

impl Admin {
    /// Answers from these instruments, and asks this desk.
    pub const fn new(instruments: Arc<Instruments>, desk: Desk) -> Self {
        Self { instruments, desk }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("readiness", &(self.desk.status)().readiness())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Admin {
    /// One whose replicas stand like this, with one replica to drain, whose orders come only from `Host: x`.
    pub(crate) fn for_tests(states: &[status::State], labels: &[&'static str]) -> Self {
        use crate::telemetry::instruments::Labelled;
        let labelled: Vec<Labelled<'_>> = labels
            .iter()
            .map(|name| Labelled {
                name,
                replicas: Vec::new(),
            })
            .collect();
        let status = Status::of(states);
        let order = |order: Order<'_>| match order {
            Order::Drain { upstream, replica } | Order::Undrain { upstream, replica } => {
                if (upstream, replica) == ("mcp", "127.0.0.1:3001") {
                    Obeyed::Done(format!("{order:?}"))
                } else {
                    Obeyed::NoSuchReplica(vec!["mcp/127.0.0.1:3001".into()])
                }
            }
        };
        let judge = |_: Version, _: &Uri, fields: &HeaderMap| {
            let good = fields.get(http::header::HOST).is_some_and(|host| host == "x");
            if good {
                Ok(())
            } else {
                Err(StatusCode::MISDIRECTED_REQUEST)
            }
        };
        Self::new(
            Arc::new(Instruments::new(&labelled)),
            Desk {
                status: Box::new(move || status.clone()),
                order: Box::new(order),
                judge: Box::new(judge),
            },
        )
    }
}

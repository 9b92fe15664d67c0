//! One replica as the process knows it: where it is, how it is, how much of it is in use.
//! Law: a seat and a lease give back what they took when they are dropped, on every path.
//! Absent on purpose: connections. The client keeps its own things in the replica's slot, which is opaque here.
//! Why exact counters and not pingora-limits: its estimator hashes to bound memory over unbounded keys; replicas are few.
//! Next: `routing/table.rs`.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::config::resolved::{self, Scheme};
use crate::net::Authority;
use crate::pure::log::Millis;
use crate::pure::session::Server;
use crate::pure::session_token::ReplicaKey;
use crate::routing::choose::{Load, Standing};
use crate::routing::ejection::{Blow, Ejection, Proof, Proved, Tolerance};
use crate::routing::health::Condition;
use crate::telemetry::words::EjectedFor;

/// Longest text that is kept of a replica's last error, in bytes: a line of `/status`.
pub const ERROR_BYTES_MAX: usize = 200;

/// What went wrong last with a replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    /// In words, cut to [`ERROR_BYTES_MAX`].
    pub text: Box<str>,
    /// When.
    pub at: Instant,
}

/// Whether a replica is meant to take new sessions (wire contract, section 7, "drain of a backend").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Duty {
    /// It is.
    Serving,
    /// It takes no new session; those that it has go on until the deadline.
    Draining,
    /// The deadline has passed: it has no session any more, and gets none.
    Drained,
}

impl Duty {
    /// The word for it in logs and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Serving => 0,
            Self::Draining => 1,
            Self::Drained => 2,
        }
    }

    const fn of(code: u8) -> Self {
        match code {
            1 => Self::Draining,
            2 => Self::Drained,
            0 | 3.. => Self::Serving,
        }
    }
}

/// Sessions that ask one replica at a time whether it has them still: one that is just back has other work.
const ASKED_AT_ONCE_MAX: usize = 16;

/// One replica of an upstream.
pub struct Replica {
    key: ReplicaKey,
    config: resolved::Replica,
    host: Box<str>,
    origin: Box<str>,
    unhealthy: AtomicBool,
    sessions: AtomicUsize,
    in_flight: AtomicUsize,
    troubles: AtomicU64,
    server: AtomicU64,
    few: Semaphore,
    duty: AtomicU8,
    /// Whether it was ever seen to be well: a probe passed, or an exchange was answered.
    vouched: AtomicBool,
    /// Whether the next good exchange changes anything: all that a good one looks at.
    wary: AtomicBool,
    ejection: Mutex<Ejection>,
    /// Whether it was in trouble since it was last shown to be well. Changed under the ejection's lock.
    troubled: AtomicBool,
    /// It is well again.
    back: Arc<Notify>,
    /// When its ejection ends, in milliseconds of the relay's clock; 0 = it is not ejected.
    ejected_until: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    slot: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Replica {
    /// A replica of the upstream with this name; healthy until probes say otherwise.
    pub fn new(upstream: &str, config: resolved::Replica) -> Self {
        let authority = &config.authority;
        let (scheme, default_port) = match config.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
        };
        let host = if authority.port == default_port {
            let whole = authority.to_string();
            whole
                .strip_suffix(&format!(":{default_port}"))
                .unwrap_or(&whole)
                .into()
        } else {
            authority.to_string().into_boxed_str()
        };
        Self {
            key: ReplicaKey::of(upstream, &authority.to_string()),
            origin: format!("{scheme}://{host}").into(),
            host,
            unhealthy: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            troubles: AtomicU64::new(0),
            server: AtomicU64::new(0),
            few: Semaphore::new(ASKED_AT_ONCE_MAX),
            duty: AtomicU8::new(Duty::Serving.code()),
            vouched: AtomicBool::new(false),
            wary: AtomicBool::new(true),
            ejection: Mutex::default(),
            troubled: AtomicBool::new(false),
            back: Arc::default(),
            ejected_until: AtomicU64::new(0),
            last_error: Mutex::default(),
            slot: OnceLock::new(),
            config,
        }
    }

    /// What tokens carry of it (wire contract, section 2).
    pub const fn key(&self) -> ReplicaKey {
        self.key
    }

    /// Where it is dialled.
    pub const fn authority(&self) -> &Authority {
        &self.config.authority
    }

    /// Plain or TLS.
    pub const fn scheme(&self) -> Scheme {
        self.config.scheme
    }

    /// The path of its MCP endpoint, with a query if any.
    pub fn path(&self) -> &str {
        &self.config.path
    }

    /// Its configuration.
    pub const fn config(&self) -> &resolved::Replica {
        &self.config
    }

    /// The value of `Host` towards it: the port is left out where it is the scheme's own.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The value of `Origin` towards it, where a client sent one (wire contract, section 7).
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it takes new sessions.
    pub fn condition(&self) -> Condition {
        if self.unhealthy.load(Ordering::Relaxed) {
            Condition::Unhealthy
        } else {
            Condition::Healthy
        }
    }

    /// Notes what probes found.
    pub fn set_condition(&self, condition: Condition) {
        let unhealthy = condition == Condition::Unhealthy;
        let before = self.unhealthy.swap(unhealthy, Ordering::Relaxed);
        if before && !unhealthy {
            self.back.notify_waiters();
        }
    }

    /// Waits until it is shown to be well after a trouble, from now on.
    pub fn when_back(&self) -> OwnedNotified {
        Arc::clone(&self.back).notified_owned()
    }

    /// How it stands in a choice made now.
    pub fn standing(&self, now: Millis) -> Standing {
        match (self.duty(), self.condition()) {
            (Duty::Draining | Duty::Drained, Condition::Healthy | Condition::Unhealthy) => Standing::Draining,
            (Duty::Serving, Condition::Unhealthy) => Standing::Unhealthy,
            (Duty::Serving, Condition::Healthy) => {
                let load = Load {
                    sessions: self.sessions(),
                    in_flight: self.in_flight(),
                };
                if self.ejected_until.load(Ordering::Relaxed) > now.0 {
                    Standing::Ejected(load)
                } else {
                    Standing::Candidate(load)
                }
            }
        }
    }

    /// Whether it is meant to take new sessions.
    pub fn duty(&self) -> Duty {
        Duty::of(self.duty.load(Ordering::Relaxed))
    }

    /// It is meant to, or not.
    pub fn set_duty(&self, duty: Duty) {
        self.duty.store(duty.code(), Ordering::Relaxed);
    }

    /// Whether it was ever seen to be well.
    pub fn is_vouched(&self) -> bool {
        self.vouched.load(Ordering::Relaxed)
    }

    /// Nothing will be asked of it to see whether it is well: it is taken for that.
    pub fn vouch(&self) {
        self.vouched.store(true, Ordering::Relaxed);
    }

    /// An exchange was answered. One load, unless something is held against it.
    pub fn answered(&self) -> Proved {
        if self.wary.load(Ordering::Relaxed) {
            self.proved(Proof::Answered)
        } else {
            Proved::Nothing
        }
    }

    /// It was shown to be well.
    pub fn proved(&self, proof: Proof) -> Proved {
        let mut ejection = self.ejection();
        let proved = ejection.proved(proof);
        self.vouched.store(true, Ordering::Relaxed);
        self.wary.store(!ejection.is_clear(), Ordering::Relaxed);
        self.ejected_until
            .store(ejection.until().map_or(0, |until| until.0), Ordering::Relaxed);
        if self.troubled.swap(false, Ordering::Relaxed) {
            self.back.notify_waiters();
        }
        proved
    }

    /// An exchange failed, in such words.
    pub fn failed(&self, why: EjectedFor, tolerance: Tolerance, now: Millis) -> Blow {
        let mut ejection = self.ejection();
        let blow = ejection.failed(why, tolerance, now);
        self.wary.store(true, Ordering::Relaxed);
        self.ejected_until
            .store(ejection.until().map_or(0, |until| until.0), Ordering::Relaxed);
        blow
    }

    fn ejection(&self) -> MutexGuard<'_, Ejection> {
        self.ejection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when it is ejected, if it is now.
    pub fn ejected_until(&self, now: Millis) -> Option<Millis> {
        let until = self.ejected_until.load(Ordering::Relaxed);
        (until > now.0).then_some(Millis(until))
    }

    /// Keeps what went wrong last, cut to [`ERROR_BYTES_MAX`].
    pub fn note_error(&self, error: &str) {
        let mut end = error.len().min(ERROR_BYTES_MAX);
        while !error.is_char_boundary(end) {
            end -= 1;
        }
        let last = LastError {
            text: error[..end].into(),
            at: Instant::now(),
        };
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// What went wrong last, if anything ever did.
    pub fn last_error(&self) -> Option<LastError> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sessions that live on it.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Exchanges under way.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Refused connections and failed probes so far. If the number moved since a stream broke, the backend may have
    /// been restarted meanwhile, and overlap proves nothing (wire contract, section 8).
    pub fn troubles(&self) -> u64 {
        self.troubles.load(Ordering::Relaxed)
    }

    /// Notes a refused connection or a failed probe.
    pub fn note_trouble(&self) {
        self.troubles.fetch_add(1, Ordering::Relaxed);
        let _turn = self.ejection();
        self.troubled.store(true, Ordering::Relaxed);
        self.wary.store(true, Ordering::Relaxed);
    }

    /// Notes who answers `initialize` here. Another one than before means that the replica started anew: a trouble.
    pub fn saw(&self, server: Server) {
        let before = self.server.swap(server.bits(), Ordering::AcqRel);
        if before != 0 && before != server.bits() {
            self.note_trouble();
        }
    }

    /// Who answered `initialize` here last, if anybody did.
    pub fn server(&self) -> Option<Server> {
        match self.server.load(Ordering::Acquire) {
            0 => None,
            bits => Some(Server::from_bits(bits)),
        }
    }

    /// A turn to ask whether it has a session still, which all of its sessions may want at one moment.
    pub async fn few_at_a_time(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.few.acquire().await.ok()
    }

    /// Takes a seat for one session. Take it as soon as the replica is chosen, so that the next choice sees it.
    pub fn seat(self: &Arc<Self>) -> Seat {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Seat {
            replica: Arc::clone(self),
        }
    }

    /// Takes a lease for one exchange, if fewer than `max` are under way.
    pub fn lease(self: &Arc<Self>, max: usize) -> Option<Lease> {
        // Counting first and looking afterwards keeps the bound exact without a loop.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let lease = Lease {
            replica: Arc::clone(self),
        };
        (before < max).then_some(lease)
    }

    /// What the client keeps with this replica, made at the first call. `None` if something of another type is kept
    /// there, which only a second client of another network could do.
    pub fn slot_or_make<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.slot.get_or_init(|| Box::new(make())).downcast_ref()
    }

    /// What the client keeps with this replica, if it keeps anything yet.
    pub fn slot<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.slot.get()?.downcast_ref()
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("authority", &self.config.authority)
            .field("condition", &self.condition())
            .field("sessions", &self.sessions())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// One session's seat on a replica; given back when dropped.
#[derive(Debug)]
pub struct Seat {
    replica: Arc<Replica>,
}

impl Seat {
    /// The replica.
    pub const fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.replica.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One exchange's share of a replica; given back when dropped.
#[derive(Debug)]
pub struct Lease {
    replica: Arc<Replica>,
}

impl Lease {
    /// The replica.
    pub const fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.replica.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(host: &str, port: u16, scheme: Scheme) -> Arc<Replica> {
        let authority = Authority {
            host: host.into(),
            port,
        };
        Arc::new(Replica::new(
            "tools",
            resolved::Replica {
                authority,
                scheme,
                path: "/mcp".into(),
            },
        ))
    }

    #[test]
    fn host_and_origin_leave_the_usual_port_out() {
        let check = |host, port, scheme, expected: &str, origin: &str| {
            let replica = replica(host, port, scheme);
            assert_eq!((replica.host(), replica.origin()), (expected, origin));
        };
        check("a.example", 80, Scheme::Http, "a.example", "http://a.example");
        check(
            "a.example",
            8080,
            Scheme::Http,
            "a.example:8080",
            "http://a.example:8080",
        );
        check("a.example", 443, Scheme::Https, "a.example", "https://a.example");
        check(
            "a.example",
            80,
            Scheme::Https,
            "a.example:80",
            "https://a.example:80",
        );
        check("::1", 80, Scheme::Http, "[::1]", "http://[::1]");
        check("::1", 8080, Scheme::Http, "[::1]:8080", "http://[::1]:8080");
    }

    #[test]
    fn seats_and_leases_are_given_back() {
        let replica = replica("a.example", 80, Scheme::Http);
        let seats = [replica.seat(), replica.seat()];
        assert_eq!(replica.sessions(), 2);
        drop(seats);
        assert_eq!(replica.sessions(), 0);

        let first = replica.lease(2);
        let second = replica.lease(2);
        assert!(first.is_some() && second.is_some());
        assert!(replica.lease(2).is_none());
        assert_eq!(replica.in_flight(), 2, "a refused lease leaves nothing behind");
        drop(first);
        assert!(replica.lease(2).is_some());
    }

    #[test]
    fn another_server_at_the_same_address_is_a_trouble() {
        let replica = replica("a.example", 80, Scheme::Http);
        let [one, two] = [1, 2].map(Server::from_bits);
        assert_eq!(replica.server(), None);
        for (seen, troubles) in [(one, 0), (one, 0), (two, 1), (two, 1), (one, 2)] {
            replica.saw(seen);
            assert_eq!((replica.server(), replica.troubles()), (Some(seen), troubles));
        }
    }

    #[test]
    fn who_waits_for_a_replica_hears_once_that_it_is_back() {
        let check = |happens: &[fn(&Replica)], expected: bool| {
            let replica = replica("a.example", 80, Scheme::Http);
            replica.proved(Proof::Connected);
            let back = std::pin::pin!(replica.when_back());
            happens.iter().for_each(|happens| happens(&replica));
            let heard = back.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
            assert_eq!(heard.is_ready(), expected);
        };
        let trouble: fn(&Replica) = Replica::note_trouble;
        let answered: fn(&Replica) = |replica| {
            replica.answered();
        };
        let probed: fn(&Replica) = |replica| {
            replica.proved(Proof::Connected);
        };
        let falls: fn(&Replica) = |replica| replica.set_condition(Condition::Unhealthy);
        let rises: fn(&Replica) = |replica| replica.set_condition(Condition::Healthy);
        check(&[answered, probed, rises], false);
        check(&[trouble, falls], false);
        check(&[trouble, answered], true);
        check(&[trouble, probed], true);
        check(&[falls, rises], true);
        // Nobody waits for what was before.
        let replica = replica("a.example", 80, Scheme::Http);
        replica.note_trouble();
        replica.answered();
        let back = std::pin::pin!(replica.when_back());
        replica.answered();
        assert!(
            back.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
                .is_pending()
        );
    }

    #[test]
    fn what_is_held_against_a_replica_decides_where_it_stands() {
        let replica = replica("a.example", 80, Scheme::Http);
        let tolerance = Tolerance {
            after: 1,
            first: Millis(10),
            longest: Millis(10),
        };
        let load = Load {
            sessions: 0,
            in_flight: 0,
        };
        assert!(!replica.is_vouched());
        assert_eq!(replica.standing(Millis(5)), Standing::Candidate(load));
        replica.failed(EjectedFor::Unreached, tolerance, Millis(5));
        assert_eq!(replica.standing(Millis(14)), Standing::Ejected(load));
        assert_eq!(replica.ejected_until(Millis(14)), Some(Millis(15)));
        assert_eq!(replica.standing(Millis(15)), Standing::Candidate(load));
        assert_eq!(replica.ejected_until(Millis(15)), None);
        assert_eq!(replica.answered(), Proved::Returned);
        assert_eq!(replica.answered(), Proved::Nothing);
        assert!(replica.is_vouched());
        replica.set_condition(Condition::Unhealthy);
        assert_eq!(replica.standing(Millis(0)), Standing::Unhealthy);
        for duty in [Duty::Draining, Duty::Drained] {
            replica.set_duty(duty);
            assert_eq!(
                (replica.duty(), replica.standing(Millis(0))),
                (duty, Standing::Draining)
            );
        }
        replica.set_duty(Duty::Serving);
        replica.set_condition(Condition::Healthy);
        assert_eq!(replica.standing(Millis(0)), Standing::Candidate(load));
        replica.note_error(&"ü".repeat(300));
        assert_eq!(replica.last_error().unwrap().text.len(), ERROR_BYTES_MAX);
    }

    #[test]
    fn the_slot_is_made_once_and_knows_its_type() {
        let replica = replica("a.example", 80, Scheme::Http);
        assert_eq!(replica.slot::<u32>(), None);
        assert_eq!(replica.slot_or_make(|| 7_u32), Some(&7));
        assert_eq!(replica.slot_or_make(|| 8_u32), Some(&7));
        assert_eq!(replica.slot::<u32>(), Some(&7));
        assert_eq!(replica.slot::<char>(), None);
    }
}

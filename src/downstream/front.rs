//! What every connection of one listener shares: who answers, who may ask, the bounds, and the call to drain.
//! Law: a connection holds a seat from accept to close, also while its socket is parked in a stream.
//! Absent on purpose: anything that changes per request.
//! Next: `http_task.rs`.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::config::live::Live;
use crate::config::resolved::Server;
use crate::downstream::endpoint::Routes;
use crate::downstream::meter::Meter;
use crate::downstream::origin::HostGate;
use crate::net::{Io, Unacked};
use crate::relay::sink::Receipt;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::meters::{Level, Within};
use crate::telemetry::words::{Turned, Word};

/// What every connection of one listener shares.
pub(crate) struct Front<S> {
    /// Who answers.
    pub(crate) answers: Arc<S>,
    /// Which path is which upstream.
    pub(crate) routes: Arc<Live<Routes>>,
    /// Which `Host` and `Origin` may ask.
    pub(crate) gate: Arc<Live<HostGate>>,
    /// Bounds and times.
    pub(crate) limits: Arc<Live<Limits>>,
    /// The call to drain.
    pub(crate) drain: Arc<Drain>,
    /// What is counted.
    pub(crate) instruments: Arc<Instruments>,
    /// The budget of bodies.
    pub(crate) bodies: Arc<Bodies>,
}

/// Bounds and times of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Longest request head, in bytes.
    pub(crate) head_bytes_max: usize,
    /// Longest request body, in bytes.
    pub(crate) body_bytes_max: usize,
    /// Time for a head, or a TLS handshake, to arrive.
    pub(crate) head_timeout: Duration,
    /// Time for a body to arrive.
    pub(crate) body_timeout: Duration,
    /// How long an idle connection is kept, and how long a client may take nothing of a plain answer.
    pub(crate) idle_timeout: Duration,
}

impl Limits {
    /// Those of the configuration.
    pub(crate) fn of(server: &Server) -> Self {
        Self {
            head_bytes_max: server.head_bytes_max,
            body_bytes_max: server.body_bytes_max,
            head_timeout: server.head_timeout,
            body_timeout: server.body_timeout,
            idle_timeout: server.idle_timeout,
        }
    }
}

impl<S> Front<S> {
    /// The front of one listener; what all listeners share comes with `shared`.
    pub(crate) fn new(gate: Arc<Live<HostGate>>, answers: Arc<S>, shared: &Shared) -> Self {
        Self {
            answers,
            routes: Arc::clone(&shared.routes),
            gate,
            limits: Arc::clone(&shared.limits),
            drain: Arc::clone(&shared.drain),
            instruments: Arc::clone(&shared.instruments),
            bodies: Arc::clone(&shared.bodies),
        }
    }

    /// Counts and logs a refusal.
    pub(crate) fn refused(&self, why: Turned, peer: IpAddr) {
        self.instruments.refused.one(why);
        tracing::debug!(why = why.as_str(), %peer, "refused");
    }
}

/// What all listeners share.
pub(crate) struct Shared {
    /// Which path is which upstream.
    pub(crate) routes: Arc<Live<Routes>>,
    /// Bounds and times.
    pub(crate) limits: Arc<Live<Limits>>,
    /// The call to drain.
    pub(crate) drain: Arc<Drain>,
    /// What is counted.
    pub(crate) instruments: Arc<Instruments>,
    /// The budget of bodies.
    pub(crate) bodies: Arc<Bodies>,
}

/// Bytes of a body that cost nothing of the budget: nearly every call of a tool is shorter.
pub(crate) const BODY_BYTES_FREE: usize = 64 * 1024;

/// Bytes that all longer bodies together may hold while they are being read. Without it, clients that send slowly
/// could make the product of two bounds real: connections and body length.
const BODIES_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The budget of bodies that are being read.
#[derive(Debug)]
pub(crate) struct Bodies {
    held: AtomicUsize,
    max: AtomicUsize,
}

impl Bodies {
    /// A budget that has room for at least one body of the greatest length.
    pub(crate) fn new(body_bytes_max: usize) -> Arc<Self> {
        Self::with_room(BODIES_BYTES_MAX.max(body_bytes_max))
    }

    /// A budget of this many bytes.
    pub(crate) fn with_room(max: usize) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
        })
    }

    /// Makes room for at least one body of this length.
    pub(crate) fn fit_one(&self, body_bytes_max: usize) {
        self.max
            .store(BODIES_BYTES_MAX.max(body_bytes_max), Ordering::Relaxed);
    }

    /// A share of it, empty so far.
    pub(crate) fn share(&self) -> Share<'_> {
        Share {
            bodies: self,
            bytes: 0,
        }
    }
}

/// The budget has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

/// What one body holds of the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    bodies: &'a Bodies,
    bytes: usize,
}

impl Share<'_> {
    /// Makes the share fit a body of this length.
    ///
    /// # Errors
    /// There is no room; the share is what it was.
    pub(crate) fn fit(&mut self, length: usize) -> Result<(), NoRoom> {
        if length <= BODY_BYTES_FREE.max(self.bytes) {
            return Ok(());
        }
        let more = length - self.bytes;
        let max = self.bodies.max.load(Ordering::Relaxed);
        let grown = |held: usize| held.checked_add(more).filter(|&held| held <= max);
        match self
            .bodies
            .held
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, grown)
        {
            Ok(_) => {
                self.bytes = length;
                Ok(())
            }
            Err(_) => Err(NoRoom),
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.bodies.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// The call to drain: given once, heard by every connection.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    begun: AtomicBool,
    called: Notify,
}

impl Drain {
    /// Begins it. Saying it twice changes nothing.
    pub(crate) fn begin(&self) {
        // The flag first: who registers in between sees it.
        self.begun.store(true, Ordering::SeqCst);
        self.called.notify_waiters();
    }

    /// Whether it began. Cheap enough for every wake-up.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Wakes its task when the drain begins. The caller enables it, *then* asks [`Drain::has_begun`].
    pub(crate) fn called(&self) -> Notified<'_> {
        self.called.notified()
    }
}

/// How many connections may be open, and how many are.
#[derive(Debug)]
pub(crate) struct Seats {
    taken: AtomicUsize,
    max: AtomicUsize,
    emptied: Notify,
}

impl Seats {
    /// Room for `max` connections.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
            emptied: Notify::new(),
        })
    }

    /// A seat, if one is free; it counts as a live connection.
    pub(crate) fn take(self: &Arc<Self>, live: &Level) -> Option<Seat> {
        let max = self.max.load(Ordering::Relaxed);
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more)
            .ok()
            .map(|_| Seat {
                seats: Arc::clone(self),
                _live: live.enter(),
            })
    }

    /// So many from now on; who sits stays.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Seats taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Acquire)
    }

    /// Waits until no seat is taken. Cancel-safe.
    pub(crate) async fn empty(&self) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if self.taken() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// One connection's seat; free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    _live: Within,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.seats.taken.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.seats.emptied.notify_waiters();
        }
    }
}

/// One client connection between two owners: the accept loop, an HTTP task, a stream's task.
#[derive(Debug)]
pub(crate) struct Link<T> {
    /// The connection.
    pub(crate) io: T,
    /// Bytes read already that belong to the next request.
    pub(crate) left: Bytes,
    /// Where its bytes are counted.
    pub(crate) meter: Meter,
    /// Its seat.
    pub(crate) seat: Seat,
    /// Who waits for the proof that its last answer was had.
    pub(crate) receipt: Option<Box<dyn Receipt>>,
}

impl<T> Link<T> {
    /// A connection that was just made.
    pub(crate) const fn new(io: T, meter: Meter, seat: Seat) -> Self {
        Self {
            io,
            left: Bytes::new(),
            meter,
            seat,
            receipt: None,
        }
    }
}

/// The client spoke on: if it has acknowledged everything too, it had the last answer whole. Once; without the proof
/// nothing is said.
pub(crate) fn note_receipt<T: Io>(io: &T, receipt: &mut Option<Box<dyn Receipt>>) {
    if let Some(receipt) = receipt.take()
        && io.unacked() == Unacked::Bytes(0)
    {
        receipt.had_all();
    }
}

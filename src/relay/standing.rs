//! Where a session stands with its backend, and the requests that wait until it stands again.
//! Law: a session that was never lost costs one atomic read for each request, and nothing else.
//! Who waits is bounded in number and time; notifications and answers go in the order in which they came.
//! Why the bit is set before a session moves and looked at after its home was read: whoever finds it clear sends to
//! a home of before the loss, which executes nothing, or of after the word was told.
//! Next: `recover.rs`; the rules are in `pure/session/loss.rs`.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;

use http::HeaderMap;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::pure::session::loss::{Called, Weighed};
use crate::pure::session::{Asks, CredentialFields, Losses, Phase};
use crate::relay::Relay;
use crate::relay::answer::NotExecuted;
use crate::relay::doubt;
use crate::relay::exchange::WholeAnswer;
use crate::relay::home::Home;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::telemetry::names::SessionTag;

/// Requests of one session that wait for it at a time: more than a client has under way. One more is refused.
const WAITING_MAX: usize = 64;

/// Where a session stands.
#[derive(Default)]
pub(crate) struct Standing {
    /// Whether anything but "settled, and nothing owed" may hold.
    unclear: AtomicBool,
    called: AtomicBool,
    /// Made when it is needed first.
    slow: OnceLock<Box<Slow>>,
}

#[derive(Default)]
struct Slow {
    losses: Mutex<Losses>,
    doubted: AtomicBool,
    changed: Notify,
    waiting: AtomicUsize,
    /// Notifications and answers, one after the other.
    line: tokio::sync::Mutex<()>,
    in_line: AtomicUsize,
    /// What a backend said to the client's credential when the session was to be begun anew.
    denied: Mutex<Option<WholeAnswer>>,
    /// What the newest request that waits shows: used if the credential that was accepted before is not any more.
    offered: Mutex<Option<Offer>>,
    /// What the session is begun anew with, instead of the credential that was accepted before.
    tried: Mutex<Option<Offer>>,
}

impl Slow {
    fn tried(&self) -> std::sync::MutexGuard<'_, Option<Offer>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A credential that a request shows and that its backend has not judged. Copied: a field that came over the wire would
/// pin the buffer that it was read into.
#[derive(PartialEq, Eq)]
pub(crate) struct Offer(HeaderMap);

impl Offer {
    fn of(names: &CredentialFields, fields: &HeaderMap) -> Self {
        Self(names.copy(fields))
    }

    /// As fields.
    pub(crate) const fn fields(&self) -> &HeaderMap {
        &self.0
    }
}

/// What a request may do.
pub(crate) enum Ready {
    /// It goes there.
    Go(Arc<Home>),
    /// The model must be told first.
    Refuse,
    /// The session is over.
    Gone,
    /// The backend does not accept the client's credential: its answer.
    Denied(WholeAnswer),
    /// It waited long enough, or too many wait.
    Late(NotExecuted),
}

impl Standing {
    /// Whether the session is settled and nothing is owed.
    fn is_clear(&self) -> bool {
        !self.unclear.load(Ordering::SeqCst)
    }

    fn slow(&self) -> &Slow {
        self.slow.get_or_init(Box::default)
    }

    /// Changes what is known of its losses.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Losses) -> T) -> T {
        let slow = self.slow();
        let mut losses = slow.losses.lock().unwrap_or_else(PoisonError::into_inner);
        let done = change(&mut losses);
        let clear = losses.is_clear() && !slow.is_doubted() && slow.waits_for_nobody();
        self.unclear.store(!clear, Ordering::SeqCst);
        drop(losses);
        slow.changed.notify_waiters();
        done
    }

    /// Looks at its losses, or notes what wakes nobody.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Losses) -> T) -> T {
        look(&mut self.slow().losses.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes whoever waits: the session's phase changed.
    pub(crate) fn ring(&self) {
        if let Some(slow) = self.slow.get() {
            slow.changed.notify_waiters();
        }
    }

    /// Waits for the next change, at most until then.
    pub(crate) async fn changed_until(&self, until: Instant) {
        let _ = timeout_at(until, self.slow().changed.notified()).await;
    }

    /// A connection of the session's to its backend broke: the next request asks first whether the session is known.
    pub(crate) fn doubt(&self) {
        let slow = self.slow();
        // Under the lock, so that nobody who looks at it all calls it clear in between.
        self.look(|_| {
            slow.doubted.store(true, Ordering::SeqCst);
            self.unclear.store(true, Ordering::SeqCst);
        });
    }

    /// A tool is called.
    pub(crate) fn note_call(&self) {
        if !self.called.load(Ordering::Relaxed) {
            self.called.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a tool was ever called.
    pub(crate) fn called(&self) -> Called {
        if self.called.load(Ordering::Relaxed) {
            Called::Once
        } else {
            Called::Never
        }
    }

    /// What the backend said to the client's credential; `None` = it is to be asked again.
    pub(crate) fn set_denied(&self, answer: Option<WholeAnswer>) {
        let slow = self.slow();
        *slow.denied.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        slow.changed.notify_waiters();
    }

    /// Another credential to be tried, now if the last one was refused.
    fn offer(&self, credential: Offer) {
        let slow = self.slow();
        *slow.offered.lock().unwrap_or_else(PoisonError::into_inner) = Some(credential);
        self.set_denied(None);
    }

    /// The credential of the newest request that waits, once.
    pub(crate) fn take_offered(&self) -> Option<Offer> {
        let offered = &self.slow().offered;
        offered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The session is begun anew with this one from now on, until it stands.
    pub(crate) fn try_with(&self, offered: Offer) {
        *self.slow().tried() = Some(offered);
    }

    /// What it was begun anew with, if that was not the credential that was accepted before.
    pub(crate) fn take_tried(&self) -> Option<Offer> {
        self.slow().tried().take()
    }

    /// Puts what is tried into the fields of a request of ours.
    pub(crate) fn lend_tried(&self, names: &CredentialFields, fields: &mut HeaderMap) {
        if let Some(offer) = &*self.slow().tried() {
            names.put(&offer.0, fields);
        }
    }

    /// Whether a credential was refused since it was asked last.
    pub(crate) fn is_denied(&self) -> bool {
        self.slow().denied().is_some()
    }

    /// A place in the line of notifications and answers, if there is one: the place is held until the guard is dropped.
    ///
    /// # Errors
    /// Too many wait, or it took too long.
    pub(crate) async fn line_up(
        &self,
        label: SessionTag,
        until: Instant,
    ) -> Result<Option<InLine<'_>>, NotExecuted> {
        if self.is_clear() {
            return Ok(None);
        }
        let slow = self.slow();
        let mut place = InLine {
            standing: self,
            turn: None,
        };
        if self.look(|_| slow.in_line.fetch_add(1, Ordering::SeqCst)) >= WAITING_MAX {
            return Err(NotExecuted::Overloaded);
        }
        let mut turn = std::pin::pin!(slow.line.lock());
        // It has its place before anybody hears of it.
        if let Poll::Ready(turn) = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await {
            debug!(session = %label, "a notification waits for its session");
            place.turn = Some(turn);
            return Ok(Some(place));
        }
        debug!(session = %label, "a notification waits for its session");
        match timeout_at(until, turn).await {
            Ok(turn) => place.turn = Some(turn),
            Err(_) => return Err(NotExecuted::Unavailable),
        }
        Ok(Some(place))
    }
}

impl Slow {
    fn waits_for_nobody(&self) -> bool {
        self.in_line.load(Ordering::SeqCst) == 0
    }

    fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::SeqCst)
    }

    fn denied(&self) -> Option<WholeAnswer> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A place in the line of notifications and answers.
pub(crate) struct InLine<'a> {
    standing: &'a Standing,
    turn: Option<MutexGuard<'a, ()>>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.turn = None;
        self.standing.slow().in_line.fetch_sub(1, Ordering::SeqCst);
        self.standing.change(|_| ());
    }
}

/// One request that waits; the count is given back when dropped.
struct Waiting<'a>(&'a Slow);

impl<'a> Waiting<'a> {
    fn new(slow: &'a Slow) -> Result<Self, NotExecuted> {
        let waiting = Self(slow);
        if slow.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            Ok(waiting)
        } else {
            Err(NotExecuted::Overloaded)
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<W: World> Session<W> {
    /// Where a request may go, or why not; waits while that is not known, for `replica_retry_max` at most, and once
    /// more for so long if the session turns out to be lost.
    pub(crate) async fn ready(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        asks: Asks,
        fields: &HeaderMap,
    ) -> Ready {
        let home = self.home();
        if self.standing.is_clear() && self.is_verified(&home) {
            return Ready::Go(home);
        }
        let offer = Offer::of(&self.pool.credentials, fields);
        let newest = {
            let record = self.record();
            record
                .beside
                .credentials
                .recognise(&self.pool.credentials, fields)
        };
        if newest.is_none()
            && self.standing.slow().tried().as_ref() != Some(&offer)
            && !self.is_strangers(relay, fields)
        {
            // The same one is asked with again in its own time.
            self.standing.offer(offer);
        }
        // Boxed: it is rare, and its future large.
        Box::pin(self.ready_when_settled(relay, asks)).await
    }

    async fn ready_when_settled(self: &Arc<Self>, relay: &Arc<Relay<W>>, asks: Asks) -> Ready {
        let slow = self.standing.slow();
        let _waiting = match Waiting::new(slow) {
            Ok(waiting) => waiting,
            Err(why) => return Ready::Late(why),
        };
        let patience = self.pool.config.exchange.replica_retry_max;
        let mut until = Instant::now() + patience;
        let mut seen = Seen::Standing;
        let arrived = self.standing.look(|losses| losses.arrive());
        debug!(session = %self.label(), "a request waits for its session");
        loop {
            let mut changed = std::pin::pin!(slow.changed.notified());
            changed.as_mut().enable();
            match self.phase() {
                Phase::Live => {}
                Phase::Ending | Phase::Ended(_) => return Ready::Gone,
            }
            let home = self.home();
            let look = |losses: &mut Losses| (losses.weigh(asks, arrived), losses.is_recovering());
            let (weighed, recovering) = self.standing.look(look);
            match weighed {
                Weighed::Send | Weighed::Refuse if slow.is_doubted() || !self.is_verified(&home) => {
                    slow.doubted.store(false, Ordering::SeqCst);
                    doubt::look_into(relay, self, &home);
                    continue;
                }
                // The home was read before the losses: it may have been left since.
                Weighed::Send if self.home().generation != home.generation => continue,
                Weighed::Send => return Ready::Go(home),
                Weighed::Refuse => return Ready::Refuse,
                Weighed::Wait => {}
            }
            if let Some(answer) = slow.denied() {
                return Ready::Denied(answer);
            }
            if recovering && seen == Seen::Standing {
                seen = Seen::Lost;
                until = Instant::now() + patience;
            }
            if timeout_at(until, changed).await.is_err() {
                return Ready::Late(NotExecuted::Unavailable);
            }
        }
    }

    /// Whether its replica is not in doubt.
    fn is_verified(&self, home: &Home) -> bool {
        home.is_verified() || !self.is_pinned(home)
    }
}

/// What a request that waits has seen of the session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Standing,
    Lost,
}

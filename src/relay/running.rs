//! Answers that still run, and the drain that waits for them.
//! Law: listeners are sent away first, spread by a jittered `retry`; a running answer keeps its client and its backend
//! until it is complete or the time is over, and then gets its error (wire contract, section 7).
//! A running answer without a client counts: its client may be on its way back.
//! Next: `outcome.rs`.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::relay::Relay;
use crate::relay::mailbox::{Command, EndCause};
use crate::relay::world::World;

/// How long last words may take at the very end.
pub(crate) const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

/// Answers of POSTs that still run, and calls whose answer has not begun: a drain waits for them.
#[derive(Default)]
pub(crate) struct Running {
    count: AtomicUsize,
    draining: AtomicBool,
    none_left: Notify,
    /// The time to drain is over.
    over: Notify,
    /// Whether it is.
    ended: AtomicBool,
}

/// One call whose answer has not begun.
pub(super) struct Call<'a>(&'a Running);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.settled();
    }
}

impl Running {
    /// Whether the proxy drains: a listener that comes now is sent away at once.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether the time to drain is over: what still runs is cut.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// One more runs.
    pub(crate) fn began(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// One is complete, written and closed, or given up.
    pub(crate) fn settled(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none_left.notify_waiters();
        }
    }

    /// One more call, until this is dropped.
    pub(super) fn call(&self) -> Call<'_> {
        self.began();
        Call(self)
    }

    /// Ready when the time to drain is over. *Next*: [`Running::is_over`], for who asks late.
    pub(super) fn over(&self) -> Notified<'_> {
        self.over.notified()
    }

    /// Does this for as long as there is time; `None` once the time to drain is over. It counts as running.
    /// For those that their client may withdraw there is `Session::while_wanted`.
    pub(crate) async fn within<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        let _call = self.call();
        let mut over = pin!(self.over());
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => over.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    async fn wait(&self) {
        loop {
            let mut left = pin!(self.none_left.notified());
            left.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            left.await;
        }
    }
}

impl<W: World> Relay<W> {
    /// Sends listeners away with a jittered `retry`, then waits for the answers that run, up to `max` or until `hurry`;
    /// what still runs then gets its error (wire contract, section 7). How many were cut short.
    pub async fn drain(self: &Arc<Self>, max: Duration, hurry: impl Future<Output = ()>) -> usize {
        // The flag first: a listener that comes in between is sent away when it attaches.
        self.running.draining.store(true, Ordering::Release);
        self.bell.ring();
        for session in self.registry.all() {
            session.withdrawals.stir();
            let retry_ms = self.jittered_retry_ms(&session);
            for mailbox in session.mailboxes() {
                mailbox.post(Command::Drain { retry_ms });
            }
        }
        let (mut all, mut hurry) = (pin!(self.running.wait()), pin!(hurry));
        let settled = poll_fn(|cx| match all.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => hurry.as_mut().poll(cx),
        });
        let _ = tokio::time::timeout(max, settled).await;
        let left = self.running.count.load(Ordering::Acquire);
        self.running.ended.store(true, Ordering::Release);
        self.running.over.notify_waiters();
        self.bell.ring();
        for session in self.registry.all() {
            for mailbox in session.mailboxes() {
                mailbox.post(Command::End(EndCause::OwnerLost));
            }
        }
        let _ = tokio::time::timeout(LAST_WORDS_MAX, self.running.wait()).await;
        left
    }
}

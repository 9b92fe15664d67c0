//! What ends a call before its answer begins: its client withdraws it (`notifications/cancelled`), or the time to drain
//! is over. Streams hear of it by their mailbox, and the backend by the message itself.
//! Law: such a call ends at once, with that word, as a stream would (wire contract, section 7). A withdrawal meets what
//! was asked before it, never a later call of the same id. In the usual case this is one place at the session's bell.
//! Why the end of a drain, which all calls of a proxy share, is not always waited for: that is one lock for all workers.
//! The bell is rung when a drain begins, and a call of a session that is found no more waits for its end from then on.
//! Next: `post.rs`.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::pure::rpc::RequestId;
use crate::relay::Relay;
use crate::relay::session::Session;
use crate::relay::world::World;

/// Withdrawals that are remembered until those who wait have looked: more than a client sends in one breath. One more,
/// and the oldest call goes on until its answer comes.
const WITHDRAWALS_MAX: usize = 32;

/// Why a call is given up before its answer began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenUp {
    /// Its client withdrew it.
    Withdrawn,
    /// The time to drain is over.
    DrainOver,
}

/// The withdrawals of one session.
#[derive(Default)]
pub(crate) struct Withdrawals {
    /// How many there were.
    count: AtomicU64,
    newest: Mutex<Option<Box<Newest>>>,
    bell: Notify,
}

/// The newest withdrawals, oldest first, each with its number.
#[derive(Default)]
struct Newest {
    ids: VecDeque<(u64, RequestId)>,
}

impl Withdrawals {
    /// The client withdraws a request.
    pub(crate) fn withdraw(&self, id: &RequestId) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted under the lock: who sees it waits for the id.
        let nth = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let ids = &mut newest.get_or_insert_default().ids;
        if ids.len() == WITHDRAWALS_MAX {
            ids.pop_front();
        }
        ids.push_back((nth, id.clone()));
        drop(newest);
        self.bell.notify_waiters();
    }

    /// Something else changed that those who wait must look at.
    pub(crate) fn stir(&self) {
        self.bell.notify_waiters();
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    fn is_withdrawn(&self, id: &RequestId, since: u64) -> bool {
        if self.count() == since {
            return false;
        }
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ids = newest.iter().flat_map(|newest| &newest.ids);
        ids.any(|(nth, one)| *nth > since && one == id)
    }
}

/// Makes sure that this task is woken by the next ring. Asked at each poll: a ring is counted before it wakes anybody,
/// so that no count says whether who was registered still is.
fn listen<'a>(to: &'a Withdrawals, mut rung: Pin<&mut Notified<'a>>, cx: &mut Context<'_>) {
    while rung.as_mut().poll(cx).is_ready() {
        rung.set(to.bell.notified());
    }
}

impl<W: World> Session<W> {
    /// Does this for requests while they are wanted; it counts as running. What several requests share has one answer
    /// for all: a withdrawal of one of them changes nothing.
    ///
    /// # Errors
    /// [`GivenUp`]: the work is left as it is.
    pub(crate) async fn while_wanted<T>(
        &self,
        relay: &Relay<W>,
        ids: &[RequestId],
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, GivenUp> {
        let _call = relay.running.call();
        let since = self.withdrawals.count();
        let mut rung = pin!(self.withdrawals.bell.notified());
        let mut over = pin!(relay.running.over());
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            // Everything is looked at after it is sure to wake this task.
            listen(&self.withdrawals, rung.as_mut(), cx);
            if let [id] = ids
                && self.withdrawals.is_withdrawn(id, since)
            {
                return Poll::Ready(Err(GivenUp::Withdrawn));
            }
            if (relay.running.is_draining() || !self.is_live())
                && (over.as_mut().poll(cx).is_ready() || relay.running.is_over())
            {
                return Poll::Ready(Err(GivenUp::DrainOver));
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A task: its waker, and how often that was woken.
    fn task() -> (Waker, Arc<Woken>) {
        let woken = Arc::<Woken>::default();
        (Waker::from(Arc::clone(&woken)), woken)
    }

    #[test]
    fn who_listens_is_woken_by_each_ring_wherever_it_was_moved() {
        let withdrawals = Withdrawals::default();
        let mut rung = pin!(withdrawals.bell.notified());
        let [(one, woken_one), (other, woken_other)] = [task(), task()];
        let mut listen = |waker| super::listen(&withdrawals, rung.as_mut(), &mut Context::from_waker(waker));
        let woken = || [&woken_one, &woken_other].map(|woken| woken.0.load(Ordering::SeqCst));
        // Before it listened.
        withdrawals.stir();
        listen(&one);
        assert_eq!(woken(), [0, 0]);
        withdrawals.stir();
        assert_eq!(woken(), [1, 0]);
        // Woken by something else, as often as it likes.
        listen(&one);
        listen(&one);
        withdrawals.withdraw(&RequestId::from_raw(b"1").unwrap());
        assert_eq!(woken(), [2, 0]);
        listen(&one);
        listen(&other);
        withdrawals.stir();
        assert_eq!(woken(), [2, 1]);
        // A ring that is counted, looked at, and only then wakes.
        listen(&other);
        withdrawals.count.fetch_add(1, Ordering::SeqCst);
        listen(&other);
        withdrawals.bell.notify_waiters();
        listen(&other);
        withdrawals.stir();
        assert_eq!(woken(), [2, 3]);
        // Two rings before it looks are one.
        withdrawals.stir();
        listen(&other);
        withdrawals.stir();
        assert_eq!(woken(), [2, 4]);
    }

    #[test]
    fn a_withdrawal_meets_what_was_asked_before_it() {
        let withdrawals = Withdrawals::default();
        let [one, other] = [b"1", b"2"].map(|id| RequestId::from_raw(id).unwrap());
        let first = withdrawals.count();
        withdrawals.stir();
        assert!(!withdrawals.is_withdrawn(&one, first));
        withdrawals.withdraw(&one);
        assert!(withdrawals.is_withdrawn(&one, first) && !withdrawals.is_withdrawn(&other, first));
        assert!(!withdrawals.is_withdrawn(&one, withdrawals.count()));
    }
}

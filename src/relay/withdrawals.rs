//! Calls that their client withdraws before their answer has begun (`notifications/cancelled`).
//! Law: such a call ends at once, with that word, as a stream would (wire contract, section 7). A withdrawal meets what
//! was asked before it, never a later call of the same id. In the usual case this costs one atomic read.
//! Absent on purpose: streams, which hear of it by their mailbox, and the backend, which is told by the message itself.
//! Next: `post.rs`.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use crate::pure::rpc::RequestId;

/// Withdrawals that are remembered until those who wait have looked: more than a client sends in one breath. One more,
/// and the oldest call goes on until its answer comes.
const WITHDRAWALS_MAX: usize = 32;

/// The client withdrew it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Withdrawn;

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
        let nth = self.count.load(Ordering::SeqCst) + 1;
        let ids = &mut newest.get_or_insert_default().ids;
        if ids.len() == WITHDRAWALS_MAX {
            ids.pop_front();
        }
        ids.push_back((nth, id.clone()));
        self.count.store(nth, Ordering::SeqCst);
        drop(newest);
        self.bell.notify_waiters();
    }

    /// Does this for a request, unless that is withdrawn meanwhile. What several requests share has one answer for all:
    /// it goes on.
    ///
    /// # Errors
    /// [`Withdrawn`]: the work is left as it is.
    pub(crate) async fn unless<T>(
        &self,
        ids: &[RequestId],
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Withdrawn> {
        let since = self.count.load(Ordering::SeqCst);
        let [id] = ids else { return Ok(work.await) };
        let mut rung = pin!(self.bell.notified());
        poll_fn(|cx| {
            loop {
                if let Poll::Ready(done) = work.as_mut().poll(cx) {
                    return Poll::Ready(Ok(done));
                }
                let ring = rung.as_mut().poll(cx);
                // Looked at after it is sure to be woken.
                if self.is_withdrawn(id, since) {
                    return Poll::Ready(Err(Withdrawn));
                }
                match ring {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(()) => rung.set(self.bell.notified()),
                }
            }
        })
        .await
    }

    fn is_withdrawn(&self, id: &RequestId, since: u64) -> bool {
        if self.count.load(Ordering::SeqCst) == since {
            return false;
        }
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ids = newest.iter().flat_map(|newest| &newest.ids);
        ids.any(|(nth, one)| *nth > since && one == id)
    }
}

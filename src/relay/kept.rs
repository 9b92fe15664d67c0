//! An exchange that outlives its client: a client that goes away before its answer began cancels nothing.
//! Law: a disconnect is not a cancel in the session era (wire contract, section 7). The backend may have begun to
//! work; its answer is read to the end, bounded in time, whether or not anybody will ask for it.
//! Next: `post.rs`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::debug;

use crate::relay::answer::Answer;

/// What may be finished when nobody waits for it any more.
pub(crate) trait Orphan: Send + 'static {
    /// It is finished, and its client is gone.
    fn orphaned(self);
}

impl<P: Send + 'static> Orphan for Answer<P> {
    /// Nobody is answered.
    fn orphaned(self) {}
}

/// A future that goes on by itself if it is dropped unfinished.
pub(crate) struct Kept<T: Orphan> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    bound: Duration,
}

impl<T: Orphan> Kept<T> {
    /// Keeps this work, for at most `bound` after its client went away.
    pub(crate) fn new(bound: Duration, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self {
            work: Some(Box::pin(work)),
            bound,
        }
    }
}

impl<T: Orphan> Future for Kept<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let work = self.work.as_mut().expect("a finished future is not polled again");
        let done = work.as_mut().poll(cx);
        if done.is_ready() {
            self.work = None;
        }
        done
    }
}

impl<T: Orphan> Drop for Kept<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        // Outside a runtime (it is being shut down) there is nothing left to go on with.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let bound = self.bound;
            debug!("a client left before its answer began; the request goes on");
            runtime.spawn(async move {
                if let Ok(done) = tokio::time::timeout(bound, work).await {
                    done.orphaned();
                }
            });
        }
    }
}

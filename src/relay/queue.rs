//! A small queue and a wake-up: what many post, and one task takes.
//! Law: what was posted is taken once or dropped, and never lies there while the task sleeps.
//! A look costs the task one atomic read when there is no post. No guard crosses an await.
//! Absent on purpose: a channel. One of tokio's pins over a kilobyte for each stream, idle ones too.
//! `tests/interleavings.rs` compiles this file once more, over locks whose every order it tries: it uses nothing of the
//! crate but them.
//! Next: `sync.rs`.

use std::sync::PoisonError;
use std::task::{Context, Waker};

use crate::relay::sync::atomic::{AtomicBool, Ordering};
use crate::relay::sync::{Mutex, MutexGuard};

/// The queue.
pub(crate) struct Queue<T> {
    posted: AtomicBool,
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    posts: Vec<T>,
    waker: Option<Waker>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

impl<T> Queue<T> {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self {
            posted: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                posts: Vec::new(),
                waker: None,
                state: State::Open,
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts, and wakes the task. A closed queue drops what comes.
    pub(crate) fn post(&self, post: T) {
        let mut inner = self.inner();
        if inner.state == State::Closed {
            drop(inner);
            drop(post);
            return;
        }
        inner.posts.push(post);
        self.posted.store(true, Ordering::Release);
        let waker = inner.waker.clone();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the task without a post.
    pub(crate) fn nudge(&self) {
        let waker = self.inner().waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The task's side: registers its waker. Call: before the first look, or what was posted in between wakes nobody.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.inner().waker = Some(cx.waker().clone());
    }

    /// The task's side: what was posted since the last look, oldest first.
    pub(crate) fn take(&self) -> Vec<T> {
        if !self.posted.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inner = self.inner();
        self.posted.store(false, Ordering::Release);
        std::mem::take(&mut inner.posts)
    }

    /// The task's side: nothing is taken any more; what is still here is dropped.
    pub(crate) fn close(&self) {
        let mut inner = self.inner();
        inner.state = State::Closed;
        inner.waker = None;
        let left = std::mem::take(&mut inner.posts);
        drop(inner);
        drop(left);
    }
}

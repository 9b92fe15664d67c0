//! Every order in which threads can meet at what they share: the shipped file, over locks that are tried in each.
//! Law: no twin. The file under `src/` is compiled here once more, with `relay/sync.rs` being loom's.
//! What is not tried so: the registry (dashmap has its own locks) and the drain's waits (tokio has its own).
//! Next: `../src/relay/queue.rs`.

mod relay {
    pub(crate) mod sync {
        pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
    }
}

#[path = "../src/relay/queue.rs"]
#[allow(dead_code)]
mod queue;

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use loom::sync::Notify;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::queue::Queue;

/// Wakes a thread that plays the task's executor.
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }
}

/// When a task registers its waker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registers {
    BeforeItLooks,
    /// What must not be.
    AfterItLooked,
}

/// A task that sleeps unless it is woken, until it has taken this much.
fn task<T>(queue: &Queue<T>, count: usize, registers: Registers) -> Vec<T> {
    let bell = Arc::new(Bell(Notify::new()));
    let waker = Waker::from(Arc::clone(&bell));
    let mut taken = Vec::new();
    if registers == Registers::BeforeItLooks {
        queue.register(&Context::from_waker(&waker));
    }
    taken.extend(queue.take());
    if registers == Registers::AfterItLooked {
        queue.register(&Context::from_waker(&waker));
    }
    while taken.len() < count {
        bell.0.wait();
        taken.extend(queue.take());
    }
    taken
}

/// Each of these lists is posted by a thread of its own; the task takes all, each list in its order.
fn check(posters: &'static [&'static [u32]], registers: Registers) {
    loom::model(move || {
        let queue = Arc::new(Queue::new());
        for posts in posters {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for post in *posts {
                    queue.post(*post);
                }
            });
        }
        let count = posters.iter().map(|posts| posts.len()).sum();
        let taken = task(&queue, count, registers);
        assert_eq!(taken.len(), count);
        for posts in posters {
            let of_one: Vec<u32> = taken
                .iter()
                .copied()
                .filter(|post| posts.contains(post))
                .collect();
            assert_eq!(of_one, **posts, "each once, in its order");
        }
    });
}

#[test]
fn what_is_posted_wakes_the_task() {
    check(&[&[1]], Registers::BeforeItLooks);
    check(&[&[1, 2]], Registers::BeforeItLooks);
    check(&[&[1], &[2]], Registers::BeforeItLooks);
}

/// The search bites: a task that looks first and registers then sleeps for ever in one of the orders.
#[test]
#[should_panic(expected = "deadlock")]
fn a_task_that_registers_late_is_found() {
    check(&[&[1]], Registers::AfterItLooked);
}

/// Counts how often it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// What is posted while the queue closes is taken or dropped; nothing stays in it, whoever still holds the queue.
#[test]
fn a_post_does_not_outlive_its_queue_s_end() {
    loom::model(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let queue = Arc::new(Queue::new());
        let poster = {
            let (queue, drops) = (Arc::clone(&queue), Arc::clone(&drops));
            thread::spawn(move || {
                queue.post(Dropped(Arc::clone(&drops)));
                queue.post(Dropped(drops));
            })
        };
        drop(queue.take());
        queue.close();
        poster.join().expect("it posts");
        assert_eq!(drops.load(Ordering::SeqCst), 2);
        assert!(queue.take().is_empty());
    });
}

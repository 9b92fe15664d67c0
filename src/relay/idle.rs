//! Streams that nobody is attached to, oldest first: who pays when memory is short.
//! Law: bounded; a tick takes a few from the front and looks at no other. A stream that is read again just declines.
//! Next: `outcome.rs`, where a stream is told to let go.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::relay::mailbox::{Command, Mailbox};

/// Streams remembered. Past this, those that are gone are swept out, and then the oldest are forgotten: they pay by
/// their own expiry.
const REMEMBERED_MAX: usize = 65_536;

/// Streams told at each tick: with four ticks a second, the budget is met again within seconds, without a stall.
const TOLD_AT_ONCE: usize = 256;

/// The queue.
#[derive(Default)]
pub(crate) struct Idle {
    queue: Mutex<VecDeque<Weak<Mailbox>>>,
}

impl Idle {
    /// Nobody is attached to this stream from now on.
    pub(crate) fn add(&self, mailbox: &Arc<Mailbox>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.front().is_some_and(|oldest| oldest.strong_count() == 0) {
            queue.pop_front();
        }
        if queue.len() == REMEMBERED_MAX {
            queue.retain(|stream| stream.strong_count() > 0);
            if queue.len() == REMEMBERED_MAX {
                queue.pop_front();
            }
        }
        queue.push_back(Arc::downgrade(mailbox));
    }

    /// Tells the oldest to let go of what they hold.
    pub(crate) fn shed(&self) {
        let told: Vec<_> = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let some = queue.len().min(TOLD_AT_ONCE);
            queue.drain(..some).collect()
        };
        for mailbox in told.iter().filter_map(Weak::upgrade) {
            mailbox.post(Command::Shed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::event_id::StreamName;

    #[test]
    fn the_oldest_pay_and_the_gone_are_forgotten() {
        let idle = Idle::default();
        let streams: Vec<_> = (0..3).map(|_| Mailbox::new(StreamName::Get)).collect();
        idle.add(&Mailbox::new(StreamName::Get)); // gone at once
        for stream in &streams {
            idle.add(stream);
        }
        assert_eq!(idle.queue.lock().unwrap().len(), 3);
        idle.shed();
        for stream in &streams {
            assert!(matches!(stream.take().as_slice(), [Command::Shed]));
        }
        idle.shed();
        assert!(streams[0].take().is_empty(), "each is told once");
    }
}

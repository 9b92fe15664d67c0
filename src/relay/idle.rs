//! Streams that nobody is attached to, oldest first: who pays when memory is short.
//! Law: bounded; whoever comes here looks at a few at the front and at no other. A stream that is read again just declines.
//! Next: `outcome.rs`, where a stream is told to let go.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::relay::mailbox::{Command, Mailbox};

/// Streams remembered. Past this, the oldest is forgotten: it pays by its own expiry.
const REMEMBERED_MAX: usize = 65_536;

/// Streams that are gone and stand at the front are let go of, so many for each that comes.
const GONE_AT_ONCE: usize = 16;

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
        let gone = queue.iter().take(GONE_AT_ONCE);
        let gone = gone.take_while(|oldest| oldest.strong_count() == 0).count();
        queue.drain(..gone);
        if queue.len() == REMEMBERED_MAX {
            queue.pop_front();
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

    #[test]
    fn a_full_queue_forgets_its_oldest_and_looks_no_further() {
        let idle = Idle::default();
        let [oldest, next, many] = [(); 3].map(|()| Mailbox::new(StreamName::Get));
        idle.add(&oldest);
        idle.add(&next);
        idle.add(&Mailbox::new(StreamName::Get)); // gone, behind two that are not
        for _ in 3..REMEMBERED_MAX {
            idle.add(&many);
        }
        assert_eq!(idle.queue.lock().unwrap().len(), REMEMBERED_MAX);
        idle.add(&many);
        assert_eq!(idle.queue.lock().unwrap().len(), REMEMBERED_MAX);
        idle.shed();
        assert!(oldest.take().is_empty(), "it was forgotten");
        assert!(matches!(next.take().as_slice(), [Command::Shed]));
    }
}

//! How others speak to the task that owns a stream: what may be said, and where it is left.
//! Law: nobody but the task touches a stream's state; a command is posted, never waited for.
//! Next: `queue.rs`; `stream_task.rs`, which obeys; `sweep_task.rs`, which reminds.

use std::fmt;
use std::sync::Arc;
use std::task::Context;

use crate::pure::epoch::{Epoch, Reason, Seq};
use crate::pure::event_id::StreamName;
use crate::pure::rpc::RequestId;
use crate::relay::answer::Opening;
use crate::relay::exchange::WholeAnswer;
use crate::relay::http_sse::stream::Carried;
use crate::relay::queue::Queue;
use crate::relay::sink::{ClientSink, Receipt};
use crate::relay::turn::Waiting;

/// What a client that (re)connects presents, already known to belong to this stream or to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// No cursor (standalone GET only).
    Nothing,
    /// A position in this epoch, which was the stream's when the client was sent here.
    At(Epoch, Seq),
    /// The same POST came again: from the beginning, if it is still the same (answers to POSTs only).
    Again,
    /// A cursor that can't be honoured, for this reason (standalone GET only).
    Unusable(Reason),
}

/// What the stream answers to a client that asks.
pub(crate) enum Reply {
    /// Here is the head; bring the sink to the ticket.
    Open(Opening),
    /// Nothing follows that cursor: the stream's end was had.
    Ended,
    /// The cursor can't be honoured, for this reason, and these requests have their outcome: an error for each.
    Unmet {
        /// Why.
        reason: Reason,
        /// Those of the stream whose answer the client did not have.
        unanswered: Vec<RequestId>,
    },
    /// The cursor proves nothing, and somebody holds the stream: a connection of its own, for this reason.
    Private(Reason),
    /// The backend offers no standalone stream.
    NotOffered,
    /// The backend does not know the session.
    SessionGone,
    /// The backend does not accept the client's credential: its answer.
    Denied(WholeAnswer),
    /// The stream is no more; look again.
    Closed,
}

/// Why a session's streams are ended from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EndCause {
    /// The client deleted the session, or it expired.
    SessionOver,
    /// The backend does not know the session any more.
    SessionLost,
    /// This proxy goes away and the log with it.
    OwnerLost,
}

/// A command to a stream's task.
pub(crate) enum Command {
    /// A client (re)connects; the answer says what it will get.
    Ask {
        /// What it presents.
        asked: Asked,
        /// Who asks, and where the answer goes.
        waiting: Waiting,
    },
    /// The client that asked brings its connection.
    Attach {
        /// Which ask it belongs to.
        ask: u32,
        /// The connection.
        sink: Box<dyn ClientSink>,
    },
    /// The client that asked went away before it brought its connection.
    Abandon {
        /// Which ask it belongs to.
        ask: u32,
    },
    /// The client cancelled this request, which this stream may answer.
    Cancelled(RequestId),
    /// The backend has lost the session, which is being begun anew.
    Lost,
    /// The session stands again, elsewhere.
    Regained,
    /// The client answered a request of the backend's, perhaps one of this stream's.
    Answered(RequestId),
    /// End now.
    End(EndCause),
    /// End the client's connection with this `retry`, in milliseconds; the proxy drains.
    Drain {
        /// What the client is told to wait.
        retry_ms: u64,
    },
    /// Free the data if no client is attached; memory is short.
    Shed,
    /// What concerns one POST of an HTTP+SSE session.
    Carried(Carried),
    /// The client proved that it had the whole answer: nobody will ask for it again.
    Had,
}

/// Tells a stream that its client had all of it.
pub(crate) struct Had(pub(crate) Arc<Mailbox>);

impl Receipt for Had {
    fn had_all(self: Box<Self>) {
        self.0.post(Command::Had);
    }
}

impl fmt::Debug for Had {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Had({})", self.0.name)
    }
}

/// The queue, shared by a stream's task and everyone who speaks to it. A closed one drops what is posted: an `Ask` is
/// then answered by its dropped sender.
pub(crate) struct Mailbox {
    /// Which stream it is.
    pub(crate) name: StreamName,
    queue: Queue<Command>,
}

impl Mailbox {
    /// An empty one for this stream.
    pub(crate) fn new(name: StreamName) -> Arc<Self> {
        Arc::new(Self {
            name,
            queue: Queue::new(),
        })
    }

    /// Posts a command.
    pub(crate) fn post(&self, command: Command) {
        self.queue.post(command);
    }

    /// Wakes the task without a command: time passed.
    pub(crate) fn nudge(&self) {
        self.queue.nudge();
    }

    /// The task's side: registers its waker. Call: on the first poll; a spawned task's waker does not change.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.queue.register(cx);
    }

    /// The task's side: what was posted since the last look, oldest first.
    pub(crate) fn take(&self) -> Vec<Command> {
        self.queue.take()
    }

    /// The task's side: nothing is taken any more; what is still here is dropped.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::stream::Agent;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::sync::oneshot;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_post_wakes_the_task_and_is_taken_once() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mailbox = Mailbox::new(StreamName::Get);
        mailbox.post(Command::Had);
        mailbox.register(&Context::from_waker(&waker));
        assert!(matches!(mailbox.take().as_slice(), [Command::Had]));
        assert!(mailbox.take().is_empty());
        mailbox.post(Command::Shed);
        mailbox.post(Command::Had);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert!(matches!(mailbox.take().as_slice(), [Command::Shed, Command::Had]));
    }

    #[test]
    fn a_closed_mailbox_answers_an_ask_by_dropping_it() {
        let mailbox = Mailbox::new(StreamName::Get);
        let (reply, mut before) = oneshot::channel();
        let waiting = Waiting {
            agent: Agent::Other,
            reply,
        };
        mailbox.post(Command::Ask {
            asked: Asked::Nothing,
            waiting,
        });
        mailbox.close();
        assert!(before.try_recv().is_err());
        let (reply, mut after) = oneshot::channel();
        let waiting = Waiting {
            agent: Agent::Other,
            reply,
        };
        mailbox.post(Command::Ask {
            asked: Asked::At(Epoch::from_random(1), Seq::START),
            waiting,
        });
        assert!(after.try_recv().is_err());
    }
}

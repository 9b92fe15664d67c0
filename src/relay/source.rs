//! Where a stream's events come from: the backend's body, or the wait for one.
//! Law: a stream has at most one upstream body, and its task alone reads it.
//! A standalone stream's GET is opened again, and each re-opening is a gap; a POST stream's only as `pursue.rs` says.
//! Next: `stream_task.rs`.

use std::future::Future;
use std::pin::Pin;

use tokio::sync::futures::OwnedNotified;

use crate::net::Net;
use crate::pure::log::Millis;
use crate::pure::session::Generation;
use crate::pure::stream::admission::Refusal;
use crate::relay::exchange::WholeAnswer;
use crate::relay::upgrade::Answering;
use crate::relay::world::World;
use crate::upstream::EventBody;

/// What came of asking a backend for its standalone stream.
pub(crate) enum Opened<W: World> {
    /// It streams, in this life of the session.
    Streaming(Box<EventBody<<W::Net as Net>::Io>>, Generation),
    /// It offers no standalone stream (405).
    NotOffered,
    /// It does not know the session any more.
    SessionGone,
    /// It refuses for now: another GET stands, or it answered in some other way.
    Refused(Refusal),
    /// It does not accept the client's credential (401, 403): the client's to read.
    Denied(WholeAnswer),
    /// It could not be reached or broke before it answered.
    Unreachable,
}

/// The future of a standalone stream's upstream GET. Boxed: it is freed as soon as the answer is there.
pub(crate) type Opening<W> = Pin<Box<dyn Future<Output = Opened<W>> + Send>>;

impl<W: World> Source<W> {
    /// A GET is tried again at this time, and not before.
    pub(crate) const fn waiting(until: Millis) -> Self {
        Self::Waiting { until, back: None }
    }
}

/// Where a stream's events come from.
pub(crate) enum Source<W: World> {
    /// The backend's body.
    Reading(Box<EventBody<<W::Net as Net>::Io>>),
    /// All that matters was read; the rest is read to give the connection back, until this time.
    Draining(Box<EventBody<<W::Net as Net>::Io>>, Millis),
    /// A GET is under way.
    Opening(Opening<W>),
    /// A GET is tried again at this time, or soon after its replica is back, where that is waited for; the attempts so far
    /// set the pace.
    Waiting {
        /// When.
        until: Millis,
        /// The replica is back. Boxed: it is rare, and a stream must be small.
        back: Option<Pin<Box<OwnedNotified>>>,
    },
    /// The backend ended it to be polled: it is asked again when the client comes back, which is told to wait so long.
    Polled {
        /// How long, in milliseconds.
        retry_ms: u64,
    },
    /// A POST's exchange goes on whose answer was slow to begin, until this time: none is set while its session stands.
    Answering(Answering<W>, Millis),
    /// There is none and none will come.
    Over,
}

//! The guard's words: what a client hands over, what it may do, and how it stands.
//! Law: every answer carries its evidence; "refused" always says why.
//! Absent on purpose: what leads to which. That is `mod.rs`.
//! Next: `ledger.rs`.

use crate::pure::continuity::{Break, Evidence, Missing};
use crate::pure::epoch::{Epoch, Reason};
use crate::pure::verdict::NoVerdict;

/// One SSE event, as the client's parser gives it.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Its own `id:`; `None` if it has none. Not the id that a parser remembers from an earlier event.
    pub id: Option<&'a [u8]>,
    /// Its type; empty means `message`.
    pub kind: &'a [u8],
    /// Its data; empty for priming events.
    pub data: &'a [u8],
    /// What running it twice would do. Only the client can know.
    pub effect: Effect<'a>,
}

/// What running an event twice would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect<'a> {
    /// The same as running it once: `…/list_changed`, `resources/updated`, whatever only says "read again".
    Repeatable,
    /// More than once, and this key tells this effect from every other: an order's number, a request's id.
    Keyed(&'a [u8]),
    /// More than once, and nothing tells it apart.
    Unkeyed,
}

/// What to do with an event that is not refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admit {
    /// Run it.
    Run,
    /// A priming event: it moves the cursor and says nothing else.
    Primed,
    /// The proxy says that continuity is lost: read the state again, then call [`super::Guard::reread`].
    Reset {
        /// Why.
        reason: Reason,
        /// The epoch that goes on from here.
        epoch: Epoch,
    },
    /// Step over it: it is the very event that the client stands at.
    Had,
    /// Step over it: the ledger says that its effect was had.
    Applied,
}

/// An event that must not be run, and why. Report it: nobody else knows that it was not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Violation {
    /// The stream began anew, and the event has no key: it may have run before. Read the state again.
    Unkeyed(Cause),
    /// The stream began anew, and the ledger can't tell whether the event ran before. Read the state again.
    Untold(Cause),
    /// Whether the stream goes on can't be known. Nothing of it may run until the state was read again.
    Unverifiable(Doubt),
}

/// What proves that the stream began anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The proxy said so.
    Told(Reason),
    /// The ids show it.
    Seen(Break),
}

/// Why it can't be known whether a stream goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Doubt {
    /// Evidence is missing.
    Missing(Missing),
    /// No connection was announced: call [`super::Guard::connected`] or [`super::Guard::began`] first.
    NotConnected,
    /// The verdict can't be read.
    Header(NoVerdict),
    /// The verdict answers something else than what was asked: `live` to a cursor, or `resumed` without one.
    NotWhatWasAsked,
    /// The verdict and the first id contradict each other.
    Contradiction,
    /// An `event: reset` that can't be read.
    Notice,
}

/// Where the client stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing speaks against what comes: it runs.
    Continuous(Ground),
    /// The stream began anew.
    Reoriginated(Cause),
    /// It can't be known.
    Unverifiable(Doubt),
}

/// Why events may run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// The proxy says that nothing was written on this stream before: `live`.
    Live,
    /// The client knows that the stream began with this connection: the answer to its own POST.
    Began,
    /// The stream goes on where the client left it.
    Resumed(Evidence),
    /// The client has read its state again since.
    Reread,
}

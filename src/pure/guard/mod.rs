//! What a client may do with an event after a reconnect: run it, step over it, or refuse it aloud.
//! Law: resumed events run; re-originated ones run only if they can't have run before; unverifiable ones never run.
//! Absent on purpose: sockets and SSE parsing. The client feeds what it read; the guard says what may be done with it.
//! Why typed refusals: an event that was not run and not reported is a silent loss made by the client itself.
//! Next: `words.rs`, then `ledger.rs`.
#![doc = include_str!("clients.md")]
#![doc = "\n# The same check in JavaScript\n\n```javascript"]
#![doc = include_str!("../../../examples/aware.mjs")]
#![doc = "```\n\n# The same check in Python\n\n```python"]
#![doc = include_str!("../../../examples/aware.py")]
#![doc = "```"]

use crate::pure::epoch::{Epoch, Reason, Seq};
use crate::pure::rpc;

mod ledger;
mod words;

pub use crate::pure::continuity::{
    Break, Continuity, Evidence, First, Missing, Observation, Place, Point, Window, classify,
};
pub use crate::pure::verdict::{FIELD, NoVerdict, Verdict};
pub use ledger::{Claim, Ledger, MemoryLedger, NoLedger};
pub use words::{Admit, Cause, Doubt, Effect, Event, Ground, Standing, Violation};

/// A connection that has not shown its first id yet.
#[derive(Clone, Copy, Debug)]
struct Opening {
    window: Window,
    /// What the verdict said: the epoch, and the position that was presented.
    said: Option<(Epoch, u64)>,
}

/// Guards one stream of a session.
///
/// *Call* [`Guard::connected`] for each connection, then [`Guard::event`] for each event of it. *Next*: run what is
/// admitted, report what is refused; present [`Guard::cursor`] as `Last-Event-ID` when the connection is lost.
///
/// That a stream began anew, or can't be verified, stays so over reconnects until [`Guard::reread`]: what the client
/// holds is no prefix of what comes, and no later evidence changes that.
#[derive(Clone, Debug)]
pub struct Guard<L = NoLedger> {
    ledger: L,
    standing: Standing,
    opening: Option<Opening>,
    /// The newest id that was admitted.
    cursor: Option<Box<[u8]>>,
    /// The newest id of this connection.
    seen: Option<Box<[u8]>>,
}

impl<L: Ledger> Guard<L> {
    /// A guard of a stream of which nothing was read yet.
    pub fn new(ledger: L) -> Self {
        Self {
            ledger,
            standing: Standing::Unverifiable(Doubt::NotConnected),
            opening: None,
            cursor: None,
            seen: None,
        }
    }

    /// A guard of a stream that was read before, up to this cursor, which the client has kept.
    pub fn from_cursor(ledger: L, cursor: &[u8]) -> Self {
        Self {
            cursor: Some(cursor.into()),
            ..Self::new(ledger)
        }
    }

    /// What to present as `Last-Event-ID`; `None`: no header at all.
    pub fn cursor(&self) -> Option<&[u8]> {
        self.cursor.as_deref()
    }

    /// Where the client stands, as far as it is known. After [`Guard::connected`] with a cursor, the first id decides.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// The ledger, to give a key back whose event could not be run after all.
    pub const fn ledger_mut(&mut self) -> &mut L {
        &mut self.ledger
    }

    /// The stream begins with this connection, as the client knows by itself: the answer to a POST that it just sent,
    /// from a server that says no verdict.
    pub fn began(&mut self) {
        self.begin(Standing::Continuous(Ground::Began));
    }

    /// A connection was answered. `verdict` is the field `Throughline-Continuity` of the answer, if it has one.
    /// [`Guard::cursor`] must have been presented on it.
    pub fn connected(&mut self, verdict: Option<&str>) {
        self.seen = None;
        self.opening = None;
        let said = verdict.map(Verdict::parse);
        let asked = self.cursor.is_some();
        match (asked, said) {
            (_, Some(Ok(Verdict::Reset { reason, .. }))) => {
                self.settle(Standing::Reoriginated(Cause::Told(reason)));
            }
            (_, Some(Err(why @ (NoVerdict::Malformed | NoVerdict::Several)))) => {
                self.settle(Standing::Unverifiable(Doubt::Header(why)));
            }
            (false, Some(Ok(Verdict::Live { .. }))) => self.begin(Standing::Continuous(Ground::Live)),
            (false, Some(Ok(Verdict::Resumed { .. }))) | (true, Some(Ok(Verdict::Live { .. }))) => {
                self.settle(Standing::Unverifiable(Doubt::NotWhatWasAsked));
            }
            (false, None | Some(Err(NoVerdict::Absent))) => {
                self.settle(Standing::Unverifiable(Doubt::Missing(Missing::Request)));
            }
            (
                true,
                Some(Ok(Verdict::Resumed {
                    epoch, from, window, ..
                })),
            ) => {
                let window = match window {
                    0 => Window::Undeclared,
                    1.. => Window::Declared,
                };
                let said = Some((epoch, from));
                self.opening = Some(Opening { window, said });
            }
            (true, None | Some(Err(NoVerdict::Absent))) => {
                let window = Window::Undeclared;
                self.opening = Some(Opening { window, said: None });
            }
        }
    }

    /// What to do with an event.
    ///
    /// # Errors
    /// [`Violation`]: it must not be run. The cursor does not move past it. [`Violation::Unverifiable`] is answered to
    /// every later event too, until [`Guard::reread`].
    pub fn event(&mut self, event: Event<'_>) -> Result<Admit, Violation> {
        let first = first_of(&event);
        let notice = (event.kind == b"reset").then(|| reset_in(event.data));
        let had = match self.opening.take() {
            Some(opening) => self.open(opening, first),
            None => self.follow(first, &notice),
        };
        if let Some(id) = event.id {
            self.seen = Some(id.into());
        }
        let admit = match (notice, had, first) {
            (Some(Some((reason, epoch))), _, _) => {
                self.settle(Standing::Reoriginated(Cause::Told(reason)));
                Admit::Reset { reason, epoch }
            }
            (Some(None), _, _) => {
                self.settle(Standing::Unverifiable(Doubt::Notice));
                self.admit(event.effect)?
            }
            (None, Had::Yes, _) => Admit::Had,
            (None, Had::No, First::Cursor(_)) => Admit::Primed,
            (None, Had::No, First::Event(_) | First::Nothing) => self.admit(event.effect)?,
        };
        match (self.standing, event.id) {
            // A position of a stream that nothing is known of is no place to go on from.
            (Standing::Unverifiable(_), _) | (_, None) => {}
            (Standing::Continuous(_) | Standing::Reoriginated(_), Some(id)) => self.cursor = Some(id.into()),
        }
        Ok(admit)
    }

    /// The client has read again, on this connection or before it, all state that it builds from this stream. What
    /// comes from here on runs.
    pub fn reread(&mut self) {
        self.standing = Standing::Continuous(Ground::Reread);
        if let Some(id) = self.seen.take() {
            self.cursor = Some(id.clone());
            self.seen = Some(id);
        }
    }

    fn begin(&mut self, standing: Standing) {
        self.seen = None;
        self.opening = None;
        match self.standing {
            Standing::Unverifiable(Doubt::NotConnected) | Standing::Continuous(_) => self.standing = standing,
            Standing::Reoriginated(_) | Standing::Unverifiable(_) => {}
        }
    }

    /// Takes a new standing, unless a graver one is not settled yet.
    fn settle(&mut self, to: Standing) {
        let gravity = |standing| match standing {
            Standing::Unverifiable(Doubt::NotConnected) | Standing::Continuous(_) => 0,
            Standing::Reoriginated(_) => 1,
            Standing::Unverifiable(_) => 2,
        };
        if gravity(to) >= gravity(self.standing) {
            self.standing = to;
        }
    }

    /// The first id of a connection on which a cursor was presented.
    fn open(&mut self, opening: Opening, first: First<'_>) -> Had {
        let requested = self.cursor.as_deref().and_then(point_of);
        let verdict = classify(Observation {
            requested,
            first,
            window: opening.window,
        });
        match verdict {
            Continuity::Resumed(_) if !agrees(opening, requested) => {
                self.settle(Standing::Unverifiable(Doubt::Contradiction));
                Had::No
            }
            Continuity::Resumed(evidence) => {
                self.settle(Standing::Continuous(Ground::Resumed(evidence)));
                match evidence {
                    Evidence::SameEvent => Had::Yes,
                    Evidence::SameCursor | Evidence::NextEvent(_) => Had::No,
                }
            }
            Continuity::Reoriginated(broken) => {
                self.settle(Standing::Reoriginated(Cause::Seen(broken)));
                Had::No
            }
            Continuity::Unverifiable(missing) => {
                self.settle(Standing::Unverifiable(Doubt::Missing(missing)));
                Had::No
            }
        }
    }

    /// An id that comes behind another one on the same connection, or first on one that asked for nothing.
    fn follow(&mut self, came: First<'_>, notice: &Option<Notice>) -> Had {
        let before = match (self.seen.as_deref(), self.standing) {
            (Some(seen), _) => point_of(seen),
            // Nothing was written before: a dense stream begins with 1.
            (None, Standing::Continuous(Ground::Live)) => came.point().map(|point| Point {
                place: Place::Dense(Seq::START),
                ..point
            }),
            (None, Standing::Continuous(_) | Standing::Reoriginated(_) | Standing::Unverifiable(_)) => None,
        };
        let seen = Observation {
            requested: before,
            first: came,
            window: Window::Declared,
        };
        match classify(seen) {
            Continuity::Resumed(Evidence::SameEvent) => Had::Yes,
            Continuity::Resumed(Evidence::SameCursor | Evidence::NextEvent(_)) => Had::No,
            // A reset is told in the epoch that goes on from it.
            Continuity::Reoriginated(_) if notice.is_some() => Had::No,
            Continuity::Reoriginated(broken) => {
                self.settle(Standing::Reoriginated(Cause::Seen(broken)));
                Had::No
            }
            // Within one connection bytes come in order: opaque ids need no proof there.
            Continuity::Unverifiable(_) => Had::No,
        }
    }

    fn admit(&mut self, effect: Effect<'_>) -> Result<Admit, Violation> {
        match (self.standing, effect) {
            (Standing::Continuous(_), Effect::Keyed(key)) => {
                // It runs whatever the ledger says; the ledger shall know of it.
                self.ledger.record(key);
                Ok(Admit::Run)
            }
            (Standing::Continuous(_), Effect::Repeatable | Effect::Unkeyed)
            | (Standing::Reoriginated(_), Effect::Repeatable) => Ok(Admit::Run),
            (Standing::Reoriginated(cause), Effect::Unkeyed) => Err(Violation::Unkeyed(cause)),
            (Standing::Reoriginated(cause), Effect::Keyed(key)) => match self.ledger.claim(key) {
                Claim::New => Ok(Admit::Run),
                Claim::Applied => Ok(Admit::Applied),
                Claim::Unknown => Err(Violation::Untold(cause)),
            },
            (Standing::Unverifiable(doubt), _) => Err(Violation::Unverifiable(doubt)),
        }
    }
}

/// What an `event: reset` says; `None` if it can't be read.
type Notice = Option<(Reason, Epoch)>;

/// Whether the client has this event already.
enum Had {
    Yes,
    No,
}

/// What an event's id is. An id of another server is compared for equality only.
fn first_of<'a>(event: &Event<'a>) -> First<'a> {
    let Some(id) = event.id.filter(|id| !id.is_empty()) else {
        return First::Nothing;
    };
    First::of_event_id(id).unwrap_or_else(|| match event.data {
        [] => First::Cursor(opaque(id)),
        [..] => First::Event(opaque(id)),
    })
}

fn point_of(id: &[u8]) -> Option<Point<'_>> {
    match First::of_event_id(id) {
        Some(first) => first.point(),
        None => Some(opaque(id)),
    }
}

fn opaque(id: &[u8]) -> Point<'_> {
    Point {
        generation: None,
        place: Place::Opaque(id),
    }
}

/// Whether the verdict speaks of the cursor that was presented.
fn agrees(opening: Opening, requested: Option<Point<'_>>) -> bool {
    let (Some((epoch, from)), Some(asked)) = (opening.said, requested) else {
        return true;
    };
    let of_epoch = asked.generation.and_then(|prefix| prefix.get(1..12));
    of_epoch == Some(epoch.spelled().as_bytes()) && asked.place == Place::Dense(Seq::new(from))
}

/// What an `event: reset` says (wire contract, section 6).
fn reset_in(data: &[u8]) -> Notice {
    let reason = rpc::text(rpc::lookup(data, &["params", "reason"])?)?;
    let epoch = rpc::text(rpc::lookup(data, &["params", "epoch"])?)?;
    Some((Reason::named(&reason)?, Epoch::parse(&epoch)?))
}

#[cfg(test)]
mod tests;

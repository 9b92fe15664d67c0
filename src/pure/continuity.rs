//! What a reader of a stream may conclude from a reconnect. For authors of clients, and for our own pump.
//! Law: positive evidence, or not resumed. That nothing spoke against it is no evidence (wire contract, section 1).
//! Absent on purpose: what to do then. A reader that can't call a stream resumed reads its state again.
//! Why three answers: a reader that takes "can't be known" for "resumed" loses silently, one that takes it for
//! "started over" tells its user of losses that nobody saw.
//! Next: `overlap.rs`.

use crate::pure::epoch::Seq;
use crate::pure::event_id::{EventId, Mark};

/// Where in a stream an id stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place<'a> {
    /// A position counted densely from 1, as in throughline's ids.
    Dense(Seq),
    /// An id that says nothing of its neighbours. It is compared for equality, never as a number.
    Opaque(&'a [u8]),
}

/// An id, as far as a reader can tell what it says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point<'a> {
    /// The unbroken life of the stream that the id belongs to; `None` (or empty) if ids of this server don't tell.
    pub generation: Option<&'a [u8]>,
    /// Where in it.
    pub place: Place<'a>,
}

/// The first id that came after the reconnect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum First<'a> {
    /// None came yet.
    Nothing,
    /// A priming id: it names the position from which the connection goes on.
    Cursor(Point<'a>),
    /// The id of an event.
    Event(Point<'a>),
}

/// Whether the server says that it holds the events themselves for replay, and not only a counter: `window=…` in
/// `Throughline-Continuity`, or what its documentation promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Window {
    /// It does.
    Declared,
    /// Nothing is known of it.
    Undeclared,
}

/// What a reader saw of a reconnect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Observation<'a> {
    /// The id that it presented as `Last-Event-ID`.
    pub requested: Option<Point<'a>>,
    /// The first id that it got.
    pub first: First<'a>,
    /// Whether a window is declared.
    pub window: Window,
}

/// What the reader may conclude.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Continuity {
    /// The stream goes on exactly where the reader left it.
    Resumed(Evidence),
    /// The stream does not go on where the reader left it.
    Reoriginated(Break),
    /// It can't be known. Not resumed.
    Unverifiable(Missing),
}

/// What proves that a stream goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evidence {
    /// The connection was primed with the very position that was asked for.
    SameCursor,
    /// The event that was asked for came again; the reader has it already and drops it.
    SameEvent,
    /// The event that follows directly came.
    NextEvent(Seq),
}

/// What proves that a stream does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Break {
    /// The id belongs to another life of the stream, or to another stream.
    OtherGeneration,
    /// Events are missing between the position asked for and the first one that came.
    Skipped {
        /// How many.
        missing: u64,
    },
    /// The position lies before the one asked for: what the reader has comes again, or its numbers are used twice.
    WentBack {
        /// The position that came.
        seen: Seq,
    },
}

/// What is missing for a conclusion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Missing {
    /// Nothing was asked for, so there is nothing to go on from.
    Request,
    /// No id came yet.
    FirstId,
    /// One of the ids does not tell its generation. An unknown one matches nothing.
    Generation,
    /// No window is declared: the next number may come from a counter that outlived the events.
    Window,
    /// The ids differ, and nothing says whether one follows the other.
    Order,
}

impl<'a> First<'a> {
    /// Reads one of throughline's event ids. `None` if it is none.
    ///
    /// The generation is everything before the position: it names the stream as well as its life, so an id of
    /// another stream never continues this one. The proof that the id is genuine is the proxy's business.
    pub fn of_event_id(id: &'a [u8]) -> Option<Self> {
        let parsed = EventId::decode(id).ok()?;
        let dot = memchr::memrchr(b'.', id)?;
        let point = Point {
            generation: Some(&id[..dot]),
            place: Place::Dense(parsed.seq),
        };
        Some(match parsed.mark {
            Mark::Prime(_) => Self::Cursor(point),
            Mark::Event | Mark::End => Self::Event(point),
        })
    }

    /// The id itself, whatever kind it is: what a reader presents later.
    pub const fn point(self) -> Option<Point<'a>> {
        match self {
            Self::Nothing => None,
            Self::Cursor(point) | Self::Event(point) => Some(point),
        }
    }
}

/// What a reader may conclude from a reconnect (wire contract, sections 1 and 4).
///
/// Resumed takes all three: both ids in one generation, a first id that follows from the one asked for, and a
/// declared window. A break needs only itself.
///
/// # Example
/// A client holds the id of the last event that it handled, reconnects with it, and looks at the first id that comes:
/// ```
/// use throughline::pure::continuity::{Continuity, Evidence, First, Observation, Window, classify};
///
/// let had = b"aASNFZ4mrze8.g.AAAAAAAAAAAAAAAA.41";
/// let first = b"aASNFZ4mrze8.g.AAAAAAAAAAAAAAAA.41-k3"; // a priming id: "I go on from 41"
/// let seen = Observation {
///     requested: First::of_event_id(had).and_then(First::point),
///     first: First::of_event_id(first).unwrap_or(First::Nothing),
///     window: Window::Declared, // the answer had `Throughline-Continuity: resumed; window=1024; …`
/// };
/// assert_eq!(classify(seen), Continuity::Resumed(Evidence::SameCursor));
///
/// // The proxy began a new life of the stream meanwhile: what was held is not a prefix of what comes.
/// let first = b"aAAAAAAAAAAA.g.AAAAAAAAAAAAAAAA.42";
/// let seen = Observation { first: First::of_event_id(first).unwrap_or(First::Nothing), ..seen };
/// assert!(matches!(classify(seen), Continuity::Reoriginated(_)));
/// ```
pub fn classify(seen: Observation<'_>) -> Continuity {
    let Some(asked) = seen.requested else {
        return Continuity::Unverifiable(Missing::Request);
    };
    let Some(came) = seen.first.point() else {
        return Continuity::Unverifiable(Missing::FirstId);
    };
    match (named(asked.generation), named(came.generation)) {
        (Some(asked), Some(came)) if asked != came => {
            return Continuity::Reoriginated(Break::OtherGeneration);
        }
        (Some(_), Some(_)) => {}
        (None, _) | (Some(_), None) => return Continuity::Unverifiable(Missing::Generation),
    }
    match order(asked.place, came.place, seen.first) {
        Continuity::Resumed(_) if seen.window == Window::Undeclared => {
            Continuity::Unverifiable(Missing::Window)
        }
        verdict => verdict,
    }
}

/// An empty name is none: it would match every other server that leaves it empty.
fn named(generation: Option<&[u8]>) -> Option<&[u8]> {
    generation.filter(|name| !name.is_empty())
}

/// The verdict within one generation, a window supposed.
fn order(asked: Place<'_>, came: Place<'_>, first: First<'_>) -> Continuity {
    let same = match first {
        First::Event(_) => Evidence::SameEvent,
        First::Cursor(_) | First::Nothing => Evidence::SameCursor,
    };
    match (asked, came) {
        (asked, came) if asked == came => Continuity::Resumed(same),
        (Place::Dense(asked), Place::Dense(came)) if came < asked => {
            Continuity::Reoriginated(Break::WentBack { seen: came })
        }
        (Place::Dense(asked), Place::Dense(came)) => match (first, came.since(asked)) {
            (First::Event(_), 1) => Continuity::Resumed(Evidence::NextEvent(came)),
            (First::Event(_), ahead) => Continuity::Reoriginated(Break::Skipped { missing: ahead - 1 }),
            (First::Cursor(_) | First::Nothing, missing) => {
                Continuity::Reoriginated(Break::Skipped { missing })
            }
        },
        (Place::Dense(_) | Place::Opaque(_), Place::Dense(_) | Place::Opaque(_)) => {
            Continuity::Unverifiable(Missing::Order)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: &[u8] = b"g";
    const H: &[u8] = b"h";

    fn dense(generation: &'static [u8], seq: u64) -> Point<'static> {
        Point {
            generation: Some(generation),
            place: Place::Dense(Seq::new(seq)),
        }
    }

    fn opaque(generation: Option<&'static [u8]>, id: &'static [u8]) -> Point<'static> {
        Point {
            generation,
            place: Place::Opaque(id),
        }
    }

    fn check(requested: Option<Point<'_>>, first: First<'_>, with_window: Continuity, without: Continuity) {
        for (window, verdict) in [(Window::Declared, with_window), (Window::Undeclared, without)] {
            let seen = Observation {
                requested,
                first,
                window,
            };
            assert_eq!(classify(seen), verdict, "{seen:?}");
        }
    }

    const NO_WINDOW: Continuity = Continuity::Unverifiable(Missing::Window);

    #[test]
    fn positive_evidence_is_resumed() {
        for (asked, first, evidence) in [
            (dense(G, 5), First::Cursor(dense(G, 5)), Evidence::SameCursor),
            (dense(G, 0), First::Cursor(dense(G, 0)), Evidence::SameCursor),
            (
                dense(G, 5),
                First::Event(dense(G, 6)),
                Evidence::NextEvent(Seq::new(6)),
            ),
            (
                dense(G, 0),
                First::Event(dense(G, 1)),
                Evidence::NextEvent(Seq::new(1)),
            ),
            (dense(G, 5), First::Event(dense(G, 5)), Evidence::SameEvent),
            (
                opaque(Some(G), b"x"),
                First::Event(opaque(Some(G), b"x")),
                Evidence::SameEvent,
            ),
            (
                opaque(Some(G), b"x"),
                First::Cursor(opaque(Some(G), b"x")),
                Evidence::SameCursor,
            ),
        ] {
            check(Some(asked), first, Continuity::Resumed(evidence), NO_WINDOW);
        }
    }

    #[test]
    fn proof_of_a_break_needs_no_window() {
        let missing = |missing| Break::Skipped { missing };
        let back = |seen| Break::WentBack { seen: Seq::new(seen) };
        for (asked, first, broken) in [
            // The counter of the new life has passed the cursor of the old one: numbers alone would look right.
            (dense(G, 50), First::Event(dense(H, 51)), Break::OtherGeneration),
            (dense(G, 50), First::Cursor(dense(H, 50)), Break::OtherGeneration),
            (
                opaque(Some(G), b"x"),
                First::Event(opaque(Some(H), b"x")),
                Break::OtherGeneration,
            ),
            (dense(G, 5), First::Event(dense(G, 7)), missing(1)),
            (
                dense(G, 0),
                First::Event(dense(G, u64::MAX)),
                missing(u64::MAX - 1),
            ),
            (dense(G, 5), First::Cursor(dense(G, 6)), missing(1)),
            (dense(G, 0), First::Cursor(dense(G, u64::MAX)), missing(u64::MAX)),
            (dense(G, 5), First::Event(dense(G, 4)), back(4)),
            (dense(G, u64::MAX), First::Event(dense(G, 1)), back(1)),
            (dense(G, 5), First::Cursor(dense(G, 0)), back(0)),
        ] {
            let verdict = Continuity::Reoriginated(broken);
            check(Some(asked), first, verdict, verdict);
        }
    }

    #[test]
    fn what_can_not_be_known_is_not_resumed() {
        let nameless = Point {
            generation: None,
            place: Place::Dense(Seq::new(5)),
        };
        for (asked, first, missing) in [
            (None, First::Event(dense(G, 1)), Missing::Request),
            (None, First::Nothing, Missing::Request),
            (Some(dense(G, 5)), First::Nothing, Missing::FirstId),
            (Some(nameless), First::Event(dense(G, 6)), Missing::Generation),
            (Some(dense(G, 5)), First::Cursor(nameless), Missing::Generation),
            (Some(nameless), First::Cursor(nameless), Missing::Generation),
            (
                Some(dense(b"", 5)),
                First::Event(dense(b"", 6)),
                Missing::Generation,
            ),
            (
                Some(dense(G, 5)),
                First::Event(dense(b"", 6)),
                Missing::Generation,
            ),
            (
                Some(opaque(None, b"x")),
                First::Event(opaque(None, b"x")),
                Missing::Generation,
            ),
            (
                Some(opaque(Some(G), b"x")),
                First::Event(opaque(Some(G), b"y")),
                Missing::Order,
            ),
            (
                Some(dense(G, 5)),
                First::Event(opaque(Some(G), b"6")),
                Missing::Order,
            ),
            (
                Some(opaque(Some(G), b"5")),
                First::Event(dense(G, 6)),
                Missing::Order,
            ),
        ] {
            let verdict = Continuity::Unverifiable(missing);
            check(asked, first, verdict, verdict);
        }
    }

    #[test]
    fn our_own_ids_can_be_read() {
        let prefix = "aASNFZ4mrze8.pi7.AAAAAAAAAAAAAAAA";
        let read = |tail: &str| {
            let id = format!("{prefix}.{tail}");
            let (kind, point) = match First::of_event_id(id.as_bytes())? {
                First::Nothing => return None,
                First::Cursor(point) => ("cursor", point),
                First::Event(point) => ("event", point),
            };
            assert_eq!(point.generation, Some(prefix.as_bytes()));
            match point.place {
                Place::Dense(seq) => Some((kind, seq.get())),
                Place::Opaque(_) => None,
            }
        };
        assert_eq!(read("41"), Some(("event", 41)));
        assert_eq!(read("41~"), Some(("event", 41)));
        assert_eq!(read("41-k3"), Some(("cursor", 41)));
        assert_eq!(read("0-k3"), Some(("cursor", 0)));
        assert_eq!(read("0"), None);
        assert_eq!(First::of_event_id(b""), None);
    }
}

//! The proof by overlap: whether a backend's stream that was asked again goes on where it broke.
//! Law: asked from the oldest id still held, every held event must come again, same id and same data, in order,
//! nothing between (wire contract, section 8). What follows is new, and told once a second asking has shown it too
//! (`twice.rs`). What proves nothing is never called continued.
//! Why data and not only ids: backends number several streams alike, and a fresh counter may align with an old one.
//! Absent on purpose: time. Who asks gives it up when the proof is not whole in time.
//! Next: `resume.rs`.

use sha2::{Digest as _, Sha256};

use crate::pure::continuity::{Continuity, First, Observation, Place, Point, Window, classify};
use crate::pure::epoch::Reason;
use crate::pure::limits::SHOWN_EVENTS_MAX;
use crate::pure::rpc;
use crate::pure::stream::life::backend_ping;
use crate::pure::stream::trail::Stand;
use crate::pure::twice::{Seen, Twice};

/// What an event says, told in 32 bytes: two events of one digest say the same. Of JSON it is the value that counts,
/// not its spelling: some servers keep values, and write them anew when they are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of an event's data.
    pub fn of(data: &[u8]) -> Self {
        let spelled = rpc::canonical(data);
        Self(Sha256::digest(spelled.as_deref().unwrap_or(data)).into())
    }
}

/// What a re-attached stream of a backend turned out to be (wire contract, section 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    /// Not everything that must come has come.
    Pending,
    /// Everything held came again, and everything that an earlier asking showed.
    Whole,
    /// The overlap did not come whole: something is missing in it, or nothing that is held could prove it.
    Incomplete,
    /// It began with something else: the backend started over.
    Other,
}

impl Proof {
    /// The reason that clients are told, if the stream does not go on.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Pending | Self::Whole => None,
            Self::Incomplete => Some(Reason::UpstreamGap),
            Self::Other => Some(Reason::BackendRestarted),
        }
    }
}

/// An event that the log holds: the backend's id of it, and what it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The id.
    pub id: Box<[u8]>,
    /// The data.
    pub said: Digest,
}

/// What is done with a block of a stream that is to be proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// It is left out: the log holds it, or it proves that the stream is another.
    Nothing,
    /// It is left out: the next asking shows it again, in its place.
    Later,
    /// It is new, and next: the proof was whole before it, and the last asking showed it too.
    News,
}

/// What the askings of one break leave to the next one.
#[derive(Clone, Default, Debug)]
pub struct Left {
    /// What they showed and nobody was given, oldest first.
    shown: Vec<Held>,
    /// What was taken and stands in no log: it may come again, and says nothing.
    aside: Vec<Held>,
}

/// Whether a store is known to give events back in another order than that in which they were sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// It is not known to.
    Kept,
    /// Events of one millisecond come back in any order, or not at all behind one of them.
    Random,
}

impl Order {
    /// What is known of a store with such ids. Those of the example store of the TypeScript SDK end with a time and
    /// chance (`_1700000000000_k3x9q2ab`) and are sorted as texts. What relies on their order proves nothing.
    pub fn of(id: &[u8]) -> Self {
        let mut parts = id.rsplit(|byte| *byte == b'_');
        let (chance, time) = (parts.next(), parts.next());
        let is_chance =
            chance.is_some_and(|text| !text.is_empty() && text.iter().all(u8::is_ascii_alphanumeric));
        let is_time =
            time.is_some_and(|text| text.len() == TIME_DIGITS && text.iter().all(u8::is_ascii_digit));
        if is_chance && is_time {
            Self::Random
        } else {
            Self::Kept
        }
    }
}

/// Digits of a time in milliseconds, from 2001 to 2286.
const TIME_DIGITS: usize = 13;

/// One proof. Call: [`Overlap::take`] for each block, then [`Overlap::proof`]. Next: [`Overlap::left`], for the next
/// asking; nothing once it failed: it stays so.
#[derive(Clone, Debug)]
pub struct Overlap {
    held: Vec<Held>,
    /// The first that has not come.
    next: usize,
    /// Whether the first may be left out: it is the event that was asked from.
    asked: Stand,
    /// How the overlap itself stands.
    proof: Proof,
    behind: Twice,
    aside: Vec<Held>,
    cursors: Cursors,
}

/// Whether a connection brought an id without an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursors {
    /// None.
    None,
    /// Some: the backend primed the connection.
    Some,
}

impl Overlap {
    /// A stream that was asked from an id that stands on this, and must say these again. If that is the first of them,
    /// the backend may begin behind it, unless it is the only one: then nothing else could prove anything.
    ///
    /// Without any, nothing was had since the cursor, so nothing can be missing: asking from a priming event is no gap.
    pub fn new(asked: Stand, held: Vec<Held>, left: Left) -> Self {
        let proof = if held.is_empty() {
            Proof::Whole
        } else {
            Proof::Pending
        };
        Self {
            held,
            next: 0,
            asked,
            proof,
            behind: Twice::new(left.shown),
            aside: left.aside,
            cursors: Cursors::None,
        }
    }

    /// An id came without an event. It is nothing to ask from: a backend may have stored something before it that it
    /// will never send.
    pub const fn cursor(&mut self) {
        self.cursors = Cursors::Some;
    }

    /// Whether such an id came.
    pub const fn cursors(&self) -> Cursors {
        self.cursors
    }

    /// How it stands.
    pub const fn proof(&self) -> Proof {
        match self.proof {
            Proof::Whole if !self.behind.is_whole() => Proof::Pending,
            proof => proof,
        }
    }

    /// Whether a part of what must come has come.
    pub const fn has_begun(&self) -> bool {
        self.next > 0 || self.behind.has_begun()
    }

    /// Whether it showed what only another asking can confirm.
    pub const fn has_shown(&self) -> bool {
        self.behind.has_shown()
    }

    /// What the next asking must know of this one.
    pub fn left(self) -> Left {
        Left {
            shown: self.behind.rest(),
            aside: self.aside,
        }
    }

    /// What was news last went into no log: if it comes again, it is no event. More of these than
    /// [`SHOWN_EVENTS_MAX`] are not remembered, and nothing is proved any more.
    pub fn left_out(&mut self) {
        match self.behind.newest() {
            Some(newest) if self.aside.len() < SHOWN_EVENTS_MAX => self.aside.push(newest.clone()),
            Some(_) | None => self.proof = Proof::Incomplete,
        }
    }

    /// Takes a block of the stream: its id and its data, `None` or empty for a cursor, which is never an event.
    pub fn take(&mut self, id: Option<&[u8]>, data: &[u8]) -> Said {
        match self.proof {
            Proof::Incomplete | Proof::Other => return Said::Nothing,
            Proof::Pending | Proof::Whole => {}
        }
        if data.is_empty() {
            return Said::Nothing;
        }
        let said = Digest::of(data);
        if self.aside.iter().any(|aside| continues(aside, id, &said)) {
            return Said::Nothing;
        }
        if self.proof == Proof::Whole {
            return self.take_behind(id, said);
        }
        let is = |nth: usize| self.held.get(nth).is_some_and(|held| continues(held, id, &said));
        let skips = self.next == 0 && self.asked == Stand::Event;
        if is(self.next) {
            self.next += 1;
        } else if skips && is(1) {
            self.next = 2;
        } else if backend_ping(&rpc::classify_event(data)).is_some() {
            // One that the proxy answered itself is not in the log. It says nothing, so nothing is lost with it.
        } else {
            self.proof = if self.next > 0 || (skips && self.held.len() == 1) {
                Proof::Incomplete
            } else {
                Proof::Other
            };
        }
        if self.next == self.held.len() {
            self.proof = Proof::Whole;
        }
        Said::Nothing
    }

    /// Takes an event behind the overlap.
    fn take_behind(&mut self, id: Option<&[u8]>, said: Digest) -> Said {
        if let Some(twin) = self.held.iter().find(|held| Some(&*held.id) == id) {
            if twin.said != said {
                self.proof = Proof::Other;
            }
            return Said::Nothing;
        }
        match self.behind.take(id, said) {
            Seen::Again => Said::News,
            Seen::First => Said::Later,
            Seen::Repeated => Said::Nothing,
            Seen::Amiss => {
                self.proof = Proof::Incomplete;
                Said::Nothing
            }
        }
    }
}

/// Whether an event is the very one that is held. What an id says besides itself is told by its data: a backend that
/// gives one id to two things lives in another life.
fn continues(held: &Held, id: Option<&[u8]>, said: &Digest) -> bool {
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return false;
    };
    let seen = Observation {
        requested: Some(Point {
            generation: Some(&held.said.0),
            place: Place::Opaque(&held.id),
        }),
        first: First::Event(Point {
            generation: Some(&said.0),
            place: Place::Opaque(id),
        }),
        // The events themselves came.
        window: Window::Declared,
    };
    match classify(seen) {
        Continuity::Resumed(_) => true,
        Continuity::Reoriginated(_) | Continuity::Unverifiable(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `held`: `id=data …`; `comes`: the same, `id=` for a cursor, `=data` for an event without an id. What is new is
    /// told by a second asking that says the same.
    fn check(asked: Stand, held: &str, comes: &str, expected: Proof, news: &str) {
        let held: Vec<Held> = held
            .split_whitespace()
            .map(|event| {
                let (id, data) = event.split_once('=').expect("id=data");
                Held {
                    id: id.as_bytes().into(),
                    said: Digest::of(data.as_bytes()),
                }
            })
            .collect();
        let mut told = Vec::new();
        let mut overlap = Overlap::new(asked, held.clone(), Left::default());
        for asking in [Asking::First, Asking::Second] {
            if asking == Asking::Second {
                overlap = Overlap::new(asked, held.clone(), overlap.left());
            }
            for event in comes.split_whitespace() {
                let (id, data) = event.split_once('=').expect("id=data");
                let id = Some(id.as_bytes()).filter(|id| !id.is_empty());
                match overlap.take(id, data.as_bytes()) {
                    Said::Nothing => {}
                    Said::Later => assert_eq!(asking, Asking::First, "{held:?} {comes}"),
                    Said::News => {
                        assert_eq!(asking, Asking::Second, "{held:?} {comes}");
                        told.push(event);
                    }
                }
            }
            assert_eq!(overlap.proof(), expected, "{asking:?} {held:?} {comes}");
        }
        assert_eq!(told.join(" "), news, "{held:?} {comes}");
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Asking {
        First,
        Second,
    }

    const FROM_CURSOR: Stand = Stand::Cursor;
    const FROM_EVENT: Stand = Stand::Event;

    #[test]
    fn everything_held_comes_again_and_then_what_is_new() {
        use Proof::Whole;
        check(FROM_CURSOR, "1=a 2=b", "1=a 2=b 3=c", Whole, "3=c");
        check(FROM_CURSOR, "1=a", "1=a", Whole, "");
        check(FROM_EVENT, "1=a 2=b 3=c", "2=b 3=c 4=d", Whole, "4=d");
        check(FROM_EVENT, "1=a 2=b 3=c", "1=a 2=b 3=c 4=d", Whole, "4=d");
        check(FROM_EVENT, "1=a", "1=a 2=b", Whole, "2=b");
        // Cursors are no events, wherever they stand; behind the proof they are the reader's.
        check(FROM_CURSOR, "1=a 2=b", "p= 1=a q= 2=b r= 3=c", Whole, "3=c");
        // Nothing was had since the priming event.
        check(FROM_CURSOR, "", "1=a", Whole, "1=a");
        // Ids need not be numbers, nor in any order.
        check(FROM_CURSOR, "z=a b=a", "z=a b=a", Whole, "");
    }

    #[test]
    fn json_that_is_written_anew_says_the_same() {
        check(
            FROM_CURSOR,
            r#"1={"a":1,"b":"x"}"#,
            r#"1={"b":"\u0078","a":1} 2=c"#,
            Proof::Whole,
            "2=c",
        );
        check(FROM_CURSOR, r#"1={"a":1}"#, r#"1={"a":2}"#, Proof::Other, "");
        check(FROM_CURSOR, r#"1=[1,2]"#, r#"1=[2,1]"#, Proof::Other, "");
    }

    #[test]
    fn a_ping_that_was_not_logged_may_stand_between() {
        let ping = r#"9={"jsonrpc":"2.0","id":4,"method":"ping"}"#;
        check(
            FROM_CURSOR,
            "1=a 2=b",
            &format!("1=a {ping} 2=b 3=c"),
            Proof::Whole,
            "3=c",
        );
        check(FROM_EVENT, "1=a 2=b", &format!("{ping} 2=b"), Proof::Whole, "");
        // One that was logged must come like any event.
        check(
            FROM_CURSOR,
            &format!("1=a {ping} 2=b"),
            "1=a 2=b",
            Proof::Incomplete,
            "",
        );
    }

    #[test]
    fn liars_are_not_believed() {
        use Proof::{Incomplete, Other};
        // A fresh counter that happens to align.
        check(FROM_CURSOR, "1=a 2=b", "1=x 2=y 3=z", Other, "");
        check(FROM_EVENT, "1=a 2=b", "2=y 3=z", Other, "");
        check(FROM_EVENT, "1=a 2=b", "1=x 2=b 3=z", Other, "");
        // The last event repeated, an earlier one lost.
        check(FROM_CURSOR, "1=a 2=b", "2=b 3=c", Other, "");
        check(FROM_EVENT, "1=a 2=b 3=c", "3=c 4=d", Other, "");
        check(FROM_EVENT, "1=a 2=b 3=c", "1=a 3=c 4=d", Incomplete, "");
        // The order changed within one millisecond.
        check(FROM_CURSOR, "1=a 2=b 3=c", "1=a 3=c 2=b 4=d", Incomplete, "");
        check(FROM_CURSOR, "1=a 2=b", "2=b 1=a 3=c", Other, "");
        // Something between, or the same thing twice.
        check(FROM_CURSOR, "1=a 2=b", "1=a 9=x 2=b", Incomplete, "");
        check(FROM_CURSOR, "1=a 2=b", "1=a 1=a 2=b", Incomplete, "");
        // The same data under other ids, or under none.
        check(FROM_CURSOR, "1=a 2=b", "3=a 4=b", Other, "");
        check(FROM_CURSOR, "1=a 2=b", "=a =b", Other, "");
        // Behind the overlap: a held id that says something else, an event without an id.
        check(FROM_CURSOR, "1=a", "1=a 1=b", Other, "");
        check(FROM_CURSOR, "1=a", "1=a =b", Incomplete, "");
        // The only event held is the one asked from, and it does not come: nothing proves anything.
        check(FROM_EVENT, "1=a", "2=b", Incomplete, "");
        check(FROM_EVENT, "1=a", "1=x", Incomplete, "");
    }

    #[test]
    fn what_has_not_come_is_not_proved() {
        use Proof::Pending;
        check(FROM_CURSOR, "1=a 2=b", "", Pending, "");
        check(FROM_CURSOR, "1=a 2=b", "p= 1=a", Pending, "");
        check(FROM_EVENT, "1=a 2=b", "1=a", Pending, "");
        check(FROM_EVENT, "1=a", "p=", Pending, "");
    }

    #[test]
    fn what_was_shown_must_come_again_before_the_proof_is_whole() {
        let mut overlap = Overlap::new(FROM_CURSOR, Vec::new(), Left::default());
        assert_eq!(overlap.take(Some(b"1"), b"a"), Said::Later);
        assert!(overlap.has_shown());
        let mut overlap = Overlap::new(FROM_CURSOR, Vec::new(), overlap.left());
        assert_eq!((overlap.proof(), overlap.has_shown()), (Proof::Pending, false));
        assert_eq!(overlap.take(Some(b"1"), b"a"), Said::News);
        assert_eq!((overlap.proof(), overlap.has_begun()), (Proof::Whole, true));
    }

    #[test]
    fn what_was_taken_and_not_logged_may_come_again_within_a_bound() {
        let mut overlap = Overlap::new(FROM_CURSOR, Vec::new(), Left::default());
        for n in 0..=SHOWN_EVENTS_MAX {
            let id = n.to_string();
            assert_eq!(overlap.take(Some(id.as_bytes()), b"x"), Said::Later);
            overlap = Overlap::new(FROM_CURSOR, Vec::new(), overlap.left());
            for old in 0..n {
                assert_eq!(
                    overlap.take(Some(old.to_string().as_bytes()), b"x"),
                    Said::Nothing
                );
            }
            assert_eq!(overlap.take(Some(id.as_bytes()), b"x"), Said::News);
            assert_eq!(overlap.proof(), Proof::Whole);
            overlap.left_out();
        }
        assert_eq!(overlap.proof(), Proof::Incomplete);
    }

    #[test]
    fn a_store_that_sorts_by_chance_is_known_by_its_ids() {
        for (id, order) in [
            ("_GET_stream_1700000000000_k3x9q2ab", Order::Random),
            ("6f1c-22_1700000000000_0", Order::Random),
            ("6f1c-22_170000000000_k3x9q2ab", Order::Kept),
            ("1700000000000-0", Order::Kept),
            ("a_1700000000000_", Order::Kept),
            ("a_1700000000000", Order::Kept),
            ("7/12", Order::Kept),
            ("", Order::Kept),
        ] {
            assert_eq!(Order::of(id.as_bytes()), order, "{id}");
        }
    }

    #[test]
    fn each_end_has_its_reason() {
        for (proof, reason) in [
            (Proof::Pending, None),
            (Proof::Whole, None),
            (Proof::Incomplete, Some(Reason::UpstreamGap)),
            (Proof::Other, Some(Reason::BackendRestarted)),
        ] {
            assert_eq!(proof.reason(), reason);
        }
    }
}

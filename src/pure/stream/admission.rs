//! What a backend's refusals of a session's standalone stream mean, and what it says again when it lets us in.
//! Law: a predecessor that only its server still believes in is waited for, within a bound; then the session is lost.
//! What comes again, same id and same data, in the order in which it was had, is no news; the first news ends that.
//! Why not every refusal: a server may have no such stream and say so with any status; its calls work all the same.
//! Next: `life.rs`; the shell is `relay/upstream_get.rs`.

use std::collections::VecDeque;

use crate::pure::limits::UPSTREAM_CACHE_EVENTS;
use crate::pure::log::Millis;
use crate::pure::overlap::Digest;

/// How a backend refused a standalone stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// 409: another one stands.
    Conflict,
    /// 400: what some servers say instead.
    BadRequest,
    /// Anything else: not now, or not at all.
    Other,
}

/// What follows a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It is tried again.
    TryAgain,
    /// It was refused for too long: the session is lost.
    Lost,
}

/// Whether the backend ever let this session in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// It did not.
    Never,
    /// It did.
    Once,
}

/// The refusals of one session's standalone stream. Call: [`Admission::refused`] at each, [`Admission::let_in`] when
/// it streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    before: Before,
    since: Option<Millis>,
}

impl Admission {
    /// Nothing was asked yet.
    pub const NEW: Self = Self {
        before: Before::Never,
        since: None,
    };

    /// The backend streams.
    pub const fn let_in(&mut self) {
        self.before = Before::Once;
        self.since = None;
    }

    /// Whether the backend ever let this session in.
    pub const fn before(&self) -> Before {
        self.before
    }

    /// The backend refused. `max` is how long it may go on with that (`get_refused_max`).
    pub const fn refused(&mut self, how: Refusal, now: Millis, max: Millis) -> Next {
        match (how, self.before) {
            (Refusal::Conflict, Before::Never | Before::Once) | (Refusal::BadRequest, Before::Once) => {}
            (Refusal::BadRequest, Before::Never) | (Refusal::Other, Before::Never | Before::Once) => {
                return Next::TryAgain;
            }
        }
        let since = match self.since {
            Some(since) => since,
            None => now,
        };
        self.since = Some(since);
        if now.0.saturating_sub(since.0) >= max.0 {
            Next::Lost
        } else {
            Next::TryAgain
        }
    }
}

/// What a session's standalone stream had of its backend, newest last, for when the backend says it again.
#[derive(Clone, Debug, Default)]
pub struct Had {
    events: VecDeque<(Box<[u8]>, Digest)>,
    /// The first that may still come again; `None` once something new came.
    next: Option<usize>,
    /// Events between them that were not had, on this connection.
    unheard: usize,
}

/// Whether an event was had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// It was not.
    New,
    /// It was: same id, same data.
    HadBefore,
}

impl Had {
    /// A connection ended on which these came, oldest first. From now on they may come again.
    pub fn ended(&mut self, events: impl Iterator<Item = (Box<[u8]>, Digest)>) {
        for event in events {
            self.keep(event);
        }
        (self.next, self.unheard) = (Some(0), 0);
    }

    /// These came on the connection that goes on, oldest first, and may come again on the next one. What is known already
    /// is not noted twice.
    pub fn also(&mut self, events: impl Iterator<Item = (Box<[u8]>, Digest)>) {
        for event in events {
            if !self.events.contains(&event) {
                self.keep(event);
            }
        }
    }

    fn keep(&mut self, event: (Box<[u8]>, Digest)) {
        if self.events.len() == UPSTREAM_CACHE_EVENTS {
            self.events.pop_front();
            self.next = self.next.map(|next| next.saturating_sub(1));
        }
        self.events.push_back(event);
    }

    /// Whether anything may still come again. Call: before [`Had::judge`], which reads the data.
    pub const fn expects(&self) -> bool {
        self.next.is_some()
    }

    /// Judges an event with data.
    pub fn judge(&mut self, id: Option<&[u8]>, data: &[u8]) -> News {
        let (Some(next), Some(id)) = (self.next, id) else {
            self.next = None;
            return News::New;
        };
        let found = self
            .events
            .iter()
            .skip(next)
            .position(|(had, digest)| **had == *id && *digest == Digest::of(data));
        let is_known = self.events.iter().any(|(had, _)| **had == *id);
        self.next = match found {
            Some(nth) => Some(next + nth + 1).filter(|next| *next < self.events.len()),
            // It was sent while nobody listened; what follows it may have been had.
            None if !is_known && self.unheard < UPSTREAM_CACHE_EVENTS => {
                self.unheard += 1;
                Some(next)
            }
            // A known number with other data, or in another order: another stream.
            None => None,
        };
        match found {
            Some(_) => News::HadBefore,
            None => News::New,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_lost_only_to_a_predecessor_that_stays() {
        const MAX: Millis = Millis(60);
        use Refusal::{BadRequest, Conflict, Other};
        for (let_in, refusals, expected) in [
            (false, &[(Conflict, 0), (Conflict, 59)][..], Next::TryAgain),
            (false, &[(Conflict, 0), (Conflict, 60)], Next::Lost),
            (false, &[(BadRequest, 0), (BadRequest, 600)], Next::TryAgain),
            (true, &[(BadRequest, 0), (BadRequest, 60)], Next::Lost),
            (true, &[(Other, 0), (Other, 600)], Next::TryAgain),
            (true, &[(Conflict, 0), (Other, 30), (BadRequest, 60)], Next::Lost),
            (
                true,
                &[(Other, 0), (Conflict, 59), (Conflict, 118)],
                Next::TryAgain,
            ),
        ] {
            let mut admission = Admission::NEW;
            if let_in {
                admission.let_in();
            }
            let mut last = Next::TryAgain;
            for (how, at) in refusals {
                last = admission.refused(*how, Millis(*at), MAX);
            }
            assert_eq!(last, expected, "{let_in} {refusals:?}");
        }
        let mut admission = Admission::NEW;
        admission.refused(Conflict, Millis(0), MAX);
        admission.let_in();
        assert_eq!(admission.refused(Conflict, Millis(60), MAX), Next::TryAgain);
    }

    /// Plays `id=data`, and `N` or `H` for what each must be.
    fn check(had: &mut Had, plays: &str) {
        for play in plays.split_whitespace() {
            let (event, expected) = play.split_at(play.len() - 1);
            let (id, data) = event.split_once('=').expect("id=data");
            let id = Some(id.as_bytes()).filter(|id| !id.is_empty());
            let expected = if expected == "H" {
                News::HadBefore
            } else {
                News::New
            };
            assert_eq!(had.judge(id, data.as_bytes()), expected, "{play} of {plays}");
        }
    }

    fn had(events: &str) -> Had {
        let mut had = Had::default();
        again(&mut had, events);
        had
    }

    fn again(had: &mut Had, events: &str) {
        had.ended(said(events));
    }

    fn said(events: &str) -> impl Iterator<Item = (Box<[u8]>, Digest)> {
        events.split_whitespace().map(|event| {
            let (id, data) = event.split_once('=').expect("id=data");
            (id.as_bytes().into(), Digest::of(data.as_bytes()))
        })
    }

    #[test]
    fn what_was_had_comes_again_in_its_order_until_something_new() {
        check(&mut Had::default(), "1=aN 1=aN");
        check(&mut had("1=a 2=b 3=c"), "1=aH 2=bH 3=cH 4=dN 1=aN");
        check(&mut had("1=a 2=b 3=c"), "2=bH 3=cH 4=dN");
        check(&mut had("1=a 2=b 3=c"), "3=cH 2=bN 3=cN"); // another order is another stream
        check(&mut had("1=a 2=b"), "1=xN 2=bN"); // the same number with other data
        check(&mut had("1=a 2=b"), "=aN 1=aN"); // without an id nothing is known
        check(&mut had("1=a"), "1=aH 1=aN"); // each once
        check(&mut had("1=a 3=c"), "1=aH 2=bN 3=cH 4=dN"); // one came while nobody listened
        let mut twice = had("1=a 2=b");
        check(&mut twice, "1=aH 2=bH 3=cN");
        again(&mut twice, "3=c");
        check(&mut twice, "1=aH 2=bH 3=cH 4=dN");
    }

    #[test]
    fn what_came_before_a_turn_is_known_behind_it() {
        let mut had = had("1=a 2=b");
        check(&mut had, "1=aH 2=bH 3=cN");
        had.also(said("1=a 2=b 3=c"));
        check(&mut had, "3=cN"); // not on this connection: whatever says so says it anew
        again(&mut had, "4=d");
        check(&mut had, "1=aH 2=bH 3=cH 4=dH 5=eN");
        let mut going = self::had("1=a 2=b");
        check(&mut going, "1=aH");
        let more: Vec<String> = (1..UPSTREAM_CACHE_EVENTS).map(|n| format!("n{n}=x")).collect();
        going.also(said(&more.join(" ")));
        check(&mut going, "2=bH");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let all: Vec<String> = (0..100).map(|n| format!("{n}=x")).collect();
        let mut had = had(&all.join(" "));
        assert_eq!(had.events.len(), UPSTREAM_CACHE_EVENTS);
        check(&mut had, "84=xH 99=xH");
    }
}

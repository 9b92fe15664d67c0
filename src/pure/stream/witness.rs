//! What a stream's backend said under which id, so that one that began anew without a word is found by what it says.
//! Law: only an equal id with unequal data on a later connection tells against a backend; silence, gaps, another order and
//! unknown ids never do. So it is asked of those alone whose ids are declared to be the session's own (`event_store`).
//! Why the first events too, not only the newest: a counter that began anew begins where the old one did.
//! Absent on purpose: what follows from it (`relay/contradiction.rs`).
//! Next: `trail.rs`, which knows the newest.

use crate::pure::limits::UPSTREAM_CACHE_EVENTS;
use crate::pure::overlap::Digest;

/// An event of the backend's: its id, and what it said.
type Said = (Box<[u8]>, Digest);

/// What one stream's backend said. Call: [`Witness::ask`] before an event is taken, [`Witness::heard`] after,
/// [`Witness::broke`] when a connection ended. Next: nothing once it contradicted itself: it stays so.
#[derive(Debug, Default)]
pub struct Witness {
    first: Vec<Said>,
    /// What the last connections ended with. `None`: the first one stands.
    newest: Option<Vec<Said>>,
    testimony: Testimony,
}

/// What is known of a backend by its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Testimony {
    /// Nothing that tells against it.
    #[default]
    Agrees,
    /// An id stood for something else before: it is in another life. Nothing that it says is of this stream's.
    Contradicts,
}

impl Witness {
    /// An event was taken. The first [`UPSTREAM_CACHE_EVENTS`] are remembered.
    pub fn heard(&mut self, id: Option<&[u8]>, data: &[u8]) {
        if let Some(id) = id.filter(|id| !id.is_empty())
            && self.first.len() < UPSTREAM_CACHE_EVENTS
        {
            self.first.push((id.into(), Digest::of(data)));
        }
    }

    /// A connection ended, and these came last, at most [`UPSTREAM_CACHE_EVENTS`] of them.
    pub fn broke(&mut self, newest: impl Iterator<Item = Said>) {
        if self.first.is_empty() {
            return;
        }
        let remembered = self.newest.get_or_insert_default();
        remembered.extend(newest);
        let surplus = remembered.len().saturating_sub(UPSTREAM_CACHE_EVENTS);
        remembered.drain(..surplus);
    }

    /// What is known with this event: once something told against the backend, all that follows does. On the first
    /// connection nothing is asked: nothing could come again.
    pub fn ask(&mut self, id: Option<&[u8]>, data: &[u8]) -> Testimony {
        let (Testimony::Agrees, Some(id), Some(newest)) = (self.testimony, id, &self.newest) else {
            return self.testimony;
        };
        let mut known = self.first.iter().chain(newest).filter(|(had, _)| **had == *id);
        if let Some((_, said)) = known.next() {
            let digest = Digest::of(data);
            if *said != digest && known.all(|(_, said)| *said != digest) {
                self.testimony = Testimony::Contradicts;
            }
        }
        self.testimony
    }

    /// What is known so far.
    pub const fn testimony(&self) -> Testimony {
        self.testimony
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(events: &str) -> impl Iterator<Item = (&[u8], &[u8])> {
        events.split_whitespace().map(|event| {
            let (id, data) = event.split_once('=').expect("id=data");
            (id.as_bytes(), data.as_bytes())
        })
    }

    /// What came on the first connection, what it ended with, and from which event of the next one on nothing is believed.
    fn check(heard: &str, newest: &str, comes: &str, contradicts: Option<usize>) {
        let mut witness = Witness::default();
        for (id, data) in said(heard) {
            assert_eq!(witness.ask(Some(id), data), Testimony::Agrees, "{heard}");
            witness.heard(Some(id), data);
        }
        witness.broke(said(newest).map(|(id, data)| (id.into(), Digest::of(data))));
        for (nth, (id, data)) in said(comes).enumerate() {
            let expected = match contradicts {
                Some(from) if nth >= from => Testimony::Contradicts,
                Some(_) | None => Testimony::Agrees,
            };
            let id = Some(id).filter(|id| !id.is_empty());
            assert_eq!(witness.ask(id, data), expected, "{heard} {newest} {comes} {nth}");
        }
    }

    #[test]
    fn only_an_equal_id_with_other_data_tells_against_a_backend() {
        for (heard, newest, comes, contradicts) in [
            ("1=a 2=b", "", "1=a 2=b 3=c", None),
            ("1=a 2=b", "", "2=b 1=a", None),
            ("1=a 2=b", "", "7=x 8=y", None),
            ("1=a 2=b", "", "=x =a", None),
            ("", "1=a", "1=b", None),
            ("1=a 2=b", "", "1=x 2=b", Some(0)),
            ("1=a 2=b", "8=h 9=i", "9=i 8=x =y", Some(1)),
            // What stood for two things contradicts neither.
            ("1=a", "1=b", "1=a 1=b 1=c", Some(2)),
            // Of JSON the value counts.
            (r#"1={"a":1,"b":2}"#, "", r#"1={"b":2,"a":1}"#, None),
        ] {
            check(heard, newest, comes, contradicts);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = Witness::default();
        for n in 0..100_u8 {
            all.heard(Some(&[n]), b"x");
            all.broke(std::iter::once(([n].as_slice().into(), Digest::of(b"x"))));
        }
        assert_eq!(all.first.len(), UPSTREAM_CACHE_EVENTS);
        assert_eq!(all.newest.as_ref().map(Vec::len), Some(UPSTREAM_CACHE_EVENTS));
        for (id, expected) in [
            (0, Testimony::Contradicts),
            (31, Testimony::Contradicts),
            (32, Testimony::Agrees),
            (67, Testimony::Agrees),
            (68, Testimony::Contradicts),
            (99, Testimony::Contradicts),
        ] {
            let mut witness = Witness {
                first: all.first.clone(),
                newest: all.newest.clone(),
                testimony: Testimony::Agrees,
            };
            assert_eq!(witness.ask(Some(&[id]), b"y"), expected, "{id}");
        }
    }
}

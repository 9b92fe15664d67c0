//! What a backend says anew when it is asked again, and when it may be believed.
//! Law: an event counts once two askings in a row have shown it, the second with nothing before it that the first had
//! not: when the second was asked, it was stored, so what was stored before it came before it.
//! Why: servers replay what is stored and begin to send what is new a moment later. What falls between is stored and
//! never sent on that connection, and what follows it looks like the next (wire contract, section 8).
//! Absent on purpose: when it is asked again, and the clock.
//! Next: `overlap.rs`, which proves that the stream is the same at all.

use crate::pure::limits::SHOWN_EVENTS_MAX;
use crate::pure::overlap::{Digest, Held};

/// What an event behind the overlap is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// The last asking showed it too, and everything before it: it is next.
    Again,
    /// It is shown for the first time, or something stands before it that was not shown: the next asking decides.
    First,
    /// It came on this connection already: a backend may send what it just gave back.
    Repeated,
    /// It can't be told from others, or says something else than it did, or stands elsewhere.
    Amiss,
}

/// Whether this asking has shown nothing but what the last one showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum So {
    Same,
    Different,
}

/// What one asking shows behind the overlap. Call: [`Twice::take`] for each event. Next: [`Twice::rest`], for the next
/// asking.
#[derive(Clone, Debug)]
pub struct Twice {
    /// What the last asking showed and nobody was given, oldest first.
    before: Vec<Held>,
    /// So many of these have come.
    met: usize,
    so: So,
    /// What this one shows and nobody is given, at most [`SHOWN_EVENTS_MAX`] events.
    shown: Vec<Held>,
}

impl Twice {
    /// An asking after one that showed these.
    pub const fn new(before: Vec<Held>) -> Self {
        Self {
            before,
            met: 0,
            so: So::Same,
            shown: Vec::new(),
        }
    }

    /// Whether everything came that was shown before: it was stored, so it must.
    pub const fn is_whole(&self) -> bool {
        self.met == self.before.len()
    }

    /// Whether any of it came.
    pub const fn has_begun(&self) -> bool {
        self.met > 0
    }

    /// Whether it showed what only another asking can confirm.
    pub const fn has_shown(&self) -> bool {
        !self.shown.is_empty()
    }

    /// What came last of what is believed.
    pub fn newest(&self) -> Option<&Held> {
        match self.so {
            So::Same => self.before.get(self.met.checked_sub(1)?),
            So::Different => None,
        }
    }

    /// Takes an event: its id and what it says.
    pub fn take(&mut self, id: Option<&[u8]>, said: Digest) -> Seen {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Seen::Amiss;
        };
        let came = self.before[..self.met].iter().chain(&self.shown);
        if let Some(twin) = came.clone().find(|held| *held.id == *id) {
            return if twin.said == said {
                Seen::Repeated
            } else {
                Seen::Amiss
            };
        }
        let due = &self.before[self.met..];
        match due.iter().position(|held| *held.id == *id) {
            Some(0) if due[0].said == said => {
                self.met += 1;
                match self.so {
                    So::Same => return Seen::Again,
                    So::Different => {}
                }
            }
            // Another order, or another thing of that name.
            Some(_) => return Seen::Amiss,
            None if due.is_empty() => {}
            None => self.so = So::Different,
        }
        // What finds no room is shown by the next asking.
        if self.shown.len() < SHOWN_EVENTS_MAX {
            self.shown.push(Held { id: id.into(), said });
        }
        Seen::First
    }

    /// What was shown and nobody was given, as the next asking must show it.
    pub fn rest(mut self) -> Vec<Held> {
        self.shown.extend(self.before.drain(self.met..));
        self.shown.truncate(SHOWN_EVENTS_MAX);
        self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of which every asking shows what is given, `id=data` each; what is believed in all, in order, with
    /// `!` if something was amiss and `?` if what must come did not come.
    fn check(askings: &[&str], expected: &str) {
        let mut told: Vec<&str> = Vec::new();
        let mut before = Vec::new();
        for asking in askings {
            let mut twice = Twice::new(before);
            for event in asking.split_whitespace() {
                let (id, data) = event.split_once('=').expect("id=data");
                let id = Some(id.as_bytes()).filter(|id| !id.is_empty());
                match twice.take(id, Digest::of(data.as_bytes())) {
                    Seen::Again => told.push(event),
                    Seen::First | Seen::Repeated => {}
                    Seen::Amiss => told.push("!"),
                }
            }
            if !twice.is_whole() {
                told.push("?");
            }
            before = twice.rest();
        }
        assert_eq!(told.join(" "), expected, "{askings:?}");
    }

    #[test]
    fn an_event_is_believed_when_it_is_shown_twice() {
        check(&["1=a"], "");
        check(&["1=a", "1=a"], "1=a");
        check(&["1=a 2=b", "1=a 2=b 3=c", "3=c"], "1=a 2=b 3=c");
        check(&["", "1=a", "1=a"], "1=a");
    }

    /// 2 was stored between the replay and what was sent as it came.
    #[test]
    fn what_was_stored_but_not_sent_comes_in_its_place() {
        check(&["1=a 3=c", "1=a 2=b 3=c", "2=b 3=c"], "1=a 2=b 3=c");
        check(&["3=c", "2=b 3=c", "2=b 3=c"], "2=b 3=c");
        // Again and again: each asking has a window of its own.
        check(
            &["3=c", "2=b 3=c 5=e", "2=b 3=c 4=d 5=e", "4=d 5=e"],
            "2=b 3=c 4=d 5=e",
        );
        check(&["3=c", "2=b 3=c", "1=a 2=b 3=c", "1=a 2=b 3=c"], "1=a 2=b 3=c");
    }

    #[test]
    fn what_was_given_back_may_be_sent_again() {
        check(&["1=a 1=a", "1=a 1=a 2=b 2=b", "2=b"], "1=a 2=b");
    }

    #[test]
    fn liars_are_amiss() {
        // What was shown is not shown again.
        check(&["1=a", ""], "?");
        check(&["1=a", "2=b"], "?");
        check(&["1=a 2=b", "1=a 3=c", "2=b"], "1=a ? ! ?");
        // Another order, other data, no id.
        check(&["1=a 2=b", "2=b 1=a"], "! 1=a ?");
        check(&["1=a", "1=b"], "! ?");
        check(&["1=a 1=b"], "!");
        check(&["=a"], "!");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let many: Vec<String> = (0..10 * SHOWN_EVENTS_MAX).map(|n| format!("{n}=x")).collect();
        let mut twice = Twice::new(Vec::new());
        for event in &many {
            twice.take(Some(event.as_bytes()), Digest::of(b"x"));
        }
        assert_eq!(twice.rest().len(), SHOWN_EVENTS_MAX);
        // And all of it is believed in the end, part by part.
        let told = |from: usize| many[from.min(many.len())..].join(" ");
        let askings: Vec<String> = (0..12)
            .map(|nth: usize| told(nth.saturating_sub(1) * SHOWN_EVENTS_MAX))
            .collect();
        let askings: Vec<&str> = askings.iter().map(String::as_str).collect();
        check(&askings, &many.join(" "));
    }
}

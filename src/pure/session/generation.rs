//! Which life of a backend's session a request of the backend's belongs to, written into its id.
//! Law: a late answer never meets a new request (wire contract, section 6). Generation 0 changes nothing and costs nothing.
//! From generation 1 the client sees `"tl<generation>.<raw id>"`; what it answers is given back as the token that came,
//! so that a number stays a number. All other data passes byte for byte.
//! Next: `loss.rs`, which raises it.

use std::fmt;

use memchr::memmem;

use crate::pure::rpc::{self, Body, EventKind, Message, RequestId, quoted};

/// How many times a session was begun anew at its backend.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Generation(u32);

/// What a client's message becomes on its way to the backend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// It passes as it came.
    AsItCame,
    /// It passes like this; so many answers to dead requests were left out of it.
    Like {
        /// The message.
        body: Vec<u8>,
        /// Answers left out.
        dropped: u64,
    },
    /// Nothing of it passes: so many answers, all to dead requests.
    Dropped {
        /// How many.
        dropped: u64,
    },
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Generation {
    /// The life that began with the client's own `initialize`.
    pub const FIRST: Self = Self(0);

    /// The next one. Four thousand million of them are never reached.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// An event of the backend's as its client is to see it; `None` if that is as it came.
    /// Only ids of the backend's own requests change, and what withdraws one.
    #[inline]
    pub fn mark(self, data: &[u8]) -> Option<Vec<u8>> {
        if self == Self::FIRST {
            return None;
        }
        match rpc::classify_event(data) {
            EventKind::Notification if may_withdraw(data) => {}
            EventKind::Request { .. } | EventKind::Batch(_) => {}
            EventKind::Notification | EventKind::Response(_) | EventKind::Other => return None,
        }
        let marked = |raw: &[u8]| Some(self.written(RequestId::from_raw(raw).ok()?.as_str()).into_bytes());
        match rpc::read(data).ok()? {
            Body::One(message) => self.mark_one(data, &message, marked),
            Body::Batch(messages) => {
                let elements = rpc::elements(data)?;
                let mut out = Splice::new(data);
                for (element, message) in elements.iter().zip(&messages) {
                    if let Some(changed) = self.mark_one(element, message, marked) {
                        out.replace(element, &changed);
                    }
                }
                out.finish()
            }
        }
    }

    fn mark_one(
        self,
        data: &[u8],
        message: &Message<'_>,
        marked: impl Fn(&[u8]) -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let path: &[&str] = match message {
            Message::Request { .. } => &["id"],
            Message::Notification { method } if method == "notifications/cancelled" => {
                &["params", "requestId"]
            }
            Message::Notification { .. } | Message::Response { .. } => return None,
        };
        let raw = rpc::lookup(data, path)?;
        let mut out = Splice::new(data);
        out.replace(raw, &marked(raw)?);
        out.finish()
    }

    /// A client's message as the backend is to get it. Answers to requests of another generation are left out.
    pub fn restore(self, body: &[u8]) -> Restored {
        if self == Self::FIRST {
            return Restored::AsItCame;
        }
        each(body, |raw, message| self.restore_one(raw, message))
    }

    fn restore_one(self, body: &[u8], message: &Message<'_>) -> One {
        let id = match message {
            Message::Response { id: Some(id), .. } => id,
            // An answer to nothing, or no answer.
            Message::Response { id: None, .. } | Message::Request { .. } | Message::Notification { .. } => {
                return One::Same;
            }
        };
        let Some(own) = self.read(id) else {
            return One::Dead;
        };
        let Some(raw) = rpc::lookup(body, &["id"]) else {
            return One::Dead;
        };
        let mut out = Splice::new(body);
        out.replace(raw, own.raw());
        out.finish().map_or(One::Same, One::Changed)
    }

    /// A raw id of the backend's as its client sees it.
    fn written(self, raw: &str) -> String {
        quoted(&format!("tl{}.{raw}", self.0))
    }

    /// The raw id that a client's token stands for, if it is of this generation.
    fn read(self, id: &RequestId) -> Option<RequestId> {
        let text = id.text()?;
        let raw = text.strip_prefix(&format!("tl{}.", self.0))?;
        RequestId::from_raw(raw.as_bytes()).ok()
    }
}

/// A client's message as the backend is to get it, by what becomes of each message in it: its raw text and its meaning.
pub(super) fn each(body: &[u8], one: impl Fn(&[u8], &Message<'_>) -> One) -> Restored {
    match rpc::read(body) {
        // The backend's to judge.
        Err(_) => Restored::AsItCame,
        Ok(Body::One(message)) => match one(body, &message) {
            One::Same => Restored::AsItCame,
            One::Changed(body) => Restored::Like { body, dropped: 0 },
            One::Dead => Restored::Dropped { dropped: 1 },
        },
        Ok(Body::Batch(messages)) => {
            let Some(elements) = rpc::elements(body) else {
                return Restored::AsItCame;
            };
            let each = elements.iter().zip(&messages);
            batch(each.map(|(element, message)| (*element, one(element, message))))
        }
    }
}

fn batch<'a>(each: impl Iterator<Item = (&'a [u8], One)>) -> Restored {
    let (mut out, mut dropped, mut changed) = (Vec::new(), 0, Changed::Nothing);
    for (element, one) in each {
        let separator = if out.is_empty() { b'[' } else { b',' };
        match one {
            One::Same => {
                out.push(separator);
                out.extend_from_slice(element);
            }
            One::Changed(body) => {
                changed = Changed::Something;
                out.push(separator);
                out.extend_from_slice(&body);
            }
            One::Dead => dropped += 1,
        }
    }
    match (dropped, changed) {
        (0, Changed::Nothing) => Restored::AsItCame,
        _ if out.is_empty() => Restored::Dropped { dropped },
        (_, Changed::Nothing | Changed::Something) => {
            out.push(b']');
            Restored::Like { body: out, dropped }
        }
    }
}

/// Whether an event may withdraw a request: looked for before anything is read in full.
fn may_withdraw(data: &[u8]) -> bool {
    memmem::find(data, b"notifications/cancelled").is_some()
}

/// What becomes of one message.
pub(super) enum One {
    /// It passes as it came.
    Same,
    /// It passes like this.
    Changed(Vec<u8>),
    /// Nobody waits for it.
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Changed {
    Nothing,
    Something,
}

/// A text with some of its parts replaced, in their order.
struct Splice<'a> {
    from: &'a [u8],
    at: usize,
    out: Vec<u8>,
}

impl<'a> Splice<'a> {
    const fn new(from: &'a [u8]) -> Self {
        Self {
            from,
            at: 0,
            out: Vec::new(),
        }
    }

    /// Puts `with` in place of `part`, which lies within the text behind what was replaced before.
    fn replace(&mut self, part: &[u8], with: &[u8]) {
        let start = (part.as_ptr() as usize).wrapping_sub(self.from.as_ptr() as usize);
        let Some(before) = self.from.get(self.at..start) else {
            return;
        };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(with);
        self.at = start + part.len();
    }

    /// The whole; `None` if nothing was replaced.
    fn finish(mut self) -> Option<Vec<u8>> {
        if self.at == 0 {
            return None;
        }
        self.out.extend_from_slice(&self.from[self.at..]);
        Some(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(generation: u32, came: &str, seen: &str) {
        let marked = Generation(generation).mark(came.as_bytes());
        let marked = marked.map_or_else(|| came.to_owned(), |data| String::from_utf8(data).unwrap());
        assert_eq!(marked, seen, "{came}");
    }

    #[test]
    fn requests_of_the_backend_bear_their_generation() {
        let request = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"id":7}}"#;
        check(0, request, request);
        check(
            1,
            request,
            r#"{"jsonrpc":"2.0","id":"tl1.7","method":"sampling/createMessage","params":{"id":7}}"#,
        );
        check(
            12,
            r#" {"method":"roots/list", "id" : "a\"b" ,"jsonrpc":"2.0"}"#,
            r#" {"method":"roots/list", "id" : "tl12.\"a\\\"b\"" ,"jsonrpc":"2.0"}"#,
        );
        check(
            1,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"x"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"tl1.7","reason":"x"}}"#,
        );
        check(
            1,
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
            r#"[{"jsonrpc":"2.0","id":"tl1.1","method":"ping"}, {"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":"tl1.2","method":"ping"}]"#,
        );
        // What is no request of the backend's passes as it came.
        for same in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"id":7}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#,
            "no JSON",
            "{}",
        ] {
            check(3, same, same);
        }
    }

    #[test]
    fn an_answer_gets_the_token_back_that_came() {
        for raw in ["7", "-7", "1.0", "1e3", r#""7""#, r#""a\"b\u0063""#, r#""""#] {
            let generation = Generation(2);
            let request = format!(r#"{{"jsonrpc":"2.0","id":{raw},"method":"ping"}}"#);
            let seen = generation.mark(request.as_bytes()).unwrap();
            let id = rpc::lookup(&seen, &["id"]).unwrap();
            let id = std::str::from_utf8(id).unwrap();
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            let expected = format!(r#"{{"jsonrpc":"2.0","id":{raw},"result":{{}}}}"#);
            assert_eq!(
                generation.restore(answer.as_bytes()),
                Restored::Like {
                    body: expected.into_bytes(),
                    dropped: 0
                }
            );
            for other in [Generation(1), Generation(3), Generation(20)] {
                assert_eq!(other.restore(answer.as_bytes()), Restored::Dropped { dropped: 1 });
            }
        }
    }

    #[test]
    fn answers_to_dead_requests_are_left_out() {
        let restored = |body: &str| Generation(1).restore(body.as_bytes());
        let old = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        assert_eq!(Generation::FIRST.restore(old.as_bytes()), Restored::AsItCame);
        assert_eq!(restored(old), Restored::Dropped { dropped: 1 });
        assert_eq!(
            restored(&format!("[{old},{old}]")),
            Restored::Dropped { dropped: 2 }
        );
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let new = r#"{"jsonrpc":"2.0","id":"tl1.7","error":{}}"#;
        assert_eq!(
            restored(&format!("[{old}, {note},{new}]")),
            Restored::Like {
                body: format!(r#"[{note},{{"jsonrpc":"2.0","id":7,"error":{{}}}}]"#).into_bytes(),
                dropped: 1
            }
        );
        for same in [
            note,
            "nonsense",
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{}}"#,
        ] {
            assert_eq!(restored(same), Restored::AsItCame, "{same}");
        }
        // Made up: the prefix without an id behind it.
        let odd = r#"{"jsonrpc":"2.0","id":"tl1.","result":{}}"#;
        assert_eq!(restored(odd), Restored::Dropped { dropped: 1 });
    }
}

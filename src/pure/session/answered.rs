//! Requests of a backend's that the proxy has answered, for a client that may answer them yet.
//! Law: one answer for each request: what comes after ours goes nowhere (wire contract, section 6). A backend may use an
//! id again: then the new request is its client's to answer.
//! Bounded in number: what was answered long ago is forgotten, and a backend that gets another answer to it ignores it.
//! Next: `generation.rs`, which leaves out answers to requests of an earlier life.

use std::collections::VecDeque;

use crate::pure::limits::ANSWERED_HERE_MAX;
use crate::pure::rpc::{Message, RequestId};
use crate::pure::session::generation::{One, Restored, each};

/// The ids as the client sees them, oldest first. It owns no memory before the first.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    ids: VecDeque<RequestId>,
}

impl Answered {
    /// The proxy answers this one.
    pub fn here(&mut self, id: &RequestId) {
        self.asked(id);
        if self.ids.len() == ANSWERED_HERE_MAX {
            self.ids.pop_front();
        }
        self.ids.push_back(id.clone());
    }

    /// The backend asks under this id, perhaps again.
    pub fn asked(&mut self, id: &RequestId) {
        self.ids.retain(|answered| answered != id);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// A client's message as the backend is to get it: answers to what the proxy has answered are left out.
    pub fn restore(&self, body: &[u8]) -> Restored {
        each(body, |_, message| match message {
            Message::Response { id: Some(id), .. } if self.ids.contains(id) => One::Dead,
            Message::Response { .. } | Message::Request { .. } | Message::Notification { .. } => One::Same,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(raw: &str) -> RequestId {
        RequestId::from_raw(raw.as_bytes()).unwrap()
    }

    fn answer(id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    }

    #[test]
    fn an_answer_after_ours_goes_nowhere() {
        let mut answered = Answered::default();
        for raw in ["1", r#""a""#, "3"] {
            answered.here(&id(raw));
        }
        answered.asked(&id("3"));
        let (one, two, three) = (answer("1"), answer("2"), answer("3"));
        let note = r#"{"jsonrpc":"2.0","method":"a"}"#;
        for (body, expected) in [
            (two.clone(), Restored::AsItCame),
            (three.clone(), Restored::AsItCame),
            (note.to_owned(), Restored::AsItCame),
            ("nonsense".to_owned(), Restored::AsItCame),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#.to_owned(),
                Restored::AsItCame,
            ),
            (one.clone(), Restored::Dropped { dropped: 1 }),
            (answer(r#""\u0061""#), Restored::Dropped { dropped: 1 }),
            (format!("[{one},{one}]"), Restored::Dropped { dropped: 2 }),
            (
                format!("[{one}, {two},{note}]"),
                Restored::Like {
                    body: format!("[{two},{note}]").into_bytes(),
                    dropped: 1,
                },
            ),
        ] {
            assert_eq!(answered.restore(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut answered = Answered::default();
        for n in 0..=ANSWERED_HERE_MAX {
            answered.here(&id(&n.to_string()));
            answered.here(&id(&n.to_string()));
        }
        assert_eq!(answered.ids.len(), ANSWERED_HERE_MAX);
        assert_eq!(answered.restore(answer("0").as_bytes()), Restored::AsItCame);
        assert_eq!(
            answered.restore(answer("1").as_bytes()),
            Restored::Dropped { dropped: 1 }
        );
    }
}

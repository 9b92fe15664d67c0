//! Request ids that are unique among all sessions of a backend: made on the way to it, undone on the way back.
//! Law: what is not a request's id passes byte for byte. An id of another session is never undone, and never passes.
//! Why: one SDK's event store, shared as documented, names streams by request id alone, and every client counts from 0.
//! Absent on purpose: progress tokens. They are the client's own words within its request, and come back as they went:
//! servers send progress on the stream of the request, which its id names.
//! Next: `rpc/mod.rs`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem;

use crate::pure::event_id::Uid;
use crate::pure::rpc::{self, RequestId, quoted};

/// What every isolated id begins with, so that one of another session is known for what it is.
const MARK: &str = "tl-";

/// Behind the tag: the client's id was a number, or a string.
const NUMBER: char = 'n';
const STRING: char = 's';

/// A session's own prefix of ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Isolation {
    /// `tl-`, eleven letters of the session's own, a dot.
    prefix: Box<str>,
}

/// What an answer of the backend's turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// It carries no isolated id: it passes as it is.
    Unchanged,
    /// This, with the client's own ids.
    Changed(Vec<u8>),
    /// It answers a request of another session: it is not this client's to see.
    Foreign,
}

impl Isolation {
    /// The prefix of this session: the random half of its uid.
    pub fn of(uid: &Uid) -> Self {
        let tag = URL_SAFE_NO_PAD.encode(&uid.as_bytes()[8..]);
        Self {
            prefix: format!("{MARK}{tag}.").into(),
        }
    }

    /// The id under which the backend knows this request of the client's, as a raw token.
    pub fn outward(&self, id: &RequestId) -> String {
        let (prefix, raw) = (&self.prefix, id.as_str());
        match raw.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
            // What is escaped within one string is escaped within another.
            Some(inner) => format!("\"{prefix}{STRING}{inner}\""),
            None => format!("\"{prefix}{NUMBER}{raw}\""),
        }
    }

    /// A POST's body with isolated ids: those of its requests, and those that its cancels name. `None`: there is none.
    pub fn request(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut cuts = Vec::new();
        for message in messages(body) {
            let named = match rpc::lookup(message, &["method"]) {
                Some(method) if is_cancel(method) => rpc::lookup(message, &["params", "requestId"]),
                Some(_) => rpc::lookup(message, &["id"]),
                None => None,
            };
            if let Some(token) = named
                && let Ok(id) = RequestId::from_raw(token)
            {
                cuts.push((token, self.outward(&id).into_bytes()));
            }
        }
        spliced(body, &cuts)
    }

    /// An answer of the backend's, a body or an event's data, with the client's own ids.
    pub fn answer(&self, data: &[u8]) -> Restored {
        if memmem::find(data, MARK.as_bytes()).is_none() {
            return Restored::Unchanged;
        }
        let mut cuts = Vec::new();
        for message in messages(data) {
            if rpc::lookup(message, &["method"]).is_some() {
                continue;
            }
            let Some(token) = rpc::lookup(message, &["id"]) else {
                continue;
            };
            match self.inward(token) {
                Ok(Some(own)) => cuts.push((token, own.into_bytes())),
                Ok(None) => {}
                Err(Foreign) => return Restored::Foreign,
            }
        }
        spliced(data, &cuts).map_or(Restored::Unchanged, Restored::Changed)
    }

    /// The client's token for one of the backend's; `None` if it is none of ours.
    fn inward(&self, token: &[u8]) -> Result<Option<String>, Foreign> {
        let Some(text) = rpc::text(token) else {
            return Ok(None);
        };
        let Some(rest) = text.strip_prefix(&*self.prefix) else {
            return if is_isolated(&text) {
                Err(Foreign)
            } else {
                Ok(None)
            };
        };
        let own = match rest.split_at_checked(1) {
            Some(("n", number)) => number.to_owned(),
            Some(("s", inner)) => quoted(inner),
            Some(_) | None => return Ok(None),
        };
        // A backend that changed what it was given has not answered what it was asked.
        Ok(RequestId::from_raw(own.as_bytes()).is_ok().then_some(own))
    }
}

/// The id was made for another session.
struct Foreign;

/// Whether a text has the shape of an isolated id.
fn is_isolated(text: &str) -> bool {
    let tag = text.strip_prefix(MARK).and_then(|rest| rest.split_once('.'));
    tag.is_some_and(|(tag, rest)| tag.len() == 11 && rest.starts_with([NUMBER, STRING]))
}

fn is_cancel(method: &[u8]) -> bool {
    rpc::text(method).is_some_and(|method| method == "notifications/cancelled")
}

/// The messages of a body: itself, or the elements of a batch.
fn messages(body: &[u8]) -> Vec<&[u8]> {
    rpc::elements(body).unwrap_or_else(|| vec![body])
}

/// A body with other tokens in the place of these, which are slices of it, in order. `None` if there are none.
fn spliced(body: &[u8], cuts: &[(&[u8], Vec<u8>)]) -> Option<Vec<u8>> {
    if cuts.is_empty() {
        return None;
    }
    let grown: usize = cuts.iter().map(|(_, new)| new.len()).sum();
    let mut out = Vec::with_capacity(body.len() + grown);
    let mut done = 0;
    for (token, new) in cuts {
        let at = (token.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
        out.extend_from_slice(body.get(done..at)?);
        out.extend_from_slice(new);
        done = at + token.len();
    }
    out.extend_from_slice(body.get(done..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn isolation(byte: u8) -> Isolation {
        Isolation::of(&Uid::new([byte; 16]))
    }

    fn out(body: &str) -> Option<String> {
        let body = isolation(0).request(body.as_bytes());
        body.map(|body| String::from_utf8(body).unwrap().replace("tl-AAAAAAAAAAA.", "@"))
    }

    fn back(data: &str) -> Result<Option<String>, ()> {
        match isolation(0).answer(data.replace('@', "tl-AAAAAAAAAAA.").as_bytes()) {
            Restored::Unchanged => Ok(None),
            Restored::Changed(data) => Ok(Some(String::from_utf8(data).unwrap())),
            Restored::Foreign => Err(()),
        }
    }

    #[test]
    fn ids_of_requests_and_cancels_are_made_the_sessions_own() {
        for (body, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"id":7,"_meta":{"progressToken":7}}}"#,
                Some(
                    r#"{"jsonrpc":"2.0","id":"@n7","method":"a","params":{"id":7,"_meta":{"progressToken":7}}}"#,
                ),
            ),
            (
                r#"{ "id" : "a\n" , "method":"a"}"#,
                Some(r#"{ "id" : "@sa\n" , "method":"a"}"#),
            ),
            (
                r#"{"method":"notifications/cancelled","params":{"requestId":"x","reason":"y"}}"#,
                Some(r#"{"method":"notifications/cancelled","params":{"requestId":"@sx","reason":"y"}}"#),
            ),
            // Answers to the backend's own requests, and other notifications, are none of these.
            (r#"{"jsonrpc":"2.0","id":7,"result":{"method":"x"}}"#, None),
            (
                r#"{"method":"notifications/progress","params":{"requestId":1}}"#,
                None,
            ),
            (
                r#"[{"id":1,"method":"a"},{"id":2,"result":{}},{"id":"3","method":"b"}]"#,
                Some(r#"[{"id":"@n1","method":"a"},{"id":2,"result":{}},{"id":"@s3","method":"b"}]"#),
            ),
            ("no JSON", None),
        ] {
            assert_eq!(out(body).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn answers_get_the_clients_own_ids_back() {
        for (data, expected) in [
            (
                r#"{"id":"@n7","result":{"id":"@n7"}}"#,
                Ok(Some(r#"{"id":7,"result":{"id":"@n7"}}"#)),
            ),
            (
                r#"{"error":{},"id": "@sa\n" }"#,
                Ok(Some(r#"{"error":{},"id": "a\n" }"#)),
            ),
            (
                r#"{"id":"@n-1.5e3","result":1}"#,
                Ok(Some(r#"{"id":-1.5e3,"result":1}"#)),
            ),
            (
                r#"[{"id":"@n1","result":1},{"method":"x"}]"#,
                Ok(Some(r#"[{"id":1,"result":1},{"method":"x"}]"#)),
            ),
            // A request of the backend's own may have any id.
            (r#"{"id":"@n7","method":"ping"}"#, Ok(None)),
            (r#"{"id":7,"result":"tl-"}"#, Ok(None)),
            (r#"{"id":"@x7","result":1}"#, Ok(None)),
            (r#"{"id":"@nabc","result":1}"#, Ok(None)),
            // Another session's.
            (r#"{"id":"tl-BBBBBBBBBBB.n7","result":1}"#, Err(())),
            (
                r#"[{"id":"@n1","result":1},{"id":"tl-BBBBBBBBBBB.n7","result":1}]"#,
                Err(()),
            ),
        ] {
            let expected = expected.map(|data| data.map(|data: &str| data.replace('@', "tl-AAAAAAAAAAA.")));
            assert_eq!(back(data), expected, "{data}");
        }
    }

    #[test]
    fn what_goes_out_comes_back_and_no_two_sessions_share_an_id() {
        for raw in ["0", "-7", "1.0", "1e400", r#""""#, r#""a\"b\\""#, r#""ü""#] {
            let id = RequestId::from_raw(raw.as_bytes()).unwrap();
            let token = isolation(1).outward(&id);
            let answer = format!(r#"{{"id":{token},"result":1}}"#);
            match isolation(1).answer(answer.as_bytes()) {
                Restored::Changed(data) => {
                    let own = RequestId::from_raw(rpc::lookup(&data, &["id"]).unwrap()).unwrap();
                    assert_eq!(own, id, "{raw}");
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(isolation(2).answer(answer.as_bytes()), Restored::Foreign);
            assert_ne!(isolation(2).outward(&id), token);
        }
    }
}

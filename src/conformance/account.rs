//! What one sequence says: the progress and the result of one call, or the numbered messages of one emission.
//! Law: a message is known by the token that the suite put into its request and no other request ever had, never by
//! where it came; so what comes on the wrong stream, or in the wrong session, is seen.
//! Absent on purpose: what is missing and what came twice (`judge.rs`).
//! Next: `judge.rs`.

use std::fmt;

use http::StatusCode;
use tokio::time::Instant;

use crate::pure::rpc::{self, Body, Message, Outcome};

/// How every token of the suite begins.
const TOKEN_BEGINS: &str = "tlsuite-";

/// The label of a call's result, which is its last.
pub(super) const RESULT: &str = "result";

/// What stands for the token in labels.
const TOKEN_STANDS: &str = "{tag}";

/// A token: the progress token and the tag of one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token(String);

impl Token {
    /// The `number`th token of the run with this name. It ends in `-`, so that none is the beginning of another.
    pub(super) fn new(run: &str, number: u64) -> Self {
        Self(format!("{TOKEN_BEGINS}{run}-{number}-"))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(&self.0)
    }
}

/// Whether the result of a tool names the tag that it was called with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tagged {
    Yes,
    No,
}

/// Of which sequence an account is.
#[derive(Clone, Debug)]
pub(super) enum Of {
    /// The answer to a request.
    Call { id: u64, tagged: Tagged },
    /// What a tool makes the server say on the standalone stream.
    Emission,
}

/// The account of one sequence.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) of: Of,
    pub(super) token: Token,
}

/// What a message says to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// The next of its own messages.
    Own(String),
    /// Its request failed.
    Error(String),
    /// It belongs to another sequence of the suite's.
    Foreign(String),
    /// The server says that state has to be read again, or warns.
    Notice(String),
    /// Nothing to the matter.
    Aside,
}

/// How the client was told that something is lost or can't be had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// The request was refused.
    Refused(StatusCode),
    /// The verdict, or an event of its own type, says so.
    Reset(String),
    /// The call's own JSON-RPC error.
    Error(String),
    /// A notification that makes every client read again, or a warning.
    Notice(String),
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "refused with {}", status.as_u16()),
            Self::Reset(reason) => write!(f, "told by a reset: {reason}"),
            Self::Error(error) => write!(f, "told by the call's own error: {error}"),
            Self::Notice(method) => write!(f, "told by {method}"),
        }
    }
}

/// What an account becomes when it is read to an end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Came {
    /// The labels of its own messages, in their order.
    pub(super) labels: Vec<String>,
    /// When each of them came.
    pub(super) times: Vec<Instant>,
    /// The message at the cursor, if that came again under the id that was presented: a client can see that it has it.
    pub(super) again: Option<String>,
    /// Messages of other sequences.
    pub(super) foreign: Vec<String>,
    /// Whether and how the client was told.
    pub(super) told: Option<Told>,
    /// How it ended.
    pub(super) end: Ended,
}

/// How the reading of a sequence ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Ended {
    /// The stream stays open, and nothing more came in time.
    #[default]
    Open,
    /// The last message came, or the call's error.
    Complete,
    /// The stream ended, again and again, with nothing on it.
    Empty,
    /// The connection broke by itself, again and again.
    Broke(String),
    /// There was a refusal, or an answer that is no stream.
    NoStream(StatusCode),
}

impl Account {
    /// Reads one message.
    pub(super) fn read(&self, data: &str) -> Said {
        let Ok(body) = rpc::read(data.as_bytes()) else {
            return Said::Aside;
        };
        let Body::One(message) = body else {
            return self.stranger(data);
        };
        match message {
            Message::Response { id, outcome } => {
                let id = id.map(|id| id.as_str().to_owned()).unwrap_or_default();
                self.response(&id, outcome, data)
            }
            Message::Notification { method } => self.notification(&method, data),
            Message::Request { .. } => Said::Aside,
        }
    }

    fn response(&self, id: &str, outcome: Outcome, data: &str) -> Said {
        let Of::Call { id: own, tagged } = self.of else {
            return match id {
                "" | "null" => Said::Error(error_of(data)),
                _ => Said::Foreign(format!("the response with id {id}")),
            };
        };
        match (id == own.to_string(), outcome) {
            (true, Outcome::Error) => Said::Error(error_of(data)),
            (true, Outcome::Result) if tagged == Tagged::Yes && !self.token.is_in(data) => {
                Said::Foreign("another call's result, under this call's id".to_owned())
            }
            (true, Outcome::Result) => Said::Own(RESULT.to_owned()),
            (false, Outcome::Error) if id.is_empty() => Said::Error(error_of(data)),
            (false, Outcome::Error | Outcome::Result) => Said::Foreign(format!("the response with id {id}")),
        }
    }

    fn notification(&self, method: &str, data: &str) -> Said {
        let data_bytes = data.as_bytes();
        match (method, &self.of) {
            ("notifications/progress", _) => {
                let token = rpc::lookup(data_bytes, &["params", "progressToken"]).and_then(rpc::text);
                let progress = rpc::lookup(data_bytes, &["params", "progress"]);
                let progress = String::from_utf8_lossy(progress.unwrap_or_default()).into_owned();
                match (token, &self.of) {
                    (Some(token), Of::Call { .. }) if token == self.token.as_str() => Said::Own(progress),
                    (Some(token), Of::Call { .. } | Of::Emission) if token.starts_with(TOKEN_BEGINS) => {
                        Said::Foreign(format!("progress {progress} of another call"))
                    }
                    (Some(_) | None, Of::Call { .. } | Of::Emission) => Said::Aside,
                }
            }
            ("notifications/message", Of::Emission) if self.token.is_in(data) => {
                let raw = rpc::lookup(data_bytes, &["params", "data"]).unwrap_or_default();
                Said::Own(String::from_utf8_lossy(raw).replace(self.token.as_str(), TOKEN_STANDS))
            }
            ("notifications/message", Of::Call { .. } | Of::Emission) => match self.stranger(data) {
                Said::Aside if is_warning(data) => Said::Notice("a warning".to_owned()),
                said => said,
            },
            (method, Of::Call { .. } | Of::Emission)
                if method.ends_with("list_changed") || method == "notifications/resources/updated" =>
            {
                Said::Notice(method.to_owned())
            }
            (_, Of::Call { .. } | Of::Emission) => Said::Aside,
        }
    }

    /// Something that is none of its own: another sequence's, if any token of the suite stands in it.
    fn stranger(&self, data: &str) -> Said {
        match data.contains(TOKEN_BEGINS) && !self.token.is_in(data) {
            true => Said::Foreign("a message of another call".to_owned()),
            false => Said::Aside,
        }
    }
}

/// What an error says, in short.
pub(super) fn error_of(data: &str) -> String {
    let raw = |path: &[&str]| rpc::lookup(data.as_bytes(), path);
    let text = |path: &[&str]| raw(path).and_then(rpc::text).map(|text| text.into_owned());
    let code = raw(&["error", "code"]).map(|code| String::from_utf8_lossy(code).into_owned());
    let message = text(&["error", "message"]).unwrap_or_default();
    match text(&["error", "data", "reason"]) {
        Some(reason) => format!("{} {reason}", code.unwrap_or_default()),
        None => format!("{} {message}", code.unwrap_or_default()),
    }
}

fn is_warning(data: &str) -> bool {
    let level = rpc::lookup(data.as_bytes(), &["params", "level"]).and_then(rpc::text);
    let grave = ["warning", "error", "critical", "alert", "emergency"];
    level.is_some_and(|level| grave.contains(&&*level))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(of: Of) -> Account {
        Account {
            of,
            token: Token::new("r", 7),
        }
    }

    fn check(of: &Of, data: &str, said: Said) {
        assert_eq!(account(of.clone()).read(data), said, "{data}");
    }

    #[test]
    fn a_message_is_known_by_its_token() {
        let call = &Of::Call {
            id: 3,
            tagged: Tagged::Yes,
        };
        let untagged = &Of::Call {
            id: 3,
            tagged: Tagged::No,
        };
        let progress = |token: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}","progress":2}}}}"#
            )
        };
        let result = |id: &str, text: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
            )
        };
        let note = |level: &str, data: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","data":{data}}}}}"#
            )
        };
        let own = |label: &str| Said::Own(label.to_owned());
        let foreign = |what: &str| Said::Foreign(what.to_owned());
        check(call, &progress("tlsuite-r-7-"), own("2"));
        check(
            call,
            &progress("tlsuite-r-71-"),
            foreign("progress 2 of another call"),
        );
        check(call, &progress("other"), Said::Aside);
        check(call, &result("3", "tlsuite-r-7-:done"), own("result"));
        let mixed = foreign("another call's result, under this call's id");
        check(call, &result("3", "tlsuite-r-8-:done"), mixed);
        check(untagged, &result("3", "done"), own("result"));
        check(call, &result("4", "x"), foreign("the response with id 4"));
        let lost =
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"m","data":{"reason":"evicted"}}}"#;
        check(call, lost, Said::Error("-32603 evicted".to_owned()));
        let nameless = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}"#;
        check(call, nameless, Said::Error("-32000 no".to_owned()));
        check(&Of::Emission, nameless, Said::Error("-32000 no".to_owned()));
        let message = note("info", r#"{"tag":"tlsuite-r-7-","seq":1}"#);
        check(&Of::Emission, &message, own(r#"{"tag":"{tag}","seq":1}"#));
        check(call, &message, Said::Aside);
        let other = note("info", r#"{"tag":"tlsuite-r-9-","seq":1}"#);
        check(&Of::Emission, &other, foreign("a message of another call"));
        check(call, &other, foreign("a message of another call"));
        check(
            &Of::Emission,
            &result("3", "x"),
            foreign("the response with id 3"),
        );
        check(
            &Of::Emission,
            &note("warning", r#""lost""#),
            Said::Notice("a warning".to_owned()),
        );
        check(&Of::Emission, &note("info", r#""hello""#), Said::Aside);
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        check(
            &Of::Emission,
            changed,
            Said::Notice("notifications/tools/list_changed".to_owned()),
        );
        check(
            call,
            r#"{"jsonrpc":"2.0","id":3,"method":"roots/list"}"#,
            Said::Aside,
        );
        check(call, "half", Said::Aside);
    }
}

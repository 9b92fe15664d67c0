//! What a POST's body says, read once for everybody who asks: the router, the session's notes, the metrics.
//! Law: what is no JSON-RPC is nobody's business here; the backend judges it.
//! Absent on purpose: the body itself, which passes byte for byte.
//! Next: `post.rs`.

use bytes::Bytes;
use http::Method;

use crate::pure::refusal::LogLevel;
use crate::pure::rpc::{self, Body, Message, RequestId};
use crate::pure::session::Asks;
use crate::relay::answer::Call;

/// The method by which a model acts.
const TOOL_CALL: &str = "tools/call";
/// The notification by which a client withdraws a request.
const CANCELLED: &str = "notifications/cancelled";

/// What a request's body says.
#[derive(Debug)]
pub(crate) enum Said {
    /// It is not read: the method is not POST.
    Nothing,
    /// No JSON-RPC.
    Unreadable,
    /// `initialize`, alone.
    Initialize {
        /// Its id.
        id: RequestId,
    },
    /// Requests, perhaps among other messages.
    Requests {
        /// Their ids, at least one.
        ids: Vec<RequestId>,
        /// What the session remembers of them.
        note: Note,
        /// The requests that a `notifications/cancelled` among them withdraws.
        cancelled: Vec<RequestId>,
        /// The requests of the backend's that answers among them answer.
        answered: Vec<RequestId>,
    },
    /// Notifications and answers only.
    Notices {
        /// The requests that a `notifications/cancelled` withdraws.
        cancelled: Vec<RequestId>,
        /// The requests of the backend's that the answers among them answer.
        answered: Vec<RequestId>,
    },
}

/// What a session remembers of its client's requests.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// Nothing.
    Nothing,
    /// That it called a tool.
    Called,
    /// That it called a tool among other messages.
    CalledAmong,
    /// The log level that it wants.
    Level(LogLevel),
    /// A resource that it wants to hear of.
    Subscribed(Box<str>),
    /// A resource that it does not want to hear of any more.
    Unsubscribed(Box<str>),
}

impl Note {
    /// What the request is, as far as the loss of its session matters to it.
    pub(crate) const fn asks(&self) -> Asks {
        match self {
            Self::Called | Self::CalledAmong => Asks::Tool,
            Self::Nothing | Self::Level(_) | Self::Subscribed(_) | Self::Unsubscribed(_) => Asks::Other,
        }
    }
}

impl Said {
    /// Reads a request's body, if its method is POST.
    pub(crate) fn of(call: &Call) -> Self {
        if call.method == Method::POST {
            read(&call.body)
        } else {
            Self::Nothing
        }
    }

    /// The ids of the requests in it.
    pub(crate) fn ids(&self) -> &[RequestId] {
        match self {
            Self::Initialize { id } => std::slice::from_ref(id),
            Self::Requests { ids, .. } => ids,
            Self::Nothing | Self::Unreadable | Self::Notices { .. } => &[],
        }
    }

    /// The same, taken out.
    pub(crate) fn into_ids(self) -> Vec<RequestId> {
        match self {
            Self::Initialize { id } => vec![id],
            Self::Requests { ids, .. } => ids,
            Self::Nothing | Self::Unreadable | Self::Notices { .. } => Vec::new(),
        }
    }
}

fn read(raw: &Bytes) -> Said {
    match rpc::read(raw) {
        Err(_) => Said::Unreadable,
        Ok(Body::One(Message::Request { id, method })) if method == "initialize" => Said::Initialize { id },
        Ok(Body::One(Message::Request { id, method })) => Said::Requests {
            ids: vec![id],
            note: note(&method, raw),
            cancelled: Vec::new(),
            answered: Vec::new(),
        },
        Ok(Body::One(Message::Notification { method })) => Said::Notices {
            cancelled: withdrawn(&method, raw).into_iter().collect(),
            answered: Vec::new(),
        },
        Ok(Body::One(Message::Response { id, .. })) => Said::Notices {
            cancelled: Vec::new(),
            answered: id.into_iter().collect(),
        },
        Ok(Body::Batch(messages)) => several(messages, raw),
    }
}

fn several(messages: Vec<Message<'_>>, raw: &[u8]) -> Said {
    let mut note = Note::Nothing;
    let (mut ids, mut answered, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
    let withdraws =
        |message: &Message<'_>| matches!(message, Message::Notification { method } if method == CANCELLED);
    // Taken apart only for what must be looked up in it.
    let elements = if messages.iter().any(withdraws) {
        rpc::elements(raw).unwrap_or_default()
    } else {
        Vec::new()
    };
    for (nth, message) in messages.into_iter().enumerate() {
        match message {
            Message::Request { id, method } => {
                ids.push(id);
                if method == TOOL_CALL {
                    note = Note::CalledAmong;
                }
            }
            Message::Response { id, .. } => answered.extend(id),
            Message::Notification { method } => {
                cancelled.extend(elements.get(nth).and_then(|one| withdrawn(&method, one)));
            }
        }
    }
    if ids.is_empty() {
        Said::Notices { cancelled, answered }
    } else {
        Said::Requests {
            ids,
            note,
            cancelled,
            answered,
        }
    }
}

/// The request that this notification withdraws, if that is what it is for.
fn withdrawn(method: &str, raw: &[u8]) -> Option<RequestId> {
    if method != CANCELLED {
        return None;
    }
    let id = rpc::lookup(raw, &["params", "requestId"])?;
    RequestId::from_raw(id).ok()
}

fn note(method: &str, raw: &[u8]) -> Note {
    let parameter = |name: &str| rpc::lookup(raw, &["params", name]).and_then(rpc::text);
    let noted = match method {
        TOOL_CALL => return Note::Called,
        "logging/setLevel" => parameter("level")
            .and_then(|level| LogLevel::parse(&level))
            .map(Note::Level),
        "resources/subscribe" => parameter("uri").map(|uri| Note::Subscribed((*uri).into())),
        "resources/unsubscribe" => parameter("uri").map(|uri| Note::Unsubscribed((*uri).into())),
        _ => None,
    };
    noted.unwrap_or(Note::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let ids = |ids: &[RequestId]| ids.iter().map(RequestId::as_str).collect::<Vec<_>>().join(",");
        let said = match read(&Bytes::copy_from_slice(body.as_bytes())) {
            Said::Nothing => "nothing".to_owned(),
            Said::Unreadable => "unreadable".to_owned(),
            Said::Initialize { id } => format!("initialize {}", id.as_str()),
            Said::Requests {
                ids: several,
                note,
                cancelled,
                answered,
            } => format!(
                "requests {} {note:?}{}{}{}{}",
                ids(&several),
                if cancelled.is_empty() { "" } else { " cancelled " },
                ids(&cancelled),
                if answered.is_empty() { "" } else { " answered " },
                ids(&answered)
            ),
            Said::Notices { cancelled, answered } => format!(
                "notices, cancelled {}, answered {}",
                ids(&cancelled),
                ids(&answered)
            ),
        };
        assert_eq!(said, expected, "{body}");
    }

    #[test]
    fn a_body_is_read_once_for_all() {
        for (body, expected) in [
            ("initialize", "unreadable"),
            (
                r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#,
                "initialize 0",
            ),
            // Within a batch it makes no session: the backend's to judge.
            (
                r#"[{"jsonrpc":"2.0","id":0,"method":"initialize"}]"#,
                "requests 0 Nothing",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#,
                r#"requests "a" Called"#,
            ),
            (
                r#"[{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":2,"method":"tools/call"}]"#,
                "requests 2 CalledAmong",
            ),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},{"jsonrpc":"2.0","id":2,"method":"c"}]"#,
                "requests 1,2 Nothing",
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
                "notices, cancelled , answered 7",
            ),
            (
                r#"[{"jsonrpc":"2.0","id":7,"result":{}},{"jsonrpc":"2.0","id":"a","error":{}}]"#,
                r#"notices, cancelled , answered 7,"a""#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                "notices, cancelled , answered ",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
                "notices, cancelled 7, answered ",
            ),
            (
                r#"[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}},{"jsonrpc":"2.0","id":3,"result":{}}]"#,
                r#"notices, cancelled 7,"a", answered 3"#,
            ),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}]"#,
                "requests 1 Nothing cancelled 7",
            ),
            (
                r#"[{"jsonrpc":"2.0","id":7,"result":{}},{"jsonrpc":"2.0","id":1,"method":"a"}]"#,
                "requests 1 Nothing answered 7",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#,
                "requests 1 Level(Error)",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:\u0062"}}"#,
                r#"requests 1 Subscribed("a:b")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/unsubscribe","params":{"uri":"a:b"}}"#,
                r#"requests 1 Unsubscribed("a:b")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{}}"#,
                "requests 1 Nothing",
            ),
        ] {
            check(body, expected);
        }
    }
}

//! The least a proxy must know of a JSON-RPC message: its kind, its id, its method.
//! Law: a message is read only if it can be taken in one way; what could be two things to two readers is refused.
//! A member that decides (`jsonrpc`, `id`, `method`, `params`, `result`, `error`) may stand there once, in exact case.
//! Absent on purpose: writing, but for one string (`quote.rs`). What was read is passed on byte for byte.
//! Next: `malformed.rs`, `scan.rs`, then `id.rs`.

use std::borrow::Cow;

use crate::pure::limits::BATCH_MESSAGES_MAX;

mod canon;
mod id;
mod malformed;
mod quote;
mod scan;

pub use canon::canonical;
pub use id::RequestId;
pub use malformed::{Fault, Malformed};
pub use quote::quoted;

use scan::{Container, Scan, Turn, decode};

/// One JSON-RPC message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A call that wants an answer.
    Request {
        /// Its id.
        id: RequestId,
        /// What is called, decoded.
        method: Cow<'a, str>,
    },
    /// A call that wants none.
    Notification {
        /// What is called, decoded.
        method: Cow<'a, str>,
    },
    /// An answer.
    Response {
        /// The id of the request; `None` if it is `null` or missing.
        id: Option<RequestId>,
        /// What the answer is.
        outcome: Outcome,
    },
}

/// What an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// `result`
    Result,
    /// `error`
    Error,
}

/// What a POST carries, or the data of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// One message.
    One(Message<'a>),
    /// A batch of at least one and at most [`BATCH_MESSAGES_MAX`] messages.
    Batch(Vec<Message<'a>>),
}

impl<'a> Body<'a> {
    /// The messages, in their order, at least one.
    pub fn messages(&self) -> &[Message<'a>] {
        match self {
            Self::One(message) => std::slice::from_ref(message),
            Self::Batch(messages) => messages,
        }
    }
}

/// Reads a whole JSON text as a message or a batch. Nothing is decoded but the keys, the method and a string id.
///
/// # Errors
/// [`Malformed`]: it is no JSON, no message, or could be taken in two ways.
pub fn read(json: &[u8]) -> Result<Body<'_>, Malformed> {
    let mut scan = Scan::new(json)?;
    let body = match scan.open() {
        Some(Container::Object) => Body::One(message(&mut scan)?),
        Some(Container::Array) => Body::Batch(batch(&mut scan)?),
        None => {
            scan.value()?;
            return Err(Malformed::new(0, Fault::NotAMessage));
        }
    };
    scan.end()?;
    Ok(body)
}

fn batch<'a>(scan: &mut Scan<'a>) -> Result<Vec<Message<'a>>, Malformed> {
    let mut messages = Vec::new();
    let mut turn = Turn::First;
    while scan.element(turn)? {
        if messages.len() == BATCH_MESSAGES_MAX {
            return Err(scan.fault(Fault::BatchTooLong));
        }
        match scan.open() {
            Some(Container::Object) => messages.push(message(scan)?),
            Some(Container::Array) | None => return Err(scan.fault(Fault::NotAMessage)),
        }
        turn = Turn::Later;
    }
    if messages.is_empty() {
        return Err(scan.fault(Fault::EmptyBatch));
    }
    Ok(messages)
}

/// The members that decide what a message is, and where their values stand.
#[derive(Default)]
struct Members<'a> {
    jsonrpc: Slot<'a>,
    id: Slot<'a>,
    method: Slot<'a>,
    params: Slot<'a>,
    result: Slot<'a>,
    error: Slot<'a>,
}

type Slot<'a> = Option<(usize, &'a str)>;

/// A member that decides what a message is.
#[derive(Clone, Copy)]
enum Member {
    Jsonrpc,
    Id,
    Method,
    Params,
    Result,
    Error,
}

impl Member {
    /// By its key, in exact case.
    fn of(key: &str) -> Option<Self> {
        Some(match key {
            "jsonrpc" => Self::Jsonrpc,
            "id" => Self::Id,
            "method" => Self::Method,
            "params" => Self::Params,
            "result" => Self::Result,
            "error" => Self::Error,
            _ => return None,
        })
    }

    /// By its raw key. A key that differs from one of ours only by case is a fault; other keys decide nothing.
    fn read(raw: &str) -> Result<Option<Self>, Fault> {
        let plain = raw.get(1..raw.len() - 1).unwrap_or_default();
        if let Some(member) = Self::of(plain) {
            return Ok(Some(member));
        }
        let key = if plain.as_bytes().contains(&b'\\') {
            decode(raw)
        } else {
            Some(Cow::Borrowed(plain))
        };
        // A key with half of a surrogate pair is none of ours.
        let Some(key) = key else { return Ok(None) };
        let ours = ["jsonrpc", "id", "method", "params", "result", "error"];
        match Self::of(&key) {
            Some(member) => Ok(Some(member)),
            None if ours.iter().any(|name| looks_like(&key, name)) => Err(Fault::MemberLookalike),
            None => Ok(None),
        }
    }
}

impl<'a> Members<'a> {
    fn slot(&mut self, member: Member) -> &mut Slot<'a> {
        match member {
            Member::Jsonrpc => &mut self.jsonrpc,
            Member::Id => &mut self.id,
            Member::Method => &mut self.method,
            Member::Params => &mut self.params,
            Member::Result => &mut self.result,
            Member::Error => &mut self.error,
        }
    }
}

/// Whether a reader that ignores case would take `key` for `name`. Readers that fold Unicode also take the long s
/// for an s; of our names only these letters have such a relative.
fn looks_like(key: &str, name: &str) -> bool {
    let fold = |c: char| if c == 'ſ' { 's' } else { c.to_ascii_lowercase() };
    key.chars().map(fold).eq(name.chars())
}

/// Reads the members of an object that was just opened.
fn message<'a>(scan: &mut Scan<'a>) -> Result<Message<'a>, Malformed> {
    let start = scan.at() - 1;
    let mut members = Members::default();
    let mut turn = Turn::First;
    while let Some(key) = scan.member(turn)? {
        let at = scan.at();
        let value = scan.value()?;
        if let Some(member) = Member::read(key).map_err(|fault| Malformed::new(at, fault))?
            && members.slot(member).replace((at, value)).is_some()
        {
            return Err(Malformed::new(at, Fault::MemberTwice));
        }
        turn = Turn::Later;
    }
    kind(members, start)
}

fn kind<'a>(members: Members<'a>, start: usize) -> Result<Message<'a>, Malformed> {
    let Some((at, method)) = members.method else {
        return answer(members, start);
    };
    if members.result.is_some() || members.error.is_some() {
        return Err(Malformed::new(start, Fault::Ambiguous));
    }
    if !method.starts_with('"') {
        return Err(Malformed::new(at, Fault::MethodKind));
    }
    let method = decode(method).ok_or(Malformed::new(at, Fault::LoneSurrogate))?;
    Ok(match members.id {
        Some((at, id)) => Message::Request {
            id: RequestId::from_value(id, at)?,
            method,
        },
        None => Message::Notification { method },
    })
}

fn answer<'a>(members: Members<'a>, start: usize) -> Result<Message<'a>, Malformed> {
    let null = |slot: Slot<'a>| slot.is_none_or(|(_, value)| value == "null");
    // Some servers of the older JSON-RPC write the other one as null.
    let outcome = match (members.result, members.error) {
        (Some(_), error) if null(error) => Outcome::Result,
        (result, Some(error)) if null(result) && !null(Some(error)) => Outcome::Error,
        (Some(_), Some(_)) => return Err(Malformed::new(start, Fault::Ambiguous)),
        (None, _) | (Some(_), None) => return Err(Malformed::new(start, Fault::Shapeless)),
    };
    let id = match members.id {
        None | Some((_, "null")) => None,
        Some((at, id)) => Some(RequestId::from_value(id, at)?),
    };
    Ok(Message::Response { id, outcome })
}

/// What the data of a backend's event is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventKind<'a> {
    /// A notification.
    Notification,
    /// A request of the server to the client.
    Request {
        /// Its id, of the server's choice.
        id: RequestId,
        /// What is called, decoded.
        method: Cow<'a, str>,
    },
    /// The answer to the request with this id, result or error.
    Response(RequestId),
    /// Several of them.
    Batch(Vec<Message<'a>>),
    /// Nothing that can be understood, or an answer to no id. It is passed on unchanged.
    Other,
}

/// How the senders in the field begin a notification, in two parts: what is short is compared in a few words, in place.
const NOTIFICATION_STARTS: [[&[u8]; 2]; 4] = [
    [br#"{"jsonrpc":"2.0","#, br#""method":"notifications/"#],
    [br"{", br#""method":"notifications/"#],
    [br#"{"jsonrpc": "2.0", "#, br#""method": "notifications/"#],
    [br"{", br#""method": "notifications/"#],
];

/// Whether data begins as the senders in the field begin a notification.
#[inline]
pub fn begins_a_notification(data: &[u8]) -> bool {
    NOTIFICATION_STARTS.iter().any(|[start, more]| {
        data.strip_prefix(*start)
            .is_some_and(|rest| rest.starts_with(more))
    })
}

/// What the data of a backend's event is. Data that starts as known senders begin a notification is taken for one
/// without reading on: whatever else it holds, no request of ours is answered by it.
pub fn classify_event(data: &[u8]) -> EventKind<'_> {
    if begins_a_notification(data) {
        return EventKind::Notification;
    }
    match read(data) {
        Ok(Body::One(Message::Request { id, method })) => EventKind::Request { id, method },
        Ok(Body::One(Message::Notification { .. })) => EventKind::Notification,
        Ok(Body::One(Message::Response { id: Some(id), .. })) => EventKind::Response(id),
        Ok(Body::One(Message::Response { id: None, .. })) | Err(_) => EventKind::Other,
        Ok(Body::Batch(messages)) => EventKind::Batch(messages),
    }
}

/// The raw JSON value that stands at this path of object members, e.g. `["result", "protocolVersion"]`.
/// `None` if it is not there, if the text is no JSON, or if a member of the path stands there twice.
pub fn lookup<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    let mut scan = Scan::new(json).ok()?;
    let found = seek(&mut scan, path).ok()?;
    scan.end().ok()?;
    found.map(str::as_bytes)
}

/// Steps over one value, and answers what stands at this path in it.
fn seek<'a>(scan: &mut Scan<'a>, path: &[&str]) -> Result<Option<&'a str>, Malformed> {
    let Some((name, rest)) = path.split_first() else {
        return scan.value().map(Some);
    };
    if scan.peek() != Some(b'{') {
        return scan.value().map(|_| None);
    }
    scan.open();
    let mut found = Found::Missing;
    let mut turn = Turn::First;
    while let Some(key) = scan.member(turn)? {
        if decode(key).is_some_and(|key| key == *name) {
            let value = seek(scan, rest)?;
            found = match found {
                Found::Missing => Found::Once(value),
                Found::Once(_) | Found::Twice => Found::Twice,
            };
        } else {
            scan.value()?;
        }
        turn = Turn::Later;
    }
    match found {
        Found::Once(value) => Ok(value),
        Found::Missing | Found::Twice => Ok(None),
    }
}

/// A member of an object that is looked for by its name.
enum Found<'a> {
    Missing,
    /// What stands at the rest of the path in it.
    Once(Option<&'a str>),
    Twice,
}

/// The elements of a raw JSON array, raw; `None` if it is no array or has more than [`BATCH_MESSAGES_MAX`].
pub fn elements(raw: &[u8]) -> Option<Vec<&[u8]>> {
    let mut scan = Scan::new(raw).ok()?;
    if scan.open() != Some(Container::Array) {
        return None;
    }
    let mut out = Vec::new();
    let mut turn = Turn::First;
    while scan.element(turn).ok()? {
        if out.len() == BATCH_MESSAGES_MAX {
            return None;
        }
        out.push(scan.value().ok()?.as_bytes());
        turn = Turn::Later;
    }
    scan.end().ok()?;
    Some(out)
}

/// The members of a raw JSON object: decoded names and raw values. `None` if it is no object, or a name is no text.
pub fn members(raw: &[u8]) -> Option<Vec<(Cow<'_, str>, &[u8])>> {
    let mut scan = Scan::new(raw).ok()?;
    if scan.open() != Some(Container::Object) {
        return None;
    }
    let mut out = Vec::new();
    let mut turn = Turn::First;
    while let Some(key) = scan.member(turn).ok()? {
        out.push((decode(key)?, scan.value().ok()?.as_bytes()));
        turn = Turn::Later;
    }
    scan.end().ok()?;
    Some(out)
}

/// What a raw JSON string says; `None` if it is no string, or holds half of a surrogate pair.
pub fn text(raw: &[u8]) -> Option<Cow<'_, str>> {
    let mut scan = Scan::new(raw).ok()?;
    if scan.peek() != Some(b'"') {
        return None;
    }
    let token = scan.value().ok()?;
    scan.end().ok()?;
    decode(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::limits::JSON_DEPTH_MAX;

    fn id(token: &str) -> RequestId {
        RequestId::from_raw(token.as_bytes()).expect("an id")
    }

    fn request(token: &str, method: &'static str) -> Message<'static> {
        Message::Request {
            id: id(token),
            method: method.into(),
        }
    }

    fn notification(method: &'static str) -> Message<'static> {
        Message::Notification {
            method: method.into(),
        }
    }

    fn response(token: Option<&str>, outcome: Outcome) -> Message<'static> {
        Message::Response {
            id: token.map(id),
            outcome,
        }
    }

    /// Whole it is read like this; cut anywhere, or with something after it, it is not read at all.
    fn check(json: &str, body: Body<'_>) {
        assert_eq!(read(json.as_bytes()), Ok(body.clone()), "{json}");
        assert_eq!(read(format!("\r\n\t {json} \n").as_bytes()), Ok(body), "{json}");
        for cut in 0..json.len() {
            assert!(read(&json.as_bytes()[..cut]).is_err(), "{json} cut at {cut}");
        }
        for more in ["x", "{}", ",", "]", "\0"] {
            assert!(read(format!("{json}{more}").as_bytes()).is_err(), "{json}{more}");
        }
    }

    #[test]
    fn one_message() {
        let call = "tools/call";
        for (json, message) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
                request("7", call),
            ),
            (
                r#"{"method":"tools/call","params":{"id":1,"method":"x"},"id":"a"}"#,
                request("\"a\"", call),
            ),
            (
                r#"{ "id" : -1.50 , "method" : "tools\/c\u0061ll" }"#,
                request("-1.50", call),
            ),
            (r#"{"\u0069d":7,"m\u0065thod":"tools/call"}"#, request("7", call)),
            (
                r#"{"method":"tools/call","id":7,"extra":{"result":1},"id2":1}"#,
                request("7", call),
            ),
            (r#"{"method":"","id":0}"#, request("0", "")),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                notification("notifications/initialized"),
            ),
            (r#"{"method":"x","\ud800":1}"#, notification("x")),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
                response(Some("7"), Outcome::Result),
            ),
            (r#"{"id":7,"result":null}"#, response(Some("7"), Outcome::Result)),
            (
                r#"{"id":7,"error":{"code":1}}"#,
                response(Some("7"), Outcome::Error),
            ),
            (r#"{"id":null,"error":{}}"#, response(None, Outcome::Error)),
            (r#"{"error":{}}"#, response(None, Outcome::Error)),
            (
                r#"{"id":7,"result":{},"error":null}"#,
                response(Some("7"), Outcome::Result),
            ),
            (
                r#"{"id":7,"result":null,"error":{}}"#,
                response(Some("7"), Outcome::Error),
            ),
        ] {
            check(json, Body::One(message));
        }
    }

    #[test]
    fn batches() {
        check(
            r#"[ {"id":1,"method":"a"} , {"method":"b"},{"id":"x","result":[[]]} ]"#,
            Body::Batch(vec![
                request("1", "a"),
                notification("b"),
                response(Some("\"x\""), Outcome::Result),
            ]),
        );
        check(r#"[{"method":"b"}]"#, Body::Batch(vec![notification("b")]));
        let many = |n| format!("[{}]", vec![r#"{"method":"b"}"#; n].join(","));
        let fault = |n| {
            read(many(n).as_bytes())
                .map(|body| body.messages().len())
                .map_err(Malformed::fault)
        };
        assert_eq!(fault(BATCH_MESSAGES_MAX), Ok(BATCH_MESSAGES_MAX));
        assert_eq!(fault(BATCH_MESSAGES_MAX + 1), Err(Fault::BatchTooLong));
    }

    #[test]
    fn what_is_no_message() {
        for (json, at, fault) in [
            ("", 0, Fault::Truncated),
            ("null", 0, Fault::NotAMessage),
            ("7", 0, Fault::NotAMessage),
            ("\"x\"", 0, Fault::NotAMessage),
            ("nul", 3, Fault::Truncated),
            ("hello", 0, Fault::Syntax),
            ("[]", 2, Fault::EmptyBatch),
            ("[1]", 1, Fault::NotAMessage),
            ("[[]]", 2, Fault::NotAMessage),
            (r#"[{"method":"a"},]"#, 16, Fault::NotAMessage),
            (r#"[{"method":"a"} {"method":"a"}]"#, 16, Fault::Syntax),
            ("{}", 0, Fault::Shapeless),
            (r#"{"id":7}"#, 0, Fault::Shapeless),
            (r#"{"id":7,"error":null}"#, 0, Fault::Shapeless),
            (r#"{"jsonrpc":"2.0","params":{}}"#, 0, Fault::Shapeless),
            // Ids.
            (r#"{"id":null,"method":"a"}"#, 6, Fault::IdKind),
            (r#"{"id":true,"method":"a"}"#, 6, Fault::IdKind),
            (r#"{"id":[1],"method":"a"}"#, 6, Fault::IdKind),
            (r#"{"id":{},"result":1}"#, 6, Fault::IdKind),
            (r#"{"id":"\ud800","method":"a"}"#, 6, Fault::LoneSurrogate),
            // Methods.
            (r#"{"id":1,"method":null}"#, 17, Fault::MethodKind),
            (r#"{"method":{}}"#, 10, Fault::MethodKind),
            (r#"{"method":"\udc00"}"#, 10, Fault::LoneSurrogate),
            // What two readers could take for two things.
            (r#"{"id":1,"id":2,"method":"a"}"#, 13, Fault::MemberTwice),
            (r#"{"id":1,"id":1,"method":"a"}"#, 13, Fault::MemberTwice),
            (r#"{"id":1,"\u0069d":2,"method":"a"}"#, 18, Fault::MemberTwice),
            (r#"{"method":"a","method":"b"}"#, 23, Fault::MemberTwice),
            (r#"{"method":"a","params":1,"params":2}"#, 34, Fault::MemberTwice),
            (
                r#"{"jsonrpc":"2.0","jsonrpc":"2.0","method":"a"}"#,
                27,
                Fault::MemberTwice,
            ),
            (r#"{"id":1,"result":1,"result":2}"#, 28, Fault::MemberTwice),
            (r#"{"id":1,"error":{},"error":{}}"#, 27, Fault::MemberTwice),
            (r#"{"method":"a","Method":"b"}"#, 23, Fault::MemberLookalike),
            (r#"{"ID":1,"method":"a"}"#, 6, Fault::MemberLookalike),
            (r#"{"method":"a","param\u017f":{}}"#, 28, Fault::MemberLookalike),
            (r#"{"id":1,"method":"a","result":1}"#, 0, Fault::Ambiguous),
            (r#"{"id":1,"method":"a","error":null}"#, 0, Fault::Ambiguous),
            (r#"{"id":1,"result":1,"error":{}}"#, 0, Fault::Ambiguous),
        ] {
            let refused = read(json.as_bytes()).expect_err(json);
            assert_eq!((refused.at(), refused.fault()), (at, fault), "{json}");
            assert!(!refused.what().is_empty() && refused.to_string().contains(refused.what()));
        }
        let deep = format!(r#"{{"method":"a","params":{}"#, "[".repeat(100_000));
        assert_eq!(
            read(deep.as_bytes()).map_err(Malformed::fault),
            Err(Fault::TooDeep)
        );
    }

    #[test]
    fn events() {
        fn check(data: &str, kind: EventKind<'_>) {
            assert_eq!(classify_event(data.as_bytes()), kind, "{data}");
        }
        for start in NOTIFICATION_STARTS {
            let start = String::from_utf8(start.concat()).expect("UTF-8");
            check(
                &format!(r#"{start}progress","params":{{}}}}"#),
                EventKind::Notification,
            );
            // Without reading on.
            check(&start, EventKind::Notification);
            check(&start[..start.len() - 1], EventKind::Other);
        }
        check(
            r#"{"params":{},"method":"notifications/x"}"#,
            EventKind::Notification,
        );
        check(r#"{"method":"other"}"#, EventKind::Notification);
        check(
            r#"{"method":"sampling/createMessage","id":0}"#,
            EventKind::Request {
                id: id("0"),
                method: "sampling/createMessage".into(),
            },
        );
        check(r#"{"id":"x","result":{}}"#, EventKind::Response(id("\"x\"")));
        check(r#"{"id":7,"error":{}}"#, EventKind::Response(id("7")));
        check(r#"[{"method":"b"}]"#, EventKind::Batch(vec![notification("b")]));
        for other in [
            "",
            " ",
            "{}",
            "ping",
            "null",
            "7",
            r#"{"id":null,"error":{}}"#,
            r#"{"result":1}"#,
            "[]",
        ] {
            check(other, EventKind::Other);
        }
        assert_eq!(classify_event(b"\xff"), EventKind::Other);
    }

    #[test]
    fn values_at_a_path() {
        fn check(json: &str, path: &[&str], found: Option<&str>) {
            let raw = lookup(json.as_bytes(), path).map(|raw| std::str::from_utf8(raw).expect("UTF-8"));
            assert_eq!(raw, found, "{json} {path:?}");
        }
        let answer = r#" {"id":0,"result":{"protocolVersion": "2025-11-25" ,"x":{"y":[1, 2]}}} "#;
        check(answer, &["result", "protocolVersion"], Some("\"2025-11-25\""));
        check(answer, &["result", "x", "y"], Some("[1, 2]"));
        check(answer, &["id"], Some("0"));
        check(answer, &[], Some(answer.trim()));
        check(answer, &["protocolVersion"], None);
        check(answer, &["result", "x", "y", "0"], None);
        check(answer, &["id", "x"], None);
        check(r#"{"\u0061":1}"#, &["a"], Some("1"));
        check(r#"{"a":1,"a":1}"#, &["a"], None);
        check(r#"{"a":1,"\u0061":1}"#, &["a"], None);
        check(r#"{"a":{"b":1},"c":{"b":2}}"#, &["c", "b"], Some("2"));
        check(r#"{"a":{"b":1},"a":{}}"#, &["a", "b"], None);
        check(r#"{"a":{},"a":{"b":1}}"#, &["a", "b"], None);
        check(r#"{"a":{"b":1,"b":2}}"#, &["a", "b"], None);
        check(r#"{"a":{"b":1,}}"#, &["a", "b"], None);
        check(r#"{"a":{"b":1]}"#, &["a", "b"], None);
        check(r#"[{"a":1}]"#, &["a"], None);
        let deep = |levels: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        check(&deep(JSON_DEPTH_MAX), &["a"], None);
        let whole = deep(JSON_DEPTH_MAX - 1);
        check(&whole, &["a"], Some(&whole[5..whole.len() - 1]));
        check(r#"{"a":1"#, &["a"], None);
        check(r#"{"a":1}x"#, &["a"], None);
        check(r#"{"a":1,"b":tru}"#, &["a"], None);
        check("", &["a"], None);
        assert_eq!(lookup(b"{\"a\":\"\xff\"}", &["a"]), None);
    }

    #[test]
    fn texts_and_elements() {
        for (raw, decoded) in [
            (r#""a""#, Some("a")),
            (r#" "\u0061\n" "#, Some("a\n")),
            (r#""""#, Some("")),
            (r#""\ud800""#, None),
            ("7", None),
            ("null", None),
            (r#""a"x"#, None),
            (r#""a"#, None),
            ("", None),
        ] {
            assert_eq!(text(raw.as_bytes()).as_deref(), decoded, "{raw}");
        }
        for (raw, items) in [
            ("[]", Some(vec![])),
            (
                r#" [1 , "a",[2,3],{"b":4} ] "#,
                Some(vec!["1", r#""a""#, "[2,3]", r#"{"b":4}"#]),
            ),
            ("[1,]", None),
            ("[1", None),
            ("[1]x", None),
            ("{}", None),
            ("1", None),
            ("", None),
        ] {
            let items = items.map(|items| items.into_iter().map(str::as_bytes).collect());
            assert_eq!(elements(raw.as_bytes()), items, "{raw}");
        }
        let many = |n| format!("[{}]", vec!["1"; n].join(","));
        let count = |n| elements(many(n).as_bytes()).map(|items| items.len());
        assert_eq!(count(BATCH_MESSAGES_MAX), Some(BATCH_MESSAGES_MAX));
        assert_eq!(count(BATCH_MESSAGES_MAX + 1), None);
    }
}

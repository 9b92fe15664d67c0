//! JSON-RPC messages: what is read is JSON that another reader takes for the same, and nothing panics.
//! Law: kind, id and method are those that a full JSON reader finds; where two readers could differ, it is refused.
//! Next: `event_id.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use throughline_fuzz::pure::rpc::{
    self, Body, EventKind, Malformed, Message, Outcome, RequestId, classify_event, elements, lookup, read,
    text,
};

/// What another reader finds; `None` where it can't hold a number or half of a surrogate pair.
fn value(json: &[u8]) -> Option<Value> {
    serde_json::from_slice(json).ok()
}

fn same_id(id: &RequestId, value: &Value) {
    match value {
        Value::String(text) => assert_eq!(id.text().as_deref(), Some(&**text)),
        Value::Number(_) => assert_eq!(
            serde_json::from_slice::<Value>(id.raw()).ok().as_ref(),
            Some(value)
        ),
        other => panic!("{other} is no id"),
    }
    assert_eq!(RequestId::from_raw(id.raw()).as_ref(), Ok(id));
}

fn same(message: &Message<'_>, value: &Value) {
    match message {
        Message::Request { id, method } => {
            same_id(id, &value["id"]);
            assert_eq!(value["method"].as_str(), Some(&**method));
        }
        Message::Notification { method } => {
            assert!(value.get("id").is_none());
            assert_eq!(value["method"].as_str(), Some(&**method));
        }
        Message::Response { id, outcome } => {
            assert!(value.get("method").is_none());
            match id {
                Some(id) => same_id(id, &value["id"]),
                None => assert!(value["id"].is_null()),
            }
            match outcome {
                Outcome::Result => assert!(value.get("result").is_some() && value["error"].is_null()),
                Outcome::Error => assert!(value["result"].is_null() && !value["error"].is_null()),
            }
        }
    }
}

fn whole(json: &[u8]) -> Result<Body<'_>, Malformed> {
    let said = read(json);
    if let Err(wrong) = said {
        assert!(wrong.at() <= json.len());
        return Err(wrong);
    }
    // A JSON text that ended can't go on, and one that is cut is not whole.
    let mut more = json.to_vec();
    more.push(b'0');
    assert!(read(&more).is_err());
    let end = json.trim_ascii_end().len();
    assert!(read(&json[..end - 1]).is_err());
    said
}

fuzz_target!(|input: (&[u8], &str)| {
    let (json, name) = input;
    if let Ok(body) = whole(json)
        && let Some(value) = value(json)
    {
        match (&body, &value) {
            (Body::One(message), value) => same(message, value),
            (Body::Batch(messages), Value::Array(values)) => {
                assert_eq!(messages.len(), values.len());
                messages
                    .iter()
                    .zip(values)
                    .for_each(|(message, value)| same(message, value));
            }
            (Body::Batch(_), other) => panic!("{other} is no batch"),
        }
    }
    match classify_event(json) {
        EventKind::Notification | EventKind::Other => {}
        EventKind::Request { id, .. } | EventKind::Response(id) => {
            assert!(read(json).is_ok_and(|body| match &body.messages()[0] {
                Message::Request { id: same, .. } | Message::Response { id: Some(same), .. } => *same == id,
                Message::Notification { .. } | Message::Response { id: None, .. } => false,
            }));
        }
        EventKind::Batch(messages) => assert_eq!(read(json), Ok(Body::Batch(messages))),
    }
    for key in [name, "id", "method", "params"] {
        if let (Some(raw), Some(value)) = (lookup(json, &[key]), value(json)) {
            assert_eq!(serde_json::from_slice::<Value>(raw).ok().as_ref(), value.get(key));
        }
    }
    if let (Some(said), Some(value)) = (text(json), value(json)) {
        assert_eq!(value.as_str(), Some(&*said));
    }
    if let (Some(raws), Some(value)) = (elements(json), value(json)) {
        assert_eq!(Some(raws.len()), value.as_array().map(Vec::len));
    }
    let quoted = rpc::quoted(name);
    assert_eq!(text(quoted.as_bytes()).as_deref(), Some(name));
    assert_eq!(value(quoted.as_bytes()), Some(Value::from(name)));
});

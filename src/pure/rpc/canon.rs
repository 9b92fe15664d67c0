//! One spelling for each JSON value, so that two texts can be compared by what they say.
//! Law: members in the order of their names, strings in their shortest spelling, no blanks; numbers as they came.
//! Why: some servers keep events as values and write them anew when they are asked for: same data, other bytes.
//! Absent on purpose: sending it. What was read is passed on byte for byte.
//! Next: `../overlap.rs`.

use crate::pure::rpc::quote::quoted;
use crate::pure::rpc::scan::{Container, Scan, Turn, decode};

/// The one spelling of this JSON text; `None` if it is no JSON, or nested deeper than the reader follows.
pub fn canonical(json: &[u8]) -> Option<Vec<u8>> {
    let mut scan = Scan::new(json).ok()?;
    // Stepping over it bounds how deep it is.
    let whole = scan.value().ok()?;
    scan.end().ok()?;
    let mut out = Vec::with_capacity(whole.len());
    write(whole, &mut out)?;
    Some(out)
}

fn write(value: &str, out: &mut Vec<u8>) -> Option<()> {
    let mut scan = Scan::new(value.as_bytes()).ok()?;
    match scan.open() {
        Some(Container::Object) => {
            let mut members = Vec::new();
            let mut turn = Turn::First;
            while let Some(key) = scan.member(turn).ok()? {
                members.push((spelled(key), scan.value().ok()?));
                turn = Turn::Later;
            }
            // Of two members with one name the first stays first: which of them counts is the reader's choice.
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            out.push(b'{');
            for (nth, (key, value)) in members.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(key.as_bytes());
                out.push(b':');
                write(value, out)?;
            }
            out.push(b'}');
        }
        Some(Container::Array) => {
            out.push(b'[');
            let mut turn = Turn::First;
            while scan.element(turn).ok()? {
                if turn == Turn::Later {
                    out.push(b',');
                }
                write(scan.value().ok()?, out)?;
                turn = Turn::Later;
            }
            out.push(b']');
        }
        None => out.extend_from_slice(spelled(value).as_bytes()),
    }
    Some(())
}

/// A string in its shortest spelling; anything else, and half of a surrogate pair, as it came.
fn spelled(token: &str) -> String {
    decode(token).map_or_else(|| token.to_owned(), |text| quoted(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::limits::JSON_DEPTH_MAX;

    fn check(json: &str, expected: Option<&str>) {
        let found = canonical(json.as_bytes());
        let found = found.map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(found.as_deref(), expected, "{json}");
        if let Some(text) = found {
            assert_eq!(
                canonical(text.as_bytes()),
                Some(text.into_bytes()),
                "it is its own spelling"
            );
        }
    }

    #[test]
    fn each_value_has_one_spelling() {
        for (json, expected) in [
            (r#"{"b":1,"a":[1, 2.0,{}]}"#, Some(r#"{"a":[1,2.0,{}],"b":1}"#)),
            (
                r#" { "a" : { "d" : null , "c" : true } } "#,
                Some(r#"{"a":{"c":true,"d":null}}"#),
            ),
            (r#"{"\u0061":"\u00fc\/"}"#, Some(r#"{"a":"ü/"}"#)),
            (r#"["\ud800"]"#, Some(r#"["\ud800"]"#)),
            (r#"{"a":2,"a":1}"#, Some(r#"{"a":2,"a":1}"#)),
            ("7", Some("7")),
            ("[]", Some("[]")),
            ("{]", None),
            ("", None),
            ("{} x", None),
        ] {
            check(json, expected);
        }
        let deep = "[".repeat(JSON_DEPTH_MAX) + &"]".repeat(JSON_DEPTH_MAX);
        check(&deep, Some(&deep));
        check(&format!("[{deep}]"), None);
    }
}

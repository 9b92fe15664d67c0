//! A text as a JSON string: the only writing that this room does.
//! Law: one spelling, the shortest; what is written here reads back as the same text.
//! Absent on purpose: values other than strings. Our own bodies are built in `../refusal.rs`.
//! Next: `../refusal.rs`.

/// A text as a JSON string, in its shortest spelling.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rpc;

    #[test]
    fn what_is_written_reads_back() {
        fn check(text: &str, literal: &str) {
            assert_eq!(quoted(text), literal);
            assert_eq!(rpc::text(literal.as_bytes()).as_deref(), Some(text));
        }
        check("", r#""""#);
        check("plain", r#""plain""#);
        check("\"\\/", r#""\"\\/""#);
        check("\n\r\t", r#""\n\r\t""#);
        check("\0\u{8}\u{c}\u{1f}", r#""\u0000\u0008\u000c\u001f""#);
        check("\u{7f}ü\u{2028}\u{1f980}", "\"\u{7f}ü\u{2028}\u{1f980}\"");
    }
}

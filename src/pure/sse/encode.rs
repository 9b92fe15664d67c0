//! Blocks to bytes, in the one spelling that every known client reads.
//! Law: frames are whole, lines end in LF, fields are `name: value`, every message says `event: message`
//! (wire contract, section 7); what `frame_len` counts is what `frame` writes.
//! Absent on purpose: chunk framing, which belongs to the sink, and what an id says.
//! Next: `whole.rs`.

use memchr::memchr2;

/// The keep-alive: a comment and a blank line. It has a colon, since a line without one ends an `rmcp` stream.
pub const COMMENT: &[u8] = b": keep-alive\n\n";

const MESSAGE: &[u8] = b"message";

/// What a frame says beside its values, and what a line of data does.
const HEAD: &[u8] = b"id: \nevent: \n\n";
const LINE: &[u8] = b"data: \n";

/// Appends one event: `id`, `event`, a `data` line for each line of `data`, a blank line.
///
/// `id` is the whole id and `event` the type, where empty means `message`; neither may hold a line end or NUL: ids are
/// printed by us, and a decoder yields no such type. `data` may hold any bytes: LF, CR LF and CR each separate two
/// lines there, so nothing in it can end the event early.
pub fn frame(out: &mut Vec<u8>, id: &[u8], event: &[u8], data: &[u8]) {
    debug_assert!(
        is_one_line(id) && is_one_line(event),
        "an id or type with a line end"
    );
    out.reserve(HEAD.len() + id.len() + type_name(event).len() + LINE.len() + data.len());
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id);
    out.extend_from_slice(b"\nevent: ");
    out.extend_from_slice(type_name(event));
    out.extend_from_slice(b"\n");
    let mut lines = Lines(Some(data));
    while let Some(line) = lines.next() {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.extend_from_slice(b"\n");
    }
    out.extend_from_slice(b"\n");
}

/// How many bytes [`frame`] writes for the same arguments.
pub fn frame_len(id: &[u8], event: &[u8], data: &[u8]) -> usize {
    let mut lines = Lines(Some(data));
    let mut len = HEAD.len() + id.len() + type_name(event).len();
    while let Some(line) = lines.next() {
        len += LINE.len() + line.len();
    }
    len
}

/// Appends a priming event (wire contract, section 4): `id`, `retry` in milliseconds if one is given, an empty `data`
/// line, a blank line. The `data` line must be there: a widely used parser drops the id of a block without one.
pub fn prime(out: &mut Vec<u8>, id: &[u8], retry_ms: Option<u64>) {
    debug_assert!(is_one_line(id), "an id with a line end");
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id);
    if let Some(ms) = retry_ms {
        out.extend_from_slice(b"\nretry: ");
        push_decimal(out, ms);
    }
    out.extend_from_slice(b"\ndata:\n\n");
}

/// Appends one event without an id, for a stream that has none: `event` and one `data` line. `data` is one line.
pub fn message(out: &mut Vec<u8>, data: &[u8]) {
    debug_assert!(is_one_line(data), "data of several lines");
    out.extend_from_slice(b"event: message\ndata: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

/// Appends a block that says nothing but when to come back, in milliseconds: what a stream ends on in a drain.
pub fn retry(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    push_decimal(out, ms);
    out.extend_from_slice(b"\n\n");
}

const fn type_name(event: &[u8]) -> &[u8] {
    if event.is_empty() { MESSAGE } else { event }
}

fn is_one_line(value: &[u8]) -> bool {
    !value.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0))
}

fn push_decimal(out: &mut Vec<u8>, n: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut left = n;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The lines of some data: always at least one, which may be empty. `None` when all were given.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Lines<'a> {
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let Some(end) = memchr2(b'\n', b'\r', rest) else {
            self.0 = None;
            return Some(rest);
        };
        let ends_in_crlf = rest[end] == b'\r' && rest.get(end + 1) == Some(&b'\n');
        self.0 = Some(&rest[end + if ends_in_crlf { 2 } else { 1 }..]);
        Some(&rest[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_an_id() {
        let mut out = b"before".to_vec();
        message(&mut out, b"{}");
        assert_eq!(out, b"beforeevent: message\ndata: {}\n\n");
    }

    #[test]
    fn a_frame_has_one_spelling() {
        fn check(id: &str, event: &str, data: &str, wanted: &str) {
            let mut out = b"before".to_vec();
            frame(&mut out, id.as_bytes(), event.as_bytes(), data.as_bytes());
            assert_eq!(
                out.escape_ascii().to_string(),
                format!("before{}", wanted.as_bytes().escape_ascii())
            );
            let len = frame_len(id.as_bytes(), event.as_bytes(), data.as_bytes());
            assert_eq!(len, wanted.len(), "{wanted:?}");
        }
        check("1", "", "{}", "id: 1\nevent: message\ndata: {}\n\n");
        check("1", "ping", "{}", "id: 1\nevent: ping\ndata: {}\n\n");
        check("1", "", "", "id: 1\nevent: message\ndata: \n\n");
        check("1", "", "a\nb", "id: 1\nevent: message\ndata: a\ndata: b\n\n");
        check(
            "1",
            "",
            "a\r\nb\rc",
            "id: 1\nevent: message\ndata: a\ndata: b\ndata: c\n\n",
        );
        check("1", "", "\n", "id: 1\nevent: message\ndata: \ndata: \n\n");
        check("1", "", "\r", "id: 1\nevent: message\ndata: \ndata: \n\n");
        check(
            "1",
            "",
            "a\n\nid: 2",
            "id: 1\nevent: message\ndata: a\ndata: \ndata: id: 2\n\n",
        );
    }

    #[test]
    fn priming_and_retry_have_one_spelling() {
        fn check(retry_ms: Option<u64>, wanted: &str) {
            let mut out = Vec::new();
            prime(&mut out, b"x", retry_ms);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
        check(None, "id: x\ndata:\n\n");
        check(Some(0), "id: x\nretry: 0\ndata:\n\n");
        check(Some(1000), "id: x\nretry: 1000\ndata:\n\n");
        check(Some(u64::MAX), "id: x\nretry: 18446744073709551615\ndata:\n\n");
        let mut out = Vec::new();
        retry(&mut out, 3000);
        assert_eq!(out, b"retry: 3000\n\n");
    }

    #[test]
    fn every_line_of_the_keep_alive_has_a_colon_or_is_blank() {
        assert!(COMMENT.ends_with(b"\n\n"));
        for line in COMMENT.split(|byte| *byte == b'\n') {
            assert!(
                line.is_empty() || line.starts_with(b":"),
                "{}",
                line.escape_ascii()
            );
        }
    }
}

//! A JSON scanner that steps over values without building them.
//! Law: what it steps over is well-formed JSON, whole; on anything else it says where and why. It never recurses.
//! Absent on purpose: a tree, numbers as numbers, and every kind of writing. Bytes pass through the proxy as they came.
//! Why our own: the pure floor depends on no parser, and a proxy must refuse what two readers could take differently.
//! Next: `id.rs`.

use std::borrow::Cow;

use crate::pure::limits::JSON_DEPTH_MAX;
use crate::pure::rpc::malformed::{Fault, Malformed};

/// Where a scan stands. Call: `open`, then members or elements until they end, then `end`. An error ends it.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    json: &'a str,
    at: usize,
    /// How many containers were opened by hand and not closed.
    depth: usize,
}

/// Whether a container begins here, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Container {
    Object,
    Array,
}

/// Whether a separator must precede what comes next in a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    First,
    Later,
}

impl<'a> Scan<'a> {
    /// At the start of a text, blanks skipped.
    pub(super) fn new(json: &'a [u8]) -> Result<Self, Malformed> {
        let json = std::str::from_utf8(json).map_err(|e| Malformed::new(e.valid_up_to(), Fault::NotUtf8))?;
        let mut scan = Self {
            json,
            at: 0,
            depth: 0,
        };
        scan.blanks();
        Ok(scan)
    }

    /// The byte it stands at.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// What is wrong at the byte it stands at.
    pub(super) const fn fault(&self, fault: Fault) -> Malformed {
        Malformed::new(self.at, fault)
    }

    /// Nothing but blanks may follow.
    pub(super) fn end(mut self) -> Result<(), Malformed> {
        self.blanks();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault(Fault::Trailing)),
        }
    }

    /// Opens the container that begins here; `None` if another value does.
    pub(super) fn open(&mut self) -> Option<Container> {
        let container = match self.peek() {
            Some(b'{') => Container::Object,
            Some(b'[') => Container::Array,
            Some(_) | None => return None,
        };
        self.at += 1;
        self.depth += 1;
        Some(container)
    }

    /// The raw key of the next member; its value comes next. `None`: the object ended.
    pub(super) fn member(&mut self, turn: Turn) -> Result<Option<&'a str>, Malformed> {
        if !self.more(turn, b'}')? {
            return Ok(None);
        }
        let key = self.string()?;
        self.blanks();
        self.expect(b':')?;
        self.blanks();
        Ok(Some(key))
    }

    /// Whether an element follows; it comes next. If not, the array ended.
    pub(super) fn element(&mut self, turn: Turn) -> Result<bool, Malformed> {
        self.more(turn, b']')
    }

    fn more(&mut self, turn: Turn, close: u8) -> Result<bool, Malformed> {
        self.blanks();
        if self.peek() == Some(close) {
            self.at += 1;
            self.depth -= 1;
            return Ok(false);
        }
        match turn {
            Turn::First => Ok(true),
            Turn::Later => {
                self.expect(b',')?;
                self.blanks();
                Ok(true)
            }
        }
    }

    /// Steps over one value, whatever it is, and answers its raw text.
    pub(super) fn value(&mut self) -> Result<&'a str, Malformed> {
        let start = self.at;
        // One bit for each open container, 1 = object: a stack that can't be made to grow.
        let mut open: u128 = 0;
        let mut depth = 0;
        loop {
            self.blanks();
            match self.peek() {
                Some(brace @ (b'{' | b'[')) => {
                    if self.depth + depth == JSON_DEPTH_MAX {
                        return Err(self.fault(Fault::TooDeep));
                    }
                    self.at += 1;
                    self.blanks();
                    // In ASCII a closing bracket stands two after the one that opens.
                    if self.peek() != Some(brace + 2) {
                        open = open << 1 | u128::from(brace == b'{');
                        depth += 1;
                        if brace == b'{' {
                            self.key()?;
                        }
                        continue;
                    }
                    self.at += 1;
                }
                Some(_) => self.scalar()?,
                None => return Err(self.fault(Fault::Truncated)),
            }
            // A value has ended: close what it was the last of, or go on to its next sibling.
            loop {
                if depth == 0 {
                    return Ok(&self.json[start..self.at]);
                }
                self.blanks();
                let object = open & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.blanks();
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    Some(_) => return Err(self.fault(Fault::Syntax)),
                    None => return Err(self.fault(Fault::Truncated)),
                }
                self.at += 1;
                open >>= 1;
                depth -= 1;
            }
        }
    }

    fn key(&mut self) -> Result<(), Malformed> {
        self.pass_string()?;
        self.blanks();
        self.expect(b':')
    }

    fn scalar(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"') => self.pass_string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            Some(_) => Err(self.fault(Fault::Syntax)),
            None => Err(self.fault(Fault::Truncated)),
        }
    }

    /// Steps over a string and answers its raw token, quotes included.
    fn string(&mut self) -> Result<&'a str, Malformed> {
        let start = self.at;
        self.pass_string()?;
        Ok(&self.json[start..self.at])
    }

    fn pass_string(&mut self) -> Result<(), Malformed> {
        self.expect(b'"')?;
        loop {
            self.at += plain(&self.json.as_bytes()[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(_) => return Err(self.fault(Fault::Syntax)),
                None => return Err(self.fault(Fault::Truncated)),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    match self.peek() {
                        Some(digit) if digit.is_ascii_hexdigit() => self.at += 1,
                        Some(_) => return Err(self.fault(Fault::Syntax)),
                        None => return Err(self.fault(Fault::Truncated)),
                    }
                }
            }
            Some(_) => return Err(self.fault(Fault::Syntax)),
            None => return Err(self.fault(Fault::Truncated)),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Malformed> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match (self.at > start, self.peek()) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err(self.fault(Fault::Syntax)),
            (false, None) => Err(self.fault(Fault::Truncated)),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Malformed> {
        word.bytes().try_for_each(|byte| self.expect(byte))
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.fault(Fault::Syntax)),
            None => Err(self.fault(Fault::Truncated)),
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }
}

/// How many bytes go by before a quote, a backslash or a control character. Eight at a time, since most of what a
/// message weighs is long strings.
fn plain(bytes: &[u8]) -> usize {
    let (eights, tail) = bytes.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        let found = below(word, b' ') | below(word ^ all(b'"'), 1) | below(word ^ all(b'\\'), 1);
        if found != 0 {
            return i * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let stops = |&byte: &u8| byte == b'"' || byte == b'\\' || byte < b' ';
    eights.len() * 8 + tail.iter().position(stops).unwrap_or(tail.len())
}

/// The top bit of the lowest byte of `word` that is below `bound` (at most 128), and maybe of bytes above it.
const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(all(bound)) & !word & all(0x80)
}

/// A word of eight times this byte.
const fn all(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// What a raw JSON string says. `None`: it holds half of a surrogate pair, or is no JSON string.
pub(super) fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    let Some(first) = memchr::memchr(b'\\', inner.as_bytes()) else {
        return Some(Cow::Borrowed(inner));
    };
    let mut out = String::with_capacity(inner.len());
    out.push_str(&inner[..first]);
    let mut rest = inner[first..].chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match rest.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => unicode(&mut rest)?,
            same @ ('"' | '\\' | '/') => same,
            _ => return None,
        });
    }
    Some(Cow::Owned(out))
}

fn unicode(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let unit = four(rest)?;
    let code = match unit {
        0xd800..=0xdbff => {
            if (rest.next()?, rest.next()?) != ('\\', 'u') {
                return None;
            }
            let low = four(rest)?;
            if !(0xdc00..=0xdfff).contains(&low) {
                return None;
            }
            0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
        }
        _ => unit,
    };
    char::from_u32(code)
}

fn four(rest: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut unit = 0;
    for _ in 0..4 {
        unit = unit << 4 | rest.next()?.to_digit(16)?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(json: &[u8]) -> Result<&str, Malformed> {
        let mut scan = Scan::new(json)?;
        let value = scan.value()?;
        scan.end()?;
        Ok(value)
    }

    /// Another reader of JSON agrees on what is JSON. (UTF-8 it does not look at where it ignores.)
    fn check(json: &[u8]) {
        let ours = scan(json);
        let theirs = serde_json::from_slice::<serde::de::IgnoredAny>(json);
        let good = theirs.is_ok() && std::str::from_utf8(json).is_ok();
        let text = json.escape_ascii();
        assert_eq!(ours.is_ok(), good, "{text} {ours:?} {theirs:?}");
    }

    const TEXTS: [&str; 4] = [
        r#" {"a": [1, -0.5e+3, true, false, null, "x\"\\\/\b\f\n\r\t\u00e9", {}, [], [[{"b":{}}]]], "é": "" } "#,
        r#"[0,10,-1,1.0,1E5,1e-5]"#,
        r#""\ud83e\udd80 🦀""#,
        "\t\r\n -0 ",
    ];

    #[test]
    fn every_cut_and_every_changed_byte_is_judged_like_another_reader_does() {
        for text in TEXTS.map(str::as_bytes) {
            for cut in 0..=text.len() {
                check(&text[..cut]);
            }
            for at in 0..text.len() {
                for byte in *b"\"\\{}[],:0129.-+eEtfnu /x\n\0\x1f\x7f\x80\xff" {
                    let mut changed = text.to_vec();
                    changed[at] = byte;
                    check(&changed);
                    changed.insert(at, byte);
                    check(&changed);
                }
            }
        }
    }

    #[test]
    fn every_byte_at_every_place_of_a_word() {
        for (first, second) in [
            (b'a', b'a'),
            (0xff, 0x80),
            (b'!', b'#'),
            (b'[', b']'),
            (b' ', 0x7f),
        ] {
            for at in 0..20 {
                for byte in 0..=u8::MAX {
                    let mut text: Vec<u8> = [first, second].into_iter().cycle().take(20).collect();
                    text[at] = byte;
                    let stops = byte == b'"' || byte == b'\\' || byte < 0x20;
                    assert_eq!(plain(&text), if stops { at } else { 20 }, "{byte} at {at}");
                    // What follows the first one does not move it.
                    text.extend(*b"\"\\\n\0");
                    assert_eq!(plain(&text), if stops { at } else { 20 }, "{byte} at {at}");
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_and_where() {
        for (json, at, fault) in [
            (&b""[..], 0, Fault::Truncated),
            (b"  ", 2, Fault::Truncated),
            (b"\xef\xbb\xbf1", 0, Fault::Syntax),
            (b"\"\xff\"", 1, Fault::NotUtf8),
            (b"{", 1, Fault::Truncated),
            (b"{}}", 2, Fault::Trailing),
            (b"{]", 1, Fault::Syntax),
            (b"[}", 1, Fault::Syntax),
            (b"[1}", 2, Fault::Syntax),
            (b"{\"a\":1]", 6, Fault::Syntax),
            (b"[1,]", 3, Fault::Syntax),
            (b"[,1]", 1, Fault::Syntax),
            (b"{\"a\":1,}", 7, Fault::Syntax),
            (b"{\"a\" 1}", 5, Fault::Syntax),
            (b"{1:1}", 1, Fault::Syntax),
            (b"[1 2]", 3, Fault::Syntax),
            (b"01", 1, Fault::Trailing),
            (b"-a", 1, Fault::Syntax),
            (b"tru", 3, Fault::Truncated),
            (b"trux", 3, Fault::Syntax),
            (b"truex", 4, Fault::Trailing),
            (b"'a'", 0, Fault::Syntax),
            (b"//\n1", 0, Fault::Syntax),
            (b"\"a\tb\"", 2, Fault::Syntax),
        ] {
            let wrong = Malformed::new(at, fault);
            assert_eq!(scan(json), Err(wrong), "{}", json.escape_ascii());
        }
    }

    #[test]
    fn depth_is_bounded_and_costs_no_stack() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"a":"#, "}]")] {
            let levels = JSON_DEPTH_MAX / open.matches(['[', '{']).count();
            let nested = |n: usize| format!("{}0{}", open.repeat(n), close.repeat(n));
            assert!(scan(nested(levels).as_bytes()).is_ok());
            let deeper = scan(nested(levels + 1).as_bytes()).expect_err("too deep");
            assert_eq!(deeper.fault(), Fault::TooDeep);
            assert_eq!(
                scan(open.repeat(100_000).as_bytes()).map_err(Malformed::fault),
                Err(Fault::TooDeep)
            );
        }
        // Depth that was left again does not count.
        assert!(scan(format!("[{}0]", "[[]],".repeat(1_000)).as_bytes()).is_ok());
        // What was opened by hand does.
        let mut by_hand = Scan::new(b"[[[]]]").expect("UTF-8");
        by_hand.depth = JSON_DEPTH_MAX - 2;
        assert_eq!(by_hand.value().map_err(Malformed::fault), Err(Fault::TooDeep));
    }
}

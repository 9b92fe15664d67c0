//! One event's bytes as a log keeps them: the frame, ready to be sent (wire contract, sections 3 and 7).
//! Law: LF only, `name: value`, `id` first, always an `event` and at least one `data` line, one blank line at the end.
//! A line break of any kind inside the data begins a new `data:` line, so nothing in it can end a frame.
//! The length is known before a byte is written: a log makes room first and copies once.
//! Next: `segment.rs`.

use memchr::{memchr2, memmem};

use crate::pure::epoch::Seq;
use crate::pure::log::{EndMark, Entry, Struck};

const ID: &[u8] = b"id: ";
const EVENT: &[u8] = b"\nevent: ";
const DATA: &[u8] = b"\ndata: ";
const END: &[u8] = b"\n\n";
const END_MARK: &[u8] = b"~";
const MESSAGE: &[u8] = b"message";
/// What stands between the id and the data of almost every event.
const MESSAGE_DATA: &[u8] = b"\nevent: message\ndata: ";

/// Decimal digits of the largest position.
const DIGITS_MAX: usize = 20;

/// An event whose frame's exact length is known.
pub(super) struct Frame<'a> {
    entry: Entry<'a>,
    kind: Kind<'a>,
    digits: Digits,
    lines: Lines<'a>,
    len: usize,
}

impl<'a> Frame<'a> {
    /// Measures the frame of `entry` at position `seq`. Always inlined: a frame is moved nowhere then.
    #[inline(always)]
    pub(super) fn measure(entry: Entry<'a>, seq: Seq) -> Self {
        let digits = Digits::of(seq);
        let kind = match entry.event {
            b"" | MESSAGE => Kind::Message,
            name => Kind::Other(first_line(name)),
        };
        let mark = match entry.end {
            EndMark::Open => 0,
            EndMark::Last => END_MARK.len(),
        };
        let (lines, data) = match entry.data.first_break() {
            None => {
                let line = entry.data.as_bytes();
                (Lines::One(line), DATA.len() + line.len())
            }
            Some(_) => {
                let split = Split::new(entry.data.as_bytes());
                let len = split.clone().map(|line| DATA.len() + line.len()).sum();
                (Lines::Several(split), len)
            }
        };
        let id = ID.len() + entry.prefix.len() + digits.as_bytes().len() + mark;
        let len = id + EVENT.len() + kind.name().len() + data + END.len();
        Self {
            entry,
            kind,
            digits,
            lines,
            len,
        }
    }

    /// Bytes that [`Frame::write`] fills.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Appends the frame to `out`, which has room for it: nothing is moved or cleared first.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        let end = out.len() + self.len;
        out.extend_from_slice(ID);
        out.extend_from_slice(self.entry.prefix);
        out.extend_from_slice(self.digits.as_bytes());
        match self.entry.end {
            EndMark::Open => {}
            EndMark::Last => out.extend_from_slice(END_MARK),
        }
        match self.lines {
            Lines::One(line) => {
                match self.kind {
                    Kind::Message => out.extend_from_slice(MESSAGE_DATA),
                    Kind::Other(name) => {
                        out.extend_from_slice(EVENT);
                        out.extend_from_slice(name);
                        out.extend_from_slice(DATA);
                    }
                }
                out.extend_from_slice(line);
            }
            Lines::Several(split) => {
                out.extend_from_slice(EVENT);
                out.extend_from_slice(self.kind.name());
                for line in split {
                    out.extend_from_slice(DATA);
                    out.extend_from_slice(line);
                }
            }
        }
        out.extend_from_slice(END);
        debug_assert_eq!(out.len(), end, "a frame was measured otherwise than it is");
    }
}

/// Puts other data, one line, in the place of a written frame's: the first of `words` that is no longer, with spaces
/// behind it. JSON may end with spaces, so what was one message is another one of the same length.
pub(super) fn strike(frame: &mut [u8], words: &[&[u8]]) -> Struck {
    let Some(at) = memmem::find(frame, DATA) else {
        return Struck::TooShort;
    };
    let end = frame.len().saturating_sub(END.len());
    let Some(place) = frame.get_mut(at + DATA.len()..end) else {
        return Struck::TooShort;
    };
    match words.iter().find(|word| word.len() <= place.len()) {
        Some(word) => {
            place[..word.len()].copy_from_slice(word);
            place[word.len()..].fill(b' ');
            Struck::Replaced
        }
        None => Struck::TooShort,
    }
}

/// An event's type. Almost every event has the usual one.
enum Kind<'a> {
    Message,
    Other(&'a [u8]),
}

impl<'a> Kind<'a> {
    const fn name(&self) -> &'a [u8] {
        match self {
            Self::Message => MESSAGE,
            Self::Other(name) => name,
        }
    }
}

/// The data's lines. Almost every event has one.
enum Lines<'a> {
    One(&'a [u8]),
    Several(Split<'a>),
}

/// Lines separated by LF, CR or CRLF; a break at the end is followed by one empty line.
#[derive(Clone)]
struct Split<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Split<'a> {
    const fn new(data: &'a [u8]) -> Self {
        Self { rest: Some(data) }
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let data = self.rest.take()?;
        let Some(at) = memchr2(b'\n', b'\r', data) else {
            return Some(data);
        };
        let (line, rest) = data.split_at(at);
        self.rest = match rest {
            [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => Some(rest),
            [] => None,
        };
        Some(line)
    }
}

/// A name up to its first line break. The SSE decoder gives none; no caller can end a frame with one.
fn first_line(name: &[u8]) -> &[u8] {
    match memchr2(b'\n', b'\r', name) {
        None => name,
        Some(at) => &name[..at],
    }
}

/// A position in decimal, right-aligned.
struct Digits {
    buf: [u8; DIGITS_MAX],
    from: usize,
}

impl Digits {
    #[inline]
    fn of(seq: Seq) -> Self {
        let mut buf = [0; DIGITS_MAX];
        let mut from = DIGITS_MAX;
        let mut left = seq.get();
        // Two at a time: a division is what this costs.
        while left >= 100 {
            from -= 2;
            buf[from..from + 2].copy_from_slice(pair(left % 100));
            left /= 100;
        }
        if left >= 10 {
            from -= 2;
            buf[from..from + 2].copy_from_slice(pair(left));
        } else {
            from -= 1;
            buf[from] = b'0' + left as u8;
        }
        Self { buf, from }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.buf[self.from..]
    }
}

/// The two digits of a number below 100.
fn pair(number: u64) -> &'static [u8] {
    const PAIRS: [[u8; 2]; 100] = {
        let mut pairs = [[0; 2]; 100];
        let mut n = 0;
        while n < 100 {
            pairs[n as usize] = [b'0' + n / 10, b'0' + n % 10];
            n += 1;
        }
        pairs
    };
    static TABLE: [[u8; 2]; 100] = PAIRS;
    &TABLE[number as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::sse::Text;

    fn check(entry: Entry<'_>, seq: u64, expected: &str) {
        let frame = Frame::measure(entry, Seq::new(seq));
        let mut out = Vec::with_capacity(frame.len());
        frame.write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    fn data(data: &str) -> Entry<'_> {
        Entry {
            prefix: b"p.",
            end: EndMark::Open,
            event: b"",
            data: Text::of(data.as_bytes()),
        }
    }

    #[test]
    fn frames_are_whole_and_spelled_in_one_way() {
        let last = Entry {
            end: EndMark::Last,
            event: b"reset",
            ..data("{}")
        };
        let forged = Entry {
            event: b"a\nid: 9",
            ..data("{}")
        };
        for (entry, seq, expected) in [
            (data("{}"), 1, "id: p.1\nevent: message\ndata: {}\n\n"),
            (last, 10, "id: p.10~\nevent: reset\ndata: {}\n\n"),
            (data(""), 7, "id: p.7\nevent: message\ndata: \n\n"),
            (data("a\nb"), 2, "id: p.2\nevent: message\ndata: a\ndata: b\n\n"),
            (
                data("a\r\nb\rc\n"),
                2,
                "id: p.2\nevent: message\ndata: a\ndata: b\ndata: c\ndata: \n\n",
            ),
            (
                data("\n\n"),
                2,
                "id: p.2\nevent: message\ndata: \ndata: \ndata: \n\n",
            ),
            (
                data("\n\r"),
                2,
                "id: p.2\nevent: message\ndata: \ndata: \ndata: \n\n",
            ),
            (forged, 3, "id: p.3\nevent: a\ndata: {}\n\n"),
            (
                data("x"),
                u64::MAX,
                "id: p.18446744073709551615\nevent: message\ndata: x\n\n",
            ),
        ] {
            check(entry, seq, expected);
        }
    }
}

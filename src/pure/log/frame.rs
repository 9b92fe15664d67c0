//! One event's bytes as a log keeps them: the frame, ready to be sent (wire contract, sections 3 and 7).
//! Law: LF only, `name: value`, `id` first, always an `event` and at least one `data` line, one blank line at the end.
//! A line break of any kind inside the data begins a new `data:` line, so nothing in it can end a frame.
//! The length is known before a byte is written: a log makes room first and copies once.
//! Next: `segment.rs`.

use memchr::{memchr2, memmem};

use crate::pure::epoch::Seq;
use crate::pure::log::{EndMark, Entry, Struck};
use crate::pure::sse::is_message;

const ID: &[u8] = b"id: ";
const EVENT: &[u8] = b"\nevent: ";
const DATA: &[u8] = b"\ndata: ";
const END: &[u8] = b"\n\n";
const END_MARK: &[u8] = b"~";
const MESSAGE: &[u8] = b"message";
/// What stands between the id and the data of almost every event.
const MESSAGE_DATA: &[u8] = b"\nevent: message\ndata: ";

/// An event whose frame's exact length is known.
pub(super) struct Frame<'a> {
    entry: Entry<'a>,
    kind: Kind<'a>,
    digits: Digits,
    lines: Lines<'a>,
    len: usize,
}

impl<'a> Frame<'a> {
    /// Measures the frame of `entry` at position `seq`.
    pub(super) fn measure(entry: Entry<'a>, seq: Seq) -> Self {
        let digits = Digits::of(seq);
        let kind = if is_message(entry.event) {
            Kind::Message
        } else {
            Kind::Other(first_line(entry.event))
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
        let id = ID.len() + entry.prefix.len() + digits.len() + mark;
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
        self.digits.write(out);
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

/// The frame of a usual event: a message of one line, not the last, at a position of few digits. A short cut for what
/// [`Frame`] would make of it.
#[derive(Clone, Copy)]
pub(super) struct UsualFrame<'a> {
    prefix: &'a [u8],
    digits: Digits,
    line: &'a [u8],
}

impl<'a> UsualFrame<'a> {
    /// Of an event, if it is a usual one.
    #[inline(always)]
    pub(super) fn of(entry: Entry<'a>, seq: Seq) -> Option<Self> {
        let digits = Digits::of_few(seq)?;
        let line = entry.data.as_line()?;
        match entry.end {
            EndMark::Open if is_message(entry.event) => Some(Self {
                prefix: entry.prefix,
                digits,
                line,
            }),
            EndMark::Open | EndMark::Last => None,
        }
    }

    /// Bytes that [`UsualFrame::write`] fills.
    #[inline(always)]
    pub(super) const fn len(self) -> usize {
        const AROUND: usize = ID.len() + MESSAGE_DATA.len() + END.len();
        AROUND + self.prefix.len() + self.digits.in_word + self.line.len()
    }

    /// As [`Frame::write`].
    #[inline(always)]
    pub(super) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(ID);
        out.extend_from_slice(self.prefix);
        self.digits.write_word(out);
        out.extend_from_slice(MESSAGE_DATA);
        out.extend_from_slice(self.line);
        out.extend_from_slice(END);
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

/// A position in decimal.
#[derive(Clone, Copy)]
struct Digits {
    /// What stands before the last eight digits; 0: nothing does.
    high: u64,
    /// The last digits in ASCII, the first of them in the lowest byte.
    word: u64,
    /// How many digits the word has.
    in_word: usize,
}

/// Digits that are found together: as many as a word has bytes.
const WORD_DIGITS: usize = size_of::<u64>();

/// The first number that needs more.
const PAST_WORD: u64 = 100_000_000;

impl Digits {
    fn of(seq: Seq) -> Self {
        Self::of_few(seq).unwrap_or_else(|| Self {
            high: seq.get() / PAST_WORD,
            word: eight_digits(seq.get() % PAST_WORD) | ZEROS,
            in_word: WORD_DIGITS,
        })
    }

    /// Those of a number that a word has room for.
    #[inline(always)]
    fn of_few(seq: Seq) -> Option<Self> {
        let number = seq.get();
        if number >= PAST_WORD {
            return None;
        }
        let digits = eight_digits(number);
        // One digit at least: the number 0 has one.
        let blank = (digits | (1 << (u64::BITS - 1))).trailing_zeros() as usize / 8;
        Some(Self {
            high: 0,
            word: (digits | ZEROS) >> (8 * blank),
            in_word: WORD_DIGITS - blank,
        })
    }

    fn len(self) -> usize {
        self.in_word + self.high.checked_ilog10().map_or(0, |log| log as usize + 1)
    }

    /// Appends them, where there is room for a whole word.
    fn write(self, out: &mut Vec<u8>) {
        if self.high > 0 {
            self.write_high(out);
        }
        self.write_word(out);
    }

    #[inline(always)]
    fn write_word(self, out: &mut Vec<u8>) {
        let end = out.len() + self.in_word;
        out.extend_from_slice(&self.word.to_le_bytes());
        out.truncate(end);
    }

    #[cold]
    fn write_high(self, out: &mut Vec<u8>) {
        Self::of(Seq::new(self.high)).write(out);
    }
}

/// Eight times the digit 0.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The decimal digits of a number below [`PAST_WORD`], one in each byte, the first in the lowest: halves, then pairs,
/// then single digits, each step on all of them at once.
#[inline(always)]
const fn eight_digits(number: u64) -> u64 {
    // A quotient by 100 or 10 of what is small enough is a product and a shift.
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - 10 * tens) << 8)
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

    #[test]
    fn positions_are_decimal() {
        let edges = (0..20).map(|log| 10_u64.pow(log));
        let around = edges.flat_map(|edge| [edge - 1, edge, edge + 1, edge.saturating_mul(7) / 3]);
        for number in around.chain(0..20_000).chain([99_999_999, u64::MAX]) {
            let digits = Digits::of(Seq::new(number));
            let mut out = Vec::new();
            digits.write(&mut out);
            assert_eq!(out, number.to_string().as_bytes());
            assert_eq!(out.len(), digits.len());
        }
    }
}

//! The words of Server-Sent Events: a block, and the one line of it that is read at a time.
//! Law: the grammar of the WHATWG HTML standard, section 9.2; where it leaves room, the doc comment says what was chosen.
//! Absent on purpose: state. Everything here borrows.
//! Next: `decode.rs`.

use std::fmt;

use memchr::{memchr, memchr2};

/// One dispatched block: the lines before a blank line, of which at least one was a valid field.
/// A block of comments, of unknown fields or of nothing is no block.
#[derive(Clone, Copy, Default)]
pub struct Block<'a> {
    /// The value of the last `id` line without NUL. `Some(b"")` is an explicit empty id; an `id` line with a NUL is
    /// ignored. It holds for this block: remembering it across blocks is the reader's business.
    pub id: Option<&'a [u8]>,
    /// The value of the last `event` line; empty means `message`.
    pub event: &'a [u8],
    /// The value of the last valid `retry` line, in milliseconds: ASCII digits only, at least one; a number
    /// past the end of `u64` is `u64::MAX`.
    pub retry: Option<u64>,
    /// The data, if it was cut out as one line. Nobody else puts it here, so that is believed.
    pub(super) line: Option<Line<'a>>,
    /// The data, if it was put together of several lines, or of pieces.
    pub(super) joined: Option<&'a [u8]>,
}

impl PartialEq for Block<'_> {
    /// How the data came depends on how the stream was read, and is no part of what a block says.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.event == other.event
            && self.data() == other.data()
            && self.retry == other.retry
    }
}

impl Eq for Block<'_> {}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("id", &self.id)
            .field("event", &self.event)
            .field("data", &self.data())
            .field("retry", &self.retry)
            .finish()
    }
}

/// Data that the decoder cut out as one line: there is no line break in it.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a>(pub(super) &'a [u8]);

impl<'a> Line<'a> {
    /// The data.
    #[inline]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> From<Line<'a>> for Text<'a> {
    #[inline]
    fn from(line: Line<'a>) -> Self {
        Self::of_line(line.0)
    }
}

/// Data of an event on its way to a frame. What a decoder cut out as one line is not searched for line breaks again.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    bytes: &'a [u8],
    breaks: Breaks,
}

/// What is known of line breaks in some data.
#[derive(Clone, Copy, Debug)]
enum Breaks {
    Unknown,
    None,
}

impl<'a> Text<'a> {
    /// Data of which nothing is known.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            breaks: Breaks::Unknown,
        }
    }

    /// Data in which there is no line break: its caller has looked.
    #[inline]
    pub(in crate::pure) const fn of_line(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            breaks: Breaks::None,
        }
    }

    /// The data.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The data, if it is known to be one line.
    #[inline]
    pub(in crate::pure) const fn as_line(&self) -> Option<&'a [u8]> {
        match self.breaks {
            Breaks::None => Some(self.bytes),
            Breaks::Unknown => None,
        }
    }

    /// Where its first line break is, CR or LF.
    pub(in crate::pure) fn first_break(&self) -> Option<usize> {
        match self.breaks {
            Breaks::None => None,
            Breaks::Unknown => memchr2(b'\n', b'\r', self.bytes),
        }
    }
}

impl<'a> Block<'a> {
    /// A message that did not come as an event: its data, and nothing else.
    pub fn of_data(data: &'a [u8]) -> Self {
        Self {
            joined: Some(data),
            ..Self::default()
        }
    }

    /// The values of the `data` lines, joined by LF. `None`: there is no such line, and a reader by the standard
    /// dispatches nothing. `Some(b"")`: one empty `data` line.
    #[inline]
    pub fn data(&self) -> Option<&'a [u8]> {
        self.line.map(Line::as_bytes).or(self.joined)
    }

    /// The data, if it is known to be one line.
    #[inline]
    pub const fn line(&self) -> Option<Line<'a>> {
        self.line
    }

    /// Whether its type is the usual one.
    #[inline]
    pub fn is_message(&self) -> bool {
        is_message(self.event)
    }

    /// The same as [`Block::data`], for a frame.
    pub fn text(&self) -> Option<Text<'a>> {
        self.line.map(Text::from).or(self.joined.map(Text::of))
    }
}

impl Block<'_> {
    /// Whether no valid field was seen.
    pub(super) fn is_blank(&self) -> bool {
        self.data().is_none() && self.id.is_none() && self.retry.is_none() && self.event.is_empty()
    }
}

/// Whether an event of this type is what almost every one is.
#[inline]
pub(in crate::pure) fn is_message(event: &[u8]) -> bool {
    event.is_empty() || event == b"message"
}

/// What a stream ended on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tail {
    /// Between two blocks, or within a comment.
    Clean,
    /// Within a block. It was not dispatched, and never is.
    Unterminated {
        /// Bytes of the block that had come, counted as in [`TooLarge`].
        bytes: usize,
    },
}

/// A block is larger than its bound. The stream's owner sent it, so it is the upstream's fault; the decoder is dead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLarge {
    /// The bound, in bytes: the sum of the block's lines, with their field names, without line ends and comments.
    pub max: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream sent an event of more than {} bytes", self.max)
    }
}

impl std::error::Error for TooLarge {}

/// One whole line, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Field<'a> {
    /// A line of data.
    Data(&'a [u8]),
    /// An id without NUL.
    Id(&'a [u8]),
    /// An event type.
    Event(&'a [u8]),
    /// A reconnection time in milliseconds.
    Retry(u64),
    /// A comment, an unknown field, or a value that the standard says to ignore.
    Ignored,
}

/// Reads a line that is neither empty nor has a line end in it.
pub(super) fn read(line: &[u8]) -> Field<'_> {
    match line {
        [b'd', b'a', b't', b'a', rest @ ..] => value(rest).map_or(Field::Ignored, Field::Data),
        [b'i', b'd', rest @ ..] => match value(rest) {
            Some(id) if memchr(0, id).is_none() => Field::Id(id),
            Some(_) | None => Field::Ignored,
        },
        [b'e', b'v', b'e', b'n', b't', rest @ ..] => value(rest).map_or(Field::Ignored, Field::Event),
        [b'r', b'e', b't', b'r', b'y', rest @ ..] => {
            value(rest).and_then(digits).map_or(Field::Ignored, Field::Retry)
        }
        _ => Field::Ignored,
    }
}

/// What stands behind a field's name: nothing, or a colon, one space if there is one, and the value.
const fn value(behind_name: &[u8]) -> Option<&[u8]> {
    match behind_name {
        [] => Some(b""),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0_u64, |n, digit| {
        n.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_by_its_name() {
        fn check(line: &[u8], wanted: Field<'_>) {
            assert_eq!(read(line), wanted, "{}", line.escape_ascii());
        }
        check(b"data: x", Field::Data(b"x"));
        check(b"data:x", Field::Data(b"x"));
        check(b"data:  x", Field::Data(b" x"));
        check(b"data", Field::Data(b""));
        check(b"data:", Field::Data(b""));
        check(b"data: ", Field::Data(b""));
        check(b"data::", Field::Data(b":"));
        check(b"data :x", Field::Ignored);
        check(b" data: x", Field::Ignored);
        check(b"Data: x", Field::Ignored);
        check(b"database: x", Field::Ignored);
        check(b"dat", Field::Ignored);
        check(b"id: 7", Field::Id(b"7"));
        check(b"id", Field::Id(b""));
        check(b"id: a\0b", Field::Ignored);
        check(b"idx: 7", Field::Ignored);
        check(b"event: ping", Field::Event(b"ping"));
        check(b"event", Field::Event(b""));
        check(b"events: ping", Field::Ignored);
        check(b"retry: 1000", Field::Retry(1000));
        check(b"retry:0007", Field::Retry(7));
        check(b"retry: 18446744073709551615", Field::Retry(u64::MAX));
        check(b"retry: 18446744073709551616", Field::Retry(u64::MAX));
        check(b"retry: 99999999999999999999999999", Field::Retry(u64::MAX));
        check(b"retry", Field::Ignored);
        check(b"retry: ", Field::Ignored);
        check(b"retry: 1 ", Field::Ignored);
        check(b"retry: -1", Field::Ignored);
        check(b"retry: +1", Field::Ignored);
        check(b"retry: 1.5", Field::Ignored);
        check(b": a comment", Field::Ignored);
        check(b":", Field::Ignored);
        check(b"unknown: x", Field::Ignored);
        check(b"\xff\xfe", Field::Ignored);
    }
}

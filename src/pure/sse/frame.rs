//! The words of Server-Sent Events: a block, and the one line of it that is read at a time.
//! Law: the grammar of the WHATWG HTML standard, section 9.2; where it leaves room, the doc comment says what was chosen.
//! Absent on purpose: state. Everything here borrows.
//! Next: `decode.rs`.

use std::fmt;

use memchr::{memchr, memchr2};

/// One dispatched block: the lines before a blank line, of which at least one was a valid field.
/// A block of comments, of unknown fields or of nothing is no block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block<'a> {
    /// The value of the last `id` line without NUL. `Some(b"")` is an explicit empty id; an `id` line with a NUL is
    /// ignored. It holds for this block: remembering it across blocks is the reader's business.
    pub id: Option<&'a [u8]>,
    /// The value of the last `event` line; empty means `message`.
    pub event: &'a [u8],
    /// The values of the `data` lines, joined by LF. `None`: there is no such line, and a reader by the standard
    /// dispatches nothing. `Some(b"")`: one empty `data` line.
    pub data: Option<&'a [u8]>,
    /// The value of the last valid `retry` line, in milliseconds: ASCII digits only, at least one; a number
    /// past the end of `u64` is `u64::MAX`.
    pub retry: Option<u64>,
    /// How the data came.
    pub(super) cut: Cut<'a>,
}

/// The bytes that the decoder cut out as one line of data, if it did. It depends on how the stream was read, so it is
/// no part of what a block says.
#[derive(Clone, Copy, Default)]
pub(super) struct Cut<'a>(pub(super) Option<&'a [u8]>);

impl PartialEq for Cut<'_> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cut<'_> {}

impl fmt::Debug for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
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

    /// The data.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
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
    /// The data for a frame; `None` as [`Block::data`].
    pub fn text(&self) -> Option<Text<'a>> {
        self.data.map(|bytes| match self.cut.0 {
            // The very same bytes: what somebody else put in their place is not believed.
            Some(line) if std::ptr::eq(line, bytes) => Text {
                bytes,
                breaks: Breaks::None,
            },
            Some(_) | None => Text::of(bytes),
        })
    }
}

impl Block<'_> {
    /// Whether no valid field was seen.
    pub(super) const fn is_blank(&self) -> bool {
        self.data.is_none() && self.id.is_none() && self.retry.is_none() && self.event.is_empty()
    }
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

//! Chunked transfer coding: a decoder that hands out data in place, and the head of a chunk to write.
//! Law: one spelling of a size is read (RFC 9112, section 7.1, without its leniences): hexadecimal digits, an extension
//! from `;` on if there is one, CR LF. No blank before or behind, no bare LF, nothing that overflows.
//! Absent on purpose: what extensions and trailers say. They are skipped, within bounds.
//! Next: `../rpc/mod.rs`.

use std::fmt;

use crate::pure::limits::{CHUNK_EXTENSION_BYTES_MAX, TRAILER_BYTES_MAX};

/// What ends a chunked body that has no trailers.
pub const LAST: &[u8] = b"0\r\n\r\n";

/// What follows the data of each chunk.
pub const END_OF_DATA: &[u8] = b"\r\n";

/// Bytes of the longest head of a chunk: sixteen digits and CR LF.
pub const HEAD_BYTES_MAX: usize = 18;

/// Most hexadecimal digits of a size; leading zeros count.
const SIZE_DIGITS_MAX: u8 = 16;

/// Digits of a size that are read in one go: up to 4 GiB.
const USUAL_DIGITS_MAX: u8 = 8;

/// A decoder of one chunked body, from its first byte to its last.
#[derive(Debug)]
pub struct ChunkDecoder {
    place: Place,
}

/// What the next byte must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// A digit of a size, or what ends it once a digit has come.
    Size { size: u64, digits: u8 },
    /// Within a chunk extension, of which so many bytes have come.
    Extension { size: u64, bytes: usize },
    /// The LF that ends a size line.
    SizeLf { size: u64 },
    /// Data, of which so many bytes are to come; at least one.
    Data { left: u64 },
    /// The CR behind the data.
    DataCr,
    /// The LF behind the data.
    DataLf,
    /// The start of a trailer line, or the CR of the blank line that ends the body.
    TrailerStart { bytes: usize },
    /// Within a trailer line.
    Trailer { bytes: usize },
    /// The LF that ends a trailer line.
    TrailerLf { bytes: usize },
    /// The LF that ends the body.
    LastLf,
    /// Behind the body: no byte here belongs to it.
    Ended,
    /// Nowhere: the framing was broken.
    Dead(ChunkError),
}

/// What a decoder found next. `consumed` counts from the start of the input given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// Data of the body, at least one byte; behind it up to `consumed` stands at most what ends its chunk.
    /// *Next*: again, with the input behind that.
    Data {
        /// The data, borrowed from the input.
        data: &'a [u8],
        /// Bytes of the input used.
        consumed: usize,
    },
    /// All of the input was used, and there is more to come. *Next*: again, with the bytes that follow.
    More {
        /// Bytes of the input used: all of them.
        consumed: usize,
    },
    /// The body has ended; its trailers, if any, were skipped. *Next*: nothing; what follows is not this body's.
    End {
        /// Bytes of the input used.
        consumed: usize,
    },
}

/// How the framing of a body was broken: always the upstream's fault. The connection can't be used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkError {
    /// A size without a digit, or with something else than digits.
    Size,
    /// A size of more than sixteen digits.
    SizeOverflow,
    /// A chunk extension with a control character, or of more than [`CHUNK_EXTENSION_BYTES_MAX`] bytes.
    Extension,
    /// A line that ends otherwise than in CR LF.
    LineEnd,
    /// Chunk data that is not followed by CR LF: it was longer than its size.
    DataEnd,
    /// Trailers with a control character, or of more than [`TRAILER_BYTES_MAX`] bytes.
    Trailer,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Size => "a chunk size that is no hexadecimal number",
            Self::SizeOverflow => "a chunk size of more than sixteen digits",
            Self::Extension => "a chunk extension that is malformed or too long",
            Self::LineEnd => "a chunk line that does not end in CR LF",
            Self::DataEnd => "a chunk that is longer than its size",
            Self::Trailer => "trailers that are malformed or too long",
        };
        write!(f, "the upstream sent {what}")
    }
}

impl std::error::Error for ChunkError {}

impl ChunkDecoder {
    /// A decoder at the start of a body.
    pub const fn new() -> Self {
        Self {
            place: Place::Size { size: 0, digits: 0 },
        }
    }

    /// Reads on, up to the next data or the end of the input.
    ///
    /// # Errors
    /// [`ChunkError`] if the framing is broken. The error is sticky: every later call answers the same.
    #[inline(always)]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, ChunkError> {
        if let Some(at) = self.place.before_chunk(input)
            && let Some((data, len)) = usual_chunk(&input[at..])
        {
            self.place = Place::Size { size: 0, digits: 0 };
            let consumed = at + len;
            return Ok(Step::Data { data, consumed });
        }
        let mut at = 0;
        if let Some((size, len)) = self.place.usual_head(input) {
            self.place = Place::Data { left: size };
            at = len;
        }
        loop {
            if let Place::Data { left } = self.place {
                return Ok(self.data(left, input, at));
            }
            if self.place == Place::Ended {
                return Ok(Step::End { consumed: at });
            }
            if let Place::Dead(error) = self.place {
                return Err(error);
            }
            let Some(byte) = input.get(at) else {
                return Ok(Step::More { consumed: at });
            };
            self.place = self.place.past(*byte).unwrap_or_else(Place::Dead);
            at += 1;
        }
    }

    /// Hands out what the input has, from `at` on, of a chunk of which `left` bytes are to come.
    fn data<'a>(&mut self, left: u64, input: &'a [u8], at: usize) -> Step<'a> {
        let rest = &input[at..];
        if rest.is_empty() {
            return Step::More { consumed: at };
        }
        let len = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
        self.place = match left - len as u64 {
            0 => Place::DataCr,
            left => Place::Data { left },
        };
        Step::Data {
            data: &rest[..len],
            consumed: at + len,
        }
    }
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// Where a chunk begins in `input`, if one begins there at all: behind the end of the chunk before it.
    #[inline(always)]
    fn before_chunk(self, input: &[u8]) -> Option<usize> {
        match self {
            Self::Size { digits: 0, .. } => Some(0),
            Self::DataCr => input.starts_with(END_OF_DATA).then_some(END_OF_DATA.len()),
            Self::Size { .. }
            | Self::Extension { .. }
            | Self::SizeLf { .. }
            | Self::Data { .. }
            | Self::DataLf
            | Self::TrailerStart { .. }
            | Self::Trailer { .. }
            | Self::TrailerLf { .. }
            | Self::LastLf
            | Self::Ended
            | Self::Dead(_) => None,
        }
    }

    /// The size and the length of a chunk's head, with the end of the chunk before it, if all of it is here and
    /// nothing about it is unusual. A short cut for what [`Place::past`] would find byte by byte.
    #[inline]
    fn usual_head(self, input: &[u8]) -> Option<(u64, usize)> {
        let start = self.before_chunk(input)?;
        let head = &input[start..];
        let (mut size, mut len) = (0, 0);
        for byte in head.iter().take(usize::from(USUAL_DIGITS_MAX)) {
            match HEX[usize::from(*byte)] {
                NO_DIGIT => break,
                digit => size = size << 4 | u64::from(digit),
            }
            len += 1;
        }
        match head.get(len..)? {
            [b'\r', b'\n', ..] if size > 0 => Some((size, start + len + 2)),
            _ => None,
        }
    }

    /// The place behind one byte of framing.
    #[inline]
    fn past(self, byte: u8) -> Result<Self, ChunkError> {
        match (self, byte) {
            (Self::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => match digits {
                SIZE_DIGITS_MAX.. => Err(ChunkError::SizeOverflow),
                _ => Ok(Self::Size {
                    size: size << 4 | u64::from(HEX[usize::from(byte)]),
                    digits: digits + 1,
                }),
            },
            (Self::Size { digits: 0, .. }, _) => Err(ChunkError::Size),
            (Self::Size { size, .. } | Self::Extension { size, .. }, b'\r') => Ok(Self::SizeLf { size }),
            (Self::Size { size, .. }, b';') => Ok(Self::Extension { size, bytes: 1 }),
            (Self::Size { .. }, b'\n') | (Self::Extension { .. }, b'\n') => Err(ChunkError::LineEnd),
            (Self::Size { .. }, _) => Err(ChunkError::Size),
            (Self::Extension { size, bytes }, _) => {
                within(bytes, CHUNK_EXTENSION_BYTES_MAX, byte, ChunkError::Extension)
                    .map(|bytes| Self::Extension { size, bytes })
            }
            (Self::SizeLf { size: 0 }, b'\n') => Ok(Self::TrailerStart { bytes: 0 }),
            (Self::SizeLf { size }, b'\n') => Ok(Self::Data { left: size }),
            (Self::DataCr, b'\r') => Ok(Self::DataLf),
            (Self::DataLf, b'\n') => Ok(Self::Size { size: 0, digits: 0 }),
            (Self::DataCr | Self::DataLf, _) => Err(ChunkError::DataEnd),
            (Self::TrailerStart { .. }, b'\r') => Ok(Self::LastLf),
            (Self::Trailer { bytes }, b'\r') => Ok(Self::TrailerLf { bytes }),
            (Self::TrailerStart { .. } | Self::Trailer { .. }, b'\n') => Err(ChunkError::LineEnd),
            (Self::TrailerStart { bytes } | Self::Trailer { bytes }, _) => {
                within(bytes, TRAILER_BYTES_MAX, byte, ChunkError::Trailer)
                    .map(|bytes| Self::Trailer { bytes })
            }
            (Self::TrailerLf { bytes }, b'\n') => Ok(Self::TrailerStart { bytes }),
            (Self::LastLf, b'\n') => Ok(Self::Ended),
            (Self::SizeLf { .. } | Self::TrailerLf { .. } | Self::LastLf, _) => Err(ChunkError::LineEnd),
            (Self::Dead(error), _) => Err(error),
            (Self::Data { .. } | Self::Ended, _) => Ok(self),
        }
    }
}

/// The data and the length of the chunk at the start of `input`, if all of it is here, from its size to the line end
/// behind its data, and it is shorter than 64 KiB. A short cut for what [`Place::past`] would find byte by byte.
#[inline(always)]
fn usual_chunk(input: &[u8]) -> Option<(&[u8], usize)> {
    let (digits, behind) = match input {
        [_, b'\r', b'\n', behind @ ..] => (&input[..1], behind),
        [_, _, b'\r', b'\n', behind @ ..] => (&input[..2], behind),
        [_, _, _, b'\r', b'\n', behind @ ..] => (&input[..3], behind),
        [_, _, _, _, b'\r', b'\n', behind @ ..] => (&input[..4], behind),
        _ => return None,
    };
    let mut size = 0;
    for digit in digits {
        match HEX[usize::from(*digit)] {
            NO_DIGIT => return None,
            digit => size = size << 4 | usize::from(digit),
        }
    }
    let (data, behind) = behind.split_at_checked(size)?;
    match behind {
        // A chunk of nothing is the last one.
        [b'\r', b'\n', ..] if size > 0 => {
            Some((data, digits.len() + END_OF_DATA.len() + size + END_OF_DATA.len()))
        }
        _ => None,
    }
}

/// What a byte is as a hexadecimal digit.
const HEX: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        values[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// A byte that is no hexadecimal digit.
const NO_DIGIT: u8 = 0xff;

/// Counts one byte of what is skipped, if it may stand there.
fn within(bytes: usize, max: usize, byte: u8, error: ChunkError) -> Result<usize, ChunkError> {
    let is_control = byte == 0x7f || (byte < b' ' && byte != b'\t');
    if is_control || bytes >= max {
        Err(error)
    } else {
        Ok(bytes + 1)
    }
}

/// Writes the head of a chunk of `size` bytes, at least one, to the front of `out`; returns how long it is. A size of 0
/// would end the body: see [`LAST`].
pub fn write_head(out: &mut [u8; HEAD_BYTES_MAX], size: usize) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1) as usize;
    let mut left = size;
    for place in out[..digits].iter_mut().rev() {
        *place = DIGITS[left & 0xf];
        left >>= 4;
    }
    out[digits] = b'\r';
    out[digits + 1] = b'\n';
    digits + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data, and how it ended: with the bytes that do not belong to the body, unfinished, or broken.
    fn decode<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Result<Option<usize>, ChunkError>) {
        let mut decoder = ChunkDecoder::new();
        let mut body = Vec::new();
        let mut behind = None;
        for part in parts {
            let mut rest = part;
            loop {
                match decoder.next(rest) {
                    Ok(Step::Data { data, consumed }) => {
                        let chunk = &rest[..consumed];
                        let unended = chunk.strip_suffix(END_OF_DATA).unwrap_or(chunk);
                        assert!(!data.is_empty());
                        assert!(chunk.ends_with(data) || unended.ends_with(data));
                        body.extend_from_slice(data);
                        rest = &rest[consumed..];
                    }
                    Ok(Step::More { consumed }) => {
                        assert_eq!(consumed, rest.len());
                        break;
                    }
                    Ok(Step::End { consumed }) => {
                        behind = Some(behind.unwrap_or(0) + rest.len() - consumed);
                        break;
                    }
                    Err(error) => {
                        assert_eq!(decoder.next(b"0\r\n\r\n"), Err(error), "the error is sticky");
                        assert_eq!(decoder.next(b""), Err(error), "the error is sticky");
                        return (body, Err(error));
                    }
                }
            }
        }
        (body, Ok(behind))
    }

    /// Tries the bytes whole, cut once at every place, and byte by byte.
    fn check(bytes: &[u8], body: &[u8], end: Result<Option<usize>, ChunkError>) {
        let wanted = (body.to_vec(), end);
        let name = bytes[..bytes.len().min(80)].escape_ascii();
        assert_eq!(decode([bytes]), wanted, "whole: {name}");
        assert_eq!(decode(bytes.chunks(1)), wanted, "by bytes: {name}");
        // A long input is long within one line: its cuts are all alike, but for those near its ends.
        for at in (0..=bytes.len()).filter(|at| *at <= 300 || bytes.len() - at <= 300) {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(decode([head, tail]), wanted, "cut at {at}: {name}");
        }
    }

    #[test]
    fn bodies_are_the_same_at_every_cut() {
        check(b"", b"", Ok(None));
        check(b"0\r\n\r\n", b"", Ok(Some(0)));
        check(b"5\r\nhello\r\n0\r\n\r\n", b"hello", Ok(Some(0)));
        check(
            b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
            b"hello world",
            Ok(Some(0)),
        );
        check(b"0A\r\n0123456789\r\n000\r\n\r\n", b"0123456789", Ok(Some(0)));
        check(
            b"a\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n",
            b"\r\n\r\n\r\n\r\n\r\n",
            Ok(Some(0)),
        );
        check(b"1\r\nx\r\n0\r\n\r\nHTTP/1.1", b"x", Ok(Some(8)));
        check(b"5\r\nhel", b"hel", Ok(None));
        check(b"5\r\nhello", b"hello", Ok(None));
        check(b"5\r\nhello\r\n0\r\n", b"hello", Ok(None));
        check(b"ffffffffffffffff\r\nx", b"x", Ok(None));
    }

    #[test]
    fn extensions_and_trailers_are_skipped_within_bounds() {
        check(b"1;a=b\r\nx\r\n0;\t\"q\"\r\n\r\n", b"x", Ok(Some(0)));
        check(b"1;\r\nx\r\n0\r\nA: b\r\nC: d\r\n\r\n", b"x", Ok(Some(0)));
        let line = |len: usize| [b"1;".as_slice(), &vec![b'e'; len], b"\r\nx\r\n0\r\n\r\n"].concat();
        check(&line(CHUNK_EXTENSION_BYTES_MAX - 1), b"x", Ok(Some(0)));
        check(&line(CHUNK_EXTENSION_BYTES_MAX), b"", Err(ChunkError::Extension));
        let trailers = |len: usize| [b"0\r\nA:\r\n".as_slice(), &vec![b't'; len - 2], b"\r\n\r\n"].concat();
        check(&trailers(TRAILER_BYTES_MAX), b"", Ok(Some(0)));
        check(&trailers(TRAILER_BYTES_MAX + 1), b"", Err(ChunkError::Trailer));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        check(b"\r\n", b"", Err(ChunkError::Size));
        check(b"x\r\n", b"", Err(ChunkError::Size));
        check(b"-1\r\n", b"", Err(ChunkError::Size));
        check(b"+1\r\n", b"", Err(ChunkError::Size));
        check(b"0x1\r\nx\r\n", b"", Err(ChunkError::Size));
        check(b" 1\r\nx\r\n", b"", Err(ChunkError::Size));
        check(b"1 \r\nx\r\n", b"", Err(ChunkError::Size));
        check(b"1\t;a\r\nx\r\n", b"", Err(ChunkError::Size));
        check(b"1_0\r\n", b"", Err(ChunkError::Size));
        check(b"00000000000000001\r\n", b"", Err(ChunkError::SizeOverflow));
        check(b"10000000000000000\r\n", b"", Err(ChunkError::SizeOverflow));
        check(b"1\nx\r\n", b"", Err(ChunkError::LineEnd));
        check(b"1\rx\r\n", b"", Err(ChunkError::LineEnd));
        check(b"1\r\r\nx", b"", Err(ChunkError::LineEnd));
        check(b"1;a\nx\r\n", b"", Err(ChunkError::LineEnd));
        check(b"1;a\rb\r\nx", b"", Err(ChunkError::LineEnd));
        check(b"1;a\0\r\nx", b"", Err(ChunkError::Extension));
        check(b"1\r\nxy\r\n", b"x", Err(ChunkError::DataEnd));
        check(b"1\r\nxAA1\r\ny\r\n0\r\n\r\n", b"x", Err(ChunkError::DataEnd));
        check(b"1\r\nx\n0\r\n", b"x", Err(ChunkError::DataEnd));
        check(b"1\r\nx\r0\r\n", b"x", Err(ChunkError::DataEnd));
        check(b"1\r\nx0\r\n\r\n", b"x", Err(ChunkError::DataEnd));
        check(b"0\r\n\n", b"", Err(ChunkError::LineEnd));
        check(b"0\r\n\rx", b"", Err(ChunkError::LineEnd));
        check(b"0\r\nA: b\n\r\n", b"", Err(ChunkError::LineEnd));
        check(b"0\r\nA: b\rC\r\n", b"", Err(ChunkError::LineEnd));
        check(b"0\r\nA: \x7f\r\n", b"", Err(ChunkError::Trailer));
        check(b"0\r\nA: \0\r\n", b"", Err(ChunkError::Trailer));
    }

    #[test]
    fn a_head_is_read_back() {
        fn check(size: usize, wanted: &str) {
            let mut out = [0; HEAD_BYTES_MAX];
            let len = write_head(&mut out, size);
            assert_eq!(&out[..len], wanted.as_bytes());
            let mut decoder = ChunkDecoder::new();
            assert_eq!(decoder.next(&out[..len]), Ok(Step::More { consumed: len }));
            assert_eq!(decoder.place, Place::Data { left: size as u64 });
        }
        check(1, "1\r\n");
        check(0xf, "f\r\n");
        check(0x10, "10\r\n");
        check(200, "c8\r\n");
        check(0xabcdef, "abcdef\r\n");
        check(usize::MAX, "ffffffffffffffff\r\n");
        let mut out = [0; HEAD_BYTES_MAX];
        let len = write_head(&mut out, 0);
        assert_eq!(&out[..len], b"0\r\n");
    }
}

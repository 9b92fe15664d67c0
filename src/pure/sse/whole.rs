//! Where bytes of Server-Sent Events may be cut: behind whole frames, never inside one.
//! Law: it only looks. What passes, passes byte for byte; what is put between frames stands at a place found here.
//! Absent on purpose: the bytes themselves, and what they say (`decode.rs`).
//! Why comments count as whole: servers send keep-alives without a blank line, and those must not be held back.
//! Next: `../http1/mod.rs`.

use memchr::memchr2;

/// Looks for the ends of frames in a stream of which it sees each byte once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole {
    line: Line,
    frame: Frame,
}

/// Where in a line the next byte stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// At its start.
    Start,
    /// At the start of one, behind a CR: an LF here belongs to the line before.
    AfterCr,
    /// In a comment.
    Comment,
    /// In anything else.
    Field,
}

/// What the lines since the last end of a frame were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    /// Comments, or none.
    Blank,
    /// A frame that is not finished.
    Open,
}

impl Whole {
    /// At the start of a stream.
    pub const fn new() -> Self {
        Self {
            line: Line::Start,
            frame: Frame::Blank,
        }
    }

    /// Takes the next bytes: how many of them, counted from their start, end behind a whole frame. `None`: none do.
    pub fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut end = None;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match (self.line, byte) {
                (Line::AfterCr, b'\n') => {
                    at += 1;
                    self.line = Line::Start;
                }
                (Line::Start | Line::AfterCr, b'\n' | b'\r') => {
                    at += 1;
                    self.frame = Frame::Blank;
                    self.line = after(byte);
                }
                (Line::Start | Line::AfterCr, b':') => self.line = Line::Comment,
                (Line::Start | Line::AfterCr, _) => {
                    self.line = Line::Field;
                    self.frame = Frame::Open;
                }
                (Line::Comment | Line::Field, _) => match memchr2(b'\n', b'\r', &bytes[at..]) {
                    None => return end,
                    Some(to) => {
                        self.line = after(bytes[at + to]);
                        at += to + 1;
                    }
                },
            }
            match (self.line, self.frame) {
                (Line::Start | Line::AfterCr, Frame::Blank) => end = Some(at),
                (Line::Start | Line::AfterCr, Frame::Open) | (Line::Comment | Line::Field, _) => {}
            }
        }
        end
    }
}

impl Default for Whole {
    fn default() -> Self {
        Self::new()
    }
}

const fn after(line_end: u8) -> Line {
    if line_end == b'\r' {
        Line::AfterCr
    } else {
        Line::Start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `|` stands where a frame, or a run of comments, has ended.
    #[track_caller]
    fn check(marked: &str) {
        let bytes: Vec<u8> = marked.bytes().filter(|b| *b != b'|').collect();
        let mut ends = Vec::new();
        let mut at = 0;
        for byte in marked.bytes() {
            if byte == b'|' {
                ends.push(at);
            } else {
                at += 1;
            }
        }
        // At every split, and byte by byte.
        for cut in 0..=bytes.len() {
            let (one, two) = bytes.split_at(cut);
            let mut whole = Whole::new();
            let last = |upto: usize, from: usize| {
                ends.iter()
                    .copied()
                    .filter(|end| *end <= upto && *end > from)
                    .max()
            };
            assert_eq!(whole.feed(one), last(cut, 0), "{marked:?} up to {cut}");
            let found = whole.feed(two).map(|end| end + cut);
            assert_eq!(found, last(bytes.len(), cut), "{marked:?} from {cut}");
        }
        let mut whole = Whole::new();
        let found: Vec<usize> = (0..bytes.len())
            .filter(|&at| whole.feed(&bytes[at..=at]).is_some())
            .map(|at| at + 1)
            .collect();
        assert_eq!(found, ends, "{marked:?}");
    }

    #[test]
    fn frames_end_behind_a_blank_line() {
        check("data: a\n\n|data: b\n\n|");
        check("event: message\ndata: {}\n\n|data: half\n");
        check("id: 1\r\ndata\r\n\r|\n|: c\r|\n|");
        check("data: a\r\r|data: b\r\r|");
        check("data: no end");
        check("");
    }

    /// Every short stream: where it may be cut, a reader has nothing unfinished.
    #[test]
    fn a_reader_of_what_is_whole_holds_nothing() {
        use crate::pure::sse::{Decoder, Tail};
        const LETTERS: &[u8] = b"d:\r\n";
        const LENGTH: u32 = 7;
        for number in 0..LETTERS.len().pow(LENGTH) {
            let mut left = number;
            let bytes: Vec<u8> = (0..LENGTH)
                .map(|_| {
                    let letter = LETTERS[left % LETTERS.len()];
                    left /= LETTERS.len();
                    letter
                })
                .collect();
            let end = Whole::new().feed(&bytes).unwrap_or(0);
            let mut decoder = Decoder::new(1 << 10);
            decoder.feed(&bytes[..end], &mut |_| {}).unwrap();
            assert_eq!(
                decoder.finish(),
                Tail::Clean,
                "{:?}",
                bytes.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn comments_are_whole_at_the_end_of_their_line() {
        check(": ping\n|\n|");
        check(":\r|\n|:\r|\n|data: x\n\n|");
        // Within a frame a comment ends nothing.
        check("data: a\n: c\ndata: b\n\n|");
    }
}

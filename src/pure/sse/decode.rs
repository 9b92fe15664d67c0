//! Bytes to blocks: a push parser. A block that lies whole in the bytes fed is handed out in place, without a copy.
//! Law: the same bytes give the same blocks and the same error, however they are cut; half a block is never dispatched.
//! What is cut, or has several `data` lines, is put together in a carry, bounded by `event_bytes_max` and freed as
//! soon as it is empty, so that an idle stream pins no buffer.
//! Absent on purpose: time, sockets, and any count but the bound's.
//! Next: `usual.rs`, then `encode.rs`.

use memchr::memchr2;

use super::frame::{Block, Field, Line, Tail, TooLarge, read};
use super::usual::usual_block;

/// The byte order mark: at the very start of a stream it is no part of the first line, anywhere else it is.
pub const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Who takes blocks as they are found. A function does; what takes a whole stream's may have itself inlined, since a
/// block is ten words, and moving them costs as much as finding it.
pub trait OnBlock {
    /// Takes the next block.
    fn on_block(&mut self, block: Block<'_>);
}

impl<F: FnMut(Block<'_>)> OnBlock for F {
    #[inline]
    fn on_block(&mut self, block: Block<'_>) {
        self(block);
    }
}

/// A decoder of one stream, from its first byte to its last.
#[derive(Debug)]
pub struct Decoder {
    event_bytes_max: usize,
    place: Place,
    carry: Option<Box<Carry>>,
}

/// What the next byte may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// At the start of the stream, within a byte order mark of which so many bytes have come.
    Bom { matched: usize },
    /// At the start of a line, or within one whose head is at the end of the carry's text.
    Line,
    /// Behind a CR that ended a line: an LF here belongs to it.
    AfterCr,
    /// Within a comment, which is skipped.
    Comment,
    /// Nowhere: a block was too large.
    Dead,
}

impl Decoder {
    /// A decoder at the start of a stream. `event_bytes_max` bounds one block, in bytes, counted as in [`TooLarge`].
    pub const fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            place: Place::Bom { matched: 0 },
            carry: None,
        }
    }

    /// Takes the next bytes of the stream and calls `on` for each block that they complete, in order.
    ///
    /// Lines end in LF, CR or CR LF; one byte order mark is skipped at the very start; comments may be of any length.
    ///
    /// *Next*: again, with the bytes that follow; at the end of the stream, [`Decoder::finish`].
    ///
    /// # Errors
    /// [`TooLarge`] if a block outgrows its bound. The blocks before it were handed out. The error is sticky: every
    /// later call answers the same.
    pub fn feed(&mut self, bytes: &[u8], on: &mut impl FnMut(Block<'_>)) -> Result<(), TooLarge> {
        self.feed_to(bytes, on)
    }

    /// The same, for whoever takes blocks.
    ///
    /// # Errors
    /// As [`Decoder::feed`].
    pub fn feed_to(&mut self, bytes: &[u8], on: &mut impl OnBlock) -> Result<(), TooLarge> {
        let fed = self.drive(bytes, on);
        if fed.is_err() {
            self.place = Place::Dead;
            self.carry = None;
        }
        fed
    }

    /// What the stream ended on, if it ends here.
    pub fn finish(&self) -> Tail {
        let bytes = match (self.place, &self.carry) {
            (Place::Dead, _) => self.event_bytes_max,
            (Place::Bom { matched }, _) => matched,
            (Place::Line | Place::AfterCr | Place::Comment, Some(carry)) => carry.weight,
            (Place::Line | Place::AfterCr | Place::Comment, None) => 0,
        };
        if bytes == 0 {
            Tail::Clean
        } else {
            Tail::Unterminated { bytes }
        }
    }

    fn drive(&mut self, bytes: &[u8], on: &mut impl OnBlock) -> Result<(), TooLarge> {
        let mut rest = match self.place {
            Place::Line => bytes,
            Place::Bom { .. } | Place::AfterCr | Place::Comment | Place::Dead => self.enter(bytes)?,
        };
        while !rest.is_empty() {
            rest = match &mut self.carry {
                Some(carry) if carry.weight > 0 => {
                    let (step, rest) = carry.complete(rest, self.event_bytes_max, on)?;
                    self.place = step;
                    rest
                }
                Some(_) | None => self.in_place(rest, on)?,
            };
        }
        if let (Place::Line, Some(b'\r')) = (self.place, bytes.last()) {
            self.place = Place::AfterCr;
        }
        match &mut self.carry {
            Some(carry) if carry.weight > 0 => carry.trim(),
            Some(_) | None => self.carry = None,
        }
        Ok(())
    }

    /// Skips what the last feed left open, so that a line or its rest comes next.
    fn enter<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], TooLarge> {
        match self.place {
            Place::Line => Ok(bytes),
            Place::AfterCr => match bytes {
                [] => Ok(bytes),
                [b'\n', rest @ ..] | rest => {
                    self.place = Place::Line;
                    Ok(rest)
                }
            },
            Place::Comment => match memchr2(b'\n', b'\r', bytes) {
                None => Ok(&[]),
                Some(end) => {
                    self.place = Place::Line;
                    Ok(behind_line(bytes, end))
                }
            },
            Place::Bom { matched } => self.skip_bom(matched, bytes),
            Place::Dead => Err(TooLarge {
                max: self.event_bytes_max,
            }),
        }
    }

    fn skip_bom<'a>(&mut self, matched: usize, bytes: &'a [u8]) -> Result<&'a [u8], TooLarge> {
        let mut seen = matched;
        let mut rest = bytes;
        while let (Some(wanted), Some((byte, behind))) = (BOM.get(seen), rest.split_first()) {
            if byte != wanted {
                // No mark after all: what looked like one is the head of the first line.
                self.place = Place::Line;
                if seen > 0 {
                    let weight = weigh(0, seen, self.event_bytes_max)?;
                    self.spill(Block::default(), weight)
                        .text
                        .extend_from_slice(&BOM[..seen]);
                }
                return Ok(rest);
            }
            seen += 1;
            rest = behind;
        }
        self.place = if seen == BOM.len() {
            Place::Line
        } else {
            Place::Bom { matched: seen }
        };
        Ok(rest)
    }

    /// Hands out the blocks that lie whole in `bytes`, as long as they have one `data` line at most.
    /// *Call* with nothing carried. *Next*: done if nothing is returned, else the carry has a block to complete.
    fn in_place<'a>(&mut self, bytes: &'a [u8], on: &mut impl OnBlock) -> Result<&'a [u8], TooLarge> {
        let mut rest = bytes;
        while let Some((block, behind)) = usual_block(rest, self.event_bytes_max) {
            on.on_block(block);
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(rest);
        }
        self.in_place_by_line(rest, on)
    }

    /// The same, line by line.
    fn in_place_by_line<'a>(&mut self, bytes: &'a [u8], on: &mut dyn OnBlock) -> Result<&'a [u8], TooLarge> {
        let mut rest = bytes;
        let mut block = Block::default();
        let mut weight = 0;
        while let Some(end) = line_end(rest) {
            let line = &rest[..end];
            match line.first() {
                None => {
                    if !block.is_blank() {
                        on.on_block(block);
                    }
                    block = Block::default();
                    weight = 0;
                }
                Some(b':') => {}
                Some(_) => {
                    let heavier = weigh(weight, line.len(), self.event_bytes_max)?;
                    match read(line) {
                        Field::Data(value) => {
                            if block.data().is_some() {
                                self.spill(block, weight);
                                return Ok(rest);
                            }
                            block.line = Some(Line(value));
                        }
                        Field::Id(id) => block.id = Some(id),
                        Field::Event(event) => block.event = event,
                        Field::Retry(ms) => block.retry = Some(ms),
                        Field::Ignored => {}
                    }
                    weight = heavier;
                }
            }
            rest = behind_line(rest, end);
        }
        if let Some(b':') = rest.first() {
            self.place = Place::Comment;
            rest = &[];
        }
        weight = weigh(weight, rest.len(), self.event_bytes_max)?;
        if weight > 0 {
            self.spill(block, weight).text.extend_from_slice(rest);
        }
        Ok(&[])
    }

    /// Moves what was read in place into the carry, which is empty.
    fn spill(&mut self, block: Block<'_>, weight: usize) -> &mut Carry {
        let carry = self.carry.get_or_insert_default();
        carry.text.extend_from_slice(block.data().unwrap_or_default());
        carry.data_len = block.data().map(<[u8]>::len);
        carry.id = block.id.map(Box::from);
        carry.event = Box::from(block.event);
        carry.retry = block.retry;
        carry.weight = weight;
        carry
    }
}

/// A block that is being put together.
#[derive(Default, Debug)]
struct Carry {
    /// The joined data, and behind it the head of a line whose end has not come.
    text: Vec<u8>,
    /// How much of the text is data; `None`: no `data` line yet.
    data_len: Option<usize>,
    id: Option<Box<[u8]>>,
    event: Box<[u8]>,
    retry: Option<u64>,
    /// Bytes of the block's lines, comments left out. 0: nothing is carried.
    weight: usize,
}

impl Carry {
    /// Reads on until the block is complete or `bytes` are used up; returns the place and what is left of them.
    fn complete<'a>(
        &mut self,
        bytes: &'a [u8],
        max: usize,
        on: &mut dyn OnBlock,
    ) -> Result<(Place, &'a [u8]), TooLarge> {
        let mut rest = bytes;
        while let Some(end) = line_end(rest) {
            let line = &rest[..end];
            rest = behind_line(rest, end);
            match (self.head_len(), line.first()) {
                (0, None) => {
                    self.dispatch(on);
                    return Ok((Place::Line, rest));
                }
                (0, Some(b':')) => {}
                (_, _) => {
                    self.weight = weigh(self.weight, line.len(), max)?;
                    self.text.extend_from_slice(line);
                    self.take_line();
                }
            }
        }
        if let (0, Some(b':')) = (self.head_len(), rest.first()) {
            return Ok((Place::Comment, &[]));
        }
        self.weight = weigh(self.weight, rest.len(), max)?;
        self.text.extend_from_slice(rest);
        Ok((Place::Line, &[]))
    }

    /// Bytes of a line whose end has not come.
    fn head_len(&self) -> usize {
        self.text.len() - self.data_len.unwrap_or(0)
    }

    /// Reads the line behind the data, whose end has come, and keeps only what it says.
    fn take_line(&mut self) {
        let start = self.data_len.unwrap_or(0);
        match read(&self.text[start..]) {
            Field::Data(value) => {
                let len = value.len();
                let from = self.text.len() - len;
                let to = match self.data_len {
                    None => start,
                    Some(_) => {
                        self.text[start] = b'\n';
                        start + 1
                    }
                };
                self.text.copy_within(from.., to);
                self.text.truncate(to + len);
                self.data_len = Some(to + len);
                return;
            }
            Field::Id(id) => self.id = Some(Box::from(id)),
            Field::Event(event) => self.event = Box::from(event),
            Field::Retry(ms) => self.retry = Some(ms),
            Field::Ignored => {}
        }
        self.text.truncate(start);
    }

    fn dispatch(&mut self, on: &mut dyn OnBlock) {
        let block = Block {
            id: self.id.as_deref(),
            event: &self.event,
            line: None,
            joined: self.data_len.map(|len| &self.text[..len]),
            retry: self.retry,
        };
        if !block.is_blank() {
            on.on_block(block);
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = Self {
            text,
            ..Self::default()
        };
    }

    /// Gives back what a larger block before this one needed.
    fn trim(&mut self) {
        self.text.shrink_to(self.text.len().saturating_mul(2));
    }
}

/// The weight of a block with `more` bytes, or the reason why it may not have them.
const fn weigh(weight: usize, more: usize, max: usize) -> Result<usize, TooLarge> {
    let heavier = weight.saturating_add(more);
    if heavier > max {
        Err(TooLarge { max })
    } else {
        Ok(heavier)
    }
}

/// Where the first line of `bytes` ends. A blank line is seen without a search: it is every other short one.
#[inline]
fn line_end(bytes: &[u8]) -> Option<usize> {
    match bytes.first() {
        Some(b'\n' | b'\r') => Some(0),
        Some(_) | None => memchr2(b'\n', b'\r', bytes),
    }
}

/// What stands behind the line end at `end`. A CR at the very end of `bytes` may have its LF in the next ones.
#[inline]
fn behind_line(bytes: &[u8], end: usize) -> &[u8] {
    match &bytes[end..] {
        [b'\r', b'\n', rest @ ..] | [_, rest @ ..] => rest,
        [] => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that owns what it says, printed the way the tables spell it.
    fn print(block: Block<'_>) -> String {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let mut out = Vec::new();
        out.extend(block.id.map(|id| format!("id={}", text(id))));
        out.extend(
            Some(block.event)
                .filter(|event| !event.is_empty())
                .map(|event| format!("event={}", text(event))),
        );
        out.extend(block.data().map(|data| format!("data={}", text(data))));
        out.extend(block.retry.map(|ms| format!("retry={ms}")));
        out.join(" ")
    }

    /// What a decoder says of some bytes cut in some way.
    fn decode<'a>(
        max: usize,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<String>, Result<Tail, TooLarge>) {
        let mut decoder = Decoder::new(max);
        let mut blocks = Vec::new();
        for part in parts {
            let fed = decoder.feed(part, &mut |block| blocks.push(print(block)));
            if let Err(dead) = fed {
                assert_eq!(
                    decoder.feed(b"data: x\n\n", &mut |_| panic!("a dead decoder spoke")),
                    Err(dead)
                );
                assert_eq!(
                    decoder.feed(b"", &mut |_| panic!("a dead decoder spoke")),
                    Err(dead)
                );
                assert!(decoder.carry.is_none());
                return (blocks, Err(dead));
            }
            if decoder.finish() == Tail::Clean {
                assert!(decoder.carry.is_none(), "an idle stream pins a buffer");
            }
        }
        (blocks, Ok(decoder.finish()))
    }

    /// Tries the bytes whole, cut once at every place, cut twice at every two places, and byte by byte.
    fn check(max: usize, bytes: &[u8], blocks: &[&str], end: Result<Tail, TooLarge>) {
        let wanted = (
            blocks.iter().map(|block| (*block).to_owned()).collect::<Vec<_>>(),
            end,
        );
        let name = bytes.escape_ascii();
        assert_eq!(decode(max, [bytes]), wanted, "whole: {name}");
        assert_eq!(decode(max, bytes.chunks(1)), wanted, "by bytes: {name}");
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(decode(max, parts), wanted, "cut at {first} and {second}: {name}");
            }
        }
    }

    const CLEAN: Result<Tail, TooLarge> = Ok(Tail::Clean);

    const fn unterminated(bytes: usize) -> Result<Tail, TooLarge> {
        Ok(Tail::Unterminated { bytes })
    }

    #[test]
    fn blocks_are_the_same_at_every_cut() {
        fn says(bytes: &[u8], blocks: &[&str]) {
            check(1 << 20, bytes, blocks, CLEAN);
        }
        says(b"", &[]);
        says(b"\n\r\r\n\n", &[]);
        says(b"data: {}\n\n", &["data={}"]);
        says(
            b"id: 1\ndata: {}\n\nid: 2\ndata: []\n\n",
            &["id=1 data={}", "id=2 data=[]"],
        );
        says(
            b"event: message\nid: 1\ndata: {}\n\n",
            &["id=1 event=message data={}"],
        );
        says(
            b"id: 1\r\nevent: message\r\ndata: {}\r\n\r\n",
            &["id=1 event=message data={}"],
        );
        says(b"id: 1\rdata: {}\r\rdata: x\r\r", &["id=1 data={}", "data=x"]);
        says(
            b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n",
            &["data=a", "data=b", "data=c"],
        );
        says(b"data: a\ndata: b\n\n", &["data=a\\nb"]);
        says(
            b"data: a\nid: 1\ndata:\nretry: 5\ndata\nevent: x\ndata: b\n\n",
            &["id=1 event=x data=a\\n\\n\\nb retry=5"],
        );
        says(
            b"data: a\ndata: b\n\ndata: c\n\ndata: d\ndata: e\n\n",
            &["data=a\\nb", "data=c", "data=d\\ne"],
        );
        says(b"data\n\ndata:\n\ndata: \n\n", &["data=", "data=", "data="]);
        says(b"data\ndata\n\n", &["data=\\n"]);
        says(b"data:x\n\ndata:  x\n\n", &["data=x", "data= x"]);
        says(
            b"id: 1\ndata: x\n\r\nid: 2\ndata: y\n\rdata: z\n\n",
            &["id=1 data=x", "id=2 data=y", "data=z"],
        );
        says(
            b"id: \ndata: x\n\nid: 1\rid: 2\ndata: y\n\n",
            &["id= data=x", "id=2 data=y"],
        );
        says(
            b"event: message\nevent: x\ndata: y\n\nevent: messages\ndata: z\n\n",
            &["event=x data=y", "event=messages data=z"],
        );
        says(
            b"event: message\nid: a\0b\ndata: x\n\nevent: message\ndata: y\n\n",
            &["event=message data=x", "event=message data=y"],
        );
    }

    #[test]
    fn blocks_without_data_are_dispatched_if_they_say_something() {
        fn says(bytes: &[u8], blocks: &[&str]) {
            check(1 << 20, bytes, blocks, CLEAN);
        }
        says(b"id: 1\n\n", &["id=1"]);
        says(b"id\n\nid:\n\nid: \n\n", &["id=", "id=", "id="]);
        says(b"id: 1\nretry: 3000\ndata:\n\n", &["id=1 data= retry=3000"]);
        says(b"retry: 3000\n\n", &["retry=3000"]);
        says(b"retry: 3000\nretry: x\nretry: 4\n\n", &["retry=4"]);
        says(
            b"retry: 99999999999999999999999\n\n",
            &["retry=18446744073709551615"],
        );
        says(b"event: ping\n\n", &["event=ping"]);
        says(b"event: a\nevent\ndata: x\n\n", &["data=x"]);
        says(b"id: 1\nid: 2\n\n", &["id=2"]);
        says(b"id: 1\nid: a\0b\ndata: x\n\n", &["id=1 data=x"]);
        says(b"id: a\0b\n\n", &[]);
        says(b"retry: x\n\nevent:\n\n", &[]);
        says(b": comment\n\n:\n\n", &[]);
        says(b": c\ndata: a\n: c\n:\ndata: b\n: c\n\n", &["data=a\\nb"]);
        says(b"id: 1\n:\r\n: data: x\rdata: y\n\n", &["id=1 data=y"]);
        says(b"unknown: x\nfoo\n\ndata: x\nfoo\n\n", &["data=x"]);
        says(b"Data: x\n data: x\n\n", &[]);
    }

    #[test]
    fn one_mark_is_skipped_at_the_very_start() {
        check(1 << 20, b"\xef\xbb\xbfdata: x\n\n", &["data=x"], CLEAN);
        check(1 << 20, b"\xef\xbb\xbf\n\ndata: x\n\n", &["data=x"], CLEAN);
        check(1 << 20, b"\xef\xbb\xbf: c\r\r\ndata: x\n\n", &["data=x"], CLEAN);
        check(1 << 20, b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", &[], CLEAN);
        check(1 << 20, b"\xef\xbbdata: x\ndata: y\n\n", &["data=y"], CLEAN);
        check(
            1 << 20,
            b"\xef\xbb\n\n\xef\xbb\xbfid: 1\ndata: y\n\n",
            &["data=y"],
            CLEAN,
        );
        check(1 << 20, b"\xefdata: x\ndata: y\n\n", &["data=y"], CLEAN);
        check(1 << 20, b"\xef\xbb", &[], unterminated(2));
        check(1 << 20, b"\xef\xbb\xbf", &[], CLEAN);
    }

    #[test]
    fn half_a_block_is_never_dispatched() {
        check(1 << 20, b"data: x", &[], unterminated(7));
        check(1 << 20, b"data: x\n", &[], unterminated(7));
        check(1 << 20, b"data: x\r\n", &[], unterminated(7));
        check(
            1 << 20,
            b"data: a\n\nid: 1\ndata: x\ndat",
            &["data=a"],
            unterminated(15),
        );
        check(1 << 20, b"data: a\n\n: half a comment", &["data=a"], CLEAN);
        check(1 << 20, b"data: a\n: half a comment", &[], unterminated(7));
    }

    #[test]
    fn a_block_has_a_bound_and_a_comment_has_none() {
        const MAX: usize = 12;
        const DEAD: Result<Tail, TooLarge> = Err(TooLarge { max: MAX });
        check(MAX, b"data: 123456\n\n", &["data=123456"], CLEAN);
        check(MAX, b"data: 123456\r\n\r\ndata: 1234567", &["data=123456"], DEAD);
        check(MAX, b"data: 1234567\n\n", &[], DEAD);
        check(MAX, b"id: 1\ndata: 1\n\n", &["id=1 data=1"], CLEAN);
        check(MAX, b"data: 1\nid: 1\n\n", &["id=1 data=1"], CLEAN);
        check(MAX, b"data: 1\nid: 12\n\n", &[], DEAD);
        check(MAX, b"data\ndata\ndata\n\n", &["data=\\n\\n"], CLEAN);
        check(MAX, b"data\ndata\ndata\nx", &[], DEAD);
        check(MAX, b"an unknown, endless line", &[], DEAD);
        check(MAX, b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm", &[], DEAD);
        check(
            MAX,
            b"data: 12\n: a comment of more bytes\nid: \n\n",
            &["id= data=12"],
            CLEAN,
        );
        check(
            MAX,
            b": a comment of more bytes\n: and another\ndata: x\n\n",
            &["data=x"],
            CLEAN,
        );
        check(1, b"\xef\xbbx", &[], Err(TooLarge { max: 1 }));
        check(0, b"\n:\n", &[], CLEAN);
        check(0, b"x", &[], Err(TooLarge { max: 0 }));
    }

    #[test]
    fn a_block_whole_in_the_bytes_fed_is_handed_out_in_place() {
        let bytes = b"id: 1\nevent: message\ndata: {}\n\n";
        let within = bytes.as_ptr_range();
        let mut seen = 0;
        Decoder::new(1024)
            .feed(bytes, &mut |block| {
                for part in [block.id.unwrap(), block.event, block.data().unwrap()] {
                    assert!(within.contains(&part.as_ptr()));
                    seen += 1;
                }
            })
            .unwrap();
        assert_eq!(seen, 3);
    }

    #[test]
    fn a_small_rest_does_not_pin_the_room_of_a_large_block() {
        let mut decoder = Decoder::new(1 << 20);
        let large = [b"data: ".as_slice(), &[b'x'; 100_000], b"\n"].concat();
        decoder.feed(&large, &mut |_| {}).unwrap();
        decoder.feed(b"data: y\n\ndata: z", &mut |_| {}).unwrap();
        let held = decoder.carry.as_ref().map(|carry| carry.text.capacity());
        assert!(held.is_some_and(|held| held <= 64), "{held:?}");
        decoder.feed(b"\n\n", &mut |_| {}).unwrap();
        assert!(decoder.carry.is_none());
    }

    #[test]
    fn what_a_frame_says_is_read_back() {
        fn check(id: &str, event: &str, data: &str) {
            let mut out = Vec::new();
            super::super::encode::frame(&mut out, id.as_bytes(), event.as_bytes(), data.as_bytes());
            let event = if event.is_empty() { "message" } else { event };
            let wanted = format!("id={id} event={event} data={}", data.as_bytes().escape_ascii());
            super::tests::check(1024, &out, &[&wanted], CLEAN);
        }
        check("1", "", "{}");
        check("A0-_.~", "reset", "a\nb\n\n");
        check("1", "", "");
        check("1", "", "data: \n: ");
    }
}

//! The block that most servers send, found in one go: a short cut of the decoder's.
//! Law: what is taken here is what the decoder would find line by line; whatever is not so is left to it, byte for byte,
//! so this can be too narrow and never wrong.
//! Absent on purpose: comments, `retry`, several `data` lines, blocks that are not all there.
//! Next: `encode.rs`.

use memchr::memchr2;

use super::frame::{Block, Line};

/// The line that says the usual type of an event, and where the type stands in it.
const MESSAGE_LINE: &[u8; 14] = b"event: message";
const MESSAGE_AT: usize = 7;

/// The block at the start of `bytes`, and what stands behind it, if it is all there and is what most servers send: one
/// line of data, before it perhaps an id and the usual type, each ended by LF or CR LF. A short cut for what a
/// decoder would find line by line; whatever is not so is left to it.
/// Always inlined, for the same reason as [`OnBlock`](super::OnBlock).
#[inline(always)]
pub(super) fn usual_block(bytes: &[u8], max: usize) -> Option<(Block<'_>, &[u8])> {
    let mut block = Block::default();
    let mut rest = bytes;
    let data = loop {
        match rest.first()? {
            b'd' => break rest.strip_prefix(b"data: ")?,
            b'i' => {
                let id = rest.strip_prefix(b"id: ")?;
                let (id, behind) = id.split_at(first_control(id)?);
                block.id = Some(id);
                // An id with a NUL is none.
                rest = behind_usual_line(behind)?;
            }
            b'e' => {
                let behind = rest.strip_prefix(MESSAGE_LINE)?;
                block.event = &rest[MESSAGE_AT..MESSAGE_LINE.len()];
                rest = behind_usual_line(behind)?;
            }
            _ => return None,
        }
    };
    let (data, rest) = data.split_at(memchr2(b'\n', b'\r', data)?);
    let behind = behind_usual_line(behind_usual_line(rest)?)?;
    // The lines' ends do not weigh; with them it is more than the weight, never less.
    if bytes.len() - behind.len() > max {
        return None;
    }
    block.line = Some(Line(data));
    Some((block, behind))
}

/// Where the first control character is, if it is in one of the whole words: for what is short, a search that needs no
/// setting up.
#[inline(always)]
fn first_control(bytes: &[u8]) -> Option<usize> {
    const LOWS: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGHS: u64 = u64::from_ne_bytes([0x80; 8]);
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().enumerate().find_map(|(nth, word)| {
        let word = u64::from_le_bytes(*word);
        // The high bit of a byte below a blank, and perhaps of bytes behind the first such one.
        let below = word.wrapping_sub(LOWS * b' ' as u64) & !word & HIGHS;
        (below != 0).then(|| nth * 8 + below.trailing_zeros() as usize / 8)
    })
}

/// What stands behind a line end that is all there and can't be cut.
#[inline]
fn behind_usual_line(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [b'\n', behind @ ..] | [b'\r', b'\n', behind @ ..] => Some(behind),
        _ => None,
    }
}

//! The decoder of Server-Sent Events, against itself at other cuts, against the standard written down naively, and
//! against two other parsers.
//! Law: the bytes decide, not the cuts.
//! Next: `sse_roundtrip.rs`.
#![no_main]

use futures_util::StreamExt;
use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::sse::{Block, Decoder, Tail, TooLarge};

#[derive(PartialEq, Eq, Debug, Default, Clone)]
struct Owned {
    id: Option<Vec<u8>>,
    event: Vec<u8>,
    data: Option<Vec<u8>>,
    retry: Option<u64>,
}

impl From<Block<'_>> for Owned {
    fn from(block: Block<'_>) -> Self {
        Self {
            id: block.id.map(<[u8]>::to_vec),
            event: block.event.to_vec(),
            data: block.data().map(<[u8]>::to_vec),
            retry: block.retry,
        }
    }
}

type Said = (Vec<Owned>, Result<Tail, TooLarge>);

fn decode<'a>(max: usize, parts: impl IntoIterator<Item = &'a [u8]>) -> Said {
    let mut decoder = Decoder::new(max);
    let mut blocks = Vec::new();
    for part in parts {
        if let Err(dead) = decoder.feed(part, &mut |block| blocks.push(block.into())) {
            let again = decoder.feed(part, &mut |_| panic!("a dead decoder spoke"));
            assert_eq!(again, Err(dead));
            return (blocks, Err(dead));
        }
    }
    (blocks, Ok(decoder.finish()))
}

/// The standard, written down with no thought of speed.
fn standard(max: usize, bytes: &[u8]) -> Said {
    let mut lines = vec![Vec::new()];
    let mut was_cr = false;
    for byte in bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes) {
        match byte {
            b'\n' if was_cr => {}
            b'\r' | b'\n' => lines.push(Vec::new()),
            _ => lines.last_mut().unwrap().push(*byte),
        }
        was_cr = *byte == b'\r';
    }
    let tail = lines.pop().unwrap();
    let mut blocks = Vec::new();
    let mut block = Owned::default();
    let mut weight = 0;
    let too_large = TooLarge { max };
    for line in lines {
        if line.is_empty() {
            if block != Owned::default() {
                blocks.push(std::mem::take(&mut block));
            }
            weight = 0;
            continue;
        }
        if line[0] == b':' {
            continue;
        }
        weight += line.len();
        if weight > max {
            return (blocks, Err(too_large));
        }
        let mut halves = line.splitn(2, |byte| *byte == b':');
        let name = halves.next().unwrap();
        let value = halves.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        match name {
            b"event" => block.event = value,
            b"data" => {
                block.data = Some(match block.data.take() {
                    None => value,
                    Some(before) => [before, value].join(&b'\n'),
                });
            }
            b"id" if !value.contains(&0) => block.id = Some(value),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                block.retry = Some(std::str::from_utf8(&value).unwrap().parse().unwrap_or(u64::MAX));
            }
            _ => {}
        }
    }
    if !tail.starts_with(b":") {
        weight += tail.len();
    }
    let end = match weight {
        0 => Ok(Tail::Clean),
        bytes if bytes <= max => Ok(Tail::Unterminated { bytes }),
        _ => Err(too_large),
    };
    (blocks, end)
}

/// What one other parser says; it reads UTF-8 only.
fn other(bytes: &[u8]) -> Vec<Owned> {
    let parts = bytes.chunks(3).map(|part| Ok::<_, std::io::Error>(part));
    let stream = sse_stream::SseByteStream::new(futures_util::stream::iter(parts));
    let blocks = futures_executor::block_on(stream.collect::<Vec<_>>());
    let blocks = blocks.into_iter().map(|block| {
        let block = block.expect("UTF-8");
        Owned {
            id: block.id.map(String::into_bytes),
            event: block.event.unwrap_or_default().into_bytes(),
            data: block.data.map(String::into_bytes),
            retry: block.retry,
        }
    });
    blocks.filter(|block| *block != Owned::default()).collect()
}

/// What a client's parser tells of an event: the newest id so far, the type, the data.
type Heard = (Vec<u8>, Vec<u8>, Vec<u8>);

/// What the other parser tells, which knows only what a client is told; it reads UTF-8 only.
fn heard_by_another(bytes: &[u8]) -> Vec<Heard> {
    use eventsource_stream::Eventsource;
    let parts = bytes.chunks(3).map(|part| Ok::<_, std::io::Error>(part));
    let events = futures_util::stream::iter(parts).eventsource();
    let events = futures_executor::block_on(events.collect::<Vec<_>>());
    let events = events.into_iter().map(|event| event.expect("UTF-8"));
    events
        .map(|event| (event.id.into_bytes(), event.event.into_bytes(), event.data.into_bytes()))
        .collect()
}

/// The same of what we said.
fn heard(blocks: &[Owned]) -> Vec<Heard> {
    let mut newest = Vec::new();
    let mut heard = Vec::new();
    for block in blocks {
        if let Some(id) = &block.id {
            newest.clone_from(id);
        }
        if let Some(data) = &block.data {
            let event = if block.event.is_empty() {
                b"message".to_vec()
            } else {
                block.event.clone()
            };
            heard.push((newest.clone(), event, data.clone()));
        }
    }
    heard
}

/// At a byte order mark the second parser panics, and a last line that ends with CR alone it has not seen the end of.
fn is_beyond_the_second(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xef\xbb\xbf") || bytes.ends_with(b"\r")
}

/// A retry time that does not fit is ignored by the other parser, and the largest one here.
fn has_long_number(bytes: &[u8]) -> bool {
    bytes
        .split(|byte| !byte.is_ascii_digit())
        .any(|digits| digits.len() >= 19)
}

/// A mark cut short at the very start is a pending one, while the standard sees the head of a line.
fn is_cut_mark(bytes: &[u8]) -> bool {
    bytes == b"\xef" || bytes == b"\xef\xbb"
}

fuzz_target!(|input: (u8, u8, u8, &[u8])| {
    let (first, second, size, bytes) = input;
    let max = if size < 128 { usize::from(size) } else { usize::MAX };
    let said = decode(max, [bytes]);
    assert_eq!(said, decode(max, bytes.chunks(1)), "by bytes");
    let (first, second) = (
        usize::from(first).min(bytes.len()),
        usize::from(second).min(bytes.len()),
    );
    let (first, second) = (first.min(second), first.max(second));
    assert_eq!(
        said,
        decode(max, [&bytes[..first], &bytes[first..second], &bytes[second..]]),
        "in three"
    );
    assert_eq!(
        said,
        decode(max, bytes.chunks(usize::from(size % 16) + 1)),
        "in pieces"
    );
    if !is_cut_mark(bytes) {
        assert_eq!(said, standard(max, bytes), "against the standard");
    }
    if max == usize::MAX && std::str::from_utf8(bytes).is_ok() && !has_long_number(bytes) {
        assert_eq!(said.0, other(bytes), "against the other parser");
        if !is_beyond_the_second(bytes) {
            assert_eq!(heard(&said.0), heard_by_another(bytes), "against the second other parser");
        }
    }
});

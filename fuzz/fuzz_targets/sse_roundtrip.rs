//! The encoder of Server-Sent Events, read back by the decoder.
//! Law: whatever the data, a frame is one block that says what was put in, and is as long as was counted.
//! Next: `http1_head.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::sse::{Decoder, Tail, encode};

/// As the caller promises: no line end and no NUL.
fn one_line(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\n' | b'\r' | 0))
        .collect()
}

/// The data as it is read back: every kind of line end is an LF.
fn with_lf(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut was_cr = false;
    for byte in bytes {
        match byte {
            b'\n' if was_cr => {}
            b'\r' | b'\n' => out.push(b'\n'),
            _ => out.push(*byte),
        }
        was_cr = *byte == b'\r';
    }
    out
}

fuzz_target!(|input: (u8, Option<u64>, &[u8], &[u8], &[u8])| {
    let (cut, retry, id, event, data) = input;
    let (id, event) = (one_line(id), one_line(event));
    let mut out = Vec::new();
    encode::prime(&mut out, &id, retry);
    let primed = out.len();
    encode::frame(&mut out, &id, &event, data);
    assert_eq!(out.len() - primed, encode::frame_len(&id, &event, data));
    out.extend_from_slice(encode::COMMENT);
    encode::retry(&mut out, retry.unwrap_or(0));

    let mut seen = 0;
    let mut decoder = Decoder::new(usize::MAX);
    for part in out.chunks(usize::from(cut) + 1) {
        let fed = decoder.feed(part, &mut |block| {
            match seen {
                0 => {
                    assert_eq!(block.id, Some(id.as_slice()));
                    assert_eq!(
                        (block.event, block.data(), block.retry),
                        (b"".as_slice(), Some(b"".as_slice()), retry)
                    );
                }
                1 => {
                    assert_eq!(block.id, Some(id.as_slice()));
                    assert_eq!(
                        block.event,
                        if event.is_empty() {
                            b"message"
                        } else {
                            event.as_slice()
                        }
                    );
                    assert_eq!(block.data(), Some(with_lf(data).as_slice()));
                    assert_eq!(block.retry, None);
                }
                _ => {
                    assert_eq!((block.id, block.event, block.data()), (None, b"".as_slice(), None));
                    assert_eq!(block.retry, Some(retry.unwrap_or(0)));
                }
            }
            seen += 1;
        });
        assert_eq!(fed, Ok(()));
    }
    assert_eq!((seen, decoder.finish()), (3, Tail::Clean));
});

//! The decoder of chunked bodies: arbitrary bytes at other cuts, and well-formed bodies read back.
//! Law: the bytes decide, not the cuts; what was written is what is read.
//! Next: `../README.md`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::http1::chunk::{
    ChunkDecoder, ChunkError, END_OF_DATA, HEAD_BYTES_MAX, LAST, Step, write_head,
};

/// The body, and how many bytes stand behind it if it ended.
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
                    let unended = chunk.strip_suffix(b"\r\n").unwrap_or(chunk);
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
                    assert_eq!(decoder.next(rest), Err(error));
                    return (body, Err(error));
                }
            }
        }
    }
    (body, Ok(behind))
}

fuzz_target!(|input: (u8, u8, &[u8])| {
    let (cut, size, bytes) = input;
    let said = decode([bytes]);
    assert_eq!(said, decode(bytes.chunks(1)), "by bytes");
    assert_eq!(said, decode(bytes.chunks(usize::from(cut) + 1)), "in pieces");

    let mut written = Vec::new();
    for chunk in bytes.chunks(usize::from(size) + 1) {
        let mut head = [0; HEAD_BYTES_MAX];
        let len = write_head(&mut head, chunk.len());
        written.extend_from_slice(&head[..len]);
        written.extend_from_slice(chunk);
        written.extend_from_slice(END_OF_DATA);
    }
    written.extend_from_slice(LAST);
    let wanted = (bytes.to_vec(), Ok(Some(0)));
    assert_eq!(decode([written.as_slice()]), wanted);
    assert_eq!(decode(written.chunks(usize::from(cut) + 1)), wanted);
});

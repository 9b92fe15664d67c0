//! The reader of HTTP/1.1 heads, at every cut; and what it read, written as a request and looked at as bytes.
//! Law: bytes are partial until they are a head or an error, and stay what they became.
//! Next: `http1_chunk.rs`.
#![no_main]

use http::Method;
use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::http1::head::{BodyLength, Framing, Read, RequestHead, read_response, write_request};
use throughline_fuzz::pure::http1::hop::is_hop_by_hop;

const METHODS: [Method; 4] = [Method::GET, Method::POST, Method::HEAD, Method::CONNECT];

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    // Half of the inputs start like an answer, so that the fuzzer need not find that first.
    let mut whole = match choice & 4 {
        0 => Vec::new(),
        _ => b"HTTP/1.1 200 OK\r\n".to_vec(),
    };
    whole.extend_from_slice(bytes);
    let method = &METHODS[usize::from(choice & 3)];
    let said = read_response(&whole, method);
    for at in 0..whole.len() {
        match (read_response(&whole[..at], method), &said) {
            (Ok(Read::Partial), Ok(Read::Whole { consumed, .. })) => assert!(*consumed > at, "late at {at}"),
            (Ok(Read::Partial), _) => {}
            (early, said) => assert_eq!(early, *said, "changed its mind after {at}"),
        }
    }
    let Ok(Read::Whole { head, consumed }) = said else {
        return;
    };
    assert!(consumed <= whole.len() && whole[..consumed].ends_with(b"\r\n\r\n"));
    assert!(!head.status.is_informational());
    assert!(!head.headers.keys().any(is_hop_by_hop));
    if *method == Method::HEAD {
        assert_eq!(head.framing, Framing::Empty);
    }
    if let Framing::Length(len) = head.framing {
        let said = head
            .headers
            .get("content-length")
            .map(|len| len.to_str().unwrap().parse::<u64>());
        assert!(said.is_none_or(|said| said == Ok(len)));
    }

    let target = String::from_utf8_lossy(bytes);
    let mut out = Vec::new();
    let body = BodyLength::Exactly(u64::from(choice));
    let request = RequestHead { method, target: &target, host: &target, headers: &head.headers, withheld: |_| false, own: &[], body };
    write_request(&mut out, &request);
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(&out);
    if target.is_empty() {
        return;
    }
    assert_eq!(parsed, Ok(httparse::Status::Complete(out.len())));
    for name in ["host", "content-length"] {
        assert_eq!(
            request.headers.iter().filter(|field| field.name == name).count(),
            1
        );
    }
    assert!(
        request
            .headers
            .iter()
            .all(|field| field.name != "transfer-encoding")
    );
});

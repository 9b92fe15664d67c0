//! The reader of usual requests: what it takes, another parser takes in the same way, and nothing less is taken.
//! Law: a request is taken whole or not at all; one body, one length, no field that frames it in another way.
//! Next: `http1_chunk.rs`.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::http1::request::{Reading, RequestBounds, Usual, read_usual};

const BOUNDS: RequestBounds = RequestBounds { head_bytes_max: 4096, body_bytes_max: 1024 };

fuzz_target!(|input: (bool, &[u8])| {
    let (begun, bytes) = input;
    // Half of the inputs start like a request, so that the fuzzer need not find that first.
    let mut whole = if begun { b"POST /mcp HTTP/1.1\r\ncontent-length: 2\r\n".to_vec() } else { Vec::new() };
    whole.extend_from_slice(bytes);
    let whole = Bytes::from(whole);
    let Reading::Whole(Usual { request, consumed }) = read_usual(&whole, BOUNDS) else {
        return;
    };
    for cut in 0..consumed {
        match read_usual(&whole.slice(..cut), BOUNDS) {
            Reading::Whole(_) => panic!("taken at {cut}"),
            // In two pieces it is the same request.
            Reading::Headed(headed) => {
                assert_eq!(headed.missing(), consumed - cut);
                let later = headed.followed_by(&whole.slice(cut..)).expect("all of it").request;
                assert_eq!((later.headers(), later.body()), (request.headers(), request.body()));
            }
            Reading::Unusual => {}
        }
    }
    let body = request.body();
    let head = &whole[..consumed - body.len()];
    assert!(head.ends_with(b"\r\n\r\n") && whole[..consumed].ends_with(body));
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut fields);
    assert_eq!(parsed.parse(&whole), Ok(httparse::Status::Complete(head.len())));
    assert_eq!((parsed.method, parsed.version), (Some(request.method().as_str()), Some(1)));
    let named = |name: &str| parsed.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).count();
    assert_eq!(named("transfer-encoding") + named("expect") + named("upgrade"), 0);
    assert!(named("content-length") <= 1);
    for framing in ["content-length", "connection", "transfer-encoding"] {
        assert!(!request.headers().contains_key(framing), "{framing}");
    }
    let framing = named("content-length") + named("connection");
    assert_eq!(request.headers().len() + framing, parsed.headers.len());
});

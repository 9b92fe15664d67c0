//! Endpoints of HTTP+SSE: whatever a backend says, what is followed is a path of its own origin, in one spelling.
//! Law: what was resolved resolves to itself.
//! Next: `credential.rs`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::http_sse::{Base, Endpoint, announced, token_in, without_token};
use throughline_fuzz::pure::limits::BACKEND_SESSION_BYTES_MAX;

fuzz_target!(|input: (&[u8], &str)| {
    let (data, query) = input;
    let base = Base {
        origin: "http://a.example:3001",
        path: "/api/sse?key=1",
    };
    if let Ok(endpoint) = Endpoint::resolve(base, data) {
        let target = endpoint.as_str();
        assert!(target.starts_with('/') && target.len() <= BACKEND_SESSION_BYTES_MAX);
        assert!(target.bytes().all(|b| b.is_ascii_graphic() && b != b'#'));
        let path = target.split('?').next().unwrap_or_default();
        assert!(!path.split('/').any(|segment| matches!(segment, "." | "..")));
        // Two slashes at the beginning would be read as an authority.
        if !target.starts_with("//") {
            assert_eq!(Endpoint::resolve(base, target.as_bytes()), Ok(endpoint));
        }
    }
    let left = without_token(query).unwrap_or_default();
    assert!(token_in(&left).is_none());
    let said = announced("/sse", b"t1k.token");
    let said = std::str::from_utf8(&said).expect("ASCII");
    assert_eq!(said.split_once('?').and_then(|(_, query)| token_in(query)), Some("t1k.token"));
});

//! Session tokens: what was sealed opens as it was, and only unchanged, under its upstream and key; nothing else opens.
//! Law: a token has one spelling.
//! Next: `http_sse.rs`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::event_id::Uid;
use throughline_fuzz::pure::keys::{KeyId, KeyRing};
use throughline_fuzz::pure::limits::{BACKEND_SESSION_BYTES_MAX, SESSION_TOKEN_BYTES_MAX};
use throughline_fuzz::pure::revision::Revision;
use throughline_fuzz::pure::session_token::{BackendId, Flags, NotOurs, ReplicaKey, Sealed, Transport, open, seal};

static KEYS: LazyLock<KeyRing> = LazyLock::new(|| {
    let kid = KeyId::new(b'k').expect("a letter");
    KeyRing::new((kid, b"a secret for fuzzing"), []).expect("a ring")
});

fuzz_target!(|input: (&[u8], &str, &str, [u8; 24], [u8; 16], [u32; 4])| {
    let (bytes, upstream, authority, nonce, uid, numbers) = input;
    let [issued, instance, at, change] = numbers;
    // Nobody sealed it.
    assert!(open(&KEYS, upstream, bytes).is_err());
    // The shape of a token, and anything behind it.
    let shaped = [b"t1k.", bytes].concat();
    assert!(open(&KEYS, upstream, &shaped).is_err());

    let backend_id = BackendId::new(bytes).ok();
    if let Some(id) = &backend_id {
        assert!(id.as_str().as_bytes() == bytes && bytes.len() <= BACKEND_SESSION_BYTES_MAX);
    }
    let facts = Sealed {
        uid: Uid::new(uid),
        issued,
        instance,
        flags: Flags::of_initialize(bytes),
        replica: ReplicaKey::of(upstream, authority),
        revision: Revision::ALL[at as usize % Revision::ALL.len()],
        transport: if at & 1 == 0 { Transport::Streamable } else { Transport::HttpSse },
        backend_id,
    };
    let token = seal(KEYS.current(), upstream, &facts, nonce).expect("it fits");
    assert!(token.len() <= SESSION_TOKEN_BYTES_MAX && token.bytes().all(|byte| byte.is_ascii_graphic()));
    assert_eq!(open(&KEYS, upstream, token.as_bytes()), Ok(facts));
    assert_eq!(
        open(&KEYS, &format!("{upstream}x"), token.as_bytes()),
        Err(NotOurs::Forged)
    );

    let mut changed = token.clone().into_bytes();
    let at = at as usize % changed.len();
    changed[at] ^= (change as u8).max(1);
    assert!(open(&KEYS, upstream, &changed).is_err());
    assert!(open(&KEYS, upstream, &token.as_bytes()[..at]).is_err());
});

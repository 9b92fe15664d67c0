//! Event ids: whatever is taken prints again byte for byte, and nothing that was not signed is genuine.
//! Law: one spelling; a name of a stream that was made from ids is read back as itself.
//! Next: `session_token.rs`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::continuity::First;
use throughline_fuzz::pure::epoch::{Epoch, Seq};
use throughline_fuzz::pure::event_id::{
    Asked, Conn, EventId, Foreign, IdPrefix, Mark, Rid, StreamName, Uid, epoch_from_text,
};
use throughline_fuzz::pure::keys::{KeyId, KeyRing};
use throughline_fuzz::pure::limits::EVENT_ID_BYTES_MAX;
use throughline_fuzz::pure::rpc::{self, RequestId};

static KEYS: LazyLock<KeyRing> = LazyLock::new(|| ring(b"a secret for fuzzing"));
static OTHERS: LazyLock<KeyRing> = LazyLock::new(|| ring(b"another secret for it"));

fn ring(secret: &[u8]) -> KeyRing {
    let kid = KeyId::new(b'k').expect("a letter");
    KeyRing::new((kid, secret), []).expect("a ring")
}

/// What a client presents: anything.
fn presented(bytes: &[u8]) {
    let Ok(id) = EventId::decode(bytes) else {
        assert!(First::of_event_id(bytes).is_none());
        return;
    };
    let mut again = Vec::new();
    id.encode(&mut again);
    assert_eq!(again, bytes);
    assert!(bytes.len() <= EVENT_ID_BYTES_MAX);
    assert!(id.seq != Seq::START || matches!(id.mark, Mark::Prime(_)));
    assert!(First::of_event_id(bytes).and_then(First::point).is_some());
    assert_eq!(epoch_from_text(&id.epoch.spelled()), Some(id.epoch));
    // Nobody signed it: 96 bits can't be guessed.
    assert!(id.verify(&KEYS, &Uid::new([7; 16])).is_err());
    named(&id.stream);
}

fn named(stream: &StreamName) {
    let text = stream.spell();
    assert_eq!(StreamName::parse(&text).as_ref(), Some(stream));
    assert_eq!(stream.to_string(), *text);
    if let StreamName::Post(rid) = stream {
        let again = match rid.asked() {
            Asked::One(id) => Rid::from_request_id(&id),
            Asked::Batch(ids) => Rid::from_batch(&ids).expect("not empty"),
            Asked::Hashed => return,
        };
        assert_eq!(again, *rid);
    }
}

/// What we make ourselves, of any request's id.
fn made(stream: &StreamName, numbers: [u64; 3]) {
    named(stream);
    let [epoch, seq, conn] = numbers;
    let uid = Uid::new([9; 16]);
    let epoch = Epoch::from_random(epoch);
    let seq = Seq::new(seq.max(1));
    let prefix = IdPrefix::new(KEYS.current(), &uid, epoch, stream);
    let conn = Conn::from_random(conn);
    let mut out = Vec::new();
    for mark in [Mark::Event, Mark::End, Mark::Prime(conn)] {
        out.clear();
        match mark {
            Mark::Event => prefix.event(seq, &mut out),
            Mark::End => prefix.end(seq, &mut out),
            Mark::Prime(conn) => prefix.prime(seq, conn, &mut out),
        }
        let id = EventId::decode(&out).expect("what we print we read");
        assert_eq!(
            (id.epoch, &id.stream, id.seq, id.mark),
            (epoch, stream, seq, mark)
        );
        assert_eq!(id.verify(&KEYS, &uid), Ok(()));
        assert_eq!(id.verify(&KEYS, &Uid::new([8; 16])), Err(Foreign::WrongMac));
        assert_eq!(id.verify(&OTHERS, &uid), Err(Foreign::WrongMac));
    }
}

fuzz_target!(|input: (&[u8], [u64; 3])| {
    let (bytes, numbers) = input;
    presented(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Some(stream) = StreamName::parse(text) {
            made(&stream, numbers);
        }
        if let Ok(id) = RequestId::from_raw(rpc::quoted(text).as_bytes()) {
            made(&StreamName::Post(Rid::from_request_id(&id)), numbers);
        }
    }
    if let Ok(id) = RequestId::from_raw(bytes) {
        made(&StreamName::Post(Rid::from_request_id(&id)), numbers);
    }
    let ids: Option<Vec<_>> = rpc::elements(bytes).map(|raws| {
        raws.into_iter()
            .filter_map(|raw| RequestId::from_raw(raw).ok())
            .collect()
    });
    if let Some(rid) = ids.and_then(|ids| Rid::from_batch(&ids)) {
        made(&StreamName::Post(rid), numbers);
    }
});

//! Credentials: whatever stands in the fields, one that was accepted is recognised and lent back as it came, and another
//! one is not taken for it; a JWT's payload may be anything.
//! Law: no panic, and no two different tuples alike.
//! Next: `rpc.rs`.
#![no_main]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use throughline_fuzz::pure::keys::{KeyId, KeyRing};
use throughline_fuzz::pure::limits::ACCEPTANCE_MS_MAX;
use throughline_fuzz::pure::log::Millis;
use throughline_fuzz::pure::session::{
    CredentialFields, Credentials, Moment, Presented, PrincipalRule, Shown, Standing,
};

static KEYS: LazyLock<KeyRing> = LazyLock::new(|| {
    let kid = KeyId::new(b'k').expect("a letter");
    KeyRing::new((kid, b"a secret for fuzzing"), []).expect("a ring")
});

static NAMES: LazyLock<CredentialFields> =
    LazyLock::new(|| CredentialFields::new(["authorization", "cookie"].into_iter()));

fn fields(authorization: &[&[u8]], cookies: &[&[u8]]) -> HeaderMap {
    let mut fields = HeaderMap::new();
    for (name, values) in [(AUTHORIZATION, authorization), (COOKIE, cookies)] {
        for value in values
            .iter()
            .filter_map(|value| HeaderValue::from_bytes(value).ok())
        {
            fields.append(name.clone(), value);
        }
    }
    fields
}

fn shown(fields: &HeaderMap) -> Shown {
    Shown::Other(Box::new(Presented::of(KEYS.current(), &NAMES, fields)))
}

fuzz_target!(|input: (&[u8], Vec<&[u8]>, Vec<&[u8]>, u64, u64)| {
    let (payload, cookies, others, now, unix) = input;
    let jwt = format!("Bearer e30.{}.s", URL_SAFE_NO_PAD.encode(payload));
    let other = fields(&[payload], &others);
    for one in [fields(&[jwt.as_bytes()], &cookies), fields(&[payload], &cookies)] {
        let mut credentials = Credentials::default();
        let moment = Moment {
            now: Millis(now),
            unix,
        };
        credentials.accept(shown(&one), PrincipalRule::Same, moment);
        assert!(credentials.recognise(&NAMES, &one) == Some(shown(&one).hash()));
        assert_eq!(credentials.recognise(&NAMES, &other).is_some(), one == other);
        assert_eq!(shown(&one).hash() == shown(&other).hash(), one == other);
        let mut lent = HeaderMap::new();
        credentials.lend(&NAMES, &mut lent);
        assert_eq!(lent, one);
        let late = Millis(now.saturating_add(ACCEPTANCE_MS_MAX));
        assert_ne!(
            credentials.standing(&shown(&one), PrincipalRule::Same, late),
            Standing::Stranger
        );
        assert_ne!(
            credentials.standing(&shown(&one), PrincipalRule::Same, late),
            Standing::Accepted
        );
    }
});

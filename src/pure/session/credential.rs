//! Who may be answered from a session's memory: credentials, and that the backend accepted them (wire contract, section 9).
//! Law: nobody is believed for what it shows; only the backend's 2xx on a request that carried it counts, and not for
//! long. A token's content is read, never trusted: it may narrow whom the backend's word reaches, not widen it.
//! Remembered are keyed hashes; of raw credentials the newest accepted alone, wiped when it is replaced or dropped.
//! Absent on purpose: the ping that proves (`relay/gate.rs`), HTTP status codes, the clock.
//! Next: `claims.rs`, then `ledger.rs`.

use std::fmt;

use http::header::{AUTHORIZATION, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use zeroize::Zeroizing;

use crate::pure::keys::Key;
use crate::pure::limits::{ACCEPTANCE_MS_MAX, CREDENTIALS_MAX};
use crate::pure::log::Millis;
use crate::pure::session::claims::{Claims, Expires};

/// The keyed hash of a credential. Prints as nothing: it is of no use in a log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CredentialHash([u8; 32]);

impl fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialHash(…)")
    }
}

/// Which header fields make up a credential, in the order of the configuration.
#[derive(Debug)]
pub struct CredentialFields(Box<[HeaderName]>);

impl CredentialFields {
    /// The fields of these names; what is no name of a field is left out.
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self(
            names
                .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
                .collect(),
        )
    }

    /// The credential alone, copied: a field that came over the wire would pin the buffer that it was read into.
    pub fn copy(&self, fields: &HeaderMap) -> HeaderMap {
        let mut alone = HeaderMap::new();
        for name in &self.0 {
            for value in fields.get_all(name) {
                if let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) {
                    copy.set_sensitive(true);
                    alone.append(name.clone(), copy);
                }
            }
        }
        alone
    }

    /// Puts this credential in the place of the one that some fields bear.
    pub fn put(&self, credential: &HeaderMap, fields: &mut HeaderMap) {
        for name in &self.0 {
            fields.remove(name);
            for value in credential.get_all(name) {
                fields.append(name.clone(), value.clone());
            }
        }
    }

    /// The credential in a request's fields: for each name all of its values, then `None`. Absence is part of it.
    fn of<'a>(&'a self, fields: &'a HeaderMap) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.0.iter().flat_map(|name| {
            let values = fields.get_all(name).iter().map(|value| Some(value.as_bytes()));
            values.chain([None])
        })
    }
}

/// Whose credential it says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Principal {
    /// A JWT's issuer and subject, hashed.
    Named(CredentialHash),
    /// Nothing that can be read.
    Opaque,
}

/// Whom a session's memory may reach beside the one who opened it (`resume_principal`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrincipalRule {
    /// Whoever the backend accepts on this session; two JWTs must name the same principal.
    Accepted,
    /// The same, and a credential that names nobody must be the opener's very own.
    Same,
}

/// A credential that was not recognised as the newest accepted one, read and hashed.
pub struct Presented {
    hash: CredentialHash,
    principal: Principal,
    expires: Expires,
    raw: Raw,
    agent: Option<HeaderValue>,
}

/// What a request shows.
pub enum Shown {
    /// The session's newest accepted credential, byte for byte.
    Newest(CredentialHash),
    /// Another one.
    Other(Box<Presented>),
}

impl Shown {
    /// Its hash.
    pub const fn hash(&self) -> CredentialHash {
        match self {
            Self::Newest(hash) => *hash,
            Self::Other(presented) => presented.hash,
        }
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Newest(_) => "Newest",
            Self::Other(_) => "Other",
        })
    }
}

impl Presented {
    /// Reads the credential in a request's fields, and its client's `User-Agent`.
    pub fn of(key: &Key, names: &CredentialFields, fields: &HeaderMap) -> Self {
        let mut tokens = fields.get_all(AUTHORIZATION).iter();
        let claims = match (tokens.next(), tokens.next()) {
            (Some(token), None) => Claims::of(token.as_bytes()),
            (None | Some(_), _) => None,
        };
        let (principal, expires) = match claims {
            None => (Principal::Opaque, Expires::Unsaid),
            Some(claims) => {
                let named = [claims.issuer.as_deref(), Some(&*claims.subject)];
                let named = named.map(|text| text.map(str::as_bytes));
                let hash = CredentialHash(key.credential_hash(named.into_iter()));
                (Principal::Named(hash), claims.expires)
            }
        };
        Self {
            hash: CredentialHash(key.credential_hash(names.of(fields))),
            principal,
            expires,
            raw: Raw::of(names, fields),
            // Copied: a field that came over the wire would pin the whole buffer that it was read into.
            agent: fields
                .get(USER_AGENT)
                .and_then(|agent| HeaderValue::from_bytes(agent.as_bytes()).ok()),
        }
    }

    /// Its hash.
    pub const fn hash(&self) -> CredentialHash {
        self.hash
    }
}

/// A credential as it came: for each value `1`, its length (4 bytes) and itself; `0` ends a field.
#[derive(Clone)]
struct Raw(Zeroizing<Vec<u8>>);

impl Raw {
    fn of(names: &CredentialFields, fields: &HeaderMap) -> Self {
        // Reserved whole: a buffer that grows would leave copies behind.
        let len = names
            .of(fields)
            .map(|value| 1 + value.map_or(0, |bytes| 4 + bytes.len()));
        let mut raw = Zeroizing::new(Vec::with_capacity(len.sum()));
        for value in names.of(fields) {
            match value {
                None => raw.push(0),
                Some(bytes) => {
                    raw.push(1);
                    raw.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    raw.extend_from_slice(bytes);
                }
            }
        }
        Self(raw)
    }

    fn values(&self) -> Values<'_> {
        Values(&self.0)
    }

    /// Whether these fields bear exactly this. They are looked through for each name: there are few, and a look by name
    /// costs more.
    fn is_in(&self, names: &CredentialFields, fields: &HeaderMap) -> bool {
        let mut values = self.values();
        for name in &names.0 {
            for (other, value) in fields {
                if other == name && values.next() != Some(Some(value.as_bytes())) {
                    return false;
                }
            }
            if values.next() != Some(None) {
                return false;
            }
        }
        values.next().is_none()
    }
}

/// The values of a raw credential, as [`CredentialFields::of`] gives them.
struct Values<'a>(&'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mark, rest) = self.0.split_first()?;
        if *mark == 0 {
            self.0 = rest;
            return Some(None);
        }
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        self.0 = rest;
        Some(Some(value))
    }
}

/// How a credential stands with a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The backend accepted it lately.
    Accepted,
    /// Nobody knows: the backend must be asked first.
    Unproved,
    /// It is somebody else's than the opener's: the session does not exist for it.
    Stranger,
}

/// Now, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The clock that never jumps.
    pub now: Millis,
    /// Seconds since 1970: the clock that tokens are dated by.
    pub unix: u64,
}

/// A credential that the backend accepted.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    hash: CredentialHash,
    /// It is not asked about before this.
    until: Millis,
}

/// The newest accepted credential.
struct Newest {
    hash: CredentialHash,
    raw: Raw,
    agent: Option<HeaderValue>,
    /// What it says of its own end.
    dies: Millis,
}

/// Who opened the session, as far as is known here.
#[derive(Clone, Copy, Debug)]
struct Opener {
    hash: CredentialHash,
    principal: Principal,
}

/// The credentials of one session. Call: [`Credentials::recognise`] for each request, [`Credentials::accept`] or
/// [`Credentials::refuse`] when the backend has answered it.
#[derive(Default)]
pub struct Credentials {
    opener: Option<Opener>,
    accepted: Vec<Accepted>,
    newest: Option<Newest>,
}

impl Credentials {
    /// The hash of the newest accepted credential, if these fields bear exactly that. Compares; computes nothing.
    pub fn recognise(&self, names: &CredentialFields, fields: &HeaderMap) -> Option<CredentialHash> {
        let newest = self.newest.as_ref()?;
        newest.raw.is_in(names, fields).then_some(newest.hash)
    }

    /// How a credential stands.
    pub fn standing(&self, shown: &Shown, rule: PrincipalRule, now: Millis) -> Standing {
        if !self.may_be(shown, rule) {
            return Standing::Stranger;
        }
        let hash = shown.hash();
        match self.accepted.iter().find(|accepted| accepted.hash == hash) {
            Some(accepted) if now < accepted.until => Standing::Accepted,
            Some(_) | None => Standing::Unproved,
        }
    }

    /// Whether the backend accepted a credential before, however long ago, and did not refuse it since.
    pub fn knows(&self, hash: CredentialHash) -> bool {
        self.accepted.iter().any(|accepted| accepted.hash == hash)
    }

    /// Whether a credential may be the opener's, or another one of the same principal.
    fn may_be(&self, shown: &Shown, rule: PrincipalRule) -> bool {
        let Shown::Other(presented) = shown else {
            // It was judged when it was accepted.
            return true;
        };
        let Some(opener) = self.opener else {
            return true;
        };
        match (opener.principal, presented.principal, rule) {
            (Principal::Named(opener), Principal::Named(other), _) => opener == other,
            (Principal::Named(_) | Principal::Opaque, _, PrincipalRule::Accepted) => true,
            (Principal::Named(_) | Principal::Opaque, _, PrincipalRule::Same) => {
                opener.hash == presented.hash
            }
        }
    }

    /// The backend accepted a request with this credential. What is a stranger's is not remembered, whatever the backend
    /// says. The first one that is accepted is the opener's.
    pub fn accept(&mut self, shown: Shown, rule: PrincipalRule, moment: Moment) {
        if !self.may_be(&shown, rule) {
            return;
        }
        let (hash, dies) = match shown {
            Shown::Newest(hash) => {
                // Another one may have become the newest meanwhile; then this one's own end is not known any more.
                match &self.newest {
                    Some(newest) if newest.hash == hash => (hash, newest.dies),
                    Some(_) | None => return,
                }
            }
            Shown::Other(presented) => self.take(*presented, moment),
        };
        let until = Millis(moment.now.0.saturating_add(ACCEPTANCE_MS_MAX).min(dies.0));
        match self.accepted.iter_mut().find(|accepted| accepted.hash == hash) {
            Some(accepted) => accepted.until = until,
            None => {
                if self.accepted.len() == CREDENTIALS_MAX {
                    let soonest = self.accepted.iter().enumerate().min_by_key(|(_, a)| a.until);
                    if let Some((nth, _)) = soonest {
                        self.accepted.remove(nth);
                    }
                }
                if self.accepted.is_empty() {
                    // Most sessions show one and the same.
                    self.accepted.reserve_exact(1);
                }
                self.accepted.push(Accepted { hash, until });
            }
        }
    }

    /// Another credential becomes the newest.
    fn take(&mut self, presented: Presented, moment: Moment) -> (CredentialHash, Millis) {
        let Presented {
            hash,
            principal,
            expires,
            raw,
            agent,
        } = presented;
        let dies = match expires {
            Expires::Unsaid => Millis(u64::MAX),
            Expires::At(second) => {
                let left = second.saturating_sub(moment.unix).saturating_mul(1_000);
                Millis(moment.now.0.saturating_add(left))
            }
        };
        self.opener.get_or_insert(Opener { hash, principal });
        self.newest = Some(Newest {
            hash,
            raw,
            agent,
            dies,
        });
        (hash, dies)
    }

    /// The backend refused a request with this credential: it must be asked before anything else is answered to it.
    pub fn refuse(&mut self, hash: CredentialHash) {
        self.accepted.retain(|accepted| accepted.hash != hash);
    }

    /// Puts the newest accepted credential, and its client's `User-Agent`, into the fields of a request of ours.
    pub fn lend(&self, names: &CredentialFields, fields: &mut HeaderMap) {
        let Some(newest) = &self.newest else { return };
        let mut name = names.0.iter();
        let mut current = name.next();
        for value in newest.raw.values() {
            match (value, current) {
                (Some(bytes), Some(name)) => {
                    if let Ok(mut value) = HeaderValue::from_bytes(bytes) {
                        value.set_sensitive(true);
                        fields.append(name.clone(), value);
                    }
                }
                (None, Some(_)) => current = name.next(),
                (Some(_) | None, None) => return,
            }
        }
        if let Some(agent) = &newest.agent
            && !fields.contains_key(USER_AGENT)
        {
            fields.insert(USER_AGENT, agent.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;
    use crate::pure::keys::{KeyId, KeyRing};
    use crate::pure::limits::JWT_BYTES_MAX;

    fn ring() -> KeyRing {
        KeyRing::new((KeyId::RANDOM, b"a secret of more than 16 bytes"), []).expect("a ring")
    }

    fn names() -> CredentialFields {
        CredentialFields::new(["authorization", "cookie", "x-api-key"].into_iter())
    }

    fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(
                HeaderName::from_static(name),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        fields
    }

    fn shown(lines: &[(&'static str, &str)]) -> Shown {
        let ring = ring();
        Shown::Other(Box::new(Presented::of(ring.current(), &names(), &fields(lines))))
    }

    fn jwt(payload: &str) -> String {
        format!("Bearer e30.{}.sig", URL_SAFE_NO_PAD.encode(payload))
    }

    fn at(now: u64) -> Moment {
        Moment {
            now: Millis(now),
            unix: 1_000 + now / 1_000,
        }
    }

    fn accepted(lines: &[(&'static str, &str)]) -> Credentials {
        let mut credentials = Credentials::default();
        credentials.accept(shown(lines), PrincipalRule::Accepted, at(0));
        credentials
    }

    #[test]
    fn different_credentials_hash_differently() {
        let all: &[&[(&'static str, &str)]] = &[
            &[],
            &[("authorization", "")],
            &[("authorization", "a")],
            &[("cookie", "a")],
            &[("x-api-key", "a")],
            &[("cookie", "a"), ("x-api-key", "b")],
            &[("cookie", "b"), ("x-api-key", "a")],
            &[("cookie", "a"), ("cookie", "b")],
            &[("cookie", "ab")],
        ];
        for (i, a) in all.iter().enumerate() {
            for (j, b) in all.iter().enumerate() {
                assert_eq!(shown(a).hash() == shown(b).hash(), i == j, "{a:?} {b:?}");
                let credentials = accepted(a);
                let recognised = credentials.recognise(&names(), &fields(b));
                assert_eq!(recognised.is_some(), i == j, "{a:?} {b:?}");
            }
        }
        // What is no part of the credential changes nothing.
        assert_eq!(shown(&[("x-other", "1")]).hash(), shown(&[]).hash());
    }

    #[test]
    fn an_acceptance_holds_for_five_minutes_or_as_long_as_its_token() {
        let lasting = jwt(r#"{"sub":"a","exp":9000}"#);
        let short = jwt(r#"{"sub":"a","exp":1010}"#);
        let fraction = jwt(r#"{"sub":"a","exp":1.0105e3}"#);
        let over = jwt(r#"{"sub":"a","exp":900}"#);
        let odd = jwt(r#"{"sub":"a","exp":"soon"}"#);
        for (token, until) in [
            ("opaque", ACCEPTANCE_MS_MAX),
            (&lasting, ACCEPTANCE_MS_MAX),
            (&short, 10_000),
            (&fraction, 10_000),
            (&over, 0),
            (&odd, 0),
        ] {
            let lines = [("authorization", token)];
            let credentials = accepted(&lines);
            for (now, expected) in [
                (until.saturating_sub(1), Standing::Accepted),
                (until, Standing::Unproved),
            ] {
                if until > 0 || expected == Standing::Unproved {
                    let found = credentials.standing(&shown(&lines), PrincipalRule::Accepted, Millis(now));
                    assert_eq!(found, expected, "{token} at {now}");
                }
            }
        }
    }

    #[test]
    fn each_acceptance_begins_its_time_anew() {
        let lines = [("authorization", "a")];
        let mut credentials = accepted(&lines);
        let hash = credentials
            .recognise(&names(), &fields(&lines))
            .expect("the newest");
        credentials.accept(Shown::Newest(hash), PrincipalRule::Accepted, at(1_000));
        let standing = |credentials: &Credentials, now| {
            credentials.standing(&Shown::Newest(hash), PrincipalRule::Accepted, Millis(now))
        };
        assert_eq!(
            standing(&credentials, ACCEPTANCE_MS_MAX + 999),
            Standing::Accepted
        );
        assert_eq!(
            standing(&credentials, ACCEPTANCE_MS_MAX + 1_000),
            Standing::Unproved
        );
        credentials.refuse(hash);
        assert_eq!(standing(&credentials, 1_001), Standing::Unproved);
        // What its own token says is not forgotten with it.
        let token = jwt(r#"{"sub":"a","exp":1010}"#);
        let lines = [("authorization", &*token)];
        let mut credentials = accepted(&lines);
        let hash = shown(&lines).hash();
        credentials.accept(Shown::Newest(hash), PrincipalRule::Accepted, at(9_000));
        let found = credentials.standing(&Shown::Newest(hash), PrincipalRule::Accepted, Millis(10_000));
        assert_eq!(found, Standing::Unproved);
    }

    #[test]
    fn who_may_come_after_the_opener() {
        use PrincipalRule::{Accepted, Same};
        use Standing::{Stranger, Unproved};
        let alice = jwt(r#"{"iss":"i","sub":"alice","exp":2000}"#);
        let alice_again = jwt(r#"{"iss":"i","sub":"alice","exp":3000}"#);
        let bob = jwt(r#"{"iss":"i","sub":"bob"}"#);
        let other_alice = jwt(r#"{"iss":"j","sub":"alice"}"#);
        let no_issuer = jwt(r#"{"sub":"alice"}"#);
        let nobody = jwt(r#"{"iss":"i"}"#);
        let twice = jwt(r#"{"iss":"i","sub":"bob","sub":"alice"}"#);
        for (opener, comer, rule, expected) in [
            (&*alice, &*alice_again, Accepted, Unproved),
            (&alice, &alice_again, Same, Unproved),
            (&alice, &bob, Accepted, Stranger),
            (&alice, &other_alice, Accepted, Stranger),
            (&alice, &no_issuer, Accepted, Stranger),
            (&alice, "Bearer opaque", Accepted, Unproved),
            (&alice, "Bearer opaque", Same, Stranger),
            (&alice, &nobody, Accepted, Unproved),
            (&alice, &twice, Same, Stranger),
            ("Bearer x", "Bearer y", Accepted, Unproved),
            ("Bearer x", "Bearer y", Same, Stranger),
            ("Bearer x", &alice, Accepted, Unproved),
            ("Bearer x", &alice, Same, Stranger),
        ] {
            let mut credentials = accepted(&[("authorization", opener)]);
            let lines = [("authorization", comer)];
            let found = credentials.standing(&shown(&lines), rule, Millis(1));
            assert_eq!(found, expected, "{opener} {comer} {rule:?}");
            credentials.accept(shown(&lines), rule, at(1));
            let remembered = credentials.recognise(&names(), &fields(&lines)).is_some();
            assert_eq!(
                remembered,
                expected == Unproved,
                "a stranger's is never remembered"
            );
        }
    }

    #[test]
    fn what_is_no_token_is_opaque() {
        let long = format!("Bearer e30.{}.s", "A".repeat(JWT_BYTES_MAX + 1));
        for text in [
            "",
            "Bearer",
            "Bearer a.b",
            "Bearer a.b.c.d",
            "Bearer a.!!.c",
            "Bearer e30.e30.s",
            "Bearer e30.W10.s",
            &long,
        ] {
            assert!(Claims::of(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Claims::of(b"\xff \xff.\xff.\xff").is_none());
        let claims = Claims::of(jwt(r#"{"iss":"\u0069","sub":"s"}"#).as_bytes()).expect("claims");
        assert_eq!((claims.issuer.as_deref(), &*claims.subject), (Some("i"), "s"));
    }

    #[test]
    fn the_newest_accepted_credential_is_lent() {
        let lines = [("cookie", "a=1"), ("cookie", "b=2"), ("x-api-key", "k")];
        let mut credentials = Credentials::default();
        let mut lent = HeaderMap::new();
        credentials.lend(&names(), &mut lent);
        assert!(lent.is_empty());
        let mut with_agent = lines.to_vec();
        with_agent.push(("user-agent", "t/1"));
        credentials.accept(shown(&with_agent), PrincipalRule::Accepted, at(0));
        credentials.lend(&names(), &mut lent);
        assert_eq!(lent, fields(&with_agent));
        assert!(lent.get("x-api-key").is_some_and(HeaderValue::is_sensitive));
        // A refusal does not make another one the newest.
        let hash = credentials.recognise(&names(), &lent).expect("the newest");
        credentials.refuse(hash);
        assert!(credentials.recognise(&names(), &lent).is_some());
    }

    #[test]
    fn the_set_is_bounded() {
        let mut credentials = Credentials::default();
        let key = |n: usize| format!("key {n}");
        for n in 0..=CREDENTIALS_MAX {
            credentials.accept(
                shown(&[("x-api-key", &key(n))]),
                PrincipalRule::Accepted,
                at(n as u64),
            );
        }
        for n in 0..=CREDENTIALS_MAX {
            let lines = [("x-api-key", &*key(n))];
            let found = credentials.standing(&shown(&lines), PrincipalRule::Accepted, Millis(100));
            let expected = if n == 0 {
                Standing::Unproved
            } else {
                Standing::Accepted
            };
            assert_eq!(found, expected, "{n}");
        }
    }
}

//! The key ring: a secret becomes subkeys, each for one purpose, and they never leave this file.
//! Law: other files ask for a seal, a MAC or a hash; no file but this one sees key bytes.
//! Absent on purpose: chance. Nonces and secrets are arguments; the caller owns randomness.
//! Why a ring: a key is replaced without a break if the old one still opens what it sealed. Only the newest seals.
//! Next: `event_id/mod.rs` and `session_token.rs`, its two users.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::pure::limits::SECRET_BYTES_MIN;

/// Bytes of the random nonce that each sealed text starts with.
pub const NONCE_BYTES: usize = 24;

/// Bytes that the seal's own tag adds.
pub const TAG_BYTES: usize = 16;

/// Bytes of the MAC in an event id: 96 bits (wire contract, section 3).
pub const MAC_BYTES: usize = 12;

type Block = hmac::digest::Key<Hmac<Sha256>>;

const SEAL_LABEL: &[u8] = b"throughline 1 seal session token";
const MAC_LABEL: &[u8] = b"throughline 1 authenticate event id";
const CREDENTIAL_LABEL: &[u8] = b"throughline 1 hash credential";

/// The letter or digit that ids and tokens carry to say which key made them (wire contract, section 3: `kid`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyId(u8);

impl KeyId {
    /// A key's name; `None` unless it is an ASCII letter or digit.
    pub const fn new(byte: u8) -> Option<Self> {
        if byte.is_ascii_alphanumeric() {
            Some(Self(byte))
        } else {
            None
        }
    }

    /// The name of a key that was made up for one process's life, when no secret is set.
    pub const RANDOM: Self = Self(b'0');

    /// The letter or digit.
    pub const fn as_byte(self) -> u8 {
        self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as char)
    }
}

/// Why no ring can be made of these secrets. The operator's fault: refuse to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadRing {
    /// A secret is shorter than [`SECRET_BYTES_MIN`].
    SecretTooShort {
        /// Whose.
        kid: KeyId,
        /// How long it is, in bytes.
        bytes: usize,
    },
    /// Two secrets have the same name, so that it can't be known which one made an id.
    SameName {
        /// The name.
        kid: KeyId,
    },
}

impl fmt::Display for BadRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretTooShort { kid, bytes } => {
                write!(
                    f,
                    "secret {kid} has {bytes} bytes, at least {SECRET_BYTES_MIN} are needed"
                )
            }
            Self::SameName { kid } => write!(f, "two secrets are named {kid}"),
        }
    }
}

impl std::error::Error for BadRing {}

/// The subkeys of one secret. Wiped when dropped; prints as its name only.
#[derive(ZeroizeOnDrop)]
pub struct Key {
    #[zeroize(skip)]
    id: KeyId,
    seal: [u8; 32],
    mac: [u8; 32],
    credential: [u8; 32],
}

impl Key {
    fn derive(id: KeyId, secret: &[u8]) -> Self {
        Self {
            id,
            seal: subkey(secret, SEAL_LABEL),
            mac: subkey(secret, MAC_LABEL),
            credential: subkey(secret, CREDENTIAL_LABEL),
        }
    }

    /// The letter or digit that ids and tokens carry.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The keyed hash under which a client's credential is remembered (wire contract, section 9).
    /// Every value is preceded by its length, and an absent one differs from an empty one,
    /// so that two different tuples are never the same bytes.
    pub fn credential_hash<'a>(&self, tuple: impl Iterator<Item = Option<&'a [u8]>>) -> [u8; 32] {
        let mut mac = hmac(&self.credential);
        for value in tuple {
            match value {
                None => mac.update(&[0]),
                Some(bytes) => {
                    mac.update(&[1]);
                    mac.update(&(bytes.len() as u64).to_be_bytes());
                    mac.update(bytes);
                }
            }
        }
        mac.finalize().into_bytes().into()
    }

    /// 96 bits of HMAC-SHA256 over `parts`, put together. The caller sees to it that they can't be cut differently.
    pub(super) fn mac(&self, parts: [&[u8]; 2]) -> [u8; MAC_BYTES] {
        let whole = self.mac_over(parts).finalize().into_bytes();
        let mut out = [0; MAC_BYTES];
        out.copy_from_slice(&whole[..MAC_BYTES]);
        out
    }

    /// Whether `claimed` is the MAC of `parts`, found out in a time that says nothing of where they differ.
    pub(super) fn mac_is(&self, parts: [&[u8]; 2], claimed: &[u8; MAC_BYTES]) -> bool {
        self.mac_over(parts).verify_truncated_left(claimed).is_ok()
    }

    fn mac_over(&self, parts: [&[u8]; 2]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.mac);
        for part in parts {
            mac.update(part);
        }
        mac
    }

    /// XChaCha20-Poly1305 of `inside`, tag last. `None` only beyond the cipher's 256 GiB.
    pub(super) fn seal(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], inside: &[u8]) -> Option<Vec<u8>> {
        let payload = Payload { msg: inside, aad };
        self.cipher().encrypt(XNonce::from_slice(nonce), payload).ok()
    }

    /// What was sealed, if this key sealed it with this nonce and these associated data.
    pub(super) fn open(&self, nonce: &[u8; NONCE_BYTES], aad: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let payload = Payload { msg: sealed, aad };
        self.cipher().decrypt(XNonce::from_slice(nonce), payload).ok()
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&self.seal).into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, …)", self.id)
    }
}

/// All keys in use, newest first. The newest seals; each of them opens.
#[derive(Debug)]
pub struct KeyRing {
    newest: Key,
    older: Vec<Key>,
}

impl KeyRing {
    /// Derives every subkey once. The secrets stay the caller's to wipe.
    ///
    /// # Errors
    /// [`BadRing`]: a secret is too short, or two have the same name. (So a ring has at most 62 keys.)
    pub fn new<'a>(
        newest: (KeyId, &[u8]),
        older: impl IntoIterator<Item = (KeyId, &'a [u8])>,
    ) -> Result<Self, BadRing> {
        let mut ring = Self {
            newest: checked(newest)?,
            older: Vec::new(),
        };
        for secret in older {
            let key = checked(secret)?;
            if ring.find(key.id).is_some() {
                return Err(BadRing::SameName { kid: key.id });
            }
            ring.older.push(key);
        }
        Ok(ring)
    }

    /// The key that seals and signs.
    pub const fn current(&self) -> &Key {
        &self.newest
    }

    /// The key of this name.
    pub fn find(&self, id: KeyId) -> Option<&Key> {
        std::iter::once(&self.newest)
            .chain(&self.older)
            .find(|key| key.id == id)
    }
}

fn checked((kid, secret): (KeyId, &[u8])) -> Result<Key, BadRing> {
    if secret.len() < SECRET_BYTES_MIN {
        let bytes = secret.len();
        return Err(BadRing::SecretTooShort { kid, bytes });
    }
    Ok(Key::derive(kid, secret))
}

fn subkey(secret: &[u8], label: &[u8]) -> [u8; 32] {
    let mut mac = hmac(secret);
    mac.update(label);
    let mut whole = mac.finalize().into_bytes();
    let out = whole.into();
    whole.as_mut_slice().zeroize();
    out
}

/// HMAC's own rule for its key: padded with zeros to a block, hashed first if it is longer.
fn hmac(key: &[u8]) -> Hmac<Sha256> {
    let mut block = Block::default();
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key);
    } else {
        block[..32].copy_from_slice(&Sha256::digest(key));
    }
    let mac = <Hmac<Sha256> as Mac>::new(&block);
    block.as_mut_slice().zeroize();
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const OTHER: &[u8] = b"another secret, and a longer one: beyond one block of SHA-256, so it is hashed";

    fn kid(byte: u8) -> KeyId {
        KeyId::new(byte).expect("a letter or digit")
    }

    fn hash(key: &Key, tuple: &[Option<&[u8]>]) -> [u8; 32] {
        key.credential_hash(tuple.iter().copied())
    }

    #[test]
    fn a_key_is_named_by_a_letter_or_digit() {
        for byte in 0..=u8::MAX {
            let named = KeyId::new(byte).map(KeyId::as_byte);
            assert_eq!(named, byte.is_ascii_alphanumeric().then_some(byte));
        }
    }

    #[test]
    fn rings() {
        fn check(newest: (u8, &[u8]), older: &[(u8, &'static [u8])], problem: Option<BadRing>) {
            let older = older.iter().map(|&(byte, secret)| (kid(byte), secret));
            let ring = KeyRing::new((kid(newest.0), newest.1), older);
            assert_eq!(ring.as_ref().err(), problem.as_ref());
            if let Ok(ring) = ring {
                assert_eq!(ring.current().id(), kid(newest.0));
            }
        }
        let short = |byte, bytes| {
            Some(BadRing::SecretTooShort {
                kid: kid(byte),
                bytes,
            })
        };
        check((b'a', SECRET), &[], None);
        check((b'a', SECRET), &[(b'b', OTHER), (b'A', OTHER)], None);
        check((b'a', &SECRET[..15]), &[], short(b'a', 15));
        check((b'a', b""), &[], short(b'a', 0));
        check((b'a', SECRET), &[(b'b', b"short")], short(b'b', 5));
        check(
            (b'a', SECRET),
            &[(b'a', OTHER)],
            Some(BadRing::SameName { kid: kid(b'a') }),
        );
        let twice: &[(u8, &[u8])] = &[(b'b', OTHER), (b'b', SECRET)];
        check((b'a', SECRET), twice, Some(BadRing::SameName { kid: kid(b'b') }));
    }

    #[test]
    fn each_key_is_found_under_its_name() {
        let ring = KeyRing::new((kid(b'b'), SECRET), [(kid(b'a'), OTHER)]).expect("a ring");
        let found = |byte| ring.find(kid(byte)).map(|key| key.id().as_byte());
        assert_eq!(
            (found(b'a'), found(b'b'), found(b'c')),
            (Some(b'a'), Some(b'b'), None)
        );
        assert_eq!(
            format!("{ring:?}"),
            "KeyRing { newest: Key(b, …), older: [Key(a, …)] }"
        );
    }

    /// The literals were computed by another implementation of HMAC.
    #[test]
    fn subkeys_differ_and_are_what_other_implementations_derive() {
        let key = Key::derive(kid(b'k'), SECRET);
        assert!(key.seal != key.mac && key.mac != key.credential && key.seal != key.credential);
        let tuple: [Option<&[u8]>; 3] = [Some(b"Bearer x"), None, Some(b"")];
        // A secret of up to one block of SHA-256 is used as it is, a longer one is hashed first.
        for (secret, literal) in [
            (
                SECRET,
                "e46d55f3ad0983df4585a7e505e93fb0dea756b2c4b5b4768695b2e6f9cbfa51",
            ),
            (
                &[b'x'; 64],
                "fafa6520bb419a80299eb130a16be2c47e74dd344360af789f9da3ad2e69717a",
            ),
            (
                &[b'x'; 65],
                "981885a13249a97f79bc49259c613835931aaccc81efd1be59a799edd8049959",
            ),
            (
                OTHER,
                "b2ac06c1e35dfa3d04b8156fecef184f547718bc82aa5a2ff7871eeb9b76cde5",
            ),
        ] {
            let hash = hash(&Key::derive(kid(b'k'), secret), &tuple);
            let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, literal);
        }
    }

    #[test]
    fn no_two_credentials_hash_alike() {
        let key = Key::derive(kid(b'k'), SECRET);
        let tuples: &[&[Option<&[u8]>]] = &[
            &[],
            &[None],
            &[Some(b"")],
            &[None, None],
            &[Some(b""), None],
            &[None, Some(b"")],
            &[Some(b"ab"), Some(b"c")],
            &[Some(b"a"), Some(b"bc")],
            &[Some(b"abc"), None],
            &[Some(b"abc"), Some(b"")],
            &[Some(b"\0"), None],
            &[Some(b"\0\0"), None],
        ];
        for (i, a) in tuples.iter().enumerate() {
            for (j, b) in tuples.iter().enumerate() {
                assert_eq!(hash(&key, a) == hash(&key, b), i == j, "{a:?} {b:?}");
            }
        }
    }
}

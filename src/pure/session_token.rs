//! The sealed session id: everything a proxy must know to route a session, readable by our keys only.
//! Law: a token opens only under the upstream that it was sealed for, with a key of the ring, whole and unchanged.
//! Absent on purpose: addresses and indexes. A replica is named by a hash that is looked up in the current table.
//! Why sealed and not stored: any proxy with the same key routes the session (wire contract, section 2).
//! Next: `session/mod.rs`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::pure::event_id::Uid;
use crate::pure::keys::{Key, KeyId, KeyRing, NONCE_BYTES, TAG_BYTES};
use crate::pure::limits::{BACKEND_SESSION_BYTES_MAX, SESSION_TOKEN_BYTES_MAX};
use crate::pure::revision::Revision;
use crate::pure::rpc;

/// What a token is and how it is laid out.
const FORMAT: &[u8; 2] = b"t1";

/// How every token begins.
pub const BEGINS: &str = "t1";

/// `t1`, the key's name and a full stop.
const HEAD_BYTES: usize = FORMAT.len() + 2;

/// Uid, issue time, instance, flags, replica, revision, length of the backend's id.
const FIXED_BYTES: usize = 16 + 4 + 4 + 1 + 8 + 1 + 2;

/// Characters of the longest token that can be sealed.
const LONGEST: usize =
    HEAD_BYTES + (NONCE_BYTES + FIXED_BYTES + BACKEND_SESSION_BYTES_MAX + TAG_BYTES).div_ceil(3) * 4;

const _: () = assert!(LONGEST <= SESSION_TOKEN_BYTES_MAX);
const _: () = assert!(BACKEND_SESSION_BYTES_MAX <= u16::MAX as usize);

/// Names a replica for as long as its upstream and its authority keep their names, whatever place it has in a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReplicaKey([u8; 8]);

impl ReplicaKey {
    /// The first 8 bytes of SHA-256 over the upstream's name and the replica's authority (`host:port`),
    /// each preceded by its length, so that no two pairs are the same bytes.
    pub fn of(upstream_name: &str, authority: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [upstream_name, authority] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let whole = hash.finalize();
        let mut out = [0; 8];
        out.copy_from_slice(&whole[..8]);
        Self(out)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// A backend's own session id: 1 to [`BACKEND_SESSION_BYTES_MAX`] bytes of visible ASCII. Prints as its length only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BackendId(Box<str>);

/// Why a backend's session id can't be kept: the backend's fault, and `initialize` fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadBackendId {
    /// It is empty.
    Empty,
    /// It has this many bytes, more than [`BACKEND_SESSION_BYTES_MAX`].
    TooLong(usize),
    /// It holds something other than visible ASCII.
    NotVisible,
}

impl BackendId {
    /// Takes the value of a backend's `Mcp-Session-Id`.
    ///
    /// # Errors
    /// [`BadBackendId`]: MCP permits visible ASCII only, and a token has room for so much.
    pub fn new(bytes: &[u8]) -> Result<Self, BadBackendId> {
        if bytes.is_empty() {
            return Err(BadBackendId::Empty);
        }
        if bytes.len() > BACKEND_SESSION_BYTES_MAX {
            return Err(BadBackendId::TooLong(bytes.len()));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(u8::is_ascii_graphic) => Ok(Self(text.into())),
            Ok(_) | Err(_) => Err(BadBackendId::NotVisible),
        }
    }

    /// The id, as the backend wants it back.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendId(… {} bytes)", self.0.len())
    }
}

/// One thing that a backend declared at `initialize`: it decides in which words a client can be told of a reset
/// (wire contract, section 6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Declared {
    /// `tools.listChanged`
    ToolsListChanged,
    /// `prompts.listChanged`
    PromptsListChanged,
    /// `resources.listChanged`
    ResourcesListChanged,
    /// `resources.subscribe`
    ResourcesSubscribe,
    /// `logging`
    Logging,
}

impl Declared {
    /// Every one.
    pub const ALL: [Self; 5] = [
        Self::ToolsListChanged,
        Self::PromptsListChanged,
        Self::ResourcesListChanged,
        Self::ResourcesSubscribe,
        Self::Logging,
    ];

    const fn bit(self) -> u8 {
        match self {
            Self::ToolsListChanged => 1,
            Self::PromptsListChanged => 1 << 1,
            Self::ResourcesListChanged => 1 << 2,
            Self::ResourcesSubscribe => 1 << 3,
            Self::Logging => 1 << 4,
        }
    }

    /// Where it stands below `capabilities`.
    const fn path(self) -> &'static [&'static str] {
        match self {
            Self::ToolsListChanged => &["tools", "listChanged"],
            Self::PromptsListChanged => &["prompts", "listChanged"],
            Self::ResourcesListChanged => &["resources", "listChanged"],
            Self::ResourcesSubscribe => &["resources", "subscribe"],
            Self::Logging => &["logging"],
        }
    }

    /// Whether a raw value at that place declares it.
    fn by(self, raw: &[u8]) -> bool {
        match self {
            Self::ToolsListChanged
            | Self::PromptsListChanged
            | Self::ResourcesListChanged
            | Self::ResourcesSubscribe => raw == b"true",
            Self::Logging => raw.starts_with(b"{"),
        }
    }
}

/// How a session's messages travel. A session is of one transport from its beginning to its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Streamable HTTP: each POST has its answer.
    Streamable,
    /// HTTP+SSE of 2024-11-05: one stream carries every answer (wire contract, section 10).
    HttpSse,
}

impl Transport {
    /// The word for it in logs and in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Streamable => "streamable",
            Self::HttpSse => "sse",
        }
    }

    /// Its bit beside the flags.
    const fn bit(self) -> u8 {
        match self {
            Self::Streamable => 0,
            Self::HttpSse => 1 << 6,
        }
    }

    const fn of_byte(byte: u8) -> Self {
        if byte & Self::HttpSse.bit() == 0 {
            Self::Streamable
        } else {
            Self::HttpSse
        }
    }
}

/// What a backend declared, in the lower bits of the token's one byte; above them stands the [`Transport`]. The other bits
/// are reserved; the highest is for the `initialize` parameters that a token may carry some day. A token with a reserved
/// bit is not understood, and not ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(u8);

impl Flags {
    /// Nothing declared.
    pub const NONE: Self = Self(0);

    const KNOWN: u8 = 0b1_1111;

    /// What the answer to `initialize` declares (the whole JSON-RPC message).
    pub fn of_initialize(answer: &[u8]) -> Self {
        let Some(capabilities) = rpc::lookup(answer, &["result", "capabilities"]) else {
            return Self::NONE;
        };
        let declared =
            |what: &Declared| rpc::lookup(capabilities, what.path()).is_some_and(|raw| what.by(raw));
        Declared::ALL
            .into_iter()
            .filter(declared)
            .fold(Self::NONE, Self::with)
    }

    /// These, and that one.
    pub const fn with(self, what: Declared) -> Self {
        Self(self.0 | what.bit())
    }

    /// Whether it was declared.
    pub const fn has(self, what: Declared) -> bool {
        self.0 & what.bit() != 0
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        if byte & !Self::KNOWN == 0 {
            Some(Self(byte))
        } else {
            None
        }
    }
}

/// What a token holds (wire contract, section 2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The session's own name.
    pub uid: Uid,
    /// When it was issued, in seconds since 1970; a session ends `session_max` after it.
    pub issued: u32,
    /// Which proxy issued it.
    pub instance: u32,
    /// What the backend declared.
    pub flags: Flags,
    /// Which replica has the session; meaningless without a `backend_id`.
    pub replica: ReplicaKey,
    /// The negotiated revision.
    pub revision: Revision,
    /// How its messages travel.
    pub transport: Transport,
    /// The backend's own session id, or over HTTP+SSE the path and query of its endpoint; `None` = the backend keeps no
    /// sessions.
    pub backend_id: Option<BackendId>,
}

/// Who sealed a token, as the proxy sees it that opens it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Issuer {
    /// That very proxy.
    Ourselves,
    /// Another one, before that proxy began: it may have taken the place of the other.
    Predecessor,
    /// Another one that ran beside it.
    Peer,
}

impl Sealed {
    /// Who sealed it, to the proxy of this `instance` that `began` then, in seconds since 1970.
    ///
    /// A token issued later than that can only come from a proxy that ran beside it. In the very second it may have come
    /// from one that ended then. Where clocks differ: one that is behind hides its proxy, one that is ahead makes a peer
    /// of a predecessor, which costs a reset and no truth.
    pub const fn issuer(&self, instance: u32, began: u32) -> Issuer {
        if self.instance == instance {
            Issuer::Ourselves
        } else if self.issued > began {
            Issuer::Peer
        } else {
            Issuer::Predecessor
        }
    }
}

/// The token would have this many characters, more than [`SESSION_TOKEN_BYTES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong(pub usize);

/// Why a token does not open. To a client it is all the same: the session is gone (wire contract, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NotOurs {
    /// It is not a token in its one spelling.
    Shape,
    /// No key of this name is in the ring.
    UnknownKey(KeyId),
    /// Not sealed by that key, for another upstream, or changed.
    Forged,
    /// It was sealed by us, but this version can't tell what it means.
    NotUnderstood,
}

/// Seals a session's facts into the id that its client gets (wire contract, section 2).
/// `nonce` is 24 random bytes, new for each token.
///
/// # Errors
/// [`TooLong`]: no room. It does not happen as long as a token carries nothing but a [`BackendId`].
pub fn seal(key: &Key, upstream: &str, facts: &Sealed, nonce: [u8; NONCE_BYTES]) -> Result<String, TooLong> {
    let backend = facts.backend_id.as_ref().map_or("", BackendId::as_str);
    let mut inside = Vec::with_capacity(FIXED_BYTES + backend.len());
    inside.extend_from_slice(facts.uid.as_bytes());
    inside.extend_from_slice(&facts.issued.to_be_bytes());
    inside.extend_from_slice(&facts.instance.to_be_bytes());
    inside.push(facts.flags.0 | facts.transport.bit());
    inside.extend_from_slice(facts.replica.as_bytes());
    inside.push(facts.revision.to_byte());
    // At most BACKEND_SESSION_BYTES_MAX, by construction. 0 = none.
    inside.extend_from_slice(&(backend.len() as u16).to_be_bytes());
    inside.extend_from_slice(backend.as_bytes());

    let sealed = key
        .seal(&nonce, &associated(key.id(), upstream), &inside)
        .ok_or(TooLong(usize::MAX))?;
    let bytes = [&nonce[..], &sealed].concat();
    // Exactly as long as it will be: every session keeps its token.
    let length = base64::encoded_len(bytes.len(), false).ok_or(TooLong(usize::MAX))?;
    let mut token = String::with_capacity(HEAD_BYTES + length);
    token.push_str("t1");
    token.push(char::from(key.id().as_byte()));
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(bytes, &mut token);
    if token.len() > SESSION_TOKEN_BYTES_MAX {
        Err(TooLong(token.len()))
    } else {
        Ok(token)
    }
}

/// Opens what a client presents as `Mcp-Session-Id` on the path of this upstream (wire contract, section 2).
///
/// # Errors
/// [`NotOurs`]: it is no token of ours for this upstream.
pub fn open(keys: &KeyRing, upstream: &str, token: &[u8]) -> Result<Sealed, NotOurs> {
    let (kid, bytes) = shape(token).ok_or(NotOurs::Shape)?;
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>().ok_or(NotOurs::Shape)?;
    let key = keys.find(kid).ok_or(NotOurs::UnknownKey(kid))?;
    let inside = key
        .open(nonce, &associated(kid, upstream), sealed)
        .ok_or(NotOurs::Forged)?;
    understand(&inside).ok_or(NotOurs::NotUnderstood)
}

fn shape(token: &[u8]) -> Option<(KeyId, Vec<u8>)> {
    if token.len() > SESSION_TOKEN_BYTES_MAX {
        return None;
    }
    let (head, body) = token.split_first_chunk::<HEAD_BYTES>()?;
    let [t, one, kid, b'.'] = *head else { return None };
    if [t, one] != *FORMAT {
        return None;
    }
    // Strict: no padding, no bits left over. So a token has one spelling.
    Some((KeyId::new(kid)?, URL_SAFE_NO_PAD.decode(body).ok()?))
}

/// What a seal is tied to: format, key and upstream. The first two have a fixed length.
fn associated(kid: KeyId, upstream: &str) -> Vec<u8> {
    [&FORMAT[..], &[kid.as_byte()], upstream.as_bytes()].concat()
}

fn understand(inside: &[u8]) -> Option<Sealed> {
    let (uid, rest) = inside.split_first_chunk::<16>()?;
    let (issued, rest) = rest.split_first_chunk::<4>()?;
    let (instance, rest) = rest.split_first_chunk::<4>()?;
    let (&flags, rest) = rest.split_first()?;
    let (replica, rest) = rest.split_first_chunk::<8>()?;
    let (&revision, rest) = rest.split_first()?;
    let (length, backend) = rest.split_first_chunk::<2>()?;
    if usize::from(u16::from_be_bytes(*length)) != backend.len() {
        return None;
    }
    let backend_id = match backend {
        [] => None,
        bytes => Some(BackendId::new(bytes).ok()?),
    };
    Some(Sealed {
        uid: Uid::new(*uid),
        issued: u32::from_be_bytes(*issued),
        instance: u32::from_be_bytes(*instance),
        flags: Flags::from_byte(flags & !Transport::HttpSse.bit())?,
        replica: ReplicaKey(*replica),
        revision: Revision::from_byte(revision)?,
        transport: Transport::of_byte(flags),
        backend_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const OTHER: &[u8] = b"another secret of more than sixteen bytes";
    const GOLDEN: &str = "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCJjgTL4eX2Y4pcYXZFSocTVP99pFLZaKuooGk4DYPwvcmowucnw";

    fn kid(byte: u8) -> KeyId {
        KeyId::new(byte).expect("a letter or digit")
    }

    fn ring() -> KeyRing {
        KeyRing::new((kid(b'k'), SECRET), [(kid(b'o'), OTHER)]).expect("a ring")
    }

    fn nonce() -> [u8; NONCE_BYTES] {
        std::array::from_fn(|i| i as u8)
    }

    fn facts(backend: &str) -> Sealed {
        Sealed {
            transport: Transport::Streamable,
            uid: Uid::new(std::array::from_fn(|i| 0x10 + i as u8)),
            issued: 1_764_509_000,
            instance: 0x2a,
            flags: Flags::NONE
                .with(Declared::ToolsListChanged)
                .with(Declared::Logging),
            replica: ReplicaKey::of("files", "10.0.0.1:8000"),
            revision: Revision::V2025_11_25,
            backend_id: BackendId::new(backend.as_bytes()).ok(),
        }
    }

    /// Tokens were sealed by another implementation of HMAC, XChaCha20-Poly1305 and base64.
    #[test]
    fn literal_tokens() {
        fn check(backend: &str, token: &str) {
            assert_eq!(
                seal(ring().current(), "files", &facts(backend), nonce()).as_deref(),
                Ok(token)
            );
            assert_eq!(open(&ring(), "files", token.as_bytes()), Ok(facts(backend)));
        }
        check("backend-1", GOLDEN);
        check(
            "",
            "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCJjgTL4eX2Y4pcYXQ7w8jPqKMmcMMKH5aSboFvg",
        );
    }

    #[test]
    fn what_is_sealed_opens_as_it_was() {
        for revision in Revision::ALL {
            for backend in ["", "x", "!~", &"y".repeat(BACKEND_SESSION_BYTES_MAX)] {
                for flags in 0..=Flags::KNOWN {
                    let transport = [Transport::Streamable, Transport::HttpSse][usize::from(flags & 1)];
                    let flags = Flags(flags);
                    let facts = Sealed {
                        revision,
                        transport,
                        flags,
                        ..facts(backend)
                    };
                    let token = seal(ring().current(), "files", &facts, nonce()).expect("it fits");
                    assert!(token.len() <= LONGEST && token.bytes().all(|c| c.is_ascii_graphic()));
                    assert_eq!(open(&ring(), "files", token.as_bytes()), Ok(facts));
                }
            }
        }
    }

    #[test]
    fn an_old_key_still_opens_what_it_sealed() {
        let before = KeyRing::new((kid(b'o'), OTHER), []).expect("a ring");
        let token = seal(before.current(), "files", &facts("b"), nonce()).expect("it fits");
        assert_eq!(open(&ring(), "files", token.as_bytes()), Ok(facts("b")));
        let after = KeyRing::new((kid(b'k'), SECRET), []).expect("a ring");
        assert_eq!(
            open(&after, "files", token.as_bytes()),
            Err(NotOurs::UnknownKey(kid(b'o')))
        );
        let other_secret = KeyRing::new((kid(b'o'), SECRET), []).expect("a ring");
        assert_eq!(
            open(&other_secret, "files", token.as_bytes()),
            Err(NotOurs::Forged)
        );
    }

    #[test]
    fn a_token_opens_under_its_own_upstream_only() {
        for upstream in ["", "file", "filess", "Files", "files2"] {
            assert_eq!(
                open(&ring(), upstream, GOLDEN.as_bytes()),
                Err(NotOurs::Forged),
                "{upstream}"
            );
        }
    }

    #[test]
    fn what_is_not_shaped_like_a_token() {
        let body = &GOLDEN[HEAD_BYTES..];
        let refused = [
            String::new(),
            "t1".into(),
            "t1k".into(),
            "t1k.".into(),
            "t1k.AAAA".into(),
            format!("t2k.{body}"),
            format!("T1k.{body}"),
            format!("t1-.{body}"),
            format!("t1k-{body}"),
            format!("t1k{body}"),
            format!("t1kk.{body}"),
            format!(" {GOLDEN}"),
            format!("{GOLDEN} "),
            format!("{GOLDEN}="),
            format!("{GOLDEN}=="),
            format!("{GOLDEN}AAA"),                      // one character left over
            format!("{}x", &GOLDEN[..GOLDEN.len() - 1]), // bits left over
            GOLDEN.replace('_', "/"),
            "0b9f6c1e-8d51-4a57-9d6a-6a2f4c1d2e3f".into(),
            format!("t1k.{}", "A".repeat(SESSION_TOKEN_BYTES_MAX)),
        ];
        for token in refused {
            assert_eq!(
                open(&ring(), "files", token.as_bytes()),
                Err(NotOurs::Shape),
                "{token:?}"
            );
        }
        assert_eq!(
            open(&ring(), "files", b"t1k.\xff\xff\xff\xff"),
            Err(NotOurs::Shape)
        );
    }

    #[test]
    fn no_cut_and_no_changed_byte_opens() {
        for cut in 0..GOLDEN.len() {
            let opened = open(&ring(), "files", &GOLDEN.as_bytes()[..cut]);
            assert!(
                matches!(opened, Err(NotOurs::Shape | NotOurs::Forged)),
                "{cut}: {opened:?}"
            );
        }
        for at in 0..GOLDEN.len() {
            for byte in [b'A', b'B', b'z', b'0', b'_', b'.', 0, 0xff] {
                let mut changed = GOLDEN.as_bytes().to_vec();
                if std::mem::replace(&mut changed[at], byte) != byte {
                    assert!(open(&ring(), "files", &changed).is_err(), "{at} {byte}");
                }
            }
        }
    }

    /// Sealed with our key by a version that puts other things inside.
    #[test]
    fn what_is_ours_but_not_understood() {
        for (why, sealed) in [
            (
                "revision 9",
                "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCJjgTL4eX2Y4pfIXZFSocTVP99pFLN_3Thtc5S2UlvsHuWF1qdA",
            ),
            (
                "reserved flag",
                "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCtzgTL4eX2Y4pcYXZFSocTVP99pFLv66TWga5g3uD3x7T5dX-ew",
            ),
            (
                "length 8 of 9",
                "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCJjgTL4eX2Y4pcYXYFSocTVP99pFLZkThazhhBxI0Msf4Sj90rw",
            ),
            (
                "a byte more",
                "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCJjgTL4eX2Y4pcYXZFSocTVP99pFLCy0kkG-AbSqA4W4UMnbWTIY",
            ),
            (
                "a blank in the id",
                "t1k.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXZrWRYY1Xkjx33u_su_GfqarVGN4y6moCJjgTL4eX2Y4pcYXYFSocTRb2_NgR8GWSlcrSMCZPVxtm4wvg",
            ),
        ] {
            assert_eq!(
                open(&ring(), "files", sealed.as_bytes()),
                Err(NotOurs::NotUnderstood),
                "{why}"
            );
        }
        let whole = ring().current().open(
            &nonce(),
            b"t1kfiles",
            &shape(GOLDEN.as_bytes()).expect("a token").1[24..],
        );
        let whole = whole.expect("it opens");
        for cut in 0..whole.len() {
            assert_eq!(understand(&whole[..cut]), None, "{cut}");
        }
        assert_eq!(understand(&whole), Some(facts("backend-1")));
    }

    #[test]
    fn session_ids_of_backends() {
        fn check(bytes: &[u8], problem: Option<BadBackendId>) {
            let made = BackendId::new(bytes);
            assert_eq!(made.as_ref().err(), problem.as_ref());
            if let Ok(id) = made {
                assert_eq!(id.as_str().as_bytes(), bytes);
                assert_eq!(format!("{id:?}"), format!("BackendId(… {} bytes)", bytes.len()));
            }
        }
        check(b"!", None);
        check(b"~", None);
        check(&[b'a'; BACKEND_SESSION_BYTES_MAX], None);
        check(b"", Some(BadBackendId::Empty));
        check(
            &[b'a'; BACKEND_SESSION_BYTES_MAX + 1],
            Some(BadBackendId::TooLong(1_025)),
        );
        for bytes in [&b"a b"[..], b" ", b"\t", b"\x7f", b"\0", b"\xff", "é".as_bytes()] {
            check(bytes, Some(BadBackendId::NotVisible));
        }
    }

    #[test]
    fn replicas_are_named_unambiguously() {
        let key = ReplicaKey::of("files", "10.0.0.1:8000");
        assert_eq!(key.as_bytes(), &[0x22, 0xbf, 0x56, 0x1a, 0x0c, 0x74, 0xb8, 0x2c]);
        for (upstream, authority) in [
            ("file", "s10.0.0.1:8000"),
            ("files1", "0.0.0.1:8000"),
            ("files", "10.0.0.1:800"),
            ("", "files10.0.0.1:8000"),
            ("files10.0.0.1:8000", ""),
        ] {
            assert_ne!(ReplicaKey::of(upstream, authority), key, "{upstream} {authority}");
        }
    }

    #[test]
    fn what_a_backend_declares() {
        fn check(capabilities: &str, declared: &[Declared]) {
            let answer = format!(
                r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"2025-11-25","capabilities":{capabilities}}}}}"#
            );
            let flags = Flags::of_initialize(answer.as_bytes());
            for what in Declared::ALL {
                assert_eq!(
                    flags.has(what),
                    declared.contains(&what),
                    "{capabilities} {what:?}"
                );
            }
        }
        check("{}", &[]);
        check("null", &[]);
        check(r#"{"logging":{}}"#, &[Declared::Logging]);
        check(
            r#"{"logging":null,"tools":{},"prompts":{"listChanged":false}}"#,
            &[],
        );
        check(r#"{"tools":{"listChanged":true}}"#, &[Declared::ToolsListChanged]);
        check(
            r#"{"prompts":{"listChanged": true },"resources":{"subscribe":true,"listChanged":true}}"#,
            &[
                Declared::PromptsListChanged,
                Declared::ResourcesListChanged,
                Declared::ResourcesSubscribe,
            ],
        );
        assert_eq!(Flags::of_initialize(b"{"), Flags::NONE);
        assert_eq!(Flags::of_initialize(br#"{"id":1,"error":{}}"#), Flags::NONE);
    }
}

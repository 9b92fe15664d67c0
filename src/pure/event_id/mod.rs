//! The epoch-tagged event id: what a client sees of its position, and presents when it comes back.
//! Law: one spelling. Whatever `decode` takes, `encode` prints again byte for byte; everything else is unparseable.
//! Nothing that an id says is believed before `verify` found its MAC right (wire contract, section 3).
//! Absent on purpose: what follows from an id. That is asked of the log, in `../resume.rs`.
//! Why the MAC does not cover the position: it is computed once per stream, not once per event.
//! Next: `stream_name.rs`, then `../log/mod.rs`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::pure::epoch::{Epoch, Seq};
use crate::pure::keys::{Key, KeyId, KeyRing, MAC_BYTES};
use crate::pure::limits::EVENT_ID_BYTES_MAX;
use crate::pure::rpc::RequestId;

mod stream_name;

pub use stream_name::{Asked, Rid, StreamName};

/// The session's own name: 16 bytes that the proxy chose. It is in the token and in every MAC, never in an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uid([u8; 16]);

impl Uid {
    /// A session's name; the caller owns the choice (a version 7 UUID).
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Uid {
    /// Its last four bytes: enough to tell sessions apart, and not the whole of a name that a store is keyed by.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid(…{:08x})", u128::from_be_bytes(self.0) as u32)
    }
}

/// 96 bits that tie a stream's ids to one session and one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mac([u8; MAC_BYTES]);

/// Tells one connection's priming id from another's at the same position: 1 to 8 of `0-9a-z`
/// (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conn {
    text: [u8; CONN_CHARS_MAX],
    len: u8,
}

const CONN_CHARS_MAX: usize = 8;

impl Conn {
    /// From random bits; 41 of them count.
    pub fn from_random(bits: u64) -> Self {
        let mut rest = bits;
        let text = [(); CONN_CHARS_MAX].map(|()| {
            let digit = (rest % 36) as u8;
            rest /= 36;
            if digit < 10 {
                b'0' + digit
            } else {
                b'a' + digit - 10
            }
        });
        Self {
            text,
            len: CONN_CHARS_MAX as u8,
        }
    }

    fn parse(chars: &[u8]) -> Option<Self> {
        let fits = (1..=CONN_CHARS_MAX).contains(&chars.len());
        if !fits || !chars.iter().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'z')) {
            return None;
        }
        let mut text = [0; CONN_CHARS_MAX];
        text[..chars.len()].copy_from_slice(chars);
        Some(Self {
            text,
            len: chars.len() as u8,
        })
    }

    /// Its characters.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.len)]
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conn({})", self.as_bytes().escape_ascii())
    }
}

/// What kind of id it is (wire contract, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mark {
    /// Of an event.
    Event,
    /// Of a priming event: `seq` is the position from which this connection goes on.
    Prime(Conn),
    /// Of a stream's last event: nothing follows.
    End,
}

/// An id that has the right shape (wire contract, section 3). Whether it is ours, `verify` tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventId {
    /// Which key made the MAC.
    pub kid: KeyId,
    /// The life of the stream's log.
    pub epoch: Epoch,
    /// Which stream of the session.
    pub stream: StreamName,
    /// What proves that we wrote it.
    pub mac: Mac,
    /// The position. [`Seq::START`] stands only in a priming id.
    pub seq: Seq,
    /// What kind of id it is.
    pub mark: Mark,
}

/// It is no event id: `cursor_unknown` (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unparseable;

/// It has the shape of an event id, but not of this session: `cursor_foreign` (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// No key of this name is in the ring.
    UnknownKey(KeyId),
    /// The MAC is not the one of this session, stream and epoch.
    WrongMac,
}

impl EventId {
    /// Appends the id as a client sees it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        covered(self.kid, self.epoch, &self.stream, out);
        close_prefix(&self.mac, out);
        spell_seq(self.seq, out);
        spell_mark(self.mark, out);
    }

    /// Reads what a client presents as `Last-Event-ID`.
    ///
    /// # Errors
    /// [`Unparseable`]: it is not an id of ours in its one spelling.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unparseable> {
        let id = Self::parts(bytes).ok_or(Unparseable)?;
        let mut again = Vec::with_capacity(bytes.len());
        id.encode(&mut again);
        if again == bytes { Ok(id) } else { Err(Unparseable) }
    }

    fn parts(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > EVENT_ID_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let mut fields = text.split('.');
        let head = fields.next()?.as_bytes();
        let (stream, mac, tail) = (fields.next()?, fields.next()?, fields.next()?);
        if fields.next().is_some() {
            return None;
        }
        let (&kid, epoch) = head.split_first()?;
        let (digits, mark) = split_mark(tail)?;
        let seq = Seq::new(digits.parse().ok()?);
        match (mark, seq) {
            (Mark::Event | Mark::End, Seq::START) => return None,
            (Mark::Event | Mark::End | Mark::Prime(_), _) => {}
        }
        Some(Self {
            kid: KeyId::new(kid)?,
            epoch: Epoch::from_random(u64::from_be_bytes(fixed(epoch)?)),
            stream: StreamName::parse(stream)?,
            mac: Mac(fixed(mac.as_bytes())?),
            seq,
            mark,
        })
    }

    /// Whether this proxy's keys made the id, for this session. Its stream part is never believed before.
    ///
    /// # Errors
    /// [`Foreign`]: of another session, or forged. The time it takes does not tell how much of the MAC was right.
    pub fn verify(&self, keys: &KeyRing, uid: &Uid) -> Result<(), Foreign> {
        let key = keys.find(self.kid).ok_or(Foreign::UnknownKey(self.kid))?;
        let mut text = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        covered(self.kid, self.epoch, &self.stream, &mut text);
        if key.mac_is([uid.as_bytes(), &text], &self.mac.0) {
            Ok(())
        } else {
            Err(Foreign::WrongMac)
        }
    }

    /// What stands before the position in it.
    pub fn prefix(&self) -> IdPrefix {
        let mut out = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        covered(self.kid, self.epoch, &self.stream, &mut out);
        close_prefix(&self.mac, &mut out);
        IdPrefix(out.into())
    }

    /// The same position of the same life, under another name of its stream: one that names fewer requests.
    #[must_use]
    pub fn renamed(&self, key: &Key, uid: &Uid, stream: StreamName) -> Self {
        let mut text = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        covered(key.id(), self.epoch, &stream, &mut text);
        Self {
            kid: key.id(),
            mac: Mac(key.mac([uid.as_bytes(), &text])),
            stream,
            ..self.clone()
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        self.encode(&mut out);
        write!(f, "{}", out.escape_ascii())
    }
}

/// What stands before the position in every id of one life of one stream. Computed once; printing an id is a copy
/// (wire contract, section 3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdPrefix(Box<[u8]>);

impl IdPrefix {
    /// Computes the MAC and spells `kid epoch "." stream "." mac "."`.
    pub fn new(key: &Key, uid: &Uid, epoch: Epoch, stream: &StreamName) -> Self {
        let mut out = Vec::with_capacity(EVENT_ID_BYTES_MAX);
        covered(key.id(), epoch, stream, &mut out);
        let mac = Mac(key.mac([uid.as_bytes(), &out]));
        close_prefix(&mac, &mut out);
        Self(out.into())
    }

    /// For answers that stand in no log: the prefix of the one in front of the answers to `rest`, at least one. Who comes
    /// back with such an id is told of these and of nothing else, whomever it asks: nobody has a log of this epoch. If they
    /// are too many to be named, it bears the name of `stream`, which they are all of.
    pub fn in_front_of(
        rest: &[RequestId],
        stream: &StreamName,
        epoch: Epoch,
        (key, uid): (&Key, &Uid),
    ) -> Self {
        let named = Rid::of(rest).filter(|rid| match rid.asked() {
            Asked::Hashed => false,
            Asked::One(_) | Asked::Batch(_) => true,
        });
        match named {
            Some(rid) => Self::new(key, uid, epoch, &StreamName::Post(rid)),
            None => Self::new(key, uid, epoch, stream),
        }
    }

    /// The prefix, for a log that prints the position itself.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends the id of an event. Events are counted from 1.
    pub fn event(&self, seq: Seq, out: &mut Vec<u8>) {
        debug_assert_ne!(seq, Seq::START, "position 0 has no event");
        out.extend_from_slice(&self.0);
        spell_seq(seq, out);
    }

    /// Appends a priming id: the position from which this connection goes on.
    pub fn prime(&self, seq: Seq, conn: Conn, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
        spell_seq(seq, out);
        spell_mark(Mark::Prime(conn), out);
    }

    /// Appends the id of a stream's last event.
    pub fn end(&self, seq: Seq, out: &mut Vec<u8>) {
        self.event(seq, out);
        spell_mark(Mark::End, out);
    }
}

/// Reads an epoch as [`Epoch::spelled`] spells it; `None` if it is not in that one spelling.
pub fn epoch_from_text(text: &str) -> Option<Epoch> {
    Some(Epoch::from_random(u64::from_be_bytes(fixed(text.as_bytes())?)))
}

/// What the MAC covers after the session's uid: `kid epoch "." stream`.
fn covered(kid: KeyId, epoch: Epoch, stream: &StreamName, out: &mut Vec<u8>) {
    out.push(kid.as_byte());
    out.extend_from_slice(epoch.spelled().as_bytes());
    out.push(b'.');
    out.extend_from_slice(stream.spell().as_bytes());
}

fn close_prefix(mac: &Mac, out: &mut Vec<u8>) {
    out.push(b'.');
    out.extend_from_slice(URL_SAFE_NO_PAD.encode(mac.0).as_bytes());
    out.push(b'.');
}

fn spell_seq(seq: Seq, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = seq.get();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn spell_mark(mark: Mark, out: &mut Vec<u8>) {
    match mark {
        Mark::Event => {}
        Mark::Prime(conn) => {
            out.push(b'-');
            out.extend_from_slice(conn.as_bytes());
        }
        Mark::End => out.push(b'~'),
    }
}

fn split_mark(tail: &str) -> Option<(&str, Mark)> {
    if let Some(digits) = tail.strip_suffix('~') {
        return Some((digits, Mark::End));
    }
    match tail.split_once('-') {
        Some((digits, conn)) => Some((digits, Mark::Prime(Conn::parse(conn.as_bytes())?))),
        None => Some((tail, Mark::Event)),
    }
}

/// Exactly `N` bytes out of base64url, strictly.
fn fixed<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rpc::RequestId;

    const SECRET: &[u8] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    const OTHER: &[u8] = b"another secret of more than sixteen bytes";
    const UID: Uid = Uid::new(*b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f");
    const EPOCH: Epoch = Epoch::from_random(0x0123_4567_89ab_cdef);

    fn kid(byte: u8) -> KeyId {
        KeyId::new(byte).expect("a letter or digit")
    }

    fn ring() -> KeyRing {
        KeyRing::new((kid(b'k'), SECRET), [(kid(b'o'), OTHER)]).expect("a ring")
    }

    fn post(token: &str) -> StreamName {
        StreamName::Post(Rid::from_request_id(
            &RequestId::from_raw(token.as_bytes()).expect("an id"),
        ))
    }

    fn conn(text: &str) -> Conn {
        Conn::parse(text.as_bytes()).expect("1 to 8 of 0-9a-z")
    }

    /// Prefixes were computed by another implementation of HMAC and base64.
    #[test]
    fn literal_ids() {
        fn check(stream: &StreamName, prefix: &str) {
            let keys = ring();
            let made = IdPrefix::new(keys.current(), &UID, EPOCH, stream);
            assert_eq!(made.as_bytes().escape_ascii().to_string(), prefix);
            let put = |print: &dyn Fn(&mut Vec<u8>)| {
                let mut out = Vec::new();
                print(&mut out);
                String::from_utf8(out).expect("ASCII")
            };
            let k3 = conn("k3");
            for (text, tail, seq, mark) in [
                (put(&|out| made.event(Seq::new(1), out)), "1", 1, Mark::Event),
                (
                    put(&|out| made.event(Seq::new(u64::MAX), out)),
                    "18446744073709551615",
                    u64::MAX,
                    Mark::Event,
                ),
                (
                    put(&|out| made.prime(Seq::START, k3, out)),
                    "0-k3",
                    0,
                    Mark::Prime(k3),
                ),
                (
                    put(&|out| made.prime(Seq::new(10), k3, out)),
                    "10-k3",
                    10,
                    Mark::Prime(k3),
                ),
                (put(&|out| made.end(Seq::new(100), out)), "100~", 100, Mark::End),
            ] {
                assert_eq!(text, format!("{prefix}{tail}"));
                let id = EventId::decode(text.as_bytes()).expect("an id");
                assert_eq!((id.kid, id.epoch, &id.stream), (kid(b'k'), EPOCH, stream));
                assert_eq!((id.seq, id.mark), (Seq::new(seq), mark));
                assert_eq!(id.verify(&keys, &UID), Ok(()));
                assert_eq!(id.to_string(), text);
            }
        }
        check(&StreamName::Get, "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.");
        check(&post("7"), "kASNFZ4mrze8.pi7.7Qrz4h3lSy_HwPGC.");
        check(&post("-7"), "kASNFZ4mrze8.pm7._eO0Z78ltViNgp5C.");
        check(&post("1.5"), "kASNFZ4mrze8.pnMS41.9kwXwP2OeL3qLJZv.");
        check(&post("\"\""), "kASNFZ4mrze8.ps.8M6j72XTFgH9vylC.");
        check(&post("\"a\""), "kASNFZ4mrze8.psYQ.3ASh3DM0jWZW7U4J.");
        let ids = ["1", "\"a\""].map(|token| RequestId::from_raw(token.as_bytes()).expect("an id"));
        let batch = StreamName::Post(Rid::from_batch(&ids).expect("not empty"));
        check(&batch, "kASNFZ4mrze8.pbWzEsImEiXQ.cocqNfKrlzlEJIzR.");
    }

    #[test]
    fn the_longest_id_is_as_long_as_the_contract_says() {
        let stream = post(&format!("\"{}\"", "x".repeat(42)));
        let prefix = IdPrefix::new(ring().current(), &UID, EPOCH, &stream);
        let mut out = Vec::new();
        prefix.prime(Seq::new(u64::MAX), Conn::from_random(u64::MAX), &mut out);
        assert_eq!(out.len(), EVENT_ID_BYTES_MAX);
        assert!(EventId::decode(&out).is_ok());
        assert!(
            out.iter()
                .all(|c| c.is_ascii_alphanumeric() || b"-_.~".contains(c))
        );
    }

    #[test]
    fn what_is_unparseable() {
        let refused = [
            "",
            "7",
            "1_2",
            "0b9f6c1e-8d51-4a57-9d6a-6a2f4c1d2e3f",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-",     // no position
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.",    // empty position
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1.1", // a field too many
            ".ASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1",
            "-ASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1", // a key's name is a letter or digit
            "kASNFZ4mrze.g.m7sMZZUhcOkItqA-.1",  // epoch too short
            "kASNFZ4mrze8A.g.m7sMZZUhcOkItqA-.1", // too long
            "kASNFZ4mrze9.g.m7sMZZUhcOkItqA-.1", // bits left over
            "kASNFZ4mrze8=.g.m7sMZZUhcOkItqA-.1", // padding
            "kASNFZ4mrz+8.g.m7sMZZUhcOkItqA-.1", // another alphabet
            "kASNFZ4mrze8..m7sMZZUhcOkItqA-.1",  // no stream
            "kASNFZ4mrze8.x.m7sMZZUhcOkItqA-.1",
            "kASNFZ4mrze8.pi07.m7sMZZUhcOkItqA-.1",
            "kASNFZ4mrze8.pn7.m7sMZZUhcOkItqA-.1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA.1",   // MAC too short
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-A.1", // too long
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-AAAA.1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItq+/.1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.0", // 0 only in a priming id
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.0~",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.00-a",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.01",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.01-a",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.+1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.-1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1e3",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.0x1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.18446744073709551616",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1-",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1-A",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1-a_b",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1-123456789",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1-a-b",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1-a~",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1~~",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1~-a",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.~",
            " kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1 ",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1\n",
            "kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.１", // a digit, but not one of ours
        ];
        for text in refused {
            assert_eq!(EventId::decode(text.as_bytes()), Err(Unparseable), "{text:?}");
        }
        assert_eq!(
            EventId::decode(b"kASNFZ4mrze8.g.m7sMZZUhcOkItqA-.1\xff"),
            Err(Unparseable)
        );
        assert_eq!(EventId::decode(&[b'1'; EVENT_ID_BYTES_MAX + 1]), Err(Unparseable));
    }

    /// What is cut anywhere is another id at a shorter position, or none; never a panic, never another stream.
    #[test]
    fn every_prefix_and_every_changed_byte_has_one_spelling() {
        let whole = b"kASNFZ4mrze8.pi7.7Qrz4h3lSy_HwPGC.1234-k3";
        let prefix_bytes = whole.len() - b"1234-k3".len();
        let keys = ring();
        for cut in 0..=whole.len() {
            let read = EventId::decode(&whole[..cut]);
            assert_eq!(
                read.is_ok(),
                cut > prefix_bytes && cut != whole.len() - 2,
                "{cut}"
            );
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut changed = *whole;
                changed[at] = byte;
                let Ok(id) = EventId::decode(&changed) else {
                    continue;
                };
                assert_eq!(id.to_string().as_bytes(), changed);
                let ours = id.verify(&keys, &UID).is_ok();
                assert_eq!(ours, changed == *whole || at >= prefix_bytes, "{at} {byte}");
            }
        }
    }

    #[test]
    fn what_is_foreign() {
        let keys = ring();
        let made = |key: &Key, uid, epoch, stream: &StreamName| {
            let mut out = Vec::new();
            IdPrefix::new(key, &uid, epoch, stream).event(Seq::new(5), &mut out);
            EventId::decode(&out).expect("an id")
        };
        let old = keys.find(kid(b'o')).expect("the old key");
        let ours = made(keys.current(), UID, EPOCH, &StreamName::Get);
        let check = |id: &EventId, verdict| assert_eq!(id.verify(&keys, &UID), verdict, "{id}");

        check(&ours, Ok(()));
        check(&made(old, UID, EPOCH, &StreamName::Get), Ok(()));
        // The MAC is of the stream; every position in it is as genuine as another.
        for seq in [1, 6, u64::MAX] {
            let seq = Seq::new(seq);
            check(&EventId { seq, ..ours.clone() }, Ok(()));
        }
        for mark in [Mark::End, Mark::Prime(conn("0"))] {
            check(&EventId { mark, ..ours.clone() }, Ok(()));
        }
        let wrong = Err(Foreign::WrongMac);
        check(
            &made(keys.current(), Uid::new([0; 16]), EPOCH, &StreamName::Get),
            wrong,
        );
        let epoch = Epoch::from_random(EPOCH.bits() + 1);
        check(
            &EventId {
                epoch,
                ..ours.clone()
            },
            wrong,
        );
        for stream in [post("7"), post("\"7\"")] {
            check(
                &EventId {
                    stream,
                    ..ours.clone()
                },
                wrong,
            );
        }
        check(
            &EventId {
                kid: kid(b'o'),
                ..ours.clone()
            },
            wrong,
        );
        check(
            &EventId {
                kid: kid(b'z'),
                ..ours.clone()
            },
            Err(Foreign::UnknownKey(kid(b'z'))),
        );
        for bit in 0..96 {
            let mut mac = ours.mac.0;
            mac[bit / 8] ^= 1 << (bit % 8);
            check(
                &EventId {
                    mac: Mac(mac),
                    ..ours.clone()
                },
                wrong,
            );
        }
        // Another proxy's key under the same name.
        let theirs = KeyRing::new((kid(b'k'), OTHER), []).expect("a ring");
        assert_eq!(ours.verify(&theirs, &UID), wrong);
    }

    #[test]
    fn connections_are_told_apart_within_their_alphabet() {
        for (bits, text) in [
            (0, "00000000"),
            (1, "10000000"),
            (35, "z0000000"),
            (36, "01000000"),
            (36_u64.pow(8) - 1, "zzzzzzzz"),
        ] {
            assert_eq!(Conn::from_random(bits), conn(text));
        }
        let last = Conn::from_random(u64::MAX);
        assert_eq!(Conn::parse(last.as_bytes()), Some(last));
        for text in ["", "123456789", "A", "a b", "-", "é"] {
            assert_eq!(Conn::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn an_epoch_has_one_text() {
        for (bits, text) in [(0, "AAAAAAAAAAA"), (1, "AAAAAAAAAAE"), (u64::MAX, "__________8")] {
            let epoch = Epoch::from_random(bits);
            assert_eq!(epoch.spelled(), text);
            assert_eq!(epoch_from_text(text), Some(epoch));
        }
        for text in [
            "",
            "AAAAAAAAAA",
            "AAAAAAAAAAB",
            "AAAAAAAAAAAA",
            "AAAAAAAAAAA=",
            "AAAAAAAAAA/",
        ] {
            assert_eq!(epoch_from_text(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_session_is_not_told_whole_by_debug_output() {
        assert_eq!(format!("{UID:?}"), "Uid(…1c1d1e1f)");
    }
}

//! One unbroken life of a stream's log, and the positions within it.
//! Law: an epoch is never used again; it ends as soon as continuity can no longer be *proved*.
//! Absent on purpose: order between epochs. They are compared for equality only (wire contract, section 1).
//! Next: `event_id/mod.rs`, which prints both into the id that a client sees.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// 64 random bits that name one life of a stream's log. New for every stream instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    /// An epoch from 64 random bits; the caller owns the chance.
    pub const fn from_random(bits: u64) -> Self {
        Self(bits)
    }

    /// As it stands in ids and headers: 11 characters of unpadded base64url, one spelling.
    pub fn spelled(self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.to_be_bytes())
    }

    /// Reads what [`Epoch::spelled`] prints, in its one spelling; `None` for anything else.
    pub fn parse(spelled: &str) -> Option<Self> {
        let bits = URL_SAFE_NO_PAD.decode(spelled).ok()?;
        Some(Self(u64::from_be_bytes(bits.try_into().ok()?)))
    }

    /// The bits, for printing into an id and for a store's keys.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({:016x})", self.0)
    }
}

/// A position in an epoch: the number of its newest event, dense from 1. `START` is before the first event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Seq(u64);

impl Seq {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The position after `n` events.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// How many events lie up to here.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next position. An epoch of 2^64 events can't be reached in practice; overflow is our bug.
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(n) => Self(n),
            None => panic!("an epoch ran out of sequence numbers"),
        }
    }

    /// Events after `earlier` up to here; 0 if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a cursor could not be honoured or an epoch ended: the closed list of the wire contract, section 4.
/// The same word is the header value, the log field, the metric label and the row in the README.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// The cursor is not an event id of ours.
    CursorUnknown,
    /// The cursor belongs to another session, or its MAC is wrong.
    CursorForeign,
    /// The backend's session or its stream is gone.
    BackendLost,
    /// The backend started over: its stream is not the one that was read before.
    BackendRestarted,
    /// The backend went on, but what it sent meanwhile could not be had.
    UpstreamGap,
    /// A memory budget or `detached_max` took the events.
    Evicted,
    /// A store names an owner of this epoch that is lost.
    OwnerLost,
    /// The epoch is not known here.
    EpochChanged,
    /// The cursor lies past the end of its epoch.
    CursorFuture,
    /// The events after the cursor left the replay window in the ordinary way.
    WindowExceeded,
}

impl Reason {
    /// Every reason, in the precedence of the wire contract.
    pub const ALL: [Self; 10] = [
        Self::CursorUnknown,
        Self::CursorForeign,
        Self::BackendLost,
        Self::BackendRestarted,
        Self::UpstreamGap,
        Self::Evicted,
        Self::OwnerLost,
        Self::EpochChanged,
        Self::CursorFuture,
        Self::WindowExceeded,
    ];

    /// The reason that this word stands for; `None` for any other word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// The word for it, everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CursorUnknown => "cursor_unknown",
            Self::CursorForeign => "cursor_foreign",
            Self::BackendLost => "backend_lost",
            Self::BackendRestarted => "backend_restarted",
            Self::UpstreamGap => "upstream_gap",
            Self::Evicted => "evicted",
            Self::OwnerLost => "owner_lost",
            Self::EpochChanged => "epoch_changed",
            Self::CursorFuture => "cursor_future",
            Self::WindowExceeded => "window_exceeded",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What stays of an epoch when its data is gone, so that a later miss has a reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The epoch that ended.
    pub epoch: Epoch,
    /// Its last position: every event up to here was once kept.
    pub last: Seq,
    /// What ended it.
    pub end: EpochEnd,
}

/// How an epoch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EpochEnd {
    /// The stream was finished: its end mark was written. Nothing is missing after `last`.
    Finished,
    /// Continuity was lost, for this reason.
    Lost(Reason),
}

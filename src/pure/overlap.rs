//! The proof by overlap: whether a backend's stream that was asked again goes on where it broke.
//! Law: asked from the oldest id still held, every held event must come again, same id and same data, in order.
//! Absent still: the machine that compares. Until it exists a broken upstream stream is never called continued.
//! Why data and not only ids: backends number several streams alike (wire contract, section 8).
//! Next: `resume.rs`.

use sha2::{Digest as _, Sha256};

use crate::pure::epoch::Reason;

/// What an event says, told in 32 bytes: two events of one digest say the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of an event's data.
    pub fn of(data: &[u8]) -> Self {
        Self(Sha256::digest(data).into())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What a re-attached stream of a backend turned out to be (wire contract, section 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    /// Everything held came again; what follows is new.
    Whole,
    /// The overlap did not come whole within its time.
    Incomplete,
    /// It began with something else: the backend started over.
    Other,
}

impl Proof {
    /// The reason that clients are told, if the stream does not go on.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::Whole => None,
            Self::Incomplete => Some(Reason::UpstreamGap),
            Self::Other => Some(Reason::BackendRestarted),
        }
    }
}

//! The proof by overlap: whether a backend's stream that was asked again goes on where it broke.
//! Law: asked from the oldest id still held, every held event must come again, same id and same data, in order.
//! Absent still: the machine that compares. Until it exists a broken upstream stream is never called continued.
//! Why data and not only ids: backends number several streams alike (wire contract, section 8).
//! Next: `resume.rs`.

use crate::pure::epoch::Reason;

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

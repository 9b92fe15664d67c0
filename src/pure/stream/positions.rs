//! The three positions of a stream: what the log promised to keep, what was written, what the client acknowledged.
//! Law: `acked` ≤ `written` ≤ `kept`, always. Only what is kept is shown; only what is acknowledged was had.
//! Absent on purpose: how each is learnt (`marks.rs` for what was acknowledged, `store/` for what is kept).
//! Next: `marks.rs`.

use std::fmt;

use crate::pure::epoch::Seq;

/// Where one stream stands, in one epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Positions {
    /// Up to here the client's side is known to have received.
    pub acked: Seq,
    /// Up to here the kernel took whole frames, for any connection.
    pub written: Seq,
    /// Up to here the store promised to keep.
    pub kept: Seq,
}

/// How positions can't stand: a bug of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disorder {
    /// More was acknowledged than was written.
    AckedUnwritten(Positions),
    /// More was written than is kept.
    WrittenUnkept(Positions),
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, at) = match self {
            Self::AckedUnwritten(at) => ("acknowledged and never written", at),
            Self::WrittenUnkept(at) => ("written and not kept", at),
        };
        write!(
            f,
            "{what}: acked {}, written {}, kept {}",
            at.acked, at.written, at.kept
        )
    }
}

impl Positions {
    /// Whether they stand in order.
    ///
    /// # Errors
    /// [`Disorder`]: the first pair that does not, from the store's side.
    pub const fn in_order(self) -> Result<(), Disorder> {
        if self.written.get() > self.kept.get() {
            Err(Disorder::WrittenUnkept(self))
        } else if self.acked.get() > self.written.get() {
            Err(Disorder::AckedUnwritten(self))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acked_written_kept() {
        for (positions, says) in [
            ([0, 0, 0], None),
            ([1, 2, 3], None),
            ([3, 3, 3], None),
            (
                [1, 4, 3],
                Some("written and not kept: acked 1, written 4, kept 3"),
            ),
            (
                [3, 2, 3],
                Some("acknowledged and never written: acked 3, written 2, kept 3"),
            ),
            (
                [5, 4, 3],
                Some("written and not kept: acked 5, written 4, kept 3"),
            ),
        ] {
            let [acked, written, kept] = positions.map(Seq::new);
            let stands = Positions { acked, written, kept }.in_order();
            let said = stands.err().map(|disorder| disorder.to_string());
            assert_eq!(said.as_deref(), says, "{positions:?}");
        }
    }
}

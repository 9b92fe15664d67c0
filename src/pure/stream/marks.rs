//! From bytes on a connection to events: which frames had been put on it whole when it had carried so many bytes.
//! Law: an answer is never too new. Precision may be lost, towards the older; an event is then shown twice, not lost.
//! Why not every frame: what a kernel holds unacknowledged lies near the end, so marks are dense there and sparse
//! before. Two dozen whose distance from the end about doubles from one to the next reach back over any send buffer.
//! Next: `positions.rs`, `attach.rs`.

use crate::pure::epoch::Seq;
use crate::pure::limits::ACK_MARKS_MAX;

/// How many bytes the peer has not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unacked {
    /// The kernel still holds this many bytes that the peer did not acknowledge (`SIOCOUTQ` on Linux).
    Bytes(u32),
    /// It can't be known here; the caller assumes that nothing was received.
    Unknown,
}

/// Marks that thinning leaves at most, so that it is not needed again at once.
const KEPT_MAX: usize = ACK_MARKS_MAX / 4 * 3;

/// Up to this many bytes of the connection, everything up to this event was on it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    wire_bytes: u64,
    seq: Seq,
}

/// The frames of one connection, by the bytes that it had carried. Empty until the first event.
#[derive(Debug)]
pub struct Marks {
    from: Seq,
    marks: Vec<Mark>,
}

impl Marks {
    /// A connection that began at `from`: so much the client had already.
    pub const fn new(from: Seq) -> Self {
        Self {
            from,
            marks: Vec::new(),
        }
    }

    /// Notes that the connection has carried `wire_bytes` in all, framing included, and every frame up to `seq` whole.
    /// Neither ever goes back.
    pub fn push(&mut self, wire_bytes: u64, seq: Seq) {
        if self.marks.len() == ACK_MARKS_MAX {
            self.thin(wire_bytes);
        }
        if self.marks.is_empty() {
            // A connection on an idle stream carries one event.
            self.marks.reserve_exact(1);
        }
        self.marks.push(Mark { wire_bytes, seq });
    }

    /// The newest event that the peer acknowledged, as far as is known, when the connection has carried `wire_bytes`
    /// in all. Call: once, when the connection ends or is superseded.
    pub fn acked(&self, wire_bytes: u64, unacked: Unacked) -> Seq {
        let received = match unacked {
            Unacked::Bytes(bytes) => wire_bytes.saturating_sub(u64::from(bytes)),
            Unacked::Unknown => return self.from,
        };
        let marks = self.marks.partition_point(|mark| mark.wire_bytes <= received);
        match marks.checked_sub(1) {
            Some(newest) => self.marks[newest].seq,
            None => self.from,
        }
    }

    /// Drops a mark if the older one next to it is at most twice as far from the end as the newer one that is kept.
    fn thin(&mut self, end: u64) {
        let far = |mark: &Mark| end.saturating_sub(mark.wire_bytes);
        let mut kept: Vec<Mark> = Vec::with_capacity(ACK_MARKS_MAX);
        for (nth, mark) in self.marks.iter().enumerate().rev() {
            let older = nth.checked_sub(1).map(|older| far(&self.marks[older]));
            let spare = kept
                .last()
                .zip(older)
                .is_some_and(|(newer, older)| older <= far(newer).saturating_mul(2));
            if !spare && kept.len() < KEPT_MAX {
                kept.push(*mark);
            }
        }
        kept.reverse();
        self.marks = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_is_what_was_received_whole() {
        let mut marks = Marks::new(Seq::new(10));
        for (bytes, seq) in [(100, 11), (300, 12), (301, 15)] {
            marks.push(bytes, Seq::new(seq));
        }
        for (wire_bytes, unacked, expected) in [
            (301, Unacked::Bytes(0), 15),
            (301, Unacked::Bytes(1), 12),
            (301, Unacked::Bytes(2), 11),
            (301, Unacked::Bytes(201), 11),
            (301, Unacked::Bytes(202), 10),
            (301, Unacked::Bytes(u32::MAX), 10),
            (301, Unacked::Unknown, 10),
            (400, Unacked::Bytes(99), 15),
            (400, Unacked::Bytes(100), 12),
        ] {
            let acked = marks.acked(wire_bytes, unacked);
            assert_eq!(acked, Seq::new(expected), "{unacked:?} of {wire_bytes}");
        }
        assert_eq!(Marks::new(Seq::new(3)).acked(500, Unacked::Bytes(0)), Seq::new(3));
    }

    #[test]
    fn thinning_answers_an_older_event_and_stays_near() {
        let mut marks = Marks::new(Seq::START);
        let frame = 137;
        for n in 1..=100_000_u64 {
            marks.push(n * frame, Seq::new(n));
            assert!(marks.marks.len() <= ACK_MARKS_MAX);
            if n % 997 != 0 {
                continue;
            }
            for unacked in [0_u64, 1, 100, 5_000, 70_000, 1_000_000] {
                let truth = (n * frame).saturating_sub(unacked) / frame;
                let acked = marks.acked(n * frame, Unacked::Bytes(unacked as u32)).get();
                assert!(acked <= truth, "{acked} was not received, only {truth}");
                let behind = (truth - acked) * frame;
                assert!(
                    behind <= 3 * unacked + 3 * frame,
                    "{behind} bytes too old at {unacked} unacknowledged of {}",
                    n * frame
                );
            }
        }
    }
}

//! Requests of a batch whose answers the log holds no more, for a client that can't have had them.
//! Law: each is told in the place of its answer, behind a priming event that names what the client had: whoever is cut
//! before it heard of one presents a position before that one, and hears of it again.
//! Next: `ask.rs`, which tells them.

use crate::pure::epoch::{Reason, Seq};
use crate::pure::rpc::RequestId;

/// A request of a batch whose answer is held no more.
pub(super) struct Missed {
    /// The request.
    pub(super) id: RequestId,
    /// Why its answer is not there.
    pub(super) reason: Reason,
    /// The position that its error bears.
    pub(super) told_at: Seq,
}

/// Those whose answers are held no more, in the order of their answers. What stood in one event with another is told at the
/// position before both: nobody who is cut between the two misses the second. The last is told at `from`, where what is held
/// goes on: whoever heard of it has nothing more to hear of.
pub(super) fn told_in_turn(
    (had, from): (Seq, Seq),
    mut placed: Vec<(Seq, RequestId)>,
    reason: Reason,
) -> Vec<Missed> {
    placed.sort_by_key(|(at, _)| *at);
    let ends: Vec<Seq> = placed.iter().map(|(at, _)| *at).collect();
    let mut before = had;
    let told = placed.into_iter().enumerate().map(|(nth, (at, id))| {
        before = match ends.get(nth + 1) {
            None => from,
            Some(next) if *next == at => before,
            Some(_) => at,
        };
        Missed {
            id,
            reason,
            told_at: before,
        }
    });
    told.collect()
}

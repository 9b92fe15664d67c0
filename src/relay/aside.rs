//! Answers that stand in no log: what calls are told that nobody keeps anything of.
//! Law: no id of theirs is a position of an epoch that anybody has a log of, which would go on from there: each names the
//! requests whose answers follow it, and who comes back with it is told of these alone. The last bears the end mark.
//! Next: `canned_task.rs`.

use crate::pure::epoch::{Epoch, Seq};
use crate::pure::event_id::{IdPrefix, StreamName};
use crate::pure::rpc::RequestId;
use crate::pure::sse::encode;
use crate::relay::Relay;
use crate::relay::session::Session;
use crate::relay::world::World;

/// Writes what `said` says to each of these requests of a stream, behind `after`; `own` is the stream's own prefix.
pub(crate) fn tell<W: World>(
    (relay, session): (&Relay<W>, &Session<W>),
    (stream, own): (&StreamName, &IdPrefix),
    (ids, after): (&[RequestId], Seq),
    said: impl Fn(&RequestId) -> Vec<u8>,
    frames: &mut Vec<u8>,
) {
    let aside = Epoch::from_random(relay.chance());
    let signs = (relay.keys.current(), &session.uid);
    let mut at = after;
    let mut id = Vec::new();
    for (nth, request) in ids.iter().enumerate() {
        at = at.next();
        id.clear();
        match &ids[nth + 1..] {
            [] => own.end(at, &mut id),
            rest => IdPrefix::in_front_of(rest, stream, aside, signs).event(at, &mut id),
        }
        encode::frame(frames, &id, b"", &said(request));
    }
}

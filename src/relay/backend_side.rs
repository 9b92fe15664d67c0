//! What a stream knows of its backend besides the body that it reads: ids, tries, what may come again, what is owed.
//! Law: everything here is empty while the backend's first connection stands and sends no ids.
//! Next: `pursue.rs`, `reattach.rs`, `upstream_get.rs`, `contradiction.rs`, `asks.rs`, each of which tends its part.

use std::sync::Arc;

use crate::pure::epoch::Seq;
use crate::pure::log::Millis;
use crate::pure::refusal::Withdrawal;
use crate::pure::rpc::RequestId;
use crate::pure::stream::admission::{Admission, Had};
use crate::pure::stream::{Pursuit, Testimony, Trail, Witness};
use crate::relay::confirm::Reattaching;
use crate::relay::intake::Prior;

/// The backend's side of a stream.
pub(crate) struct BackendSide {
    /// The backend's own ids beside the log.
    pub(crate) trail: Trail,
    /// What the trail had seen when the body that is read was opened.
    pub(crate) news: u64,
    /// The backend is asked again for the rest of an answer.
    pub(crate) pursuit: Option<Pursuit>,
    /// The stream broke, and is to go on from another connection.
    pub(crate) reattaching: Option<Box<Reattaching>>,
    /// Whether the backend lets the upstream GET in.
    pub(crate) admission: Admission,
    /// Since when the upstream GET streams.
    pub(crate) let_in_at: Millis,
    /// What a standalone stream had of its backend on earlier connections.
    pub(crate) had: Option<Box<Had>>,
    /// What it said under its ids; `None` where these are not declared to be the session's own.
    pub(crate) witness: Option<Box<Witness>>,
    /// Pings of the backend's that wait for the proxy's answer.
    pub(crate) pings: Vec<RequestId>,
    /// Shared by the proxy's answers that are on their way to the backend: how many there are.
    pub(crate) answering: Option<Arc<()>>,
    /// A request whose frame was half sent when it was to be struck, and why it is.
    pub(crate) unstruck: Option<Box<(RequestId, Seq, Withdrawal)>>,
}

impl BackendSide {
    /// A backend of which so many ids are kept.
    pub(crate) const fn new(depth: usize, witness: Option<Box<Witness>>, now: Millis) -> Self {
        Self {
            trail: Trail::new(depth),
            news: 0,
            pursuit: None,
            reattaching: None,
            admission: Admission::NEW,
            let_in_at: now,
            had: None,
            witness,
            pings: Vec::new(),
            answering: None,
            unstruck: None,
        }
    }

    /// Whether it contradicted what it said before.
    pub(crate) fn testimony(&self) -> Testimony {
        self.witness
            .as_ref()
            .map_or(Testimony::Agrees, |witness| witness.testimony())
    }

    /// Begins again: another backend goes on, to whom nothing of this one means anything.
    pub(crate) fn forget(&mut self, now: Millis) {
        let witness = self.witness.take().map(|_| Box::default());
        *self = Self::new(self.trail.depth(), witness, now);
    }
}

/// What came on earlier connections, and how it is taken if it comes again.
pub(crate) fn prior<'a>(
    reattaching: &'a mut Option<Box<Reattaching>>,
    had: &'a mut Option<Box<Had>>,
) -> Prior<'a> {
    match (
        reattaching.as_mut().and_then(|reattaching| reattaching.proof()),
        had,
    ) {
        (Some(overlap), _) => Prior::Proof(overlap),
        (None, Some(had)) if had.expects() => Prior::Had(had),
        (None, Some(_) | None) => Prior::Nothing,
    }
}

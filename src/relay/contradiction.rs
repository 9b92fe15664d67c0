//! A backend that contradicts what it said before: it began anew, and took an old session for granted.
//! Law: that is a loss of the session, whatever status it answers with; and nothing that it says is passed on as the
//! stream's (wire contract, section 7). Only where its ids are declared to be the session's own, and one replica's.
//! Why no less: servers number streams alike, or anew for each connection, and lose nothing by it.
//! Next: `pure/stream/witness.rs`, which knows; `recover.rs`, which sees to it.

use tracing::info;

use crate::config::resolved::EventStore;
use crate::pure::epoch::Reason;
use crate::pure::log::Millis;
use crate::pure::session::LossCause;
use crate::pure::stream::Witness;
use crate::relay::session::Session;
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;

impl<W: World> Session<W> {
    /// What remembers a stream's backend, where it can be held to what it said. The standalone stream goes on where the
    /// one before it in this life of the session left off.
    pub(crate) fn witness(&self, before: Option<Box<Witness>>) -> Option<Box<Witness>> {
        match self.pool.config.event_store {
            EventStore::PerSession if self.is_pinned(&self.home()) => Some(before.unwrap_or_default()),
            EventStore::PerSession | EventStore::Undeclared => None,
        }
    }
}

impl<W: World> StreamTask<W> {
    /// Another connection to the backend begins, or was tried: what it says from now on is held against what it said.
    pub(crate) fn remember_said(&mut self) {
        if self.backend.witness.is_none() {
            return;
        }
        let newest = self.said_last();
        if let Some(witness) = &mut self.backend.witness {
            witness.broke(newest.into_iter());
        }
    }

    /// The backend contradicted what it said before.
    pub(crate) fn contradicted(&mut self, now: Millis) {
        info!(session = %self.session.label(), stream = %self.name, "backend contradicts what it said before: it began anew");
        let of = self.generation;
        self.not_reattached(Reason::BackendRestarted, now);
        self.relay.lost(&self.session, of, LossCause::Restarted);
    }
}

//! A session in use: it does not expire meanwhile, and its backend has just heard of it, or not.
//! Law: use ends with the guard, on every path. What a client holds open is use; only what reaches the backend is a
//! word to it, and silence towards it is ended by `tend.rs`.
//! Next: `tend.rs`.

use std::sync::Arc;

use crate::pure::log::Millis;
use crate::relay::Relay;
use crate::relay::session::Session;
use crate::relay::world::World;

/// A request of a session that is under way: meanwhile the session does not expire.
pub(crate) struct Busy<W: World> {
    session: Arc<Session<W>>,
    relay: Arc<Relay<W>>,
}

impl<W: World> Session<W> {
    /// It is in use until the guard is dropped, though its backend hears nothing: a connection of it is held.
    pub(crate) fn held(self: &Arc<Self>, relay: &Arc<Relay<W>>) -> Busy<W> {
        self.attached(relay.now());
        Busy {
            session: Arc::clone(self),
            relay: Arc::clone(relay),
        }
    }

    /// Its backend is told something now.
    pub(crate) fn spoke(&self, now: Millis) {
        self.record().spoke(now);
    }

    /// When its backend last heard of it.
    pub(crate) fn spoke_at(&self) -> Millis {
        self.record().spoke_at()
    }
}

impl<W: World> Drop for Busy<W> {
    fn drop(&mut self) {
        self.session.detached(self.relay.now());
    }
}

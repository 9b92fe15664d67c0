//! What a lost session means for its streams: calls get their error at once, a listener its resync when it stands again.
//! Law: what died with the backend's session is never waited for; what a client is told to read again can be read.
//! A call whose answer has not begun may not have been run at all: its own exchange says so, within a bound.
//! Next: `outcome.rs`, `turn.rs`.

use crate::pure::epoch::Reason;
use crate::pure::event_id::StreamName;
use crate::pure::log::Millis;
use crate::relay::gap::Gap;
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;

/// How much longer than a request waits for its session, twice `replica_retry_max`, a call waits for what its backend
/// still says of it.
const LAST_WORD_MS: u64 = 1_000;

impl<W: World> Session<W> {
    /// Until when a backend that lost the session may say whether a call ran.
    pub(crate) fn last_word_by(&self, now: Millis) -> Millis {
        let patience = 2 * self.pool.config.exchange.replica_retry_max;
        Millis(now.0 + patience.as_millis() as u64 + LAST_WORD_MS)
    }
}

impl<W: World> StreamTask<W> {
    /// The backend has lost the session; it is being begun anew.
    pub(crate) fn session_lost(&mut self, now: Millis) {
        // Nothing that the old backend said, or was asked, tells anything of the next one.
        self.backend.forget(now);
        match self.name {
            StreamName::Post(_) | StreamName::HttpSse => match &mut self.source {
                // Whether it ran is what its own answer says, which may be the one that says that the session is gone.
                Source::Answering(_, until) => *until = self.session.last_word_by(now),
                Source::Reading(_)
                | Source::Draining(..)
                | Source::Opening(_)
                | Source::Waiting { .. }
                | Source::Polled { .. }
                | Source::Over => {
                    self.fail_open(Reason::BackendLost, now);
                    self.source = Source::Over;
                }
            },
            StreamName::Get => {
                self.gap = Gap::Certain(Reason::BackendLost);
                self.source = Source::waiting(Millis(u64::MAX));
            }
        }
    }

    /// The session stands again, at a backend that knows nothing of this stream.
    pub(crate) fn session_regained(&mut self) {
        match (&self.name, &self.source) {
            (StreamName::Post(_) | StreamName::HttpSse, _) => {}
            // It was begun since the loss, and goes where the session is by itself.
            (
                StreamName::Get,
                Source::Opening(_) | Source::Reading(_) | Source::Draining(..) | Source::Answering(..),
            ) => {}
            (StreamName::Get, Source::Waiting { .. } | Source::Polled { .. } | Source::Over) => {
                self.backoff.succeed();
                self.source = Source::Opening(self.again());
            }
        }
    }
}

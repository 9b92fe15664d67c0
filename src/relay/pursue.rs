//! The rest of an answer whose backend ended its stream before it was complete: who asks for it again, and when.
//! Law: a POST is never sent again; what is asked is a GET with the backend's own cursor (wire contract, section 7).
//! What comes goes on in the same epoch, proved where proof is wanted (`reattach.rs`). What does not come is an error with an unknown outcome, never a silence.
//! Next: `pure/stream/pursuit.rs`, which bounds it; `pure/stream/trail.rs`, which keeps the cursor.

use http::HeaderValue;
use tracing::{debug, info};

use crate::config::resolved::{Polling, Reattach};
use crate::pure::epoch::Reason;
use crate::pure::event_id::StreamName;
use crate::pure::limits::{OVERLAP_EVENTS_MAX, UPSTREAM_CACHE_EVENTS};
use crate::pure::log::Millis;
use crate::pure::revision::Priming;
use crate::pure::stream::pursuit::{Brought, Step};
use crate::pure::stream::{Pursuit, SourceEnd};
use crate::relay::session::Session;
use crate::relay::source::{Opened, Opening, Source};
use crate::relay::standalone;
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;

/// Ids of its backend that the stream of a POST keeps: the last one is where a poll goes on.
const POLL_DEPTH: usize = 1;

/// Ids that a stream keeps where a break is to be proved none: those of the overlap, and priming ids among them.
const PROOF_DEPTH: usize = OVERLAP_EVENTS_MAX + 4;

impl<W: World> Session<W> {
    /// How many ids of its backend a stream keeps: none where nobody could be asked with them.
    pub(crate) fn trail_depth(&self, stream: &StreamName) -> usize {
        match (stream, self.pool.config.stream.reattach, self.revision.primes()) {
            (StreamName::Get, Reattach::Never | Reattach::Proved, _) => UPSTREAM_CACHE_EVENTS,
            // Nobody can be asked again: the session is over with the connection.
            (StreamName::HttpSse, Reattach::Never | Reattach::Proved, _) => 0,
            (StreamName::Post(_), Reattach::Proved, _) => PROOF_DEPTH,
            (StreamName::Post(_), Reattach::Never, Priming::Yes) => POLL_DEPTH,
            (StreamName::Post(_), Reattach::Never, Priming::No) => 0,
        }
    }
}

impl<W: World> StreamTask<W> {
    /// How an orderly end of the backend's stream is to be taken. A server that wants to be polled says when (`retry`);
    /// one that is just stopped ends its streams in order too, and what it then says of its store is no continuation.
    pub(crate) fn clean_end(&self) -> SourceEnd {
        match (self.backend.trail.cursor(), self.backend.trail.retry()) {
            (Some(_), Some(_)) => SourceEnd::CleanAfterId,
            (Some(_) | None, _) => SourceEnd::Clean,
        }
    }

    /// The backend ended the stream of an unfinished answer behind an id: it wants to be polled.
    pub(crate) fn polled(&mut self, now: Millis) {
        let brought = if self.backend.trail.news() == self.backend.news {
            Brought::Nothing
        } else {
            Brought::Something
        };
        let retry_ms = self.backend_retry_ms();
        let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
        let wait = match pursuit.ended(brought, retry_ms, now) {
            Step::AskIn(wait) => wait,
            Step::GiveUp => {
                info!(session = %self.session.label(), stream = %self.name, "backend was polled and brought nothing");
                return self.give_up_pursuit(now);
            }
        };
        let who = match self.session.pool.config.stream.polling {
            // A client that does not know `retry` does not come back for an answer either.
            Polling::Pass if self.agent.bears_retry() => Polling::Pass,
            Polling::Pass | Polling::Hold => Polling::Hold,
        };
        debug!(session = %self.session.label(), stream = %self.name, wait, ?who, "backend wants to be polled");
        self.prove_poll();
        self.source = match who {
            Polling::Pass => Source::Polled { retry_ms: wait },
            Polling::Hold => Source::waiting(Millis(now.0.saturating_add(wait))),
        };
    }

    /// A client has all that its backend sent before it asked to be polled: its connection ends likewise.
    pub(crate) fn send_to_poll(&mut self, now: Millis) {
        if let Source::Polled { retry_ms } = self.source {
            self.send_away(retry_ms, now);
        }
    }

    /// A client came back: if its backend waits to be polled, it is.
    pub(crate) fn client_came_to_poll(&mut self, now: Millis) {
        if let Source::Polled { .. } = self.source {
            if let Some(pursuit) = &mut self.backend.pursuit {
                pursuit.alive(now);
            }
            self.source = Source::Opening(self.again());
        }
    }

    /// The future of a GET that asks the backend again.
    pub(crate) fn again(&self) -> Opening<W> {
        let cursor = match (&self.backend.reattaching, &self.name) {
            (Some(reattaching), StreamName::Get | StreamName::Post(_)) => Some(reattaching.cursor()),
            (_, StreamName::HttpSse) | (None, StreamName::Get) => None,
            (None, StreamName::Post(_)) => self.backend.trail.cursor(),
        };
        let cursor = cursor.and_then(|id| HeaderValue::from_bytes(id).ok());
        standalone::again(&self.relay, &self.session, cursor)
    }

    /// A GET that asked for the rest of an answer was answered.
    pub(crate) fn asked_again(&mut self, opened: Opened<W>, now: Millis) {
        match opened {
            // Another life of the session has nothing of this stream.
            Opened::Streaming(_, generation) if generation != self.generation => {
                self.not_reattached(Reason::BackendLost, now);
            }
            Opened::Streaming(body, _) => {
                self.life.reattached();
                self.backend.news = self.backend.trail.news();
                if let Some(pursuit) = &mut self.backend.pursuit {
                    pursuit.alive(now);
                }
                self.source = Source::Reading(body);
            }
            // There is no stream to ask for.
            Opened::NotOffered => self.give_up_pursuit(now),
            // The session's end is on its way to this stream, or was before the stream began.
            Opened::SessionGone => self.not_reattached(Reason::BackendLost, now),
            Opened::Denied(_) | Opened::Refused(_) | Opened::Unreachable => self.ask_later(now),
        }
    }

    /// Bytes came from a backend that was asked again.
    pub(crate) fn heard(&mut self, now: Millis) {
        match (&self.backend.reattaching, &mut self.backend.pursuit) {
            (None, Some(pursuit)) => pursuit.alive(now),
            // Comments are no news, and no proof.
            (Some(_), _) => self.look_at_proof(now),
            (None, None) => {}
        }
    }

    /// The backend could not be asked: it is asked later, unless the time for that is over.
    pub(crate) fn ask_later(&mut self, now: Millis) {
        let (retry_ms, max) = (self.backend_retry_ms(), self.reattach_max());
        let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
        match pursuit.refused(retry_ms, now, max) {
            Step::AskIn(wait) => {
                self.source = Source::waiting(Millis(now.0.saturating_add(wait)));
            }
            Step::GiveUp => self.give_up_pursuit(now),
        }
    }

    /// Until when the pursuit must see a sign of life; `None` while nobody is asked.
    pub(crate) fn pursuit_ends(&self) -> Option<Millis> {
        if self.life.is_over() {
            return None;
        }
        let end = self
            .backend
            .pursuit
            .map(|pursuit| pursuit.deadline(self.reattach_max()));
        match (&self.source, &self.backend.reattaching) {
            (Source::Reading(_), Some(reattaching)) => Some(reattaching.until()),
            (Source::Reading(_) | Source::Opening(_), _) => end,
            (
                Source::Waiting { .. }
                | Source::Draining(..)
                | Source::Polled { .. }
                | Source::Answering(..)
                | Source::Over,
                _,
            ) => None,
        }
    }

    /// Gives the pursuit up if its time is over. Call: when the clock is looked at.
    pub(crate) fn look_at_pursuit(&mut self, now: Millis) {
        if self.pursuit_ends().is_some_and(|end| now >= end) {
            if self.backend.reattaching.is_some() {
                return self.reattach_is_late(now);
            }
            info!(session = %self.session.label(), stream = %self.name, "backend was asked again and gave no sign of life");
            self.give_up_pursuit(now);
        }
    }

    fn give_up_pursuit(&mut self, now: Millis) {
        self.not_reattached(Reason::UpstreamGap, now);
    }

    pub(crate) fn backend_retry_ms(&self) -> u64 {
        self.backend
            .trail
            .retry()
            .unwrap_or_else(|| self.relay.base_retry_ms(&self.session))
    }

    pub(crate) fn reattach_max(&self) -> Millis {
        Millis(self.session.pool.config.stream.reattach_max.as_millis() as u64)
    }
}

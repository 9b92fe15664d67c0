//! The one upstream GET of a session, which the proxy owns: opened again when it ends, until the backend lets it in.
//! Law: it is opened again without a cursor, in a new epoch; what the backend says again is dropped by name.
//! A backend that believes in a predecessor is waited for, within a bound; one that is away is not asked at all.
//! Absent on purpose: the first GET (`standalone.rs`), and what the client is told (`turn.rs`).
//! Next: `pure/stream/admission.rs`, which decides.

use tracing::{debug, info};

use crate::pure::epoch::{Reason, Seq};
use crate::pure::event_id::StreamName;
use crate::pure::log::Millis;
use crate::pure::overlap::Digest;
use crate::pure::session::LossCause;
use crate::pure::stream::admission::{Next, Refusal};
use crate::pure::stream::trail::Known;
use crate::relay::birth::REOPEN_CAP;
use crate::relay::doubt;
use crate::relay::gap::Gap;
use crate::relay::seldom::Legacy;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::turn::told_after;
use crate::relay::world::World;
use crate::routing::Condition;
use crate::store::StreamLog;

impl<W: World> StreamTask<W> {
    /// The upstream GET streams.
    pub(crate) fn get_let_in(&mut self, now: Millis) {
        self.backend.admission.let_in();
        self.backend.let_in_at = now;
    }

    /// The upstream GET ended, for this reason of a gap: it is opened again.
    pub(crate) fn get_lost(&mut self, reason: Reason, now: Millis) {
        // One that a backend ends at once, again and again, is no success.
        if u128::from(now.0.saturating_sub(self.backend.let_in_at.0)) >= REOPEN_CAP.as_millis() {
            self.backoff.succeed();
        }
        self.remember_had();
        self.gap = Gap::Certain(reason);
        // Never at once: a backend that has not heard yet of the end of the old stream may take the new one for a second,
        // and say nothing on it (rmcp 3 keeps such a one open beside the first).
        self.reopen_later(now);
    }

    /// The replica answers again, after it could not be reached: the upstream GET does not wait until its turn. Only ever
    /// brought forward, and once for each try: a replica that goes and comes faster than that is asked all the same.
    pub(crate) fn replica_is_back(&mut self, now: Millis) {
        debug!(session = %self.session.label(), "replica is back; the standalone stream is opened again soon");
        self.backoff.succeed();
        let soon = Millis(now.0 + self.backoff.next_wait(self.relay.chance()).as_millis() as u64);
        if let Source::Waiting { until, back } = &mut self.source {
            (*until, *back) = ((*until).min(soon), None);
        }
    }

    /// Whether only one replica can say how the stream goes on.
    pub(crate) fn is_pinned(&self) -> bool {
        self.session.is_pinned(&self.session.home())
    }

    /// The backend refused the upstream GET.
    pub(crate) fn get_refused(&mut self, how: Refusal, now: Millis) {
        let max = Millis(self.session.pool.config.stream.get_refused_max.as_millis() as u64);
        match self.backend.admission.refused(how, now, max) {
            Next::TryAgain => self.reopen_later(now),
            Next::Lost => {
                info!(session = %self.session.label(), "backend refused the standalone stream for too long");
                self.source = Source::Over;
                let of = self.session.home().generation;
                self.relay.lost(&self.session, of, LossCause::Refused);
            }
        }
    }

    /// It is time to ask the backend again: it is asked, unless nobody is there to be asked.
    pub(crate) fn ask_if_healthy(&mut self, now: Millis) {
        let home = self.session.home();
        if home.replica.condition() == Condition::Unhealthy {
            doubt::look_into(&self.relay, &self.session, &home);
        }
        match (home.replica.condition(), &self.name) {
            (Condition::Unhealthy, StreamName::Get) if self.is_pinned() => self.reopen_later(now),
            (Condition::Unhealthy, StreamName::Post(_)) if self.is_pinned() => self.ask_later(now),
            // It is never opened again.
            (Condition::Healthy | Condition::Unhealthy, StreamName::HttpSse) => {}
            (Condition::Healthy | Condition::Unhealthy, StreamName::Get | StreamName::Post(_)) => {
                self.source = Source::Opening(self.again());
            }
        }
    }

    /// Remembers the newest events that have an id of the backend's, each by its data.
    fn remember_had(&mut self) {
        let newest = self.said_last();
        if !newest.is_empty() || self.backend.had.is_some() {
            self.backend.had.get_or_insert_default().ended(newest.into_iter());
        }
    }

    /// The epoch ends while the upstream GET goes on, and with it what the log says: what the backend said so far may come
    /// again on its next connection all the same.
    pub(crate) fn remember_so_far(&mut self) {
        if self.name != StreamName::Get {
            return;
        }
        let newest = self.said_last();
        if !newest.is_empty() {
            self.backend.had.get_or_insert_default().also(newest.into_iter());
        }
    }

    /// The stream is let go: what its backend said is remembered for the next one of its name.
    pub(crate) fn hand_on(&mut self) {
        if self.name != StreamName::Get {
            return;
        }
        self.remember_said();
        self.remember_so_far();
        if let Some(had) = &mut self.backend.had {
            had.ended(std::iter::empty());
        }
        let legacy = Legacy {
            witness: self.backend.witness.take(),
            had: self.backend.had.take(),
        };
        self.session.leave_legacy(self.generation, legacy);
    }

    /// The newest events that have an id of the backend's, oldest first: the id, and what it said.
    pub(crate) fn said_last(&self) -> Vec<(Box<[u8]>, Digest)> {
        let events = self.backend.trail.events();
        // The log is read for those only that don't say it themselves.
        let unsaid = events.iter().find(|known| known.said.is_none());
        let held = unsaid.map(|first| self.said_since(first.at));
        let each = |known: Known| {
            let said = known.said.or_else(|| held.as_ref()?(&known));
            Some((known.id, said?))
        };
        events.into_iter().filter_map(each).collect()
    }

    /// What the log's events from here on say, or said before something else was put in their place.
    pub(crate) fn said_since(&self, first: Seq) -> impl Fn(&Known) -> Option<Digest> + use<W> {
        let span = self.log.span();
        let from = first.max(span.first);
        let told = told_after(&self.log, Seq::new(from.get() - 1), span.last);
        let digests: Vec<Digest> = told.iter().map(|told| Digest::of(&told.data)).collect();
        move |known| {
            let held = || {
                let nth = known.at.get().checked_sub(from.get())?;
                digests.get(usize::try_from(nth).ok()?).copied()
            };
            known.said.or_else(held)
        }
    }
}

//! A backend's stream that broke and is asked again: it goes on unnoticed if it proves that nothing is missing.
//! Law: what proves nothing is an error or a reset, never a continuation (wire contract, section 8). Bounded in time
//! and tries. A replica that refused a connection meanwhile may have been another one: nothing it says proves anything.
//! Absent on purpose: what is compared (`pure/overlap.rs`) and when it is given up (`pure/stream/pursuit.rs`).
//! Next: `pursue.rs`, for backends that end a stream to be polled: those are believed without a proof.

use tracing::{debug, info};

use crate::config::resolved::{EventStore, Reattach};
use crate::pure::epoch::{Reason, Seq};
use crate::pure::event_id::StreamName;
use crate::pure::limits::{REATTACH_WAIT_MS, REATTACHED_PROOF_MS_MAX};
use crate::pure::log::Millis;
use crate::pure::overlap::{Held, Overlap, Proof};
use crate::pure::stream::pursuit::{Brought, Step};
use crate::pure::stream::trail::Ask;
use crate::pure::stream::{Pursuit, SourceEnd};
use crate::relay::source::{Opened, Source};
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;
use crate::store::StreamLog;

/// A stream that is to go on from another connection to its backend.
pub(crate) struct Reattaching {
    /// Refused connections and failed probes of the replica when the stream broke.
    troubles: u64,
    /// From where it was asked, and what is held from there on.
    ask: Ask,
    /// What must come again, while it has not.
    proof: Option<Overlap>,
    /// Until when: the proof must be whole, or something new must have come.
    until: Millis,
}

impl Reattaching {
    /// The id that the backend is asked from.
    pub(crate) fn cursor(&self) -> &[u8] {
        &self.ask.cursor
    }

    /// What must come again before anything else is believed.
    pub(crate) fn proof(&mut self) -> Option<&mut Overlap> {
        self.proof.as_mut()
    }

    /// Until when the connection that is read may stay as it is.
    pub(crate) const fn until(&self) -> Millis {
        self.until
    }
}

impl<W: World> StreamTask<W> {
    /// The backend's stream ended in a way that is a loss for this reason, unless it can be had again with proof.
    pub(crate) fn broke(&mut self, how: SourceEnd, reason: Reason, now: Millis) {
        match self.backend.reattaching.take() {
            Some(reattaching) => self.broke_again(how, reattaching, now),
            None if self.may_reattach() => self.begin_reattaching(reason, now),
            None => self.not_reattached(reason, now),
        }
    }

    /// Whether proof is wanted, and can be had on this kind of stream.
    fn may_reattach(&self) -> bool {
        let upstream = &self.session.pool.config;
        match (upstream.stream.reattach, &self.name, upstream.event_store) {
            (Reattach::Never, _, _) => false,
            (Reattach::Proved, StreamName::Get, EventStore::Undeclared) => false,
            (Reattach::Proved, StreamName::Get, EventStore::PerSession)
            | (Reattach::Proved, StreamName::Post(_), EventStore::Undeclared | EventStore::PerSession) => {
                self.is_pinned()
            }
        }
    }

    fn begin_reattaching(&mut self, reason: Reason, now: Millis) {
        let Some(ask) = self.overlap_to_ask() else {
            debug!(session = %self.session.label(), stream = %self.name, "nothing that is held could prove that a broken stream goes on");
            return self.not_reattached(reason, now);
        };
        info!(session = %self.session.label(), stream = %self.name, "backend stream broke; it is asked again");
        self.backend.reattaching = Some(Box::new(Reattaching {
            troubles: self.session.replica().troubles(),
            ask,
            proof: None,
            until: Millis(u64::MAX),
        }));
        self.backend.pursuit = Some(Pursuit::new(now));
        self.source = Source::Waiting {
            until: Millis(now.0 + self.backend_retry_ms().min(REATTACH_WAIT_MS)),
        };
    }

    /// A connection that was asked for ended before anything new came.
    fn broke_again(&mut self, how: SourceEnd, mut reattaching: Box<Reattaching>, now: Millis) {
        let begun = reattaching.proof.take().is_some_and(|proof| proof.has_begun());
        let (retry_ms, max) = (self.backend_retry_ms(), self.reattach_max());
        let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
        let step = match how {
            // It says that this is all: and it is not what is held.
            SourceEnd::Clean | SourceEnd::CleanAfterId if begun => Step::GiveUp,
            SourceEnd::Clean | SourceEnd::CleanAfterId => pursuit.ended(Brought::Nothing, retry_ms, now),
            SourceEnd::Broken => pursuit.refused(retry_ms, now, max),
        };
        self.backend.reattaching = Some(reattaching);
        self.take_step(step, now);
    }

    fn take_step(&mut self, step: Step, now: Millis) {
        match step {
            Step::AskIn(wait) => {
                self.source = Source::Waiting {
                    until: Millis(now.0.saturating_add(wait)),
                };
            }
            Step::GiveUp => self.not_reattached(Reason::UpstreamGap, now),
        }
    }

    /// It can't be had again: what was asked has no answer, and a standalone stream begins a new epoch.
    pub(crate) fn not_reattached(&mut self, reason: Reason, now: Millis) {
        (self.backend.reattaching, self.backend.pursuit, self.source) = (None, None, Source::Over);
        match self.name {
            StreamName::Post(_) => self.fail_open(reason, now),
            StreamName::Get => self.get_lost(reason, now),
        }
    }

    /// The backend answered a GET with a cursor of its own, after a break.
    pub(crate) fn reattach_opened(&mut self, opened: Opened<W>, now: Millis) {
        if self.was_in_trouble() {
            return self.not_reattached(Reason::BackendLost, now);
        }
        match opened {
            // Another life of the session has nothing of this stream.
            Opened::Streaming(_, generation) if generation != self.generation => {
                self.not_reattached(Reason::BackendLost, now);
            }
            Opened::Streaming(body, _) => {
                let Some(overlap) = self.overlap() else {
                    return self.not_reattached(Reason::UpstreamGap, now);
                };
                self.life.reattached();
                self.backend.news = self.backend.trail.news();
                if let Some(reattaching) = &mut self.backend.reattaching {
                    reattaching.proof = Some(overlap);
                    reattaching.until = Millis(now.0 + REATTACHED_PROOF_MS_MAX);
                }
                self.source = Source::Reading(body);
                self.look_at_proof(now);
            }
            Opened::NotOffered => self.not_reattached(Reason::UpstreamGap, now),
            // The session's end is on its way to this stream.
            Opened::SessionGone => self.source = Source::Over,
            Opened::Denied(_) | Opened::Refused(_) | Opened::Unreachable => {
                let (retry_ms, max) = (self.backend_retry_ms(), self.reattach_max());
                let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
                let step = pursuit.refused(retry_ms, now, max);
                self.take_step(step, now);
            }
        }
    }

    fn was_in_trouble(&self) -> bool {
        let now = self.session.replica().troubles();
        self.backend
            .reattaching
            .as_ref()
            .is_some_and(|reattaching| reattaching.troubles != now)
    }

    /// From where the backend must be asked so that what is held must come again.
    fn overlap_to_ask(&self) -> Option<Ask> {
        let newest = Seq::new(self.counts.last_pushed().get() + self.spill.len() as u64);
        self.backend.trail.ask(self.log.span().first, newest)
    }

    /// What must come again, by what the log says now. `None`: a part of it is gone.
    fn overlap(&self) -> Option<Overlap> {
        let ask = &self.backend.reattaching.as_ref()?.ask;
        let Some(first) = ask.held.first() else {
            return Some(Overlap::new(ask.stand, Vec::new()));
        };
        let said = self.said_since(first.at);
        let held: Option<Vec<Held>> = ask
            .held
            .iter()
            .map(|known| {
                Some(Held {
                    id: known.id.clone(),
                    said: said(known)?,
                })
            })
            .collect();
        Some(Overlap::new(ask.stand, held?))
    }

    /// Looks how the proof stands, and whether something new came behind it. Call: whenever something was read.
    pub(crate) fn look_at_proof(&mut self, now: Millis) {
        let Some(reattaching) = &mut self.backend.reattaching else {
            return;
        };
        match reattaching.proof.as_ref().map(Overlap::proof) {
            None | Some(Proof::Pending) => {}
            Some(proof @ (Proof::Incomplete | Proof::Other)) => {
                let reason = proof.reason().unwrap_or(Reason::UpstreamGap);
                info!(session = %self.session.label(), stream = %self.name, %reason, "backend stream did not prove that it goes on");
                return self.not_reattached(reason, now);
            }
            Some(Proof::Whole) => {
                info!(session = %self.session.label(), stream = %self.name, "backend stream goes on where it broke");
                reattaching.proof = None;
                reattaching.until = Millis(u64::MAX);
                match self.name {
                    // It may be silent for as long as it likes.
                    StreamName::Get => return self.went_on(now),
                    StreamName::Post(_) => self.expect_news(now),
                }
            }
        }
        if self.backend.trail.news() != self.backend.news {
            self.went_on(now);
        }
    }

    fn went_on(&mut self, now: Millis) {
        (self.backend.reattaching, self.backend.pursuit) = (None, None);
        if self.name == StreamName::Get {
            self.get_let_in(now);
        }
    }

    /// A proved stream that stays silent is asked again: some servers leave one open and never say anything on it.
    fn expect_news(&mut self, now: Millis) {
        let (retry_ms, max) = (self.backend_retry_ms(), self.reattach_max());
        let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
        let until = match pursuit.refused(retry_ms, now, max) {
            Step::AskIn(wait) => Millis(now.0.saturating_add(wait)),
            Step::GiveUp => now,
        };
        if let Some(reattaching) = &mut self.backend.reattaching {
            reattaching.until = until;
        }
    }

    /// The connection that is read was given its time: the proof is not whole, or nothing new came.
    pub(crate) fn reattach_is_late(&mut self, now: Millis) {
        let proving = self
            .backend
            .reattaching
            .as_mut()
            .is_some_and(|reattaching| reattaching.proof().is_some());
        let end = self
            .backend
            .pursuit
            .map_or(now, |pursuit| pursuit.deadline(self.reattach_max()));
        if proving || now >= end {
            return self.not_reattached(Reason::UpstreamGap, now);
        }
        if let Some(reattaching) = &mut self.backend.reattaching {
            reattaching.until = Millis(u64::MAX);
        }
        self.ask_if_healthy(now);
    }
}

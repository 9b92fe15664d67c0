//! A backend's stream that broke and is asked again: it goes on unnoticed if it proves that nothing is missing.
//! Law: what proves nothing is an error or a reset, never a continuation (wire contract, section 8). Bounded in time
//! and tries. A replica that refused a connection meanwhile may have been another one: nothing it says proves anything.
//! Absent on purpose: what is compared (`pure/overlap.rs`, `pure/twice.rs`), and when it is given up
//! (`pure/stream/pursuit.rs`).
//! Next: `confirm.rs`, which reads what then comes; `pursue.rs`, for backends that end a stream to be polled.

use tracing::{debug, info};

use crate::config::resolved::{EventStore, Reattach};
use crate::pure::epoch::Reason;
use crate::pure::event_id::StreamName;
use crate::pure::limits::{REATTACH_WAIT_MS, REATTACHED_PROOF_MS_MAX};
use crate::pure::log::Millis;
use crate::pure::overlap::{Held, Left, Order, Overlap, Proof};
use crate::pure::stream::pursuit::{Brought, Step};
use crate::pure::stream::trail::Ask;
use crate::pure::stream::{Pursuit, SourceEnd};
use crate::relay::confirm::{Patience, Reattaching, Stage, Told};
use crate::relay::source::{Opened, Source};
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;
use crate::store::StreamLog;

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
            (Reattach::Never, _, _) | (Reattach::Proved, StreamName::HttpSse, _) => false,
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
        match Order::of(&ask.cursor) {
            Order::Kept => {}
            Order::Random => {
                info!(session = %self.session.label(), stream = %self.name, "backend's event store does not keep the order of its events: nothing it gives back could prove that a broken stream goes on");
                return self.not_reattached(reason, now);
            }
        }
        info!(session = %self.session.label(), stream = %self.name, "backend stream broke; it is asked again");
        self.prove_from(ask, Told::Nothing);
        self.backend.pursuit = Some(Pursuit::new(now));
        self.source = Source::waiting(Millis(now.0 + self.backend_retry_ms().min(REATTACH_WAIT_MS)));
    }

    /// The backend ended an unfinished answer to be polled. Where a proof is wanted and can be had, what it then says is
    /// proved like any other; else it is believed.
    pub(crate) fn prove_poll(&mut self) {
        if self.may_reattach()
            && let Some(ask) = self.overlap_to_ask()
            && Order::of(&ask.cursor) == Order::Kept
        {
            // It said itself that more follows.
            self.prove_from(ask, Told::News);
        }
    }

    fn prove_from(&mut self, ask: Ask, told: Told) {
        self.backend.reattaching = Some(Box::new(Reattaching {
            troubles: self.session.replica().troubles(),
            ask,
            left: Left::default(),
            proof: None,
            stage: Stage::Proving,
            brought: Brought::Nothing,
            told,
            confirmed_at: None,
            until: Millis(u64::MAX),
        }));
    }

    /// A connection that was asked for ended.
    fn broke_again(&mut self, how: SourceEnd, mut reattaching: Box<Reattaching>, now: Millis) {
        let Some(ask) = self.overlap_to_ask() else {
            return self.not_reattached(Reason::UpstreamGap, now);
        };
        reattaching.ask = ask;
        let (retry_ms, max) = (self.backend_retry_ms(), self.reattach_max());
        let confirm_from = reattaching.confirm_from();
        let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
        let Some(proof) = reattaching.proof.take() else {
            self.backend.reattaching = Some(reattaching);
            let step = pursuit.refused(retry_ms, now, max);
            return self.take_step(step, now);
        };
        if proof.proof() == Proof::Whole {
            // Until now it was the one that was asked.
            reattaching.troubles = self.session.replica().troubles();
            match reattaching.patience(&self.name) {
                Patience::Unlimited => pursuit.alive(now),
                Patience::Limited => {}
            }
        }
        let step = match (how, proof.proof(), proof.has_shown()) {
            // It says that this is all: and it is not what is held, or what it showed.
            (SourceEnd::Clean | SourceEnd::CleanAfterId, Proof::Pending, _) if proof.has_begun() => {
                Step::GiveUp
            }
            _ if now >= pursuit.deadline(max) => Step::GiveUp,
            (_, _, true) => {
                reattaching.confirmed_at = Some(confirm_from.max(now));
                Step::AskIn(confirm_from.0.saturating_sub(now.0))
            }
            (SourceEnd::Clean | SourceEnd::CleanAfterId, _, false) => {
                pursuit.ended(reattaching.brought, retry_ms, now)
            }
            (SourceEnd::Broken, _, false) => pursuit.refused(retry_ms, now, max),
        };
        reattaching.left = proof.left();
        self.backend.reattaching = Some(reattaching);
        self.take_step(step, now);
    }

    fn take_step(&mut self, step: Step, now: Millis) {
        match step {
            Step::AskIn(wait) => {
                self.source = Source::waiting(Millis(now.0.saturating_add(wait)));
            }
            Step::GiveUp => self.not_reattached(Reason::UpstreamGap, now),
        }
    }

    /// It can't be had again: what was asked has no answer, and a standalone stream begins a new epoch.
    pub(crate) fn not_reattached(&mut self, reason: Reason, now: Millis) {
        (self.backend.reattaching, self.backend.pursuit, self.source) = (None, None, Source::Over);
        match self.name {
            StreamName::Post(_) => self.fail_open(reason, now),
            StreamName::HttpSse => self.session_over(),
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
                    reattaching.stage = Stage::Proving;
                    reattaching.brought = Brought::Nothing;
                    reattaching.until = Millis(now.0 + REATTACHED_PROOF_MS_MAX);
                }
                self.source = Source::Reading(body);
                self.look_at_proof(now);
            }
            Opened::NotOffered => self.not_reattached(Reason::UpstreamGap, now),
            Opened::SessionGone => match self.name {
                // The session's end is on its way to this stream, or was before the stream began.
                StreamName::Post(_) => self.not_reattached(Reason::BackendLost, now),
                StreamName::Get | StreamName::HttpSse => self.source = Source::Over,
            },
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
    pub(crate) fn overlap_to_ask(&self) -> Option<Ask> {
        let newest = self.spill.newest(&self.counts);
        self.backend.trail.ask(self.log.span().first, newest)
    }

    /// What must come again, by what the log says now. `None`: a part of it is gone.
    fn overlap(&mut self) -> Option<Overlap> {
        let ask = &self.backend.reattaching.as_ref()?.ask;
        let mut held: Vec<Held> = Vec::with_capacity(ask.held.len());
        if let Some(first) = ask.held.first() {
            let said = self.said_since(first.at);
            for known in &ask.held {
                held.push(Held {
                    id: known.id.clone(),
                    said: said(known)?,
                });
            }
        }
        let stand = ask.stand;
        let left = std::mem::take(&mut self.backend.reattaching.as_mut()?.left);
        Some(Overlap::new(stand, held, left))
    }
}

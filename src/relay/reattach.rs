//! A backend's stream that broke and is asked again: it goes on unnoticed if it proves that nothing is missing.
//! Law: what proves nothing is an error or a reset, never a continuation (wire contract, section 8). Bounded in time
//! and tries. A replica that refused a connection meanwhile may have been another one: nothing it says proves anything.
//! From its first break on a stream is asked for each news: what a connection shows, the next one must confirm.
//! Absent on purpose: what is compared (`pure/overlap.rs`, `pure/twice.rs`) and when it is given up (`pursuit.rs`).
//! Next: `pursue.rs`, for backends that end a stream to be polled: those are believed without a proof.

use tracing::{debug, info};

use crate::config::resolved::{EventStore, Reattach};
use crate::pure::epoch::{Reason, Seq};
use crate::pure::event_id::StreamName;
use crate::pure::limits::{CONFIRM_MS_MIN, REATTACH_WAIT_MS, REATTACHED_PROOF_MS_MAX};
use crate::pure::log::Millis;
use crate::pure::overlap::{Cursors, Held, Left, Order, Overlap, Proof};
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
    /// What earlier askings left to the next one.
    left: Left,
    /// What is taken from the connection that is read.
    proof: Option<Overlap>,
    stage: Stage,
    /// Whether the connection that is read brought anything.
    brought: Brought,
    told: Told,
    /// When it was last asked for a confirmation.
    confirmed_at: Option<Millis>,
    /// Until when: the proof must be whole, or the backend is asked again.
    until: Millis,
}

/// What a connection that was asked for is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// What must come again has not come.
    Proving,
    /// It has, and nothing else.
    Silent,
    /// There is something that the next asking must confirm.
    Showing,
}

/// How much is known of a stream since it broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// Nothing.
    Nothing,
    /// It goes on.
    GoesOn,
    /// It says something new: it may then be silent for as long as on its first connection.
    News,
}

/// How long a stream that was proved may say nothing new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    /// `reattach_max`: nobody knows whether the answer still comes.
    Limited,
    /// As long as on its first connection.
    Unlimited,
}

impl Reattaching {
    const fn patience(&self, stream: &StreamName) -> Patience {
        match (stream, self.told) {
            (StreamName::Get, _) | (StreamName::Post(_), Told::News) => Patience::Unlimited,
            (StreamName::Post(_), Told::Nothing | Told::GoesOn) => Patience::Limited,
        }
    }

    /// The id that the backend is asked from.
    pub(crate) fn cursor(&self) -> &[u8] {
        &self.ask.cursor
    }

    /// What must come again before anything else is believed.
    pub(crate) fn proof(&mut self) -> Option<&mut Overlap> {
        self.proof.as_mut()
    }

    /// From when on the next confirmation may be asked for.
    fn confirm_from(&self) -> Millis {
        self.confirmed_at
            .map_or(Millis(0), |at| Millis(at.0.saturating_add(CONFIRM_MS_MIN)))
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
        self.source = Source::Waiting {
            until: Millis(now.0 + self.backend_retry_ms().min(REATTACH_WAIT_MS)),
        };
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
                    reattaching.stage = Stage::Proving;
                    reattaching.brought = Brought::Nothing;
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

    /// Looks how the proof stands, and whether something new came behind it. Call: whenever something was read.
    pub(crate) fn look_at_proof(&mut self, now: Millis) {
        if self.life.is_over() {
            (self.backend.reattaching, self.backend.pursuit) = (None, None);
            return;
        }
        let Some(reattaching) = &mut self.backend.reattaching else {
            return;
        };
        if self.backend.trail.news() != self.backend.news {
            self.backend.news = self.backend.trail.news();
            self.backend.pursuit = Some(Pursuit::new(now));
            reattaching.brought = Brought::Something;
            reattaching.told = Told::News;
        }
        if reattaching.proof.as_ref().map(Overlap::cursors) == Some(Cursors::Some) {
            reattaching.brought = Brought::Something;
        }
        match reattaching.proof.as_ref().map(Overlap::proof) {
            None | Some(Proof::Pending) => {}
            Some(proof @ (Proof::Incomplete | Proof::Other)) => {
                let reason = proof.reason().unwrap_or(Reason::UpstreamGap);
                info!(session = %self.session.label(), stream = %self.name, %reason, "backend stream did not prove that it goes on");
                self.not_reattached(reason, now);
            }
            Some(Proof::Whole) => self.proved(now),
        }
    }

    /// Everything that must come again has come.
    fn proved(&mut self, now: Millis) {
        let Some(reattaching) = &mut self.backend.reattaching else {
            return;
        };
        let has_shown = reattaching.proof.as_ref().is_some_and(Overlap::has_shown);
        match (reattaching.stage, has_shown) {
            (Stage::Proving, _) => {}
            (Stage::Silent, true) => return self.shows(now),
            (Stage::Silent, false) | (Stage::Showing, _) => return,
        }
        if reattaching.told == Told::Nothing {
            reattaching.told = Told::GoesOn;
            info!(session = %self.session.label(), stream = %self.name, "backend stream goes on where it broke");
        }
        if self.name == StreamName::Get {
            self.get_let_in(now);
        }
        if has_shown {
            self.shows(now);
        } else {
            self.falls_silent(now);
        }
    }

    /// There is something that another asking must confirm: what is sent as it comes may have left out what was stored
    /// a moment before. A busy stream is not asked for each event.
    fn shows(&mut self, now: Millis) {
        let Some(reattaching) = &mut self.backend.reattaching else {
            return;
        };
        reattaching.stage = Stage::Showing;
        reattaching.until = reattaching.confirm_from();
        if now >= reattaching.until {
            self.ask_anew(now);
        }
    }

    /// A proved stream that stays silent is asked again: some servers leave one open and never say anything on it, and
    /// some have stored what they will never send there.
    fn falls_silent(&mut self, now: Millis) {
        let (retry_ms, max) = (self.backend_retry_ms(), self.reattach_max());
        let Some(reattaching) = &mut self.backend.reattaching else {
            return;
        };
        reattaching.stage = Stage::Silent;
        let pursuit = self.backend.pursuit.get_or_insert(Pursuit::new(now));
        let step = match reattaching.patience(&self.name) {
            Patience::Unlimited => pursuit.refused(retry_ms, now, Millis(u64::MAX)),
            Patience::Limited => pursuit.refused(retry_ms, now, max),
        };
        reattaching.until = match step {
            Step::AskIn(wait) => Millis(now.0.saturating_add(wait)),
            Step::GiveUp => now,
        };
    }

    /// The connection that is read has shown what it can: it is closed, and the backend is asked again.
    fn ask_anew(&mut self, now: Millis) {
        let ask = self.overlap_to_ask();
        let troubles = self.session.replica().troubles();
        let (Some(reattaching), Some(pursuit)) = (&mut self.backend.reattaching, &mut self.backend.pursuit)
        else {
            return;
        };
        if !self.spill.is_empty() {
            // What must come again is not in the log yet.
            reattaching.until = Millis(now.0.saturating_add(CONFIRM_MS_MIN));
            pursuit.alive(now);
            return;
        }
        let (Some(ask), Some(proof)) = (ask, reattaching.proof.take()) else {
            return self.not_reattached(Reason::UpstreamGap, now);
        };
        pursuit.stood();
        reattaching.ask = ask;
        reattaching.troubles = troubles;
        reattaching.left = proof.left();
        let stage = std::mem::replace(&mut reattaching.stage, Stage::Proving);
        reattaching.until = Millis(u64::MAX);
        if stage == Stage::Showing {
            reattaching.confirmed_at = Some(now);
        }
        self.answer_pings();
        match stage {
            Stage::Showing => self.ask_if_healthy(now),
            // The backend has a moment to notice that the last connection is gone.
            Stage::Proving | Stage::Silent => {
                self.source = Source::Waiting {
                    until: Millis(now.0.saturating_add(REATTACH_WAIT_MS)),
                };
            }
        }
    }

    /// The connection that is read was given its time: the proof is not whole, or it is time to ask again.
    pub(crate) fn reattach_is_late(&mut self, now: Millis) {
        let max = self.reattach_max();
        let (Some(reattaching), Some(pursuit)) = (&mut self.backend.reattaching, &mut self.backend.pursuit)
        else {
            return;
        };
        match (reattaching.stage, reattaching.patience(&self.name)) {
            (Stage::Proving, _) => return self.not_reattached(Reason::UpstreamGap, now),
            (Stage::Silent, Patience::Unlimited) => pursuit.alive(now),
            (Stage::Silent, Patience::Limited) | (Stage::Showing, _) => {}
        }
        if now >= pursuit.deadline(max) {
            return self.not_reattached(Reason::UpstreamGap, now);
        }
        self.ask_anew(now);
    }
}

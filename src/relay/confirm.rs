//! What a backend says when it was asked again after a break: the proof, then what only another asking confirms.
//! Law: from its first break on, nothing is told that one connection alone has shown (`pure/twice.rs`). News makes the
//! proxy ask again, a busy stream in batches; silence does too, since what is stored may never be sent.
//! Bounded by the proof's own time, and by `reattach_max` where nothing says that an answer still comes.
//! Why no live tail is ever trusted again: no byte tells where a replay ends and where what is new begins.
//! Next: `pure/twice.rs`, `pure/stream/pursuit.rs`.

use tracing::info;

use crate::pure::epoch::Reason;
use crate::pure::event_id::StreamName;
use crate::pure::limits::{CONFIRM_MS_MIN, REATTACH_WAIT_MS};
use crate::pure::log::Millis;
use crate::pure::overlap::{Cursors, Left, Overlap, Proof};
use crate::pure::stream::Pursuit;
use crate::pure::stream::pursuit::{Brought, Step};
use crate::pure::stream::trail::Ask;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;

/// A stream that is to go on from another connection to its backend.
pub(crate) struct Reattaching {
    /// Refused connections and failed probes of the replica when the stream broke.
    pub(crate) troubles: u64,
    /// From where it was asked, and what is held from there on.
    pub(crate) ask: Ask,
    /// What earlier askings left to the next one.
    pub(crate) left: Left,
    /// What is taken from the connection that is read.
    pub(crate) proof: Option<Overlap>,
    pub(crate) stage: Stage,
    /// Whether the connection that is read brought anything.
    pub(crate) brought: Brought,
    pub(crate) told: Told,
    /// When it was last asked for a confirmation.
    pub(crate) confirmed_at: Option<Millis>,
    /// Until when: the proof must be whole, or the backend is asked again.
    pub(crate) until: Millis,
}

/// What a connection that was asked for is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// What must come again has not come.
    Proving,
    /// It has, and nothing else.
    Silent,
    /// There is something that the next asking must confirm.
    Showing,
}

/// How much is known of a stream since it broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// Nothing.
    Nothing,
    /// It goes on.
    GoesOn,
    /// It says something new: it may then be silent for as long as on its first connection.
    News,
}

/// How long a stream that was proved may say nothing new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// `reattach_max`: nobody knows whether the answer still comes.
    Limited,
    /// As long as on its first connection.
    Unlimited,
}

impl Reattaching {
    /// How long it may say nothing new.
    pub(crate) const fn patience(&self, stream: &StreamName) -> Patience {
        match (stream, self.told) {
            (StreamName::Get | StreamName::HttpSse, _) | (StreamName::Post(_), Told::News) => {
                Patience::Unlimited
            }
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
    pub(crate) fn confirm_from(&self) -> Millis {
        self.confirmed_at
            .map_or(Millis(0), |at| Millis(at.0.saturating_add(CONFIRM_MS_MIN)))
    }

    /// Until when the connection that is read may stay as it is.
    pub(crate) const fn until(&self) -> Millis {
        self.until
    }
}

impl<W: World> StreamTask<W> {
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
                self.source = Source::waiting(Millis(now.0.saturating_add(REATTACH_WAIT_MS)));
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

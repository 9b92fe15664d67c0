//! A session that its backend has lost: whether it goes on under the same id, how often, and who must be told first.
//! Law: nothing is silent: a model that may lean on what is gone is told before it acts; a session that can't go on
//! ends, and stays so. What is tried again is bounded in number and time (wire contract, section 6).
//! Absent on purpose: wires, tasks and waiting (`relay/recover.rs`); the session's end is the record's (`life.rs`).
//! Next: `opening.rs`, which says what may not change.

use std::collections::VecDeque;

use crate::pure::limits::{RECOVERY_MS_MAX, REINITIALIZATIONS_MAX, REINITIALIZATIONS_WINDOW_MS};
use crate::pure::log::Millis;

/// First wait between two tries, in milliseconds; it doubles with each.
const BACKOFF_MS: u64 = 1_000;

/// Longest wait while no replica can be reached, in milliseconds: one that is back is found within it.
const BACKOFF_MS_MAX: u64 = 10_000;

/// What becomes of a session that its backend has lost (`on_session_loss`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnSessionLoss {
    /// It goes on under the same id, and the model is told before another of its calls runs.
    Announce,
    /// It goes on under the same id.
    Reinitialize,
    /// It ends.
    Terminate,
}

/// How a session was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LossCause {
    /// The backend does not know it.
    Gone,
    /// Its replica refused connections for `replica_retry_max`.
    Unreachable,
    /// Its replica is not configured any more.
    NotConfigured,
    /// Its replica was drained, and the time for that is over.
    Drained,
    /// Its replica answers, but is another one than before: it started anew without a word.
    Restarted,
    /// Its backend refused the standalone stream for `get_refused_max`.
    Refused,
    /// The one stream that carried it over HTTP+SSE ended at its backend.
    StreamEnded,
}

impl LossCause {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Gone,
        Self::Unreachable,
        Self::NotConfigured,
        Self::Drained,
        Self::Restarted,
        Self::Refused,
        Self::StreamEnded,
    ];

    /// The word for it in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Unreachable => "unreachable",
            Self::NotConfigured => "not_configured",
            Self::Drained => "drained",
            Self::Restarted => "restarted",
            Self::Refused => "refused",
            Self::StreamEnded => "stream_ended",
        }
    }

    /// Whether the old backend may still hold something under the session's old id.
    pub const fn leaves(self) -> Leaves {
        match self {
            Self::Gone | Self::StreamEnded => Leaves::Nothing,
            Self::Unreachable | Self::NotConfigured | Self::Drained | Self::Restarted | Self::Refused => {
                Leaves::Something
            }
        }
    }
}

/// What a lost session leaves at its old backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaves {
    /// Nothing: it said so.
    Nothing,
    /// Perhaps something: it gets a DELETE, if it can be reached.
    Something,
}

/// What is known of a session when it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// What is configured.
    pub rule: OnSessionLoss,
    /// Whether its client's `initialize` is remembered.
    pub opening: Known,
    /// Whether its client ever called a tool.
    pub called: Called,
}

/// Whether a client's `initialize` is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It is.
    Yes,
    /// The session is known from its token only, or its beginning was too long to be kept.
    No,
}

/// Whether a client ever called a tool in this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Called {
    /// Never: no model leans on anything in it.
    Never,
    /// It did.
    Once,
}

/// What a loss comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// It is known, and seen to.
    Known,
    /// The session is to be begun anew.
    Recover,
    /// The session ends.
    End(Hopeless),
}

/// Why a lost session can't go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hopeless {
    /// So it is configured.
    Configured,
    /// Its client's `initialize` is not remembered.
    NotRemembered,
    /// It was begun anew too often of late.
    TooOften,
    /// No replica could be reached for too long.
    TooLong,
    /// The backend negotiates another revision now.
    OtherRevision,
    /// The backend does not declare any more what it declared.
    CapabilityMissing,
    /// It is a session over HTTP+SSE, which lives and dies with its stream.
    Transport,
}

impl Hopeless {
    /// The word for it in logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::NotRemembered => "not_remembered",
            Self::TooOften => "too_often",
            Self::TooLong => "too_long",
            Self::OtherRevision => "other_revision",
            Self::CapabilityMissing => "capability_missing",
            Self::Transport => "transport",
        }
    }
}

/// When a session may be begun anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// Now.
    Now,
    /// Not before this time.
    At(Millis),
    /// Never.
    Never(Hopeless),
}

/// What a request is, as far as a loss matters to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks {
    /// It calls a tool, alone or within a batch.
    Tool,
    /// It asks for something else.
    Other,
    /// Notifications and answers only.
    Notices,
}

/// What is done with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weighed {
    /// It is sent.
    Send,
    /// It waits until the session stands again.
    Wait,
    /// It is not sent: the model must be told first.
    Refuse,
}

/// Where a session stands with its backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    Settled,
    Checking,
    Recovering { since: Millis },
}

/// Whether the model is still owed the word that the session was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owed {
    Nothing,
    Word,
}

/// What a doubt comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Doubt {
    /// Whoever has it asks the replica.
    LookInto,
    /// Somebody does, or the session is lost already.
    SeenTo,
}

/// When a request came, as far as the word that is owed matters to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    owed: Owed,
    words: u32,
}

/// A session's losses. Call: [`Losses::lost`] when settled or in doubt; then [`Losses::attempt`] until it is `Now` or
/// `Never`, [`Losses::reached`] or [`Losses::unreached`] after each try, [`Losses::regained`] at the end.
#[derive(Clone, Debug)]
pub struct Losses {
    stand: Stand,
    owed: Owed,
    /// How often a word came to be owed.
    words: u32,
    /// Tries that reached a backend, oldest first, at most [`REINITIALIZATIONS_MAX`].
    tries: VecDeque<Millis>,
    /// Tries in a row that reached nobody, and the last of them.
    unreached: u32,
    last: Millis,
}

impl Default for Losses {
    fn default() -> Self {
        Self::new()
    }
}

impl Losses {
    /// A session that was never lost.
    pub const fn new() -> Self {
        Self {
            stand: Stand::Settled,
            owed: Owed::Nothing,
            words: 0,
            tries: VecDeque::new(),
            unreached: 0,
            last: Millis(0),
        }
    }

    /// Whether it stands and nothing is owed: then nobody needs to ask.
    pub fn is_clear(&self) -> bool {
        self.stand == Stand::Settled && self.owed == Owed::Nothing
    }

    /// What a request that comes now remembers of the word that is owed.
    pub const fn arrive(&self) -> Arrived {
        Arrived {
            owed: self.owed,
            words: self.words,
        }
    }

    /// What is done now with a request that came then. A call that came before the word was delivered is refused also
    /// if it was delivered while the call waited.
    pub const fn weigh(&self, asks: Asks, arrived: Arrived) -> Weighed {
        let owed = match (self.owed, arrived.owed) {
            (Owed::Nothing, Owed::Nothing) if self.words == arrived.words => Owed::Nothing,
            (Owed::Nothing | Owed::Word, Owed::Nothing | Owed::Word) => Owed::Word,
        };
        match (self.stand, owed, asks) {
            (Stand::Checking | Stand::Recovering { .. }, _, _) => Weighed::Wait,
            (Stand::Settled, Owed::Word, Asks::Tool) => Weighed::Refuse,
            (Stand::Settled, Owed::Word | Owed::Nothing, _) => Weighed::Send,
        }
    }

    /// Whether it is being begun anew.
    pub const fn is_recovering(&self) -> bool {
        match self.stand {
            Stand::Recovering { .. } => true,
            Stand::Settled | Stand::Checking => false,
        }
    }

    /// Its replica is in doubt.
    pub const fn doubt(&mut self) -> Doubt {
        match self.stand {
            Stand::Settled => {
                self.stand = Stand::Checking;
                Doubt::LookInto
            }
            Stand::Checking | Stand::Recovering { .. } => Doubt::SeenTo,
        }
    }

    /// Its replica knows it: nothing was lost.
    pub fn cleared(&mut self) {
        if self.stand == Stand::Checking {
            self.stand = Stand::Settled;
        }
    }

    /// It is lost.
    pub fn lost(&mut self, facts: Facts, now: Millis) -> Loss {
        match (self.stand, facts.rule, facts.opening) {
            (Stand::Recovering { .. }, _, _) => return Loss::Known,
            (_, OnSessionLoss::Terminate, _) => return Loss::End(Hopeless::Configured),
            (_, OnSessionLoss::Announce | OnSessionLoss::Reinitialize, Known::No) => {
                return Loss::End(Hopeless::NotRemembered);
            }
            (
                Stand::Settled | Stand::Checking,
                OnSessionLoss::Announce | OnSessionLoss::Reinitialize,
                Known::Yes,
            ) => {}
        }
        self.stand = Stand::Recovering { since: now };
        self.unreached = 0;
        if let Attempt::Never(why) = self.attempt(now) {
            return Loss::End(why);
        }
        match (facts.rule, facts.called) {
            (OnSessionLoss::Announce, Called::Once) => {
                self.owed = Owed::Word;
                self.words = self.words.saturating_add(1);
            }
            (OnSessionLoss::Announce, Called::Never)
            | (OnSessionLoss::Reinitialize | OnSessionLoss::Terminate, Called::Never | Called::Once) => {}
        }
        Loss::Recover
    }

    /// When the next try may begin.
    pub fn attempt(&mut self, now: Millis) -> Attempt {
        while let Some(oldest) = self.tries.front()
            && now.0.saturating_sub(oldest.0) >= REINITIALIZATIONS_WINDOW_MS
        {
            self.tries.pop_front();
        }
        if self.tries.len() >= REINITIALIZATIONS_MAX {
            return Attempt::Never(Hopeless::TooOften);
        }
        if let Stand::Recovering { since } = self.stand
            && now.0.saturating_sub(since.0) >= RECOVERY_MS_MAX
        {
            return Attempt::Never(Hopeless::TooLong);
        }
        let doubled = |times: usize| BACKOFF_MS << times.min(16);
        let after_try = self
            .tries
            .back()
            .map_or(0, |last| last.0.saturating_add(doubled(self.tries.len() - 1)));
        let after_none = match self.unreached {
            0 => 0,
            n => self
                .last
                .0
                .saturating_add(doubled(n as usize - 1).min(BACKOFF_MS_MAX)),
        };
        let at = after_try.max(after_none);
        if now.0 >= at {
            Attempt::Now
        } else {
            Attempt::At(Millis(at))
        }
    }

    /// A try reached a backend: it counts, whatever came of it.
    pub fn reached(&mut self, now: Millis) {
        self.unreached = 0;
        if self.tries.len() == REINITIALIZATIONS_MAX {
            self.tries.pop_front();
        }
        self.tries.push_back(now);
    }

    /// A try reached nobody.
    pub const fn unreached(&mut self, now: Millis) {
        self.unreached = self.unreached.saturating_add(1);
        self.last = now;
    }

    /// It stands again.
    pub const fn regained(&mut self) {
        self.stand = Stand::Settled;
        self.unreached = 0;
    }

    /// A refusal was delivered: the model knows.
    pub const fn told(&mut self) {
        self.owed = Owed::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        rule: OnSessionLoss::Announce,
        opening: Known::Yes,
        called: Called::Once,
    };

    #[test]
    fn what_a_loss_comes_to() {
        use OnSessionLoss::{Announce, Reinitialize, Terminate};
        for (rule, opening, called, expected, refused) in [
            (Announce, Known::Yes, Called::Once, Loss::Recover, Weighed::Refuse),
            (Announce, Known::Yes, Called::Never, Loss::Recover, Weighed::Send),
            (
                Reinitialize,
                Known::Yes,
                Called::Once,
                Loss::Recover,
                Weighed::Send,
            ),
            (
                Announce,
                Known::No,
                Called::Once,
                Loss::End(Hopeless::NotRemembered),
                Weighed::Send,
            ),
            (
                Reinitialize,
                Known::No,
                Called::Once,
                Loss::End(Hopeless::NotRemembered),
                Weighed::Send,
            ),
            (
                Terminate,
                Known::Yes,
                Called::Once,
                Loss::End(Hopeless::Configured),
                Weighed::Send,
            ),
            (
                Terminate,
                Known::No,
                Called::Never,
                Loss::End(Hopeless::Configured),
                Weighed::Send,
            ),
        ] {
            let facts = Facts {
                rule,
                opening,
                called,
            };
            let mut losses = Losses::new();
            assert!(losses.is_clear());
            assert_eq!(losses.lost(facts, Millis(5)), expected, "{facts:?}");
            if expected != Loss::Recover {
                continue;
            }
            for asks in [Asks::Tool, Asks::Other, Asks::Notices] {
                assert_eq!(losses.weigh(asks, losses.arrive()), Weighed::Wait);
            }
            assert_eq!(losses.lost(facts, Millis(6)), Loss::Known);
            losses.regained();
            assert_eq!(losses.weigh(Asks::Tool, losses.arrive()), refused, "{facts:?}");
            assert_eq!(losses.weigh(Asks::Other, losses.arrive()), Weighed::Send);
            assert_eq!(losses.weigh(Asks::Notices, losses.arrive()), Weighed::Send);
            assert_eq!(losses.is_clear(), refused == Weighed::Send);
        }
    }

    #[test]
    fn the_word_is_owed_once_until_it_is_told() {
        let mut losses = Losses::new();
        losses.lost(FACTS, Millis(0));
        losses.regained();
        // A second loss before the word was told adds nothing.
        losses.lost(FACTS, Millis(10_000));
        losses.regained();
        assert_eq!(losses.weigh(Asks::Tool, losses.arrive()), Weighed::Refuse);
        losses.told();
        assert_eq!(losses.weigh(Asks::Tool, losses.arrive()), Weighed::Send);
        assert!(losses.is_clear());
        losses.lost(FACTS, Millis(20_000));
        losses.regained();
        assert_eq!(
            losses.weigh(Asks::Tool, losses.arrive()),
            Weighed::Refuse,
            "another loss, another word"
        );
    }

    #[test]
    fn a_call_that_came_before_the_word_was_told_is_refused_after_it() {
        let mut losses = Losses::new();
        let before = losses.arrive();
        losses.lost(FACTS, Millis(0));
        let during = losses.arrive();
        assert_eq!(losses.weigh(Asks::Tool, during), Weighed::Wait);
        losses.regained();
        losses.told();
        for arrived in [before, during] {
            assert_eq!(losses.weigh(Asks::Tool, arrived), Weighed::Refuse);
            assert_eq!(losses.weigh(Asks::Other, arrived), Weighed::Send);
        }
        assert_eq!(losses.weigh(Asks::Tool, losses.arrive()), Weighed::Send);
    }

    #[test]
    fn a_doubt_is_looked_into_once() {
        let mut losses = Losses::new();
        assert_eq!(losses.doubt(), Doubt::LookInto);
        assert_eq!(losses.doubt(), Doubt::SeenTo);
        assert_eq!(losses.weigh(Asks::Other, losses.arrive()), Weighed::Wait);
        losses.cleared();
        assert!(losses.is_clear());
        assert_eq!(losses.doubt(), Doubt::LookInto);
        assert_eq!(losses.lost(FACTS, Millis(0)), Loss::Recover);
        losses.cleared();
        assert!(
            losses.is_recovering(),
            "what was asked before the loss changes nothing"
        );
        assert_eq!(losses.doubt(), Doubt::SeenTo);
    }

    /// Tries at these times, in milliseconds: `+` reached a backend, `-` nobody; then what follows at `now`.
    fn check(tries: &[(u64, char)], now: u64, expected: Attempt) {
        let mut losses = Losses::new();
        assert_eq!(losses.lost(FACTS, Millis(0)), Loss::Recover);
        for (at, how) in tries {
            match how {
                '+' => losses.reached(Millis(*at)),
                _ => losses.unreached(Millis(*at)),
            }
        }
        assert_eq!(losses.attempt(Millis(now)), expected, "{tries:?} at {now}");
    }

    #[test]
    fn tries_are_spread_and_bounded() {
        let at = |ms| Attempt::At(Millis(ms));
        check(&[], 0, Attempt::Now);
        check(&[(0, '+')], 1, at(1_000));
        check(&[(0, '+')], 1_000, Attempt::Now);
        check(&[(0, '+'), (1_000, '+')], 1_000, at(3_000));
        check(
            &[(0, '+'), (1_000, '+'), (3_000, '+'), (7_000, '+')],
            7_000,
            at(15_000),
        );
        let five = [(0, '+'), (1_000, '+'), (3_000, '+'), (7_000, '+'), (15_000, '+')];
        check(&five, 15_000, Attempt::Never(Hopeless::TooOften));
        check(&five[1..], 600_999, Attempt::Never(Hopeless::TooLong));
        check(&[(0, '-')], 1, at(1_000));
        check(&[(0, '-'), (1_000, '-'), (3_000, '-')], 3_000, at(7_000));
        let many: Vec<_> = (0..40).map(|n| (n * 10_000, '-')).collect();
        check(&many, 390_001, at(400_000));
        check(&many, 600_000, Attempt::Never(Hopeless::TooLong));
    }

    #[test]
    fn a_backend_that_loses_its_sessions_again_and_again_ends_them() {
        let mut losses = Losses::new();
        for n in 0..5 {
            let now = Millis(n * 60_000);
            assert_eq!(losses.lost(FACTS, now), Loss::Recover);
            assert_eq!(losses.attempt(now), Attempt::Now);
            losses.reached(now);
            losses.regained();
        }
        let mut later = losses.clone();
        assert_eq!(losses.lost(FACTS, Millis(300_000)), Loss::End(Hopeless::TooOften));
        assert_eq!(
            later.lost(FACTS, Millis(600_000)),
            Loss::Recover,
            "the first is forgotten"
        );
    }
}

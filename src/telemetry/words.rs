//! The values that labels may have: closed lists, so that the number of time series is known before the first request.
//! Law: the word of a variant is the word in logs, metrics and documentation.
//! A word that another room owns (`pure::epoch::Reason`, a cause of the upstream client) is taken over, not respelt.
//! Next: `asked.rs`, which has the words for what clients ask.

pub use super::asked::{RequestKind, RequestOutcome, Turned};
use crate::pure::epoch::Reason;
use crate::pure::session::LossCause;

/// A closed list of words.
pub trait Word: Copy + Eq + 'static {
    /// Every word.
    const ALL: &'static [Self];

    /// How it is spelt.
    fn as_str(self) -> &'static str;

    /// The word that is spelt like this.
    fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|word| word.as_str() == text)
    }
}

impl Word for Reason {
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

impl Word for LossCause {
    const ALL: &'static [Self] = &Self::ALL;

    fn as_str(self) -> &'static str {
        Self::as_str(self)
    }
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The client sent DELETE.
    Deleted,
    /// Neither attached nor used for `session_idle`.
    Idle,
    /// Older than `session_max`.
    Expired,
    /// The backend has lost it.
    BackendLost,
    /// The client left the one stream that carried it (HTTP+SSE), for `detached_max`.
    Detached,
}

impl Word for SessionEnd {
    const ALL: &'static [Self] = &[
        Self::Deleted,
        Self::Idle,
        Self::Expired,
        Self::BackendLost,
        Self::Detached,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Idle => "idle",
            Self::Expired => "expired",
            Self::BackendLost => "backend_lost",
            Self::Detached => "detached",
        }
    }
}

/// What kind of stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// A session's standalone stream.
    Get,
    /// The answer to one POST.
    Post,
    /// The one stream of a session over HTTP+SSE.
    Sse,
}

impl Word for StreamKind {
    const ALL: &'static [Self] = &[Self::Get, Self::Post, Self::Sse];

    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Sse => "sse",
        }
    }
}

/// What was concluded when a client connected to a stream (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It got exactly what followed its cursor.
    Resumed,
    /// It asked for nothing, and nothing had been written.
    Live,
    /// Continuity was lost, and it was told.
    Reset,
}

impl Word for Verdict {
    const ALL: &'static [Self] = &[Self::Resumed, Self::Live, Self::Reset];

    fn as_str(self) -> &'static str {
        match self {
            Self::Resumed => "resumed",
            Self::Live => "live",
            Self::Reset => "reset",
        }
    }
}

/// Why an event of a backend was not passed on (wire contract, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// A second response to a request that has had one.
    LateResponse,
    /// It came after the stream's last event.
    AfterEnd,
    /// Its data is empty.
    EmptyData,
    /// Its type is unknown, and it has no data or the client breaks on it.
    UnknownType,
    /// A `ping` that the proxy answered while no client was attached.
    AnsweredHere,
    /// The backend said it before, on an earlier connection.
    Repeated,
    /// The backend contradicted what it said before.
    Contradicts,
    /// It answers a question of the proxy's own.
    Own,
}

impl Word for Dropped {
    const ALL: &'static [Self] = &[
        Self::LateResponse,
        Self::AfterEnd,
        Self::EmptyData,
        Self::UnknownType,
        Self::AnsweredHere,
        Self::Repeated,
        Self::Contradicts,
        Self::Own,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::LateResponse => "late_response",
            Self::AfterEnd => "after_end",
            Self::EmptyData => "empty_data",
            Self::UnknownType => "unknown_type",
            Self::AnsweredHere => "answered_here",
            Self::Repeated => "repeated",
            Self::Contradicts => "contradicts",
            Self::Own => "own",
        }
    }
}

/// What became of a POST that came again (wire contract, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeated {
    /// It waited for the first one's answer.
    Waited,
    /// It was given the first one's answer, or its stream from the beginning.
    Replayed,
    /// The first one's answer can't be had again.
    Unheld,
}

impl Word for Repeated {
    const ALL: &'static [Self] = &[Self::Waited, Self::Replayed, Self::Unheld];

    fn as_str(self) -> &'static str {
        match self {
            Self::Waited => "waited",
            Self::Replayed => "replayed",
            Self::Unheld => "unheld",
        }
    }
}

/// What a backend said of a credential that the proxy put to it (wire contract, section 9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proved {
    /// It is accepted.
    Accepted,
    /// It is refused.
    Denied,
    /// The session is gone.
    SessionGone,
    /// Neither yes nor no.
    Unknown,
}

impl Word for Proved {
    const ALL: &'static [Self] = &[Self::Accepted, Self::Denied, Self::SessionGone, Self::Unknown];

    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Denied => "denied",
            Self::SessionGone => "session_gone",
            Self::Unknown => "unknown",
        }
    }
}

/// Which bound took events out of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictedBy {
    /// `replay_events_max`, `replay_bytes_max` or `replay_age_max`: the ordinary way.
    Window,
    /// `memory.replay_max`: all logs together.
    Budget,
}

impl Word for EvictedBy {
    const ALL: &'static [Self] = &[Self::Window, Self::Budget];

    fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Budget => "budget",
        }
    }
}

/// How an exchange with a backend went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exchanged {
    /// A head came.
    Answered,
    /// No byte of the request was written.
    NotSent,
    /// The connection broke.
    Broken,
    /// The backend closed before it answered.
    EarlyEof,
    /// The head is malformed or too large.
    BadHead,
    /// No head came in time.
    HeadTimeout,
    /// Too many exchanges are under way with the replica.
    Overloaded,
    /// This machine could not open a connection.
    Lacking,
}

impl Word for Exchanged {
    const ALL: &'static [Self] = &[
        Self::Answered,
        Self::NotSent,
        Self::Broken,
        Self::EarlyEof,
        Self::BadHead,
        Self::HeadTimeout,
        Self::Overloaded,
        Self::Lacking,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NotSent => "not_sent",
            Self::Broken => "broken",
            Self::EarlyEof => "early_eof",
            Self::BadHead => "bad_head",
            Self::HeadTimeout => "head_timeout",
            Self::Overloaded => "overloaded",
            Self::Lacking => "lacking",
        }
    }
}

/// Why a replica was ejected from the choice for new sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EjectedFor {
    /// Nothing was sent: refused, unreachable, no handshake.
    Unreached,
    /// It was sent, and the connection ended or broke before an answer, or none came in time.
    Unanswered,
}

impl Word for EjectedFor {
    const ALL: &'static [Self] = &[Self::Unreached, Self::Unanswered];

    fn as_str(self) -> &'static str {
        match self {
            Self::Unreached => "unreached",
            Self::Unanswered => "unanswered",
        }
    }
}

/// What came of reading the configuration again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reloaded {
    /// What it says now holds.
    Applied,
    /// What it says now holds, but for what needs a restart.
    Partly,
    /// It says what it said before.
    Unchanged,
    /// It is wrong; what held before still holds.
    Refused,
}

impl Word for Reloaded {
    const ALL: &'static [Self] = &[Self::Applied, Self::Partly, Self::Unchanged, Self::Refused];

    fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Partly => "partly",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list is whole if the words after each other are different and each is found again by its name.
    fn check<W: Word + std::fmt::Debug>(count: usize) {
        assert_eq!(W::ALL.len(), count);
        for word in W::ALL {
            let text = word.as_str();
            assert_eq!(W::named(text), Some(*word));
            assert!(
                text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{text}"
            );
        }
        assert_eq!(W::named("no such word"), None);
    }

    #[test]
    fn every_word_is_in_its_list_once() {
        check::<RequestKind>(7);
        check::<RequestOutcome>(15);
        check::<SessionEnd>(5);
        check::<StreamKind>(3);
        check::<Verdict>(3);
        check::<Dropped>(8);
        check::<Repeated>(3);
        check::<Proved>(4);
        check::<EvictedBy>(2);
        check::<Exchanged>(8);
        check::<EjectedFor>(2);
        check::<Reloaded>(4);
        check::<Turned>(12);
        check::<Reason>(10);
        check::<LossCause>(7);
    }
}

//! What happens, told to the instruments and the log in one vocabulary.
//! Law: a verdict is counted where it is given, once; a reset is an info line, since somebody may have to explain it.
//! Next: `telemetry/words.rs`.

use tracing::{debug, info, warn};

use crate::pure::epoch::Reason;
use crate::pure::event_id::StreamName;
use crate::pure::refusal::Failure;
use crate::pure::session::Ended;
use crate::relay::Relay;
use crate::relay::headers::Verdict;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::telemetry::instruments::UpstreamInstruments;
use crate::telemetry::words;

impl<W: World> Relay<W> {
    /// A client was told how it stands.
    pub(crate) fn verdict(&self, session: &Session<W>, stream: &StreamName, verdict: Verdict) {
        let instruments = &session.pool.instruments;
        match verdict {
            Verdict::Live { .. } => instruments.continuity.one(words::Verdict::Live),
            Verdict::Resumed { from, replayed, .. } => {
                instruments.continuity.one(words::Verdict::Resumed);
                instruments.events_replayed.add(replayed);
                debug!(session = %session.label(), %stream, from, replayed, "stream was resumed");
            }
            Verdict::Reset { reason, .. } => {
                instruments.continuity.one(words::Verdict::Reset);
                instruments.resets.one(reason);
                info!(session = %session.label(), %stream, %reason, "stream was reset");
            }
        }
    }

    /// A reset on a connection that goes on.
    pub(crate) fn reset_in_band(&self, session: &Session<W>, stream: &StreamName, reason: Reason) {
        session.pool.instruments.resets.one(reason);
        info!(session = %session.label(), %stream, %reason, "stream was reset on its connection");
    }

    /// Requests were answered with an error of ours: somebody's call has no result, and will ask why.
    pub(crate) fn calls_failed(
        &self,
        session: &Session<W>,
        stream: &StreamName,
        failure: Failure,
        calls: usize,
    ) {
        match failure {
            Failure::Reset { reason, .. } | Failure::Lost { reason } => {
                session.pool.instruments.resets.one(reason)
            }
            // The client's own word.
            Failure::NotRun | Failure::Unserved { .. } => return,
        }
        warn!(
            upstream = %session.pool.config.name,
            replica = %session.replica().authority(),
            session = %session.label(),
            %stream,
            reason = failure.word(),
            calls,
            "calls were answered with an error"
        );
    }

    /// A stream began.
    pub(crate) fn stream_began(&self, session: &Session<W>, stream: &StreamName) {
        let kind = kind_of(stream);
        session.pool.instruments.streams_opened.one(kind);
        match stream {
            StreamName::Get | StreamName::HttpSse => {}
            StreamName::Post(_) => self.running.began(),
        }
    }
}

/// As what a stream is counted among those that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counted {
    /// As none: it does not run yet, or is no more.
    Not,
    /// It runs, or its client has still to get the end of it.
    Attended,
    /// It runs without a client.
    Detached,
    /// It is complete, and kept for a resume.
    Held,
}

impl Counted {
    /// Counts a stream as something else than before.
    pub(crate) fn change(&mut self, to: Self, stream: &StreamName, instruments: &UpstreamInstruments) {
        if *self == to {
            return;
        }
        let live = instruments.streams_live(kind_of(stream));
        for (counted, by) in [(std::mem::replace(self, to), -1), (to, 1)] {
            match counted {
                Self::Not => {}
                Self::Attended => live.shift(by),
                Self::Detached => {
                    live.shift(by);
                    instruments.streams_detached.shift(by);
                }
                Self::Held => instruments.streams_held.shift(by),
            }
        }
    }
}

fn kind_of(stream: &StreamName) -> words::StreamKind {
    match stream {
        StreamName::Get => words::StreamKind::Get,
        StreamName::HttpSse => words::StreamKind::Sse,
        StreamName::Post(_) => words::StreamKind::Post,
    }
}

impl From<Ended> for words::SessionEnd {
    fn from(why: Ended) -> Self {
        match why {
            Ended::Deleted => Self::Deleted,
            Ended::Idle => Self::Idle,
            Ended::TooOld => Self::Expired,
            Ended::BackendLost => Self::BackendLost,
            Ended::Detached => Self::Detached,
        }
    }
}

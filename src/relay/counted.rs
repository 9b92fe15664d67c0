//! One request's line in the metrics: what it asked and how it was answered, also if its client went away before.
//! Law: each request is counted once, on every path.
//! Next: `mod.rs`.

use http::Method;

use crate::relay::answer::{Answer, NoAnswer, Refused};
use crate::relay::headers::Bearings;
use crate::relay::said::Said;
use crate::telemetry::meters::Tally;
use crate::telemetry::words::{RequestKind, RequestOutcome};

/// What a request is.
pub(crate) fn request_kind(method: &Method, bearings: Bearings<'_>, said: &Said) -> RequestKind {
    let carries = bearings.session.is_some();
    match *method {
        Method::GET if carries && bearings.cursor.is_some() => RequestKind::Resume,
        Method::GET if carries => RequestKind::Get,
        Method::DELETE if carries => RequestKind::Delete,
        _ => match said {
            Said::Initialize { .. } => RequestKind::Initialize,
            Said::Requests { .. } if carries => RequestKind::Call,
            Said::Notices { .. } | Said::Unreadable if carries => RequestKind::Notice,
            Said::Nothing | Said::Unreadable | Said::Requests { .. } | Said::Notices { .. } => {
                RequestKind::Passing
            }
        },
    }
}

/// A request that is being answered.
pub(crate) struct Counted<'a> {
    tally: Option<&'a Tally<RequestOutcome>>,
}

impl<'a> Counted<'a> {
    /// It began.
    pub(crate) const fn new(tally: &'a Tally<RequestOutcome>) -> Self {
        Self { tally: Some(tally) }
    }

    /// It was answered.
    pub(crate) fn answered<P>(mut self, answer: &Answer<P>) {
        if let Some(tally) = self.tally.take() {
            tally.one(outcome(answer));
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(tally) = self.tally.take() {
            tally.one(RequestOutcome::ClientGone);
        }
    }
}

fn outcome<P>(answer: &Answer<P>) -> RequestOutcome {
    match answer {
        Answer::Whole(_) => RequestOutcome::Whole,
        Answer::Passing(_) => RequestOutcome::Passed,
        Answer::Stream(_) => RequestOutcome::Stream,
        Answer::Refused(refused) => match refused {
            Refused::SessionGone => RequestOutcome::SessionGone,
            Refused::NothingToResume => RequestOutcome::NothingToResume,
            Refused::NotExecuted { .. } | Refused::StreamStalled { .. } => RequestOutcome::NotExecuted,
            Refused::OutcomeUnknown { .. } => RequestOutcome::OutcomeUnknown,
            Refused::StandsAlone { ids: _, why } => match why {
                NoAnswer::NotExecuted { .. } => RequestOutcome::NotExecuted,
                NoAnswer::OutcomeUnknown { .. } => RequestOutcome::OutcomeUnknown,
            },
            Refused::Unproved { .. } => RequestOutcome::Unproved,
            Refused::NoReplica { .. } => RequestOutcome::NoReplica,
            Refused::TooManySessions { .. } => RequestOutcome::TooManySessions,
            Refused::BadInitialize { .. } => RequestOutcome::BadInitialize,
            Refused::BadEndpoint { .. } => RequestOutcome::BadEndpoint,
            Refused::BackendUnreachable => RequestOutcome::BackendUnreachable,
            Refused::BackendTimeout => RequestOutcome::BackendTimeout,
        },
    }
}

//! What a case came to, in the words of the report.
//! Law: a skip is no pass, and *silent* is never softened: something was lost, repeated or mixed up, and no answer said so.
//! Absent on purpose: how it is found out (`judge.rs`) and how it is printed (`report.rs`).
//! Next: `judge.rs`.

/// How a case passed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum How {
    /// Nothing was lost: everything came, each once, in order.
    Whole,
    /// Something was lost, or could not be had, and the client was told: by a refusal, an error or a reset.
    Told,
}

/// What a case came to. The later one is the graver one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// It could not be tried here.
    Skipped,
    /// The server is honest.
    Pass(How),
    /// The server breaks the protocol in a way that the client can see.
    Fail,
    /// Something was lost, repeated or mixed up, and nothing that the client got says so.
    Silent,
}

impl Outcome {
    /// The word for it in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Pass(_) => "pass",
            Self::Fail => "fail",
            Self::Silent => "silent",
        }
    }

    /// The same with how it passed, as tables say it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass(How::Whole) => "whole",
            Self::Pass(How::Told) => "told",
            Self::Skipped | Self::Fail | Self::Silent => self.as_str(),
        }
    }
}

/// An outcome and the reason for it, in one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it is.
    pub outcome: Outcome,
    /// Why.
    pub why: String,
}

/// A finding, either way: the error is one that ends a case early.
pub(super) type Tried<T = Finding> = Result<T, Finding>;

impl Finding {
    fn new(outcome: Outcome, why: impl Into<String>) -> Self {
        Self {
            outcome,
            why: why.into(),
        }
    }

    pub(super) fn whole(why: impl Into<String>) -> Self {
        Self::new(Outcome::Pass(How::Whole), why)
    }

    pub(super) fn told(why: impl Into<String>) -> Self {
        Self::new(Outcome::Pass(How::Told), why)
    }

    pub(super) fn fail(why: impl Into<String>) -> Self {
        Self::new(Outcome::Fail, why)
    }

    pub(super) fn silent(why: impl Into<String>) -> Self {
        Self::new(Outcome::Silent, why)
    }

    pub(super) fn skipped(why: impl Into<String>) -> Self {
        Self::new(Outcome::Skipped, why)
    }

    /// The graver of two.
    pub(super) fn or_graver(self, other: Self) -> Self {
        if other.outcome > self.outcome { other } else { self }
    }
}

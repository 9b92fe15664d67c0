//! The words for what clients ask: kinds of requests, how they were answered, and why some were turned away at the door.
//! Law: as in `words.rs`, which gives them out and tests them with its own.
//! Next: `meters.rs`.

use super::words::Word;

/// What kind of request a client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// POST of `initialize`.
    Initialize,
    /// POST with a request (or several).
    Call,
    /// POST of notifications or answers only.
    Notice,
    /// GET without a cursor.
    Get,
    /// GET with a cursor.
    Resume,
    /// DELETE of a session.
    Delete,
    /// Anything that is passed through untouched.
    Passing,
}

impl Word for RequestKind {
    const ALL: &'static [Self] = &[
        Self::Initialize,
        Self::Call,
        Self::Notice,
        Self::Get,
        Self::Resume,
        Self::Delete,
        Self::Passing,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Call => "call",
            Self::Notice => "notice",
            Self::Get => "get",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::Passing => "passing",
        }
    }
}

/// How a request of a client was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestOutcome {
    /// With a whole answer.
    Whole,
    /// With an SSE stream of our own.
    Stream,
    /// With a backend's answer as it came.
    Passed,
    /// The session is gone: 404.
    SessionGone,
    /// Nothing to resume: 405.
    NothingToResume,
    /// A JSON-RPC error; not executed.
    NotExecuted,
    /// A JSON-RPC error; outcome unknown.
    OutcomeUnknown,
    /// Its credential could not be put to the backend: 503.
    Unproved,
    /// No healthy replica: 503.
    NoReplica,
    /// Too many sessions: 503.
    TooManySessions,
    /// `initialize` was answered in a way that no session can be made of: 502.
    BadInitialize,
    /// A stream of HTTP+SSE began in a way that no session can be made of.
    BadEndpoint,
    /// The backend could not be reached or broke: 502.
    BackendUnreachable,
    /// The backend did not answer in time: 504.
    BackendTimeout,
    /// The client went away before an answer began.
    ClientGone,
}

impl Word for RequestOutcome {
    const ALL: &'static [Self] = &[
        Self::Whole,
        Self::Stream,
        Self::Passed,
        Self::SessionGone,
        Self::NothingToResume,
        Self::NotExecuted,
        Self::OutcomeUnknown,
        Self::Unproved,
        Self::NoReplica,
        Self::TooManySessions,
        Self::BadInitialize,
        Self::BadEndpoint,
        Self::BackendUnreachable,
        Self::BackendTimeout,
        Self::ClientGone,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Stream => "stream",
            Self::Passed => "passed",
            Self::SessionGone => "session_gone",
            Self::NothingToResume => "nothing_to_resume",
            Self::NotExecuted => "not_executed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Unproved => "unproved",
            Self::NoReplica => "no_replica",
            Self::TooManySessions => "too_many_sessions",
            Self::BadInitialize => "bad_initialize",
            Self::BadEndpoint => "bad_endpoint",
            Self::BackendUnreachable => "backend_unreachable",
            Self::BackendTimeout => "backend_timeout",
            Self::ClientGone => "client_gone",
        }
    }
}

/// Why a client was refused before its request reached an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turned {
    /// Its `Host` is not served.
    Host,
    /// Its `Origin` is not allowed.
    Origin,
    /// No upstream has its path.
    NoSuchPath,
    /// The method is never served.
    Method,
    /// The request contradicts itself or HTTP.
    Malformed,
    /// The head is too large.
    HeadTooLarge,
    /// The body is too large.
    BodyTooLarge,
    /// The head did not arrive in time.
    HeadTimeout,
    /// The body did not arrive in time.
    BodyTimeout,
    /// Too many long bodies are being read.
    TooManyBodies,
    /// All seats are taken.
    TooManyConnections,
    /// The TLS handshake failed.
    Tls,
}

impl Word for Turned {
    const ALL: &'static [Self] = &[
        Self::Host,
        Self::Origin,
        Self::NoSuchPath,
        Self::Method,
        Self::Malformed,
        Self::HeadTooLarge,
        Self::BodyTooLarge,
        Self::HeadTimeout,
        Self::BodyTimeout,
        Self::TooManyBodies,
        Self::TooManyConnections,
        Self::Tls,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Origin => "origin",
            Self::NoSuchPath => "no_such_path",
            Self::Method => "method",
            Self::Malformed => "malformed",
            Self::HeadTooLarge => "head_too_large",
            Self::BodyTooLarge => "body_too_large",
            Self::HeadTimeout => "head_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::TooManyBodies => "too_many_bodies",
            Self::TooManyConnections => "too_many_connections",
            Self::Tls => "tls",
        }
    }
}

//! Why an exchange has no answer: whether a byte of it left, what happened, and of whom that speaks.
//! Law: a closed list; the same word in logs and metrics. What this machine lacks is no replica's fault.
//! Absent on purpose: what follows from it (the caller's).
//! Next: `upstream/exchange.rs`.

use std::fmt;
use std::io;

use crate::net::Lack;
use crate::net::tls::TlsFault;
use crate::pure::http1::head::HeadError;

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendError {
    /// No byte of the request was written: it was not executed, and may be sent again, here or elsewhere.
    NotSent(Cause),
    /// A byte may have been written: whether it was executed is not known, and it must not be sent again.
    Unknown(Cause),
}

impl SendError {
    /// What happened.
    pub const fn cause(&self) -> &Cause {
        match self {
            Self::NotSent(cause) | Self::Unknown(cause) => cause,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(cause) => write!(f, "not sent: {cause}"),
            Self::Unknown(cause) => write!(f, "sent, outcome unknown: {cause}"),
        }
    }
}

impl std::error::Error for SendError {}

/// What happened to an exchange.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The connection was refused.
    Refused,
    /// The replica could not be reached otherwise: no such name, no route.
    Unreachable(io::ErrorKind),
    /// No connection came about within `connect_timeout` or the deadline.
    ConnectTimeout,
    /// The handshake failed.
    Tls(TlsFault),
    /// The connection broke.
    Broken(io::ErrorKind),
    /// The backend closed the connection before it answered.
    EarlyEof,
    /// The head of the answer is malformed or too large.
    BadHead(HeadError),
    /// No head came before the deadline.
    HeadTimeout,
    /// This machine could not open a connection: it says nothing of the replica, and but for ports no other one would be
    /// reached.
    Lacking(Lack),
    /// As many exchanges as allowed are under way with this replica.
    Overloaded {
        /// How many that is.
        in_flight_max: usize,
    },
}

impl Cause {
    /// The word for it in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable(_) => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls(_) => "tls",
            Self::Broken(_) => "broken",
            Self::EarlyEof => "early_eof",
            Self::BadHead(_) => "bad_head",
            Self::HeadTimeout => "head_timeout",
            Self::Lacking(_) => "lacking",
            Self::Overloaded { .. } => "overloaded",
        }
    }

    /// Of whom it speaks.
    pub const fn speaks_of(&self) -> SpeaksOf {
        match self {
            Self::Lacking(_) | Self::Overloaded { .. } => SpeaksOf::Ourselves,
            Self::Refused
            | Self::Unreachable(_)
            | Self::ConnectTimeout
            | Self::Tls(_)
            | Self::Broken(_)
            | Self::EarlyEof
            | Self::BadHead(_)
            | Self::HeadTimeout => SpeaksOf::Replica,
        }
    }
}

/// Of whom a failure speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpeaksOf {
    /// Of the replica, or of the way to it.
    Replica,
    /// Of this process and its machine: nothing follows for the replica.
    Ourselves,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("the connection was refused"),
            Self::Unreachable(kind) => write!(f, "the replica can't be reached: {kind}"),
            Self::ConnectTimeout => f.write_str("no connection came about in time"),
            Self::Tls(fault) => fault.fmt(f),
            Self::Broken(kind) => write!(f, "the connection broke: {kind}"),
            Self::EarlyEof => f.write_str("the backend closed the connection before it answered"),
            Self::BadHead(error) => error.fmt(f),
            Self::HeadTimeout => f.write_str("no answer came in time"),
            Self::Lacking(lack) => lack.fmt(f),
            Self::Overloaded { in_flight_max } => {
                write!(f, "{in_flight_max} exchanges are under way with this replica")
            }
        }
    }
}

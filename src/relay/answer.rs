//! What the relay takes from the client side and gives back to it.
//! Law: only `downstream/reject.rs` knows which HTTP status a refusal becomes.
//! Next: `sink.rs`.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response};

use crate::pure::epoch::Reason;
use crate::pure::refusal::{Execution, Failure, Unserved};
use crate::pure::rpc::RequestId;
use crate::relay::sink::ClientSink;

/// How long a client is told to wait whose request could not be dealt with now: there was no replica, no room, or nobody
/// to ask.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(2);

/// One request of a client on a configured path, head checked, body read whole.
#[derive(Debug)]
pub struct Call {
    /// What it is about.
    pub resource: Resource,
    /// The method as it came.
    pub method: Method,
    /// The query as it came, without `?`.
    pub query: Option<Box<str>>,
    /// Header fields as they came (hop-by-hop fields already removed).
    pub headers: HeaderMap,
    /// The body, whole.
    pub body: Bytes,
    /// The client's address.
    pub peer: IpAddr,
}

/// What the client side asks of whoever answers it: the relay, or a script in the client side's own tests.
pub trait Serve: Send + Sync + 'static {
    /// A backend's body on its way through.
    type Body: PassingBody;

    /// Answers one request of the upstream with this index (its place in the configuration).
    /// The call is boxed, since it is large and handed on many times. Dropping the future means that the client went away before an answer began.
    fn serve(&self, upstream: usize, call: Box<Call>) -> impl Future<Output = Answer<Self::Body>> + Send;
}

/// A backend's body, passed on as it comes.
pub trait PassingBody: Send + Unpin + 'static {
    /// The next piece; `None` is the orderly end.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;
}

/// What a request is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resource {
    /// The MCP endpoint.
    Endpoint,
    /// Something beside it that passes, at this path.
    Beside(Box<str>),
}

/// What the client gets. Boxed: it is handed on many times, and to move a head costs more than to allocate one.
pub enum Answer<P> {
    /// A whole answer.
    Whole(Box<Response<Bytes>>),
    /// A backend's answer, passed on as it comes.
    Passing(Box<Response<P>>),
    /// An SSE answer of our own: status 200, these fields, then what the ticket's stream writes.
    Stream(Box<Opening>),
    /// A refusal in our own name.
    Refused(Refused),
}

/// An SSE answer that is about to begin.
pub struct Opening {
    /// Header fields of the answer (content type, cache control, session id, continuity).
    pub headers: HeaderMap,
    /// Where the sink goes.
    pub ticket: Box<dyn Attach>,
}

/// Takes the sink into its stream. Dropping it without a sink tells the stream that the client went away.
pub trait Attach: Send {
    /// Hands the sink over. Never waits.
    fn attach(self: Box<Self>, sink: Box<dyn ClientSink>);

    /// Where a client reads of what it will not get.
    fn tells(&self) -> Tells {
        Tells::OnTheStream
    }
}

/// Where a client reads of what it will not get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tells {
    /// Among its events; or there is nothing of the kind.
    OnTheStream,
    /// In the verdict of the answer's head, and nowhere else.
    InTheHead,
}

/// Why a request is refused in our own name; whose fault, and what now, is in each variant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The session is gone: 404 in the words that SDK servers use. The request was not executed.
    SessionGone,
    /// The stream's end mark was presented, or the backend offers no GET stream: 405.
    NothingToResume,
    /// A request with an id can't be sent, and was not executed: 200 with a JSON-RPC error for each id.
    NotExecuted {
        /// Ids to answer, at least one.
        ids: Vec<RequestId>,
        /// Why.
        why: NotExecuted,
    },
    /// The backend's answer was lost after the request was sent: 200 with a JSON-RPC error, outcome unknown.
    OutcomeUnknown {
        /// Ids to answer, at least one.
        ids: Vec<RequestId>,
        /// What took it: `backend_lost`, or `owner_lost` where this proxy ends.
        reason: Reason,
    },
    /// A request that stands for itself got no answer: 503 or 502, and a JSON-RPC error for each id. Its client may be
    /// finding out by it what the server speaks, and would take any status below 500 for the server's own word.
    StandsAlone {
        /// Ids to answer, at least one.
        ids: Vec<RequestId>,
        /// Why.
        why: NoAnswer,
    },
    /// Its credential could not be put to the backend, and nothing is done for it before: 503 with `Retry-After`.
    Unproved {
        /// When to try again.
        retry_after: Duration,
    },
    /// No healthy replica for a new session: 503 with `Retry-After`.
    NoReplica {
        /// When to try again.
        retry_after: Duration,
    },
    /// The upstream's bound on sessions is reached: 503 with `Retry-After`.
    TooManySessions {
        /// When to try again.
        retry_after: Duration,
    },
    /// `initialize` was answered in a way that no session can be made of: 502.
    BadInitialize {
        /// What was wrong, for people.
        what: &'static str,
    },
    /// The client does not read the stream on which it would be answered, and as much as is kept for it waits there: 503
    /// with `Retry-After`.
    StreamStalled {
        /// When to try again.
        retry_after: Duration,
    },
    /// A stream of HTTP+SSE began in a way that no session can be made of: 502.
    BadEndpoint {
        /// What was wrong, for people.
        what: &'static str,
    },
    /// A backend could not be reached or broke before it answered, for something that is not a JSON-RPC request: 502.
    BackendUnreachable,
    /// The backend did not answer in time: 504.
    BackendTimeout,
}

/// Why a request that stands for itself has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    /// It was not sent.
    NotExecuted {
        /// Why.
        why: NotExecuted,
        /// When to try again.
        retry_after: Duration,
    },
    /// It was sent, and its outcome is unknown.
    OutcomeUnknown {
        /// What took its answer.
        reason: Reason,
    },
}

/// Why a request was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotExecuted {
    /// Its replica can't be reached.
    Unavailable,
    /// A bound on exchanges or streams is reached, or this machine could open no connection.
    Overloaded,
}

impl NotExecuted {
    /// What each request that was not sent is told.
    pub(crate) const fn failure(self) -> Failure {
        let why = match self {
            Self::Unavailable => Unserved::Unavailable,
            Self::Overloaded => Unserved::Overloaded,
        };
        let execution = Execution::NotExecuted;
        Failure::Unserved { why, execution }
    }

    /// The word for it, everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
        }
    }
}

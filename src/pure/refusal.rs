//! The JSON-RPC bodies that the proxy speaks in its own name.
//! Law: everything that is said is picked from closed lists; free text enters only through `rpc::quoted`.
//! A request's id is echoed as the raw token that came.
//! Absent on purpose: HTTP. Which status a refusal becomes is known in one place only, on the client side.
//! Why these words: hosts match on some of them, and a model reads others (wire contract, sections 2 and 6).
//! Next: `continuity.rs`.

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::rpc::{RequestId, quoted};
use crate::pure::session_token::Declared;

/// The body of the 404 that says a session is gone, in the SDK servers' own words (wire contract, section 2).
/// Only for a request that was not executed.
pub const fn session_gone() -> &'static [u8] {
    br#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#
}

/// Whether a request that fails was executed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Execution {
    /// A byte of it was sent: it may have been.
    Unknown,
    /// Nothing of it was sent.
    NotExecuted,
}

impl Execution {
    /// The word for it, in `data.outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NotExecuted => "not_executed",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Unknown => "whether the request was executed is unknown",
            Self::NotExecuted => "the request was not executed",
        }
    }
}

/// Why a request got no answer although nothing was reset (wire contract, section 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unserved {
    /// Its backend can't be reached.
    Unavailable,
    /// A bound is reached.
    Overloaded,
    /// It was cancelled.
    Cancelled,
}

impl Unserved {
    /// The word for it, everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::Cancelled => "cancelled",
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Unavailable => "the server can't be reached",
            Self::Overloaded => "too much is under way",
            Self::Cancelled => "the request was cancelled",
        }
    }
}

/// Why a request is answered with an error of ours.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// Its stream was reset; the answer is lost, the outcome unknown.
    Reset {
        /// Why.
        reason: Reason,
        /// The epoch that the client stands in now.
        epoch: Epoch,
    },
    /// Its answer was lost before there was a stream; the outcome is unknown.
    Lost {
        /// Why.
        reason: Reason,
    },
    /// The session was lost before it ran; it was not executed (wire contract, section 6).
    NotRun,
    /// It could not be served; nothing was reset.
    Unserved {
        /// Why.
        why: Unserved,
        /// Whether it was executed.
        execution: Execution,
    },
}

impl Failure {
    /// The word in `data.reason`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reset { reason, epoch: _ } | Self::Lost { reason } => reason.as_str(),
            Self::NotRun => Reason::BackendLost.as_str(),
            Self::Unserved { why, execution: _ } => why.as_str(),
        }
    }

    /// Whether the request was executed.
    pub const fn execution(self) -> Execution {
        match self {
            Self::Reset { .. } | Self::Lost { .. } => Execution::Unknown,
            Self::NotRun => Execution::NotExecuted,
            Self::Unserved { execution, .. } => execution,
        }
    }

    const fn sentence(self) -> &'static str {
        match self {
            Self::Reset { .. } | Self::Lost { .. } => "the answer was lost on its way",
            Self::NotRun => "the server's session was restarted, and what it held is gone",
            Self::Unserved { why, .. } => why.sentence(),
        }
    }

    fn data(self) -> String {
        let (word, outcome) = (self.word(), self.execution().as_str());
        match self {
            Self::Reset { epoch, reason: _ } => {
                let epoch = epoch.spelled();
                format!(r#"{{"reason":"{word}","epoch":"{epoch}","outcome":"{outcome}"}}"#)
            }
            Self::Lost { .. } | Self::NotRun | Self::Unserved { .. } => {
                format!(r#"{{"reason":"{word}","outcome":"{outcome}"}}"#)
            }
        }
    }
}

/// The error that answers one request: `-32603` with `data` (wire contract, sections 4 to 6).
pub fn error(id: &RequestId, failure: Failure) -> Vec<u8> {
    error_text(id, failure).into_bytes()
}

/// The errors for all requests of one POST: an object for one, an array for several.
pub fn errors(ids: &[RequestId], failure: Failure) -> Vec<u8> {
    match ids {
        [id] => error(id, failure),
        several => {
            let each: Vec<String> = several.iter().map(|id| error_text(id, failure)).collect();
            format!("[{}]", each.join(",")).into_bytes()
        }
    }
}

fn error_text(id: &RequestId, failure: Failure) -> String {
    let id = id.as_str();
    let (cause, word) = (failure.sentence(), failure.word());
    let executed = failure.execution().sentence();
    let data = failure.data();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"throughline: {cause} ({word}); {executed}","data":{data}}}}}"#
    )
}

/// The answer to a `ping`, or to anything else that wants no more than to be answered.
pub fn empty_result(id: &RequestId) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes()
}

/// A `ping` of ours to a backend.
pub fn ping(id: &RequestId) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into_bytes()
}

/// The end of a beginning: the client's word that it is ready.
pub const fn initialized() -> &'static [u8] {
    br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
}

/// Asks a backend for log messages at this level, as its client did before.
pub fn set_level(level: LogLevel) -> Vec<u8> {
    let level = level.as_str();
    format!(
        r#"{{"jsonrpc":"2.0","id":"throughline-level","method":"logging/setLevel","params":{{"level":"{level}"}}}}"#
    )
    .into_bytes()
}

/// Subscribes to a resource, as its client did before.
pub fn subscribe(uri: &str) -> Vec<u8> {
    let uri = quoted(uri);
    format!(
        r#"{{"jsonrpc":"2.0","id":"throughline-subscribe","method":"resources/subscribe","params":{{"uri":{uri}}}}}"#
    )
    .into_bytes()
}

/// The error in place of a backend's answer with this HTTP status, which would cost some clients their connection.
pub fn backend_status(id: &RequestId, status: u16) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"throughline: the server answered with HTTP status {status}","data":{{"reason":"backend_status","status":{status}}}}}}}"#
    )
    .into_bytes()
}

/// A list that a client holds a copy of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum List {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Resources.
    Resources,
}

impl List {
    /// Every list.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// What a backend must have declared, so that its clients may be told that the list changed.
    pub const fn declared_by(self) -> Declared {
        match self {
            Self::Tools => Declared::ToolsListChanged,
            Self::Prompts => Declared::PromptsListChanged,
            Self::Resources => Declared::ResourcesListChanged,
        }
    }
}

/// A client should read this list again.
pub const fn list_changed(list: List) -> &'static [u8] {
    match list {
        List::Tools => br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        List::Prompts => br#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#,
        List::Resources => br#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#,
    }
}

/// A client should read a resource again that it subscribed to.
pub fn resource_updated(uri: &str) -> Vec<u8> {
    let uri = quoted(uri);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{uri}}}}}"#)
        .into_bytes()
}

/// How grave a log message is, least first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// `debug`
    Debug,
    /// `info`
    Info,
    /// `notice`
    Notice,
    /// `warning`
    Warning,
    /// `error`
    Error,
    /// `critical`
    Critical,
    /// `alert`
    Alert,
    /// `emergency`
    Emergency,
}

impl LogLevel {
    /// Every level, least first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// Reads what a client sets with `logging/setLevel`.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == text)
    }

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

/// A log message that says that a stream was reset: at `warning`, or at the level that the client asked for if that
/// is graver, so that it arrives (wire contract, section 6).
pub fn reset_warning(client_level: Option<LogLevel>, reason: Reason, epoch: Epoch) -> Vec<u8> {
    let level = client_level
        .unwrap_or(LogLevel::Warning)
        .max(LogLevel::Warning)
        .as_str();
    let data = reset_data(reason, epoch);
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","logger":"throughline","data":{data}}}}}"#
    )
    .into_bytes()
}

/// The data of a `reset` event, for clients that know of throughline (wire contract, section 6).
pub fn reset_notice(reason: Reason, epoch: Epoch) -> Vec<u8> {
    let data = reset_data(reason, epoch);
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/throughline/reset","params":{data}}}"#).into_bytes()
}

fn reset_data(reason: Reason, epoch: Epoch) -> String {
    let epoch = epoch.spelled();
    format!(r#"{{"reason":"{reason}","epoch":"{epoch}"}}"#)
}

/// Why the proxy withdraws a request that somebody else made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Withdrawal {
    /// It died in a reset; towards the client.
    Reset(Reason),
    /// Nobody came back for its answer within `detached_max`; towards the backend.
    ClientAway,
    /// The client has answered it; towards the client, where the request would be shown again.
    Answered,
    /// Too many newer ones wait for the client, and the backend was answered in its place; towards the client.
    Displaced,
}

impl Withdrawal {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reset(reason) => reason.as_str(),
            Self::ClientAway => "client_away",
            Self::Answered => "answered",
            Self::Displaced => "overloaded",
        }
    }
}

/// What stands where a request of the backend's stood that was answered, by the client or in its place: a withdrawal of it
/// if there is room, else a notification that every client ignores. Longest first.
pub fn in_place_of_answered(id: &RequestId, why: Withdrawal) -> [Vec<u8>; 5] {
    [
        cancelled(id, why),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
            .into_bytes(),
        br#"{"jsonrpc":"2.0","method":"notifications/throughline/answered"}"#.to_vec(),
        br#"{"jsonrpc":"2.0","method":"notifications/a"}"#.to_vec(),
        br#"{"jsonrpc":"2.0","method":"a"}"#.to_vec(),
    ]
}

/// The answer to a backend's request whose client is away or was told to forget it: an error, in our own name.
pub fn client_away(id: &RequestId) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"throughline: the client is away, and nobody will answer (client_away)","data":{{"reason":"client_away"}}}}}}"#
    )
    .into_bytes()
}

/// The answer to a backend's request that had to make room for newer ones: an error, in our own name.
pub fn too_many_asked(id: &RequestId) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32603,"message":"throughline: too many newer requests wait for the client (overloaded)","data":{{"reason":"overloaded"}}}}}}"#
    )
    .into_bytes()
}

/// Withdraws a request: nobody waits for its answer any more.
pub fn cancelled(id: &RequestId, why: Withdrawal) -> Vec<u8> {
    let why = why.as_str();
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"{why}"}}}}"#
    )
    .into_bytes()
}

/// The answer to a `tools/call` that was not run since the server's session was lost: in words for the model,
/// before it acts on what is gone (wire contract, section 6).
pub fn tool_refused(id: &RequestId) -> Vec<u8> {
    const TEXT: &str = "This call was NOT run. The MCP server's session was restarted, and state that earlier calls had \
        built up in it (for example open pages, logins, a working directory, variables, unfinished transactions) is \
        gone; what they did outside of it stands. Set up again what this call relies on, if anything, then call \
        again: calls run as usual in the new session.";
    let text = quoted(TEXT);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":{text}}}],"isError":true}}}}"#
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::rpc;

    fn check(body: &[u8], literal: &str) {
        assert_eq!(String::from_utf8_lossy(body), literal);
        rpc::read(body).expect("what we say is JSON-RPC");
        let value: serde_json::Value = serde_json::from_slice(body).expect("what we say is JSON");
        assert!(value.is_object() || value.is_array());
    }

    fn id(token: &str) -> RequestId {
        RequestId::from_raw(token.as_bytes()).expect("an id")
    }

    const EPOCH: Epoch = Epoch::from_random(0x0123_4567_89ab_cdef);

    #[test]
    fn a_session_that_is_gone() {
        check(
            session_gone(),
            r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
        );
    }

    #[test]
    fn errors_for_requests() {
        let window = Failure::Reset {
            reason: Reason::WindowExceeded,
            epoch: EPOCH,
        };
        check(
            &error(&id("7"), window),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"throughline: the answer was lost on its way (window_exceeded); whether the request was executed is unknown","data":{"reason":"window_exceeded","epoch":"ASNFZ4mrze8","outcome":"unknown"}}}"#,
        );
        let lost = Failure::Lost {
            reason: Reason::BackendLost,
        };
        check(
            &error(&id(r#""\u0061""#), lost),
            r#"{"jsonrpc":"2.0","id":"\u0061","error":{"code":-32603,"message":"throughline: the answer was lost on its way (backend_lost); whether the request was executed is unknown","data":{"reason":"backend_lost","outcome":"unknown"}}}"#,
        );
        check(
            &error(&id("7"), Failure::NotRun),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"throughline: the server's session was restarted, and what it held is gone (backend_lost); the request was not executed","data":{"reason":"backend_lost","outcome":"not_executed"}}}"#,
        );
        let unserved = |why, execution| Failure::Unserved { why, execution };
        check(
            &error(
                &id("1.0"),
                unserved(Unserved::Unavailable, Execution::NotExecuted),
            ),
            r#"{"jsonrpc":"2.0","id":1.0,"error":{"code":-32603,"message":"throughline: the server can't be reached (unavailable); the request was not executed","data":{"reason":"unavailable","outcome":"not_executed"}}}"#,
        );
        check(
            &error(&id("-1"), unserved(Unserved::Overloaded, Execution::NotExecuted)),
            r#"{"jsonrpc":"2.0","id":-1,"error":{"code":-32603,"message":"throughline: too much is under way (overloaded); the request was not executed","data":{"reason":"overloaded","outcome":"not_executed"}}}"#,
        );
        let cancelled = unserved(Unserved::Cancelled, Execution::Unknown);
        check(
            &errors(&[id("1"), id("2")], cancelled),
            r#"[{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"throughline: the request was cancelled (cancelled); whether the request was executed is unknown","data":{"reason":"cancelled","outcome":"unknown"}}},{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"throughline: the request was cancelled (cancelled); whether the request was executed is unknown","data":{"reason":"cancelled","outcome":"unknown"}}}]"#,
        );
        assert_eq!(errors(&[id("7")], window), error(&id("7"), window));
    }

    #[test]
    fn small_talk() {
        check(
            &empty_result(&id("\"x\"")),
            r#"{"jsonrpc":"2.0","id":"x","result":{}}"#,
        );
        check(
            initialized(),
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        check(
            &set_level(LogLevel::Error),
            r#"{"jsonrpc":"2.0","id":"throughline-level","method":"logging/setLevel","params":{"level":"error"}}"#,
        );
        check(
            &subscribe("a:\"b\""),
            r#"{"jsonrpc":"2.0","id":"throughline-subscribe","method":"resources/subscribe","params":{"uri":"a:\"b\""}}"#,
        );
        check(
            &client_away(&id("4")),
            r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32603,"message":"throughline: the client is away, and nobody will answer (client_away)","data":{"reason":"client_away"}}}"#,
        );
        check(
            &backend_status(&id("5"), 503),
            r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"message":"throughline: the server answered with HTTP status 503","data":{"reason":"backend_status","status":503}}}"#,
        );
        check(&ping(&id("3")), r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#);
    }

    #[test]
    fn notifications() {
        for (list, name) in List::ALL.into_iter().zip(["tools", "prompts", "resources"]) {
            let literal = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{name}/list_changed"}}"#);
            check(list_changed(list), &literal);
        }
        check(
            &resource_updated("file:///a\"b"),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a\"b"}}"#,
        );
        check(
            &reset_notice(Reason::EpochChanged, EPOCH),
            r#"{"jsonrpc":"2.0","method":"notifications/throughline/reset","params":{"reason":"epoch_changed","epoch":"ASNFZ4mrze8"}}"#,
        );
        check(
            &cancelled(&id("\"s1\""), Withdrawal::Reset(Reason::BackendLost)),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s1","reason":"backend_lost"}}"#,
        );
        check(
            &cancelled(&id("4"), Withdrawal::ClientAway),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"client_away"}}"#,
        );
    }

    #[test]
    fn a_warning_is_never_below_what_the_client_wants_to_see() {
        for (client, level) in [
            (None, "warning"),
            (Some(LogLevel::Debug), "warning"),
            (Some(LogLevel::Warning), "warning"),
            (Some(LogLevel::Error), "error"),
            (Some(LogLevel::Emergency), "emergency"),
        ] {
            check(
                &reset_warning(client, Reason::Evicted, EPOCH),
                &format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"{level}","logger":"throughline","data":{{"reason":"evicted","epoch":"ASNFZ4mrze8"}}}}}}"#
                ),
            );
        }
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        assert_eq!(LogLevel::parse("Warning"), None);
    }

    #[test]
    fn what_stands_for_an_answered_request_is_a_notification_ever_shorter() {
        let words = in_place_of_answered(&id(r#""s""#), Withdrawal::Answered);
        for word in &words {
            assert!(matches!(
                rpc::read(word),
                Ok(rpc::Body::One(rpc::Message::Notification { .. }))
            ));
        }
        assert!(words.iter().map(Vec::len).is_sorted_by(|a, b| a > b));
        let shortest = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.len();
        assert!(
            words.iter().any(|word| word.len() <= shortest),
            "even a ping can be struck"
        );
    }

    #[test]
    fn every_reason_is_said_in_its_own_word() {
        for reason in Reason::ALL {
            let body = reset_notice(reason, EPOCH);
            let word = rpc::lookup(&body, &["params", "reason"]).and_then(rpc::text);
            assert_eq!(word.as_deref(), Some(reason.as_str()));
        }
    }

    #[test]
    fn a_tool_call_that_was_not_run() {
        check(
            &tool_refused(&id("12")),
            r#"{"jsonrpc":"2.0","id":12,"result":{"content":[{"type":"text","text":"This call was NOT run. The MCP server's session was restarted, and state that earlier calls had built up in it (for example open pages, logins, a working directory, variables, unfinished transactions) is gone; what they did outside of it stands. Set up again what this call relies on, if anything, then call again: calls run as usual in the new session."}],"isError":true}}"#,
        );
    }
}

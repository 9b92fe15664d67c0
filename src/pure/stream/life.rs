//! One stream's life: which requests it answers, what each of the backend's events does, how it ends.
//! Law: one response or error for each request; nothing follows the last; nothing is left out without a name.
//! Per event it allocates nothing. The end is sticky: a stream that is over takes nothing more.
//! Absent on purpose: deadlines and connections (`attach.rs`), the log, JSON (`rpc` has read the event already).
//! Next: `life/batch.rs`, then `attach.rs`.

mod batch;

pub use batch::{Answers, Withdrawn};

use crate::pure::epoch::{Reason, Seq};
use crate::pure::http_sse::ENDPOINT;
use crate::pure::limits::SERVER_REQUESTS_MAX;
use crate::pure::revision::Priming;
use crate::pure::rpc::{EventKind, RequestId};
use crate::pure::stream::Agent;
use crate::pure::stream::carried::Carried;

/// What is done with one event of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// It goes into the log.
    Append,
    /// It goes into the log with the end mark: the stream is over.
    AppendLast,
    /// It is left out, and counted.
    Drop(Dropped),
}

/// Why an event was left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dropped {
    /// It has no data: a cursor of the backend's, noted only (wire contract, section 7).
    Empty,
    /// Its type is not `message`, and the client does not bear that.
    UnknownType,
    /// Its request was answered before.
    LateResponse,
    /// It answers no request of this stream, on a stream that was attached again.
    StrayResponse,
    /// The stream is over.
    AfterEnd,
    /// A `ping`, answered by the proxy while no client is attached.
    AnsweredHere,
    /// The backend said it before, on an earlier connection.
    Repeated,
    /// The backend contradicts what it said before: it is in another life.
    Contradicts,
    /// It answers a question of the proxy's own.
    Own,
}

impl Dropped {
    /// Every one, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Empty,
        Self::UnknownType,
        Self::LateResponse,
        Self::StrayResponse,
        Self::AfterEnd,
        Self::AnsweredHere,
        Self::Repeated,
        Self::Contradicts,
        Self::Own,
    ];

    /// The word for it in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty_data",
            Self::UnknownType => "unknown_type",
            Self::LateResponse => "late_response",
            Self::StrayResponse => "stray_response",
            Self::AfterEnd => "after_end",
            Self::AnsweredHere => "answered_here",
            Self::Repeated => "repeated",
            Self::Contradicts => "contradicts",
            Self::Own => "own",
        }
    }
}

/// How a backend's stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceEnd {
    /// In an orderly way, after an id: the client may be meant to poll.
    CleanAfterId,
    /// In an orderly way, without one.
    Clean,
    /// In any other way.
    Broken,
}

/// What follows the end of a backend's stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterSource {
    /// Nothing: it was over.
    Nothing,
    /// A POST stream whose client is meant to poll: its connection ends likewise, or the proxy polls.
    Poll,
    /// The requests still open are answered with an error, for this reason.
    Fail(Reason),
    /// A standalone stream: it is opened again without a cursor, in a new epoch, for this reason.
    Reopen(Reason),
    /// The one stream of an HTTP+SSE session: the session is over with it.
    SessionOver,
}

/// Which connection to the backend a stream reads from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Connection {
    First,
    Reattached,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Standalone,
    Post,
    HttpSse,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    Over,
}

/// One stream's life. Call: [`Life::take`] for each event that has data. Next: when it is over, nothing more is read.
#[derive(Debug)]
pub struct Life {
    kind: Kind,
    pub(super) phase: Phase,
    connection: Connection,
    /// The requests of the POST: those still open first, `open` of them.
    asked: Vec<RequestId>,
    open: usize,
    /// Where the answers to the others stand in the log, in the order in which they came; kept for batches only, whose
    /// client may have had some of them and not others.
    answers: Vec<Seq>,
    /// Requests of the backend that no answer was seen for.
    pending: Vec<RequestId>,
    /// Where each of them stands in the log, if it stands there alone.
    places: Vec<Option<Seq>>,
    /// Those that newer ones took the place of.
    displaced: Vec<Displaced>,
    /// The requests under way of an HTTP+SSE session.
    pub(super) carried: Option<Box<Carried>>,
}

/// A request of the backend's that is not waited for any more, since too many newer ones wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Displaced {
    /// Its id.
    pub id: RequestId,
    /// Where it stands in the log; `None` if other messages stand in the same event.
    pub at: Option<Seq>,
}

/// What an answer of the client's is to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAnswer {
    /// It answers a request of this stream's.
    Expected {
        /// Where that stands in the log; `None` if other messages stand in the same event.
        at: Option<Seq>,
    },
    /// It answers none.
    Unexpected,
}

impl Life {
    /// The standalone stream of a session. It is over only when its session is.
    pub const fn standalone() -> Self {
        Self::new(Kind::Standalone, Vec::new())
    }

    /// The answer to a POST with these requests.
    pub const fn post(asked: Vec<RequestId>) -> Self {
        Self::new(Kind::Post, asked)
    }

    /// The one stream of a session over HTTP+SSE, which carries the answers of all its POSTs.
    pub fn http_sse() -> Self {
        Self {
            carried: Some(Box::default()),
            ..Self::new(Kind::HttpSse, Vec::new())
        }
    }

    const fn new(kind: Kind, asked: Vec<RequestId>) -> Self {
        let open = asked.len();
        Self {
            kind,
            phase: Phase::Open,
            connection: Connection::First,
            asked,
            open,
            answers: Vec::new(),
            pending: Vec::new(),
            places: Vec::new(),
            displaced: Vec::new(),
            carried: None,
        }
    }

    /// Whether nothing follows.
    pub const fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Over => true,
        }
    }

    /// The requests that are not answered yet.
    pub fn open_ids(&self) -> &[RequestId] {
        match &self.carried {
            Some(carried) => carried.open(),
            None => &self.asked[..self.open],
        }
    }

    /// The backend's requests on this stream that the client has not answered, oldest first, at most
    /// [`SERVER_REQUESTS_MAX`]. If the stream dies, they are withdrawn.
    pub fn pending_ids(&self) -> &[RequestId] {
        &self.pending
    }

    /// Decides what one event does that has data. `event` is its type, empty for `message`.
    pub fn take(&mut self, kind: &EventKind<'_>, event: &[u8], agent: Agent) -> Take {
        if self.is_over() {
            return Take::Drop(Dropped::AfterEnd);
        }
        match event {
            b"" | b"message" => {}
            // Where the backend wants its POSTs is not the client's to know.
            ENDPOINT if self.kind == Kind::HttpSse => return Take::Drop(Dropped::UnknownType),
            _ if agent.bears_other_types() => return Take::Append,
            _ => return Take::Drop(Dropped::UnknownType),
        }
        match kind {
            EventKind::Notification | EventKind::Other => Take::Append,
            EventKind::Request { id, method: _ } => {
                self.wait_for(id);
                Take::Append
            }
            EventKind::Response(id) => match self.kind {
                Kind::Standalone => Take::Append,
                Kind::Post => self.respond(id),
                Kind::HttpSse => self.carry(id),
            },
            EventKind::Batch(messages) => match self.kind {
                Kind::Standalone => Take::Append,
                Kind::Post => self.take_batch(messages),
                Kind::HttpSse => self.carry_batch(messages),
            },
        }
    }

    /// A request of the backend's that was taken stands in the log at `at`, alone in its event.
    pub fn placed(&mut self, id: &RequestId, at: Seq) {
        if let Some((_, place)) = self
            .pending
            .iter()
            .zip(&mut self.places)
            .rfind(|(pending, _)| *pending == id)
        {
            *place = Some(at);
        }
    }

    /// The client answered a request, perhaps one of this stream's.
    pub fn client_answered(&mut self, id: &RequestId) -> ClientAnswer {
        match self.pending.iter().position(|pending| pending == id) {
            Some(nth) => {
                self.pending.remove(nth);
                ClientAnswer::Expected {
                    at: self.places.remove(nth),
                }
            }
            None => ClientAnswer::Unexpected,
        }
    }

    /// The requests that are not waited for any more, oldest first; once. Next: each is answered with an error.
    pub fn take_displaced(&mut self) -> Vec<Displaced> {
        std::mem::take(&mut self.displaced)
    }

    /// Nobody waits for the client's answers any more, but to these requests, which it is asked again: those that had
    /// none. Where the others stand now is not known yet.
    pub fn withdraw_pending(&mut self, asked_again: &[RequestId]) -> Vec<RequestId> {
        let (kept, withdrawn) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|id| asked_again.contains(id));
        self.pending = kept;
        self.places = vec![None; self.pending.len()];
        withdrawn
    }

    /// The stream goes on from another connection to the backend, by proof (wire contract, section 8).
    pub const fn reattached(&mut self) {
        self.connection = Connection::Reattached;
    }

    /// Ends the stream: the requests that are still open, in the order in which errors answer them; none if it was over.
    /// What the backend still says is dropped. Next: [`Life::failed_at`], for each of them.
    pub fn fail(&mut self) -> Vec<RequestId> {
        if self.is_over() {
            return Vec::new();
        }
        self.phase = Phase::Over;
        if let Some(carried) = &mut self.carried {
            return carried.take_all();
        }
        let open = self.asked[..self.open].to_vec();
        // Those that are answered stand behind those that are open, the first answered last.
        self.asked[..self.open].reverse();
        self.open = 0;
        open
    }

    /// Decides what follows when the backend's stream ends (wire contract, section 7). The session's revision says
    /// whether its clients know polling.
    pub const fn source_ended(&self, how: SourceEnd, priming: Priming) -> AfterSource {
        match (self.phase, self.kind) {
            (Phase::Over, Kind::Post | Kind::Standalone | Kind::HttpSse) => AfterSource::Nothing,
            (Phase::Open, Kind::HttpSse) => AfterSource::SessionOver,
            (Phase::Open, Kind::Standalone) => AfterSource::Reopen(Reason::UpstreamGap),
            (Phase::Open, Kind::Post) => match (how, priming) {
                (SourceEnd::CleanAfterId, Priming::Yes) => AfterSource::Poll,
                (SourceEnd::CleanAfterId, Priming::No)
                | (SourceEnd::Clean | SourceEnd::Broken, Priming::Yes | Priming::No) => {
                    AfterSource::Fail(Reason::BackendLost)
                }
            },
        }
    }

    /// A response on a POST stream.
    fn respond(&mut self, id: &RequestId) -> Take {
        match self.asked.iter().position(|asked| asked == id) {
            Some(nth) if nth < self.open => self.settle(nth),
            Some(_) => Take::Drop(Dropped::LateResponse),
            None => match (self.connection, self.brings()) {
                // The others are still to come.
                (Connection::First, Answers::Several) => Take::Append,
                // As the backend would have it without us: the client sees it, and the end.
                (Connection::First, Answers::One) => {
                    self.phase = Phase::Over;
                    Take::AppendLast
                }
                (Connection::Reattached, Answers::One | Answers::Several) => {
                    Take::Drop(Dropped::StrayResponse)
                }
            },
        }
    }

    /// Notes that a request is answered; the stream is over if it was the last.
    fn settle(&mut self, nth: usize) -> Take {
        self.open -= 1;
        self.asked.swap(nth, self.open);
        if self.open > 0 {
            return Take::Append;
        }
        self.phase = Phase::Over;
        Take::AppendLast
    }

    pub(super) fn wait_for(&mut self, id: &RequestId) {
        if self.pending.len() == SERVER_REQUESTS_MAX {
            self.displaced.push(Displaced {
                id: self.pending.remove(0),
                at: self.places.remove(0),
            });
        }
        self.pending.push(id.clone());
        self.places.push(None);
    }
}

/// The id of a backend's `ping`. The proxy answers it while no client is attached (wire contract, section 7).
pub fn backend_ping<'a>(kind: &'a EventKind<'_>) -> Option<&'a RequestId> {
    match kind {
        EventKind::Request { id, method } if method == "ping" => Some(id),
        EventKind::Request { .. }
        | EventKind::Notification
        | EventKind::Response(_)
        | EventKind::Batch(_)
        | EventKind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::epoch::Epoch;
    use crate::pure::rpc::classify_event;

    fn id(raw: &str) -> RequestId {
        RequestId::from_raw(raw.as_bytes()).unwrap()
    }

    fn post(ids: &[&str]) -> Life {
        Life::post(ids.iter().map(|raw| id(raw)).collect())
    }

    fn result(id: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    }

    /// Runs events (type, data) and compares what each does.
    fn check(mut life: Life, agent: Agent, events: &[(&str, String, Take)]) -> Life {
        for (event, data, expected) in events {
            let kind = classify_event(data.as_bytes());
            assert_eq!(
                life.take(&kind, event.as_bytes(), agent),
                *expected,
                "{event:?} {data}"
            );
        }
        life
    }

    const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    const SAMPLING: &str = r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage"}"#;
    const LATE: Take = Take::Drop(Dropped::LateResponse);
    const AFTER_END: Take = Take::Drop(Dropped::AfterEnd);

    #[test]
    fn a_post_stream_is_over_with_its_last_response() {
        let progress = || PROGRESS.to_owned();
        let life = check(
            post(&["7"]),
            Agent::Other,
            &[
                ("", progress(), Take::Append),
                ("message", SAMPLING.to_owned(), Take::Append),
                ("message", result("7"), Take::AppendLast),
                ("message", result("7"), AFTER_END),
                ("", progress(), AFTER_END),
            ],
        );
        assert!(life.is_over() && life.open_ids().is_empty());
        assert_eq!(life.pending_ids(), [id("9")]);
    }

    /// The stream of a whole session goes on whatever is answered on it, and ends with its backend only.
    #[test]
    fn a_sessions_stream_carries_every_answer() {
        let mut life = Life::http_sse();
        let post = Epoch::from_random;
        assert_eq!(life.begin(&[id("1")], post(1), 4), Ok(()));
        assert_eq!(life.begin(&[id("2"), id("3")], post(2), 4), Ok(()));
        assert_eq!(
            life.begin(&[id("4"), id("5")], post(3), 4)
                .map_err(|full| full.running),
            Err(3)
        );
        assert_eq!(life.fail_post(post(1)), [id("1")]);
        let own = result(r#""throughline-proof""#);
        let batch = |ids: &[&str]| {
            format!(
                "[{}]",
                ids.iter().map(|id| result(id)).collect::<Vec<_>>().join(",")
            )
        };
        let mut life = check(
            life,
            Agent::Other,
            &[
                ("message", PROGRESS.to_owned(), Take::Append),
                ("message", result("2"), Take::Append),
                // Answered here before; once.
                ("message", result("1"), LATE),
                ("message", result("1"), Take::Append),
                ("", own, Take::Drop(Dropped::Own)),
                (
                    "endpoint",
                    "/elsewhere".to_owned(),
                    Take::Drop(Dropped::UnknownType),
                ),
                ("", batch(&["3"]), Take::Append),
                ("", SAMPLING.to_owned(), Take::Append),
            ],
        );
        assert_eq!(life.take_settled(), [post(2)]);
        assert_eq!((life.open_ids(), life.pending_ids()), (&[][..], &[id("9")][..]));
        assert_eq!(life.begin(&[id("6"), id("7")], post(4), 4), Ok(()));
        life.cancel(&id("6"));
        for how in [SourceEnd::Clean, SourceEnd::CleanAfterId, SourceEnd::Broken] {
            assert_eq!(life.source_ended(how, Priming::Yes), AfterSource::SessionOver);
        }
        assert_eq!(life.fail(), [id("7")]);
        assert!(life.is_over() && life.begin(&[id("8")], post(5), 4).is_err());
        assert_eq!(
            life.source_ended(SourceEnd::Broken, Priming::No),
            AfterSource::Nothing
        );
    }

    #[test]
    fn what_a_client_of_a_batch_can_not_be_given() {
        let mut life = post(&["1", "2", "3", "4"]);
        for (data, at) in [
            (result("3"), 2),
            (format!("[{},{}]", result("1"), result("4")), 5),
        ] {
            life.take(&classify_event(data.as_bytes()), b"", Agent::Other);
            life.answered_at(Seq::new(at));
        }
        let check = |had: u64, held: u64, expected: &[&str]| {
            let expected: Vec<RequestId> = expected.iter().map(|raw| id(raw)).collect();
            assert_eq!(
                life.answers_between(Seq::new(had), Seq::new(held)),
                expected,
                "{had} {held}"
            );
        };
        check(0, 6, &["4", "1", "3"]);
        check(0, 5, &["3"]);
        check(0, 2, &[]);
        check(2, 9, &["4", "1"]);
        check(5, 9, &[]);
        // One more is answered by the error that ends the stream.
        let mut life = post(&["1", "2", "3"]);
        life.take(&classify_event(result("2").as_bytes()), b"", Agent::Other);
        life.answered_at(Seq::new(1));
        assert_eq!(life.fail(), [id("1"), id("3")]);
        life.failed_at(Seq::new(4));
        life.failed_at(Seq::new(5));
        assert_eq!(life.brings(), Answers::Several);
        assert_eq!(life.answers_between(Seq::START, Seq::new(5)), [id("1"), id("2")]);
        assert_eq!(life.answers_between(Seq::new(1), Seq::new(9)), [id("3"), id("1")]);
        let mut single = post(&["1"]);
        single.take(&classify_event(result("1").as_bytes()), b"", Agent::Other);
        single.answered_at(Seq::new(1));
        assert_eq!(single.answers_between(Seq::START, Seq::new(9)), []);
    }

    #[test]
    fn one_of_a_batch_may_be_withdrawn() {
        let mut life = post(&["1", "2"]);
        assert_eq!(life.withdraw(&id("9")), Withdrawn::NotOpen);
        assert_eq!(life.withdraw(&id("1")), Withdrawn::One);
        assert_eq!(life.withdraw(&id("1")), Withdrawn::NotOpen);
        let mut life = check(life, Agent::Other, &[("", result("1"), LATE)]);
        assert_eq!(life.withdraw(&id("2")), Withdrawn::All);
        assert_eq!(life.open_ids(), [id("2")], "its error is still to be said");
    }

    #[test]
    fn what_came_late_is_found_among_others() {
        let mut life = post(&["1", "2", "3"]);
        life.take(&classify_event(result("2").as_bytes()), b"", Agent::Other);
        let several = format!("[{},{},{PROGRESS},{}]", result("2"), result("1"), result("9"));
        let EventKind::Batch(messages) = classify_event(several.as_bytes()) else {
            panic!("a batch");
        };
        assert_eq!(life.late_among(&messages), [0]);
        assert_eq!(post(&["1"]).late_among(&messages), [0; 0]);
    }

    #[test]
    fn an_answer_to_nobody_does_not_end_a_batch() {
        let life = check(
            post(&["1", "2"]),
            Agent::Other,
            &[
                ("", result("9"), Take::Append),
                ("", result("1"), Take::Append),
                ("", result("2"), Take::AppendLast),
            ],
        );
        assert!(life.is_over());
    }

    #[test]
    fn each_request_is_answered_once() {
        let life = check(
            post(&["1", r#""a""#, "3"]),
            Agent::Other,
            &[
                ("", result(r#""a""#), Take::Append),
                ("", result(r#""a""#), LATE),
                ("", format!("[{},{}]", result("3"), PROGRESS), Take::Append),
                ("", format!("[{},{}]", result("3"), result(r#""\u0061""#)), LATE),
                ("", result("3"), LATE),
                ("", result("1"), Take::AppendLast),
            ],
        );
        assert!(life.is_over());
        let life = check(
            post(&["1"]),
            Agent::Other,
            &[("", format!("[{}]", result("1")), Take::AppendLast)],
        );
        assert!(life.is_over());
    }

    #[test]
    fn an_unexpected_response_passes_once_and_only_on_the_first_connection() {
        let first = check(post(&["1"]), Agent::Other, &[("", result("2"), Take::AppendLast)]);
        assert!(first.is_over());
        let mut again = post(&["1"]);
        again.reattached();
        let stray = Take::Drop(Dropped::StrayResponse);
        let again = check(
            again,
            Agent::Other,
            &[("", result("2"), stray), ("", result("1"), Take::AppendLast)],
        );
        assert!(again.is_over());
        let get = check(
            Life::standalone(),
            Agent::Other,
            &[
                ("", result("2"), Take::Append),
                ("", format!("[{}]", result("2")), Take::Append),
            ],
        );
        assert!(!get.is_over());
    }

    #[test]
    fn unknown_types_pass_unread_but_not_to_java() {
        let check_type = |agent, expected| {
            // Clients that ignore the type do not see a response in it.
            let life = check(post(&["1"]), agent, &[("custom", result("1"), expected)]);
            assert_eq!(life.open_ids().len(), 1);
        };
        check_type(Agent::Other, Take::Append);
        check_type(Agent::CSharp, Take::Append);
        check_type(Agent::Java, Take::Drop(Dropped::UnknownType));
    }

    #[test]
    fn what_is_no_json_rpc_passes() {
        check(
            post(&["1"]),
            Agent::Other,
            &[
                ("", "hello".to_owned(), Take::Append),
                (
                    "",
                    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#.to_owned(),
                    Take::Append,
                ),
            ],
        );
    }

    #[test]
    fn a_failed_stream_names_what_is_open_and_takes_nothing_more() {
        let mut life = check(
            post(&["1", "2", "3"]),
            Agent::Other,
            &[("", result("1"), Take::Append)],
        );
        let mut failed = life.fail();
        failed.sort_by_key(|id| id.as_str().to_owned());
        assert_eq!(failed, [id("2"), id("3")]);
        assert_eq!(life.fail(), []);
        check(life, Agent::Other, &[("", result("2"), AFTER_END)]);
    }

    #[test]
    fn pending_requests_are_bounded_and_forgotten_when_answered() {
        let mut life = Life::standalone();
        for n in 0..SERVER_REQUESTS_MAX + 2 {
            let data = format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"roots/list"}}"#);
            assert_eq!(
                life.take(&classify_event(data.as_bytes()), b"", Agent::Other),
                Take::Append
            );
        }
        assert_eq!(life.pending_ids().len(), SERVER_REQUESTS_MAX);
        assert_eq!(life.pending_ids()[0], id("2"));
        life.placed(&id("2"), Seq::new(7));
        life.placed(&id(r#""nobody's""#), Seq::new(8));
        let expected = |at| ClientAnswer::Expected { at };
        assert_eq!(life.client_answered(&id("2")), expected(Some(Seq::new(7))));
        assert_eq!(life.client_answered(&id("2")), ClientAnswer::Unexpected);
        assert_eq!(life.pending_ids()[0], id("3"));
        assert_eq!(life.client_answered(&id("3")), expected(None));
        let withdrawn = life.withdraw_pending(&[id("5"), id("6000")]);
        assert_eq!(
            (withdrawn.len(), withdrawn.contains(&id("5"))),
            (SERVER_REQUESTS_MAX - 3, false)
        );
        assert_eq!(life.client_answered(&id("5")), expected(None));
        assert!(life.pending_ids().is_empty());
    }

    #[test]
    fn the_end_of_a_backends_stream_has_one_consequence() {
        let over = || {
            let mut life = post(&["1"]);
            life.fail();
            life
        };
        let lost = AfterSource::Fail(Reason::BackendLost);
        let reopen = AfterSource::Reopen(Reason::UpstreamGap);
        for (life, how, priming, expected) in [
            (
                post(&["1"]),
                SourceEnd::CleanAfterId,
                Priming::Yes,
                AfterSource::Poll,
            ),
            (post(&["1"]), SourceEnd::CleanAfterId, Priming::No, lost),
            (post(&["1"]), SourceEnd::Clean, Priming::Yes, lost),
            (post(&["1"]), SourceEnd::Broken, Priming::Yes, lost),
            (over(), SourceEnd::Broken, Priming::Yes, AfterSource::Nothing),
            (Life::standalone(), SourceEnd::CleanAfterId, Priming::Yes, reopen),
            (Life::standalone(), SourceEnd::Broken, Priming::No, reopen),
        ] {
            assert_eq!(life.source_ended(how, priming), expected, "{how:?} {priming:?}");
        }
    }

    #[test]
    fn a_ping_of_the_backend_is_told_from_other_requests() {
        let ping = classify_event(br#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
        assert_eq!(backend_ping(&ping), Some(&id(r#""p""#)));
        assert_eq!(backend_ping(&classify_event(SAMPLING.as_bytes())), None);
    }

    #[test]
    fn the_order_of_drops_is_that_of_their_numbers() {
        for (nth, why) in Dropped::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, nth);
        }
    }
}

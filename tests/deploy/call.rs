//! One call: its answer, or its stream, cut and resumed, to its one outcome.
//! Law: an outcome is what the client was told; a connection that ends without one is taken up again from its cursor.
//! Next: `client.rs`.

use std::time::Duration;

use reqwest::Response;
use serde_json::{Value, json};
use throughline::guard::{NoVerdict, Verdict};
use tokio::time::timeout;

use crate::client::{BOUND, Life, pace};
use crate::http::{Event, Network, Next, Stream, request, streams, verdict};
use crate::judge::{Ear, Fault, Heard, RESULT, Ran};
use crate::replica::Offers;

/// Time between two progress messages, in milliseconds.
const INTERVAL_MS: u64 = 250;
/// How long a stream may stay open behind its answer.
const BEHIND: Duration = Duration::from_secs(5);

/// How a call ended, in the client's view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With its own result.
    Result,
    /// With another result.
    Wrong(String),
    /// It was refused: the session was restarted, the call was not run.
    Refused,
    /// With an error.
    Failed {
        /// `data.reason`, or the message of an error that is not the proxy's.
        reason: String,
        /// `data.outcome`.
        outcome: String,
    },
    /// 404: the session is gone, and the call was not run.
    Gone,
    /// 404 to a resume.
    GoneLater,
    /// Another status.
    Status(u16),
    /// The connection was lost, and there was nothing to resume.
    Lost(String),
    /// Not at all.
    Never,
}

impl Outcome {
    /// In words that are counted.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Result => RESULT.to_owned(),
            Self::Wrong(_) => "wrong result".to_owned(),
            Self::Refused => "refused".to_owned(),
            Self::Failed { reason, outcome } => format!("error {reason} {outcome}"),
            Self::Gone => "gone".to_owned(),
            Self::GoneLater => "gone on resume".to_owned(),
            Self::Status(status) => format!("status {status}"),
            Self::Lost(how) => format!("lost: {how}"),
            Self::Never => "never".to_owned(),
        }
    }

    /// The same, with what else is known.
    pub(crate) fn evidence(&self) -> String {
        match self {
            Self::Wrong(text) => format!("wrong result: {text}"),
            Self::Result
            | Self::Refused
            | Self::Failed { .. }
            | Self::Gone
            | Self::GoneLater
            | Self::Status(_)
            | Self::Lost(_)
            | Self::Never => self.words(),
        }
    }

    /// What is wrong with it.
    pub(crate) const fn fault(&self) -> Option<Fault> {
        match self {
            Self::Result | Self::Refused | Self::Failed { .. } | Self::Gone | Self::GoneLater => None,
            Self::Wrong(_) => Some(Fault::Crossed),
            Self::Status(_) => Some(Fault::Forbidden),
            Self::Lost(_) | Self::Never => Some(Fault::NoOutcome),
        }
    }

    /// What it says of whether the call ran.
    pub(crate) fn ran(&self) -> Ran {
        match self {
            Self::Result => Ran::Yes,
            Self::Refused | Self::Gone => Ran::No,
            Self::Failed { outcome, .. } if outcome == "not_executed" => Ran::No,
            Self::Failed { .. }
            | Self::Wrong(_)
            | Self::GoneLater
            | Self::Status(_)
            | Self::Lost(_)
            | Self::Never => Ran::Perhaps,
        }
    }

    /// Whether the client must begin anew.
    pub(crate) const fn ends_session(&self) -> bool {
        match self {
            Self::Gone | Self::GoneLater => true,
            Self::Result
            | Self::Wrong(_)
            | Self::Refused
            | Self::Failed { .. }
            | Self::Status(_)
            | Self::Lost(_)
            | Self::Never => false,
        }
    }
}

/// A call under way.
struct Call<'a> {
    life: &'a Life,
    tag: &'a str,
    id: u64,
    ear: Ear,
    cursor: Option<String>,
    retry: Duration,
    outcome: Option<Outcome>,
}

/// What ends a connection of a call's stream.
enum Left {
    /// The stream did.
    Ended,
    /// The client's own network.
    Cut,
}

impl Life {
    /// Calls the slow tool, with so many steps of progress.
    pub(crate) async fn call(&self, tag: &str, steps: u64) -> Outcome {
        let (tool, arguments) = order(self.slow, tag, steps);
        let mut call = Call::new(self, tag);
        call.ear.expect(tag, steps);
        let outcome = call.within_bound(tool, arguments).await;
        if let (Outcome::Result, Heard::Waiting) = (&outcome, call.ear.stands(tag)) {
            self.account.found((Fault::Silent, call.ear.evidence(tag)));
        }
        outcome
    }

    /// Asks for a round of notifications.
    pub(crate) async fn emit(&self, tag: &str, n: u64, interval_ms: u64) -> Outcome {
        let arguments = json!({ "tag": tag, "n": n, "interval_ms": interval_ms });
        Call::new(self, tag).within_bound("emit", arguments).await
    }
}

/// The slow tool and its arguments.
pub(crate) fn order(slow: Slow, tag: &str, steps: u64) -> (&'static str, Value) {
    match slow {
        Slow::Ours => {
            let arguments = json!({ "tag": tag, "steps": steps, "interval_ms": INTERVAL_MS });
            ("slow", arguments)
        }
        // It steps over the tag, which is for the ledger.
        Slow::Everything => {
            let duration = (steps * INTERVAL_MS) as f64 / 1000.0;
            let arguments = json!({ "tag": tag, "steps": steps, "duration": duration });
            ("trigger-long-running-operation", arguments)
        }
    }
}

/// Which tool is the slow one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slow {
    /// `slow`.
    Ours,
    /// `trigger-long-running-operation`.
    Everything,
}

impl Slow {
    /// That of servers with these offers.
    pub(crate) const fn of(offers: Offers) -> Self {
        match offers {
            Offers::Calls => Self::Everything,
            Offers::CallsAndNotes => Self::Ours,
        }
    }
}

impl<'a> Call<'a> {
    fn new(life: &'a Life, tag: &'a str) -> Self {
        Self {
            life,
            tag,
            id: life.next_id(),
            ear: Ear::default(),
            cursor: None,
            retry: Duration::from_secs(1),
            outcome: None,
        }
    }

    async fn within_bound(&mut self, tool: &str, arguments: Value) -> Outcome {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": self.tag } });
        let message = request(self.id, "tools/call", params);
        match timeout(BOUND, self.until_its_end(&message)).await {
            Ok(outcome) => outcome,
            Err(_) => self.outcome.clone().unwrap_or(Outcome::Never),
        }
    }

    async fn until_its_end(&mut self, message: &Value) -> Outcome {
        // One in six is cut by the client's own network.
        let mut cut = (self.life.roll(6) == 0).then(|| 1 + self.life.roll(4));
        let network = match cut {
            Some(_) => Network::Failing,
            None => Network::Sound,
        };
        let answer = match self.life.voice.post(message, network).await {
            Ok(answer) => answer,
            Err(error) => return Outcome::Lost(format!("before any answer: {error}")),
        };
        match answer.status().as_u16() {
            200 => {}
            404 => return Outcome::Gone,
            status => return Outcome::Status(status),
        }
        if !streams(&answer) {
            let body: Value = match answer.bytes().await {
                Ok(body) => serde_json::from_slice(&body).unwrap_or_default(),
                Err(error) => return Outcome::Lost(format!("in its answer: {error}")),
            };
            return self.outcome_of(&body);
        }
        let verdict = verdict(answer.headers());
        if !matches!(verdict, Ok(Verdict::Live { .. })) {
            self.found(Fault::Forbidden, &format!("its stream says {verdict:?}"));
        }
        let mut answer = answer;
        loop {
            match self.read(Stream::of(answer), cut.take()).await {
                Left::Cut => self.life.account.count("own cuts"),
                Left::Ended => {}
            }
            if let Some(outcome) = self.outcome.take() {
                return outcome;
            }
            pace(self.retry).await;
            answer = match self.resume().await {
                Ok(answer) => answer,
                Err(outcome) => return outcome,
            };
        }
    }

    /// Takes the stream up again.
    async fn resume(&mut self) -> Result<Response, Outcome> {
        let Some(cursor) = self.cursor.clone() else {
            return Err(Outcome::Lost("before any id".to_owned()));
        };
        let answer = match self.life.voice.get(Some(&cursor)).await {
            Ok(answer) => answer,
            Err(error) => return Err(Outcome::Lost(format!("on resume: {error}"))),
        };
        match (answer.status().as_u16(), verdict(answer.headers())) {
            (200, Ok(Verdict::Resumed { .. })) => self.life.account.count("resumed"),
            (200, Ok(Verdict::Reset { reason, .. })) => {
                self.life.account.count(&format!("reset {reason}"));
                self.ear.told();
            }
            (200, Err(NoVerdict::Absent)) => self.life.account.count("held without a verdict"),
            (200, verdict) => self.found(Fault::Forbidden, &format!("its resume says {verdict:?}")),
            (404, _) => return Err(Outcome::GoneLater),
            (status, _) => return Err(Outcome::Lost(format!("{status} on resume from {cursor}"))),
        }
        Ok(answer)
    }

    /// One connection, to its end or to the client's own cut.
    async fn read(&mut self, mut stream: Stream, cut_after: Option<u64>) -> Left {
        let mut events = 0;
        loop {
            let next = match self.outcome {
                None => stream.next().await,
                // What comes behind the answer is looked at too.
                Some(_) => match timeout(BEHIND, stream.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        self.life.account.count("open behind its answer");
                        return Left::Ended;
                    }
                },
            };
            match next {
                Next::Event(event) => self.take(&event),
                Next::End => return Left::Ended,
                Next::Broken => {
                    self.life.account.count("answer broken");
                    return Left::Ended;
                }
            }
            events += 1;
            if self.outcome.is_none() && cut_after == Some(events) {
                return Left::Cut;
            }
        }
    }

    fn take(&mut self, event: &Event) {
        if event.id.is_some() {
            self.cursor.clone_from(&event.id);
        }
        if let Some(retry) = event.retry {
            self.retry = Duration::from_millis(retry);
        }
        let message = &event.message;
        let params = &message["params"];
        match message["method"].as_str() {
            Some("notifications/progress") => {
                let (token, step) = (params["progressToken"].as_str(), params["progress"].as_f64());
                match (token, step) {
                    (Some(token), Some(step)) if token == self.tag => {
                        if let Err(found) = self.ear.hear(token, step as u64) {
                            self.life.account.found(found);
                        }
                    }
                    _ => self.found(Fault::Crossed, &format!("progress {params}")),
                }
            }
            Some("notifications/message") if params["logger"] == "throughline" => self.ear.told(),
            Some("notifications/message") if params["data"]["tag"].is_string() => {
                self.found(Fault::Crossed, &format!("a note on its stream: {params}"));
            }
            Some(_) => {}
            None if message["id"].is_null() => {}
            None if self.outcome.is_some() => {
                self.found(Fault::Repeated, &format!("a second answer: {message}"))
            }
            None if message["id"] == self.id => self.outcome = Some(self.outcome_of(message)),
            None => self.found(Fault::Crossed, &format!("an answer of another: {message}")),
        }
    }

    fn outcome_of(&self, message: &Value) -> Outcome {
        let (error, result) = (&message["error"], &message["result"]);
        if error.is_object() {
            let word =
                |value: &Value, other: &Value| value.as_str().or(other.as_str()).unwrap_or("?").to_owned();
            return Outcome::Failed {
                reason: word(&error["data"]["reason"], &error["message"]),
                outcome: word(&error["data"]["outcome"], &Value::Null),
            };
        }
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        let whole = [":done", ":emitting"]
            .iter()
            .any(|end| text == format!("{}{end}", self.tag));
        if result["isError"] == true && text.contains("session was restarted") {
            Outcome::Refused
        } else if whole || (self.life.slow == Slow::Everything && text.contains("completed")) {
            Outcome::Result
        } else {
            Outcome::Wrong(message.to_string())
        }
    }

    fn found(&self, fault: Fault, what: &str) {
        self.life.account.found((fault, format!("{}: {what}", self.tag)));
    }
}

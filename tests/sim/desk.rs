//! What a client of HTTP+SSE (2024-11-05) knows of one session: where it POSTs, what it had of the stream, what it waits for.
//! Law: one epoch, dense from its first event to its last; the endpoint comes first on each connection and is always the
//! same; each call has one outcome, and each numbered message its place (wire contract, section 10). There is no reset.
//! Next: `elder.rs`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::http::{Event, Head};
use crate::oracle::{Oracle, Outcome, Process};
use crate::plant::Plant;
use crate::trail::outcome_of;

/// How a client stands to its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Alive,
    /// It was told 404: the session is over, and it knows.
    Gone,
    /// It came back without a cursor: what it missed is lost to it, and it knows.
    Left,
}

/// A call whose outcome is awaited.
struct Call {
    token: String,
    steps: u64,
    step: u64,
    is_told: bool,
    is_given_up: bool,
}

/// Whether the connection has said where to POST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Greeting {
    Due,
    Had,
}

/// One session, as its client has it.
pub(crate) struct Desk {
    label: String,
    /// Its number among its client's sessions.
    nth: u32,
    /// Where its client POSTs, once that was said.
    pub(crate) endpoint: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) standing: Standing,
    prefix: Option<String>,
    seq: u64,
    greeting: Greeting,
    calls: BTreeMap<u64, Call>,
    /// All its calls were made.
    pub(crate) has_called: bool,
    note: Option<u64>,
    /// Its last event came.
    is_ended: bool,
}

/// What an event asks of its client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    Nothing,
    /// An answer to this request of the backend's.
    Answer(String),
}

impl Desk {
    pub(crate) fn new(label: &str, nth: u32) -> Self {
        Self {
            label: label.to_owned(),
            nth,
            endpoint: None,
            cursor: None,
            standing: Standing::Alive,
            prefix: None,
            seq: 0,
            greeting: Greeting::Due,
            calls: BTreeMap::new(),
            has_called: false,
            note: None,
            is_ended: false,
        }
    }

    fn name(&self) -> String {
        format!("{} session {}", self.label, self.nth)
    }

    fn wrong(&self, oracle: &Oracle, what: &str) {
        oracle.violated(format!("{}: {what}", self.name()));
    }

    /// The newest note that it had, if any.
    pub(crate) const fn note(&self) -> Option<u64> {
        self.note
    }

    /// A call is about to be sent.
    pub(crate) fn calls(&mut self, id: u64, token: &str, steps: u64) {
        let call = Call {
            token: token.to_owned(),
            steps,
            step: 0,
            is_told: false,
            is_given_up: false,
        };
        self.calls.insert(id, call);
    }

    /// Its client waits for a call no more, for a reason of its own. What is said of it is still heard.
    pub(crate) fn gives_up(&mut self, oracle: &Oracle, id: u64, why: &str) {
        if let Some(call) = self.calls.get_mut(&id).filter(|call| !call.is_told) {
            call.is_given_up = true;
            oracle.gave_up(&call.token, why);
        }
    }

    /// A call has this outcome, by its POST: nobody asks any more what was said of it to whom its session was over before.
    pub(crate) fn told(&mut self, oracle: &Oracle, id: u64, outcome: Outcome) {
        if self.standing == Standing::Alive {
            self.tell(oracle, id, outcome);
        }
    }

    fn tell(&mut self, oracle: &Oracle, id: u64, outcome: Outcome) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.is_told = true;
            oracle.told(&call.token, outcome);
        }
    }

    /// The tokens of those that are waited for.
    pub(crate) fn awaited(&self) -> Vec<String> {
        let waits = |call: &&Call| !call.is_told && !call.is_given_up;
        self.calls
            .values()
            .filter(waits)
            .map(|call| call.token.clone())
            .collect()
    }

    /// The session is over for its client; so is every call that it waits for.
    pub(crate) fn ended(&mut self, oracle: &Oracle, standing: Standing) {
        if self.standing != Standing::Alive {
            return;
        }
        self.standing = standing;
        oracle.saw(format!("{} ended: {standing:?}", self.name()));
        let open: Vec<u64> = self.calls.keys().copied().collect();
        for id in open {
            match standing {
                Standing::Gone if self.is_awaited(id) => {
                    self.tell(oracle, id, Outcome::Unknown("session gone".to_owned()));
                }
                Standing::Left => self.gives_up(oracle, id, "its client came without a cursor"),
                Standing::Alive | Standing::Gone => {}
            }
        }
    }

    fn is_awaited(&self, id: u64) -> bool {
        self.calls
            .get(&id)
            .is_some_and(|call| !call.is_told && !call.is_given_up)
    }

    /// A connection was answered with a stream.
    pub(crate) fn opened(
        &mut self,
        oracle: &Oracle,
        (head, by): (&Head, Option<Process>),
        asked: Option<&str>,
    ) {
        let verdict = head.field("throughline-continuity").unwrap_or_default();
        oracle.saw(format!("{}: {verdict} by {by:?} for {asked:?}", self.name()));
        self.greeting = Greeting::Due;
        let epoch = asked.and_then(|asked| asked.get(1..12));
        match (verdict.split(';').next().unwrap_or_default(), epoch) {
            ("live", None) => oracle.counted("elder sessions"),
            ("resumed", Some(epoch)) if verdict.contains(&format!("epoch=\"{epoch}\"")) => {
                oracle.counted("elders resumed");
                oracle.resumed(by, epoch);
            }
            // Held until its backend has judged its credential; what follows is the answer.
            ("", Some(_)) => oracle.counted("held unproved"),
            _ => self.wrong(oracle, &format!("was answered {verdict:?}, asked from {asked:?}")),
        }
    }

    /// An event came.
    pub(crate) fn took(&mut self, oracle: &Oracle, event: &Event, plant: Plant) -> Wanted {
        let data = event.data.as_deref().unwrap_or_default();
        let Some(id) = &event.id else {
            // A block without data says when to come back.
            if event.data.is_some() {
                self.wrong(oracle, &format!("an event without an id: {event:?}"));
            }
            return Wanted::Nothing;
        };
        oracle.saw(format!("{} < {id} {data}", self.name()));
        let Some((prefix, position)) = id.rsplit_once('.') else {
            self.wrong(oracle, &format!("{id} is no event id"));
            return Wanted::Nothing;
        };
        let number = position.split_once('-').map_or(position, |(at, _)| at);
        let seq = number.trim_end_matches('~').parse::<u64>().unwrap_or(u64::MAX);
        if self.is_ended {
            self.wrong(oracle, &format!("an event after the end: {event:?}"));
        }
        self.is_ended = number.ends_with('~');
        let is_greeting = event.event.as_deref() == Some("endpoint");
        if is_greeting != (self.greeting == Greeting::Due) {
            self.wrong(oracle, "the endpoint comes first, and once on a connection");
        }
        self.greeting = Greeting::Had;
        if self.prefix.as_deref().is_some_and(|known| known != prefix) {
            self.wrong(oracle, "another epoch, and nothing was said");
        }
        let step = u64::from(!is_greeting);
        if seq != self.seq + step {
            self.wrong(oracle, &format!("position {seq} after {}", self.seq));
        }
        (self.prefix, self.seq, self.cursor) = (Some(prefix.to_owned()), seq, Some(id.clone()));
        if is_greeting {
            self.greeted(oracle, data);
            return Wanted::Nothing;
        }
        oracle.shown(id.get(1..12).unwrap_or_default(), seq);
        self.meant(oracle, &serde_json::from_str(data).unwrap_or(Value::Null), plant)
    }

    fn greeted(&mut self, oracle: &Oracle, endpoint: &str) {
        match &self.endpoint {
            Some(known) if known != endpoint => self.wrong(oracle, "another endpoint, and nothing was said"),
            Some(_) => {}
            None if !endpoint.starts_with("/mcp?sessionId=t1") => {
                self.wrong(oracle, &format!("a strange endpoint: {endpoint}"));
            }
            None => self.endpoint = Some(endpoint.to_owned()),
        }
    }

    fn meant(&mut self, oracle: &Oracle, message: &Value, plant: Plant) -> Wanted {
        match message["method"].as_str() {
            Some("notifications/progress") => self.progressed(oracle, &message["params"]),
            Some("notifications/message") if message["params"]["logger"] == "backend" => {
                self.noted(oracle, &message["params"]["data"]);
            }
            Some(_) if message.get("id").is_some() => return Wanted::Answer(message["id"].to_string()),
            Some(_) => self.wrong(oracle, &format!("nobody said {message}")),
            None if message["id"] == 0 => {}
            None => self.answered(oracle, message, plant),
        }
        Wanted::Nothing
    }

    fn progressed(&mut self, oracle: &Oracle, params: &Value) {
        let (token, step) = (&params["progressToken"], params["progress"].as_u64());
        let Some(call) = self.calls.values_mut().find(|call| *token == *call.token) else {
            return self.wrong(oracle, &format!("progress of {token} came here"));
        };
        call.step += 1;
        if step != Some(call.step) {
            let what = format!("step {step:?} of {token} in place of {}", call.step);
            self.wrong(oracle, &what);
        }
    }

    fn noted(&mut self, oracle: &Oracle, note: &Value) {
        let number = note["seq"].as_u64();
        let is_next = self.note.is_none_or(|before| number == Some(before + 1));
        if note["tag"] != self.label.as_str() || !is_next {
            self.wrong(oracle, &format!("the note {note} came after {:?}", self.note));
        }
        self.note = number;
    }

    fn answered(&mut self, oracle: &Oracle, message: &Value, plant: Plant) {
        let id = message["id"].as_u64().unwrap_or(u64::MAX);
        let Some(call) = self.calls.get_mut(&id) else {
            return self.wrong(oracle, &format!("a response to nothing: {message}"));
        };
        let outcome = outcome_of(oracle, &call.token, message);
        call.is_told = true;
        let (token, step, steps) = (call.token.clone(), call.step, call.steps);
        if outcome == Outcome::Result && step != steps {
            self.wrong(oracle, &format!("{token} ended after step {step} of {steps}"));
        }
        oracle.told(&token, plant.outcome(outcome));
    }
}

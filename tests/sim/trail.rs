//! What one client has had of one stream, over all its connections, and what may come next.
//! Law: dense within an epoch; another epoch only where a reset was said; no hole in what the backend numbered but
//! where a reset was said; nothing twice, nothing of another stream, nothing after the end (wire contract, 4 to 6).
//! Next: `client.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::http::{Event, Head};
use crate::oracle::{Oracle, Outcome, Process};

/// Which stream it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The answer to the call of this token, with so many notes of progress.
    Answer { token: String, id: u64, steps: u64 },
    /// The standalone stream.
    Notes,
}

/// Whether continuity was said to be lost since the last numbered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Nothing,
    Reset,
}

/// Whether a connection's head says what its client may conclude, or a reset does among the events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdicts {
    /// Once a process of the proxy knows that the backend takes the client's credential (wire contract, 9).
    OnceProved,
    /// It always does.
    InHeads,
    /// Not where a proxy lost its memory, and holds a client until the backend has spoken. Behind a reset, what the server
    /// says again may come again.
    PerhapsLater,
}

/// Which process of the proxy answers a client, and to which credential.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedBy {
    pub(crate) process: Process,
    pub(crate) credential: u64,
    /// Its session was shown no more credentials than a proxy remembers of one.
    pub(crate) is_kept: bool,
}

/// Whether the connection's verdict was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// In the head of its answer.
    Said,
    /// It comes in band, if there is anything to say.
    InBand,
    /// Another epoch began: the next event says why.
    Owed,
}

/// What an event meant to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    Nothing,
    Ended(Outcome),
    /// A request of the backend's, with its id as it stands.
    Asked(String),
}

/// One stream as its client has it.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    /// The client's name, and that of everything numbered for it.
    label: String,
    kind: Kind,
    prefix: Option<String>,
    seq: u64,
    /// What the client would present.
    pub(crate) cursor: Option<String>,
    number: u64,
    said: Said,
    /// Without a cursor, what was never acknowledged may come again.
    may_repeat: bool,
    ended: bool,
    /// How often its request was sent.
    repeated: u32,
    verdicts: Verdicts,
    /// When a process of the proxy last answered a credential with a verdict.
    proved_to: BTreeMap<(Process, u64), Instant>,
    /// What the connection that serves it has said.
    verdict: Verdict,
}

/// So long the proxy takes a credential for accepted, and a moment less.
const PROVED: Duration = Duration::from_secs(4 * 60);

impl Trail {
    pub(crate) fn new(label: &str, kind: Kind) -> Self {
        Self {
            label: label.to_owned(),
            kind,
            prefix: None,
            seq: 0,
            cursor: None,
            number: 0,
            said: Said::Nothing,
            may_repeat: false,
            ended: false,
            repeated: 0,
            verdicts: Verdicts::OnceProved,
            proved_to: BTreeMap::new(),
            verdict: Verdict::Said,
        }
    }

    fn name(&self) -> String {
        match &self.kind {
            Kind::Answer { token, .. } => token.clone(),
            Kind::Notes => format!("{} notes", self.label),
        }
    }

    fn wrong(&self, oracle: &Oracle, what: &str) {
        oracle.violated(format!("{}: {what}", self.name()));
    }

    /// The number of the last message that was numbered.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The same, where heads say so much.
    pub(crate) const fn with(mut self, verdicts: Verdicts) -> Self {
        self.verdicts = verdicts;
        self
    }

    /// How often its request was sent.
    pub(crate) const fn times_sent(&self) -> u32 {
        self.repeated
    }

    /// Whether everything that was told came, or what is missing was said.
    pub(crate) fn caught_up(&self, told: u64) -> bool {
        self.number >= told || self.said == Said::Reset
    }

    /// The client sends its request, perhaps not for the first time: it begins from nothing.
    pub(crate) fn sent(&mut self) {
        *self = Self {
            repeated: self.repeated + 1,
            verdicts: self.verdicts,
            ..Self::new(&self.label, self.kind.clone())
        };
    }

    /// A connection was answered with a stream; this cursor was asked from.
    pub(crate) fn opened(
        &mut self,
        oracle: &Oracle,
        (head, asked_by): (&Head, Option<AskedBy>),
        asked: Option<&str>,
    ) {
        let by = asked_by.map(|asked_by| asked_by.process);
        let verdict = head
            .field("throughline-continuity")
            .unwrap_or_default()
            .to_owned();
        oracle.saw(format!(
            "{}: {} {verdict} by {by:?} for {asked:?}",
            self.name(),
            head.status()
        ));
        self.verdict = Verdict::Said;
        let epoch = asked.and_then(|asked| asked.get(1..12));
        match verdict.split(';').next().unwrap_or_default() {
            "resumed" => {
                oracle.counted("resumed");
                oracle.resumed(by, epoch_of(&verdict).unwrap_or_default());
                match epoch {
                    Some(epoch) if verdict.contains(&format!("epoch=\"{epoch}\"")) => {}
                    Some(_) => self.wrong(oracle, "resumed in another epoch than asked"),
                    // A call that was sent again gets its stream from the beginning.
                    None if self.repeated > 1 => {}
                    None => self.wrong(oracle, "resumed without a cursor"),
                }
            }
            "live" => {
                if asked.is_some() {
                    self.wrong(oracle, "live, though a cursor was asked from");
                }
                if self.number > 0 {
                    self.wrong(oracle, "live, though something was written before");
                }
                self.prefix = None;
            }
            "reset" => {
                oracle.counted("reset");
                self.said = Said::Reset;
            }
            // Nothing is said yet, and the answer follows in band.
            "" if self.may_say_later(asked_by) => {
                oracle.counted("held unproved");
                self.verdict = Verdict::InBand;
            }
            _ => self.wrong(oracle, "an event stream without a verdict"),
        }
        // The head of a call's answer may come before its backend has said anything.
        let is_read_from_log = asked.is_some() || self.kind == Kind::Notes;
        if let (Some(by), true) = (asked_by, is_read_from_log && !verdict.is_empty()) {
            self.proved_to.insert((by.process, by.credential), Instant::now());
        }
        self.may_repeat = asked.is_none();
    }

    fn may_say_later(&self, asked_by: Option<AskedBy>) -> bool {
        match self.verdicts {
            Verdicts::OnceProved => !self.is_known_to(asked_by),
            Verdicts::InHeads => false,
            Verdicts::PerhapsLater => true,
        }
    }

    /// Whether this process of the proxy knows by now that the backend takes the client's credential.
    fn is_known_to(&self, by: Option<AskedBy>) -> bool {
        let by = by.filter(|by| by.is_kept);
        let at = by.and_then(|by| self.proved_to.get(&(by.process, by.credential)));
        at.is_some_and(|at| at.elapsed() < PROVED)
    }

    /// An event came.
    pub(crate) fn took(&mut self, oracle: &Oracle, event: &Event) -> Meaning {
        let Some(id) = &event.id else {
            // A block without data is no event: it says when to come back.
            if event.data.is_some() {
                self.wrong(oracle, &format!("an event without an id: {event:?}"));
            }
            return Meaning::Nothing;
        };
        oracle.saw(format!(
            "{} < {id} {}",
            self.name(),
            event.data.as_deref().unwrap_or("-")
        ));
        if self.ended {
            self.wrong(oracle, &format!("an event after the end: {event:?}"));
        }
        let data = event.data.as_deref().unwrap_or_default();
        let message: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        if is_reset(event, &message) {
            if self.said == Said::Nothing {
                oracle.counted("told of a loss");
            }
            (self.said, self.verdict) = (Said::Reset, Verdict::Said);
        }
        let Some((prefix, position)) = id.rsplit_once('.') else {
            self.wrong(oracle, &format!("{id} is no event id"));
            return Meaning::Nothing;
        };
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        let (seq, is_prime) = match position.split_once('-') {
            Some((at, _)) => (number(at), true),
            None => (number(position.trim_end_matches('~')), false),
        };
        // An error that follows from the cursor alone was never in a log.
        if let (Some(epoch), false, None) = (id.get(1..12), is_prime, message.get("error")) {
            oracle.shown(epoch, seq);
        }
        if !is_prime && self.verdict == Verdict::Owed {
            self.wrong(oracle, "another epoch, and its first event says nothing of it");
            self.verdict = Verdict::Said;
        }
        self.placed(oracle, (prefix, seq), if is_prime { 0 } else { 1 });
        self.ended = position.ends_with('~');
        self.cursor = Some(id.clone());
        if is_prime {
            return Meaning::Nothing;
        }
        self.meant(oracle, &message)
    }

    /// Where the event stands; `step` = how far it must be past the one before.
    fn placed(&mut self, oracle: &Oracle, (prefix, seq): (&str, u64), step: u64) {
        match &self.prefix {
            Some(known) if known == prefix => {
                let is_jump_said = self.said == Said::Reset && seq > self.seq;
                if seq != self.seq + step && !is_jump_said {
                    let what = format!("position {seq} after {} in one epoch", self.seq);
                    self.wrong(oracle, &what);
                }
            }
            // The priming event that comes before what says it.
            Some(_) if self.verdict == Verdict::InBand && step == 0 => self.verdict = Verdict::Owed,
            Some(_) if self.said == Said::Nothing => {
                self.wrong(oracle, "another epoch, and nothing was said");
            }
            Some(_) | None => {}
        }
        self.prefix = Some(prefix.to_owned());
        self.seq = seq;
    }

    fn meant(&mut self, oracle: &Oracle, message: &Value) -> Meaning {
        let method = message["method"].as_str().unwrap_or_default();
        match method {
            "notifications/progress" => {
                let token = message["params"]["progressToken"].as_str().unwrap_or_default();
                let step = whole(&message["params"]["progress"]);
                match &self.kind {
                    Kind::Answer { token: own, .. } if own == token => self.numbered(oracle, step),
                    Kind::Answer { .. } | Kind::Notes => {
                        self.wrong(oracle, &format!("progress of {token} came here"));
                    }
                }
                Meaning::Nothing
            }
            "notifications/message" if message["params"]["data"]["tag"].is_string() => {
                let note = &message["params"]["data"];
                if note["tag"] == self.label.as_str() && self.kind == Kind::Notes {
                    self.numbered(oracle, whole(&note["seq"]));
                } else {
                    self.wrong(oracle, &format!("the note {note} came here"));
                }
                Meaning::Nothing
            }
            "" => self.answered(oracle, message),
            _ if message.get("id").is_some() => Meaning::Asked(message["id"].to_string()),
            _ => Meaning::Nothing,
        }
    }

    /// A message that its backend numbered.
    fn numbered(&mut self, oracle: &Oracle, k: u64) {
        let next = self.number + 1;
        // One SDK's server says on a new stream what it said on the one before; a proxy without memory can't know what its
        // client had of that, and has said so.
        let is_said = self.said == Said::Reset && self.verdicts == Verdicts::PerhapsLater;
        if k < next && is_said {
            oracle.counted("again, said");
        } else if k < next && !self.may_repeat {
            self.wrong(oracle, &format!("{k} came again after {}", self.number));
        }
        if k > next && self.said == Said::Nothing {
            self.wrong(
                oracle,
                &format!("{k} came after {}, and nothing was said", self.number),
            );
        }
        if k > next {
            oracle.counted("holes said");
        }
        if k >= next {
            self.number = k;
            self.said = Said::Nothing;
            self.may_repeat = false;
        }
    }

    fn answered(&mut self, oracle: &Oracle, message: &Value) -> Meaning {
        let Kind::Answer { token, id, steps } = self.kind.clone() else {
            self.wrong(oracle, &format!("a response on the standalone stream: {message}"));
            return Meaning::Nothing;
        };
        if message["id"] != id {
            self.wrong(oracle, &format!("a response to another request: {message}"));
            return Meaning::Nothing;
        }
        let outcome = outcome_of(oracle, &token, message);
        if outcome == Outcome::Result && self.number != steps && self.said == Said::Nothing {
            self.wrong(
                oracle,
                &format!(
                    "its result came after step {} of {steps}, and nothing was said",
                    self.number
                ),
            );
        }
        Meaning::Ended(outcome)
    }
}

/// The epoch that a verdict names.
fn epoch_of(verdict: &str) -> Option<&str> {
    verdict.split_once("epoch=\"")?.1.get(..11)
}

/// A number as its server writes it: some write whole ones with a point.
fn whole(number: &Value) -> u64 {
    let float = || number.as_f64().filter(|float| float.fract() == 0.0);
    number
        .as_u64()
        .or_else(|| float().map(|float| float as u64))
        .unwrap_or(u64::MAX)
}

fn is_reset(event: &Event, message: &Value) -> bool {
    event.event.as_deref() == Some("reset")
        || message.get("error").is_some()
        || message["params"]["logger"] == "throughline"
}

/// What a response says of its request.
pub(crate) fn outcome_of(oracle: &Oracle, token: &str, message: &Value) -> Outcome {
    if let Some(error) = message.get("error") {
        let why = error["data"]["reason"].as_str().unwrap_or("no reason").to_owned();
        return match error["data"]["outcome"].as_str() {
            Some("not_executed") => Outcome::NotExecuted(why),
            Some(_) | None => Outcome::Unknown(why),
        };
    }
    let result = &message["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == true && text.contains("session was restarted") {
        return Outcome::NotExecuted("refused".to_owned());
    }
    let has_said = |how: &str| text.strip_prefix(token) == Some(how);
    if !has_said(":done") && !has_said(":emitting") {
        oracle.violated(format!("{token}: was answered with {message}"));
    }
    Outcome::Result
}

//! A batch of two calls in one POST, as clients of 2025-03-26 send it, followed to the outcome of each.
//! Law: each has one outcome, whatever becomes of the other; their events come on one stream, dense, and each call's in
//! its own order (wire contract, sections 3 to 6).
//! Next: `trail.rs`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{PATIENCE, Person};
use crate::clock::pass;
use crate::http::{Answered, Blocks, Event, Talk};
use crate::oracle::{Oracle, Outcome};
use crate::trail::outcome_of;

/// One call of a batch.
struct Part {
    id: u64,
    token: String,
    steps: u64,
    step: u64,
    /// Whether a reset was said since its last step.
    is_reset: bool,
    is_told: bool,
}

/// A batch as its client has it.
struct Batch {
    name: String,
    parts: Vec<Part>,
    prefix: Option<String>,
    seq: u64,
    is_reset: bool,
    is_ended: bool,
    cursor: Option<String>,
}

impl Batch {
    fn wrong(&self, oracle: &Oracle, what: &str) {
        oracle.violated(format!("batch {}: {what}", self.name));
    }

    fn is_over(&self) -> bool {
        self.parts.iter().all(|part| part.is_told)
    }

    fn reset(&mut self) {
        self.is_reset = true;
        for part in &mut self.parts {
            part.is_reset = true;
        }
    }

    /// Every call without an outcome has this one.
    fn tell(&mut self, oracle: &Oracle, outcome: &Outcome) {
        for part in self.parts.iter_mut().filter(|part| !part.is_told) {
            part.is_told = true;
            oracle.told(&part.token, outcome.clone());
        }
    }

    fn give_up(&self, oracle: &Oracle, why: &str) {
        for part in self.parts.iter().filter(|part| !part.is_told) {
            oracle.gave_up(&part.token, why);
        }
    }

    /// One response came.
    fn answered(&mut self, oracle: &Oracle, message: &Value) {
        let Some(part) = self.parts.iter_mut().find(|part| message["id"] == part.id) else {
            return self.wrong(oracle, &format!("a response to another request: {message}"));
        };
        let outcome = outcome_of(oracle, &part.token, message);
        if part.is_told && self.is_reset && matches!(outcome, Outcome::Unknown(_)) {
            // Where nothing but the cursor is left of a batch, nobody knows which of it had been answered.
            return oracle.counted("told twice of a batch");
        }
        part.is_told = true;
        oracle.told(&part.token, outcome.clone());
        let (token, step, steps) = (part.token.clone(), part.step, part.steps);
        if outcome == Outcome::Result && step != steps && !part.is_reset {
            self.wrong(oracle, &format!("{token} ended after step {step} of {steps}"));
        }
    }

    fn progressed(&mut self, oracle: &Oracle, params: &Value) {
        let token = params["progressToken"].as_str().unwrap_or_default();
        let k = params["progress"].as_u64().unwrap_or(u64::MAX);
        let Some(part) = self.parts.iter_mut().find(|part| part.token == token) else {
            return self.wrong(oracle, &format!("progress of {token} came here"));
        };
        let is_next = k == part.step + 1 || (part.is_reset && k > part.step);
        let before = part.step;
        (part.step, part.is_reset) = (k, false);
        if !is_next {
            self.wrong(oracle, &format!("step {k} of {token} after {before}"));
        }
    }

    /// A connection was answered with a stream.
    fn opened(&mut self, oracle: &Oracle, verdict: &str, asked: Option<&str>) {
        oracle.saw(format!("batch {}: {verdict} for {asked:?}", self.name));
        match (verdict.split(';').next().unwrap_or_default(), asked) {
            ("live", None) | ("resumed" | "", Some(_)) => {}
            ("reset", Some(_)) => self.reset(),
            _ => self.wrong(oracle, &format!("was answered {verdict:?}, asked from {asked:?}")),
        }
    }

    fn took(&mut self, oracle: &Oracle, event: &Event) {
        let Some(id) = &event.id else {
            if event.data.is_some() {
                self.wrong(oracle, &format!("an event without an id: {event:?}"));
            }
            return;
        };
        let data = event.data.as_deref().unwrap_or_default();
        oracle.saw(format!("batch {} < {id} {data}", self.name));
        if self.is_ended {
            self.wrong(oracle, &format!("an event after the end: {event:?}"));
        }
        let Some((prefix, position)) = id.rsplit_once('.') else {
            return self.wrong(oracle, &format!("{id} is no event id"));
        };
        let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        let (seq, step) = match position.split_once('-') {
            Some((at, _)) => (number(at), 0),
            None => (number(position.trim_end_matches('~')), 1),
        };
        let message: Value = serde_json::from_str(data).unwrap_or(Value::Null);
        if message.get("error").is_some() || message["params"]["logger"] == "throughline" {
            self.reset();
        }
        let is_known = self.prefix.as_deref() == Some(prefix);
        let is_in_place = match is_known {
            true => seq == self.seq + step || (self.is_reset && seq > self.seq),
            false => self.prefix.is_none() || self.is_reset,
        };
        if !is_in_place {
            self.wrong(oracle, &format!("{id} came after {:?}.{}", self.prefix, self.seq));
        }
        (self.prefix, self.seq) = (Some(prefix.to_owned()), seq);
        (self.is_ended, self.cursor) = (position.ends_with('~'), Some(id.clone()));
        if step == 0 {
            return;
        }
        if message["method"] == "notifications/progress" {
            self.progressed(oracle, &message["params"]);
        } else if message.get("method").is_none() && message.get("id").is_some() {
            self.answered(oracle, &message);
        }
    }
}

impl Person {
    /// Makes two calls in one POST, under this id and one beside it.
    pub(super) async fn batch(mut self, id: u64) {
        let oracle = Arc::clone(&self.streets.oracle);
        oracle.counted("batches");
        let mut parts = Vec::new();
        for id in [id, id + 100] {
            let token = format!("{}:{id}", self.label);
            oracle.called(&token);
            parts.push(Part {
                id,
                token,
                steps: self.chance.below(5),
                step: 0,
                is_reset: false,
                is_told: false,
            });
        }
        let pace = self.chance.between(0, 1_500);
        let calls = parts.iter().map(|part| {
            let (id, token, steps) = (part.id, &part.token, part.steps);
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "work",
                "arguments": {"token": token, "steps": steps, "pace": pace}, "_meta": {"progressToken": token}}})
        });
        let body = Value::Array(calls.collect()).to_string();
        self.makes = parts.iter().map(|part| part.token.clone()).collect();
        let mut batch = Batch {
            name: parts[0].token.clone(),
            parts,
            prefix: None,
            seq: 0,
            is_reset: false,
            is_ended: false,
            cursor: None,
        };
        match self.send("POST", &[], &body).await {
            Answered::Stream(head, talk) => {
                let verdict = head.field("throughline-continuity").unwrap_or_default();
                batch.opened(&oracle, verdict, None);
                self.follow_batch(talk, batch).await;
            }
            Answered::Whole(head, body) if head.status() == 200 => {
                let answers: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
                for answer in answers.as_array().into_iter().flatten() {
                    batch.answered(&oracle, answer);
                }
                if !batch.is_over() {
                    batch.wrong(&oracle, &format!("was answered with {body}"));
                }
            }
            Answered::Whole(head, _) if head.status() == 404 => {
                self.session_ended();
                batch.tell(&oracle, &Outcome::NotExecuted("404".to_owned()));
            }
            Answered::Whole(head, body) => {
                batch.wrong(&oracle, &format!("was answered {} {body}", head.status()));
            }
            Answered::Lost => batch.give_up(&oracle, "lost before its head"),
        }
    }

    async fn follow_batch(&mut self, talk: Talk, mut batch: Batch) {
        let oracle = Arc::clone(&self.streets.oracle);
        let (mut talk, mut calm_since) = (Some(talk), None);
        loop {
            if let Some(talk) = talk.take() {
                self.read_batch(talk, &mut batch).await;
            }
            if batch.is_over() {
                return;
            }
            let Some(cursor) = batch.cursor.clone() else {
                return batch.give_up(&oracle, "lost before its first id");
            };
            if self.streets.calm.is_here() {
                let since = *calm_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return batch.wrong(&oracle, "hangs after the storm");
                }
            }
            pass(self.chance.millis(100, 2_000)).await;
            match self.send("GET", &[("last-event-id", &cursor)], "").await {
                Answered::Stream(head, stream) => {
                    let verdict = head.field("throughline-continuity").unwrap_or_default();
                    batch.opened(&oracle, verdict, Some(&cursor));
                    talk = Some(stream);
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.session_ended();
                    return batch.tell(&oracle, &Outcome::Unknown("session gone".to_owned()));
                }
                Answered::Whole(head, body) => {
                    let status = head.status();
                    return batch.wrong(&oracle, &format!("its resume was answered {status} {body}"));
                }
                Answered::Lost => {}
            }
        }
    }

    /// Reads one connection until it ends, the client ends it, or each call has its outcome.
    async fn read_batch(&mut self, mut talk: Talk, batch: &mut Batch) {
        let oracle = Arc::clone(&self.streets.oracle);
        let mut blocks = Blocks::default();
        loop {
            let piece = match talk.piece().await {
                Ok(piece) if !piece.is_empty() => piece,
                Ok(_) | Err(_) => return,
            };
            if let Err(error) = blocks.add(&piece) {
                return batch.wrong(&oracle, &format!("a malformed stream: {error}"));
            }
            loop {
                match blocks.next() {
                    Ok(None) => break,
                    Ok(Some(event)) => {
                        let event = self.streets.plant.of_batch(event, &mut self.chance);
                        for event in self.streets.plant.events(event, &mut self.chance) {
                            batch.took(&oracle, &event);
                        }
                    }
                    Err(error) => return batch.wrong(&oracle, &format!("a malformed stream: {error}")),
                }
                if batch.is_over() {
                    return;
                }
                if !self.streets.calm.is_here() && self.chance.percent(self.streets.ways.cuts) {
                    oracle.saw(format!("batch {} is cut by its client", batch.name));
                    return;
                }
            }
            pass(Duration::ZERO).await;
        }
    }
}

//! Clients of 2026-07-28, in the same world: each request stands for itself, and going away is its cancel.
//! Law: no session, no verdict and no priming come with an answer; what a backend said comes whole and in order, or
//! the connection says that it broke (wire contract, section 11).
//! Next: `weather.rs`.

use std::io;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::client::Streets;
use crate::clock::pass;
use crate::http::{Blocks, Head, Talk};
use crate::oracle::Outcome;
use crate::place::proxy_address;
use crate::plant::Plant;
use crate::trail::outcome_of;

/// The revision.
pub(crate) const REVISION: &str = "2026-07-28";

/// One client, or as many as ask under its name: nothing ties its requests together.
pub(crate) struct Modern {
    streets: Streets,
    label: String,
    chance: Chance,
}

/// How the answer to one request ended.
enum End {
    Told(Outcome),
    /// Its connection broke, or the client broke it.
    Broken,
}

impl Modern {
    /// Makes its calls, one after the other.
    pub(crate) async fn live(streets: Streets, label: String, chance: Chance) {
        let calls = streets.ways.calls;
        let mut client = Self {
            streets,
            label,
            chance,
        };
        for id in 0..calls {
            pass(client.chance.millis(1, 8_000)).await;
            client.call(id).await;
        }
    }

    async fn call(&mut self, id: u64) {
        let token = format!("{}:{id}", self.label);
        let steps = self.chance.below(8);
        let oracle = std::sync::Arc::clone(&self.streets.oracle);
        oracle.called(&token);
        oracle.counted("modern calls");
        match self.ask(&token, id, steps).await {
            Ok(End::Told(outcome)) => oracle.told(&token, self.streets.plant.outcome(outcome)),
            Ok(End::Broken) => oracle.gave_up(&token, "its connection ended"),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                oracle.violated(format!("{token}: a malformed answer: {error}"));
            }
            Err(_) => oracle.gave_up(&token, "its connection broke"),
        }
    }

    async fn ask(&mut self, token: &str, id: u64, steps: u64) -> io::Result<End> {
        let pace = self.chance.between(0, 1_500);
        let at = self.chance.below(self.streets.proxies as u64) as usize;
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "work",
            "arguments": {"token": token, "steps": steps, "pace": pace},
            "_meta": {"progressToken": token, "io.modelcontextprotocol/protocolVersion": REVISION}}})
        .to_string();
        let wire = self.streets.net.connect(proxy_address(at))?;
        self.streets.oracle.sent(token, wire.served_by());
        let mut talk = Talk::new(wire);
        let credential = self.streets.papers.of(&self.label, 0);
        let credential = credential.map_or(String::new(), |words| format!("authorization: {words}\r\n"));
        let text = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nmcp-protocol-version: {REVISION}\r\nmcp-method: tools/call\r\n\
             mcp-name: work\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             {credential}content-length: {}\r\n\r\n{body}",
            proxy_address(at),
            body.len()
        );
        talk.send(&text).await?;
        if self.streets.plant == Plant::SendsAgain && self.chance.percent(20) {
            let mut again = Talk::new(self.streets.net.connect(proxy_address(at))?);
            tokio::spawn(async move {
                let _ = again.send(&text).await;
                while again.head().await.is_ok_and(|head| head.is_some()) && again.whole().await.is_ok() {}
            });
        }
        let Some(head) = talk.head().await? else {
            return Ok(End::Broken);
        };
        self.judge(token, &head);
        if head.is_stream() {
            return self.follow(talk, token, steps).await;
        }
        let whole = talk.whole().await?;
        let message: Value = serde_json::from_str(&whole).unwrap_or(Value::Null);
        let is_right = match head.status() {
            200 => message["id"] == id,
            502 | 503 => message["id"] == id && message["error"].is_object(),
            _ => false,
        };
        if !is_right {
            self.streets
                .oracle
                .violated(format!("{token} was answered {} {whole}", head.status()));
        }
        Ok(End::Told(outcome_of(&self.streets.oracle, token, &message)))
    }

    /// Goes away from an answer that has begun.
    fn leaves(&self, mut talk: Talk, token: &str) {
        if !talk.wire.is_silent() {
            self.streets.oracle.left(token);
        }
        if self.streets.plant == Plant::HushesLeaving {
            // As it looks where a proxy reads on for nobody.
            tokio::spawn(async move { while talk.piece().await.is_ok_and(|piece| !piece.is_empty()) {} });
        }
    }

    /// Nothing of a session comes with its answer.
    fn judge(&self, token: &str, head: &Head) {
        for field in ["mcp-session-id", "throughline-continuity"] {
            if let Some(value) = head.field(field) {
                self.streets
                    .oracle
                    .violated(format!("{token} was answered with {field}: {value}"));
            }
        }
    }

    async fn follow(&mut self, mut talk: Talk, token: &str, steps: u64) -> io::Result<End> {
        let oracle = std::sync::Arc::clone(&self.streets.oracle);
        let (mut blocks, mut step) = (Blocks::default(), 0);
        loop {
            let piece = talk.piece().await?;
            if piece.is_empty() {
                return Ok(End::Broken);
            }
            // What its server wrote comes byte for byte, ends of lines included.
            let piece: Vec<u8> = piece.into_iter().filter(|byte| *byte != b'\r').collect();
            blocks.add(&piece)?;
            while let Some(event) = blocks.next()? {
                for event in self.streets.plant.events(event, &mut self.chance) {
                    let data = event.data.as_deref().unwrap_or_default();
                    oracle.saw(format!("{token} < {data}"));
                    let message: Value = serde_json::from_str(data).unwrap_or(Value::Null);
                    if message["method"] == "notifications/progress" {
                        step += 1;
                        let params = &message["params"];
                        if params["progressToken"] != token || params["progress"] != step {
                            oracle.violated(format!("{token}: {message} came in place of step {step}"));
                        }
                    } else if message.get("method").is_none() {
                        let outcome = outcome_of(&oracle, token, &message);
                        if outcome == Outcome::Result && step != steps {
                            oracle.violated(format!("{token}: its result came after step {step} of {steps}"));
                        }
                        return Ok(End::Told(outcome));
                    }
                }
                if self.chance.percent(self.streets.ways.cuts) {
                    oracle.saw(format!("{token} is cancelled by going away"));
                    self.leaves(talk, token);
                    return Ok(End::Broken);
                }
            }
        }
    }
}

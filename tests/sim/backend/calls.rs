//! What a replica does with calls: it runs them in steps, and answers on the connection that asked, alone or in a batch.
//! Law: what runs is told to the oracle as it begins; each step and each result carries its call's token.
//! Next: `stored.rs`.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Here, answer, stream_head};
use crate::clock::pass;
use crate::http::Talk;
use crate::weather::{Ids, Storing};

impl Here {
    pub(super) async fn call(&self, talk: &mut Talk, message: &Value) -> io::Result<()> {
        let arguments = &message["params"]["arguments"];
        let token = arguments["token"].as_str().unwrap_or_default().to_owned();
        let steps = arguments["steps"].as_u64().unwrap_or(0);
        let pace = Duration::from_millis(arguments["pace"].as_u64().unwrap_or(0));
        self.site.oracle.saw(format!("replica {} runs {token}", self.nth));
        self.site.oracle.executed(&token);
        let result = json!({"jsonrpc": "2.0", "id": message["id"], "result":
            {"content": [{"type": "text", "text": format!("{token}:done")}]}});
        pass(pace).await;
        self.breathe().await;
        if steps == 0 && self.site.chance().percent(self.site.ways.json) {
            return answer(talk, "200 OK", "", &result.to_string()).await;
        }
        let has_session = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
        let ends_after = {
            let mut chance = self.site.chance();
            let early = chance.percent(self.site.ways.early_end);
            early.then(|| chance.below(steps + 1))
        };
        let mut at = 0;
        stream_head(talk, "").await?;
        for step in 1..=steps {
            if ends_after == Some(step - 1) {
                return self.end_early(talk).await;
            }
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": step, "total": steps}});
            self.event(talk, Some(&mut at), &progress.to_string()).await?;
            if !has_session && !talk.wire.is_silent() {
                self.site.oracle.spoke(&token);
            }
            // Without sessions there is nobody to answer.
            if has_session && self.site.chance().percent(self.site.ways.asks) {
                let question = self.question();
                self.event(talk, Some(&mut at), &question).await?;
            }
            pass(pace).await;
            self.breathe().await;
        }
        if ends_after.is_some() {
            return self.end_early(talk).await;
        }
        self.event(talk, Some(&mut at), &result.to_string()).await?;
        talk.send("0\r\n\r\n").await
    }

    /// Runs the calls of a batch, one after the other, and answers all on one stream. None of it is stored.
    pub(super) async fn batch(&self, talk: &mut Talk, calls: &[Value]) -> io::Result<()> {
        let mut events = Vec::new();
        let mut pace = Duration::ZERO;
        for call in calls {
            let arguments = &call["params"]["arguments"];
            let token = arguments["token"].as_str().unwrap_or_default();
            let steps = arguments["steps"].as_u64().unwrap_or(0);
            pace = Duration::from_millis(arguments["pace"].as_u64().unwrap_or(0));
            self.site
                .oracle
                .saw(format!("replica {} runs {token}, in a batch", self.nth));
            self.site.oracle.executed(token);
            for step in 1..=steps {
                events.push(json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "total": steps}}));
            }
            events.push(json!({"jsonrpc": "2.0", "id": call["id"], "result":
                {"content": [{"type": "text", "text": format!("{token}:done")}]}}));
        }
        pass(pace).await;
        self.breathe().await;
        if events.len() == calls.len() && self.site.chance().percent(self.site.ways.json) {
            return answer(talk, "200 OK", "", &Value::Array(events).to_string()).await;
        }
        let is_early = self.site.chance().percent(self.site.ways.early_end);
        let most = match is_early {
            true => self.site.chance().below(events.len() as u64) as usize,
            false => events.len(),
        };
        let mut at = 0;
        stream_head(talk, "").await?;
        for event in &events[..most] {
            // A store would be asked from whatever id is given.
            let at = (self.site.ways.storing == Storing::None).then_some(&mut at);
            self.event(talk, at, &event.to_string()).await?;
            pass(pace).await;
            self.breathe().await;
        }
        match most == events.len() {
            true => talk.send("0\r\n\r\n").await,
            false => self.end_early(talk).await,
        }
    }

    pub(super) fn question(&self) -> String {
        let mut replica = self.replica();
        let id = format!("q{}-{}-{}", self.nth, replica.life, replica.asked.len());
        replica.asked.insert(Value::from(id.clone()).to_string(), 0);
        json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}).to_string()
    }

    /// The answer ends without its response: in an orderly way, or by a broken connection.
    pub(super) async fn end_early(&self, talk: &mut Talk) -> io::Result<()> {
        self.site.oracle.saw("a backend ends an answer early".to_owned());
        self.site.oracle.counted("early ends");
        if self.site.chance().percent(50) {
            return talk.send("0\r\n\r\n").await;
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    pub(super) async fn event(&self, talk: &mut Talk, at: Option<&mut u64>, data: &str) -> io::Result<()> {
        let id = match (self.site.ways.ids, at) {
            (Ids::Colliding, Some(at)) => {
                *at += 1;
                format!("id: 0/{at}\r\n")
            }
            (Ids::Colliding | Ids::None, _) => String::new(),
        };
        let event = format!("{id}event: message\r\ndata: {data}\r\n\r\n");
        talk.send(&format!("{:x}\r\n{event}\r\n", event.len())).await
    }
}

//! Sessions over HTTP+SSE (2024-11-05) at a replica: a GET begins one, its stream brings everything, POSTs are accepted.
//! Law: the stream is the session: with its connection it is gone, and what still runs for it says nothing to anybody.
//! Next: `../elder.rs`.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{Here, Priming, Session, Spoken, answer, stream_head};
use crate::clock::pass;
use crate::http::{Head, Talk};
use crate::kept::Archive;

/// Where replicas want the POSTs of such sessions.
pub(super) const MESSAGES: &str = "/messages?session=";

impl Here {
    /// A GET that begins a session, and its stream until that ends.
    pub(super) async fn elder_get(&self, mut talk: Talk, head: &Head) -> io::Result<()> {
        if let Some(cursor) = head.field("last-event-id") {
            let what = format!("the cursor {cursor} reached a backend, in a GET that begins a session");
            self.site.oracle.violated(what);
        }
        let (to, said) = unbounded_channel();
        let sid = {
            let caller = self.site.ways.papers.whose(head.field("authorization"));
            let mut replica = self.replica();
            replica.begun += 1;
            let begun = replica.begun;
            let sid = format!("s{}-{}-{begun}", self.nth, replica.life);
            let session = Session {
                // Until it introduces itself nobody is told anything.
                label: caller.unwrap_or_default(),
                spoken: Spoken::HttpSse,
                primes: Priming::No,
                archive: Archive::default(),
                listener: Some((begun, to)),
                said: VecDeque::new(),
            };
            replica.sessions.insert(sid.clone(), session);
            sid
        };
        let outcome = self.elder_stream(&mut talk, &sid, said).await;
        self.replica().sessions.remove(&sid);
        outcome
    }

    async fn elder_stream(
        &self,
        talk: &mut Talk,
        sid: &str,
        mut said: UnboundedReceiver<String>,
    ) -> io::Result<()> {
        stream_head(talk, "").await?;
        let endpoint = format!("event: endpoint\r\ndata: {MESSAGES}{sid}\r\n\r\n");
        talk.send(&format!("{:x}\r\n{endpoint}\r\n", endpoint.len()))
            .await?;
        let mut stray = [0; 16];
        loop {
            tokio::select! {
                biased;
                message = said.recv() => {
                    let Some(message) = message else { break };
                    self.breathe().await;
                    self.event(talk, None, &message).await?;
                }
                read = talk.wire.read(&mut stray) => {
                    if read? == 0 {
                        return Ok(());
                    }
                }
            }
        }
        self.site.oracle.saw(format!("replica {} ends {sid}", self.nth));
        self.end_early(talk).await
    }

    /// A POST of a session: accepted, and answered on its stream.
    pub(super) async fn elder_post(&self, talk: &mut Talk, sid: &str, body: &str) -> io::Result<()> {
        let Ok(message) = serde_json::from_str::<Value>(body) else {
            self.site.oracle.violated(format!("a backend got {body:?}"));
            return Ok(());
        };
        if !self.replica().sessions.contains_key(sid) {
            return answer(talk, "404 Not Found", "", "").await;
        }
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.elder_begins(sid, &message),
            "tools/call" => {
                let token = message["params"]["arguments"]["token"]
                    .as_str()
                    .unwrap_or_default();
                self.site
                    .oracle
                    .saw(format!("replica {} runs {token}, of {sid}", self.nth));
                self.site.oracle.executed(token);
                let work = tokio::spawn(self.clone().elder_call(sid.to_owned(), message.clone()));
                self.replica().work.push(work.abort_handle());
            }
            "" => self.answered(&message),
            _ if message.get("id").is_none() => {}
            _ => {
                let result = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
                self.elder_says(sid, result.to_string());
            }
        }
        answer(talk, "202 Accepted", "", "").await
    }

    fn elder_begins(&self, sid: &str, message: &Value) {
        let label = message["params"]["clientInfo"]["name"]
            .as_str()
            .unwrap_or_default();
        if let Some(session) = self.replica().sessions.get_mut(sid) {
            label.clone_into(&mut session.label);
        }
        self.site
            .newest
            .lock()
            .expect("no panic while it is held")
            .insert(label.to_owned(), sid.to_owned());
        let result = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
            "protocolVersion": "2024-11-05", "capabilities": {"logging": {}, "tools": {}},
            "serverInfo": {"name": "replica", "version": "1"}}});
        self.elder_says(sid, result.to_string());
    }

    /// Says it on the session's stream, if that still stands.
    fn elder_says(&self, sid: &str, message: String) {
        if let Some(session) = self.replica().sessions.get(sid)
            && let Some((_, to)) = &session.listener
        {
            let _ = to.send(message);
        }
    }

    async fn elder_call(self, sid: String, message: Value) {
        let arguments = &message["params"]["arguments"];
        let token = arguments["token"].as_str().unwrap_or_default();
        let steps = arguments["steps"].as_u64().unwrap_or(0);
        let pace = Duration::from_millis(arguments["pace"].as_u64().unwrap_or(0));
        let ends_after = {
            let mut chance = self.site.chance();
            let early = chance.percent(self.site.ways.early_end);
            early.then(|| chance.below(steps + 1))
        };
        for step in 1..=steps + 1 {
            pass(pace).await;
            self.breathe().await;
            if ends_after == Some(step - 1) {
                // Nothing is left that its stream could say.
                self.replica().sessions.remove(&sid);
                return;
            }
            let said = if step > steps {
                json!({"jsonrpc": "2.0", "id": message["id"], "result":
                    {"content": [{"type": "text", "text": format!("{token}:done")}]}})
            } else {
                json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "total": steps}})
            };
            self.elder_says(&sid, said.to_string());
            if self.site.chance().percent(self.site.ways.asks) {
                let question = self.question();
                self.elder_says(&sid, question);
            }
        }
    }
}

//! Replicas that store what they emit: calls that go on whoever listens, replays, and streams that end to be polled.
//! Law: what is stored of a stream is all that was said on it; who asks from an id gets what its kind of store gives.
//! Next: `../kept.rs`.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Here, Priming, stream_head};
use crate::clock::pass;
use crate::http::Talk;
use crate::kept::{Over, Stored};
use crate::weather::Storing;

impl Here {
    /// Runs a call whose events are stored: it goes on whoever listens.
    pub(super) async fn stored_call(&self, talk: &mut Talk, sid: &str, message: &Value) -> io::Result<()> {
        let token = message["params"]["arguments"]["token"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.site.oracle.saw(format!("replica {} runs {token}", self.nth));
        self.site.oracle.executed(&token);
        let (news, stream) = {
            let mut replica = self.replica();
            replica.begun += 1;
            // A call that a client sent to two processes of the proxy runs twice, each with a stream of its own.
            let stream = format!("{token} {}", replica.begun);
            let Some(session) = replica.sessions.get_mut(sid) else {
                return Ok(());
            };
            let news = session.archive.attach(&stream);
            if session.primes == Priming::Yes {
                session.archive.add(&stream, String::new(), Over::No);
            }
            (news, stream)
        };
        let work = tokio::spawn(
            self.clone()
                .run_stored((sid.to_owned(), stream), token, message.clone()),
        );
        self.replica().work.push(work.abort_handle());
        stream_head(talk, "").await?;
        self.send_news(talk, news).await
    }

    pub(super) async fn run_stored(self, (sid, stream): (String, String), token: String, message: Value) {
        let arguments = &message["params"]["arguments"];
        let steps = arguments["steps"].as_u64().unwrap_or(0);
        let pace = Duration::from_millis(arguments["pace"].as_u64().unwrap_or(0));
        for step in 1..=steps + 1 {
            pass(pace).await;
            self.breathe().await;
            let (data, over) = if step > steps {
                let result = json!({"jsonrpc": "2.0", "id": message["id"], "result":
                    {"content": [{"type": "text", "text": format!("{token}:done")}]}});
                (result, Over::Yes)
            } else {
                let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": step, "total": steps}});
                (progress, Over::No)
            };
            if let Some(session) = self.replica().sessions.get_mut(&sid) {
                session.archive.add(&stream, data.to_string(), over);
            }
        }
    }

    /// Sends what is new of a stored stream, until its end or until this connection is ended early, to be polled.
    pub(super) async fn send_news(
        &self,
        talk: &mut Talk,
        mut news: UnboundedReceiver<Stored>,
    ) -> io::Result<()> {
        while let Some(stored) = news.recv().await {
            self.breathe().await;
            self.stored_event(talk, &stored).await?;
            if self.site.chance().percent(self.site.ways.early_end) {
                self.site.oracle.saw("a backend wants to be polled".to_owned());
                self.site.oracle.counted("polls wanted");
                let retry = "retry: 300\n\n";
                talk.send(&format!("{:x}\r\n{retry}\r\n", retry.len())).await?;
                break;
            }
        }
        talk.send("0\r\n\r\n").await
    }

    pub(super) async fn stored_event(&self, talk: &mut Talk, stored: &Stored) -> io::Result<()> {
        let event = format!("event: message\nid: {}\ndata: {}\n\n", stored.id, stored.data);
        talk.send(&format!("{:x}\r\n{event}\r\n", event.len())).await
    }

    /// Replays what follows an id, then goes on with what is new.
    pub(super) async fn replay(&self, talk: &mut Talk, sid: &str, id: &str) -> io::Result<()> {
        let found = self
            .replica()
            .sessions
            .get(sid)
            .and_then(|session| session.archive.after(id));
        stream_head(talk, "").await?;
        let Some((stream, events)) = found else {
            // As some do: nothing ever comes.
            return talk.send("0\r\n\r\n").await;
        };
        let mut news = self.attach(sid, &stream, Storing::Tidy);
        for stored in &events {
            self.breathe().await;
            self.stored_event(talk, stored).await?;
        }
        if news.is_none() {
            let time = self.site.chance().millis(0, 400);
            pass(time).await;
            news = self.attach(sid, &stream, Storing::Sloppy);
        }
        match news {
            Some(news) => self.send_news(talk, news).await,
            None => Ok(()),
        }
    }

    /// Looks for news at this moment, if stores of this kind do.
    pub(super) fn attach(&self, sid: &str, stream: &str, when: Storing) -> Option<UnboundedReceiver<Stored>> {
        if self.site.ways.storing != when {
            return None;
        }
        let mut replica = self.replica();
        let session = replica.sessions.get_mut(sid)?;
        Some(session.archive.attach(stream))
    }
}

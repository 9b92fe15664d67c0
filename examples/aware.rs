//! A client that knows what it got: it listens to a session's notifications and runs each one once, or says why not.
//! Law: what comes after a reconnect runs only if the guard admits it; what is refused is said aloud, never dropped.
//! Run it against a proxy: `cargo run --example aware -- http://127.0.0.1:8080/mcp`. It reconnects until Ctrl-C.
//! Next: `src/pure/guard/clients.md`; the same check in JavaScript and Python is in `aware.mjs` and `aware.py`.

use std::ops::ControlFlow;
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use throughline::guard::{Admit, Effect, Event, Guard, MemoryLedger, Standing, Violation};
use throughline::pure::sse::{Block, Decoder};

/// What the client did with an event, or was told.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Said {
    /// A connection was answered, and this is how it stands.
    Stands(Standing),
    /// It ran this message.
    Ran(Value),
    /// It had done so before.
    Skipped(Value),
    /// It must not run this message.
    Refused(Value, Violation),
    /// It has read its state again.
    Reread,
}

/// A session, and the guard of its standalone stream.
pub(crate) struct Aware {
    http: Client,
    url: String,
    session: String,
    guard: Guard<MemoryLedger>,
}

const REVISION: &str = "2025-11-25";

/// Longest event that is read, in bytes.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Pause before the client connects again; the proxy asks for the same (`retry: 1000`).
const PAUSE: Duration = Duration::from_secs(1);

impl Aware {
    /// Opens a session.
    pub(crate) async fn open(url: &str) -> Result<Self, String> {
        let mut aware = Self {
            http: Client::new(),
            url: url.to_owned(),
            session: String::new(),
            guard: Guard::new(MemoryLedger::default()),
        };
        let client = json!({ "name": "aware", "version": "1" });
        let params = json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": client });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let answer = aware.post(&hello).await?;
        aware.session = field(&answer, "mcp-session-id")
            .ok_or_else(|| format!("no session: {}", answer.status()))?
            .to_owned();
        aware
            .post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
            .await?;
        Ok(aware)
    }

    /// One connection of the standalone stream, from its answer to its end, or until `say` has had enough.
    pub(crate) async fn listen(
        &mut self,
        mut say: impl FnMut(Said) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, String> {
        let mut request = self.request(Method::GET);
        if let Some(cursor) = self.guard.cursor() {
            request = request.header("last-event-id", cursor);
        }
        let mut answer = request.send().await.map_err(words)?;
        if answer.status() != 200 {
            return Err(format!("the stream was answered {}", answer.status()));
        }
        self.guard.connected(field(&answer, throughline::guard::FIELD));
        let mut flow = say(Said::Stands(self.guard.standing()));
        let mut decoder = Decoder::new(EVENT_BYTES_MAX);
        let mut reread = false;
        while flow.is_continue() {
            let Some(bytes) = answer.chunk().await.map_err(words)? else {
                break;
            };
            let guard = &mut self.guard;
            let fed = decoder.feed(&bytes, &mut |block| {
                if let (true, Some(said)) = (flow.is_continue(), judge(guard, block, &mut reread)) {
                    flow = say(said);
                }
            });
            fed.map_err(|error| format!("{error:?}"))?;
            if std::mem::take(&mut reread) {
                // The place to read again whatever was built from this stream: tools, resources, orders.
                self.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }))
                    .await?;
                self.guard.reread();
                if flow.is_continue() {
                    flow = say(Said::Reread);
                }
            }
        }
        Ok(flow)
    }

    async fn post(&self, message: &Value) -> Result<Response, String> {
        let request = self.request(Method::POST).body(message.to_string());
        request.send().await.map_err(words)
    }

    fn request(&self, method: Method) -> RequestBuilder {
        let request = self.http.request(method, &self.url);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json");
        if self.session.is_empty() {
            return request;
        }
        let request = request.header("mcp-session-id", &self.session);
        request.header("mcp-protocol-version", REVISION)
    }
}

/// What becomes of one event; `reread` is set if the client's state is to be read again.
fn judge(guard: &mut Guard<MemoryLedger>, block: Block<'_>, reread: &mut bool) -> Option<Said> {
    let data = block.data().unwrap_or_default();
    let message: Value = serde_json::from_slice(data).unwrap_or_default();
    let order = message["params"]["data"]["order"].to_string();
    // Only the client knows what running a message twice would do. Here an order has a number, and what says that
    // something changed may be read as often as it comes.
    let effect = match message["method"].as_str() {
        Some(method) if method.ends_with("changed") || method.ends_with("updated") => Effect::Repeatable,
        Some(_) if order != "null" => Effect::Keyed(order.as_bytes()),
        Some(_) | None => Effect::Unkeyed,
    };
    let event = Event {
        id: block.id,
        kind: block.event,
        data,
        effect,
    };
    match guard.event(event) {
        Ok(Admit::Run) => Some(Said::Ran(message)),
        Ok(Admit::Had | Admit::Applied) => Some(Said::Skipped(message)),
        Ok(Admit::Primed) => None,
        Ok(Admit::Reset { .. }) => {
            *reread = true;
            None
        }
        Err(violation) => {
            *reread = true;
            Some(Said::Refused(message, violation))
        }
    }
}

fn field<'a>(answer: &'a Response, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

fn words(error: reqwest::Error) -> String {
    error.to_string()
}

#[allow(dead_code, reason = "the wire tests drive the client themselves")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), String> {
    let url = std::env::args().nth(1).ok_or("usage: aware URL")?;
    let mut aware = Aware::open(&url).await?;
    loop {
        let said = aware.listen(|said| {
            println!("{said:?}");
            ControlFlow::Continue(())
        });
        if let Err(error) = said.await {
            println!("the connection was lost: {error}");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

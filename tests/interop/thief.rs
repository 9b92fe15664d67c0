//! A thief: a client that presents another session's cursors, in raw HTTP, since no SDK would.
//! Law: nothing of one session reaches another, whether the cursor names a running call, an ended one or the standalone stream;
//! and the one who was robbed notices nothing.
//! Next: `replicas.rs`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::lab::{self, Proxy, Serves};
use crate::score::{Path, Row, Seen};

/// Notifications of each session.
const NOTES: u64 = 20;
/// How long a stream may outlive its session.
const PATIENCE: Duration = Duration::from_secs(10);
/// When a run that waits for something is called hung.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the case against a server behind the proxy.
pub(crate) async fn run(server: Serves) -> Row {
    let began = Instant::now();
    let mut row = Row::new("cursor thief", "raw HTTP", server.name(), Path::Proxied);
    match timeout(DEADLINE, steal(server, &mut row)).await {
        Ok(Ok(())) => {}
        Ok(Err(fault)) => row.faults.push(fault),
        Err(_) => row.faults.push("it hangs".to_owned()),
    }
    row.seconds = began.elapsed().as_secs_f64();
    row
}

async fn steal(server: Serves, row: &mut Row) -> Result<(), String> {
    let (backend, _process) = lab::serve(server).await?;
    let proxy = Proxy::start(&[backend], &[]).await?;
    let victim = Session::open(proxy.address).await?;
    let mut victims_stream = victim.get(None).await?;

    // An ended call, a running call and the standalone stream of the victim: three cursors worth stealing.
    let mut ended = victim.post("tools/call", slow("ended", 2)).await?;
    let ended_cursor = ended.first_id().await?;
    ended.until(|event| event.answers()).await?;
    let mut running = victim.post("tools/call", slow("running", 20)).await?;
    let running_cursor = running.first_id().await?;
    emit(&victim, "victim", NOTES / 2).await?;
    let mut victims_notes = Seen::default();
    let stream_cursor = victims_stream
        .notes("victim", NOTES / 2, &mut victims_notes)
        .await?;

    for stolen in [&ended_cursor, &running_cursor, &stream_cursor] {
        for has in [Has::NoStream, Has::ItsOwnStream] {
            rob(proxy.address, stolen, has, row).await?;
        }
    }

    // The victim's streams go on as if nothing had happened.
    running.until(|event| event.answers()).await?;
    emit(&victim, "victim-again", NOTES).await?;
    let mut again = Seen::default();
    victims_stream.notes("victim-again", NOTES, &mut again).await?;
    row.messages(&victims_notes, NOTES / 2);
    row.messages(&again, NOTES);
    row.demand_whole();
    Ok(())
}

/// What a thief has when it presents its loot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    /// No stream: it becomes the receiver of its own session's notifications, after a reset.
    NoStream,
    /// Its own standalone stream, which must stay the receiver; the loot gets a stream on which nothing is.
    ItsOwnStream,
}

/// Presents a stolen cursor, and looks at all that comes until the thief's session ends.
async fn rob(at: SocketAddr, stolen: &str, has: Has, row: &mut Row) -> Result<(), String> {
    let thief = Session::open(at).await?;
    let own = match has {
        Has::NoStream => None,
        Has::ItsOwnStream => Some(thief.get(None).await?),
    };
    let mut loot = thief.get(Some(stolen)).await?;
    let verdict = loot
        .headers
        .get("throughline-continuity")
        .and_then(|verdict| verdict.to_str().ok())
        .unwrap_or("");
    if !(verdict.starts_with("reset") && verdict.contains("cursor_foreign")) {
        row.faults.push(format!("the thief was told {verdict:?}"));
    }
    emit(&thief, "thief", NOTES).await?;
    let mut notes = Seen::default();
    match own {
        None => loot.notes("thief", NOTES, &mut notes).await?,
        Some(mut own) => own.notes("thief", NOTES, &mut notes).await?,
    };
    row.messages(&notes, NOTES);
    row.calls += 1;
    row.results += 1;
    thief.end().await?;
    if timeout(PATIENCE, loot.until_its_end()).await.is_err() {
        row.faults.push("a stream outlives its session".to_owned());
    }
    let messages = loot.seen.iter().filter(|event| !event.data.is_empty());
    for event in messages {
        let anothers = ["victim", "ended", "running"]
            .iter()
            .any(|word| event.data.contains(word));
        if anothers || has == Has::ItsOwnStream {
            row.faults.push(format!("the thief got {}", event.data));
        }
    }
    Ok(())
}

fn slow(tag: &str, steps: u64) -> Value {
    let arguments = json!({ "tag": tag, "steps": steps, "interval_ms": 50 });
    json!({ "name": "slow", "arguments": arguments, "_meta": { "progressToken": tag } })
}

async fn emit(session: &Session, tag: &str, n: u64) -> Result<(), String> {
    let arguments = json!({ "tag": tag, "n": n, "interval_ms": 5 });
    let mut answer = session
        .post("tools/call", json!({ "name": "emit", "arguments": arguments }))
        .await?;
    answer.until(|event| event.answers()).await
}

/// A session in raw HTTP.
struct Session {
    url: String,
    http: reqwest::Client,
    id: String,
    /// The JSON-RPC id of the last request.
    requests: AtomicU64,
}

impl Session {
    async fn open(at: SocketAddr) -> Result<Self, String> {
        let mut session = Self {
            url: format!("http://{at}/mcp"),
            http: reqwest::Client::new(),
            id: String::new(),
            requests: AtomicU64::new(0),
        };
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "thief", "version": "1" }
        });
        let answer = session.post("initialize", hello).await?;
        let id = answer
            .headers
            .get("mcp-session-id")
            .and_then(|id| id.to_str().ok());
        session.id = id.ok_or("no session id")?.to_owned();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let answer = session
            .request(reqwest::Method::POST)
            .body(ready.to_string())
            .send()
            .await
            .map_err(said)?;
        if answer.status() != 202 {
            return Err(format!("initialized was answered {}", answer.status()));
        }
        Ok(session)
    }

    fn request(&self, method: reqwest::Method) -> reqwest::RequestBuilder {
        let request = self
            .http
            .request(method, &self.url)
            .header("accept", "application/json, text/event-stream");
        let request = request.header("content-type", "application/json");
        if self.id.is_empty() {
            return request;
        }
        request
            .header("mcp-session-id", &self.id)
            .header("mcp-protocol-version", "2025-11-25")
    }

    async fn post(&self, method: &str, params: Value) -> Result<Stream, String> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let body = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
        Stream::of(
            self.request(reqwest::Method::POST)
                .body(body.to_string())
                .send()
                .await
                .map_err(said)?,
        )
    }

    async fn end(&self) -> Result<(), String> {
        self.request(reqwest::Method::DELETE)
            .send()
            .await
            .map(|_| ())
            .map_err(said)
    }

    async fn get(&self, cursor: Option<&str>) -> Result<Stream, String> {
        let mut request = self.request(reqwest::Method::GET);
        if let Some(cursor) = cursor {
            request = request.header("last-event-id", cursor);
        }
        Stream::of(request.send().await.map_err(said)?)
    }
}

fn said(error: reqwest::Error) -> String {
    error.to_string()
}

/// One SSE event, as much of it as matters here.
#[derive(Default, Clone, Debug)]
struct Event {
    id: String,
    data: String,
}

impl Event {
    fn answers(&self) -> bool {
        self.data.contains("\"result\"")
    }
}

/// The answer to one request.
struct Stream {
    headers: HeaderMap,
    response: reqwest::Response,
    unread: String,
    seen: Vec<Event>,
}

impl Stream {
    fn of(response: reqwest::Response) -> Result<Self, String> {
        if response.status() != 200 {
            return Err(format!("answered {}", response.status()));
        }
        Ok(Self {
            headers: response.headers().clone(),
            response,
            unread: String::new(),
            seen: Vec::new(),
        })
    }

    /// The next event; comments are passed over.
    async fn next(&mut self) -> Result<Event, String> {
        loop {
            if let Some(end) = self.unread.find("\n\n") {
                let block: String = self.unread.drain(..end + 2).collect();
                let block = block.trim_end();
                let mut event = Event::default();
                for line in block.lines() {
                    match line.split_once(": ").unwrap_or((line, "")) {
                        ("id", value) => value.clone_into(&mut event.id),
                        ("data", value) => event.data.push_str(value),
                        _ => {}
                    }
                }
                if block.lines().all(|line| line.starts_with(':')) {
                    continue;
                }
                self.seen.push(event.clone());
                return Ok(event);
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.unread.push_str(&String::from_utf8_lossy(&bytes)),
                Ok(None) => return Err("the stream ended too early".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    async fn until_its_end(&mut self) {
        while self.next().await.is_ok() {}
    }

    async fn first_id(&mut self) -> Result<String, String> {
        Ok(self.next().await?.id)
    }

    async fn until(&mut self, enough: impl Fn(&Event) -> bool) -> Result<(), String> {
        while !enough(&self.next().await?) {}
        Ok(())
    }

    /// Reads notifications with this tag up to the `n`th; the id of the last.
    async fn notes(&mut self, tag: &str, n: u64, into: &mut Seen) -> Result<String, String> {
        loop {
            let event = self.next().await?;
            let message: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let data = &message["params"]["data"];
            if data["tag"] == tag {
                let seq = data["seq"].as_u64().unwrap_or(0);
                into.push(seq);
                if seq == n {
                    return Ok(event.id);
                }
            }
        }
    }
}

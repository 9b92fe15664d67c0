//! Just enough HTTP and SSE for a client that resumes as the SDKs do.
//! Law: it takes what comes and judges nothing.
//! Next: `client.rs`.

use std::collections::VecDeque;
use std::net::SocketAddr;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use throughline::guard::{FIELD, NoVerdict, Verdict};
use throughline::pure::sse::Decoder;

/// The revision that every client asks for.
pub(crate) const REVISION: &str = "2025-11-25";

/// Longest event, in bytes.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// What speaks for one session.
#[derive(Clone)]
pub(crate) struct Voice {
    http: Client,
    /// Connections that are used once, so that what is cut is lost, and not read to its end and used again.
    frail: Client,
    url: String,
    /// Its session's id; empty before there is one.
    pub(crate) session: String,
}

/// Whether a request's connection is going to fail in the middle of its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    /// It is not.
    Sound,
    /// It is.
    Failing,
}

/// One event.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    /// Its id, if it has one.
    pub(crate) id: Option<String>,
    /// Its type; empty means `message`.
    pub(crate) kind: String,
    /// Its data, read.
    pub(crate) message: Value,
    /// How long to wait before coming back, in milliseconds, if it says so.
    pub(crate) retry: Option<u64>,
}

/// What an event stream does next.
pub(crate) enum Next {
    /// An event.
    Event(Event),
    /// It ended in an orderly way.
    End,
    /// The connection broke.
    Broken,
}

impl Voice {
    /// One that has no session yet.
    pub(crate) fn new(at: SocketAddr) -> Self {
        Self {
            http: Client::new(),
            frail: Client::builder()
                .pool_max_idle_per_host(0)
                .build()
                .expect("a client"),
            url: format!("http://{at}/mcp"),
            session: String::new(),
        }
    }

    fn request(&self, method: Method, network: Network) -> RequestBuilder {
        let http = match network {
            Network::Sound => &self.http,
            Network::Failing => &self.frail,
        };
        let request = http.request(method, &self.url);
        let request = request.header("accept", "application/json, text/event-stream");
        if self.session.is_empty() {
            return request;
        }
        let request = request.header("mcp-session-id", &self.session);
        request.header("mcp-protocol-version", REVISION)
    }

    /// Sends a message.
    pub(crate) async fn post(&self, message: &Value, network: Network) -> reqwest::Result<Response> {
        let request = self
            .request(Method::POST, network)
            .header("content-type", "application/json");
        request.body(message.to_string()).send().await
    }

    /// Listens, or resumes.
    pub(crate) async fn get(&self, cursor: Option<&str>) -> reqwest::Result<Response> {
        // A stream is a connection of its own with every SDK.
        let request = self.request(Method::GET, Network::Failing);
        match cursor {
            Some(cursor) => request.header("last-event-id", cursor).send().await,
            None => request.send().await,
        }
    }

    /// Ends the session.
    pub(crate) async fn delete(&self) -> reqwest::Result<StatusCode> {
        Ok(self
            .request(Method::DELETE, Network::Sound)
            .send()
            .await?
            .status())
    }
}

/// A request with an id.
pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Whether an answer is an event stream.
pub(crate) fn streams(answer: &Response) -> bool {
    let kind = answer.headers().get("content-type");
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// What an answer says of its continuity.
pub(crate) fn verdict(headers: &HeaderMap) -> Result<Verdict, NoVerdict> {
    let field = headers.get(FIELD).and_then(|field| field.to_str().ok());
    Verdict::parse(field.unwrap_or_default())
}

/// An event stream.
pub(crate) struct Stream {
    answer: Response,
    decoder: Decoder,
    ready: VecDeque<Event>,
}

impl Stream {
    /// Of this answer.
    pub(crate) fn of(answer: Response) -> Self {
        Self {
            answer,
            decoder: Decoder::new(EVENT_BYTES_MAX),
            ready: VecDeque::new(),
        }
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Next::Event(event);
            }
            let bytes = match self.answer.chunk().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return Next::End,
                Err(_) => return Next::Broken,
            };
            let ready = &mut self.ready;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let fed = self.decoder.feed(&bytes, &mut |block| {
                ready.push_back(Event {
                    id: block.id.map(text),
                    kind: text(block.event),
                    message: serde_json::from_slice(block.data().unwrap_or_default()).unwrap_or_default(),
                    retry: block.retry,
                });
            });
            if fed.is_err() {
                return Next::Broken;
            }
        }
    }
}

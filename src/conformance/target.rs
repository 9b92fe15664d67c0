//! The server under trial: one request on a connection of its own, and its answer.
//! Law: every request and every answer is in the trace; a field that the user gave is sent and never shown.
//! Why a connection for each request: the suite owns the socket that it cuts, and no pool can join two requests' fates.
//! Absent on purpose: sessions (`session.rs`). The client is the proxy's own (`../upstream/mod.rs`).
//! Next: `stream.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::Instant;

use crate::config::resolved::{self, Scheme, UpstreamTls};
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::stream::Stream;
use crate::conformance::trace::Trace;
use crate::net::tcp::Tcp;
use crate::net::tls::{TlsProblem, client_config};
use crate::pure::guard::FIELD;
use crate::pure::revision::Revision;
use crate::routing::Replica;
use crate::upstream::{Client, Deadline, Outgoing};

/// Longest answer that is no stream, in bytes: a long list of tools.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest event, in bytes; the proxy's own default.
const EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Time to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests under way at the same time; no case comes near it.
const IN_FLIGHT_MAX: usize = 4_096;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const CURSOR: HeaderName = HeaderName::from_static("last-event-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The server under trial.
pub(super) struct Target {
    client: Client<Tcp>,
    replica: Arc<Replica>,
    /// Fields of every request, of the user's.
    fields: HeaderMap,
}

/// A request.
pub(super) struct Question<'a> {
    pub(super) method: Method,
    pub(super) session: Option<&'a str>,
    pub(super) revision: Option<Revision>,
    pub(super) cursor: Option<&'a str>,
    pub(super) about: About<'a>,
    pub(super) body: String,
}

/// What the head of a request says of its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About<'a> {
    /// Nothing, as in the era of sessions.
    Nothing,
    /// The method.
    Method(&'a str),
    /// That a tool is called, and which.
    Tool(&'a str),
}

/// An answer whose head has come.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) session: Option<String>,
    /// The field `Throughline-Continuity`, if it has one.
    pub(super) verdict: Option<String>,
    pub(super) content: Content,
}

/// What an answer carries.
pub(super) enum Content {
    /// A stream of events.
    Events(Stream),
    /// Anything else, whole.
    Text(String),
}

impl Target {
    /// # Errors
    /// The authorities for TLS can't be read.
    pub(super) fn new(
        at: resolved::Replica,
        fields: HeaderMap,
        tls: &UpstreamTls,
    ) -> Result<Self, TlsProblem> {
        let exchange = resolved::Exchange {
            connect_timeout: CONNECT_TIMEOUT,
            initialize_max: CONNECT_TIMEOUT,
            replica_retry_max: Duration::ZERO,
            idle_connections_max: 0,
            idle_timeout: Duration::ZERO,
            post_idle_max: Duration::ZERO,
            in_flight_max: IN_FLIGHT_MAX,
            answer_bytes_max: ANSWER_BYTES_MAX,
        };
        let tls = match at.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(client_config(tls)?),
        };
        Ok(Self {
            client: Client::new(Arc::new(Tcp::new()), exchange, tls),
            replica: Arc::new(Replica::new("conformance", at)),
            fields,
        })
    }

    /// Asks, and waits for the head of the answer until this moment; for its whole body if it is no stream.
    ///
    /// # Errors
    /// There is no answer: the finding says why.
    pub(super) async fn ask(&self, trace: &Trace, ask: Question<'_>, until: Instant) -> Tried<Answer> {
        let headers = self.headers(&ask)?;
        trace.note(&said(&ask));
        let request = Outgoing {
            method: ask.method,
            target: self.replica.path(),
            headers: &headers,
            withheld: |_| false,
            own: &[],
            body: Bytes::from(ask.body),
        };
        let sent = self
            .client
            .send_afresh(&self.replica, request, Deadline::At(until));
        let incoming = sent.await.map_err(|error| {
            trace.note(&format!("! {error}"));
            Finding::fail(format!("there was no answer: {error}"))
        })?;
        let head = &incoming.head;
        let field = |name: &str| {
            let values = head.headers.get_all(name).iter();
            let texts: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
            (!texts.is_empty()).then(|| texts.join(", "))
        };
        let (status, kind) = (head.status, field("content-type").unwrap_or_default());
        let (session, verdict) = (field(SESSION.as_str()), field(FIELD));
        let mut line = format!("< {} {kind}", status.as_u16());
        if let Some(verdict) = &verdict {
            line.push_str(&format!(" {FIELD}: {verdict}"));
        }
        trace.note(&line);
        let content = if status.is_success() && kind.starts_with("text/event-stream") {
            let (_, events) = incoming.into_events(EVENT_BYTES_MAX);
            Content::Events(Stream::new(events, trace.clone()))
        } else {
            let whole = incoming.body.collect(ANSWER_BYTES_MAX);
            let bytes = match tokio::time::timeout_at(until, whole).await {
                Ok(Ok(bytes)) => bytes,
                Ok(Err(error)) => return Err(Finding::fail(format!("an answer broke off: {error}"))),
                Err(_) => return Err(Finding::fail("an answer's body did not end in time")),
            };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            trace.note(&format!("<   {text}"));
            Content::Text(text)
        };
        Ok(Answer {
            status,
            session,
            verdict,
            content,
        })
    }

    fn headers(&self, ask: &Question<'_>) -> Tried<HeaderMap> {
        let mut headers = self.fields.clone();
        let accept = if ask.method == Method::GET {
            "text/event-stream"
        } else {
            "application/json, text/event-stream"
        };
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if !ask.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let (method, name) = match ask.about {
            About::Nothing => (None, None),
            About::Method(method) => (Some(method), None),
            About::Tool(tool) => (Some("tools/call"), Some(tool)),
        };
        let own = [
            (METHOD, method),
            (NAME, name),
            (SESSION, ask.session),
            (CURSOR, ask.cursor),
            (REVISION, ask.revision.and_then(Revision::header)),
        ];
        for (name, value) in own {
            let Some(value) = value else { continue };
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| Finding::fail(format!("the server gave a {name} that no field can carry")))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// A request in one line, without its session.
fn said(ask: &Question<'_>) -> String {
    match (ask.cursor, ask.body.as_str()) {
        (Some(cursor), body) => format!("> {} Last-Event-ID: {cursor} {body}", ask.method),
        (None, body) => format!("> {} {body}", ask.method),
    }
}

//! A session that a test has opened through the proxy, and what a test says about an answer.
//! Law: a check names what the wire contract promises: verdict, greeting, message, error.
//! Next: the cases, `gone.rs` first.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::backend::{Backend, Exchange};
use crate::client::{Client, Event, Whole};
use crate::peer::Head;
use crate::proxy::Proxy;

/// What most backends here declare.
pub(crate) const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"logging":{}}"#;

/// The revision that primes.
pub(crate) const PRIMING: &str = "2025-11-25";
/// The newest that does not.
pub(crate) const OLDER: &str = "2025-06-18";

/// Header fields.
pub(crate) type Fields<'a> = &'a [(&'a str, &'a str)];

/// A session, as its client knows it.
#[derive(Clone)]
pub(crate) struct Session {
    address: std::net::SocketAddr,
    pub(crate) token: String,
    revision: &'static str,
    agent: &'static str,
    /// Its name in the proxy's log.
    label: String,
}

/// An `initialize` request at this revision.
pub(crate) fn initialize(revision: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"wire","version":"1"}}}}}}"#
    )
}

/// Its answer.
pub(crate) fn initialized(revision: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{revision}","capabilities":{CAPABILITIES},"serverInfo":{{"name":"b","version":"1"}}}}}}"#
    )
}

/// A tool call with this id, as a raw token.
pub(crate) fn call(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#)
}

/// The same, unlike any other: a call that comes again within seconds is the same call.
pub(crate) fn another_call(id: &str) -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let n = CALLS.fetch_add(1, Ordering::Relaxed);
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"n":{n}}}}}}}"#
    )
}

/// Its result.
pub(crate) fn result(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#)
}

/// A notification that a test tells apart by its number.
pub(crate) fn note(n: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{n}}}}}"#
    )
}

impl Session {
    /// Opens a session at 2025-11-25.
    pub(crate) fn open(proxy: &Proxy, backend: &Backend) -> Self {
        Self::open_at(proxy, backend, PRIMING, "wire-test/1")
    }

    /// Opens one at this revision, by a client of this name.
    pub(crate) fn open_at(
        proxy: &Proxy,
        backend: &Backend,
        revision: &'static str,
        agent: &'static str,
    ) -> Self {
        Self::open_with(
            proxy,
            backend,
            (revision, agent),
            &[("mcp-session-id", "backend-session")],
        )
    }

    /// Opens one whose backend answers `initialize` with these fields.
    pub(crate) fn open_with(
        proxy: &Proxy,
        backend: &Backend,
        who: (&'static str, &'static str),
        fields: &[(&str, &str)],
    ) -> Self {
        Self::open_as(proxy, backend, who, (&[], fields))
    }

    /// Opens one by a client that sends the first of these fields.
    pub(crate) fn open_as(
        proxy: &Proxy,
        backend: &Backend,
        (revision, agent): (&'static str, &'static str),
        (own, fields): (Fields<'_>, Fields<'_>),
    ) -> Self {
        let mut client = proxy.connect();
        let mut all = vec![("user-agent", agent)];
        all.extend(own);
        client.send("POST", &all, &initialize(revision));
        let mut answer = vec![("content-type", "application/json")];
        answer.extend(fields);
        // Another session's listener may ask again just now.
        backend
            .next_of("POST")
            .answer(200, &answer, &initialized(revision));
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200, "{whole:?}");
        assert_eq!(whole.body, initialized(revision));
        let token = whole.head.get("mcp-session-id").expect("a session id").to_owned();
        let label = proxy.logged("session began")["session"]
            .as_str()
            .expect("a label")
            .to_owned();
        Self {
            address: proxy.address,
            token,
            revision,
            agent,
            label,
        }
    }

    /// The same session on another proxy.
    pub(crate) fn on(&self, proxy: &Proxy) -> Self {
        Self {
            address: proxy.address,
            ..self.clone()
        }
    }

    /// Sends a request of this session on a connection of its own.
    pub(crate) fn send(&self, method: &str, fields: &[(&str, &str)], body: &str) -> Client {
        let mut client = Client::connect(self.address);
        self.send_on(&mut client, method, fields, body);
        client
    }

    /// Sends a request of this session on this connection.
    pub(crate) fn send_on(&self, client: &mut Client, method: &str, fields: &[(&str, &str)], body: &str) {
        let mut all = vec![
            ("mcp-session-id", &*self.token),
            ("mcp-protocol-version", self.revision),
        ];
        if !self.agent.is_empty() {
            all.push(("user-agent", self.agent));
        }
        all.extend(fields);
        client.send(method, &all, body);
    }

    /// Waits until the proxy has seen that a client of this session left. Call: once for each that was cut.
    pub(crate) fn client_left(&self, proxy: &Proxy) {
        self.logged(proxy, "client left");
    }

    /// The next line of the proxy's log with this message that is about this session.
    pub(crate) fn logged(&self, proxy: &Proxy, message: &str) -> Value {
        proxy.logged_of(&self.label, message)
    }

    pub(crate) fn post(&self, body: &str) -> Client {
        self.send("POST", &[], body)
    }

    pub(crate) fn get(&self) -> Client {
        self.send("GET", &[], "")
    }

    pub(crate) fn resume(&self, cursor: &str) -> Client {
        self.send("GET", &[("last-event-id", cursor)], "")
    }

    pub(crate) fn delete(&self) -> Client {
        self.send("DELETE", &[], "")
    }

    /// A tool call whose answer has begun to stream: the client, past its head and priming, and the backend's side.
    pub(crate) fn streaming_call(&self, backend: &Backend, id: &str) -> (Client, Exchange) {
        let mut client = self.post(&another_call(id));
        let exchange = backend.next_of("POST").stream();
        let head = client.head();
        assert_eq!(verdict(&head), "live");
        if self.revision == PRIMING {
            assert!(client.event().is_prime(), "the first event primes");
        }
        (client, exchange)
    }

    /// A standing GET: the client, past its head and priming, and the backend's side.
    pub(crate) fn listening(&self, backend: &Backend) -> (Client, Exchange) {
        let mut client = self.get();
        let exchange = backend.next_of("GET").stream();
        let head = client.head();
        assert_eq!(verdict(&head), "live");
        if self.revision == PRIMING {
            assert!(client.event().is_prime(), "the first event primes");
        }
        (client, exchange)
    }

    /// The session is over: whatever it asks is answered with 404, in the SDK servers' words.
    pub(crate) fn is_gone(&self) {
        for method in ["POST", "GET", "DELETE"] {
            let body = if method == "POST" {
                call("99")
            } else {
                String::new()
            };
            says_gone(&self.send(method, &[], &body).whole());
        }
    }

    /// The session is alive: a call reaches its backend and is answered.
    pub(crate) fn is_alive(&self, backend: &Backend) {
        let body = another_call("98");
        let mut client = self.post(&body);
        let exchange = backend.next_of("POST");
        assert_eq!(exchange.body, body);
        exchange.json(&result("98"));
        assert_eq!(client.whole().body, result("98"));
    }
}

/// "Session gone", byte for byte (wire contract, section 2).
pub(crate) fn says_gone(whole: &Whole) {
    assert_eq!(whole.head.status(), 404, "{whole:?}");
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    let body: Value = serde_json::from_str(&whole.body).expect("JSON");
    assert_eq!(body["error"]["code"], -32001);
    assert_eq!(body["error"]["message"], "Session not found");
    assert_eq!(body["id"], Value::Null);
}

/// The verdict of an SSE answer, without its epoch: `live`, `resumed 3 1` (from, replayed), `reset REASON`.
pub(crate) fn verdict(head: &Head) -> String {
    assert_eq!(head.status(), 200, "{head:?}");
    assert_eq!(head.get("content-type"), Some("text/event-stream"));
    let text = head
        .get("throughline-continuity")
        .expect("a verdict on each SSE answer");
    let mut parts = text.split(';').map(str::trim);
    let word = parts.next().expect("a word");
    let parameter = |name: &str| {
        let found = text
            .split(';')
            .map(str::trim)
            .find_map(|part| part.strip_prefix(name));
        found.map(|value| value.trim_start_matches('=').trim_matches('"').to_owned())
    };
    assert_eq!(parameter("epoch").map(|epoch| epoch.len()), Some(11), "{text}");
    match word {
        "live" => "live".to_owned(),
        "resumed" => {
            assert!(parameter("window").is_some(), "{text}");
            let (from, replayed) = (parameter("from"), parameter("replayed"));
            format!("resumed {} {}", from.expect("from"), replayed.expect("replayed"))
        }
        "reset" => format!("reset {}", parameter("reason").expect("a reason")),
        other => panic!("no verdict: {other}"),
    }
}

/// The epoch of a verdict.
pub(crate) fn epoch(head: &Head) -> String {
    let text = head.get("throughline-continuity").expect("a verdict");
    let from = text.find("epoch=\"").expect("an epoch") + 7;
    text[from..from + 11].to_owned()
}

/// The epoch within an event id.
pub(crate) fn epoch_of(id: &str) -> &str {
    &id[1..12]
}

/// The sequence number within an event id, and whether it has the end mark.
pub(crate) fn position(id: &str) -> (u64, bool) {
    let last = id.rsplit('.').next().expect("a position");
    let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
    (digits.parse().expect("a number"), last.ends_with('~'))
}

/// The same id at another position.
pub(crate) fn at_position(id: &str, seq: &str) -> String {
    let dot = id.rfind('.').expect("a position");
    format!("{}.{seq}", &id[..dot])
}

/// The JSON of an event's data.
pub(crate) fn json(event: &Event) -> Value {
    serde_json::from_str(event.data()).expect("JSON")
}

/// An error of ours: reason and outcome, and that it answers this id.
pub(crate) fn failed(data: &str, id: &str) -> (String, String) {
    assert!(
        data.contains(&format!(r#""id":{id},"#)),
        "the id's raw token is echoed: {data}"
    );
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["error"]["code"], -32603, "{data}");
    let word = |name: &str| data["error"]["data"][name].as_str().unwrap_or("none").to_owned();
    (word("reason"), word("outcome"))
}

/// Reads a priming event.
pub(crate) fn primed(client: &mut Client) -> Event {
    let event = client.event();
    assert!(event.is_prime(), "{event:?}");
    event
}

/// Reads an event that carries a message with this data.
pub(crate) fn message(client: &mut Client, data: &str) -> Event {
    let event = client.event();
    assert_eq!(event.event.as_deref(), Some("message"), "{event:?}");
    assert!(event.id.is_some(), "each event has an id: {event:?}");
    assert_eq!(event.data(), data);
    event
}

/// Reads the resync of a standalone stream of a backend with [`CAPABILITIES`], and answers the last id of it.
pub(crate) fn resync(client: &mut Client, reason: &str) -> String {
    let notice = client.event();
    assert_eq!(notice.event.as_deref(), Some("reset"), "{notice:?}");
    assert_eq!(json(&notice)["method"], "notifications/throughline/reset");
    assert_eq!(json(&notice)["params"]["reason"], reason);
    assert_eq!(json(&notice)["params"]["epoch"], epoch_of(notice.id()));
    let warning = client.event();
    assert_eq!(json(&warning)["method"], "notifications/message");
    assert_eq!(json(&warning)["params"]["logger"], "throughline");
    assert_eq!(json(&warning)["params"]["level"], "warning");
    assert_eq!(json(&warning)["params"]["data"]["reason"], reason);
    let mut last = warning;
    for list in ["tools", "prompts", "resources"] {
        let data = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#);
        last = message(client, &data);
    }
    assert_eq!(epoch_of(last.id()), epoch_of(notice.id()));
    last.id().to_owned()
}

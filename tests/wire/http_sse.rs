//! HTTP+SSE of 2024-11-05: its door, its one stream, resumption from a cursor alone, and its end (wire contract, section 10).
//! Law: the backend's endpoint is never seen by a client; each request has one outcome; what can't be met is 404.
//! Next: `../interop.rs`, where real clients and servers speak.

use crate::backend::{Backend, Exchange};
use crate::client::{Client, Event, Whole};
use crate::proxy::Proxy;
use crate::session::{
    PRIMING, another_call, at_position, call, epoch_of, failed, initialize, initialized, json, message, note,
    position, result, says_gone, verdict,
};
use crate::status::{OPERATOR, ask, metric};

/// The backend's own endpoint, which no client may see.
const OWN: &str = "/messages/?session_id=own-secret";

/// A session over HTTP+SSE, as its client knows it.
struct Opened {
    proxy: std::net::SocketAddr,
    client: Client,
    standing: Exchange,
    /// Where the client POSTs.
    endpoint: String,
    /// The id of the endpoint event.
    cursor: String,
    /// Its name in the proxy's log.
    label: String,
}

fn url(backend: &Backend) -> String {
    format!("http://{}/sse", backend.address)
}

fn started(backend: &Backend, settings: &[&str]) -> Proxy {
    Proxy::start(&[&url(backend)], settings)
}

/// Begins a backend's stream with this `endpoint` event.
fn named(exchange: Exchange, endpoint: &str) -> Exchange {
    let mut standing = exchange.stream();
    standing.chunk(&format!("event: endpoint\r\ndata: {endpoint}\r\n\r\n"));
    standing
}

/// Reads an `endpoint` event of the proxy's: where to POST.
fn endpoint(client: &mut Client) -> Event {
    let event = client.event();
    assert_eq!(event.event.as_deref(), Some("endpoint"), "{event:?}");
    assert!(event.data().starts_with("/sse?sessionId=t1"), "{event:?}");
    assert!(
        !event.data().contains("messages") && event.retry.is_none(),
        "{event:?}"
    );
    event
}

/// A GET of the stream by a client that sends these fields.
fn get(proxy: &Proxy, fields: &[(&str, &str)]) -> Client {
    let mut client = proxy.connect();
    client.send_to("/sse", "GET", fields, "");
    client
}

fn open_with(proxy: &Proxy, backend: &Backend, fields: &[(&str, &str)]) -> Opened {
    let mut client = get(proxy, fields);
    let asked = backend.next_of("GET");
    assert_eq!(asked.head.target(), "/sse");
    let standing = named(asked, OWN);
    assert_eq!(verdict(&client.head()), "live");
    let event = endpoint(&mut client);
    assert_eq!(position(event.id()), (0, false));
    let line = proxy.logged("session began");
    assert_eq!(line["transport"], "sse");
    Opened {
        proxy: proxy.address,
        client,
        standing,
        endpoint: event.data().to_owned(),
        cursor: event.id().to_owned(),
        label: line["session"].as_str().expect("a label").to_owned(),
    }
}

fn open(proxy: &Proxy, backend: &Backend) -> Opened {
    open_with(proxy, backend, &[])
}

impl Opened {
    /// Sends a POST to the endpoint, on a connection of its own.
    fn post_with(&self, fields: &[(&str, &str)], body: &str) -> Client {
        let mut client = Client::connect(self.proxy);
        client.send_to(&self.endpoint, "POST", fields, body);
        client
    }

    fn post(&self, body: &str) -> Client {
        self.post_with(&[], body)
    }

    /// The same, which the backend accepts as servers do: at its own endpoint.
    fn accepted(&self, backend: &Backend, body: &str) -> String {
        let mut client = self.post(body);
        let exchange = backend.next_of("POST");
        assert_eq!(exchange.head.target(), OWN);
        assert_eq!(exchange.head.get("mcp-session-id"), None);
        assert_eq!(exchange.body, body, "byte for byte");
        exchange.answer(202, &[("content-type", "text/plain")], "Accepted");
        let whole = client.whole();
        assert_eq!(whole.head.status(), 202, "{whole:?}");
        whole.body
    }

    /// The client's connection breaks, and the proxy has seen it.
    fn cut(&mut self, proxy: &Proxy) {
        let client = std::mem::replace(&mut self.client, Client::connect(self.proxy));
        client.cut();
        proxy.logged_of(&self.label, "client left");
    }

    /// A GET with this cursor and these fields.
    fn again(&self, cursor: &str, fields: &[(&str, &str)]) -> Client {
        let mut client = Client::connect(self.proxy);
        let mut all = vec![("last-event-id", cursor)];
        all.extend(fields);
        client.send_to("/sse", "GET", &all, "");
        client
    }

    /// Comes back with this cursor: what it missed, after the same endpoint.
    fn resumed(&mut self, cursor: &str, says: &str) {
        let mut client = self.again(cursor, &[]);
        // What was said last may be on its way yet.
        assert!(verdict(&client.head()).starts_with(says), "{says}");
        let event = endpoint(&mut client);
        assert_eq!(event.data(), self.endpoint, "the same session, the same token");
        assert_eq!(epoch_of(event.id()), epoch_of(cursor));
        assert_eq!(position(event.id()), position(cursor), "it goes on from there");
        self.client = client;
    }

    /// It is over: neither a POST nor a cursor leads to it.
    fn is_gone(&self, cursor: &str) {
        says_gone(&self.post(&call("90")).whole());
        says_gone(&self.again(cursor, &[]).whole());
    }
}

/// A whole conversation: initialize, a call with progress, a request of the server's; all over one stream, with ids.
#[test]
fn a_conversation() {
    let backend = Backend::start();
    let proxy = started(&backend, &[OPERATOR]);
    let operator = proxy.operator();
    let mut it = open(&proxy, &backend);
    assert_eq!(it.accepted(&backend, &initialize(PRIMING)), "Accepted");
    it.standing.event(&initialized(PRIMING));
    let first = message(&mut it.client, &initialized(PRIMING));
    assert_eq!(
        (epoch_of(first.id()), position(first.id())),
        (epoch_of(&it.cursor), (1, false))
    );
    it.accepted(
        &backend,
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    );
    it.accepted(&backend, &call("1"));
    // As servers write it, with a type and CR LF.
    it.standing
        .chunk(&format!("event: message\r\ndata: {}\r\n\r\n", note(1)));
    message(&mut it.client, &note(1));
    let asks = r#"{"jsonrpc":"2.0","id":0,"method":"sampling/createMessage","params":{}}"#;
    it.standing.event(asks);
    message(&mut it.client, asks);
    it.accepted(&backend, r#"{"jsonrpc":"2.0","id":0,"result":{"role":"user"}}"#);
    it.standing.event(&result("1"));
    let last = message(&mut it.client, &result("1"));
    assert_eq!(position(last.id()), (4, false));
    // Our own query parameter stays here; what a client adds goes on.
    let mut client = Client::connect(it.proxy);
    client.send_to(&format!("{}&own=1", it.endpoint), "POST", &[], &call("2"));
    let exchange = backend.next_of("POST");
    assert_eq!(exchange.head.target(), format!("{OWN}&own=1"));
    exchange.answer(202, &[], "");
    assert_eq!(client.whole().head.status(), 202);
    for (name, value) in [
        ("throughline_sessions_live{upstream=\"sse\"}", "1"),
        ("throughline_streams_live{upstream=\"sse\",kind=\"sse\"}", "1"),
    ] {
        assert_eq!(metric(operator, name).as_deref(), Some(value), "{name}");
    }
    assert!(ask(operator, "GET", "/readyz").body.contains("ready"));
}

/// A cut at any place is made good from the cursor alone, by the newest connection; nothing is asked of the backend.
#[test]
fn a_cut_client_gets_its_endpoint_again_and_what_it_missed() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    // Before its first event, from the id of the endpoint.
    let first = it.cursor.clone();
    it.cut(&proxy);
    it.accepted(&backend, &call("1"));
    it.standing.event(&note(1)).event(&note(2));
    it.resumed(&first, "resumed 0 ");
    message(&mut it.client, &note(1));
    let cursor = message(&mut it.client, &note(2)).id().to_owned();
    it.cut(&proxy);
    it.standing.event(&note(3)).event(&result("1"));
    it.resumed(&cursor, "resumed 2 ");
    message(&mut it.client, &note(3));
    let cursor = message(&mut it.client, &result("1")).id().to_owned();
    // Nothing was missed. The newest wins, and the older one ends in order.
    let mut client = it.again(&cursor, &[]);
    assert_eq!(verdict(&client.head()), "resumed 4 0");
    it.client.ended();
    let again = endpoint(&mut client);
    // The id of an endpoint is a cursor like the others.
    it.client = client;
    it.standing.event(&note(5));
    message(&mut it.client, &note(5));
    let position = again.id().to_owned();
    it.resumed(&position, "resumed 4 ");
    message(&mut it.client, &note(5));
    assert!(
        backend.is_silent(),
        "one connection to the backend stands all the while"
    );
}

/// Comments on an idle stream, and nothing else.
#[test]
fn an_idle_stream_is_kept_alive() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.stream.keepalive=1s"]);
    let mut it = open(&proxy, &backend);
    it.client.comment();
    it.client.comment();
    it.standing.event(&note(1));
    message(&mut it.client, &note(1));
}

/// A cursor that can't be met is 404, whatever is wrong with it: a silent new endpoint would leave its client
/// uninitialised for ever. It begins no session, and disturbs nobody.
#[test]
fn a_cursor_that_cant_be_met() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.stream.replay_events_max=4"]);
    let mut it = open(&proxy, &backend);
    let mut other = open(&proxy, &backend);
    for n in 1..=40 {
        it.standing.event(&note(n));
        message(&mut it.client, &note(n));
    }
    let foreign = other
        .cursor
        .replacen(epoch_of(&other.cursor), epoch_of(&it.cursor), 1);
    let unknown = it.cursor.replacen(epoch_of(&it.cursor), "AAAAAAAAAAA", 1);
    for cursor in [
        it.cursor.clone(),
        at_position(&it.cursor, "2"),
        at_position(&it.cursor, "41"),
        at_position(&it.cursor, "40~"),
        foreign,
        unknown,
        "somebody-elses".to_owned(),
    ] {
        says_gone(&it.again(&cursor, &[]).whole());
    }
    assert!(backend.is_silent(), "nobody else was asked");
    it.standing.event(&note(41));
    message(&mut it.client, &note(41));
    other.standing.event(&note(1));
    message(&mut other.client, &note(1));
    // An empty one is how EventSource says that it has none.
    let mut client = get(&proxy, &[("last-event-id", "")]);
    let _standing = named(backend.next_of("GET"), OWN);
    assert_eq!(verdict(&client.head()), "live");
    assert_ne!(endpoint(&mut client).data(), it.endpoint);
}

/// An unproven stranger's cursor of a server that nobody knows yet: if it speaks HTTP+SSE, its new endpoint is not shown.
#[test]
fn a_cursor_from_elsewhere() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut client = get(&proxy, &[("last-event-id", "7")]);
    let mut standing = named(backend.next_of("GET"), OWN);
    says_gone(&client.whole());
    standing.wait_closed();
}

/// The backend's connection is the session: with it, open calls get their error on the stream, once each, and the rest is
/// 404. The client begins anew.
#[test]
fn the_backends_stream_breaks() {
    let backend = Backend::start();
    for orderly in [false, true] {
        let proxy = started(&backend, &[]);
        let mut it = open(&proxy, &backend);
        it.accepted(&backend, &call("1"));
        it.accepted(&backend, &call(r#""two""#));
        it.accepted(&backend, &call("3"));
        it.standing.event(&result("1"));
        message(&mut it.client, &result("1"));
        if orderly {
            it.standing.finish();
        } else {
            it.standing.cut();
        }
        for id in [r#""two""#, "3"] {
            let error = it.client.event();
            assert_eq!(
                failed(error.data(), id),
                ("backend_lost".into(), "unknown".into())
            );
            assert_eq!(position(error.id()).1, id == "3", "the last has the end mark");
        }
        it.client.ended();
        let line = proxy.logged("session was lost by its backend");
        assert_eq!(
            (&line["cause"], line["level"].as_str()),
            (&"stream_ended".into(), Some("WARN"))
        );
        says_gone(&Client::post_to(it.proxy, &it.endpoint, &call("4")));
        let mut client = get(&proxy, &[("last-event-id", &it.cursor)]);
        says_gone(&client.whole());
        open(&proxy, &backend);
    }
}

/// Nobody was there when the connection broke: whoever comes back hears it from its 404.
#[test]
fn the_backends_stream_breaks_without_a_client() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    it.cut(&proxy);
    it.standing.cut();
    proxy.logged_of(&it.label, "session ended");
    says_gone(&Client::post_to(it.proxy, &it.endpoint, &call("4")));
    let mut client = get(&proxy, &[("last-event-id", &it.cursor)]);
    says_gone(&client.whole());
}

/// What could not be sent is told on the stream, since any other status ends whole clients: the POST is accepted.
#[test]
fn a_call_that_cant_be_sent() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.exchange.replica_retry_max=100ms"]);
    let mut it = open(&proxy, &backend);
    backend.close();
    // It was not run: the same is a new request.
    for _ in 0..2 {
        let mut client = it.post(&call("1"));
        assert_eq!(client.whole().head.status(), 202);
        assert_eq!(
            failed(it.client.event().data(), "1"),
            ("unavailable".into(), "not_executed".into())
        );
    }
    // Whoever is away then hears it when it comes back.
    let cursor = it.cursor.clone();
    it.cut(&proxy);
    assert_eq!(it.post(&call("2")).whole().head.status(), 202);
    it.resumed(&cursor, "resumed 0 ");
    for id in ["1", "1", "2"] {
        assert_eq!(failed(it.client.event().data(), id).0, "unavailable");
    }
}

/// As many calls as streams may be under way; one more is told so on the stream.
#[test]
fn too_many_calls() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.session.streams_max=1"]);
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    let mut client = it.post(&call("2"));
    assert_eq!(client.whole().head.status(), 202);
    assert_eq!(
        failed(it.client.event().data(), "2"),
        ("overloaded".into(), "not_executed".into())
    );
    it.standing.event(&result("1"));
    message(&mut it.client, &result("1"));
    it.accepted(&backend, &call("2"));
    assert!(backend.is_silent());
}

/// Whoever asks on and reads nothing does not make outcomes pile up behind its stream: its POST is refused with a status.
#[test]
fn a_client_that_asks_on_and_reads_nothing() {
    let backend = Backend::start();
    let settings = [
        "upstream.stream.replay_events_max=8",
        "upstream.session.streams_max=1",
    ];
    let proxy = started(&backend, &settings);
    let it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    let (endpoint, mut standing) = (it.endpoint.clone(), it.standing);
    // More than kernels hold: the backend's writes stop.
    let long = format!(
        r#"{{"jsonrpc":"2.0","method":"x","params":"{}"}}"#,
        "p".repeat(60_000)
    );
    let writer = std::thread::spawn(move || while standing.try_event(&long).is_ok() {});
    let mut refused = None;
    for _ in 0..20_000 {
        let whole = Client::post_to(proxy.address, &endpoint, &another_call("2"));
        match whole.head.status() {
            202 => {}
            _ => {
                refused = Some(whole);
                break;
            }
        }
    }
    let refused = refused.expect("it is refused in the end");
    assert_eq!(refused.head.status(), 503, "{refused:?}");
    assert!(refused.head.get("retry-after").is_some());
    assert!(backend.is_silent(), "nothing of it was sent");
    proxy.kill();
    writer.join().expect("the writer ends");
}

/// A POST whose answer is lost was perhaps executed: its one outcome is our error, and a late answer is left out.
#[test]
fn a_posts_answer_is_lost() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    let mut client = it.post(&call("1"));
    backend.next_of("POST").cut();
    assert_eq!(client.whole().head.status(), 202);
    assert_eq!(
        failed(it.client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    it.standing.event(&result("1")).event(&note(2));
    message(&mut it.client, &note(2));
}

/// A client that leaves its POST before it is accepted stays on its stream: when the POST is waited for no more, it hears
/// of its call there.
#[test]
fn a_post_that_its_client_left_comes_to_nothing() {
    let backend = Backend::start();
    let proxy = started(
        &backend,
        &[
            "upstream.stream.detached_max=500ms",
            "upstream.stream.replay_age_max=1s",
        ],
    );
    let mut it = open(&proxy, &backend);
    let client = it.post(&call("1"));
    let exchange = backend.next_of("POST");
    client.cut();
    let told = failed(it.client.event().data(), "1");
    assert_eq!(told, ("backend_lost".into(), "unknown".into()));
    exchange.answer(202, &[], "Accepted");
    // A late answer says nothing more.
    it.standing.event(&result("1"));
    it.standing.event(&note(2));
    assert_eq!(it.client.event().data(), note(2));
}

/// The backend's own refusals are the client's to read, with their status; so is a session that the backend forgot.
#[test]
fn a_backends_refusal_is_relayed() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    for (status, field, body) in [
        (400, ("x-own", "1"), "Could not parse message"),
        (401, ("www-authenticate", "Bearer"), "no"),
        (413, ("x-own", "1"), "too large"),
        (500, ("x-own", "1"), "oops"),
    ] {
        let mut client = it.post(&another_call("1"));
        backend.next_of("POST").answer(status, &[field], body);
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, body));
        assert_eq!(whole.head.get(field.0), Some(field.1));
    }
    // Each had its one outcome: nothing is owed when the session ends, this one included.
    let mut client = it.post(&another_call("1"));
    backend.next_of("POST").answer(404, &[], "Could not find session");
    says_gone(&client.whole());
    it.client.ended();
    it.standing.wait_closed();
}

/// A refusal that comes behind the session's end says nothing more: the stream has told the call's one outcome by then.
#[test]
fn a_refusal_behind_the_sessions_end() {
    for (status, body) in [(404, "Could not find session"), (400, "no"), (500, "oops")] {
        let backend = Backend::start();
        let proxy = started(&backend, &[]);
        let mut it = open(&proxy, &backend);
        let mut client = it.post(&call("1"));
        let exchange = backend.next_of("POST");
        it.standing.cut();
        let told = failed(it.client.event().data(), "1");
        assert_eq!(told, ("backend_lost".into(), "unknown".into()));
        it.client.ended();
        exchange.answer(status, &[], body);
        assert_eq!(client.whole().head.status(), 202, "{status}");
    }
}

/// `errors = "jsonrpc"`: a refusal that would end a whole client is told on the stream instead.
#[test]
fn a_backends_refusal_is_translated() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.errors=jsonrpc"]);
    let mut it = open(&proxy, &backend);
    let mut client = it.post(&another_call("1"));
    backend.next_of("POST").answer(429, &[], "slowly");
    assert_eq!(client.whole().head.status(), 202);
    let said = json(&it.client.event());
    assert_eq!(
        (&said["id"], &said["error"]["code"]),
        (&1.into(), &(-32603).into())
    );
}

/// The same POST again is answered at once and runs once; after its answer and some seconds it is a new one.
#[test]
fn the_same_post_runs_once() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    let first = it.post(&call("1"));
    let exchange = backend.next_of("POST");
    // While it is under way, and its connection is gone.
    first.cut();
    assert_eq!(it.post(&call("1")).whole().head.status(), 202);
    exchange.answer(202, &[], "Accepted");
    assert_eq!(it.post(&call("1")).whole().head.status(), 202);
    it.standing.event(&result("1"));
    message(&mut it.client, &result("1"));
    assert_eq!(it.post(&call("1")).whole().head.status(), 202);
    assert!(backend.is_silent(), "it was sent once");
    it.standing.event(&note(1));
    message(&mut it.client, &note(1));
    // Another one with the same id is another one.
    it.accepted(&backend, &another_call("1"));
}

/// A notification is accepted whatever becomes of it; a cancelled call owes nothing any more.
#[test]
fn a_cancelled_call_owes_nothing() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    it.accepted(
        &backend,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    );
    it.standing.finish();
    it.client.ended();
}

/// A server's request that was answered is not asked again when its client comes back.
#[test]
fn an_answered_request_is_not_replayed() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open(&proxy, &backend);
    let asks = r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#;
    it.standing.event(asks);
    message(&mut it.client, asks);
    it.accepted(
        &backend,
        r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#,
    );
    let cursor = it.cursor.clone();
    it.cut(&proxy);
    it.resumed(&cursor, "resumed 0 1");
    let struck = it.client.event();
    assert!(!struck.data().contains("elicitation"), "{struck:?}");
    // While nobody is there, the proxy answers the backend's pings.
    it.cut(&proxy);
    it.standing.event(r#"{"jsonrpc":"2.0","id":8,"method":"ping"}"#);
    let answer = backend.next_of("POST");
    assert_eq!(answer.head.target(), OWN);
    assert_eq!(answer.body, r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
    answer.answer(202, &[], "");
}

/// Whoever comes back with a credential that nobody has seen is put to the backend, and learns nothing meanwhile; the
/// ping's answer comes on the stream and is not the client's.
#[test]
fn an_unknown_credential_is_proved_by_a_ping() {
    const OTHER: (&str, &str) = ("authorization", "Bearer other");
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut it = open_with(&proxy, &backend, &[("authorization", "Bearer own")]);
    let cursor = it.cursor.clone();
    it.cut(&proxy);
    it.standing.event(&note(1));
    let mut stranger = it.again(&cursor, &[OTHER]);
    let ping = backend.next_of("POST");
    assert_eq!(ping.head.target(), OWN);
    assert_eq!(ping.head.get("authorization"), Some("Bearer other"));
    ping.answer(401, &[("www-authenticate", "Bearer")], "no");
    let whole = stranger.whole();
    assert_eq!((whole.head.status(), &*whole.body), (401, "no"));
    let mut client = it.again(&cursor, &[OTHER]);
    let ping = backend.next_of("POST");
    ping.answer(202, &[], "Accepted");
    it.standing
        .event(r#"{"jsonrpc":"2.0","id":"throughline-proof","result":{}}"#);
    assert!(verdict(&client.head()).starts_with("resumed 0 "));
    assert_eq!(endpoint(&mut client).data(), it.endpoint);
    message(&mut client, &note(1));
    it.standing.event(&note(2));
    message(&mut client, &note(2));
    // A POST of a stranger is the backend's to judge.
    let mut post = it.post_with(&[("authorization", "Bearer third")], &call("1"));
    let exchange = backend.next_of("POST");
    assert_eq!(exchange.head.get("authorization"), Some("Bearer third"));
    exchange.answer(403, &[], "no");
    assert_eq!(post.whole().head.status(), 403);
}

/// Nobody came back: the backend hears that nobody waits, its connection ends, and the session with it.
#[test]
fn nobody_comes_back() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.stream.detached_max=500ms"]);
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    let cursor = it.cursor.clone();
    it.cut(&proxy);
    let cancel = backend.next_of("POST");
    assert_eq!(cancel.head.target(), OWN);
    assert!(cancel.body.contains("notifications/cancelled"), "{}", cancel.body);
    cancel.answer(202, &[], "");
    it.standing.wait_closed();
    assert_eq!(proxy.logged_of(&it.label, "session ended")["reason"], "detached");
    it.is_gone(&cursor);
}

/// At `session_max` the session ends, and its connection to the backend with it.
#[test]
fn the_sessions_time_is_over() {
    let backend = Backend::start();
    let proxy = started(
        &backend,
        &[
            "upstream.session.session_max=1s",
            "upstream.session.session_idle=1s",
        ],
    );
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    assert_eq!(
        failed(it.client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    it.client.ended();
    it.standing.wait_closed();
    assert_eq!(proxy.logged_of(&it.label, "session ended")["reason"], "too_old");
    let cursor = it.cursor.clone();
    it.is_gone(&cursor);
    assert!(backend.is_silent(), "no DELETE: this transport has none");
}

/// Two replicas: each session's POSTs go where its stream is, whatever the balance; `sessions` changes nothing of it.
#[test]
fn one_replica_for_each_session() {
    let (one, two) = (Backend::start(), Backend::start());
    for sessions in ["replica", "shared", "none"] {
        let proxy = Proxy::start(
            &[&url(&one), &url(&two)],
            &[
                "upstream.balance=round_robin",
                &format!("upstream.sessions={sessions}"),
            ],
        );
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut client = get(&proxy, &[]);
            let (backend, asked) = loop {
                if let Some(asked) = one.try_next() {
                    break (&one, asked);
                }
                if let Some(asked) = two.try_next() {
                    break (&two, asked);
                }
            };
            let standing = named(asked, OWN);
            client.head();
            let endpoint = endpoint(&mut client).data().to_owned();
            held.push((backend, client, standing, endpoint));
        }
        for (n, (backend, _client, _standing, endpoint)) in held.iter().enumerate() {
            let mut client = proxy.connect();
            client.send_to(endpoint, "POST", &[], &call(&n.to_string()));
            let exchange = backend.next_of("POST");
            assert_eq!(exchange.body, call(&n.to_string()));
            exchange.answer(202, &[], "");
            assert_eq!(client.whole().head.status(), 202);
        }
    }
}

/// A proxy that holds no stream of the session sends its POSTs all the same, by the token alone; with another key, or at
/// another upstream, it is nobody's.
#[test]
fn another_proxy_routes_by_the_token() {
    let backend = Backend::start();
    let (proxy, beside) = (started(&backend, &[]), started(&backend, &[]));
    let mut it = open(&proxy, &backend);
    it.proxy = beside.address;
    it.accepted(&backend, &call("1"));
    it.standing.event(&result("1"));
    message(&mut it.client, &result("1"));
    // The stream is not there.
    let mut client = it.again(&it.cursor, &[]);
    says_gone(&client.whole());
    // Nor does the token open anything of the other transport.
    let token = it.endpoint.split_once('=').expect("a token").1.to_owned();
    let mut client = beside.connect();
    client.send_to("/sse", "POST", &[("mcp-session-id", &token)], &call("2"));
    says_gone(&client.whole());
    // What can't be sent can be told to nobody but the one who asks: not 202.
    backend.close();
    let whole = it.post(&call("3")).whole();
    assert_eq!(whole.head.status(), 502, "{whole:?}");
}

/// A token that is none of ours is nobody's.
#[test]
fn a_made_up_token() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let it = open(&proxy, &backend);
    let (but_one, last) = it.endpoint.split_at(it.endpoint.len() - 1);
    let forged = format!("{but_one}{}", if last == "x" { "y" } else { "x" });
    for target in [&*forged, "/sse?sessionId=", "/sse?sessionId=%00"] {
        let mut client = proxy.connect();
        client.send_to(target, "POST", &[], &call("1"));
        says_gone(&client.whole());
    }
    assert!(backend.is_silent());
}

/// A backend whose beginning can't be followed is named in the log, and its client told at once.
#[test]
fn a_bad_beginning() {
    let backend = Backend::start();
    let long = format!("/{}", "x".repeat(1_024));
    let check = |setting: &str, said: &str, what: Option<&str>| {
        let proxy = started(&backend, &[setting]);
        let mut client = get(&proxy, &[]);
        let mut standing = backend.next_of("GET").stream();
        standing.chunk(said);
        if said.is_empty() || said.starts_with(':') {
            standing.finish();
        }
        let whole = client.whole();
        match what {
            Some(what) => {
                assert_eq!(whole.head.status(), 502, "{said}");
                assert!(whole.body.contains(what), "{}", whole.body);
                let line = proxy.logged("no session could be made of a stream");
                assert_eq!((&line["upstream"], &line["what"]), (&"sse".into(), &what.into()));
                assert!(!whole.body.contains("xxx"), "nothing of it is shown");
            }
            None => assert_eq!((whole.head.status(), &*whole.body), (200, said)),
        }
    };
    for setting in ["upstream.transport=auto", "upstream.transport=sse"] {
        for (data, what) in [
            (
                "http://evil.example/messages",
                "the endpoint event names another origin",
            ),
            (
                "//evil.example/messages",
                "the endpoint event names another origin",
            ),
            ("", "the endpoint event says nothing"),
            ("/a b", "the endpoint event holds no URI"),
            (&*long, "the endpoint event is too long"),
        ] {
            check(setting, &format!("event: endpoint\ndata: {data}\n\n"), Some(what));
        }
    }
    let sse = "upstream.transport=sse";
    check(
        sse,
        "data: {}\n\n",
        Some("the first event is not an endpoint event"),
    );
    check(
        sse,
        ": nothing\n\n",
        Some("the stream ended before its endpoint event"),
    );
    // Of a server of another transport every byte passes.
    check("upstream.transport=auto", ": nothing\n\n", None);
}

/// Other answers to the GET are the client's, as they are.
#[test]
fn a_get_that_does_not_stream() {
    let backend = Backend::start();
    for (setting, status, expected) in [
        ("upstream.transport=auto", 405, 405),
        ("upstream.transport=sse", 401, 401),
        ("upstream.transport=auto", 200, 200),
        ("upstream.transport=sse", 200, 502),
    ] {
        let proxy = started(&backend, &[setting]);
        let mut client = get(&proxy, &[]);
        backend
            .next_of("GET")
            .answer(status, &[("www-authenticate", "Bearer")], "own");
        let whole = client.whole();
        assert_eq!(whole.head.status(), expected, "{setting}");
        if expected == status {
            assert_eq!(whole.body, "own");
            assert_eq!(whole.head.get("www-authenticate"), Some("Bearer"));
        }
    }
}

/// Clients that try the newer transport first: the server's refusal is theirs to read, and leads them to the older one.
#[test]
fn a_client_that_falls_back() {
    let backend = Backend::start();
    for setting in ["upstream.transport=auto", "upstream.transport=sse"] {
        let proxy = started(&backend, &[setting]);
        let mut client = proxy.connect();
        client.send_to("/sse", "POST", &[], &initialize(PRIMING));
        let exchange = backend.next_of("POST");
        assert_eq!(
            (exchange.head.target(), &*exchange.body),
            ("/sse", &*initialize(PRIMING))
        );
        exchange.answer(405, &[("allow", "GET")], "Method Not Allowed");
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (405, "Method Not Allowed"));
        open(&proxy, &backend);
    }
}

/// `transport = "streamable"`: nothing of all this; a stream of another transport passes byte for byte.
#[test]
fn where_it_is_not_wanted() {
    let backend = Backend::start();
    for (setting, said) in [
        ("upstream.transport=streamable", "event: endpoint\ndata: /m\n\n"),
        (
            "upstream.transport=auto",
            "id: 1\ndata: {}\n\ndata: {\"a\":1}\n\n",
        ),
    ] {
        let proxy = started(&backend, &[setting]);
        let mut client = get(&proxy, &[]);
        let mut standing = backend.next_of("GET").stream();
        standing.chunk(said);
        let head = client.head();
        assert_eq!(head.get("throughline-continuity"), None);
        standing.chunk(": more\n\n");
        standing.finish();
        let body = client.peer.whole().expect("a whole body");
        let body = String::from_utf8(body).expect("text");
        // Silent ones get comments, between frames.
        assert_eq!(body.replace(": keep-alive\n\n", ""), format!("{said}: more\n\n"));
    }
}

/// A stream that turns out to be of another transport is passed on like those that were never asked: with comments in
/// silence, and none within a frame.
#[test]
fn one_of_another_transport_is_kept_alive() {
    let backend = Backend::start();
    let settings = ["upstream.transport=auto", "upstream.stream.keepalive=1s"];
    let proxy = started(&backend, &settings);
    let mut client = get(&proxy, &[]);
    let mut standing = backend.next_of("GET").stream();
    standing.chunk("data: 1\n\ndata: {\"half\":");
    client.head();
    assert_eq!(client.event().data(), "1");
    client.comment();
    standing.chunk("1}\n\n");
    assert_eq!(client.event().data(), "{\"half\":1}");
    client.comment();
    client.cut();
    standing.wait_closed();
}

/// Messages in one breath with the endpoint, and a second endpoint that is not the client's to see.
#[test]
fn what_comes_with_the_endpoint() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut client = get(&proxy, &[]);
    let mut standing = backend.next_of("GET").stream();
    standing.chunk(&format!(
        ": hello\n\nretry: 5\n\nevent: endpoint\nid: 1\ndata: {OWN}\n\ndata: {}\n\ndata: {{\"ha",
        note(1)
    ));
    standing.chunk(&format!(
        "lf\":1}}\n\nevent: endpoint\ndata: /elsewhere\n\ndata: {}\n\n",
        note(2)
    ));
    assert_eq!(verdict(&client.head()), "live");
    endpoint(&mut client);
    message(&mut client, &note(1));
    message(&mut client, r#"{"half":1}"#);
    message(&mut client, &note(2));
}

/// The proxy drains: a call under way has its answer first; then the session ends, with a word when to come back.
#[test]
fn the_proxy_drains() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let mut idle = open(&proxy, &backend);
    let mut busy = open(&proxy, &backend);
    busy.accepted(&backend, &call("1"));
    proxy.terminate();
    let event = idle.client.event();
    assert!(event.retry.is_some() && event.data.is_none(), "{event:?}");
    idle.client.ended();
    idle.standing.wait_closed();
    busy.standing.event(&note(1)).event(&result("1"));
    message(&mut busy.client, &note(1));
    message(&mut busy.client, &result("1"));
    assert!(busy.client.event().retry.is_some());
    busy.client.ended();
    assert_eq!(proxy.exit_code(), 0);
}

/// … and one that has no answer in time is told so.
#[test]
fn the_proxy_drains_and_a_call_is_late() {
    let backend = Backend::start();
    let proxy = started(&backend, &["server.drain_max=1s"]);
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    proxy.terminate();
    let mut event = it.client.event();
    if event.data.is_none() {
        event = it.client.event();
    }
    assert_eq!(failed(event.data(), "1"), ("owner_lost".into(), "unknown".into()));
    it.client.ended();
}

/// A replica's drain ends its sessions at the deadline: there is nowhere else for them to go on.
#[test]
fn a_drained_replica() {
    let backend = Backend::start();
    let proxy = started(&backend, &[OPERATOR, "upstream.drain_deadline=0s"]);
    let operator = proxy.operator();
    let mut it = open(&proxy, &backend);
    it.accepted(&backend, &call("1"));
    let target = format!("/replicas/sse/{}/drain", backend.address);
    assert_eq!(ask(operator, "POST", &target).head.status(), 200);
    assert_eq!(
        failed(it.client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    it.client.ended();
    it.standing.wait_closed();
    assert_eq!(proxy.logged("lost session does not go on")["why"], "transport");
    let cursor = it.cursor.clone();
    it.is_gone(&cursor);
}

/// Ids that are made the session's own come back as the client's; the one outcome is known by them.
#[test]
fn isolated_ids() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.isolate_request_ids=true"]);
    let mut it = open(&proxy, &backend);
    let mut client = it.post(&call("1"));
    let exchange = backend.next_of("POST");
    let sent: serde_json::Value = serde_json::from_str(&exchange.body).expect("JSON");
    assert_ne!(sent["id"], 1, "{sent}");
    exchange.answer(202, &[], "");
    assert_eq!(client.whole().head.status(), 202);
    it.standing.event(&result(&sent["id"].to_string()));
    message(&mut it.client, &result("1"));
    // It has had its outcome: the end of the session owes it nothing.
    it.standing.finish();
    it.client.ended();
}

/// Whoever says what it has negotiated, and brings no cursor, had a session: it begins anew, and the log says what that means.
#[test]
fn a_client_that_comes_back_without_a_cursor() {
    let backend = Backend::start();
    let proxy = started(&backend, &[]);
    let first = open(&proxy, &backend);
    let again = open_with(&proxy, &backend, &[("mcp-protocol-version", PRIMING)]);
    assert_ne!(again.endpoint, first.endpoint);
    let line = proxy.logged(
        "a client that had a session came back without a cursor; it begins anew, and what it missed is lost to it",
    );
    assert_eq!(line["level"], "WARN");
}

/// No replica: 503 where it is known what would come, so that a client comes again.
#[test]
fn no_replica() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.transport=sse", "upstream.health.probe=off"]);
    backend.close();
    let whole = get(&proxy, &[]).whole();
    assert_eq!(whole.head.status(), 503);
    assert!(whole.head.get("retry-after").is_some());
}

/// So many sessions, and no more.
#[test]
fn too_many_sessions() {
    let backend = Backend::start();
    let proxy = started(&backend, &["upstream.session.sessions_max=1"]);
    let _it = open(&proxy, &backend);
    assert_eq!(get(&proxy, &[]).whole().head.status(), 503);
    assert!(backend.is_silent());
}

impl Client {
    /// A POST to this target, and its whole answer.
    fn post_to(address: std::net::SocketAddr, target: &str, body: &str) -> Whole {
        let mut client = Self::connect(address);
        client.send_to(target, "POST", &[], body);
        client.whole()
    }
}

//! What the operator sees and may order, over real sockets: readiness, status, orders.
//! Law: nothing that a client could be impersonated with is ever shown.
//! Next: `draining.rs`, `ejected.rs`, `reload.rs`.

use std::net::SocketAddr;
use std::time::Instant;

use serde_json::{Value, json};

use crate::backend::Backend;
use crate::client::{Client, Whole};
use crate::peer::DEADLINE;
use crate::proxy::Proxy;
use crate::session::{Session, message, note, result};

/// Where the operator looks, in tests.
pub(crate) const OPERATOR: &str = "admin.listen=127.0.0.1:0";

/// Asks the operator's address.
pub(crate) fn ask(operator: SocketAddr, method: &str, target: &str) -> Whole {
    ask_from(operator, method, target, &[])
}

/// The same, with these fields.
pub(crate) fn ask_from(operator: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> Whole {
    let mut client = Client::connect(operator);
    client.send_to(target, method, fields, "");
    client.whole()
}

/// `/status.json`.
pub(crate) fn status(operator: SocketAddr) -> Value {
    let whole = ask(operator, "GET", "/status.json");
    assert_eq!(whole.head.status(), 200);
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    serde_json::from_str(&whole.body).expect("JSON")
}

/// A replica's part of it.
pub(crate) fn replica(operator: SocketAddr, backend: &Backend) -> Value {
    let status = status(operator);
    let named = backend.address.to_string();
    let upstreams = status["upstreams"].as_array().expect("upstreams");
    let mut replicas = upstreams
        .iter()
        .flat_map(|upstream| upstream["replicas"].as_array().expect("replicas"));
    let found = replicas.find(|replica| replica["replica"] == *named);
    found.unwrap_or_else(|| panic!("no {named} in {status}")).clone()
}

/// A line of `/metrics`, by its beginning; its value.
pub(crate) fn metric(operator: SocketAddr, name: &str) -> Option<String> {
    let whole = ask(operator, "GET", "/metrics");
    let mut lines = whole.body.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
}

/// Ready only once a probe has passed; and who is wanting is named.
#[test]
fn nothing_is_ready_before_its_first_probe_has_passed() {
    let backend = Backend::start();
    let settings = [
        OPERATOR,
        "upstream.health.probe=/healthz",
        "upstream.health.interval=2s",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let operator = proxy.operator();
    let probe = backend.next_of("GET");
    assert_eq!(probe.head.target(), "/healthz");
    let whole = ask(operator, "GET", "/readyz");
    assert_eq!(whole.head.status(), 503);
    let wanting = format!("starting\nupstream mcp: {} unproved\n", backend.address);
    assert_eq!(whole.body, wanting);
    assert_eq!(ask(operator, "GET", "/healthz").head.status(), 200);
    probe.answer(200, &[], "");
    // The answer is judged before the next probe is sent.
    let next = backend.next_of("GET");
    assert_eq!(ask(operator, "GET", "/readyz").body, "ready\n");
    next.answer(200, &[], "");
}

/// The same where a request is answered before any probe is.
#[test]
fn an_answered_request_is_as_good_as_a_probe() {
    let backend = Backend::start();
    let settings = [OPERATOR, "upstream.health.probe=/healthz"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let operator = proxy.operator();
    let probe = backend.next_of("GET");
    let _session = Session::open(&proxy, &backend);
    assert_eq!(ask(operator, "GET", "/readyz").body, "ready\n");
    backend.park(probe);
}

#[test]
fn an_unhealthy_replica_is_named_with_its_upstream_and_its_error() {
    let backend = Backend::start();
    let settings = [
        OPERATOR,
        "upstream.name=tools",
        "upstream.health.probe=/healthz",
        "upstream.health.fall=1",
        "upstream.health.interval=1h",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let operator = proxy.operator();
    backend.next_of("GET").answer(500, &[], "");
    let line = proxy.logged("replica became unhealthy");
    assert_eq!(line["upstream"], "tools");
    assert_eq!(line["replica"], *backend.address.to_string());
    assert_eq!(line["error"], "/healthz answered 500");
    let whole = ask(operator, "GET", "/readyz");
    assert_eq!(whole.head.status(), 503);
    let wanting = format!(
        "no_healthy_replica\nupstream tools: {} unhealthy\n",
        backend.address
    );
    assert_eq!(whole.body, wanting);
    let seen = replica(operator, &backend);
    assert_eq!(
        (&seen["state"], &seen["last_error"]),
        (&"unhealthy".into(), &"/healthz answered 500".into())
    );
    let healthy = format!(
        "throughline_replica_healthy{{upstream=\"tools\",replica=\"{}\"}}",
        backend.address
    );
    assert_eq!(metric(operator, &healthy).as_deref(), Some("0"));
}

/// Sessions, streams and memory are counted; tokens, ids and payloads are not shown.
#[test]
fn the_status_says_how_everything_stands_and_no_secret() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[OPERATOR]);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    standing.event(&note(7));
    let id = message(&mut listener, &note(7)).id().to_owned();
    let status = status(operator);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["readiness"], "ready");
    assert_eq!(status["config"], Value::Null);
    assert!(status["connections"].as_u64().expect("a number") >= 1, "{status}");
    assert!(
        status["memory"]["held"].as_u64().expect("a number") > 0,
        "{status}"
    );
    assert_eq!(status["memory"]["budget"], 256 << 20);
    let upstream = &status["upstreams"][0];
    assert_eq!(
        (&upstream["name"], &upstream["sessions"]),
        (&"mcp".into(), &1.into())
    );
    assert_eq!(upstream["streams"]["get"], 1);
    let seen = &upstream["replicas"][0];
    assert_eq!(
        (&seen["state"], &seen["sessions"]),
        (&"healthy".into(), &1.into())
    );
    let text = ask(operator, "GET", "/status").body;
    assert!(
        text.contains(&format!("{} healthy, 1 sessions", backend.address)),
        "{text}"
    );
    for secret in [&session.token, "backend-session", &id, "progressToken"] {
        assert!(
            !text.contains(secret) && !status.to_string().contains(secret),
            "{secret}"
        );
    }
}

/// Until it says this; a stream counts itself as its client leaves.
fn says(operator: SocketAddr, streams: &Value) {
    let since = Instant::now();
    loop {
        let now = status(operator)["upstreams"][0]["streams"].clone();
        if now == *streams {
            return;
        }
        assert!(since.elapsed() < DEADLINE, "{now} is no {streams}");
    }
}

/// What listens, what is still to be answered, what is only kept, and what runs without a client.
#[test]
fn streams_are_counted_as_what_they_are() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[OPERATOR]);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &backend);
    let counts = |get: u8, post: u8, held: u8, detached: u8| {
        let streams = json!({"get": get, "post": post, "held": held, "detached": detached});
        says(operator, &streams);
    };
    counts(0, 0, 0, 0);
    let (listener, _standing) = session.listening(&backend);
    counts(1, 0, 0, 0);
    let (mut taken, mut first) = session.streaming_call(&backend, "1");
    let (left, mut second) = session.streaming_call(&backend, "2");
    counts(1, 2, 0, 0);
    // Complete and taken: kept for a client whose connection broke at the very end.
    first.event(&result("1"));
    message(&mut taken, &result("1"));
    taken.ended();
    counts(1, 1, 1, 0);
    left.cut();
    counts(1, 1, 1, 1);
    // Complete, and nobody took it.
    second.event(&result("2"));
    counts(1, 0, 2, 0);
    let held = metric(operator, "throughline_streams_held{upstream=\"mcp\"}");
    assert_eq!(held.as_deref(), Some("2"));
    let text = ask(operator, "GET", "/status").body;
    assert!(
        text.contains("1 listening, 0 answering, 2 held, 0 detached"),
        "{text}"
    );
    listener.cut();
    counts(1, 0, 2, 1);
    let mut client = session.delete();
    backend.next_of("DELETE").answer(200, &[], "");
    assert_eq!(client.whole().head.status(), 200);
    counts(0, 0, 0, 0);
}

/// No web page can give an order: it is a POST, and its `Host` and `Origin` are judged.
#[test]
fn orders_are_taken_from_this_machine_alone() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[OPERATOR]);
    let operator = proxy.operator();
    let _session = Session::open(&proxy, &backend);
    let drain = format!("/replicas/mcp/{}/drain", backend.address);
    assert_eq!(ask(operator, "GET", &drain).head.status(), 405);
    let own = operator.to_string();
    for (fields, status) in [
        ([("host", "evil.example"), ("x", "")], 421),
        ([("host", &*own), ("origin", "https://evil.example")], 403),
        ([("host", "evil.example"), ("origin", "http://evil.example")], 421),
    ] {
        assert_eq!(
            ask_from(operator, "POST", &drain, &fields).head.status(),
            status,
            "{fields:?}"
        );
    }
    assert_eq!(replica(operator, &backend)["state"], "healthy");
    let whole = ask(operator, "POST", "/replicas/mcp/127.0.0.1:1/drain");
    assert_eq!(whole.head.status(), 404);
    assert!(
        whole.body.contains(&format!("mcp/{}", backend.address)),
        "{}",
        whole.body
    );
    assert_eq!(ask(operator, "POST", &drain).head.status(), 200);
    assert_eq!(replica(operator, &backend)["state"], "draining");
}

//! 2026-07-28: each request for itself, to any replica, cancelled by going away (wire contract, section 11).
//! Law: what passes, passes byte for byte; what is ours stands between whole frames; each request has one outcome.
//! Next: `batches.rs`.

use serde_json::Value;

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::peer::DEADLINE;
use crate::proxy::Proxy;
use crate::session::{Session, call, failed, note, result};
use crate::status::{OPERATOR, ask, replica};

/// The field by which its requests are known.
const ERA: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

/// A subscription with this raw id.
fn listen(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{"toolsListChanged":true}}}}}}"#
    )
}

/// Its first message.
fn acknowledged(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
    )
}

/// A call that names its version itself.
fn enveloped(id: &str, version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}},"name":"t"}}}}"#
    )
}

/// Sends this on a connection of its own.
fn ask_for(proxy: &Proxy, body: &str) -> Client {
    let mut client = proxy.connect();
    client.send("POST", &[ERA], body);
    client
}

/// The next request, at whichever of these it comes, and at which.
fn at_any<'a>(backends: &'a [&'a Backend]) -> (usize, Exchange) {
    let since = std::time::Instant::now();
    loop {
        for (nth, backend) in backends.iter().enumerate() {
            if let Some(exchange) = backend.try_next() {
                return (nth, exchange);
            }
        }
        assert!(since.elapsed() < DEADLINE, "a request reaches a backend");
    }
}

/// Answers, and says that the connection is not to be used again.
fn last_on_its_connection(exchange: Exchange, body: &str) {
    exchange.answer(
        200,
        &[("content-type", "application/json"), ("connection", "close")],
        body,
    );
}

/// Asks for a task.
fn get_task(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{{"taskId":"{id}"}}}}"#)
}

/// A message without an id.
fn plain(client: &mut Client, data: &str) {
    let event = client.event();
    assert_eq!((event.id.as_deref(), event.data()), (None, data));
}

/// An open subscription: the client past the acknowledgement, and the backend's side.
fn listening(proxy: &Proxy, backend: &Backend, id: &str) -> (Client, Exchange) {
    let mut client = ask_for(proxy, &listen(id));
    let mut exchange = backend.next().stream();
    assert_eq!(client.head().status(), 200);
    exchange.event(&acknowledged(id));
    plain(&mut client, &acknowledged(id));
    (client, exchange)
}

/// The end of a subscription on purpose, in the words of the specification.
fn ended_on_purpose(client: &mut Client, id: &str) {
    let event = client.event();
    assert_eq!(event.event.as_deref(), Some("message"));
    assert_eq!(
        event.data(),
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
        )
    );
    client.ended();
}

/// A request is known by its field, or by what its body says of itself, and by nothing that came before: a session goes
/// on beside it, at a server of both eras.
#[test]
fn each_request_is_recognised_by_itself() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let cases: [(&[(&str, &str)], String); 4] = [
        (&[ERA], call("1")),
        (&[ERA], enveloped("1", "2026-07-28")),
        (&[], enveloped("1", "2026-07-28")),
        (
            &[("mcp-protocol-version", "2030-01-01")],
            enveloped("1", "2030-01-01"),
        ),
    ];
    for (fields, body) in cases {
        // An old session id, and a cursor, are ignored; what was there before is still there after.
        let mut fields = fields.to_vec();
        fields.extend([("mcp-session-id", &*session.token), ("last-event-id", "7")]);
        let mut client = proxy.connect();
        client.send("POST", &fields, &body);
        let mut exchange = backend.next();
        assert_eq!(exchange.body, body);
        assert_eq!(exchange.head.get("mcp-session-id"), None, "{fields:?}");
        assert_eq!(exchange.head.get("last-event-id"), None, "{fields:?}");
        client.cut();
        exchange.wait_closed();
        session.is_alive(&backend);
    }
    // A body that contradicts its field is the server's to judge: it goes where the field says.
    let body = enveloped("5", "2026-07-28");
    let mut client = session.post(&body);
    let exchange = backend.next();
    assert_eq!(
        (&*exchange.body, exchange.head.get("mcp-session-id")),
        (&*body, Some("backend-session"))
    );
    let refusal = r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32020,"message":"Header mismatch"}}"#;
    exchange.answer(400, &[("content-type", "application/json")], refusal);
    let whole = client.whole();
    assert_eq!((whole.head.status(), &*whole.body), (400, refusal));
}

/// A probe latches nothing: the same backend is asked in either era, whatever it answered before.
#[test]
fn a_probe_latches_nothing() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let discover = r#"{"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
    for (status, body) in [
        (
            400,
            r#"{"jsonrpc":"2.0","id":"p","error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"]}}}"#,
        ),
        (404, "not here"),
        (
            200,
            r#"{"jsonrpc":"2.0","id":"p","result":{"supportedVersions":["2026-07-28"]}}"#,
        ),
    ] {
        let mut client = ask_for(&proxy, discover);
        let exchange = backend.next();
        assert_eq!(exchange.body, discover);
        exchange.answer(
            status,
            &[("content-type", "application/json"), ("x-own", "1")],
            body,
        );
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, body));
        assert_eq!(whole.head.get("x-own"), Some("1"));
        Session::open(&proxy, &backend).is_alive(&backend);
    }
}

/// Comments come at once and in silence, and only between frames: a frame that is not finished is held back, and what
/// was sent passes byte for byte.
#[test]
fn comments_stand_between_frames_only() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let mut client = ask_for(&proxy, &listen("1"));
    let mut exchange = backend.next();
    exchange.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    let head = client.head();
    assert_eq!(head.get("x-accel-buffering"), Some("no"));
    // The first byte, before the backend has said any.
    client.comment();
    exchange.chunk("event: message\ndata: {\"half\":");
    client.comment();
    exchange.chunk("1}\n");
    exchange.chunk("\ndata: 2\n\n: theirs\n");
    let event = client.event();
    assert_eq!(
        (event.event.as_deref(), event.data()),
        (Some("message"), "{\"half\":1}")
    );
    plain(&mut client, "2");
    client.comment();
    exchange.event(&note(3));
    plain(&mut client, &note(3));
    client.cut();
    exchange.wait_closed();
}

/// A server may begin with a byte order mark. Behind our first comment it would be a part of the first line, and the
/// event would be lost.
#[test]
fn a_byte_order_mark_hides_no_event() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    for (held, rest) in [
        ("\u{feff}", "data: 1\n\n"),
        ("\u{feff}data", ": 1\n\n"),
        ("\u{feff}data: 1\n", "\n"),
    ] {
        let mut client = ask_for(&proxy, &listen("1"));
        let mut exchange = backend.next().stream();
        client.head();
        client.comment();
        exchange.chunk(held);
        client.comment();
        exchange.chunk(rest);
        plain(&mut client, "1");
        exchange.chunk("data: 2\n\n");
        plain(&mut client, "2");
        client.cut();
        exchange.wait_closed();
    }
}

/// A frame that is longer than any that is held back passes in pieces, and nothing is put into it.
#[test]
fn a_frame_too_long_to_hold_passes_in_pieces() {
    let backend = Backend::start();
    let settings = [
        "upstream.stream.keepalive=1s",
        "upstream.stream.event_bytes_max=4KiB",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let mut client = ask_for(&proxy, &call("1"));
    let mut exchange = backend.next().stream();
    client.head();
    client.comment();
    let long = "x".repeat(5_000);
    exchange.chunk("data: ").chunk(&long);
    let mut came = String::new();
    while !came.contains(&long) {
        came.push_str(&String::from_utf8(client.peer.piece().expect("it goes on")).expect("text"));
    }
    exchange.chunk("y\n\n").chunk("data: 2\n\n");
    while !came.ends_with("data: 2\n\n") {
        came.push_str(&String::from_utf8(client.peer.piece().expect("it goes on")).expect("text"));
    }
    let events: String = came
        .split_inclusive("\n\n")
        .filter(|frame| !frame.starts_with(':'))
        .collect();
    assert_eq!(events, format!("data: {long}y\n\ndata: 2\n\n"));
    // Nobody knows what the long one said: a break is passed on as a break.
    exchange.cut();
    assert!(client.peer.whole().is_err());
}

/// A stream that breaks at the backend: one error for what is still open, none for what was answered.
#[test]
fn a_break_at_the_backend_is_told_once() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let mut client = ask_for(&proxy, &call("\"a\""));
    let mut exchange = backend.next().stream();
    client.head();
    exchange.event(&note(1)).chunk("data: {\"ha");
    plain(&mut client, &note(1));
    exchange.cut();
    let event = client.event();
    assert_eq!(
        (event.id.as_deref(), event.event.as_deref()),
        (None, Some("message"))
    );
    assert_eq!(
        failed(event.data(), "\"a\""),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
    // Answered: nothing is missing.
    let mut client = ask_for(&proxy, &call("2"));
    let mut exchange = backend.next().stream();
    client.head();
    exchange.event(&result("2"));
    plain(&mut client, &result("2"));
    exchange.cut();
    client.ended();
    // A subscription: it ended, and not on purpose.
    let (mut client, exchange) = listening(&proxy, &backend, "\"l\"");
    exchange.cut();
    let event = client.event();
    assert_eq!(
        failed(event.data(), "\"l\""),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
    // What the backend ends in an orderly way ends so, answered or not.
    let (mut client, exchange) = listening(&proxy, &backend, "3");
    exchange.finish();
    client.ended();
}

/// A client that goes away cancels, whatever it waits for, and its connection is closed at once.
#[test]
fn going_away_is_a_cancel_at_every_moment() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    // Before the head; with half a frame; in silence; in a subscription.
    let client = ask_for(&proxy, &call("1"));
    let mut exchange = backend.next();
    client.cut();
    exchange.wait_closed();
    let mut client = ask_for(&proxy, &call("2"));
    let mut exchange = backend.next().stream();
    client.head();
    exchange.chunk("data: {");
    client.comment();
    client.cut();
    exchange.wait_closed();
    let (client, mut exchange) = listening(&proxy, &backend, "3");
    client.cut();
    exchange.wait_closed();
    // In the middle of an answer that is no stream.
    let client = ask_for(&proxy, &call("4"));
    let mut exchange = backend.next();
    exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{");
    client.cut();
    exchange.wait_closed();
    assert!(backend.is_silent(), "nothing is sent again");
}

/// Requests go to whoever has the fewest under way, subscriptions counted; one that refuses connections is passed over.
#[test]
fn any_replica_takes_any_request() {
    let backends = [Backend::start(), Backend::start(), Backend::start()];
    let urls: Vec<String> = backends.iter().map(Backend::url).collect();
    let urls: Vec<&str> = urls.iter().map(|url| &**url).collect();
    let proxy = Proxy::start(&urls, &["upstream.health.probe=off"]);
    let all: Vec<&Backend> = backends.iter().collect();
    let mut clients = Vec::new();
    let mut exchanges = Vec::new();
    let mut seen = [0; 3];
    for n in 0..6 {
        clients.push(ask_for(&proxy, &listen(&n.to_string())));
        let (nth, exchange) = at_any(&all);
        seen[nth] += 1;
        exchanges.push((nth, exchange.stream()));
    }
    assert_eq!(seen, [2, 2, 2]);
    // One of each kind goes: the next comes where it was.
    let (client, (freed, mut exchange)) = (clients.remove(1), exchanges.remove(1));
    client.cut();
    exchange.wait_closed();
    let mut client = ask_for(&proxy, &call("7"));
    let (nth, exchange) = at_any(&all);
    assert_eq!(nth, freed);
    exchange.json(&result("7"));
    assert_eq!(client.whole().body, result("7"));
}

/// Nobody there: a status that says nothing of what the server speaks, and words for who reads them. A byte that was
/// written is never sent again.
#[test]
fn an_absent_backend_is_no_verdict_on_its_era() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &["upstream.health.probe=off"]);
    for n in 0..2 {
        let mut client = ask_for(&proxy, &call("7"));
        let (_, exchange) = at_any(&[&one, &two]);
        exchange.cut();
        let whole = client.whole();
        assert_eq!(whole.head.status(), 502, "{n}");
        assert_eq!(whole.head.get("content-type"), Some("application/json"));
        assert_eq!(
            failed(&whole.body, "7"),
            ("backend_lost".into(), "unknown".into())
        );
    }
    assert!(one.is_silent() && two.is_silent());
    // One refuses connections: the other has it, each time.
    one.close();
    for _ in 0..3 {
        let mut client = ask_for(&proxy, &call("8"));
        last_on_its_connection(two.next(), &result("8"));
        assert_eq!(client.whole().body, result("8"));
    }
    two.close();
    for body in [call("9"), listen("9")] {
        let whole = ask_for(&proxy, &body).whole();
        assert_eq!(whole.head.status(), 503);
        assert_eq!(whole.head.get("retry-after"), Some("2"));
        assert_eq!(
            failed(&whole.body, "9"),
            ("unavailable".into(), "not_executed".into())
        );
    }
}

/// What is about a task goes to the replica that began it, whichever way it was said to be begun; afterwards, and for
/// tasks that nobody saw begin, anywhere.
#[test]
fn tasks_stay_where_they_were_begun() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &["upstream.health.probe=off"]);
    let backends = [&one, &two];
    let began = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"task","taskId":"{id}","status":"working"}}}}"#
        )
    };
    let mut homes = Vec::new();
    for (task, streams) in [("t1", false), ("t2", true), ("t3", false), ("t4", true)] {
        let mut client = ask_for(&proxy, &call("1"));
        let (nth, exchange) = at_any(&backends);
        if streams {
            let mut exchange = exchange.stream();
            client.head();
            exchange.event(&began(task));
            plain(&mut client, &began(task));
            exchange.finish();
            client.ended();
            // Its connection is kept, and the next request uses it.
            let mut client = ask_for(&proxy, &get_task(task));
            let (at, exchange) = at_any(&backends);
            assert_eq!(at, nth);
            last_on_its_connection(exchange, &result("2"));
            client.whole();
        } else {
            last_on_its_connection(exchange, &began(task));
            assert_eq!(client.whole().body, began(task));
        }
        homes.push((task, nth));
    }
    assert!(homes.iter().any(|(_, nth)| *nth == 0) && homes.iter().any(|(_, nth)| *nth == 1));
    for (task, home) in &homes {
        for method in ["tasks/get", "tasks/update", "tasks/result", "tasks/cancel"] {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":2,"method":"{method}","params":{{"taskId":"{task}"}}}}"#);
            let mut client = ask_for(&proxy, &body);
            let (nth, exchange) = at_any(&backends);
            assert_eq!((nth, &*exchange.body), (*home, &*body));
            last_on_its_connection(exchange, &result("2"));
            assert_eq!(client.whole().body, result("2"));
        }
    }
    // Its replica refuses connections: whatever another one says of it.
    one.close();
    for (task, _) in homes {
        let mut client = ask_for(&proxy, &get_task(task));
        two.next().json(&result("2"));
        assert_eq!(client.whole().body, result("2"));
    }
}

/// The proxy drains: subscriptions end at once and on purpose, a running call has its time, and nothing is cut in silence.
#[test]
fn a_drain_ends_subscriptions_on_purpose() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let (mut listener, mut standing) = listening(&proxy, &backend, "\"listen-1\"");
    let mut client = ask_for(&proxy, &call("1"));
    let mut exchange = backend.next().stream();
    client.head();
    let mut slow = ask_for(&proxy, &call("2"));
    let waiting = backend.next();
    // Half a frame is no frame: it is not sent, and the last word is whole.
    standing.chunk("data: {\"ha");
    proxy.terminate();
    ended_on_purpose(&mut listener, "\"listen-1\"");
    standing.wait_closed();
    exchange.event(&note(1));
    plain(&mut client, &note(1));
    waiting.json(&result("2"));
    assert_eq!(slow.whole().body, result("2"));
    exchange.event(&result("1"));
    plain(&mut client, &result("1"));
    exchange.finish();
    client.ended();
    assert_eq!(proxy.exit_code(), 0);
}

/// What still runs when the time is over gets its error.
#[test]
fn a_drain_that_runs_out_tells_what_it_cuts() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["server.drain_max=300ms"]);
    let mut client = ask_for(&proxy, &call("1"));
    let mut exchange = backend.next().stream();
    client.head();
    let mut slow = ask_for(&proxy, &call("2"));
    let mut waiting = backend.next();
    exchange.event(&note(1));
    plain(&mut client, &note(1));
    proxy.terminate();
    let event = client.event();
    assert_eq!(failed(event.data(), "1"), ("owner_lost".into(), "unknown".into()));
    client.ended();
    let whole = slow.whole();
    assert_eq!(whole.head.status(), 502);
    assert_eq!(failed(&whole.body, "2"), ("owner_lost".into(), "unknown".into()));
    exchange.wait_closed();
    waiting.wait_closed();
    assert_eq!(proxy.exit_code(), 5);
}

/// A replica drains: its subscriptions end on purpose, and are opened elsewhere; its calls have until the deadline.
#[test]
fn a_replicas_drain_ends_subscriptions_on_purpose() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [
        OPERATOR,
        "upstream.health.probe=off",
        "upstream.drain_deadline=4s",
    ];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let operator = proxy.operator();
    let backends = [&one, &two];
    let mut listener = ask_for(&proxy, &listen("1"));
    let (nth, standing) = at_any(&backends);
    let mut standing = standing.stream();
    listener.head();
    standing.event(&acknowledged("1"));
    plain(&mut listener, &acknowledged("1"));
    // The other one is less busy now; the next is back there.
    let _second = ask_for(&proxy, &listen("2"));
    let (other, _parked) = at_any(&backends);
    assert_ne!(nth, other);
    let mut client = ask_for(&proxy, &call("3"));
    let (at, exchange) = at_any(&backends);
    let mut exchange = exchange.stream();
    client.head();
    exchange.event(&note(1));
    plain(&mut client, &note(1));
    let order = format!("/replicas/mcp/{}/drain", backends[at].address);
    assert_eq!(ask(operator, "POST", &order).head.status(), 200);
    assert_eq!(replica(operator, backends[at])["state"], Value::from("draining"));
    if at == nth {
        ended_on_purpose(&mut listener, "1");
        standing.wait_closed();
    }
    exchange.event(&note(2));
    plain(&mut client, &note(2));
    // The deadline.
    let event = client.event();
    assert_eq!(
        failed(event.data(), "3"),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
    exchange.wait_closed();
}

//! The session id that a client gets, and where it leads (wire contract, section 2).
//! Law: a client holds nothing of a backend, a backend nothing of another session.
//! Next: `gone.rs`.

use std::path::PathBuf;

use crate::backend::Backend;
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{
    self, OLDER, PRIMING, Session, another_call, call, initialize, initialized, message, note, primed,
    result, verdict,
};

/// S1: `initialize` has no id yet, and every later request finds the replica that answered it.
#[test]
fn a_session_stays_on_its_replica() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &["upstream.balance=round_robin"]);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    // Whichever is chosen first, the other one is second.
    let first = {
        let mut second = proxy.connect();
        second.send("POST", &[], &initialize(PRIMING));
        let fields = [
            ("content-type", "application/json"),
            ("mcp-session-id", "same-name-on-both"),
        ];
        one.next().answer(200, &fields, &initialized(PRIMING));
        two.next().answer(200, &fields, &initialized(PRIMING));
        let token = |client: &mut Client| {
            client
                .whole()
                .head
                .get("mcp-session-id")
                .expect("a session")
                .to_owned()
        };
        [token(&mut client), token(&mut second)]
    };
    let mut seen = Vec::new();
    for (nth, token) in first.iter().cycle().take(6).enumerate() {
        let mut client = proxy.connect();
        let id = nth.to_string();
        client.send("POST", &[("mcp-session-id", token)], &call(&id));
        // Only one of them gets it.
        let exchange = loop {
            if let Some(exchange) = one.try_next() {
                seen.push((nth % 2, 1));
                break exchange;
            }
            if let Some(exchange) = two.try_next() {
                seen.push((nth % 2, 2));
                break exchange;
            }
        };
        assert_eq!(exchange.head.get("mcp-session-id"), Some("same-name-on-both"));
        exchange.json(&result(&id));
        assert_eq!(client.whole().body, result(&id));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 2, "each session has one replica: {seen:?}");
    assert_ne!(seen[0].1, seen[1].1, "and they are two: {seen:?}");
}

#[test]
fn what_a_backend_is_sent() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["server.allowed_origins=https://app.example"]);
    let session = Session::open(&proxy, &backend);
    let fields = [
        ("origin", "https://app.example"),
        ("accept-encoding", "gzip"),
        ("authorization", "Bearer b"),
        ("x-own", "1"),
    ];
    let mut client = session.send("POST", &fields, &call("1"));
    let exchange = backend.next();
    let own = backend.address.to_string();
    let expected = [
        ("host", Some(own.clone())),
        ("origin", Some(format!("http://{own}"))),
        ("mcp-session-id", Some("backend-session".into())),
        ("mcp-protocol-version", Some(PRIMING.into())),
        ("authorization", Some("Bearer b".into())),
        ("x-own", Some("1".into())),
        ("accept-encoding", None),
    ];
    for (name, value) in expected {
        assert_eq!(exchange.head.get(name).map(str::to_owned), value, "{name}");
    }
    assert_eq!(exchange.body, call("1"));
    exchange.json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    // A cursor is the proxy's own: it is never forwarded (S2).
    let mut client = session.resume("whatever");
    let exchange = backend.next_of("GET");
    assert_eq!(exchange.head.get("last-event-id"), None);
    assert_eq!(exchange.head.get("mcp-session-id"), Some("backend-session"));
    let _standing = exchange.stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
}

/// A backend's session id is learnt from a 2xx `initialize` only; everywhere else it is stripped.
#[test]
fn a_backends_session_id_reaches_no_client() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let id = ("mcp-session-id", "throw-away");
    let json = ("content-type", "application/json");
    for (status, fields, body) in [
        (200, [json, id], "{}"),
        (202, [json, id], ""),
        (400, [json, id], "{\"no\":1}"),
        (503, [json, id], "busy"),
        (200, [("content-type", "text/plain"), id], "odd"),
    ] {
        let mut client = session.post(&another_call("1"));
        backend.next().answer(status, &fields, body);
        let whole = client.whole();
        assert_eq!(
            (
                whole.head.status(),
                whole.head.get("mcp-session-id"),
                &*whole.body
            ),
            (status, None, body)
        );
    }
    let mut client = session.post(&call("2"));
    let mut exchange = backend.next();
    exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: x\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(client.head().get("mcp-session-id"), None);
    exchange.finish();
    // Outside of any session, too.
    for method in ["POST", "GET", "OPTIONS"] {
        let mut client = proxy.connect();
        client.send(
            method,
            &[],
            if method == "POST" {
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}"
            } else {
                ""
            },
        );
        backend.next().answer(400, &[json, id], "no session");
        let whole = client.whole();
        assert_eq!(
            (whole.head.status(), whole.head.get("mcp-session-id")),
            (400, None),
            "{method}"
        );
        assert_eq!(whole.body, "no session");
    }
    // A failed `initialize` makes no session: its answer passes as it is.
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    backend
        .next()
        .answer(400, &[json, id], "{\"error\":\"unsupported\"}");
    let whole = client.whole();
    assert_eq!(
        (whole.head.status(), whole.head.get("mcp-session-id")),
        (400, None)
    );
    assert_eq!(whole.body, "{\"error\":\"unsupported\"}");
    // Nor does an error with status 200.
    let error =
        r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"Unsupported protocol version"}}"#;
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    backend.next().answer(200, &[json, id], error);
    let whole = client.whole();
    assert_eq!(
        (whole.head.status(), whole.head.get("mcp-session-id")),
        (200, None)
    );
    assert_eq!(whole.body, error);
}

#[test]
fn a_stale_id_on_initialize_is_dropped() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let old = Session::open(&proxy, &backend);
    for stale in ["nonsense", "t1a.AAAA", &old.token] {
        let mut client = proxy.connect();
        client.send("POST", &[("mcp-session-id", stale)], &initialize(PRIMING));
        let exchange = backend.next();
        assert_eq!(exchange.head.get("mcp-session-id"), None);
        exchange.answer(
            200,
            &[("content-type", "application/json"), ("mcp-session-id", "new")],
            &initialized(PRIMING),
        );
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200);
        assert_ne!(whole.head.get("mcp-session-id").expect("a session"), stale);
    }
    old.is_alive(&backend);
}

#[test]
fn a_backends_session_id_may_have_1024_bytes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let longest = "x".repeat(1_024);
    let session = Session::open_with(&proxy, &backend, (PRIMING, "t"), &[("mcp-session-id", &longest)]);
    assert!(session.token.len() <= 2_048, "{}", session.token.len());
    assert!(session.token.starts_with("t1a."), "{}", session.token);
    let mut client = session.post(&call("1"));
    let exchange = backend.next();
    assert_eq!(exchange.head.get("mcp-session-id"), Some(&*longest));
    exchange.json(&result("1"));
    assert_eq!(client.whole().head.status(), 200);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    let too_long = "x".repeat(1_025);
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", &*too_long),
    ];
    backend.next().answer(200, &fields, &initialized(PRIMING));
    let whole = client.whole();
    assert_eq!(
        (whole.head.status(), whole.head.get("mcp-session-id")),
        (502, None)
    );
}

/// `initialize` answered by an event stream: JSON to the client, the other messages to the head of the GET stream.
#[test]
fn initialize_answered_by_an_event_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    let mut exchange = backend.next();
    exchange.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: b\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    exchange
        .chunk("id: 1\ndata:\n\n")
        .event(&note(1))
        .event(&note(2))
        .event(&initialized(PRIMING));
    let whole = client.whole();
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    assert_eq!(whole.head.get("throughline-continuity"), None);
    assert_eq!(whole.body, initialized(PRIMING));
    let token = whole.head.get("mcp-session-id").expect("a session").to_owned();
    let mut listener = proxy.connect();
    listener.send("GET", &[("mcp-session-id", &token)], "");
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&listener.head()), "live");
    primed(&mut listener);
    message(&mut listener, &note(1));
    message(&mut listener, &note(2));
    standing.event(&note(3));
    message(&mut listener, &note(3));
}

/// As long as `answer_bytes_max` allows, however its length is told.
#[test]
fn a_long_answer_to_initialize() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let long = initialized(PRIMING).replacen('{', &format!("{{{}", " ".repeat(2 << 20)), 1);
    for chunked in [false, true] {
        let mut client = proxy.connect();
        client.send("POST", &[], &initialize(PRIMING));
        let mut exchange = backend.next();
        if chunked {
            exchange.raw(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: b\r\ntransfer-encoding: chunked\r\n\r\n",
            );
            exchange.chunk(&long);
            exchange.finish();
        } else {
            exchange.answer(
                200,
                &[("content-type", "application/json"), ("mcp-session-id", "b")],
                &long,
            );
        }
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200);
        assert!(whole.head.get("mcp-session-id").is_some());
        assert_eq!(whole.body, long);
    }
}

#[test]
fn initialize_is_bounded_in_time() {
    let backend = Backend::start();
    let proxy = Proxy::start(
        &[&backend.url()],
        &[
            "upstream.exchange.initialize_max=200ms",
            "upstream.exchange.connect_timeout=200ms",
        ],
    );
    // No head at all, then a stream that never answers.
    for begun in [false, true] {
        let mut client = proxy.connect();
        client.send("POST", &[], &initialize(PRIMING));
        let exchange = backend.next();
        let mut exchange = if begun { exchange.stream() } else { exchange };
        assert_eq!(client.whole().head.status(), 504);
        exchange.wait_closed();
    }
}

#[test]
fn initialize_that_breaks_makes_no_session() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for answer in [
        "",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n",
    ] {
        let mut client = proxy.connect();
        client.send("POST", &[], &initialize(PRIMING));
        let mut exchange = backend.next().stream();
        exchange.chunk(&format!(":\n\n{answer}"));
        exchange.cut();
        let whole = client.whole();
        assert_eq!(
            (whole.head.status(), whole.head.get("mcp-session-id")),
            (502, None)
        );
    }
}

/// A backend without sessions: the client gets an id from us, its streams are resumable, any replica takes any request.
#[test]
fn a_backend_without_sessions() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &["upstream.balance=round_robin"]);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    let exchange = loop {
        if let Some(exchange) = one.try_next().or_else(|| two.try_next()) {
            break exchange;
        }
    };
    exchange.json(&initialized(PRIMING));
    let token = client
        .whole()
        .head
        .get("mcp-session-id")
        .expect("an id of our own")
        .to_owned();
    let fields = [("mcp-session-id", &*token)];
    let mut served = [0, 0];
    for nth in 1..=4 {
        let mut client = proxy.connect();
        let id = nth.to_string();
        client.send("POST", &fields, &call(&id));
        let (at, exchange) = loop {
            if let Some(exchange) = one.try_next() {
                break (0, exchange);
            }
            if let Some(exchange) = two.try_next() {
                break (1, exchange);
            }
        };
        served[at] += 1;
        assert_eq!(
            exchange.head.get("mcp-session-id"),
            None,
            "a stateless backend is shown no session"
        );
        // 404 means nothing of a session here: there is none to lose.
        exchange.answer(404, &[("content-type", "application/json")], "{}");
        assert_eq!(client.whole().head.status(), 404);
    }
    assert_eq!(served, [2, 2]);
    let mut client = proxy.connect();
    client.send("POST", &fields, &call("9"));
    let mut exchange = loop {
        if let Some(exchange) = one.try_next().or_else(|| two.try_next()) {
            break exchange.stream();
        }
    };
    client.head();
    let cursor = primed(&mut client).id().to_owned();
    client.cut();
    proxy.logged("client left");
    exchange.event(&result("9"));
    exchange.finish();
    let mut again = proxy.connect();
    again.send("GET", &[fields[0], ("last-event-id", &cursor)], "");
    assert!(verdict(&again.head()).starts_with("resumed 0 "));
    primed(&mut again);
    message(&mut again, &result("9"));
    again.ended();
}

/// A token opens on the path that it was given at, and on no other.
#[test]
fn a_token_opens_on_its_own_path_only() {
    let (one, two) = (Backend::start(), Backend::start());
    let file =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("two-paths-{}.toml", std::process::id()));
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"off\"\n[log]\nformat = \"json\"\nfilter = \"throughline=debug\"\n\
         [[upstream]]\nname = \"one\"\npath = \"/mcp\"\nreplicas = [\"{}\"]\n\
         [[upstream]]\nname = \"two\"\npath = \"/other\"\nreplicas = [\"{}\"]\n",
        one.url(),
        two.url()
    );
    std::fs::write(&file, text).expect("a file");
    let proxy = Proxy::configured(&file);
    let session = Session::open(&proxy, &one);
    let mut client = proxy.connect();
    client.send_to(
        "/other",
        "POST",
        &[("mcp-session-id", &session.token)],
        &call("1"),
    );
    session::says_gone(&client.whole());
    assert!(two.is_silent(), "nothing reached the other server");
    session.is_alive(&one);
    std::fs::remove_file(&file).expect("the file goes");
}

/// The proxy's own answer is one id for life: a second initialize of the same client makes another session.
#[test]
fn every_session_has_a_token_of_its_own() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let one = Session::open(&proxy, &backend);
    let two = Session::open_at(&proxy, &backend, OLDER, "wire-test/1");
    assert_ne!(
        one.token, two.token,
        "the same backend id is never the same token"
    );
    one.is_alive(&backend);
    two.is_alive(&backend);
}

//! Who may speak, what is served where, and what passes untouched (wire contract, sections 9 and 11).
//! Law: what passes, passes byte for byte; what is refused never reached a backend.
//! Next: `../interop.rs`, where real clients and servers speak.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{
    PRIMING, Session, another_call, call, initialize, message, note, primed, result, verdict,
};

/// Header fields, and the status that the proxy answers with; `None` if the request passes.
type Case<'a> = (&'a [(&'a str, &'a str)], Option<u16>);

/// `Host` and `Origin`, on every request, also on those that the proxy answers itself.
#[test]
fn who_may_speak() {
    let backend = Backend::start();
    let settings = [
        "server.allowed_hosts=mcp.example",
        "server.allowed_origins=https://app.example",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let own = proxy.address.to_string();
    // Fields, and the status that the proxy answers with; `None` if it passes.
    let cases: [Case<'_>; 13] = [
        (&[("host", &own)], None),
        (&[("host", "localhost:1234")], None),
        (&[("host", "127.0.0.1")], None),
        (&[("host", "mcp.example")], None),
        (&[("host", "evil.example")], Some(421)),
        (&[("host", "mcp.example.evil.example")], Some(421)),
        (&[("host", "")], Some(400)),
        (&[("origin", "https://app.example")], None),
        (&[("origin", "http://localhost:5173")], None),
        (&[("origin", "https://evil.example")], Some(403)),
        (&[("origin", "null")], Some(403)),
        // DNS rebinding: both name the attacker.
        (
            &[("host", "evil.example"), ("origin", "http://evil.example")],
            Some(421),
        ),
        (
            &[("host", "mcp.example"), ("origin", "http://other.example")],
            Some(403),
        ),
    ];
    for (fields, refused) in cases {
        for (method, body) in [
            ("POST", call("1")),
            ("GET", String::new()),
            ("DELETE", String::new()),
        ] {
            let Some(status) = refused else { continue };
            let whole = session.send(method, fields, &body).whole();
            assert_eq!(whole.head.status(), status, "{method} {fields:?}");
        }
        if refused.is_none() {
            let mut client = session.send("POST", fields, &another_call("1"));
            let exchange = backend.next();
            assert_eq!(exchange.head.get("host"), Some(&*backend.address.to_string()));
            exchange.json(&result("1"));
            assert_eq!(client.whole().head.status(), 200, "{fields:?}");
        }
    }
    // Also where there is nothing, and for what the proxy answers by itself.
    let mut client = proxy.connect();
    client.send_to("/nothing", "GET", &[("host", "evil.example")], "");
    assert_eq!(client.whole().head.status(), 421);
    let mut client = proxy.connect();
    client.send(
        "POST",
        &[("mcp-session-id", "gone"), ("origin", "https://evil.example")],
        &call("1"),
    );
    assert_eq!(client.whole().head.status(), 403);
    assert!(backend.is_silent());
    session.is_alive(&backend);
}

/// Paths match whole; methods that are not MCP's pass; two are not served at all.
#[test]
fn what_is_served_where() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for target in ["/", "/mcp/", "/mcp2", "/mcp/sub", "/MCP", "/healthz"] {
        let mut client = proxy.connect();
        client.send_to(target, "GET", &[], "");
        let whole = client.whole();
        assert_eq!(whole.head.status(), 404, "{target}");
        assert!(
            !whole.body.contains("Session not found"),
            "nobody takes it for a lost session"
        );
    }
    for method in ["OPTIONS", "PUT", "PATCH", "PROPFIND"] {
        let mut client = proxy.connect();
        client.send(method, &[], "");
        let exchange = backend.next();
        assert_eq!((exchange.head.method(), exchange.head.target()), (method, "/mcp"));
        exchange.answer(405, &[("allow", "POST")], "no");
        let whole = client.whole();
        assert_eq!(
            (whole.head.status(), whole.head.get("allow"), &*whole.body),
            (405, Some("POST"), "no")
        );
    }
    let mut client = proxy.connect();
    client.send("TRACE", &[], "");
    assert_eq!(client.whole().head.status(), 405);
    // A query goes along.
    let mut client = proxy.connect();
    client.send_to("/mcp?a=1&b=%20", "POST", &[], "{}");
    let exchange = backend.next();
    assert_eq!(exchange.head.target(), "/mcp?a=1&b=%20");
    exchange.answer(200, &[], "x");
    assert_eq!(client.whole().body, "x");
    assert!(backend.is_silent());
}

/// Requests of 2026-07-28 pass untouched and streaming: no session, no ids, no priming, and 4xx bodies byte for byte.
#[test]
fn the_stateless_era_passes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let fields = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-param-x", "1"),
    ];
    let mut client = proxy.connect();
    client.send("POST", &fields, &call("1"));
    let exchange = backend.next();
    assert_eq!(exchange.body, call("1"));
    for (name, value) in fields {
        assert_eq!(exchange.head.get(name), Some(value));
    }
    let mut exchange = exchange.stream();
    let head = client.head();
    assert_eq!(head.get("throughline-continuity"), None);
    assert_eq!(head.get("mcp-session-id"), None);
    // Each piece as it comes, and nothing else.
    exchange.event(&note(1));
    let event = client.event();
    assert_eq!(
        (event.id, event.event, event.retry, event.data),
        (None, None, None, Some(note(1)))
    );
    exchange.event(&result("1"));
    let event = client.event();
    assert_eq!((event.id, event.data), (None, Some(result("1"))));
    exchange.finish();
    client.ended();
    for (status, body) in [
        (
            400,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"Unsupported protocol version"}}"#,
        ),
        (
            404,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#,
        ),
        (405, ""),
    ] {
        let mut client = proxy.connect();
        client.send("POST", &fields, &call("1"));
        backend
            .next()
            .answer(status, &[("content-type", "application/json")], body);
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, body));
    }
}

/// A disconnect of 2026-07-28 is a cancel, and reaches the backend at once.
#[test]
fn a_disconnect_of_the_stateless_era_is_a_cancel() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for begun in [false, true] {
        let mut client = proxy.connect();
        client.send("POST", &[("mcp-protocol-version", "2026-07-28")], &call("1"));
        let exchange = backend.next();
        let mut exchange = if begun { exchange.stream() } else { exchange };
        if begun {
            exchange.event(&note(1));
            client.head();
            client.event();
        }
        client.cut();
        exchange.wait_closed();
    }
}

/// `server/discover` of a current client that probes before it falls back to `initialize`: whatever the server says.
#[test]
fn a_probe_of_a_newer_client_passes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let discover = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}"#;
    for version in ["2026-07-28", "2027-01-01", ""] {
        let mut client = proxy.connect();
        let fields: &[_] = if version.is_empty() {
            &[]
        } else {
            &[("mcp-protocol-version", version)]
        };
        client.send("POST", fields, discover);
        let exchange = backend.next();
        assert_eq!(exchange.body, discover);
        let body = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#;
        exchange.answer(400, &[("content-type", "application/json")], body);
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (400, body));
    }
    Session::open(&proxy, &backend).is_alive(&backend);
}

/// An `initialize` that negotiates a revision without sessions, or one that nobody here knows, makes no session.
#[test]
fn revisions_without_sessions_make_none() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for revision in ["2026-07-28", "2099-01-01"] {
        let mut client = proxy.connect();
        client.send("POST", &[], &initialize(PRIMING));
        let fields = [("content-type", "application/json"), ("mcp-session-id", "b")];
        backend
            .next()
            .answer(200, &fields, &crate::session::initialized(revision));
        let whole = client.whole();
        assert_eq!(
            (whole.head.status(), whole.head.get("mcp-session-id")),
            (200, None),
            "{revision}"
        );
    }
}

/// HTTP/1.0 and `Connection: close` clients get the same stream, closed at its end.
#[test]
fn clients_that_want_their_connection_closed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.send("POST", &[("connection", "close")], &call("1"));
    let mut exchange = backend.next();
    assert_eq!(exchange.head.get("connection"), None, "a field of this hop only");
    exchange.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
    assert_eq!(verdict(&client.head()), "live");
    primed(&mut client);
    exchange.raw(format!("data: {}\n\n", result("1")).as_bytes());
    message(&mut client, &result("1"));
    client.ended();
    client.closed();
}

//! What the proxy says in other words where it is asked to: request ids that are a session's own towards the backend,
//! and a backend's refusals in JSON-RPC (wire contract, sections 7 and 8).
//! Next: `tokens.rs`.

use crate::backend::{Backend, Exchange};
use crate::loss::{ANNOUNCE, REINITIALIZE, TERMINATE, begun_anew, gone, refused, told};
use crate::proxy::Proxy;
use crate::session::{
    OLDER, PRIMING, Session, another_call, call, epoch_of, failed, message, note, primed, result, says_gone,
    verdict,
};

const ISOLATED: &str = "upstream.isolate_request_ids=true";

/// The raw id of the request that the backend got.
fn id_of(exchange: &Exchange) -> String {
    let body: serde_json::Value = serde_json::from_str(&exchange.body).expect("JSON");
    body["id"].to_string()
}

/// Two sessions that count alike are told apart by the backend, and each gets its own id back, in JSON and in streams.
#[test]
fn ids_of_sessions_that_count_alike_differ_at_the_backend() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[ISOLATED]);
    let sessions = [Session::open(&proxy, &backend), Session::open(&proxy, &backend)];
    for id in ["1", "-7", r#""a\"b""#] {
        let mut seen = Vec::new();
        for session in &sessions {
            let mut client = session.post(&call(id));
            let exchange = backend.next_of("POST");
            let own = id_of(&exchange);
            assert!(own.starts_with("\"tl-") && !seen.contains(&own), "{own}");
            assert_eq!(exchange.body, call(&own), "nothing else is changed");
            exchange.answer(
                200,
                &[("content-type", "application/json"), ("x-own", "1")],
                &result(&own),
            );
            let whole = client.whole();
            assert_eq!((whole.head.get("x-own"), &*whole.body), (Some("1"), &*result(id)));
            seen.push(own);
            let mut client = session.post(&another_call(id));
            let exchange = backend.next_of("POST");
            let own = id_of(&exchange);
            let mut exchange = exchange.stream();
            verdict(&client.head());
            let prime = primed(&mut client).id().to_owned();
            exchange.event(&note(1));
            message(&mut client, &note(1));
            // A request of the backend's own keeps its id, whatever it looks like.
            let asks = format!(r#"{{"jsonrpc":"2.0","id":{own},"method":"roots/list"}}"#);
            exchange.event(&asks);
            message(&mut client, &asks);
            exchange.event(&result(&own));
            let last = message(&mut client, &result(id));
            assert!(last.id().ends_with('~') && epoch_of(last.id()) == epoch_of(&prime));
            client.ended();
        }
    }
}

/// By default ids pass as they are, until a backend shows that it keeps events: then they are made the session's own,
/// for clients whose calls it may want to be polled, unless it is said to keep sessions apart.
#[test]
fn a_backend_that_keeps_events_gets_ids_that_do_not_collide() {
    let backend = Backend::start();
    let auto = Proxy::start(&[&backend.url()], &[]);
    let declared = Proxy::start(&[&backend.url()], &["upstream.event_store=per-session"]);
    let off = Proxy::start(&[&backend.url()], &["upstream.isolate_request_ids=false"]);
    for (proxy, revision, keeps, isolated) in [
        (&auto, PRIMING, false, false),
        (&auto, PRIMING, true, true),
        (&auto, OLDER, true, false),
        (&declared, PRIMING, true, false),
        (&off, PRIMING, true, false),
    ] {
        let mut client = proxy.connect();
        client.send("POST", &[], &crate::session::initialize(revision));
        let mut exchange = backend.next_of("POST");
        exchange.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: b\r\ntransfer-encoding: chunked\r\n\r\n",
        );
        let id = if keeps { "id: up-1\n" } else { "" };
        exchange.chunk(&format!(
            "{id}data: {}\n\n",
            crate::session::initialized(revision)
        ));
        let whole = client.whole();
        let token = whole.head.get("mcp-session-id").expect("a session").to_owned();
        let mut client = proxy.connect();
        let fields = [("mcp-session-id", &*token), ("mcp-protocol-version", revision)];
        client.send("POST", &fields, &call("1"));
        let exchange = backend.next_of("POST");
        let own = id_of(&exchange);
        assert_eq!(own != "1", isolated, "{revision} {keeps}: {own}");
        exchange.json(&result(&own));
        assert_eq!(client.whole().body, result("1"));
    }
}

/// A cancel names the id that the backend knows, the client's own as well as the proxy's.
#[test]
fn cancels_name_the_backends_id() {
    let backend = Backend::start();
    let proxy = Proxy::start(
        &[&backend.url()],
        &[ISOLATED, "upstream.stream.detached_max=200ms"],
    );
    let session = Session::open(&proxy, &backend);
    for own_word in [false, true] {
        let mut client = session.post(&another_call("5"));
        let exchange = backend.next_of("POST");
        let id = id_of(&exchange);
        let exchange = exchange.stream();
        verdict(&client.head());
        primed(&mut client);
        let mut cancelling = None;
        if own_word {
            client.cut();
        } else {
            let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
            cancelling = Some((session.post(cancel), client));
        }
        let cancel = backend.next_of("POST");
        let body: serde_json::Value = serde_json::from_str(&cancel.body).expect("JSON");
        assert_eq!(body["method"], "notifications/cancelled");
        assert_eq!(body["params"]["requestId"].to_string(), id);
        cancel.answer(202, &[], "");
        if let Some((mut post, mut client)) = cancelling {
            assert_eq!(post.whole().head.status(), 202);
            assert_eq!(failed(client.event().data(), "5").0, "cancelled");
            client.ended();
        }
        backend.park(exchange);
    }
}

/// A store that mixes sessions brings another one's answer: it reaches nobody.
#[test]
fn the_answer_to_another_sessions_request_reaches_nobody() {
    let backend = Backend::start();
    let settings = [ISOLATED, "upstream.stream.reattach=proved"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let (one, other) = (Session::open(&proxy, &backend), Session::open(&proxy, &backend));
    let mut client = other.post(&call("1"));
    let exchange = backend.next_of("POST");
    let foreign = id_of(&exchange);
    exchange.json(&result(&foreign));
    assert_eq!(client.whole().body, result("1"));
    // In a stream it is dropped; the stream breaks, and goes on with proof.
    let mut client = one.post(&call("1"));
    let exchange = backend.next_of("POST");
    let own = id_of(&exchange);
    let mut exchange = exchange.stream();
    verdict(&client.head());
    primed(&mut client);
    exchange.chunk("id: p\ndata: \n\n");
    exchange.chunk(&format!("id: a\ndata: {}\n\n", note(1)));
    message(&mut client, &note(1));
    exchange.cut();
    // What is new is told once it was shown twice.
    let mut shown = Vec::new();
    for _ in 0..2 {
        let asked = backend.next_of("GET");
        assert_eq!(asked.head.get("last-event-id"), Some("p"));
        let mut exchange = asked.stream();
        exchange.chunk(&format!("id: a\ndata: {}\n\n", note(1)));
        exchange.chunk(&format!("id: b\ndata: {}\n\n", result(&foreign)));
        exchange.chunk(&format!("id: c\ndata: {}\n\n", result(&own)));
        shown.push(exchange);
    }
    let last = message(&mut client, &result("1"));
    assert_eq!(crate::session::position(last.id()), (2, true));
    client.ended();
    // As a whole answer it is no answer.
    let mut client = one.post(&another_call("1"));
    backend.next_of("POST").json(&result(&foreign));
    assert_eq!(
        failed(&client.whole().body, "1"),
        ("backend_lost".into(), "unknown".into())
    );
}

/// `errors = "jsonrpc"`: a status that would cost a client its connection becomes the call's error; others pass.
#[test]
fn refusals_of_calls_become_json_rpc() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.errors=jsonrpc"]);
    let session = Session::open(&proxy, &backend);
    for status in [400, 409, 413, 429, 500, 503] {
        let mut client = session.post(&call(r#""x""#));
        backend.next_of("POST").answer(status, &[], "no");
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200);
        assert_eq!(whole.head.get("content-type"), Some("application/json"));
        let error: serde_json::Value = serde_json::from_str(&whole.body).expect("JSON");
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&"x".into(), &(-32603).into())
        );
        assert_eq!(error["error"]["data"]["status"], status);
    }
    for status in [401, 403] {
        let mut client = session.post(&call("1"));
        backend
            .next_of("POST")
            .answer(status, &[("www-authenticate", "Bearer")], "no");
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, "no"));
    }
    // Several ids have no one error.
    let batch = format!("[{},{}]", call("1"), call("2"));
    let mut client = session.post(&batch);
    backend.next_of("POST").answer(503, &[], "no");
    assert_eq!(client.whole().head.status(), 503);
    session.is_alive(&backend);
}

/// An answer that is slow to begin becomes a primed stream, and what then comes is in it; a cut costs nothing.
#[test]
fn a_slow_answer_becomes_a_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.json_upgrade_after=20ms"]);
    let session = Session::open(&proxy, &backend);
    for how in ["json", "lines", "stream", "cut"] {
        let mut client = session.post(&another_call("1"));
        let exchange = backend.next_of("POST");
        assert_eq!(verdict(&client.head()), "live");
        let prime = primed(&mut client).id().to_owned();
        match how {
            "json" => exchange.json(&result("1")),
            "lines" => exchange.json(&format!("{}\n", result("1"))),
            "stream" => {
                let mut exchange = exchange.stream();
                exchange.event(&note(1));
                message(&mut client, &note(1));
                exchange.event(&result("1"));
                exchange.finish();
            }
            _ => {
                client.cut();
                session.client_left(&proxy);
                exchange.json(&result("1"));
                client = session.resume(&prime);
                assert!(verdict(&client.head()).starts_with("resumed 0 "));
                primed(&mut client);
            }
        }
        let last = message(&mut client, &result("1"));
        assert_eq!(
            (epoch_of(last.id()), last.id().ends_with('~')),
            (epoch_of(&prime), true)
        );
        client.ended();
    }
    assert!(backend.is_silent(), "each call was sent once");
}

/// An answer to something else ends the stream as it would end without an upgrade: it is passed on, and nothing follows.
#[test]
fn a_slow_answer_to_another_id_ends_its_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.json_upgrade_after=20ms"]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("4"));
    let exchange = backend.next_of("POST");
    verdict(&client.head());
    primed(&mut client);
    exchange.json(&result("\"4\""));
    let last = message(&mut client, &result("\"4\""));
    assert!(last.id().ends_with('~'));
    client.ended();
}

/// What goes wrong behind the upgrade is the call's error, whatever it is.
#[test]
fn a_slow_answer_that_fails_is_said_in_its_stream() {
    let backend = Backend::start();
    let slowly = "upstream.stream.json_upgrade_after=20ms";
    let proxy = Proxy::start(&[&backend.url()], &[slowly]);
    for (how, reason) in [
        ("503", "backend_status"),
        ("lost", "backend_lost"),
        ("nothing", "backend_lost"),
    ] {
        let session = Session::open(&proxy, &backend);
        let mut client = session.post(&call("1"));
        let exchange = backend.next_of("POST");
        verdict(&client.head());
        primed(&mut client);
        match how {
            "503" => exchange.answer(503, &[], "busy"),
            "lost" => exchange.cut(),
            _ => exchange.answer(202, &[], ""),
        }
        let error = client.event();
        assert_eq!(failed(error.data(), "1").0, reason, "{how}");
        assert!(error.id().ends_with('~'));
        client.ended();
    }
    assert!(backend.is_silent());
}

/// Behind the upgrade too a call that met the end of its session was not run, and is told so, in the words that it would
/// have had without: whichever of several calls finds it first.
#[test]
fn a_slow_answer_whose_session_was_lost_was_not_run() {
    let backend = Backend::start();
    for rule in [ANNOUNCE, REINITIALIZE, TERMINATE] {
        let slowly = "upstream.stream.json_upgrade_after=20ms";
        let proxy = Proxy::start(&[&backend.url()], &[slowly, rule]);
        let session = Session::open(&proxy, &backend);
        let mut calls: Vec<_> = ["1", "2", "3"]
            .map(|id| {
                let mut client = session.post(&call(id));
                let exchange = backend.next_of("POST");
                verdict(&client.head());
                primed(&mut client);
                (id, client, Some(exchange))
            })
            .into();
        gone(calls[0].2.take().expect("it waits"));
        if rule == TERMINATE {
            proxy.logged("lost session does not go on");
        } else {
            begun_anew(&backend, "second");
            session.logged(&proxy, "lost session goes on");
        }
        for (id, mut client, exchange) in calls {
            if let Some(exchange) = exchange {
                gone(exchange);
            }
            let event = client.event();
            match rule {
                ANNOUNCE => told(event.data(), id),
                _ => assert_eq!(
                    failed(event.data(), id),
                    ("backend_lost".into(), "not_executed".into())
                ),
            }
            assert!(event.id().ends_with('~'));
            client.ended();
        }
        match rule {
            // Whether that was read can't be told: the next call is refused too.
            ANNOUNCE => refused(&mut session.post(&call("4")), "4"),
            REINITIALIZE => {}
            _ => {
                says_gone(&session.post(&call("4")).whole());
                session.is_gone();
            }
        }
        assert!(backend.is_silent());
    }
}

/// Only where it is understood: never a session before 2025-11-25, and never by default.
#[test]
fn what_is_answered_as_it_is() {
    let backend = Backend::start();
    let slow = Proxy::start(&[&backend.url()], &["upstream.stream.json_upgrade_after=20ms"]);
    let plain = Proxy::start(&[&backend.url()], &[]);
    let primes = Session::open(&slow, &backend);
    for (proxy, revision) in [(&slow, OLDER), (&plain, PRIMING)] {
        let session = Session::open_at(proxy, &backend, revision, "Go-http-client/1.1");
        let mut client = session.post(&call("1"));
        let waiting = backend.next_of("POST");
        // Meanwhile another call has become a stream.
        let mut other = primes.post(&another_call("2"));
        let exchange = backend.next_of("POST");
        verdict(&other.head());
        primed(&mut other);
        exchange.json(&result("2"));
        message(&mut other, &result("2"));
        waiting.json(&result("1"));
        let whole = client.whole();
        assert_eq!(whole.head.get("content-type"), Some("application/json"));
        assert_eq!(whole.body, result("1"));
    }
}

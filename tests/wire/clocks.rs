//! What time causes: keep-alives, clients that are away or slow, sessions that are idle (wire contract, section 7).
//! Law: short settings, and waiting for what they cause; no test measures.
//! Next: `requests.rs`.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{
    OLDER, PRIMING, Session, call, failed, message, note, position, primed, result, verdict,
};

/// I1, I2: a byte at once, and comments on idle streams, GET and POST.
#[test]
fn idle_streams_get_comments() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    for revision in [PRIMING, OLDER] {
        let session = Session::open_at(&proxy, &backend, revision, "Go-http-client/1.1");
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        let (mut listener, standing) = session.listening(&backend);
        backend.park(standing);
        for _ in 0..2 {
            client.comment();
            listener.comment();
        }
        // The backend's own comments are not passed on: ours have their pace.
        let before = client.comments;
        for _ in 0..50 {
            exchange.chunk(": ping\n\n");
        }
        exchange.event(&result("1"));
        message(&mut client, &result("1"));
        assert!(client.comments - before < 5);
        client.ended();
    }
}

/// A client that is away for too long: what runs is cancelled upstream, and its cursor is told why (C11).
#[test]
fn an_answer_that_nobody_came_back_for() {
    let backend = Backend::start();
    let proxy = Proxy::start(
        &[&backend.url()],
        &[
            "upstream.stream.detached_max=500ms",
            "upstream.stream.replay_age_max=1s",
        ],
    );
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "\"r\"");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    let cancel = backend.next_of("POST");
    assert_eq!(cancel.head.get("mcp-session-id"), Some("backend-session"));
    let body: serde_json::Value = serde_json::from_str(&cancel.body).expect("JSON");
    assert_eq!(body["method"], "notifications/cancelled");
    assert_eq!(body["params"]["requestId"], "r");
    cancel.answer(202, &[], "");
    exchange.wait_closed();
    for _ in 0..2 {
        let mut client = session.resume(&cursor);
        assert_eq!(verdict(&client.head()), "reset evicted");
        primed(&mut client);
        assert_eq!(
            failed(client.event().data(), "\"r\""),
            ("evicted".into(), "unknown".into())
        );
        client.ended();
    }
    session.is_alive(&backend);
}

/// The upstream GET of a client that is away is closed, and opened again for the next client, with a reset.
#[test]
fn a_standalone_stream_that_nobody_came_back_for() {
    let backend = Backend::start();
    let proxy = Proxy::start(
        &[&backend.url()],
        &[
            "upstream.stream.detached_max=500ms",
            "upstream.stream.replay_age_max=1s",
        ],
    );
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    standing.wait_closed();
    let mut client = session.resume(&cursor);
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset evicted");
    primed(&mut client);
    crate::session::resync(&mut client, "evicted");
    standing.event(&note(2));
    message(&mut client, &note(2));
}

/// What was said on it went with it: a listener who had nothing yet, and presents no cursor, is not told that all is there.
#[test]
fn a_standalone_stream_that_went_before_anybody_had_of_it() {
    let backend = Backend::start();
    let settings = [
        "upstream.stream.detached_max=500ms",
        "upstream.stream.replay_age_max=1s",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let (client, mut standing) = session.listening(&backend);
    client.cut();
    session.client_left(&proxy);
    standing.event(&note(1));
    standing.wait_closed();
    let mut client = session.get();
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    primed(&mut client);
    crate::session::resync(&mut client, "cursor_unknown");
    standing.event(&note(2));
    message(&mut client, &note(2));
}

/// A response that was written whole is kept a while, then only its tombstone: `evicted`, or 405 at its end.
#[test]
fn a_finished_answer_that_nobody_came_back_for() {
    let backend = Backend::start();
    let proxy = Proxy::start(
        &[&backend.url()],
        &[
            "upstream.stream.detached_max=0s",
            "upstream.stream.replay_age_max=1s",
        ],
    );
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    exchange.event(&result("1"));
    let end = message(&mut client, &result("1")).id().to_owned();
    client.ended();
    exchange.finish();
    assert_eq!(session.resume(&end).whole().head.status(), 405);
    session.logged(&proxy, "stream was let go");
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "reset evicted");
    primed(&mut client);
    assert_eq!(failed(client.event().data(), "1").0, "evicted");
    client.ended();
    assert_eq!(session.resume(&end).whole().head.status(), 405);
    assert_eq!(
        session.resume(end.trim_end_matches('~')).whole().head.status(),
        405
    );
}

/// I4: a client that takes nothing holds its backend back; past a bound its connection ends at an event boundary with
/// a `retry`; the log stays.
#[test]
fn a_slow_client_holds_its_backend_back() {
    let backend = Backend::start();
    let settings = [
        "upstream.stream.stall_max=2s",
        "upstream.stream.keepalive=1s",
        "upstream.stream.replay_events_max=64",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    let mut exchange = backend.next();
    // Closed by the proxy once it has read all of it.
    exchange.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
    );
    client.head();
    primed(&mut client);
    let big = |n: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"x","params":{{"n":{n},"pad":"{}"}}}}"#,
            "p".repeat(60_000)
        )
    };
    // More than kernels hold: the backend's writes stop, and go on when the stalled client's connection was ended.
    let writer = std::thread::spawn(move || {
        let mut sent = 0;
        for n in 1..=400 {
            exchange.event(&big(n));
            sent = n;
        }
        (exchange, sent)
    });
    proxy.logged("client took nothing for too long; its connection ends");
    let (mut exchange, sent) = writer.join().expect("the writer ends");
    assert_eq!(sent, 400, "all of it is read on once nobody is attached");
    exchange.event(&result("1"));
    exchange.raw(b"0\r\n\r\n");
    exchange.wait_closed();
    // Whatever it reads now is whole events in order, without a gap, then the end or a reset of the connection.
    let mut expected = 1;
    let mut last = None;
    while let Ok(Some(event)) = client.try_event() {
        if event.data.is_none() {
            assert!(event.retry.is_some(), "{event:?}");
            continue;
        }
        assert_eq!(event.data(), big(expected));
        assert_eq!(position(event.id()), (u64::from(expected), false));
        expected += 1;
        last = event.id;
    }
    let cursor = last.expect("something was had");
    let mut client = session.resume(&cursor);
    // The window is small: what is gone is said, and the response is still had.
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    primed(&mut client);
    message(&mut client, &result("1"));
    client.ended();
}

/// Back-pressure without loss: a client that is only slow gets every event, through a window far too small for them.
#[test]
fn a_slow_client_loses_nothing() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=8"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    let big = |n: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"x","params":{{"n":{n},"pad":"{}"}}}}"#,
            "p".repeat(30_000)
        )
    };
    let writer = std::thread::spawn(move || {
        for n in 1..=600 {
            exchange.event(&big(n));
        }
        exchange.event(&result("1"));
        exchange.finish();
    });
    for n in 1..=600 {
        message(&mut client, &big(n));
    }
    message(&mut client, &result("1"));
    client.ended();
    writer.join().expect("the writer ends");
}

/// A backend that could not write for so long is held back. Were it only slow, the test would try less, not fail.
const HELD_BACK: std::time::Duration = std::time::Duration::from_millis(500);

/// What waited for room in a window full of what a slow listener had not taken comes after it, also when another
/// connection takes the stream over and a new epoch begins: never before what was sent earlier.
#[test]
fn what_waits_for_room_keeps_its_place() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = Session::open(&proxy, &backend);
    let (stalled, mut standing) = session.listening(&backend);
    let (told, sent) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        for n in 1..=200 {
            let pad = "p".repeat(60_000);
            standing.event(&format!(
                r#"{{"jsonrpc":"2.0","method":"x","params":{{"n":{n},"pad":"{pad}"}}}}"#
            ));
            let _ = told.send(n);
        }
        standing
    });
    // Until the backend is held back: then something waits.
    while sent.recv_timeout(HELD_BACK).is_ok() {}
    let mut client = session.get();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    let mut last = 0;
    while last < 200 {
        if let Some(n) = number_of(&client.event()) {
            assert!(n > last, "{n} came after {last}");
            last = n;
        }
    }
    drop(stalled);
    backend.park(writer.join().expect("the writer ends"));
}

/// The number in a message of `what_waits_for_room_keeps_its_place`, if it is one.
fn number_of(event: &crate::client::Event) -> Option<u64> {
    let message: serde_json::Value = serde_json::from_str(event.data.as_deref()?).ok()?;
    message["params"]["n"].as_u64()
}

/// A session neither attached nor used: DELETE upstream, then 404 (S8).
#[test]
fn an_idle_session_ends() {
    let backend = Backend::start();
    let idle: &[&str] = &["upstream.session.session_idle=1s"];
    let old: &[&str] = &[
        "upstream.session.session_max=2s",
        "upstream.session.session_idle=2s",
    ];
    for settings in [idle, old] {
        let proxy = Proxy::start(&[&backend.url()], settings);
        let session = Session::open(&proxy, &backend);
        let delete = backend.next_of("DELETE");
        assert_eq!(delete.head.get("mcp-session-id"), Some("backend-session"));
        delete.answer(200, &[], "");
        session.is_gone();
        assert!(backend.is_silent());
    }
}

/// An attached stream, and a call that runs, keep their session.
#[test]
fn a_session_in_use_is_not_idle() {
    let backend = Backend::start();
    let proxy = Proxy::start(
        &[&backend.url()],
        &["upstream.session.session_idle=1s", "upstream.stream.keepalive=1s"],
    );
    let attached = Session::open(&proxy, &backend);
    let (mut listener, _standing) = attached.listening(&backend);
    let calling = Session::open(&proxy, &backend);
    let mut client = calling.post(&call("1"));
    let exchange = backend.next_of("POST");
    // Three keep-alives of one second each: both are far past their idle time.
    for _ in 0..3 {
        listener.comment();
    }
    exchange.json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    calling.is_alive(&backend);
    attached.is_alive(&backend);
    // Then it ends like any other.
    backend.next_of("DELETE").answer(200, &[], "");
}

/// A cursor from before what a budget took says `evicted`, not `window_exceeded`.
#[test]
fn what_a_budget_took_is_said_to_be_evicted() {
    let backend = Backend::start();
    let settings = [
        "memory.replay_max=1MiB",
        "upstream.stream.replay_bytes_max=1MiB",
        "upstream.stream.event_bytes_max=512KiB",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let big = format!(
        r#"{{"jsonrpc":"2.0","method":"x","params":"{}"}}"#,
        "p".repeat(100_000)
    );
    // One stream fills most of the process's budget, so that the next one pays with its own oldest events.
    let (mut other, mut filling) = session.streaming_call(&backend, "10");
    for _ in 0..9 {
        filling.event(&big);
        message(&mut other, &big);
    }
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    for _ in 0..9 {
        exchange.event(&big);
        assert_eq!(client.event().data(), big);
    }
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "reset evicted");
}

/// S8: a session that its client holds is mentioned to its backend after silence, however the backend answers; one that
/// nobody uses is mentioned too, but ends all the same.
#[test]
fn a_session_is_kept_alive_at_its_backend() {
    let backend = Backend::start();
    let settings = [
        "upstream.session.ping_after=300ms",
        "upstream.session.session_idle=1s",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let (client, standing) = session.listening(&backend);
    let mut ids = Vec::new();
    for how in ["json", "stream", "json", "refused", "json", "json", "json"] {
        let ping = backend.next_of("POST");
        assert_eq!(ping.head.get("mcp-session-id"), Some("backend-session"));
        assert_eq!(ping.head.get("mcp-protocol-version"), Some(PRIMING));
        let body: serde_json::Value = serde_json::from_str(&ping.body).expect("JSON");
        assert_eq!(body["method"], "ping");
        let id = body["id"]
            .as_str()
            .expect("a string, like no client's")
            .to_owned();
        assert!(!ids.contains(&id), "each has an id of its own");
        ids.push(id);
        let answer = result(&body["id"].to_string());
        match how {
            "stream" => {
                let mut stream = ping.stream();
                stream.event(&answer);
                stream.finish();
            }
            "refused" => ping.answer(403, &[], ""),
            _ => ping.json(&answer),
        }
    }
    // It is attached, so it is in use; then it is not.
    session.is_alive(&backend);
    backend.park(standing);
    client.cut();
    loop {
        let request = backend.next();
        if request.head.method() == "DELETE" {
            request.answer(200, &[], "");
            break;
        }
        assert!(request.body.contains("\"ping\""), "{}", request.body);
        request.json("{}");
    }
    session.is_gone();
}

/// A 404 that says that there is no such method is an answer on the session, not its loss.
#[test]
fn a_server_that_knows_no_ping_keeps_its_session() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.session.ping_after=300ms"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    for _ in 0..2 {
        let ping = backend.next_of("POST");
        let asked: serde_json::Value = serde_json::from_str(&ping.body).expect("JSON");
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32601,"message":"Method not found"}}}}"#,
            asked["id"]
        );
        ping.answer(404, &[("content-type", "application/json")], &error);
    }
    standing.event(&note(1));
    message(&mut client, &note(1));
}

/// A ping that finds the session gone is a loss like any other.
#[test]
fn a_ping_finds_a_session_gone() {
    let backend = Backend::start();
    let settings = [
        "upstream.session.ping_after=300ms",
        "upstream.session.on_session_loss=terminate",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let (mut client, _standing) = session.listening(&backend);
    backend.next_of("POST").answer(404, &[], "");
    client.ended();
    session.is_gone();
}

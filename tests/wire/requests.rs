//! Requests that are sent once and answered once, whatever happens to the backend (wire contract, sections 6 and 7).
//! Law: a backend that hears of a request twice, or of a refused one at all, fails the test.
//! Next: `drains.rs`.

use crate::backend::Backend;
use crate::port::Held;
use crate::proxy::Proxy;
use crate::session::{
    PRIMING, Session, another_call, call, failed, initialize, initialized, json, message, note, primed,
    result, says_gone, verdict,
};

const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// JSON passes as it is, fields and bytes, on one connection.
#[test]
fn json_passes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = proxy.connect();
    let odd = "{ \"jsonrpc\":\"2.0\",\n\"id\" : 1 , \"result\":{\"x\":1.0e2} }";
    for _ in 0..3 {
        let body = another_call("1");
        session.send_on(&mut client, "POST", &[], &body);
        let exchange = backend.next();
        assert_eq!(exchange.body, body);
        exchange.answer(200, &[("content-type", "application/json"), ("x-own", "1")], odd);
        let whole = client.whole();
        assert_eq!(whole.body, odd);
        assert_eq!(whole.head.get("x-own"), Some("1"));
        assert_eq!(
            whole.head.get("throughline-continuity"),
            None,
            "the verdict is on event streams"
        );
    }
    // Too large to be held: it streams.
    let large = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"{}\"}}",
        "x".repeat(3 << 20)
    );
    session.send_on(&mut client, "POST", &[], &another_call("1"));
    backend.next().json(&large);
    assert!(client.whole().body == large);
}

/// S9: an answer that is lost before its head is an error with an unknown outcome; nothing is sent again.
#[test]
fn an_answer_that_is_lost_before_its_head() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for begun in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-ty",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{\"js",
    ] {
        let mut client = session.post(&another_call("\"a\""));
        let mut exchange = backend.next();
        exchange.raw(begun.as_bytes());
        exchange.cut();
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200, "{begun:?}");
        assert_eq!(whole.head.get("content-type"), Some("application/json"));
        assert_eq!(
            failed(&whole.body, "\"a\""),
            ("backend_lost".into(), "unknown".into())
        );
    }
    session.is_alive(&backend);
    assert!(backend.is_silent());
}

/// The connection is refused before a byte: `initialize` goes to another replica.
#[test]
fn initialize_goes_to_another_replica() {
    let backend = Backend::start();
    let nobody = Held::any().expect("a port");
    for order in [[nobody.url(), backend.url()], [backend.url(), nobody.url()]] {
        let proxy = Proxy::start(&[&order[0], &order[1]], &["upstream.balance=round_robin"]);
        for _ in 0..3 {
            Session::open(&proxy, &backend).is_alive(&backend);
        }
    }
}

/// No healthy replica: 503 with `Retry-After`; a 4xx would start a client's fallback probing.
#[test]
fn initialize_without_any_replica() {
    let nobody = [Held::any(), Held::any()].map(|port| port.expect("a port"));
    let proxy = Proxy::start(&[&nobody[0].url(), &nobody[1].url()], &[]);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    let whole = client.whole();
    assert_eq!(whole.head.status(), 503);
    let after: u64 = whole
        .head
        .get("retry-after")
        .expect("Retry-After")
        .parse()
        .expect("seconds");
    assert!(after >= 1);
}

/// A session's replica refuses connections: after `replica_retry_max` the request is `unavailable`, and was not
/// executed. The session lives: a replica that is back serves it.
#[test]
fn a_replica_that_is_away() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    proxy.kill();
    let url = backend.url();
    let port = backend.close();
    let proxy = Proxy::start(&[&url], &["upstream.exchange.replica_retry_max=300ms"]);
    let session = session.on(&proxy);
    let whole = session.post(&call("1")).whole();
    assert_eq!(whole.head.status(), 200);
    assert_eq!(
        failed(&whole.body, "1"),
        ("unavailable".into(), "not_executed".into())
    );
    let batch = format!("[{},{}]", call("1"), call("2"));
    let whole = session.post(&batch).whole();
    let errors: Vec<serde_json::Value> = serde_json::from_str(&whole.body).expect("an array");
    assert_eq!(errors.len(), 2);
    // A notification is 202 all the same, and a DELETE ends the session here.
    assert_eq!(session.post(INITIALIZED).whole().head.status(), 202);
    let back = Backend::start_at(port);
    session.is_alive(&back);
    back.close();
    let whole = session.delete().whole();
    assert_eq!(whole.head.status(), 200, "unreachable: ended here");
    session.is_gone();
}

/// Within `replica_retry_max` nobody notices a restart that keeps its sessions.
#[test]
fn a_replica_that_is_back_in_time() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.exchange.post_idle_max=0s"]);
    let session = Session::open(&proxy, &backend);
    let port = backend.close();
    let mut client = session.post(&call("1"));
    proxy.logged("backend did not answer");
    let back = Backend::start_at(port);
    let exchange = back.next();
    assert_eq!(exchange.body, call("1"));
    exchange.json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    assert!(back.is_silent());
}

/// Notifications and answers of the client: always 202 while the session lives.
#[test]
fn notifications_are_accepted() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let answer = r#"{"jsonrpc":"2.0","id":"s1","result":{}}"#;
    for body in [INITIALIZED, answer] {
        for (status, told) in [
            (202, "x"),
            (200, ""),
            (204, ""),
            (400, "{\"no\":1}"),
            (500, "oops"),
            (503, "busy"),
        ] {
            let mut client = session.post(body);
            let exchange = backend.next();
            assert_eq!(exchange.body, body);
            exchange.answer(status, &[], told);
            let whole = client.whole();
            assert_eq!(
                (whole.head.status(), &*whole.body),
                (202, ""),
                "{body} was answered with {status}"
            );
        }
        let mut client = session.post(body);
        backend.next().cut();
        assert_eq!(client.whole().head.status(), 202, "{body} was lost");
    }
    // A credential that is not accepted is the client's to know.
    let mut client = session.post(INITIALIZED);
    backend.next().answer(401, &[("www-authenticate", "Bearer")], "");
    let whole = client.whole();
    assert_eq!(
        (whole.head.status(), whole.head.get("www-authenticate")),
        (401, Some("Bearer"))
    );
    session.is_alive(&backend);
}

/// 401 and 403 pass with `WWW-Authenticate`, for calls and for the first GET.
#[test]
fn credentials_are_the_clients_and_the_backends() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for status in [401, 403] {
        for method in ["POST", "GET"] {
            let mut client = session.send(
                method,
                &[("authorization", "Bearer old")],
                if method == "POST" {
                    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#
                } else {
                    ""
                },
            );
            let exchange = backend.next();
            assert_eq!(exchange.head.get("authorization"), Some("Bearer old"));
            exchange.answer(status, &[("www-authenticate", "Bearer realm=\"r\"")], "no");
            let whole = client.whole();
            assert_eq!((whole.head.status(), &*whole.body), (status, "no"), "{method}");
            assert_eq!(whole.head.get("www-authenticate"), Some("Bearer realm=\"r\""));
        }
    }
    session.is_alive(&backend);
}

/// A cancel is forwarded; the attached stream ends with `cancelled` and its end mark, and nothing comes after it.
#[test]
fn a_call_that_is_cancelled() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.session.streams_max=1"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let before = message(&mut client, &note(1)).id().to_owned();
    let mut cancel = session.post(CANCEL);
    let forwarded = backend.next();
    assert_eq!(forwarded.body, CANCEL);
    forwarded.answer(202, &[], "");
    assert_eq!(cancel.whole().head.status(), 202);
    let error = client.event();
    assert_eq!(failed(error.data(), "1"), ("cancelled".into(), "unknown".into()));
    assert!(error.id().ends_with('~'));
    client.ended();
    // What the backend says of it now reaches nobody.
    let _ = exchange.try_event(&result("1"));
    assert_eq!(session.resume(error.id()).whole().head.status(), 405);
    let mut client = session.resume(&before);
    assert_eq!(verdict(&client.head()), "resumed 1 1");
    primed(&mut client);
    message(&mut client, error.data());
    client.ended();
    // It takes no place any more.
    let (mut client, mut exchange) = session.streaming_call(&backend, "2");
    exchange.event(&result("2"));
    message(&mut client, &result("2"));
    client.ended();
}

/// More calls than a session may have streams: refused as `overloaded`, and not executed.
#[test]
fn too_many_calls_at_a_time() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.session.streams_max=2"]);
    let session = Session::open(&proxy, &backend);
    let (mut one, mut first) = session.streaming_call(&backend, "1");
    let (_two, second) = session.streaming_call(&backend, "2");
    let whole = session.post(&call("3")).whole();
    assert_eq!(whole.head.status(), 200);
    assert_eq!(
        failed(&whole.body, "3"),
        ("overloaded".into(), "not_executed".into())
    );
    assert!(backend.is_silent(), "the backend never heard of it");
    first.event(&result("1"));
    first.finish();
    message(&mut one, &result("1"));
    session.is_alive(&backend);
    backend.park(second);
}

/// DELETE: `ending` before it is forwarded, then whatever the backend says.
#[test]
fn a_session_that_is_deleted() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for status in [200, 202, 204] {
        let session = Session::open(&proxy, &backend);
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        let (mut listener, mut standing) = session.listening(&backend);
        let mut delete = session.delete();
        let forwarded = backend.next_of("DELETE");
        assert_eq!(forwarded.head.get("mcp-session-id"), Some("backend-session"));
        // From now on nothing of it succeeds.
        session.is_gone();
        forwarded.answer(status, &[], "");
        assert_eq!(delete.whole().head.status(), status);
        let error = client.event();
        assert_eq!(
            failed(error.data(), "1"),
            ("backend_lost".into(), "unknown".into())
        );
        assert!(error.id().ends_with('~'));
        client.ended();
        listener.ended();
        exchange.wait_closed();
        standing.wait_closed();
        session.is_gone();
        assert!(backend.is_silent());
        // Not even with its token on a proxy that is asked for the first time: the backend says so.
    }
}

/// A backend that does not let clients end sessions: 405 is relayed, and the session goes on as it was.
#[test]
fn a_session_that_can_not_be_deleted() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    let (mut listener, mut standing) = session.listening(&backend);
    let mut delete = session.delete();
    let forwarded = backend.next_of("DELETE");
    says_gone(&session.post(&call("2")).whole());
    forwarded.answer(405, &[("allow", "GET, POST")], "");
    let whole = delete.whole();
    assert_eq!(
        (whole.head.status(), whole.head.get("allow")),
        (405, Some("GET, POST"))
    );
    session.is_alive(&backend);
    standing.event(&note(1));
    message(&mut listener, &note(1));
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
}

/// DELETE answered in another way is relayed: 404 ends the session like 2xx.
#[test]
fn a_session_that_was_gone_when_it_was_deleted() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut delete = session.delete();
    backend.next_of("DELETE").answer(404, &[], "");
    assert_eq!(delete.whole().head.status(), 404);
    session.is_gone();
    let session = Session::open(&proxy, &backend);
    let mut delete = session.delete();
    backend.next_of("DELETE").cut();
    assert_eq!(delete.whole().head.status(), 200, "unreachable: ended here");
    session.is_gone();
}

/// What is no JSON-RPC is the backend's to judge.
#[test]
fn what_is_no_json_rpc_passes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for body in ["no json", "{\"jsonrpc\":\"2.0\"", "42", "[]"] {
        let mut client = session.post(body);
        let exchange = backend.next();
        assert_eq!(exchange.body, body);
        exchange.answer(
            400,
            &[("content-type", "application/json")],
            "{\"error\":\"parse\"}",
        );
        let whole = client.whole();
        assert_eq!(
            (whole.head.status(), &*whole.body),
            (400, "{\"error\":\"parse\"}")
        );
    }
    session.is_alive(&backend);
}

/// A client that leaves before the head cancels nothing: the answer is read on, and its session goes on.
#[test]
fn a_client_that_leaves_before_the_head() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let client = session.post(&call("1"));
    let exchange = backend.next();
    client.cut();
    session.is_alive(&backend);
    let mut exchange = exchange.stream();
    for n in 0..20 {
        exchange.event(&note(n));
    }
    exchange.event(&result("1"));
    // Read to its end: its connection comes back for the next request.
    exchange.finish();
    session.is_alive(&backend);
    assert!(backend.is_silent(), "no cancel, no second try");
}

/// A request of the backend's reaches the client on the stream that carried it, and the answer goes back as it is.
#[test]
fn a_request_of_the_backends() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    let request = r#"{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{}}"#;
    exchange.event(request);
    message(&mut client, request);
    let answer = r#"{"jsonrpc":"2.0","id":"s1","result":{"action":"accept"}}"#;
    let mut post = session.post(answer);
    let forwarded = backend.next_of("POST");
    assert_eq!(forwarded.body, answer);
    forwarded.answer(202, &[], "");
    assert_eq!(post.whole().head.status(), 202);
    exchange.event(&result("1"));
    assert_eq!(json(&message(&mut client, &result("1")))["id"], 1);
    client.ended();
}

/// `sessions_max`: 503 with `Retry-After`; a session that ends makes room.
#[test]
fn too_many_sessions() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.session.sessions_max=1"]);
    let session = Session::open(&proxy, &backend);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    let whole = client.whole();
    assert_eq!(whole.head.status(), 503);
    assert!(whole.head.get("retry-after").is_some());
    assert!(backend.is_silent());
    let mut delete = session.delete();
    backend.next_of("DELETE").answer(200, &[], "");
    delete.whole();
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    backend.next().answer(
        200,
        &[("content-type", "application/json"), ("mcp-session-id", "n")],
        &initialized(PRIMING),
    );
    assert_eq!(client.whole().head.status(), 200);
}

/// A POST is never put on a connection that its server may be closing: one that idled longer than `post_idle_max`
/// carries none.
#[test]
fn a_stale_connection_carries_no_post() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.exchange.post_idle_max=0s"]);
    let session = Session::open(&proxy, &backend);
    let mut ports = Vec::new();
    for _ in 0..3 {
        let mut client = session.post(&another_call("1"));
        let exchange = backend.next();
        ports.push(exchange.port());
        exchange.json(&result("1"));
        assert_eq!(client.whole().head.status(), 200);
    }
    ports.dedup();
    assert_eq!(ports.len(), 3, "each came on a connection of its own");
}

/// A call whose answer has not begun is cancelled: it ends at once, as JSON; others go on, and its id may be used again.
#[test]
fn a_call_without_a_head_is_cancelled() {
    let backend = Backend::start();
    for settings in [&[][..], &["upstream.stream.json_upgrade_after=30s"]] {
        let proxy = Proxy::start(&[&backend.url()], settings);
        let session = Session::open(&proxy, &backend);
        let mut client = session.post(&call("1"));
        let mut running = backend.next_of("POST");
        let mut other = session.post(&call("2"));
        let others = backend.next_of("POST");
        let mut cancel = session.post(CANCEL);
        let told = backend.next_of("POST");
        assert_eq!(told.body, CANCEL, "the backend hears of it too");
        told.answer(202, &[], "");
        assert_eq!(cancel.whole().head.status(), 202);
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200);
        assert_eq!(whole.head.get("content-type"), Some("application/json"));
        let cancelled = ("cancelled".into(), "unknown".into());
        assert_eq!(failed(&whole.body, "1"), cancelled);
        running.wait_closed();
        // The same POST is the one that was cancelled; another one of that id is not.
        assert_eq!(failed(&session.post(&call("1")).whole().body, "1"), cancelled);
        let mut again = session.post(&another_call("1"));
        backend.next_of("POST").json(&result("1"));
        assert_eq!(again.whole().body, result("1"));
        others.json(&result("2"));
        assert_eq!(other.whole().body, result("2"));
        assert!(backend.is_silent());
    }
}

/// No redirect is followed, whatever it leads to: it is the client's to read.
#[test]
fn a_redirect_is_not_followed() {
    let (backend, elsewhere) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for status in [302, 307] {
        let mut client = session.post(&call("1"));
        let target = elsewhere.url();
        backend
            .next_of("POST")
            .answer(status, &[("location", &target)], "there");
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, "there"));
        assert_eq!(whole.head.get("location"), Some(&*target));
    }
    session.is_alive(&backend);
    assert!(elsewhere.is_silent() && backend.is_silent());
}

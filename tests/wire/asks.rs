//! What a backend asks of its client: sampling, elicitation, roots, `ping` (wire contract, sections 6 and 7).
//! Law: an answer reaches whoever asked; what was answered is shown to nobody again; nobody waits for ever.
//! Next: `upstream_get.rs`.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{Session, epoch_of, json, message, note, position, primed, result, resync, verdict};
use crate::status::{OPERATOR, metric};

const ELICIT: &str =
    r#"{"jsonrpc":"2.0","id":"s1","method":"elicitation/create","params":{"message":"sure?"}}"#;
const ROOTS: &str = r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

/// The client answers, and its answer is at the backend when this returns.
fn answers(session: &Session, backend: &Backend, id: &str) {
    let mut client = session.post(&answer(id));
    let forwarded = backend.next_of("POST");
    assert_eq!(forwarded.body, answer(id));
    assert_eq!(forwarded.head.get("mcp-session-id"), Some("backend-session"));
    forwarded.answer(202, &[], "");
    assert_eq!(client.whole().head.status(), 202);
}

/// Held while the client is away, shown when it comes back, and the answer goes to the replica that asked.
#[test]
fn a_request_waits_for_an_absent_client() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &["upstream.balance=round_robin"]);
    let other = {
        // Whichever replica took it: the session under test lives on the first.
        let mut client = proxy.connect();
        client.send("POST", &[], &crate::session::initialize("2025-11-25"));
        let asked = loop {
            if let Some(asked) = one.try_next().or_else(|| two.try_next()) {
                break asked;
            }
        };
        let address = asked.head.get("host").expect("a host").to_owned();
        asked.answer(400, &[], "");
        client.whole();
        address
    };
    let (home, away) = if other == one.address.to_string() {
        (&two, &one)
    } else {
        (&one, &two)
    };
    let session = Session::open(&proxy, home);
    let (mut client, mut exchange) = session.streaming_call(home, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(&proxy);
    exchange.event(ELICIT);
    let mut client = session.resume(&cursor);
    assert!(verdict(&client.head()).starts_with("resumed 1 "));
    primed(&mut client);
    message(&mut client, ELICIT);
    answers(&session, home, r#""s1""#);
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    assert!(away.is_silent());
}

/// A replay has no hole, and shows no request that was answered: another message stands in its place.
#[test]
fn what_was_answered_is_never_shown_again() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for (listens, request, id) in [
        (false, ELICIT, r#""s1""#),
        (false, ROOTS, "2"),
        (false, PING, "3"),
        (true, ELICIT, r#""s1""#),
    ] {
        let (mut client, mut exchange) = if listens {
            session.listening(&backend)
        } else {
            session.streaming_call(&backend, "1")
        };
        exchange.event(&note(1));
        let before = message(&mut client, &note(1)).id().to_owned();
        exchange.event(request);
        let shown = message(&mut client, request).id().to_owned();
        answers(&session, &backend, id);
        exchange.event(&note(2));
        message(&mut client, &note(2));
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume(&before);
        assert_eq!(verdict(&client.head()), "resumed 1 2");
        primed(&mut client);
        let again = client.event();
        assert_eq!((again.id(), again.event.as_deref()), (&*shown, Some("message")));
        assert_eq!(
            json(&again)["id"],
            serde_json::Value::Null,
            "no request: {again:?}"
        );
        assert!(json(&again)["method"].is_string(), "a notification: {again:?}");
        if request == ELICIT {
            assert_eq!(json(&again)["method"], "notifications/cancelled");
            assert_eq!(json(&again)["params"]["requestId"], "s1");
        }
        let next = message(&mut client, &note(2));
        assert_eq!(
            (epoch_of(next.id()), position(next.id()).0),
            (epoch_of(&before), 3)
        );
        client.cut();
        session.client_left(&proxy);
        backend.park(exchange);
    }
}

/// One that was not answered is shown again: its client may never have had it.
#[test]
fn what_was_not_answered_is_shown_again() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let before = message(&mut client, &note(1)).id().to_owned();
    exchange.event(ELICIT);
    exchange.event(ROOTS);
    message(&mut client, ELICIT);
    message(&mut client, ROOTS);
    answers(&session, &backend, "2");
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&before);
    verdict(&client.head());
    primed(&mut client);
    message(&mut client, ELICIT);
    assert_ne!(client.event().data(), ROOTS);
}

/// After `detached_max` the backend is told that nobody will answer, on both kinds of streams.
#[test]
fn a_backend_does_not_wait_for_ever() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.detached_max=200ms"]);
    let session = Session::open(&proxy, &backend);
    for listens in [false, true] {
        let (mut client, mut exchange) = if listens {
            session.listening(&backend)
        } else {
            session.streaming_call(&backend, "1")
        };
        exchange.event(ROOTS);
        exchange.event(ELICIT);
        message(&mut client, ROOTS);
        message(&mut client, ELICIT);
        answers(&session, &backend, "2");
        client.cut();
        let mut told = Vec::new();
        for _ in 0..if listens { 1 } else { 2 } {
            let post = backend.next_of("POST");
            told.push(post.body.clone());
            post.answer(202, &[], "");
        }
        let error = told
            .iter()
            .find(|body| body.contains("\"error\""))
            .expect("an error");
        let error: serde_json::Value = serde_json::from_str(error).expect("JSON");
        assert_eq!(
            (&error["id"], &error["error"]["code"]),
            (&"s1".into(), &(-32603).into())
        );
        assert_eq!(error["error"]["data"]["reason"], "client_away");
        exchange.wait_closed();
        session.logged(&proxy, "stream was let go");
    }
}

/// A backend's `ping` is answered by the proxy while no client is attached, and by the client while one is.
#[test]
fn a_ping_of_the_backends_is_always_answered() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for listens in [false, true] {
        let (mut client, mut exchange) = if listens {
            session.listening(&backend)
        } else {
            session.streaming_call(&backend, "1")
        };
        exchange.event(&note(1));
        let before = message(&mut client, &note(1)).id().to_owned();
        exchange.event(PING);
        message(&mut client, PING);
        answers(&session, &backend, "3");
        client.cut();
        session.client_left(&proxy);
        exchange.event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
        let answered = backend.next_of("POST");
        assert_eq!(answered.body, answer(r#""p""#));
        answered.answer(202, &[], "");
        exchange.event(&note(2));
        let mut client = session.resume(&before);
        verdict(&client.head());
        primed(&mut client);
        // The one that was answered by the client is replaced; the other was never logged.
        let replaced = client.event();
        assert_ne!(replaced.data(), PING);
        assert_eq!(position(message(&mut client, &note(2)).id()).0, 3);
        client.cut();
        session.client_left(&proxy);
        backend.park(exchange);
    }
}

/// A reset withdraws what nobody will answer; what the client is asked again in the new epoch is still its to answer.
#[test]
fn a_reset_asks_again_or_withdraws() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    message(&mut client, &note(1));
    client.cut();
    session.client_left(&proxy);
    standing.event(ELICIT);
    session.is_alive(&backend);
    // Without a cursor: what was surely not had comes again, and is not withdrawn.
    let mut client = session.get();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    primed(&mut client);
    resync(&mut client, "cursor_unknown");
    let mut asked = client.event();
    if asked.data() == note(1) {
        asked = client.event();
    }
    assert_eq!(asked.data(), ELICIT);
    assert!(backend.is_silent(), "nobody answered for the client");
    answers(&session, &backend, r#""s1""#);
    standing.event(&note(2));
    message(&mut client, &note(2));
    // It is answered: in the new epoch too it is not shown again.
    client.cut();
    session.client_left(&proxy);
    let before = crate::session::at_position(asked.id(), &(position(asked.id()).0 - 1).to_string());
    let mut client = session.resume(&before);
    assert!(verdict(&client.head()).starts_with("resumed "));
    primed(&mut client);
    assert_eq!(json(&client.event())["method"], "notifications/cancelled");
    message(&mut client, &note(2));
}

fn elicitation(n: usize) -> String {
    ELICIT.replace(r#""s1""#, &n.to_string())
}

/// The backend gets an error for this request of its own, for this reason.
fn is_told(backend: &Backend, id: &str, reason: &str) {
    let told = backend.next_of("POST");
    let error: serde_json::Value = serde_json::from_str(&told.body).expect("JSON");
    assert_eq!(error["id"].to_string(), id);
    assert_eq!(
        (&error["error"]["code"], &error["error"]["data"]["reason"]),
        (&(-32603).into(), &reason.into())
    );
    told.answer(202, &[], "");
}

/// The client answers, and nobody hears of it: its backend was answered before.
fn answers_nobody(session: &Session, backend: &Backend, proxy: &Proxy, id: &str) {
    let whole = session.post(&answer(id)).whole();
    assert_eq!((whole.head.status(), &*whole.body), (202, ""));
    session.logged(proxy, "answers came after the proxy's own and were dropped");
    assert!(backend.is_silent());
}

/// More than the proxy keeps: the backend is told at once of each that makes room, the client does not see it, and what it
/// answers all the same goes nowhere.
#[test]
fn more_requests_than_are_kept() {
    const KEPT: usize = 64;
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for listens in [false, true] {
        let (mut client, mut exchange) = if listens {
            session.listening(&backend)
        } else {
            session.streaming_call(&backend, "1")
        };
        exchange.event(&note(1));
        let before = message(&mut client, &note(1)).id().to_owned();
        client.cut();
        session.client_left(&proxy);
        let all: String = (1..=KEPT + 70)
            .map(|n| format!("data: {}\n\n", elicitation(n)))
            .collect();
        exchange.chunk(&all);
        for n in 1..=70 {
            is_told(&backend, &n.to_string(), "overloaded");
        }
        let mut client = session.resume(&before);
        assert!(verdict(&client.head()).starts_with("resumed "));
        primed(&mut client);
        for n in 1..=70 {
            let withdrawn = json(&client.event());
            assert_eq!(
                (&withdrawn["method"], &withdrawn["params"]["requestId"]),
                (&"notifications/cancelled".into(), &n.into())
            );
        }
        for n in 71..=KEPT + 70 {
            message(&mut client, &elicitation(n));
        }
        answers_nobody(&session, &backend, &proxy, "1");
        answers_nobody(&session, &backend, &proxy, "70");
        answers(&session, &backend, "71");
        client.cut();
        session.client_left(&proxy);
        backend.park(exchange);
    }
}

/// One that its client has seen already is withdrawn aloud.
#[test]
fn more_requests_than_are_kept_before_the_clients_eyes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    for n in 1..=64 {
        exchange.event(&elicitation(n));
        message(&mut client, &elicitation(n));
    }
    exchange.event(&elicitation(65));
    message(&mut client, &elicitation(65));
    let withdrawn = json(&client.event());
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&"notifications/cancelled".into(), &1.into())
    );
    is_told(&backend, "1", "overloaded");
    answers_nobody(&session, &backend, &proxy, "1");
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
}

/// An answer that comes after the proxy's own goes nowhere, alone or among others; a new request of that id is the client's.
#[test]
fn a_late_answer_goes_nowhere() {
    let backend = Backend::start();
    let settings = [OPERATOR, "upstream.stream.detached_max=200ms"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &backend);
    for listens in [false, true] {
        let (mut client, mut exchange) = if listens {
            session.listening(&backend)
        } else {
            session.streaming_call(&backend, "1")
        };
        exchange.event(ELICIT);
        message(&mut client, ELICIT);
        client.cut();
        // Both are on their way at once.
        for _ in 0..if listens { 1 } else { 2 } {
            let told = backend.next_of("POST");
            assert!(
                told.body.contains("client_away"),
                "an error or a cancel: {}",
                told.body
            );
            told.answer(202, &[], "");
        }
        exchange.wait_closed();
        session.logged(&proxy, "stream was let go");
        answers_nobody(&session, &backend, &proxy, r#""s1""#);
        // Among others it is left out.
        let batch = format!("[{}, {}]", answer(r#""s1""#), answer("8"));
        let mut client = session.post(&batch);
        let forwarded = backend.next_of("POST");
        assert_eq!(forwarded.body, format!("[{}]", answer("8")));
        forwarded.answer(202, &[], "");
        assert_eq!(client.whole().head.status(), 202);
        let (mut client, mut exchange) = session.streaming_call(&backend, "2");
        exchange.event(ELICIT);
        message(&mut client, ELICIT);
        answers(&session, &backend, r#""s1""#);
        exchange.event(&result("2"));
        message(&mut client, &result("2"));
        client.ended();
    }
    let counted = metric(operator, "throughline_notices_dropped_total{upstream=\"mcp\"}");
    assert_eq!(counted.as_deref(), Some("4"), "each is counted");
}

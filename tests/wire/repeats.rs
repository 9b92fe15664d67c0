//! The same POST again: executed once, whenever it comes (wire contract, section 7).
//! Law: the backend counts. What it hears twice fails the test, unless the contract says that it is a new request.
//! Next: `gate.rs`, where credentials stand before memory.

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::loss::{begun_anew, gone, refused};
use crate::proxy::Proxy;
use crate::session::{Session, another_call, call, failed, message, note, primed, result, verdict};

fn pair() -> (Backend, Proxy) {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    (backend, proxy)
}

/// A call that has reached its backend, and the same one again, which waits for its answer.
fn twice(session: &Session, backend: &Backend, proxy: &Proxy) -> (Client, Exchange, Client) {
    let first = session.post(&call("1"));
    let exchange = backend.next();
    let second = session.post(&call("1"));
    session.logged(
        proxy,
        "the same POST came again and waits for the first one's answer",
    );
    (first, exchange, second)
}

/// S9: before the head, a repeat waits for the one answer, bytes and fields.
#[test]
fn before_an_answer_both_get_the_one_that_comes() {
    let (backend, proxy) = pair();
    for (status, fields, body) in [
        (
            200,
            [("content-type", "application/json"), ("x-own", "1")],
            result("1"),
        ),
        (503, [("retry-after", "7"), ("x-own", "2")], "busy".to_owned()),
        (
            401,
            [("www-authenticate", "Bearer"), ("x-own", "3")],
            String::new(),
        ),
    ] {
        let session = Session::open(&proxy, &backend);
        let (mut first, exchange, mut second) = twice(&session, &backend, &proxy);
        exchange.answer(status, &fields, &body);
        for client in [&mut first, &mut second] {
            let whole = client.whole();
            assert_eq!((whole.head.status(), &*whole.body), (status, &*body));
            for (name, value) in fields {
                assert_eq!(whole.head.get(name), Some(value));
            }
        }
        assert!(backend.is_silent());
    }
}

/// An answer that is lost is lost for both, and sent again for neither.
#[test]
fn before_an_answer_that_is_lost() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let (mut first, exchange, mut second) = twice(&session, &backend, &proxy);
    exchange.cut();
    for client in [&mut first, &mut second] {
        let error = failed(&client.whole().body, "1");
        assert_eq!(error, ("backend_lost".into(), "unknown".into()));
    }
    // And for whoever comes a moment later.
    let error = failed(&session.post(&call("1")).whole().body, "1");
    assert_eq!(error, ("backend_lost".into(), "unknown".into()));
    assert!(backend.is_silent());
    session.is_alive(&backend);
}

/// Too long to be held: whoever waits hears that its answer can't be had, and never causes a second run.
#[test]
fn before_an_answer_that_is_too_long() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let (mut first, exchange, mut second) = twice(&session, &backend, &proxy);
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(3 << 20));
    let sent = long.clone();
    let sending = std::thread::spawn(move || exchange.json(&sent));
    assert_eq!(failed(&second.whole().body, "1").0, "evicted");
    assert!(first.whole().body == long);
    sending.join().expect("it is sent");
    assert_eq!(failed(&session.post(&call("1")).whole().body, "1").0, "evicted");
    assert!(backend.is_silent());
}

/// The first one's client is gone by then: its answer is kept for the one that comes again.
#[test]
fn after_a_client_left_before_its_answer() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    for (status, fields, body) in [
        (200, [("content-type", "application/json")], result("1")),
        (500, [("x-why", "odd")], "no".to_owned()),
    ] {
        let body_sent = another_call("1");
        let first = session.post(&body_sent);
        let exchange = backend.next();
        first.cut();
        proxy.logged("a client left before its answer began; the request goes on");
        let mut second = session.post(&body_sent);
        session.logged(
            &proxy,
            "the same POST came again and waits for the first one's answer",
        );
        exchange.answer(status, &fields, &body);
        assert_eq!(second.whole().body, body);
        // Whoever waited had it, but the first one did not: it may still come for it.
        let whole = session.post(&body_sent).whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, &*body));
        assert_eq!(whole.head.get(fields[0].0), Some(fields[0].1));
        assert!(backend.is_silent());
    }
}

/// A JSON answer that was had is the same answer for a while.
#[test]
fn after_an_answer_that_was_had() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut client = proxy.connect();
    for turn in 0..3 {
        session.send_on(&mut client, "POST", &[], &call("1"));
        if turn == 0 {
            backend.next().json(&result("1"));
        }
        let whole = client.whole();
        assert_eq!(whole.body, result("1"));
        assert_eq!(whole.head.get("content-type"), Some("application/json"));
    }
    assert!(backend.is_silent());
    // The backend's refusal is no answer to keep: whoever had it asks again on purpose.
    for _ in 0..2 {
        session.send_on(&mut client, "POST", &[], &call("2"));
        backend.next().answer(429, &[("retry-after", "1")], "slowly");
        assert_eq!(client.whole().head.status(), 429);
    }
}

/// What tells two requests apart: credential, session, and any byte of the body.
#[test]
fn what_is_another_request() {
    let (backend, proxy) = pair();
    let (session, other) = (Session::open(&proxy, &backend), Session::open(&proxy, &backend));
    let mut first = session.post(&call("1"));
    let running = backend.next();
    let spaced = format!("{} ", call("1"));
    let key: &[(&str, &str)] = &[("x-api-key", "k")];
    for (session, fields, body) in [
        (&session, key, call("1")),
        (&session, &[], call("\"1\"")),
        (&session, &[], spaced),
        (&session, &[], call("2")),
        (&other, &[], call("1")),
    ] {
        let mut client = session.send("POST", fields, &body);
        let exchange = backend.next();
        assert_eq!(exchange.body, body);
        exchange.json(&result("7"));
        assert_eq!(client.whole().body, result("7"));
    }
    running.json(&result("1"));
    assert_eq!(first.whole().body, result("1"));
}

/// A notification may come as often as it likes.
#[test]
fn what_has_no_answer_is_not_held_back() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    for _ in 0..2 {
        let mut client = session.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        backend.next().answer(202, &[], "");
        assert_eq!(client.whole().head.status(), 202);
    }
}

/// S9: twenty at once run once.
#[test]
fn twenty_at_once() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut clients: Vec<Client> = (0..20).map(|_| session.post(&call("1"))).collect();
    let exchange = backend.next();
    for _ in 1..clients.len() {
        session.logged(
            &proxy,
            "the same POST came again and waits for the first one's answer",
        );
    }
    exchange.json(&result("1"));
    for client in &mut clients {
        assert_eq!(client.whole().body, result("1"));
    }
    assert!(backend.is_silent());
}

/// Twenty at once that are answered by a stream: it runs once, and the newest has all of it.
#[test]
fn twenty_at_once_by_a_stream() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut clients: Vec<Client> = (0..20).map(|_| session.post(&call("1"))).collect();
    let exchange = backend.next();
    for _ in 1..clients.len() {
        session.logged(
            &proxy,
            "the same POST came again and waits for the first one's answer",
        );
    }
    let mut exchange = exchange.stream();
    exchange.event(&note(1)).event(&result("1"));
    exchange.finish();
    // Each is answered with the stream; who is the newest of them, the proxy knows.
    let mut whole = 0;
    for client in &mut clients {
        verdict(&client.head());
        while let Some(event) = client.try_event().expect("an orderly end") {
            if event.data.as_deref() == Some(&*result("1")) {
                whole += 1;
            }
        }
    }
    assert!(whole >= 1, "the newest has its result");
    assert!(backend.is_silent());
    let mut client = session.post(&call("1"));
    assert_eq!(verdict(&client.head()), "resumed 0 2");
    primed(&mut client);
    message(&mut client, &note(1));
    message(&mut client, &result("1"));
    client.ended();
    assert!(backend.is_silent());
}

/// In the middle of a stream the newest wins, and has it from its beginning.
#[test]
fn in_the_middle_of_a_stream() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut first = session.post(&call("1"));
    let mut exchange = backend.next().stream();
    assert_eq!(verdict(&first.head()), "live");
    primed(&mut first);
    exchange.event(&note(1));
    message(&mut first, &note(1));
    let mut second = session.post(&call("1"));
    assert_eq!(verdict(&second.head()), "resumed 0 1");
    first.ended();
    primed(&mut second);
    message(&mut second, &note(1));
    exchange.event(&note(2));
    message(&mut second, &note(2));
    second.cut();
    session.client_left(&proxy);
    // Nobody is attached now; it goes on, and is had from its beginning.
    exchange.event(&result("1"));
    exchange.finish();
    let mut third = session.post(&call("1"));
    assert!(verdict(&third.head()).starts_with("resumed 0 "));
    primed(&mut third);
    for data in [note(1), note(2), result("1")] {
        message(&mut third, &data);
    }
    third.ended();
    assert!(backend.is_silent());
}

/// After the end of a stream the same connection, too, gets it again: what was acknowledged may have been lost behind it.
#[test]
fn after_the_end_of_a_stream() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut client = proxy.connect();
    for turn in 0..3 {
        session.send_on(&mut client, "POST", &[], &call("1"));
        if turn == 0 {
            let mut exchange = backend.next().stream();
            exchange.event(&result("1"));
            exchange.finish();
            assert_eq!(verdict(&client.head()), "live");
        } else {
            assert_eq!(verdict(&client.head()), "resumed 0 1");
        }
        primed(&mut client);
        assert!(message(&mut client, &result("1")).id().ends_with('~'));
        client.ended();
    }
    assert!(backend.is_silent());
}

/// A window that let go of the beginning ends nothing: what is held is had, with that word, and the response.
#[test]
fn of_a_stream_longer_than_its_window() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=8"]);
    let session = Session::open(&proxy, &backend);
    let mut first = session.post(&call("1"));
    let mut exchange = backend.next().stream();
    first.head();
    primed(&mut first);
    for n in 1..=40 {
        exchange.event(&note(n));
        message(&mut first, &note(n));
    }
    let mut second = session.post(&call("1"));
    assert_eq!(verdict(&second.head()), "reset window_exceeded");
    first.ended();
    primed(&mut second);
    exchange.event(&result("1"));
    exchange.finish();
    while let Some(event) = second.try_event().expect("an orderly end") {
        if event.id().ends_with('~') {
            assert_eq!(event.data(), result("1"));
        }
    }
    assert!(backend.is_silent());
}

/// A long stream that its client has acknowledged is let go at once; a repeat is told so, and causes no second run.
#[test]
fn of_a_long_stream_that_was_acknowledged() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut client = proxy.connect();
    session.send_on(&mut client, "POST", &[], &call("1"));
    let mut exchange = backend.next().stream();
    client.head();
    primed(&mut client);
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#, "x".repeat(100_000));
    exchange.event(&long);
    exchange.finish();
    assert_eq!(client.event().data(), long);
    client.ended();
    session.send_on(&mut client, "POST", &[], &call("2"));
    backend.next().json(&result("2"));
    assert_eq!(client.whole().body, result("2"));
    session.logged(&proxy, "stream was let go");
    let error = failed(&session.post(&call("1")).whole().body, "1");
    assert_eq!(error, ("evicted".into(), "unknown".into()));
    assert!(backend.is_silent());
}

/// A stream that nobody came back for in time is not run again for the next one who comes.
#[test]
fn of_an_answer_that_was_given_up() {
    let backend = Backend::start();
    let settings = [
        "upstream.stream.detached_max=500ms",
        "upstream.stream.replay_age_max=1s",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let mut first = session.post(&call("1"));
    let _exchange = backend.next().stream();
    first.head();
    first.cut();
    let cancel = backend.next_of("POST");
    assert!(cancel.body.contains("notifications/cancelled"));
    cancel.answer(202, &[], "");
    session.logged(&proxy, "stream was let go");
    let error = failed(&session.post(&call("1")).whole().body, "1");
    assert_eq!(error, ("evicted".into(), "unknown".into()));
    assert!(backend.is_silent());
}

/// Beyond the time of a repeat the same bytes are a new request: a client that began its ids again.
#[test]
fn much_later() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, standing) = session.listening(&backend);
    backend.park(standing);
    for answer in ["json", "stream"] {
        let mut client = session.post(&call(&format!("\"{answer}\"")));
        answered(backend.next(), answer);
        client.whole();
    }
    // Eleven keep-alives of a second each.
    for _ in 0..11 {
        listener.comment();
    }
    for answer in ["json", "stream"] {
        let mut client = session.post(&call(&format!("\"{answer}\"")));
        answered(backend.next(), answer);
        client.whole();
    }
}

fn answered(exchange: Exchange, how: &str) {
    let result = result(&format!("\"{how}\""));
    match how {
        "json" => exchange.json(&result),
        _ => {
            let mut exchange = exchange.stream();
            exchange.event(&result);
            exchange.finish();
        }
    }
}

/// A cancelled call that comes again a moment later gets the word that it was cancelled.
#[test]
fn of_a_call_that_was_cancelled() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let mut first = session.post(&call("1"));
    let _exchange = backend.next().stream();
    first.head();
    primed(&mut first);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let mut cancelling = session.post(cancel);
    backend.next().answer(202, &[], "");
    assert_eq!(cancelling.whole().head.status(), 202);
    assert_eq!(failed(first.event().data(), "1").0, "cancelled");
    first.ended();
    let mut second = session.post(&call("1"));
    second.head();
    primed(&mut second);
    assert_eq!(failed(second.event().data(), "1").0, "cancelled");
    second.ended();
    assert!(backend.is_silent());
}

/// A call that is refused since its session was lost: whoever sent it is told so, in the same words, and it is run for
/// none. Sent once more, it is a new call.
#[test]
fn of_a_call_that_is_refused() {
    let (backend, proxy) = pair();
    let session = Session::open(&proxy, &backend);
    let (mut first, exchange, mut second) = twice(&session, &backend, &proxy);
    gone(exchange);
    begun_anew(&backend, "second");
    refused(&mut first, "1");
    refused(&mut second, "1");
    assert!(backend.is_silent(), "it was run for nobody");
    let mut third = session.post(&call("1"));
    backend.next_of("POST").json(&result("1"));
    assert_eq!(third.whole().body, result("1"));
    assert!(backend.is_silent());
}

//! Backends that end the stream of an unfinished answer and want to be asked again (wire contract, section 7).
//! Law: what comes then goes on in the same epoch; what does not come is an error with an unknown outcome, in bounds.
//! Next: `restarts.rs`.

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{
    OLDER, PRIMING, Session, epoch, epoch_of, failed, message, note, primed, result, verdict,
};

/// A priming event of the backend's own.
fn backend_primes(exchange: &mut Exchange, id: &str, retry: u32) {
    exchange.chunk(&format!("id: {id}\nretry: {retry}\ndata: \n\n"));
}

fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

/// Reads the end of a connection whose client is to come back after so many milliseconds.
fn sent_to_poll(client: &mut Client, retry: &str) {
    let last = client.event();
    assert_eq!((last.retry.as_deref(), last.data), (Some(retry), None));
    client.ended();
}

/// The proxy asks the backend again, with the backend's own cursor and session, and answers with a stream.
fn asked_again(backend: &Backend, cursor: &str) -> Exchange {
    let exchange = backend.next_of("GET");
    assert_eq!(exchange.head.get("last-event-id"), Some(cursor));
    assert_eq!(exchange.head.get("mcp-session-id"), Some("backend-session"));
    assert_eq!(exchange.head.get("mcp-protocol-version"), Some(PRIMING));
    exchange.stream()
}

/// `polling = "pass"`: the client's connection ends likewise, with the backend's `retry`; its resume makes the proxy ask.
#[test]
fn a_client_polls_and_its_answer_goes_on_in_the_same_epoch() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    backend_primes(&mut exchange, "up-0", 40);
    exchange.chunk(&event("up-1", &note(1)));
    exchange.finish();
    let mut cursor = message(&mut client, &note(1)).id().to_owned();
    sent_to_poll(&mut client, "40");
    let first = epoch_of(&cursor).to_owned();
    for n in 2..4 {
        let mut client = session.resume(&cursor);
        let head = client.head();
        assert_eq!(verdict(&head), format!("resumed {} 0", n - 1));
        assert_eq!(epoch(&head), first);
        primed(&mut client);
        let mut exchange = asked_again(&backend, &format!("up-{}", n - 1));
        exchange.chunk(&event(&format!("up-{n}"), &note(n)));
        exchange.finish();
        cursor = message(&mut client, &note(n)).id().to_owned();
        assert_eq!(epoch_of(&cursor), first);
        sent_to_poll(&mut client, "40");
    }
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "resumed 3 0");
    primed(&mut client);
    let mut exchange = asked_again(&backend, "up-3");
    // What answers nothing here is dropped on a connection that was asked for.
    exchange.chunk(&event("up-4", &result("77")));
    exchange.chunk(&event("up-5", &result("1")));
    let last = message(&mut client, &result("1"));
    assert_eq!((epoch_of(last.id()), last.id().ends_with('~')), (&*first, true));
    client.ended();
    assert!(backend.is_silent());
}

/// Asking from the priming event is a poll, not a gap: nothing was said yet, and the client comes back with its own.
#[test]
fn an_answer_is_polled_from_its_priming_event() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&crate::session::call("1"));
    let mut exchange = backend.next_of("POST").stream();
    assert_eq!(verdict(&client.head()), "live");
    let prime = primed(&mut client).id().to_owned();
    backend_primes(&mut exchange, "up-0", 2_000);
    exchange.finish();
    sent_to_poll(&mut client, "2000");
    let mut client = session.resume(&prime);
    assert_eq!(verdict(&client.head()), "resumed 0 0");
    primed(&mut client);
    asked_again(&backend, "up-0").event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
}

/// `polling = "hold"`: the client notices nothing; the proxy asks after the backend's `retry`.
#[test]
fn a_client_is_held_while_the_proxy_polls() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.polling=hold"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    backend_primes(&mut exchange, "up-0", 20);
    exchange.finish();
    let mut exchange = asked_again(&backend, "up-0");
    exchange.chunk(&event("up-1", &note(1)));
    exchange.finish();
    message(&mut client, &note(1));
    // Somebody else's turn: refused for now, asked again.
    backend.next_of("GET").answer(409, &[], "");
    let mut exchange = asked_again(&backend, "up-1");
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
}

/// A poll that brings nothing twice is given up; one that brings a new cursor is not nothing.
#[test]
fn a_poll_that_brings_nothing_twice_is_given_up() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.polling=hold"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    backend_primes(&mut exchange, "up-0", 1);
    exchange.finish();
    for n in 0..4 {
        let mut exchange = asked_again(&backend, &format!("up-{n}"));
        exchange.chunk(&format!("id: up-{}\ndata: \n\n", n + 1));
        exchange.finish();
    }
    // The same priming id again is nothing.
    let mut exchange = asked_again(&backend, "up-4");
    exchange.chunk("id: up-4\ndata: \n\n");
    exchange.finish();
    asked_again(&backend, "up-4").finish();
    let error = client.event();
    assert_eq!(
        failed(error.data(), "1"),
        ("upstream_gap".into(), "unknown".into())
    );
    assert!(error.id().ends_with('~'));
    client.ended();
    assert!(backend.is_silent());
}

/// A backend that refuses to be asked, or is silent, is given up after `reattach_max`; 405 at once.
#[test]
fn a_poll_is_bounded_in_time() {
    let backend = Backend::start();
    let settings = ["upstream.stream.polling=hold", "upstream.stream.reattach_max=1s"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    for how in ["refused", "silent", "never answered", "405"] {
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        backend_primes(&mut exchange, "up-0", 100);
        exchange.finish();
        match how {
            "405" => backend.next_of("GET").answer(405, &[], ""),
            "silent" => backend.park(asked_again(&backend, "up-0")),
            "never answered" => backend.park(backend.next_of("GET")),
            _ => backend.next_of("GET").answer(500, &[], ""),
        }
        // However often it is refused.
        let answer = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| client.event());
            while !waiting.is_finished() {
                if let Some(again) = backend.try_next() {
                    again.answer(500, &[], "");
                }
            }
            waiting.join().expect("an event")
        });
        assert_eq!(
            failed(answer.data(), "1"),
            ("upstream_gap".into(), "unknown".into()),
            "{how}"
        );
        client.ended();
    }
    session.is_alive(&backend);
}

/// Sessions before 2025-11-25 know no polling: there an early end is a loss, and is said.
#[test]
fn older_sessions_are_not_polled() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open_at(&proxy, &backend, OLDER, "Go-http-client/1.1");
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.chunk(&event("up-1", &note(1)));
    exchange.finish();
    message(&mut client, &note(1));
    assert_eq!(failed(client.event().data(), "1").0, "backend_lost");
    client.ended();
    assert!(backend.is_silent());
}

/// A server that is stopped ends its streams in order too. It never said when to come back: its answer is lost.
#[test]
fn an_orderly_end_without_a_time_is_no_poll() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.chunk("id: up-0\ndata: \n\n");
    exchange.chunk(&event("up-1", &note(1)));
    exchange.finish();
    message(&mut client, &note(1));
    assert_eq!(
        failed(client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
    assert!(backend.is_silent());
}

/// A client that does not come back to poll: what runs is cancelled, and its cursor is told why.
#[test]
fn a_client_that_does_not_come_back_to_poll() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.detached_max=200ms"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    backend_primes(&mut exchange, "up-0", 1_000);
    exchange.chunk(&event("up-1", &note(1)));
    exchange.finish();
    let cursor = message(&mut client, &note(1)).id().to_owned();
    sent_to_poll(&mut client, "1000");
    let cancel = backend.next_of("POST");
    assert!(cancel.body.contains("notifications/cancelled"), "{}", cancel.body);
    cancel.answer(202, &[], "");
    session.logged(&proxy, "stream was let go");
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "reset evicted");
}

/// A session that its backend has forgotten meanwhile is gone, whoever asks.
#[test]
fn a_poll_that_meets_a_lost_session() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.polling=hold"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    backend_primes(&mut exchange, "up-0", 1);
    exchange.finish();
    backend.next_of("GET").answer(404, &[], "");
    assert_eq!(
        failed(client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
}

//! A proxy that starts anew with the same secret: sessions live on, and nobody is told that nothing was missed
//! (wire contract, sections 2, 4 and 5).
//! Next: `clocks.rs`.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{
    Session, epoch, epoch_of, failed, message, note, primed, result, resync, says_gone, verdict,
};

/// The session goes on: its token says which replica, and under which id it is known there (S1, S3).
#[test]
fn a_session_outlives_the_proxy() {
    let (one, two) = (Backend::start(), Backend::start());
    let urls = [one.url(), two.url()];
    let proxy = Proxy::start(&[&urls[0]], &[]);
    let session = Session::open(&proxy, &one);
    session.is_alive(&one);
    proxy.kill();
    // Order means nothing, more replicas neither.
    let proxy = Proxy::start(&[&urls[1], &urls[0]], &[]);
    for _ in 0..3 {
        session.on(&proxy).is_alive(&one);
    }
    assert!(two.is_silent());
    proxy.kill();
    // A replica that is not configured any more is a session lost.
    let proxy = Proxy::start(&[&urls[1]], &[]);
    session.on(&proxy).is_gone();
    assert!(two.is_silent());
}

/// A stateless backend's sessions live on any replica.
#[test]
fn a_session_without_a_replica_outlives_its_replica() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url()], &[]);
    let session = Session::open_with(&proxy, &one, (crate::session::PRIMING, "t"), &[]);
    proxy.kill();
    let proxy = Proxy::start(&[&two.url()], &[]);
    session.on(&proxy).is_alive(&two);
}

/// C1, S9: the answer's log is gone: an error for the id in the cursor, and never a second run.
#[test]
fn an_answer_that_was_lost_with_the_proxy() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "\"call-1\"");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    proxy.kill();
    let mut asked = cursor.clone();
    let mut end = String::new();
    for _ in 0..3 {
        // A new proxy each time: the answer is derived from the cursor alone.
        let proxy = Proxy::start(&[&backend.url()], &[]);
        let mut client = session.on(&proxy).resume(&asked);
        backend.accepts();
        let head = client.head();
        assert_eq!(verdict(&head), "reset epoch_changed");
        let prime = primed(&mut client);
        assert_ne!(prime.id(), asked, "a fresh id");
        let error = client.event();
        assert_eq!(
            failed(error.data(), "\"call-1\""),
            ("epoch_changed".into(), "unknown".into())
        );
        assert!(error.id().ends_with('~'));
        assert!(end.is_empty() || end == error.id(), "the same answer");
        end = error.id().to_owned();
        client.ended();
        asked = prime.id().to_owned();
    }
    assert!(
        backend.is_silent(),
        "nothing was sent again, and nothing else asked"
    );
}

/// Clients that come back all at once with a cursor of the old life: each is told the reset; none that its session is gone.
#[test]
fn a_crowd_that_comes_back_after_a_restart() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = session.on(&proxy);
    let (_client, _standing) = {
        let client = session.resume(&cursor);
        backend.accepts();
        (client, backend.next_of("GET").stream())
    };
    let mut crowd: Vec<_> = (0..32).map(|_| session.resume(&cursor)).collect();
    for client in &mut crowd {
        assert_eq!(verdict(&client.head()), "reset epoch_changed");
    }
    session.is_alive(&backend);
}

/// The standalone stream begins a new epoch; a cursor of the old one is told so.
#[test]
fn a_listener_whose_log_was_lost_with_the_proxy() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = session.on(&proxy);
    let mut client = session.resume(&cursor);
    backend.accepts();
    let mut standing = backend.next_of("GET").stream();
    let head = client.head();
    assert_eq!(verdict(&head), "reset epoch_changed");
    let prime = primed(&mut client);
    assert_eq!(epoch_of(prime.id()), epoch(&head));
    assert_ne!(epoch_of(prime.id()), epoch_of(&cursor));
    // What the backend declared is in the token.
    let last = resync(&mut client, "epoch_changed");
    standing.event(&note(2));
    message(&mut client, &note(2));
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&last);
    assert!(verdict(&client.head()).starts_with("resumed "));
    primed(&mut client);
    message(&mut client, &note(2));
}

/// Without a cursor: a proxy that does not remember can't say that nothing was written. A reset, not `live`.
#[test]
fn a_listener_without_a_cursor_after_a_restart() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let mut client = session.on(&proxy).get();
    backend.accepts();
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    primed(&mut client);
    resync(&mut client, "cursor_unknown");
    standing.event(&note(1));
    message(&mut client, &note(1));
}

/// A call begun before goes on being answered by the backend to nobody; a new one is a new one.
#[test]
fn calls_after_a_restart() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (_client, mut exchange) = session.streaming_call(&backend, "1");
    proxy.kill();
    // The backend finds its connection closed.
    exchange.wait_closed();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = session.on(&proxy);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&result("1"));
    assert!(message(&mut client, &result("1")).id().ends_with('~'));
    client.ended();
}

/// A backend that lost the session while the proxy was away says so, and the client hears 404.
#[test]
fn a_session_that_its_backend_forgot() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = session.on(&proxy);
    let mut client = session.post(&crate::session::call("1"));
    backend.next().answer(404, &[], "");
    says_gone(&client.whole());
    session.is_gone();
    assert!(backend.is_silent());
}

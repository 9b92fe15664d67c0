//! Proxies beside each other, with one secret and nothing else in common: nobody is told that nothing was written who can't
//! be told so (wire contract, sections 4 and 5).
//! Law: `live` is said by a proxy that knows; one that does not know says a reset.
//! Next: `reload.rs`.

use std::time::Instant;

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::peer::DEADLINE;
use crate::proxy::Proxy;
use crate::session::{Session, message, note, primed, resync, verdict};
use crate::status::{OPERATOR, ask, status};

const POSSIBLE: &str = "server.peers=possible";

/// The session's client listens at this proxy, which did not open the session, and is given a message there.
fn hears_at(proxy: &Proxy, backend: &Backend, session: &Session) -> Exchange {
    let mut client = session.on(proxy).get();
    backend.accepts();
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    primed(&mut client);
    resync(&mut client, "cursor_unknown");
    standing.event(&note(1));
    message(&mut client, &note(1));
    standing
}

/// The session's client listens at the proxy that opened the session: what it is told.
fn told_at_home(backend: &Backend, session: &Session) -> (String, Client, Exchange) {
    let mut client = session.get();
    let standing = backend.next_of("GET").stream();
    let told = verdict(&client.head());
    primed(&mut client);
    (told, client, standing)
}

/// What another proxy wrote on a session's stream the one that opened the session can't know: it does not claim to.
#[test]
fn what_another_proxy_wrote_is_not_denied() {
    let check = |settings: &[&str], expected: &str| {
        let backend = Backend::start();
        let home = Proxy::start(&[&backend.url()], settings);
        let other = Proxy::start(&[&backend.url()], settings);
        let session = Session::open(&home, &backend);
        let _elsewhere = hears_at(&other, &backend, &session);
        let (told, mut client, mut standing) = told_at_home(&backend, &session);
        assert_eq!(told, expected, "{settings:?}");
        if told != "live" {
            let last = resync(&mut client, "cursor_unknown");
            standing.event(&note(2));
            message(&mut client, &note(2));
            // From here on continuity is known, and proved.
            client.cut();
            session.client_left(&home);
            let mut client = session.resume(&last);
            assert!(verdict(&client.head()).starts_with("resumed "));
            primed(&mut client);
            message(&mut client, &note(2));
        }
    };
    check(&[POSSIBLE], "reset cursor_unknown");
    // The limit that the README names, where nobody says that there are two.
    check(&["server.peers=none"], "live");
}

/// Events that nobody was given yet come behind the reset.
#[test]
fn what_is_held_for_the_first_listener_is_not_lost_by_the_doubt() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[POSSIBLE]);
    let early = note(7);
    let mut client = proxy.connect();
    client.send("POST", &[], &crate::session::initialize("2025-11-25"));
    let mut opening = backend.next_of("POST");
    opening.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nmcp-session-id: b\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    opening
        .event(&early)
        .event(&crate::session::initialized("2025-11-25"));
    opening.finish();
    let whole = client.whole();
    let token = whole.head.get("mcp-session-id").expect("a session");
    client.send("GET", &[("mcp-session-id", token)], "");
    let _standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    primed(&mut client);
    resync(&mut client, "cursor_unknown");
    message(&mut client, &early);
}

/// A proxy that is told that it is alone, and meets a session that another one began beside it, knows better from then on.
#[test]
fn a_peer_that_is_seen_outweighs_what_is_said() {
    let backend = Backend::start();
    let settings = [OPERATOR];
    let (one, other) = (
        Proxy::start(&[&backend.url()], &settings),
        Proxy::start(&[&backend.url()], &settings),
    );
    let operator = one.operator();
    let before = Session::open(&one, &backend);
    assert_eq!(status(operator)["peers"], "none");
    // A token says its second: until the next one has begun, the other one may be a predecessor.
    let until = Instant::now() + DEADLINE;
    while status(operator)["peers"] == "none" {
        assert!(Instant::now() < until, "a peer is seen");
        Session::open(&other, &backend).on(&one).is_alive(&backend);
    }
    let said = one.logged_with("key", "server.peers");
    assert_eq!(said["level"], "WARN");
    assert_eq!(status(operator)["peers"], "seen");
    assert!(
        ask(operator, "GET", "/status")
            .body
            .contains("set server.peers to \"possible\"")
    );
    // It is said once.
    Session::open(&other, &backend).on(&one).is_alive(&backend);
    let after = Session::open(&one, &backend);
    assert!(!one.has_logged(said["message"].as_str().expect("a message")));
    for session in [before, after] {
        assert_eq!(told_at_home(&backend, &session).0, "reset cursor_unknown");
    }
}

/// A proxy of before is no peer: its sessions are taken up, and new ones are told the truth as before.
#[test]
fn a_predecessor_is_no_peer() {
    let backend = Backend::start();
    let before = Proxy::start(&[&backend.url()], &[OPERATOR]);
    let old = Session::open(&before, &backend);
    before.kill();
    let proxy = Proxy::start(&[&backend.url()], &[OPERATOR]);
    let operator = proxy.operator();
    old.on(&proxy).is_alive(&backend);
    assert_eq!(status(operator)["peers"], "none");
    let session = Session::open(&proxy, &backend);
    assert_eq!(told_at_home(&backend, &session).0, "live");
}

/// A proxy that drains may have a successor already, where the client was meanwhile.
#[test]
fn a_proxy_that_drains_is_not_alone() {
    let backend = Backend::start();
    let old = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&old, &backend);
    // It keeps the drain from ending.
    let (_client, _exchange) = session.streaming_call(&backend, "1");
    let next = Proxy::start(&[&backend.url()], &[]);
    let _elsewhere = hears_at(&next, &backend, &session);
    let (mut listener, _standing) = Session::open(&old, &backend).listening(&backend);
    old.terminate();
    // Whoever listens is sent away once the drain has begun.
    assert!(listener.event().retry.is_some());
    let mut client = session.get();
    let _standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    assert!(client.event().retry.is_some(), "it is sent away");
    client.ended();
}

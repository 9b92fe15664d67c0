//! The standalone stream: first GET, resume, reset, succession, and the backend's side of it
//! (wire contract, sections 5, 6 and 7).
//! Next: `restarts.rs`.

use crate::backend::Backend;
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{
    OLDER, Session, at_position, call, epoch, epoch_of, json, message, note, position, primed, result,
    resync, verdict,
};

/// Exactly what was missed, then live (C9); the upstream GET stands meanwhile and is the only one (S5).
#[test]
fn a_cut_listener_is_resumed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let mut n = 0;
    let mut had = 0;
    let mut cursor = String::new();
    for missed in 0..4 {
        standing.event(&note(n));
        cursor = message(&mut client, &note(n)).id().to_owned();
        n += 1;
        had += 1;
        client.cut();
        session.client_left(&proxy);
        for _ in 0..missed {
            standing.event(&note(n));
            n += 1;
        }
        client = session.resume(&cursor);
        let head = client.head();
        assert!(
            verdict(&head).starts_with(&format!("resumed {had} ")),
            "{}",
            verdict(&head)
        );
        assert_eq!(epoch(&head), epoch_of(&cursor));
        primed(&mut client);
        for at in n - missed..n {
            message(&mut client, &note(at));
            had += 1;
        }
    }
    assert_eq!(epoch_of(&cursor).len(), 11);
    assert!(
        backend.is_silent(),
        "S5: there is one upstream GET, and it stands"
    );
}

/// A window that is too small is said, and everything after it is live (C4, C10).
#[test]
fn a_listener_that_missed_too_much() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(0));
    let cursor = message(&mut client, &note(0)).id().to_owned();
    for n in 1..=40 {
        standing.event(&note(n));
        message(&mut client, &note(n));
    }
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&cursor);
    let head = client.head();
    assert_eq!(verdict(&head), "reset window_exceeded");
    let prime = primed(&mut client);
    assert_eq!(
        (epoch_of(prime.id()), position(prime.id()).0),
        (&*epoch(&head), 0)
    );
    assert_ne!(
        epoch_of(prime.id()),
        epoch_of(&cursor),
        "a reset begins a new epoch"
    );
    let last = resync(&mut client, "window_exceeded");
    standing.event(&note(50));
    message(&mut client, &note(50));
    // From the reset on continuity holds again.
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&last);
    assert!(verdict(&client.head()).starts_with("resumed "));
    primed(&mut client);
    message(&mut client, &note(50));
}

/// What a reset tells of: subscriptions, the client's log level; to Java no `event: reset` (section 6).
#[test]
fn what_a_reset_tells() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for (agent, revision) in [("node", OLDER), ("Java-http-client/21", OLDER)] {
        let session = Session::open_at(&proxy, &backend, revision, agent);
        for request in [
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#,
            r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}}"#,
            r#"{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"file:///b"}}"#,
            r#"{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"file:///a"}}"#,
        ] {
            let mut client = session.post(request);
            backend
                .next_of("POST")
                .json(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
            assert_eq!(client.whole().head.status(), 200);
        }
        let mut client = session.get();
        let mut standing = backend.next_of("GET").stream();
        client.head();
        // A request of the server's that dies with the epoch is withdrawn.
        let request = r#"{"jsonrpc":"2.0","id":"s1","method":"roots/list"}"#;
        standing.event(request);
        while client.event().data() != request {}
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume("gone");
        assert_eq!(verdict(&client.head()), "reset cursor_unknown");
        if agent == "node" {
            assert_eq!(client.event().event.as_deref(), Some("ping"));
            assert_eq!(client.event().event.as_deref(), Some("reset"));
        }
        let withdrawn = client.event();
        assert_eq!(json(&withdrawn)["method"], "notifications/cancelled");
        assert_eq!(json(&withdrawn)["params"]["requestId"], "s1");
        let told = backend.next_of("POST");
        assert!(told.body.contains(r#""id":"s1","error""#), "{}", told.body);
        told.answer(202, &[], "");
        let warning = client.event();
        assert_eq!(
            json(&warning)["params"]["level"],
            "error",
            "max(warning, the client's level)"
        );
        for list in ["tools", "prompts", "resources"] {
            message(
                &mut client,
                &format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#),
            );
        }
        let updated = client.event();
        assert_eq!(json(&updated)["method"], "notifications/resources/updated");
        assert_eq!(json(&updated)["params"]["uri"], "file:///b");
        standing.event(&note(1));
        message(&mut client, &note(1));
        backend.park(standing);
    }
}

/// A server that declares nothing: the header and the `reset` event say it, and nothing else.
#[test]
fn a_reset_for_a_server_that_declares_nothing() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let mut client = proxy.connect();
    client.send("POST", &[], &crate::session::initialize("2025-11-25"));
    let bare = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"b","version":"1"}}}"#;
    backend.next().answer(
        200,
        &[("content-type", "application/json"), ("mcp-session-id", "b")],
        bare,
    );
    let token = client
        .whole()
        .head
        .get("mcp-session-id")
        .expect("a session")
        .to_owned();
    let mut client = proxy.connect();
    client.send(
        "GET",
        &[("mcp-session-id", &token), ("last-event-id", "gone")],
        "",
    );
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    primed(&mut client);
    assert_eq!(client.event().event.as_deref(), Some("reset"));
    standing.event(&note(1));
    message(&mut client, &note(1));
}

/// Without a cursor: `live` while nothing was ever written, and what came meanwhile is there.
#[test]
fn without_a_cursor_before_anything_was_written() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (client, mut standing) = session.listening(&backend);
    client.cut();
    session.client_left(&proxy);
    standing.event(&note(1));
    let mut client = session.get();
    assert_eq!(verdict(&client.head()), "live");
    primed(&mut client);
    message(&mut client, &note(1));
    // An empty cursor is none.
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume("");
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
}

/// Without a cursor after something was written: written is not received. What was never acknowledged comes again.
#[test]
fn without_a_cursor_after_something_was_written() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    let old = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(&proxy);
    for n in 2..=3 {
        standing.event(&note(n));
    }
    session.is_alive(&backend);
    let mut client = session.get();
    let head = client.head();
    assert_eq!(verdict(&head), "reset cursor_unknown");
    let prime = primed(&mut client);
    assert_eq!(epoch_of(prime.id()), epoch(&head));
    assert_ne!(epoch(&head), epoch_of(&old));
    resync(&mut client, "cursor_unknown");
    // The first one's acknowledgement may have been lost with its connection: it may come again, in order.
    let first = client.event();
    if first.data() == note(1) {
        message(&mut client, &note(2));
    } else {
        assert_eq!(first.data(), note(2));
    }
    message(&mut client, &note(3));
    standing.event(&note(4));
    message(&mut client, &note(4));
}

/// A second GET without a cursor while the first is alive: the second receives, the first is held on comments.
#[test]
fn a_second_listener_while_the_first_is_alive() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut first, mut standing) = session.listening(&backend);
    let mut second = session.get();
    assert_eq!(verdict(&second.head()), "live");
    primed(&mut second);
    standing.event(&note(1));
    message(&mut second, &note(1));
    first.comment();
    // After something was written, the same with a reset.
    let mut third = session.get();
    assert_eq!(verdict(&third.head()), "reset cursor_unknown");
    primed(&mut third);
    resync(&mut third, "cursor_unknown");
    standing.event(&note(2));
    while third.event().data() != note(2) {}
    first.comment();
    // The end of the session ends all of them in an orderly way.
    let mut delete = session.delete();
    backend.next_of("DELETE").answer(200, &[], "");
    assert_eq!(delete.whole().head.status(), 200);
    third.ended();
    first.ended();
}

/// A resume takes the stream from whoever holds it: the old connection gets no further frame and a clean end.
#[test]
fn a_resume_takes_the_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut first, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    let cursor = message(&mut first, &note(1)).id().to_owned();
    let mut second = session.resume(&cursor);
    assert_eq!(verdict(&second.head()), "resumed 1 0");
    primed(&mut second);
    standing.event(&note(2));
    message(&mut second, &note(2));
    first.ended();
}

/// A cursor that proves nothing supersedes nothing: a private stream on comments.
#[test]
fn a_useless_cursor_beside_a_live_listener() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    let mut stray = session.resume("0/17");
    assert_eq!(verdict(&stray.head()), "reset cursor_unknown");
    let private = primed(&mut stray).id().to_owned();
    standing.event(&note(1));
    message(&mut listener, &note(1));
    stray.comment();
    // Its own id is of an epoch that nobody knows.
    stray.cut();
    let mut back = session.resume(&private);
    assert_eq!(verdict(&back.head()), "reset epoch_changed");
    primed(&mut back);
    listener.ended();
}

/// S6: a backend without a standalone stream says 405, and its POST streams are resumable all the same.
#[test]
fn a_backend_without_a_standalone_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for _ in 0..2 {
        let mut client = session.get();
        backend.next_of("GET").answer(405, &[("allow", "POST")], "");
        assert_eq!(client.whole().head.status(), 405);
    }
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(&proxy);
    exchange.event(&result("1"));
    let mut client = session.resume(&cursor);
    verdict(&client.head());
    primed(&mut client);
    message(&mut client, &result("1"));
    client.ended();
}

/// Clients that ask at the same time, before the backend's head is there, are all answered: with its 405, or its stream.
#[test]
fn several_first_listeners_at_a_time() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    for offered in [false, true, false, true, false, true] {
        let session = Session::open(&proxy, &backend);
        let mut clients: Vec<Client> = (0..3).map(|_| session.get()).collect();
        let exchange = backend.next_of("GET");
        // All three wait for the same head: a call that was sent after them has passed by.
        session.is_alive(&backend);
        session.is_alive(&backend);
        assert!(backend.is_silent(), "one upstream GET for all of them");
        if offered {
            let mut standing = exchange.stream();
            standing.event(&note(1));
            let mut receivers = 0;
            for client in &mut clients {
                assert_eq!(verdict(&client.head()), "live");
                let first = client.event();
                if first.is_prime() {
                    // The newest; one that it took the place of is held on comments.
                    if client.message_before_comment() {
                        receivers += 1;
                    }
                } else {
                    assert!(
                        first.retry.is_some() && first.data.is_none(),
                        "told to come back: {first:?}"
                    );
                    client.ended();
                }
            }
            assert_eq!(receivers, 1, "what comes on the stream, one of them gets");
            backend.park(standing);
        } else {
            exchange.answer(405, &[], "");
            for client in &mut clients {
                assert_eq!(client.whole().head.status(), 405);
            }
        }
    }
}

/// A backend that is slow with its head: after two seconds the client is held on comments, whatever the backend says then.
#[test]
fn a_first_listener_is_held_after_two_seconds() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    for late in ["405", "stream"] {
        let session = Session::open(&proxy, &backend);
        let mut client = session.get();
        let exchange = backend.next_of("GET");
        // Nothing is answered: the head comes all the same.
        assert_eq!(verdict(&client.head()), "live");
        primed(&mut client);
        if late == "405" {
            exchange.answer(405, &[], "");
            client.comment();
            session.is_alive(&backend);
            client.comment();
        } else {
            let mut standing = exchange.stream();
            // What the backend sent before went nowhere, and nobody can say that it was nothing.
            resync(&mut client, "upstream_gap");
            standing.event(&note(1));
            message(&mut client, &note(1));
            backend.park(standing);
        }
    }
}

/// A client's own reset while the backend's stream is down does not hide what is missed until that stands again.
#[test]
fn a_reset_before_the_backends_stream_stands_again_is_not_the_last() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.event(&note(0));
    let cursor = message(&mut client, &note(0)).id().to_owned();
    for n in 1..=40 {
        standing.event(&note(n));
        message(&mut client, &note(n));
    }
    client.cut();
    session.client_left(&proxy);
    standing.cut();
    let again = backend.next_of("GET");
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    primed(&mut client);
    resync(&mut client, "window_exceeded");
    let mut standing = again.stream();
    resync(&mut client, "upstream_gap");
    standing.event(&note(50));
    message(&mut client, &note(50));
}

/// Once it was answered with 200, a client is never told 405: it is held on comments (a Go session would be dead).
#[test]
fn a_405_on_a_reconnect_is_not_passed_on() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, standing) = session.listening(&backend);
    standing.cut();
    backend.next_of("GET").answer(405, &[], "");
    // What it may have missed is told all the same.
    resync(&mut client, "upstream_gap");
    client.comment();
    let mut second = session.get();
    assert_eq!(second.head().status(), 200);
}

/// The backend's stream breaks: it is opened again without a cursor, in a new epoch, with a resync (S10).
#[test]
fn a_backend_that_drops_its_standalone_stream() {
    enum Client {
        Attached,
        Away,
    }
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for (end, who) in [
        ("cut", Client::Attached),
        ("finish", Client::Attached),
        ("cut", Client::Away),
    ] {
        let session = Session::open(&proxy, &backend);
        let (mut client, mut standing) = session.listening(&backend);
        standing.chunk(&format!("id: up-1\ndata: {}\n\n", note(1)));
        let old = message(&mut client, &note(1)).id().to_owned();
        let mut client = match who {
            Client::Attached => Some(client),
            Client::Away => {
                client.cut();
                session.client_left(&proxy);
                None
            }
        };
        match end {
            "cut" => standing.cut(),
            _ => standing.finish(),
        }
        let exchange = backend.next_of("GET");
        assert_eq!(exchange.head.get("last-event-id"), None, "without a cursor");
        assert_eq!(exchange.head.get("mcp-session-id"), Some("backend-session"));
        let mut standing = exchange.stream();
        let mut client = client.take().unwrap_or_else(|| {
            session.logged(&proxy, "epoch ended");
            let mut client = session.resume(&old);
            assert_eq!(verdict(&client.head()), "reset upstream_gap");
            primed(&mut client);
            client
        });
        let last = resync(&mut client, "upstream_gap");
        assert_ne!(epoch_of(&last), epoch_of(&old));
        standing.event(&note(2));
        let new = message(&mut client, &note(2)).id().to_owned();
        assert_eq!(epoch_of(&new), epoch_of(&last));
        // The new epoch is resumed like any; the old one is told its reason for as long as it is remembered.
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume(&new);
        assert!(verdict(&client.head()).starts_with("resumed "));
        client.cut();
        let mut client = session.resume(&old);
        assert_eq!(verdict(&client.head()), "reset upstream_gap");
        backend.park(standing);
    }
}

/// S5: refused because another GET seems to stand: the client is held, and the proxy tries again until it is let in.
#[test]
fn a_backend_that_refuses_a_second_get() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for status in [409, 400, 500, 503] {
        let session = Session::open(&proxy, &backend);
        let (mut client, standing) = session.listening(&backend);
        standing.cut();
        for _ in 0..2 {
            backend
                .next_of("GET")
                .answer(status, &[], "Only one stream is allowed");
        }
        let mut standing = backend.next_of("GET").stream();
        resync(&mut client, "upstream_gap");
        standing.event(&note(1));
        message(&mut client, &note(1));
        backend.park(standing);
    }
}

/// C1: a numeric check would take 50 of the old life for a position in the new one.
#[test]
fn a_number_of_an_old_life_means_nothing_in_a_new_one() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let mut old = String::new();
    for n in 1..=50 {
        standing.event(&note(n));
        old = message(&mut client, &note(n)).id().to_owned();
    }
    standing.cut();
    let mut standing = backend.next_of("GET").stream();
    resync(&mut client, "upstream_gap");
    let mut new = String::new();
    for n in 1..=60 {
        standing.event(&note(n));
        new = message(&mut client, &note(n)).id().to_owned();
    }
    assert!(position(&new).0 > 60 && position(&old).0 == 50);
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&old);
    assert_eq!(verdict(&client.head()), "reset upstream_gap");
    primed(&mut client);
    resync(&mut client, "upstream_gap");
    // And a position of the new life with the old life's number is honoured only as long as that life lasts.
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(&at_position(&new, "50"));
    assert_eq!(verdict(&client.head()), "reset upstream_gap");
}

/// A listener and calls don't mix: what a call's stream carries is on no other.
#[test]
fn streams_do_not_mix() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    for n in 1..=5 {
        exchange.event(&note(n));
        standing.event(&note(100 + n));
        message(&mut client, &note(n));
        message(&mut listener, &note(100 + n));
    }
    let mut whole = session.post(&call("2"));
    backend.next_of("POST").json(&result("2"));
    assert_eq!(whole.whole().body, result("2"));
}

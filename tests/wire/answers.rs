//! The answer to a POST as a stream that can be resumed (wire contract, section 5, and what section 6 says of it).
//! Law: each request gets exactly one outcome, and what was sent can be had again or is said to be gone.
//! Next: `listening.rs`.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{
    Session, at_position, call, epoch, failed, message, note, position, primed, result, verdict,
};

/// Exactly the events after the cursor, then live, then the end (C9, I5).
#[test]
fn a_cut_answer_is_resumed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for had in 0..=3_u32 {
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        let mut cursor = None;
        for n in 1..=3 {
            exchange.event(&note(n));
            let event = message(&mut client, &note(n));
            if n <= had {
                cursor = Some(event.id().to_owned());
            } else if cursor.is_none() {
                cursor = Some(at_position(event.id(), "0-a"));
            }
        }
        client.cut();
        session.client_left(&proxy);
        // What the backend says while nobody listens is read on and kept (section 7).
        exchange.event(&note(4));
        let mut client = session.resume(&cursor.expect("a cursor"));
        let head = client.head();
        let replayed: u32 = verdict(&head)
            .rsplit(' ')
            .next()
            .expect("a number")
            .parse()
            .expect("a number");
        assert!(
            verdict(&head).starts_with(&format!("resumed {had} ")),
            "{}",
            verdict(&head)
        );
        assert!((3 - had..=4 - had).contains(&replayed), "{}", verdict(&head));
        assert!(
            head.get("throughline-continuity")
                .is_some_and(|text| text.ends_with("window=1024"))
        );
        let prime = primed(&mut client);
        assert_eq!(position(prime.id()), (u64::from(had), false));
        for n in had + 1..=4 {
            message(&mut client, &note(n));
        }
        exchange.event(&note(5));
        message(&mut client, &note(5));
        exchange.event(&result("1"));
        let last = message(&mut client, &result("1"));
        assert_eq!(position(last.id()), (6, true));
        client.ended();
        exchange.finish();
    }
}

/// The tail of an answer that has ended, then the end; at the end mark there is nothing: 405 (C3).
#[test]
fn a_finished_answer_is_had_until_its_end_mark() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(&proxy);
    exchange.event(&note(2)).event(&result("1"));
    exchange.finish();
    let mut end = String::new();
    for _ in 0..2 {
        let mut client = session.resume(&cursor);
        assert!(verdict(&client.head()).starts_with("resumed 1 "));
        primed(&mut client);
        message(&mut client, &note(2));
        end = message(&mut client, &result("1")).id().to_owned();
        assert!(end.ends_with('~'));
        client.ended();
    }
    for cursor in [&*end, end.trim_end_matches('~')] {
        let whole = session.resume(cursor).whole();
        assert_eq!(whole.head.status(), 405, "{cursor}: {whole:?}");
        assert!(whole.head.get("allow").is_some());
    }
    session.is_alive(&backend);
}

/// At an end mark there is nothing, with or without memory.
#[test]
fn an_end_mark_needs_no_memory() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&result("1"));
    let end = message(&mut client, &result("1")).id().to_owned();
    client.ended();
    exchange.finish();
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let mut client = session.on(&proxy).resume(&end);
    backend.accepts();
    assert_eq!(client.whole().head.status(), 405);
}

/// C10, C11: a window that is too small is said, with an error for the call; it is no 404 and no silence.
#[test]
fn a_cursor_before_the_window_of_a_running_call() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "\"x\"");
    exchange.event(&note(0));
    let cursor = message(&mut client, &note(0)).id().to_owned();
    for n in 1..=40 {
        exchange.event(&note(n));
        message(&mut client, &note(n));
    }
    client.cut();
    session.client_left(&proxy);
    let mut answers = Vec::new();
    let mut asked = cursor.clone();
    for _ in 0..3 {
        let mut client = session.resume(&asked);
        let head = client.head();
        assert_eq!(verdict(&head), "reset window_exceeded");
        let prime = primed(&mut client);
        assert_ne!(prime.id(), asked, "C3: a fresh id each time");
        let error = client.event();
        assert_eq!(
            failed(error.data(), "\"x\""),
            ("window_exceeded".into(), "unknown".into())
        );
        assert!(error.data().contains(&format!("\"epoch\":\"{}\"", epoch(&head))));
        assert!(error.id().ends_with('~'));
        client.ended();
        answers.push((error.id().to_owned(), error.data().to_owned()));
        // The same cursor, and the priming id of that reset, get the same answer again.
        asked = prime.id().to_owned();
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(session.resume(&answers[0].0).whole().head.status(), 405);
    // Exactly one outcome reaches the client: the late result is dropped.
    exchange.event(&result("\"x\""));
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    primed(&mut client);
    assert_eq!(client.event().data(), answers[0].1);
    client.ended();
}

/// If the response is still held, it is delivered, not an error, with `reset` in the header.
#[test]
fn a_cursor_before_the_window_of_a_finished_call() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(0));
    let cursor = message(&mut client, &note(0)).id().to_owned();
    for n in 1..=40 {
        exchange.event(&note(n));
        message(&mut client, &note(n));
    }
    client.cut();
    session.client_left(&proxy);
    exchange.event(&result("1"));
    exchange.finish();
    session.is_alive(&backend);
    for _ in 0..2 {
        let mut client = session.resume(&cursor);
        assert_eq!(verdict(&client.head()), "reset window_exceeded");
        primed(&mut client);
        let last = message(&mut client, &result("1"));
        assert!(last.id().ends_with('~'));
        client.ended();
    }
}

/// C6: a cursor past the end is refused aloud and harms nothing.
#[test]
fn a_cursor_from_the_future() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for seq in ["2", "1000", "9223372036854775807"] {
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        exchange.event(&note(1));
        let own = message(&mut client, &note(1)).id().to_owned();
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume(&at_position(&own, seq));
        assert_eq!(verdict(&client.head()), "reset cursor_future", "{seq}");
        primed(&mut client);
        assert_eq!(
            failed(client.event().data(), "1"),
            ("cursor_future".into(), "unknown".into())
        );
        client.ended();
        drop(exchange);
    }
    session.is_alive(&backend);
}

/// C7: nothing of another session, and no way to tell whether the cursor is anybody's. It supersedes nothing.
#[test]
fn a_stolen_cursor_brings_nothing() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let victim = Session::open(&proxy, &backend);
    let thief = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = victim.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    // With a live GET of the thief's own: a private stream on comments, which takes nothing from it.
    let (mut listener, mut standing) = thief.listening(&backend);
    let mut stolen = thief.resume(&cursor);
    assert_eq!(verdict(&stolen.head()), "reset cursor_foreign");
    primed(&mut stolen);
    standing.event(&note(5));
    message(&mut listener, &note(5));
    exchange.event(&note(2));
    message(&mut client, &note(2));
    stolen.comment();
    // Without one: the standalone stream with a reset, and still nothing of the victim's.
    listener.cut();
    thief.client_left(&proxy);
    let mut stolen = thief.resume(&cursor);
    assert_eq!(verdict(&stolen.head()), "reset cursor_foreign");
    primed(&mut stolen);
    crate::session::resync(&mut stolen, "cursor_foreign");
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    standing.event(&note(6));
    message(&mut stolen, &note(6));
}

/// I6: the usual state of SDK clients: a GET stands, and a POST stream is resumed beside it.
#[test]
fn an_answer_is_resumed_beside_a_standing_get() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(&proxy);
    exchange.event(&note(2));
    standing.event(&note(100));
    let mut client = session.resume(&cursor);
    assert!(verdict(&client.head()).starts_with("resumed 1 "));
    primed(&mut client);
    message(&mut client, &note(2));
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    // The stream that the cursor names, and no other stream's messages; the listener keeps its own.
    message(&mut listener, &note(100));
    standing.event(&note(101));
    message(&mut listener, &note(101));
}

/// Newest wins: the old connection gets no further frame and a clean end; the new one never waits for it.
#[test]
fn the_newest_connection_takes_an_answer() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut first, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&note(1));
    let cursor = message(&mut first, &note(1)).id().to_owned();
    let mut second = session.resume(&cursor);
    assert_eq!(verdict(&second.head()), "resumed 1 0");
    primed(&mut second);
    exchange.event(&note(2));
    message(&mut second, &note(2));
    first.ended();
    let mut third = session.resume(&cursor);
    assert_eq!(verdict(&third.head()), "resumed 1 1");
    primed(&mut third);
    message(&mut third, &note(2));
    exchange.event(&result("1"));
    message(&mut third, &result("1"));
    third.ended();
    second.ended();
}

/// Two calls at a time: each cursor brings its own stream.
#[test]
fn a_cursor_names_one_of_many_streams() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut calls = Vec::new();
    for id in ["1", "\"1\"", "2"] {
        let (mut client, mut exchange) = session.streaming_call(&backend, id);
        // C8: a backend's own ids collide across streams, and mean nothing here.
        exchange.chunk(&format!("id: 0/1\ndata: {}\n\n", note(1)));
        let cursor = message(&mut client, &note(1)).id().to_owned();
        client.cut();
        session.client_left(&proxy);
        calls.push((id, cursor, exchange));
    }
    for (id, cursor, mut exchange) in calls {
        exchange.event(&result(id));
        let mut client = session.resume(&cursor);
        verdict(&client.head());
        primed(&mut client);
        message(&mut client, &result(id));
        client.ended();
        exchange.finish();
    }
}

/// What a backend writes becomes whole frames of ours: one id each, data byte for byte, `event: message`, LF only.
#[test]
fn what_becomes_of_a_backends_frames() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let spaced = r#"{ "jsonrpc" : "2.0", "method":"notifications/x" , "params":{"a":"\u00e9\/","b":1.0e0} }"#;
    // The frame, and the type and data that arrive; `None` if nothing does (I3, I7).
    let cases: [(&str, Option<(&str, &str)>); 14] = [
        ("\u{feff}data: {\"a\":0}\n\n", Some(("message", "{\"a\":0}"))),
        (":keep-alive\n\n", None),
        ("id: 7\ndata:\n\n", None),
        ("id: 7\nretry: 3000\n\n", None),
        ("id: 7\ndata: \n\n", None),
        (
            "event: message\r\nid: 8\r\ndata: {\"a\":1}\r\n\r\n",
            Some(("message", "{\"a\":1}")),
        ),
        ("data: {\"a\":2}\rid: x\r\r", Some(("message", "{\"a\":2}"))),
        ("data:{\"a\":3}\n\n", Some(("message", "{\"a\":3}"))),
        ("data: {\ndata: \"a\":4}\n\n", Some(("message", "{\n\"a\":4}"))),
        ("retry: 1\ndata: {\"a\":5}\n\n", Some(("message", "{\"a\":5}"))),
        ("event: other\ndata: {\"a\":6}\n\n", Some(("other", "{\"a\":6}"))),
        ("event: other\ndata:\n\n", None),
        (
            "unknown: 1\nnocolon\ndata: {\"a\":7}\n\n",
            Some(("message", "{\"a\":7}")),
        ),
        ("data: no json\n\n", Some(("message", "no json"))),
    ];
    for (agent, drops_other_types) in [("node", false), ("Java-http-client/21", true)] {
        let session = Session::open_at(&proxy, &backend, crate::session::PRIMING, agent);
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        let mut expected = 0;
        for (frame, arrives) in cases {
            exchange.chunk(frame);
            let Some((kind, data)) = arrives else { continue };
            if kind == "other" && drops_other_types {
                continue;
            }
            let event = client.event();
            expected += 1;
            assert_eq!(
                (event.event.as_deref(), event.data()),
                (Some(kind), data),
                "{frame:?}"
            );
            assert_eq!(position(event.id()), (expected, false), "{frame:?}");
            assert_eq!(event.retry, None);
        }
        exchange.event(spaced);
        message(&mut client, spaced);
        exchange.event(&result("1"));
        message(&mut client, &result("1"));
        client.ended();
        exchange.finish();
    }
}

/// A frame that a backend never finished is not dispatched (I8), and its call gets its error.
#[test]
fn a_backend_that_breaks_in_the_middle_of_an_event() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for end in ["cut", "finish"] {
        let (mut client, mut exchange) = session.streaming_call(&backend, "1");
        exchange.event(&note(1));
        message(&mut client, &note(1));
        exchange.chunk(&format!("data: {}", result("1")));
        match end {
            "cut" => exchange.cut(),
            _ => exchange.finish(),
        }
        let error = client.event();
        assert_eq!(
            failed(error.data(), "1"),
            ("backend_lost".into(), "unknown".into()),
            "{end}"
        );
        assert_eq!(position(error.id()), (2, true));
        client.ended();
        // It is in the log like any other event.
        let mut again = session.resume(&at_position(error.id(), "1"));
        assert_eq!(verdict(&again.head()), "resumed 1 1");
        primed(&mut again);
        message(&mut again, error.data());
        again.ended();
        assert_eq!(session.resume(error.id()).whole().head.status(), 405);
    }
    assert!(backend.is_silent(), "S9: nothing was sent again");
}

/// An answer with several requests ends with the last of them (2025-03-26).
#[test]
fn a_batch_ends_with_its_last_answer() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open_at(&proxy, &backend, "2025-03-26", "node");
    let batch = format!("[{},{}]", call("1"), call("\"b\""));
    let mut client = session.post(&batch);
    let mut exchange = backend.next().stream();
    client.head();
    let cursor = client.event().id().to_owned();
    exchange.event(&result("\"b\""));
    assert!(!message(&mut client, &result("\"b\"")).id().ends_with('~'));
    exchange.event(&result("1"));
    assert!(message(&mut client, &result("1")).id().ends_with('~'));
    client.ended();
    exchange.finish();
    // After a loss of all memory the cursor names both.
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let mut client = session.on(&proxy).resume(&cursor);
    backend.accepts();
    assert_eq!(verdict(&client.head()), "reset epoch_changed");
    client.event();
    let (one, two) = (client.event(), client.event());
    assert_eq!(failed(one.data(), "1").0, "epoch_changed");
    assert_eq!(failed(two.data(), "\"b\"").0, "epoch_changed");
    assert!(!one.id().ends_with('~') && two.id().ends_with('~'));
    client.ended();
}

/// Two calls with one id, both under way: each client gets what its own call came to, and may resume it.
#[test]
fn an_id_that_is_used_again_while_it_runs() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut first, mut running) = session.streaming_call(&backend, "1");
    let (mut second, mut again) = session.streaming_call(&backend, "1");
    running.event(&note(1));
    let cursor = message(&mut first, &note(1)).id().to_owned();
    again.event(&note(2)).event(&result("1"));
    message(&mut second, &note(2));
    message(&mut second, &result("1"));
    second.ended();
    first.cut();
    let mut first = session.resume(&cursor);
    assert_eq!(verdict(&first.head()), "resumed 1 0");
    primed(&mut first);
    running.event(&result("1"));
    message(&mut first, &result("1"));
    first.ended();
}

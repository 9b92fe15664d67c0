//! Event ids as a client sees them, how a connection is greeted, and what each kind of bad cursor is told
//! (wire contract, sections 3 and 4).
//! Next: `answers.rs`.

use crate::backend::Backend;
use crate::client::Event;
use crate::proxy::Proxy;
use crate::session::{
    OLDER, PRIMING, Session, at_position, call, epoch, epoch_of, failed, message, note, position, primed,
    result, resync, verdict,
};

/// One event id (wire contract, section 3): alphabet, length, parts.
fn well_formed(event: &Event) -> &str {
    let id = event.id();
    assert!(id.len() <= 118, "{id}");
    assert!(
        id.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b)),
        "{id}"
    );
    let parts: Vec<&str> = id.split('.').collect();
    let [head, stream, mac, _] = parts[..] else {
        panic!("four parts: {id}")
    };
    assert_eq!((head.len(), mac.len()), (12, 16), "{id}");
    assert!(stream.starts_with('g') || stream.starts_with('p'), "{id}");
    id
}

#[test]
fn ids_are_dense_and_the_last_has_the_end_mark() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    let mut exchange = backend.next().stream();
    let head = client.head();
    assert_eq!(verdict(&head), "live");
    let prime = primed(&mut client);
    assert_eq!(prime.retry.as_deref(), Some("1000"));
    let id = well_formed(&prime).to_owned();
    assert_eq!(position(&id), (0, false));
    let conn = id.rsplit('-').next().expect("a conn");
    assert!(
        (1..=8).contains(&conn.len()) && conn.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    );
    let mut all = vec![id];
    for n in 1..=5 {
        exchange.event(&note(n));
        let event = message(&mut client, &note(n));
        assert_eq!(position(well_formed(&event)), (u64::from(n), false));
        all.push(event.id().to_owned());
    }
    exchange.event(&result("1"));
    let last = message(&mut client, &result("1"));
    assert_eq!(position(well_formed(&last)), (6, true));
    client.ended();
    all.push(last.id().to_owned());
    for id in &all {
        assert_eq!(epoch_of(id), epoch(&head), "one epoch");
        let prefix = |id: &str| id[..id.rfind('.').expect("a dot")].to_owned();
        assert_eq!(prefix(id), prefix(&all[0]), "one stream");
    }
}

/// Which request id is named how, and that the errors of a total loss echo its raw token (wire contract, section 3).
#[test]
fn a_post_stream_is_named_after_its_request() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let long = format!("\"{}\"", "k".repeat(43));
    let longest = format!("\"{}\"", "k".repeat(42));
    // The raw token, the beginning of its stream's name, and the token that comes back after a loss of all memory.
    let cases: [(&str, &str, Option<&str>); 12] = [
        ("7", "pi7", Some("7")),
        ("0", "pi0", Some("0")),
        ("-7", "pm7", Some("-7")),
        (
            "9999999999999999999",
            "pi9999999999999999999",
            Some("9999999999999999999"),
        ),
        ("1.5", "pn", Some("1.5")),
        ("1e3", "pn", Some("1e3")),
        (
            "10000000000000000000000000",
            "pn",
            Some("10000000000000000000000000"),
        ),
        ("\"7\"", "ps", Some("\"7\"")),
        ("\"\"", "ps", Some("\"\"")),
        ("\"\u{fc}/\\\"\"", "ps", Some("\"\u{fc}/\\\"\"")),
        (&longest, "ps", Some(&longest)),
        (&long, "ph", None),
    ];
    let mut cursors = Vec::new();
    for (id, name, _) in cases {
        let mut client = session.post(&call(id));
        let mut exchange = backend.next().stream();
        client.head();
        let prime = primed(&mut client);
        let stream = well_formed(&prime).split('.').nth(1).expect("a stream");
        assert!(stream.starts_with(name), "{id}: {stream}");
        cursors.push(prime.id().to_owned());
        // The response is known by its id, whatever it looks like: its event has the end mark.
        exchange.event(&result(id));
        assert_eq!(
            position(message(&mut client, &result(id)).id()),
            (1, true),
            "{id}"
        );
        client.ended();
        exchange.finish();
    }
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = session.on(&proxy);
    for (nth, ((id, _, after), cursor)) in cases.iter().zip(&cursors).enumerate() {
        let mut client = session.resume(cursor);
        if nth == 0 {
            backend.accepts();
        }
        assert_eq!(verdict(&client.head()), "reset epoch_changed", "{id}");
        primed(&mut client);
        match after {
            Some(token) => {
                let error = client.event();
                assert_eq!(
                    failed(error.data(), token),
                    ("epoch_changed".into(), "unknown".into())
                );
                assert!(error.id().ends_with('~'));
                client.ended();
            }
            // Too long to be named: it can't be failed, so its client is held (wire contract, section 3).
            None => client.comment(),
        }
    }
}

/// Equal ids in other spellings end the stream; unequal ones that look alike don't pass for an answer.
#[test]
fn ids_are_compared_by_value_and_kind() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    for (asked, answered) in [
        ("\"a\"", "\"\\u0061\""),
        ("\"\\u0061\"", "\"a\""),
        ("1.50", "1.5"),
        ("1e1", "10.0"),
    ] {
        let (mut client, mut exchange) = session.streaming_call(&backend, asked);
        exchange.event(&result(answered));
        let last = message(&mut client, &result(answered));
        assert!(last.id().ends_with('~'), "{asked} was answered by {answered}");
        client.ended();
        exchange.finish();
    }
    // A response that answers nothing here passes unchanged on the first connection, and the stream ends (section 7).
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.event(&result("\"1\""));
    let last = message(&mut client, &result("\"1\""));
    assert!(last.id().ends_with('~'));
    client.ended();
    exchange.finish();
}

/// How a connection is greeted, by the session's revision and the client's name (wire contract, section 4).
#[test]
fn how_each_kind_of_client_is_greeted() {
    #[derive(Debug)]
    enum Greeted {
        Prime,
        PrimeWithoutRetry,
        Ping,
        Comment,
    }
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let cases = [
        (PRIMING, "node", Greeted::Prime),
        (PRIMING, "", Greeted::Prime),
        (PRIMING, "Go-http-client/1.1", Greeted::Prime),
        (PRIMING, "Java-http-client/17.0.1", Greeted::PrimeWithoutRetry),
        (OLDER, "node", Greeted::Ping),
        (OLDER, "python-httpx/0.28.1", Greeted::Ping),
        (OLDER, "Java-http-client/17.0.1", Greeted::Comment),
        (OLDER, "Go-http-client/1.1", Greeted::Comment),
        (OLDER, "ModelContextProtocol.Client/1.0", Greeted::Comment),
        (OLDER, "", Greeted::Comment),
        ("2025-03-26", "node", Greeted::Ping),
    ];
    for (revision, agent, greeted) in cases {
        let what = format!("{revision} {agent:?} {greeted:?}");
        let session = Session::open_at(&proxy, &backend, revision, agent);
        for method in ["POST", "GET"] {
            let mut client = if method == "POST" {
                session.post(&call("1"))
            } else {
                session.get()
            };
            let mut exchange = backend.next_of(method).stream();
            assert_eq!(client.head().get("x-accel-buffering"), Some("no"));
            let first = match greeted {
                Greeted::Prime | Greeted::PrimeWithoutRetry | Greeted::Ping => client.event(),
                // The first byte comes at once all the same (I1).
                Greeted::Comment => {
                    client.comment();
                    exchange.event(&note(1));
                    message(&mut client, &note(1))
                }
            };
            match greeted {
                Greeted::Prime => {
                    assert!(first.is_prime(), "{what}: {first:?}");
                    assert_eq!(first.retry.as_deref(), Some("1000"), "{what}");
                }
                Greeted::PrimeWithoutRetry => {
                    assert!(first.is_prime(), "{what}: {first:?}");
                    assert_eq!(first.retry, None, "{what}");
                }
                Greeted::Ping => {
                    assert_eq!(first.event.as_deref(), Some("ping"), "{what}");
                    assert_eq!(first.data(), "{}", "{what}");
                    assert_eq!(position(well_formed(&first)), (0, false));
                }
                Greeted::Comment => assert_eq!(position(well_formed(&first)), (1, false), "{what}"),
            }
            // The early cursor is a cursor.
            let cursor = first.id().to_owned();
            client.cut();
            session.client_left(&proxy);
            exchange.event(&note(2));
            let mut again = session.resume(&cursor);
            assert!(verdict(&again.head()).starts_with("resumed "), "{what}");
            loop {
                let event = again.event();
                if event.data() == note(2) {
                    break;
                }
                assert_ne!(event.data(), note(1), "{what}: nothing comes twice");
            }
            again.cut();
            backend.park(exchange);
        }
    }
}

/// `early_cursor = false`: older sessions get a comment, and no event that is not the backend's.
#[test]
fn early_cursors_can_be_turned_off() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.early_cursor=false"]);
    let session = Session::open_at(&proxy, &backend, OLDER, "node");
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    client.comment();
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
}

/// C12: a priming id is new on each connection, names the position that it goes on from, and means it when it comes back.
#[test]
fn each_connection_is_primed_at_its_position() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    let mut exchange = backend.next().stream();
    client.head();
    let mut ids = vec![primed(&mut client).id().to_owned()];
    exchange.event(&note(1)).event(&note(2));
    message(&mut client, &note(1));
    let at_one = message(&mut client, &note(2)).id().to_owned();
    client.cut();
    // Cut three times before anything else came: each time the fresh id names the same position.
    let mut cursor = at_one;
    for _ in 0..3 {
        let mut client = session.resume(&cursor);
        assert_eq!(verdict(&client.head()), "resumed 2 0");
        let prime = primed(&mut client);
        assert_eq!(position(prime.id()), (2, false));
        cursor = prime.id().to_owned();
        ids.push(cursor.clone());
        client.cut();
    }
    exchange.event(&result("1"));
    let mut client = session.resume(&cursor);
    verdict(&client.head());
    ids.push(primed(&mut client).id().to_owned());
    message(&mut client, &result("1"));
    client.ended();
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "no priming id comes twice: {ids:?}");
}

/// What each bad cursor is told, in the contract's order of precedence (section 4); never 400, 409, 410 or 5xx.
/// An unparseable one is unknown even where it looks foreign, a foreign one is foreign even in another epoch (C6, C7).
#[test]
fn the_word_for_each_bad_cursor() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let other = Session::open(&proxy, &backend);
    let foreign = {
        let (mut client, mut exchange) = other.streaming_call(&backend, "1");
        exchange.event(&note(7));
        message(&mut client, &note(7)).id().to_owned()
    };
    // The cursor, made of one of this session's own and of another session's.
    type Make = fn(&str, &str) -> String;
    let cases: [(Make, &str); 12] = [
        (|_, _| "0/3".into(), "cursor_unknown"),
        (|_, _| "5".into(), "cursor_unknown"),
        (
            |_, _| "9f5c1a0e-1111-4222-8333-444455556666".into(),
            "cursor_unknown",
        ),
        (|_, _| "a".repeat(119), "cursor_unknown"),
        (|own, _| format!("{own}x"), "cursor_unknown"),
        (|own, _| at_position(own, "01"), "cursor_unknown"),
        (|_, foreign| at_position(foreign, "01"), "cursor_unknown"),
        (|_, foreign| foreign.into(), "cursor_foreign"),
        (
            |own, _| format!("{}AAAAAAAAAAA{}", &own[..1], &own[12..]),
            "cursor_foreign",
        ),
        (|own, _| own.replacen(&own[15..20], "AAAAA", 1), "cursor_foreign"),
        (|own, _| at_position(own, "2"), "cursor_future"),
        (|own, _| at_position(own, "9223372036854775807"), "cursor_future"),
    ];
    for (make, reason) in cases {
        let session = Session::open(&proxy, &backend);
        let (mut listener, mut standing) = session.listening(&backend);
        standing.event(&note(1));
        let own = message(&mut listener, &note(1)).id().to_owned();
        listener.cut();
        session.client_left(&proxy);
        let cursor = make(&own, &foreign);
        let mut client = session.resume(&cursor);
        let head = client.head();
        assert_eq!(verdict(&head), format!("reset {reason}"), "{cursor}");
        let prime = primed(&mut client);
        assert_eq!(
            epoch_of(prime.id()),
            epoch(&head),
            "C2: a reset brings an id of the new epoch"
        );
        assert_ne!(epoch_of(prime.id()), epoch_of(&own));
        resync(&mut client, reason);
        standing.event(&note(2));
        message(&mut client, &note(2));
        // The old epoch is remembered with its reason.
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume(&own);
        assert_eq!(
            verdict(&client.head()),
            format!("reset {reason}"),
            "{cursor}, once more"
        );
        backend.park(standing);
    }
    other.is_alive(&backend);
}

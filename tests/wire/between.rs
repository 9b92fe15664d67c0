//! A listener that comes while the backend's standalone stream is broken and not open again: it is told the truth at once
//! (wire contract, sections 1, 4, 5 and 7).
//! Law: nobody is told `resumed` or `live` while it is known that something may be missing; what is held is not lost by it.
//! Next: `polling.rs`.

use std::time::{Duration, Instant};

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{Session, epoch, epoch_of, json, message, note, primed, resync, verdict};
use crate::status::{OPERATOR, metric};

/// A session whose client has had one event and left; the newest that it had, and the backend's side.
fn left_behind(proxy: &Proxy, backend: &Backend) -> (Session, String, Exchange) {
    let session = Session::open(proxy, backend);
    let (mut client, mut standing) = session.listening(backend);
    standing.event(&note(1));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    client.cut();
    session.client_left(proxy);
    (session, cursor, standing)
}

/// Reads what is told at once: the verdict, and in band no more than that there was a reset. Nothing is to be read again
/// yet.
fn told_at_once(client: &mut Client, reason: &str) -> String {
    let head = client.head();
    assert_eq!(verdict(&head), format!("reset {reason}"));
    let prime = primed(client);
    assert_eq!(epoch_of(prime.id()), epoch(&head));
    let notice = client.event();
    assert_eq!(notice.event.as_deref(), Some("reset"), "{notice:?}");
    assert_eq!(json(&notice)["params"]["reason"], reason);
    notice.id().to_owned()
}

/// What was held comes, whole, and the rest is told once the backend's stream stands.
#[test]
fn a_listener_that_comes_back_while_the_backend_is_away() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    for held in 0..3 {
        let (session, cursor, mut standing) = left_behind(&proxy, &backend);
        for n in 0..held {
            standing.event(&note(2 + n));
        }
        session.is_alive(&backend);
        standing.cut();
        // It is asked again, and does not answer yet.
        let asked = backend.next_of("GET");
        let mut client = session.resume(&cursor);
        let notice = told_at_once(&mut client, "upstream_gap");
        assert_ne!(epoch_of(&notice), epoch_of(&cursor), "the epoch is over");
        let mut last = notice;
        for n in 0..held {
            last = message(&mut client, &note(2 + n)).id().to_owned();
        }
        client.comment();
        // Whoever comes again before it stands is told again.
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume(&last);
        told_at_once(&mut client, "upstream_gap");
        let mut standing = asked.stream();
        let again = resync(&mut client, "upstream_gap");
        standing.event(&note(9));
        message(&mut client, &note(9));
        // From here on continuity is proved.
        client.cut();
        session.client_left(&proxy);
        let mut client = session.resume(&again);
        assert!(verdict(&client.head()).starts_with("resumed "));
        primed(&mut client);
        message(&mut client, &note(9));
        backend.park(standing);
    }
}

/// The old epoch stays what it was: its cursors are told why it ended.
#[test]
fn a_cursor_of_before_the_break_is_told_why() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let (session, cursor, standing) = left_behind(&proxy, &backend);
    standing.cut();
    let asked = backend.next_of("GET");
    told_at_once(&mut session.resume(&cursor), "upstream_gap");
    let _standing = asked.stream();
    let mut client = session.resume(&cursor);
    assert_eq!(verdict(&client.head()), "reset upstream_gap");
}

/// Without a cursor, where nothing was ever written: what the backend said before the break is shown, behind a reset.
#[test]
fn a_first_listener_after_a_break_is_not_told_live() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (client, mut standing) = session.listening(&backend);
    client.cut();
    session.client_left(&proxy);
    standing.event(&note(1));
    session.is_alive(&backend);
    standing.cut();
    let asked = backend.next_of("GET");
    let mut client = session.get();
    told_at_once(&mut client, "upstream_gap");
    message(&mut client, &note(1));
    let _standing = asked.stream();
    resync(&mut client, "upstream_gap");
}

/// A listener that stays is told once, when the stream stands again.
#[test]
fn a_listener_that_stays_is_told_when_the_stream_stands() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, standing) = session.listening(&backend);
    standing.cut();
    let asked = backend.next_of("GET");
    assert!(!client.message_before_comment());
    let _standing = asked.stream();
    resync(&mut client, "upstream_gap");
}

/// A server that has not heard yet of the end of its stream may take the next GET for a second one, and say nothing on it:
/// it is given time. Only ever more of it passes than is asked for here.
#[test]
fn a_backend_has_time_to_hear_that_its_stream_ended() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, standing) = session.listening(&backend);
    let ended = Instant::now();
    standing.cut();
    let asked = backend.next_of("GET");
    assert!(ended.elapsed() >= Duration::from_millis(100));
    let _standing = asked.stream();
    resync(&mut client, "upstream_gap");
}

/// A session that is being begun anew: a listener hears at once that its backend lost it.
#[test]
fn a_listener_that_comes_back_while_its_session_is_begun_anew() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let (session, cursor, standing) = left_behind(&proxy, &backend);
    standing.cut();
    backend.next_of("GET").answer(404, &[], "");
    let asked = backend.next_of("POST");
    assert!(asked.body.contains("\"initialize\""), "{}", asked.body);
    let mut client = session.resume(&cursor);
    told_at_once(&mut client, "backend_lost");
}

/// A backend that was away and answers anything is asked for the stream at once, however long the pauses have become.
#[test]
fn a_backend_that_is_back_is_asked_soon() {
    let mut backend = Backend::start();
    let url = backend.url();
    let settings = [
        "upstream.health.probe=off",
        "upstream.exchange.replica_retry_max=1m",
        OPERATOR,
    ];
    let proxy = Proxy::start(&[&url], &settings);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let not_sent = || {
        let name = r#"throughline_upstream_exchanges_total{upstream="mcp",outcome="not_sent"}"#;
        let count = metric(operator, name).expect("a count");
        count.parse::<u64>().expect("a number")
    };
    // In a round in which it happens to be asked just when it is back, nobody has to say so.
    for _ in 0..2 {
        let port = backend.close();
        let before = not_sent();
        standing.cut();
        while not_sent() < before + 6 {}
        backend = Backend::start_at(port);
        Session::open(&proxy, &backend).is_alive(&backend);
        standing = backend.next_of("GET").stream();
        resync(&mut client, "upstream_gap");
    }
    session.is_alive(&backend);
    proxy.logged("replica is back; the standalone stream is opened again soon");
}

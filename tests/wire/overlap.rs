//! Cuts between the proxy and a backend that can give back what it sent: unnoticed if that is proved, else said
//! (wire contract, section 8).
//! Law: no liar is believed, and nothing is asked for ever.
//! Next: `pure/overlap.rs`, which decides.

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{
    OLDER, PRIMING, Session, another_call, call, epoch_of, failed, message, note, position, result, resync,
    verdict,
};

const PROVED: [&str; 2] = [
    "upstream.event_store=per-session",
    "upstream.stream.reattach=proved",
];

fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

fn events(spelled: &str) -> String {
    let each = |one: &str| {
        let (id, n) = one.split_once('=').expect("id=n");
        match n {
            "" => format!("id: {id}\ndata: \n\n"),
            n => event(id, &note(n.parse().expect("a number"))),
        }
    };
    spelled.split_whitespace().map(each).collect()
}

/// The proxy asks again from this id, and gets a stream.
fn asked(backend: &Backend, cursor: &str) -> Exchange {
    let exchange = backend.next_of("GET");
    assert_eq!(exchange.head.get("last-event-id"), Some(cursor));
    assert_eq!(exchange.head.get("mcp-session-id"), Some("backend-session"));
    exchange.stream()
}

/// The proxy asks from this id until what the backend gives back is believed: it is shown twice.
fn gives_back(backend: &Backend, cursor: &str, said: &str) -> Exchange {
    let mut shown = asked(backend, cursor);
    shown.chunk(said);
    let mut exchange = asked(backend, cursor);
    shown.wait_closed();
    exchange.chunk(said);
    exchange
}

/// How a backend's stream ends before its answer is complete.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// Its connection breaks.
    Broken,
    /// In an orderly way, and without a word on when to come back.
    InOrder,
}

impl Ends {
    const ALL: [Self; 2] = [Self::Broken, Self::InOrder];

    fn end(self, exchange: Exchange) {
        match self {
            Self::Broken => exchange.cut(),
            Self::InOrder => exchange.finish(),
        }
    }
}

/// A call whose backend has sent these events when its stream breaks; the client had them.
fn broken_call(session: &Session, backend: &Backend, sent: &str) -> (Client, String) {
    ended_call(session, backend, sent, Ends::Broken)
}

/// The same where it ends like this.
fn ended_call(session: &Session, backend: &Backend, sent: &str, ends: Ends) -> (Client, String) {
    let (mut client, mut exchange) = session.streaming_call(backend, "1");
    exchange.chunk(&events(sent));
    let mut last = String::new();
    for one in sent.split_whitespace() {
        if let Some((_, n)) = one.split_once('=').filter(|(_, n)| !n.is_empty()) {
            last = message(&mut client, &note(n.parse().expect("a number")))
                .id()
                .to_owned();
        }
    }
    if last.is_empty() {
        // So that the priming event is read before the cut.
        session.is_alive(backend);
    }
    ends.end(exchange);
    (client, last)
}

/// A cut that the client does not notice: same connection, same epoch, each event once. An orderly end is no other matter,
/// where the backend did not say when to come back.
#[test]
fn a_broken_answer_goes_on_with_proof() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    let table = [
        ("p= a=1 b=2", "p", "a=1 b=2 c=3"),
        ("p= a=1 b=2", "p", "q= a=1 b=2 r= c=3"),
        // Without a priming event: from the oldest, whether that comes again or not.
        ("a=1 b=2", "a", "a=1 b=2 c=3"),
        ("a=1 b=2", "a", "b=2 c=3"),
        // Only the priming event was had: nothing can be missing.
        ("p=", "p", "c=3"),
    ];
    let table = Ends::ALL
        .into_iter()
        .flat_map(|ends| table.map(|row| (ends, row)));
    for (ends, (sent, cursor, again)) in table {
        let (mut client, before) = ended_call(&session, &backend, sent, ends);
        let exchange = gives_back(&backend, cursor, &events(again));
        let new = message(&mut client, &note(3)).id().to_owned();
        if !before.is_empty() {
            assert_eq!(epoch_of(&new), epoch_of(&before));
            assert_eq!(position(&new).0, position(&before).0 + 1);
        }
        // It may end again, and the new event is part of what must come again.
        ends.end(exchange);
        let said = events(again) + &event("z", &result("1"));
        gives_back(&backend, cursor, &said);
        let last = message(&mut client, &result("1"));
        assert_eq!(
            (epoch_of(last.id()), last.id().ends_with('~')),
            (epoch_of(&new), true)
        );
        client.ended();
        assert!(backend.is_silent());
    }
}

/// An answer that began when its session was over already: when it breaks, nobody else comes to end it.
#[test]
fn an_answer_that_outlived_its_session() {
    let backend = Backend::start();
    let settings = [&PROVED[..], &["upstream.session.on_session_loss=terminate"]].concat();
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    let running = backend.next_of("POST");
    let mut other = session.post(&another_call("2"));
    backend.next_of("POST").answer(404, &[], "");
    assert_eq!(other.whole().head.status(), 404);
    let mut running = running.stream();
    running.chunk(&events("p= a=1"));
    client.head();
    client.event();
    message(&mut client, &note(1));
    running.cut();
    let asked = backend.next_of("GET");
    asked.answer(404, &[], "");
    let error = client.event();
    assert_eq!(
        failed(error.data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
}

/// A client that is away meanwhile is resumed as if nothing had happened.
#[test]
fn a_break_while_the_client_is_away() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open_at(&proxy, &backend, OLDER, "Go-http-client/1.1");
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.chunk(&events("a=1 b=2"));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    message(&mut client, &note(2));
    client.cut();
    session.client_left(&proxy);
    exchange.cut();
    gives_back(&backend, "a", &(events("b=2 c=3") + &event("d", &result("1"))));
    session.logged(&proxy, "backend stream goes on where it broke");
    let mut client = session.resume(&cursor);
    assert!(verdict(&client.head()).starts_with("resumed 1 "));
    message(&mut client, &note(2));
    message(&mut client, &note(3));
    message(&mut client, &result("1"));
    client.ended();
}

/// Liars: whatever aligns, what was lost or changed is said, and nothing of theirs is shown.
#[test]
fn no_liar_is_believed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    for (sent, again, reason) in [
        // The last event repeated, an earlier one lost.
        ("1= 2=2 3=3", "3=3 4=4", "backend_restarted"),
        ("1=1 2=2 3=3", "1=1 3=3 4=4", "upstream_gap"),
        // The order changed within one millisecond.
        ("1= 2=2 3=3 4=4", "2=2 4=4 3=3 5=5", "upstream_gap"),
        // The same data under other ids.
        ("1= 2=2 3=3", "12=2 13=3 14=4", "backend_restarted"),
        // One event only, and nothing that proves it.
        ("1=1", "2=2", "upstream_gap"),
    ] {
        let (mut client, _) = broken_call(&session, &backend, sent);
        let mut exchange = backend.next_of("GET").stream();
        exchange.chunk(&events(again));
        exchange.chunk(&event("99", &result("1")));
        let error = client.event();
        assert_eq!(
            failed(error.data(), "1"),
            (reason.into(), "unknown".into()),
            "{sent} / {again}"
        );
        assert!(error.id().ends_with('~'));
        client.ended();
        exchange.wait_closed();
    }
    assert!(backend.is_silent());
}

/// What an orderly end without a time leads to where it can't be proved that nothing is missing: an error, each time.
#[test]
fn an_orderly_end_that_is_not_proved_is_an_error() {
    let backend = Backend::start();
    let settings = [
        "upstream.isolate_request_ids=true",
        "upstream.stream.reattach=proved",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    for revision in [PRIMING, OLDER] {
        let session = Session::open_at(&proxy, &backend, revision, "Go-http-client/1.1");
        for (sent, how, reason) in [
            ("p= a=1 b=2", "twice nothing", "upstream_gap"),
            ("p= a=1 b=2", "405", "upstream_gap"),
            ("p= a=1 b=2", "a=1 c=3", "upstream_gap"),
            ("p= a=1 b=2", "c=3", "backend_restarted"),
            // No id to ask from, or none up to the last event.
            ("=1", "not asked", "backend_lost"),
            ("a=1 =2", "not asked", "backend_lost"),
        ] {
            let (mut client, mut exchange) = session.streaming_call(&backend, "1");
            for one in sent.split_whitespace() {
                exchange.chunk(&events(one).replace("id: \n", ""));
            }
            exchange.finish();
            let again = || backend.next_of("GET");
            match how {
                "not asked" => {}
                "405" => again().answer(405, &[], ""),
                "twice nothing" => {
                    again().stream().finish();
                    again().stream().finish();
                }
                said => backend.park({
                    let mut exchange = again().stream();
                    exchange.chunk(&events(said));
                    exchange
                }),
            }
            let error = std::iter::repeat_with(|| client.event())
                .find(|event| event.data().contains("error"))
                .expect("an event");
            assert_eq!(
                failed(error.data(), "1"),
                (reason.into(), "unknown".into()),
                "{revision}: {sent}, then {how}"
            );
            client.ended();
            assert!(backend.is_silent(), "{revision}: {sent}, then {how}");
        }
    }
}

/// What does not come: half an overlap, nothing, an end, a refusal. Each is bounded, and is a gap.
#[test]
fn what_does_not_come_is_a_gap() {
    let backend = Backend::start();
    let mut settings = PROVED.to_vec();
    settings.push("upstream.stream.reattach_max=3s");
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    for how in ["half", "silence", "half and an end", "twice an end", "405"] {
        let (mut client, _) = broken_call(&session, &backend, "p= a=1 b=2");
        match how {
            "half" => {
                let mut exchange = asked(&backend, "p");
                exchange.chunk(&events("a=1"));
                backend.park(exchange);
            }
            "silence" => backend.park(asked(&backend, "p")),
            "half and an end" => {
                let mut exchange = asked(&backend, "p");
                exchange.chunk(&events("a=1"));
                exchange.finish();
            }
            "twice an end" => {
                asked(&backend, "p").finish();
                asked(&backend, "p").finish();
            }
            _ => backend.next_of("GET").answer(405, &[], ""),
        }
        let error = client.event();
        assert_eq!(failed(error.data(), "1").0, "upstream_gap", "{how}");
        client.ended();
        assert!(backend.is_silent(), "{how}");
    }
}

/// A backend that proves itself and then stays silent is asked again, and given up in the end.
#[test]
fn silence_behind_the_proof_is_asked_again() {
    let backend = Backend::start();
    let mut settings = PROVED.to_vec();
    settings.push("upstream.stream.retry=100ms");
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let (mut client, before) = broken_call(&session, &backend, "p= a=1");
    for _ in 0..2 {
        let mut exchange = asked(&backend, "p");
        exchange.chunk(&events("a=1"));
        exchange.wait_closed();
    }
    let mut exchange = gives_back(&backend, "p", &events("a=1 b=2"));
    assert_eq!(epoch_of(message(&mut client, &note(2)).id()), epoch_of(&before));
    exchange.chunk(&event("c", &result("1")));
    let mut exchange = asked(&backend, "p");
    exchange.chunk(&(events("a=1 b=2") + &event("c", &result("1"))));
    message(&mut client, &result("1"));
    client.ended();
    // The same for ever, before a proxy that does not wait as long.
    settings.push("upstream.stream.reattach_max=2s");
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let (mut client, _) = broken_call(&session, &backend, "p= a=1");
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.event());
        while !waiting.is_finished() {
            if let Some(again) = backend.try_next() {
                let mut again = again.stream();
                again.chunk(&events("a=1"));
                backend.park(again);
            }
        }
        waiting.join().expect("an event")
    });
    assert_eq!(failed(error.data(), "1").0, "upstream_gap");
}

/// A replica that refused a connection since the break may be another one: nothing that it says proves anything.
#[test]
fn a_refused_connection_takes_the_proof_away() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.chunk(&events("p= a=1"));
    message(&mut client, &note(1));
    let port = backend.close();
    exchange.cut();
    let error = client.event();
    assert_eq!(failed(error.data(), "1").0, "backend_lost");
    client.ended();
    let backend = Backend::start_at(port);
    session.is_alive(&backend);
}

/// A request of the backend's that was answered was replaced in the log; the backend says it as it was.
#[test]
fn what_was_answered_does_not_spoil_the_proof() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    let request = r#"{"jsonrpc":"2.0","id":5,"method":"roots/list"}"#;
    let said = format!("{}{}{}", events("p= a=1"), event("b", request), events("c=3"));
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.chunk(&said);
    message(&mut client, &note(1));
    message(&mut client, request);
    message(&mut client, &note(3));
    let mut answer = session.post(r#"{"jsonrpc":"2.0","id":5,"result":{"roots":[]}}"#);
    backend.next_of("POST").answer(202, &[], "");
    assert_eq!(answer.whole().head.status(), 202);
    exchange.cut();
    gives_back(&backend, "p", &(said + &event("d", &result("1"))));
    message(&mut client, &result("1"));
    client.ended();
}

/// The standalone stream: asked with a cursor, and the client notices nothing; a liar's begins a new epoch.
#[test]
fn a_broken_listener_goes_on_with_proof() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    standing.chunk(&events("a=1 b=2"));
    message(&mut client, &note(1));
    let before = message(&mut client, &note(2)).id().to_owned();
    standing.cut();
    let standing = gives_back(&backend, "a", &events("b=2 c=3"));
    let third = message(&mut client, &note(3)).id().to_owned();
    assert_eq!((epoch_of(&third), position(&third).0), (epoch_of(&before), 3));
    // A half-open predecessor is waited for.
    standing.cut();
    backend.next_of("GET").answer(409, &[], "");
    let standing = gives_back(&backend, "a", &events("b=2 c=3 d=4"));
    let fourth = message(&mut client, &note(4)).id().to_owned();
    assert_eq!(epoch_of(&fourth), epoch_of(&before));
    // A liar.
    standing.cut();
    let mut standing = asked(&backend, "a");
    standing.chunk(&events("v=7 w=8 x=9 y=10"));
    let exchange = backend.next_of("GET");
    assert_eq!(exchange.head.get("last-event-id"), None, "without a cursor");
    let mut standing = exchange.stream();
    let last = resync(&mut client, "backend_restarted");
    assert_ne!(epoch_of(&last), epoch_of(&before));
    standing.chunk(&events("z=11"));
    message(&mut client, &note(11));
}

/// By default nothing is asked again: a break is a loss, and is said.
#[test]
fn by_default_a_break_is_a_loss() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open_at(&proxy, &backend, PRIMING, "t");
    let (mut client, _) = broken_call(&session, &backend, "p= a=1 b=2");
    assert_eq!(failed(client.event().data(), "1").0, "backend_lost");
    client.ended();
    assert!(backend.is_silent());
}

/// A server that replays what is stored and begins to send what is new a moment later: what was stored between is never
/// sent on that connection, and what comes next looks like the next. It is asked for, and comes in its place.
#[test]
fn what_was_stored_but_not_sent_is_not_lost() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    let (mut client, _) = broken_call(&session, &backend, "p= a=1");
    // The replay and its priming event; b is stored; c is sent as it comes.
    let mut exchange = asked(&backend, "p");
    exchange.chunk(&events("a=1 q="));
    exchange.chunk(&events("c=3"));
    // The same again: the replay has c, d is stored, e is sent.
    let mut exchange = asked(&backend, "p");
    exchange.chunk(&events("a=1 b=2 c=3 r="));
    exchange.chunk(&events("e=5"));
    let mut exchange = asked(&backend, "p");
    exchange.chunk(&events("a=1 b=2 c=3 d=4 e=5"));
    message(&mut client, &note(2));
    message(&mut client, &note(3));
    // The last one is not even followed by anything that is sent.
    let mut exchange = asked(&backend, "p");
    exchange.chunk(&events("a=1 b=2 c=3 d=4 e=5 s="));
    message(&mut client, &note(4));
    message(&mut client, &note(5));
    exchange.wait_closed();
    let all = events("a=1 b=2 c=3 d=4 e=5") + &event("f", &result("1"));
    gives_back(&backend, "p", &all);
    message(&mut client, &result("1"));
    client.ended();
    // The same on a standalone stream.
    let (mut client, mut standing) = session.listening(&backend);
    standing.chunk(&events("a=1 b=2"));
    message(&mut client, &note(1));
    message(&mut client, &note(2));
    standing.cut();
    let mut standing = asked(&backend, "a");
    standing.chunk(&events("b=2"));
    standing.chunk(&events("d=4"));
    let mut standing = asked(&backend, "a");
    standing.chunk(&events("b=2 c=3 d=4"));
    let mut standing = asked(&backend, "a");
    standing.chunk(&events("b=2 c=3 d=4"));
    for n in 3..=4 {
        message(&mut client, &note(n));
    }
    // Silence is asked too: what is stored may have nothing behind it.
    standing.wait_closed();
    let _standing = gives_back(&backend, "a", &events("b=2 c=3 d=4 e=5"));
    message(&mut client, &note(5));
}

/// A server that ends an answer to be polled has the same moment in which it stores and does not send.
#[test]
fn a_poll_is_proved_too() {
    let backend = Backend::start();
    let mut settings = PROVED.to_vec();
    settings.push("upstream.stream.polling=hold");
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    exchange.chunk("retry: 100\n\n").chunk(&events("p= a=1"));
    message(&mut client, &note(1));
    exchange.finish();
    session.logged(&proxy, "backend wants to be polled");
    let mut exchange = asked(&backend, "p");
    exchange.chunk(&events("a=1 q="));
    exchange.chunk(&events("c=3"));
    for _ in 0..2 {
        exchange = asked(&backend, "p");
        exchange.chunk(&events("a=1 b=2 c=3"));
    }
    message(&mut client, &note(2));
    message(&mut client, &note(3));
    // It wants to be polled again, more than once, and says nothing meanwhile but a new id.
    for id in ["r=", "s=", "t="] {
        exchange.chunk(&events(id));
        exchange.finish();
        exchange = asked(&backend, "p");
        exchange.chunk(&events("a=1 b=2 c=3"));
    }
    exchange.cut();
    let all = events("a=1 b=2 c=3") + &event("d", &result("1"));
    gives_back(&backend, "p", &all);
    message(&mut client, &result("1"));
    client.ended();
}

/// What was shown must be shown again: what a server sent and did not store, or stores elsewhere, proves nothing.
#[test]
fn what_is_shown_once_only_is_a_gap() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    for (first, second) in [
        ("a=1 b=2", "a=1"),
        ("a=1 c=3", "a=1 b=2"),
        ("a=1 b=2 c=3", "a=1 c=3 b=2"),
        ("a=1 b=2", "a=1 b=3"),
    ] {
        let (mut client, _) = broken_call(&session, &backend, "p= a=1");
        let mut shown = asked(&backend, "p");
        shown.chunk(&events(first));
        let mut shown_again = asked(&backend, "p");
        shown_again.chunk(&events(second));
        let error = client.event();
        assert_eq!(failed(error.data(), "1").0, "upstream_gap", "{first} / {second}");
        client.ended();
    }
    assert!(backend.is_silent());
}

/// A store that sorts events of one millisecond by chance may hide one behind the very id that it is asked from.
#[test]
fn a_store_without_an_order_is_not_asked() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &PROVED);
    let session = Session::open(&proxy, &backend);
    let sent = "s_1700000000000_k3x9q2ab= s_1700000000000_p0x9q2ab=1";
    let (mut client, _) = broken_call(&session, &backend, sent);
    assert_eq!(failed(client.event().data(), "1").0, "backend_lost");
    client.ended();
    assert!(backend.is_silent());
}

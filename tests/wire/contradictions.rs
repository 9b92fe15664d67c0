//! A backend that began anew and takes an old session for granted is found by what it says: an id of the session's that
//! stood for something else (wire contract, section 7).
//! Law: what a healthy server may do costs no session: another order, ids of its own for each connection, silence.
//! Next: `doubts.rs`.

use crate::backend::{Backend, Exchange};
use crate::client::Client;
use crate::loss::{TERMINATE, begun_anew, refused, runs};
use crate::proxy::Proxy;
use crate::session::{Session, another_call, epoch_of, failed, message, note, result, resync, verdict};

const DECLARED: &str = "upstream.event_store=per-session";
const PROVED: &str = "upstream.stream.reattach=proved";
const HELD: &str = "upstream.stream.polling=hold";

fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

/// `id=n` each.
fn events(spelled: &str) -> String {
    let each = |one: &str| {
        let (id, n) = one.split_once('=').expect("id=n");
        event(id, &note(n.parse().expect("a number")))
    };
    spelled.split_whitespace().map(each).collect()
}

fn says(client: &mut Client, standing: &mut Exchange, spelled: &str) {
    standing.chunk(&events(spelled));
    for one in spelled.split_whitespace() {
        let (_, n) = one.split_once('=').expect("id=n");
        message(client, &note(n.parse().expect("a number")));
    }
}

/// A call that its backend does not hear of, since its session was lost: the model is told.
fn is_refused(session: &Session, backend: &Backend) {
    refused(&mut session.post(&another_call("7")), "7");
    runs(session, backend, "second");
}

/// The standalone stream: a counter that began anew gives the first ids to other things, also when the first ones are
/// long out of the window of what it may say again.
#[test]
fn a_fresh_counter_on_the_standalone_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[DECLARED]);
    for had in [2, 120] {
        let session = Session::open(&proxy, &backend);
        session.is_alive(&backend);
        let (mut client, mut standing) = session.listening(&backend);
        for n in 1..=had {
            says(&mut client, &mut standing, &format!("0/{n}={n}"));
        }
        standing.cut();
        let mut standing = backend.next_of("GET").stream();
        resync(&mut client, "upstream_gap");
        // It answers the old session as if it knew it.
        standing.chunk(&events("0/1=501 0/2=502"));
        begun_anew(&backend, "second");
        // It may still hold something under the old id.
        let left = backend.next_of("DELETE");
        assert_eq!(left.head.get("mcp-session-id"), Some("backend-session"));
        left.answer(200, &[], "");
        let mut standing = backend.next_of("GET").stream();
        resync(&mut client, "backend_lost");
        // The new life counts as it likes.
        says(&mut client, &mut standing, "0/1=601");
        session.logged(&proxy, "backend contradicts what it said before: it began anew");
        is_refused(&session, &backend);
        backend.park(standing);
    }
}

/// A client that was away for so long that its stream was let go: what its backend said is not forgotten.
#[test]
fn a_fresh_counter_after_a_long_absence() {
    let backend = Backend::start();
    let settings = [DECLARED, "upstream.stream.detached_max=200ms"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    session.is_alive(&backend);
    let (mut client, mut standing) = session.listening(&backend);
    says(&mut client, &mut standing, "1=1 2=2");
    client.cut();
    session.logged(&proxy, "stream was let go");
    standing.wait_closed();
    let mut client = session.get();
    let mut standing = backend.next_of("GET").stream();
    verdict(&client.head());
    standing.chunk(&events("1=501"));
    begun_anew(&backend, "second");
    backend.next_of("DELETE").answer(200, &[], "");
    let mut standing = backend.next_of("GET").stream();
    while !client.event().data().contains("notifications/throughline/reset") {}
    is_refused(&session, &backend);
    standing.chunk(&events("1=601"));
    while client.event().data() != note(601) {}
}

/// A call that is asked for again with proof, and one that is polled: nothing of another life is told as its answer.
#[test]
fn a_fresh_counter_on_a_call() {
    for (settings, how) in [
        (&[DECLARED, PROVED][..], End::Broken),
        (&[DECLARED, PROVED, HELD], End::Polled),
        (&[DECLARED, HELD], End::Polled),
    ] {
        let backend = Backend::start();
        let proxy = Proxy::start(&[&backend.url()], settings);
        for (sent, again) in [
            // It happens to align with the end.
            ("2=2 3=3", "2=7 3=8 4=9"),
            ("1=1 2=2", "2=8 3=9"),
            ("1=1 2=2 3=3", "1=1 2=9"),
        ] {
            let session = Session::open(&proxy, &backend);
            let (mut client, mut exchange) = session.streaming_call(&backend, "1");
            exchange.chunk("id: p\nretry: 10\ndata: \n\n");
            says(&mut client, &mut exchange, sent);
            match how {
                End::Broken => exchange.cut(),
                End::Polled => exchange.finish(),
            }
            let mut exchange = backend.next_of("GET").stream();
            exchange.chunk(&(events(again) + &event("99", &result("1"))));
            begun_anew(&backend, "second");
            backend.next_of("DELETE").answer(200, &[], "");
            let error = loop {
                let event = client.event();
                if event.id().ends_with('~') {
                    break event;
                }
                assert_eq!(event.data(), note(1), "only what came again, and agreed");
            };
            let found = failed(error.data(), "1");
            assert_eq!(found, ("backend_restarted".into(), "unknown".into()), "{again}");
            client.ended();
            is_refused(&session, &backend);
        }
        assert!(backend.is_silent());
    }
}

/// How a backend's stream ends.
#[derive(Clone, Copy)]
enum End {
    Broken,
    Polled,
}

/// Where a session ends with its loss, it does.
#[test]
fn a_session_that_ends_by_it() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[DECLARED, TERMINATE]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    says(&mut client, &mut standing, "1=1");
    standing.cut();
    let mut standing = backend.next_of("GET").stream();
    resync(&mut client, "upstream_gap");
    standing.chunk(&events("1=2"));
    client.ended();
    session.is_gone();
}

/// What healthy servers do: nothing is lost by it.
#[test]
fn what_contradicts_nothing() {
    for (settings, again, told) in [
        // Nothing is declared: it may number each connection anew.
        (&[][..], "0/1=501 0/2=502", &[501, 502][..]),
        // Any replica takes any request, and has a store of its own.
        (
            &[DECLARED, "upstream.sessions=shared"],
            "0/1=501 0/2=502",
            &[501, 502],
        ),
        // A paused replica that is back says its cache again, or goes on.
        (&[DECLARED], "0/1=1 0/2=2 0/3=3", &[3]),
        (&[DECLARED], "0/3=3", &[3]),
        (&[DECLARED], "0/2=2 0/1=1 0/3=3", &[1, 3]),
        // Its cache was shorter than the break.
        (&[DECLARED], "0/90=90 0/91=91", &[90, 91]),
    ] {
        let backend = Backend::start();
        let proxy = Proxy::start(&[&backend.url()], settings);
        let session = Session::open(&proxy, &backend);
        session.is_alive(&backend);
        let (mut client, mut standing) = session.listening(&backend);
        says(&mut client, &mut standing, "0/1=1 0/2=2");
        standing.cut();
        let mut standing = backend.next_of("GET").stream();
        resync(&mut client, "upstream_gap");
        standing.chunk(&events(again));
        let mut epoch = String::new();
        for n in told {
            let id = message(&mut client, &note(*n)).id().to_owned();
            assert!(epoch.is_empty() || epoch_of(&id) == epoch, "{settings:?} {again}");
            epoch = epoch_of(&id).to_owned();
        }
        runs(&session, &backend, "backend-session");
        assert!(backend.is_silent(), "{settings:?} {again}");
    }
}

//! The one upstream GET of a session: when it is opened again, what a backend says again, and when that is given up
//! (wire contract, section 7).
//! Next: `between.rs`.

use crate::backend::{Backend, Exchange};
use crate::loss::{begun_anew, gone};
use crate::proxy::Proxy;
use crate::session::{Session, call, epoch_of, message, note, primed, resync, verdict};

/// What the proxy logs of a request that can't be sent yet.
const WAITS: &str = "a request waits for its session";

fn event(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

/// Answers every GET like this until something has happened.
fn refusing<T: Send>(backend: &Backend, status: u16, happens: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let waiting = scope.spawn(happens);
        while !waiting.is_finished() {
            if let Some(asked) = backend.try_next() {
                assert_eq!(
                    (asked.head.method(), asked.head.get("last-event-id")),
                    ("GET", None)
                );
                asked.answer(status, &[], "Conflict");
            }
        }
        waiting.join().expect("it happens")
    })
}

/// A backend that says its cache again to each new GET: what the client had is not said twice.
#[test]
fn what_a_backend_says_again_is_dropped() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let mut all = String::new();
    let mut epoch = String::new();
    for n in 1..=3 {
        let said = event(&format!("0/{n}"), &note(n));
        standing.chunk(&said);
        all.push_str(&said);
        let id = message(&mut client, &note(n)).id().to_owned();
        assert_ne!(
            epoch_of(&id),
            epoch,
            "each connection to the backend has an epoch of its own"
        );
        epoch = epoch_of(&id).to_owned();
        standing.cut();
        standing = backend.next_of("GET").stream();
        resync(&mut client, "upstream_gap");
        standing.chunk(&all);
    }
    // New data under an old id is new; and from then on nothing is taken for old.
    standing.chunk(&event("0/1", &note(7)));
    message(&mut client, &note(7));
    standing.chunk(&event("0/2", &note(2)));
    message(&mut client, &note(2));
}

/// A reset that a client brings about ends the epoch in the midst of a connection to the backend: what was said on it before
/// is known all the same when the backend says it again on the next.
#[test]
fn what_was_said_before_a_clients_reset_is_not_said_twice() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let said = event("0/1", &note(1));
    standing.chunk(&said);
    let cursor = message(&mut client, &note(1)).id().to_owned();
    let stream = cursor.strip_suffix(".1").expect("the first event");
    let mut client = session.resume(&format!("{stream}.99"));
    let head = client.head();
    assert!(verdict(&head).starts_with("reset"), "{}", verdict(&head));
    primed(&mut client);
    resync(&mut client, verdict(&head).trim_start_matches("reset "));
    standing.cut();
    let mut standing = backend.next_of("GET").stream();
    resync(&mut client, "upstream_gap");
    standing.chunk(&said);
    standing.chunk(&event("0/2", &note(2)));
    message(&mut client, &note(2));
}

/// A window may be smaller than what a backend says again, and lets go of what is old: it is known all the same.
#[test]
fn what_the_window_let_go_of_is_not_said_twice() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let said = |nth: u32| event(&format!("0/{nth}"), &note(nth));
    for nth in 1..=12 {
        standing.chunk(&said(nth));
        message(&mut client, &note(nth));
    }
    standing.cut();
    let mut standing = backend.next_of("GET").stream();
    resync(&mut client, "upstream_gap");
    for nth in 1..=13 {
        standing.chunk(&said(nth));
    }
    message(&mut client, &note(13));
}

/// The stream of a client that stayed away for too long is let go, and with it the log; what its backend said is known when
/// it says that again to the next one.
#[test]
fn what_was_said_before_a_stream_was_let_go_is_not_said_twice() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.detached_max=200ms"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let said = event("0/1", &note(1));
    standing.chunk(&said);
    let cursor = message(&mut client, &note(1)).id().to_owned();
    drop(client);
    standing.wait_closed();
    let mut client = session.resume(&cursor);
    let mut standing = backend.next_of("GET").stream();
    let head = client.head();
    assert_eq!(verdict(&head), "reset evicted");
    primed(&mut client);
    resync(&mut client, "evicted");
    standing.chunk(&said);
    standing.chunk(&event("0/2", &note(2)));
    message(&mut client, &note(2));
}

/// A stream that begins while its session is being begun anew stands in the new life: what the new backend says there is
/// new, though the old one said the same under the same id.
#[test]
fn what_one_life_said_is_new_in_the_next() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.detached_max=200ms"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut standing) = session.listening(&backend);
    let said = event("0/1", &note(1));
    standing.chunk(&said);
    let cursor = message(&mut client, &note(1)).id().to_owned();
    drop(client);
    standing.wait_closed();
    let _call = session.post(&call("1"));
    gone(backend.next_of("POST"));
    session.logged(&proxy, WAITS);
    let mut client = session.resume(&cursor);
    session.logged(&proxy, WAITS);
    begun_anew(&backend, "backend-2");
    let mut standing = backend.next_of("GET").stream();
    let head = client.head();
    assert_eq!(verdict(&head), "reset evicted");
    primed(&mut client);
    resync(&mut client, "evicted");
    standing.chunk(&said);
    message(&mut client, &note(1));
}

/// S5: a predecessor that the backend believes in for ever: the session is lost, and that is said.
#[test]
fn a_backend_that_never_lets_us_in_again() {
    let backend = Backend::start();
    let settings = [
        "upstream.stream.get_refused_max=500ms",
        "upstream.session.on_session_loss=terminate",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    for status in [409, 400] {
        let session = Session::open(&proxy, &backend);
        let (mut client, standing) = session.listening(&backend);
        standing.cut();
        refusing(&backend, status, || client.ended());
        session.is_gone();
    }
    // Another proxy may hold it: refused from the first.
    let session = Session::open(&proxy, &backend);
    let mut client = session.get();
    refusing(&backend, 409, || {
        verdict(&client.head());
        assert!(client.event().is_prime());
        client.ended();
    });
    session.is_gone();
}

/// A backend that never had such a stream may say so with any status: its calls work all the same.
#[test]
fn other_refusals_cost_no_session() {
    let backend = Backend::start();
    let settings = ["upstream.stream.get_refused_max=100ms"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    for status in [400, 404, 500, 501] {
        let session = if status == 404 {
            // Without a session of its own a backend can't say that one is gone.
            Session::open_with(&proxy, &backend, (crate::session::PRIMING, "t"), &[])
        } else {
            Session::open(&proxy, &backend)
        };
        let mut client = session.get();
        for _ in 0..3 {
            backend.next_of("GET").answer(status, &[], "no");
        }
        let mut standing = backend.next_of("GET").stream();
        verdict(&client.head());
        assert!(client.event().is_prime());
        // It was told where the stream begins before that stood.
        resync(&mut client, "upstream_gap");
        standing.event(&note(1));
        message(&mut client, &note(1));
        backend.park(standing);
    }
}

/// Nobody asks a replica that is known to be away; when it is back, it is asked.
#[test]
fn a_replica_that_is_away_is_not_asked() {
    let backend = Backend::start();
    let settings = [
        "upstream.health.probe=/healthz",
        "upstream.health.interval=100ms",
        "upstream.health.timeout=100ms",
        "upstream.health.fall=1",
        "upstream.health.rise=1",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    // Probes are answered in between.
    let asked = |healthy: bool| -> Exchange {
        loop {
            let asked = backend.next();
            match asked.head.target() {
                "/healthz" => asked.answer(if healthy { 200 } else { 500 }, &[], ""),
                _ => return asked,
            }
        }
    };
    let probed = |healthy: bool, times: usize| {
        for _ in 0..times {
            let asked = backend.next();
            assert_eq!(
                asked.head.target(),
                "/healthz",
                "only probes come: {}",
                asked.head.start
            );
            asked.answer(if healthy { 200 } else { 500 }, &[], "");
        }
    };
    let mut client = proxy.connect();
    client.send("POST", &[], &crate::session::initialize("2025-11-25"));
    asked(true).answer(
        200,
        &[("content-type", "application/json"), ("mcp-session-id", "b")],
        &crate::session::initialized("2025-11-25"),
    );
    let token = client
        .whole()
        .head
        .get("mcp-session-id")
        .expect("a session")
        .to_owned();
    client.send("GET", &[("mcp-session-id", &token)], "");
    let standing = asked(true).stream();
    verdict(&client.head());
    assert!(client.event().is_prime());
    probed(false, 2);
    standing.cut();
    probed(false, 12);
    probed(true, 1);
    let _standing = asked(true).stream();
    resync(&mut client, "upstream_gap");
}

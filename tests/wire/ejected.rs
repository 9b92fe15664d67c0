//! Passive health: a replica whose exchanges fail gets no new session for a while (beside the probes).
//! Law: what counts is that nothing was answered; a status is an answer. One answer brings it back.
//! Next: `reload.rs`.

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{Session, call, failed, result};
use crate::status::{OPERATOR, ask, metric, replica};

const SETTINGS: [&str; 5] = [
    OPERATOR,
    "upstream.health.probe=off",
    "upstream.health.eject_after=2",
    "upstream.health.eject_time=1h",
    "upstream.health.eject_time_max=1h",
];

/// A backend that closes before it answers, again and again.
#[test]
fn a_replica_that_does_not_answer_is_ejected_and_an_answer_brings_it_back() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &SETTINGS);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    let _elsewhere = Session::open(&proxy, &two);
    // Two sessions: each asks its replica whether it knows it still before it sends anything more there.
    let other = Session::open(&proxy, &one);
    for (id, session) in [("1", &session), ("2", &other)] {
        let mut client = session.post(&call(id));
        one.next_of("POST").cut();
        assert_eq!(
            failed(&client.whole().body, id),
            ("backend_lost".into(), "unknown".into())
        );
    }
    let line = proxy.logged("replica was ejected");
    assert_eq!(
        (&line["upstream"], &line["why"]),
        (&"mcp".into(), &"unanswered".into())
    );
    assert_eq!(line["replica"], *one.address.to_string());
    assert_eq!(
        (&line["failures"], &line["for_ms"]),
        (&2.into(), &3_600_000.into())
    );
    assert!(
        line["error"]
            .as_str()
            .expect("an error")
            .starts_with("sent, outcome unknown")
    );
    let seen = replica(operator, &one);
    assert_eq!(seen["state"], "ejected");
    assert!(seen["for_ms"].as_u64().expect("a time") > 0 && seen["last_error"].is_string());
    let counted = "throughline_replica_ejections_total{upstream=\"mcp\",why=\"unanswered\"}";
    assert_eq!(metric(operator, counted).as_deref(), Some("1"));
    assert_eq!(
        ask(operator, "GET", "/readyz").head.status(),
        200,
        "the other one is well"
    );
    for _ in 0..3 {
        Session::open(&proxy, &two).is_alive(&two);
    }
    // Its own session goes on there; an answer, whatever its status, is a sign of life.
    let mut client = session.post(&call("3"));
    one.next_of("POST")
        .answer(500, &[("content-type", "text/plain")], "no");
    assert_eq!(client.whole().head.status(), 500);
    proxy.logged("replica takes new sessions again");
    assert_eq!(replica(operator, &one)["state"], "healthy");
    Session::open(&proxy, &one).is_alive(&one);
}

/// Errors that a backend says are none of a replica's health.
#[test]
fn a_status_is_an_answer() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &SETTINGS);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    for status in [500, 502, 503, 429, 500] {
        let mut client = session.post(&call("1"));
        one.next_of("POST").answer(status, &[], "");
        assert_eq!(client.whole().head.status(), status);
    }
    assert_eq!(replica(operator, &one)["state"], "healthy");
    let _second = Session::open(&proxy, &two);
    Session::open(&proxy, &one).is_alive(&one);
}

/// One that refuses connections is not tried for each new session; a probe that passes brings it back.
#[test]
fn a_replica_that_refuses_is_ejected_and_a_probe_brings_it_back() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [
        OPERATOR,
        "upstream.balance=round_robin",
        "upstream.health.interval=2s",
        "upstream.health.fall=1000",
        "upstream.health.eject_after=2",
        "upstream.health.eject_time=1h",
        "upstream.health.eject_time_max=1h",
    ];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let operator = proxy.operator();
    let address = one.address;
    let port = one.close();
    // Each goes to the one that answers; the other one is passed over until it is not even tried.
    for _ in 0..4 {
        Session::open(&proxy, &two).is_alive(&two);
    }
    let line = proxy.logged("replica was ejected");
    assert_eq!(
        (&line["why"], &line["replica"]),
        (&"unreached".into(), &(*address.to_string()).into())
    );
    let one = Backend::start_at(port);
    proxy.logged("replica takes new sessions again");
    assert_eq!(replica(operator, &one)["state"], "healthy");
}

/// The last resort: a server whose every replica is ejected is still tried.
#[test]
fn the_only_replica_is_tried_although_it_is_ejected() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &SETTINGS);
    let sessions = [Session::open(&proxy, &backend), Session::open(&proxy, &backend)];
    for (id, session) in ["1", "2"].iter().zip(&sessions) {
        let mut client = session.post(&call(id));
        backend.next_of("POST").cut();
        client.whole();
    }
    proxy.logged("replica was ejected");
    let again = Session::open(&proxy, &backend);
    let mut client = again.post(&call("3"));
    backend.next_of("POST").json(&result("3"));
    assert_eq!(client.whole().body, result("3"));
}

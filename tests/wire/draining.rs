//! A replica is drained: by order or since it left the configuration (wire contract, section 7).
//! Law: no new session; the old ones, their calls and their streams go on until the deadline, and then are told.
//! Next: `ejected.rs`.

use std::net::SocketAddr;

use crate::backend::Backend;
use crate::loss::{begun_anew, runs};
use crate::proxy::Proxy;
use crate::session::{Session, call, failed, message, note, result, resync};
use crate::status::{OPERATOR, ask, metric, replica, status};

fn order(operator: SocketAddr, backend: &Backend, what: &str) -> String {
    let whole = ask(
        operator,
        "POST",
        &format!("/replicas/mcp/{}/{what}", backend.address),
    );
    assert_eq!(whole.head.status(), 200, "{whole:?}");
    whole.body
}

/// The heart of a rolling deploy: new sessions go elsewhere, the old one does not notice.
#[test]
fn a_drained_replica_keeps_its_sessions_and_gets_no_new_one() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &[OPERATOR]);
    let operator = proxy.operator();
    let old = Session::open(&proxy, &one);
    let (mut client, mut exchange) = old.streaming_call(&one, "1");
    let said = order(operator, &one, "drain");
    assert!(said.contains("1 sessions have 300 s"), "{said}");
    assert!(order(operator, &one, "drain").contains("draining already"));
    let seen = replica(operator, &one);
    assert_eq!(
        (&seen["state"], &seen["sessions"]),
        (&"draining".into(), &1.into())
    );
    let healthy = format!(
        "throughline_replica_healthy{{upstream=\"mcp\",replica=\"{}\"}}",
        one.address
    );
    assert_eq!(metric(operator, &healthy).as_deref(), Some("0"));
    for _ in 0..4 {
        Session::open(&proxy, &two).is_alive(&two);
    }
    exchange.event(&note(1));
    message(&mut client, &note(1));
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    exchange.finish();
    old.is_alive(&one);
    // Taken back, it is the one with the fewest sessions.
    assert!(order(operator, &one, "undrain").contains("takes new sessions again"));
    assert!(order(operator, &one, "undrain").contains("was not being drained"));
    Session::open(&proxy, &one).is_alive(&one);
    assert_eq!(ask(operator, "GET", "/readyz").body, "ready\n");
}

/// At the deadline its sessions are lost, and each open call is told; the others lose nothing.
#[test]
fn at_the_deadline_its_sessions_are_lost_and_told() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [
        OPERATOR,
        "upstream.drain_deadline=0s",
        "upstream.session.on_session_loss=terminate",
    ];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let operator = proxy.operator();
    let old = Session::open(&proxy, &one);
    let other = Session::open(&proxy, &two);
    let (mut client, _exchange) = old.streaming_call(&one, "1");
    order(operator, &one, "drain");
    assert_eq!(
        failed(client.event().data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    client.ended();
    assert_eq!(
        proxy.logged("replica was drained; sessions were lost")["sessions"],
        1
    );
    old.is_gone();
    other.is_alive(&two);
    assert_eq!(replica(operator, &one)["state"], "drained");
    Session::open(&proxy, &two).is_alive(&two);
    // Its old tokens stay dead; new sessions are welcome again.
    order(operator, &one, "undrain");
    old.is_gone();
    Session::open(&proxy, &one).is_alive(&one);
}

/// Where lost sessions go on, those of a drained replica go on at another one, under the same id.
#[test]
fn at_the_deadline_its_sessions_go_on_elsewhere() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [OPERATOR, "upstream.drain_deadline=0s"];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    let (mut client, standing) = session.listening(&one);
    order(operator, &one, "drain");
    begun_anew(&two, "second");
    let _standing_anew = two.next_of("GET").stream();
    resync(&mut client, "backend_lost");
    proxy.logged("lost session goes on");
    runs(&session, &two, "second");
    drop(standing);
}

/// A session that is known from its token only is taken up on a draining replica, and not on a drained one.
#[test]
fn a_token_is_taken_up_until_the_deadline() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [OPERATOR, "upstream.drain_deadline=1h"];
    let first = Proxy::start(&[&one.url(), &two.url()], &settings);
    let session = Session::open(&first, &one);
    let second = Proxy::start(&[&one.url(), &two.url()], &settings);
    order(second.operator(), &one, "drain");
    session.on(&second).is_alive(&one);
    let third = Proxy::start(
        &[&one.url(), &two.url()],
        &[OPERATOR, "upstream.drain_deadline=0s"],
    );
    order(third.operator(), &one, "drain");
    third.logged("replica was drained");
    session.on(&third).is_gone();
    assert!(one.is_silent());
}

/// Where no replica owns a session, none is lost.
#[test]
fn sessions_that_no_replica_owns_lose_nothing() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [OPERATOR, "upstream.sessions=shared", "upstream.drain_deadline=0s"];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let operator = proxy.operator();
    let session = Session::open(&proxy, &one);
    order(operator, &one, "drain");
    for _ in 0..3 {
        session.is_alive(&two);
    }
    assert_eq!(status(operator)["upstreams"][0]["sessions"], 1);
    let mut deleting = session.delete();
    two.next_of("DELETE").answer(200, &[], "");
    assert_eq!(deleting.whole().head.status(), 200);
    assert!(one.is_silent());
}

/// With every replica drained, a new session is refused and told when to come again, and readiness says why.
#[test]
fn with_every_replica_drained_new_sessions_are_refused() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[OPERATOR]);
    let operator = proxy.operator();
    let old = Session::open(&proxy, &backend);
    order(operator, &backend, "drain");
    let mut client = proxy.connect();
    client.send("POST", &[], &crate::session::initialize(crate::session::PRIMING));
    let whole = client.whole();
    assert_eq!(whole.head.status(), 503);
    assert!(whole.head.get("retry-after").is_some());
    let whole = ask(operator, "GET", "/readyz");
    assert_eq!(whole.head.status(), 503);
    assert!(
        whole.body.contains(&format!("{} draining", backend.address)),
        "{}",
        whole.body
    );
    let mut client = old.post(&call("5"));
    backend.next_of("POST").json(&result("5"));
    assert_eq!(client.whole().body, result("5"));
}

/// `drain = true` in the file: also after a restart, whose tokens still lead there until the deadline.
#[test]
fn a_replica_is_drained_by_the_file() {
    let (one, two) = (Backend::start(), Backend::start());
    let first = Proxy::start(&[&one.url()], &[]);
    let session = Session::open(&first, &one);
    let replicas = |drain: bool| {
        let (one, two) = (one.url(), two.url());
        format!("upstream.replicas=[{{ url = '{one}', drain = {drain} }}, '{two}']")
    };
    let proxy = Proxy::start(&[&one.url()], &[OPERATOR, &replicas(true)]);
    let operator = proxy.operator();
    assert_eq!(replica(operator, &one)["state"], "draining");
    for _ in 0..3 {
        Session::open(&proxy, &two).is_alive(&two);
    }
    session.on(&proxy).is_alive(&one);
    let other = Proxy::start(&[&one.url()], &[OPERATOR, &replicas(false)]);
    session.on(&other).is_alive(&one);
    assert_eq!(replica(other.operator(), &one)["state"], "healthy");
}

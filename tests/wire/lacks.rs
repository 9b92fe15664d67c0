//! What the proxy's own machine lacks: it is no replica's fault, costs no session, and is said (wire contract, section 6).
//! Law: a call that could not be sent for want of something here is answered so, and calling again is safe.
//! Next: `ejected.rs`.

use std::net::TcpStream;

use crate::backend::Backend;
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{Session, another_call, failed, initialize, result};

/// No connection to the backend is kept, and one failure ejects. Nothing probes: a probe that ends gives its descriptor
/// back, and a call could take it.
const TOUCHY: [&str; 3] = [
    "upstream.exchange.idle_connections_max=0",
    "upstream.health.eject_after=1",
    "upstream.health.probe=off",
];
/// One failed probe is enough.
const PROBED: [&str; 3] = [
    "upstream.health.interval=100ms",
    "upstream.health.timeout=100ms",
    "upstream.health.fall=1",
];

/// More calls than descriptors that may be given back meanwhile.
const CALLS: usize = 8;

/// Connections that take every descriptor that the proxy may have.
const CROWD: usize = 96;

/// Out of descriptors, calls are answered with `overloaded`; the replica stays in the choice and the session alive.
#[test]
fn a_replica_is_not_blamed_for_missing_descriptors() {
    let backend = Backend::start();
    let proxy = Proxy::start_with_files(48, &[&backend.url()], &TOUCHY);
    let session = Session::open(&proxy, &backend);
    let mut clients = [(); CALLS].map(|()| proxy.connect());
    let mut last = proxy.connect();
    let crowd = crowd(&proxy);
    // A call may find a descriptor that an earlier exchange gave back. It keeps it then, so that no other one does.
    let mut ran = Vec::new();
    let mut refused = 0;
    for (id, client) in (1..).zip(&mut clients) {
        session.send_on(client, "POST", &[], &another_call(&id.to_string()));
        let exchange = loop {
            match backend.try_next() {
                None if has_answer(client) => break None,
                None => {}
                exchange => break exchange,
            }
        };
        if let Some(exchange) = exchange {
            ran.push(exchange);
            continue;
        }
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200);
        assert_eq!(
            failed(&whole.body, &id.to_string()),
            ("overloaded".into(), "not_executed".into())
        );
        refused += 1;
    }
    assert!(refused > 0, "{} calls ran", ran.len());
    let said = proxy.logged("connections to replicas can't be opened");
    assert_eq!(
        (&said["level"], &said["lacks"]),
        (&"WARN".into(), &"descriptors".into())
    );
    assert!(said["advice"].as_str().expect("advice").contains("ulimit -n"));
    last.send("POST", &[], &initialize("2025-11-25"));
    let refused = last.whole();
    assert_eq!(refused.head.status(), 503);
    assert!(refused.head.get("retry-after").is_some());
    drop(crowd);
    for exchange in ran {
        exchange.json(&result("0"));
    }
    blames_nobody(&proxy, &session, &backend);
    assert!(!proxy.has_logged("connections to replicas can't be opened"));
}

/// Probes that can't be sent say nothing of their replica.
#[test]
fn a_replica_is_not_blamed_for_probes_that_are_not_sent() {
    let backend = Backend::start();
    let proxy = Proxy::start_with_files(48, &[&backend.url()], &PROBED);
    let session = Session::open(&proxy, &backend);
    let crowd = crowd(&proxy);
    for _ in 0..3 {
        proxy.logged("replica could not be probed");
    }
    drop(crowd);
    blames_nobody(&proxy, &session, &backend);
}

/// Whether something of its answer is there.
fn has_answer(client: &Client) -> bool {
    let stream = &client.peer.stream;
    stream.set_nonblocking(true).expect("it does not wait");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("it waits");
    peeked.is_ok_and(|bytes| bytes > 0)
}

fn crowd(proxy: &Proxy) -> Vec<TcpStream> {
    let crowd = (0..CROWD)
        .map(|_| TcpStream::connect(proxy.address).expect("it is queued"))
        .collect();
    proxy.logged("client connections can't be accepted");
    crowd
}

fn blames_nobody(proxy: &Proxy, session: &Session, backend: &Backend) {
    session.is_alive(backend);
    // Its line comes behind all that were written meanwhile.
    Session::open(proxy, backend).is_alive(backend);
    for line in [
        "replica became unhealthy",
        "replica was ejected",
        "replica passed over",
        "session was lost by its backend",
    ] {
        assert!(!proxy.has_logged(line), "{line}");
    }
}

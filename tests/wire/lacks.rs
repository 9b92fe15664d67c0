//! What the proxy's own machine lacks: it is no replica's fault, costs no session, and is said (wire contract, section 6).
//! Law: a call that could not be sent for want of something here is answered so, and calling again is safe.
//! Next: `ejected.rs`.

use std::net::TcpStream;

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{Session, another_call, failed, initialize, result};

/// No connection to the backend is kept, one failure ejects, and one failed probe is enough.
const TOUCHY: [&str; 5] = [
    "upstream.exchange.idle_connections_max=0",
    "upstream.health.eject_after=1",
    "upstream.health.interval=100ms",
    "upstream.health.timeout=100ms",
    "upstream.health.fall=1",
];

/// Connections that take every descriptor that the proxy may have.
const CROWD: usize = 96;

/// Out of descriptors, calls are answered with `overloaded`; the replica stays in the choice and the session alive.
#[test]
fn a_replica_is_not_blamed_for_missing_descriptors() {
    let backend = Backend::start();
    let proxy = Proxy::start_with_files(48, &[&backend.url()], &TOUCHY);
    let session = Session::open(&proxy, &backend);
    let mut client = proxy.connect();
    session.send_on(&mut client, "POST", &[], &another_call("1"));
    backend.next_of("POST").json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    let crowd: Vec<TcpStream> = (0..CROWD)
        .map(|_| TcpStream::connect(proxy.address).expect("it is queued"))
        .collect();
    proxy.logged("client connections can't be accepted");
    for n in 2..=4 {
        let id = n.to_string();
        session.send_on(&mut client, "POST", &[], &another_call(&id));
        let whole = client.whole();
        assert_eq!(whole.head.status(), 200);
        assert_eq!(
            failed(&whole.body, &id),
            ("overloaded".into(), "not_executed".into())
        );
    }
    let said = proxy.logged("connections to replicas can't be opened");
    assert_eq!(
        (&said["level"], &said["lacks"]),
        (&"WARN".into(), &"descriptors".into())
    );
    assert!(said["advice"].as_str().expect("advice").contains("ulimit -n"));
    client.send("POST", &[], &initialize("2025-11-25"));
    let refused = client.whole();
    assert_eq!(refused.head.status(), 503);
    assert!(refused.head.get("retry-after").is_some());
    for _ in 0..3 {
        proxy.logged("replica could not be probed");
    }
    drop(crowd);
    session.is_alive(&backend);
    // Its line comes behind all that were written meanwhile.
    Session::open(&proxy, &backend).is_alive(&backend);
    for line in [
        "replica became unhealthy",
        "replica was ejected",
        "replica passed over",
        "session was lost by its backend",
        "connections to replicas can't be opened",
    ] {
        assert!(!proxy.has_logged(line), "{line}");
    }
}

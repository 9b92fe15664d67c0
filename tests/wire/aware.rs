//! The aware client of `examples/aware.rs` against the real binary: resumed, re-originated, refused, read again.
//! Law: it leaves by itself and comes back when told, so that the proxy's log, and no clock, says what it missed.
//! Next: `../aware.rs`, which holds the check in other languages against the same one.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::json;
use throughline::guard::{Cause, Ground, Standing, Violation};
use throughline::pure::epoch::Reason;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::backend::{Backend, Exchange};
use crate::peer::DEADLINE;
use crate::proxy::Proxy;
use crate::session::{PRIMING, initialized, result};

#[path = "../../examples/aware.rs"]
mod client;

use client::{Aware, Said};

/// The client in its own thread: it listens when it is told to, and leaves at this order.
struct Listener {
    leave_at: UnboundedSender<u64>,
    said: Receiver<Said>,
}

impl Listener {
    fn start(address: SocketAddr) -> Self {
        // A runtime that waits in any other way would not close the connections that it left.
        let (leave_at, mut orders) = unbounded_channel();
        let (say, said) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let aware = Aware::open(&format!("http://{address}/mcp")).await;
                let mut aware = aware.expect("a session");
                while let Some(last) = orders.recv().await {
                    let listened = aware.listen(|what| {
                        let leave = order_of(&what) == Some(last);
                        let _test_over = say.send(what);
                        if leave {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    });
                    let flow = listened.await.expect("the stream is read");
                    assert_eq!(flow, ControlFlow::Break(()), "it leaves by itself");
                }
            });
        });
        Self { leave_at, said }
    }

    fn listen_until(&self, order: u64) {
        self.leave_at.send(order).expect("the client lives");
    }

    fn next(&self) -> Said {
        self.said
            .recv_timeout(DEADLINE)
            .expect("the client says something")
    }

    /// It runs these orders next.
    fn runs(&self, orders: std::ops::RangeInclusive<u64>) {
        for order in orders {
            let said = self.next();
            assert!(
                matches!(said, Said::Ran(_)) && order_of(&said) == Some(order),
                "{said:?}"
            );
        }
    }
}

fn order_of(said: &Said) -> Option<u64> {
    match said {
        Said::Ran(message) | Said::Skipped(message) | Said::Refused(message, _) => {
            message["params"]["data"]["order"].as_u64()
        }
        Said::Stands(_) | Said::Reread => None,
    }
}

fn order(number: u64) -> String {
    let params = json!({ "level": "info", "data": { "order": number } });
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params }).to_string()
}

fn unkeyed() -> String {
    json!({ "jsonrpc": "2.0", "method": "notifications/x", "params": {} }).to_string()
}

/// A client that has opened its session and its stream, and the backend's side of that.
fn listening(proxy: &Proxy, backend: &Backend) -> (Listener, String, Exchange) {
    let client = Listener::start(proxy.address);
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "backend-session"),
    ];
    backend.next().answer(200, &fields, &initialized(PRIMING));
    backend.next().answer(202, &[], "");
    let label = proxy.logged("session began")["session"]
        .as_str()
        .expect("a label")
        .to_owned();
    client.listen_until(2);
    let stream = backend.next_of("GET").stream();
    assert_eq!(client.next(), Said::Stands(Standing::Continuous(Ground::Live)));
    (client, label, stream)
}

#[test]
fn an_aware_client_runs_what_was_resumed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let (client, label, mut stream) = listening(&proxy, &backend);
    stream.event(&order(1)).event(&order(2));
    client.runs(1..=2);
    proxy.logged_of(&label, "client left");
    stream.event(&order(3)).event(&unkeyed());
    client.listen_until(4);
    let Said::Stands(_) = client.next() else {
        panic!("the connection is answered")
    };
    client.runs(3..=3);
    assert!(matches!(client.next(), Said::Ran(_)), "what has no key runs too");
    stream.event(&order(4));
    client.runs(4..=4);
}

/// The backend's stream breaks: the client is told on its connection, and reads again before it runs anything on.
#[test]
fn an_aware_client_reads_again_when_continuity_is_lost() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let (client, _, mut stream) = listening(&proxy, &backend);
    stream.event(&order(1));
    client.runs(1..=1);
    stream.cut();
    let mut stream = backend.next_of("GET").stream();
    backend.next_of("POST").json(&result("1"));
    let told = Cause::Told(Reason::UpstreamGap);
    loop {
        match client.next() {
            Said::Reread => break,
            // What the proxy asks to be read again may run as often as it comes; its warning has no key.
            Said::Ran(message) => {
                let method = message["method"].as_str().unwrap_or_default();
                assert!(method.ends_with("changed"), "{message}");
            }
            Said::Refused(_, violation) => assert_eq!(violation, Violation::Unkeyed(told)),
            other @ (Said::Stands(_) | Said::Skipped(_)) => panic!("{other:?}"),
        }
    }
    stream.event(&order(1)).event(&order(2));
    loop {
        let said = client.next();
        assert!(matches!(said, Said::Ran(_)), "{said:?}");
        if order_of(&said) == Some(2) {
            break;
        }
    }
}

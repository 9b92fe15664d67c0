//! SIGTERM: who is sent away, who is waited for, and what the process says at its end (wire contract, section 7).
//! Law: whoever is sent away has whole frames and a clean end; the exit code says whether anything was cut.
//! Next: `doors.rs`.

use crate::backend::Backend;
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{Session, call, failed, message, note, primed, result, verdict};

/// Reads a listener's last words: a `retry` between once and twice the base, and a clean end.
fn sent_away(client: &mut Client) {
    let retry = client.event();
    let millis: u64 = retry
        .retry
        .as_deref()
        .expect("a retry")
        .parse()
        .expect("a number");
    assert!((1_000..2_000).contains(&millis), "{millis}");
    assert_eq!((retry.id, retry.data), (None, None));
    client.ended();
}

/// Reads the error of call 1, which had no answer when the time to drain was over.
fn is_told(client: &mut Client, proxy: Proxy) {
    let whole = client.whole();
    assert_eq!(whole.head.status(), 200);
    assert_eq!(failed(&whole.body, "1"), ("owner_lost".into(), "unknown".into()));
    assert_eq!(proxy.exit_code(), 5);
}

/// Listeners are sent away, whatever kind they are; then the process ends in order.
#[test]
fn listeners_are_sent_away() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut aside, mut standing) = session.listening(&backend);
    let mut receiver = session.get();
    assert_eq!(verdict(&receiver.head()), "live");
    primed(&mut receiver);
    let mut private = session.resume("0/1");
    assert_eq!(verdict(&private.head()), "reset cursor_unknown");
    primed(&mut private);
    standing.event(&note(1));
    message(&mut receiver, &note(1));
    proxy.terminate();
    sent_away(&mut receiver);
    sent_away(&mut aside);
    sent_away(&mut private);
    assert_eq!(proxy.exit_code(), 0);
}

/// A running call keeps its client and its backend until its response.
#[test]
fn a_running_call_is_waited_for() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    let mut json = session.post(&call("2"));
    let waiting = backend.next_of("POST");
    proxy.terminate();
    exchange.event(&note(1));
    message(&mut client, &note(1));
    waiting.json(&result("2"));
    assert_eq!(json.whole().body, result("2"));
    exchange.event(&result("1"));
    let last = message(&mut client, &result("1"));
    assert!(last.id().ends_with('~'));
    client.ended();
    exchange.finish();
    assert_eq!(proxy.exit_code(), 0);
}

/// A connection that is open already may still POST, and learns that it is the last time.
#[test]
fn posts_are_accepted_on_open_connections() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    let mut open = proxy.connect();
    session.send_on(&mut open, "POST", &[], &call("2"));
    let waiting = backend.next_of("POST");
    let (mut listener, _standing) = session.listening(&backend);
    proxy.terminate();
    // Whoever listens is sent away after the connections were told.
    sent_away(&mut listener);
    waiting.json(&result("2"));
    let whole = open.whole();
    assert_eq!(whole.body, result("2"));
    assert_eq!(whole.head.get("connection"), Some("close"));
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.ended();
    exchange.finish();
    assert_eq!(proxy.exit_code(), 0);
}

/// A call that runs on without its client counts: it may be on its way back.
#[test]
fn a_detached_call_is_waited_for() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (client, mut exchange) = session.streaming_call(&backend, "1");
    client.cut();
    session.client_left(&proxy);
    proxy.terminate();
    exchange.event(&result("1"));
    exchange.finish();
    assert_eq!(proxy.exit_code(), 0);
}

/// Past `drain_max`: what still runs gets `owner_lost`, and the exit code says that it was cut.
#[test]
fn a_call_that_runs_too_long_is_told() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["server.drain_max=300ms"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    proxy.terminate();
    let error = client.event();
    assert_eq!(failed(error.data(), "1"), ("owner_lost".into(), "unknown".into()));
    assert!(error.id().ends_with('~'));
    client.ended();
    exchange.wait_closed();
    assert_eq!(proxy.exit_code(), 5);
}

/// A second signal is somebody who will not wait: what runs is told at once, then the process ends.
#[test]
fn a_second_signal_cuts_the_drain_short_and_calls_are_told() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["server.drain_max=1h"]);
    let session = Session::open(&proxy, &backend);
    let (mut client, mut exchange) = session.streaming_call(&backend, "1");
    let mut waiting = session.post(&call("2"));
    let _unanswered = backend.next_of("POST");
    proxy.terminate();
    exchange.event(&note(1));
    message(&mut client, &note(1));
    proxy.signal("-TERM");
    let error = client.event();
    assert_eq!(failed(error.data(), "1"), ("owner_lost".into(), "unknown".into()));
    client.ended();
    let whole = waiting.whole();
    assert_eq!(failed(&whole.body, "2"), ("owner_lost".into(), "unknown".into()));
    assert_eq!(proxy.exit_code(), 5);
}

/// The same for a call whose head has not come: an error, not a lost connection (which kills some clients).
#[test]
fn a_call_without_a_head_that_runs_too_long_is_told() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["server.drain_max=300ms"]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    let _waiting = backend.next_of("POST");
    proxy.terminate();
    is_told(&mut client, proxy);
}

/// The same where its session has ended since: it is found among the live ones no more.
#[test]
fn a_call_that_outlives_its_session_and_runs_too_long_is_told() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["server.drain_max=300ms"]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    let _waiting = backend.next_of("POST");
    let mut ending = session.delete();
    backend.next_of("DELETE").answer(200, &[], "");
    assert_eq!(ending.whole().head.status(), 200);
    proxy.terminate();
    is_told(&mut client, proxy);
}

/// Nothing to wait for: it ends at once, idle connections and idle sessions notwithstanding.
#[test]
fn an_idle_proxy_ends() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut idle = proxy.connect();
    session.send_on(&mut idle, "POST", &[], &call("1"));
    backend.next().json(&result("1"));
    assert_eq!(idle.whole().head.status(), 200);
    let _never_used = proxy.connect();
    proxy.terminate();
    assert_eq!(proxy.exit_code(), 0);
}

/// A first GET whose backend has not answered when the drain begins is sent away too.
#[test]
fn a_waiting_listener_is_sent_away() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.get();
    let _waiting = backend.next_of("GET");
    session.is_alive(&backend);
    proxy.terminate();
    // A successor may serve already: nobody is told any more that nothing was written.
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
    sent_away(&mut client);
    assert_eq!(proxy.exit_code(), 0);
}

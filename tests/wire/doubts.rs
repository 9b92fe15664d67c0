//! A replica that was away, or broke a connection: one ping on the session decides whether it still has it. A backend
//! that started anew and takes old sessions for granted is known by its signs (wire contract, sections 6 and 7).
//! Next: `drains.rs`.

use crate::backend::{Backend, Exchange};
use crate::loss::{ANNOUNCE, REINITIALIZE, begun_anew, begun_anew_with, gone, not_run, refused, runs};
use crate::proxy::Proxy;
use crate::session::{
    PRIMING, Session, call, failed, initialize, initialized, message, note, result, resync,
};

const INSTANCE: &str = "upstream.session.instance_header=x-instance";
const LIST: &str = r#"{"jsonrpc":"2.0","id":40,"method":"tools/list"}"#;
const LISTED: &str = r#"{"jsonrpc":"2.0","id":40,"result":{}}"#;

/// The proxy asks whether the session is known here.
fn pinged(backend: &Backend, own_id: &str) -> Exchange {
    let asked = backend.next_of("POST");
    assert_eq!(
        asked.body,
        r#"{"jsonrpc":"2.0","id":"throughline-alive","method":"ping"}"#
    );
    assert_eq!(asked.head.get("mcp-session-id"), Some(own_id));
    asked
}

fn alive(exchange: Exchange, fields: &[(&str, &str)]) {
    let all = [&[("content-type", "application/json")], fields].concat();
    exchange.answer(
        200,
        &all,
        r#"{"jsonrpc":"2.0","id":"throughline-alive","result":{}}"#,
    );
}

/// A session whose backend just broke off the answer to a call: what comes next is in doubt.
fn in_doubt(proxy: &Proxy, backend: &Backend, fields: &[(&str, &str)]) -> Session {
    let all = [&[("mcp-session-id", "backend-session")], fields].concat();
    let session = Session::open_with(proxy, backend, (PRIMING, "wire-test/1"), &all);
    let (mut client, upstream) = session.streaming_call(backend, "1");
    upstream.cut();
    assert_eq!(failed(client.event().data(), "1").0, "backend_lost");
    client.ended();
    session
}

/// It knows the session: whatever broke, nothing is lost, and it is not asked again.
#[test]
fn a_replica_that_still_has_the_session() {
    let backend = Backend::start();
    backend.see_pings();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    // 2xx says so; a credential that is not accepted, or an error, says nothing else.
    for status in [200, 202, 401, 403, 405, 500] {
        let session = in_doubt(&proxy, &backend, &[]);
        let mut client = session.post(&call("2"));
        let asked = pinged(&backend, "backend-session");
        asked.answer(status, &[("www-authenticate", "Bearer")], "");
        let asked = backend.next_of("POST");
        assert_eq!(asked.body, call("2"), "{status}");
        asked.json(&result("2"));
        assert_eq!(client.whole().body, result("2"));
        runs(&session, &backend, "backend-session");
        assert!(backend.is_silent());
    }
}

/// It does not know it: found before anything was sent, so that what is no call is served at once by the new session.
#[test]
fn a_replica_that_has_lost_the_session() {
    let backend = Backend::start();
    backend.see_pings();
    let proxy = Proxy::start(&[&backend.url()], &[ANNOUNCE]);
    let session = in_doubt(&proxy, &backend, &[]);
    let mut list = session.post(LIST);
    gone(pinged(&backend, "backend-session"));
    begun_anew(&backend, "second");
    let asked = backend.next_of("POST");
    assert_eq!(
        (&*asked.body, asked.head.get("mcp-session-id")),
        (LIST, Some("second"))
    );
    asked.json(LISTED);
    assert_eq!(list.whole().body, LISTED);
    let mut client = session.post(&call("2"));
    refused(&mut client, "2");
    runs(&session, &backend, "second");
    assert!(backend.is_silent());
}

/// A replica that was refused and is back with its sessions, as a paused one is: nothing is lost, nobody is told.
#[test]
fn a_replica_that_comes_back_with_its_sessions() {
    let backend = Backend::start();
    let settings = ["upstream.exchange.post_idle_max=0s", "upstream.health.probe=off"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let sessions = [Session::open(&proxy, &backend), Session::open(&proxy, &backend)];
    let port = backend.close();
    let mut client = sessions[0].post(&call("2"));
    sessions[0].logged(&proxy, "backend did not answer");
    let backend = Backend::start_at(port);
    backend.see_pings();
    alive(pinged(&backend, "backend-session"), &[]);
    let asked = backend.next();
    assert_eq!(asked.body, call("2"));
    asked.json(&result("2"));
    assert_eq!(client.whole().body, result("2"));
    // The other one asks when it is used next, once.
    let mut client = sessions[1].post(&call("3"));
    alive(pinged(&backend, "backend-session"), &[]);
    backend.next().json(&result("3"));
    assert_eq!(client.whole().body, result("3"));
    for session in &sessions {
        runs(session, &backend, "backend-session");
    }
    assert!(backend.is_silent());
}

/// A replica that accepts connections and says nothing decides nothing: what is asked waits for it as it always did.
#[test]
fn a_paused_replica_is_no_loss() {
    let backend = Backend::start();
    backend.see_pings();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.exchange.replica_retry_max=4s"]);
    let session = in_doubt(&proxy, &backend, &[]);
    let mut client = session.post(LIST);
    let unanswered = pinged(&backend, "backend-session");
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, LIST);
    drop(unanswered);
    asked.json(LISTED);
    assert_eq!(client.whole().body, LISTED);
    runs(&session, &backend, "backend-session");
}

/// It answers 200 for a session that it can't know: the instance header tells, before anything is executed.
#[test]
fn a_backend_that_takes_old_sessions_for_granted() {
    let backend = Backend::start();
    backend.see_pings();
    let proxy = Proxy::start(&[&backend.url()], &[INSTANCE]);
    let (first, second) = (("x-instance", "a"), ("x-instance", "b"));
    let session = in_doubt(&proxy, &backend, &[first]);
    let mut client = session.post(&call("2"));
    alive(pinged(&backend, "backend-session"), &[second]);
    begun_anew_with(&backend, "second", &[second]);
    // What the backend may hold under the old id is given back.
    let left = backend.next_of("DELETE");
    assert_eq!(left.head.get("mcp-session-id"), Some("backend-session"));
    left.answer(200, &[], "");
    refused(&mut client, "2");
    // The new session has its own sign.
    let mut client = session.post(&call("3"));
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, call("3"));
    asked.answer(200, &[("content-type", "application/json"), second], &result("3"));
    assert_eq!(client.whole().body, result("3"));
    assert!(backend.is_silent());
}

/// Nothing was seen before, and a call was executed by another start: its result means nothing, and is not passed on.
#[test]
fn what_another_start_of_the_backend_answered_is_not_passed_on() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[INSTANCE]);
    let fields = [("mcp-session-id", "backend-session"), ("x-instance", "a")];
    let session = Session::open_with(&proxy, &backend, (PRIMING, "wire-test/1"), &fields);
    let mut client = session.post(&call("1"));
    let other = [("content-type", "application/json"), ("x-instance", "b")];
    backend.next().answer(200, &other, &result("1"));
    assert_eq!(
        failed(&client.whole().body, "1"),
        ("backend_lost".into(), "unknown".into())
    );
    begun_anew_with(&backend, "second", &[("x-instance", "b")]);
    backend.next_of("DELETE").answer(200, &[], "");
    let mut client = session.post(&call("2"));
    refused(&mut client, "2");
    // An answer without the field contradicts nothing.
    runs(&session, &backend, "second");
    assert!(backend.is_silent());
}

/// Another client's `initialize` shows that another server is there now: the sessions of the old one are in doubt, and
/// a ping that is answered does not save them.
#[test]
fn a_backend_that_is_another_server_now() {
    let backend = Backend::start();
    backend.see_pings();
    let proxy = Proxy::start(&[&backend.url()], &[REINITIALIZE]);
    let session = Session::open(&proxy, &backend);
    let newer = initialized(PRIMING).replace(r#""version":"1""#, r#""version":"2""#);
    let mut client = proxy.connect();
    client.send("POST", &[], &initialize(PRIMING));
    let fields = [
        ("content-type", "application/json"),
        ("mcp-session-id", "another"),
    ];
    backend.next().answer(200, &fields, &newer);
    client.whole();
    let mut client = session.post(&call("1"));
    alive(pinged(&backend, "backend-session"), &[]);
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, initialize(PRIMING));
    let fields = [("content-type", "application/json"), ("mcp-session-id", "second")];
    asked.answer(200, &fields, &newer);
    backend.next_of("POST").answer(202, &[], "");
    backend.next_of("DELETE").answer(200, &[], "");
    // Nothing of it had been written.
    let asked = backend.next_of("POST");
    assert_eq!(
        (&*asked.body, asked.head.get("mcp-session-id")),
        (&*call("1"), Some("second"))
    );
    asked.json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    assert!(backend.is_silent());
}

/// A listener whose stream broke learns of it without asking anything: the GET that is opened again finds out.
#[test]
fn a_listener_finds_a_backend_that_started_anew() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, standing) = session.listening(&backend);
    standing.cut();
    gone(backend.next_of("GET"));
    begun_anew(&backend, "second");
    let mut standing = backend.next_of("GET").stream();
    assert_eq!(standing.head.get("mcp-session-id"), Some("second"));
    resync(&mut listener, "backend_lost");
    standing.event(&note(1));
    message(&mut listener, &note(1));
}

/// A crowd of sessions of a replica that is back: few of them ask at a time, each once.
#[test]
fn a_crowd_asks_a_few_at_a_time() {
    const CROWD: usize = 40;
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.exchange.replica_retry_max=1m"]);
    backend.see_pings();
    let sessions: Vec<_> = (0..CROWD).map(|_| in_doubt(&proxy, &backend, &[])).collect();
    let mut clients: Vec<_> = sessions.iter().map(|session| session.post(LIST)).collect();
    for session in &sessions {
        session.logged(&proxy, "a request waits for its session");
    }
    let mut asking: Vec<_> = (0..16).map(|_| pinged(&backend, "backend-session")).collect();
    // Each that is answered lets its own request go, and one more ask.
    let (mut pings, mut lists) = (16, 0);
    while lists < CROWD {
        if let Some(ping) = asking.pop() {
            alive(ping, &[]);
        }
        let came = backend.next();
        if came.body == LIST {
            came.json(LISTED);
            lists += 1;
        } else {
            pings += 1;
            asking.push(came);
        }
        assert!(asking.len() <= 16, "no more than a few ask at a time");
    }
    assert_eq!(pings, CROWD, "each asks once");
    for client in &mut clients {
        assert_eq!(client.whole().body, LISTED);
    }
}

/// Where any replica takes any request there is nothing that only one of them knows.
#[test]
fn shared_sessions_are_in_no_doubt() {
    let backend = Backend::start();
    backend.see_pings();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.sessions=shared", INSTANCE]);
    let session = in_doubt(&proxy, &backend, &[("x-instance", "a")]);
    let mut client = session.post(LIST);
    let asked = backend.next();
    assert_eq!(asked.body, LIST);
    asked.answer(
        200,
        &[("content-type", "application/json"), ("x-instance", "b")],
        LISTED,
    );
    assert_eq!(client.whole().body, LISTED);
    // A session that is gone from what they share is lost like any other.
    let mut client = session.post(&LIST.replace("40", "41"));
    gone(backend.next());
    begun_anew(&backend, "second");
    not_run(&client.whole(), "41");
}

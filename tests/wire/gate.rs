//! Who may be answered from memory: credentials, and the ping that proves them (wire contract, section 9).
//! Law: whoever was not accepted by the backend learns nothing, ends nothing, and disturbs nobody who was.
//! Next: `../interop.rs`, where real clients and servers speak.

use std::time::Instant;

use crate::backend::{Backend, Exchange, is_proof};
use crate::client::Client;
use crate::proxy::Proxy;
use crate::session::{
    Fields, PRIMING, Session, another_call, call, failed, message, note, primed, result, says_gone, verdict,
};

const OWN: Fields<'static> = &[("authorization", "Bearer own")];
const OTHER: Fields<'static> = &[("authorization", "Bearer other")];

/// A JWT with this payload, in `Authorization`.
fn jwt(payload: &str) -> String {
    use base64::Engine;
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(payload);
    format!("Bearer eyJhbGciOiJub25lIn0.{payload}.c2ln")
}

/// A session that was opened with these fields.
fn opened(proxy: &Proxy, backend: &Backend, fields: Fields<'_>) -> Session {
    let json = [("mcp-session-id", "backend-session")];
    Session::open_as(proxy, backend, (PRIMING, "wire-test/1"), (fields, &json))
}

/// A resume by this client.
fn resume(session: &Session, fields: Fields<'_>, cursor: &str) -> Client {
    let mut all = vec![("last-event-id", cursor)];
    all.extend(fields);
    session.send("GET", &all, "")
}

/// A call that streams, by this client; and a cursor after its first event.
fn streaming(session: &Session, backend: &Backend, fields: Fields<'_>) -> (Client, Exchange, String) {
    let mut client = session.send("POST", fields, &call("1"));
    let mut exchange = backend.next_of("POST").stream();
    client.head();
    primed(&mut client);
    exchange.event(&note(1)).event(&note(2));
    let cursor = message(&mut client, &note(1)).id().to_owned();
    message(&mut client, &note(2));
    (client, exchange, cursor)
}

/// The usual case: whoever opened the session, or has just called, is answered without a question to the backend.
#[test]
fn the_openers_credential_is_accepted() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for fields in [OWN, &[]] {
        let session = opened(&proxy, &backend, fields);
        let mut listener = session.send("GET", fields, "");
        let standing = backend.next().stream();
        assert_eq!(verdict(&listener.head()), "live");
        let (client, _exchange, cursor) = streaming(&session, &backend, fields);
        client.cut();
        let mut client = resume(&session, fields, &cursor);
        assert_eq!(verdict(&client.head()), "resumed 1 1");
        assert!(backend.is_silent(), "nothing was asked");
        backend.park(standing);
    }
    // A credential that a call has shown is accepted with its answer.
    let session = opened(&proxy, &backend, OWN);
    let (client, _exchange, cursor) = streaming(&session, &backend, OTHER);
    client.cut();
    for fields in [OTHER, OWN] {
        let mut client = resume(&session, fields, &cursor);
        assert_eq!(verdict(&client.head()), "resumed 1 1");
    }
    assert!(backend.is_silent());
}

/// A credential that nobody has seen is put to the backend first, as it came, on the session that it asks for.
#[test]
fn an_unknown_credential_is_proved_by_a_ping() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let (client, mut exchange, cursor) = streaming(&session, &backend, OWN);
    client.cut();
    let mut client = resume(&session, OTHER, &cursor);
    let ping = backend.next();
    assert!(is_proof(&ping), "{}", ping.body);
    assert_eq!(ping.head.get("authorization"), Some("Bearer other"));
    assert_eq!(ping.head.get("mcp-session-id"), Some("backend-session"));
    assert_eq!(ping.head.get("mcp-protocol-version"), Some(PRIMING));
    assert_eq!(ping.head.get("last-event-id"), None);
    assert_eq!(
        ping.head.get("accept"),
        Some("application/json, text/event-stream")
    );
    ping.json("{}");
    assert_eq!(verdict(&client.head()), "resumed 1 1");
    primed(&mut client);
    message(&mut client, &note(2));
    exchange.event(&note(3));
    message(&mut client, &note(3));
    // Once is enough, for both.
    for fields in [OTHER, OWN] {
        let mut client = resume(&session, fields, &cursor);
        assert_eq!(verdict(&client.head()), "resumed 1 2");
    }
    assert!(backend.is_silent());
}

/// A refusal is that client's to read, on GET, DELETE and repeats; the session goes on for the others.
#[test]
fn a_refused_credential_gets_its_refusal() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let (mut client, mut exchange, cursor) = streaming(&session, &backend, OWN);
    for (status, method) in [(401, "GET"), (403, "GET"), (401, "DELETE"), (403, "DELETE")] {
        let mut fields = OTHER.to_vec();
        if method == "GET" {
            fields.push(("last-event-id", &cursor));
        }
        let mut stranger = session.send(method, &fields, "");
        let ping = backend.next();
        assert!(is_proof(&ping), "{}", ping.body);
        ping.answer(status, &[("www-authenticate", "Bearer realm=\"x\"")], "no");
        let whole = stranger.whole();
        assert_eq!((whole.head.status(), &*whole.body), (status, "no"));
        assert_eq!(whole.head.get("www-authenticate"), Some("Bearer realm=\"x\""));
        assert_eq!(whole.head.get("throughline-continuity"), None);
    }
    exchange.event(&note(3));
    message(&mut client, &note(3));
    let mut again = resume(&session, OWN, &cursor);
    assert_eq!(verdict(&again.head()), "resumed 1 2");
    assert!(backend.is_silent());
}

/// What the backend refused once is asked about again, though it was accepted before.
#[test]
fn a_credential_that_was_revoked() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let (client, _exchange, cursor) = streaming(&session, &backend, OWN);
    client.cut();
    let mut refused = session.send("POST", OWN, &call("2"));
    backend.next().answer(401, &[("www-authenticate", "Bearer")], "");
    assert_eq!(refused.whole().head.status(), 401);
    let mut client = resume(&session, OWN, &cursor);
    let ping = backend.next();
    assert!(is_proof(&ping));
    ping.answer(401, &[("www-authenticate", "Bearer")], "");
    assert_eq!(client.whole().head.status(), 401);
    // The same call again is one that nothing was executed for.
    let mut client = session.send("POST", OWN, &call("2"));
    backend.next().json(&result("2"));
    assert_eq!(client.whole().body, result("2"));
    let mut client = resume(&session, OWN, &cursor);
    assert_eq!(verdict(&client.head()), "resumed 1 1");
    assert!(backend.is_silent());
}

/// A ping that finds the session gone says so, in the one way.
#[test]
fn a_ping_that_finds_the_session_gone() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.session.on_session_loss=terminate"]);
    let session = opened(&proxy, &backend, OWN);
    let mut client = session.send("GET", OTHER, "");
    let ping = backend.next();
    assert!(is_proof(&ping));
    ping.answer(404, &[], "");
    says_gone(&client.whole());
    session.is_gone();
}

/// Many who ask at once share one ping; another credential has its own.
#[test]
fn many_ask_with_one_ping() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let mut listener = session.send("GET", OWN, "");
    let _standing = backend.next_of("GET").stream();
    listener.head();
    let mut crowd: Vec<Client> = (0..16).map(|_| session.send("GET", OTHER, "")).collect();
    let ping = backend.next();
    assert!(is_proof(&ping));
    let mut third = session.send("GET", &[("authorization", "Bearer third")], "");
    let other_ping = backend.next();
    assert_eq!(other_ping.head.get("authorization"), Some("Bearer third"));
    other_ping.answer(403, &[], "");
    assert_eq!(third.whole().head.status(), 403);
    ping.json("{}");
    for client in &mut crowd {
        client.head();
    }
    assert!(backend.is_silent());
}

/// While the backend says nothing, nothing is said of a cursor; when it has spoken, the answer follows on the same
/// connection.
#[test]
fn a_client_is_held_until_the_backend_has_spoken() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = opened(&proxy, &backend, OWN);
    let (client, _exchange, cursor) = streaming(&session, &backend, OWN);
    client.cut();
    for (credential, cursor, status) in [
        ("Bearer 1", &*cursor, 200),
        ("Bearer 2", "nonsense", 200),
        ("Bearer 3", &cursor, 401),
        ("Bearer 4", "nonsense", 401),
    ] {
        let fields = [("authorization", credential), ("last-event-id", cursor)];
        let mut client = session.send("GET", &fields, "");
        let ping = backend.next();
        let head = client.head();
        assert_eq!(
            (head.status(), head.get("content-type")),
            (200, Some("text/event-stream"))
        );
        assert_eq!(head.get("throughline-continuity"), None, "nothing is said yet");
        client.comment();
        client.comment();
        // Neither yes nor no: it is asked again.
        assert!(is_proof(&ping));
        ping.answer(500, &[], "");
        let ping = backend.next();
        assert!(is_proof(&ping));
        ping.answer(status, &[], "");
        match (status, cursor) {
            (401, _) => {
                let event = client.event();
                assert!(event.retry.is_some() && event.data.is_none(), "{event:?}");
                client.ended();
            }
            (_, "nonsense") => {
                let standing = backend.next_of("GET").stream();
                backend.park(standing);
                primed(&mut client);
            }
            (_, _) => {
                primed(&mut client);
                message(&mut client, &note(2));
            }
        }
    }
    assert!(backend.is_silent());
}

/// What the window holds of an answer comes without a word on what it does not, but for the verdict: a client whose head was
/// sent without one asks again, and reads it there.
#[test]
fn a_client_that_was_held_is_told_of_a_gap_in_the_head() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=2"]);
    let session = opened(&proxy, &backend, OWN);
    let (client, mut exchange, cursor) = streaming(&session, &backend, OWN);
    client.cut();
    session.client_left(&proxy);
    for n in 3..9 {
        exchange.event(&note(n));
    }
    exchange.event(&result("1"));
    exchange.finish();
    let mut client = resume(&session, OTHER, &cursor);
    let ping = backend.next();
    let head = client.head();
    assert_eq!(head.get("throughline-continuity"), None, "nothing is said yet");
    ping.json("{}");
    let event = client.event();
    assert!(event.retry.is_some() && event.data.is_none(), "{event:?}");
    client.ended();
    let mut client = resume(&session, OTHER, &cursor);
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    primed(&mut client);
    message(&mut client, &result("1"));
    client.ended();
}

/// Whoever is held keeps nothing up: it ends with its session, and with the proxy.
#[test]
fn a_client_that_is_held_when_its_session_ends() {
    let backend = Backend::start();
    for ends in ["session", "proxy"] {
        let proxy = Proxy::start(&[&backend.url()], &[]);
        let session = opened(&proxy, &backend, OWN);
        let mut client = session.send("GET", OTHER, "");
        let ping = backend.next();
        client.head();
        client.comment();
        if ends == "session" {
            let mut ending = session.send("DELETE", OWN, "");
            backend.next_of("DELETE").answer(200, &[], "");
            assert_eq!(ending.whole().head.status(), 200);
        } else {
            proxy.terminate();
        }
        let event = client.event();
        assert!(event.retry.is_some() && event.data.is_none(), "{event:?}");
        client.ended();
        backend.park(ping);
    }
}

/// A DELETE that nobody vouches for ends nothing, and is told so.
#[test]
fn a_delete_that_could_not_be_judged() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let mut client = session.send("DELETE", OTHER, "");
    let ping = backend.next();
    assert!(is_proof(&ping));
    ping.answer(500, &[], "");
    let whole = client.whole();
    assert_eq!(whole.head.status(), 503);
    assert!(whole.head.get("retry-after").is_some());
    // Accepted before, refused now: the backend's word, and the session goes on.
    let mut client = session.send("DELETE", OWN, "");
    backend.next_of("DELETE").answer(403, &[], "no");
    assert_eq!(client.whole().head.status(), 403);
    let mut client = session.send("POST", OWN, &call("1"));
    backend.next().json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    // The stranger that the backend accepts may.
    let mut client = session.send("DELETE", OTHER, "");
    backend.accepts();
    backend.next_of("DELETE").answer(200, &[], "");
    assert_eq!(client.whole().head.status(), 200);
    session.is_gone();
}

/// Two JWTs must name the same principal, whatever the backend says; a renewed one of the same is proved like any.
#[test]
fn another_principal_finds_no_session() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let alice = jwt(r#"{"iss":"i","sub":"alice","exp":4102444800}"#);
    let renewed = jwt(r#"{"iss":"i","sub":"alice","exp":4102444801}"#);
    let bob = jwt(r#"{"iss":"i","sub":"bob","exp":4102444800}"#);
    let session = opened(&proxy, &backend, &[("authorization", &alice)]);
    let (client, _exchange, cursor) = streaming(&session, &backend, &[("authorization", &alice)]);
    client.cut();
    // His call is the backend's to judge; that it is accepted makes him nobody else.
    let mut call_of_his = session.send("POST", &[("authorization", &bob)], &call("5"));
    backend.next().json(&result("5"));
    assert_eq!(call_of_his.whole().body, result("5"));
    says_gone(&resume(&session, &[("authorization", &bob)], &cursor).whole());
    says_gone(&session.send("GET", &[("authorization", &bob)], "").whole());
    says_gone(&session.send("DELETE", &[("authorization", &bob)], "").whole());
    assert!(backend.is_silent(), "nothing was asked for him");
    let mut client = resume(&session, &[("authorization", &renewed)], &cursor);
    backend.accepts();
    assert_eq!(verdict(&client.head()), "resumed 1 1");
}

/// An expired token is asked about each time, though the backend is lenient.
#[test]
fn a_token_that_has_expired_is_not_remembered() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let expired = jwt(r#"{"iss":"i","sub":"alice","exp":1000}"#);
    let fields: Fields<'_> = &[("authorization", &expired)];
    let session = opened(&proxy, &backend, fields);
    let (client, _exchange, cursor) = streaming(&session, &backend, fields);
    client.cut();
    for _ in 0..2 {
        let mut client = resume(&session, fields, &cursor);
        backend.accepts();
        assert_eq!(verdict(&client.head()), "resumed 1 1");
    }
}

/// `resume_principal = "same"`: a credential that names nobody must be the opener's own.
#[test]
fn the_same_principal_only() {
    let backend = Backend::start();
    let settings = ["upstream.session.resume_principal=same"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = opened(&proxy, &backend, OWN);
    let (client, _exchange, cursor) = streaming(&session, &backend, OWN);
    client.cut();
    says_gone(&resume(&session, OTHER, &cursor).whole());
    says_gone(&resume(&session, &[], &cursor).whole());
    let mut client = resume(&session, OWN, &cursor);
    assert_eq!(verdict(&client.head()), "resumed 1 1");
    assert!(backend.is_silent());
}

/// A session that a new proxy knows from its token only: it asks first, and then knows its opener.
#[test]
fn a_session_taken_up_from_its_token() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = session.on(&proxy);
    let mut stranger = session.send("GET", OTHER, "");
    let ping = backend.next();
    assert!(is_proof(&ping));
    ping.answer(401, &[("www-authenticate", "Bearer")], "");
    assert_eq!(stranger.whole().head.status(), 401);
    let mut client = session.send("GET", OWN, "");
    backend.accepts();
    let _standing = backend.next_of("GET").stream();
    assert_eq!(verdict(&client.head()), "reset cursor_unknown");
}

/// What the proxy asks in its client's name bears the newest credential that was accepted, not the newest seen.
#[test]
fn the_proxy_speaks_with_the_newest_accepted_credential() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let mut listener = session.send("GET", OWN, "");
    let standing = backend.next_of("GET").stream();
    listener.head();
    let asked = [
        (&[("authorization", "Bearer new"), ("cookie", "a=1")][..], 200),
        (&[("authorization", "Bearer bad")][..], 401),
        (&[("authorization", "Bearer odd")][..], 302),
    ];
    for (nth, (fields, status)) in asked.into_iter().enumerate() {
        let mut client = session.send("POST", fields, &call(&nth.to_string()));
        backend.next().answer(
            status,
            &[("content-type", "application/json"), ("www-authenticate", "x")],
            "{}",
        );
        assert_eq!(client.whole().head.status(), status);
    }
    standing.cut();
    let again = backend.next_of("GET");
    assert_eq!(again.head.get("authorization"), Some("Bearer new"));
    assert_eq!(again.head.get("cookie"), Some("a=1"));
    assert_eq!(again.head.get("user-agent"), Some("wire-test/1"));
    assert_eq!(again.head.get("mcp-protocol-version"), Some(PRIMING));
}

/// A repeat is answered from memory only to a credential that is still accepted.
#[test]
fn a_repeat_by_a_credential_that_was_revoked() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let mut client = session.send("POST", OWN, &call("1"));
    backend.next().json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    let mut client = session.send("POST", OWN, &call("2"));
    backend.next().answer(403, &[], "no");
    assert_eq!(client.whole().head.status(), 403);
    for accepted in [false, true] {
        let mut client = session.send("POST", OWN, &call("1"));
        if accepted {
            backend.accepts();
            assert_eq!(client.whole().body, result("1"));
        } else {
            let ping = backend.next();
            assert!(is_proof(&ping), "{}", ping.body);
            ping.answer(403, &[], "no");
            assert_eq!(client.whole().head.status(), 403);
        }
    }
    assert!(backend.is_silent());
}

/// A repeat whose proof finds the session gone is told that it ran, not the 404 that makes clients send it once more.
#[test]
fn a_repeat_whose_proof_finds_the_session_gone() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.session.on_session_loss=terminate"]);
    let session = opened(&proxy, &backend, OWN);
    let mut client = session.send("POST", OWN, &call("1"));
    backend.next().json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
    let mut client = session.send("POST", OWN, &call("2"));
    backend.next().answer(403, &[], "no");
    assert_eq!(client.whole().head.status(), 403);
    let mut client = session.send("POST", OWN, &call("1"));
    let ping = backend.next();
    assert!(is_proof(&ping), "{}", ping.body);
    ping.answer(404, &[], "");
    let error = failed(&client.whole().body, "1");
    assert_eq!(error, ("backend_lost".into(), "unknown".into()));
    session.is_gone();
}

/// Whoever makes credentials up makes the proxy ask no faster than it likes; who was accepted before is asked about at once.
#[test]
fn a_flood_of_made_up_credentials() {
    const AT_ONCE: usize = 8;
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = opened(&proxy, &backend, OWN);
    let (client, _exchange, cursor) = streaming(&session, &backend, OWN);
    client.cut();
    session.client_left(&proxy);
    let denies = || {
        let ping = backend.next_of("POST");
        assert!(is_proof(&ping), "{}", ping.body);
        ping.answer(401, &[("www-authenticate", "Bearer")], "");
    };
    let since = Instant::now();
    for n in 0..AT_ONCE {
        let mut client = resume(
            &session,
            &[("authorization", &format!("Bearer junk-{n}"))],
            &cursor,
        );
        denies();
        assert_eq!(client.head().status(), 401);
    }
    // From now on they come one by one; those who wait are held, and learn nothing.
    let flood: Vec<_> = (0..3 * AT_ONCE)
        .map(|n| {
            resume(
                &session,
                &[("authorization", &format!("Bearer more-{n}"))],
                &cursor,
            )
        })
        .collect();
    for _ in 0..3 * AT_ONCE {
        proxy.logged("a client is held until its backend has judged its credential");
    }
    let mut asked = 0_u64;
    while let Some(ping) = backend.try_next() {
        assert!(is_proof(&ping), "{}", ping.body);
        ping.answer(401, &[("www-authenticate", "Bearer")], "");
        asked += 1;
    }
    let seconds = since.elapsed().as_secs();
    assert!(asked <= seconds, "{asked} of {} in {seconds} s", flood.len());
    // Its owner is disturbed by nothing of it.
    let mut client = resume(&session, OWN, &cursor);
    assert_eq!(verdict(&client.head()), "resumed 1 1");
    // Another credential of its owner's, which its backend sees on a call, is known at once.
    let mut call = session.send("POST", OTHER, &another_call("9"));
    let at_backend = loop {
        let exchange = backend.next_of("POST");
        if !is_proof(&exchange) {
            break exchange;
        }
        exchange.answer(401, &[("www-authenticate", "Bearer")], "");
    };
    at_backend.json(&result("9"));
    assert_eq!(call.whole().body, result("9"));
    let mut client = resume(&session, OTHER, &cursor);
    assert_eq!(verdict(&client.head()), "resumed 1 1");
}

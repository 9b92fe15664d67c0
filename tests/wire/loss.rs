//! A session that its backend has lost goes on under the same id, and nobody is left believing otherwise
//! (wire contract, sections 2, 6 and 7): what is played again, what is refused, what is told, and when it ends.
//! Next: `doubts.rs`.

use serde_json::Value;

use crate::backend::{Backend, Exchange};
use crate::client::{Client, Whole};
use crate::proxy::Proxy;
use crate::session::{
    OLDER, PRIMING, Session, another_call, call, failed, initialize, initialized, json, message, note,
    primed, result, resync, says_gone, verdict,
};

pub(crate) const ANNOUNCE: &str = "upstream.session.on_session_loss=announce";
pub(crate) const REINITIALIZE: &str = "upstream.session.on_session_loss=reinitialize";
pub(crate) const TERMINATE: &str = "upstream.session.on_session_loss=terminate";

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":40,"method":"tools/list"}"#;
const JSON: (&str, &str) = ("content-type", "application/json");

/// The ways in which backends say that they don't know a session.
const GONE: [(u16, &str); 4] = [
    (
        404,
        r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
    ),
    (400, "Bad Request: No valid session ID provided"),
    (400, "Bad Request: Server not initialized"),
    (401, "Unauthorized: Session not found"),
];

/// The backend says that the session is gone.
pub(crate) fn gone(exchange: Exchange) {
    exchange.answer(404, &[], "");
}

/// The proxy begins the session anew at this backend, which will know it by this id.
pub(crate) fn begun_anew(backend: &Backend, id: &str) {
    begun_anew_with(backend, id, &[]);
}

/// The same; the answer to `initialize` bears these fields too.
pub(crate) fn begun_anew_with(backend: &Backend, id: &str, fields: &[(&str, &str)]) {
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, initialize(PRIMING), "the client's own words");
    assert_eq!(asked.head.get("mcp-session-id"), None);
    assert_eq!(asked.head.get("mcp-protocol-version"), None);
    let all = [&[JSON, ("mcp-session-id", id)], fields].concat();
    asked.answer(200, &all, &initialized(PRIMING));
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, INITIALIZED);
    assert_eq!(asked.head.get("mcp-session-id"), Some(id));
    assert_eq!(asked.head.get("mcp-protocol-version"), Some(PRIMING));
    asked.answer(202, fields, "");
}

/// A call that reaches this backend under this id, and is answered.
pub(crate) fn runs(session: &Session, backend: &Backend, own_id: &str) {
    let body = another_call("90");
    let mut client = session.post(&body);
    let asked = backend.next_of("POST");
    assert_eq!(
        (&*asked.body, asked.head.get("mcp-session-id")),
        (&*body, Some(own_id))
    );
    asked.json(&result("90"));
    assert_eq!(client.whole().body, result("90"));
}

/// The model is told that this call was not run, to the end of the stream.
pub(crate) fn refused(client: &mut Client, id: &str) {
    assert_eq!(verdict(&client.head()), "live");
    primed(client);
    let event = client.event();
    told(event.data(), id);
    assert!(event.id().ends_with('~'), "nothing follows");
    client.ended();
}

/// The model is told that this call was not run.
pub(crate) fn told(data: &str, id: &str) {
    assert!(data.contains(&format!(r#""id":{id},"#)), "{data}");
    let data: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(data["result"]["isError"], true);
    let text = data["result"]["content"][0]["text"]
        .as_str()
        .expect("words for the model");
    assert!(
        text.contains("NOT run") && text.contains("session was restarted"),
        "{text}"
    );
}

/// A request was not executed, since the session was lost before.
pub(crate) fn not_run(whole: &Whole, id: &str) {
    assert_eq!(whole.head.status(), 200, "{whole:?}");
    assert_eq!(
        failed(&whole.body, id),
        ("backend_lost".into(), "not_executed".into())
    );
}

/// Each way in which a backend says it, under each rule.
#[test]
fn a_lost_session_goes_on_or_ends_as_configured() {
    let backend = Backend::start();
    for rule in [ANNOUNCE, REINITIALIZE, TERMINATE] {
        let proxy = Proxy::start(&[&backend.url()], &[rule]);
        for (status, body) in GONE {
            let session = Session::open(&proxy, &backend);
            let mut client = session.post(&call("1"));
            backend.next().answer(status, &[], body);
            if rule == TERMINATE {
                says_gone(&client.whole());
                session.is_gone();
                continue;
            }
            begun_anew(&backend, "second");
            if rule == ANNOUNCE {
                refused(&mut client, "1");
            } else {
                not_run(&client.whole(), "1");
            }
            runs(&session, &backend, "second");
        }
        assert!(backend.is_silent(), "nothing was sent twice");
    }
}

/// Calls under way get their error at once, the listener its resync in a new epoch; a resume of either is told the same.
#[test]
fn what_ran_is_failed_and_what_listened_is_told() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    standing.event(&note(1));
    let cursor = message(&mut listener, &note(1)).id().to_owned();
    let (mut running, mut upstream) = session.streaming_call(&backend, "1");
    let mut client = session.post(LIST);
    gone(backend.next_of("POST"));
    let error = running.event();
    assert_eq!(
        failed(error.data(), "1"),
        ("backend_lost".into(), "unknown".into())
    );
    assert!(error.id().ends_with('~'));
    running.ended();
    upstream.wait_closed();
    standing.wait_closed();
    begun_anew(&backend, "second");
    not_run(&client.whole(), "40");
    let mut standing = backend.next_of("GET");
    assert_eq!(standing.head.get("mcp-session-id"), Some("second"));
    standing = standing.stream();
    let last = resync(&mut listener, "backend_lost");
    standing.event(&note(2));
    message(&mut listener, &note(2));
    listener.cut();
    session.client_left(&proxy);
    let mut listener = session.resume(&last);
    assert!(verdict(&listener.head()).starts_with("resumed "));
    listener.cut();
    session.client_left(&proxy);
    let mut listener = session.resume(&cursor);
    assert_eq!(verdict(&listener.head()), "reset backend_lost");
    let mut client = session.resume(error.id().trim_end_matches('~'));
    assert_eq!(client.whole().head.status(), 405, "it had its outcome");
}

/// A backend that offers no GET stream any more: the listener is told all the same, and held.
#[test]
fn a_listener_is_told_where_the_new_session_offers_no_stream() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.keepalive=1s"]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, standing) = session.listening(&backend);
    let mut client = session.post(LIST);
    gone(backend.next_of("POST"));
    begun_anew(&backend, "second");
    not_run(&client.whole(), "40");
    drop(standing);
    backend.next_of("GET").answer(405, &[], "");
    resync(&mut listener, "backend_lost");
    listener.comment();
}

/// Calls sent together: every one is refused until the model has been told, and none of them is run.
#[test]
fn parallel_calls_are_all_refused() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut first = session.post(&call("1"));
    let found = backend.next();
    // More that find it out, and more that come while it is being begun anew.
    let mut second = session.post(&call("2"));
    let also = backend.next();
    gone(found);
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, initialize(PRIMING));
    let mut waiting: Vec<_> = (3..12).map(|n| session.post(&call(&n.to_string()))).collect();
    let mut list = session.post(LIST);
    for _ in 0..11 {
        session.logged(&proxy, "a request waits for its session");
    }
    gone(also);
    asked.answer(200, &[JSON, ("mcp-session-id", "second")], &initialized(PRIMING));
    // Nothing of the client's before the backend knows that it is ready.
    let asked = backend.next();
    assert_eq!(asked.body, INITIALIZED);
    asked.answer(202, &[], "");
    refused(&mut first, "1");
    refused(&mut second, "2");
    // What is no call is served as soon as the session stands.
    let asked = backend.next_of("POST");
    assert_eq!(asked.body, LIST);
    asked.json(r#"{"jsonrpc":"2.0","id":40,"result":{}}"#);
    assert_eq!(list.whole().body, r#"{"jsonrpc":"2.0","id":40,"result":{}}"#);
    let mut run = Vec::new();
    for (n, client) in waiting.iter_mut().enumerate() {
        let head = client.head();
        assert_eq!(verdict(&head), "live", "call {n}");
        primed(client);
        let event = client.event();
        told(event.data(), &(n + 3).to_string());
        run.push(event);
    }
    assert_eq!(run.len(), 9);
    runs(&session, &backend, "second");
    assert!(backend.is_silent(), "none of them was run");
}

/// The refusal is written before the next call runs; one whose connection broke does not count as told.
#[test]
fn a_refusal_that_was_not_delivered_is_repeated() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let client = session.post(&call("1"));
    let found = backend.next();
    // Its client leaves before the answer: nobody was told.
    client.cut();
    gone(found);
    begun_anew(&backend, "second");
    session.logged(&proxy, "calls were refused: the model is told of the loss first");
    let mut client = session.post(&call("2"));
    refused(&mut client, "2");
    runs(&session, &backend, "second");
    assert!(backend.is_silent());
}

/// A second loss before the word was delivered adds nothing; one after it is told again.
#[test]
fn a_second_loss_is_told_once_or_again() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    runs(&session, &backend, "backend-session");
    for next in ["third", "fourth"] {
        let mut client = session.post(LIST);
        gone(backend.next());
        begun_anew(&backend, next);
        not_run(&client.whole(), "40");
    }
    let mut client = session.post(&call("1"));
    refused(&mut client, "1");
    runs(&session, &backend, "fourth");
    let mut client = session.post(&call("2"));
    gone(backend.next());
    begun_anew(&backend, "fifth");
    refused(&mut client, "2");
    runs(&session, &backend, "fifth");
    assert!(backend.is_silent());
}

/// Where nothing was ever called, no model leans on anything; nor where sessions keep nothing.
#[test]
fn nothing_is_announced_where_nothing_is_lost() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(LIST);
    gone(backend.next());
    begun_anew(&backend, "second");
    not_run(&client.whole(), "40");
    runs(&session, &backend, "second");
    let proxy = Proxy::start(&[&backend.url()], &["upstream.sessions=none"]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    gone(backend.next());
    begun_anew(&backend, "second");
    not_run(&client.whole(), "1");
    runs(&session, &backend, "second");
}

/// Calls that become tasks, batches, and clients that read no event stream hear it in the terms that they understand.
#[test]
fn a_refusal_in_other_terms() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let task = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":1}}}"#;
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(task);
    gone(backend.next());
    begun_anew(&backend, "second");
    assert_eq!(verdict(&client.head()), "live");
    primed(&mut client);
    assert_eq!(
        failed(client.event().data(), "1"),
        ("backend_lost".into(), "not_executed".into())
    );
    client.ended();
    runs(&session, &backend, "second");
    // A batch with a call in it is not run, none of it.
    let older = Session::open(&proxy, &backend);
    let mut client = older.post(&format!("[{},{}]", LIST, call("2")));
    gone(backend.next());
    begun_anew(&backend, "second");
    client.head();
    primed(&mut client);
    for (id, end) in [("40", false), ("2", true)] {
        let event = client.event();
        assert_eq!(
            failed(event.data(), id),
            ("backend_lost".into(), "not_executed".into())
        );
        assert_eq!(event.id().ends_with('~'), end);
    }
    client.ended();
    runs(&older, &backend, "second");
    assert!(backend.is_silent());
}

/// What the client was promised is missing, or another revision is spoken: the session ends.
#[test]
fn a_backend_that_keeps_less_ends_the_session() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let less = initialized(PRIMING).replace(r#""logging":{}"#, r#""other":{}"#);
    for answer in [less, initialized(OLDER)] {
        let session = Session::open(&proxy, &backend);
        let mut client = session.post(&call("1"));
        gone(backend.next());
        let asked = backend.next();
        asked.answer(200, &[JSON, ("mcp-session-id", "second")], &answer);
        // What was begun in vain is ended.
        let asked = backend.next_of("DELETE");
        assert_eq!(asked.head.get("mcp-session-id"), Some("second"));
        asked.answer(200, &[], "");
        says_gone(&client.whole());
        session.is_gone();
    }
    // More is no harm.
    let more = initialized(PRIMING).replace(r#""logging":{}"#, r#""logging":{},"completions":{}"#);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    gone(backend.next());
    backend
        .next()
        .answer(200, &[JSON, ("mcp-session-id", "second")], &more);
    backend.next().answer(202, &[], "");
    refused(&mut client, "1");
    assert!(backend.is_silent());
}

/// What the client asked for is asked for again, before anything of its own is sent.
#[test]
fn the_log_level_and_subscriptions_are_asked_for_again() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[REINITIALIZE]);
    let session = Session::open(&proxy, &backend);
    let ask = |method: &str, params: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let mut client = session.post(&body);
        backend.next().json(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        client.whole();
    };
    ask("logging/setLevel", r#"{"level":"error"}"#);
    for uri in ["a:1", "a:2", "a:3"] {
        ask("resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#));
    }
    ask("resources/unsubscribe", r#"{"uri":"a:2"}"#);
    let mut client = session.post(LIST);
    gone(backend.next());
    begun_anew(&backend, "second");
    for (method, member, value) in [
        ("logging/setLevel", "level", "error"),
        ("resources/subscribe", "uri", "a:1"),
        ("resources/subscribe", "uri", "a:3"),
    ] {
        let asked = backend.next();
        assert_eq!(asked.head.get("mcp-session-id"), Some("second"));
        let body: Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(
            (&body["method"], &body["params"][member]),
            (&method.into(), &value.into())
        );
        // One of them is refused: the session goes on without.
        asked.json(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#,
            body["id"]
        ));
    }
    not_run(&client.whole(), "40");
    runs(&session, &backend, "second");
}

/// From the second life on the backend's requests bear its number; answers find their way back, and late ones find none.
#[test]
fn requests_of_the_backend_bear_their_generation() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[REINITIALIZE]);
    let session = Session::open(&proxy, &backend);
    let (mut listener, mut standing) = session.listening(&backend);
    let asks = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
    standing.event(&asks("5"));
    message(&mut listener, &asks("5"));
    let mut client = session.post(LIST);
    gone(backend.next_of("POST"));
    begun_anew(&backend, "second");
    not_run(&client.whole(), "40");
    let mut standing = backend.next_of("GET").stream();
    // The old request is withdrawn.
    let notice = listener.event();
    assert_eq!(notice.event.as_deref(), Some("reset"));
    let withdrawn = json(&listener.event());
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], 5);
    for _ in 0..4 {
        listener.event();
    }
    standing.event(&asks("5"));
    message(&mut listener, &asks(r#""tl1.5""#));
    standing.event(&asks(r#""five""#));
    message(&mut listener, &asks(r#""tl1.\"five\"""#));
    standing.event(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#);
    message(
        &mut listener,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"tl1.5"}}"#,
    );
    standing.event(&note(1));
    message(&mut listener, &note(1));
    let (mut running, mut upstream) = session.streaming_call(&backend, "7");
    upstream.event(&asks("6"));
    message(&mut running, &asks(r#""tl1.6""#));
    let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#);
    for (said, heard) in [
        ("\"tl1.5\"", "5"),
        (r#""tl1.\"five\"""#, "\"five\""),
        ("\"tl1.6\"", "6"),
    ] {
        let mut client = session.post(&answer(said));
        let asked = backend.next_of("POST");
        assert_eq!(asked.body, answer(heard));
        asked.answer(202, &[], "");
        assert_eq!(client.whole().head.status(), 202);
    }
    // Late, and made up.
    for said in ["5", "\"tl0.5\"", "\"tl2.5\"", "\"tl1.\""] {
        let whole = session.post(&answer(said)).whole();
        assert_eq!((whole.head.status(), &*whole.body), (202, ""), "{said}");
    }
    upstream.event(&result("7"));
    message(&mut running, &result("7"));
    assert!(backend.is_silent(), "answers to the dead are dropped");
}

/// What only informs waits too, in its order; what belongs to the dead is dropped; 202 whatever becomes of it.
#[test]
fn notifications_wait_in_order() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let progress = |n: u32| note(n);
    let mut lost = session.post(&progress(0));
    gone(backend.next());
    let asked = backend.next();
    assert_eq!(asked.body, initialize(PRIMING));
    // Itself was not executed, and is not sent again.
    let mut waiting = Vec::new();
    for n in 1..=5 {
        waiting.push(session.post(&progress(n)));
        session.logged(&proxy, "a notification waits for its session");
    }
    let mut late = session.post(r#"{"jsonrpc":"2.0","id":5,"result":{}}"#);
    asked.answer(200, &[JSON, ("mcp-session-id", "second")], &initialized(PRIMING));
    let asked = backend.next();
    assert_eq!(asked.body, INITIALIZED);
    asked.answer(202, &[], "");
    for n in 1..=5 {
        let asked = backend.next();
        assert_eq!(asked.body, progress(n));
        asked.answer(202, &[], "");
    }
    for client in waiting.iter_mut().chain([&mut lost, &mut late]) {
        assert_eq!(client.whole().head.status(), 202);
    }
    assert!(backend.is_silent());
}

/// Nobody can be reached: what waits is told so within its bound, not executed; what comes later finds the session.
#[test]
fn what_waits_is_bounded() {
    let backend = Backend::start();
    let settings = ["upstream.exchange.replica_retry_max=300ms"];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    gone(backend.next());
    let asked = backend.next();
    let mut waiting = session.post(&call("2"));
    let whole = waiting.whole();
    assert_eq!(
        failed(&whole.body, "2"),
        ("unavailable".into(), "not_executed".into())
    );
    assert_eq!(session.post(&note(1)).whole().head.status(), 202);
    // The one that found it is told what is certain.
    refused(&mut client, "1");
    asked.answer(200, &[JSON, ("mcp-session-id", "second")], &initialized(PRIMING));
    backend.next().answer(202, &[], "");
    session.logged(&proxy, "lost session goes on");
    let mut client = session.post(LIST);
    backend.next().json(r#"{"jsonrpc":"2.0","id":40,"result":{}}"#);
    client.whole();
    assert!(backend.is_silent());
}

/// A backend that loses its sessions again and again: with growing pauses, five times in ten minutes, then no more.
#[test]
fn a_session_is_begun_anew_five_times_in_ten_minutes() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[REINITIALIZE]);
    let session = Session::open(&proxy, &backend);
    for n in 1..=5 {
        let mut client = session.post(LIST);
        gone(backend.next());
        begun_anew(&backend, &format!("life-{n}"));
        not_run(&client.whole(), "40");
    }
    let mut client = session.post(LIST);
    gone(backend.next());
    says_gone(&client.whole());
    session.is_gone();
    assert!(backend.is_silent());
}

/// The client's DELETE wins over a new beginning: what was begun meanwhile is ended, and nothing succeeds any more.
#[test]
fn a_delete_wins_over_a_new_beginning() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let mut client = session.post(&call("1"));
    gone(backend.next());
    let asked = backend.next();
    assert_eq!(asked.body, initialize(PRIMING));
    let mut waiting = session.post(&call("2"));
    let mut deleting = session.delete();
    gone(backend.next_of("DELETE"));
    says_gone(&deleting.whole());
    says_gone(&client.whole());
    says_gone(&waiting.whole());
    asked.answer(200, &[JSON, ("mcp-session-id", "second")], &initialized(PRIMING));
    backend.next().answer(202, &[], "");
    let ended = backend.next_of("DELETE");
    assert_eq!(ended.head.get("mcp-session-id"), Some("second"));
    ended.answer(200, &[], "");
    session.is_gone();
    assert!(backend.is_silent());
}

/// A replica that refuses connections for its time: the session goes on at another one, and the call that waited is
/// refused like any other; the old session is told, if its replica is there again.
#[test]
fn a_session_moves_to_another_replica() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [
        "upstream.exchange.replica_retry_max=1500ms",
        "upstream.health.probe=off",
        "upstream.exchange.post_idle_max=0s",
    ];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let session = Session::open(&proxy, &one);
    runs(&session, &one, "backend-session");
    one.close();
    let mut client = session.post(&call("1"));
    begun_anew(&two, "second");
    refused(&mut client, "1");
    runs(&session, &two, "second");
    assert!(two.is_silent());
}

/// What the proxy has to say of its own finds out too: nobody need ask.
#[test]
fn a_cancel_that_finds_no_replica_finds_the_loss() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [
        "upstream.exchange.replica_retry_max=1500ms",
        "upstream.health.probe=off",
        "upstream.exchange.post_idle_max=0s",
        "upstream.stream.detached_max=500ms",
        "upstream.stream.replay_age_max=1s",
    ];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let session = Session::open(&proxy, &one);
    let (client, _running) = session.streaming_call(&one, "1");
    client.cut();
    session.client_left(&proxy);
    one.close();
    begun_anew(&two, "second");
    session.logged(&proxy, "lost session goes on");
    let mut client = session.post(&call("2"));
    refused(&mut client, "2");
    runs(&session, &two, "second");
}

/// Nothing of it was written, so what is no call is simply served by the new session.
#[test]
fn what_was_never_written_goes_to_the_new_session() {
    let (one, two) = (Backend::start(), Backend::start());
    let settings = [
        "upstream.exchange.replica_retry_max=1500ms",
        "upstream.health.probe=off",
        "upstream.exchange.post_idle_max=0s",
    ];
    let proxy = Proxy::start(&[&one.url(), &two.url()], &settings);
    let session = Session::open(&proxy, &one);
    one.close();
    let mut client = session.post(LIST);
    begun_anew(&two, "second");
    let asked = two.next();
    assert_eq!(
        (&*asked.body, asked.head.get("mcp-session-id")),
        (LIST, Some("second"))
    );
    asked.json(r#"{"jsonrpc":"2.0","id":40,"result":{}}"#);
    client.whole();
}

/// The only replica is away for a while: the session outlives that, however long a client waits for each call.
#[test]
fn a_session_waits_for_its_only_replica() {
    let backend = Backend::start();
    let settings = [
        "upstream.exchange.replica_retry_max=300ms",
        "upstream.health.probe=off",
        "upstream.exchange.post_idle_max=0s",
    ];
    let proxy = Proxy::start(&[&backend.url()], &settings);
    let session = Session::open(&proxy, &backend);
    let port = backend.close();
    for id in ["1", "2"] {
        let whole = session.post(&call(id)).whole();
        assert_eq!(
            failed(&whole.body, id),
            ("unavailable".into(), "not_executed".into())
        );
    }
    let backend = Backend::start_at(port);
    begun_anew(&backend, "second");
    session.logged(&proxy, "lost session goes on");
    let mut client = session.post(&call("3"));
    refused(&mut client, "3");
    runs(&session, &backend, "second");
}

/// A credential that is not accepted any more is no loss: the one of whoever waits is tried, else its client hears so,
/// and its next one is tried.
#[test]
fn a_new_beginning_waits_for_a_credential() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let with = |bearer: &str, body: &str| session.send("POST", &[("authorization", bearer)], body);
    let denied = |bearer: Option<&str>| {
        let asked = backend.next();
        assert_eq!(asked.body, initialize(PRIMING));
        assert_eq!(asked.head.get("authorization"), bearer);
        asked.answer(401, &[("www-authenticate", "Bearer scope=\"x\"")], "");
    };
    let hears_so = |client: &mut Client| {
        let whole = client.whole();
        assert_eq!(whole.head.status(), 401);
        assert_eq!(whole.head.get("www-authenticate"), Some("Bearer scope=\"x\""));
    };
    let mut client = with("Bearer old", &call("1"));
    gone(backend.next());
    // What the session began with goes first; what waits has proved nothing yet.
    denied(None);
    denied(Some("Bearer old"));
    hears_so(&mut client);
    let mut client = with("Bearer older", &call("2"));
    denied(Some("Bearer older"));
    hears_so(&mut client);
    let mut client = with("Bearer new", &call("3"));
    begun_anew(&backend, "second");
    refused(&mut client, "3");
    assert!(backend.is_silent());
}

/// So many requests wait, and one more is refused at once.
#[test]
fn what_waits_is_bounded_in_number() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[REINITIALIZE]);
    let session = Session::open(&proxy, &backend);
    let mut found = session.post(LIST);
    gone(backend.next());
    let asked = backend.next();
    // The one that found it waits too.
    let mut waiting: Vec<_> = (0..63).map(|n| session.post(&call(&n.to_string()))).collect();
    for _ in 0..64 {
        session.logged(&proxy, "a request waits for its session");
    }
    let whole = session.post(&call("64")).whole();
    assert_eq!(
        failed(&whole.body, "64"),
        ("overloaded".into(), "not_executed".into())
    );
    asked.answer(200, &[JSON, ("mcp-session-id", "second")], &initialized(PRIMING));
    backend.next().answer(202, &[], "");
    not_run(&found.whole(), "40");
    for _ in 0..63 {
        let asked = backend.next();
        let id = serde_json::from_str::<Value>(&asked.body).expect("JSON")["id"].to_string();
        asked.json(&result(&id));
    }
    for (n, client) in waiting.iter_mut().enumerate() {
        assert_eq!(client.whole().body, result(&n.to_string()));
    }
}

/// A client that reads no event stream gets the words as JSON.
#[test]
fn a_refusal_for_a_client_that_takes_json_only() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    let body = call("1");
    let mut client = proxy.connect();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\naccept: application/json\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\ncontent-length: {}\r\n\r\n{body}",
        proxy.address,
        session.token,
        body.len()
    );
    client.peer.send(request.as_bytes());
    gone(backend.next());
    begun_anew(&backend, "second");
    let whole = client.whole();
    assert_eq!(whole.head.get("content-type"), Some("application/json"));
    told(&whole.body, "1");
    runs(&session, &backend, "second");
    // It was not run: asked for again, it is.
    client.peer.send(request.as_bytes());
    let asked = backend.next();
    assert_eq!(asked.body, body);
    asked.json(&result("1"));
    assert_eq!(client.whole().body, result("1"));
}

/// A session that is known from its token alone can't be begun anew: 404, and for ever.
#[test]
fn a_session_known_from_its_token_is_not_begun_anew() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = Session::open(&proxy, &backend);
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = session.on(&proxy);
    let mut client = session.post(&call("1"));
    gone(backend.next());
    says_gone(&client.whole());
    session.is_gone();
    assert!(backend.is_silent());
}

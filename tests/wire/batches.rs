//! Batches of 2025-03-26: several messages in one POST, several answers on one stream (wire contract, sections 3 to 7).
//! Law: each request of a batch has one outcome, whatever becomes of the others and of the connection.
//! Next: `gone.rs`.

use serde_json::Value;

use crate::backend::{Backend, Exchange};
use crate::client::{Client, Event};
use crate::proxy::Proxy;
use crate::session::{
    PRIMING, Session, another_call, call, failed, initialize, initialized, message, note, position, result,
    verdict,
};

/// What a backend says that has forgotten a session.
const GONE: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
/// The end of a beginning.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// The one revision that has batches.
const BATCHES: &str = "2025-03-26";

fn open(proxy: &Proxy, backend: &Backend) -> Session {
    Session::open_at(proxy, backend, BATCHES, "wire-test/1")
}

fn batch(messages: &[String]) -> String {
    format!("[{}]", messages.join(","))
}

fn ask(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/list"}}"#)
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// A batch whose answer has begun to stream: the client past its head and its early cursor, and the backend's side.
fn streaming(session: &Session, backend: &Backend, body: &str) -> (Client, Exchange, Event) {
    let mut client = session.post(body);
    let exchange = backend.next_of("POST");
    assert_eq!(exchange.body, body, "byte for byte");
    let exchange = exchange.stream();
    assert_eq!(verdict(&client.head()), "live");
    let cursor = client.event();
    assert_eq!((cursor.event.as_deref(), cursor.data()), (Some("ping"), "{}"));
    (client, exchange, cursor)
}

/// The end of a stream, with its mark on this event.
fn last(client: &mut Client, event: &Event) {
    assert!(position(event.id()).1, "the end mark: {event:?}");
    client.ended();
}

/// Errors of ours to these, in any order: the reason, the outcome.
fn errors(client: &mut Client, ids: &[&str], expected: (&str, &str)) -> Event {
    let mut left: Vec<&str> = ids.to_vec();
    let mut event = Event::default();
    while !left.is_empty() {
        event = client.event();
        let data: Value = serde_json::from_str(event.data()).expect("JSON");
        let id = data["id"].to_string();
        let at = left
            .iter()
            .position(|one| *one == id)
            .expect("an error for each, once");
        left.remove(at);
        assert_eq!(failed(event.data(), &id), (expected.0.into(), expected.1.into()));
    }
    event
}

/// The answers come in any order, alone or in arrays, among notifications; the last one ends the stream.
#[test]
fn a_batch_is_answered_once_for_each() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[
        ask("1"),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#.into(),
        ask("\"a\""),
        ask("3"),
    ]);
    let (mut client, mut exchange, cursor) = streaming(&session, &backend, &body);
    assert!(
        cursor.id().contains(".pb"),
        "its stream is named by its ids: {cursor:?}"
    );
    exchange.event(&note(1)).event(&result("3"));
    message(&mut client, &note(1));
    message(&mut client, &result("3"));
    // An answer to nobody passes, and ends nothing.
    exchange.event(&result("99"));
    message(&mut client, &result("99"));
    // A second one to the same does not pass.
    exchange.event(&result("3"));
    let several = batch(&[result("1"), result("\"a\"")]);
    exchange.event(&several);
    let event = message(&mut client, &several);
    last(&mut client, &event);
    exchange.finish();
    // As JSON, an array whole.
    let body = batch(&[ask("4"), ask("5")]);
    let mut client = session.post(&body);
    let several = batch(&[result("5"), result("4")]);
    backend.next().json(&several);
    let whole = client.whole();
    assert_eq!((whole.head.status(), &*whole.body), (200, &*several));
    // A batch of one is a batch, and named like its request.
    let body = batch(&[ask("6")]);
    let (mut client, mut exchange, cursor) = streaming(&session, &backend, &body);
    assert!(cursor.id().contains(".pi6."), "{cursor:?}");
    exchange.event(&batch(&[result("6")]));
    let event = message(&mut client, &batch(&[result("6")]));
    last(&mut client, &event);
}

/// Notifications and answers only: 202, whatever the backend says; what is neither is the backend's to judge.
#[test]
fn batches_without_requests() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#.into(),
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),
    ]);
    let mut client = session.post(&body);
    let exchange = backend.next();
    assert_eq!(exchange.body, body);
    exchange.answer(500, &[], "no");
    assert_eq!(client.whole().head.status(), 202);
    for body in ["[]", "[1]", "[[]]", r#"[{"jsonrpc":"2.0","method":"a"},{}]"#] {
        let mut client = session.post(body);
        let exchange = backend.next();
        assert_eq!(exchange.body, body);
        let refusal = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}"#;
        exchange.answer(400, &[("content-type", "application/json")], refusal);
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (400, refusal), "{body}");
    }
}

/// What a client answers counts also where it asks in the same breath: it is not asked again.
#[test]
fn an_answer_among_requests_is_an_answer() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let (mut client, mut exchange, early) = streaming(&session, &backend, &call("1"));
    let asked = r#"{"jsonrpc":"2.0","id":"s1","method":"roots/list"}"#;
    exchange.event(asked);
    message(&mut client, asked);
    let body = batch(&[result("\"s1\""), ask("2")]);
    let (mut other, mut answering, _) = streaming(&session, &backend, &body);
    answering.event(&result("2"));
    let event = message(&mut other, &result("2"));
    last(&mut other, &event);
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(early.id());
    assert_eq!(verdict(&client.head()), "resumed 0 1");
    client.event();
    let again: Value = serde_json::from_str(client.event().data()).expect("JSON");
    assert_eq!(
        (&again["id"], again["method"].is_string()),
        (&Value::Null, true),
        "{again}"
    );
    exchange.event(&result("1"));
    let event = message(&mut client, &result("1"));
    last(&mut client, &event);
}

/// For the revisions without batches an array is the backend's to judge: it reaches it, and its word comes back.
#[test]
fn revisions_without_batches_leave_arrays_to_the_backend() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    for revision in ["2024-11-05", "2025-06-18", PRIMING] {
        let session = Session::open_at(&proxy, &backend, revision, "wire-test/1");
        let body = batch(&[ask("1"), ask("2")]);
        let mut client = session.post(&body);
        let exchange = backend.next();
        assert_eq!(exchange.body, body);
        exchange.answer(400, &[("content-type", "application/json")], "{}");
        let whole = client.whole();
        assert_eq!((whole.head.status(), &*whole.body), (400, "{}"), "{revision}");
    }
    let mut client = proxy.connect();
    client.send(
        "POST",
        &[("mcp-protocol-version", "2026-07-28")],
        &batch(&[ask("1")]),
    );
    backend.next().answer(400, &[], "one at a time");
    assert_eq!(client.whole().body, "one at a time");
}

/// A cut in the middle, at each place: what comes is exactly what follows the cursor.
#[test]
fn a_cut_in_the_middle_is_resumed() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("2"), ask("3")]);
    let (mut client, mut exchange, early) = streaming(&session, &backend, &body);
    exchange.event(&result("2"));
    let first = message(&mut client, &result("2"));
    client.cut();
    session.client_left(&proxy);
    exchange.event(&note(1)).event(&result("1"));
    let mut client = session.resume(first.id());
    assert!(verdict(&client.head()).starts_with("resumed 1 "));
    client.event();
    message(&mut client, &note(1));
    message(&mut client, &result("1"));
    exchange.event(&result("3"));
    let event = message(&mut client, &result("3"));
    last(&mut client, &event);
    // From its beginning, all of it.
    let mut client = session.resume(early.id());
    assert_eq!(verdict(&client.head()), "resumed 0 4");
    client.event();
    for data in [result("2"), note(1), result("1"), result("3")] {
        message(&mut client, &data);
    }
    client.ended();
    // Behind its end there is nothing.
    assert_eq!(session.resume(event.id()).whole().head.status(), 405);
}

/// The backend breaks when half is answered: an error for each of the others, and for nobody else.
#[test]
fn a_break_is_told_to_those_without_an_answer() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("2"), ask("3"), ask("4")]);
    let (mut client, mut exchange, early) = streaming(&session, &backend, &body);
    exchange.event(&batch(&[result("3"), result("1")]));
    message(&mut client, &batch(&[result("3"), result("1")]));
    exchange.cut();
    let event = errors(&mut client, &["2", "4"], ("backend_lost", "unknown"));
    last(&mut client, &event);
    // Also for who comes back.
    let mut client = session.resume(early.id());
    assert_eq!(verdict(&client.head()), "resumed 0 3");
    client.event();
    message(&mut client, &batch(&[result("3"), result("1")]));
    let event = errors(&mut client, &["2", "4"], ("backend_lost", "unknown"));
    last(&mut client, &event);
}

/// Pushes what came before out of the window, before the client's eyes.
fn pass_by(client: &mut Client, exchange: &mut Exchange) {
    for n in 0..40 {
        exchange.event(&note(n));
        message(client, &note(n));
    }
}

/// A cursor that can't be honoured while half is answered: an error for what the client can't have, none for what it had.
#[test]
fn a_reset_of_a_half_answered_batch() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("2"), ask("3")]);
    let (mut client, mut exchange, _) = streaming(&session, &backend, &body);
    exchange.event(&result("2"));
    let had = message(&mut client, &result("2"));
    exchange.event(&result("3"));
    message(&mut client, &result("3"));
    pass_by(&mut client, &mut exchange);
    client.cut();
    session.client_left(&proxy);
    let mut asked = had.id().to_owned();
    for _ in 0..3 {
        let mut client = session.resume(&asked);
        assert_eq!(verdict(&client.head()), "reset window_exceeded");
        let cursor = client.event();
        let event = errors(&mut client, &["3", "1"], ("window_exceeded", "unknown"));
        last(&mut client, &event);
        // The same again from an id of that reset, without the one that it had.
        asked = cursor.id().to_owned();
    }
    // What the backend says now is dropped: each had its outcome.
    exchange.event(&result("1"));
    session.is_alive(&backend);
}

/// A batch whose ids are too many for an event id: as long as its stream is known, so are they.
#[test]
fn a_reset_of_a_long_batch() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = open(&proxy, &backend);
    let ids: Vec<String> = (100..120).map(|n| n.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
    let body = batch(&ids.iter().map(|id| ask(id)).collect::<Vec<_>>());
    let (mut client, mut exchange, early) = streaming(&session, &backend, &body);
    assert!(early.id().contains(".ph"), "{early:?}");
    pass_by(&mut client, &mut exchange);
    client.cut();
    session.client_left(&proxy);
    let mut client = session.resume(early.id());
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    client.event();
    let event = errors(&mut client, &ids, ("window_exceeded", "unknown"));
    last(&mut client, &event);
}

/// A batch that was answered whole, and of which the window holds the end: its answers, and an error for each that is not
/// held.
#[test]
fn a_reset_of_an_answered_batch() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &["upstream.stream.replay_events_max=4"]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("2"), ask("3")]);
    let (mut client, mut exchange, early) = streaming(&session, &backend, &body);
    exchange.event(&result("2"));
    message(&mut client, &result("2"));
    pass_by(&mut client, &mut exchange);
    let rest = [result("1"), note(99), result("3")];
    for data in &rest {
        exchange.event(data);
        message(&mut client, data);
    }
    client.ended();
    exchange.finish();
    // One that had nothing of it, as far as its cursor says.
    let mut client = session.resume(early.id());
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    let prime = client.event();
    client.cut();
    // One that was cut before it heard of the loss hears of it again.
    let mut client = session.resume(prime.id());
    assert_eq!(verdict(&client.head()), "reset window_exceeded");
    client.event();
    let told = errors(&mut client, &["2"], ("window_exceeded", "unknown"));
    let mut held = Vec::new();
    let end = loop {
        let event = client.event();
        held.push(event.data().to_owned());
        if position(event.id()).1 {
            break event;
        }
    };
    last(&mut client, &end);
    assert!(held.ends_with(&rest), "{held:?}");
    // From the error's id, what followed it.
    let mut client = session.resume(told.id());
    assert!(verdict(&client.head()).starts_with("resumed "));
    client.event();
    for data in held {
        message(&mut client, &data);
    }
    client.ended();
}

/// A batch that was half answered when the backend broke: what the window holds of the answers and of the errors, and an
/// error for each that it does not hold.
#[test]
fn a_reset_of_a_batch_that_broke() {
    for (window, had_it, lost) in [(4, false, &["2"][..]), (1, false, &["2", "1"]), (1, true, &["1"])] {
        let backend = Backend::start();
        let proxy = Proxy::start(
            &[&backend.url()],
            &[&format!("upstream.stream.replay_events_max={window}")],
        );
        let session = open(&proxy, &backend);
        let body = batch(&[ask("1"), ask("2"), ask("3")]);
        let (mut client, mut exchange, early) = streaming(&session, &backend, &body);
        exchange.event(&result("2"));
        let had = message(&mut client, &result("2"));
        pass_by(&mut client, &mut exchange);
        exchange.cut();
        errors(&mut client, &["1", "3"], ("backend_lost", "unknown"));
        client.ended();
        let cursor = if had_it { had.id() } else { early.id() };
        let mut client = session.resume(cursor);
        assert_eq!(verdict(&client.head()), "reset window_exceeded");
        client.event();
        errors(&mut client, lost, ("window_exceeded", "unknown"));
        let mut rest = vec!["1", "3"];
        rest.retain(|id| !lost.contains(id));
        for _ in rest.len()..window {
            client.event();
        }
        let end = errors(&mut client, &rest, ("backend_lost", "unknown"));
        last(&mut client, &end);
    }
}

/// Two proxies with one secret and no memory in common: the one that does not know a batch tells its errors by ids that
/// name the rest of it, so that the other one, whose log goes on, takes none of them for a position.
#[test]
fn errors_of_one_proxy_are_no_positions_of_another() {
    let backend = Backend::start();
    let [knows, beside] = [(); 2].map(|()| Proxy::start(&[&backend.url()], &[]));
    let session = open(&knows, &backend);
    let body = batch(&[ask("1"), ask("\"b\""), ask("3")]);
    let (mut client, mut exchange, early) = streaming(&session, &backend, &body);
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    client.cut();
    session.client_left(&knows);
    let mut client = session.on(&beside).resume(early.id());
    backend.accepts();
    assert_eq!(verdict(&client.head()), "reset epoch_changed");
    client.event();
    let told = errors(&mut client, &["1"], ("epoch_changed", "unknown"));
    client.cut();
    for proxy in [&knows, &beside] {
        let mut client = session.on(proxy).resume(told.id());
        assert_eq!(verdict(&client.head()), "reset epoch_changed");
        client.event();
        let end = errors(&mut client, &["\"b\"", "3"], ("epoch_changed", "unknown"));
        last(&mut client, &end);
    }
    // Whoever was told nothing there goes on here.
    let mut client = session.resume(early.id());
    assert!(verdict(&client.head()).starts_with("resumed "));
    client.event();
    message(&mut client, &result("1"));
}

/// After a restart only the cursor is known, and with it the ids: an error for each.
#[test]
fn a_restart_is_told_to_each() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("\"b\"")]);
    let (_client, _exchange, early) = streaming(&session, &backend, &body);
    proxy.kill();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = session.on(&proxy);
    for again in [false, true] {
        let mut client = session.resume(early.id());
        if !again {
            backend.accepts();
        }
        assert_eq!(verdict(&client.head()), "reset epoch_changed");
        client.event();
        let event = errors(&mut client, &["1", "\"b\""], ("epoch_changed", "unknown"));
        last(&mut client, &event);
    }
}

/// One of a batch is cancelled, alone or within another batch: it has its word, the others go on.
#[test]
fn one_of_a_batch_is_cancelled() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("2"), ask("3")]);
    let (mut client, mut exchange, _) = streaming(&session, &backend, &body);
    for (said, id) in [
        (cancel("2"), "2"),
        (
            batch(&[
                cancel("1"),
                r#"{"jsonrpc":"2.0","method":"notifications/x"}"#.into(),
            ]),
            "1",
        ),
    ] {
        let mut notice = session.post(&said);
        let told = backend.next_of("POST");
        assert_eq!(told.body, said);
        told.answer(202, &[], "");
        assert_eq!(notice.whole().head.status(), 202);
        errors(&mut client, &[id], ("cancelled", "unknown"));
    }
    // What the backend says to it all the same does not pass.
    exchange.event(&result("2")).event(&note(1));
    message(&mut client, &note(1));
    exchange.event(&batch(&[result("1"), result("3")]));
    let event = message(&mut client, &batch(&[result("3")]));
    last(&mut client, &event);
    // All of it: the stream ends.
    let body = batch(&[ask("4"), ask("5")]);
    let (mut client, _exchange, _) = streaming(&session, &backend, &body);
    // Within a batch that asks for something itself.
    let said = batch(&[cancel("4"), ask("6"), cancel("5")]);
    let mut other = session.post(&said);
    let told = backend.next_of("POST");
    assert_eq!(told.body, said);
    told.json(&batch(&[result("6")]));
    assert_eq!(other.whole().body, batch(&[result("6")]));
    let event = errors(&mut client, &["4", "5"], ("cancelled", "unknown"));
    last(&mut client, &event);
}

/// The same batch again: one execution, one outcome.
#[test]
fn a_batch_that_comes_again_runs_once() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[call("1"), call("2")]);
    let (mut client, mut exchange, _) = streaming(&session, &backend, &body);
    exchange.event(&result("1"));
    message(&mut client, &result("1"));
    let mut again = session.post(&body);
    assert!(verdict(&again.head()).starts_with("resumed 0 "));
    again.event();
    message(&mut again, &result("1"));
    exchange.event(&result("2"));
    let event = message(&mut again, &result("2"));
    last(&mut again, &event);
    assert!(backend.is_silent());
}

/// Two requests with one id: each has an outcome, as the backend has it.
#[test]
fn two_of_a_batch_with_one_id() {
    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let session = open(&proxy, &backend);
    let body = batch(&[ask("1"), ask("1")]);
    let (mut client, mut exchange, _) = streaming(&session, &backend, &body);
    exchange.event(&result("1"));
    let event = message(&mut client, &result("1"));
    assert!(!position(event.id()).1, "one is still to come");
    exchange.event(&result("1"));
    let event = message(&mut client, &result("1"));
    last(&mut client, &event);
}

/// The session is lost: every request of a batch with a call in it gets an error and is not run; a batch without calls is.
#[test]
fn a_batch_with_a_refused_call_is_refused_whole() {
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &["upstream.health.probe=off"]);
    let session = open(&proxy, &one);
    let used = another_call("90");
    let mut client = session.post(&used);
    one.next_of("POST").json(&result("90"));
    assert_eq!(client.whole().body, result("90"));
    let mut client = session.post(&batch(&[ask("1"), call("2")]));
    one.next_of("POST")
        .answer(404, &[("content-type", "application/json")], GONE);
    // It is begun anew, at either of them.
    for body in [initialize(BATCHES), INITIALIZED.to_owned()] {
        let asked = [&one, &two]
            .into_iter()
            .cycle()
            .find_map(Backend::try_next)
            .expect("it comes");
        assert_eq!(asked.body, body);
        if body == INITIALIZED {
            asked.answer(202, &[], "");
        } else {
            let fields = [("content-type", "application/json"), ("mcp-session-id", "b2")];
            asked.answer(200, &fields, &initialized(BATCHES));
        }
    }
    assert_eq!(verdict(&client.head()), "live");
    client.event();
    let event = errors(&mut client, &["1", "2"], ("backend_lost", "not_executed"));
    last(&mut client, &event);
}

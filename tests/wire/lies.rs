//! The continuity suite against a backend that lies in known ways: each lie is found for what it is, and honesty too.
//! Law: the very command that the README prints is run; what it says is read from its report.
//! Next: `by_hand.rs`.

use std::io::Read;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::backend::{Backend, Exchange};
use crate::session::initialized;

/// How the backend answers whoever comes back behind the second message of a call.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// With exactly what follows.
    TheRest,
    /// With the result, as though nothing were missing before it.
    TheResultOnly,
    /// With everything, from a counter that began anew.
    AllOverAgain,
    /// With what follows, in another order.
    Shuffled,
    /// With what follows, and with a message of another call between it.
    MixedUp,
    /// With a stream that ends at once.
    Nothing,
    /// With a stream on which nothing comes.
    Silence,
    /// With an acceptance and no stream.
    Acceptance,
    /// With this status.
    Status(u16),
    /// With the call's own error.
    Error,
    /// With the result, and the word that something is missing.
    Reset,
}

/// A call as the backend got it.
struct Call {
    id: Value,
    token: String,
}

impl Call {
    /// Its messages: the two before the cut, the four behind it, and the result.
    fn messages(&self) -> Vec<String> {
        let progress = (1..=6).map(|n| self.progress(&self.token, n));
        let result = json!({ "jsonrpc": "2.0", "id": self.id, "result": { "content": [{ "type": "text", "text": self.token }] } });
        progress.chain([result.to_string()]).collect()
    }

    fn progress(&self, token: &str, n: u32) -> String {
        let params = json!({ "progressToken": token, "progress": n });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }).to_string()
    }
}

/// Events with the ids from `first` on.
fn events(first: usize, messages: &[String]) -> String {
    let numbered = messages.iter().enumerate();
    numbered
        .map(|(at, data)| format!("id: {}\ndata: {data}\n\n", first + at))
        .collect()
}

const STREAM: (&str, &str) = ("content-type", "text/event-stream");

fn come_back(exchange: Exchange, answer: Answer, call: &Call, backend: &Backend) {
    let all = call.messages();
    let send = |exchange: Exchange, body: &str| exchange.answer(200, &[STREAM], body);
    match answer {
        Answer::TheRest => send(exchange, &events(3, &all[2..])),
        Answer::TheResultOnly => send(exchange, &events(7, &all[6..])),
        Answer::AllOverAgain => send(exchange, &events(1, &all)),
        Answer::Shuffled => {
            let shuffled = [&all[3..4], &all[2..3], &all[4..]].concat();
            send(exchange, &events(3, &shuffled));
        }
        Answer::MixedUp => {
            let stranger = call.progress("tlsuite-another-1-", 9);
            send(exchange, &events(3, &[&[stranger], &all[2..]].concat()));
        }
        Answer::Nothing => send(exchange, ""),
        Answer::Silence => {
            let mut stream = exchange.stream();
            stream.chunk(": nothing\n\n");
            backend.park(stream);
        }
        Answer::Acceptance => exchange.answer(202, &[], ""),
        Answer::Status(status) => exchange.answer(status, &[("content-type", "text/plain")], "no"),
        Answer::Error => {
            let error = json!({ "jsonrpc": "2.0", "id": call.id, "error": { "code": -32603, "message": "it is gone" } });
            send(exchange, &events(3, &[error.to_string()]));
        }
        Answer::Reset => {
            let verdict = r#"reset; reason=evicted; epoch="ASNFZ4mrze8""#;
            let fields = [STREAM, ("throughline-continuity", verdict)];
            exchange.answer(200, &fields, &events(7, &all[6..]));
        }
    }
}

/// Answers one request; the call, if it is one.
fn serve(exchange: Exchange, answer: Answer, last: Option<&Call>, backend: &Backend) -> Option<Call> {
    if exchange.head.method() == "GET" {
        match (exchange.head.get("last-event-id"), last) {
            (Some("2"), Some(call)) => come_back(exchange, answer, call, backend),
            (cursor, _) => panic!("asked behind {cursor:?}"),
        }
        return None;
    }
    let body: Value = serde_json::from_str(&exchange.body).expect("JSON");
    match body["method"].as_str().expect("a method") {
        "initialize" => {
            let greeting = initialized("2025-11-25").replace("\"id\":1,", &format!("\"id\":{},", body["id"]));
            exchange.answer(
                200,
                &[("content-type", "application/json"), ("mcp-session-id", "liar")],
                &greeting,
            );
        }
        "tools/list" => {
            let tools = json!([{ "name": "slow", "inputSchema": { "type": "object" } }]);
            exchange.json(
                &json!({ "jsonrpc": "2.0", "id": body["id"], "result": { "tools": tools } }).to_string(),
            );
        }
        "tools/call" => {
            let token = body["params"]["_meta"]["progressToken"]
                .as_str()
                .expect("a token");
            let call = Call {
                id: body["id"].clone(),
                token: token.to_owned(),
            };
            exchange.answer(200, &[STREAM], &events(1, &call.messages()));
            return Some(call);
        }
        "notifications/initialized" => exchange.answer(202, &[], ""),
        _ => exchange.answer(400, &[("content-type", "text/plain")], "no"),
    }
    None
}

/// What the README's command says of the case, and the number that it ends with.
fn tried(answer: Answer) -> (Value, i32) {
    let readme = include_str!("../../README.md");
    let command = readme
        .lines()
        .find(|line| line.starts_with("throughline conformance http"));
    let command = command.expect("the README prints the command");
    let backend = Backend::start();
    let mut words: Vec<&str> = command.split_whitespace().skip(1).collect();
    let url = backend.url();
    words[1] = &url;
    let mut child = Command::new(env!("CARGO_BIN_EXE_throughline"))
        .args(words)
        .args(["--only", "post/reset", "--format", "json", "--timeout", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut last = None;
    let status = loop {
        if let Some(exchange) = backend.try_next() {
            let call = serve(exchange, answer, last.as_ref(), &backend);
            last = call.or(last);
        }
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
    };
    let mut said = String::new();
    let mut stdout = child.stdout.take().expect("it is piped");
    stdout.read_to_string(&mut said).expect("text");
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"));
    let cases = report["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 1, "{said}");
    (cases[0].clone(), status.code().expect("an exit code"))
}

#[test]
fn each_lie_is_found_silent_and_each_honest_answer_passes() {
    for (answer, outcome, how, part) in [
        (Answer::TheRest, "pass", Some("whole"), "all 5 messages"),
        (Answer::Status(405), "pass", Some("told"), "405"),
        (Answer::Status(404), "pass", Some("told"), "404"),
        (Answer::Error, "pass", Some("told"), "it is gone"),
        (Answer::Reset, "pass", Some("told"), "evicted"),
        (Answer::Status(500), "fail", None, "500"),
        (Answer::TheResultOnly, "silent", None, "lost: 4 of 5"),
        (Answer::AllOverAgain, "silent", None, "repeated: `1`"),
        (Answer::Shuffled, "silent", None, "another order"),
        (Answer::MixedUp, "silent", None, "progress 9 of another call"),
        (Answer::Nothing, "silent", None, "an empty stream"),
        (Answer::Silence, "silent", None, "stays open"),
        (Answer::Acceptance, "silent", None, "202 and no stream"),
    ] {
        let (case, code) = tried(answer);
        assert_eq!(case["outcome"], outcome, "{answer:?}: {case:#}");
        assert_eq!(case["how"].as_str(), how, "{answer:?}: {case:#}");
        let why = case["why"].as_str().expect("a reason");
        assert!(why.contains(part), "{answer:?}: no `{part}` in {why}");
        assert_eq!(code, i32::from(outcome != "pass"), "{answer:?}");
        let evidence = case["evidence"].as_array().expect("evidence");
        assert!(
            evidence
                .iter()
                .any(|line| line.as_str().is_some_and(|line| line.contains("cut here: reset")))
        );
    }
}

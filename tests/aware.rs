//! The check for clients in JavaScript and Python, held against the library's own answers over one table.
//! Law: what the library calls resumed, nobody else may miss; what it does not, nobody else may call so.
//! It needs Node and Python, as `tests/install.sh` does; `tests/run.sh` runs it after that.
//! Next: `../src/pure/guard/clients.md`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use throughline::guard::{Effect, Event, Guard, NoLedger, Standing};

#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/place.rs"]
mod place;

/// What a client presented, the first id that it got, and what the answer said.
type Case = (String, Option<String>, Option<String>);

fn id(generation: &str, tail: &str) -> String {
    format!("{generation}.{tail}")
}

const A: &str = "aASNFZ4mrze8.g.AAAAAAAAAAAAAAAA";
const OTHER_EPOCH: &str = "aAAAAAAAAAAA.g.AAAAAAAAAAAAAAAA";
const OTHER_STREAM: &str = "aASNFZ4mrze8.pi7.AAAAAAAAAAAAAAAA";

/// Every id with every verdict.
fn cases() -> Vec<Case> {
    let resumed = |epoch: &str, from: &str, window: &str| {
        format!("resumed; epoch=\"{epoch}\"; from=\"{from}\"; replayed=3; window={window}")
    };
    let firsts = ["4", "5", "6", "7", "5~", "6~", "4-k3", "5-k3", "6-k3", "0-k3"];
    let mut ids: Vec<Option<String>> = firsts.iter().map(|tail| Some(id(A, tail))).collect();
    ids.extend([OTHER_EPOCH, OTHER_STREAM].map(|generation| Some(id(generation, "6"))));
    ids.extend(
        [
            "6",
            "x",
            "a.b.c.6",
            &id(A, "06"),
            &id(A, "6-K"),
            &id(A, "18446744073709551616"),
        ]
        .map(|id| Some(id.to_owned())),
    );
    ids.push(None);
    let verdicts = [
        None,
        Some(String::new()),
        Some("live; epoch=\"ASNFZ4mrze8\"".to_owned()),
        Some("resumed".to_owned()),
        Some(resumed("ASNFZ4mrze8", "5", "1024")),
        Some(resumed("ASNFZ4mrze8", "4", "1024")),
        Some(resumed("AAAAAAAAAAA", "5", "1024")),
        Some(resumed("ASNFZ4mrze8", "5", "0")),
        Some("reset; reason=window_exceeded; epoch=\"AAAAAAAAAAA\"".to_owned()),
    ];
    let asked = [id(A, "5"), id(A, "5-k3"), id(OTHER_STREAM, "5"), "5".to_owned()];
    let mut cases = Vec::new();
    for asked in &asked {
        for first in &ids {
            for verdict in &verdicts {
                cases.push((asked.clone(), first.clone(), verdict.clone()));
            }
        }
    }
    cases
}

/// What the library says after the first event.
fn library((asked, first, verdict): &Case) -> &'static str {
    let mut guard = Guard::from_cursor(NoLedger, asked.as_bytes());
    guard.connected(verdict.as_deref());
    let primes = first.as_ref().is_some_and(|id| id.contains('-'));
    let _admitted = guard.event(Event {
        id: first.as_ref().map(|id| id.as_bytes()),
        kind: b"",
        data: if primes { b"" } else { b"{}" },
        effect: Effect::Unkeyed,
    });
    match guard.standing() {
        Standing::Continuous(_) => "resumed",
        Standing::Reoriginated(_) => "re-originated",
        Standing::Unverifiable(_) => "unverifiable",
    }
}

/// Asks a program that reads the cases from standard input and answers with a list of words.
fn ask(mut command: Command, cases: &[Case]) -> Vec<String> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    command
        .current_dir(examples)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("the interpreter starts");
    let list: Vec<Value> = cases
        .iter()
        .map(|(asked, first, verdict)| json!([asked, first, verdict]))
        .collect();
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin
        .write_all(json!(list).to_string().as_bytes())
        .expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).expect("a list of words")
}

fn check(command: Command) {
    let cases = cases();
    let answers = ask(command, &cases);
    assert_eq!(answers.len(), cases.len());
    for (case, answer) in cases.iter().zip(&answers) {
        let expected = library(case);
        // A verdict settles it before any id comes; a client that looks at both at once may doubt what the library
        // calls begun anew, and the other way round. What is resumed is the same for all.
        assert_eq!(
            answer == "resumed",
            expected == "resumed",
            "{case:?}: {answer}, not {expected}"
        );
    }
    for word in ["resumed", "re-originated", "unverifiable"] {
        assert!(answers.iter().any(|answer| answer == word), "nothing was {word}");
    }
}

#[test]
fn the_check_in_javascript_is_the_librarys() {
    let mut node = place::node();
    node.args(["--input-type=module", "-e"]).arg(
        "const { classify } = await import(process.cwd() + '/aware.mjs'); let text = ''; \
         for await (const piece of process.stdin) text += piece; \
         console.log(JSON.stringify(JSON.parse(text).map(([asked, first, verdict]) => classify(asked, first, verdict ?? undefined))));",
    );
    check(node);
}

#[test]
fn the_check_in_python_is_the_librarys() {
    let mut python = place::python();
    python.args(["-c", "import json, sys; sys.path.insert(0, '.'); sys.dont_write_bytecode = True; from aware import classify; print(json.dumps([classify(*case) for case in json.load(sys.stdin)]))"]);
    check(python);
}

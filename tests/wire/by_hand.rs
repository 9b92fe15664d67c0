//! The commands that the README gives to those who want to resume a stream by hand, or who operate the proxy, as they
//! stand there.
//! Law: what is printed is what runs; only the address and the id that the reader puts in are replaced.
//! Next: `../readme.rs`, which holds that no command is left out.

use std::process::{Command, Output, Stdio};
use std::thread;

use crate::backend::Backend;
use crate::proxy::Proxy;
use crate::session::{Session, initialized};
use crate::status::OPERATOR;

fn bash(script: String) -> thread::JoinHandle<Output> {
    thread::spawn(move || {
        Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::null())
            .output()
            .expect("bash runs")
    })
}

#[test]
fn a_stream_is_resumed_with_the_readmes_commands() {
    let readme = include_str!("../../README.md");
    let (_, part) = readme.split_once("## Resuming by hand").expect("the part");
    let mut blocks = part
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    let (open, resume) = (blocks.next().expect("a block"), blocks.next().expect("another"));

    let backend = Backend::start();
    let proxy = Proxy::start(&[&backend.url()], &[]);
    let open = open.replace("127.0.0.1:8080", &proxy.address.to_string());
    let began = bash(format!("{open}\necho \"SESSION=$SESSION\""));
    backend.next_of("POST").answer(
        200,
        &[("content-type", "application/json"), ("mcp-session-id", "own")],
        &initialized("2025-11-25"),
    );
    let mut listening = backend.next_of("GET").stream();
    let said = String::from_utf8(began.join().expect("it ends").stdout).expect("text");
    let id = said
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .expect("an id at once");
    let session = said
        .lines()
        .find(|line| line.starts_with("SESSION=t1"))
        .expect("a session");

    let settings = open.lines().take(2).collect::<Vec<_>>().join("\n");
    let resume = resume.replace("PUT-THE-ID-HERE", id);
    let resumed = bash(format!("{settings}\n{session}\n{resume}"));
    let said = String::from_utf8(resumed.join().expect("it ends").stdout).expect("text");
    assert!(said.contains("throughline-continuity: resumed; "), "{said}");
    listening.event(r#"{"jsonrpc":"2.0","method":"notifications/late"}"#);
}

/// What an operator types: each line does what the README says of it.
#[test]
fn a_replica_is_drained_with_the_readmes_commands() {
    let readme = include_str!("../../README.md");
    let (_, part) = readme.split_once("## Operating it").expect("the part");
    let (part, _) = part.split_once("\n## ").expect("its end");
    let lines: Vec<&str> = part
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .flat_map(str::lines)
        .filter(|line| !line.starts_with("throughline "))
        .collect();
    let [reload, drain, status, undrain] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    let (one, two) = (Backend::start(), Backend::start());
    let proxy = Proxy::start(&[&one.url(), &two.url()], &[OPERATOR]);
    let operator = proxy.operator().to_string();
    let session = Session::open(&proxy, &one);
    let run = |line: &str| {
        let line = line
            .replace("127.0.0.1:9464", &operator)
            .replace("127.0.0.1:3001", &one.address.to_string())
            .replace("$(pidof throughline)", &proxy.id().to_string());
        let output = bash(line.clone()).join().expect("it ends");
        assert!(output.status.success(), "{line}");
        String::from_utf8(output.stdout).expect("text")
    };
    run(reload);
    assert_eq!(proxy.logged("configuration was reloaded")["outcome"], "unchanged");
    assert!(run(drain).contains("is being drained: no new sessions; 1 sessions have 300 s"));
    let draining = format!("{} draining for ", one.address);
    let seen = run(status);
    let line = seen
        .lines()
        .find(|line| line.contains(&draining))
        .expect("its line");
    assert!(line.contains(", 1 sessions, "), "{seen}");
    Session::open(&proxy, &two).is_alive(&two);
    session.is_alive(&one);
    assert!(run(undrain).contains("takes new sessions again"));
    assert!(run(status).contains(&format!("{} healthy", one.address)));
}

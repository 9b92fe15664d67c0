//! What the README says is true: every command in it is run by a test, every reason and every file in it exists.
//! Law: a command that nobody tries fails this test; so does a reason that the README leaves out.
//! Commands that compile or install are run by `tests/run.sh`, and it is checked that they are.
//! Next: `run.sh`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use throughline::pure::epoch::Reason;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The commands of the README: each line of a `sh` block.
fn commands() -> Vec<String> {
    let readme = read("README.md");
    let blocks = readme
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next());
    blocks
        .flat_map(str::lines)
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Who tries a command.
enum Tried {
    /// `tests/run.sh` runs it, in this spelling.
    ByScript(&'static str),
    /// `.ci/run` does.
    ByCi,
    /// `tests/wire/by_hand.rs` runs its whole block, or each line of it.
    ByHand,
    /// `tests/wire/lies.rs` runs it.
    AgainstALiar,
    /// It ends by itself.
    ToItsEnd,
    /// It runs until it is told to end; the address it listens on stands for a free one.
    UntilDrained,
}

fn who_tries(command: &str) -> Option<Tried> {
    match command {
        "cargo run --release --example quickstart" => Some(Tried::ByScript(
            "cargo run --locked --release --example quickstart -- --once",
        )),
        "cargo install --path . --locked" => Some(Tried::ByScript(
            "cargo install --path . --locked --root target/installed",
        )),
        "tests/run.sh" => Some(Tried::ByCi),
        _ if ["URL=", "A=", "SESSION=", "curl ", "kill -HUP "]
            .iter()
            .any(|start| command.starts_with(start)) =>
        {
            Some(Tried::ByHand)
        }
        "throughline conformance http://127.0.0.1:3001/mcp" => Some(Tried::AgainstALiar),
        _ if command.starts_with("throughline check ") || command.ends_with(" --list") => {
            Some(Tried::ToItsEnd)
        }
        _ if command.starts_with("throughline run ") => Some(Tried::UntilDrained),
        _ => None,
    }
}

fn throughline(command: &str) -> Command {
    let mut binary = Command::new(env!("CARGO_BIN_EXE_throughline"));
    binary
        .args(command.split_whitespace().skip(1))
        .current_dir(root())
        .env_remove("THROUGHLINE_SECRET");
    binary
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    binary
}

fn run_to_its_end(command: &str) {
    let output = throughline(command).output().expect("the binary runs");
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn run_until_drained(command: &str) {
    let command = match command.contains("--listen") {
        true => command.replace("127.0.0.1:8080", "127.0.0.1:0") + " --admin off",
        false => command.to_owned() + " --set server.listen=127.0.0.1:0 --set admin.listen=off",
    };
    let mut child = throughline(&command).spawn().expect("the binary runs");
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().expect("it is piped")).lines() {
        let line = line.expect("a line");
        said.push_str(&line);
        said.push('\n');
        if line.contains("listening") {
            let told = Command::new("kill")
                .args(["-TERM", &child.id().to_string()])
                .status();
            assert!(told.expect("kill runs").success());
        }
    }
    let status = child.wait().expect("it ends");
    assert!(
        status.success() && said.contains("listening"),
        "{command}: {status}\n{said}"
    );
}

#[test]
fn every_command_is_tried() {
    let commands = commands();
    assert!(commands.len() >= 6, "{commands:?}");
    for command in &commands {
        match who_tries(command) {
            Some(Tried::ByScript(line)) => {
                assert!(
                    read("tests/run.sh").lines().any(|script| script.trim() == line),
                    "run.sh does not run {line:?}"
                );
            }
            Some(Tried::ByCi) => assert!(
                read(".ci/run").contains(command.as_str()),
                ".ci/run does not run {command:?}"
            ),
            Some(Tried::ByHand) => assert!(read("tests/wire.rs").contains("mod by_hand;")),
            Some(Tried::AgainstALiar) => assert!(read("tests/wire.rs").contains("mod lies;")),
            Some(Tried::ToItsEnd) => run_to_its_end(command),
            Some(Tried::UntilDrained) => run_until_drained(command),
            None => panic!("nobody tries {command:?}"),
        }
    }
}

#[test]
fn every_reason_is_explained_once() {
    let readme = read("README.md");
    for reason in Reason::ALL {
        let row = format!("| `{}` |", reason.as_str());
        assert_eq!(readme.matches(&row).count(), 1, "{row}");
    }
}

#[test]
fn every_link_into_the_repository_leads_somewhere() {
    let readme = read("README.md");
    let links = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let inside: Vec<&str> = links.filter(|link| !link.contains("://")).collect();
    assert!(!inside.is_empty());
    for link in inside {
        assert!(Path::new(&root().join(link)).exists(), "{link} leads nowhere");
    }
}

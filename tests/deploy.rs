//! A rolling deploy under load: real servers behind the real binary, restarted, killed, paused, refused and cut early,
//! while 50 sessions call, listen and lose their own connections.
//! Law: nothing is silent. A loss that was told is counted; one that was not fails the run.
//! It needs the packages of `tests/install.sh`. `cargo test --test deploy` is short; `-- --runs 10` tries ten servers.
//! Arguments: `--runs N`, `--sessions N`, `--set KEY=VALUE` for the proxy, and words that a server's name must contain.
//! Next: `deploy/scenario.rs`.

#[path = "deploy/call.rs"]
mod call;
#[path = "deploy/client.rs"]
mod client;
#[path = "deploy/http.rs"]
mod http;
#[path = "deploy/judge.rs"]
mod judge;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "interop/port.rs"]
mod port;
#[allow(dead_code, reason = "the quick start uses the rest of it")]
#[path = "../examples/quickstart/relay.rs"]
mod relay;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "deploy/replica.rs"]
mod replica;
#[allow(
    deprecated,
    reason = "logging is deprecated in a later revision; in this one it is what numbers notes"
)]
#[path = "deploy/rust_server.rs"]
mod rust_server;
#[path = "deploy/scenario.rs"]
mod scenario;
#[path = "deploy/sdk.rs"]
mod sdk;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "interop/signal.rs"]
mod signal;
#[path = "deploy/table.rs"]
mod table;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/turns.rs"]
mod turns;

use std::process::ExitCode;

use crate::replica::Kind;
use crate::scenario::{Options, Run};

/// Runs of the short form: three servers that differ most.
const RUNS: usize = 3;
/// Sessions at a time.
const SESSIONS: usize = 50;

/// What was asked for.
enum Asked {
    /// To be a server, on this port.
    Serve(u16),
    /// To make these runs.
    Runs(Vec<Kind>, Options),
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let (mut runs, mut words) = (RUNS, Vec::new());
    let mut options = Options {
        sessions: SESSIONS,
        settings: Vec::new(),
    };
    let mut serve = false;
    let number = |value: Option<String>| -> Result<usize, String> {
        let value = value.ok_or("a number is missing")?;
        value.parse().map_err(|_| format!("{value:?} is no number"))
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--runs" => runs = number(args.next())?,
            "--sessions" => options.sessions = number(args.next())?,
            "--set" => options.settings.push(args.next().ok_or("a setting is missing")?),
            "--serve" => serve = true,
            "--port" if serve => {
                let port = number(args.next())?;
                return Ok(Asked::Serve(
                    u16::try_from(port).map_err(|error| error.to_string())?,
                ));
            }
            other if other.starts_with("--") => return Err(format!("{other} is not known")),
            word => words.push(word.to_owned()),
        }
    }
    let fits = |kind: &Kind| words.iter().all(|word| kind.name().contains(word.as_str()));
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| kind.is_here() && fits(kind))
        .collect();
    if kinds.is_empty() {
        return Err("no server has such a name, or it is not installed".to_owned());
    }
    Ok(Asked::Runs(
        kinds.into_iter().cycle().take(runs).collect(),
        options,
    ))
}

async fn make(kinds: Vec<Kind>, options: &Options) -> Vec<Run> {
    let mut runs = Vec::new();
    table::head();
    for kind in kinds {
        let run = scenario::run(kind, options).await;
        table::row(&run);
        runs.push(run);
    }
    runs
}

fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(error) => {
            eprintln!("deploy: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (kinds, options) = match asked {
        Asked::Serve(port) => {
            return match runtime.block_on(rust_server::serve(port)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("deploy: the server ended: {error}");
                    ExitCode::FAILURE
                }
            };
        }
        Asked::Runs(kinds, options) => (kinds, options),
    };
    if !place::lab().join("installed").exists() {
        eprintln!("the real clients and servers are missing: run tests/install.sh first");
        return ExitCode::FAILURE;
    }
    judge::prove();
    let Some(runs) = runtime.block_on(turns::unless_stopped(make(kinds, &options))) else {
        eprintln!("deploy: stopped");
        return ExitCode::FAILURE;
    };
    match table::end(&runs) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

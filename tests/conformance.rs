//! The official conformance suite of MCP (`@modelcontextprotocol/conformance`), directly and through the real binary.
//! Law: what passes directly passes through the proxy, check by check, and what it heals is known by name; any other
//! difference fails the run. Whether an SDK passes at all is its own affair.
//! It needs the packages of `tests/install.sh`; `tests/run.sh` runs both.
//! Arguments: words; only runs whose name contains all of them are made (`cargo test --test conformance -- server py`).
//! With `THROUGHLINE_NOTES=1` it prints what the suite noted of scenarios that pass neither way.
//! Next: `conformance/suite.rs`.

#[allow(dead_code, reason = "the matrix uses the rest of it")]
#[path = "interop/backend.rs"]
mod backend;
#[path = "conformance/client.rs"]
mod client;
#[path = "conformance/compare.rs"]
mod compare;
#[path = "interop/fixture.rs"]
mod fixture;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[path = "conformance/server.rs"]
mod server;
#[path = "conformance/suite.rs"]
mod suite;
#[allow(dead_code, reason = "the matrix uses the rest of it")]
#[path = "interop/tape.rs"]
mod tape;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use crate::compare::Report;

/// Runs under way at the same time: they wait about as much as they work.
const RUNS_AT_ONCE: usize = 3;

/// The first argument of this program where it stands between the suite and a client.
const BETWEEN: &str = "between";

/// One run to make.
struct Run {
    name: String,
    work: Pin<Box<dyn Future<Output = Report> + Send>>,
}

fn plan() -> Vec<Run> {
    let servers = server::cases().into_iter().map(|case| Run {
        name: case.name(),
        work: Box::pin(server::run(case)),
    });
    let clients = client::cases().into_iter().map(|case| Run {
        name: case.name(),
        work: Box::pin(client::run(case)),
    });
    servers.chain(clients).collect()
}

/// Makes the runs, a few at a time, in their order; each says how it went as soon as it is known.
async fn make(runs: Vec<Run>) -> Vec<(String, Report)> {
    let turns = Arc::new(Semaphore::new(RUNS_AT_ONCE));
    let mut tasks = Vec::new();
    for run in runs {
        let turn = Arc::clone(&turns)
            .acquire_owned()
            .await
            .expect("the turns are never closed");
        let name = run.name.clone();
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let report = run.work.await;
            report.print(&run.name, began.elapsed());
            drop(turn);
            report
        });
        tasks.push((name, task));
    }
    let mut reports = Vec::new();
    for (name, task) in tasks {
        let report = task
            .await
            .unwrap_or_else(|error| Report::broken(error.to_string()));
        reports.push((name, report));
    }
    reports
}

/// Makes the runs unless this process is told to end; then what was started ends with it.
async fn make_unless_stopped(runs: Vec<Run>) -> Option<Vec<(String, Report)>> {
    let mut stop = signal(SignalKind::terminate()).expect("signals can be had");
    tokio::select! {
        biased;
        _ = stop.recv() => None,
        _ = tokio::signal::ctrl_c() => None,
        reports = make(runs) => Some(reports),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if arguments.first().is_some_and(|first| first == BETWEEN) {
        return runtime.block_on(client::between(&arguments[1..]));
    }
    let runs: Vec<Run> = plan()
        .into_iter()
        .filter(|run| {
            arguments
                .iter()
                .filter(|word| !word.starts_with("--"))
                .all(|word| run.name.contains(word.as_str()))
        })
        .collect();
    if !place::lab().join("installed").exists() {
        eprintln!("the conformance suite is missing: run tests/install.sh first");
        return ExitCode::FAILURE;
    }
    let Some(reports) = runtime.block_on(make_unless_stopped(runs)) else {
        eprintln!("conformance: stopped");
        return ExitCode::FAILURE;
    };
    let failed = compare::print_all(&reports);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

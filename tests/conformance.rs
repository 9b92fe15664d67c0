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
#[path = "conformance/gate.rs"]
mod gate;
#[path = "interop/input.rs"]
mod input;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "interop/port.rs"]
mod port;
#[path = "interop/published.rs"]
mod published;
#[path = "conformance/server.rs"]
mod server;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "interop/signal.rs"]
mod signal;
#[path = "conformance/suite.rs"]
mod suite;
#[allow(dead_code, reason = "the matrix uses the rest of it")]
#[path = "interop/tape.rs"]
mod tape;
#[path = "interop/turns.rs"]
mod turns;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Instant;

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
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let works = runs.into_iter().map(|run| async move {
        let began = Instant::now();
        let report = run.work.await;
        report.print(&run.name, began.elapsed());
        report
    });
    let reports = turns::in_turns(RUNS_AT_ONCE, works).await.into_iter();
    let reports = reports.map(|report| report.unwrap_or_else(|error| Report::broken(error.to_string())));
    names.into_iter().zip(reports).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if arguments.first().is_some_and(|first| first == BETWEEN) {
        return runtime.block_on(client::between(&arguments[1..]));
    }
    let words = turns::words();
    let mut runs = plan();
    runs.retain(|run| words.iter().all(|word| run.name.contains(word.as_str())));
    if !place::lab().join("installed").exists() {
        eprintln!("the conformance suite is missing: run tests/install.sh first");
        return ExitCode::FAILURE;
    }
    let Some(reports) = runtime.block_on(turns::unless_stopped(make(runs))) else {
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

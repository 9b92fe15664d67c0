//! Interoperability: real SDK clients, real SDK servers, the real binary between them, and a relay that cuts on command.
//! Law: what is counted is what each client saw; every run prints its table, passed or not.
//! It needs the packages of `tests/install.sh`; `tests/run.sh` runs both. Some runs go without the proxy, to show that the cuts hurt.
//! Arguments: words; only runs whose name contains all of them are made (`cargo test --test interop -- calls py`).
//! Next: `interop/lab.rs`.

#[path = "interop/calls.rs"]
mod calls;
#[allow(dead_code, reason = "the deploy scenario uses the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[path = "interop/notes.rs"]
mod notes;
#[path = "interop/one_stream.rs"]
mod one_stream;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[allow(dead_code, reason = "the quick start uses the rest of it")]
#[path = "../examples/quickstart/relay.rs"]
mod relay;
#[path = "interop/replicas.rs"]
mod replicas;
#[path = "interop/score.rs"]
mod score;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "interop/signal.rs"]
mod signal;
#[path = "interop/thief.rs"]
mod thief;
#[path = "interop/turns.rs"]
mod turns;
#[path = "interop/unannounced.rs"]
mod unannounced;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;

use crate::lab::{Keeps, Over, Sdk, Serves, Window};
use crate::score::{Path, Row};

/// Runs under way at the same time: they wait more than they work.
const RUNS_AT_ONCE: usize = 6;

/// One run to make.
struct Run {
    name: String,
    work: Pin<Box<dyn Future<Output = Row> + Send>>,
}

impl Run {
    fn call(case: calls::Case) -> Self {
        let what = match case.window {
            Window::Default => "calls",
            Window::TooSmall => "window calls",
        };
        Self {
            name: format!(
                "{what} {} {} {}",
                case.client.name(),
                case.server.name(),
                case.path.name()
            ),
            work: Box::pin(calls::run(case)),
        }
    }

    fn notes(case: notes::Case) -> Self {
        let what = match case.window {
            Window::Default => "notes",
            Window::TooSmall => "window",
        };
        Self {
            name: format!(
                "{what} {} {} {}",
                case.client.name(),
                case.server.name(),
                case.path.name()
            ),
            work: Box::pin(notes::run(case)),
        }
    }

    fn one_stream(case: one_stream::Case) -> Self {
        Self {
            name: case.name(),
            work: Box::pin(one_stream::run(case)),
        }
    }

    fn unannounced(client: Sdk, server: Sdk, asked: unannounced::Asked) -> Self {
        Self {
            name: format!("{} {} {}", asked.name(), client.name(), server.name()),
            work: Box::pin(unannounced::run(client, server, asked)),
        }
    }

    fn thief(server: Serves) -> Self {
        Self {
            name: format!("thief {}", server.name()),
            work: Box::pin(thief::run(server)),
        }
    }

    fn replicas(server: Sdk, path: Path) -> Self {
        Self {
            name: format!("replicas {} {}", server.name(), path.name()),
            work: Box::pin(replicas::run(server, path)),
        }
    }
}

fn plan() -> Vec<Run> {
    let plain = Serves::Sdk(Sdk::Ts1, Keeps::Sessions);
    let mut runs = Vec::new();
    // The longest first.
    for client in Sdk::ALL {
        for server in Sdk::ALL.map(|sdk| Serves::Sdk(sdk, Keeps::Sessions)) {
            runs.push(Run::notes(notes::Case::proxied(client, server, Window::Default)));
        }
        runs.push(Run::notes(notes::Case::proxied(client, plain, Window::TooSmall)));
        runs.push(Run::notes(notes::Case::direct(client, plain)));
    }
    for server in Sdk::ALL {
        runs.push(Run::thief(Serves::Sdk(server, Keeps::Sessions)));
        runs.push(Run::replicas(server, Path::Proxied));
    }
    runs.push(Run::replicas(Sdk::Ts1, Path::Direct));
    for client in Sdk::ALL {
        for server in Sdk::ALL {
            runs.push(Run::call(calls::Case::proxied(
                client,
                Serves::Sdk(server, Keeps::Sessions),
            )));
            // One client of each language is enough for what servers of other kinds add.
            if matches!(client, Sdk::Ts2 | Sdk::Py1) {
                runs.push(Run::call(calls::Case::proxied(
                    client,
                    Serves::Sdk(server, Keeps::Events),
                )));
                runs.push(Run::call(calls::Case::proxied(
                    client,
                    Serves::Sdk(server, Keeps::Nothing),
                )));
            }
        }
        runs.push(Run::call(calls::Case::proxied(client, Serves::Everything)));
        runs.push(Run::call(calls::Case::too_small(client, plain)));
        runs.push(Run::call(calls::Case::direct(client, plain)));
    }
    for server in Sdk::ALL {
        runs.push(Run::unannounced(Sdk::Ts1, server, unannounced::Asked::Never));
        for client in Sdk::ALL {
            runs.push(Run::unannounced(client, server, unannounced::Asked::WithProof));
        }
    }
    runs.extend(over_one_stream());
    runs
}

/// HTTP+SSE: each client with each server that still speaks it, and the stream cut.
fn over_one_stream() -> Vec<Run> {
    let mut runs = Vec::new();
    let mut add = |client, over, server, (path, cuts)| {
        runs.push(Run::one_stream(one_stream::Case {
            client,
            over,
            server,
            path,
            cuts,
        }));
    };
    let sdks = Sdk::ALL.map(|sdk| Serves::Sdk(sdk, Keeps::Sessions));
    let servers: Vec<Serves> = sdks.into_iter().chain([Serves::Everything]).collect();
    for server in servers.into_iter().filter(|server| server.speaks(Over::Sse)) {
        for client in Sdk::ALL {
            add(client, Over::Sse, server, (Path::Proxied, 0));
        }
        for client in [Sdk::Ts1, Sdk::Ts2] {
            add(client, Over::SseWithCursor, server, (Path::Proxied, 4));
        }
    }
    let plain = Serves::Sdk(Sdk::Py1, Keeps::Sessions);
    add(Sdk::Ts1, Over::SseWithCursor, plain, (Path::Direct, 1));
    for client in [Sdk::Ts1, Sdk::Py1] {
        for path in [Path::Direct, Path::Proxied] {
            add(client, Over::Sse, plain, (path, 1));
        }
    }
    runs
}

/// Makes the runs, a few at a time, in their order; each says how it went as soon as it is known.
async fn make(runs: Vec<Run>) -> Vec<Row> {
    let works = runs.into_iter().map(|run| async move {
        let row = run.work.await;
        let seconds = row.seconds;
        println!(
            "{} {} ({seconds:.1} s)",
            if row.faults.is_empty() { "ok    " } else { "FAILED" },
            run.name
        );
        for fault in &row.faults {
            println!("       {fault}");
        }
        row
    });
    let rows = turns::in_turns(RUNS_AT_ONCE, works).await.into_iter().map(|row| {
        row.unwrap_or_else(|error| {
            let mut row = Row::new("panicked", "", "", Path::Proxied);
            row.faults.push(error.to_string());
            row
        })
    });
    rows.collect()
}

fn main() -> ExitCode {
    let words = turns::words();
    let runs: Vec<Run> = plan()
        .into_iter()
        .filter(|run| words.iter().all(|word| run.name.contains(word.as_str())))
        .collect();
    if !place::lab().join("installed").exists() {
        eprintln!("the real clients and servers are missing: run tests/install.sh first");
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(rows) = runtime.block_on(turns::unless_stopped(make(runs))) else {
        eprintln!("interop: stopped");
        return ExitCode::FAILURE;
    };
    score::print(&rows);
    let failed = rows.iter().filter(|row| !row.faults.is_empty()).count();
    println!("\ninterop: {} passed, {failed} failed", rows.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

//! The matrix: each official SDK as client and as server, each with each, directly and through the real binary.
//! Law: a feature that works directly works through the proxy; what a broken connection takes directly, the proxy gives back;
//! and a JSON-RPC message is the same bytes on both sides of it, in both directions.
//! What was seen through the proxy is the table of `MATRIX.md`; the run fails if it says otherwise, and writes it anew with
//! `THROUGHLINE_WRITE_MATRIX=1`. It needs the packages of `tests/install.sh`; `tests/run.sh` runs both.
//! Arguments: words; only pairs whose name contains all of them are tried, and the table is left alone.
//! Next: `interop/pair.rs`.

#[allow(dead_code, reason = "the conformance suite uses the rest of it")]
#[path = "interop/backend.rs"]
mod backend;
#[path = "interop/driver.rs"]
mod driver;
#[path = "interop/fixture.rs"]
mod fixture;
#[path = "interop/input.rs"]
mod input;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[path = "interop/pair.rs"]
mod pair;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[allow(dead_code, reason = "the conformance suite uses it")]
#[path = "interop/published.rs"]
mod published;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "../examples/quickstart/relay.rs"]
mod relay;
#[path = "interop/seen.rs"]
mod seen;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "interop/signal.rs"]
mod signal;
#[allow(dead_code, reason = "the conformance suite uses the rest of it")]
#[path = "interop/tape.rs"]
mod tape;
#[path = "interop/turns.rs"]
mod turns;

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::backend::Backend;
use crate::lab::{Keeps, Sdk, Serves, Speaks};
use crate::pair::{Client, FEATURES, Felt, Pair, Seen};

/// Pairs under way at the same time: they wait more than they work.
const PAIRS_AT_ONCE: usize = 4;

fn plan() -> Vec<Pair> {
    let clients = Sdk::ALL.map(Client::Lab).into_iter().chain([Client::Rust]);
    let servers = Sdk::ALL
        .map(|sdk| Backend::Lab(Serves::Fixture(sdk, Keeps::Events, Speaks::Newest)))
        .into_iter()
        .chain([Backend::Rust]);
    let servers: Vec<Backend> = servers.collect();
    clients
        .flat_map(|client| servers.iter().map(move |&server| Pair { client, server }))
        .collect()
}

async fn make(pairs: Vec<Pair>) -> Vec<(Pair, Seen)> {
    let works = pairs.clone().into_iter().map(|pair| async move {
        let seen = pair::run(pair).await;
        seen.print(pair);
        seen
    });
    let all = turns::in_turns(PAIRS_AT_ONCE, works).await.into_iter();
    let all = all.map(|seen| seen.unwrap_or_else(|error| Seen::broken(error.to_string())));
    pairs.into_iter().zip(all).collect()
}

/// What was seen through the proxy, as Markdown.
fn table(all: &[(Pair, Seen)]) -> String {
    let mut text = String::from(
        "# Official SDKs through throughline\n\n\
         Written by `THROUGHLINE_WRITE_MATRIX=1 cargo test --test matrix`, and held equal to what that test sees.\n\
         Each row is a client and a server of an official SDK with throughline between them, at MCP 2025-11-25. `cut`: the\n\
         answer to a call is cut in the middle; the result and each progress message still come once. `resume`: the\n\
         standalone stream is cut; each of its messages still comes once, in order. `store`: the server keeps events.\n\n",
    );
    let _ = writeln!(text, "| client | server | {} |", FEATURES.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(FEATURES.len()));
    for (pair, seen) in all {
        let cells: Vec<&str> = FEATURES
            .iter()
            .map(|feature| match seen.through.get(*feature) {
                Some(Felt::Works) => "ok",
                Some(Felt::Fails(_)) | None => "no",
            })
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            pair.client.name(),
            pair.server.name(),
            cells.join(" | ")
        );
    }
    text
}

fn main() -> ExitCode {
    let words = turns::words();
    if !place::lab().join("installed").exists() {
        eprintln!("the real clients and servers are missing: run tests/install.sh first");
        return ExitCode::FAILURE;
    }
    let mut pairs = plan();
    pairs.retain(|pair| words.iter().all(|word| pair.name().contains(word.as_str())));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(all) = runtime.block_on(turns::unless_stopped(make(pairs))) else {
        eprintln!("matrix: stopped");
        return ExitCode::FAILURE;
    };
    let failed = all.iter().filter(|(_, seen)| !seen.faults().is_empty()).count();
    let messages: usize = all.iter().map(|(_, seen)| seen.messages).sum();
    println!(
        "\nmatrix: {} pairs, {failed} failed; {messages} messages were the same on both sides",
        all.len()
    );
    let kept = if words.is_empty() {
        seen::keep("tests/MATRIX.md", &table(&all))
    } else {
        Ok(())
    };
    if let Err(said) = &kept {
        eprintln!("{said}");
    }
    if failed == 0 && kept.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

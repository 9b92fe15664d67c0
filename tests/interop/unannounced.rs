//! A server that ends the stream of an unfinished answer and does not say when to come back, as the SDKs do if nobody tells them.
//! Law: asked again with proof, its answer comes; by default its call gets an error that says so, and is never left open.
//! Next: `replicas.rs`.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use crate::lab::{self, Keeps, Proxy, Sdk, Serves, Speaks};
use crate::score::{Outcome, Path, Row};

/// When a call that has not ended is called hung: twice what a server is asked again for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether such a server is asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    /// No, which is the default.
    Never,
    /// Yes, and it proves that nothing is missing.
    WithProof,
}

impl Asked {
    /// Its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Never => "left, unannounced",
            Self::WithProof => "left, proved",
        }
    }

    const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Never => &[],
            Self::WithProof => &[
                "upstream.event_store=per-session",
                "upstream.stream.reattach=proved",
            ],
        }
    }
}

/// Runs one case.
pub(crate) async fn run(client: Sdk, server: Sdk, asked: Asked) -> Row {
    let began = Instant::now();
    let what = Serves::Fixture(server, Keeps::Events, Speaks::Newest);
    let mut row = Row::new(asked.name(), client.name(), what.name(), Path::Proxied);
    if let Err(fault) = measure(client, what, asked, &mut row).await {
        row.faults.push(fault);
    }
    row.seconds = began.elapsed().as_secs_f64();
    row
}

async fn measure(client: Sdk, what: Serves, asked: Asked, row: &mut Row) -> Result<(), String> {
    let mut command = what.command();
    command.env("LAB_NO_RETRY", "1");
    let (server, _process) = lab::listening(&what.name(), command).await?;
    let proxy = Proxy::start(&[server], asked.settings()).await?;
    let mut client = lab::connect(client, proxy.address).await?;
    client.call("0", "test_reconnection", json!({})).await?;
    let outcome = match timeout(PATIENCE, client.expect("answer")).await {
        Err(_) => Outcome::Hung,
        Ok(said) => match said?["text"].as_str() {
            Some("reconnected") => Outcome::Result,
            text => Outcome::Error(text.unwrap_or_default().to_owned()),
        },
    };
    row.end(&outcome);
    match (asked, &outcome) {
        (Asked::WithProof, Outcome::Result) => {}
        (Asked::Never, Outcome::Error(text)) if text.contains("backend_lost") => {}
        (Asked::WithProof | Asked::Never, other) => row.faults.push(format!("it ended so: {other:?}")),
    }
    drop(client);
    row.demand("exit code", proxy.drain().await?, 0);
    Ok(())
}

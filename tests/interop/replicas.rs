//! Two replicas of one server, and clients that don't know it.
//! Law: behind the proxy every call of every session finds its replica; behind a balancer without affinity none does.
//! Both replicas must have had work, or the run proves nothing.
//! Next: `../lab/server.mjs`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use crate::lab::{self, Keeps, Process, Proxy, Sdk, Serves};
use crate::relay::{Plan, Relay, Spread};
use crate::score::{Outcome, Path, Row};

/// Calls of each client.
const CALLS: usize = 3;
/// How long clients may take to start and connect, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// When a call that has not ended is called hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the case with one client of each SDK at the same time.
pub(crate) async fn run(server: Sdk, path: Path) -> Row {
    let began = Instant::now();
    let mut row = Row::new("two replicas", "all", server.name(), path);
    if let Err(fault) = measure(server, path, &mut row).await {
        row.faults.push(fault);
    }
    row.seconds = began.elapsed().as_secs_f64();
    row
}

async fn measure(server: Sdk, path: Path, row: &mut Row) -> Result<(), String> {
    let what = Serves::Sdk(server, Keeps::Sessions);
    let (first, mut one) = lab::serve(what).await?;
    let (second, mut two) = lab::serve(what).await?;
    match path {
        Path::Direct => {
            let balancer = Relay::start(vec![first, second], Spread::Requests, |_| Plan::Pass).await;
            call_all(balancer.map_err(|error| error.to_string())?.address(), row).await;
            if row.results == row.calls {
                row.faults
                    .push("affinity was not needed: this run proves nothing".to_owned());
            }
        }
        Path::Proxied => {
            let proxy = Proxy::start(&[first, second], &[]).await?;
            call_all(proxy.address, row).await;
            row.demand_whole();
            for (name, replica) in [("first", &mut one), ("second", &mut two)] {
                if !replica.rest().iter().any(|said| said["ev"] == "ended") {
                    row.faults
                        .push(format!("the {name} replica had no work: this run proves nothing"));
                }
            }
            row.demand("exit code", proxy.drain().await?, 0);
        }
    }
    Ok(())
}

/// One client of each SDK, all connected at the same time, then the calls of each in turn.
async fn call_all(target: SocketAddr, row: &mut Row) {
    let mut clients = Vec::new();
    for sdk in Sdk::ALL {
        let connected = timeout(START, lab::connect(sdk, target)).await;
        clients.push(connected.unwrap_or_else(|_| Err("hangs".to_owned())));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for call in 0..CALLS {
            let outcome = match client {
                Ok(client) => one_call(client, &format!("{number}.{call}")).await,
                Err(error) => Outcome::Error(error.clone()),
            };
            row.end(&outcome);
        }
    }
}

async fn one_call(client: &mut Process, tag: &str) -> Outcome {
    if let Err(error) = client
        .call(tag, "slow", json!({ "tag": tag, "steps": 2, "interval_ms": 5 }))
        .await
    {
        return Outcome::Error(error);
    }
    match timeout(PATIENCE, client.expect("answer")).await {
        Err(_) => Outcome::Hung,
        Ok(Err(error)) => Outcome::Error(error),
        Ok(Ok(said)) if said["text"] == format!("{tag}:done") => Outcome::Result,
        Ok(Ok(said)) => Outcome::Error(said["text"].to_string()),
    }
}

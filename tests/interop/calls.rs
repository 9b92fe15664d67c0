//! Tool calls with progress, each connection cut once in the middle.
//! Law: through the proxy every call ends in its result, every progress message comes once and in order, and nothing is run twice.
//! Where and how a call is cut follows from its number, so that a run is the same every time.
//! Next: `notes.rs`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lab::{self, Process, Proxy, Sdk, Serves, Window};
use crate::relay::{Exchange, How, Kind, Plan, Point, Proof, Relay, Spread};
use crate::score::{Outcome, Path, Row, Seen, more_than_once};

/// Calls of one run.
const CALLS: usize = 20;
/// Calls under way at the same time.
const WIDTH: usize = 4;
/// Progress messages of one call.
const STEPS: u64 = 8;
/// Progress messages of one call where the window is too small for what comes in a second.
const STEPS_OF_LONG_CALLS: u64 = 100;

/// What differs between runs.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The client.
    pub(crate) client: Sdk,
    /// The server.
    pub(crate) server: Serves,
    /// The way between them.
    pub(crate) path: Path,
    /// The window.
    pub(crate) window: Window,
    /// How many calls.
    pub(crate) calls: usize,
    /// When calls that have not ended are called hung.
    pub(crate) deadline: Duration,
}

impl Case {
    /// The full number of calls through the proxy.
    pub(crate) fn proxied(client: Sdk, server: Serves) -> Self {
        Self {
            client,
            server,
            path: Path::Proxied,
            window: Window::Default,
            calls: CALLS,
            deadline: Duration::from_secs(60),
        }
    }

    /// The same where the proxy holds less than a client misses.
    pub(crate) fn too_small(client: Sdk, server: Serves) -> Self {
        Self {
            window: Window::TooSmall,
            ..Self::proxied(client, server)
        }
    }

    pub(crate) fn steps(self) -> u64 {
        match self.window {
            Window::Default => STEPS,
            Window::TooSmall => STEPS_OF_LONG_CALLS,
        }
    }

    /// A few calls without it, to show that the cuts hurt.
    pub(crate) fn direct(client: Sdk, server: Serves) -> Self {
        Self {
            client,
            server,
            path: Path::Direct,
            window: Window::Default,
            calls: WIDTH,
            deadline: Duration::from_secs(6),
        }
    }

    /// Half of the calls are still running when their client is back, half have ended; long ones all run on.
    fn order(self, number: usize) -> (&'static str, Value) {
        // `everything` ignores the tag; the relay reads it.
        let (tag, steps) = (number.to_string(), self.steps());
        let interval_ms = match self.window {
            Window::Default if number.is_multiple_of(2) => 40,
            Window::Default => 220,
            Window::TooSmall => 20,
        };
        match self.server {
            Serves::Sdk(..) | Serves::Fixture(..) => (
                "slow",
                json!({ "tag": tag, "steps": steps, "interval_ms": interval_ms }),
            ),
            Serves::Everything => {
                let duration = (interval_ms * steps) as f64 / 1000.0;
                (
                    "trigger-long-running-operation",
                    json!({ "tag": tag, "duration": duration, "steps": steps }),
                )
            }
        }
    }
}

/// What each call's client has reported, by tag; the relay waits for the first progress of a call before it cuts it.
#[derive(Clone, Default)]
pub(crate) struct Reported(Arc<Mutex<HashMap<String, watch::Sender<bool>>>>);

impl Reported {
    fn progress(&self, tag: &str) {
        self.of(tag, |sender| {
            sender.send_replace(true);
        });
    }

    pub(crate) fn proof(&self, tag: &str) -> Proof {
        let mut reported = self.of(tag, watch::Sender::subscribe);
        Box::pin(async move {
            let _run_over = reported.wait_for(|had| *had).await;
        })
    }

    fn of<A>(&self, tag: &str, ask: impl FnOnce(&watch::Sender<bool>) -> A) -> A {
        let mut map = self.0.lock().expect("nobody panics while holding it");
        ask(map
            .entry(tag.to_owned())
            .or_insert_with(|| watch::channel(false).0))
    }
}

/// Every call's own connection is cut, at a place and in a way that goes with its number; what resumes it passes.
fn cut_each_call_once(reported: Reported) -> impl FnMut(&Exchange) -> Plan + Send {
    move |exchange| {
        if exchange.kind != Kind::Call {
            return Plan::Pass;
        }
        let nth = exchange.nth;
        // A priming event (through the proxy), one progress message, then up to six more.
        let events = 2 + nth % 7;
        let bytes = if nth.is_multiple_of(3) { 40 } else { 0 };
        let how = match nth % 4 {
            0 => How::Close,
            1 => How::Lose(2),
            _ => How::Reset,
        };
        let request: Value = serde_json::from_str(&exchange.body).unwrap_or_default();
        let tag = request["params"]["arguments"]["tag"].as_str().unwrap_or("");
        Plan::Cut(Point { events, bytes }, how, reported.proof(tag))
    }
}

/// Runs one case.
pub(crate) async fn run(case: Case) -> Row {
    let began = Instant::now();
    let what = match case.window {
        Window::Default => "calls cut once",
        Window::TooSmall => "calls, small window",
    };
    let mut row = Row::new(what, case.client.name(), case.server.name(), case.path);
    if let Err(fault) = measure(case, &mut row).await {
        row.faults.push(fault);
    }
    row.seconds = began.elapsed().as_secs_f64();
    row
}

async fn measure(case: Case, row: &mut Row) -> Result<(), String> {
    let (server, mut process) = lab::serve(case.server).await?;
    let proxy = match case.path {
        Path::Direct => None,
        Path::Proxied => Some(Proxy::start(&[server], case.window.settings()).await?),
    };
    let target = proxy.as_ref().map_or(server, |proxy| proxy.address);
    let mut calls = Calls::default();
    let relay = Relay::start(
        vec![target],
        Spread::Connections,
        cut_each_call_once(calls.reported.clone()),
    )
    .await
    .map_err(|e| e.to_string())?;
    let mut client = lab::connect(case.client, relay.address()).await?;

    let _late = timeout(case.deadline, calls.make(&mut client, case)).await;
    for tag in 0..case.calls {
        let call = calls.of.remove(&tag.to_string()).unwrap_or_default();
        row.messages(&call.progress, case.steps());
        row.end(call.outcome.as_ref().unwrap_or(&Outcome::Hung));
    }
    row.cuts = relay.tally().cuts;
    let said = process.rest();
    row.run_twice = more_than_once(
        said.iter()
            .filter(|value| value["ev"] == "began")
            .filter_map(|value| value["tag"].as_str()),
    );

    match (case.path, case.window) {
        (Path::Direct, _) => {
            if row.lost == 0 {
                row.faults
                    .push("the cuts did not hurt: this run proves nothing".to_owned());
            }
        }
        (Path::Proxied, Window::Default) => {
            row.demand_whole();
            row.faults.extend(calls.errors);
        }
        (Path::Proxied, Window::TooSmall) => {
            // What can't be had is said in the call's own error.
            row.demand("hung", row.hung, 0);
            row.demand("run twice", row.run_twice, 0);
            row.demand("repeated", row.repeated, 0);
            row.demand("out of order", row.disordered, 0);
            if row.errors == 0 {
                row.faults
                    .push("the window was not too small: this run proves nothing".to_owned());
            }
            row.faults.extend(
                calls
                    .errors
                    .into_iter()
                    .filter(|error| !error.contains("window_exceeded")),
            );
        }
    }
    row.demand("cuts", row.cuts, row.calls);
    drop(client);
    if let Some(proxy) = proxy {
        row.demand("exit code", proxy.drain().await?, 0);
    }
    Ok(())
}

/// What is known of the calls of a run.
#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) reported: Reported,
    pub(crate) of: HashMap<String, OneCall>,
    pub(crate) errors: Vec<String>,
}

/// What is known of one call.
#[derive(Default)]
pub(crate) struct OneCall {
    pub(crate) progress: Seen,
    pub(crate) outcome: Option<Outcome>,
}

impl Calls {
    /// Makes all calls, a few at a time, until each has ended.
    pub(crate) async fn make(&mut self, client: &mut Process, case: Case) -> Result<(), String> {
        let mut made = 0;
        let mut ended = 0;
        while ended < case.calls {
            while made < case.calls && made - ended < WIDTH {
                let (tool, arguments) = case.order(made);
                client.call(&made.to_string(), tool, arguments).await?;
                made += 1;
            }
            let Some(said) = client.next().await else {
                return Err("the client ended".to_owned());
            };
            ended += self.hear(&said, case.server);
        }
        Ok(())
    }

    /// Takes one observation; how many calls it ended.
    fn hear(&mut self, said: &Value, server: Serves) -> usize {
        let tag = said["tag"].as_str().unwrap_or("").to_owned();
        match said["ev"].as_str() {
            Some("progress") => {
                self.reported.progress(&tag);
                let step = said["p"].as_f64().unwrap_or(0.0);
                self.of.entry(tag).or_default().progress.push(step as u64);
                0
            }
            Some("answer") => {
                let outcome = judge(said, &tag, server);
                if let Outcome::Error(text) = &outcome {
                    self.errors.push(format!("call {tag}: {text}"));
                }
                let before = self.of.entry(tag.clone()).or_default().outcome.replace(outcome);
                if before.is_some() {
                    self.errors.push(format!("call {tag} was answered twice"));
                    return 0;
                }
                1
            }
            Some(_) | None => 0,
        }
    }
}

fn judge(said: &Value, tag: &str, server: Serves) -> Outcome {
    let text = said["text"].as_str().unwrap_or("");
    let own = match server {
        Serves::Sdk(..) | Serves::Fixture(..) => text == format!("{tag}:done"),
        Serves::Everything => text.contains("completed"),
    };
    match said["outcome"].as_str() {
        Some("result") if own => Outcome::Result,
        Some("result") => Outcome::Wrong(text.to_owned()),
        Some(_) | None => Outcome::Error(text.to_owned()),
    }
}

//! HTTP+SSE of 2024-11-05: calls with progress over the one stream of a session, whole and cut.
//! Law: uncut, everything works as it does directly. Cut, a client that presents its cursor has everything all the same; the
//! SDKs' own clients present none, and lose through the proxy what they lose directly, but no call runs twice.
//! Where the stream is cut follows from the cut's number.
//! Next: `replicas.rs`.

use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::calls::{self, Calls, Reported};
use crate::lab::{self, Over, Proxy, Sdk, Serves};
use crate::relay::{Exchange, How, Kind, Plan, Point, Relay, Spread};
use crate::score::{Outcome, Path, Row, more_than_once};

/// What differs between runs.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The client.
    pub(crate) client: Sdk,
    /// Whether it presents its cursor.
    pub(crate) over: Over,
    /// The server.
    pub(crate) server: Serves,
    /// The way between them.
    pub(crate) path: Path,
    /// How often the stream is cut.
    pub(crate) cuts: usize,
}

impl Case {
    /// Its name.
    pub(crate) fn name(self) -> String {
        let cut = if self.cuts == 0 { "" } else { " cut" };
        format!(
            "{}{cut} {} {} {}",
            self.what(),
            self.client.name(),
            self.server.name(),
            self.path.name()
        )
    }

    fn what(self) -> &'static str {
        match (self.over, self.cuts) {
            (Over::Streamable, _) => "calls",
            (Over::Sse, 0) => "sse calls",
            (Over::Sse, _) => "sse, cut",
            (Over::SseWithCursor, _) => "sse, cut, cursor",
        }
    }

    fn calls(self) -> calls::Case {
        let whole = calls::Case::proxied(self.client, self.server);
        let (calls, deadline) = match (self.path, self.over, self.cuts) {
            (_, _, 0) | (Path::Proxied, Over::SseWithCursor, _) => (12, whole.deadline),
            (Path::Direct | Path::Proxied, _, _) => (4, Duration::from_secs(9)),
        };
        calls::Case {
            calls,
            deadline,
            ..whole
        }
    }
}

/// The one stream is cut so often, each time elsewhere and otherwise, once a call has been heard of on it.
fn cut_the_one_stream(cuts: usize, reported: Reported) -> impl FnMut(&Exchange) -> Plan + Send {
    let mut nth = 0;
    move |exchange| {
        if !matches!(exchange.kind, Kind::Listen | Kind::Resume) || nth == cuts {
            return Plan::Pass;
        }
        nth += 1;
        let (how, bytes) = match nth % 4 {
            1 => (How::Reset, 0),
            2 => (How::Close, 25),
            3 => (How::Lose(3), 0),
            _ => (How::End, 0),
        };
        let events = 8 + 3 * nth;
        Plan::Cut(Point { events, bytes }, how, reported.proof("0"))
    }
}

/// Runs one case.
pub(crate) async fn run(case: Case) -> Row {
    let began = Instant::now();
    let mut row = Row::new(case.what(), case.client.name(), case.server.name(), case.path);
    if let Err(fault) = measure(case, &mut row).await {
        row.faults.push(fault);
    }
    row.seconds = began.elapsed().as_secs_f64();
    row
}

async fn measure(case: Case, row: &mut Row) -> Result<(), String> {
    let (server, mut process) = lab::serve_over(case.server, case.over).await?;
    let proxy = match case.path {
        Path::Direct => None,
        Path::Proxied => Some(Proxy::start_over(case.over, &[server], &[]).await?),
    };
    let target = proxy.as_ref().map_or(server, |proxy| proxy.address);
    let mut calls = Calls::default();
    let plan = cut_the_one_stream(case.cuts, calls.reported.clone());
    let relay = Relay::start(vec![target], Spread::Connections, plan)
        .await
        .map_err(|error| error.to_string())?;
    let mut client = lab::connect_over(case.client, case.over, relay.address()).await?;

    let made = case.calls();
    let _late = timeout(made.deadline, calls.make(&mut client, made)).await;
    for tag in 0..made.calls {
        let call = calls.of.remove(&tag.to_string()).unwrap_or_default();
        row.messages(&call.progress, made.steps());
        row.end(call.outcome.as_ref().unwrap_or(&Outcome::Hung));
    }
    row.cuts = relay.tally().cuts;
    let said = process.rest();
    row.run_twice = more_than_once(
        said.iter()
            .filter(|value| value["ev"] == "began")
            .filter_map(|value| value["tag"].as_str()),
    );
    match (case.path, case.over, case.cuts) {
        (_, _, 0) | (Path::Proxied, Over::SseWithCursor, _) => {
            row.demand_whole();
            row.faults.extend(calls.errors);
        }
        (Path::Direct | Path::Proxied, _, _) => {
            row.demand("run twice", row.run_twice, 0);
            if row.lost == 0 {
                row.faults
                    .push("the cuts did not hurt: this run proves nothing".to_owned());
            }
        }
    }
    match (case.path, case.over) {
        // Directly, no later stream ever carries so much that it is cut again.
        (Path::Direct, _) | (_, Over::Sse | Over::Streamable) => {}
        (Path::Proxied, Over::SseWithCursor) => row.demand("cuts", row.cuts, case.cuts),
    }
    drop(client);
    if let Some(proxy) = proxy {
        row.demand("exit code", proxy.drain().await?, 0);
    }
    Ok(())
}

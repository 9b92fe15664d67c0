//! The continuity suite against real servers, directly and through the real binary.
//! Law: through the proxy every case passes that can be tried; directly each server is found to be what it is. What was
//! seen is `CONTINUITY.md`: the run fails if its half about the proxy says otherwise, and writes it anew with
//! `THROUGHLINE_WRITE_MATRIX=1`.
//! It needs the packages of `tests/install.sh`; `tests/run.sh` runs both.
//! Arguments: words; only runs whose name contains all of them are made, and the table is left alone.
//! Next: `deploy/replica.rs`.

#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "interop/port.rs"]
mod port;
#[allow(dead_code, reason = "the rolling deploy uses the rest of it")]
#[path = "deploy/replica.rs"]
mod replica;
#[allow(
    deprecated,
    reason = "logging is deprecated in a later revision; in this one it is what numbers notes"
)]
#[path = "deploy/rust_server.rs"]
mod rust_server;
#[path = "interop/seen.rs"]
mod seen;
#[allow(dead_code, reason = "the chaos on real processes uses the rest of it")]
#[path = "interop/signal.rs"]
mod signal;
#[path = "interop/turns.rs"]
mod turns;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use throughline::conformance::{self, Asked, CASES, How, Outcome, Report, Tools};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::lab::{Keeps, Proxy, Sdk, Serves, Speaks};
use crate::replica::{Kind, Ledger, Replica};
use crate::signal::Signal;

/// What a bare server does in these cases is a race of its own, or hangs on an id that it draws by chance.
const VARIES: [(&str, &str); 7] = [
    ("ts 1.x", "get/cut"),
    ("ts 2.x store", "get/cut"),
    ("ts 1.x store", "get/cut"),
    ("rust", "get/cut"),
    ("everything", "cursor/future"),
    ("fastmcp store", "cursor/future"),
    ("fastmcp store", "get/cut"),
];

/// What was seen.
const TABLE: &str = "tests/CONTINUITY.md";

/// Here an answer may be faster than the cancel of its call, and is whole then, also through the proxy.
const A_RACE: &str = "cancel/explicit";

/// Runs under way at the same time: they wait more than they work.
const RUNS_AT_ONCE: usize = 12;

/// How long a case waits for what must come, on a machine that is busy with the other runs.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Cases in which the proxy must lose nothing: whole, and not merely told.
const WHOLE_THROUGH: [&str; 5] = [
    "post/cut",
    "post/result-after-end",
    "post/repeated",
    "get/cut",
    "get/away",
];

/// How a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Direct,
    Through,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Plan {
    kind: Kind,
    way: Way,
}

impl Plan {
    fn name(self) -> String {
        let way = match self.way {
            Way::Direct => "directly",
            Way::Through => "through throughline",
        };
        format!("{} {way}", self.kind.name())
    }

    /// A server that keeps the events of all sessions in one store mixes them up where several are tried at once, now
    /// here and now there. One at a time, it does so only where a case sees to it.
    fn at_once(self) -> usize {
        let keeps_events = match self.kind {
            Kind::Lab(Serves::Sdk(_, keeps) | Serves::Fixture(_, keeps, _)) | Kind::Fast(keeps) => {
                keeps == Keeps::Events
            }
            Kind::Lab(Serves::Everything) | Kind::Rust => true,
        };
        match self.way {
            Way::Direct if keeps_events => 1,
            Way::Direct | Way::Through => conformance::CASES_AT_ONCE,
        }
    }

    async fn run(self) -> Result<Report, String> {
        let replica = Replica::start(self.kind, Ledger::default()).await?;
        let address = replica.address;
        let replica = Arc::new(Mutex::new(replica));
        let restarts = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let restarts = restarts.map_err(|error| error.to_string())?;
        let port = restarts.local_addr().map_err(|error| error.to_string())?.port();
        let restarting = tokio::spawn(restart_when_asked(restarts, Arc::clone(&replica)));
        let proxy = match self.way {
            Way::Direct => None,
            Way::Through => Some(Proxy::start(&[address], &[]).await?),
        };
        let entry = proxy.as_ref().map_or(address, |proxy| proxy.address);
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let asked = Asked {
            url: format!("http://{entry}/mcp"),
            fields: http::HeaderMap::new(),
            tls: throughline::config::resolved::UpstreamTls::default(),
            revision: None,
            tools: Tools::default(),
            restart: Some(format!("'{}' --restart {port}", this.display())),
            only: Vec::new(),
            timeout: TIMEOUT,
            at_once: self.at_once(),
        };
        let report = conformance::run(asked).await.map_err(|error| error.to_string());
        restarting.abort();
        report
    }
}

/// Restarts the server each time somebody connects, and closes the connection when it is back.
async fn restart_when_asked(asked: TcpListener, replica: Arc<Mutex<Replica>>) {
    while let Ok((_asker, _)) = asked.accept().await {
        let mut replica = replica.lock().await;
        if let Err(error) = replica.end(Signal::Kill).await {
            eprintln!("continuity: {error}");
        }
        if let Err(error) = replica.again().await {
            eprintln!("continuity: {error}");
        }
    }
}

/// Asks for a restart and waits until it is done.
fn restart(port: u16) -> ExitCode {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let done = TcpStream::connect(at).and_then(|mut asked| asked.read_to_end(&mut Vec::new()));
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The same server, but with everything in it that also speaks the era without sessions, if its SDK can.
fn of_both_eras(kind: Kind) -> Kind {
    match kind {
        Kind::Lab(Serves::Sdk(Sdk::Ts2, keeps)) => {
            Kind::Lab(Serves::Fixture(Sdk::Ts2, keeps, Speaks::Newest))
        }
        Kind::Lab(Serves::Sdk(..) | Serves::Fixture(..) | Serves::Everything)
        | Kind::Fast(_)
        | Kind::Rust => kind,
    }
}

type Seen = BTreeMap<&'static str, Outcome>;

/// What is wrong with what was seen.
fn faults(plan: Plan, report: &Report) -> Vec<String> {
    let mut faults = Vec::new();
    for entry in &report.entries {
        let outcome = entry.finding.outcome;
        let wrong = match (plan.way, outcome) {
            (Way::Through, Outcome::Fail | Outcome::Silent) => true,
            (Way::Through, Outcome::Pass(How::Told)) => WHOLE_THROUGH.contains(&entry.name),
            (Way::Through, Outcome::Pass(How::Whole) | Outcome::Skipped) | (Way::Direct, _) => false,
        };
        if wrong {
            faults.push(format!(
                "{} {}: {}\n    {}",
                outcome.word(),
                entry.name,
                entry.finding.why,
                entry.evidence.join("\n    ")
            ));
        }
    }
    let silent = report
        .entries
        .iter()
        .any(|entry| entry.finding.outcome == Outcome::Silent);
    if plan.way == Way::Direct && !silent {
        faults
            .push("nothing was found silent: the suite sees nothing, or the servers have changed".to_owned());
    }
    faults
}

/// What was seen, as Markdown.
fn table(all: &[(Plan, Seen)]) -> String {
    let mut text = String::from(
        "# The continuity suite against real servers\n\n\
         Written by `THROUGHLINE_WRITE_MATRIX=1 cargo test --test continuity`, and held equal to what that test sees.\n\
         Each column is a real server on an official SDK, on fastmcp, or `@modelcontextprotocol/server-everything`. *whole*:\n\
         nothing was lost. *told*: something was, and the client was told. **silent**: something was lost, repeated or mixed\n\
         up, and no answer said so. *varies*: of a bare server, now the one and now the other. `-`: it can't be tried there. What each case does: `throughline conformance --list`.\n\
         `store`: the server keeps events, in the shape that its SDK's documentation shows. The restarts are kills.\n",
    );
    for (way, title) in [(Way::Through, "Through throughline"), (Way::Direct, "Directly")] {
        let columns: Vec<&(Plan, Seen)> = all.iter().filter(|(plan, _)| plan.way == way).collect();
        let names: Vec<String> = columns.iter().map(|(plan, _)| plan.kind.name()).collect();
        let _ = writeln!(text, "\n## {title}\n\n| case | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|{}", "---|".repeat(columns.len()));
        for case in CASES {
            let cells = columns.iter().map(|(plan, seen)| match seen.get(case.name) {
                _ if plan.way == Way::Direct && VARIES.contains(&(&*plan.kind.name(), case.name)) => {
                    "*varies*"
                }
                Some(Outcome::Pass(_)) if plan.way == Way::Through && case.name == A_RACE => "told or whole",
                Some(Outcome::Silent) => "**silent**",
                Some(Outcome::Skipped) | None => "-",
                Some(outcome @ (Outcome::Pass(_) | Outcome::Fail)) => outcome.word(),
            });
            let cells: Vec<&str> = cells.collect();
            let _ = writeln!(text, "| `{}` | {} |", case.name, cells.join(" | "));
        }
    }
    text
}

async fn make(plans: Vec<Plan>) -> (Vec<(Plan, Seen)>, usize) {
    let works = plans.clone().into_iter().map(|plan| async move {
        let began = Instant::now();
        (plan.run().await, began.elapsed())
    });
    let all = turns::in_turns(RUNS_AT_ONCE, works).await;
    let (mut seen, mut failed) = (Vec::new(), 0);
    for (plan, run) in plans.into_iter().zip(all) {
        let (report, took) = match run {
            Ok((Ok(report), took)) => (report, took),
            Ok((Err(error), _)) => {
                println!("{:<36} could not be tried: {error}", plan.name());
                failed += 1;
                continue;
            }
            Err(error) => {
                println!("{:<36} {error}", plan.name());
                failed += 1;
                continue;
            }
        };
        let faults = faults(plan, &report);
        let count = |word: &str| {
            let entries = report.entries.iter();
            entries
                .filter(|entry| entry.finding.outcome.word() == word)
                .count()
        };
        let counts =
            ["whole", "told", "fail", "silent", "skipped"].map(|word| format!("{:>3} {word}", count(word)));
        println!(
            "{:<36}{}{:>8.1} s",
            plan.name(),
            counts.join(""),
            took.as_secs_f64()
        );
        for fault in &faults {
            println!("    {fault}");
        }
        failed += usize::from(!faults.is_empty());
        let words = report
            .entries
            .iter()
            .map(|entry| (entry.name, entry.finding.outcome));
        seen.push((plan, words.collect()));
    }
    (seen, failed)
}

/// The half of the table that is the proxy's own doing. What a bare server does hangs on its races and on the machine: where
/// it was another thing than is written, that is printed, and fails nothing.
fn through_the_proxy(table: &str) -> &str {
    table.split("\n## Directly").next().unwrap_or(table)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let port = arguments.last().and_then(|port| port.parse().ok());
    match (arguments.first().map(String::as_str), port) {
        (Some("--restart"), Some(port)) => return restart(port),
        (Some("--serve"), Some(port)) => {
            return match runtime.block_on(rust_server::serve(port)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        (Some(_) | None, _) => {}
    }
    if !place::lab().join("installed").exists() {
        eprintln!("the real clients and servers are missing: run tests/install.sh first");
        return ExitCode::FAILURE;
    }
    let words = turns::words();
    let kinds = Kind::ALL
        .into_iter()
        .filter(|kind| kind.is_here())
        .map(of_both_eras);
    let plans = kinds.flat_map(|kind| [Way::Direct, Way::Through].map(|way| Plan { kind, way }));
    let mut plans: Vec<Plan> = plans.collect();
    plans.retain(|plan| words.iter().all(|word| plan.name().contains(word.as_str())));
    // Those that take longest begin first.
    plans.sort_by_key(|plan| plan.at_once());
    let Some((mut seen, failed)) = runtime.block_on(turns::unless_stopped(make(plans))) else {
        eprintln!("continuity: stopped");
        return ExitCode::FAILURE;
    };
    seen.sort_by_key(|(plan, _)| plan.kind.name());
    println!("\ncontinuity: {} runs, {failed} failed", seen.len());
    let mut holds = true;
    if words.is_empty() {
        let seen = table(&seen);
        let written = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLE));
        if let Err(said) = seen::keep(TABLE, &seen) {
            eprintln!("{said}");
            holds = written.is_ok_and(|written| through_the_proxy(&written) == through_the_proxy(&seen));
        }
    }
    if failed == 0 && holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

//! Chaos on real processes: real SDK servers and clients, raw clients and the real binary; connections are hurt on both
//! sides, every process is killed, paused and restarted, and the proxy runs out of what it needs.
//! Law: what clients had is judged by the simulation's own oracle (`sim/oracle.rs`, `sim/trail.rs`); a violation fails.
//! It needs the packages of `tests/install.sh`. `cargo test --test chaos` has every fault once; `-- --events 100000` is long.
//! Arguments: `--events N` in all, `--seed N`, `--fault NAME`, `--server NAME`; `$THROUGHLINE_HISTORY` = a folder for whole
//! histories of rounds that failed. Next: `chaos/fault.rs`.

#[path = "sim/chance.rs"]
#[allow(dead_code, reason = "the simulation uses the rest of it")]
mod chance;
#[path = "chaos/client.rs"]
mod client;
#[path = "chaos/fault.rs"]
mod fault;
#[path = "sim/http.rs"]
mod http;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/lab.rs"]
mod lab;
#[allow(dead_code, reason = "the simulation uses the rest of it")]
#[path = "sim/oracle.rs"]
mod oracle;
#[path = "chaos/pace.rs"]
mod pace;
#[allow(dead_code, reason = "the check for clients uses the rest of it")]
#[path = "interop/place.rs"]
mod place;
#[allow(dead_code, reason = "the simulation uses the rest of it")]
#[path = "sim/plant.rs"]
mod plant;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "interop/port.rs"]
mod port;
#[path = "chaos/proxy.rs"]
mod proxy;
#[path = "chaos/relay.rs"]
mod relay;
#[allow(dead_code, reason = "the deploy scenario uses the rest of it")]
#[path = "deploy/replica.rs"]
mod replica;
#[path = "chaos/report.rs"]
mod report;
#[path = "chaos/round.rs"]
mod round;
#[allow(
    deprecated,
    reason = "logging is deprecated in a later revision; in this one it is what numbers notes"
)]
#[path = "deploy/rust_server.rs"]
mod rust_server;
#[path = "chaos/sdk.rs"]
mod sdk;
#[path = "interop/signal.rs"]
mod signal;
#[path = "chaos/street.rs"]
mod street;
#[path = "chaos/talk.rs"]
mod talk;
#[allow(dead_code, reason = "the simulation uses the rest of it")]
#[path = "sim/trail.rs"]
mod trail;
#[allow(dead_code, reason = "the interoperability tests use the rest of it")]
#[path = "interop/turns.rs"]
mod turns;
#[path = "chaos/wires.rs"]
mod wires;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use crate::fault::{Fault, Harm, Side};
use crate::lab::{Keeps, Sdk, Serves};
use crate::plant::Plant;
use crate::replica::{Kind, Offers};
use crate::round::{Lane, Report, Round};
use crate::street::Load;

/// The servers: three SDKs that differ most. Each has rounds of its own, beside the others'. `--server` takes any of
/// those that the deploy knows, if they have notes.
const KINDS: [Kind; 3] = [
    Kind::Lab(Serves::Sdk(Sdk::Ts2, Keeps::Events)),
    Kind::Rust,
    Kind::Lab(Serves::Sdk(Sdk::Py2, Keeps::Events)),
];
/// Events of the short form.
const EVENTS: u64 = 5_000;
/// Most events of one round: its history stays one that can be kept and read.
const ROUND_EVENTS_MAX: u64 = 5_000;

/// How often a planted fault is tried until it is found: some need a loss to lie about.
const PROOF_TRIES: u64 = 8;
/// Events of one of these rounds.
const PROOF_EVENTS: u64 = 150;

/// What every round asks of its servers.
const LOAD: Load = Load {
    clients: 10,
    notes: 40,
    notes_interval_ms: 15,
    calls: 3,
    steps_max: 20,
    steps_interval_ms: 15,
};

/// What was asked for.
enum Asked {
    /// To be a server, on this port.
    Serve(u16),
    /// To make rounds.
    Rounds(Options),
}

struct Options {
    events: u64,
    seed: u64,
    faults: Vec<Fault>,
    kinds: Vec<Kind>,
}

fn read(mut args: impl Iterator<Item = String>) -> Result<Asked, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut options = Options {
        events: EVENTS,
        seed: now.map_err(|error| error.to_string())?.as_secs(),
        faults: Fault::ALL.to_vec(),
        kinds: KINDS.to_vec(),
    };
    let word = |value: Option<String>| value.ok_or("a word is missing".to_owned());
    let number = |value: Option<String>| -> Result<u64, String> {
        let value = value.ok_or("a number is missing")?;
        value.parse().map_err(|_| format!("{value:?} is no number"))
    };
    let mut is_server = false;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--events" => options.events = number(args.next())?,
            "--seed" => options.seed = number(args.next())?,
            "--fault" => {
                let name = word(args.next())?;
                options.faults.retain(|fault| fault.name() == name);
            }
            "--server" => {
                let name = word(args.next())?;
                options.kinds = Kind::ALL.to_vec();
                let serves = |kind: &Kind| kind.is_here() && kind.offers() == Offers::CallsAndNotes;
                options.kinds.retain(|kind| kind.name() == name && serves(kind));
            }
            "--serve" => is_server = true,
            "--port" if is_server => {
                let port = number(args.next())?;
                return Ok(Asked::Serve(
                    u16::try_from(port).map_err(|error| error.to_string())?,
                ));
            }
            other => return Err(format!("{other} is not known")),
        }
    }
    options.faults.retain(|fault| match fault.lacks() {
        Some(what) => {
            println!("{}: left out, {what}", fault.name());
            false
        }
        None => true,
    });
    if options.faults.is_empty() || options.kinds.is_empty() {
        return Err("no fault or no server has such a name".to_owned());
    }
    Ok(Asked::Rounds(options))
}

/// The rounds of each kind of server. Faults of a sort follow one another by threes: each goes to another kind, and with
/// each pass over all faults to the next one.
fn deal(options: &Options) -> Vec<(Kind, Vec<Round>)> {
    let faults = options.faults.len();
    let per_pass = faults as u64 * ROUND_EVENTS_MAX;
    let passes = options.events.div_ceil(per_pass).max(1);
    let events = options.events.div_ceil(passes * faults as u64);
    let mut lanes: Vec<(Kind, Vec<Round>)> = options.kinds.iter().map(|kind| (*kind, Vec::new())).collect();
    let mut nth = 0;
    for pass in 0..passes {
        for (at, fault) in options.faults.iter().enumerate() {
            let round = Round {
                nth,
                fault: *fault,
                seed: options.seed + pass,
                events,
                load: LOAD,
                plant: Plant::None,
            };
            let lane = (at + at / lanes.len() + usize::try_from(pass).unwrap_or(0)) % lanes.len();
            lanes[lane].1.push(round);
            nth += 1;
        }
    }
    lanes.retain(|(_, rounds)| !rounds.is_empty());
    lanes
}

async fn walk(kind: Kind, rounds: Vec<Round>) -> Result<Vec<Report>, String> {
    let mut lane = Lane::open(kind).await?;
    let mut reports = Vec::new();
    for round in rounds {
        let report = lane.make(round).await;
        report::row(&report);
        reports.push(report);
    }
    Ok(reports)
}

/// Plays each planted fault to clients, until the oracle has seen it: an oracle that sees nothing is no proof.
async fn prove(seed: u64) -> Result<(), String> {
    let mut lane = Lane::open(Kind::Rust).await?;
    for (at, plant) in Plant::ON_THE_WAY.into_iter().enumerate() {
        let mut tries = 0..PROOF_TRIES;
        let seen = loop {
            let Some(nth) = tries.next() else { break None };
            let round = Round {
                nth: 100 * (at + 1) + usize::try_from(nth).unwrap_or(0),
                // Only a call that was cut off may have run.
                fault: if plant == Plant::DeniesExecution {
                    Fault::Way(Side::Servers, Harm::Cut)
                } else {
                    Fault::Window
                },
                seed: seed + nth,
                events: PROOF_EVENTS,
                load: Load { clients: 5, ..LOAD },
                plant,
            };
            let report = lane.make(round).await;
            if let Some(violation) = report.oracle.violations().into_iter().next() {
                break Some(violation);
            }
        };
        match seen {
            Some(violation) => println!("planted, and found: {plant:?}: {violation:.120}"),
            None => return Err(format!("{plant:?} was planted, and not found")),
        }
    }
    Ok(())
}

async fn make(options: &Options) -> Result<Vec<Report>, String> {
    report::head();
    let mut lanes = JoinSet::new();
    let mut proof = JoinSet::new();
    if options.faults.len() > 1 {
        proof.spawn(prove(options.seed));
    }
    for (kind, rounds) in deal(options) {
        lanes.spawn(walk(kind, rounds));
    }
    let mut reports = Vec::new();
    while let Some(walked) = lanes.join_next().await {
        reports.extend(walked.map_err(|error| error.to_string())??);
    }
    while let Some(proved) = proof.join_next().await {
        proved.map_err(|error| error.to_string())??;
    }
    Ok(reports)
}

fn main() -> ExitCode {
    let failed = |error: String| {
        eprintln!("chaos: {error}");
        ExitCode::FAILURE
    };
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(error) => return failed(error),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = match asked {
        Asked::Serve(port) => {
            return match runtime.block_on(rust_server::serve(port)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(format!("the server ended: {error}")),
            };
        }
        Asked::Rounds(options) => options,
    };
    if !place::lab().join("installed").exists() {
        return failed("the real clients and servers are missing: run tests/install.sh first".to_owned());
    }
    println!("seed {}", options.seed);
    match runtime.block_on(turns::unless_stopped(make(&options))) {
        Some(Ok(reports)) if report::end(&reports) == 0 => ExitCode::SUCCESS,
        Some(Ok(_)) => ExitCode::FAILURE,
        Some(Err(error)) => failed(error),
        None => failed("stopped".to_owned()),
    }
}

//! One start of the suite's command line, and what it wrote.
//! Law: the verdicts are the suite's own (`checks.json`); nothing is judged here. Every start is bounded in time.
//! Its folder of results is removed with it.
//! Next: `compare.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::place;

/// When a start of the suite is called hung that asks a server.
const SERVER: Duration = Duration::from_secs(300);
/// The same for one that is asked by clients, which wait for their turns with those of other starts.
const CLIENTS: Duration = Duration::from_secs(900);
/// The suite's own limit for one scenario of a server, in milliseconds: on loopback nothing that goes well takes so long.
const SERVER_MS: &str = "15000";
/// The same for one of a client, which waits for its turn meanwhile; from then on `client.rs` bounds it.
const CLIENT_MS: &str = "880000";

/// What the suite says of one check, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Status {
    /// What was asked for is there.
    Success,
    /// It could not be asked for.
    Skipped,
    /// What SHOULD be is not.
    Warning,
    /// What MUST be is not.
    Failure,
}

impl Status {
    fn read(word: &str) -> Option<Self> {
        match word {
            "SUCCESS" => Some(Self::Success),
            "SKIPPED" => Some(Self::Skipped),
            "WARNING" => Some(Self::Warning),
            "FAILURE" => Some(Self::Failure),
            // Notes of what went over the wire.
            _ => None,
        }
    }
}

/// One scenario's checks, by their ids; of a check that was made several times, the worst.
#[derive(Clone, Default, Debug)]
pub(crate) struct Scenario {
    /// The verdicts.
    pub(crate) checks: BTreeMap<String, Status>,
    /// What a person wants to read where they differ: everything that the suite noted.
    pub(crate) noted: String,
}

impl Scenario {
    fn read(checks: &Value) -> Self {
        let mut scenario = Self::default();
        for check in checks.as_array().into_iter().flatten() {
            let word = |key: &str| check[key].as_str().unwrap_or_default();
            let (id, status) = (word("id"), word("status"));
            scenario.noted.push_str(&format!(
                "      {status:<8}{id}: {}{}\n",
                word("description").lines().next().unwrap_or_default(),
                match check["errorMessage"].as_str() {
                    Some(error) => format!(" [{error}]"),
                    None => String::new(),
                }
            ));
            if let Some(status) = Status::read(status) {
                let worst = scenario.checks.entry(id.to_owned()).or_insert(status);
                *worst = status.max(*worst);
            }
        }
        scenario
    }

    /// Whether nothing that MUST be is missing.
    pub(crate) fn passes(&self) -> bool {
        self.checks.values().all(|status| *status != Status::Failure)
    }
}

/// Scenarios by their names.
pub(crate) type Scenarios = BTreeMap<String, Scenario>;

/// A folder of results, gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("throughline-conformance-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn command() -> Command {
    let mut command = Command::from(place::node());
    command.arg(place::lab().join("node_modules/@modelcontextprotocol/conformance/dist/index.js"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Which scenarios are run.
#[derive(Clone, Copy)]
pub(crate) enum Which<'a> {
    /// Everything that is for this revision.
    All,
    /// One scenario.
    One(&'a str),
}

impl Which<'_> {
    fn arguments(self, command: &mut Command) {
        match self {
            Self::All => command.args(["--suite", "all"]),
            Self::One(scenario) => command.args(["--scenario", scenario]),
        };
    }
}

/// What the suite judges.
pub(crate) enum Subject {
    /// The server at this URL: the suite is its client.
    Server(String),
    /// The client that this command starts: the suite is its server, and adds its URL.
    Client(String),
}

/// Runs scenarios of `revision`.
pub(crate) async fn judge(subject: &Subject, revision: &str, which: Which<'_>) -> Result<Scenarios, String> {
    let mut command = command();
    let (prefix, patience) = match subject {
        Subject::Server(url) => {
            command.args(["server", "--url", url, "--timeout", SERVER_MS]);
            ("server-", SERVER)
        }
        Subject::Client(client) => {
            command.args(["client", "--command", client, "--timeout", CLIENT_MS]);
            ("", CLIENTS)
        }
    };
    command.args(["--spec-version", revision]);
    which.arguments(&mut command);
    finish(command, prefix, patience).await
}

async fn finish(mut command: Command, prefix: &str, patience: Duration) -> Result<Scenarios, String> {
    let folder = Folder::new();
    command.arg("--output-dir").arg(&folder.0);
    let output = timeout(patience, command.output())
        .await
        .map_err(|_| "the suite hangs".to_owned())?
        .map_err(|error| format!("the suite did not start: {error}"))?;
    let found = read(&folder.0, prefix);
    if found.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the suite wrote no results: {}", said.trim()));
    }
    Ok(found)
}

/// The results of a start: a folder for each scenario, named after it and the time. Scenarios of a group have a folder of
/// the group around theirs.
fn read(folder: &Path, prefix: &str) -> Scenarios {
    let mut found = Scenarios::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == "checks.json" {
                let name = next
                    .strip_prefix(folder)
                    .unwrap_or(&next)
                    .to_string_lossy()
                    .into_owned();
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let checks = serde_json::from_str(&text).unwrap_or_default();
                found.insert(scenario_of(&name, prefix), Scenario::read(&checks));
            }
        }
    }
    found
}

/// A folder's name without the prefix and without the time (`-2026-01-02T03-04-05-678Z`).
fn scenario_of(folder: &str, prefix: &str) -> String {
    const TIME: usize = "-2026-01-02T03-04-05-678Z".len();
    let name = folder.strip_prefix(prefix).unwrap_or(folder);
    name[..name.len().saturating_sub(TIME)].to_owned()
}

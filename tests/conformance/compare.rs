//! What passes directly against what passes through the proxy.
//! Law: a check that is worse through the proxy fails the run, and so does one that is better, unless the proxy is known to
//! heal it. Before a scenario is called different it is run again, both ways; what then agrees is called unsteady, and said.
//! Next: `backend.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::suite::{self, Scenario, Scenarios, Status, Subject, Which};

/// How often a scenario that differs is run again.
const AGAIN: usize = 2;

/// What the proxy gives to clients whether the server does or not, check by check.
const HEALED: [(&str, &[&str]); 5] = [
    (
        "an id before the first message, and a pace for reconnecting",
        &["server-sse-priming-event", "server-sse-retry-field"],
    ),
    (
        "resumption without an event store",
        &["server-sse-disconnect-resume", "client-sse-last-event-id"],
    ),
    (
        "foreign names are refused",
        &["localhost-host-rebinding-rejected"],
    ),
    (
        "a session where the server keeps none",
        &[
            "server-session-id-visible-ascii",
            "server-session-initialized-accepted",
            "server-session-delete-accepted",
            "server-session-terminated-returns-404",
            "server-sse-polling-session",
            "server-sse-multiple-streams-session",
            "server-accepts-multiple-post-streams",
            "server-sse-streams-functional",
        ],
    ),
    (
        "an ended session stays ended",
        &["server-session-terminated-returns-404"],
    ),
];

/// What can't hold where a client knows a server by another address than the server itself does, check by check: the suite
/// compares what its client says with the address of its own server, and not with the metadata that the client was given. It
/// asks its own authorization server what was said there, which the proxy is not in front of.
const RENAMED: [&str; 1] = ["resource-parameter-matches-prm"];

/// By what a client knows the server, where the proxy stands between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// By its own URL, as where its name leads to the proxy.
    ByItsUrl,
    /// By a URL of the proxy's, which the proxy puts into the server's metadata (`public_url`).
    Renamed,
}

/// What is judged both ways.
pub(crate) struct Both {
    /// Without the proxy.
    pub(crate) direct: Subject,
    /// Through it.
    pub(crate) through: Subject,
    /// The revision whose scenarios are run.
    pub(crate) revision: &'static str,
    /// By what the client knows the server.
    pub(crate) known: Known,
}

impl Both {
    /// The differences that must not be.
    fn differs(&self, direct: &Scenario, through: &Scenario) -> Vec<Difference> {
        let mut all = differences(direct, through);
        all.retain(|one| !one.is_healed() && !one.is_excused(self.known));
        all
    }

    async fn judge(&self, which: Which<'_>) -> Result<(Scenarios, Scenarios), String> {
        let direct = suite::judge(&self.direct, self.revision, which).await?;
        let through = suite::judge(&self.through, self.revision, which).await?;
        Ok((direct, through))
    }
}

/// One check that came out otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Difference {
    check: String,
    direct: Option<Status>,
    through: Option<Status>,
}

impl Difference {
    fn describe(&self) -> String {
        let word =
            |status: Option<Status>| status.map_or("absent".to_owned(), |status| format!("{status:?}"));
        let (direct, through) = (word(self.direct), word(self.through));
        format!("{}: directly {direct}, through the proxy {through}", self.check)
    }

    /// Whether it is about the server's own address, and the client can't know that.
    fn is_excused(&self, known: Known) -> bool {
        match known {
            Known::ByItsUrl => false,
            Known::Renamed => RENAMED.contains(&self.check.as_str()),
        }
    }

    /// Whether it is one of those that the proxy is there for, and no worse than directly.
    fn is_healed(&self) -> bool {
        let known = HEALED
            .iter()
            .any(|(_, checks)| checks.contains(&self.check.as_str()));
        // A check that was not made is as good as one that could not be.
        let rank = |status: Option<Status>| status.unwrap_or(Status::Skipped);
        known && rank(self.through) <= rank(self.direct)
    }
}

fn differences(direct: &Scenario, through: &Scenario) -> Vec<Difference> {
    let checks: BTreeSet<&String> = direct.checks.keys().chain(through.checks.keys()).collect();
    checks
        .into_iter()
        .map(|check| Difference {
            check: check.clone(),
            direct: direct.checks.get(check).copied(),
            through: through.checks.get(check).copied(),
        })
        .filter(|one| one.direct != one.through)
        .collect()
}

/// How a run came out.
#[derive(Default)]
pub(crate) struct Report {
    /// Scenarios that pass, directly and through the proxy.
    passing: (usize, usize),
    /// Scenarios that were run.
    scenarios: usize,
    /// Checks that were made.
    checks: usize,
    /// JSON-RPC messages that were compared on both sides of the proxy.
    messages: usize,
    /// Checks that pass only through the proxy.
    healed: Vec<String>,
    /// Scenarios that know the server by another address than its own.
    renamed: Vec<String>,
    /// Scenarios that did not come out the same each time.
    unsteady: Vec<String>,
    /// Scenarios that the SDK does not pass either way.
    neither: Vec<String>,
    /// What differs; empty = passed.
    faults: Vec<String>,
}

impl Report {
    /// A run that could not be made.
    pub(crate) fn broken(fault: String) -> Self {
        Self {
            faults: vec![fault],
            ..Self::default()
        }
    }

    /// Adds what was compared on both sides of the proxy.
    pub(crate) fn compared(&mut self, messages: usize, differences: Vec<String>) {
        self.messages += messages;
        self.faults.extend(differences);
    }

    /// Says how a run went.
    pub(crate) fn print(&self, name: &str, took: Duration) {
        let word = if self.faults.is_empty() {
            "ok    "
        } else {
            "FAILED"
        };
        let compared = match self.messages {
            0 => String::new(),
            messages => format!("; {messages} messages the same on both sides"),
        };
        println!(
            "{word} {name}: {} scenarios, {} checks; pass directly {}, through {}{compared} ({:.1} s)",
            self.scenarios,
            self.checks,
            self.passing.0,
            self.passing.1,
            took.as_secs_f64()
        );
        for (said, list) in [
            ("healed", &self.healed),
            ("the server's own address is asked for", &self.renamed),
            ("unsteady", &self.unsteady),
            ("pass neither way", &self.neither),
        ] {
            if !list.is_empty() {
                println!("       {said}: {}", list.join(", "));
            }
        }
        for fault in &self.faults {
            println!("       {}", fault.trim_end());
        }
    }
}

/// Prints the sum of all runs; how many failed.
pub(crate) fn print_all(reports: &[(String, Report)]) -> usize {
    let mut all = Report::default();
    let mut failed = 0;
    for (name, report) in reports {
        if !report.faults.is_empty() {
            println!("FAILED {name}");
            failed += 1;
        }
        all.passing.0 += report.passing.0;
        all.passing.1 += report.passing.1;
        all.scenarios += report.scenarios;
        all.checks += report.checks;
        all.messages += report.messages;
    }
    println!(
        "\nconformance: {} runs, {} scenarios, {} checks; pass directly {}, through {}; {} messages compared; {failed} runs failed",
        reports.len(),
        all.scenarios,
        all.checks,
        all.passing.0,
        all.passing.1,
        all.messages
    );
    failed
}

/// Compares both ways; scenarios that differ are run again.
pub(crate) async fn settle(both: &Both) -> Result<Report, String> {
    let mut report = Report::default();
    let (mut directly, mut proxied) = both.judge(Which::All).await?;
    let names: BTreeSet<String> = directly.keys().chain(proxied.keys()).cloned().collect();
    for name in &names {
        let mut direct = directly.remove(name).unwrap_or_default();
        let mut through = proxied.remove(name).unwrap_or_default();
        for _ in 0..AGAIN {
            let wrong = both.differs(&direct, &through);
            let Some(before) = wrong.first().map(Difference::describe) else {
                break;
            };
            let (mut directly, mut proxied) = both.judge(Which::One(name)).await?;
            direct = directly.remove(name).unwrap_or_default();
            through = proxied.remove(name).unwrap_or_default();
            if both.differs(&direct, &through).is_empty() {
                report.unsteady.push(format!("{name} ({before})"));
            }
        }
        report.scenarios += 1;
        report.checks += through.checks.len();
        report.passing.0 += usize::from(direct.passes());
        report.passing.1 += usize::from(through.passes());
        if !direct.passes() && !through.passes() {
            report.neither.push(name.clone());
            if std::env::var_os("THROUGHLINE_NOTES").is_some() {
                println!("{name}\n{}", direct.noted);
            }
        }
        for one in differences(&direct, &through) {
            if one.is_healed() {
                report.healed.push(one.check);
            } else if one.is_excused(both.known) {
                report.renamed.push(name.clone());
            }
        }
        let wrong = both.differs(&direct, &through);
        if !wrong.is_empty() {
            report.faults.push(describe(name, &wrong, &direct, &through));
        }
    }
    Ok(report)
}

fn describe(name: &str, wrong: &[Difference], direct: &Scenario, through: &Scenario) -> String {
    let lines: Vec<String> = wrong.iter().map(Difference::describe).collect();
    format!(
        "{name} differs\n    {}\n    directly:\n{}    through the proxy:\n{}",
        lines.join("\n    "),
        direct.noted,
        through.noted
    )
}

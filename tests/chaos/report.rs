//! The table of rounds, and of a round that failed the evidence: its one-line rerun and the history of whom it concerns.
//! Law: every count is printed, passed or not.
//! Next: `../chaos.rs`.

use std::collections::BTreeSet;

use crate::oracle::Tally;
use crate::round::Report;

/// Violations that are printed of each round.
const EVIDENCE_MAX: usize = 6;
/// Lines of history that are printed for one of them.
const HISTORY_MAX: usize = 60;

/// What is in the columns.
const COUNTS: [(&str, &str); 11] = [
    ("events", "events"),
    ("sessions", "sessions"),
    ("calls", "calls"),
    ("results", "results"),
    ("resumed", "resumed"),
    ("reset", "resets"),
    ("holes said", "holes"),
    ("not executed", "not run"),
    ("outcome unknown", "unknown"),
    ("given up", "given up"),
    ("hurts", "hurts"),
];

impl Report {
    /// Whether nothing is to be said against it.
    pub(crate) fn has_passed(&self) -> bool {
        self.oracle.violations().is_empty() && self.stalled.is_empty()
    }
}

/// Prints the headings.
pub(crate) fn head() {
    print!("{:<16}{:<14}", "fault", "servers");
    for (_, heading) in COUNTS {
        print!("{heading:>9}");
    }
    println!("{:>8}{:>7}", "faults", "s");
}

fn counts(tally: &Tally) {
    for (what, _) in COUNTS {
        print!("{:>9}", tally.0.get(what).copied().unwrap_or(0));
    }
}

/// Prints one round.
pub(crate) fn row(report: &Report) {
    let (tally, violations) = (report.oracle.tally(), report.oracle.violations());
    print!("{:<16}{:<14}", report.round.fault.name(), report.kind.name());
    counts(&tally);
    println!("{:>8}{:>7.1}", violations.len(), report.took.as_secs_f64());
    let others = tally.0.iter();
    let others = others.filter(|(what, _)| COUNTS.iter().all(|(counted, _)| counted != *what));
    let words: Vec<String> = others.map(|(what, count)| format!("{what} {count}")).collect();
    println!("    {}", words.join(", "));
    if report.has_passed() {
        return;
    }
    println!(
        "    again: cargo test --test chaos -- --fault {} --server {:?} --seed {} --events {}",
        report.round.fault.name(),
        report.kind.name(),
        report.round.seed,
        report.round.events
    );
    for stall in &report.stalled {
        println!("    STALLED: {stall}");
    }
    for violation in violations.iter().take(EVIDENCE_MAX) {
        println!("    VIOLATION: {violation:.400}");
    }
    let history = report.oracle.history();
    if let Some(first) = violations.first() {
        println!("    the history of whom the first one concerns:");
        for line in of(subject(first), &history) {
            println!("      {line:.300}");
        }
    }
    if let Some(path) = std::env::var_os("THROUGHLINE_HISTORY") {
        let path = std::path::Path::new(&path).join(format!("{}.txt", report.round.fault.name()));
        if let Err(error) = std::fs::write(&path, history) {
            println!(
                "    its history could not be written to {}: {error}",
                path.display()
            );
        }
    }
}

/// Whom a violation is about: the session's name, before what it did.
fn subject(violation: &str) -> &str {
    violation.split([' ', ':']).next().unwrap_or_default()
}

/// The lines of a history that are about this session: its own, its connections', and the fault's, up to the violation.
fn of<'a>(subject: &str, history: &'a str) -> Vec<&'a str> {
    let text = |line: &'a str| line.get(11..).unwrap_or_default();
    let is_own = |line: &str| {
        let rest = line
            .strip_prefix("VIOLATION: ")
            .unwrap_or(line)
            .strip_prefix(subject);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let port = |line: &'a str| line.split_once("port ")?.1.split(':').next();
    let own: BTreeSet<&str> = history
        .lines()
        .map(text)
        .filter(|line| is_own(line))
        .filter_map(port)
        .collect();
    let concerns = |line: &str| {
        let line = line.get(11..).unwrap_or_default();
        let is_relays = line.starts_with("relay of") || line.starts_with("sound relay");
        let at = line
            .split_once("port ")
            .and_then(|(_, rest)| rest.split(':').next());
        is_own(line) || line.starts_with("fault:") || (is_relays && at.is_some_and(|at| own.contains(at)))
    };
    let mut lines: Vec<&str> = Vec::new();
    for line in history.lines().filter(|line| concerns(line)) {
        lines.push(line);
        if text(line).starts_with("VIOLATION") {
            break;
        }
    }
    let from = lines.len().saturating_sub(HISTORY_MAX);
    lines.split_off(from)
}

/// Prints the sum; how many rounds failed.
pub(crate) fn end(reports: &[Report]) -> usize {
    let mut sum = Tally::default();
    let mut violations = 0;
    for report in reports {
        sum.add(&report.oracle.tally());
        violations += report.oracle.violations().len();
    }
    print!("{:<30}", "all");
    counts(&sum);
    println!("{violations:>8}");
    let failed = reports.iter().filter(|report| !report.has_passed()).count();
    println!("\nchaos: {} passed, {failed} failed", reports.len() - failed);
    failed
}

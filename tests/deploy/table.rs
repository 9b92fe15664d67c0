//! The table of runs: what was counted, and what was found, with its evidence.
//! Law: every count is printed, passed or not; a run fails if anything was found.
//! Next: `../interop.rs`.

use crate::judge::Fault;
use crate::scenario::Run;

/// Pieces of evidence that are printed of each fault.
const EVIDENCE_MAX: usize = 8;

/// Prints the headings.
pub(crate) fn head() {
    print!(
        "{:<18}{:>9}{:>9}{:>9}{:>8}{:>9}{:>9}{:>10} |",
        "server", "sessions", "results", "resumed", "resets", "refused", "errored", "recovered"
    );
    for fault in Fault::ALL {
        print!("{:>8}", fault.name());
    }
    println!("{:>7}", "s");
}

/// Prints one run.
pub(crate) fn row(run: &Run) {
    let sum = |start: &str| -> usize {
        let counted = run.judged.tally.iter();
        counted
            .filter(|(words, _)| words.starts_with(start))
            .map(|(_, count)| count)
            .sum()
    };
    print!(
        "{:<18}{:>9}{:>9}{:>9}{:>8}{:>9}{:>9}{:>10} |",
        run.kind.name(),
        sum("sessions"),
        sum("result"),
        sum("resumed"),
        sum("reset "),
        sum("refused"),
        sum("error ") + sum("gone"),
        sum("recovered"),
    );
    for fault in Fault::ALL {
        print!("{:>8}", run.judged.faults.get(&fault).map_or(0, Vec::len));
    }
    println!("{:>7.1}", run.took.as_secs_f64());
    let words: Vec<String> = run
        .judged
        .tally
        .iter()
        .map(|(words, count)| format!("{words} {count}"))
        .collect();
    println!("    {}", words.join(", "));
    for (fault, evidence) in &run.judged.faults {
        for evidence in evidence.iter().take(EVIDENCE_MAX) {
            println!("    {}: {evidence:.300}", fault.name());
        }
    }
    for stall in &run.stalled {
        println!("    STALLED: {stall}");
    }
}

/// Prints the sum; how many runs failed.
pub(crate) fn end(runs: &[Run]) -> usize {
    let failed = runs
        .iter()
        .filter(|run| !run.judged.faults.is_empty() || !run.stalled.is_empty());
    let failed = failed.count();
    println!("\ndeploy: {} passed, {failed} failed", runs.len() - failed);
    failed
}

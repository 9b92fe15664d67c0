//! The table: what each way to the servers lost, repeated and recovered.
//! Law: every number is counted from what the client was told; the proxy is never asked.
//! Next: `by_hand.rs`.

use crate::trial::{BEFORE, Failure, LOST, MESSAGES, Trial};

/// The count of one stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    lost: usize,
    repeated: usize,
    recovered: usize,
}

impl Count {
    /// Counts what a client was told of `1..=MESSAGES`. The first event before a cut is no message but a cursor.
    fn of(told: &[u32]) -> Self {
        let missing = |of: std::ops::RangeInclusive<u32>| of.filter(|number| !told.contains(number)).count();
        let first_taken = BEFORE as u32;
        let taken = first_taken..=first_taken + LOST as u32 - 1;
        let mut different = told.to_vec();
        different.sort_unstable();
        different.dedup();
        Self {
            lost: missing(1..=MESSAGES),
            repeated: told.len() - different.len(),
            recovered: LOST - missing(taken),
        }
    }
}

/// One column: a way to the servers, and what came of the trial on it.
pub(crate) struct Column {
    /// Its heading.
    pub(crate) heading: &'static str,
    /// What came of it.
    pub(crate) trial: Trial,
}

impl Column {
    /// Whether the client has everything, once.
    pub(crate) fn is_whole(&self) -> bool {
        let whole = Count {
            lost: 0,
            repeated: 0,
            recovered: LOST,
        };
        self.trial.call.is_ok()
            && [&self.trial.notes.progress, &self.trial.notes.orders]
                .iter()
                .all(|told| Count::of(told) == whole)
    }
}

/// Prints the columns side by side.
pub(crate) fn print(columns: &[Column]) {
    let line = |label: &str, cell: &dyn Fn(&Column) -> String| {
        let cells: String = columns
            .iter()
            .map(|column| format!("{:<22}", cell(column)))
            .collect();
        println!("{}", format!("  {label:<34}{cells}").trim_end());
    };
    line("", &|column| column.heading.to_owned());
    println!("  {}", "─".repeat(34 + 22 * columns.len() - 4));
    line(
        "tool call, cut in the middle",
        &|column| match &column.trial.call {
            Ok(text) => format!("result: {text}"),
            Err(Failure::Hung) => "hangs".to_owned(),
            Err(Failure::Error(_)) => "fails".to_owned(),
        },
    );
    counts(&line, "its progress", |trial| &trial.notes.progress);
    println!();
    line("notification stream, cut too", &|_| String::new());
    counts(&line, "notifications", |trial| &trial.notes.orders);
    for column in columns {
        if let Err(Failure::Error(text)) = &column.trial.call {
            println!("\n  The call that failed {}: {text}", column.heading);
        }
    }
}

type Line<'a> = dyn Fn(&str, &dyn Fn(&Column) -> String) + 'a;

fn counts(line: &Line<'_>, what: &str, told: fn(&Trial) -> &Vec<u32>) {
    let count = |column: &Column| Count::of(told(&column.trial));
    line(&format!("  {what}: lost of {MESSAGES}"), &|column| {
        count(column).lost.to_string()
    });
    line("    repeated", &|column| count(column).repeated.to_string());
    line(&format!("    recovered of {LOST} taken"), &|column| {
        count(column).recovered.to_string()
    });
}

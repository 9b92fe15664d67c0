//! The account of a run: what was sent, what came, and the table that says so.
//! Law: counted from each client's own sequence of observations; the client's SDK and the proxy are never asked.
//! Lost, repeated and out of order are about messages; hung and run twice are about calls.
//! Next: `calls.rs`.

use std::collections::HashMap;

/// A sequence of numbers 1..=n as a client saw it.
#[derive(Clone, Default, Debug)]
pub(crate) struct Seen(Vec<u64>);

impl Seen {
    /// One more was seen.
    pub(crate) fn push(&mut self, number: u64) {
        self.0.push(number);
    }

    /// How many different ones were seen.
    pub(crate) fn unique(&self) -> usize {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len()
    }

    /// How many of `1..=n` were never seen.
    pub(crate) fn lost(&self, n: u64) -> usize {
        (1..=n).filter(|number| !self.0.contains(number)).count()
    }

    /// How many were seen again.
    pub(crate) fn repeated(&self) -> usize {
        self.0.len() - self.unique()
    }

    /// How many came after a higher one, repeats not counted.
    pub(crate) fn disordered(&self) -> usize {
        let mut highest = 0;
        let mut firsts = Vec::new();
        let mut count = 0;
        for &number in &self.0 {
            if firsts.contains(&number) {
                continue;
            }
            firsts.push(number);
            count += usize::from(number < highest);
            highest = highest.max(number);
        }
        count
    }
}

/// How a call ended, in the client's view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// With its own result.
    Result,
    /// With somebody else's result, or an unexpected text.
    Wrong(String),
    /// With an error, in these words.
    Error(String),
    /// Not at all before the deadline.
    Hung,
}

/// Which way clients reach the servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Path {
    /// Straight to them.
    Direct,
    /// Through the proxy.
    Proxied,
}

impl Path {
    /// Its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Proxied => "throughline",
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// What was tried.
    pub(crate) what: &'static str,
    /// The client.
    pub(crate) client: String,
    /// The server.
    pub(crate) server: String,
    /// The way between them.
    pub(crate) path: Path,
    /// Connections cut.
    pub(crate) cuts: usize,
    /// Calls made.
    pub(crate) calls: usize,
    /// Calls that ended with their own result.
    pub(crate) results: usize,
    /// Calls that ended with an error.
    pub(crate) errors: usize,
    /// Calls without an end.
    pub(crate) hung: usize,
    /// Calls that a server began more than once.
    pub(crate) run_twice: usize,
    /// Messages sent besides the results.
    pub(crate) sent: usize,
    /// Of those, never received.
    pub(crate) lost: usize,
    /// Received again.
    pub(crate) repeated: usize,
    /// Received after a later one.
    pub(crate) disordered: usize,
    /// Gaps in what was received: announced, and silent.
    pub(crate) gaps_said: usize,
    /// Gaps that nobody announced.
    pub(crate) gaps_silent: usize,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// What does not hold; empty = passed.
    pub(crate) faults: Vec<String>,
}

impl Row {
    /// An empty line.
    pub(crate) fn new(
        what: &'static str,
        client: impl Into<String>,
        server: impl Into<String>,
        path: Path,
    ) -> Self {
        Self {
            what,
            client: client.into(),
            server: server.into(),
            path,
            cuts: 0,
            calls: 0,
            results: 0,
            errors: 0,
            hung: 0,
            run_twice: 0,
            sent: 0,
            lost: 0,
            repeated: 0,
            disordered: 0,
            gaps_said: 0,
            gaps_silent: 0,
            seconds: 0.0,
            faults: Vec::new(),
        }
    }

    /// Adds a call's outcome.
    pub(crate) fn end(&mut self, outcome: &Outcome) {
        self.calls += 1;
        match outcome {
            Outcome::Result => self.results += 1,
            Outcome::Wrong(text) => self.faults.push(format!("wrong result: {text}")),
            Outcome::Error(_) => self.errors += 1,
            Outcome::Hung => self.hung += 1,
        }
    }

    /// Adds a sequence that should have been `1..=n`.
    pub(crate) fn messages(&mut self, seen: &Seen, n: u64) {
        self.sent += usize::try_from(n).unwrap_or(usize::MAX);
        self.lost += seen.lost(n);
        self.repeated += seen.repeated();
        self.disordered += seen.disordered();
    }

    /// Demands that a count is exactly this.
    pub(crate) fn demand(&mut self, what: &str, is: usize, must: usize) {
        if is != must {
            self.faults.push(format!("{what} is {is}, must be {must}"));
        }
    }

    /// Demands a whole delivery: nothing lost, repeated, disordered, hung, failed or run twice.
    pub(crate) fn demand_whole(&mut self) {
        self.demand("lost", self.lost, 0);
        self.demand("repeated", self.repeated, 0);
        self.demand("out of order", self.disordered, 0);
        self.demand("hung", self.hung, 0);
        self.demand("run twice", self.run_twice, 0);
        self.demand("results", self.results, self.calls);
    }
}

/// Counts the tags that occur more than once.
pub(crate) fn more_than_once<'a>(tags: impl Iterator<Item = &'a str>) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for tag in tags {
        *counts.entry(tag).or_default() += 1;
    }
    counts.values().filter(|&&count| count > 1).count()
}

/// Prints rows as a table.
pub(crate) fn print(rows: &[Row]) {
    println!(
        "\n{:<22}{:<9}{:<17}{:<12}{:>5}{:>7}{:>8}{:>7}{:>6}{:>7}{:>7}{:>6}{:>7}{:>7}{:>7}{:>8}{:>7}",
        "what",
        "client",
        "server",
        "path",
        "cuts",
        "calls",
        "results",
        "errors",
        "hung",
        "twice",
        "sent",
        "lost",
        "again",
        "order",
        "gaps",
        "silent",
        "s"
    );
    for row in rows {
        println!(
            "{:<22}{:<9}{:<17}{:<12}{:>5}{:>7}{:>8}{:>7}{:>6}{:>7}{:>7}{:>6}{:>7}{:>7}{:>7}{:>8}{:>7.1}{}",
            row.what,
            row.client,
            row.server,
            row.path.name(),
            row.cuts,
            row.calls,
            row.results,
            row.errors,
            row.hung,
            row.run_twice,
            row.sent,
            row.lost,
            row.repeated,
            row.disordered,
            row.gaps_said,
            row.gaps_silent,
            row.seconds,
            if row.faults.is_empty() { "" } else { "  FAILED" }
        );
        for fault in &row.faults {
            println!("    {fault}");
        }
    }
}

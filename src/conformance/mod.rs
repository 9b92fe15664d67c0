//! The continuity suite: a client that cuts its own connections, and finds out whether a server is honest about it.
//! Law: a case passes if nothing is lost, or if the client is told; what is lost without a word is *silent*. A case that
//! can't be tried is skipped and says why. Nothing is called but tools that are named or known to do no harm.
//! Absent on purpose: everything of the proxy. The server under trial is a black box; that it is throughline is not known.
//! Why no relay for the cuts: the suite owns the client's socket, so it cuts there, at the very event (`stream.rs`).
//! Next: `outcome.rs`, `account.rs`, `judge.rs`, then `target.rs`, `session.rs`, `follow.rs`, `bench.rs`, `cases/mod.rs`.
#![doc = include_str!("cases.md")]

mod account;
mod bench;
mod cases;
mod follow;
mod judge;
mod outcome;
mod report;
mod session;
mod stream;
mod target;
mod tool;
mod trace;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use http::HeaderMap;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::config;
use crate::config::resolved::UpstreamTls;
use crate::net::fill_random;
use crate::pure::revision::{Era, Revision};

use bench::Bench;
use cases::{Trial, Turn};
use session::Run;
use target::Target;
use trace::Trace;

pub use cases::{CASES, Case};
pub use outcome::{Finding, How, Outcome};
pub use report::{Entry, Format, Report, Verdict};
pub use tool::{NotAnObject, Tool, Tools};

/// Cases under way at the same time unless said otherwise: they wait far more than they work, and what a server mixes up
/// between sessions is seen only where there are several.
pub const CASES_AT_ONCE: usize = 8;

/// Longest that one case may take, in multiples of the timeout, beside a minute for a restart.
const CASE_TIMEOUTS_MAX: u32 = 12;

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The MCP endpoint, `http://` or `https://`.
    pub url: String,
    /// Fields of every request: a credential, for example. They are never printed.
    pub fields: HeaderMap,
    /// Authorities to trust instead of the system's, and so on.
    pub tls: UpstreamTls,
    /// The revision to ask for; none = the newest with sessions.
    pub revision: Option<Revision>,
    /// The tools to call; those that are missing are chosen from known ones.
    pub tools: Tools,
    /// A command for `sh -c` that restarts the server and returns when that is done.
    pub restart: Option<String>,
    /// Only cases whose name contains one of these; none = all.
    pub only: Vec<String>,
    /// Longest wait for what must come, beside the time that a call takes.
    pub timeout: Duration,
    /// Cases under way at the same time, at least 1.
    pub at_once: usize,
}

/// Why nothing could be tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    /// The URL is none; what is wrong with it.
    Url(String),
    /// TLS can't be set up.
    Tls(String),
    /// No case has such a name.
    NoSuchCase,
    /// The era of this revision has no sessions, so there is nothing to resume.
    NoSessions(Revision),
    /// The server did not answer as an MCP server; what happened, and the evidence.
    Server(String, Vec<String>),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(what) => write!(f, "the URL {what}"),
            Self::Tls(what) => f.write_str(what),
            Self::NoSuchCase => f.write_str("no case has such a name (--list shows them)"),
            Self::NoSessions(revision) => write!(
                f,
                "{revision} has no sessions to try; its own cases run beside those of an older revision"
            ),
            Self::Server(what, evidence) => {
                write!(f, "the server can't be tried: {what}")?;
                evidence.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
        }
    }
}

impl std::error::Error for Unusable {}

/// The cases that words choose; all if there are none.
pub fn chosen(only: &[String]) -> Vec<&'static Case> {
    let wanted = |case: &&Case| only.is_empty() || only.iter().any(|word| case.name.contains(word.as_str()));
    CASES.iter().filter(wanted).collect()
}

/// Tries a server. Needs a tokio runtime around it.
///
/// # Errors
/// [`Unusable`]: nothing could be tried at all.
pub async fn run(asked: Asked) -> Result<Report, Unusable> {
    let chosen = chosen(&asked.only);
    if chosen.is_empty() {
        return Err(Unusable::NoSuchCase);
    }
    let bench = Arc::new(bench_of(&asked).await?);
    let restart = asked.restart.map(Into::into);
    let (alone, together): (Vec<_>, Vec<_>) = chosen.iter().partition(|case| case.turn == Turn::Alone);
    let mut entries = try_all(&bench, &restart, together, asked.at_once.max(1)).await;
    entries.extend(try_all(&bench, &restart, alone, 1).await);
    let place = |entry: &Entry| chosen.iter().position(|case| case.name == entry.name);
    entries.sort_by_key(place);
    let named = |tool: Option<&Tool>| tool.map_or_else(|| "none".to_owned(), |tool| tool.name.clone());
    Ok(Report {
        url: asked.url,
        server: bench.server.clone(),
        revision: bench.revision.to_string(),
        tools: [
            ("tool", named(bench.call.as_ref().ok().map(|call| &call.tool))),
            ("flood", named(bench.flood.as_ref().ok())),
            (
                "notify",
                named(bench.emission.as_ref().ok().map(|emission| &emission.tool)),
            ),
        ],
        entries,
    })
}

async fn bench_of(asked: &Asked) -> Result<Bench, Unusable> {
    let revision = match asked.revision {
        Some(revision) if revision.era() == Era::Stateless => return Err(Unusable::NoSessions(revision)),
        Some(revision) => revision,
        None => Revision::newest_with_sessions(),
    };
    let at = config::endpoint(&asked.url).map_err(Unusable::Url)?;
    let target = Target::new(at, asked.fields.clone(), &asked.tls)
        .map_err(|problem| Unusable::Tls(problem.to_string()))?;
    let mut name = [0; 4];
    // Without chance, runs share their tokens; a case still tells its own apart.
    let _ = fill_random(&mut name);
    let run = Run {
        target,
        timeout: asked.timeout,
        revision,
        name: format!("{:08x}", u32::from_be_bytes(name)),
        tokens: AtomicU64::new(1),
    };
    let trace = Trace::begin();
    Bench::prepare(Arc::new(run), asked.tools.clone(), &trace)
        .await
        .map_err(|found| Unusable::Server(found.why, trace.lines()))
}

async fn try_all(
    bench: &Arc<Bench>,
    restart: &Option<Arc<str>>,
    cases: Vec<&'static Case>,
    at_once: usize,
) -> Vec<Entry> {
    let turns = Arc::new(Semaphore::new(at_once));
    let mut under_way = JoinSet::new();
    for case in cases {
        let (bench, restart, turns) = (Arc::clone(bench), restart.clone(), Arc::clone(&turns));
        under_way.spawn(async move {
            // The semaphore is never closed.
            let _turn = turns.acquire_owned().await;
            try_one(case, bench, restart).await
        });
    }
    let mut entries = Vec::new();
    while let Some(entry) = under_way.join_next().await {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
    entries
}

async fn try_one(case: &'static Case, bench: Arc<Bench>, restart: Option<Arc<str>>) -> Entry {
    let (trace, began) = (Trace::begin(), Instant::now());
    let longest = bench.run.timeout * CASE_TIMEOUTS_MAX + Duration::from_secs(60);
    let trial = Trial {
        bench,
        trace: trace.clone(),
        restart,
    };
    let finding = match timeout(longest, (case.run)(trial)).await {
        Ok(Ok(finding) | Err(finding)) => finding,
        Err(_) => Finding::fail("the case did not end in time"),
    };
    Entry {
        name: case.name,
        finding,
        evidence: trace.lines(),
        took: began.elapsed(),
    }
}

//! Sets log lines up: for people on a terminal, one JSON object a line otherwise.
//! Law: lines go to standard error; standard output is for what a command answers. A line that can't be written is lost,
//! and nothing else is: a full disk, or a collector that has gone away or does not read, is no reason to end a stream or
//! to hold one up.
//! Payloads, credentials and whole session ids never reach a log line; that is the callers' part of the law.
//! Next: `lines.rs`.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use super::lines;
use crate::config::resolved::{Log, LogFormat};

/// This program's name in a filter.
const OWN: &str = "throughline";

/// Why log lines could not be set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetUpFailed {
    /// The filter is not one.
    Filter(String),
    /// Standard error can't be written to, or no thread be had that does it.
    Writer(String),
    /// They are set up already.
    Twice,
}

impl std::fmt::Display for SetUpFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Filter(what) => f.write_str(what),
            Self::Writer(what) => write!(f, "log lines can't be written: {what}"),
            Self::Twice => f.write_str("log lines are set up already"),
        }
    }
}

impl std::error::Error for SetUpFailed {}

/// Whether a text is a filter.
///
/// # Errors
/// What is wrong with it, in a few words.
pub fn check_filter(filter: &str) -> Result<(), String> {
    parse(filter).map(drop)
}

/// A word alone is a level or a part of this program: the library takes any other for the name of a program, and then
/// nothing is logged at all.
fn parse(filter: &str) -> Result<EnvFilter, String> {
    let lone = |part: &&str| !part.is_empty() && !part.contains(['=', '[']);
    for word in filter.split(',').map(str::trim).filter(lone) {
        let is_level = word.parse::<LevelFilter>().is_ok();
        if !is_level && word != OWN && !word.starts_with(&format!("{OWN}::")) {
            return Err(format!("`{word}` is no level"));
        }
    }
    EnvFilter::builder()
        .parse(filter)
        .map_err(|error| format!("`{filter}` is not a filter: {error}"))
}

/// Puts another filter in the place of the one that lines were set up with.
type Refilter = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

static REFILTER: OnceLock<Refilter> = OnceLock::new();

/// Another filter holds from now on. Where lines are not ours to set up, nothing changes.
///
/// # Errors
/// What is wrong with it, in a few words.
pub fn set_filter(filter: &str) -> Result<(), String> {
    let filter = parse(filter)?;
    match REFILTER.get() {
        Some(refilter) => refilter(filter),
        None => Ok(()),
    }
}

/// Sets log lines up for the whole process. Call: once, before anything is logged.
///
/// # Errors
/// [`SetUpFailed`]; nothing is changed then.
pub fn set_up(log: &Log) -> Result<(), SetUpFailed> {
    let filter = parse(&log.filter).map_err(SetUpFailed::Filter)?;
    let terminal = std::io::stderr().is_terminal();
    let human = match log.format {
        LogFormat::Auto if terminal => Lines::Human,
        LogFormat::Auto | LogFormat::Json => Lines::Json,
        LogFormat::Human => Lines::Human,
    };
    let out = lines::begin().map_err(|error| SetUpFailed::Writer(error.to_string()))?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(out)
        // The library would complain of a failed write to standard error by a macro that panics when that fails too.
        .log_internal_errors(false)
        .with_timer(SystemTime);
    let (set, refilter): (_, Refilter) = match human {
        Lines::Human => {
            let colours = terminal && std::env::var_os("NO_COLOR").is_none();
            let lines = lines.with_ansi(colours).with_filter_reloading();
            let handle = lines.reload_handle();
            let refilter = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            (lines.try_init(), Box::new(refilter))
        }
        Lines::Json => {
            let lines = lines
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_filter_reloading();
            let handle = lines.reload_handle();
            let refilter = move |filter| handle.reload(filter).map_err(|error| error.to_string());
            (lines.try_init(), Box::new(refilter))
        }
    };
    set.map_err(|_| SetUpFailed::Twice)?;
    REFILTER.set(refilter).map_err(|_| SetUpFailed::Twice)
}

enum Lines {
    Human,
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(filter: &str, good: Result<(), ()>) {
        assert_eq!(check_filter(filter).map_err(drop), good, "{filter}");
    }

    #[test]
    fn filters() {
        check("info", Ok(()));
        check("throughline=debug,warn", Ok(()));
        check("off", Ok(()));
        check("throughline::relay", Ok(()));
        check("warn,hyper=info", Ok(()));
        check("", Ok(()));
        check("throughline=loud", Err(()));
        check("inof", Err(()));
        check("info,debgu", Err(()));
        check("=", Err(()));
    }
}

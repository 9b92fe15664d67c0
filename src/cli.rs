//! The command line: flags, subcommands, exit codes.
//! Law: a secret never comes from here; what a flag sets is a key of the configuration, so that both say the same.
//! The only door to the argument parser. Answers go to standard output, complaints to standard error.
//! Absent on purpose: running (`app.rs`).
//! Next: `config/mod.rs`.

mod conformance;
mod decode;
mod signals;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::config::resolved::{Config, Scheme};
use crate::config::{self, Flags};

pub use conformance::{Conformance, conformance};
pub use decode::decode;
pub use signals::{Hangup, Stop};

/// How a command ended. The numbers are promised: scripts and supervisors match on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// 0: it did what it was asked for. For `run`: drained in order after a signal.
    Done,
    /// 1: something failed that is none of the others. For `conformance`: a case failed or was silent.
    Failed,
    /// 2: the command line makes no sense. For `conformance`: nothing could be tried.
    Usage,
    /// 3: the configuration is wrong; every problem was printed.
    BadConfig,
    /// 4: an address could not be bound.
    CannotBind,
    /// 5: the time to drain ran out, and what still ran was cut.
    DrainRanOut,
}

impl Exit {
    /// Every way to end, in the order of its number.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::BadConfig,
        Self::CannotBind,
        Self::DrainRanOut,
    ];

    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::BadConfig => 3,
            Self::CannotBind => 4,
            Self::DrainRanOut => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub enum Command {
    /// Serve clients until a signal comes.
    Run(Flags),
    /// Say what is wrong with a file, under these settings.
    Check(PathBuf, Vec<String>),
    /// Say what an event id or a session token means.
    Decode(Decode),
    /// Try whether a server is honest about reconnects.
    Conformance(Box<Conformance>),
}

/// What to decode, and with which keys.
#[derive(Clone, Debug)]
pub struct Decode {
    /// The event id, or the session token, as it was given.
    pub event_id: String,
    /// The session token that it is to fit, if any.
    pub session: Option<String>,
    /// Names of the upstreams that the token may be of.
    pub upstreams: Vec<String>,
    /// A configuration to take keys and names from.
    pub config: Option<PathBuf>,
    /// A file to take the key from.
    pub secret_file: Option<PathBuf>,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done; for `run`: drained in order after SIGTERM or Ctrl-C
  1  something else failed; for `conformance`: a case failed or was silent
  2  the command line makes no sense; for `conformance`: nothing could be tried
  3  the configuration is wrong (every problem is printed)
  4  an address could not be bound
  5  the time to drain ran out, and what still ran was cut";

const EXAMPLES: &str = "\
Examples:
  Two replicas of one server, served at http://127.0.0.1:8080/mcp, with no file at all:
    throughline run --listen 127.0.0.1:8080 \\
        --upstream http://127.0.0.1:3001/mcp --upstream http://127.0.0.1:3002/mcp

  From a file, checked first:
    throughline check throughline.toml && throughline run --config throughline.toml

  What a client's Last-Event-ID says:
    throughline decode 'aAAECAwQFBgc.pi7.AAECAwQFBgcICQoL.42'

  Where a session lives, and since when:
    throughline decode --config throughline.toml 't1a.…'

  Whether a server is honest about reconnects:
    throughline conformance http://127.0.0.1:3001/mcp

Files to start from: config/minimal.toml, and config/full.toml with every setting and the reason for
its default. How it works and what it promises: README.md.";

#[derive(Debug, Parser)]
#[command(
    name = "throughline",
    version,
    about = "A resumption-aware reverse proxy for MCP",
    long_about = "A resumption-aware reverse proxy for MCP (Model Context Protocol).\n\n\
        Put it before the replicas of a server that you can't change. A client whose connection drops comes back and \
        gets exactly what it missed, or is told in so many words that it can't.",
    after_help = "Run `throughline --help` for examples and exit codes.",
    after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 110
)]
struct Cli {
    #[command(subcommand)]
    command: Spoken,
}

#[derive(Debug, Subcommand)]
enum Spoken {
    /// Serve clients until SIGTERM or Ctrl-C
    #[command(after_long_help = RUN_HELP)]
    Run(Run),
    /// Say everything that is wrong with a file, with line and key
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,

        /// Set any key of the file, as `run` does; may be given again
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
    },
    /// Say what an event id (a client's Last-Event-ID) or a session token (its Mcp-Session-Id) means
    ///
    /// With a key and the session's token, also whether the id belongs to that session. A token needs a key.
    Decode(DecodeArgs),
    /// Try whether a server or a gateway loses, repeats or mixes up anything when a client reconnects
    #[command(after_long_help = conformance::HELP)]
    Conformance(Box<Conformance>),
}

const RUN_HELP: &str = "\
Examples:
  throughline run --upstream http://127.0.0.1:3001/mcp
  throughline run --upstream http://127.0.0.1:3001/sse          (a server of HTTP+SSE, 2024-11-05)
  throughline run --upstream http://127.0.0.1:3001/mcp --admin off --set log.filter=info,throughline=debug
  THROUGHLINE_SECRET=$(openssl rand -base64 32) throughline run --config throughline.toml

The secret comes from the environment (THROUGHLINE_SECRET) or from a file, never from a flag: every
user of the machine can read flags. Without a secret, a restart ends every session.";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").args(["config", "upstream"]).required(true))]
struct Run {
    /// Read the configuration from this file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where clients connect; may be given again [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,

    /// A replica's URL; give it again for each replica of the one server. Its path is the path served
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,

    /// Where /healthz, /readyz and /metrics are [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR:PORT|off")]
    admin: Option<String>,

    /// Set any key of the file; may be given again. `upstream.KEY` means the one upstream, `upstream.NAME.KEY` that one
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Read the secret from this file instead of THROUGHLINE_SECRET
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct DecodeArgs {
    /// The id or the token, as a client sends it
    #[arg(value_name = "EVENT-ID|TOKEN", allow_hyphen_values = true)]
    event_id: String,

    /// The Mcp-Session-Id that the id is to fit; needs a key
    #[arg(long, value_name = "TOKEN")]
    session: Option<String>,

    /// The upstream that the session is of; may be given again [default: those of --config, else mcp]
    #[arg(long, value_name = "NAME")]
    upstream: Vec<String>,

    /// Take keys and upstreams from this configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Take the key from this file instead of THROUGHLINE_SECRET
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    secret_file: Option<PathBuf>,
}

/// Reads the command line. Help and version are answered here.
///
/// # Errors
/// How the process is to end: [`Exit::Done`] after help or version, [`Exit::Usage`] after a complaint.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Exit> {
    match Cli::try_parse_from(arguments) {
        Ok(Cli { command }) => Ok(command.into()),
        Err(error) => {
            let exit = if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            };
            // A closed standard output is no reason to fail differently.
            let _ = error.print();
            Err(exit)
        }
    }
}

impl From<Spoken> for Command {
    fn from(spoken: Spoken) -> Self {
        match spoken {
            Spoken::Run(Run {
                config,
                listen,
                upstream,
                admin,
                set,
                secret_file,
            }) => Self::Run(Flags {
                config,
                listen,
                upstreams: upstream,
                admin,
                secret_file,
                set,
            }),
            Spoken::Check { file, set } => Self::Check(file, set),
            Spoken::Decode(DecodeArgs {
                event_id,
                session,
                upstream,
                config,
                secret_file,
            }) => Self::Decode(Decode {
                event_id,
                session,
                upstreams: upstream,
                config,
                secret_file,
            }),
            Spoken::Conformance(ask) => Self::Conformance(ask),
        }
    }
}

/// Says what is wrong with a file under these settings, or what it means if nothing is.
pub fn check(file: &Path, set: &[String]) -> Exit {
    let flags = Flags {
        config: Some(file.into()),
        set: set.to_vec(),
        ..Flags::default()
    };
    match config::read(&flags) {
        Ok((config, warnings)) => {
            for warning in warnings {
                complain(&warning.to_string());
            }
            answer(&format!("{}: good\n{}", file.display(), summary(&config)));
            Exit::Done
        }
        Err(problems) => {
            for warning in problems.warnings() {
                complain(&warning.to_string());
            }
            complain(&problems.to_string());
            Exit::BadConfig
        }
    }
}

/// What a configuration comes to, in a few lines.
fn summary(config: &Config) -> String {
    let mut out = String::new();
    for listener in &config.listeners {
        let scheme = if listener.tls.is_some() { "https" } else { "http" };
        for upstream in &config.upstreams {
            let replicas: Vec<String> = upstream
                .replicas
                .iter()
                .map(|replica| {
                    let scheme = match replica.scheme {
                        Scheme::Http => "http",
                        Scheme::Https => "https",
                    };
                    format!("{scheme}://{}{}", replica.authority, replica.path)
                })
                .collect();
            let (address, path, name) = (listener.address, &upstream.path, &upstream.name);
            // Writing to a string can't fail.
            let _ = writeln!(
                out,
                "  {scheme}://{address}{path} -> {name}: {}",
                replicas.join(", ")
            );
        }
    }
    match config.admin {
        Some(address) => out.push_str(&format!("  http://{address}/ -> health, readiness, metrics")),
        None => out.push_str("  health, readiness, metrics: off"),
    }
    out
}

/// Standard output; a reader that went away is no failure of ours.
fn answer(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
}

/// Standard error; the same.
fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{}\n", text.trim_end());
}

//! The continuity suite from the command line: what to try, where the report goes, the number that it ends with.
//! Law: a credential comes from the environment or a file; a flag names the field and where its value is, never the value.
//! Next: `../conformance/mod.rs`.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Exit, answer, complain};
use crate::config::resolved::UpstreamTls;
use crate::conformance::{self, Asked, CASES, CASES_AT_ONCE, Format, Tool, Tools, Verdict};
use crate::pure::revision::{Era, Revision};

/// Longest wait for what must come, in seconds.
const TIMEOUT_S_MAX: u64 = 600;

pub(super) const HELP: &str = "\
Examples:
  throughline conformance http://127.0.0.1:3001/mcp
  throughline conformance --list
  throughline conformance http://127.0.0.1:3001/mcp --only cursor/ --only post/cut
  throughline conformance http://127.0.0.1:3001/mcp --tool export --arguments '{\"rows\":500,\"name\":\"{tag}\"}'
  throughline conformance http://127.0.0.1:3001/mcp --restart 'systemctl restart my-server'
  MY_AUTH=\"Bearer $TOKEN\" throughline conformance https://mcp.example.com/mcp \\
      --header-from-env Authorization=MY_AUTH --format junit --output report.xml

It is a client of the server or gateway at URL: it makes calls, cuts its own connections, comes back, and finds out
whether anything is lost, repeated or mixed up. Four words: pass (nothing is lost, or the client is told), fail (the
server breaks the protocol, and the client can see it), silent (something is lost and no answer says so), skipped (it
could not be tried here, and why). A skip is no pass.

Only tools are called unasked that are known to do no harm: those of the official example servers. Another one that says
progress for a second or so (at least 3 messages, the same each time) is named with --tool. In its arguments, `{tag}`
stands for a text that each call has for itself; a server whose result repeats it is tried more strictly.

Exit codes:
  0  every case that could be tried passed
  1  at least one failed or was silent
  2  nothing could be tried";

/// Which form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
    Junit,
}

/// What `throughline conformance` was asked for.
#[derive(Clone, Debug, Args)]
pub struct Conformance {
    /// The MCP endpoint (Streamable HTTP)
    #[arg(value_name = "URL", required_unless_present = "list")]
    url: Option<String>,

    /// Say which cases there are, and what each means
    #[arg(long)]
    list: bool,

    /// Try only cases whose name contains this; may be given again
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,

    /// Call this tool: one that says progress, then answers
    #[arg(long, value_name = "NAME", requires = "arguments")]
    tool: Option<String>,

    /// Its arguments
    #[arg(long, value_name = "JSON", requires = "tool")]
    arguments: Option<String>,

    /// Arguments with which it says more messages than the server keeps
    #[arg(long, value_name = "JSON", requires = "tool")]
    flood: Option<String>,

    /// Call this tool to make the server speak on the standalone stream, after its answer
    #[arg(long, value_name = "NAME", requires = "notify_arguments")]
    notify_tool: Option<String>,

    /// Its arguments; `{tag}` must come again in what is said
    #[arg(long, value_name = "JSON", requires = "notify_tool")]
    notify_arguments: Option<String>,

    /// Restart the server with this command (`sh -c`), which returns when that is done; else such cases are skipped
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,

    /// Send this field with each request, its value from this environment variable; may be given again
    #[arg(long, value_name = "FIELD=VARIABLE")]
    header_from_env: Vec<String>,

    /// The same, its value from this file
    #[arg(long, value_name = "FIELD=FILE")]
    header_from_file: Vec<String>,

    /// Ask for this revision of MCP [default: the newest with sessions]
    #[arg(long, value_name = "DATE")]
    revision: Option<String>,

    /// Trust the authorities in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,

    /// How long to wait for what must come, in seconds, beside the time that a call takes
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_S_MAX))]
    timeout: u64,

    /// Try so many cases at the same time
    #[arg(long, value_name = "NUMBER", default_value_t = CASES_AT_ONCE as u64, value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,

    /// The form of the report
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,

    /// Write the report here instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Tries a server and says what was found.
pub fn conformance(ask: &Conformance) -> Exit {
    let Some(url) = ask.url.clone().filter(|_| !ask.list) else {
        answer(&list(&ask.only));
        return Exit::Done;
    };
    let asked = match asked(ask, url) {
        Ok(asked) => asked,
        Err(error) => return unusable(&error),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(conformance::run(asked)),
        Err(error) => return unusable(&error.to_string()),
    };
    let report = match outcome {
        Ok(report) => report,
        Err(error) => return unusable(&error.to_string()),
    };
    let text = report.print(match ask.format {
        Form::Text => Format::Text,
        Form::Json => Format::Json,
        Form::Junit => Format::Junit,
    });
    match &ask.output {
        None => answer(&text),
        Some(file) => {
            if let Err(error) = fs::write(file, text) {
                return unusable(&format!("{}: {error}", file.display()));
            }
        }
    }
    match report.verdict() {
        Verdict::Honest => Exit::Done,
        Verdict::Dishonest => Exit::Failed,
        Verdict::Untried => unusable("no case could be tried; each says why"),
    }
}

fn unusable(what: &str) -> Exit {
    complain(&format!("error: {what}"));
    Exit::Usage
}

fn list(only: &[String]) -> String {
    let mut out = String::new();
    for case in conformance::chosen(only) {
        out.push_str(&format!(
            "{}\n    {}\n    pass:   {}\n",
            case.name, case.does, case.honest
        ));
        if !case.silent.is_empty() {
            out.push_str(&format!("    silent: {}\n", case.silent));
        }
    }
    out.push_str(&format!("\n{} cases in all\n", CASES.len()));
    out
}

fn asked(ask: &Conformance, url: String) -> Result<Asked, String> {
    let tool = |name: &Option<String>, arguments: &Option<String>| match (name, arguments) {
        (Some(name), Some(arguments)) => Tool::new(name, arguments)
            .map(Some)
            .map_err(|error| format!("`{name}`: {error}")),
        (None, _) | (_, None) => Ok(None),
    };
    Ok(Asked {
        url,
        fields: fields(ask)?,
        tls: UpstreamTls {
            authorities: ask.authorities.clone(),
            ..UpstreamTls::default()
        },
        revision: ask.revision.as_deref().map(revision).transpose()?,
        tools: Tools {
            progress: tool(&ask.tool, &ask.arguments)?,
            flood: tool(&ask.tool, &ask.flood)?,
            notify: tool(&ask.notify_tool, &ask.notify_arguments)?,
        },
        restart: ask.restart.clone(),
        only: ask.only.clone(),
        timeout: Duration::from_secs(ask.timeout),
        at_once: usize::try_from(ask.jobs).unwrap_or(CASES_AT_ONCE),
    })
}

fn revision(text: &str) -> Result<Revision, String> {
    Revision::parse(text.as_bytes()).ok_or_else(|| {
        let with_sessions = Revision::ALL
            .into_iter()
            .filter(|known| known.era() == Era::Session);
        let known: Vec<&str> = with_sessions.map(Revision::as_str).collect();
        format!("`{text}` is no revision; there are {}", known.join(", "))
    })
}

fn fields(ask: &Conformance) -> Result<HeaderMap, String> {
    let mut fields = HeaderMap::new();
    for pair in &ask.header_from_env {
        let (name, variable) = halves(pair)?;
        let value = std::env::var(variable).map_err(|error| format!("`{variable}`: {error}"))?;
        add(&mut fields, name, value.trim())?;
    }
    for pair in &ask.header_from_file {
        let (name, file) = halves(pair)?;
        let value = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        add(&mut fields, name, value.trim())?;
    }
    Ok(fields)
}

fn halves(pair: &str) -> Result<(&str, &str), String> {
    pair.split_once('=')
        .ok_or_else(|| format!("`{pair}`: write FIELD=, and behind it where the value is"))
}

fn add(fields: &mut HeaderMap, name: &str, value: &str) -> Result<(), String> {
    let field = HeaderName::try_from(name).map_err(|_| format!("`{name}` is no name of a field"))?;
    let mut value =
        HeaderValue::try_from(value).map_err(|_| format!("the value of `{name}` can't be sent"))?;
    value.set_sensitive(true);
    fields.append(field, value);
    Ok(())
}

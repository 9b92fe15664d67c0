//! The suite's client mode: it is the server, and judges a client that reaches it directly or through the proxy.
//! Law: the suite gives its URL to the command it starts; where the proxy stands between, that command is this program,
//! which starts the proxy in front of that URL, and the client with the proxy's own.
//! Next: `../lab/conformance.mjs`.

use std::process::{ExitCode, Stdio};

use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::BETWEEN;
use crate::compare::{Both, Report, settle};
use crate::lab::{Proxy, Sdk};
use crate::suite::Subject;

/// A client, the revision that it is to speak, and some of the scenarios.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    client: Sdk,
    revision: &'static str,
}

impl Case {
    /// Its name.
    pub(crate) fn name(self) -> String {
        format!("client {} at {}", self.client.name(), self.revision)
    }

    /// What the suite is told to start; it adds its URL. It splits at spaces, and so do we.
    fn command(self) -> String {
        let command = self.client.conformance();
        let parts = std::iter::once(command.get_program()).chain(command.get_args());
        let parts: Vec<_> = parts.map(|part| part.to_string_lossy()).collect();
        parts.join(" ")
    }
}

/// Every client of the lab, at every revision for which the suite has scenarios and the client a voice.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for client in Sdk::ALL {
        let revisions: &[&str] = match client {
            Sdk::Ts1 => &["2025-11-25", "2025-06-18", "2025-03-26"],
            Sdk::Py1 => &["2025-11-25"],
            Sdk::Ts2 | Sdk::Py2 => &["2025-11-25", "2026-07-28"],
        };
        cases.extend(revisions.iter().map(|revision| Case { client, revision }));
    }
    cases
}

/// Runs a case.
pub(crate) async fn run(case: Case) -> Report {
    compare(case).await.unwrap_or_else(Report::broken)
}

async fn compare(case: Case) -> Result<Report, String> {
    let direct = case.command();
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let through = format!("{} {BETWEEN} {direct}", this.display());
    settle(&Both {
        direct: Subject::Client(direct),
        through: Subject::Client(through),
        revision: case.revision,
    })
    .await
}

/// Stands between the suite and a client: the last argument is the suite's URL, the others are the client's command.
pub(crate) async fn between(arguments: &[String]) -> ExitCode {
    match go_between(arguments).await {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("between: {fault}");
            ExitCode::FAILURE
        }
    }
}

async fn go_between(arguments: &[String]) -> Result<ExitCode, String> {
    let (url, command) = arguments.split_last().ok_or("no URL was given")?;
    let (program, arguments) = command.split_first().ok_or("no client was given")?;
    let path = url.splitn(4, '/').nth(3).unwrap_or("");
    let mut stop = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    // Metadata names the public address, so the port is chosen before the proxy is there.
    let port = free_port().map_err(|error| error.to_string())?;
    // Of servers that are their own issuers, and of one that describes itself at a path of its own.
    let paths = concat!(
        r#"upstream.oauth.paths=["/authorize","/token","/register","/oauth/authorize","/oauth/token","#,
        r#""/oauth/register","/custom/metadata/location.json"]"#
    );
    let settings = [
        paths.to_owned(),
        format!("server.listen=127.0.0.1:{port}"),
        "upstream.oauth.metadata=pass".to_owned(),
        format!("upstream.oauth.public_url=http://localhost:{port}"),
    ];
    let _proxy = Proxy::start_at(
        std::slice::from_ref(url),
        &settings.each_ref().map(String::as_str),
    )
    .await?;
    let mut client = Command::new(program)
        .args(arguments)
        .arg(format!("http://localhost:{port}/{path}"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the client did not start: {error}"))?;
    let suite_gone = end_of_stdin();
    tokio::select! {
        biased;
        ended = client.wait() => {
            let ended = ended.map_err(|error| error.to_string())?;
            let code = ended.code().and_then(|code| u8::try_from(code).ok());
            Ok(ExitCode::from(code.unwrap_or(1)))
        }
        _ = stop.recv() => Err("it was told to stop".to_owned()),
        _ = suite_gone => Err("nobody waits for it".to_owned()),
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Resolves when the suite, which holds the other end, has ended.
fn end_of_stdin() -> oneshot::Receiver<()> {
    let (ended, at_the_end) = oneshot::channel();
    std::thread::spawn(move || {
        let _broken = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _nobody_waits = ended.send(());
    });
    at_the_end
}

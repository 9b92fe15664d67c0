//! The suite's client mode: it is the server, and judges a client that reaches it directly or through the proxy.
//! Law: the suite gives its URL to the command it starts. That command is this program, which waits for its turn and then
//! starts the client, and before it the proxy where that stands between, with a tape on either side of it.
//! The client knows the server by its URL both ways, as where a name leads to a proxy; once it has a name of the proxy's own.
//! Next: `gate.rs`, then `../lab/conformance.mjs`.

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::BETWEEN;
use crate::compare::{Both, Known, Report, settle};
use crate::gate::{Gate, Taped, Turn};
use crate::lab::{Proxy, Sdk};
use crate::port::Held;
use crate::suite::Subject;
use crate::tape::Tape;

/// How long a client may take, counted from its turn: nothing that goes well takes so long on a busy machine either.
const CLIENT: Duration = Duration::from_secs(60);

/// Where a client of the lab finds the server of its URL, if not there.
const REACHED_AT: &str = "LAB_REACHED_AT";

/// How a client reaches the suite's server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Direct,
    Through(Known),
}

impl Way {
    const ALL: [Self; 3] = [
        Self::Direct,
        Self::Through(Known::ByItsUrl),
        Self::Through(Known::Renamed),
    ];

    /// Its word on a command line.
    const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Through(Known::ByItsUrl) => "through",
            Self::Through(Known::Renamed) => "renamed",
        }
    }

    fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == word)
    }
}

/// A client, the revision that it is to speak, and by what it knows the server.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    client: Sdk,
    revision: &'static str,
    known: Known,
}

impl Case {
    /// Its name.
    pub(crate) fn name(self) -> String {
        let known = match self.known {
            Known::ByItsUrl => "",
            Known::Renamed => ", server renamed",
        };
        format!("client {} at {}{known}", self.client.name(), self.revision)
    }

    /// What the suite is told to start; it adds its URL. It splits at spaces, and so do we.
    fn command(self, way: Way, gate: &Path) -> Result<String, String> {
        let this = std::env::current_exe().map_err(said)?;
        let command = self.client.conformance();
        let parts = std::iter::once(command.get_program()).chain(command.get_args());
        let parts: Vec<_> = parts.map(|part| part.to_string_lossy()).collect();
        let (this, gate) = (this.display(), gate.display());
        Ok(format!(
            "{this} {BETWEEN} {gate} {} {}",
            way.word(),
            parts.join(" ")
        ))
    }
}

/// Every client of the lab, at every revision for which the suite has scenarios and the client a voice, the slow ones first;
/// one of them also with a server that is renamed.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for client in [Sdk::Py2, Sdk::Py1, Sdk::Ts2, Sdk::Ts1] {
        let revisions: &[&str] = match client {
            Sdk::Ts1 => &["2025-11-25", "2025-06-18", "2025-03-26"],
            Sdk::Py1 => &["2025-11-25"],
            Sdk::Ts2 | Sdk::Py2 => &["2026-07-28", "2025-11-25"],
        };
        cases.extend(revisions.iter().map(|revision| Case {
            client,
            revision,
            known: Known::ByItsUrl,
        }));
    }
    cases.push(Case {
        client: Sdk::Ts1,
        revision: "2025-06-18",
        known: Known::Renamed,
    });
    cases
}

/// Runs a case.
pub(crate) async fn run(case: Case) -> Report {
    compare(case).await.unwrap_or_else(Report::broken)
}

async fn compare(case: Case) -> Result<Report, String> {
    let gate = Gate::open().map_err(said)?;
    let mut report = settle(&Both {
        direct: Subject::Client(case.command(Way::Direct, gate.path())?),
        through: Subject::Client(case.command(Way::Through(case.known), gate.path())?),
        revision: case.revision,
        known: case.known,
    })
    .await?;
    let taped = gate.taped();
    if case.known == Known::ByItsUrl && taped.iter().all(|taped| taped.messages == 0) {
        report.compared(0, vec!["the tapes are empty: this run proves nothing".to_owned()]);
    }
    for taped in taped {
        report.compared(taped.messages, taped.differences);
    }
    Ok(report)
}

/// Stands between the suite and a client. Its arguments: the gate, the way, the client's command, the suite's URL.
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
    let (url, arguments) = arguments.split_last().ok_or("no URL was given")?;
    let [gate, way, program, arguments @ ..] = arguments else {
        return Err("no client was given".to_owned());
    };
    let way = Way::read(way).ok_or("no such way")?;
    let mut stop = signal(SignalKind::terminate()).map_err(said)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let work = async {
        let turn = Turn::take(Path::new(gate)).await.map_err(said)?;
        match way {
            Way::Direct => start(command.arg(url)).await,
            Way::Through(known) => through(known, url, command, turn).await,
        }
    };
    tokio::select! {
        biased;
        ended = work => ended,
        _ = stop.recv() => Err("it was told to stop".to_owned()),
        _ = end_of_stdin() => Err("nobody waits for it".to_owned()),
    }
}

/// Starts a client, and waits for its end.
async fn start(client: &mut Command) -> Result<ExitCode, String> {
    let mut client = client
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the client did not start: {error}"))?;
    let ended = timeout(CLIENT, client.wait())
        .await
        .map_err(|_| "the client hangs")?
        .map_err(said)?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

async fn through(known: Known, url: &str, mut client: Command, turn: Turn) -> Result<ExitCode, String> {
    let mut parts = url.splitn(4, '/').skip(2);
    let (address, path) = (
        parts.next().ok_or("the URL has no address")?,
        parts.next().unwrap_or(""),
    );
    let server = TcpStream::connect(address).await.map_err(said)?;
    let upstream = Tape::start(server.peer_addr().map_err(said)?)
        .await
        .map_err(said)?;
    // Metadata names the public address, so the port is chosen before the proxy is there.
    let port = Held::any().map_err(said)?;
    let downstream = Tape::start(port.address()).await.map_err(said)?;
    let public = format!("http://localhost:{}", downstream.address().port());
    // Of servers that are their own issuers, and of one that describes itself at a path of its own.
    let paths = concat!(
        r#"upstream.oauth.paths=["/authorize","/token","/register","/oauth/authorize","/oauth/token","#,
        r#""/oauth/register","/custom/metadata/location.json"]"#
    );
    let mut settings = vec![
        paths.to_owned(),
        format!("server.listen={}", port.address()),
        "upstream.oauth.metadata=pass".to_owned(),
        "upstream.isolate_request_ids=false".to_owned(),
    ];
    match known {
        Known::ByItsUrl => client.env(REACHED_AT, &public).arg(url),
        Known::Renamed => {
            settings.push(format!("upstream.oauth.public_url={public}"));
            client.arg(format!("{public}/{path}"))
        }
    };
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let upstream_url = match known {
        Known::ByItsUrl => format!("http://{}/{path}", upstream.address()),
        // What is put in place of the server's address is looked for as it is written here.
        Known::Renamed => url.to_owned(),
    };
    let proxy = Proxy::start_at(&[upstream_url], &settings).await?;
    let ended = start(&mut client).await;
    let drained = proxy.drain().await?;
    if known == Known::ByItsUrl {
        let (client_side, server_side) = (downstream.messages(), upstream.messages());
        let mut differences = client_side.differences(&server_side);
        if drained != 0 {
            differences.push(format!("the proxy ended with {drained}"));
        }
        turn.tell(&Taped {
            messages: client_side.count(),
            differences,
        })
        .await
        .map_err(said)?;
    }
    ended
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

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

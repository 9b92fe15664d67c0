//! The processes of a run: real servers, real clients and the proxy's real binary, each talking in lines.
//! Law: a process lives as long as its handle; servers and clients end with their standard input, so none is left behind.
//! Nothing waits by the clock: what is awaited is a line, and the caller bounds the wait.
//! Next: `score.rs`.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

use crate::place::{self, lab};
use crate::signal::{self, Signal};

/// An SDK, as client or server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sdk {
    /// TypeScript 1.x
    Ts1,
    /// TypeScript 2.x
    Ts2,
    /// Python 1.x
    Py1,
    /// Python 2.x
    Py2,
}

impl Sdk {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Ts1, Self::Ts2, Self::Py1, Self::Py2];

    /// Its short name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ts1 => "ts 1.x",
            Self::Ts2 => "ts 2.x",
            Self::Py1 => "py 1.x",
            Self::Py2 => "py 2.x",
        }
    }

    /// How its client takes the end of a standalone stream (read in its source, and observed).
    pub(crate) const fn patience(self) -> Patience {
        match self {
            Self::Ts1 | Self::Ts2 => Patience::Endless,
            Self::Py1 | Self::Py2 => Patience::OneFault,
        }
    }

    /// How the conformance suite starts its client; the suite adds the URL.
    pub(crate) fn conformance(self) -> std::process::Command {
        let mut command = self.command("conformance");
        match self {
            Self::Ts1 => command.arg("1"),
            Self::Ts2 => command.arg("2"),
            Self::Py1 | Self::Py2 => &mut command,
        };
        command.into_std()
    }

    fn command(self, role: &str) -> Command {
        let lab = lab();
        let script = |ending: &str| sources().join(format!("{role}.{ending}"));
        match self {
            Self::Ts1 | Self::Ts2 => {
                let mut command = node();
                command.arg(script("mjs"));
                command
            }
            Self::Py1 => python(&lab.join("py1/bin/python"), &script("py")),
            Self::Py2 => python(&lab.join("py2/bin/python"), &script("py")),
        }
    }
}

fn node() -> Command {
    Command::from(place::node())
}

fn python(interpreter: &Path, script: &Path) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(script);
    command
}

/// How a client takes the end of its standalone stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// It comes back whatever happens.
    Endless,
    /// After two broken connections with no orderly end between them it gives the stream up, silently.
    OneFault,
}

/// A server of the lab.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serves {
    /// Our two tools on an SDK.
    Sdk(Sdk, Keeps),
    /// Everything that the conformance suite and the matrix ask for, on an SDK.
    Fixture(Sdk, Keeps, Speaks),
    /// `@modelcontextprotocol/server-everything`, as published.
    Everything,
}

/// Which revision a server speaks with its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speaks {
    /// The newest that both know.
    Newest,
    /// This one, whatever newer one the client offers (TypeScript only).
    Only(&'static str),
}

/// How much the proxy may hold of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Window {
    /// As configured by default.
    Default,
    /// Less than a client misses.
    TooSmall,
}

impl Window {
    /// The settings that make it so.
    pub(crate) const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::TooSmall => &["upstream.stream.replay_events_max=8"],
        }
    }
}

/// What a server keeps between two requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeps {
    /// Sessions.
    Sessions,
    /// Sessions, and an event store in memory.
    Events,
    /// Nothing: it gives no session ids.
    Nothing,
}

impl Serves {
    /// Its name in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Sdk(sdk, Keeps::Sessions) => sdk.name().to_owned(),
            Self::Sdk(sdk, Keeps::Events) => format!("{} store", sdk.name()),
            Self::Sdk(sdk, Keeps::Nothing) => format!("{} stateless", sdk.name()),
            Self::Fixture(sdk, keeps, Speaks::Newest) => Self::Sdk(sdk, keeps).name(),
            Self::Fixture(sdk, keeps, Speaks::Only(revision)) => {
                format!("{} {revision}", Self::Sdk(sdk, keeps).name())
            }
            Self::Everything => "everything".to_owned(),
        }
    }

    /// Whether a server of this kind speaks the transport at all.
    pub(crate) const fn speaks(self, over: Over) -> bool {
        match (self, over) {
            (Self::Sdk(Sdk::Ts2, _), Over::Sse | Over::SseWithCursor) => false,
            (Self::Sdk(..) | Self::Fixture(..) | Self::Everything, _) => true,
        }
    }

    pub(crate) fn command(self) -> Command {
        self.command_over(Over::Streamable)
    }

    fn command_over(self, over: Over) -> Command {
        match self {
            Self::Sdk(sdk, keeps) => {
                let mut command = sdk.command("server");
                match sdk {
                    Sdk::Ts1 => command.args(["--sdk", "1"]),
                    Sdk::Ts2 => command.args(["--sdk", "2"]),
                    Sdk::Py1 | Sdk::Py2 => &mut command,
                };
                match keeps {
                    Keeps::Sessions => &mut command,
                    Keeps::Events => command.args(["--store", "memory"]),
                    Keeps::Nothing => command.arg("--stateless"),
                };
                match over {
                    Over::Streamable => {}
                    Over::Sse | Over::SseWithCursor => {
                        command.arg("--sse");
                    }
                }
                command
            }
            Self::Fixture(sdk, keeps, speaks) => {
                let mut command = Self::Sdk(sdk, keeps).command();
                command.arg("--fixture");
                match speaks {
                    Speaks::Newest => &mut command,
                    Speaks::Only(revision) => command.args(["--protocol", revision]),
                };
                command
            }
            Self::Everything => {
                let mut command = node();
                command.arg("-r").arg(sources().join("everything.cjs"));
                command.arg(lab().join("node_modules/@modelcontextprotocol/server-everything/dist/index.js"));
                command.arg(match over {
                    Over::Streamable => "streamableHttp",
                    Over::Sse | Over::SseWithCursor => "sse",
                });
                command
            }
        }
    }
}

pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab")
}

/// Which transport a client and a server speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05, with the SDK's client as it is: none of them presents a cursor when it comes back.
    Sse,
    /// The same with TypeScript's client as its authors could use it: a `fetch` of ours adds the cursor that it drops.
    SseWithCursor,
}

impl Over {
    const fn path(self) -> &'static str {
        match self {
            Self::Streamable => "/mcp",
            Self::Sse | Self::SseWithCursor => "/sse",
        }
    }
}

/// A process that says JSON objects, one a line.
pub(crate) struct Process {
    name: String,
    /// Ends the process when it is dropped.
    child: Child,
    stdin: ChildStdin,
    said: mpsc::UnboundedReceiver<Value>,
}

impl Process {
    pub(crate) fn start(name: String, mut command: Command) -> Result<Self, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| format!("{name} did not start: {error}"))?;
        let stdin = child.stdin.take().expect("it is piped");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (sender, said) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // Servers as published also print lines for people; those are no objects.
                if let Ok(Value::Object(object)) = serde_json::from_str(&line) {
                    let _gone = sender.send(Value::Object(object));
                }
            }
        });
        Ok(Self {
            name,
            child,
            stdin,
            said,
        })
    }

    /// The process itself, to signal it and to wait for its end.
    pub(crate) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The next thing it says; `None` when it has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        self.said.recv().await
    }

    /// Everything that it has said and nobody has read yet.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.said.try_recv().ok()).collect()
    }

    /// Waits for something of this kind.
    pub(crate) async fn expect(&mut self, ev: &str) -> Result<Value, String> {
        while let Some(value) = self.next().await {
            if value["ev"] == ev {
                return Ok(value);
            }
            if value["ev"] == "fatal" {
                return Err(format!("{} failed: {}", self.name, value["text"]));
            }
        }
        Err(format!("{} ended before it said {ev:?}", self.name))
    }

    /// Tells it something.
    pub(crate) async fn tell(&mut self, order: &Value) -> Result<(), String> {
        let line = format!("{order}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .map_err(|error| format!("{}: {error}", self.name))
    }

    /// Tells a client to call a tool.
    pub(crate) async fn call(&mut self, tag: &str, tool: &str, arguments: Value) -> Result<(), String> {
        self.tell(&json!({ "do": "call", "tag": tag, "tool": tool, "arguments": arguments }))
            .await
    }
}

/// Starts a server; where it listens, and the process.
pub(crate) async fn serve(what: Serves) -> Result<(SocketAddr, Process), String> {
    serve_over(what, Over::Streamable).await
}

/// The same, of this transport.
pub(crate) async fn serve_over(what: Serves, over: Over) -> Result<(SocketAddr, Process), String> {
    listening(&what.name(), what.command_over(over)).await
}

/// Starts a server that says where it listens.
pub(crate) async fn listening(name: &str, command: Command) -> Result<(SocketAddr, Process), String> {
    let mut process = Process::start(format!("server {name}"), command)?;
    let said = process.expect("listening").await?;
    let port = said["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .ok_or("a server without a port")?;
    Ok((SocketAddr::from((Ipv4Addr::LOCALHOST, port)), process))
}

/// Starts a client and waits until it has initialized.
pub(crate) async fn connect(sdk: Sdk, to: SocketAddr) -> Result<Process, String> {
    connect_over(sdk, Over::Streamable, to).await
}

/// The same, over this transport.
pub(crate) async fn connect_over(sdk: Sdk, over: Over, to: SocketAddr) -> Result<Process, String> {
    let mut command = sdk.command("client");
    match sdk {
        Sdk::Ts1 => command.arg("1"),
        Sdk::Ts2 => command.arg("2"),
        Sdk::Py1 | Sdk::Py2 => &mut command,
    };
    command.arg(format!("http://{to}{}", over.path()));
    match over {
        Over::Streamable => {}
        Over::Sse => {
            command.arg("sse");
        }
        Over::SseWithCursor => {
            command.arg("sse-with-cursor");
        }
    }
    let mut process = Process::start(format!("client {}", sdk.name()), command)?;
    process.expect("ready").await?;
    Ok(process)
}

/// The proxy's real binary.
pub(crate) struct Proxy {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    child: Child,
    panics: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts it in front of `replicas`, with settings as `--set` takes them.
    pub(crate) async fn start(replicas: &[SocketAddr], settings: &[&str]) -> Result<Self, String> {
        Self::start_over(Over::Streamable, replicas, settings).await
    }

    /// The same, in front of servers of this transport: nothing but their URL says which it is.
    pub(crate) async fn start_over(
        over: Over,
        replicas: &[SocketAddr],
        settings: &[&str],
    ) -> Result<Self, String> {
        let urls: Vec<String> = replicas
            .iter()
            .map(|replica| format!("http://{replica}{}", over.path()))
            .collect();
        Self::start_at(&urls, settings).await
    }

    /// The same with the replicas' whole URLs.
    pub(crate) async fn start_at(urls: &[String], settings: &[&str]) -> Result<Self, String> {
        Self::begin(Self::command(urls, settings)).await
    }

    /// What it is started with: at a free port of loopback, in front of these URLs, with these settings.
    pub(crate) fn command(urls: &[String], settings: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(["run", "--listen", "127.0.0.1:0", "--admin", "off"]);
        for url in urls {
            command.arg("--upstream").arg(url);
        }
        for setting in settings {
            command.arg("--set").arg(setting);
        }
        command.env("THROUGHLINE_SECRET", "interop tests only, at least 32 bytes");
        command
    }

    /// Starts it so, and waits until it listens.
    pub(crate) async fn begin(mut command: Command) -> Result<Self, String> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .map_err(|error| format!("the proxy did not start: {error}"))?;
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut said = String::new();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(address) = address_in(&line) {
                let panics = Arc::new(AtomicUsize::new(0));
                let count = Arc::clone(&panics);
                tokio::spawn(async move {
                    let mut log = log();
                    while let Ok(Some(line)) = lines.next_line().await {
                        count.fetch_add(usize::from(line.contains("panicked")), Ordering::Relaxed);
                        if let Some(log) = &mut log {
                            let _full = writeln!(log, "{line}");
                        }
                    }
                });
                return Ok(Self {
                    address,
                    child,
                    panics,
                });
            }
            said.push_str(&line);
            said.push('\n');
        }
        Err(format!("the proxy ended before it listened:\n{said}"))
    }

    /// The process itself, to signal it and to wait for its end.
    pub(crate) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How many panics are in its log.
    pub(crate) fn panics(&self) -> usize {
        self.panics.load(Ordering::Relaxed)
    }

    /// Asks it to drain (SIGTERM) and waits for its exit code.
    pub(crate) async fn drain(mut self) -> Result<usize, String> {
        signal::tell(self.child.id(), Signal::Term).await?;
        let status = self.child.wait().await.map_err(|error| error.to_string())?;
        let code = status
            .code()
            .ok_or_else(|| format!("the proxy was killed: {status}"))?;
        usize::try_from(code).map_err(|error| error.to_string())
    }
}

/// This build's binary, or the one in `$THROUGHLINE_BINARY`.
fn binary() -> PathBuf {
    match std::env::var_os("THROUGHLINE_BINARY") {
        Some(path) => path.into(),
        None => env!("CARGO_BIN_EXE_throughline").into(),
    }
}

/// Where the proxy's log goes, if anybody wants to read it: the file in `$THROUGHLINE_LOG`.
fn log() -> Option<File> {
    let path = std::env::var_os("THROUGHLINE_LOG")?;
    File::options().create(true).append(true).open(path).ok()
}

/// The address in a log line that says `listening`, for people or as JSON.
fn address_in(line: &str) -> Option<SocketAddr> {
    if !line.contains("listening") {
        return None;
    }
    let value = line
        .split_once("address")?
        .1
        .trim_start_matches(['"', ':', '=', ' ']);
    value.split(['"', ' ', ',', '}']).next()?.parse().ok()
}

//! One replica: a real server in a process of its own, at an address that outlives it, and its ledger of what it ran.
//! Law: a process is ended by its id only, and reaped; what it had said until then is kept.
//! Next: `rust_server.rs`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::lab::{Keeps, Process, Sdk, Serves};
use crate::place;
use crate::port::Held;
use crate::signal::{self, Signal};

/// The servers, each in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// On an official SDK, or `@modelcontextprotocol/server-everything`.
    Lab(Serves),
    /// On fastmcp.
    Fast(Keeps),
    /// On the Rust SDK.
    Rust,
}

impl Kind {
    /// All of them; those that differ most come first, so that few runs try much.
    pub(crate) const ALL: [Self; 11] = [
        Self::Lab(Serves::Sdk(Sdk::Py1, Keeps::Sessions)),
        Self::Lab(Serves::Sdk(Sdk::Ts2, Keeps::Events)),
        Self::Rust,
        Self::Lab(Serves::Everything),
        Self::Fast(Keeps::Events),
        Self::Lab(Serves::Sdk(Sdk::Py2, Keeps::Events)),
        Self::Lab(Serves::Sdk(Sdk::Ts1, Keeps::Events)),
        Self::Lab(Serves::Sdk(Sdk::Py1, Keeps::Events)),
        Self::Lab(Serves::Sdk(Sdk::Ts1, Keeps::Sessions)),
        Self::Fast(Keeps::Sessions),
        Self::Lab(Serves::Sdk(Sdk::Py2, Keeps::Sessions)),
    ];

    /// Its name in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Lab(serves) => serves.name(),
            Self::Fast(Keeps::Sessions) => "fastmcp".to_owned(),
            Self::Fast(Keeps::Events) => "fastmcp store".to_owned(),
            Self::Fast(Keeps::Nothing) => "fastmcp stateless".to_owned(),
            Self::Rust => "rust".to_owned(),
        }
    }

    /// Whether it is installed.
    pub(crate) fn is_here(self) -> bool {
        match self {
            Self::Lab(_) | Self::Rust => true,
            Self::Fast(_) => place::lab().join("fm/bin/python").exists(),
        }
    }

    /// What it has beside tool calls.
    pub(crate) const fn offers(self) -> Offers {
        match self {
            Self::Lab(Serves::Everything) => Offers::Calls,
            Self::Lab(Serves::Sdk(..) | Serves::Fixture(..)) | Self::Fast(_) | Self::Rust => {
                Offers::CallsAndNotes
            }
        }
    }

    fn command(self, port: u16) -> Command {
        let mut command = match self {
            Self::Lab(serves) => serves.command(),
            Self::Fast(keeps) => {
                let mut command = Command::new(place::lab().join("fm/bin/python"));
                command.arg(crate::lab::sources().join("server.py"));
                match keeps {
                    Keeps::Sessions => &mut command,
                    Keeps::Events => command.args(["--store", "memory"]),
                    Keeps::Nothing => command.arg("--stateless"),
                };
                command
            }
            Self::Rust => {
                let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
                command.arg("--serve");
                command
            }
        };
        match self {
            Self::Lab(Serves::Everything) => command.env("LAB_PORT", port.to_string()),
            Self::Lab(Serves::Sdk(..) | Serves::Fixture(..)) | Self::Fast(_) | Self::Rust => {
                command.args(["--port", &port.to_string()])
            }
        };
        command
    }
}

/// What a server can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Offers {
    /// Numbered progress on calls.
    Calls,
    /// The same, and numbered notifications on the standalone stream.
    CallsAndNotes,
}

/// How often each tagged call was begun, over all replicas and lives.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<HashMap<String, usize>>>);

impl Ledger {
    /// How often this call was begun.
    pub(crate) fn begun(&self, tag: &str) -> usize {
        let begun = self.0.lock().expect("nobody panics while holding it");
        begun.get(tag).copied().unwrap_or(0)
    }

    /// Every call that was begun, and how often.
    pub(crate) fn all(&self) -> HashMap<String, usize> {
        self.0.lock().expect("nobody panics while holding it").clone()
    }

    /// It was begun once more.
    pub(crate) fn write(&self, tag: &str) {
        *self
            .0
            .lock()
            .expect("nobody panics while holding it")
            .entry(tag.to_owned())
            .or_default() += 1;
    }
}

/// A replica.
pub(crate) struct Replica {
    kind: Kind,
    /// Where it listens, in each of its lives.
    pub(crate) address: SocketAddr,
    _port: Held,
    ledger: Ledger,
    process: Option<Process>,
}

/// How long a server may take to start on a busy machine.
const START_MAX: Duration = Duration::from_secs(40);
/// What a server gets to end by itself, as orchestrators grant it.
const GRACE: Duration = Duration::from_secs(3);

impl Replica {
    /// A replica that runs.
    pub(crate) async fn start(kind: Kind, ledger: Ledger) -> Result<Self, String> {
        let port = Held::any().map_err(|error| error.to_string())?;
        let mut replica = Self {
            kind,
            address: port.address(),
            _port: port,
            ledger,
            process: None,
        };
        replica.again().await?;
        Ok(replica)
    }

    /// Starts it anew, at the same address.
    pub(crate) async fn again(&mut self) -> Result<(), String> {
        let command = self.kind.command(self.address.port());
        let mut process = Process::start(format!("server {}", self.kind.name()), command)?;
        match timeout(START_MAX, process.expect("listening")).await {
            Ok(said) => said?,
            Err(_) => return Err(format!("{} did not start in time", self.kind.name())),
        };
        self.process = Some(process);
        Ok(())
    }

    /// Tells its process something.
    pub(crate) async fn tell(&mut self, signal: Signal) -> Result<(), String> {
        let pid = self.process.as_mut().and_then(|process| process.child().id());
        signal::tell(pid, signal).await
    }

    /// Ends its process, by this signal first.
    pub(crate) async fn end(&mut self, signal: Signal) -> Result<(), String> {
        self.tell(signal).await?;
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        if timeout(GRACE, process.child().wait()).await.is_err() {
            process.child().start_kill().map_err(|error| error.to_string())?;
            process.child().wait().await.map_err(|error| error.to_string())?;
        }
        // Its last words are in the pipe until its end is read.
        while let Ok(Some(said)) = timeout(GRACE, process.next()).await {
            self.note(&said);
        }
        Ok(())
    }

    /// Writes down what it has said.
    pub(crate) fn read(&mut self) {
        let said = self.process.as_mut().map(Process::rest).unwrap_or_default();
        for said in &said {
            self.note(said);
        }
    }

    /// Waits for the next thing that it says, and writes it down. The caller bounds its time.
    pub(crate) async fn listen(&mut self) {
        if let Some(process) = &mut self.process
            && let Some(said) = process.next().await
        {
            self.note(&said);
        }
    }

    fn note(&self, said: &serde_json::Value) {
        if let ("began", Some(tag)) = (said["ev"].as_str().unwrap_or(""), said["tag"].as_str()) {
            self.ledger.write(tag);
        }
    }
}

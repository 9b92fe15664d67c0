//! The proxy's process in a round: started as its fault wants it, told something, ended, and replaced by another one.
//! Law: every one has the same secret, so that sessions outlive it as far as tokens carry them; each is reaped.
//! Absent on purpose: its address. It is another one with each process, and relays know the way.
//! Next: `round.rs`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::fault::Fault;
use crate::lab;
use crate::pace::pass;
use crate::port::Held;
use crate::signal::{self, Signal};

/// Settings of every round: times short enough that a round sees them pass.
const SETTINGS: [&str; 7] = [
    "upstream.exchange.replica_retry_max=4s",
    "upstream.exchange.connect_timeout=2s",
    "upstream.stream.keepalive=2s",
    "upstream.stream.stall_max=4s",
    "upstream.health.interval=1s",
    "upstream.health.timeout=1s",
    "server.drain_max=4s",
];

/// Open files of a proxy that is to run out of them.
const FILES_MAX: usize = 160;

/// How long a proxy may take to start, or to end.
const STEP_MAX: Duration = Duration::from_secs(40);

/// One process.
enum Running {
    /// Its log is read.
    Logged(lab::Proxy),
    /// Its log goes nowhere.
    Mute(Held, Child),
}

impl Running {
    const fn address(&self) -> SocketAddr {
        match self {
            Self::Logged(proxy) => proxy.address,
            Self::Mute(port, _) => port.address(),
        }
    }

    const fn child(&mut self) -> &mut Child {
        match self {
            Self::Logged(proxy) => proxy.child(),
            Self::Mute(_, child) => child,
        }
    }
}

/// The proxy of a round.
pub(crate) struct Proxy {
    fault: Fault,
    urls: Vec<String>,
    dir: PathBuf,
    running: Running,
    /// Panics in logs of processes that have ended.
    panics: usize,
}

impl Proxy {
    /// Starts the first one, in front of these servers.
    pub(crate) async fn start(fault: Fault, replicas: &[SocketAddr], name: &str) -> Result<Self, String> {
        let urls: Vec<String> = replicas.iter().map(|at| format!("http://{at}/mcp")).collect();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        write_config(&dir, &urls, 0)?;
        set_clock(&dir, 0)?;
        let running = begin(fault, &urls, &dir).await?;
        Ok(Self {
            fault,
            urls,
            dir,
            running,
            panics: 0,
        })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Panics that stand in its logs.
    pub(crate) fn panics(&self) -> usize {
        match &self.running {
            Running::Logged(proxy) => self.panics + proxy.panics(),
            Running::Mute(..) => self.panics,
        }
    }

    /// Tells its process something.
    pub(crate) async fn tell(&mut self, signal: Signal) -> Result<(), String> {
        signal::tell(self.running.child().id(), signal).await
    }

    /// Waits until its process has ended.
    async fn ended(&mut self) -> Result<ExitStatus, String> {
        let status = timeout(STEP_MAX, self.running.child().wait()).await;
        let status = status.map_err(|_| "the proxy does not end")?;
        status.map_err(|error| error.to_string())
    }

    /// Kills it, and starts another one when this long has passed.
    pub(crate) async fn kill(&mut self, meanwhile: Duration) -> Result<(), String> {
        self.tell(Signal::Kill).await?;
        self.ended().await?;
        pass(meanwhile).await;
        self.panics = self.panics();
        self.running = begin(self.fault, &self.urls, &self.dir).await?;
        Ok(())
    }

    /// Starts another one; the one before is handed back, to be drained.
    pub(crate) async fn succeed(&mut self) -> Result<Self, String> {
        let next = begin(self.fault, &self.urls, &self.dir).await?;
        Ok(Self {
            fault: self.fault,
            urls: self.urls.clone(),
            dir: self.dir.clone(),
            running: std::mem::replace(&mut self.running, next),
            panics: 0,
        })
    }

    /// Drains it (SIGTERM); what it ended with.
    pub(crate) async fn drain(&mut self) -> Result<ExitStatus, String> {
        self.tell(Signal::Term).await?;
        self.ended().await
    }

    /// Changes the configuration, and has it read again.
    pub(crate) async fn reload(&mut self, nth: u64) -> Result<(), String> {
        write_config(&self.dir, &self.urls, nth)?;
        self.tell(Signal::Hangup).await
    }

    /// The day's clock of the proxy is so many seconds ahead.
    pub(crate) fn jump(&self, seconds: i64) -> Result<(), String> {
        set_clock(&self.dir, seconds)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _another_one_may_have_done_so = fs::remove_dir_all(&self.dir);
    }
}

/// What every second reading changes, so that the others change nothing; each third file is wrong, and must be refused.
fn write_config(dir: &Path, urls: &[String], nth: u64) -> Result<(), String> {
    let replicas: Vec<String> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let (retry, events) = (1 + nth / 2 % 2, 1024 - 256 * (nth / 2 % 3));
    let wrong = match nth % 3 {
        2 => "nonsense = true\n",
        0.. => "",
    };
    let text = format!(
        "[[upstream]]\nname = \"mcp\"\nreplicas = [{}]\n{wrong}[upstream.stream]\nretry = \"{retry}s\"\nreplay_events_max = {events}\n",
        replicas.join(", ")
    );
    // In one step, as editors do it: a file that is half written is wrong.
    let (fresh, file) = (dir.join("fresh.toml"), dir.join("throughline.toml"));
    fs::write(&fresh, text).map_err(|error| error.to_string())?;
    fs::rename(&fresh, &file).map_err(|error| error.to_string())
}

fn set_clock(dir: &Path, seconds: i64) -> Result<(), String> {
    let (fresh, file) = (dir.join("fresh.clock"), dir.join("clock"));
    fs::write(&fresh, format!("{seconds:+}\n")).map_err(|error| error.to_string())?;
    fs::rename(&fresh, &file).map_err(|error| error.to_string())
}

async fn begin(fault: Fault, urls: &[String], dir: &Path) -> Result<Running, String> {
    let settings: Vec<&str> = SETTINGS.iter().chain(fault.settings()).copied().collect();
    let mut command = match fault {
        Fault::Reload => {
            let mut command = lab::Proxy::command(&[], &settings);
            command.arg("--config").arg(dir.join("throughline.toml"));
            command
        }
        Fault::Way(..)
        | Fault::Clients(_)
        | Fault::Servers(_)
        | Fault::Proxy(_)
        | Fault::Descriptors
        | Fault::Memory
        | Fault::Window
        | Fault::Clock
        | Fault::FullDisk => lab::Proxy::command(urls, &settings),
    };
    command.envs(fault.clock(&dir.join("clock")));
    match fault {
        Fault::Descriptors => {
            let limited = in_shell(&format!("ulimit -n {FILES_MAX}; exec \"$0\" \"$@\""), command);
            lab::Proxy::begin(limited).await.map(Running::Logged)
        }
        Fault::FullDisk => mute(command).await,
        Fault::Way(..)
        | Fault::Clients(_)
        | Fault::Servers(_)
        | Fault::Proxy(_)
        | Fault::Reload
        | Fault::Memory
        | Fault::Window
        | Fault::Clock => lab::Proxy::begin(command).await.map(Running::Logged),
    }
}

/// The same command, by way of a shell that prepares its place.
fn in_shell(words: &str, command: Command) -> Command {
    let command = command.as_std();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", words])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            shell.env(name, value);
        }
    }
    shell
}

/// Its log goes to a disk that is full; that it listens is seen by a connection.
async fn mute(mut command: Command) -> Result<Running, String> {
    let port = Held::any().map_err(|error| error.to_string())?;
    let address = port.address();
    command.args([
        "--set",
        &format!("server.listen={address}"),
        "--set",
        "log.filter=trace",
    ]);
    let full = fs::File::options().write(true).open("/dev/full");
    let full = full.map_err(|error| error.to_string())?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full);
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let listens = async {
        while TcpStream::connect(address).await.is_err() {
            pass(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        biased;
        status = child.wait() => Err(format!("the proxy ended before it listened: {status:?}")),
        listens = timeout(STEP_MAX, listens) => match listens {
            Ok(()) => Ok(Running::Mute(port, child)),
            Err(_) => Err("the proxy does not listen".to_owned()),
        },
    }
}

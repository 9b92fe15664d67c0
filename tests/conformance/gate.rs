//! Turns for the clients that the suite starts: it starts those of all its scenarios at the same moment, which on a small
//! machine takes minutes of each of them, and makes some give up.
//! Law: a turn is a connection; it ends with the process that holds it. What that says on it is what its tapes have kept.
//! Next: `suite.rs`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// Clients at work at the same time, of all runs together: on two cores they are never idle, and none waits long.
const CLIENTS_AT_ONCE: usize = 4;

static TURNS: Semaphore = Semaphore::const_new(CLIENTS_AT_ONCE);

/// What the tapes on both sides of the proxy have kept of one client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taped {
    /// Messages that were compared.
    pub(crate) messages: usize,
    /// What was not the same.
    pub(crate) differences: Vec<String>,
}

impl Taped {
    fn read(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_default();
        let differences = value["differences"].as_array().into_iter().flatten();
        Self {
            messages: value["messages"]
                .as_u64()
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or_default(),
            differences: differences.filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    fn line(&self) -> String {
        format!(
            "{}\n",
            json!({ "messages": self.messages, "differences": self.differences })
        )
    }
}

/// Where the clients of one run wait for their turns. It ends when it is dropped.
pub(crate) struct Gate {
    path: PathBuf,
    taped: Arc<Mutex<Vec<Taped>>>,
    task: JoinHandle<()>,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
        let _gone = std::fs::remove_file(&self.path);
    }
}

impl Gate {
    /// Opens one.
    pub(crate) fn open() -> std::io::Result<Self> {
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let name = format!("throughline-gate-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _of_another_time = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let taped = Arc::<Mutex<Vec<Taped>>>::default();
        let kept = Arc::clone(&taped);
        let task = tokio::spawn(async move {
            let mut waiting = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                waiting.spawn(give_turn(client, Arc::clone(&kept)));
            }
        });
        Ok(Self { path, taped, task })
    }

    /// Where to connect.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was taped until now.
    pub(crate) fn taped(&self) -> Vec<Taped> {
        self.taped.lock().expect("nobody panics while holding it").clone()
    }
}

async fn give_turn(mut client: UnixStream, taped: Arc<Mutex<Vec<Taped>>>) {
    let _turn = TURNS.acquire().await.expect("the turns are never closed");
    if client.write_all(b"!").await.is_err() {
        return;
    }
    let mut lines = BufReader::new(client).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let mut taped = taped.lock().expect("nobody panics while holding it");
        taped.push(Taped::read(&line));
    }
}

/// A turn, for as long as this lives.
pub(crate) struct Turn(UnixStream);

impl Turn {
    /// Waits for one at this gate.
    pub(crate) async fn take(gate: &Path) -> std::io::Result<Self> {
        let mut stream = UnixStream::connect(gate).await?;
        stream.read_u8().await?;
        Ok(Self(stream))
    }

    /// Says what was taped, and gives the turn back.
    pub(crate) async fn tell(mut self, taped: &Taped) -> std::io::Result<()> {
        self.0.write_all(taped.line().as_bytes()).await?;
        self.0.shutdown().await
    }
}

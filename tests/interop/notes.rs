//! Numbered notifications on the standalone stream, at 50 a second, while the stream is cut again and again.
//! Law: through the proxy each comes once and in order; where the window is too small, every gap is announced before what follows it.
//! Where the stream is cut follows from the cut's number: live, in the middle of a replay, in the middle of an event.
//! Next: `thief.rs`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::lab::{self, Patience, Process, Proxy, Sdk, Serves, Window};
use crate::relay::{Exchange, How, Kind, Plan, Point, Relay, Spread};
use crate::score::{Path, Row, Seen};

/// Time between two notifications, in milliseconds.
const INTERVAL_MS: u64 = 20;
/// Notifications of one run for each cut: more than a client misses while it waits for its second.
const EACH_CUT: usize = 75;
/// Cuts of one session.
const CUTS: usize = 20;

/// What differs between runs.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// The client.
    pub(crate) client: Sdk,
    /// The server.
    pub(crate) server: Serves,
    /// The way between them.
    pub(crate) path: Path,
    /// The window.
    pub(crate) window: Window,
    /// How often the stream is cut.
    pub(crate) cuts: usize,
}

impl Case {
    /// The full number of cuts through the proxy.
    pub(crate) fn proxied(client: Sdk, server: Serves, window: Window) -> Self {
        Self {
            client,
            server,
            path: Path::Proxied,
            window,
            cuts: CUTS,
        }
    }

    /// One cut without the proxy, to show that it hurts.
    pub(crate) fn direct(client: Sdk, server: Serves) -> Self {
        Self {
            client,
            server,
            path: Path::Direct,
            window: Window::Default,
            cuts: 1,
        }
    }

    fn notes(self) -> u64 {
        (EACH_CUT * (self.cuts + 1)) as u64
    }

    /// All notes at their pace, and a minute for what comes late.
    fn deadline(self) -> Duration {
        let pace = Duration::from_millis(INTERVAL_MS * self.notes());
        match self.path {
            Path::Direct => pace + Duration::from_secs(4),
            Path::Proxied => pace + Duration::from_secs(60),
        }
    }
}

/// Cuts the standalone stream so often, each time elsewhere and otherwise.
fn cut_the_stream(case: Case, heard: watch::Receiver<u64>) -> impl FnMut(&Exchange) -> Plan + Send {
    let mut nth = 0;
    move |exchange| {
        if !matches!(exchange.kind, Kind::Listen | Kind::Resume) || nth == case.cuts {
            return Plan::Pass;
        }
        nth += 1;
        let live = match case.window {
            Window::Default => 60,
            Window::TooSmall => 12,
        };
        let events = if nth.is_multiple_of(3) { 5 } else { live + nth };
        let (how, bytes) = match (case.client.patience(), nth % 4) {
            (Patience::OneFault, 0 | 2) => (How::End, 0),
            (_, 0) => (How::Close, 25),
            (_, 1) => (How::Lose(4), 0),
            (_, _) => (How::Reset, if nth.is_multiple_of(2) { 25 } else { 0 }),
        };
        // On each connection the client must have heard something new before it is cut.
        let (mut heard, before) = (heard.clone(), *heard.borrow());
        let proof = async move {
            let _client_gone = heard.wait_for(|last| *last > before).await;
        };
        Plan::Cut(Point { events, bytes }, how, Box::pin(proof))
    }
}

/// Runs one case.
pub(crate) async fn run(case: Case) -> Row {
    let began = Instant::now();
    let what = match case.window {
        Window::Default => "stream cut",
        Window::TooSmall => "window too small",
    };
    let mut row = Row::new(what, case.client.name(), case.server.name(), case.path);
    if let Err(fault) = measure(case, &mut row).await {
        row.faults.push(fault);
    }
    row.seconds = began.elapsed().as_secs_f64();
    row
}

async fn measure(case: Case, row: &mut Row) -> Result<(), String> {
    let (server, _process) = lab::serve(case.server).await?;
    let proxy = match case.path {
        Path::Direct => None,
        Path::Proxied => Some(Proxy::start(&[server], case.window.settings()).await?),
    };
    session(case, proxy.as_ref().map_or(server, |proxy| proxy.address), row).await?;
    match (case.path, case.window) {
        (Path::Direct, _) => {
            if row.lost == 0 {
                row.faults
                    .push("the cut did not hurt: this run proves nothing".to_owned());
            }
        }
        (Path::Proxied, Window::Default) => {
            row.demand_whole();
            row.demand("gaps", row.gaps_said + row.gaps_silent, 0);
        }
        (Path::Proxied, Window::TooSmall) => {
            row.demand("silent gaps", row.gaps_silent, 0);
            row.demand("repeated", row.repeated, 0);
            row.demand("out of order", row.disordered, 0);
            if row.gaps_said == 0 {
                row.faults
                    .push("the window was not too small: this run proves nothing".to_owned());
            }
        }
    }
    row.demand("cuts", row.cuts, case.cuts);
    if let Some(proxy) = proxy {
        row.demand("exit code", proxy.drain().await?, 0);
    }
    Ok(())
}

/// One session: a client, its stream cut as often as the case says, and what it heard.
async fn session(case: Case, target: SocketAddr, row: &mut Row) -> Result<(), String> {
    let (told, heard) = watch::channel(0);
    let relay = Relay::start(vec![target], Spread::Connections, cut_the_stream(case, heard)).await;
    let relay = relay.map_err(|error| error.to_string())?;
    let mut client = lab::connect(case.client, relay.address()).await?;
    let open = relay.until(|tally| tally.listening > 0);
    timeout(Duration::from_secs(20), open)
        .await
        .map_err(|_| "the client opened no stream")?;

    let mut heard = Heard::new(told);
    let n = case.notes();
    client
        .call(
            "emit",
            "emit",
            json!({ "tag": "n", "n": n, "interval_ms": INTERVAL_MS }),
        )
        .await?;
    let _late = timeout(case.deadline(), heard.listen(&mut client, n)).await;
    row.cuts += relay.tally().cuts;
    row.messages(&heard.notes, n);
    row.gaps_said += heard.gaps_said;
    row.gaps_silent += heard.gaps_silent;
    Ok(())
}

/// What a client heard on its stream.
struct Heard {
    notes: Seen,
    /// The highest so far; the relay watches it.
    last: watch::Sender<u64>,
    /// Whether a discontinuity was announced since the last note.
    announced: Option<String>,
    gaps_said: usize,
    gaps_silent: usize,
}

impl Heard {
    fn new(last: watch::Sender<u64>) -> Self {
        Self {
            notes: Seen::default(),
            last,
            announced: None,
            gaps_said: 0,
            gaps_silent: 0,
        }
    }

    /// Listens until the last note has come.
    async fn listen(&mut self, client: &mut Process, n: u64) {
        while *self.last.borrow() < n {
            let Some(said) = client.next().await else { return };
            if said["ev"] == "log" {
                self.hear(&said);
            }
        }
    }

    fn hear(&mut self, said: &Value) {
        if said["logger"] == "throughline" {
            self.announced = Some(said["data"].to_string());
            return;
        }
        let Some(seq) = said["data"]["seq"].as_u64() else {
            return;
        };
        self.notes.push(seq);
        let last = *self.last.borrow();
        if seq > last + 1 {
            match self.announced {
                Some(_) => self.gaps_said += 1,
                None => self.gaps_silent += 1,
            }
        }
        self.announced = None;
        self.last.send_replace(last.max(seq));
    }
}

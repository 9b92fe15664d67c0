//! What happens to the replicas while their clients work: paused, cut early, restarted in turn, killed, refused.
//! Law: a phase lasts until clients got on with their work so far, never so long; each must hurt, or it proves nothing.
//! The first replica is reached directly, the second through a relay that can end its streams early, as a balancer is.
//! Next: `judge.rs`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{self, Setting};
use crate::judge::{Account, Fault, Judged};
use crate::lab::{Proxy, Sdk};
use crate::relay::{Exchange, How, Kind as Asked, Plan, Point, Relay, Spread, at_once};
use crate::replica::{Kind, Ledger, Replica};
use crate::sdk;
use crate::signal::Signal;

/// How long clients may take to get on with their work in one phase; more is a stall.
const PHASE_MAX: Duration = Duration::from_secs(60);
/// How long the clients may take to end when the run does.
const END_MAX: Duration = Duration::from_secs(120);
/// Real SDK clients beside them: one that fails calls when it is lost, one that waits without end.
const SDKS: [Sdk; 2] = [Sdk::Ts2, Sdk::Py1];
/// Calls whose streams the second replica ends early.
const CUTS: usize = 24;

/// Settings of every run: a session's wait for its replica is shorter than the outage that is made here.
const SETTINGS: [&str; 1] = ["upstream.exchange.replica_retry_max=4s"];

/// One run, judged.
pub(crate) struct Run {
    /// Which servers.
    pub(crate) kind: Kind,
    /// What was counted and found.
    pub(crate) judged: Judged,
    /// What kept the run from proving anything.
    pub(crate) stalled: Vec<String>,
    /// How long it took.
    pub(crate) took: Duration,
}

/// How the runs are made.
pub(crate) struct Options {
    /// Sessions at a time.
    pub(crate) sessions: usize,
    /// Settings of the proxy beside those of the scenario.
    pub(crate) settings: Vec<String>,
}

/// Makes one run.
pub(crate) async fn run(kind: Kind, options: &Options) -> Run {
    let began = Instant::now();
    let account = Account::new();
    let ledger = Ledger::default();
    let mut stalled = Vec::new();
    if let Err(stall) = make(kind, options, &account, &ledger).await {
        stalled.push(stall);
    }
    Run {
        kind,
        judged: account.judge(&ledger),
        stalled,
        took: began.elapsed(),
    }
}

async fn make(kind: Kind, options: &Options, account: &Account, ledger: &Ledger) -> Result<(), String> {
    let (first, second) = tokio::try_join!(
        Replica::start(kind, ledger.clone()),
        Replica::start(kind, ledger.clone())
    )?;
    let mut replicas = [first, second];
    let early = Early::default();
    let relay = Relay::start(vec![replicas[1].address], Spread::Connections, early.plan()).await;
    let relay = relay.map_err(|error| error.to_string())?;
    let mut settings: Vec<&str> = SETTINGS.to_vec();
    settings.extend(options.settings.iter().map(String::as_str));
    let proxy = Proxy::start(&[replicas[0].address, relay.address()], &settings).await?;

    let (end, going) = watch::channel(true);
    let mut clients = spawn_clients(proxy.address, kind, options.sessions, account, going);
    let happened = Scenario {
        replicas: &mut replicas,
        account,
        relay: &relay,
        early: &early,
        sessions: options.sessions,
    };
    let happened = happened.play().await;
    end.send_replace(false);
    let all = async { while clients.join_next().await.is_some() {} };
    let ended = timeout(END_MAX, all).await;
    for replica in &mut replicas {
        replica.read();
    }
    let code = timeout(END_MAX, proxy.drain()).await;
    happened?;
    ended.map_err(|_| "clients did not end")?;
    match code.map_err(|_| "the proxy did not end")?? {
        0 => Ok(()),
        code => Err(format!("the proxy ended with {code}")),
    }
}

fn spawn_clients(
    at: SocketAddr,
    kind: Kind,
    sessions: usize,
    account: &Account,
    going: watch::Receiver<bool>,
) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for number in 0..sessions {
        let setting = Setting {
            at,
            offers: kind.offers(),
            account: account.clone(),
            going: going.clone(),
        };
        clients.spawn(client::run(number, setting));
    }
    for sdk in SDKS {
        let setting = Setting {
            at,
            offers: kind.offers(),
            account: account.clone(),
            going: going.clone(),
        };
        clients.spawn(sdk::run(sdk, setting));
    }
    clients
}

/// Streams that the way to the second replica ends early: each listener's, after some notes; calls', as many as are
/// left to be ended.
#[derive(Clone, Default)]
struct Early(Arc<AtomicUsize>);

impl Early {
    fn plan(&self) -> impl FnMut(&Exchange) -> Plan + Send + 'static {
        let left = Arc::clone(&self.0);
        move |exchange| {
            let events = match exchange.kind {
                Asked::Call if take_one(&left) => 1,
                Asked::Listen | Asked::Resume => 8 + exchange.nth % 16,
                Asked::Call | Asked::Other => return Plan::Pass,
            };
            let how = match exchange.nth % 3 {
                0 => How::End,
                1 => How::Close,
                _ => How::Reset,
            };
            Plan::Cut(Point { events, bytes: 0 }, how, at_once())
        }
    }
}

fn take_one(left: &AtomicUsize) -> bool {
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    taken.is_ok()
}

struct Scenario<'a> {
    replicas: &'a mut [Replica; 2],
    account: &'a Account,
    relay: &'a Relay,
    early: &'a Early,
    sessions: usize,
}

/// The words that say that a session was lost.
const LOSSES: [&str; 4] = ["gone", "gone on the stream", "gone on resume", "refused"];

impl Scenario<'_> {
    async fn play(mut self) -> Result<(), String> {
        self.work("the beginning", 1).await?;
        self.pause().await?;
        self.end_early().await?;
        for nth in 0..self.replicas.len() {
            self.restart(nth, Signal::Term, 0).await?;
        }
        self.restart(0, Signal::Kill, 0).await?;
        // Longer than a session waits for its replica: connections are refused, and then given up.
        self.restart(0, Signal::Term, 2).await
    }

    /// Waits until clients got so much on: results of each, on average.
    async fn work(&self, when: &str, each: usize) -> Result<(), String> {
        let enough = self.account.more_results(self.sessions * each);
        let waited = timeout(PHASE_MAX, enough).await;
        waited.map_err(|_| format!("clients did not get on: {when}"))
    }

    /// One replica stands still until the clients of the other got on, and goes on.
    async fn pause(&mut self) -> Result<(), String> {
        let before = self.account.counted(&LOSSES);
        self.replicas[0].tell(Signal::Stop).await?;
        let worked = self.work("one replica stands still", 1).await;
        self.replicas[0].tell(Signal::Cont).await?;
        worked?;
        self.work("the replica goes on", 2).await?;
        for _ in before..self.account.counted(&LOSSES) {
            self.account.found((Fault::LostByPause, "a session".to_owned()));
        }
        Ok(())
    }

    /// The second replica's streams end early for a while.
    async fn end_early(&mut self) -> Result<(), String> {
        self.early.0.store(CUTS, Ordering::Relaxed);
        let enough = self.relay.tally().cuts + CUTS / 2;
        let cut = self.relay.until(|tally| tally.cuts >= enough);
        let cut = timeout(PHASE_MAX, cut).await;
        self.early.0.store(0, Ordering::Relaxed);
        cut.map_err(|_| "too few streams were ended early")?;
        self.work("streams were ended early", 1).await
    }

    /// A replica ends, and comes back when its clients' fellows got so much on.
    async fn restart(&mut self, nth: usize, by: Signal, meanwhile: usize) -> Result<(), String> {
        self.replicas[nth].end(by).await?;
        self.work("a replica is down", meanwhile).await?;
        self.replicas[nth].again().await?;
        self.work("a replica came back", 1).await
    }
}

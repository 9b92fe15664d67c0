//! One round: two real servers of a kind, the proxy, relays on both sides, clients at work, one fault, and the judgement.
//! Law: a round lasts until its clients had so many events, and its fault hurts them all the while; what is lifted at the
//! end is the fault, and then everything that was begun must come to its end.
//! Next: `report.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::chance::Chance;
use crate::client;
use crate::fault::{Blow, Fault, Harm, Side};
use crate::lab::Sdk;
use crate::oracle::Oracle;
use crate::pace::pass;
use crate::plant::Plant;
use crate::proxy::Proxy;
use crate::relay::{Door, Relay};
use crate::replica::{Kind, Ledger, Replica};
use crate::sdk::{self, Fate};
use crate::signal::Signal;
use crate::street::{Load, Street};

/// How long clients may take to get on; more is a stall of the round, and fails it.
const STALL: Duration = Duration::from_secs(90);
/// How long clients may take to end once nothing is hurt any more.
const END_MAX: Duration = Duration::from_secs(240);
/// How long the last words of servers may take.
const WORDS_MAX: Duration = Duration::from_secs(10);
/// The fault strikes so often in a round at least, where it is one that strikes, and once more for so many events.
const STRIKES_MIN: u64 = 3;
const EVENTS_OF_A_STRIKE: u64 = 1_000;
/// Connections that hold the proxy's file descriptors.
const CROWD: usize = 400;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) nth: usize,
    pub(crate) fault: Fault,
    pub(crate) seed: u64,
    /// Events until it is over.
    pub(crate) events: u64,
    pub(crate) load: Load,
    /// A fault of the proxy's own that is played to clients, to see that the oracle sees it.
    pub(crate) plant: Plant,
}

/// What became of it.
pub(crate) struct Report {
    pub(crate) round: Round,
    pub(crate) kind: Kind,
    pub(crate) oracle: Arc<Oracle>,
    /// What kept the round from proving anything, or from ending.
    pub(crate) stalled: Vec<String>,
    pub(crate) took: Duration,
}

/// Servers of one kind, and the rounds that they are in, one after the other.
pub(crate) struct Lane {
    kind: Kind,
    ledger: Ledger,
    replicas: [Replica; 2],
}

impl Lane {
    /// Starts the servers.
    pub(crate) async fn open(kind: Kind) -> Result<Self, String> {
        let ledger = Ledger::default();
        let replicas = tokio::try_join!(
            Replica::start(kind, ledger.clone()),
            Replica::start(kind, ledger.clone())
        )?;
        Ok(Self {
            kind,
            ledger,
            replicas: replicas.into(),
        })
    }

    /// Makes a round.
    pub(crate) async fn make(&mut self, round: Round) -> Report {
        let began = Instant::now();
        let oracle = Arc::new(Oracle::new());
        let mut stalled = Vec::new();
        if let Err(stall) = self.play(round, &oracle, &mut stalled).await {
            stalled.push(stall);
        }
        if oracle.count("hurts") == 0 {
            stalled.push("nothing was hurt".to_owned());
        }
        Report {
            round,
            kind: self.kind,
            oracle,
            stalled,
            took: began.elapsed(),
        }
    }

    async fn play(
        &mut self,
        round: Round,
        oracle: &Arc<Oracle>,
        stalled: &mut Vec<String>,
    ) -> Result<(), String> {
        let chance = Chance::new(round.seed).fork(&round.fault.name());
        let name = format!("r{}", round.nth);
        let back = self.relays(&chance, oracle).await?;
        let behind = [back[0].address, back[1].address];
        let proxy = Proxy::start(round.fault, &behind, &name).await?;
        let at = |name| Relay::start(name, proxy.address(), (chance.fork(name), Arc::clone(oracle)));
        let front = at("relay of clients").await.map_err(|error| error.to_string())?;
        let side = at("sound relay").await.map_err(|error| error.to_string())?;
        let (end, going) = watch::channel(true);
        let street = Street {
            at: front.address,
            oracle: Arc::clone(oracle),
            chance: chance.fork("clients"),
            load: round.load,
            plant: round.plant,
            again: round.fault.again(),
            verdicts: round.fault.verdicts(),
            going,
            events: watch::channel(0).0,
        };
        let mut clients = spawn(&name, round, &street, &side);
        let mut stage = Stage {
            round,
            replicas: &mut self.replicas,
            proxy,
            front,
            side,
            back,
            street: street.clone(),
        };
        let happened = stage.play().await;
        stage.calm().await?;
        end.send_replace(false);
        let all = async { while clients.join_next().await.is_some() {} };
        if timeout(END_MAX, all).await.is_err() {
            stalled.push("clients did not end".to_owned());
            clients.shutdown().await;
        }
        let code = stage.proxy.drain().await?;
        if !code.success() {
            stalled.push(format!("the proxy ended with {code}"));
        }
        let panics = stage.proxy.panics();
        if panics > 0 {
            oracle.violated(format!("the proxy panicked {panics} times"));
        }
        self.settle(&name, oracle).await;
        happened
    }

    async fn relays(&self, chance: &Chance, oracle: &Arc<Oracle>) -> Result<[Relay; 2], String> {
        let mut relays = Vec::new();
        for (name, replica) in ["relay of server 0", "relay of server 1"]
            .into_iter()
            .zip(&self.replicas)
        {
            let with = (chance.fork(name), Arc::clone(oracle));
            let relay = Relay::start(name, replica.address, with).await;
            relays.push(relay.map_err(|error| error.to_string())?);
        }
        relays.try_into().map_err(|_| "two relays".to_owned())
    }

    /// Compares what clients were told with what the servers ran.
    async fn settle(&mut self, name: &str, oracle: &Oracle) {
        let mut known = BTreeSet::new();
        let mut read = |ledger: &Ledger| {
            for (token, times) in ledger.all() {
                let is_of_this_round = token
                    .strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(['c', 's']));
                if is_of_this_round && known.insert(token.clone()) {
                    (0..times).for_each(|_| oracle.executed(&token));
                }
            }
        };
        for replica in &mut self.replicas {
            replica.read();
        }
        // What a client was told may be here before what its server says of it.
        let words = async {
            while self.lags(oracle, name) {
                let [one, other] = &mut self.replicas;
                tokio::select! {
                    biased;
                    () = one.listen() => {}
                    () = other.listen() => {}
                }
            }
        };
        let _judged_all_the_same = timeout(WORDS_MAX, words).await;
        read(&self.ledger);
        oracle.judge();
    }

    /// Whether there are results of calls that nobody was seen to run.
    fn lags(&self, oracle: &Oracle, name: &str) -> bool {
        let begun = self.ledger.all();
        let of_this_round = begun.keys().filter(|token| token.starts_with(name));
        let begun: BTreeSet<&str> = of_this_round.map(String::as_str).collect();
        oracle
            .results()
            .iter()
            .any(|token| !begun.contains(token.as_str()))
    }
}

fn spawn(name: &str, round: Round, street: &Street, side: &Relay) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for nth in 0..round.load.clients {
        let client = format!("{name}c{nth}{}", round.fault.padding());
        clients.spawn(client::run(client, street.clone()));
    }
    let (fate, sdks) = match round.fault {
        Fault::Clients(fate) => (fate, &[Sdk::Ts2, Sdk::Py2, Sdk::Ts1, Sdk::Py1][..]),
        Fault::Way(..)
        | Fault::Servers(_)
        | Fault::Proxy(_)
        | Fault::Reload
        | Fault::Descriptors
        | Fault::Memory
        | Fault::Window
        | Fault::Clock
        | Fault::FullDisk => match round.nth % 2 {
            0 => (Fate::Lives, &[Sdk::Ts2][..]),
            _ => (Fate::Lives, &[Sdk::Py2][..]),
        },
    };
    for (nth, sdk) in sdks.iter().enumerate() {
        let mut street = street.clone();
        street.at = side.address;
        street.chance = street.chance.fork(&format!("sdk {nth}"));
        clients.spawn(sdk::run(
            format!("{name}s{nth}"),
            *sdk,
            fate,
            (street, side.turned_away()),
        ));
    }
    clients
}

/// Everything that a fault can reach.
struct Stage<'a> {
    round: Round,
    replicas: &'a mut [Replica; 2],
    proxy: Proxy,
    front: Relay,
    /// The way of real SDK clients, which is never hurt.
    side: Relay,
    back: [Relay; 2],
    street: Street,
}

impl Stage<'_> {
    async fn play(&mut self) -> Result<(), String> {
        let fault = self.round.fault;
        self.front.rule(fault.rule(Side::Clients));
        for relay in &self.back {
            relay.rule(fault.rule(Side::Servers));
        }
        let strikes = STRIKES_MIN + self.round.events / EVENTS_OF_A_STRIKE;
        for nth in 0..strikes {
            self.more(self.round.events / (strikes + 1)).await?;
            self.strike(nth).await?;
        }
        let had = *self.street.events.borrow();
        self.more(self.round.events.saturating_sub(had)).await?;
        // Some faults strike as connections and calls come; a short round may have to wait for the first.
        let strikes = async {
            while self.street.oracle.count("hurts") == 0 {
                self.more(1).await?;
            }
            Ok(())
        };
        timeout(STALL, strikes).await.unwrap_or(Ok(()))
    }

    /// Waits until clients had so many more events.
    async fn more(&self, events: u64) -> Result<(), String> {
        let mut had = self.street.events.subscribe();
        let enough = *had.borrow_and_update() + events;
        let waited = timeout(STALL, had.wait_for(|had| *had >= enough)).await;
        waited.map(drop).map_err(|_| {
            let had = *self.street.events.borrow();
            format!("clients did not get on: {had} events, and {enough} were waited for")
        })
    }

    fn hurt(&self, what: &str) {
        self.street.oracle.counted("hurts");
        self.street.oracle.saw(format!("fault: {what}"));
    }

    async fn strike(&mut self, nth: u64) -> Result<(), String> {
        let mut chance = self.street.chance.fork(&format!("strike {nth}"));
        let a_while = chance.millis(500, 2_500);
        match self.round.fault {
            Fault::Way(side, Harm::Refuse) => {
                let doors: Vec<&Relay> = match side {
                    Side::Clients => vec![&self.front],
                    // The second time longer than a session waits for its replica.
                    Side::Servers => self.back.iter().collect(),
                };
                self.hurt("doors are shut");
                doors.iter().for_each(|relay| relay.door(Door::Shut));
                pass(if nth == 1 { a_while * 3 } else { a_while }).await;
                doors.iter().for_each(|relay| relay.door(Door::Open));
                self.hurt("doors are open");
                Ok(())
            }
            Fault::Way(..) | Fault::Memory | Fault::Window | Fault::Clients(_) => Ok(()),
            Fault::Servers(blow) => self.strike_server(usize::from(nth % 2 == 1), blow, a_while).await,
            Fault::Proxy(blow) => self.strike_proxy(blow, a_while).await,
            Fault::Reload => {
                for each in 0..8 {
                    self.hurt("the configuration is read again");
                    self.proxy.reload(nth * 8 + each).await?;
                    pass(chance.millis(0, 60)).await;
                }
                Ok(())
            }
            // The second time longer than a session waits for its replica.
            Fault::Descriptors => self.crowd(if nth == 1 { a_while * 3 } else { a_while }).await,
            Fault::Clock => {
                // Less than the day that a token lives: a jump of a day ends sessions, and rightly.
                let seconds = [7_200, -3_600, 40_000][usize::try_from(nth).unwrap_or(0) % 3];
                self.hurt(&format!("the clock is {seconds} s ahead"));
                self.proxy.jump(seconds)
            }
            Fault::FullDisk => {
                self.hurt("every line of the log meets a full disk");
                Ok(())
            }
        }
    }

    async fn strike_server(&mut self, nth: usize, blow: Blow, a_while: Duration) -> Result<(), String> {
        self.hurt(&format!("server {nth}: {blow:?}"));
        let replica = &mut self.replicas[nth];
        match blow {
            Blow::Kill => replica.end(Signal::Kill).await?,
            Blow::Restart => replica.end(Signal::Term).await?,
            Blow::Pause => replica.tell(Signal::Stop).await?,
        }
        pass(a_while).await;
        match blow {
            Blow::Kill | Blow::Restart => replica.again().await?,
            Blow::Pause => replica.tell(Signal::Cont).await?,
        }
        self.hurt(&format!("server {nth} is back"));
        Ok(())
    }

    async fn strike_proxy(&mut self, blow: Blow, a_while: Duration) -> Result<(), String> {
        self.hurt(&format!("the proxy: {blow:?}"));
        match blow {
            Blow::Kill => {
                self.proxy.kill(a_while / 4).await?;
                self.aim();
            }
            Blow::Pause => {
                self.proxy.tell(Signal::Stop).await?;
                pass(a_while).await;
                self.proxy.tell(Signal::Cont).await?;
            }
            Blow::Restart => {
                let mut before = self.proxy.succeed().await?;
                self.aim();
                let code = before.drain().await?;
                self.street
                    .oracle
                    .saw(format!("fault: the proxy before ended with {code}"));
                if before.panics() > 0 {
                    self.street.oracle.violated("the proxy panicked".to_owned());
                }
            }
        }
        self.hurt("a proxy is there");
        Ok(())
    }

    fn aim(&self) {
        for relay in [&self.front, &self.side] {
            relay.aim(self.proxy.address());
        }
    }

    /// Connections that say nothing take every descriptor of the proxy for a while.
    async fn crowd(&self, a_while: Duration) -> Result<(), String> {
        let mut crowd = Vec::new();
        for _ in 0..CROWD {
            let connected = TcpStream::connect(self.proxy.address()).await;
            crowd.push(connected.map_err(|error| error.to_string())?);
        }
        self.hurt("a crowd is at the door");
        pass(a_while).await;
        drop(crowd);
        self.hurt("the crowd has gone");
        Ok(())
    }

    /// Nothing is hurt any more, whatever went wrong until now.
    async fn calm(&mut self) -> Result<(), String> {
        self.street.oracle.saw("fault: none any more".to_owned());
        for relay in self.back.iter().chain([&self.front]) {
            relay.rule(None);
            relay.door(Door::Open);
        }
        for replica in self.replicas.iter_mut() {
            if replica.tell(Signal::Cont).await.is_err() {
                replica.again().await?;
            }
        }
        self.proxy.tell(Signal::Cont).await
    }
}

//! What a world is like: everything that a seed decides before it begins. Some faults are off, some are wild.
//! Law: drawn in one go from the seed, so that a failing seed can be described in a few lines.
//! Next: `run.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Site;
use crate::chance::Chance;
use crate::clock::pass;
use crate::fleet::Fleet;
use crate::oracle::Oracle;
use crate::papers::{Papers, Proxy};
use crate::place::Order;
use crate::wires::{Cut, Side, Temper, Wires};

/// A fault that strikes now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Cut(Side, Cut),
    /// A replica dies with its sessions, and is back after up to so many milliseconds.
    Restart(u64),
    /// A replica answers nothing for up to so many milliseconds, and then goes on.
    Pause(u64),
    /// A proxy dies, its connections end like this, and another is there after up to so many milliseconds.
    Kill(Cut, u64),
    /// A proxy drains, and another follows.
    Replace(Succession),
    /// A proxy reads other settings.
    Reload,
    /// A replica is drained at every proxy, for up to so many milliseconds.
    Drain(u64),
}

/// When a proxy that drains is followed by another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Succession {
    /// New connections go to the other one while the first still drains.
    AtOnce,
    /// Nobody takes connections for a while.
    Afterwards,
}

/// Faults of the network and of backends; a seed gives each a weight.
const FAULTS: [Fault; 9] = [
    Fault::Cut(Side::Clients, Cut::Reset),
    Fault::Cut(Side::Clients, Cut::Fin),
    Fault::Cut(Side::Clients, Cut::Silence),
    Fault::Cut(Side::Backends, Cut::Reset),
    Fault::Cut(Side::Backends, Cut::Fin),
    Fault::Cut(Side::Backends, Cut::Silence),
    Fault::Restart(0),
    Fault::Restart(20_000),
    Fault::Pause(20_000),
];

/// Faults of the proxy itself, which are off in most worlds: they hide what a proxy that lives must get right.
const DEATHS: [Fault; 5] = [
    Fault::Kill(Cut::Reset, 3_000),
    Fault::Kill(Cut::Fin, 0),
    Fault::Kill(Cut::Silence, 20_000),
    Fault::Replace(Succession::AtOnce),
    Fault::Replace(Succession::Afterwards),
];

/// What operators do while everything runs.
const ORDERS: [Fault; 2] = [Fault::Reload, Fault::Drain(30_000)];

/// How backends behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackendWays {
    /// Of a hundred calls, so many are answered with JSON.
    pub(crate) json: u64,
    /// Of a hundred answers that are streams, so many end before their response.
    pub(crate) early_end: u64,
    /// Of a hundred answers that are streams, so many ask their client something.
    pub(crate) asks: u64,
    pub(crate) ids: Ids,
    pub(crate) storing: Storing,
    pub(crate) opening: Opening,
    pub(crate) listening: Listening,
    pub(crate) papers: Papers,
}

/// Whether backends name their events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ids {
    None,
    /// A counter that every stream of a session begins anew.
    Colliding,
}

/// Whether backends store their events, and can be asked for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Storing {
    None,
    /// Whoever asks is sent everything.
    Tidy,
    /// What comes between the replay and the next news is stored, and not sent.
    Sloppy,
}

/// How `initialize` is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    Json,
    Stream,
}

/// Whether there is a standalone stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Listening {
    Offered,
    Refused,
    /// As the Rust SDK's servers do: the last of what was said is said again on each new stream, and a stream beside one
    /// that is taken for alive is granted, and nothing is said on it.
    Echoing,
}

/// How clients behave: each draws its own from these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientWays {
    /// Of a hundred events, after so many the client cuts its own connection.
    pub(crate) cuts: u64,
    /// Of a hundred events, after so many it stops reading for a while.
    pub(crate) stalls: u64,
    /// Of a hundred calls lost before their head, so many are sent again as they were.
    pub(crate) repeats: u64,
    /// Of a hundred reconnects of a listener, so many come without a cursor.
    pub(crate) forgets: u64,
    /// Of a hundred calls, so many are preceded by a look at another session's stream with its cursor.
    pub(crate) steals: u64,
    /// Of a hundred clients, so many end their session at the end.
    pub(crate) ends: u64,
    /// Of a hundred connections, so many go to another proxy than the one before.
    pub(crate) roams: u64,
    pub(crate) calls: u64,
}

/// How the stores of proxies fail, in a thousand.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StoreWays {
    /// Longest time until a log is open, or an event is kept, in milliseconds.
    pub(crate) delay_ms: u64,
    /// Of logs, so many can't be opened.
    pub(crate) opens: u64,
    /// Of events, before so many the log fails, or loses the newest that it had promised to keep.
    pub(crate) appends: u64,
    pub(crate) forgets: u64,
    /// Of ends, so many can't be written.
    pub(crate) closes: u64,
}

impl StoreWays {
    fn draw(delay_ms: u64, mut chance: Chance) -> Self {
        let fails = chance.percent(25);
        // One that keeps nothing at all.
        let is_dead = fails && chance.percent(10);
        let mut rare = |most: u64| match fails && chance.percent(60) {
            true => chance.between(1, most),
            false => 0,
        };
        Self {
            delay_ms,
            opens: rare(200),
            appends: if is_dead { 1_000 } else { rare(60) },
            forgets: rare(40),
            closes: rare(300),
        }
    }
}

/// A world, described.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    pub(crate) temper: Temper,
    pub(crate) store: StoreWays,
    pub(crate) proxies: usize,
    pub(crate) replicas: usize,
    pub(crate) clients: usize,
    /// Clients of the revision without sessions.
    pub(crate) moderns: usize,
    /// Clients of HTTP+SSE.
    pub(crate) elders: usize,
    pub(crate) settings: Vec<String>,
    pub(crate) backend: BackendWays,
    pub(crate) client: ClientWays,
    faults: Vec<(Fault, u64)>,
    between_faults_ms: u64,
    stormy_s: u64,
}

impl Weather {
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let failing = chance.fork("store");
        let mut apart = chance.fork("elders");
        let elders = match apart.percent(30) {
            true => apart.between(1, 2) as usize,
            false => 0,
        };
        let mut rare = |percent: u64, most: u64| match chance.percent(percent) {
            true => chance.between(1, most),
            false => 0,
        };
        let client = ClientWays {
            cuts: rare(50, 25),
            stalls: rare(30, 10),
            repeats: rare(50, 100),
            forgets: rare(30, 30),
            steals: rare(20, 30),
            ends: rare(50, 100),
            roams: rare(60, 60),
            calls: 0,
        };
        let mut faults: Vec<_> = FAULTS.iter().map(|fault| (*fault, rare(45, 10))).collect();
        let deaths = rare(30, 1);
        if deaths > 0 {
            faults.extend(DEATHS.iter().map(|fault| (*fault, rare(40, 6))));
        }
        if rare(40, 1) > 0 {
            faults.extend(ORDERS.iter().map(|fault| (*fault, rare(70, 4))));
        }
        let (json, early_end, asks) = (rare(50, 100), rare(30, 30), rare(30, 50));
        let temper = Temper {
            latency_ms: rare(60, 40),
            room_min: if chance.percent(30) { 256 } else { 16_384 },
            bite_max: if chance.percent(30) { 40 } else { 0 },
        };
        let proxies = if chance.percent(25) { 2 } else { 1 };
        let proxy = match (deaths, proxies) {
            (0, 1) => Proxy::Lasting,
            _ => Proxy::Changing,
        };
        let papers = Papers::draw(chance, proxy);
        let storing = *chance.pick(&[Storing::None, Storing::None, Storing::Tidy, Storing::Sloppy]);
        Self {
            temper,
            store: StoreWays::draw(
                if chance.percent(40) {
                    chance.between(1, 200)
                } else {
                    0
                },
                failing,
            ),
            proxies,
            replicas: chance.between(1, 3) as usize,
            clients: chance.between(1, 4) as usize,
            moderns: if chance.percent(30) { 1 } else { 0 },
            elders,
            settings: settings(chance, (storing, proxies))
                .into_iter()
                .chain(papers.setting())
                .collect(),
            backend: BackendWays {
                json,
                early_end,
                asks,
                ids: *chance.pick(&[Ids::None, Ids::Colliding]),
                storing,
                opening: *chance.pick(&[Opening::Json, Opening::Stream]),
                listening: *chance.pick(&[Listening::Offered, Listening::Offered, Listening::Refused]),
                papers,
            },
            client: ClientWays {
                calls: chance.between(3, 12),
                ..client
            },
            faults,
            between_faults_ms: chance.between(200, 8_000),
            stormy_s: chance.between(20, 90),
        }
    }

    /// The same with servers that say things again, and a proxy that lives and so knows what was said: nothing may come
    /// twice. A server that is never told of its stream's end has no chance to end it, and is left out.
    pub(crate) fn echo(&mut self) {
        self.backend.listening = Listening::Echoing;
        self.backend.storing = Storing::None;
        self.backend.ids = Ids::None;
        self.settings
            .retain(|setting| !setting.contains("event_store") && !setting.contains("reattach"));
        self.proxies = 1;
        let is_bearable =
            |fault: &Fault| !DEATHS.contains(fault) && *fault != Fault::Cut(Side::Backends, Cut::Silence);
        self.faults.retain(|(fault, _)| is_bearable(fault));
    }

    /// Lets faults strike for as long as the storm lasts, then makes everything whole.
    pub(crate) async fn storm(&self, struck: &Struck<'_>, mut chance: Chance) {
        let until = tokio::time::Instant::now() + Duration::from_secs(self.stormy_s);
        let all: u64 = self.faults.iter().map(|(_, weight)| weight).sum();
        while tokio::time::Instant::now() < until {
            pass(chance.millis(1, self.between_faults_ms)).await;
            let mut at = chance.below(all.max(1));
            let drawn = self.faults.iter().find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            if let Some((fault, _)) = drawn {
                self.strike(struck, *fault, &mut chance);
            }
        }
        for replica in 0..self.replicas {
            struck.fleet.order(replica, Order::Undrain);
        }
        struck.oracle.saw("the storm is over".to_owned());
    }

    fn strike(&self, struck: &Struck<'_>, fault: Fault, chance: &mut Chance) {
        let oracle = struck.oracle;
        let replica = chance.below(self.replicas as u64) as usize;
        let proxy = chance.below(self.proxies as u64) as usize;
        match fault {
            Fault::Cut(side, how) => {
                if let Some(to) = struck.net.cut_one(side, how) {
                    oracle.saw(format!("fault: {how:?} of a connection to {to}"));
                    oracle.counted("cuts");
                }
            }
            Fault::Restart(away) => {
                let away = chance.millis(0, away);
                oracle.saw(format!("fault: replica {replica} restarts, away for {away:?}"));
                oracle.counted("restarts");
                struck.site.restart(replica, away);
            }
            Fault::Pause(most) => {
                let time = chance.millis(0, most);
                oracle.saw(format!("fault: replica {replica} pauses for {time:?}"));
                oracle.counted("pauses");
                struck.site.pause(replica, time);
            }
            Fault::Kill(how, most) => struck.fleet.kill(proxy, how, chance.millis(0, most)),
            Fault::Replace(when) => struck.fleet.replace(proxy, when),
            Fault::Reload => {
                let others = settings(chance, (self.backend.storing, self.proxies));
                let settings: Vec<_> = others.into_iter().chain(self.backend.papers.setting()).collect();
                struck.fleet.reload(proxy, &settings);
            }
            Fault::Drain(most) => {
                oracle.counted("replicas drained");
                struck.fleet.order(replica, Order::Drain);
                let (fleet, time) = (Arc::clone(struck.fleet), chance.millis(0, most));
                tokio::spawn(async move {
                    pass(time).await;
                    fleet.order(replica, Order::Undrain);
                });
            }
        }
    }
}

/// What faults strike.
pub(crate) struct Struck<'a> {
    pub(crate) net: &'a Arc<Wires>,
    pub(crate) site: &'a Arc<Site>,
    pub(crate) fleet: &'a Arc<Fleet>,
    pub(crate) oracle: &'a Arc<Oracle>,
}

/// Settings of the proxy, each from values that matter.
fn settings(chance: &mut Chance, (storing, proxies): (Storing, usize)) -> Vec<String> {
    let choices: [(&str, &[&str]); 11] = [
        ("upstream.stream.replay_events_max", &["4", "16", "1024"]),
        ("upstream.stream.detached_max", &["\"2s\"", "\"30s\"", "\"5m\""]),
        ("upstream.stream.polling", &["\"pass\"", "\"hold\""]),
        (
            "upstream.stream.json_upgrade_after",
            &["\"off\"", "\"off\"", "\"500ms\""],
        ),
        ("upstream.stream.get_refused_max", &["\"10s\"", "\"1m\""]),
        (
            "upstream.session.on_session_loss",
            &["\"announce\"", "\"reinitialize\"", "\"terminate\""],
        ),
        ("upstream.exchange.replica_retry_max", &["\"1s\"", "\"10s\""]),
        ("upstream.balance", &["\"least_sessions\"", "\"round_robin\""]),
        ("upstream.session.streams_max", &["2", "64"]),
        ("upstream.drain_deadline", &["\"1s\"", "\"10s\""]),
        ("server.drain_max", &["\"2s\"", "\"30s\""]),
    ];
    let mut settings: Vec<String> = choices
        .iter()
        .map(|(key, values)| format!("{key}={}", chance.pick(values).trim_matches('"')))
        .collect();
    // A sloppy store that is believed unproved loses what it does not send, as for any client: the README says so.
    let is_proved = storing == Storing::Sloppy || (storing == Storing::Tidy && chance.percent(70));
    if is_proved {
        settings.push("upstream.event_store=per-session".to_owned());
        settings.push("upstream.stream.reattach=proved".to_owned());
    }
    if proxies > 1 {
        settings.push("server.peers=possible".to_owned());
    }
    settings
}

//! One client with one server: every feature directly and through the proxy, each once with its connections cut, and once more
//! through the proxy with a tape on either side of it.
//! Law: what fails through the proxy must have failed directly too, with the same cuts.
//! Next: `driver.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::timeout;

use crate::backend::{Backend, Running};
use crate::driver::Driver;
use crate::lab::{self, Process, Proxy, Sdk};
use crate::relay::{Exchange, How, Kind, Plan, Point, Relay, Spread, at_once};
use crate::tape::Tape;

/// Every feature, in the order of the drive.
pub(crate) const FEATURES: [&str; 10] = [
    "initialize",
    "resume",
    "cut",
    "progress",
    "sampling",
    "elicitation",
    "logging",
    "subscription",
    "list_changed",
    "cancellation",
];

/// When a drive that has not ended is called hung.
const DEADLINE: Duration = Duration::from_secs(150);
/// How long a client may take to start and open its stream, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long a server may take to hear of a cancellation.
const CANCELLED: Duration = Duration::from_secs(15);
/// Fewer messages than that are no drive: a request, its answer and what comes between, for each feature.
const MESSAGES_MIN: usize = 40;
/// Events of the standalone stream before it is cut.
const STREAM_EVENTS: usize = 6;
/// Events of an answer before it is cut.
const ANSWER_EVENTS: usize = 4;

/// A client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    /// A process of the lab.
    Lab(Sdk),
    /// The official Rust SDK, in this process.
    Rust,
}

impl Client {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lab(sdk) => sdk.name(),
            Self::Rust => "rust 3.x",
        }
    }
}

/// A client and a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    /// The client.
    pub(crate) client: Client,
    /// The server.
    pub(crate) server: Backend,
}

impl Pair {
    /// Its name.
    pub(crate) fn name(self) -> String {
        format!("{} with {}", self.client.name(), self.server.name())
    }
}

/// How a feature came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Felt {
    /// As it should.
    Works,
    /// Otherwise, in these words.
    Fails(String),
}

type Features = BTreeMap<&'static str, Felt>;

/// What was seen of a pair.
#[derive(Default)]
pub(crate) struct Seen {
    direct: Features,
    /// Features through the proxy.
    pub(crate) through: Features,
    /// Messages that were compared on both sides of the proxy.
    pub(crate) messages: usize,
    other: Vec<String>,
    seconds: f64,
}

impl Seen {
    /// A pair that could not be tried.
    pub(crate) fn broken(fault: String) -> Self {
        Self {
            other: vec![fault],
            ..Self::default()
        }
    }

    /// What does not hold; empty = passed.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.other.clone();
        for feature in FEATURES {
            match (self.direct.get(feature), self.through.get(feature)) {
                (_, Some(Felt::Works)) | (Some(Felt::Fails(_)), Some(Felt::Fails(_))) => {}
                (_, Some(Felt::Fails(why))) => faults.push(format!("{feature}: {why}")),
                (_, None) => faults.push(format!("{feature} was not tried")),
            }
        }
        faults
    }

    /// Says how it went.
    pub(crate) fn print(&self, pair: Pair) {
        let faults = self.faults();
        let word = if faults.is_empty() { "ok    " } else { "FAILED" };
        println!(
            "{word} {}: {} messages the same on both sides ({:.1} s)",
            pair.name(),
            self.messages,
            self.seconds
        );
        for feature in FEATURES {
            if let Some(Felt::Fails(why)) = self.direct.get(feature) {
                let healed = match self.through.get(feature) {
                    Some(Felt::Works) => "works through the proxy",
                    Some(Felt::Fails(_)) | None => "nor through the proxy",
                };
                println!("       {feature} fails directly, {healed}: {why}");
            }
        }
        for fault in faults {
            println!("       {fault}");
        }
    }
}

/// What happens to connections on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// The first standalone stream and the answer to the call `cut` are cut once.
    Cuts,
    /// Nothing.
    Fair,
}

/// Tries a pair.
pub(crate) async fn run(pair: Pair) -> Seen {
    let began = Instant::now();
    let mut seen = match all_ways(pair).await {
        Ok(seen) => seen,
        Err(fault) => Seen::broken(fault),
    };
    seen.seconds = began.elapsed().as_secs_f64();
    seen
}

async fn all_ways(pair: Pair) -> Result<Seen, String> {
    let mut server = pair.server.start().await?;
    let direct = drive(pair.client, &mut server, None, Weather::Cuts).await?;

    let proxy = Proxy::start(&[server.address], &[]).await?;
    let through = drive(pair.client, &mut server, Some(proxy.address), Weather::Cuts).await?;
    let mut other = ended(proxy).await?;

    let upstream = Tape::start(server.address).await.map_err(said)?;
    let proxy = Proxy::start(&[upstream.address()], &["upstream.isolate_request_ids=false"]).await?;
    let downstream = Tape::start(proxy.address).await.map_err(said)?;
    let fair = drive(
        pair.client,
        &mut server,
        Some(downstream.address()),
        Weather::Fair,
    )
    .await?;
    for (feature, felt) in &fair {
        if let (Felt::Fails(why), Some(Felt::Works)) = (felt, direct.get(feature)) {
            other.push(format!("{feature}, without cuts: {why}"));
        }
    }
    other.extend(ended(proxy).await?);
    let (client_side, server_side) = (downstream.messages(), upstream.messages());
    other.extend(client_side.differences(&server_side));
    if client_side.count() < MESSAGES_MIN {
        other.push("the tape is as good as empty: this run proves nothing".to_owned());
    }
    Ok(Seen {
        direct,
        through,
        messages: client_side.count(),
        other,
        seconds: 0.0,
    })
}

async fn ended(proxy: Proxy) -> Result<Vec<String>, String> {
    match proxy.drain().await? {
        0 => Ok(Vec::new()),
        code => Ok(vec![format!("the proxy ended with {code}")]),
    }
}

/// The first standalone stream and the answer to the call `cut` are closed, in the middle of what they carry.
fn cuts(exchange: &Exchange) -> Plan {
    match exchange.kind {
        Kind::Listen if exchange.nth == 1 => Plan::Cut(point(STREAM_EVENTS), How::Close, at_once()),
        Kind::Call
            if exchange.body.contains("\"tag\":\"cut\"") || exchange.body.contains("\"tag\": \"cut\"") =>
        {
            Plan::Cut(point(ANSWER_EVENTS), How::Close, at_once())
        }
        Kind::Call | Kind::Listen | Kind::Resume | Kind::Other => Plan::Pass,
    }
}

const fn point(events: usize) -> Point {
    Point { events, bytes: 20 }
}

/// One drive of a client, through whatever stands at `at`; directly if nothing does.
async fn drive(
    client: Client,
    server: &mut Running,
    at: Option<SocketAddr>,
    weather: Weather,
) -> Result<Features, String> {
    let target = at.unwrap_or(server.address);
    let plan = move |exchange: &Exchange| match weather {
        Weather::Cuts => cuts(exchange),
        Weather::Fair => Plan::Pass,
    };
    let relay = Relay::start(vec![target], Spread::Connections, plan)
        .await
        .map_err(said)?;
    let mut client = timeout(START, Connected::to(client, relay.address()))
        .await
        .map_err(|_| "the client does not connect")??;
    let open = relay.until(|tally| tally.listening > 0);
    timeout(START, open)
        .await
        .map_err(|_| "the client opened no stream")?;
    let mut features = timeout(DEADLINE, client.drive())
        .await
        .map_err(|_| "the drive hangs")??;
    let heard = timeout(CANCELLED, async {
        while let Some(said) = server.next().await {
            match said["ev"].as_str() {
                Some("cancelled") if said["tag"] == "cancel" => return Felt::Works,
                Some("ended") if said["tag"] == "cancel" => {
                    return Felt::Fails("the server ran the call to its end".to_owned());
                }
                Some(_) | None => {}
            }
        }
        Felt::Fails("the server ended".to_owned())
    });
    let heard = heard
        .await
        .unwrap_or_else(|_| Felt::Fails("the server never heard of it".to_owned()));
    if let (Some(felt @ Felt::Works), Felt::Fails(_)) = (features.get_mut("cancellation"), &heard) {
        *felt = heard;
    }
    if weather == Weather::Cuts && relay.tally().cuts != 2 {
        let cuts = relay.tally().cuts;
        return Err(format!("{cuts} connections were cut, and not 2"));
    }
    Ok(features)
}

/// A client that has initialized.
enum Connected {
    Process(Box<Process>),
    Rust(Box<Driver>),
}

impl Connected {
    async fn to(client: Client, at: SocketAddr) -> Result<Self, String> {
        match client {
            Client::Lab(sdk) => Ok(Self::Process(Box::new(lab::connect(sdk, at).await?))),
            Client::Rust => Ok(Self::Rust(Box::new(Driver::connect(at).await?))),
        }
    }

    async fn drive(&mut self) -> Result<Features, String> {
        match self {
            Self::Rust(driver) => {
                let felt = driver.drive().await.into_iter();
                Ok(felt
                    .map(|(feature, felt)| (feature, felt.map_or_else(Felt::Fails, |()| Felt::Works)))
                    .collect())
            }
            Self::Process(process) => {
                process.tell(&json!({ "do": "matrix" })).await?;
                let mut features = Features::new();
                loop {
                    let said = process.next().await.ok_or("the client ended")?;
                    match said["ev"].as_str() {
                        Some("driven") => return Ok(features),
                        Some("fatal") => return Err(format!("the client failed: {}", said["text"])),
                        Some("feature") => {
                            let name = FEATURES.iter().find(|name| said["name"] == **name);
                            let name = name.ok_or_else(|| format!("an unknown feature: {said}"))?;
                            let felt = match said["outcome"].as_str() {
                                Some("ok") => Felt::Works,
                                Some(_) | None => Felt::Fails(said["why"].to_string()),
                            };
                            features.insert(name, felt);
                        }
                        Some(_) | None => {}
                    }
                }
            }
        }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

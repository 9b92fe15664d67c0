//! Clients: well-behaved, rude, slow, forgetful, and thieves of cursors; each is one person with one session.
//! Law: a client follows the wire contract's own advice (resume with the last id it saw), whatever else it does.
//! What it was told goes to its trails, and through them to the oracle.
//! Next: `client/calls.rs`.

#[path = "client/batch.rs"]
mod batch;
#[path = "client/calls.rs"]
pub(crate) mod calls;
#[path = "client/listener.rs"]
mod listener;
#[path = "client/thefts.rs"]
mod thefts;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use throughline::pure::limits::CREDENTIALS_MAX;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::backend::Site;
use crate::chance::Chance;
use crate::clock::pass;
use crate::http::{Answered, Blocks, Event, Talk};
use crate::oracle::{Oracle, Outcome};
use crate::papers::Papers;
use crate::place::proxy_address;
use crate::plant::{Plant, Wake};
use crate::trail::{AskedBy, Meaning, Trail};
use crate::weather::{ClientWays, Listening};
use crate::wires::Wires;

/// After the storm, so long until whatever a client waits for must have come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// How often a listener looks whether it is wanted any more.
pub(crate) const GLANCE: Duration = Duration::from_secs(5);

/// Whether things still go wrong.
#[derive(Default)]
pub(crate) struct Calm(AtomicBool);

impl Calm {
    pub(crate) fn comes(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What anybody may look at, and present where it doesn't belong.
pub(crate) type Loot = Arc<Mutex<Vec<Stolen>>>;

/// A cursor, and the session that it is of.
#[derive(Clone)]
pub(crate) struct Stolen {
    whose: String,
    token: String,
    cursor: String,
}

/// What every client of a world has.
#[derive(Clone)]
pub(crate) struct Streets {
    pub(crate) net: Arc<Wires>,
    pub(crate) site: Arc<Site>,
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) calm: Arc<Calm>,
    pub(crate) loot: Loot,
    pub(crate) ways: ClientWays,
    pub(crate) proxies: usize,
    pub(crate) papers: Papers,
    pub(crate) listening: Listening,
    pub(crate) plant: Plant,
    pub(crate) wake: Arc<Wake>,
}

/// One client.
#[derive(Clone)]
pub(crate) struct Person {
    streets: Streets,
    label: String,
    revision: &'static str,
    token: String,
    /// The proxy that it speaks to.
    at: usize,
    /// Whose credentials it shows.
    person: String,
    /// Which of them.
    papers: u64,
    /// Of a hundred requests, before so many it gets itself another.
    renewed: u64,
    /// How many of them its session was shown.
    shown: Arc<AtomicUsize>,
    /// The calls that it makes.
    makes: Vec<String>,
    /// The session is over; a client would begin a new one.
    gone: Arc<AtomicBool>,
    /// What a listener must have before it goes, and since when it waits for it.
    goal: Option<(Instant, u64)>,
    chance: Chance,
}

/// How one connection of a stream ended.
enum End {
    Told(Outcome),
    /// In an orderly way, with what the server last said of coming back.
    Orderly,
    Broken,
}

impl Person {
    /// Lives one life: a session, a listener, some calls, perhaps an end.
    pub(crate) async fn live(streets: Streets, label: String, mut chance: Chance) {
        let revision = *chance.pick(&["2025-03-26", "2025-06-18", "2025-11-25", "2025-11-25"]);
        let mut person = Self {
            renewed: streets.papers.renewed,
            streets,
            person: label.clone(),
            label,
            revision,
            token: String::new(),
            at: 0,
            papers: 0,
            shown: Arc::new(AtomicUsize::new(1)),
            makes: Vec::new(),
            gone: Arc::default(),
            goal: None,
            chance,
        };
        if person.open().await.is_none() {
            return;
        }
        let done = Arc::new(AtomicBool::new(false));
        let mut listening = JoinSet::new();
        if person.chance.percent(80) {
            let listener = person.another("listener");
            listening.spawn(listener.listen(Arc::clone(&done)));
        }
        let mut calls = JoinSet::new();
        for nth in 0..person.streets.ways.calls {
            let time = person.chance.millis(1, 6_000);
            pass(time).await;
            calls.spawn(person.another(&format!("call {nth}")).call(10 + nth));
            if person.chance.percent(50) {
                calls.join_next().await;
            }
        }
        while calls.join_next().await.is_some() {}
        done.store(true, Ordering::Relaxed);
        while listening.join_next().await.is_some() {}
        if person.chance.percent(person.streets.ways.ends) {
            person.send("DELETE", &[], "").await;
        }
    }

    /// The same person, doing something else.
    fn another(&self, what: &str) -> Self {
        Self {
            chance: self.chance.fork(what),
            ..self.clone()
        }
    }

    /// Who answers, and to which credential.
    fn asked_by(&self, talk: &Talk) -> Option<AskedBy> {
        Some(AskedBy {
            process: talk.wire.served_by()?,
            credential: self.papers,
            is_kept: self.shown.load(Ordering::Relaxed) <= CREDENTIALS_MAX,
        })
    }

    fn oracle(&self) -> &Oracle {
        &self.streets.oracle
    }

    /// Its session is over.
    fn session_ended(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Opens a session; a client tries again until things have been calm for long.
    async fn open(&mut self) -> Option<()> {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": self.revision, "capabilities": {"roots": {}},
            "clientInfo": {"name": self.label, "version": "1"}}});
        let mut calm_since = None;
        loop {
            match self.send("POST", &[], &hello.to_string()).await {
                Answered::Whole(head, _) if head.status() == 200 => {
                    self.token = head.field("mcp-session-id")?.to_owned();
                    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
                    self.send("POST", &[], &initialized.to_string()).await;
                    self.oracle()
                        .saw(format!("{} began at {}", self.label, self.revision));
                    return Some(());
                }
                Answered::Whole(head, body) if !matches!(head.status(), 502..=504) => {
                    self.oracle()
                        .violated(format!("initialize was answered {} {body}", head.status()));
                    return None;
                }
                Answered::Whole(..) | Answered::Stream(..) | Answered::Lost => {}
            }
            if self.streets.calm.is_here() {
                let since = *calm_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    self.oracle()
                        .violated(format!("{} could not open a session in calm", self.label));
                    return None;
                }
            }
            pass(self.chance.millis(200, 2_000)).await;
        }
    }

    /// Sends one request on a connection of its own and reads the answer, up to the head of a stream.
    async fn send(&mut self, method: &str, fields: &[(&str, &str)], body: &str) -> Answered {
        match self.try_send(method, fields, body).await {
            Ok(answered) => answered,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.oracle()
                    .violated(format!("{} got a malformed answer: {error}", self.label));
                Answered::Lost
            }
            Err(_) => Answered::Lost,
        }
    }

    async fn try_send(&mut self, method: &str, fields: &[(&str, &str)], body: &str) -> io::Result<Answered> {
        if self.chance.percent(self.streets.ways.roams) {
            self.at = self.chance.below(self.streets.proxies as u64) as usize;
        }
        if self.chance.percent(self.renewed) {
            self.papers = self.chance.next();
            self.shown.fetch_add(1, Ordering::Relaxed);
        }
        let host = proxy_address(self.at);
        let wire = self.streets.net.connect(host)?;
        if method == "POST" {
            for token in &self.makes {
                self.oracle().sent(token, wire.served_by());
            }
        }
        let mut talk = Talk::new(wire);
        let mut text = format!(
            "{method} /mcp HTTP/1.1\r\nhost: {host}\r\nuser-agent: node\r\naccept: application/json, text/event-stream\r\n"
        );
        if !self.token.is_empty() {
            text.push_str(&format!(
                "mcp-session-id: {}\r\nmcp-protocol-version: {}\r\n",
                self.token, self.revision
            ));
        }
        if let Some(credential) = self.streets.papers.of(&self.person, self.papers) {
            text.push_str(&format!("authorization: {credential}\r\n"));
        }
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str("content-type: application/json\r\n");
        }
        text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        talk.send(&text).await?;
        talk.answered().await
    }

    /// Reads one connection of a stream until it ends, its request is answered, or it is left.
    async fn follow(&mut self, mut talk: Talk, trail: &mut Trail, done: Option<&AtomicBool>) -> End {
        let mut blocks = Blocks::default();
        loop {
            let piece = timeout(GLANCE, talk.piece()).await;
            if done.is_some_and(|done| self.is_over() || self.has_rested(trail, done)) {
                return End::Orderly;
            }
            let Ok(piece) = piece else { continue };
            let piece = match piece {
                Ok(piece) if piece.is_empty() => {
                    if !blocks.is_whole() {
                        self.oracle()
                            .violated(format!("{}: half a frame at an orderly end", self.label));
                    }
                    return End::Orderly;
                }
                Ok(piece) => piece,
                Err(_) => return End::Broken,
            };
            if let Some(end) = self.took(trail, &mut blocks, &piece).await {
                return end;
            }
        }
    }

    /// Bytes of a stream came; how they end the connection, if they do.
    async fn took(&mut self, trail: &mut Trail, blocks: &mut Blocks, piece: &[u8]) -> Option<End> {
        let mut read = blocks.add(piece);
        loop {
            let event = match read.and_then(|()| blocks.next()) {
                Ok(event) => event?,
                Err(error) => {
                    self.oracle()
                        .violated(format!("{}: a malformed stream: {error}", self.label));
                    return Some(End::Broken);
                }
            };
            read = Ok(());
            if let Some(end) = self.had(trail, event).await {
                return Some(end);
            }
        }
    }

    /// One event came; how that ends the connection, if it does.
    async fn had(&mut self, trail: &mut Trail, event: Event) -> Option<End> {
        let Streets {
            plant, wake, oracle, ..
        } = &self.streets;
        if plant.takes(&event, wake, oracle) {
            return None;
        }
        for event in plant.events(event, &mut self.chance) {
            match trail.took(&self.streets.oracle, &event) {
                Meaning::Nothing => {}
                Meaning::Ended(outcome) => return Some(End::Told(outcome)),
                Meaning::Asked(id) => {
                    let mut person = self.another(&id);
                    person.makes.clear();
                    tokio::spawn(async move {
                        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#);
                        person.send("POST", &[], &answer).await;
                    });
                }
            }
        }
        if let Some(cursor) = &trail.cursor {
            let mut loot = self.streets.loot.lock().expect("no panic while it is held");
            loot.push(Stolen {
                whose: self.label.clone(),
                token: self.token.clone(),
                cursor: cursor.clone(),
            });
            let len = loot.len();
            if len > 64 {
                loot.drain(..len - 64);
            }
        }
        if self.streets.calm.is_here() {
            return None;
        }
        if self.chance.percent(self.streets.ways.stalls) {
            pass(self.chance.millis(100, 60_000)).await;
        }
        if self.chance.percent(self.streets.ways.cuts) {
            self.oracle()
                .saw(format!("{} cuts its own connection", self.label));
            return Some(End::Broken);
        }
        None
    }
}

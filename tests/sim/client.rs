//! Clients: well-behaved, rude, slow, forgetful, and thieves of cursors; each is one person with one session.
//! Law: a client follows the wire contract's own advice (resume with the last id it saw), whatever else it does.
//! What it was told goes to its trails, and through them to the oracle.
//! Next: `weather.rs`.

#[path = "batch.rs"]
mod batch;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::backend::Site;
use crate::chance::Chance;
use crate::clock::pass;
use crate::http::{Blocks, Event, Head, Talk};
use crate::oracle::{Oracle, Outcome, Process};
use crate::papers::{self, Papers};
use crate::place::proxy_address;
use crate::plant::Plant;
use crate::trail::{Kind, Meaning, Trail, outcome_of};
use crate::weather::{ClientWays, Listening};
use crate::wires::Wires;

/// After the storm, so long until whatever a client waits for must have come.
const PATIENCE: Duration = Duration::from_secs(20 * 60);

/// So long after it was first sent, the same request may be sent again and is still the same. The wire contract knows it
/// for 10 s after its answer was taken.
const SAME_REQUEST: Duration = Duration::from_secs(8);

/// How often a listener looks whether it is wanted any more.
const GLANCE: Duration = Duration::from_secs(5);

/// Whether things still go wrong.
#[derive(Default)]
pub(crate) struct Calm(AtomicBool);

impl Calm {
    pub(crate) fn comes(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_here(&self) -> bool {
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

/// How a request was answered.
enum Answered {
    Stream(Head, Talk),
    Whole(Head, String),
    Lost,
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
    fn asked_by(&self, talk: &Talk) -> Option<(Process, u64)> {
        Some((talk.wire.served_by()?, self.papers))
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
        let head = talk.head().await?;
        let Some(head) = head else {
            return Ok(Answered::Lost);
        };
        if head.is_stream() && head.status() == 200 {
            return Ok(Answered::Stream(head, talk));
        }
        let body = talk.whole().await?;
        Ok(Answered::Whole(head, body))
    }

    /// Makes one call and follows it to its end.
    async fn call(mut self, id: u64) {
        if self.chance.percent(self.streets.ways.steals) {
            self.steal().await;
        }
        if self.revision == "2025-03-26" && self.chance.percent(25) {
            return self.batch(id).await;
        }
        let token = format!("{}:{id}", self.label);
        let steps = self.chance.below(8);
        let pace = self.chance.between(0, 1_500);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "work",
            "arguments": {"token": token, "steps": steps, "pace": pace}, "_meta": {"progressToken": token}}});
        let kind = Kind::Answer {
            token: token.clone(),
            id,
            steps,
        };
        let mut trail = Trail::new(&self.label, kind);
        self.oracle().called(&token);
        self.makes = vec![token.clone()];
        let first = Instant::now();
        loop {
            trail.sent();
            let answered = self.send("POST", &[], &body.to_string()).await;
            // With another credential it would be another request.
            self.renewed = 0;
            match answered {
                Answered::Stream(head, talk) => {
                    self.renewed = self.streets.papers.renewed;
                    trail.opened(self.oracle(), (&head, self.asked_by(&talk)), None);
                    return self.follow_call(talk, trail, &token).await;
                }
                Answered::Whole(head, body) if head.status() == 200 => {
                    let message: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
                    if message["id"] != id {
                        return self
                            .oracle()
                            .violated(format!("{token} was answered with {body}"));
                    }
                    let outcome = outcome_of(self.oracle(), &token, &message);
                    return self.oracle().told(&token, self.streets.plant.outcome(outcome));
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.gone.store(true, Ordering::Relaxed);
                    // Of what was sent before, a session that is gone says nothing.
                    let outcome = match trail.times_sent() {
                        1 => Outcome::NotExecuted("404".to_owned()),
                        _ => Outcome::Unknown("404".to_owned()),
                    };
                    return self.oracle().told(&token, outcome);
                }
                Answered::Whole(head, body) => {
                    return self
                        .oracle()
                        .violated(format!("{token} was answered {} {body}", head.status()));
                }
                Answered::Lost
                    if first.elapsed() < SAME_REQUEST && self.chance.percent(self.streets.ways.repeats) =>
                {
                    self.oracle().saw(format!("{token} is sent again"));
                    self.oracle().counted("repeats");
                    pass(self.chance.millis(0, 1_000)).await;
                }
                Answered::Lost => return self.oracle().gave_up(&token, "lost before its head"),
            }
        }
    }

    /// Follows a call's stream over as many connections as it takes.
    async fn follow_call(&mut self, talk: Talk, mut trail: Trail, token: &str) {
        let mut calm_since = None;
        let mut end = self.follow(talk, &mut trail, None).await;
        loop {
            match end {
                End::Told(outcome) => return self.oracle().told(token, self.streets.plant.outcome(outcome)),
                End::Orderly | End::Broken => {}
            }
            let Some(cursor) = trail.cursor.clone() else {
                return self.oracle().gave_up(token, "lost before its first id");
            };
            if self.streets.calm.is_here() {
                let since = *calm_since.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return self.oracle().violated(format!("{token} hangs after the storm"));
                }
            }
            pass(self.chance.millis(100, 2_000)).await;
            end = match self.send("GET", &[("last-event-id", &cursor)], "").await {
                Answered::Stream(mut head, talk) => {
                    self.streets.plant.verdict(&mut head, Some(&cursor));
                    trail.opened(self.oracle(), (&head, self.asked_by(&talk)), Some(&cursor));
                    self.follow(talk, &mut trail, None).await
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.gone.store(true, Ordering::Relaxed);
                    End::Told(Outcome::Unknown("session gone".to_owned()))
                }
                Answered::Whole(head, body) => {
                    return self.oracle().violated(format!(
                        "{token}: its resume was answered {} {body}",
                        head.status()
                    ));
                }
                Answered::Lost => End::Broken,
            };
        }
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
        for event in self.streets.plant.events(event, &mut self.chance) {
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

    /// Listens on the standalone stream until everything else is done and a note of the calm has come.
    async fn listen(mut self, done: Arc<AtomicBool>) {
        let mut trail = Trail::new(&self.label, Kind::Notes);
        loop {
            if self.is_over() {
                return;
            }
            let forgets = self.chance.percent(self.streets.ways.forgets) && !self.streets.calm.is_here();
            let cursor = trail.cursor.clone().filter(|_| !forgets);
            let fields: Vec<(&str, &str)> = cursor
                .iter()
                .map(|cursor| ("last-event-id", cursor.as_str()))
                .collect();
            match self.send("GET", &fields, "").await {
                Answered::Stream(mut head, talk) => {
                    self.streets.plant.verdict(&mut head, cursor.as_deref());
                    trail.opened(self.oracle(), (&head, self.asked_by(&talk)), cursor.as_deref());
                    self.follow(talk, &mut trail, Some(&done)).await;
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    return self.gone.store(true, Ordering::Relaxed);
                }
                Answered::Whole(head, _)
                    if head.status() == 405 && self.streets.listening == Listening::Refused =>
                {
                    return;
                }
                Answered::Whole(head, body) => {
                    return self.oracle().violated(format!(
                        "{}: its listener was answered {} {body}",
                        self.label,
                        head.status()
                    ));
                }
                Answered::Lost => {}
            }
            if self.has_rested(&trail, &done) {
                return;
            }
            pass(self.chance.millis(100, 2_000)).await;
        }
    }

    /// Whether nothing more is awaited of the standalone stream: all that was told until everything else was done has
    /// come, or it is said that it won't.
    fn has_rested(&mut self, trail: &Trail, done: &AtomicBool) -> bool {
        if !done.load(Ordering::Relaxed) || !self.streets.calm.is_here() {
            return false;
        }
        let told = self.streets.site.told(&self.label);
        let (since, told) = *self.goal.get_or_insert((Instant::now(), told));
        if trail.caught_up(told) {
            return true;
        }
        let hangs = since.elapsed() > PATIENCE;
        if hangs {
            let what = format!(
                "{}: {told} notes were told, and it stands at {}",
                self.label,
                trail.number()
            );
            self.oracle().violated(what);
        }
        hangs
    }

    /// Presents somebody else's cursor, on its own session or on theirs: nothing of theirs may come.
    async fn steal(&mut self) {
        let stolen = {
            let loot = self.streets.loot.lock().expect("no panic while it is held");
            let others: Vec<_> = loot
                .iter()
                .filter(|stolen| stolen.whose != self.label)
                .cloned()
                .collect();
            if others.is_empty() {
                return;
            }
            self.chance.pick(&others).clone()
        };
        self.oracle().counted("thefts");
        if self.streets.papers.kind != papers::Kind::None && self.chance.percent(60) {
            return self.trespass(stolen).await;
        }
        let Answered::Stream(head, talk) = self.send("GET", &[("last-event-id", &stolen.cursor)], "").await
        else {
            return;
        };
        let verdict = head.field("throughline-continuity").unwrap_or_default();
        // Where the stream was about to be reset anyway, that reason is told.
        // Where its own credential is not judged yet, none is told.
        if !verdict.is_empty() && !verdict.starts_with("reset") {
            self.oracle().violated(format!(
                "{}: a stolen cursor was answered {verdict:?}",
                self.label
            ));
        }
        self.brings_nothing(talk).await;
    }

    /// Goes to somebody else's session with its own credential.
    async fn trespass(&mut self, stolen: Stolen) {
        self.oracle().counted("trespasses");
        let mut thief = self.another("trespass");
        thief.token = stolen.token;
        if self.streets.plant == Plant::AnswersStrangers {
            // As it looks where the proxy takes everybody for whom the session is of.
            thief.person = stolen.whose.clone();
        }
        if thief.chance.percent(20) {
            if let Answered::Whole(head, _) = thief.send("DELETE", &[], "").await
                && head.status() < 300
            {
                let (label, whose) = (&self.label, &stolen.whose);
                self.oracle()
                    .violated(format!("{label} ended the session of {whose}"));
            }
            return;
        }
        let cursor = [("last-event-id", stolen.cursor.as_str())];
        let fields = if thief.chance.percent(50) {
            &cursor[..]
        } else {
            &[]
        };
        let Answered::Stream(head, talk) = thief.send("GET", fields, "").await else {
            return;
        };
        if let Some(verdict) = head.field("throughline-continuity") {
            let (label, whose) = (&self.label, &stolen.whose);
            self.oracle()
                .violated(format!("{label} was told {verdict:?} of a stream of {whose}"));
        }
        self.brings_nothing(talk).await;
    }

    /// Reads for a moment what a theft brings.
    async fn brings_nothing(&self, mut talk: Talk) {
        let mut blocks = Blocks::default();
        while let Ok(Ok(piece)) = timeout(Duration::from_secs(2), talk.piece()).await {
            if piece.is_empty() || blocks.add(&piece).is_err() {
                return;
            }
            while let Ok(Some(event)) = blocks.next() {
                let message: Value =
                    serde_json::from_str(event.data.as_deref().unwrap_or_default()).unwrap_or(Value::Null);
                let whose = message["params"]["data"]["tag"].as_str();
                if whose.is_some_and(|whose| whose != self.label)
                    || !message["params"]["progressToken"].is_null()
                {
                    self.oracle()
                        .violated(format!("{}: a theft brought {message}", self.label));
                }
            }
        }
    }
}

//! Clients of HTTP+SSE (2024-11-05), in the same world: a GET that begins a session, POSTs beside it, and coming back.
//! Law: who comes back presents the last id that it saw, or none, and then knows that it begins anew. A 404 is the end of
//! its session. Whatever it concludes is noted on its desk (`desk.rs`), which judges what it was told.
//! Next: `weather.rs`.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::chance::Chance;
use crate::client::calls::SAME_REQUEST;
use crate::client::{GLANCE, PATIENCE, Streets};
use crate::clock::pass;
use crate::desk::{Desk, Standing, Wanted};
use crate::http::{Answered, Blocks, Event, Talk};
use crate::oracle::{Oracle, Outcome};
use crate::place::proxy_address;
use crate::plant::Plant;

/// One client. Its sessions follow each other.
#[derive(Clone)]
pub(crate) struct Elder {
    streets: Streets,
    label: String,
    /// The proxy that it speaks to.
    at: usize,
    /// Which of its credentials it shows, and of a hundred requests, before so many it gets itself another.
    papers: u64,
    renewed: u64,
    /// The call that it makes.
    makes: Option<String>,
    desk: Arc<Mutex<Desk>>,
    /// Since when nothing goes wrong any more, as far as it has seen.
    calm_since: Option<Instant>,
    /// What had been told when it began to wait for a last note.
    goal: Option<u64>,
    chance: Chance,
}

/// A request: its method, where it goes, its cursor, its body.
struct Request<'a> {
    method: &'a str,
    target: &'a str,
    cursor: Option<&'a str>,
    body: &'a str,
}

impl<'a> Request<'a> {
    const fn get(cursor: Option<&'a str>) -> Self {
        Self {
            method: "GET",
            target: "/mcp",
            cursor,
            body: "",
        }
    }
}

/// What a client does when a connection of its stream has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    ComeBack,
    Rest,
}

impl Elder {
    /// Lives through as many sessions as its calls take.
    pub(crate) async fn live(streets: Streets, label: String, chance: Chance) {
        let (mut nth, mut made, calls) = (0, 0, streets.ways.calls);
        let mut client = Self {
            renewed: streets.papers.renewed,
            desk: Arc::new(Mutex::new(Desk::new(&label, 0))),
            streets,
            label,
            at: 0,
            papers: 0,
            makes: None,
            calm_since: None,
            goal: None,
            chance,
        };
        while made < calls {
            nth += 1;
            client.desk = Arc::new(Mutex::new(Desk::new(&client.label, nth)));
            let Some(talk) = client.open().await else { return };
            let mut calling = JoinSet::new();
            calling.spawn(client.another("calls").make_calls(made..calls));
            client.goal = None;
            client.follow(talk).await;
            let stood = client.desk().standing;
            match calling.join_next().await {
                Some(Ok(upto)) => made = upto,
                Some(Err(_)) | None => return,
            }
            if stood == Standing::Alive {
                return;
            }
        }
    }

    fn another(&self, what: &str) -> Self {
        Self {
            chance: self.chance.fork(what),
            ..self.clone()
        }
    }

    fn oracle(&self) -> &Oracle {
        &self.streets.oracle
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().expect("no panic while it is held")
    }

    async fn send(&mut self, request: Request<'_>) -> Answered {
        match self.try_send(request).await {
            Ok(answered) => answered,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.oracle()
                    .violated(format!("{} got a malformed answer: {error}", self.label));
                Answered::Lost
            }
            Err(_) => Answered::Lost,
        }
    }

    async fn try_send(&mut self, request: Request<'_>) -> io::Result<Answered> {
        if self.chance.percent(self.streets.ways.roams) {
            self.at = self.chance.below(self.streets.proxies as u64) as usize;
        }
        if self.chance.percent(self.renewed) {
            self.papers = self.chance.next();
        }
        let Request {
            method,
            target,
            cursor,
            body,
        } = request;
        let host = proxy_address(self.at);
        let wire = self.streets.net.connect(host)?;
        if let Some(token) = &self.makes {
            self.oracle().sent(token, wire.served_by());
        }
        let mut talk = Talk::new(wire);
        let mut fields = String::new();
        if let Some(credential) = self.streets.papers.of(&self.label, self.papers) {
            fields.push_str(&format!("authorization: {credential}\r\n"));
        }
        if let Some(cursor) = cursor {
            fields.push_str(&format!("last-event-id: {cursor}\r\n"));
        }
        if !body.is_empty() {
            fields.push_str("content-type: application/json\r\n");
        }
        talk.send(&format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\nuser-agent: node\r\naccept: text/event-stream\r\n{fields}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await?;
        talk.answered().await
    }

    /// Asks for a session until there is one.
    async fn open(&mut self) -> Option<Talk> {
        loop {
            match self.send(Request::get(None)).await {
                Answered::Stream(head, talk) if head.field("throughline-continuity").is_some() => {
                    let by = talk.wire.served_by();
                    self.desk().opened(&self.streets.oracle, (&head, by), None);
                    return Some(talk);
                }
                // What was not known to be of this transport was passed on, and has broken off by now.
                Answered::Stream(_, mut talk) => {
                    while let Ok(Ok(piece)) = timeout(GLANCE, talk.piece()).await {
                        if piece.is_empty() {
                            break;
                        }
                        if String::from_utf8_lossy(&piece).contains("endpoint") {
                            self.oracle()
                                .violated(format!("{} was shown a backend's endpoint", self.label));
                        }
                    }
                }
                Answered::Whole(head, _) if matches!(head.status(), 502..=504) => {}
                Answered::Whole(head, body) => {
                    let (label, status) = (&self.label, head.status());
                    self.oracle()
                        .violated(format!("{label}: its first GET was answered {status} {body}"));
                    return None;
                }
                Answered::Lost => {}
            }
            if self.is_out_of_patience() {
                self.oracle()
                    .violated(format!("{} could not open a session in calm", self.label));
                return None;
            }
            pass(self.chance.millis(200, 2_000)).await;
        }
    }

    fn is_out_of_patience(&mut self) -> bool {
        if !self.streets.calm.is_here() {
            return false;
        }
        self.calm_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
    }

    /// The session is over for it.
    fn leaves(&self, standing: Standing) {
        self.desk().ended(&self.streets.oracle, standing);
    }

    /// Whether it waited in vain, though nothing goes wrong any more.
    fn hangs(&mut self) -> bool {
        let hangs = self.is_out_of_patience();
        if hangs {
            let awaited = self.desk().awaited();
            let note = self.desk().note();
            self.oracle().violated(format!(
                "{} hangs after the storm: {awaited:?} are awaited, and it stands at {note:?}",
                self.label
            ));
            self.leaves(Standing::Left);
        }
        hangs
    }

    /// Follows the session's stream over all its connections, until it is over or nothing more is awaited.
    async fn follow(&mut self, talk: Talk) {
        let mut talk = Some(talk);
        loop {
            if let Some(talk) = talk.take()
                && self.read(talk).await == Next::Rest
            {
                return;
            }
            let cursor = self.desk().cursor.clone();
            let forgets = self.chance.percent(self.streets.ways.forgets) && !self.streets.calm.is_here();
            let Some(cursor) = cursor.filter(|_| !forgets) else {
                self.oracle().counted("elders without a cursor");
                return self.leaves(Standing::Left);
            };
            if self.desk().standing != Standing::Alive || self.hangs() {
                return;
            }
            pass(self.chance.millis(100, 2_000)).await;
            match self.come_back(&cursor).await {
                Answered::Stream(head, stream) => {
                    let by = stream.wire.served_by();
                    self.desk()
                        .opened(&self.streets.oracle, (&head, by), Some(&cursor));
                    talk = Some(stream);
                }
                Answered::Whole(head, _) if head.status() == 404 => {
                    self.oracle().counted("elders told 404");
                    return self.leaves(Standing::Gone);
                }
                Answered::Whole(head, body) => {
                    let (label, status) = (&self.label, head.status());
                    self.oracle()
                        .violated(format!("{label}: its resume was answered {status} {body}"));
                    return self.leaves(Standing::Left);
                }
                Answered::Lost => {}
            }
        }
    }

    /// Comes back with this cursor.
    async fn come_back(&mut self, cursor: &str) -> Answered {
        let answered = self.send(Request::get(Some(cursor))).await;
        match (answered, self.streets.plant) {
            (Answered::Whole(head, _), Plant::HushesEnds) if head.status() == 404 => {
                // As it looks where a proxy begins another session in the place of one that is over.
                let mut answered = self.send(Request::get(None)).await;
                if let Answered::Stream(head, _) = &mut answered {
                    self.streets.plant.verdict(head, Some(cursor));
                }
                answered
            }
            (answered, _) => answered,
        }
    }

    /// Reads one connection until it ends, its client ends it, or nothing more is awaited.
    async fn read(&mut self, mut talk: Talk) -> Next {
        let mut blocks = Blocks::default();
        loop {
            let piece = timeout(GLANCE, talk.piece()).await;
            if self.desk().standing != Standing::Alive || self.has_rested() || self.hangs() {
                return Next::Rest;
            }
            let Ok(piece) = piece else { continue };
            let piece = match piece {
                Ok(piece) if !piece.is_empty() => piece,
                Ok(_) if blocks.is_whole() => return Next::ComeBack,
                Ok(_) => {
                    self.oracle()
                        .violated(format!("{}: half a frame at an orderly end", self.label));
                    return Next::ComeBack;
                }
                Err(_) => return Next::ComeBack,
            };
            let mut read = blocks.add(&piece);
            loop {
                match read.and_then(|()| blocks.next()) {
                    Ok(None) => break,
                    Ok(Some(event)) => {
                        if self.had(event).await == Next::ComeBack {
                            return Next::ComeBack;
                        }
                    }
                    Err(error) => {
                        self.oracle()
                            .violated(format!("{}: a malformed stream: {error}", self.label));
                        return Next::ComeBack;
                    }
                }
                read = Ok(());
            }
        }
    }

    /// One event came; whether the client goes on reading.
    async fn had(&mut self, event: Event) -> Next {
        if self.desk().standing != Standing::Alive {
            // It heard of its session's end elsewhere, and reads no more.
            return Next::ComeBack;
        }
        if self
            .streets
            .plant
            .takes(&event, &self.streets.wake, &self.streets.oracle)
        {
            return Next::Rest;
        }
        for event in self.streets.plant.events(event, &mut self.chance) {
            let plant = self.streets.plant;
            let wanted = self.desk().took(&self.streets.oracle, &event, plant);
            let endpoint = self.desk().endpoint.clone();
            match (wanted, endpoint) {
                (Wanted::Answer(id), Some(endpoint)) => {
                    let mut client = self.another(&id);
                    tokio::spawn(async move {
                        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[]}}}}"#);
                        client.makes = None;
                        client.post(&endpoint, &answer).await;
                    });
                }
                (Wanted::Answer(_), None) | (Wanted::Nothing, _) => {}
            }
        }
        if self.streets.calm.is_here() {
            return Next::Rest;
        }
        if self.chance.percent(self.streets.ways.stalls) {
            pass(self.chance.millis(100, 60_000)).await;
        }
        if self.chance.percent(self.streets.ways.cuts) {
            self.oracle()
                .saw(format!("{} cuts its own connection", self.label));
            return Next::ComeBack;
        }
        Next::Rest
    }

    /// Whether nothing more is awaited: each call has its outcome, and where notes came, another one has.
    fn has_rested(&mut self) -> bool {
        if !self.streets.calm.is_here() || !self.desk().has_called || !self.desk().awaited().is_empty() {
            return false;
        }
        let told = self.streets.site.told(&self.label);
        let goal = *self.goal.get_or_insert(told);
        self.desk().note().is_none_or(|note| note > goal)
    }

    async fn post(&mut self, endpoint: &str, body: &str) -> Answered {
        let request = Request {
            method: "POST",
            target: endpoint,
            cursor: None,
            body,
        };
        self.send(request).await
    }

    /// Introduces itself, and makes these calls while the session stands. Up to which of them it came.
    async fn make_calls(mut self, calls: std::ops::Range<u64>) -> u64 {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2024-11-05", "capabilities": {"roots": {}},
            "clientInfo": {"name": self.label, "version": "1"}}});
        let endpoint = loop {
            pass(self.chance.millis(10, 100)).await;
            let desk = self.desk();
            match (&desk.endpoint, desk.standing) {
                (_, Standing::Gone | Standing::Left) => return calls.start,
                (Some(endpoint), Standing::Alive) => break endpoint.clone(),
                (None, Standing::Alive) => {}
            }
        };
        self.post(&endpoint, &hello.to_string()).await;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&endpoint, &initialized.to_string()).await;
        for id in calls.clone() {
            pass(self.chance.millis(1, 6_000)).await;
            if self.desk().standing != Standing::Alive {
                return id;
            }
            self.call(&endpoint, id).await;
        }
        self.desk().has_called = true;
        calls.end
    }

    /// Makes one call: its outcome comes on the stream, unless its POST is refused.
    async fn call(&mut self, endpoint: &str, nth: u64) {
        let (id, steps, pace) = (10 + nth, self.chance.below(8), self.chance.between(0, 1_500));
        let token = format!("{}:{id}", self.label);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "work",
            "arguments": {"token": token, "steps": steps, "pace": pace}, "_meta": {"progressToken": token}}})
        .to_string();
        let oracle = Arc::clone(&self.streets.oracle);
        oracle.called(&token);
        oracle.counted("elder calls");
        self.desk().calls(id, &token, steps);
        self.makes = Some(token.clone());
        let (first, mut times) = (Instant::now(), 0);
        loop {
            times += 1;
            // With another credential it is another request.
            self.renewed = if times == 1 {
                self.streets.papers.renewed
            } else {
                0
            };
            let answered = self.post(endpoint, &body).await;
            let status = match &answered {
                Answered::Whole(head, _) => head.status(),
                Answered::Stream(head, _) => head.status(),
                Answered::Lost => 0,
            };
            let mut desk = self.desk();
            match (answered, status) {
                (Answered::Lost, _) => {
                    drop(desk);
                    if first.elapsed() < SAME_REQUEST && self.chance.percent(self.streets.ways.repeats) {
                        oracle.counted("repeats");
                        pass(self.chance.millis(0, 1_000)).await;
                        continue;
                    }
                    return self.desk().gives_up(&oracle, id, "its POST was lost");
                }
                (Answered::Whole(..), 202) => return,
                (Answered::Whole(..), 404) => {
                    let outcome = match times {
                        1 => Outcome::NotExecuted("404".to_owned()),
                        _ => Outcome::Unknown("404".to_owned()),
                    };
                    desk.told(&oracle, id, outcome);
                    return desk.ended(&oracle, Standing::Gone);
                }
                // It says nothing of whether it ran, and where another proxy holds the stream the answer may still come.
                (Answered::Whole(..), 502 | 504) => return desk.gives_up(&oracle, id, "its POST failed"),
                (Answered::Whole(..), 503) => {
                    return desk.told(&oracle, id, Outcome::NotExecuted("stalled".to_owned()));
                }
                (Answered::Whole(_, body), _) => {
                    return oracle.violated(format!("{token} was answered {status} {body}"));
                }
                (Answered::Stream(..), _) => {
                    return oracle.violated(format!("{token} was answered with a stream"));
                }
            }
        }
    }
}

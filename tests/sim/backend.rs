//! Replicas of an MCP server, played by hand: sessions in their memory, calls that take time, a standalone stream.
//! Law: everything that they emit carries its owner's name and a number, so that the oracle knows where it belongs.
//! What a replica emits while nobody listens is lost, as it is at real servers without a store.
//! Next: `backend/calls.rs`.

#[path = "backend/calls.rs"]
mod calls;
#[path = "backend/elders.rs"]
mod elders;
#[path = "backend/listening.rs"]
mod listening;
#[path = "backend/stored.rs"]
mod stored;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::clock::pass;
use crate::http::{Head, Talk};
use crate::kept::{Archive, Over};
use crate::modern::REVISION;
use crate::oracle::Oracle;
use crate::papers::{self, Binding};
use crate::place::replica_address;
use crate::weather::{BackendWays, Listening, Opening, Storing};
use crate::wires::{Wire, Wires};

/// Every replica, and what they count together.
pub(crate) struct Site {
    net: Arc<Wires>,
    oracle: Arc<Oracle>,
    ways: BackendWays,
    replicas: Vec<Mutex<Replica>>,
    proxies: usize,
    /// Numbered notes told so far, by client.
    told: Mutex<BTreeMap<String, u64>>,
    /// The newest session of each client. An older one, which its proxy has left, may not have heard of its end: what it
    /// says is for nobody.
    newest: Mutex<BTreeMap<String, String>>,
    chance: Mutex<Chance>,
    hushed: AtomicBool,
}

#[derive(Default)]
struct Replica {
    life: u32,
    begun: u64,
    sessions: BTreeMap<String, Session>,
    asked: BTreeMap<String, u32>,
    work: Vec<AbortHandle>,
    paused_until: Option<Instant>,
}

struct Session {
    label: String,
    spoken: Spoken,
    primes: Priming,
    archive: Archive,
    listener: Option<(u64, UnboundedSender<String>)>,
    /// The last notes, for those who say them again.
    said: VecDeque<String>,
}

/// Notes that are said again on a new stream, by those who do.
const SAID_MAX: usize = 16;

/// The transport of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Streamable,
    HttpSse,
}

/// Whether a session's streams begin with an id and no data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Priming {
    Yes,
    No,
}

/// The name of the standalone stream in a store.
const NOTES: &str = "notes";

/// Where a request was taken.
#[derive(Clone)]
struct Here {
    site: Arc<Site>,
    nth: usize,
}

impl Site {
    pub(crate) fn open(
        (net, oracle): (&Arc<Wires>, &Arc<Oracle>),
        ways: BackendWays,
        (replicas, proxies): (usize, usize),
        chance: Chance,
    ) -> Arc<Self> {
        let site = Arc::new(Self {
            net: Arc::clone(net),
            oracle: Arc::clone(oracle),
            ways,
            replicas: (0..replicas).map(|_| Mutex::default()).collect(),
            proxies,
            told: Mutex::default(),
            newest: Mutex::default(),
            chance: Mutex::new(chance),
            hushed: AtomicBool::new(false),
        });
        for nth in 0..replicas {
            tokio::spawn(Arc::clone(&site).accept(nth));
        }
        tokio::spawn(Arc::clone(&site).tell());
        site
    }

    /// Whether there were two processes of the proxy at a time.
    fn had_two_proxies(&self) -> bool {
        self.proxies > 1 || self.oracle.count("proxies drained") > 0
    }

    fn replica(&self, nth: usize) -> MutexGuard<'_, Replica> {
        self.replicas[nth].lock().expect("no panic while it is held")
    }

    fn chance(&self) -> MutexGuard<'_, Chance> {
        self.chance.lock().expect("no panic while it is held")
    }

    async fn accept(self: Arc<Self>, nth: usize) {
        let door = self.net.open(None, replica_address(nth));
        loop {
            let wire = door.next().await;
            let here = Here {
                site: Arc::clone(&self),
                nth,
            };
            let work = tokio::spawn(async move {
                let _ = here.serve(wire).await;
            });
            let mut replica = self.replica(nth);
            replica.work.retain(|work| !work.is_finished());
            replica.work.push(work.abort_handle());
        }
    }

    /// Nobody is told anything any more.
    pub(crate) fn hush(&self) {
        self.hushed.store(true, Ordering::Relaxed);
    }

    /// Tells notes to whoever listens, now and then.
    async fn tell(self: Arc<Self>) {
        while !self.hushed.load(Ordering::Relaxed) {
            let time = self.chance().millis(5, 900);
            pass(time).await;
            let nth = self.chance().below(self.replicas.len() as u64) as usize;
            if self.is_paused(nth) {
                continue;
            }
            let mut replica = self.replica(nth);
            let newest = self.newest.lock().expect("no panic while it is held").clone();
            let mut listening: Vec<_> = replica
                .sessions
                .iter_mut()
                .filter(|(sid, session)| newest.get(&session.label) == Some(*sid))
                .map(|(_, session)| session)
                .filter(|session| session.listener.is_some() || session.archive.has(NOTES))
                .collect();
            if listening.is_empty() {
                continue;
            }
            let chosen = self.chance().below(listening.len() as u64) as usize;
            self.note(listening[chosen]);
        }
    }

    /// Tells one note to this session's client.
    fn note(&self, session: &mut Session) {
        let mut told = self.told.lock().expect("no panic while it is held");
        let number = told.entry(session.label.clone()).or_default();
        *number += 1;
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params":
            {"level": "info", "logger": "backend", "data": {"tag": session.label, "seq": number}}});
        if self.ways.listening == Listening::Echoing {
            session.said.push_back(note.to_string());
            if session.said.len() > SAID_MAX {
                session.said.pop_front();
            }
        }
        if self.ways.storing != Storing::None && session.spoken == Spoken::Streamable {
            session.archive.add(NOTES, note.to_string(), Over::No);
        } else if let Some((_, to)) = &session.listener {
            let _ = to.send(note.to_string());
        }
    }

    /// Notes told to this client so far.
    pub(crate) fn told(&self, label: &str) -> u64 {
        let told = self.told.lock().expect("no panic while it is held");
        told.get(label).copied().unwrap_or(0)
    }

    fn is_paused(&self, nth: usize) -> bool {
        self.replica(nth)
            .paused_until
            .is_some_and(|until| until > Instant::now())
    }

    /// The replica does nothing for so long.
    pub(crate) fn pause(&self, nth: usize, time: Duration) {
        self.replica(nth).paused_until = Some(Instant::now() + time);
    }

    /// The replica loses everything, and is away for so long.
    pub(crate) fn restart(self: &Arc<Self>, nth: usize, away: Duration) {
        let mut replica = self.replica(nth);
        for work in std::mem::take(&mut replica.work) {
            work.abort();
        }
        *replica = Replica {
            life: replica.life + 1,
            begun: replica.begun,
            ..Replica::default()
        };
        if away.is_zero() {
            return;
        }
        self.net.refuse(replica_address(nth));
        let site = Arc::clone(self);
        tokio::spawn(async move {
            pass(away).await;
            site.net.take(replica_address(nth));
        });
    }
}

impl Here {
    fn replica(&self) -> MutexGuard<'_, Replica> {
        self.site.replica(self.nth)
    }

    /// Waits while the replica is paused.
    async fn breathe(&self) {
        loop {
            let until = self.replica().paused_until;
            match until {
                Some(until) if until > Instant::now() => tokio::time::sleep_until(until).await,
                Some(_) | None => return,
            }
        }
    }

    async fn serve(&self, wire: Wire) -> io::Result<()> {
        let mut talk = Talk::new(wire);
        while let Some(head) = talk.head().await? {
            let body = talk.whole().await?;
            self.breathe().await;
            let elder = head
                .first
                .get(1)
                .and_then(|target| target.strip_prefix(elders::MESSAGES));
            let sid = elder
                .or(head.field("mcp-session-id"))
                .unwrap_or_default()
                .to_owned();
            if let Some(refusal) = self.refusal(&sid, &head) {
                let field = "www-authenticate: Bearer\r\n";
                answer(&mut talk, refusal, field, "").await?;
                continue;
            }
            match head.first.first().map(String::as_str) {
                Some("POST") if elder.is_some() => self.elder_post(&mut talk, &sid, &body).await?,
                Some("GET") if sid.is_empty() => return self.elder_get(talk, &head).await,
                Some("POST") if head.field("mcp-protocol-version") == Some(REVISION) => {
                    self.stand_alone(&mut talk, &head, &body).await?;
                }
                Some("POST") => self.post(&mut talk, &sid, &body).await?,
                Some("GET") => return self.get(talk, &sid, &head).await,
                Some("DELETE") => {
                    let gone = self.replica().sessions.remove(&sid);
                    let status = if gone.is_some() { "200 OK" } else { "404 Not Found" };
                    answer(&mut talk, status, "", "").await?;
                }
                _ => answer(&mut talk, "405 Method Not Allowed", "", "").await?,
            }
        }
        Ok(())
    }

    /// The status by which a caller is turned away, if it is.
    fn refusal(&self, sid: &str, head: &Head) -> Option<&'static str> {
        let papers = self.site.ways.papers;
        if papers.kind == papers::Kind::None {
            return None;
        }
        let Some(caller) = papers.whose(head.field("authorization")) else {
            return Some("401 Unauthorized");
        };
        let replica = self.replica();
        let session = replica.sessions.get(sid)?;
        if session.label == caller {
            return None;
        }
        match (papers.kind, papers.binding) {
            (_, Binding::Bound) => Some("403 Forbidden"),
            (papers::Kind::None | papers::Kind::Opaque, Binding::Loose) => None,
            (papers::Kind::Signed, Binding::Loose) => {
                let (label, first) = (&session.label, head.first.join(" "));
                self.site.oracle.violated(format!(
                    "{caller} came to the session of {label} at a backend: {first}"
                ));
                None
            }
        }
    }

    async fn post(&self, talk: &mut Talk, sid: &str, body: &str) -> io::Result<()> {
        let Ok(message) = serde_json::from_str::<Value>(body) else {
            self.site.oracle.violated(format!("a backend got {body:?}"));
            return Ok(());
        };
        let knows = self.replica().sessions.contains_key(sid);
        if let (Some(calls), true) = (message.as_array(), knows) {
            return self.batch(talk, calls).await;
        }
        let method = message["method"].as_str().unwrap_or_default();
        if method == "initialize" {
            return self.initialize(talk, &message).await;
        }
        if !knows {
            let gone = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}});
            return answer(talk, "404 Not Found", "", &gone.to_string()).await;
        }
        match method {
            "tools/call" if self.site.ways.storing != Storing::None => {
                self.stored_call(talk, sid, &message).await
            }
            "tools/call" => self.call(talk, &message).await,
            "" => {
                self.answered(&message);
                answer(talk, "202 Accepted", "", "").await
            }
            _ if message.get("id").is_none() => answer(talk, "202 Accepted", "", "").await,
            _ => {
                let result = json!({"jsonrpc": "2.0", "id": message["id"], "result": {}});
                answer(talk, "200 OK", "", &result.to_string()).await
            }
        }
    }

    /// A request of the revision that has no sessions.
    async fn stand_alone(&self, talk: &mut Talk, head: &Head, body: &str) -> io::Result<()> {
        for field in ["mcp-session-id", "last-event-id"] {
            if let Some(value) = head.field(field) {
                let what = format!("a request without a session came with {field}: {value}");
                self.site.oracle.violated(what);
            }
        }
        match serde_json::from_str::<Value>(body) {
            Ok(message) => self.call(talk, &message).await,
            Err(_) => {
                self.site.oracle.violated(format!("a backend got {body:?}"));
                Ok(())
            }
        }
    }

    async fn initialize(&self, talk: &mut Talk, message: &Value) -> io::Result<()> {
        let label = message["params"]["clientInfo"]["name"]
            .as_str()
            .unwrap_or_default();
        let sid = {
            let mut replica = self.replica();
            replica.begun += 1;
            let sid = format!("b{}-{}-{}", self.nth, replica.life, replica.begun);
            let primes = message["params"]["protocolVersion"] == "2025-11-25";
            let session = Session {
                label: label.to_owned(),
                spoken: Spoken::Streamable,
                primes: if primes { Priming::Yes } else { Priming::No },
                archive: Archive::default(),
                listener: None,
                said: VecDeque::new(),
            };
            let mut newest = self.site.newest.lock().expect("no panic while it is held");
            newest.insert(label.to_owned(), sid.clone());
            replica.sessions.insert(sid.clone(), session);
            sid
        };
        let result = json!({"jsonrpc": "2.0", "id": message["id"], "result": {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"logging": {}, "tools": {"listChanged": true}},
            "serverInfo": {"name": "replica", "version": "1"}}});
        let field = format!("mcp-session-id: {sid}\r\n");
        match self.site.ways.opening {
            Opening::Json => answer(talk, "200 OK", &field, &result.to_string()).await,
            Opening::Stream => {
                stream_head(talk, &field).await?;
                self.event(talk, None, &result.to_string()).await?;
                talk.send("0\r\n\r\n").await
            }
        }
    }

    /// A response to something that this replica asked.
    fn answered(&self, message: &Value) {
        let id = message["id"].to_string();
        let times = self.replica().asked.get_mut(&id).map(|times| {
            *times += 1;
            *times
        });
        match times {
            Some(1) => self.site.oracle.counted("answers to backends"),
            // A client may answer through one proxy what another one gives up for it: one beside it, or one that drains.
            Some(2) if self.site.had_two_proxies() && message.get("error").is_some() => {
                self.site.oracle.counted("questions given up beside an answer");
            }
            Some(times) => self
                .site
                .oracle
                .violated(format!("{id} of a backend's was answered {times} times")),
            None => self.site.oracle.violated(format!(
                "replica {} got an answer to {id}, which it did not ask",
                self.nth
            )),
        }
    }
}

async fn answer(talk: &mut Talk, status: &str, fields: &str, body: &str) -> io::Result<()> {
    let kind = if body.is_empty() {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    talk.send(&format!(
        "HTTP/1.1 {status}\r\n{kind}{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await
}

async fn stream_head(talk: &mut Talk, fields: &str) -> io::Result<()> {
    talk.send(&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{fields}transfer-encoding: chunked\r\n\r\n"
    ))
    .await
}

//! A crowd: more sessions than file descriptors allow in reality, each with its standalone stream open, cut all at once and
//! back within a second.
//! Law: each that comes back gets exactly the event that it missed, and nothing is left when all are gone. What a session,
//! an event, a call and a return cost is told, in computing time of the whole world, never asserted.
//! Next: `run.rs`.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::client::Calm;
use crate::clock::pass;
use crate::http::{Blocks, Head, Talk};
use crate::oracle::{Oracle, Process};
use crate::place::{Place, Sphere, Start, proxy_address, replica_address};
use crate::plant::Plant;
use crate::shelf::{Owner, Shelf};
use crate::weather::StoreWays;
use crate::wires::{Door, Host, Temper, Wires};

/// Replicas: with fewer, a replica's bound of exchanges under way is met first.
const REPLICAS: usize = 8;
/// Those who do something at a time.
const AT_A_TIME: usize = 256;
/// All come back within this time.
const BACK_WITHIN_MS: u64 = 1_000;
/// Then all sessions of a crowd that left are over; `SETTINGS` see to it.
const OVER: Duration = Duration::from_secs(10 * 60);

/// Room for all, and an end that is not waited for through millions of pings.
const SETTINGS: [&str; 6] = [
    "server.connections_max=1000000",
    "memory.replay_max=1GiB",
    "upstream.session.sessions_max=1000000",
    "upstream.session.session_idle=3m",
    "upstream.session.ping_after=1h",
    "upstream.stream.detached_max=2m",
];

/// What one of the crowd costs, in nanoseconds of computing: the whole world's, clients and servers included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// To open a session and its standalone stream, with one event on it.
    pub(crate) open: u64,
    /// One more event.
    pub(crate) event: u64,
    /// One call, on a connection of its own.
    pub(crate) call: u64,
    /// To come back with a cursor and get what was missed.
    pub(crate) back: u64,
}

/// The servers' side of the crowd.
struct Servers {
    begun: AtomicUsize,
    /// Who listens, by the servers' own names of sessions.
    listeners: Mutex<HashMap<String, UnboundedSender<u64>>>,
}

impl Servers {
    async fn serve(self: Arc<Self>, door: Door) {
        loop {
            let talk = Talk::new(door.next().await);
            tokio::spawn(Arc::clone(&self).converse(talk));
        }
    }

    async fn converse(self: Arc<Self>, mut talk: Talk) {
        while let Ok(Some(head)) = talk.head().await {
            let Ok(body) = talk.whole().await else { return };
            let went_well = match head.first[0].as_str() {
                "GET" => self.stream(&head, &mut talk).await,
                "POST" => talk.send(&self.answer(&body)).await,
                _ => talk.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await,
            };
            if went_well.is_err() {
                return;
            }
        }
    }

    fn answer(&self, body: &str) -> String {
        let json = |fields: &str, result: &str| {
            let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
            let text = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, value["id"]);
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{fields}content-length: {}\r\n\r\n{text}",
                text.len()
            )
        };
        if body.contains(r#""method":"initialize""#) {
            let name = self.begun.fetch_add(1, Ordering::Relaxed);
            json(
                &format!("mcp-session-id: s{name}\r\n"),
                r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"crowd","version":"1"}}"#,
            )
        } else if body.contains(r#""id":"#) {
            json("", r#"{"content":[]}"#)
        } else {
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned()
        }
    }

    async fn stream(&self, head: &Head, talk: &mut Talk) -> io::Result<()> {
        let session = head.field("mcp-session-id").expect("a session").to_owned();
        let (to, mut events) = unbounded_channel();
        self.listeners().insert(session, to);
        talk.send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await?;
        loop {
            let nth = select! {
                nth = next(&mut events) => nth,
                // Whoever asked leaves.
                _ = talk.head() => return Ok(()),
            };
            let event = format!("data: {}\n\n", note(nth));
            talk.send(&format!("{:x}\r\n{event}\r\n", event.len())).await?;
        }
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, HashMap<String, UnboundedSender<u64>>> {
        self.listeners.lock().expect("no panic while it is held")
    }

    /// Says this to everybody who listens.
    fn say(&self, nth: u64) {
        for to in self.listeners().values() {
            let _gone = to.send(nth);
        }
    }
}

async fn next(events: &mut UnboundedReceiver<u64>) -> u64 {
    match events.recv().await {
        Some(nth) => nth,
        None => std::future::pending().await,
    }
}

fn note(nth: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":{nth}}}}}"#
    )
}

/// One of the crowd.
struct One {
    net: Arc<Wires>,
    token: String,
    stream: Option<(Talk, Blocks)>,
    newest: String,
}

impl One {
    async fn open(net: Arc<Wires>) -> Self {
        let mut one = Self {
            net,
            token: String::new(),
            stream: None,
            newest: String::new(),
        };
        let (head, _) = one
            .post(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"one","version":"1"}}}"#)
            .await;
        one.token = head.field("mcp-session-id").expect("a session").to_owned();
        let (head, _) = one
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await;
        assert_eq!(head.status(), 202);
        one.listen("live").await;
        one
    }

    fn fields(&self) -> String {
        let at = proxy_address(0);
        let session = match self.token.is_empty() {
            true => String::new(),
            false => format!(
                "mcp-session-id: {}\r\nmcp-protocol-version: 2025-11-25\r\n",
                self.token
            ),
        };
        format!("host: {at}\r\naccept: application/json, text/event-stream\r\n{session}")
    }

    async fn post(&self, body: &str) -> (Head, String) {
        let mut talk = Talk::new(self.net.connect(proxy_address(0)).expect("the proxy is there"));
        let fields = self.fields();
        let length = body.len();
        let request = format!(
            "POST /mcp HTTP/1.1\r\n{fields}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        talk.send(&request).await.expect("it is taken");
        let head = talk.head().await.expect("a head").expect("an answer");
        let body = talk.whole().await.expect("a body");
        (head, body)
    }

    /// Opens its stream, or comes back to it: this verdict, then the priming event.
    async fn listen(&mut self, verdict: &str) {
        let mut talk = Talk::new(self.net.connect(proxy_address(0)).expect("the proxy is there"));
        let cursor = match self.newest.is_empty() {
            true => String::new(),
            false => format!("last-event-id: {}\r\n", self.newest),
        };
        let request = format!("GET /mcp HTTP/1.1\r\n{}{cursor}\r\n", self.fields());
        talk.send(&request).await.expect("it is taken");
        let head = talk.head().await.expect("a head").expect("an answer");
        let said = head.field("throughline-continuity").unwrap_or_default();
        assert!(said.starts_with(verdict), "{} {said}", head.status());
        self.stream = Some((talk, Blocks::default()));
        let prime = self.event().await;
        assert_eq!(prime, "", "a priming event");
    }

    /// The next event's data.
    async fn event(&mut self) -> String {
        let (talk, blocks) = self.stream.as_mut().expect("a stream");
        loop {
            if let Some(event) = blocks.next().expect("events") {
                self.newest = event.id.expect("an id");
                return event.data.unwrap_or_default();
            }
            let piece = talk.piece().await.expect("a piece");
            assert!(!piece.is_empty(), "the stream ended");
            blocks.add(&piece).expect("text");
        }
    }

    async fn hear(mut self, nth: u64) -> Self {
        assert_eq!(self.event().await, note(nth));
        self
    }

    async fn call(self) -> Self {
        let (head, body) = self
            .post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#)
            .await;
        assert_eq!((head.status(), body.contains("content")), (200, true), "{body}");
        self
    }

    async fn come_back(mut self, nth: u64, later: Duration) -> Self {
        pass(later).await;
        self.listen("resumed").await;
        self.hear(nth).await
    }
}

/// Does this with each of them, some at a time.
async fn each<Of, Does>(crowd: Vec<Of>, mut does: impl FnMut(Of) -> Does, at_a_time: usize) -> Vec<One>
where
    Does: Future<Output = One> + Send + 'static,
{
    let mut done = Vec::with_capacity(crowd.len());
    let mut doing = JoinSet::new();
    for one in crowd {
        if doing.len() == at_a_time {
            done.extend(doing.join_next().await.map(|one| one.expect("no panic")));
        }
        doing.spawn(does(one));
    }
    done.extend(doing.join_all().await);
    done
}

/// Computing time of this thread since it began, in nanoseconds.
fn computed() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Plays a crowd of this size, from its coming to its end.
pub(crate) fn play(size: usize) -> Costs {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(live(size))
}

async fn live(size: usize) -> Costs {
    let mut chance = Chance::new(1);
    let oracle = Arc::new(Oracle::new());
    let temper = Temper {
        latency_ms: 0,
        room_min: 1 << 16,
        bite_max: 0,
    };
    let net = Arc::new(Wires::new(chance.fork("wires"), temper));
    let servers = Arc::new(Servers {
        begun: AtomicUsize::new(0),
        listeners: Mutex::default(),
    });
    for nth in 0..REPLICAS {
        let door = net.open(None, replica_address(nth));
        tokio::spawn(Arc::clone(&servers).serve(door));
    }
    let place = proxy(&net, &oracle, &chance);
    let cost = |since: u64| computed().saturating_sub(since) / size as u64;

    let since = computed();
    let crowd = each((0..size).collect(), |_| One::open(Arc::clone(&net)), AT_A_TIME).await;
    servers.say(1);
    let crowd = each(crowd, |one| one.hear(1), size).await;
    let open = cost(since);

    let since = computed();
    servers.say(2);
    let crowd = each(crowd, |one| one.hear(2), size).await;
    let event = cost(since);

    let since = computed();
    let mut crowd = each(crowd, One::call, AT_A_TIME).await;
    let call = cost(since);

    let since = computed();
    for one in &mut crowd {
        one.stream = None;
    }
    servers.say(3);
    let back_within = |chance: &mut Chance| chance.millis(0, BACK_WITHIN_MS);
    let crowd = each(crowd, |one| one.come_back(3, back_within(&mut chance)), size).await;
    let back = cost(since);

    drop(crowd);
    pass(OVER).await;
    assert_eq!(place.left(), Vec::<String>::new());
    assert_eq!(oracle.violations(), Vec::<String>::new());
    Costs {
        open,
        event,
        call,
        back,
    }
}

fn proxy(net: &Arc<Wires>, oracle: &Arc<Oracle>, chance: &Chance) -> Place {
    let process = Process(0);
    let owner = Owner {
        process,
        oracle: Arc::clone(oracle),
        calm: Arc::new(Calm::default()),
    };
    let store = Shelf::new(
        1 << 30,
        chance.fork("store"),
        (StoreWays::default(), Plant::None),
        owner,
    );
    let world = Arc::new(Sphere {
        net: Arc::new(Host {
            wires: Arc::clone(net),
            process,
        }),
        store,
        chance: Mutex::new(chance.fork("proxy")),
        began: Instant::now(),
    });
    let settings = SETTINGS.map(str::to_owned);
    Place::open(
        &world,
        &Start {
            at: proxy_address(0),
            replicas: REPLICAS,
            settings: &settings,
        },
    )
}

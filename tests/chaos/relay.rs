//! A relay that hurts connections by rules: refuses, cuts, resets, stalls, delays, splits and slows what passes.
//! Law: it knows no HTTP and hurts bytes; which connection, and after which event or byte, is a rule's, drawn from a seed.
//! Everything that it does is a line of the history, with the port of the connection that it was done to.
//! Why not the quick start's: that one follows exchanges, and can neither hold a request up nor refuse a connection.
//! Next: `client.rs`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, yield_now};

use crate::chance::Chance;
use crate::oracle::Oracle;
use crate::pace::pass;
use crate::port::Held;

/// Most bytes that are held at a time.
const PIECE_BYTES: usize = 16 * 1024;
/// So many bytes of a split stream are surely segments of their own: each waits for the next tick.
const BYTES_APART: usize = 200;

/// What is done to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hurt {
    /// Both sides are closed in an orderly way.
    Cut,
    /// Both sides are reset.
    Reset,
    /// Nothing passes in either direction for so long.
    Stall(Duration),
    /// Each piece comes so much later.
    Delay(Duration),
    /// Each byte is sent by itself.
    Split,
    /// For so long one byte passes each second.
    Slow(Duration),
}

/// Where on a connection it begins, counted in what its server has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    /// Behind the line of data of so many events, and so many bytes more.
    Event(u64, u64),
    /// Behind so many bytes.
    Byte(u64),
}

/// What happens to some connections, as long as it is in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rule {
    /// What is done.
    pub(crate) hurt: Hurt,
    /// To one connection of so many.
    pub(crate) one_in: u64,
    /// Behind up to so many events.
    pub(crate) events_max: u64,
}

impl Rule {
    /// What this rule has for the next connection.
    fn draw(self, chance: &mut Chance) -> Option<(Point, Hurt)> {
        let (is_hurt, by_event) = (chance.below(self.one_in) == 0, chance.percent(60));
        let point = match by_event {
            true => Point::Event(chance.below(self.events_max + 1), chance.below(120)),
            false => Point::Byte(chance.below(300 * self.events_max)),
        };
        is_hurt.then_some((point, self.hurt))
    }
}

/// Whether anybody is let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// Connections are accepted.
    Open,
    /// They are refused, by the system.
    Shut,
}

/// A running relay. It ends when it is dropped, with all its connections.
pub(crate) struct Relay {
    /// Where clients connect.
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    door: watch::Sender<Door>,
    task: JoinHandle<()>,
}

struct Shared {
    name: &'static str,
    target: Mutex<SocketAddr>,
    rule: Mutex<Option<Rule>>,
    chance: Mutex<Chance>,
    oracle: Arc<Oracle>,
    turned_away: TurnedAway,
}

/// How many connections found nobody behind the relay.
#[derive(Clone, Default)]
pub(crate) struct TurnedAway(Arc<AtomicU64>);

impl TurnedAway {
    /// So many, so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn did(&self, from: SocketAddr, what: &str) {
        self.oracle.counted("hurts");
        self.oracle
            .saw(format!("{}: port {}: {what}", self.name, from.port()));
    }
}

impl Relay {
    /// Starts one in front of `target`; nothing is hurt yet.
    pub(crate) async fn start(
        name: &'static str,
        target: SocketAddr,
        (chance, oracle): (Chance, Arc<Oracle>),
    ) -> io::Result<Self> {
        let port = Held::any()?;
        let address = port.address();
        let listener = TcpListener::bind(address).await?;
        let shared = Arc::new(Shared {
            name,
            target: Mutex::new(target),
            rule: Mutex::new(None),
            chance: Mutex::new(chance),
            oracle,
            turned_away: TurnedAway::default(),
        });
        let (door, standing) = watch::channel(Door::Open);
        let task = tokio::spawn(accept((port, listener), Arc::clone(&shared), standing));
        Ok(Self {
            address,
            shared,
            door,
            task,
        })
    }

    /// Who finds nobody behind it.
    pub(crate) fn turned_away(&self) -> TurnedAway {
        self.shared.turned_away.clone()
    }

    /// Connections go there from now on.
    pub(crate) fn aim(&self, target: SocketAddr) {
        *self.shared.target.lock().expect("no panic while it is held") = target;
    }

    /// This is in force for connections that come from now on; `None` = they pass.
    pub(crate) fn rule(&self, rule: Option<Rule>) {
        self.shared.oracle.saw(format!("{}: {rule:?}", self.shared.name));
        *self.shared.rule.lock().expect("no panic while it is held") = rule;
    }

    /// Opens or shuts the door; who is in stays in.
    pub(crate) fn door(&self, door: Door) {
        self.shared
            .oracle
            .saw(format!("{}: door {door:?}", self.shared.name));
        self.door
            .send_if_modified(|standing| std::mem::replace(standing, door) != door);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept((port, listener): (Held, TcpListener), shared: Arc<Shared>, mut door: watch::Receiver<Door>) {
    let mut listener = Some(listener);
    // The connections live in this set, so that they end with the relay.
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            moved = door.changed() => match moved {
                Ok(()) => {
                    let standing = *door.borrow_and_update();
                    listener = match standing {
                        Door::Open => Some(TcpListener::bind(port.address()).await.expect("the port is ours")),
                        Door::Shut => None,
                    };
                }
                Err(_) => return,
            },
            Some(_) = connections.join_next() => {}
            accepted = accepted => if let Ok((client, from)) = accepted {
                connections.spawn(carry(client, from, Arc::clone(&shared)));
            },
        }
    }
}

/// How a connection's end is passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Orderly,
    Reset,
}

async fn carry(client: TcpStream, from: SocketAddr, shared: Arc<Shared>) {
    let drawn = {
        let rule = *shared.rule.lock().expect("no panic while it is held");
        let mut chance = shared.chance.lock().expect("no panic while it is held");
        rule.and_then(|rule| rule.draw(&mut chance))
    };
    let target = *shared.target.lock().expect("no panic while it is held");
    let Ok(server) = TcpStream::connect(target).await else {
        shared.turned_away.0.fetch_add(1, Ordering::Relaxed);
        return reset(&client);
    };
    let _best_effort = (client.set_nodelay(true), server.set_nodelay(true));
    let gate = tokio::sync::Mutex::new(());
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let mut down = Down {
        from_server,
        to_client,
        gate: &gate,
        point: drawn,
        sent: 0,
        meter: Meter::default(),
    };
    let end = {
        let up = up(&mut from_client, &mut to_server, &gate);
        tokio::select! {
            biased;
            end = down.run(&shared, from) => end,
            end = up => end,
        }
    };
    let client = from_client.reunite(down.to_client).expect("halves of one");
    let server = down.from_server.reunite(to_server).expect("halves of one");
    match end {
        End::Orderly => {
            let (mut client, mut server) = (client, server);
            let _gone = client.shutdown().await;
            let _gone = server.shutdown().await;
        }
        End::Reset => {
            reset(&client);
            reset(&server);
        }
    }
}

/// Makes the coming close of a socket a reset.
fn reset(socket: &TcpStream) {
    let _closed = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

/// What clients send, until they end it.
async fn up(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, gate: &tokio::sync::Mutex<()>) -> End {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = match from.read(&mut piece).await {
            Ok(0) => return End::Orderly,
            Ok(count) => count,
            Err(_) => return End::Reset,
        };
        let _nothing_is_stalled = gate.lock().await;
        if to.write_all(&piece[..count]).await.is_err() {
            return End::Reset;
        }
    }
}

/// What the server sends, and what is done to it.
struct Down<'a> {
    from_server: OwnedReadHalf,
    to_client: OwnedWriteHalf,
    gate: &'a tokio::sync::Mutex<()>,
    point: Option<(Point, Hurt)>,
    sent: u64,
    meter: Meter,
}

impl Down<'_> {
    async fn run(&mut self, shared: &Shared, from: SocketAddr) -> End {
        let mut piece = vec![0; PIECE_BYTES];
        let mut hurt = None;
        loop {
            let count = match self.from_server.read(&mut piece).await {
                Ok(0) => return End::Orderly,
                Ok(count) => count,
                Err(_) => return End::Reset,
            };
            let before = match hurt {
                None => self.reach(&piece[..count]),
                Some(_) => None,
            };
            let passed = match before {
                Some(at) => {
                    if self.to_client.write_all(&piece[..at]).await.is_err() {
                        return End::Reset;
                    }
                    hurt = self.point.map(|(_, hurt)| hurt);
                    let what = format!(
                        "{hurt:?} behind {} events, {} bytes",
                        self.meter.events, self.sent
                    );
                    shared.did(from, &what);
                    at
                }
                None => 0,
            };
            let left = &piece[passed..count];
            let sent = match hurt {
                None => self.to_client.write_all(left).await,
                Some(Hurt::Cut) => return End::Orderly,
                Some(Hurt::Reset) => return End::Reset,
                Some(Hurt::Stall(time)) => {
                    let held = self.gate.lock().await;
                    pass(time).await;
                    drop(held);
                    (hurt, self.point) = (None, None);
                    self.to_client.write_all(left).await
                }
                Some(Hurt::Delay(time)) => {
                    pass(time).await;
                    self.to_client.write_all(left).await
                }
                Some(Hurt::Split) => split(&mut self.to_client, left).await,
                Some(Hurt::Slow(time)) => {
                    let seconds = usize::try_from(time.as_secs()).unwrap_or(0).min(left.len());
                    for byte in &left[..seconds] {
                        if self.to_client.write_all(&[*byte]).await.is_err() {
                            return End::Reset;
                        }
                        pass(Duration::from_secs(1)).await;
                    }
                    (hurt, self.point) = (None, None);
                    self.to_client.write_all(&left[seconds..]).await
                }
            };
            if sent.is_err() {
                return End::Reset;
            }
        }
    }

    /// How many bytes of this piece come before the point, if it is in there.
    fn reach(&mut self, piece: &[u8]) -> Option<usize> {
        let (point, _) = self.point?;
        for (at, byte) in piece.iter().enumerate() {
            if self.meter.is_past(point, self.sent) {
                return Some(at);
            }
            self.sent += 1;
            self.meter.see(*byte);
        }
        None
    }
}

async fn split(to: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    for (at, byte) in bytes.iter().enumerate() {
        to.write_all(&[*byte]).await?;
        match at {
            0..BYTES_APART => pass(Duration::from_millis(1)).await,
            BYTES_APART.. => yield_now().await,
        }
    }
    Ok(())
}

/// Counts the lines of data that went by, and the bytes behind the last one.
#[derive(Default)]
struct Meter {
    events: u64,
    behind: u64,
    /// How much of `\ndata:` the last bytes are.
    like: usize,
    /// Whether the line under way is one of data.
    line: Line,
}

/// What the line under way is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Line {
    #[default]
    Other,
    Data,
}

const DATA: &[u8] = b"\ndata:";

impl Meter {
    fn see(&mut self, byte: u8) {
        self.behind += 1;
        if byte == b'\n' {
            if self.line == Line::Data {
                self.events += 1;
                self.behind = 0;
            }
            self.line = Line::Other;
            self.like = 1;
        } else if DATA.get(self.like) == Some(&byte) {
            self.like += 1;
            if self.like == DATA.len() {
                self.line = Line::Data;
            }
        } else {
            self.like = 0;
        }
    }

    fn is_past(&self, point: Point, sent: u64) -> bool {
        match point {
            Point::Event(events, bytes) => {
                self.events > events || (self.events == events && self.behind >= bytes)
            }
            Point::Byte(byte) => sent >= byte,
        }
    }
}

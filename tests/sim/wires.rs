//! A network in memory: connections with latency, small buffers, half-closes, resets, and peers that die in silence.
//! Law: bytes come whole and in order until the connection ends; how it ends, and when, is chance's.
//! What is not acknowledged is what has not landed; a peer that is gone answers with a reset, as a kernel does.
//! Next: `shelf.rs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use throughline::net::{Authority, Io, Net, Unacked};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::chance::Chance;
use crate::clock::pass;
use crate::oracle::Process;

/// After so long the kernel gives a silent peer up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How a network behaves in one world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    /// Longest way of a byte, in milliseconds.
    pub(crate) latency_ms: u64,
    /// Least bytes under way and unread in one direction.
    pub(crate) room_min: u64,
    /// Most bytes given by one read; 0 = as many as asked for.
    pub(crate) bite_max: u64,
}

/// How a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// Both sides see a reset.
    Reset,
    /// Both sides see the other's orderly end.
    Fin,
    /// Nothing arrives any more; both sides notice much later.
    Silence,
}

/// Which connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Clients,
    Backends,
}

/// The network.
pub(crate) struct Wires {
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    temper: Temper,
    doors: BTreeMap<SocketAddr, Listening>,
    refused: BTreeSet<SocketAddr>,
    dead: BTreeSet<Process>,
    lines: Vec<Weak<Line>>,
    connections: u32,
}

/// Where connections to an address go.
struct Listening {
    to: UnboundedSender<Wire>,
    of: Option<Process>,
}

/// The network as one process of the proxy has it; it ends with the process, though its tasks may linger.
pub(crate) struct Host {
    pub(crate) wires: Arc<Wires>,
    pub(crate) process: Process,
}

/// A listening socket.
pub(crate) struct Door {
    address: SocketAddr,
    incoming: tokio::sync::Mutex<UnboundedReceiver<Wire>>,
}

/// One connection.
struct Line {
    halves: Mutex<[Half; 2]>,
    latency: Duration,
    room: usize,
    bite: usize,
    silent: AtomicBool,
    to: SocketAddr,
    /// Which process opened it, and which took it: none at the end of a client or a backend.
    ends: [Option<Process>; 2],
}

/// What travels towards one end.
#[derive(Default)]
struct Half {
    flying: VecDeque<u8>,
    landed: VecDeque<u8>,
    fin: Fin,
    broken: Option<io::ErrorKind>,
    /// The end that reads here is gone.
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Fin {
    #[default]
    No,
    Flying,
    Landed,
}

impl Half {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn settle(&mut self) {
        if self.fin == Fin::Flying && self.flying.is_empty() {
            self.fin = Fin::Landed;
        }
        self.wake();
    }
}

impl Line {
    fn halves(&self) -> std::sync::MutexGuard<'_, [Half; 2]> {
        self.halves.lock().expect("no panic while it is held")
    }

    /// So many bytes arrive at an end.
    fn land(&self, end: usize, count: usize) {
        if self.silent.load(Ordering::Relaxed) {
            return;
        }
        let mut halves = self.halves();
        let half = &mut halves[end];
        if half.broken.is_some() {
            return;
        }
        let count = count.min(half.flying.len());
        let bytes: Vec<u8> = half.flying.drain(..count).collect();
        if half.closed && count > 0 {
            break_all(&mut halves, io::ErrorKind::ConnectionReset);
            return;
        }
        half.landed.extend(bytes);
        half.settle();
    }

    fn cut(self: &Arc<Self>, how: Cut) {
        match how {
            Cut::Reset => break_all(&mut self.halves(), io::ErrorKind::ConnectionReset),
            Cut::Fin => {
                for half in self.halves().iter_mut() {
                    half.flying.clear();
                    half.fin = Fin::Landed;
                    half.closed = true;
                    half.wake();
                }
            }
            Cut::Silence => {
                self.silent.store(true, Ordering::Relaxed);
                let line = Arc::downgrade(self);
                tokio::spawn(async move {
                    pass(SILENCE_MAX).await;
                    if let Some(line) = line.upgrade() {
                        break_all(&mut line.halves(), io::ErrorKind::TimedOut);
                    }
                });
            }
        }
    }
}

fn break_all(halves: &mut [Half; 2], why: io::ErrorKind) {
    for half in halves {
        half.broken.get_or_insert(why);
        half.flying.clear();
        half.wake();
    }
}

impl Wires {
    pub(crate) fn new(chance: Chance, temper: Temper) -> Self {
        Self {
            state: Mutex::new(State {
                chance,
                temper,
                doors: BTreeMap::new(),
                refused: BTreeSet::new(),
                dead: BTreeSet::new(),
                lines: Vec::new(),
                connections: 0,
            }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Connections to this address are refused from now on.
    pub(crate) fn refuse(&self, at: SocketAddr) {
        self.state().refused.insert(at);
    }

    /// They are taken again.
    pub(crate) fn take(&self, at: SocketAddr) {
        self.state().refused.remove(&at);
    }

    /// Cuts one connection of this side, if there is one.
    pub(crate) fn cut_one(&self, side: Side, how: Cut) -> Option<SocketAddr> {
        let line = {
            let mut state = self.state();
            state.lines.retain(|line| line.strong_count() > 0);
            let lines: Vec<_> = state.lines.iter().filter_map(Weak::upgrade).collect();
            let of_side: Vec<_> = lines
                .into_iter()
                .filter(|line| line.ends[1].is_some() == (side == Side::Clients))
                .collect();
            if of_side.is_empty() {
                return None;
            }
            Arc::clone(state.chance.pick(&of_side))
        };
        line.cut(how);
        Some(line.to)
    }

    /// A process of the proxy is no more: its connections end like this, and nothing of it reaches anybody.
    pub(crate) fn kill(&self, process: Process, how: Cut) {
        let lines: Vec<_> = {
            let mut state = self.state();
            state.dead.insert(process);
            state.doors.retain(|_, door| door.of != Some(process));
            state.lines.iter().filter_map(Weak::upgrade).collect()
        };
        for line in lines {
            if line.ends.contains(&Some(process)) {
                line.cut(how);
            }
        }
    }

    /// Opens a connection to whoever listens there.
    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<Wire> {
        self.connect_from(None, to)
    }

    fn connect_from(&self, process: Option<Process>, to: SocketAddr) -> io::Result<Wire> {
        let mut state = self.state();
        let is_dead = process.is_some_and(|process| state.dead.contains(&process));
        if is_dead || state.refused.contains(&to) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let Some(of) = state.doors.get(&to).map(|door| door.of) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let Temper {
            latency_ms,
            room_min,
            bite_max,
        } = state.temper;
        state.connections = state.connections.wrapping_add(1);
        let [_, net, high, low] = state.connections.to_be_bytes();
        let from = SocketAddr::from(([10, 7, 0, net], u16::from_be_bytes([high, low])));
        let line = Arc::new(Line {
            halves: Mutex::default(),
            latency: Duration::from_millis(state.chance.below(latency_ms + 1)),
            room: state.chance.between(room_min, room_min * 8) as usize,
            bite: match bite_max {
                0 => usize::MAX,
                most => state.chance.between(1, most) as usize,
            },
            silent: AtomicBool::new(false),
            to,
            ends: [process, of],
        });
        state.lines.push(Arc::downgrade(&line));
        let [near, far] = [0, 1].map(|end| Wire {
            line: Arc::clone(&line),
            end,
            peer: if end == 0 { to } else { from },
            linger: AtomicBool::new(false),
        });
        state.doors[&to]
            .to
            .send(far)
            .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(near)
    }
}

impl Wires {
    /// Begins to listen: for a process of the proxy, or for a backend. Who listened there before gets nothing more.
    pub(crate) fn open(&self, of: Option<Process>, at: SocketAddr) -> Door {
        let (to, incoming) = unbounded_channel();
        self.state().doors.insert(at, Listening { to, of });
        Door {
            address: at,
            incoming: tokio::sync::Mutex::new(incoming),
        }
    }
}

impl Door {
    pub(crate) async fn next(&self) -> Wire {
        match self.incoming.lock().await.recv().await {
            Some(wire) => wire,
            None => std::future::pending().await,
        }
    }
}

impl Net for Host {
    type Io = Wire;
    type Listener = Door;

    async fn dial(&self, to: &Authority) -> io::Result<Wire> {
        let ip = to.host.parse().map_err(io::Error::other)?;
        self.wires
            .connect_from(Some(self.process), SocketAddr::new(ip, to.port))
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Door> {
        Ok(self.wires.open(Some(self.process), at))
    }

    fn local_addr(&self, door: &Door) -> io::Result<SocketAddr> {
        Ok(door.address)
    }

    async fn accept(&self, door: &Door) -> io::Result<Wire> {
        Ok(door.next().await)
    }
}

/// One end of a connection.
pub(crate) struct Wire {
    line: Arc<Line>,
    end: usize,
    peer: SocketAddr,
    linger: AtomicBool,
}

impl Io for Wire {
    fn unacked(&self) -> Unacked {
        Unacked::Bytes(self.line.halves()[1 - self.end].flying.len() as u32)
    }

    fn reset_on_close(&self) {
        self.linger.store(true, Ordering::Relaxed);
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn may_read(&self) -> bool {
        let half = &self.line.halves()[self.end];
        !half.landed.is_empty() || half.broken.is_some() || half.fin == Fin::Landed
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut halves = self.line.halves();
        let half = &mut halves[self.end];
        if !half.landed.is_empty() {
            let count = half.landed.len().min(buf.remaining()).min(self.line.bite);
            let bytes: Vec<u8> = half.landed.drain(..count).collect();
            buf.put_slice(&bytes);
            if let Some(writer) = half.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Ok(()));
        }
        if let Some(kind) = half.broken {
            return Poll::Ready(Err(kind.into()));
        }
        if half.fin == Fin::Landed {
            return Poll::Ready(Ok(()));
        }
        half.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let to = 1 - self.end;
        let count = {
            let mut halves = self.line.halves();
            let half = &mut halves[to];
            if let Some(kind) = half.broken {
                return Poll::Ready(Err(kind.into()));
            }
            if half.fin != Fin::No && !half.closed {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let free = self
                .line
                .room
                .saturating_sub(half.flying.len() + half.landed.len());
            if free == 0 {
                half.writer = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let count = free.min(bytes.len());
            half.flying.extend(&bytes[..count]);
            count
        };
        self.later(move |line| line.land(to, count));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}

impl Wire {
    /// Whether nothing arrives any more, at either end.
    pub(crate) fn is_silent(&self) -> bool {
        self.line.silent.load(Ordering::Relaxed)
    }

    /// The process of the proxy that took this connection.
    pub(crate) fn served_by(&self) -> Option<Process> {
        self.line.ends[1]
    }

    /// Does it after the line's latency.
    fn later(&self, what: impl FnOnce(&Line) + Send + 'static) {
        if self.line.latency.is_zero() {
            return what(&self.line);
        }
        let line = Arc::clone(&self.line);
        tokio::spawn(async move {
            pass(line.latency).await;
            what(&line);
        });
    }

    fn finish(&self) {
        let to = 1 - self.end;
        let fresh = {
            let half = &mut self.line.halves()[to];
            let fresh = half.fin == Fin::No && half.broken.is_none();
            if fresh {
                half.fin = Fin::Flying;
            }
            fresh
        };
        if fresh {
            self.later(move |line| line.land(to, 0));
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let unread = {
            let half = &mut self.line.halves()[self.end];
            half.closed = true;
            !half.landed.is_empty()
        };
        if unread || self.linger.load(Ordering::Relaxed) {
            let mut halves = self.line.halves();
            if !self.line.silent.load(Ordering::Relaxed) {
                break_all(&mut halves, io::ErrorKind::ConnectionReset);
            }
        } else if tokio::runtime::Handle::try_current().is_ok() {
            self.finish();
        }
        // Whoever waits for room towards a peer that is gone finds out.
        self.line.halves()[self.end].wake();
    }
}

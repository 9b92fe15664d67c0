//! A TCP relay that hurts connections on command: a bad network, or a load balancer that knows no sessions.
//! Law: what is cut, where and how is decided by what was seen on the wire, never by time.
//! It follows HTTP/1.1 just far enough to know which exchange a connection carries and how many SSE events went by.
//! Absent on purpose: pipelining and chunked request bodies, which MCP clients don't send.
//! Next: `table.rs`.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Most bytes of one request: the relay is for tests, and even there nothing grows without end.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What an exchange is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A POST with a tool call.
    Call,
    /// A GET without a cursor.
    Listen,
    /// A GET with `Last-Event-ID`.
    Resume,
    /// Anything else.
    Other,
}

/// One request on its way, as the plan sees it.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// What it is for.
    pub(crate) kind: Kind,
    /// Its number among those of its kind, from 1.
    pub(crate) nth: usize,
    /// The request body.
    pub(crate) body: String,
}

/// What happens to an exchange's answer.
pub(crate) enum Plan {
    /// It passes untouched.
    Pass,
    /// The connection is cut once so much of the answer was passed on, and the proof is there.
    Cut(Point, How, Proof),
}

/// Resolves when the client is known to have had enough of an answer to be able to resume it. What a client has not read
/// when its connection is reset, it never had; and a client that never had an id can't be helped by anyone.
pub(crate) type Proof = Pin<Box<dyn Future<Output = ()> + Send>>;

/// No proof is asked for.
pub(crate) fn at_once() -> Proof {
    Box::pin(std::future::ready(()))
}

/// A place in an SSE answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    /// After so many whole events (comments don't count).
    pub(crate) events: usize,
    /// And so many bytes of what follows.
    pub(crate) bytes: usize,
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Both sides are reset.
    Reset,
    /// Both sides are closed in an orderly way, in the middle of the answer.
    Close,
    /// The answer is ended as if it were whole, at the next border between two chunks, as a gateway with a time limit does.
    End,
    /// So many more events are taken from the server and thrown away; then both sides are reset.
    Lose(usize),
}

/// Which server a request goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spread {
    /// The next one for each connection.
    Connections,
    /// The next one for each request, as a load balancer without affinity does.
    Requests,
}

/// What the relay has seen so far.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    requests: [usize; 4],
    answered: [usize; 4],
    /// GETs that were answered with an event stream.
    pub(crate) listening: usize,
    /// Connections cut.
    pub(crate) cuts: usize,
}

impl Tally {
    /// How many requests of this kind have had the head of their answer.
    pub(crate) fn answered(&self, kind: Kind) -> usize {
        self.answered[kind as usize]
    }
}

type Rules = Mutex<Box<dyn FnMut(&Exchange) -> Plan + Send>>;

/// A running relay. It ends when it is dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    tally: watch::Receiver<Tally>,
    task: JoinHandle<()>,
}

struct Shared {
    servers: Vec<SocketAddr>,
    spread: Spread,
    next: AtomicUsize,
    rules: Rules,
    tally: watch::Sender<Tally>,
}

impl Relay {
    /// Starts a relay on a free loopback port in front of `servers`; `plan` is asked once for each request.
    pub(crate) async fn start(
        servers: Vec<SocketAddr>,
        spread: Spread,
        plan: impl FnMut(&Exchange) -> Plan + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (sender, tally) = watch::channel(Tally::default());
        let shared = Arc::new(Shared {
            servers,
            spread,
            next: AtomicUsize::new(0),
            rules: Mutex::new(Box::new(plan)),
            tally: sender,
        });
        let task = tokio::spawn(async move {
            // The connections live in this set, so that they end with the relay.
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    biased;
                    Some(_) = connections.join_next() => {}
                    accepted = listener.accept() => match accepted {
                        Ok((client, _)) => { connections.spawn(Line::serve(client, Arc::clone(&shared))); }
                        Err(_) => return,
                    },
                }
            }
        });
        Ok(Self { address, tally, task })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was seen until now.
    pub(crate) fn tally(&self) -> Tally {
        *self.tally.borrow()
    }

    /// Waits until what was seen satisfies `enough`. The caller bounds its time.
    pub(crate) async fn until(&self, enough: impl FnMut(&Tally) -> bool) {
        let mut tally = self.tally.clone();
        let _closed = tally.wait_for(enough).await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One client connection and the server connection behind it.
struct Line {
    client: TcpStream,
    /// Bytes of the client that no request has used yet.
    inbox: Vec<u8>,
    server: TcpStream,
    /// Bytes of the server that no answer has used yet.
    outbox: Vec<u8>,
    /// Requests that this connection has carried.
    exchanges: usize,
    shared: Arc<Shared>,
}

/// Whether a connection can carry another exchange.
enum Next {
    Exchange,
    End,
}

impl Line {
    async fn serve(client: TcpStream, shared: Arc<Shared>) {
        let Ok(server) = dial(&shared).await else {
            reset(&client);
            return;
        };
        let mut line = Self {
            client,
            inbox: Vec::new(),
            server,
            outbox: Vec::new(),
            exchanges: 0,
            shared,
        };
        while let Ok(Next::Exchange) = line.exchange().await {}
    }

    async fn exchange(&mut self) -> io::Result<Next> {
        let Some((head, bytes)) = self.request().await? else {
            return Ok(Next::End);
        };
        if self.shared.spread == Spread::Requests && self.exchanges > 0 {
            self.server = dial(&self.shared).await?;
        }
        self.exchanges += 1;
        let (exchange, plan) = self.judge(&head, &bytes[head.len()..]);
        self.server.write_all(&bytes).await?;
        let (answer, mut pending) = self.answer_head().await?;
        let streams = answer.contains("text/event-stream") && answer.starts_with("http/1.1 200");
        let listening = streams && matches!(exchange.kind, Kind::Listen | Kind::Resume);
        self.shared.tally.send_modify(|tally| {
            tally.answered[exchange.kind as usize] += 1;
            tally.listening += usize::from(listening);
        });
        self.client
            .write_all(&pending.drain(..answer.len()).collect::<Vec<_>>())
            .await?;
        let mut body = Body::of(&answer);
        let mut meter = Meter::default();
        let plan = if streams { plan } else { Plan::Pass };
        loop {
            let used = body.take(&pending, |at, byte| match &plan {
                Plan::Pass => Step::On,
                Plan::Cut(point, ..) => meter.step(at, byte, *point),
            });
            match used {
                Taken::Cut(upto) => {
                    self.client.write_all(&pending[..upto]).await?;
                    pending.drain(..upto);
                    if let Plan::Cut(_, how, proof) = plan {
                        proof.await;
                        self.cut(how, body, pending).await;
                    }
                    return Ok(Next::End);
                }
                Taken::All => self.client.write_all(&pending).await?,
                Taken::End(upto) => {
                    self.client.write_all(&pending[..upto]).await?;
                    self.outbox = pending.split_off(upto);
                    return Ok(Next::Exchange);
                }
            }
            pending.clear();
            if !self.more(&mut pending).await? {
                return Ok(Next::End);
            }
        }
    }

    /// Reads one request whole: its head, and all its bytes.
    async fn request(&mut self) -> io::Result<Option<(String, Vec<u8>)>> {
        loop {
            if let Some(end) = find(&self.inbox, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.inbox[..end + 4]).into_owned();
                let whole = head.len()
                    + field(&head, "content-length")
                        .and_then(|n| n.parse().ok())
                        .unwrap_or(0);
                if self.inbox.len() >= whole {
                    let rest = self.inbox.split_off(whole);
                    return Ok(Some((head, std::mem::replace(&mut self.inbox, rest))));
                }
            }
            if self.inbox.len() > REQUEST_BYTES_MAX {
                return Ok(None);
            }
            // A server that closes an idle connection must be seen to do so.
            let read = tokio::select! {
                biased;
                read = self.client.read_buf(&mut self.inbox) => read?,
                read = self.server.read_buf(&mut self.outbox) => read?,
            };
            if read == 0 {
                return Ok(None);
            }
        }
    }

    fn judge(&self, head: &str, body: &[u8]) -> (Exchange, Plan) {
        let body = String::from_utf8_lossy(body).into_owned();
        let kind = if head.starts_with("POST ") && body.contains("\"tools/call\"") {
            Kind::Call
        } else if !head.starts_with("GET ") {
            Kind::Other
        } else if field(head, "last-event-id").is_some() {
            Kind::Resume
        } else {
            Kind::Listen
        };
        let mut nth = 0;
        self.shared.tally.send_modify(|tally| {
            tally.requests[kind as usize] += 1;
            nth = tally.requests[kind as usize];
        });
        let exchange = Exchange { kind, nth, body };
        let plan = self.shared.rules.lock().expect("the plan does not panic")(&exchange);
        (exchange, plan)
    }

    /// Reads the head of an answer, interim answers skipped; in lower case, with all bytes read so far.
    async fn answer_head(&mut self) -> io::Result<(String, Vec<u8>)> {
        let mut pending = std::mem::take(&mut self.outbox);
        loop {
            while let Some(end) = find(&pending, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&pending[..end + 4]).to_ascii_lowercase();
                if !head.starts_with("http/1.1 1") {
                    return Ok((head, pending));
                }
                let interim: Vec<u8> = pending.drain(..end + 4).collect();
                self.client.write_all(&interim).await?;
            }
            if !self.more(&mut pending).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads from the server. `false` if either side is done; the other side is then told in the same way.
    async fn more(&mut self, pending: &mut Vec<u8>) -> io::Result<bool> {
        loop {
            tokio::select! {
                biased;
                read = self.server.read_buf(pending) => {
                    return match read {
                        Ok(0) => Ok(false),
                        Ok(_) => Ok(true),
                        Err(error) => { reset(&self.client); Err(error) }
                    };
                }
                read = self.client.read_buf(&mut self.inbox) => match read {
                    Ok(0) => return Ok(false),
                    Ok(_) if self.inbox.len() > REQUEST_BYTES_MAX => return Ok(false),
                    Ok(_) => {}
                    Err(error) => { reset(&self.server); return Err(error); }
                },
            }
        }
    }

    async fn cut(&mut self, how: How, mut body: Body, mut pending: Vec<u8>) {
        if let How::Lose(events) = how {
            let mut meter = Meter::default();
            let lost = Point { events, bytes: 0 };
            while let Taken::All = body.take(&pending, |at, byte| meter.step(at, byte, lost)) {
                pending.clear();
                if !matches!(self.more(&mut pending).await, Ok(true)) {
                    break;
                }
            }
        }
        match how {
            How::Close => {
                let _gone = self.client.shutdown().await;
                let _gone = self.server.shutdown().await;
            }
            How::End => {
                let _gone = self.end(body, pending).await;
                reset(&self.server);
            }
            How::Reset | How::Lose(_) => {
                reset(&self.client);
                reset(&self.server);
            }
        }
        self.shared.tally.send_modify(|tally| tally.cuts += 1);
    }
}

impl Line {
    /// Passes on what is left of the chunk under way, then the last chunk.
    async fn end(&mut self, mut body: Body, mut pending: Vec<u8>) -> io::Result<()> {
        while !body.is_between_chunks() {
            let mut passed = 0;
            while passed < pending.len() && !body.is_between_chunks() {
                body.take(&pending[passed..=passed], |_, _| Step::On);
                passed += 1;
            }
            self.client.write_all(&pending[..passed]).await?;
            pending.drain(..passed);
            if pending.is_empty() && !body.is_between_chunks() && !self.more(&mut pending).await? {
                return Ok(());
            }
        }
        self.client.write_all(b"0\r\n\r\n").await?;
        self.client.shutdown().await
    }
}

async fn dial(shared: &Shared) -> io::Result<TcpStream> {
    let turn = shared.next.fetch_add(1, Ordering::Relaxed);
    let server = TcpStream::connect(shared.servers[turn % shared.servers.len()]).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// Makes the coming close of a socket a reset.
fn reset(socket: &TcpStream) {
    let _closed = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim()))
}

/// Whether the walk over a body's bytes goes on.
enum Step {
    On,
    Stop,
}

/// How much of what was read belongs to the body.
enum Taken {
    /// All of it, and more will come.
    All,
    /// The body ends after so many bytes.
    End(usize),
    /// The walk was stopped after so many bytes.
    Cut(usize),
}

/// The framing of an answer's body.
enum Body {
    Length(usize),
    UntilClose,
    /// A chunk's size line, read up to here; `seen` turns true at its first digit.
    Size {
        value: usize,
        digits: Digits,
    },
    /// Data of a chunk, then its CRLF (2 bytes).
    Chunk {
        left: usize,
    },
    /// The trailer's line has so many bytes yet.
    Trailer {
        line: usize,
    },
}

/// Where a chunk's size line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    Reading,
    Done,
}

impl Body {
    fn of(head: &str) -> Self {
        let status = head.split(' ').nth(1).unwrap_or("");
        if matches!(status, "204" | "304") {
            Self::Length(0)
        } else if field(head, "transfer-encoding").is_some_and(|how| how.contains("chunked")) {
            Self::Size {
                value: 0,
                digits: Digits::Reading,
            }
        } else if let Some(length) = field(head, "content-length").and_then(|length| length.parse().ok()) {
            Self::Length(length)
        } else {
            Self::UntilClose
        }
    }

    fn is_between_chunks(&self) -> bool {
        matches!(
            self,
            Self::Size {
                value: 0,
                digits: Digits::Reading
            }
        )
    }

    /// Walks over bytes of the answer; `each` sees the payload's, with their places.
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(usize, u8) -> Step) -> Taken {
        if let Self::Length(0) = self {
            return Taken::End(0);
        }
        for (at, &byte) in bytes.iter().enumerate() {
            let mut payload = false;
            match self {
                Self::UntilClose => payload = true,
                Self::Length(left) => {
                    payload = true;
                    *left -= 1;
                }
                Self::Size { value, digits } => match byte {
                    b'\n' if *value == 0 => *self = Self::Trailer { line: 0 },
                    b'\n' => *self = Self::Chunk { left: *value + 2 },
                    _ => match (byte as char).to_digit(16) {
                        Some(digit) if *digits == Digits::Reading => *value = *value * 16 + digit as usize,
                        Some(_) | None => *digits = Digits::Done,
                    },
                },
                Self::Chunk { left } => {
                    payload = *left > 2;
                    *left -= 1;
                    if *left == 0 {
                        *self = Self::Size {
                            value: 0,
                            digits: Digits::Reading,
                        };
                    }
                }
                Self::Trailer { line } => match byte {
                    b'\n' if *line == 0 => return Taken::End(at + 1),
                    b'\n' => *line = 0,
                    b'\r' => {}
                    _ => *line += 1,
                },
            }
            if payload && matches!(each(at, byte), Step::Stop) {
                return Taken::Cut(at + 1);
            }
            if let Self::Length(0) = self {
                return Taken::End(at + 1);
            }
        }
        Taken::All
    }
}

/// Counts SSE events and finds the place of a cut.
#[derive(Default)]
struct Meter {
    events: usize,
    after: usize,
    /// Bytes in the line so far, CR not counted.
    line: usize,
    /// Whether the line so far begins with a colon.
    comment: bool,
    /// Lines of the event so far that are no comments.
    fields: usize,
}

impl Meter {
    fn step(&mut self, _at: usize, byte: u8, point: Point) -> Step {
        if self.events >= point.events {
            self.after += 1;
        }
        match byte {
            b'\n' if self.line == 0 => {
                self.events += usize::from(self.fields > 0);
                self.fields = 0;
            }
            b'\n' => {
                self.fields += usize::from(!self.comment);
                self.line = 0;
            }
            b'\r' => {}
            _ => {
                self.comment = if self.line == 0 {
                    byte == b':'
                } else {
                    self.comment
                };
                self.line += 1;
            }
        }
        if self.events >= point.events && self.after >= point.bytes {
            Step::Stop
        } else {
            Step::On
        }
    }
}

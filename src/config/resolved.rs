//! What code may use of the configuration: every value checked, every unit gone, every default filled in.
//! Law: a value of these types is valid; nothing downstream checks again.
//! Secrets appear only as [`Secret`], which prints as `…`.
//! Next: `raw.rs` for what the file says.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Seen;
use crate::net::Authority;
pub use crate::pure::session::OnSessionLoss;
use crate::pure::session::PrincipalRule;

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect. At least one.
    pub listeners: Vec<Listener>,
    /// Where `/healthz`, `/readyz` and `/metrics` are served; `None` = off.
    pub admin: Option<SocketAddr>,
    /// What is proxied. At least one; paths are unique.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The key ring, newest first; none = a random key for this process's life.
    pub secrets: Vec<Secret>,
    /// Bounds and times of the client side.
    pub server: Server,
    /// Bytes that all logs together may hold (`memory.replay_max`).
    pub replay_bytes_max: usize,
    /// Log level filter and format.
    pub log: Log,
    /// The file that was named, if any.
    pub source: Option<PathBuf>,
    /// The files that this was read from: itself, certificates, keys, secrets. Whoever waits for changes watches them.
    pub files: Vec<Seen>,
}

/// One listening socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// Address to bind.
    pub address: SocketAddr,
    /// TLS, or plain HTTP.
    pub tls: Option<TlsFiles>,
}

/// A certificate and its key, PEM files, loaded and checked at `check`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// The client side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Worker threads; 0 = one for each core that this process may use.
    pub workers: usize,
    /// Names allowed in `Host` beside the listener's own address and, on loopback, loopback names. `*` = any.
    pub allowed_hosts: Vec<Box<str>>,
    /// Origins allowed beside those of the allowed hosts. `*` = any.
    pub allowed_origins: Vec<Box<str>>,
    /// Longest request head, in bytes.
    pub head_bytes_max: usize,
    /// Longest request body, in bytes.
    pub body_bytes_max: usize,
    /// Time for a request's head to arrive.
    pub head_timeout: Duration,
    /// Time for a request's body to arrive.
    pub body_timeout: Duration,
    /// How long an idle connection is kept open.
    pub idle_timeout: Duration,
    /// Most client connections at a time.
    pub connections_max: usize,
    /// How long running POSTs may go on after SIGTERM.
    pub drain_max: Duration,
    /// Whether other proxies may serve the sessions of this one.
    pub peers: Peers,
}

/// Whether other proxies with the same secret may serve the sessions of this one (`server.peers`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peers {
    /// None does: what this one has not written was not written.
    None,
    /// Some may: what this one has not written, another one may have.
    Possible,
}

/// A pool of replicas of one unmodified MCP server, and the path that it is served at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    /// Name in logs, metrics and tokens.
    pub name: Box<str>,
    /// Path on the client side, e.g. `/mcp`. Matched whole.
    pub path: Box<str>,
    /// Replicas, at least one, all with the same scheme of sessions. None where a reload took the upstream out.
    pub replicas: Vec<Replica>,
    /// Those of them that are being drained: they get no new session (`drain = true`).
    pub drained: Vec<Authority>,
    /// Where sessions live.
    pub sessions: Sessions,
    /// Which transport its server speaks (`transport`).
    pub transport: Transport,
    /// What is declared of the server's store of events, if it has one.
    pub event_store: EventStore,
    /// How the ids of clients' requests reach the server (`isolate_request_ids`).
    pub request_ids: RequestIds,
    /// How a server's refusal of a call reaches the client.
    pub errors: Errors,
    /// How a new session's replica is chosen.
    pub balance: Balance,
    /// How long a replica that is drained keeps its sessions (`drain_deadline`).
    pub drain_deadline: Duration,
    /// Active health checks, and what failing exchanges do.
    pub health: Health,
    /// TLS towards `https` replicas.
    pub tls: UpstreamTls,
    /// Bounds and times of exchanges with backends.
    pub exchange: Exchange,
    /// Bounds and times of sessions.
    pub session: Session,
    /// Bounds and times of streams.
    pub stream: Stream,
    /// What of its OAuth passes.
    pub oauth: Oauth,
}

/// What passes of a server's OAuth, beside its endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Oauth {
    /// The paths of its metadata.
    pub metadata: Metadata,
    /// The address that clients use, without a slash at the end; it stands for the server's own in metadata and in
    /// challenges. `None`: they pass as they are.
    pub public_url: Option<Box<str>>,
    /// Further paths, matched whole.
    pub paths: Vec<Box<str>>,
}

/// Whether the paths of a server's OAuth metadata pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Metadata {
    /// They don't.
    #[default]
    Off,
    /// They do.
    Pass,
}

/// One replica.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    /// Where it is dialled.
    pub authority: Authority,
    /// Plain or TLS.
    pub scheme: Scheme,
    /// Path of its MCP endpoint, with a query if any.
    pub path: Box<str>,
}

/// How a replica is spoken to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// `http://`
    Http,
    /// `https://`
    Https,
}

/// Where an upstream's sessions live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sessions {
    /// In one replica (the default). A backend that gives no session id is treated as `None` by itself.
    Replica,
    /// In storage that all replicas share: any replica may take any request.
    Shared,
    /// Nowhere: the server is stateless.
    None,
}

/// What is declared of the server's store of events (`event_store`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventStore {
    /// Nothing: it may have none, or one that mixes sessions.
    Undeclared,
    /// It keeps each session's events apart.
    PerSession,
}

/// Which transport an upstream's server speaks (`transport`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// What its answers show: HTTP+SSE if a GET without a session begins with an `endpoint` event.
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// How the ids of clients' requests reach the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestIds {
    /// As they are, unless the server was seen to keep events and nothing says that it keeps them apart.
    Auto,
    /// As they are.
    Passed,
    /// Made unique for each session, and restored in what comes back.
    Isolated,
}

/// How a server's refusal of a call reaches the client (`errors`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Errors {
    /// As it is.
    Pass,
    /// As a JSON-RPC error with status 200, but for 401, 403 and 404.
    Jsonrpc,
}

/// How a new session's replica is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balance {
    /// The replica with the fewest live sessions.
    LeastSessions,
    /// One after the other.
    RoundRobin,
    /// By chance.
    Random,
    /// By consistent hashing of the client's address.
    Consistent,
}

/// Active health checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// How a replica is probed.
    pub probe: Probe,
    /// Time between probes.
    pub interval: Duration,
    /// Time that one probe may take.
    pub timeout: Duration,
    /// Failures in a row until a replica is unhealthy.
    pub fall: u32,
    /// Successes in a row until it is healthy again.
    pub rise: u32,
    /// Failed exchanges in a row that eject a replica; 0 = never.
    pub eject_after: u32,
    /// How long a first ejection lasts.
    pub eject_time: Duration,
    /// How long one lasts at most, each being twice as long as the one before.
    pub eject_time_max: Duration,
}

/// How a replica is probed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probe {
    /// Not at all.
    Off,
    /// A TCP connection (with TLS where it is `https`).
    Connect,
    /// `GET` of this path answers 2xx.
    Http(Box<str>),
}

/// TLS towards `https` replicas.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpstreamTls {
    /// PEM file of authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Name to verify and to send as SNI instead of the host.
    pub server_name: Option<Box<str>>,
    /// Certificate and key that this proxy shows.
    pub client: Option<TlsFiles>,
}

/// Bounds and times of exchanges with backends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Time to connect, TLS included.
    pub connect_timeout: Duration,
    /// Time for `initialize` to be answered (`initialize_max`).
    pub initialize_max: Duration,
    /// Longest a request may wait for a replica that refuses connections (`replica_retry_max`).
    pub replica_retry_max: Duration,
    /// Idle connections kept for each replica.
    pub idle_connections_max: usize,
    /// How long an idle connection may carry a request that is safe to repeat.
    pub idle_timeout: Duration,
    /// How long an idle connection may carry a POST: below the 5 s after which common servers close.
    pub post_idle_max: Duration,
    /// Exchanges under way for each replica; more are `overloaded`.
    pub in_flight_max: usize,
    /// Longest answer that is not a stream and is read whole (`initialize`), in bytes.
    pub answer_bytes_max: usize,
}

/// Bounds and times of sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Most live sessions of this upstream.
    pub sessions_max: usize,
    /// A session neither attached nor used for this long ends (`session_idle`).
    pub idle: Duration,
    /// A session ends this long after it began (`session_max`).
    pub max: Duration,
    /// After so much silence towards its backend, a session's backend gets a `ping` (`ping_after`).
    pub ping_after: Duration,
    /// Streams with data for each session, at most [`crate::pure::limits::SESSION_STREAMS_MAX`].
    pub streams_max: usize,
    /// What becomes of a session that its backend has lost (`on_session_loss`).
    pub on_loss: OnSessionLoss,
    /// The header field by which a backend names its own process or start, lower case; none = it has none.
    pub instance_header: Option<Box<str>>,
    /// Header fields that make up a client's credential, lower case.
    pub credential_headers: Vec<Box<str>>,
    /// Whom a session's memory may reach beside the one who opened it (`resume_principal`).
    pub resume_principal: PrincipalRule,
}

/// Bounds and times of streams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// An idle stream gets a comment this often.
    pub keepalive: Duration,
    /// The base `retry` told to clients.
    pub retry: Duration,
    /// How long an upstream stream is read on without a client (`detached_max`).
    pub detached_max: Duration,
    /// How long a client may take nothing before its connection is ended.
    pub stall_max: Duration,
    /// Events held for replay.
    pub replay_events_max: u32,
    /// Bytes held for replay.
    pub replay_bytes_max: usize,
    /// How long an event is held for replay.
    pub replay_age_max: Duration,
    /// Longest event taken from a backend, in bytes.
    pub event_bytes_max: usize,
    /// Whether sessions before 2025-11-25 get an early cursor by a `ping` event (`early_cursor`).
    pub early_cursor: EarlyCursor,
    /// What a backend that ends an answer's stream early, to be polled, means to the client (`polling`).
    pub polling: Polling,
    /// After how long a call whose answer has not begun gets a stream; `None`: never (`json_upgrade_after`).
    pub json_upgrade_after: Option<Duration>,
    /// Whether a backend's stream that broke is asked again (`reattach`).
    pub reattach: Reattach,
    /// How long a backend may refuse a session's standalone stream as if another stood (`get_refused_max`).
    pub get_refused_max: Duration,
    /// How long a backend is asked again for the rest of an answer without a sign of life (`reattach_max`).
    pub reattach_max: Duration,
}

/// Whether a backend's stream that broke is asked again (`reattach`; wire contract, section 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reattach {
    /// Never.
    Never,
    /// Yes, and what comes goes on only if an overlap proves it.
    Proved,
}

/// Who polls where a backend ends the stream of an unfinished answer (wire contract, section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Polling {
    /// The client: its connection ends likewise, and its resume makes the proxy ask the backend.
    Pass,
    /// The proxy: the client is held meanwhile.
    Hold,
}

/// Whether sessions of older revisions get an early cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EarlyCursor {
    /// Yes, but not to clients known to break on it.
    On,
    /// No.
    Off,
}

/// Log settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// A `tracing` filter, e.g. `info` or `throughline=debug`.
    pub filter: Box<str>,
    /// How lines are written.
    pub format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// A secret, at least 16 bytes, wiped when dropped. Its `kid` is the letter or digit that ids carry.
#[derive(Clone, zeroize::ZeroizeOnDrop)]
pub struct Secret {
    /// The key's letter or digit.
    #[zeroize(skip)]
    pub kid: u8,
    /// The secret itself.
    pub bytes: Vec<u8>,
}

impl PartialEq for Secret {
    /// Of two configurations of one process; nobody outside can measure how long it takes.
    fn eq(&self, other: &Self) -> bool {
        self.kid == other.kid && self.bytes == other.bytes
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({}, …)", self.kid as char)
    }
}

//! What code may use of the configuration: every value checked, every unit gone, every default filled in.
//! Law: a value of these types is valid; nothing downstream checks again.
//! Secrets appear only as [`Secret`], which prints as `…`.
//! Next: `raw.rs` for what the file says.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::net::Authority;
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
}

/// One listening socket.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Address to bind.
    pub address: SocketAddr,
    /// TLS, or plain HTTP.
    pub tls: Option<TlsFiles>,
}

/// A certificate and its key, PEM files, loaded and checked at `check`.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain, leaf first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// The client side.
#[derive(Clone, Debug)]
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
}

/// A pool of replicas of one unmodified MCP server, and the path that it is served at.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Name in logs, metrics and tokens.
    pub name: Box<str>,
    /// Path on the client side, e.g. `/mcp`. Matched whole.
    pub path: Box<str>,
    /// Replicas, at least one, all with the same scheme of sessions.
    pub replicas: Vec<Replica>,
    /// Where sessions live.
    pub sessions: Sessions,
    /// How a new session's replica is chosen.
    pub balance: Balance,
    /// Active health checks.
    pub health: Health,
    /// TLS towards `https` replicas.
    pub tls: UpstreamTls,
    /// Bounds and times of exchanges with backends.
    pub exchange: Exchange,
    /// Bounds and times of sessions.
    pub session: Session,
    /// Bounds and times of streams.
    pub stream: Stream,
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
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug, Default)]
pub struct UpstreamTls {
    /// PEM file of authorities to trust instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Name to verify and to send as SNI instead of the host.
    pub server_name: Option<Box<str>>,
    /// Certificate and key that this proxy shows.
    pub client: Option<TlsFiles>,
}

/// Bounds and times of exchanges with backends.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
pub struct Session {
    /// Most live sessions of this upstream.
    pub sessions_max: usize,
    /// A session neither attached nor used for this long ends (`session_idle`).
    pub idle: Duration,
    /// A session ends this long after it began (`session_max`).
    pub max: Duration,
    /// Streams with data for each session, at most [`crate::pure::limits::SESSION_STREAMS_MAX`].
    pub streams_max: usize,
    /// Header fields that make up a client's credential, lower case.
    pub credential_headers: Vec<Box<str>>,
    /// Whom a session's memory may reach beside the one who opened it (`resume_principal`).
    pub resume_principal: PrincipalRule,
}

/// Bounds and times of streams.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
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

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({}, …)", self.kid as char)
    }
}

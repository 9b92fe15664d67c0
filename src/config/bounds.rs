//! Every setting that is a quantity: its default, the least and the most it may be, and why.
//! Law: one row for each; `config/full.toml` says the same to the operator, and a test holds both together.
//! Bounds that nobody should have to touch live in `pure/limits.rs`.
//! Next: `fields.rs`.

use std::time::Duration;

use crate::pure::limits::SESSION_STREAMS_MAX;

/// A quantity with its default and its range, both ends allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounded<T> {
    /// What holds where nothing is said.
    pub(super) default: T,
    /// The least that is accepted.
    pub(super) least: T,
    /// The most that is accepted.
    pub(super) most: T,
}

const fn times(default: u64, least: u64, most: u64) -> Bounded<Duration> {
    assert!(least <= default && default <= most);
    Bounded {
        default: Duration::from_millis(default),
        least: Duration::from_millis(least),
        most: Duration::from_millis(most),
    }
}

const fn counts(default: usize, least: usize, most: usize) -> Bounded<usize> {
    assert!(least <= default && default <= most);
    Bounded { default, least, most }
}

const MS: u64 = 1;
const S: u64 = 1_000 * MS;
const MIN: u64 = 60 * S;
const HOUR: u64 = 60 * MIN;
const DAY: u64 = 24 * HOUR;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// Largest file of a certificate, a key or a list of authorities, in bytes: several times the system's whole list.
pub(super) const PEM_BYTES_MAX: usize = 4 * MIB;
/// Largest configuration file, in bytes: far above a thousand upstreams.
pub(super) const FILE_BYTES_MAX: usize = 4 * MIB;
/// Longest secret, in bytes: more adds no strength, and a longer file is probably the wrong file.
pub(super) const SECRET_BYTES_MAX: usize = 4 * KIB;
/// Most keys in the ring: one in use and the older ones whose tokens have not expired.
pub(super) const SECRETS_MAX: usize = 36;
/// Longest name of an upstream, in bytes: it is a metric label and stands in every log line.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// Longest path of an upstream, in bytes.
pub(super) const PATH_BYTES_MAX: usize = 256;
/// Most paths beside an endpoint that pass for its OAuth: a server has half a dozen.
pub(super) const OAUTH_PATHS_MAX: usize = 32;
/// Most replicas of an upstream: each one is a metric label and has its own prober.
pub(super) const REPLICAS_MAX: usize = 256;
/// Most upstreams of one process, those that a reload took out included: each one is a metric label.
pub const UPSTREAMS_MAX: usize = 256;
/// From here on common servers have closed an idle connection, and a POST on it can't be proved unexecuted.
pub(super) const SERVERS_CLOSE_AFTER: Duration = Duration::from_secs(5);

/// `server.workers`: 0 = one for each core; more threads than cores only cost memory.
pub(super) const WORKERS: Bounded<usize> = counts(0, 0, 1_024);
/// `server.head_bytes_max`: a token of 2 KiB, a large cookie and a JWT fit; at least what hyper needs to work.
pub(super) const HEAD_BYTES: Bounded<usize> = counts(32 * KIB, 8 * KIB, MIB);
/// `server.body_bytes_max`: twice what common servers accept, so that they, not we, say that it is too much.
pub(super) const BODY_BYTES: Bounded<usize> = counts(8 * MIB, KIB, GIB);
/// `server.head_timeout`: a slow phone manages; a slow-loris attack is cut.
pub(super) const HEAD_TIMEOUT: Bounded<Duration> = times(10 * S, 100 * MS, 5 * MIN);
/// `server.body_timeout`: 8 MiB at 140 KiB/s.
pub(super) const BODY_TIMEOUT: Bounded<Duration> = times(60 * S, 100 * MS, HOUR);
/// `server.idle_timeout`: above the pauses between two tool calls of a model, so that connections are reused.
pub(super) const SERVER_IDLE: Bounded<Duration> = times(2 * MIN, S, DAY);
/// `server.connections_max`: two for each of 30,000 clients.
pub(super) const CONNECTIONS: Bounded<usize> = counts(65_536, 1, 4 * MIB);
/// `server.drain_max`: wire contract, section 7; the grace period of common orchestrators.
pub(super) const DRAIN: Bounded<Duration> = times(30 * S, 0, DAY);

/// `memory.replay_max`: what all logs together may hold, in bytes.
pub(super) const REPLAY_MEMORY: Bounded<usize> = counts(256 * MIB, MIB, 1_024 * GIB);

/// `upstream.health.interval`: a lost replica is out of the choice within three of them.
pub(super) const HEALTH_INTERVAL: Bounded<Duration> = times(5 * S, 100 * MS, HOUR);
/// `upstream.health.timeout`: above a busy server's scheduling delays, below the interval.
pub(super) const HEALTH_TIMEOUT: Bounded<Duration> = times(2 * S, 10 * MS, 5 * MIN);
/// `upstream.health.fall`: one lost packet is no loss of a replica.
pub(super) const FALL: Bounded<usize> = counts(3, 1, 1_000);
/// `upstream.health.rise`: a replica that flaps gets no new sessions.
pub(super) const RISE: Bounded<usize> = counts(2, 1, 1_000);

/// `upstream.health.eject_after`: a burst's lost connections are no loss of a replica; 0 = never.
pub(super) const EJECT_AFTER: Bounded<usize> = counts(5, 0, 1_000);
/// `upstream.health.eject_time`: one interval of probes.
pub(super) const EJECT_TIME: Bounded<Duration> = times(5 * S, 100 * MS, HOUR);
/// `upstream.health.eject_time_max`: a replica that is well again is found within it.
pub(super) const EJECT_TIME_MAX: Bounded<Duration> = times(2 * MIN, 100 * MS, DAY);
/// `upstream.drain_deadline`: long calls end, and most sessions with them; an orchestrator that waits less says so.
pub(super) const DRAIN_DEADLINE: Bounded<Duration> = times(5 * MIN, 0, 7 * DAY);

/// `upstream.exchange.connect_timeout`: one lost SYN (1 s) and one more (2 s) are survived.
pub(super) const CONNECT: Bounded<Duration> = times(5 * S, 10 * MS, 5 * MIN);
/// `upstream.exchange.initialize_max`: wire contract, section 2; the call timeout of common clients.
pub(super) const INITIALIZE: Bounded<Duration> = times(60 * S, 100 * MS, HOUR);
/// `upstream.exchange.replica_retry_max`: wire contract, section 7; a container's restart.
pub(super) const REPLICA_RETRY: Bounded<Duration> = times(10 * S, 0, 10 * MIN);
/// `upstream.exchange.idle_connections_max`: a burst's connections, kept for the next one.
pub(super) const IDLE_CONNECTIONS: Bounded<usize> = counts(64, 0, 16_384);
/// `upstream.exchange.idle_timeout`: for requests that are safe to repeat.
pub(super) const UPSTREAM_IDLE: Bounded<Duration> = times(60 * S, 100 * MS, HOUR);
/// `upstream.exchange.post_idle_max`: wire contract, section 7; below [`SERVERS_CLOSE_AFTER`].
pub(super) const POST_IDLE: Bounded<Duration> = times(3 * S, 0, HOUR);
/// `upstream.exchange.in_flight_max`: below the 28,000 local ports that one address pair has.
pub(super) const IN_FLIGHT: Bounded<usize> = counts(20_000, 1, MIB);
/// `upstream.exchange.answer_bytes_max`: the capabilities and instructions of a server, with room.
pub(super) const ANSWER_BYTES: Bounded<usize> = counts(4 * MIB, KIB, GIB);

/// `upstream.session.sessions_max`: at 8 KB each, 400 MB.
pub(super) const SESSIONS: Bounded<usize> = counts(50_000, 1, 16 * MIB);
/// `upstream.session.session_idle`: wire contract, section 7; what common servers allow.
pub(super) const SESSION_IDLE: Bounded<Duration> = times(30 * MIN, S, 30 * DAY);
/// `upstream.session.session_max`: wire contract, section 2.
pub(super) const SESSION_MAX: Bounded<Duration> = times(24 * HOUR, S, 365 * DAY);
/// `upstream.session.ping_after`: wire contract, section 7; one SDK server ends sessions after five minutes.
pub(super) const PING_AFTER: Bounded<Duration> = times(2 * MIN, 100 * MS, 30 * DAY);
/// `upstream.session.streams_max`: wire contract, section 7.
pub(super) const STREAMS: Bounded<usize> = counts(SESSION_STREAMS_MAX, 1, SESSION_STREAMS_MAX);

/// `upstream.stream.keepalive`: wire contract, section 7; intermediaries cut silent streams after 30 s and more.
pub(super) const KEEPALIVE: Bounded<Duration> = times(15 * S, S, 5 * MIN);
/// `upstream.stream.retry`: wire contract, section 4.
pub(super) const RETRY: Bounded<Duration> = times(S, 10 * MS, 5 * MIN);
/// `upstream.stream.detached_max`: a laptop that changes its network, a phone in a tunnel.
pub(super) const DETACHED: Bounded<Duration> = times(5 * MIN, 0, DAY);
/// `upstream.stream.stall_max`: as long as the kernel waits for an acknowledgement.
pub(super) const STALL: Bounded<Duration> = times(30 * S, S, HOUR);
/// `upstream.stream.replay_events_max`: twenty seconds at 50 events/s.
pub(super) const REPLAY_EVENTS: Bounded<usize> = counts(1_024, 1, 16 * MIB);
/// `upstream.stream.replay_bytes_max`: two of the longest events.
pub(super) const REPLAY_BYTES: Bounded<usize> = counts(8 * MIB, KIB, 64 * GIB);
/// `upstream.stream.replay_age_max`: twice `detached_max`, so that a stream's whole absence is covered.
pub(super) const REPLAY_AGE: Bounded<Duration> = times(10 * MIN, S, 7 * DAY);
/// `upstream.stream.json_upgrade_after`, where it is on: below what intermediaries wait for a head.
pub(super) const JSON_UPGRADE: Bounded<Duration> = times(10 * S, 10 * MS, HOUR);
/// `upstream.stream.get_refused_max`: wire contract, section 7; a server's own time for a half-open connection.
pub(super) const GET_REFUSED: Bounded<Duration> = times(60 * S, 100 * MS, DAY);
/// `upstream.stream.reattach_max`: wire contract, section 8; half of the call timeout of common clients.
pub(super) const REATTACH: Bounded<Duration> = times(30 * S, 100 * MS, DAY);
/// `upstream.stream.event_bytes_max`: a screenshot in base64.
pub(super) const EVENT_BYTES: Bounded<usize> = counts(4 * MIB, KIB, GIB);

const _: () = assert!(POST_IDLE.default.as_millis() < SERVERS_CLOSE_AFTER.as_millis());
const _: () = assert!(KEEPALIVE.default.as_millis() < STALL.default.as_millis());
const _: () = assert!(HEALTH_TIMEOUT.default.as_millis() <= HEALTH_INTERVAL.default.as_millis());
const _: () =
    assert!(EVENT_BYTES.default <= REPLAY_BYTES.default && REPLAY_BYTES.default <= REPLAY_MEMORY.default);
const _: () = assert!(EJECT_TIME.default.as_millis() <= EJECT_TIME_MAX.default.as_millis());
const _: () = assert!(DETACHED.default.as_millis() <= REPLAY_AGE.default.as_millis());

//! What is measured of one upstream and of its replicas.
//! Law: a field is a metric by the name that its comment bears; `instruments.rs` makes each with all its labels.
//! Next: `instruments.rs`.

use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::instruments::Labels;
use super::meters::{Count, Level, Tally, Times};
use super::names::{REPLICA, UPSTREAM};
use super::words::{
    Dropped, EjectedFor, EvictedBy, Exchanged, Proved, Repeated, RequestKind, RequestOutcome, SessionEnd,
    StreamKind, Verdict, Word,
};
use crate::pure::epoch::Reason;
use crate::pure::session::LossCause;

/// What is measured of one upstream.
#[derive(Debug)]
pub struct UpstreamInstruments {
    /// `requests_total{kind, outcome}`: one for each outcome, in the order of [`RequestKind::ALL`].
    pub(super) requests: Box<[Tally<RequestOutcome>]>,
    /// `sessions_opened_total`: sessions given an id.
    pub sessions_opened: Count,
    /// `sessions_live`: sessions that have not ended.
    pub sessions_live: Level,
    /// `sessions_ended_total{reason}`.
    pub sessions_ended: Tally<SessionEnd>,
    /// `sessions_lost_total{reason}`: sessions that their backend has lost, by cause.
    pub sessions_lost: Tally<LossCause>,
    /// `sessions_regained_total`: lost sessions that go on with a new one at a backend.
    pub sessions_regained: Count,
    /// `calls_refused_total`: tool calls that were not run, since the model had to be told of a loss first.
    pub calls_refused: Count,
    /// `notices_dropped_total`: notifications and answers of clients that no backend waits for any more.
    pub notices_dropped: Count,
    /// `streams_opened_total{kind}`.
    pub streams_opened: Tally<StreamKind>,
    /// `streams_live{kind}`: streams of which something is still to come, in the order of [`StreamKind::ALL`].
    pub(super) streams_live: Box<[Level]>,
    /// `streams_detached`: those of them without a client.
    pub streams_detached: Level,
    /// `streams_held`: answers that are complete, kept for a resume.
    pub streams_held: Level,
    /// `events_appended_total`: events of backends put into a log.
    pub events_appended: Count,
    /// `events_sent_total`: events written to clients, replayed ones included.
    pub events_sent: Count,
    /// `events_replayed_total`: events that a resume asked for.
    pub events_replayed: Count,
    /// `sent_bytes_total`: bytes of streams written to clients, without framing.
    pub bytes_sent: Count,
    /// `events_dropped_total{why}`.
    pub events_dropped: Tally<Dropped>,
    /// `repeats_total{outcome}`: POSTs that came again.
    pub repeats: Tally<Repeated>,
    /// `proofs_total{outcome}`: credentials put to a backend before anything was answered from memory.
    pub proofs: Tally<Proved>,
    /// `events_evicted_total{by}`: events that left a log.
    pub events_evicted: Tally<EvictedBy>,
    /// `continuity_total{verdict}`: what was said on each SSE answer.
    pub continuity: Tally<Verdict>,
    /// `resets_total{reason}`.
    pub resets: Tally<Reason>,
    /// `upstream_exchanges_total{outcome}`.
    pub exchanges: Tally<Exchanged>,
    /// `replica_ejections_total{why}`.
    pub ejections: Tally<EjectedFor>,
    /// `replica_healthy{replica}` and `replica_sessions{replica}`.
    pub replicas: ReplicaLevels,
    /// `first_byte_seconds`: from a request's head to the first byte of its answer.
    pub first_byte: Times,
    /// `stream_seconds`: a client's connection to a stream, from head to end. Never mixed with the one above.
    pub stream_life: Times,
}

impl UpstreamInstruments {
    /// `requests_total` of one kind.
    pub fn requests(&self, kind: RequestKind) -> &Tally<RequestOutcome> {
        let place = RequestKind::ALL
            .iter()
            .position(|other| *other == kind)
            .unwrap_or(0);
        &self.requests[place]
    }

    /// `streams_live` of one kind.
    pub fn streams_live(&self, kind: StreamKind) -> &Level {
        let place = StreamKind::ALL
            .iter()
            .position(|other| *other == kind)
            .unwrap_or(0);
        &self.streams_live[place]
    }
}

/// What is measured of each replica. Replicas come and go with the configuration, at most as many as it may name; a
/// lock is taken when one changes, never for a request.
#[derive(Debug)]
pub struct ReplicaLevels {
    pub(super) upstream: Arc<str>,
    pub(super) healthy: Family<Labels, Gauge>,
    pub(super) sessions: Family<Labels, Gauge>,
}

impl ReplicaLevels {
    fn labels(&self, replica: &str) -> Labels {
        vec![(UPSTREAM, Arc::clone(&self.upstream)), (REPLICA, replica.into())]
    }

    /// `replica_healthy`: 1 where it takes new sessions, else 0.
    pub fn healthy(&self, replica: &str) -> Level {
        Level(self.healthy.get_or_create_owned(&self.labels(replica)))
    }

    /// `replica_sessions`: sessions that live on it.
    pub fn sessions(&self, replica: &str) -> Level {
        Level(self.sessions.get_or_create_owned(&self.labels(replica)))
    }

    /// It is not configured any more, and has no session.
    pub fn forget(&self, replica: &str) {
        self.healthy.remove(&self.labels(replica));
        self.sessions.remove(&self.labels(replica));
    }
}

//! Every metric, in one struct that is made once and shared.
//! Law: every time series is made with its upstream or replica, from the configuration and closed lists of words, so that
//! their number is bounded and a zero is seen before the first event; what is counted afterwards is one atomic addition.
//! The only door to the metrics library. On a stream's path: once for each batch, never for each event.
//! Next: `subscriber.rs`.

use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::lines;
pub use super::meters::{Count, Level, Tally, Times, Within};
use super::names::{BY, KIND, OUTCOME, PREFIX, REASON, UPSTREAM, VERDICT, WHY};
pub use super::of_upstream::{ReplicaLevels, UpstreamInstruments};
use super::words::{Reloaded, RequestKind, StreamKind, Turned, Word};

/// What `/metrics` answers in: the `Content-Type` of [`Instruments::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper ends of the buckets of time to first byte, in seconds: from a tool on the same machine to a model's pace.
const FIRST_BYTE_SECONDS: [f64; 15] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];

/// Upper ends of the buckets of a stream's life, in seconds: from one call to a working day.
const STREAM_SECONDS: [f64; 10] = [
    0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0,
];

pub(super) type Labels = Vec<(&'static str, Arc<str>)>;
type HistogramOf = Family<Labels, Histogram, fn() -> Histogram>;

/// An upstream as it is labelled.
#[derive(Clone, Debug)]
pub struct Labelled<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its replicas' `host:port`, in the order of the configuration.
    pub replicas: Vec<String>,
}

/// Every metric of the process.
#[derive(Debug)]
pub struct Instruments {
    families: Families,
    /// Of each upstream of the start, in the order of the configuration.
    pub upstreams: Box<[Arc<UpstreamInstruments>]>,
    /// `connections_live`: connections of clients.
    pub connections_live: Level,
    /// `connections_total`: connections of clients, refused ones included.
    pub connections: Count,
    /// `refused_total{why}`: what was refused before it reached an upstream.
    pub refused: Tally<Turned>,
    /// `log_bytes`: what all logs hold, in bytes.
    pub log_bytes: Level,
    /// `draining`: 1 from the signal on.
    pub draining: Level,
    /// `config_reload_total{outcome}`.
    pub reloads: Tally<Reloaded>,
    /// `config_loaded_seconds`: when the configuration that holds was read, in seconds since 1970.
    pub loaded: Level,
}

impl Instruments {
    /// Makes every time series there will ever be.
    pub fn new(upstreams: &[Labelled<'_>]) -> Self {
        let (families, process) = Families::new();
        let made = upstreams
            .iter()
            .map(|upstream| Arc::new(families.upstream(upstream)))
            .collect();
        let Process {
            connections_live,
            connections,
            refused,
            log_bytes,
            draining,
            reloads,
            loaded,
        } = process;
        Self {
            families,
            upstreams: made,
            connections_live,
            connections,
            refused,
            log_bytes,
            draining,
            reloads,
            loaded,
        }
    }

    /// Everything, as OpenMetrics text ([`CONTENT_TYPE`]).
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail, and half an answer is better than none.
        let _ = text::encode(&mut out, &self.families.registry);
        out
    }

    /// Makes the time series of an upstream that comes later.
    pub fn upstream(&self, upstream: &Labelled<'_>) -> Arc<UpstreamInstruments> {
        Arc::new(self.families.upstream(upstream))
    }
}

/// What is measured of the process.
struct Process {
    connections_live: Level,
    connections: Count,
    refused: Tally<Turned>,
    log_bytes: Level,
    draining: Level,
    reloads: Tally<Reloaded>,
    loaded: Level,
}

impl Process {
    fn new(registry: &mut Registry) -> Self {
        let refused = Family::<Labels, Counter>::default();
        registry.register(
            "refused",
            "Connections and requests refused before an upstream saw them",
            refused.clone(),
        );
        let reloads = Family::<Labels, Counter>::default();
        let help = "Readings of a configuration that changed, by what came of them";
        registry.register("config_reload", help, reloads.clone());
        let version: Labels = vec![("version", env!("CARGO_PKG_VERSION").into())];
        registry.register("build", "The version that runs", Info::new(version));
        let help = "Log lines that could not be written fast enough, or not at all";
        registry.register("log_lines_lost", help, lines::lost().0);
        Self {
            connections_live: level(registry, "connections_live", "Connections of clients"),
            connections: count(
                registry,
                "connections",
                "Connections of clients, refused ones included",
            ),
            refused: Tally::new(|word| Count(refused.get_or_create_owned(&vec![(WHY, word.into())]))),
            log_bytes: level(registry, "log_bytes", "Bytes that all logs hold for replay"),
            draining: level(registry, "draining", "1 from the signal to drain on"),
            reloads: Tally::new(|word| Count(reloads.get_or_create_owned(&vec![(OUTCOME, word.into())]))),
            loaded: level(
                registry,
                "config_loaded_seconds",
                "When the configuration that holds was read, in seconds since 1970",
            ),
        }
    }
}

fn count(registry: &mut Registry, name: &str, help: &str) -> Count {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    Count(counter)
}

fn level(registry: &mut Registry, name: &str, help: &str) -> Level {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    Level(gauge)
}

/// The families of metrics that have the label `upstream`.
#[derive(Debug)]
struct Families {
    registry: Registry,
    counters: Vec<(&'static str, Family<Labels, Counter>)>,
    gauges: Vec<(&'static str, Family<Labels, Gauge>)>,
    first_byte: HistogramOf,
    stream_life: HistogramOf,
}

/// Counters with the label `upstream`: name and help.
const COUNTERS: [(&str, &str); 20] = [
    ("requests", "Requests of clients, by how they were answered"),
    ("sessions_opened", "Sessions that were given an id"),
    ("sessions_ended", "Sessions that ended, by reason"),
    ("sessions_lost", "Sessions that their backend has lost, by cause"),
    (
        "sessions_regained",
        "Lost sessions that go on with a new one at a backend",
    ),
    (
        "calls_refused",
        "Tool calls not run, since the model had to be told of a loss first",
    ),
    (
        "notices_dropped",
        "Notifications and answers that no backend waits for any more",
    ),
    ("streams_opened", "Streams that began"),
    ("events_appended", "Events of backends that were put into a log"),
    ("events_sent", "Events written to clients, replayed ones included"),
    ("events_replayed", "Events that followed a presented cursor"),
    (
        "sent_bytes",
        "Bytes of streams written to clients, without framing",
    ),
    ("events_dropped", "Events of backends that were not passed on"),
    ("repeats", "POSTs that came again, by what they were given"),
    (
        "proofs",
        "Credentials that backends were asked about, by what they said",
    ),
    (
        "events_evicted",
        "Events that left a log, by the bound that took them",
    ),
    (
        "continuity",
        "What clients were told of continuity when they connected to a stream",
    ),
    (
        "resets",
        "Losses of continuity that clients were told of, by reason",
    ),
    ("upstream_exchanges", "Requests to backends, by how they went"),
    (
        "replica_ejections",
        "Times that failing exchanges took a replica out of the choice for new sessions",
    ),
];

/// Gauges with the label `upstream`: name and help.
const GAUGES: [(&str, &str); 6] = [
    ("sessions_live", "Sessions that have not ended"),
    ("streams_live", "Streams of which something is still to come"),
    ("streams_detached", "Live streams without a client"),
    ("streams_held", "Complete answers that are kept for a resume"),
    ("replica_healthy", "1 where a replica takes new sessions"),
    ("replica_sessions", "Sessions that live on a replica"),
];

impl Families {
    fn new() -> (Self, Process) {
        let mut registry = Registry::with_prefix(PREFIX);
        let process = Process::new(&mut registry);
        let counters = COUNTERS.map(|(name, help)| {
            let family = Family::<Labels, Counter>::default();
            registry.register(name, help, family.clone());
            (name, family)
        });
        let gauges = GAUGES.map(|(name, help)| {
            let family = Family::<Labels, Gauge>::default();
            registry.register(name, help, family.clone());
            (name, family)
        });
        let first_byte = HistogramOf::new_with_constructor(|| Histogram::new(FIRST_BYTE_SECONDS));
        let help = "Seconds from a request to the first byte of its answer";
        registry.register("first_byte_seconds", help, first_byte.clone());
        let stream_life = HistogramOf::new_with_constructor(|| Histogram::new(STREAM_SECONDS));
        let help = "Seconds that a client's connection to a stream lasted";
        registry.register("stream_seconds", help, stream_life.clone());
        let families = Self {
            registry,
            counters: counters.into(),
            gauges: gauges.into(),
            first_byte,
            stream_life,
        };
        (families, process)
    }

    fn count(&self, name: &str, labels: Labels) -> Count {
        let family = self.counters.iter().find(|(other, _)| *other == name);
        Count(family.map_or_else(Counter::default, |(_, family)| {
            family.get_or_create_owned(&labels)
        }))
    }

    fn gauge(&self, name: &str) -> Family<Labels, Gauge> {
        let family = self.gauges.iter().find(|(other, _)| *other == name);
        family.map_or_else(Family::default, |(_, family)| family.clone())
    }

    fn level(&self, name: &str, labels: Labels) -> Level {
        Level(self.gauge(name).get_or_create_owned(&labels))
    }

    fn replicas(&self, upstream: &Labelled<'_>) -> ReplicaLevels {
        let levels = ReplicaLevels {
            upstream: upstream.name.into(),
            healthy: self.gauge("replica_healthy"),
            sessions: self.gauge("replica_sessions"),
        };
        for replica in &upstream.replicas {
            levels.healthy(replica);
            levels.sessions(replica);
        }
        levels
    }

    fn upstream(&self, upstream: &Labelled<'_>) -> UpstreamInstruments {
        let own: Arc<str> = upstream.name.into();
        let with = |more: &[(&'static str, &str)]| -> Labels {
            let more = more.iter().map(|(label, value)| (*label, Arc::from(*value)));
            std::iter::once((UPSTREAM, own.clone())).chain(more).collect()
        };
        let level = |name: &str, more: &[(&'static str, &str)]| self.level(name, with(more));
        let tally = |name: &'static str, label: &'static str| {
            let with = &with;
            move |word: &'static str| self.count(name, with(&[(label, word)]))
        };
        let requests = RequestKind::ALL.iter().map(|kind| {
            let kind = kind.as_str();
            Tally::new(|outcome| self.count("requests", with(&[(KIND, kind), (OUTCOME, outcome)])))
        });
        UpstreamInstruments {
            requests: requests.collect(),
            sessions_opened: self.count("sessions_opened", with(&[])),
            sessions_live: level("sessions_live", &[]),
            sessions_ended: Tally::new(tally("sessions_ended", REASON)),
            sessions_lost: Tally::new(tally("sessions_lost", REASON)),
            sessions_regained: self.count("sessions_regained", with(&[])),
            calls_refused: self.count("calls_refused", with(&[])),
            notices_dropped: self.count("notices_dropped", with(&[])),
            streams_opened: Tally::new(tally("streams_opened", KIND)),
            streams_live: StreamKind::ALL
                .iter()
                .map(|kind| level("streams_live", &[(KIND, kind.as_str())]))
                .collect(),
            streams_detached: level("streams_detached", &[]),
            streams_held: level("streams_held", &[]),
            events_appended: self.count("events_appended", with(&[])),
            events_sent: self.count("events_sent", with(&[])),
            events_replayed: self.count("events_replayed", with(&[])),
            bytes_sent: self.count("sent_bytes", with(&[])),
            events_dropped: Tally::new(tally("events_dropped", WHY)),
            repeats: Tally::new(tally("repeats", OUTCOME)),
            proofs: Tally::new(tally("proofs", OUTCOME)),
            events_evicted: Tally::new(tally("events_evicted", BY)),
            continuity: Tally::new(tally("continuity", VERDICT)),
            resets: Tally::new(tally("resets", REASON)),
            exchanges: Tally::new(tally("upstream_exchanges", OUTCOME)),
            ejections: Tally::new(tally("replica_ejections", WHY)),
            replicas: self.replicas(upstream),
            first_byte: Times(self.first_byte.get_or_create_owned(&with(&[]))),
            stream_life: Times(self.stream_life.get_or_create_owned(&with(&[]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pure::epoch::Reason;
    use crate::telemetry::words::{RequestOutcome, SessionEnd};

    fn made() -> Instruments {
        let one = Labelled {
            name: "mcp",
            replicas: vec!["127.0.0.1:3001".into(), "127.0.0.1:3002".into()],
        };
        let two = Labelled {
            name: "other",
            replicas: vec!["[::1]:3001".into()],
        };
        Instruments::new(&[one, two])
    }

    fn check(instruments: &Instruments, line: &str) {
        let text = instruments.encode();
        assert!(
            text.lines().any(|other| other == line),
            "no line `{line}` in\n{text}"
        );
    }

    #[test]
    fn what_is_counted_is_shown() {
        let instruments = made();
        let upstream = &instruments.upstreams[0];
        upstream.requests(RequestKind::Resume).one(RequestOutcome::Stream);
        upstream.sessions_ended.one(SessionEnd::Idle);
        upstream.resets.add(Reason::WindowExceeded, 3);
        upstream.events_sent.add(64);
        upstream.bytes_sent.add(4_096);
        upstream.replicas.healthy("127.0.0.1:3002").set(1);
        upstream.replicas.forget("127.0.0.1:3001");
        instruments.reloads.one(Reloaded::Refused);
        upstream.first_byte.took(Duration::from_millis(3));
        upstream.stream_life.took(Duration::from_secs(90));
        instruments.refused.one(Turned::Host);
        instruments.log_bytes.shift(500);
        instruments.log_bytes.shift(-200);
        for line in [
            r#"throughline_requests_total{upstream="mcp",kind="resume",outcome="stream"} 1"#,
            r#"throughline_sessions_ended_total{upstream="mcp",reason="idle"} 1"#,
            r#"throughline_resets_total{upstream="mcp",reason="window_exceeded"} 3"#,
            r#"throughline_events_sent_total{upstream="mcp"} 64"#,
            r#"throughline_sent_bytes_total{upstream="mcp"} 4096"#,
            r#"throughline_replica_healthy{upstream="mcp",replica="127.0.0.1:3002"} 1"#,
            r#"throughline_config_reload_total{outcome="refused"} 1"#,
            r#"throughline_first_byte_seconds_bucket{le="0.0025",upstream="mcp"} 0"#,
            r#"throughline_first_byte_seconds_bucket{le="0.005",upstream="mcp"} 1"#,
            r#"throughline_stream_seconds_count{upstream="mcp"} 1"#,
            r#"throughline_refused_total{why="host"} 1"#,
            "throughline_log_bytes 300",
            // Of the other upstream nothing was counted, and that is said.
            r#"throughline_resets_total{upstream="other",reason="evicted"} 0"#,
            r#"throughline_replica_healthy{upstream="other",replica="[::1]:3001"} 0"#,
            "# EOF",
        ] {
            check(&instruments, line);
        }
        assert!(
            !instruments.encode().contains("127.0.0.1:3001"),
            "who is forgotten is gone"
        );
    }

    #[test]
    fn a_level_falls_when_its_holder_goes() {
        let instruments = made();
        let live = instruments.upstreams[1].streams_live(StreamKind::Post);
        let one = live.enter();
        let two = live.enter();
        assert_eq!(live.get(), 2);
        drop(one);
        check(
            &instruments,
            r#"throughline_streams_live{upstream="other",kind="post"} 1"#,
        );
        drop(two);
        assert_eq!(live.get(), 0);
    }

    #[test]
    fn no_series_is_made_after_the_start() {
        let instruments = made();
        let series = |text: String| text.lines().filter(|line| !line.starts_with('#')).count();
        let before = series(instruments.encode());
        let upstream = &instruments.upstreams[0];
        for kind in RequestKind::ALL {
            for outcome in RequestOutcome::ALL {
                upstream.requests(*kind).one(*outcome);
            }
        }
        for reason in Reason::ALL {
            upstream.resets.one(reason);
        }
        upstream.first_byte.took(Duration::from_secs(7_200));
        assert_eq!(series(instruments.encode()), before);
    }

    #[test]
    fn every_family_is_filled() {
        let text = made().encode();
        for (name, _) in COUNTERS {
            assert!(
                text.contains(&format!("{PREFIX}_{name}_total{{upstream=\"mcp\"")),
                "{name}"
            );
        }
        for (name, _) in GAUGES {
            assert!(
                text.contains(&format!("{PREFIX}_{name}{{upstream=\"mcp\"")),
                "{name}"
            );
        }
    }
}

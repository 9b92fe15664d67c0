//! What the operator sees of the process: upstreams, replicas, sessions, memory, and whether traffic should come here.
//! Law: names, words and numbers, never a token, a credential or a payload. Text and JSON say the same.
//! Pure: who fills it in is `app/operator.rs`; readiness is concluded here, so that both say the same too.
//! Next: `answer.rs`.

use std::fmt::Write as _;

use super::Readiness;
use crate::pure::rpc::quoted;
use crate::telemetry::names::utc;

/// The process.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The version that runs.
    pub version: &'static str,
    /// The configuration's file, if there is one.
    pub config: Option<String>,
    /// When the configuration that holds was read, in seconds since 1970.
    pub loaded: u64,
    /// Whether the process goes on.
    pub course: Course,
    /// Whether other proxies may serve the same sessions.
    pub peers: Peers,
    /// Connections of clients, parked streams included.
    pub connections: usize,
    /// Bytes that the logs hold for replay.
    pub held: usize,
    /// Bytes that they may hold (`memory.replay_max`).
    pub budget: usize,
    /// In the order of the configuration.
    pub upstreams: Vec<UpstreamStatus>,
}

/// Whether the process goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Course {
    /// It does.
    #[default]
    Serving,
    /// It drains and ends.
    Draining,
}

/// Whether other proxies may serve the same sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peers {
    /// None does, as far as anybody knows.
    #[default]
    None,
    /// Some may: the configuration says so.
    Possible,
    /// One does, or did, though the configuration says that there is none.
    Seen {
        /// When that was seen first, in seconds since 1970.
        since: u64,
    },
}

impl Peers {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Possible => "possible",
            Self::Seen { .. } => "seen",
        }
    }

    const fn since(self) -> Option<u64> {
        match self {
            Self::Seen { since } => Some(since),
            Self::None | Self::Possible => None,
        }
    }
}

/// One upstream.
#[derive(Clone, Debug, Default)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: String,
    /// Where clients find it.
    pub path: String,
    /// Live sessions.
    pub sessions: usize,
    /// Live standalone streams.
    pub listening: i64,
    /// Answers to calls of which something is still to come.
    pub answering: i64,
    /// Complete answers that are kept for a resume.
    pub held: i64,
    /// Those that listen or are answered, and have no client.
    pub detached: i64,
    /// Its replicas, those that leave last.
    pub replicas: Vec<ReplicaStatus>,
}

/// One replica.
#[derive(Clone, Debug)]
pub struct ReplicaStatus {
    /// Where it is dialled.
    pub authority: String,
    /// How it stands.
    pub state: State,
    /// Sessions that live on it.
    pub sessions: usize,
    /// Exchanges under way.
    pub in_flight: usize,
    /// What went wrong last, if anything ever did.
    pub last_error: Option<Mishap>,
}

/// Something that went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mishap {
    /// In words.
    pub what: String,
    /// So many seconds ago.
    pub ago_s: u64,
}

/// How a replica stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It takes new sessions.
    Healthy,
    /// It takes new sessions; nothing is known of it yet.
    Unproved,
    /// Its probes failed.
    Unhealthy,
    /// Its exchanges failed; it is tried again after so many milliseconds.
    Ejected {
        /// How many.
        ms: u64,
    },
    /// It takes no new session, and loses those that it has after so many milliseconds.
    Draining {
        /// How many.
        ms: u64,
    },
    /// It was drained.
    Drained,
}

impl State {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unproved => "unproved",
            Self::Unhealthy => "unhealthy",
            Self::Ejected { .. } => "ejected",
            Self::Draining { .. } => "draining",
            Self::Drained => "drained",
        }
    }

    const fn left(self) -> Option<u64> {
        match self {
            Self::Ejected { ms } | Self::Draining { ms } => Some(ms),
            Self::Healthy | Self::Unproved | Self::Unhealthy | Self::Drained => None,
        }
    }
}

impl Status {
    /// Whether new clients should be sent here: while any replica of any upstream is known to be well.
    pub fn readiness(&self) -> Readiness {
        match self.course {
            Course::Draining => return Readiness::Draining,
            Course::Serving => {}
        }
        let has = |state| {
            let mut replicas = self.upstreams.iter().flat_map(|upstream| &upstream.replicas);
            replicas.any(|replica| replica.state == state)
        };
        if has(State::Healthy) {
            Readiness::Ready
        } else if has(State::Unproved) {
            Readiness::Starting
        } else {
            Readiness::NoHealthyReplica
        }
    }

    /// One line for each upstream that has no healthy replica: its name, and each replica with its state.
    pub fn wanting(&self) -> String {
        let mut out = String::new();
        for upstream in &self.upstreams {
            if upstream
                .replicas
                .iter()
                .any(|replica| replica.state == State::Healthy)
            {
                continue;
            }
            let replicas: Vec<String> = upstream
                .replicas
                .iter()
                .map(|replica| format!("{} {}", replica.authority, replica.state.as_str()))
                .collect();
            // Writing to a string can't fail.
            let _ = writeln!(out, "upstream {}: {}", upstream.name, replicas.join(", "));
        }
        out
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let config = self.config.as_deref().unwrap_or("(flags)");
        let since = self
            .peers
            .since()
            .map(|since| format!(" since {}: set server.peers to \"possible\"", utc(since)));
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "throughline {}  {}\nconfig      {config}, read {}\npeers       {}{}\nconnections {}\nmemory      {} of {} bytes held for replay",
            self.version,
            self.readiness().as_str(),
            utc(self.loaded),
            self.peers.as_str(),
            since.unwrap_or_default(),
            self.connections,
            self.held,
            self.budget
        );
        for upstream in &self.upstreams {
            let _ = writeln!(
                out,
                "\nupstream {} at {}: {} sessions, {} listening, {} answering, {} held, {} detached",
                upstream.name,
                upstream.path,
                upstream.sessions,
                upstream.listening,
                upstream.answering,
                upstream.held,
                upstream.detached
            );
            for replica in &upstream.replicas {
                let left = replica
                    .state
                    .left()
                    .map(|ms| format!(" for {} s", ms.div_ceil(1_000)));
                let _ = write!(
                    out,
                    "  {} {}{}, {} sessions, {} in flight",
                    replica.authority,
                    replica.state.as_str(),
                    left.unwrap_or_default(),
                    replica.sessions,
                    replica.in_flight
                );
                match &replica.last_error {
                    Some(Mishap { what, ago_s }) => {
                        let _ = writeln!(out, "; last error {ago_s} s ago: {what}");
                    }
                    None => out.push('\n'),
                }
            }
        }
        out
    }

    /// For programs.
    pub fn json(&self) -> String {
        let upstreams: Vec<String> = self.upstreams.iter().map(UpstreamStatus::json).collect();
        let since = self.peers.since().map(utc);
        format!(
            r#"{{"version":{},"readiness":{},"config":{},"loaded":{},"peers":{},"peers_since":{},"connections":{},"memory":{{"held":{},"budget":{}}},"upstreams":[{}]}}"#,
            quoted(self.version),
            quoted(self.readiness().as_str()),
            or_null(self.config.as_deref()),
            quoted(&utc(self.loaded)),
            quoted(self.peers.as_str()),
            or_null(since.as_deref()),
            self.connections,
            self.held,
            self.budget,
            upstreams.join(",")
        ) + "\n"
    }
}

impl UpstreamStatus {
    fn json(&self) -> String {
        let replicas: Vec<String> = self.replicas.iter().map(ReplicaStatus::json).collect();
        format!(
            r#"{{"name":{},"path":{},"sessions":{},"streams":{{"get":{},"post":{},"held":{},"detached":{}}},"replicas":[{}]}}"#,
            quoted(&self.name),
            quoted(&self.path),
            self.sessions,
            self.listening,
            self.answering,
            self.held,
            self.detached,
            replicas.join(",")
        )
    }
}

impl ReplicaStatus {
    fn json(&self) -> String {
        let left = self
            .state
            .left()
            .map_or_else(String::new, |ms| format!(r#","for_ms":{ms}"#));
        let (what, ago) = match &self.last_error {
            Some(Mishap { what, ago_s }) => (quoted(what), ago_s.to_string()),
            None => ("null".to_owned(), "null".to_owned()),
        };
        format!(
            r#"{{"replica":{},"state":{}{left},"sessions":{},"in_flight":{},"last_error":{what},"last_error_ago_s":{ago}}}"#,
            quoted(&self.authority),
            quoted(self.state.as_str()),
            self.sessions,
            self.in_flight
        )
    }
}

fn or_null(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), quoted)
}

#[cfg(test)]
impl Status {
    /// One upstream whose replicas stand like this.
    pub(super) fn of(states: &[State]) -> Self {
        let replica = |(port, state): (usize, &State)| ReplicaStatus {
            authority: format!("127.0.0.1:{}", 3001 + port),
            state: *state,
            sessions: port,
            in_flight: 1,
            last_error: (port == 1).then(|| Mishap {
                what: "said \"no\"".to_owned(),
                ago_s: 9,
            }),
        };
        Self {
            version: "1.2.3",
            loaded: 1_764_547_200,
            budget: 1_024,
            upstreams: vec![UpstreamStatus {
                name: "mcp".into(),
                path: "/mcp".into(),
                sessions: 7,
                replicas: states.iter().enumerate().map(replica).collect(),
                ..UpstreamStatus::default()
            }],
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_once_a_replica_is_known_to_be_well() {
        fn check(states: &[State], expected: Readiness, wanting: &str) {
            assert_eq!(Status::of(states).readiness(), expected, "{states:?}");
            assert_eq!(Status::of(states).wanting(), wanting);
        }
        let (out, draining) = (State::Ejected { ms: 1 }, State::Draining { ms: 1 });
        check(&[State::Unhealthy, State::Healthy], Readiness::Ready, "");
        check(
            &[State::Unproved],
            Readiness::Starting,
            "upstream mcp: 127.0.0.1:3001 unproved\n",
        );
        check(&[State::Unproved, State::Healthy], Readiness::Ready, "");
        check(
            &[State::Unhealthy, out, draining, State::Drained],
            Readiness::NoHealthyReplica,
            "upstream mcp: 127.0.0.1:3001 unhealthy, 127.0.0.1:3002 ejected, 127.0.0.1:3003 draining, \
             127.0.0.1:3004 drained\n",
        );
        let mut draining = Status::of(&[State::Healthy]);
        draining.course = Course::Draining;
        assert_eq!(draining.readiness(), Readiness::Draining);
    }

    #[test]
    fn text_and_json_say_the_same() {
        let status = Status::of(&[State::Healthy, State::Draining { ms: 1_500 }]);
        assert_eq!(
            status.text(),
            "throughline 1.2.3  ready\n\
             config      (flags), read 2025-12-01T00:00:00Z\n\
             peers       none\n\
             connections 0\n\
             memory      0 of 1024 bytes held for replay\n\
             \n\
             upstream mcp at /mcp: 7 sessions, 0 listening, 0 answering, 0 held, 0 detached\n\
             \x20 127.0.0.1:3001 healthy, 0 sessions, 1 in flight\n\
             \x20 127.0.0.1:3002 draining for 2 s, 1 sessions, 1 in flight; last error 9 s ago: said \"no\"\n"
        );
        let json: serde_json::Value = serde_json::from_str(&status.json()).unwrap();
        assert_eq!(json["readiness"], "ready");
        assert_eq!(json["loaded"], "2025-12-01T00:00:00Z");
        assert_eq!(json["config"], serde_json::Value::Null);
        assert_eq!(json["memory"]["budget"], 1_024);
        assert_eq!(json["peers"], "none");
        assert_eq!(json["peers_since"], serde_json::Value::Null);
        let replica = &json["upstreams"][0]["replicas"][1];
        assert_eq!(replica["state"], "draining");
        assert_eq!(replica["for_ms"], 1_500);
        assert_eq!(replica["last_error"], "said \"no\"");
        assert_eq!(replica["last_error_ago_s"], 9);
        assert_eq!(
            json["upstreams"][0]["replicas"][0]["last_error"],
            serde_json::Value::Null
        );
    }

    #[test]
    fn peers_that_were_seen_are_shown_with_what_to_do() {
        let status = Status {
            peers: Peers::Seen { since: 1_764_547_200 },
            ..Status::of(&[])
        };
        let said = "\npeers       seen since 2025-12-01T00:00:00Z: set server.peers to \"possible\"\n";
        assert!(status.text().contains(said), "{}", status.text());
        let json: serde_json::Value = serde_json::from_str(&status.json()).unwrap();
        assert_eq!(
            (&json["peers"], &json["peers_since"]),
            (&"seen".into(), &"2025-12-01T00:00:00Z".into())
        );
    }
}

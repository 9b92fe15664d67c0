//! Active health checks: one loop for each replica, which also closes its old idle connections.
//! Law: a change of condition is logged once, with upstream, replica and reason; a failed probe is the replica's
//! trouble, never session loss by itself. The first probe is sent at once: until it has come back nothing is known.
//! Cancel-safe at its one await over a timer or a probe: dropping the future is how it is stopped.
//! Absent on purpose: the judgement (`routing/health.rs`) and metrics (the callback's).
//! Next: `relay/mod.rs`.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::resolved::{Health, Probe};
use crate::net::Net;
use crate::routing::ejection::{Proof, Proved};
use crate::routing::health::{Finding, Judge, Transition};
use crate::routing::{Condition, Replica};
use crate::upstream::backoff::share;
use crate::upstream::client::{Client, Deadline, Outgoing};
use crate::upstream::failure::{Cause, SpeaksOf};

/// How often idle connections are swept where nothing is probed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Shortest time between two probes: a timer can't do with less.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Longest time between two probes: a day, which no clock overflows by.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Who is watched, and how.
pub struct Watched {
    /// The upstream's name, for logs.
    pub upstream: Box<str>,
    /// The replica.
    pub replica: Arc<Replica>,
    /// How it is probed.
    pub health: Health,
    /// 64 random bits, so that many replicas are not probed at one moment.
    pub phase: u64,
}

/// What one probe of a replica found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probed {
    /// Whether it passed; what is wrong if not.
    pub outcome: Result<Proof, String>,
    /// How long it took.
    pub took: Duration,
    /// Whether the replica's condition changed by it.
    pub transition: Option<Transition>,
}

/// Probes one replica until dropped: at once, then once in each interval. `on` is told after each tick, also where
/// nothing is probed or could be: then with nothing.
pub async fn watch<N: Net>(
    client: Arc<Client<N>>,
    watched: Watched,
    on: impl Fn(&Replica, Option<&Probed>) + Send,
) -> Infallible {
    let Watched {
        upstream,
        replica,
        health,
        phase,
    } = watched;
    let every = match health.probe {
        Probe::Off => SWEEP_INTERVAL,
        Probe::Connect | Probe::Http(_) => health.interval.clamp(INTERVAL_MIN, INTERVAL_MAX),
    };
    let mut judge = Judge::new(health.fall, health.rise, replica.condition());
    let mut ticks = interval_at(Instant::now() + share(every, phase), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        client.sweep(&replica);
        let started = Instant::now();
        let probed = probe(&client, &replica, &health).await.map(|outcome| {
            let finding = match &outcome {
                Ok(proof) => {
                    tell_proved(&upstream, &replica, replica.proved(*proof));
                    Finding::Passed
                }
                Err(error) => {
                    replica.note_error(error);
                    Finding::Failed
                }
            };
            let transition = judge.note(finding);
            if let Some(transition) = transition {
                replica.set_condition(transition.to);
            }
            Probed {
                outcome,
                took: started.elapsed(),
                transition,
            }
        });
        if probed.is_none() && health.probe != Probe::Off {
            tracing::debug!(upstream, replica = %replica.authority(), "replica could not be probed");
        }
        on(&replica, probed.as_ref());
        // Said last: whoever reads it finds everything as it says.
        if let Some((probed, transition)) = probed.and_then(|probed| probed.transition.map(|to| (probed, to)))
        {
            tell(&upstream, &replica, transition, &probed.outcome);
        }
        ticks.tick().await;
    }
}

/// One probe; nothing if none is configured, or if this machine could not send one: then nothing is known.
async fn probe<N: Net>(
    client: &Client<N>,
    replica: &Arc<Replica>,
    health: &Health,
) -> Option<Result<Proof, String>> {
    let deadline = Deadline::after(health.timeout);
    let outcome = match &health.probe {
        Probe::Off => return None,
        Probe::Connect => match client.dial(replica, deadline).await {
            Ok(_) => Ok(Proof::Connected),
            Err(cause) => Err(failing(&cause, &cause)?),
        },
        Probe::Http(path) => {
            let request = Outgoing {
                method: Method::GET,
                target: path,
                headers: &HeaderMap::new(),
                withheld: |_| false,
                own: &[],
                body: Bytes::new(),
            };
            match client.send_afresh(replica, request, deadline).await {
                Ok(incoming) if incoming.head.status.is_success() => Ok(Proof::Answered),
                Ok(incoming) => Err(format!("{path} answered {}", incoming.head.status.as_u16())),
                Err(error) => Err(failing(error.cause(), &error)?),
            }
        }
    };
    if outcome.is_err() {
        replica.note_trouble();
    }
    Some(outcome)
}

/// What a failure says of the replica, if it speaks of it.
fn failing(cause: &Cause, said: &dyn fmt::Display) -> Option<String> {
    match cause.speaks_of() {
        SpeaksOf::Replica => Some(said.to_string()),
        SpeaksOf::Ourselves => None,
    }
}

fn tell(upstream: &str, replica: &Replica, transition: Transition, outcome: &Result<Proof, String>) {
    let Transition { to, after } = transition;
    match (to, outcome) {
        (Condition::Healthy, Ok(_) | Err(_)) => {
            tracing::info!(upstream, replica = %replica.authority(), probes = after, "replica became healthy");
        }
        (Condition::Unhealthy, Err(error)) => {
            tracing::warn!(upstream, replica = %replica.authority(), probes = after, %error, "replica became unhealthy");
        }
        (Condition::Unhealthy, Ok(_)) => {
            tracing::warn!(upstream, replica = %replica.authority(), probes = after, "replica became unhealthy");
        }
    }
}

/// Says that an ejection is over, if it is.
pub fn tell_proved(upstream: &str, replica: &Replica, proved: Proved) {
    match proved {
        Proved::Nothing => {}
        Proved::Returned => {
            tracing::info!(upstream, replica = %replica.authority(), "replica takes new sessions again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Lack;
    use crate::upstream::wire_tests::{Backend, Fails, OddNet, Step, client, replica, say, settings};
    use std::sync::Mutex;
    use tokio::time::advance;

    fn health(probe: Probe) -> Health {
        let (interval, timeout) = (Duration::from_secs(5), Duration::from_secs(2));
        Health {
            probe,
            interval,
            timeout,
            fall: 3,
            rise: 2,
            eject_after: 0,
            eject_time: interval,
            eject_time_max: interval,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_falls_and_rises_by_its_probes() {
        // Dials by turn: five are refused, then connections come.
        let net = OddNet::failing_first([Fails::Refused; 5]);
        let client = Arc::new(Client::new(net, settings(), None));
        let replica = replica();
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = Arc::clone(&told);
        let on = move |_: &Replica, probed: Option<&Probed>| {
            let probed = probed.expect("it is probed");
            teller
                .lock()
                .unwrap()
                .push((probed.outcome.is_ok(), probed.transition))
        };
        let watched = Watched {
            upstream: "tools".into(),
            replica: Arc::clone(&replica),
            health: health(Probe::Connect),
            phase: u64::MAX / 2,
        };
        let watching = tokio::spawn(watch(client, watched, on));
        tokio::task::yield_now().await;
        assert_eq!(told.lock().unwrap().len(), 1, "the first probe is sent at once");
        assert!(!replica.is_vouched());
        let mut conditions = vec![replica.condition()];
        for _ in 0..7 {
            advance(Duration::from_secs(5)).await;
            tokio::task::yield_now().await;
            conditions.push(replica.condition());
        }
        assert!(replica.is_vouched());
        let last = replica.last_error().expect("it was refused");
        assert_eq!(&*last.text, "the connection was refused");
        watching.abort();
        let (up, down) = (Condition::Healthy, Condition::Unhealthy);
        assert_eq!(conditions, [up, up, down, down, down, down, up, up]);
        let transitions: Vec<_> = told
            .lock()
            .unwrap()
            .iter()
            .filter_map(|(_, transition)| *transition)
            .collect();
        assert_eq!(
            transitions,
            [Transition { to: down, after: 3 }, Transition { to: up, after: 2 }]
        );
        assert_eq!(told.lock().unwrap().len(), 8);
        // Each failed probe counts at least once; a refused connection is a trouble of its own.
        assert!(replica.troubles() >= 5);
    }

    #[tokio::test]
    async fn a_probe_by_http_wants_a_2xx_from_its_own_connection() {
        let check = async |answer: &str, expected: Result<Proof, &str>| {
            let backend = Backend::start(vec![vec![Step::Take, say(answer)]]).await;
            let found = probe(
                &client(None),
                &backend.replica,
                &health(Probe::Http("/healthz".into())),
            )
            .await;
            let found = found.expect("it is probed");
            assert_eq!(
                found.as_ref().map_err(String::as_str).copied(),
                expected,
                "{answer:?}"
            );
            assert_eq!(*backend.taken.lock().unwrap(), ["0: GET /healthz HTTP/1.1"]);
            assert_eq!(backend.replica.troubles(), u64::from(expected.is_err()));
            assert_eq!(backend.replica.in_flight(), 0);
        };
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            Ok(Proof::Answered),
        )
        .await;
        check("HTTP/1.1 204 No Content\r\n\r\n", Ok(Proof::Answered)).await;
        check(
            "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
            Err("/healthz answered 302"),
        )
        .await;
        check(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
            Err("/healthz answered 503"),
        )
        .await;
        check(
            "",
            Err("sent, outcome unknown: the backend closed the connection before it answered"),
        )
        .await;
    }

    #[tokio::test]
    async fn without_probes_a_replica_stays_as_it_is() {
        let client = Client::new(OddNet::failing_first([]), settings(), None);
        assert_eq!(probe(&client, &replica(), &health(Probe::Off)).await, None);
    }

    #[tokio::test]
    async fn a_probe_that_this_machine_could_not_send_is_none() {
        for probed in [Probe::Connect, Probe::Http("/healthz".into())] {
            let net = OddNet::failing_first([Fails::Lacks(Lack::Descriptors), Fails::Refused]);
            let (client, replica) = (Client::new(net, settings(), None), replica());
            assert_eq!(probe(&client, &replica, &health(probed.clone())).await, None);
            assert_eq!(replica.troubles(), 0);
            let refused = probe(&client, &replica, &health(probed)).await;
            assert!(matches!(refused, Some(Err(_))), "{refused:?}");
        }
    }
}

//! Active health checks: one loop for each replica, which also closes its old idle connections.
//! Law: a change of condition is logged once; a failed probe is the replica's trouble, never session loss by itself.
//! Cancel-safe at its one await over a timer or a probe: dropping the future is how it is stopped.
//! Absent on purpose: the judgement (`routing/health.rs`) and metrics (the callback's).
//! Next: `relay/mod.rs`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::resolved::{Health, Probe};
use crate::net::Net;
use crate::routing::health::{Finding, Judge, Transition};
use crate::routing::{Condition, Replica};
use crate::upstream::backoff::share;
use crate::upstream::client::{Client, Deadline, Outgoing};

/// How often idle connections are swept where nothing is probed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Shortest time between two probes: a timer can't do with less.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Longest time between two probes: a day, which no clock overflows by.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What one probe of a replica found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probed {
    /// Whether it passed.
    pub finding: Finding,
    /// How long it took.
    pub took: Duration,
    /// Whether the replica's condition changed by it.
    pub transition: Option<Transition>,
}

/// Probes one replica until dropped. `phase` is 64 random bits, so that many replicas are not probed at one moment;
/// the first probe comes within one interval.
pub async fn watch<N: Net>(
    client: Arc<Client<N>>,
    replica: Arc<Replica>,
    health: Health,
    phase: u64,
    on: impl Fn(&Replica, Probed) + Send,
) -> Infallible {
    let every = match health.probe {
        Probe::Off => SWEEP_INTERVAL,
        Probe::Connect | Probe::Http(_) => health.interval.clamp(INTERVAL_MIN, INTERVAL_MAX),
    };
    let mut judge = Judge::new(health.fall, health.rise, replica.condition());
    let mut ticks = interval_at(Instant::now() + share(every, phase), every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        client.sweep(&replica);
        let started = Instant::now();
        let Some(finding) = probe(&client, &replica, &health).await else {
            continue;
        };
        let transition = judge.note(finding);
        if let Some(transition) = transition {
            replica.set_condition(transition.to);
            tell(&replica, transition);
        }
        on(
            &replica,
            Probed {
                finding,
                took: started.elapsed(),
                transition,
            },
        );
    }
}

/// One probe; nothing if none is configured.
async fn probe<N: Net>(client: &Client<N>, replica: &Arc<Replica>, health: &Health) -> Option<Finding> {
    let deadline = Deadline::after(health.timeout);
    let passed = match &health.probe {
        Probe::Off => return None,
        Probe::Connect => client.dial(replica, deadline).await.is_ok(),
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
                Ok(incoming) => incoming.head.status.is_success(),
                Err(_) => false,
            }
        }
    };
    if passed {
        return Some(Finding::Passed);
    }
    replica.note_trouble();
    Some(Finding::Failed)
}

fn tell(replica: &Replica, transition: Transition) {
    let Transition { to, after } = transition;
    match to {
        Condition::Healthy => {
            tracing::info!(replica = %replica.authority(), probes = after, "replica became healthy");
        }
        Condition::Unhealthy => {
            tracing::warn!(replica = %replica.authority(), probes = after, "replica became unhealthy");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::wire_tests::{Backend, OddNet, Step, client, replica, say, settings};
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
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_falls_and_rises_by_its_probes() {
        // Dials by turn: five are refused, then connections come.
        let net = Arc::new(OddNet::refusing_first(5));
        let client = Arc::new(Client::new(net, settings(), None));
        let replica = replica();
        let told = Arc::new(Mutex::new(Vec::new()));
        let teller = Arc::clone(&told);
        let on = move |_: &Replica, probed: Probed| {
            teller.lock().unwrap().push((probed.finding, probed.transition))
        };
        let watched = watch(
            client,
            Arc::clone(&replica),
            health(Probe::Connect),
            u64::MAX / 2,
            on,
        );
        let watching = tokio::spawn(watched);
        tokio::task::yield_now().await;
        let mut conditions = Vec::new();
        for _ in 0..8 {
            advance(Duration::from_secs(5)).await;
            tokio::task::yield_now().await;
            conditions.push(replica.condition());
        }
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
        let check = async |answer: &str, expected: Finding| {
            let backend = Backend::start(vec![vec![Step::Take, say(answer)]]).await;
            let found = probe(
                &client(None),
                &backend.replica,
                &health(Probe::Http("/healthz".into())),
            )
            .await;
            assert_eq!(found, Some(expected), "{answer:?}");
            assert_eq!(*backend.taken.lock().unwrap(), ["0: GET /healthz HTTP/1.1"]);
            assert_eq!(backend.replica.troubles(), u64::from(expected == Finding::Failed));
            assert_eq!(backend.replica.in_flight(), 0);
        };
        check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Finding::Passed).await;
        check("HTTP/1.1 204 No Content\r\n\r\n", Finding::Passed).await;
        check("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", Finding::Failed).await;
        check(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
            Finding::Failed,
        )
        .await;
        check("", Finding::Failed).await;
    }

    #[tokio::test]
    async fn without_probes_a_replica_stays_as_it_is() {
        let client = Client::new(Arc::new(OddNet::refusing_first(9)), settings(), None);
        assert_eq!(probe(&client, &replica(), &health(Probe::Off)).await, None);
    }
}

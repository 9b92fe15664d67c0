//! A doubt whether a replica still has a session: one `ping` on it decides, before anything else is sent.
//! Law: a replica that was away is no loss by itself. One that does not know the session is; so is one that says 2xx
//! and bears the signs of another start (wire contract, section 7). What is not answered in time decides nothing.
//! Sessions ask when they are used next, and few at a time: a replica that is back must not be asked by all at once.
//! Next: `recover.rs`.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info};

use crate::config::resolved::Sessions;
use crate::pure::refusal;
use crate::pure::rpc::RequestId;
use crate::pure::session::loss::Doubt;
use crate::pure::session::{LossCause, Losses};
use crate::relay::Relay;
use crate::relay::answer::NotExecuted;
use crate::relay::exchange::Understood;
use crate::relay::headers;
use crate::relay::home::Home;
use crate::relay::passing;
use crate::relay::pool::Unanswered;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::upstream::{Backoff, Deadline};

/// The part of `replica_retry_max` that a replica may take to answer: a paused one decides nothing, and what waits for
/// the answer must still be able to go there, and wait as it would without us.
const PING_SHARE: u32 = 2;

/// How long the rest of an answer to it may take, to give its connection back.
const REST_MAX: Duration = Duration::from_millis(500);

/// First wait before a replica that refuses connections is asked again, and the longest.
const AGAIN_BASE: Duration = Duration::from_millis(50);
const AGAIN_CAP: Duration = Duration::from_secs(1);

/// The name of our `ping`.
const PING: &str = "alive";

/// What a replica that is in doubt turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// It has the session, or did not say that it has not.
    Standing,
    /// It is away, and may be back with its sessions: whoever waits asks again.
    Away,
    /// It has lost it.
    Lost(LossCause),
}

/// Looks into a doubt, unless somebody does.
pub(crate) fn look_into<W: World>(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, home: &Arc<Home>) {
    match session.standing.change(Losses::doubt) {
        Doubt::LookInto => {}
        Doubt::SeenTo => return,
    }
    let (relay, session, home) = (Arc::clone(relay), Arc::clone(session), Arc::clone(home));
    tokio::spawn(async move {
        let (found, troubles) = match session.pool.config.sessions {
            // Any replica takes any request: there is nothing that only one of them knows.
            Sessions::Shared | Sessions::None => (Found::Standing, home.replica.troubles()),
            Sessions::Replica if home.backend_id.is_none() => (Found::Standing, home.replica.troubles()),
            Sessions::Replica => ask(&relay, &session, &home).await,
        };
        match found {
            Found::Standing => {
                home.verify(troubles);
                session.standing.change(Losses::cleared);
            }
            Found::Away => {
                session.standing.change(Losses::cleared);
            }
            Found::Lost(cause) => {
                let _ = relay.lost(&session, home.generation, cause);
            }
        }
    });
}

/// What the replica says, and its troubles before it was asked.
async fn ask<W: World>(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, home: &Home) -> (Found, u64) {
    if session.pool.table.get(home.replica.key()).is_none() {
        return (Found::Lost(LossCause::NotConfigured), 0);
    }
    let mut backoff = Backoff::new(AGAIN_BASE, AGAIN_CAP);
    let patience = session.pool.config.exchange.replica_retry_max;
    let until = relay.now().0 + patience.as_millis() as u64;
    loop {
        let troubles = home.replica.troubles();
        match ping(session, home, patience / PING_SHARE).await {
            Ok(said) => return (understood(session, home, said).await, troubles),
            Err(Unanswered::NotSent(why)) => {
                let again = backoff.next_wait(relay.chance());
                if relay.now().0 + again.as_millis() as u64 >= until {
                    let found = match (why, &session.opening) {
                        (NotExecuted::Unavailable, Some(_)) => Found::Lost(LossCause::Unreachable),
                        // It was never asked: that is our doing, and costs nobody a session.
                        (NotExecuted::Overloaded, _) | (NotExecuted::Unavailable, None) => Found::Away,
                    };
                    return (found, troubles);
                }
                tokio::time::sleep(again).await;
            }
            // Nothing is known; what is asked next will find out.
            Err(_) => return (Found::Standing, home.replica.troubles()),
        }
    }
}

async fn understood<W: World>(session: &Session<W>, home: &Home, said: Understood<W>) -> Found {
    match said {
        Understood::Gone => Found::Lost(LossCause::Gone),
        Understood::OtherInstance => Found::Lost(LossCause::Restarted),
        Understood::Whole(_) => Found::Standing,
        Understood::Answer(answer) => {
            let status = answer.head.status;
            if !headers::is_event_stream(&answer.head.headers) {
                // Reading it gives the connection back.
                let _ = tokio::time::timeout(REST_MAX, passing::content::<W>(answer)).await;
            }
            if home.is_another_server() {
                info!(session = %session.label(), replica = %home.replica.authority(), "replica is another server than before");
                return Found::Lost(LossCause::Restarted);
            }
            debug!(session = %session.label(), %status, "replica was in doubt, and has the session");
            Found::Standing
        }
    }
}

async fn ping<W: World>(
    session: &Arc<Session<W>>,
    home: &Home,
    wait: Duration,
) -> Result<Understood<W>, Unanswered> {
    let _few = home.replica.few_at_a_time().await;
    let request = session.own_post(refusal::ping(&RequestId::own(PING)));
    let answer = session
        .pool
        .send_once(&home.replica, home.known_by(), &request, Deadline::after(wait))
        .await?;
    Ok(session.understand(home, answer).await)
}

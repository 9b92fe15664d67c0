//! Keeping a session alive at its backend while its client wants it: a `ping` after silence.
//! Law: the sweep reminds, so nothing is on a timer of its own; a session's own time is not moved by a ping.
//! A ping that finds the session gone is a loss like any other; one that finds nobody says nothing.
//! Why: one SDK server ends sessions after five minutes even with a standalone stream open (wire contract, section 7).
//! Next: `pure/session/tending.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use crate::pure::log::Millis;
use crate::pure::refusal;
use crate::pure::rpc::RequestId;
use crate::pure::session::Phase;
use crate::pure::session::tending::{Tend, tend};
use crate::relay::Relay;
use crate::relay::exchange::{Sent, WholeAnswer};
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::routing::Condition;
use crate::upstream::Deadline;

/// How long a backend may take to answer a ping, in all.
const PING_MAX: Duration = Duration::from_secs(10);

impl<W: World> Session<W> {
    /// Tells the backend that the session lives, if it heard nothing of it for too long. When to look again.
    pub(crate) fn keep_alive(self: &Arc<Self>, relay: &Arc<Relay<W>>, now: Millis) -> Millis {
        if self.home().backend_id.is_none() || self.phase() != Phase::Live {
            // There is no session that a backend could forget.
            return Millis(u64::MAX);
        }
        let after = Millis(self.pool.config.session.ping_after.as_millis() as u64);
        match tend(self.spoke_at(), after, self.share(), now) {
            Tend::NotBefore(at) => at,
            Tend::Ping => {
                self.spoke(now);
                if self.replica().condition() == Condition::Healthy {
                    self.ping(relay);
                }
                Millis(now.0.saturating_add(after.0))
            }
        }
    }

    /// A number of its own, from the random end of its uid.
    fn share(&self) -> u32 {
        let uid = self.uid.as_bytes();
        u32::from_be_bytes([uid[12], uid[13], uid[14], uid[15]])
    }

    fn ping(self: &Arc<Self>, relay: &Arc<Relay<W>>) {
        // Servers that keep answers by request id must not mix it up with one of the client's.
        let id = RequestId::own(&format!("ping-{:016x}", relay.chance()));
        let request = self.own_post(refusal::ping(&id));
        let (session, relay) = (Arc::clone(self), Arc::clone(relay));
        tokio::spawn(async move {
            let asking = async {
                match session
                    .send_once(&relay, request, Deadline::after(PING_MAX))
                    .await
                {
                    // Read, so that its connection can be used again.
                    Ok(Sent::Answer(answer)) => WholeAnswer::read::<W>(answer).await.map(|_| ()),
                    Ok(Sent::Whole(_) | Sent::SessionGone | Sent::Refused | Sent::NotRun | Sent::Strange) => {
                        Some(())
                    }
                    Err(_) => None,
                }
            };
            if timeout(PING_MAX, asking).await.ok().flatten().is_none() {
                debug!(session = %session.label(), "a ping was not answered by the backend");
            }
        });
    }
}

//! What the outcome of each exchange says of its replica: passive health, beside the probes.
//! Law: an answer is an answer, whatever its status; only connections that fail and answers that never come count.
//! On the path of a good exchange: one load. Everything else happens when something is wrong.
//! Next: `replica_drain.rs`.

use std::sync::Arc;

use tracing::warn;

use crate::config::resolved::Health;
use crate::pure::log::Millis;
use crate::relay::pool::{BackendAnswer, Pool};
use crate::relay::world::World;
use crate::routing::Replica;
use crate::routing::choose::Standing;
use crate::routing::ejection::{Blow, Tolerance};
use crate::telemetry::words::{EjectedFor, Word};
use crate::upstream::prober_task::tell_proved;
use crate::upstream::{SendError, SpeaksOf};

impl<W: World> Pool<W> {
    /// Notes how an exchange with a replica went.
    pub(super) fn note_health(&self, replica: &Arc<Replica>, answer: &Result<BackendAnswer<W>, SendError>) {
        match answer {
            Ok(_) => tell_proved(&self.config.name, replica, replica.answered()),
            Err(error) => {
                if let Some(why) = held_against(error) {
                    self.note_failure(replica, why, error);
                }
            }
        }
    }

    fn note_failure(&self, replica: &Arc<Replica>, why: EjectedFor, error: &SendError) {
        replica.note_error(&error.to_string());
        let now = self.world.now();
        match replica.failed(why, tolerance(&self.config.health), now) {
            Blow::Borne { .. } => {}
            Blow::Ejected { failures, until } => {
                let for_ms = until.0.saturating_sub(now.0);
                self.instruments.ejections.one(why);
                self.measure(replica);
                warn!(upstream = %self.config.name, replica = %replica.authority(), why = why.as_str(), failures, for_ms, %error, "replica was ejected");
            }
        }
    }

    /// Brings what is measured of a replica up to date.
    pub fn measure(&self, replica: &Replica) {
        let takes = match replica.standing(self.world.now()) {
            Standing::Candidate(_) => 1,
            Standing::Ejected(_) | Standing::Unhealthy | Standing::Draining | Standing::Excluded => 0,
        };
        let name = replica.authority().to_string();
        self.instruments.replicas.healthy(&name).set(takes);
        let sessions = i64::try_from(replica.sessions()).unwrap_or(i64::MAX);
        self.instruments.replicas.sessions(&name).set(sessions);
    }
}

fn tolerance(health: &Health) -> Tolerance {
    Tolerance {
        after: health.eject_after,
        first: Millis(health.eject_time.as_millis() as u64),
        longest: Millis(health.eject_time_max.as_millis() as u64),
    }
}

/// What a failure says of the replica; nothing where the bound is ours.
fn held_against(error: &SendError) -> Option<EjectedFor> {
    match (error, error.cause().speaks_of()) {
        (_, SpeaksOf::Ourselves) => None,
        (SendError::NotSent(_), SpeaksOf::Replica) => Some(EjectedFor::Unreached),
        (SendError::Unknown(_), SpeaksOf::Replica) => Some(EjectedFor::Unanswered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Lack;
    use crate::upstream::Cause;

    #[test]
    fn what_is_held_against_a_replica() {
        #[track_caller]
        fn check(error: SendError, expected: Option<EjectedFor>) {
            assert_eq!(held_against(&error), expected, "{error}");
        }
        check(SendError::NotSent(Cause::Refused), Some(EjectedFor::Unreached));
        check(
            SendError::NotSent(Cause::ConnectTimeout),
            Some(EjectedFor::Unreached),
        );
        check(SendError::NotSent(Cause::Overloaded { in_flight_max: 1 }), None);
        check(SendError::NotSent(Cause::Lacking(Lack::Descriptors)), None);
        check(SendError::Unknown(Cause::EarlyEof), Some(EjectedFor::Unanswered));
        check(
            SendError::Unknown(Cause::HeadTimeout),
            Some(EjectedFor::Unanswered),
        );
    }
}

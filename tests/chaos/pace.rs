//! Pauses that are the behaviour of somebody: a client's before it comes back, a fault's own length.
//! Law: no judgement waits by one; what is judged waits on events, and a time only bounds it.
//! Next: `relay.rs`.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Lets so much time pass.
pub(crate) async fn pass(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

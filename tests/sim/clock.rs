//! Time in a simulated world: it passes when nobody has anything to do, and then at once.
//! Law: nothing here waits for real time; the runtime's clock is paused and jumps to the next thing that is due.
//! Next: `wires.rs`.

use std::time::Duration;

use tokio::time::sleep;

/// Lets simulated time pass.
pub(crate) async fn pass(time: Duration) {
    sleep(time).await;
}

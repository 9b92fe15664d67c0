//! The world that the relay lives in: the network, the store, time and chance.
//! Law: the relay has this one type parameter; nothing in it reaches for a clock, a socket or randomness by itself.
//! Why: a simulated world runs the same relay, the same upstream client and the same sinks.
//! Next: `relay/mod.rs`.

use std::sync::Arc;

use crate::net::Net;
use crate::pure::log::Millis;
use crate::store::Store;

/// Everything that the relay takes from outside itself; its only type parameter.
pub trait World: Send + Sync + 'static {
    /// The network.
    type Net: Net;
    /// Where logs are kept.
    type Store: Store;

    /// The network.
    fn net(&self) -> &Arc<Self::Net>;
    /// The store.
    fn store(&self) -> &Self::Store;
    /// Wall-clock seconds since 1970, for the issue time of tokens.
    fn unix_seconds(&self) -> u64;
    /// Milliseconds of a clock that never goes back (tokio's, so that tests drive it).
    fn now(&self) -> Millis;
    /// Fills `out` with unpredictable bytes.
    fn fill_random(&self, out: &mut [u8]);
}

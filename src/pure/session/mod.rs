//! One session's record, as facts and decisions: is it alive, which streams it has, what it told and was told.
//! Law: every list has a bound with a name; a session that ended never lives again.
//! Absent on purpose: the lock around the record, timers and wires (`relay/session.rs`). Handles are opaque here.
//! Next: `life.rs`, then `streams.rs`, `subscriptions.rs`, `allowance.rs`, `credential.rs`, `claims.rs`, `ledger.rs`, `loss.rs`, `generation.rs`, `answered.rs`.

pub mod allowance;
pub mod answered;
mod claims;
pub mod credential;
pub mod generation;
pub mod ledger;
pub mod life;
pub mod loss;
pub mod opening;
pub mod streams;
pub mod subscriptions;
pub mod tending;

pub use allowance::{Allowance, Draw};
pub use answered::Answered;
pub use credential::{
    CredentialFields, CredentialHash, Credentials, Moment, Presented, PrincipalRule, Shown, Standing,
};
pub use generation::{Generation, Restored};
pub use ledger::{Begun, BodyDigest, Ledger, Left, Number, PostKey, Settled, Taken};
pub use life::{Busy, Ended, Expiry, Lifetimes, Phase, Record, Sticky};
pub use loss::{Asks, LossCause, Losses, OnSessionLoss};
pub use opening::{Opening, Server};
pub use streams::{Full, Known, Origin, Stage, Streams, Written};
pub use subscriptions::{Remembered, Subscriptions};

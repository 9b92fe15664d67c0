//! One stream's life, as facts and decisions: what an event does, who receives it, what a reset says.
//! Law: exactly one response or error for each request; what is not passed on is dropped by name and counted.
//! Absent on purpose: bytes and positions in the log (`../log/`), and the task that drives all this (`relay/`).
//! The backend's side: `trail.rs` (its ids), `pursuit.rs` (asking it again), `admission.rs` (its refusals),
//! `witness.rs` (whether it contradicts itself).
//! Next: `life.rs`, then `attach.rs`, `reset.rs`.

pub mod admission;
pub mod agent;
pub mod attach;
mod carried;
pub mod life;
pub mod marks;
pub mod positions;
pub mod pursuit;
pub mod reset;
pub mod trail;
pub mod witness;

pub use agent::{Agent, Early, Greeting};
pub use attach::Succession;
pub use life::{AfterSource, Answers, ClientAnswer, Displaced, Dropped, Life, SourceEnd, Take, Withdrawn};
pub use marks::{Marks, Unacked};
pub use positions::Positions;
pub use pursuit::Pursuit;
pub use reset::Say;
pub use trail::Trail;
pub use witness::{Testimony, Witness};

//! Which replica gets a new session, and which replica a session is on.
//! Law: the choice is a pure function of facts; what is shared is counters and one swap of the table.
//! Absent on purpose: sockets and probes (`upstream/` reports what it saw), sessions (the relay takes a seat for each).
//! Why own and not pingora-load-balancing: it hangs on pingora-core and has no choice by sessions.
//! Next: `routing/replica.rs`, `routing/choose.rs`, then `routing/table.rs`.

pub mod choose;
pub mod ejection;
pub mod health;
pub mod replica;
pub mod table;

pub use choose::NoReplica;
pub use health::{Condition, Transition};
pub use replica::{Duty, Lease, Replica, Seat};
pub use table::{Asker, Table, Wants};

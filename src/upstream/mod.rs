//! The client towards backends: HTTP/1.1 that knows no stream and no session.
//! Law: it knows whether a byte of a request was written, and after that byte nothing is ever sent again.
//! Absent on purpose: retries after a byte, redirects, compression, HTTP/2, and everything MCP.
//! Why an own client: hyper here costs ten times the budget of an event, and can't tell whether a byte was written.
//! Next: `upstream/client.rs`, `upstream/exchange.rs`, `upstream/body.rs`, `upstream/event_body.rs`; beside them
//! `upstream/pool.rs`, `upstream/backoff.rs` and `upstream/prober_task.rs`.

pub mod backoff;
pub mod body;
pub mod client;
pub mod event_body;
mod exchange;
pub mod failure;
mod gathered;
mod pool;
pub mod prober_task;
mod scratch;
#[cfg(test)]
mod wire_tests;

pub use backoff::Backoff;
pub use body::{Afterlife, Body, BodyError, Data};
pub use client::{Client, Deadline, Incoming, Outgoing};
pub use event_body::{EventBody, EventError, Read};
pub use failure::{Cause, SendError, SpeaksOf};

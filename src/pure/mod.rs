//! The pure floor: facts in, decisions out. No clock, socket, lock, task or log line.
//! Law: everything here compiles alone (`tests/pure_alone.rs`) and is deterministic.
//! Time and chance are arguments. Why: what can be replayed can be proved.
//! Next: `limits.rs`, then `epoch.rs`.
#![forbid(unsafe_code)]

pub mod calendar;
pub mod limits;

pub mod epoch;
pub mod event_id;
pub mod http_sse;
pub mod keys;
pub mod revision;
pub mod session_token;

pub mod http1;
pub mod rpc;
pub mod sse;

pub mod continuity;
pub mod guard;
pub mod isolation;
pub mod log;
pub mod oauth;
pub mod overlap;
pub mod refusal;
pub mod resume;
pub mod session;
pub mod stateless;
pub mod stream;
pub mod twice;
pub mod verdict;

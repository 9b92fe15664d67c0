//! The client side: connections in, typed requests out; a usual request is read here, hyper parses the others, and an
//! SSE answer takes the socket over.
//! Law: a request is judged (`origin`) before anything else is looked at, and is refused in one place (`reject`).
//! Tasks: one accept loop for each listener, one task for each connection while it speaks HTTP, none for a parked
//! HTTP/1 stream (its socket moves into the stream's task), one for each HTTP/2 stream, one while a close lingers.
//! Absent on purpose: sessions, cursors, events. They are the relay's, behind `relay::answer::Serve`.
//! Next: `accept_task.rs`, then `http_task.rs`, `usual_task.rs`, `endpoint.rs`, `takeover.rs`.

mod accept_task;
mod body;
mod cors;
mod date;
mod endpoint;
mod framing;
mod front;
mod head;
mod http_task;
mod linger;
mod meter;
mod origin;
mod reject;
mod sink_http1;
mod sink_http2;
mod takeover;
mod tap;
mod usual_task;
mod waits;
mod wire;

pub use accept_task::{NewTerms, ServeError, Serving, Terms, serve};
pub use origin::judge_caller;

#[cfg(test)]
mod tests;

//! throughline: a resumption-aware reverse proxy for MCP.
//!
//! When an MCP client reconnects, nobody can tell a resumed stream from one that silently began again: both are
//! HTTP 200, `text/event-stream`, valid `id:` lines. throughline stands between clients and unmodified servers, gives
//! every event an id that names the *life* of its stream (its epoch), keeps a bounded window of what it sent, answers
//! resumes itself with positive evidence, and says aloud what can't be resumed, in terms that clients already understand.
//!
//! **The law of the whole: never lose, repeat or mix up an event silently.**
//! Tenets, in the order that settles a dispute: 1 never lose silently, 2 bounded, 3 proofreadable, 4 fast, 5 flexible.
//!
//! # The map
//!
//! *The pure decides, the shell obeys.* Imports go down the floors only; two tests hold that (`tests/pure_alone.rs`,
//! `tests/house.rs`).
//!
//! | floor | room | what it is |
//! |---|---|---|
//! | 0 | [`pure`] | facts in, decisions out: codecs, ids, tokens, the replay window, the resume decision, a stream's life |
//! | 1 | [`config`] | what the file says, checked, and what code may use of it |
//! | 1 | [`telemetry`] | one vocabulary of metrics and log lines |
//! | 1 | [`net`] | the port to the network: TCP and TLS here, simulated elsewhere |
//! | 2 | [`store`] | where logs are kept; memory is the first |
//! | 2 | [`routing`] | replicas: the table, the choice, their health |
//! | 3 | [`upstream`] | an HTTP/1.1 client that knows whether a byte was written, and no stream or session |
//! | 4 | [`relay`] | sessions, and the task that owns a stream; HTTP+SSE; what passes without a session |
//! | 5 | [`downstream`] | clients: accepting, hyper, and the takeover of a client's socket for an event stream |
//! | 5 | [`admin`] | health, readiness, metrics, status, the drain of replicas |
//! | 5 | [`conformance`] | the continuity suite: a client that tries whether any server is honest about reconnects |
//! | – | [`app`], [`cli`] | the wiring, and the command line |
//!
//! # The path of an event
//!
//! One task owns a stream: the backend's body, the log's writer, and the client's connection, which *moves into* it
//! (`relay/stream_task.rs`). A wake reads once from the backend, cuts chunks and lines in place, appends each event once
//! to the log as a frame ready to be sent, and writes what the log promises to keep in one vectored write.
//! There is no channel and no second task on the way, and a live event is only a wake-up: a reader reads the log at its
//! position, so replay and live have no seam.
//!
//! A usual request of HTTP/1.1 is read here, its head from one read of the socket ([`pure::http1::request`]), and a whole
//! answer is written here; hyper reads and writes whatever is not usual, and is not made before it is needed. When the answer
//! is an event stream over HTTP/1.1, the socket is taken out of hyper if it is in there, driven by the stream's task,
//! and goes back to where requests are read after the last chunk; what hyper held is free meanwhile. Over HTTP/2 the
//! same task feeds a body with one frame in flight.
//!
//! # Why not pingora's server
//!
//! The first design was to build on pingora. Its server ends the process itself, sleeps its whole grace period on
//! SIGTERM, cuts open streams without a final chunk, and its connection type rules the takeover out; `ProxyHttp` can't
//! outlive the client's connection, which is what this program is for. Its building blocks are used where they fit:
//! `pingora-ketama` places sessions consistently. `pingora-pool` hands out the oldest connection first and knows no
//! ages, while a POST may only go on a *fresh* one; `pingora-limits` estimates over unbounded keys where replicas are
//! few and exact counting is simpler; `pingora-timeout` has a clock of its own, which a driven clock in tests can't
//! drive.
//!
//! # Start here
//!
//! To understand the decisions, read [`pure::epoch`], [`pure::event_id`], [`pure::log`], [`pure::resume`]. To understand
//! the program, read [`app`], then [`relay`]. To write a client that knows what it got, read [`guard`].
//!
//! Next: `pure/mod.rs`.

pub use pure::guard;

pub mod admin;
pub mod app;
pub mod cli;
pub mod config;
pub mod conformance;
pub mod downstream;
pub mod net;
pub mod pure;
pub mod relay;
pub mod routing;
pub mod store;
pub mod telemetry;
pub mod upstream;

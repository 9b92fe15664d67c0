//! The wire contract, played by hand: the real binary between a client and a backend that do exactly what a test says.
//! Law: each behaviour of the contract has a test that fails without it. Nothing sleeps; nothing is decided by time.
//! One file for each subject; a case from the field carries its number (C1, S1, I1, …).
//! Next: `wire/session.rs`, then the cases in this order.

#[path = "wire/backend.rs"]
mod backend;
#[path = "wire/client.rs"]
mod client;
#[path = "wire/contradictions.rs"]
mod contradictions;
#[path = "wire/peer.rs"]
mod peer;
#[path = "interop/port.rs"]
mod port;
#[path = "wire/proxy.rs"]
mod proxy;
#[path = "wire/session.rs"]
mod session;

#[path = "wire/answers.rs"]
mod answers;
#[path = "wire/asks.rs"]
mod asks;
#[path = "wire/aware.rs"]
mod aware;
#[path = "wire/batches.rs"]
mod batches;
#[path = "wire/between.rs"]
mod between;
#[path = "wire/browsers.rs"]
mod browsers;
#[path = "wire/by_hand.rs"]
mod by_hand;
#[path = "wire/clocks.rs"]
mod clocks;
#[path = "wire/doors.rs"]
mod doors;
#[path = "wire/doubts.rs"]
mod doubts;
#[path = "wire/draining.rs"]
mod draining;
#[path = "wire/drains.rs"]
mod drains;
#[path = "wire/ejected.rs"]
mod ejected;
#[path = "wire/gate.rs"]
mod gate;
#[path = "wire/gone.rs"]
mod gone;
#[path = "wire/http_sse.rs"]
mod http_sse;
#[path = "wire/ids.rs"]
mod ids;
#[path = "wire/lacks.rs"]
mod lacks;
#[path = "wire/lies.rs"]
mod lies;
#[path = "wire/listening.rs"]
mod listening;
#[path = "wire/loss.rs"]
mod loss;
#[path = "wire/overlap.rs"]
mod overlap;
#[path = "wire/peers.rs"]
mod peers;
#[path = "wire/polling.rs"]
mod polling;
#[path = "wire/reload.rs"]
mod reload;
#[path = "wire/repeats.rs"]
mod repeats;
#[path = "wire/requests.rs"]
mod requests;
#[path = "wire/restarts.rs"]
mod restarts;
#[path = "wire/stateless.rs"]
mod stateless;
#[path = "wire/status.rs"]
mod status;
#[path = "wire/tokens.rs"]
mod tokens;
#[path = "wire/translated.rs"]
mod translated;
#[path = "wire/upstream_get.rs"]
mod upstream_get;

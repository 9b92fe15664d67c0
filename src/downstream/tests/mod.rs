//! The client side's own tests: one connection byte by byte (`wire`), and what only real sockets do (`sockets`).
//! Law: nobody answers here but a script; what the relay answers is tested with the relay.
//! Next: `scripted.rs`.

mod scripted;
mod sockets;
mod wire;

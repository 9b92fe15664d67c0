//! The network of these clients: the real one, where the simulation has one in memory.
//! Law: what reads HTTP and events by hand is the simulation's own, strict as it is; only its wire is another.
//! Next: `../sim/http.rs`.

/// One connection.
pub(crate) type Wire = tokio::net::TcpStream;

//! The network of these clients: the real one, where the simulation has its own.
//! Next: `../sim/http.rs`.

/// One connection.
pub(crate) type Wire = tokio::net::TcpStream;

//! The port to the network: dial, accept, and what a connection can tell of its peer.
//! Law: above this file nothing names a socket, so that a simulated network can stand in for it.
//! Absent on purpose: TLS (`net/tls.rs` puts it over any `Io`) and HTTP.
//! Why a trait: it has two implementors, the real one (`net/tcp.rs`) and the simulation's.
//! Next: `net/lack.rs`, `net/tcp.rs`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};

mod lack;
mod outq;
pub use crate::pure::stream::Unacked;
pub use lack::Lack;

pub mod tcp;
#[cfg(test)]
pub(crate) mod test_authority;
pub mod tls;
pub mod transport;

/// One connection, to a client or to a backend.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Bytes written and not yet acknowledged by the peer. Read once when a connection ends, never per event.
    fn unacked(&self) -> Unacked;

    /// Makes the close that follows a reset instead of an orderly end (`SO_LINGER` 0).
    fn reset_on_close(&self);

    /// The peer's address.
    fn peer(&self) -> SocketAddr;

    /// Whether a read might find something: bytes, an end, an error. `false` is certain, costs neither a lock nor a
    /// system call, and changes nothing for a task that a read which was pending has registered.
    fn may_read(&self) -> bool {
        true
    }
}

/// Where a backend is dialled.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Authority {
    /// Host name or address literal, without brackets.
    pub host: Box<str>,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Fills `out` with unpredictable bytes of the system's.
///
/// # Errors
/// The system gives none.
pub fn fill_random(out: &mut [u8]) -> io::Result<()> {
    getrandom::fill(out).map_err(io::Error::other)
}

/// The network as a whole.
pub trait Net: Send + Sync + 'static {
    /// A connection.
    type Io: Io;
    /// A listening socket.
    type Listener: Send + Sync + 'static;

    /// Opens a connection. The caller bounds its time. An error that has the system's number of a [`Lack`] says that this
    /// machine could not, and nothing of the other one.
    fn dial(&self, to: &Authority) -> impl Future<Output = io::Result<Self::Io>> + Send;

    /// Binds a listening socket.
    fn listen(&self, at: SocketAddr) -> io::Result<Self::Listener>;

    /// Where a listener really is (port 0 becomes the port given).
    fn local_addr(&self, listener: &Self::Listener) -> io::Result<SocketAddr>;

    /// Takes the next connection. Cancel-safe.
    fn accept(&self, listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Io>> + Send;
}

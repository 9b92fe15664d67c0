//! A port of this machine that is ours whether somebody listens at it or not, so that its server can go and come back.
//! Law: a port that may be taken by anybody else in between is never named to anybody.
//! Trap: a listener that is closed to free its port still listens in every process that is being started meanwhile,
//! until that process has become its program.
//! Next: `lab.rs`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of loopback, held until this is dropped. Who connects is refused until somebody listens there; listening
/// needs `SO_REUSEADDR`, which every server here sets.
pub(crate) struct Held {
    address: SocketAddr,
    _bound: Socket,
}

impl Held {
    /// A port that nobody has.
    pub(crate) fn any() -> io::Result<Self> {
        let bound = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        bound.set_reuse_address(true)?;
        bound.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = bound.local_addr()?.as_socket();
        Ok(Self {
            address: address.ok_or_else(|| io::Error::other("an address of another family"))?,
            _bound: bound,
        })
    }

    /// Where.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of an MCP server there.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }
}

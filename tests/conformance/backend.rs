//! Servers that the suite is run against.
//! Law: each is an SDK as it is published; where it listens is all that is known of it.
//! Next: `server.rs`.

use std::net::SocketAddr;

use crate::fixture::RustServer;
use crate::lab::{self, Process, Serves};

/// A server to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backend {
    /// A process of the lab.
    Lab(Serves),
    /// The official Rust SDK, in this process.
    Rust,
}

/// What keeps a server running.
enum Alive {
    Process(#[expect(dead_code, reason = "it ends the process when it is dropped")] Process),
    Task(#[expect(dead_code, reason = "it ends the server when it is dropped")] RustServer),
}

/// A running server; it ends when this is dropped.
pub(crate) struct Running {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    _alive: Alive,
}

impl Backend {
    /// Its name.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Lab(serves) => serves.name(),
            Self::Rust => "rust 3.x".to_owned(),
        }
    }

    /// Starts it.
    pub(crate) async fn start(self) -> Result<Running, String> {
        match self {
            Self::Lab(serves) => {
                let (address, process) = lab::serve(serves).await?;
                Ok(Running {
                    address,
                    _alive: Alive::Process(process),
                })
            }
            Self::Rust => {
                let server = RustServer::start().await?;
                Ok(Running {
                    address: server.address,
                    _alive: Alive::Task(server),
                })
            }
        }
    }
}

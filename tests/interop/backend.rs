//! Servers with everything that the conformance suite and the matrix ask for.
//! Law: each is an SDK as it is published; where it listens and what it says is all that is known of it.
//! Next: `fixture.rs`.

use std::net::SocketAddr;

use serde_json::Value;

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
    Process(Box<Process>),
    Task(RustServer),
}

/// A running server; it ends when this is dropped.
pub(crate) struct Running {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    alive: Alive,
}

impl Running {
    /// The next thing it says; `None` when it has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        match &mut self.alive {
            Alive::Process(process) => process.next().await,
            Alive::Task(server) => server.said.recv().await,
        }
    }
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
                    alive: Alive::Process(Box::new(process)),
                })
            }
            Self::Rust => {
                let server = RustServer::start().await?;
                Ok(Running {
                    address: server.address,
                    alive: Alive::Task(server),
                })
            }
        }
    }
}

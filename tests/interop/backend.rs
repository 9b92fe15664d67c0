//! Servers with everything that the conformance suite and the matrix ask for.
//! Law: each is an SDK as it is published; where it listens and what it says is all that is known of it.
//! Next: `fixture.rs`.

use std::net::SocketAddr;

use serde_json::Value;

use crate::fixture::RustServer;
use crate::lab::{self, Process, Serves};
use crate::published::Language;

/// A server to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backend {
    /// A process of the lab.
    Lab(Serves),
    /// The official Rust SDK, in this process.
    Rust,
    /// A server of another language.
    Published(Language),
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
            Self::Published(language) => language.name().to_owned(),
        }
    }

    /// The path of its endpoint.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Lab(_) | Self::Rust => "/mcp",
            Self::Published(language) => language.path(),
        }
    }

    /// Starts it.
    pub(crate) async fn start(self) -> Result<Running, String> {
        let (address, process) = match self {
            Self::Lab(serves) => lab::serve(serves).await?,
            Self::Published(language) => lab::listening(language.name(), language.command()).await?,
            Self::Rust => {
                let server = RustServer::start().await?;
                return Ok(Running {
                    address: server.address,
                    alive: Alive::Task(server),
                });
            }
        };
        Ok(Running {
            address,
            alive: Alive::Process(Box::new(process)),
        })
    }
}

//! Servers on the official SDKs of other languages, as they are published: programs, without the services behind them.
//! Law: where there is none for this machine, it is said, and nothing is asked of it.
//! Absent on purpose: tools of ours; they have their own, of which none can work here.
//! Next: `../lab/published.py`.

use std::path::PathBuf;

use tokio::process::Command;

use crate::lab::sources;
use crate::place;

/// Another language with an official SDK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Language {
    /// Go: Grafana's server.
    Go,
    /// C#: Azure's server.
    CSharp,
}

impl Language {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Go, Self::CSharp];

    /// Its name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Go => "go 1.x",
            Self::CSharp => "c# 1.x",
        }
    }

    /// The path of its server's endpoint.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Go => "/mcp",
            Self::CSharp => "/",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::CSharp => "csharp",
        }
    }

    fn program(self) -> PathBuf {
        place::lab().join(match self {
            Self::Go => "go/mcp_grafana/bin/mcp-grafana",
            Self::CSharp => "node_modules/@azure/mcp-linux-x64/dist/azmcp",
        })
    }

    /// Whether there is such a server for this machine.
    pub(crate) fn is_installed(self) -> bool {
        self.program().exists()
    }

    /// What starts it.
    pub(crate) fn command(self) -> Command {
        let mut command = Command::from(place::python());
        command.arg(sources().join("published.py"));
        command.arg(self.word()).arg(self.program());
        command
    }
}

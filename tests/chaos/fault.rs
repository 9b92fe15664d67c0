//! The faults: what is hurt, how, and what the proxy must be set to so that it hurts.
//! Law: each has a name that a run can be given, and stands in `ALL`; a round has one of them.
//! Absent on purpose: a full disk under a store. The proxy writes nothing but its log, and that is tried.
//! Next: `round.rs`.

use std::path::Path;
use std::time::Duration;

use crate::relay::{Hurt, Rule};
use crate::sdk::Fate;
use crate::street::Again;
use crate::trail::Verdicts;

/// On which side of the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Between clients and the proxy.
    Clients,
    /// Between the proxy and its servers.
    Servers,
}

/// What happens to connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Harm {
    Cut,
    Reset,
    Stall,
    Delay,
    Split,
    Slow,
    Refuse,
}

/// What happens to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blow {
    /// SIGKILL, and another one in its place.
    Kill,
    /// SIGSTOP, and SIGCONT a while later.
    Pause,
    /// SIGTERM, and another one in its place: for the proxy before it has ended.
    Restart,
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// Of connections.
    Way(Side, Harm),
    /// Of real SDK clients' processes.
    Clients(Fate),
    /// Of the servers' processes, one after the other.
    Servers(Blow),
    /// Of the proxy's process.
    Proxy(Blow),
    /// The configuration is read again, and again, changed and unchanged.
    Reload,
    /// The proxy has no file descriptor left.
    Descriptors,
    /// The proxy's memory for replay is full.
    Memory,
    /// A stream's own window is too small for who comes back late.
    Window,
    /// The proxy's clock of the day jumps, forwards and back.
    Clock,
    /// The disk of the proxy's log is full.
    FullDisk,
}

/// What tells the time of the day to the proxy, where it is installed (Debian's `libfaketime`).
fn faketime() -> String {
    format!(
        "/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1",
        std::env::consts::ARCH
    )
}

/// How long something stands still: longer than a client that takes nothing is waited for.
const STILL: Duration = Duration::from_secs(6);

impl Fault {
    /// All of them.
    pub(crate) const ALL: [Self; 28] = [
        Self::Way(Side::Clients, Harm::Cut),
        Self::Way(Side::Servers, Harm::Cut),
        Self::Proxy(Blow::Kill),
        Self::Way(Side::Clients, Harm::Reset),
        Self::Way(Side::Servers, Harm::Reset),
        Self::Servers(Blow::Kill),
        Self::Way(Side::Clients, Harm::Stall),
        Self::Way(Side::Servers, Harm::Stall),
        Self::Proxy(Blow::Restart),
        Self::Way(Side::Clients, Harm::Delay),
        Self::Way(Side::Servers, Harm::Delay),
        Self::Servers(Blow::Pause),
        Self::Way(Side::Clients, Harm::Split),
        Self::Way(Side::Servers, Harm::Split),
        Self::Servers(Blow::Restart),
        Self::Way(Side::Clients, Harm::Slow),
        Self::Way(Side::Servers, Harm::Slow),
        Self::Proxy(Blow::Pause),
        Self::Way(Side::Clients, Harm::Refuse),
        Self::Way(Side::Servers, Harm::Refuse),
        Self::Clients(Fate::IsKilled),
        Self::Clients(Fate::IsPaused),
        Self::Reload,
        Self::Descriptors,
        Self::Memory,
        Self::Window,
        Self::Clock,
        Self::FullDisk,
    ];

    /// Its name in tables, and for a run of its own.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Way(Side::Clients, harm) => format!("client-{harm:?}").to_lowercase(),
            Self::Way(Side::Servers, harm) => format!("server-{harm:?}").to_lowercase(),
            Self::Clients(Fate::IsPaused) => "sdk-pause".to_owned(),
            Self::Clients(Fate::IsKilled | Fate::Lives) => "sdk-kill".to_owned(),
            Self::Servers(blow) => format!("process-{blow:?}").to_lowercase(),
            Self::Proxy(blow) => format!("proxy-{blow:?}").to_lowercase(),
            Self::Reload | Self::Descriptors | Self::Memory | Self::Window | Self::Clock => {
                format!("{self:?}").to_lowercase()
            }
            Self::FullDisk => "full-disk".to_owned(),
        }
    }

    /// What this machine lacks for it.
    pub(crate) fn lacks(self) -> Option<&'static str> {
        match self {
            Self::Clock if !Path::new(&faketime()).exists() => Some("libfaketime is not installed"),
            Self::Way(..)
            | Self::Clients(_)
            | Self::Servers(_)
            | Self::Proxy(_)
            | Self::Reload
            | Self::Descriptors
            | Self::Memory
            | Self::Window
            | Self::Clock
            | Self::FullDisk => None,
        }
    }

    /// What is done to connections of this side.
    pub(crate) fn rule(self, of: Side) -> Option<Rule> {
        let harm = match self {
            Self::Way(side, harm) if side == of => harm,
            // Only who comes back asks for what memory no longer holds.
            Self::Memory | Self::Window if of == Side::Clients => Harm::Cut,
            Self::Way(..)
            | Self::Clients(_)
            | Self::Servers(_)
            | Self::Proxy(_)
            | Self::Reload
            | Self::Descriptors
            | Self::Memory
            | Self::Window
            | Self::Clock
            | Self::FullDisk => return None,
        };
        let (hurt, one_in, events_max) = match harm {
            Harm::Cut => (Hurt::Cut, 2, 30),
            Harm::Reset => (Hurt::Reset, 2, 30),
            Harm::Stall => (Hurt::Stall(STILL), 4, 20),
            Harm::Delay => (Hurt::Delay(Duration::from_millis(40)), 2, 10),
            Harm::Split => (Hurt::Split, 2, 10),
            Harm::Slow => (Hurt::Slow(STILL), 4, 20),
            Harm::Refuse => return None,
        };
        Some(Rule {
            hurt,
            one_in,
            events_max,
        })
    }

    /// What the proxy is set to, beside what every round sets it to.
    pub(crate) const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Memory => &[
                "memory.replay_max=1MiB",
                "upstream.stream.replay_bytes_max=512KiB",
                "upstream.stream.event_bytes_max=64KiB",
            ],
            Self::Window => &["upstream.stream.replay_events_max=6"],
            Self::Proxy(Blow::Restart) => &["server.peers=possible"],
            Self::Way(..)
            | Self::Clients(_)
            | Self::Servers(_)
            | Self::Proxy(Blow::Kill | Blow::Pause)
            | Self::Reload
            | Self::Descriptors
            | Self::Clock
            | Self::FullDisk => &[],
        }
    }

    /// What makes names longer, and with them everything that is said of somebody: so little is said in a round that it
    /// would hardly fill the least memory that can be configured.
    pub(crate) fn padding(self) -> String {
        match self {
            Self::Memory => "x".repeat(3_000),
            Self::Way(..)
            | Self::Clients(_)
            | Self::Servers(_)
            | Self::Proxy(_)
            | Self::Reload
            | Self::Descriptors
            | Self::Window
            | Self::Clock
            | Self::FullDisk => String::new(),
        }
    }

    /// Whether a proxy that remembers is always there.
    const fn spares_memory(self) -> Spares {
        match self {
            Self::Proxy(Blow::Kill | Blow::Restart) => Spares::Nothing,
            Self::Way(..)
            | Self::Clients(_)
            | Self::Servers(_)
            | Self::Proxy(Blow::Pause)
            | Self::Reload
            | Self::Descriptors
            | Self::Memory
            | Self::Window
            | Self::Clock
            | Self::FullDisk => Spares::Memory,
        }
    }

    /// Whether clients send again what was lost before its answer.
    pub(crate) const fn again(self) -> Again {
        match self.spares_memory() {
            Spares::Memory => Again::WithinBound,
            Spares::Nothing => Again::Never,
        }
    }

    /// Where a client is told what it may conclude.
    pub(crate) const fn verdicts(self) -> Verdicts {
        match self.spares_memory() {
            Spares::Memory => Verdicts::InHeads,
            Spares::Nothing => Verdicts::PerhapsLater,
        }
    }

    /// What tells the proxy its time, and from which file.
    pub(crate) fn clock(self, file: &Path) -> Vec<(&'static str, String)> {
        if self != Self::Clock {
            return Vec::new();
        }
        vec![
            ("LD_PRELOAD", faketime()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}

/// What a fault leaves alone.
enum Spares {
    Memory,
    Nothing,
}

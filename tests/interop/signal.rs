//! How a process of a run is told something: by a signal, and by its id only.
//! Law: one process hears it, which the caller has started; nobody is looked up by name.
//! Absent on purpose: waiting for what it does then.
//! Next: `lab.rs`.

use tokio::process::Command;

/// What a process is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// End in your own way.
    Term,
    /// End at once.
    Kill,
    /// Stand still.
    Stop,
    /// Go on.
    Cont,
    /// Read your configuration again.
    Hangup,
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Term => "-TERM",
            Self::Kill => "-KILL",
            Self::Stop => "-STOP",
            Self::Cont => "-CONT",
            Self::Hangup => "-HUP",
        }
    }
}

/// Tells it to the process of this id; `None` is one that has ended.
pub(crate) async fn tell(pid: Option<u32>, signal: Signal) -> Result<(), String> {
    let pid = pid.ok_or("the process does not run")?;
    let name = signal.name();
    let status = Command::new("kill").args([name, &pid.to_string()]).status().await;
    match status.map_err(|error| error.to_string())?.success() {
        true => Ok(()),
        false => Err(format!("kill {name} {pid} failed")),
    }
}

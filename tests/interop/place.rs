//! Where `tests/install.sh` put the interpreters and packages of the lab.
//! Law: what it installed is used before what the machine has, so that a run is the same everywhere.
//! Next: `lab.rs`.

use std::path::PathBuf;
use std::process::Command;

/// The folder: `$THROUGHLINE_LAB`, or `~/.cache/throughline-tests`.
pub(crate) fn lab() -> PathBuf {
    match std::env::var_os("THROUGHLINE_LAB") {
        Some(path) => path.into(),
        None => PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/throughline-tests"),
    }
}

/// Node: the one that was fetched, or the machine's own.
pub(crate) fn node() -> Command {
    let fetched = lab().join("bin/node");
    Command::new(if fetched.exists() { fetched } else { "node".into() })
}

/// Python, with nothing but its standard library.
pub(crate) fn python() -> Command {
    let installed = lab().join("py1/bin/python");
    Command::new(if installed.exists() {
        installed
    } else {
        "python3".into()
    })
}

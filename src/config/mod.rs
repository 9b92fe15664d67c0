//! Configuration, read twice: raw (what the file and the flags say), then resolved (what code may use).
//! Law: every problem is reported at once, with file, line and key; an unknown key is refused, never ignored.
//! Flags build the same document that a file is, so there is one reader and one set of messages.
//! Next: `resolved.rs`, then `raw.rs`, `fields.rs`, `server.rs`, `upstream.rs` and `check.rs`.

mod bounds;
pub mod change;
mod check;
mod fields;
mod files;
pub mod live;
mod oauth;
mod pem;
mod raw;
mod reading;
mod replica;
mod replicas;
mod report;
pub mod resolved;
mod secret;
mod server;
mod units;
mod upstream;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use files::Around;
use raw::{Given, Node, Raw, Table};
use reading::Reading;
use report::{Findings, Origin, Source};
use resolved::Config;

pub use bounds::UPSTREAMS_MAX;
pub use files::{Seen, Stamp};
pub use report::{Place, Problems, Remark, Warning};

/// What the command line says of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`: the file; without it `upstreams` is needed.
    pub config: Option<PathBuf>,
    /// `--listen`: where clients connect, in place of what the file says.
    pub listen: Vec<String>,
    /// `--upstream`: replicas of the one upstream; only without a file.
    pub upstreams: Vec<String>,
    /// `--admin`: an address or `off`.
    pub admin: Option<String>,
    /// `--secret-file`: where the secret is.
    pub secret_file: Option<PathBuf>,
    /// `--set KEY=VALUE`, for any key of the file.
    pub set: Vec<String>,
}

/// Reads the URL of one MCP endpoint, as a replica's is read.
///
/// # Errors
/// What is wrong with it, as the rest of a sentence, and what to do.
pub fn endpoint(url: &str) -> Result<resolved::Replica, String> {
    replica::parse(url).map_err(|wrong| match wrong {
        replica::NotAReplica::Wrong(what, advice) => format!("{what}: {advice}"),
        replica::NotAReplica::Credentials => {
            "holds a user name or a password: give them as a field".to_owned()
        }
    })
}

/// Reads and checks a file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<(Config, Vec<Warning>), Problems> {
    read(&Flags {
        config: Some(path.into()),
        ..Flags::default()
    })
}

/// Reads and checks what the command line says, and the file that it names.
///
/// # Errors
/// Everything that is wrong with either.
pub fn read(flags: &Flags) -> Result<(Config, Vec<Warning>), Problems> {
    read_in(flags, &|name| std::env::var_os(name))
}

/// [`read`], with the environment as an argument: it answers the value of a variable.
///
/// # Errors
/// Everything that is wrong with the file or the flags.
pub fn read_in(
    flags: &Flags,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(Config, Vec<Warning>), Problems> {
    let around = Around::new(flags.config.as_deref(), variable);
    let mut reading = Reading::default();
    let (source, mut root) = match &flags.config {
        Some(path) => match files::text(path, bounds::FILE_BYTES_MAX) {
            Ok(text) => {
                let source = Source {
                    name: path.display().to_string(),
                    text,
                };
                let root = raw::parse(&source, &mut reading.findings);
                (source, root)
            }
            Err(error) => {
                let source = Source {
                    name: path.display().to_string(),
                    text: String::new(),
                };
                return Err(unreadable(&source, &error).in_files(around.named()));
            }
        },
        None => (Source::default(), Table::default()),
    };
    apply(flags, &mut root, &mut reading.findings);
    let config = fields::document(&mut reading, &root, |fields| check::config(fields, &around));
    let verdict = reading.finish().verdict(&source);
    let warnings = verdict.map_err(|problems| problems.in_files(around.named()))?;
    // The verdict is `Ok` only if nothing was missing, and then there is a configuration.
    config
        .map(|config| (config, warnings))
        .ok_or_else(|| unreadable(&source, "says nothing to run"))
}

fn unreadable(source: &Source, what: &str) -> Problems {
    Problems::single(source, what, "see config/minimal.toml for a file that works")
}

/// Puts the flags over what the file says.
fn apply(flags: &Flags, root: &mut Table, findings: &mut Findings) {
    let node = |flag: &str, value: &str| {
        Node::new(
            Origin::Flag(format!("{flag} {value}").into()),
            Raw::Text(value.to_owned()),
        )
    };
    if !flags.upstreams.is_empty() {
        let replicas = flags
            .upstreams
            .iter()
            .map(|url| node("--upstream", url))
            .collect();
        root.put_upstream(replicas);
    }
    if let Some(first) = flags.listen.first() {
        let at = node("--listen", first).at;
        let addresses = flags
            .listen
            .iter()
            .map(|address| node("--listen", address))
            .collect();
        root.replace("server", "listen", Node::new(at, Raw::Array(addresses)));
    }
    if let Some(admin) = &flags.admin {
        root.replace("admin", "listen", node("--admin", admin));
    }
    if let Some(path) = &flags.secret_file {
        root.remove("secret", "env");
        root.replace("secret", "file", node("--secret-file", &path.to_string_lossy()));
    }
    for set in &flags.set {
        let said = format!("--set {set}");
        match set.split_once('=') {
            Some((key, value)) => root.set(
                Given {
                    said: &said,
                    key: key.trim(),
                    value,
                },
                findings,
            ),
            None => {
                let advice = "write --set KEY=VALUE, e.g. --set upstream.stream.keepalive=10s";
                findings.problem(&Origin::Flag(said.into()), "", "has no value", advice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Keys that stand in a value of `full.toml` and not on a line of their own: the tables that `listen` and `replicas` may hold.
    const WITHIN: [&str; 6] = [
        "server.listen.address",
        "server.listen.tls",
        "server.listen.tls.certificate",
        "server.listen.tls.key",
        "upstream.replicas.url",
        "upstream.replicas.drain",
    ];

    /// A document's keys, as paths without indices.
    fn keys(table: &Table, path: &str, out: &mut BTreeSet<String>) {
        for entry in table.entries() {
            let path = if path.is_empty() {
                entry.key.to_string()
            } else {
                format!("{path}.{}", entry.key)
            };
            match &entry.node.value {
                Raw::Table(inner) => keys(inner, &path, out),
                Raw::Array(items) => {
                    for item in items {
                        if let Raw::Table(inner) = &item.value {
                            keys(inner, &path, out);
                        }
                    }
                }
                Raw::Text(_) | Raw::Integer(_) | Raw::Boolean(_) | Raw::Foreign(_) => {}
            }
            out.insert(path);
        }
    }

    fn read_text(text: &str) -> (Table, Reading) {
        let source = Source {
            name: "x.toml".into(),
            text: text.into(),
        };
        let mut reading = Reading::default();
        let root = raw::parse(&source, &mut reading.findings);
        (root, reading)
    }

    #[test]
    fn full_says_every_key() {
        // A line that begins with `#` and no space is a key without a default.
        let full = include_str!("../../config/full.toml");
        let full: Vec<&str> = full
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|rest| !rest.starts_with(' '))
                    .unwrap_or(line)
            })
            .collect();
        let (root, _) = read_text(&full.join("\n"));
        let mut said = BTreeSet::new();
        keys(&root, "", &mut said);

        // Every door to a key is opened once, so that every key is asked for.
        let (root, mut reading) = read_text(
            "[server]\nlisten = [{ address = '', tls = {} }]\n[secret]\n[[secret.older]]\n[[upstream]]\nreplicas = [{}]",
        );
        let around = Around::new(None, &|_| None);
        fields::document(&mut reading, &root, |fields| check::config(fields, &around));
        let known: BTreeSet<String> = reading
            .known
            .iter()
            .map(|known| {
                if known.table.is_empty() {
                    known.key.into()
                } else {
                    format!("{}.{}", known.table, known.key)
                }
            })
            .collect();
        for key in WITHIN {
            assert!(known.contains(key), "{key}");
            said.insert(key.into());
        }
        assert_eq!(said, known);
    }
}

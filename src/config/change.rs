//! What a configuration that was read again changes of the one that holds, and what of it can't change in a process.
//! Law: nothing is dropped in silence: what needs a restart is named, and what holds goes on as it was.
//! Pure: two configurations in, one out. Who puts it in force is `app/reload_task.rs`.
//! Next: `../app/reload_task.rs`.

use std::sync::Arc;

use super::bounds::UPSTREAMS_MAX;
use super::resolved::{Config, Listener, Upstream};

/// What a reading of the configuration comes to.
#[derive(Debug)]
pub struct Change {
    /// What holds from now on: what was read, but for what needs a restart.
    pub config: Config,
    /// The keys whose change takes a restart, with what is to be known.
    pub restart: Vec<Restart>,
}

/// A change that takes a restart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restart {
    /// The key, e.g. `server.listen`.
    pub key: String,
    /// What holds meanwhile.
    pub what: &'static str,
}

/// Puts what was read over what holds.
pub fn of(old: &Config, new: Config) -> Change {
    let mut restart = Vec::new();
    let mut keep = |key: &str, what: &'static str| {
        restart.push(Restart {
            key: key.to_owned(),
            what,
        });
    };
    let mut config = new;
    config.listeners = listeners(&old.listeners, config.listeners, &mut keep);
    if config.admin != old.admin {
        keep("admin.listen", "the old address is served");
        config.admin = old.admin;
    }
    if config.server.workers != old.server.workers {
        keep("server.workers", "as many threads as before work");
        config.server.workers = old.server.workers;
    }
    if config.secrets.is_empty() != old.secrets.is_empty() {
        keep("secret", "ids are made with the key of before");
        config.secrets.clone_from(&old.secrets);
    }
    if config.log.format != old.log.format {
        keep("log.format", "lines are written as before");
        config.log.format = old.log.format;
    }
    config.upstreams = upstreams(&old.upstreams, &config.upstreams, &mut keep);
    Change { config, restart }
}

/// Addresses stay; each one's certificate may change, and whether it has one.
fn listeners(
    old: &[Listener],
    new: Vec<Listener>,
    keep: &mut impl FnMut(&str, &'static str),
) -> Vec<Listener> {
    let same = old.len() == new.len()
        && old
            .iter()
            .all(|one| new.iter().any(|other| other.address == one.address));
    if !same {
        keep(
            "server.listen",
            "the old addresses are served, with the old certificates",
        );
        return old.to_vec();
    }
    old.iter()
        .enumerate()
        .map(|(index, one)| {
            // Port 0 may stand there several times: then by place.
            let by_place = new.get(index).filter(|other| other.address == one.address);
            let found = by_place.or_else(|| new.iter().find(|other| other.address == one.address));
            found.cloned().unwrap_or_else(|| one.clone())
        })
        .collect()
}

/// In the order of before, new ones last: an upstream's place is its number for as long as the process lives. One that is
/// not said any more keeps its place, without replicas: each of them is drained.
fn upstreams(
    old: &[Arc<Upstream>],
    new: &[Arc<Upstream>],
    keep: &mut impl FnMut(&str, &'static str),
) -> Vec<Arc<Upstream>> {
    let mut merged: Vec<Arc<Upstream>> = Vec::with_capacity(old.len());
    for one in old {
        merged.push(match new.iter().find(|other| other.name == one.name) {
            Some(found) if found.sessions == one.sessions => Arc::clone(found),
            Some(found) => {
                let key = format!("upstream.{}.sessions", one.name);
                keep(&key, "sessions live where they lived");
                Arc::new(Upstream {
                    sessions: one.sessions,
                    ..Upstream::clone(found)
                })
            }
            None => Arc::new(Upstream {
                replicas: Vec::new(),
                drained: Vec::new(),
                ..Upstream::clone(one)
            }),
        });
    }
    for one in new {
        if old.iter().any(|other| other.name == one.name) {
            continue;
        }
        if merged.len() == UPSTREAMS_MAX {
            keep(&format!("upstream.{}", one.name), "it is not served yet");
        } else {
            merged.push(Arc::clone(one));
        }
    }
    merged
}

impl Change {
    /// Whether nothing that holds becomes something else.
    pub fn is_none(&self, old: &Config) -> bool {
        let new = &self.config;
        self.restart.is_empty()
            && old.listeners == new.listeners
            && old.upstreams == new.upstreams
            && old.secrets == new.secrets
            && old.server == new.server
            && old.replay_bytes_max == new.replay_bytes_max
            && old.log == new.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, read_in};

    const UPSTREAMS: &str = "--upstream";

    fn config(sets: &[&str]) -> Config {
        let mut flags = Flags {
            upstreams: vec!["http://127.0.0.1:3001/mcp".into()],
            ..Flags::default()
        };
        for set in sets {
            match set.strip_prefix(UPSTREAMS) {
                Some(url) => flags.upstreams.push(url.trim().into()),
                None => flags.set.push((*set).into()),
            }
        }
        let secret = |name: &str| (name == "S").then(|| "a secret of more than 16 bytes".into());
        read_in(&flags, &secret).expect("it is good").0
    }

    #[track_caller]
    fn check(old: &[&str], new: &[&str], restart: &[&str], holds: &[&str]) {
        let (old, new) = (config(old), config(new));
        let change = of(&old, new);
        let changed = !change.is_none(&old);
        let keys: Vec<&str> = change.restart.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, restart);
        let shown = format!("{:?}", change.config);
        for part in holds {
            assert!(shown.contains(part), "no `{part}` in {shown}");
        }
        assert_eq!(
            changed,
            !(restart.is_empty() && holds.is_empty()),
            "whether anything changed"
        );
    }

    #[test]
    fn what_a_process_can_take_it_takes() {
        check(&[], &[], &[], &[]);
        check(&[], &["upstream.stream.retry=2s"], &[], &["retry: 2s"]);
        check(
            &[],
            &["--upstream http://127.0.0.1:3002/mcp"],
            &[],
            &["port: 3002"],
        );
        check(&[], &["upstream.balance=random"], &[], &["balance: Random"]);
        check(&[], &["log.filter=debug"], &[], &["filter: \"debug\""]);
        check(
            &[],
            &["memory.replay_max=1GiB"],
            &[],
            &["replay_bytes_max: 1073741824"],
        );
        check(
            &[],
            &["server.allowed_hosts=a.example"],
            &[],
            &["[\"a.example\"]"],
        );
        check(
            &["secret.env=S"],
            &["secret.env=S", "secret.kid=b"],
            &[],
            &["Secret(b, …)"],
        );
    }

    #[test]
    fn what_it_can_not_is_named_and_stays() {
        check(
            &["server.listen=127.0.0.1:1"],
            &["server.listen=127.0.0.1:2", "server.workers=3"],
            &["server.listen", "server.workers"],
            &["127.0.0.1:1", "workers: 0"],
        );
        check(&[], &["admin.listen=off"], &["admin.listen"], &["9464"]);
        check(&[], &["secret.env=S"], &["secret"], &["secrets: []"]);
        check(&[], &["log.format=json"], &["log.format"], &["format: Auto"]);
        check(
            &[],
            &["upstream.sessions=none", "upstream.name=mcp", "upstream.path=/x"],
            &["upstream.mcp.sessions"],
            &["sessions: Replica", "path: \"/x\""],
        );
    }

    #[test]
    fn upstreams_come_and_go_and_keep_their_numbers() {
        let names = |config: &Config| -> Vec<String> {
            let one = |one: &Arc<Upstream>| format!("{} {}", one.name, one.replicas.len());
            config.upstreams.iter().map(one).collect()
        };
        let (mcp, other) = (config(&[]), config(&["upstream.name=other"]));
        let change = of(&mcp, other.clone());
        assert_eq!(
            (names(&change.config), change.restart.len()),
            (vec!["mcp 0".into(), "other 1".into()], 0)
        );
        // The same again changes nothing more; and who comes back has the number of before.
        assert!(of(&change.config, other).is_none(&change.config));
        let back = of(&change.config, mcp);
        assert_eq!(names(&back.config), ["mcp 1", "other 0"]);

        let mut full = config(&[]);
        let one = Arc::clone(&full.upstreams[0]);
        full.upstreams = (0..UPSTREAMS_MAX)
            .map(|n| {
                Arc::new(Upstream {
                    name: format!("u{n}").into(),
                    ..Upstream::clone(&one)
                })
            })
            .collect();
        let change = of(&full, config(&[]));
        assert_eq!(change.config.upstreams.len(), UPSTREAMS_MAX);
        assert_eq!(change.restart[0].key, "upstream.mcp");
    }
}

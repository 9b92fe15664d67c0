//! What a configuration that was read again changes of the one that holds, and what of it can't change in a process.
//! Law: nothing is dropped in silence: what needs a restart is named, and what holds goes on as it was.
//! Pure: two configurations in, one out. Who puts it in force is `app/reload_task.rs`.
//! Next: `../app/reload_task.rs`.

use std::sync::Arc;

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
    if config.replay_bytes_max != old.replay_bytes_max {
        keep("memory.replay_max", "the old budget holds");
        config.replay_bytes_max = old.replay_bytes_max;
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

/// In the order of before: an upstream's place is its number for as long as the process lives.
fn upstreams(
    old: &[Arc<Upstream>],
    new: &[Arc<Upstream>],
    keep: &mut impl FnMut(&str, &'static str),
) -> Vec<Arc<Upstream>> {
    for one in new {
        if !old.iter().any(|other| other.name == one.name) {
            keep(&format!("upstream.{}", one.name), "it is not served yet");
        }
    }
    let mut merged: Vec<Arc<Upstream>> = Vec::with_capacity(old.len());
    for one in old {
        let Some(found) = new.iter().find(|other| other.name == one.name) else {
            keep(&format!("upstream.{}", one.name), "it is served as before");
            merged.push(Arc::clone(one));
            continue;
        };
        if found.sessions == one.sessions && found.path == one.path {
            merged.push(Arc::clone(found));
            continue;
        }
        let mut upstream = Upstream::clone(found);
        if found.sessions != one.sessions {
            keep(
                &format!("upstream.{}.sessions", one.name),
                "sessions live where they lived",
            );
            upstream.sessions = one.sessions;
        }
        if found.path != one.path {
            keep(
                &format!("upstream.{}.path", one.name),
                "clients find it at the old path",
            );
            upstream.path.clone_from(&one.path);
        }
        merged.push(Arc::new(upstream));
    }
    merged
}

/// What says the same as before says nothing to do.
pub fn is_none(old: &Config, new: &Config) -> bool {
    old.listeners == new.listeners
        && old.admin == new.admin
        && old.upstreams == new.upstreams
        && old.secrets == new.secrets
        && old.server == new.server
        && old.replay_bytes_max == new.replay_bytes_max
        && old.log == new.log
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
        let changed = !is_none(&old, &new);
        let change = of(&old, new);
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
        check(
            &[],
            &["memory.replay_max=1GiB"],
            &["memory.replay_max"],
            &["replay_bytes_max: 268435456"],
        );
        check(&[], &["log.format=json"], &["log.format"], &["format: Auto"]);
        check(
            &[],
            &["upstream.sessions=none", "upstream.name=mcp", "upstream.path=/x"],
            &["upstream.mcp.sessions", "upstream.mcp.path"],
            &["sessions: Replica", "path: \"/mcp\""],
        );
        check(
            &[],
            &["upstream.name=other"],
            &["upstream.other", "upstream.mcp"],
            &["name: \"mcp\""],
        );
    }
}

//! The configuration read again while everything runs: when SIGHUP comes, or when a file that it was read from changed.
//! Law: a bad file changes nothing, and every problem of it is in the log. What is good holds at once, without a
//! stream being touched; what needs a restart is named.
//! One loop; it awaits in a `select!` over cancel-safe arms: the signal, a tick. Files are looked at and read on a
//! thread that may block. A file counts as changed when it looks different and then stays so for a tick.
//! Next: `../config/change.rs`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};
use tracing::{error, info, warn};

use crate::app::probers::Probers;
use crate::app::{Here, key_ring};
use crate::cli::Hangup;
use crate::config::change::{self, Restart};
use crate::config::resolved::{Config, Upstream};
use crate::config::{self, Flags, Seen};
use crate::downstream::Terms;
use crate::relay::Relay;
use crate::relay::reconfigure::{LEAVING_MAX, NotInForce, TlsFiles};
use crate::relay::world::World;
use crate::telemetry::instruments::Instruments;
use crate::telemetry::subscriber;
use crate::telemetry::words::Reloaded;

/// How often files are looked at: a change holds within twice this.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration that holds.
#[derive(Debug)]
pub(super) struct InForce {
    now: Mutex<(Arc<Config>, u64)>,
}

impl InForce {
    /// Holds from now on.
    pub(super) fn new(config: Config) -> Self {
        Self {
            now: Mutex::new((Arc::new(config), unix_seconds())),
        }
    }

    /// The configuration.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.now.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// When it was read, in seconds since 1970.
    pub(super) fn loaded(&self) -> u64 {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn put(&self, config: Config) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = (Arc::new(config), unix_seconds());
    }
}

/// Seconds since 1970.
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Everything that a reload changes.
pub(super) struct Reload {
    pub(super) flags: Flags,
    pub(super) in_force: Arc<InForce>,
    pub(super) relay: Arc<Relay<Here>>,
    pub(super) world: Arc<Here>,
    pub(super) terms: Arc<Terms>,
    pub(super) instruments: Arc<Instruments>,
    pub(super) probers: Probers,
}

impl Reload {
    /// Follows the signal and the files, for ever.
    pub(super) async fn follow(mut self, mut hangup: Hangup) {
        // What was read last, whether it was taken or not, as it looked just before that.
        let mut standing = self.in_force.config().files.clone();
        let mut last = standing.clone();
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                biased;
                () = hangup.next() => Asked::BySignal,
                _ = ticks.tick() => Asked::ByTime,
            };
            let now = look(standing.clone()).await;
            let settled = now == last;
            last = now;
            match asked {
                Asked::ByTime if last == standing || !settled => continue,
                Asked::ByTime | Asked::BySignal => {}
            }
            if let Some(files) = self.reload().await {
                last.clone_from(&files);
                standing = files;
            }
        }
    }

    /// Reads and judges once. Answers the files that were read.
    async fn reload(&mut self) -> Option<Vec<Seen>> {
        let flags = self.flags.clone();
        let read = tokio::task::spawn_blocking(move || config::read(&flags)).await;
        let (outcome, files) = match read {
            Ok(Ok((new, warnings))) => {
                for warning in &warnings {
                    warn!(key = warning.remark().key(), "{}", warning.remark().what());
                }
                let files = new.files.clone();
                (self.put_in_force(new), Some(files))
            }
            Ok(Err(problems)) => {
                for problem in problems.remarks() {
                    error!(key = problem.key(), place = %problem.place(), "{}", problem.what());
                }
                (Reloaded::Refused, Some(problems.files().to_vec()))
            }
            // It panicked, which is told where it did.
            Err(_) => (Reloaded::Refused, None),
        };
        self.instruments.reloads.one(outcome);
        match outcome {
            Reloaded::Applied | Reloaded::Partly => {
                let loaded = i64::try_from(self.in_force.loaded()).unwrap_or(i64::MAX);
                self.instruments.loaded.set(loaded);
                info!(outcome = word(outcome), "configuration was reloaded");
            }
            Reloaded::Unchanged => info!(outcome = word(outcome), "configuration was reloaded"),
            Reloaded::Refused => {
                error!(
                    outcome = word(outcome),
                    "configuration was refused; the old one holds"
                );
            }
        }
        files
    }

    fn put_in_force(&mut self, new: Config) -> Reloaded {
        let old = self.in_force.config();
        let change = change::of(&old, new);
        let beside = |one: &&Seen| Some(&one.path) != old.source.as_ref();
        let same_files = old
            .files
            .iter()
            .filter(beside)
            .eq(change.config.files.iter().filter(beside));
        if change.is_none(&old) && same_files {
            return Reloaded::Unchanged;
        }
        let change::Change { config, restart } = change;
        if let Err(refused) = self.apply(&old, &config) {
            error!("{refused}");
            return Reloaded::Refused;
        }
        for Restart { key, what } in &restart {
            warn!(key, holds = what, "a change needs a restart");
        }
        self.in_force.put(config);
        if restart.is_empty() {
            Reloaded::Applied
        } else {
            Reloaded::Partly
        }
    }

    /// Tries everything that can fail, then changes everything.
    fn apply(&mut self, old: &Config, new: &Config) -> Result<(), String> {
        let keys = if new.secrets == old.secrets {
            None
        } else {
            self.relay.room_for_keys().map_err(|why| refusal(&why))?;
            Some(key_ring(new, &self.world).map_err(|error| error.to_string())?)
        };
        self.terms.room().map_err(|_| refusal(&NotInForce::TooOften))?;
        let terms = self.terms.prepare(new).map_err(|error| error.to_string())?;
        let mut prepared = Vec::with_capacity(new.upstreams.len());
        for (pool, upstream) in self.relay.pools().iter().zip(&new.upstreams) {
            let files = tls_files(upstream, &old.files, &new.files);
            prepared.push(pool.prepare(upstream, files).map_err(|why| refusal(&why))?);
        }
        let mut came = Vec::new();
        for (number, upstream) in new.upstreams.iter().enumerate().skip(prepared.len()) {
            let instruments = self.instruments.upstream(&super::labelled(upstream));
            let pool = self.relay.make_pool(number, upstream, instruments);
            came.push(pool.map_err(|why| refusal(&why))?);
        }
        if new.log.filter != old.log.filter {
            subscriber::set_filter(&new.log.filter)?;
        }
        if let Some(keys) = keys {
            self.relay.set_keys(keys);
        }
        self.world.store().ledger().set_budget(new.replay_bytes_max);
        self.relay.say_peers(new.server.peers);
        for (number, (pool, prepared)) in self.relay.pools().iter().zip(prepared).enumerate() {
            let changed = self.relay.put_in_force(pool, prepared);
            self.probers.follow((number, pool), &changed, &*self.world);
        }
        let first = self.relay.pools().len();
        self.relay.add_pools(&came);
        for (number, pool) in came.iter().enumerate() {
            self.relay.drain_as_said(pool, &[]);
            self.probers.begin_all((first + number, pool), &*self.world);
            super::say_what_holds(&pool.config());
        }
        // Last, since a path leads to a pool.
        self.terms.put_in_force(terms);
        Ok(())
    }
}

enum Asked {
    BySignal,
    ByTime,
}

fn word(outcome: Reloaded) -> &'static str {
    crate::telemetry::words::Word::as_str(outcome)
}

fn refusal(why: &NotInForce) -> String {
    match why {
        NotInForce::Tls(problem) => format!("TLS towards an upstream: {problem}"),
        NotInForce::TooManyLeave { leaving } => format!(
            "{leaving} replicas of one upstream would be on their way out, more than {LEAVING_MAX}: \
             wait for their drain_deadline, or shorten it"
        ),
        NotInForce::TooOften => "a setting was changed too often for one process: restart it".to_owned(),
    }
}

/// Whether what an upstream's TLS is made of looks different than before.
fn tls_files(upstream: &Upstream, before: &[Seen], now: &[Seen]) -> TlsFiles {
    let tls = &upstream.tls;
    let client = tls
        .client
        .iter()
        .flat_map(|files| [&files.certificate, &files.key]);
    let changed = |path: &PathBuf| {
        let stamp = |files: &[Seen]| {
            files
                .iter()
                .find(|seen| seen.path == *path)
                .map(|seen| seen.stamp)
        };
        stamp(before) != stamp(now)
    };
    if tls.authorities.iter().chain(client).any(changed) {
        TlsFiles::Changed
    } else {
        TlsFiles::Same
    }
}

/// How these files look now.
async fn look(files: Vec<Seen>) -> Vec<Seen> {
    let looked = move || files.into_iter().map(|seen| Seen::now(seen.path)).collect();
    tokio::task::spawn_blocking(looked).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Stamp;

    #[test]
    fn only_the_files_of_an_upstream_concern_its_tls() {
        let flags = Flags {
            upstreams: vec!["http://127.0.0.1:1/mcp".into()],
            ..Flags::default()
        };
        let (config, _) = config::read_in(&flags, &|_| None).unwrap();
        let mut upstream = Upstream::clone(&config.upstreams[0]);
        upstream.tls.authorities = Some("ca.pem".into());
        // Two files of this crate stand for two looks of one.
        let one = Seen::now("Cargo.toml".into()).stamp;
        let two = Seen::now("Cargo.lock".into()).stamp;
        assert!(one.is_some() && one != two);
        let seen = |files: &[(&str, Option<Stamp>)]| -> Vec<Seen> {
            let each = files.iter().map(|(path, stamp)| Seen {
                path: path.into(),
                stamp: *stamp,
            });
            each.collect()
        };
        let check = |before: &[_], now: &[_], expected| {
            assert_eq!(tls_files(&upstream, &seen(before), &seen(now)), expected);
        };
        check(&[("ca.pem", one)], &[("ca.pem", one), ("x", two)], TlsFiles::Same);
        check(&[("ca.pem", one)], &[("ca.pem", two)], TlsFiles::Changed);
        check(&[("ca.pem", None)], &[("ca.pem", one)], TlsFiles::Changed);
        check(&[], &[("ca.pem", one)], TlsFiles::Changed);
        check(&[("x", one)], &[("x", two)], TlsFiles::Same);
    }
}

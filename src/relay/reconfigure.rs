//! Another configuration put in force while everything runs: replicas come and go, times and bounds change.
//! Law: everything that can fail is tried before anything changes; then nothing fails, and no stream is touched.
//! A replica that is not configured any more is drained, and never cut. Whoever reads a setting has the old one or the
//! new one; what began under the old one (a timer that runs) ends under it.
//! Next: `replica_drain.rs`.

use std::sync::{Arc, PoisonError};

use tracing::info;

use crate::config::live::{Full, Live};
use crate::config::resolved::{Scheme, Upstream};
use crate::net::Authority;
use crate::net::tls::TlsProblem;
use crate::pure::keys::KeyRing;
use crate::relay::Relay;
use crate::relay::pool::{Pool, credentials_of};
use crate::relay::replica_drain::Ordered;
use crate::relay::world::World;
use crate::routing::{Duty, Replica};
use crate::telemetry::instruments::UpstreamInstruments;
use crate::upstream::Client;

/// Whether the files that an upstream's TLS is made of have changed since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFiles {
    /// They say what they said.
    Same,
    /// They don't.
    Changed,
}

/// Why a configuration can't be put in force.
#[derive(Debug)]
pub enum NotInForce {
    /// TLS towards an upstream can't be set up.
    Tls(TlsProblem),
    /// A setting was changed too often for one process.
    TooOften,
    /// So many replicas would be on their way out at a time: [`LEAVING_MAX`].
    TooManyLeave {
        /// How many.
        leaving: usize,
    },
}

/// Replicas of one upstream that may be on their way out at a time, in replicas: four whole sets of them.
pub const LEAVING_MAX: usize = 1_024;

impl From<Full> for NotInForce {
    fn from(Full: Full) -> Self {
        Self::TooOften
    }
}

/// A configuration of one upstream that can be put in force.
pub struct Prepared<W: World> {
    config: Arc<Upstream>,
    client: Option<Arc<Client<W::Net>>>,
}

/// What an upstream's new configuration means for its probers.
#[derive(Debug, Default)]
pub struct Changed {
    /// Replicas that are probed from now on.
    pub came: Vec<Arc<Replica>>,
    /// Replicas that are probed no more.
    pub went: Vec<Arc<Replica>>,
    /// Whether the others are probed anew, in another way.
    pub probing: Probing,
}

/// Whether how replicas are probed has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Probing {
    /// It has not.
    #[default]
    AsBefore,
    /// It has.
    Anew,
}

/// Whether two configurations of an upstream differ in their replicas only.
fn same_settings(old: &Upstream, new: &Upstream) -> bool {
    *old == Upstream {
        replicas: old.replicas.clone(),
        drained: old.drained.clone(),
        ..Upstream::clone(new)
    }
}

impl<W: World> Pool<W> {
    /// Makes everything that a new configuration needs; nothing has changed then.
    ///
    /// # Errors
    /// [`NotInForce`].
    pub fn prepare(&self, config: &Arc<Upstream>, files: TlsFiles) -> Result<Prepared<W>, NotInForce> {
        let old = self.config();
        let going = self.table.replicas().into_iter();
        let going = going
            .filter(|one| !config.replicas.contains(one.config()))
            .count();
        let leaving = self.table.leaving().len() + going;
        if leaving > LEAVING_MAX {
            return Err(NotInForce::TooManyLeave { leaving });
        }
        let is_https = |upstream: &Upstream| upstream.replicas.iter().any(|one| one.scheme == Scheme::Https);
        // Those that leave are still spoken to.
        let mut all = Upstream::clone(config);
        let leaving = self.table.replicas().into_iter().chain(self.table.leaving());
        all.replicas.extend(leaving.map(|one| one.config().clone()));
        let as_before = config.exchange == old.exchange
            && config.tls == old.tls
            && (is_https(&old) || !is_https(config))
            && (files == TlsFiles::Same || !is_https(&all));
        let client = if as_before {
            None
        } else {
            Live::room(&self.client)?;
            let client = Client::for_upstream(Arc::clone(self.world.net()), &all);
            Some(Arc::new(client.map_err(NotInForce::Tls)?))
        };
        Live::room(&self.config)?;
        Ok(Prepared {
            config: Arc::clone(config),
            client,
        })
    }
}

impl<W: World> Relay<W> {
    /// Makes the pool of an upstream that comes; nothing has changed then.
    ///
    /// # Errors
    /// [`NotInForce`].
    pub fn make_pool(
        &self,
        number: usize,
        config: &Arc<Upstream>,
        instruments: Arc<UpstreamInstruments>,
    ) -> Result<Arc<Pool<W>>, NotInForce> {
        Live::room(&self.pools)?;
        let world = Arc::clone(&self.world);
        let pool = Pool::new(number, Arc::clone(config), world, instruments).map_err(NotInForce::Tls)?;
        Ok(Arc::new(pool))
    }

    /// Adds the pools of upstreams that came, in the order of their numbers.
    pub fn add_pools(&self, came: &[Arc<Pool<W>>]) {
        if !came.is_empty() {
            // There was room a moment ago, and there is one writer.
            let _ = Live::put(&self.pools, Arc::new([self.pools(), came].concat()));
        }
    }

    /// Drains the replicas of which the configuration says so, and takes the drains back that it said before. What the
    /// operator ordered stays. Call: within a tokio runtime.
    pub fn drain_as_said(self: &Arc<Self>, pool: &Arc<Pool<W>>, before: &[Authority]) {
        let config = pool.config();
        let now = &config.drained;
        for replica in pool.table.replicas() {
            let said = |list: &[Authority]| list.contains(replica.authority());
            match (said(before), said(now)) {
                (false, true) => {
                    self.drain_replica(pool, &replica);
                }
                (true, false) => {
                    self.undrain_replica(pool, &replica);
                }
                (true, true) | (false, false) => {}
            }
        }
    }

    /// Whether other keys can be put in force.
    ///
    /// # Errors
    /// [`NotInForce::TooOften`].
    pub fn room_for_keys(&self) -> Result<(), NotInForce> {
        Ok(Live::room(&self.keys)?)
    }

    /// New ids are made with other keys. The old ring stays in memory until the process ends.
    pub fn set_keys(&self, keys: KeyRing) {
        // There was room a moment ago, and there is one writer.
        let _ = Live::put(&self.keys, Arc::new(keys));
    }

    /// Puts a prepared configuration in force. Call: within a tokio runtime.
    pub fn put_in_force(self: &Arc<Self>, pool: &Arc<Pool<W>>, prepared: Prepared<W>) -> Changed {
        let Prepared { config, client } = prepared;
        let old = pool.config();
        if *old == *config && client.is_none() {
            return Changed::default();
        }
        let probing = if client.is_some() || old.health != config.health {
            Probing::Anew
        } else {
            Probing::AsBefore
        };
        // There was room a moment ago, and there is one writer.
        if let Some(client) = client {
            let _ = Live::put(&pool.client, client);
        }
        if !same_settings(&old, &config) {
            let _ = Live::put(&pool.config, Arc::clone(&config));
            let _ = Live::put(&pool.credentials, Arc::new(credentials_of(&config)));
        }
        *pool.stated.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&config);
        let swapped = pool.table.replace(config.balance, &config.replicas);
        for replica in &swapped.came {
            info!(upstream = %config.name, replica = %replica.authority(), "replica was added");
            match replica.duty() {
                Duty::Serving => {}
                Duty::Draining | Duty::Drained => {
                    self.undrain_replica(pool, replica);
                }
            }
        }
        self.drain_as_said(pool, &old.drained);
        for replica in &swapped.went {
            info!(upstream = %config.name, replica = %replica.authority(), "replica was taken out of the configuration");
            match (self.drain_replica(pool, replica), replica.duty()) {
                // Nobody waits for its deadline any more.
                (Ordered::Already, Duty::Drained) => pool.forget_if_left(replica),
                (Ordered::Already, Duty::Draining | Duty::Serving)
                | (Ordered::Begun { .. } | Ordered::Undrained | Ordered::Serving, _) => {}
            }
        }
        Changed {
            came: swapped.came,
            went: swapped.went,
            probing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, read_in};

    fn upstream(sets: &[&str]) -> Upstream {
        let flags = Flags {
            upstreams: vec!["http://127.0.0.1:1/mcp".into()],
            set: sets.iter().map(|set| (*set).into()).collect(),
            ..Flags::default()
        };
        let (config, _) = read_in(&flags, &|_| None).unwrap();
        Upstream::clone(&config.upstreams[0])
    }

    #[test]
    fn replicas_are_no_settings() {
        let check = |set: &str, same: bool| {
            assert_eq!(same_settings(&upstream(&[]), &upstream(&[set])), same, "{set}");
        };
        check(
            "upstream.replicas=['http://127.0.0.1:2/mcp', 'http://127.0.0.1:3/mcp']",
            true,
        );
        check(
            "upstream.replicas=[{ url = 'http://127.0.0.1:1/mcp', drain = true }]",
            true,
        );
        check("upstream.stream.retry=2s", false);
        check("upstream.drain_deadline=0s", false);
        check("upstream.path=/x", false);
    }
}

//! Whether other proxies may serve the sessions of this one: what is said of them, and what was seen.
//! Law: what was seen outweighs what is said. A token of our own seal, made by another proxy while this one ran, is proof
//! of a peer; from then on, and until the process ends, this proxy claims nothing that a peer may have made untrue.
//! Absent on purpose: who they are, and any word with them. Why for ever: nobody can see that the last peer has gone.
//! Next: `gap.rs`, which asks; the rule is `pure/session_token.rs`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::config::resolved;
use crate::pure::session_token::{Issuer, Sealed};
use crate::relay::Relay;
use crate::relay::world::World;

/// What is known of other proxies.
#[derive(Debug)]
pub(crate) struct Peers {
    /// The number by which our own tokens are known.
    instance: u32,
    /// When this proxy began, in seconds since 1970.
    began: u32,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    said: resolved::Peers,
    seen: Seen,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    None,
    /// First at this time, in seconds since 1970.
    Since(u64),
}

/// Whether other proxies may serve the sessions of this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Company {
    /// None does, as far as anybody knows.
    None,
    /// Some may: the configuration says so.
    Said,
    /// One did, though the configuration says that there is none.
    Seen {
        /// When that was seen first, in seconds since 1970.
        since: u64,
    },
}

impl Peers {
    pub(crate) const fn new(said: resolved::Peers, instance: u32, began: u32) -> Self {
        let seen = Seen::None;
        Self {
            instance,
            began,
            known: Mutex::new(Known { said, seen }),
        }
    }

    /// The number by which our own tokens are known.
    pub(crate) const fn instance(&self) -> u32 {
        self.instance
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn company(&self) -> Company {
        let known = self.known();
        match (known.said, known.seen) {
            (resolved::Peers::Possible, _) => Company::Said,
            (resolved::Peers::None, Seen::Since(since)) => Company::Seen { since },
            (resolved::Peers::None, Seen::None) => Company::None,
        }
    }

    pub(crate) fn say(&self, said: resolved::Peers) {
        self.known().said = said;
    }

    /// A token was opened: whether it is the first to prove what the configuration denies.
    fn look_at(&self, token: &Sealed, now: u64) -> News {
        match token.issuer(self.instance, self.began) {
            Issuer::Ourselves | Issuer::Predecessor => return News::None,
            Issuer::Peer => {}
        }
        let mut known = self.known();
        match (known.seen, known.said) {
            (Seen::Since(_), _) => return News::None,
            (Seen::None, _) => known.seen = Seen::Since(now),
        }
        match known.said {
            resolved::Peers::None => News::Contradicted,
            resolved::Peers::Possible => News::None,
        }
    }
}

/// What a token says that was not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    None,
    /// There is a peer where the configuration says that there is none.
    Contradicted,
}

impl<W: World> Relay<W> {
    /// Whether other proxies may serve the sessions of this one.
    pub fn company(&self) -> Company {
        self.peers.company()
    }

    /// Whether nobody else can have written what this proxy has not. One that drains is not alone: its successor may serve
    /// already, and a client that was there may come back by an old connection.
    pub(crate) fn is_alone(&self) -> bool {
        match self.company() {
            Company::None => !self.running.is_draining(),
            Company::Said | Company::Seen { .. } => false,
        }
    }

    /// The configuration says this of other proxies from now on. What was seen stays seen.
    pub fn say_peers(&self, said: resolved::Peers) {
        self.peers.say(said);
    }

    /// A session's token was opened that is not known here: it may show that this proxy is not alone.
    pub(crate) fn look_for_peers(&self, upstream: &str, token: &Sealed) {
        match self.peers.look_at(token, self.world.unix_seconds()) {
            News::None => {}
            News::Contradicted => {
                warn!(
                    upstream,
                    key = "server.peers",
                    "another proxy serves the same sessions: set server.peers to \"possible\" on each of them; until this one \
                     is restarted it acts so"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::event_id::Uid;
    use crate::pure::revision::Revision;
    use crate::pure::session_token::{Flags, ReplicaKey, Transport};

    fn token(instance: u32, issued: u32) -> Sealed {
        Sealed {
            uid: Uid::new([0; 16]),
            issued,
            instance,
            flags: Flags::NONE,
            replica: ReplicaKey::of("mcp", "127.0.0.1:1"),
            revision: Revision::V2025_11_25,
            transport: Transport::Streamable,
            backend_id: None,
        }
    }

    #[test]
    fn what_was_seen_outweighs_what_is_said() {
        use resolved::Peers::{None, Possible};
        #[track_caller]
        fn check(said: resolved::Peers, tokens: &[(Sealed, News)], company: Company) {
            let peers = Peers::new(said, 7, 1_000);
            for (nth, (token, news)) in tokens.iter().enumerate() {
                assert_eq!(peers.look_at(token, 2_000 + nth as u64), *news, "{nth}");
            }
            assert_eq!(peers.company(), company);
        }
        let own = (token(7, 5_000), News::None);
        let before = (token(8, 1_000), News::None);
        let peer = |news| (token(8, 1_001), news);
        check(None, &[], Company::None);
        check(None, &[own.clone(), before.clone()], Company::None);
        check(
            None,
            &[before, peer(News::Contradicted), peer(News::None), own],
            Company::Seen { since: 2_001 },
        );
        check(Possible, &[peer(News::None)], Company::Said);
    }

    #[test]
    fn what_is_said_anew_does_not_unsay_what_was_seen() {
        let peers = Peers::new(resolved::Peers::Possible, 7, 1_000);
        assert_eq!(peers.look_at(&token(8, 1_001), 2_000), News::None);
        peers.say(resolved::Peers::None);
        assert_eq!(peers.company(), Company::Seen { since: 2_000 });
    }
}

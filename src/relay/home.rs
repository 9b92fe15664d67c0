//! Where a session lives: its replica, the id under which that knows it, and which life of it this is.
//! Law: a home is never changed, only followed by another; whoever sends a request sends it to one home, whole.
//! Why two places: a session that never moved, which is nearly every one, finds its home with one atomic read.
//! Next: `session.rs`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::{HeaderMap, HeaderValue};

use crate::pure::session::{Generation, Phase, Server};
use crate::pure::session_token::{Sealed, Transport};
use crate::relay::pool::KnownBy;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::routing::{Replica, Seat};

/// By what a backend and a session at it are known.
#[derive(Clone)]
pub(crate) struct Signs {
    /// How its messages travel.
    pub(crate) transport: Transport,
    /// The id under which the replica knows the session; `None` = it keeps no sessions.
    pub(crate) backend_id: Option<HeaderValue>,
    /// Who it said it is.
    pub(crate) server: Option<Server>,
    /// What it said in `instance_header`.
    pub(crate) instance: Option<HeaderValue>,
}

impl Default for Signs {
    fn default() -> Self {
        Self {
            transport: Transport::Streamable,
            backend_id: None,
            server: None,
            instance: None,
        }
    }
}

impl Signs {
    /// All that a token says of them.
    pub(crate) fn of_token(facts: &Sealed) -> Self {
        let id = facts.backend_id.as_ref();
        Self {
            transport: facts.transport,
            backend_id: id.and_then(|id| HeaderValue::try_from(id.as_str()).ok()),
            server: None,
            instance: None,
        }
    }

    /// What this answer to `initialize` says, beside the session's id.
    pub(crate) fn of_answer(head: &HeaderMap, body: &[u8], instance_header: Option<&str>) -> Self {
        let instance = instance_header.and_then(|name| head.get(name));
        Self {
            transport: Transport::Streamable,
            backend_id: None,
            server: Server::of(body),
            // Copied: the field pins the buffer that the head was read into.
            instance: instance.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()),
        }
    }
}

/// One home of a session.
pub(crate) struct Home {
    /// Its replica.
    pub(crate) replica: Arc<Replica>,
    transport: Transport,
    /// The id under which the replica knows it, or over HTTP+SSE the endpoint; `None` = it keeps no sessions.
    pub(crate) backend_id: Option<HeaderValue>,
    /// Which life of the session this is.
    pub(crate) generation: Generation,
    server: Option<Server>,
    instance: Option<Box<HeaderValue>>,
    /// The replica's troubles when it was last known to have the session.
    verified: AtomicU64,
}

impl Home {
    fn new(seat: &Seat, signs: Signs, generation: Generation) -> Arc<Self> {
        let replica = Arc::clone(seat.replica());
        Arc::new(Self {
            verified: AtomicU64::new(replica.troubles()),
            replica,
            transport: signs.transport,
            backend_id: signs.backend_id,
            generation,
            server: signs.server,
            instance: signs.instance.map(Box::new),
        })
    }

    /// By what the replica knows it.
    pub(crate) fn known_by(&self) -> KnownBy<'_> {
        match (self.transport, &self.backend_id) {
            (_, None) => KnownBy::Nothing,
            (Transport::Streamable, Some(id)) => KnownBy::Id(id),
            (Transport::HttpSse, Some(endpoint)) => KnownBy::Endpoint(endpoint),
        }
    }

    /// Whether the replica had no trouble since it was last known to have the session.
    pub(crate) fn is_verified(&self) -> bool {
        self.replica.troubles() == self.verified.load(Ordering::Relaxed)
    }

    /// The replica has the session, as of so many troubles.
    pub(crate) fn verify(&self, troubles: u64) {
        self.verified.store(troubles, Ordering::Relaxed);
    }

    /// Whether this answer comes from another start of the backend than the one that the session lives in.
    pub(crate) fn is_contradicted_by(&self, answer: &HeaderMap, instance_header: Option<&str>) -> bool {
        let (Some(name), Some(own)) = (instance_header, &self.instance) else {
            return false;
        };
        answer.get(name).is_some_and(|now| *now != **own)
    }

    /// Whether the replica has said since that it is another server.
    pub(crate) fn is_another_server(&self) -> bool {
        match (self.server, self.replica.server()) {
            (Some(then), Some(now)) => then != now,
            (None, _) | (_, None) => false,
        }
    }
}

/// The homes of a session: the one that it has, and its seat there.
pub(crate) struct Homes {
    first: Arc<Home>,
    moved: OnceLock<Box<Mutex<Arc<Home>>>>,
    /// Given back when the session moves.
    seat: Mutex<Seat>,
}

impl Homes {
    /// A session that was begun here.
    pub(crate) fn new(seat: Seat, signs: Signs) -> Self {
        Self {
            first: Home::new(&seat, signs, Generation::FIRST),
            moved: OnceLock::new(),
            seat: Mutex::new(seat),
        }
    }

    /// Where it lives now.
    pub(crate) fn now(&self) -> Arc<Home> {
        match self.moved.get() {
            None => Arc::clone(&self.first),
            Some(moved) => Arc::clone(&moved.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// It lives there from now on, in its next generation.
    pub(crate) fn move_to(&self, seat: Seat, signs: Signs) -> Arc<Home> {
        let home = Home::new(&seat, signs, self.now().generation.next());
        let moved = self.moved.get_or_init(|| Box::new(Mutex::new(Arc::clone(&home))));
        *moved.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&home);
        let old = std::mem::replace(
            &mut *self.seat.lock().unwrap_or_else(PoisonError::into_inner),
            seat,
        );
        drop(old);
        home
    }
}

impl<W: World> Session<W> {
    /// Where it lives now.
    pub(crate) fn home(&self) -> Arc<Home> {
        self.homes.now()
    }

    /// Its replica now.
    pub(crate) fn replica(&self) -> Arc<Replica> {
        Arc::clone(&self.homes.now().replica)
    }

    /// It lives there from now on, unless it ends or has ended: the record is held, so that no DELETE comes between.
    ///
    /// # Errors
    /// Where it stands.
    pub(crate) fn move_to(&self, seat: Seat, signs: Signs) -> Result<Arc<Home>, Phase> {
        let record = self.record();
        match record.phase() {
            Phase::Live => Ok(self.homes.move_to(seat, signs)),
            phase @ (Phase::Ending | Phase::Ended(_)) => Err(phase),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::resolved::{self, Scheme};
    use crate::net::Authority;

    fn replica(port: u16) -> Arc<Replica> {
        let authority = Authority {
            host: "a.example".into(),
            port,
        };
        let config = resolved::Replica {
            authority,
            scheme: Scheme::Http,
            path: "/mcp".into(),
        };
        Arc::new(Replica::new("tools", config))
    }

    #[test]
    fn a_session_moves_with_its_seat_and_its_generation_rises() {
        let (one, two) = (replica(1), replica(2));
        let homes = Homes::new(one.seat(), Signs::default());
        let first = homes.now();
        assert_eq!((one.sessions(), two.sessions()), (1, 0));
        let second = homes.move_to(two.seat(), Signs::default());
        assert!(Arc::ptr_eq(&homes.now(), &second));
        assert_eq!((one.sessions(), two.sessions()), (0, 1));
        assert_eq!(second.replica.key(), two.key());
        let third = homes.move_to(two.seat(), Signs::default());
        assert_eq!((one.sessions(), two.sessions()), (0, 1));
        let generations = [first, second, third].map(|home| home.generation.get());
        assert_eq!(generations, [0, 1, 2]);
    }

    #[test]
    fn a_trouble_leaves_a_doubt_until_it_is_looked_into() {
        let replica = replica(1);
        replica.note_trouble();
        let home = Homes::new(replica.seat(), Signs::default()).now();
        assert!(home.is_verified());
        replica.note_trouble();
        assert!(!home.is_verified());
        home.verify(replica.troubles());
        assert!(home.is_verified());
    }

    #[test]
    fn a_backend_that_started_anew_is_known_by_its_signs() {
        let replica = replica(1);
        let server = Server::of(br#"{"result":{"serverInfo":{"version":"1"}}}"#);
        let signs = Signs {
            transport: Transport::Streamable,
            backend_id: None,
            server,
            instance: Some(HeaderValue::from_static("a")),
        };
        let home = Homes::new(replica.seat(), signs).now();
        let answer = |value: Option<&'static str>| {
            let fields = value.map(|value| (http::header::HeaderName::from_static("x-i"), value));
            let fields = fields.map(|(name, value)| (name, HeaderValue::from_static(value)));
            fields.into_iter().collect::<HeaderMap>()
        };
        for (said, header, expected) in [
            (Some("a"), Some("x-i"), false),
            (Some("b"), Some("x-i"), true),
            (Some("b"), None, false),
            // An answer that does not say contradicts nothing.
            (None, Some("x-i"), false),
        ] {
            assert_eq!(home.is_contradicted_by(&answer(said), header), expected);
        }
        assert!(!home.is_another_server(), "nobody knows");
        replica.saw(server.unwrap());
        assert!(!home.is_another_server());
        replica.saw(Server::of(br#"{"result":{"serverInfo":{"version":"2"}}}"#).unwrap());
        assert!(home.is_another_server());
    }
}

//! Where a session lives: its replica, the id under which that knows it, and which life of it this is.
//! Law: a home is never changed, only followed by another; whoever sends a request sends it to one home, whole.
//! Why two places: a session that never moved, which is nearly every one, finds its home with one atomic read.
//! Next: `session.rs`.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::HeaderValue;

use crate::pure::session::Generation;
use crate::routing::{Replica, Seat};

/// One home of a session.
pub(crate) struct Home {
    /// Its replica.
    pub(crate) replica: Arc<Replica>,
    /// The id under which the replica knows it; `None` = it keeps no sessions.
    pub(crate) backend_id: Option<HeaderValue>,
    /// Which life of the session this is.
    pub(crate) generation: Generation,
}

/// The homes of a session: the one that it has, and its seat there.
pub(crate) struct Homes {
    first: Arc<Home>,
    moved: OnceLock<Mutex<Arc<Home>>>,
    /// Given back when the session moves.
    seat: Mutex<Seat>,
}

impl Homes {
    /// A session that was begun here.
    pub(crate) fn new(seat: Seat, backend_id: Option<HeaderValue>) -> Self {
        let first = Arc::new(Home {
            replica: Arc::clone(seat.replica()),
            backend_id,
            generation: Generation::FIRST,
        });
        Self {
            first,
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
    pub(crate) fn move_to(&self, seat: Seat, backend_id: Option<HeaderValue>) -> Arc<Home> {
        let home = Arc::new(Home {
            replica: Arc::clone(seat.replica()),
            backend_id,
            generation: self.now().generation.next(),
        });
        let moved = self.moved.get_or_init(|| Mutex::new(Arc::clone(&home)));
        *moved.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&home);
        let old = std::mem::replace(
            &mut *self.seat.lock().unwrap_or_else(PoisonError::into_inner),
            seat,
        );
        drop(old);
        home
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
        let homes = Homes::new(one.seat(), Some(HeaderValue::from_static("a")));
        let first = homes.now();
        assert_eq!((one.sessions(), two.sessions()), (1, 0));
        let second = homes.move_to(two.seat(), Some(HeaderValue::from_static("b")));
        assert!(Arc::ptr_eq(&homes.now(), &second));
        assert_eq!((one.sessions(), two.sessions()), (0, 1));
        assert_eq!(second.replica.key(), two.key());
        let third = homes.move_to(two.seat(), None);
        assert_eq!((one.sessions(), two.sessions()), (0, 1));
        let generations = [first, second, third].map(|home| home.generation.get());
        assert_eq!(generations, [0, 1, 2]);
    }
}

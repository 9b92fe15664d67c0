//! What few sessions ever have: made when the first of it is needed.
//! Law: nobody makes it to look whether there is something in it.
//! Why one box: an idle session is most of what a proxy holds, and each of these would be a field of all of them.
//! Next: `session.rs`, whose part it is.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::pure::epoch::Epoch;
use crate::pure::session::Generation;
use crate::pure::stream::Witness;
use crate::pure::stream::admission::Had;
use crate::relay::asks::AnsweredHere;
use crate::relay::gate::Proofs;
use crate::relay::session::Session;
use crate::relay::turn::Told;
use crate::relay::world::World;

/// The parts of a session that few have.
#[derive(Default)]
pub(crate) struct Seldom {
    /// Over HTTP+SSE, the one stream that carries it; `None` also if that is held by another proxy, or lost.
    carrier: Option<Epoch>,
    early: Mutex<Vec<Box<[u8]>>>,
    /// Credentials that the backend is being asked about.
    proofs: Proofs,
    /// What of the backend's requests the proxy answered.
    answered_here: AnsweredHere,
    /// What the backend said on a standalone stream that was let go, in this life of the session.
    witnessed: Mutex<Option<(Generation, Box<Witness>)>>,
    /// What it may say again on the next one, in this life of the session.
    had: Mutex<Option<(Generation, Box<Had>)>>,
}

impl Seldom {
    /// Of a session that begins with messages that came before its standalone stream, or is carried by a stream;
    /// `None`: it does not.
    pub(crate) fn begun(early: Vec<Box<[u8]>>, carrier: Option<Epoch>) -> Option<Box<Self>> {
        if early.is_empty() && carrier.is_none() {
            return None;
        }
        Some(Box::new(Self {
            carrier,
            early: Mutex::new(early),
            ..Self::default()
        }))
    }

    fn had(&self) -> MutexGuard<'_, Option<(Generation, Box<Had>)>> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn witnessed(&self) -> MutexGuard<'_, Option<(Generation, Box<Witness>)>> {
        self.witnessed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: World> Session<W> {
    /// Over HTTP+SSE, the one stream that carries it; `None` also if that is held by another proxy, or lost.
    pub(crate) fn carrier(&self) -> Option<Epoch> {
        self.seldom.get()?.carrier
    }

    /// Credentials that the backend is being asked about.
    pub(crate) fn proofs(&self) -> &Proofs {
        &self.seldom().proofs
    }

    /// What of the backend's requests the proxy answered; `None`: nothing.
    pub(crate) fn answered_here(&self) -> Option<&AnsweredHere> {
        self.seldom.get().map(|seldom| &seldom.answered_here)
    }

    /// The same, to note what the proxy answers.
    pub(crate) fn answering_here(&self) -> &AnsweredHere {
        &self.seldom().answered_here
    }

    /// What the backend said on a standalone stream that was let go, and in which life of the session; once.
    pub(crate) fn take_witnessed(&self) -> Option<(Generation, Box<Witness>)> {
        self.seldom.get()?.witnessed().take()
    }

    /// A standalone stream is let go whose backend said this.
    pub(crate) fn keep_witnessed(&self, generation: Generation, witness: Box<Witness>) {
        *self.seldom().witnessed() = Some((generation, witness));
    }

    /// What the backend of a standalone stream that was let go may say again, in this life of the session; once.
    pub(crate) fn take_had(&self, generation: Generation) -> Option<Box<Had>> {
        let (of, had) = self.seldom.get()?.had().take()?;
        (of == generation).then_some(had)
    }

    /// A standalone stream is let go whose backend may say this again.
    pub(crate) fn keep_had(&self, generation: Generation, had: Box<Had>) {
        *self.seldom().had() = Some((generation, had));
    }

    /// Messages that came before the standalone stream; once.
    pub(crate) fn take_early(&self) -> Vec<Told> {
        let Some(seldom) = self.seldom.get() else {
            return Vec::new();
        };
        let early = std::mem::take(&mut *seldom.early.lock().unwrap_or_else(PoisonError::into_inner));
        early
            .into_iter()
            .map(|data| Told {
                event: Box::default(),
                data,
            })
            .collect()
    }

    fn seldom(&self) -> &Seldom {
        self.seldom.get_or_init(Box::default)
    }
}

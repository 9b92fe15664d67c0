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
    /// What a standalone stream that was let go left, and in which life of the session.
    legacy: Mutex<Option<(Generation, Legacy)>>,
}

/// What a standalone stream that was let go leaves to the next one in the same life of the session.
#[derive(Default)]
pub(crate) struct Legacy {
    /// What its backend said under ids that are declared to be the session's own.
    pub(crate) witness: Option<Box<Witness>>,
    /// What its backend may say again.
    pub(crate) had: Option<Box<Had>>,
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

    fn legacy(&self) -> MutexGuard<'_, Option<(Generation, Legacy)>> {
        self.legacy.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What the last standalone stream left, if that was in this life of the session; once.
    pub(crate) fn take_legacy(&self, generation: Generation) -> Legacy {
        let left = self.seldom.get().and_then(|seldom| seldom.legacy().take());
        left.filter(|(of, _)| *of == generation)
            .map(|(_, legacy)| legacy)
            .unwrap_or_default()
    }

    /// A standalone stream is let go, and leaves this, if it is anything.
    pub(crate) fn leave_legacy(&self, generation: Generation, legacy: Legacy) {
        if legacy.witness.is_some() || legacy.had.is_some() {
            *self.seldom().legacy() = Some((generation, legacy));
        }
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

//! What a backend asks of its client (sampling, elicitation, roots, `ping`), and who answers.
//! Law: the client's answer goes to the replica that asked; what was answered is never shown again; what nobody will
//! answer any more is answered by the proxy, with an error (wire contract, sections 6 and 7).
//! A request that was answered is replaced in the log, in its place: same id, same position, another message. So a
//! replay stays whole, and no client acts twice.
//! Next: `pure/stream/life.rs`, which knows what is open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{debug, info};

use crate::pure::epoch::Seq;
use crate::pure::limits::SERVER_REQUESTS_MAX;
use crate::pure::log::{EndMark, Millis};
use crate::pure::overlap::Digest;
use crate::pure::refusal::{self, Withdrawal};
use crate::pure::rpc::{self, EventKind, RequestId};
use crate::pure::session::{Answered, Restored};
use crate::pure::stream::{ClientAnswer, Displaced};
use crate::relay::Relay;
use crate::relay::exchange::CANCEL_MAX;
use crate::relay::intake::Presence;
use crate::relay::mailbox::Command;
use crate::relay::session::Session;
use crate::relay::stream_task::StreamTask;
use crate::relay::turn::{Told, told_after};
use crate::relay::world::World;
use crate::store::StreamLog;
use crate::upstream::Deadline;

/// The backend's requests that the proxy answered in the client's place, for all streams of a session.
#[derive(Default)]
pub(crate) struct AnsweredHere {
    /// Whether there are any: else an answer costs one look.
    any: AtomicBool,
    ids: Mutex<Answered>,
}

impl AnsweredHere {
    fn change(&self, change: impl FnOnce(&mut Answered)) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut ids);
        self.any.store(!ids.is_empty(), Ordering::Release);
    }

    /// The backend asks under this id: it is its client's to answer.
    pub(crate) fn asked(&self, id: &RequestId) {
        if self.any.load(Ordering::Acquire) {
            self.change(|ids| ids.asked(id));
        }
    }

    /// A client's notifications and answers without those that come after ours.
    pub(crate) fn restore(&self, body: &[u8]) -> Restored {
        if self.any.load(Ordering::Acquire) {
            let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
            ids.restore(body)
        } else {
            Restored::AsItCame
        }
    }
}

impl<W: World> Session<W> {
    /// The client answered these requests: whichever stream showed them shows them no more.
    pub(crate) fn client_answered(&self, ids: &[RequestId]) {
        if ids.is_empty() {
            return;
        }
        for mailbox in self.mailboxes() {
            for id in ids {
                mailbox.post(Command::Answered(id.clone()));
            }
        }
    }

    /// Sends answers of ours to the backend, each once, one after the other, in the newest client's name. `token` is
    /// dropped when it is done.
    fn answer_backend(self: &Arc<Self>, relay: &Arc<Relay<W>>, bodies: Vec<Vec<u8>>, token: Arc<()>) {
        let (session, relay) = (Arc::clone(self), Arc::clone(relay));
        tokio::spawn(async move {
            let _token = token;
            for body in bodies {
                let request = session.own_post(body);
                let sent = session.send_once(&relay, request, Deadline::after(CANCEL_MAX));
                if sent.await.is_err() {
                    info!(session = %session.label(), "an answer of the proxy's did not reach the backend");
                }
            }
        });
    }
}

impl<W: World> StreamTask<W> {
    /// Whether somebody is there to answer the backend.
    pub(crate) fn presence(&self) -> Presence {
        match (&self.reader, &self.awaited) {
            (None, None) => Presence::Away,
            (Some(_), _) | (None, Some(_)) => Presence::Attached,
        }
    }

    /// Answers the backend's pings that no client is there to answer.
    pub(crate) fn answer_pings(&mut self) {
        for id in std::mem::take(&mut self.backend.pings) {
            debug!(session = %self.session.label(), stream = %self.name, "backend's ping was answered for an absent client");
            self.answer_backend(vec![refusal::empty_result(&id)]);
        }
    }

    /// Answers the backend, unless as many answers as a client ever owes are on their way already: a backend that asks
    /// faster than it takes answers waits for the rest in vain.
    fn answer_backend(&mut self, bodies: Vec<Vec<u8>>) {
        let token = Arc::clone(self.backend.answering.get_or_insert_default());
        if Arc::strong_count(&token) > SERVER_REQUESTS_MAX + 1 {
            info!(session = %self.session.label(), stream = %self.name, "backend asked faster than it takes answers");
            return;
        }
        self.session.answer_backend(&self.relay, bodies, token);
    }

    /// Requests that had to make room for newer ones are answered with an error, and withdrawn from the client.
    pub(crate) fn answer_displaced(&mut self, now: Millis) {
        let displaced = self.life.take_displaced();
        if displaced.is_empty() {
            return;
        }
        info!(session = %self.session.label(), stream = %self.name, requests = displaced.len(), "more requests of the backend's wait for the client than are kept");
        self.strike_late();
        for Displaced { id, at } in &displaced {
            self.session.answering_here().change(|ids| ids.here(id));
            if let Some(at) = *at {
                self.strike(id, at, Withdrawal::Displaced);
            }
            if at.is_none_or(|at| at <= self.written) && !self.life.is_over() {
                // The client may have it already.
                self.append(
                    EndMark::Open,
                    b"",
                    &refusal::cancelled(id, Withdrawal::Displaced),
                    now,
                );
            }
        }
        let words = displaced
            .iter()
            .map(|displaced| refusal::too_many_asked(&displaced.id));
        self.answer_backend(words.collect());
    }

    /// The client answered a request, perhaps one of this stream's.
    pub(crate) fn client_answered(&mut self, id: &RequestId) {
        self.strike_late();
        match self.life.client_answered(id) {
            ClientAnswer::Unexpected | ClientAnswer::Expected { at: None } => {}
            ClientAnswer::Expected { at: Some(at) } => self.strike(id, at, Withdrawal::Answered),
        }
    }

    /// Strikes what could not be struck before, since its frame was half sent. Call: where nothing is half sent.
    pub(crate) fn strike_late(&mut self) {
        if let Some(late) = self.backend.unstruck.take() {
            let (id, at, why) = *late;
            self.strike(&id, at, why);
        }
    }

    fn strike(&mut self, id: &RequestId, at: Seq, why: Withdrawal) {
        if self.reader.as_ref().is_some_and(|reader| reader.is_within(at)) {
            self.backend.unstruck = Some(Box::new((id.clone(), at, why)));
            return;
        }
        // A backend that must prove itself says it as it was.
        let known = told_after(&self.log, Seq::new(at.get().saturating_sub(1)), at);
        if let [told] = known.as_slice() {
            self.backend.trail.keep_said(at, Digest::of(&told.data));
        }
        let words = refusal::in_place_of_answered(id, why);
        let struck = self.log.strike(at, &words.each_ref().map(Vec::as_slice));
        debug!(session = %self.session.label(), stream = %self.name, %at, why = why.as_str(), ?struck, "a request of the backend's was struck");
    }

    /// The last event that was told is a request of the backend's that was told before, in another epoch.
    pub(crate) fn client_is_asked_again(&mut self, id: &RequestId) {
        self.life.placed(id, self.spill.newest(&self.counts));
    }

    /// Nobody will answer what the backend asked on this stream: it is told so. The requests that it concerns.
    /// It is asked some of them again; those stay its own to answer.
    pub(crate) fn answer_for_client(&mut self, asked_again: &[RequestId]) -> Vec<RequestId> {
        let unanswered = self.life.withdraw_pending(asked_again);
        for id in &unanswered {
            self.session.answering_here().change(|ids| ids.here(id));
            self.answer_backend(vec![refusal::client_away(id)]);
        }
        unanswered
    }
}

/// The request of the backend's that an event is, if it is one.
pub(crate) fn request_of(told: &Told) -> Option<RequestId> {
    match rpc::classify_event(&told.data) {
        EventKind::Request { id, method: _ } if told.event.is_empty() || *told.event == *b"message" => {
            Some(id)
        }
        EventKind::Request { .. }
        | EventKind::Notification
        | EventKind::Response(_)
        | EventKind::Batch(_)
        | EventKind::Other => None,
    }
}

//! What a backend asks of its client (sampling, elicitation, roots, `ping`), and who answers.
//! Law: the client's answer goes to the replica that asked; what was answered is never shown again; what nobody will
//! answer any more is answered by the proxy, with an error (wire contract, sections 6 and 7).
//! A request that was answered is replaced in the log, in its place: same id, same position, another message. So a
//! replay stays whole, and no client acts twice.
//! Next: `pure/stream/life.rs`, which knows what is open.

use std::sync::Arc;

use tracing::{debug, info};

use crate::pure::epoch::Seq;
use crate::pure::limits::SERVER_REQUESTS_MAX;
use crate::pure::overlap::Digest;
use crate::pure::refusal;
use crate::pure::rpc::{self, EventKind, RequestId};
use crate::pure::stream::ClientAnswer;
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

    /// Sends an answer of ours to the backend, once, in the newest client's name. `token` is dropped when it is done.
    fn answer_backend(self: &Arc<Self>, relay: &Arc<Relay<W>>, body: Vec<u8>, token: Arc<()>) {
        let request = self.own_post(body);
        let (session, relay) = (Arc::clone(self), Arc::clone(relay));
        tokio::spawn(async move {
            let _token = token;
            let sent = session.send_once(&relay, request, Deadline::after(CANCEL_MAX));
            if sent.await.is_err() {
                info!(session = %session.label(), "an answer of the proxy's did not reach the backend");
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
            self.answer_backend(refusal::empty_result(&id));
        }
    }

    /// Answers the backend, unless as many answers as a client ever owes are on their way already: a backend that asks
    /// faster than it takes answers waits for the rest in vain.
    fn answer_backend(&mut self, body: Vec<u8>) {
        let token = Arc::clone(self.backend.answering.get_or_insert_default());
        if Arc::strong_count(&token) > SERVER_REQUESTS_MAX + 1 {
            info!(session = %self.session.label(), stream = %self.name, "backend asked faster than it takes answers");
            return;
        }
        self.session.answer_backend(&self.relay, body, token);
    }

    /// The client answered a request, perhaps one of this stream's.
    pub(crate) fn client_answered(&mut self, id: &RequestId) {
        self.strike_late();
        match self.life.client_answered(id) {
            ClientAnswer::Unexpected | ClientAnswer::Expected { at: None } => {}
            ClientAnswer::Expected { at: Some(at) } => self.strike(id, at),
        }
    }

    /// Strikes what could not be struck before, since its frame was half sent. Call: where nothing is half sent.
    pub(crate) fn strike_late(&mut self) {
        if let Some(late) = self.backend.unstruck.take() {
            self.strike(&late.0, late.1);
        }
    }

    fn strike(&mut self, id: &RequestId, at: Seq) {
        if self.reader.as_ref().is_some_and(|reader| reader.is_within(at)) {
            self.backend.unstruck = Some(Box::new((id.clone(), at)));
            return;
        }
        // A backend that must prove itself says it as it was.
        let known = told_after(&self.log, Seq::new(at.get().saturating_sub(1)), at);
        if let [told] = known.as_slice() {
            self.backend.trail.keep_said(at, Digest::of(&told.data));
        }
        let words = refusal::in_place_of_answered(id);
        let struck = self.log.strike(at, &words.each_ref().map(Vec::as_slice));
        debug!(session = %self.session.label(), stream = %self.name, %at, ?struck, "client answered its backend");
    }

    /// The last event that was told is a request of the backend's that was told before, in another epoch.
    pub(crate) fn client_is_asked_again(&mut self, id: &RequestId) {
        self.life.placed(
            id,
            Seq::new(self.counts.last_pushed().get() + self.spill.len() as u64),
        );
    }

    /// Nobody will answer what the backend asked on this stream: it is told so. The requests that it concerns.
    /// It is asked some of them again; those stay its own to answer.
    pub(crate) fn answer_for_client(&mut self, asked_again: &[RequestId]) -> Vec<RequestId> {
        let unanswered = self.life.withdraw_pending(asked_again);
        for id in &unanswered {
            self.answer_backend(refusal::client_away(id));
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

//! A call whose answer is slow to begin: its client gets a primed, resumable stream meanwhile (`json_upgrade_after`).
//! Law: the request is sent once, and goes on as it is; only the way of its answer changes. What then comes is the
//! stream's one event, or its events, or an error for each request.
//! Why: a call that answers with JSON can be lost by any cut before its head; a stream that was primed can't.
//! Absent on purpose: `initialize`, and sessions that know no priming.
//! Next: `post.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::ACCEPT;
use memchr::memmem;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::net::Net;
use crate::pure::epoch::Reason;
use crate::pure::log::Millis;
use crate::pure::refusal;
use crate::pure::revision::Priming;
use crate::pure::session::{Asks, Generation};
use crate::pure::sse::{Block, OnBlock};
use crate::relay::Relay;
use crate::relay::answer::NotExecuted;
use crate::relay::exchange::Sent;
use crate::relay::headers;
use crate::relay::intake::{Intake, Prior, Remembered};
use crate::relay::pool::{Request, Unanswered};
use crate::relay::refuse::Words;
use crate::relay::session::Session;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::world::World;
use crate::upstream::EventBody;

/// An exchange that goes on by itself, and in which life of the session it was answered. Boxed: only where a slow answer
/// may become a stream.
pub(crate) type Exchange<W> = Pin<Box<dyn Future<Output = (Generation, Result<Sent<W>, Unanswered>)> + Send>>;

/// What a slow answer came to.
pub(crate) enum Late<W: World> {
    /// A body, whole.
    Whole(Bytes),
    /// A stream.
    Streaming(Box<EventBody<<W::Net as Net>::Io>>),
    /// A refusal with this status.
    Refused(u16),
    /// The request was not sent.
    NotSent(NotExecuted),
    /// It was not run, since the session was lost before: in these words.
    NotRun(Words),
    /// It was sent, and its answer is lost.
    Lost,
    /// The backend does not know the session any more.
    SessionGone,
}

/// The future of a slow answer.
pub(crate) type Answering<W> = Pin<Box<dyn Future<Output = Late<W>> + Send>>;

/// How an exchange began.
pub(crate) enum Began<W: World> {
    /// It was answered in time.
    Answered((Generation, Result<Sent<W>, Unanswered>)),
    /// It was not: it goes on as the source of a stream, in this life of the session.
    Slow(Source<W>, Generation),
}

/// After how long the answer to this request becomes a stream, if it may.
pub(crate) fn upgrades_after<W: World>(session: &Session<W>, request: &Request) -> Option<Duration> {
    let after = session.pool.config.stream.json_upgrade_after?;
    let takes_streams = |value: &HeaderValue| memmem::find(value.as_bytes(), b"text/event-stream").is_some();
    match session.revision.primes() {
        Priming::Yes if request.headers.get_all(ACCEPT).iter().any(takes_streams) => Some(after),
        Priming::Yes | Priming::No => None,
    }
}

/// Sends a request, and waits so long for its answer to begin.
pub(crate) async fn send<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (mut request, asks): (Request, Asks),
    after: Duration,
) -> Began<W> {
    let generation = session.home().generation;
    let words = Words::of(1, &request.body);
    let mut exchange: Exchange<W> = {
        let (relay, session) = (Arc::clone(relay), Arc::clone(session));
        Box::pin(async move { session.call(&relay, &mut request, asks).await })
    };
    if let Ok(sent) = timeout(after, &mut exchange).await {
        return Began::Answered(sent);
    }
    info!(session = %session.label(), "a slow answer became a stream");
    let max = session.pool.config.stream.event_bytes_max;
    Began::Slow(
        Source::Answering(
            Box::pin(async move { late(exchange.await.1, max, words).await }),
            Millis(u64::MAX),
        ),
        generation,
    )
}

async fn late<W: World>(sent: Result<Sent<W>, Unanswered>, bytes_max: usize, words: Words) -> Late<W> {
    let incoming = match sent {
        Ok(Sent::Answer(incoming)) => incoming,
        Ok(Sent::Whole(answer)) => return Late::Refused(answer.status().as_u16()),
        Ok(Sent::SessionGone) => return Late::SessionGone,
        // It was not executed, and its client holds a stream already: the stream says so. Whether that is read can't be
        // told, so the next call is refused too.
        Ok(Sent::Refused) => return Late::NotRun(words),
        Ok(Sent::NotRun) => return Late::NotRun(Words::Error),
        Ok(Sent::Strange) => return Late::Lost,
        Err(Unanswered::NoReplica) => return Late::NotSent(NotExecuted::Unavailable),
        Err(Unanswered::NotSent(why)) => return Late::NotSent(why),
        Err(Unanswered::Lost(_) | Unanswered::TimedOut) => return Late::Lost,
    };
    let status = incoming.head.status;
    if !status.is_success() {
        return Late::Refused(status.as_u16());
    }
    if headers::is_event_stream(&incoming.head.headers) {
        return Late::Streaming(Box::new(incoming.into_events(bytes_max).1));
    }
    match incoming.body.collect(bytes_max).await {
        Ok(body) => Late::Whole(body),
        Err(error) => {
            debug!(%error, "a slow answer broke off");
            Late::Lost
        }
    }
}

impl<W: World> StreamTask<W> {
    /// A slow answer came.
    pub(crate) fn answered_late(&mut self, late: Late<W>, now: Millis) {
        self.source = Source::Over;
        match late {
            Late::Streaming(body) => self.source = Source::Reading(body),
            Late::Whole(body) => {
                self.take_whole(body.trim_ascii(), now);
                // What answers none of them is no answer.
                self.fail_open(Reason::BackendLost, now);
            }
            Late::Refused(status) => {
                self.answer_each(now, |id| refusal::backend_status(id, status));
            }
            Late::NotSent(why) => self.answer_open(why.failure(), now),
            Late::NotRun(words) => {
                let words = match self.life.open_ids().len() {
                    1 => words,
                    _ => Words::Error,
                };
                self.answer_each(now, |id| words.to(id));
            }
            Late::Lost => self.fail_open(Reason::BackendLost, now),
            // It was not run, and never will be.
            Late::SessionGone => {
                self.answer_each(now, |id| Words::Error.to(id));
            }
        }
    }

    /// Takes a body as the one event that it stands for.
    fn take_whole(&mut self, body: &[u8], now: Millis) {
        let client = self.presence();
        let mut intake = Intake {
            log: &mut self.log,
            life: &mut self.life,
            prefix: self.prefix.as_bytes(),
            spill: &mut self.spill,
            counts: &mut self.counts,
            trail: &mut self.backend.trail,
            witness: self.backend.witness.as_deref_mut(),
            isolation: self.session.isolation.as_ref(),
            prior: Prior::Nothing,
            remembered: Remembered::of(&self.name),
            agent: self.agent,
            generation: self.generation,
            client,
            pings: &mut self.backend.pings,
            answered_here: self.session.answered_here(),
            now,
        };
        intake.on_block(Block::of_data(body));
    }
}

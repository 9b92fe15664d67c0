//! A POST of a session before it is sent: is it new, or one that runs or was just answered (wire contract, section 7)?
//! Law: what runs is executed once, however often it comes: a repeat gets that one outcome. An answer is counted as
//! taken when the client side took it over, and held for longer if the client was gone by then.
//! In the usual case all this is one hash over the body and two short looks into the session's record.
//! Next: `ticket.rs`; `post.rs`, which executes; `again.rs`, for repeats of streams; `gate.rs`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::pure::epoch::{Epoch, Reason};
use crate::pure::log::Millis;
use crate::pure::rpc::RequestId;
use crate::pure::session::{Begun, BodyDigest, Known, PostKey, Settled, Shown, Taken};
use crate::pure::session_token::Transport;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, NotExecuted, Refused};
use crate::relay::gate::{self, Admitted};
use crate::relay::kept::{Kept, Orphan};
use crate::relay::mailbox::{Asked, Reply};
use crate::relay::passing::Passing;
use crate::relay::refuse::{self, Refusing};
use crate::relay::said::Said;
use crate::relay::session::Session;
use crate::relay::ticket::{Outcome, Ticket};
use crate::relay::world::World;
use crate::relay::{get, headers, http_sse, post};
use crate::telemetry::words;

/// How often a repeat looks again whose stream ends while it is asked.
const LOOKS_MAX: usize = 4;

/// A POST that was executed, and its ticket.
struct Done<W: World> {
    answer: Answer<Passing<W>>,
    ticket: Ticket<W>,
}

impl<W: World> Orphan for Done<W> {
    fn orphaned(self) {
        let stream = &self.ticket.session.pool.config.stream;
        let taken = Taken::Not {
            since: self.ticket.relay.now(),
            held: Millis(stream.detached_max.as_millis() as u64),
        };
        self.ticket.settle(&self.answer, taken);
    }
}

/// What a POST turned out to be.
enum Found<W: World> {
    New(Ticket<W>),
    Full { running: usize },
    Running(watch::Receiver<Option<Outcome>>),
    Streaming(Epoch),
    Answered(Box<Response<Bytes>>),
    Unheld(Reason),
}

/// Answers a POST of a session.
pub(crate) async fn post<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (call, said): (Box<Call>, Said),
    now: Millis,
) -> Answer<Passing<W>> {
    let digest = match &said {
        Said::Requests { .. } => Some(BodyDigest::of(&call.body)),
        // What has no answer of its own may come as often as it likes.
        Said::Nothing | Said::Unreadable | Said::Initialize { .. } | Said::Notices { .. } => None,
    };
    match session.begin(relay, &call.headers, digest, now) {
        Found::New(ticket) => execute(relay, session, (call, said), ticket).await,
        found => Box::pin(repeated(relay, session, (call, said), (digest, found))).await,
    }
}

async fn execute<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (call, said): (Box<Call>, Said),
    mut ticket: Ticket<W>,
) -> Answer<Passing<W>> {
    let bound = session.pool.config.stream.detached_max;
    let Done { answer, ticket } = Kept::new(bound, async move {
        let Ticket {
            session,
            relay,
            course,
        } = &mut ticket;
        let answer = post::post(relay, session, call, said, course).await;
        Done { answer, ticket }
    })
    .await;
    ticket.settle(&answer, Taken::At(relay.now()));
    answer
}

/// Answers a POST that is not new, or has no room.
async fn repeated<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    (call, said): (Box<Call>, Said),
    (digest, mut found): (Option<BodyDigest>, Found<W>),
) -> Answer<Passing<W>> {
    match (session.transport, &found) {
        (Transport::Streamable, _) | (Transport::HttpSse, Found::New(_) | Found::Full { .. }) => {}
        (
            Transport::HttpSse,
            Found::Running(_) | Found::Streaming(_) | Found::Answered(_) | Found::Unheld(_),
        ) => {
            return http_sse::post::again(session);
        }
    }
    let ids = said.ids().to_vec();
    for _ in 0..LOOKS_MAX {
        match found {
            Found::New(ticket) => return execute(relay, session, (call, said), ticket).await,
            Found::Full { running } => {
                warn!(session = %session.label(), running, "call refused: streams_max run already");
                let why = NotExecuted::Overloaded;
                return Answer::Refused(Refused::NotExecuted { ids, why });
            }
            Found::Running(waits) => return wait((relay, session), waits, &call, ids).await,
            Found::Unheld(reason) => return unheld(session, ids, reason),
            Found::Streaming(_) | Found::Answered(_) => {}
        }
        match gate::admit(relay, session, &call.headers, gate::PROOF_MAX).await {
            Admitted::Yes => {}
            Admitted::Stranger => return Answer::Refused(Refused::SessionGone),
            Admitted::Denied(answer) => return answer.into_answer(),
            // It ran; whoever asks for its answer can't be told it. That the session is gone would say that it did not:
            // clients begin a new one and send the call once more.
            Admitted::NotYet | Admitted::SessionGone => return unheld(session, ids, Reason::BackendLost),
        }
        let again = match found {
            Found::Answered(response) => Some(Answer::Whole(response)),
            Found::Streaming(epoch) => attach(session, epoch, &call).await,
            Found::New(_) | Found::Full { .. } | Found::Running(_) | Found::Unheld(_) => None,
        };
        if let Some(answer) = again {
            debug!(session = %session.label(), "the same POST came again and is given the first one's answer");
            session.pool.instruments.repeats.one(words::Repeated::Replayed);
            return answer;
        }
        // The stream left meanwhile, and has told the ledger how.
        found = session.begin(relay, &call.headers, digest, relay.now());
    }
    unheld(session, ids, Reason::Evicted)
}

/// Waits for the answer of the same POST, which runs.
async fn wait<W: World>(
    (relay, session): (&Arc<Relay<W>>, &Arc<Session<W>>),
    mut waits: watch::Receiver<Option<Outcome>>,
    call: &Call,
    ids: Vec<RequestId>,
) -> Answer<Passing<W>> {
    debug!(session = %session.label(), "the same POST came again and waits for the first one's answer");
    let outcome = match waits.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone(),
        Err(_) => None,
    };
    let answer = match outcome {
        Some(Outcome::Whole(response)) => Some(Answer::Whole(Box::new((*response).clone()))),
        Some(Outcome::Refused(refused)) => Some(Answer::Refused(refused)),
        Some(Outcome::Stream(epoch)) => attach(session, epoch, call).await,
        Some(Outcome::Unheld(reason)) => return unheld(session, ids, reason),
        Some(Outcome::NotRun) => {
            let refusing = Refusing {
                ids: &ids,
                body: &call.body,
                fields: &call.headers,
                agent: headers::agent_of(&call.headers),
            };
            Some(refuse::say(relay, session, &refusing))
        }
        None => None,
    };
    match answer {
        Some(answer) => {
            session.pool.instruments.repeats.one(words::Repeated::Waited);
            answer
        }
        None => unheld(session, ids, Reason::Evicted),
    }
}

/// It ran, and its answer can't be had again.
fn unheld<W: World>(session: &Session<W>, ids: Vec<RequestId>, reason: Reason) -> Answer<Passing<W>> {
    info!(session = %session.label(), %reason, "the same POST came again, and its answer can't be had");
    session.pool.instruments.repeats.one(words::Repeated::Unheld);
    Answer::Refused(Refused::OutcomeUnknown { ids, reason })
}

/// Attaches to the stream of this epoch, from its beginning; `None` if it is no more.
async fn attach<W: World>(session: &Session<W>, epoch: Epoch, call: &Call) -> Option<Answer<Passing<W>>> {
    let Known::Live(mailbox) = session.find(epoch) else {
        return None;
    };
    match get::ask(&mailbox, Asked::Again, headers::agent_of(&call.headers)).await {
        Reply::Open(opening) => Some(Answer::Stream(Box::new(opening))),
        Reply::Ended
        | Reply::Unmet { .. }
        | Reply::Private(_)
        | Reply::NotOffered
        | Reply::SessionGone
        | Reply::Denied(_)
        | Reply::Closed => None,
    }
}

impl<W: World> Session<W> {
    /// A POST came, with this digest of its body if it must not run twice.
    fn begin(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        fields: &HeaderMap,
        digest: Option<BodyDigest>,
        now: Millis,
    ) -> Found<W> {
        let mut record = self.record();
        let newest = record
            .beside
            .credentials
            .recognise(&self.pool.credentials, fields);
        let shown = match newest {
            Some(hash) => Shown::Newest(hash),
            None => {
                drop(record);
                let shown = self.read_credential(relay, fields);
                record = self.record();
                shown
            }
        };
        let number = match digest {
            None => None,
            Some(digest) => {
                let room = record.streams.room_for_post(self.pool.config.session.streams_max);
                let key = PostKey::new(shown.hash(), digest);
                match (record.beside.repeats.begin(key, now), room) {
                    (Begun::New(number), Ok(())) => Some(number),
                    (Begun::New(number), Err(full)) => {
                        record.beside.repeats.settle(number, Settled::Forget);
                        let running = full.running;
                        return Found::Full { running };
                    }
                    (Begun::Running(waits), _) => {
                        let waits = waits.get_or_insert_with(|| watch::Sender::new(None));
                        return Found::Running(waits.subscribe());
                    }
                    (Begun::Streaming(epoch), _) => return Found::Streaming(epoch),
                    (Begun::Answered(held), _) => return Found::Answered(Box::new(held.response())),
                    (Begun::Unheld(reason), _) => return Found::Unheld(reason),
                }
            }
        };
        record.engaged(now);
        record.spoke(now);
        drop(record);
        Found::New(Ticket::new((self, relay), shown, number))
    }
}

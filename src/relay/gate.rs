//! Who may be answered from a session's memory: what stands before GET, DELETE and repeats (wire contract, section 9).
//! Law: a log is read to nobody whose credential the backend did not accept on this session lately. One that it did not
//! see yet is proved first, by a `ping` that carries it; many who ask at once share one ping.
//! In the usual case this compares a few bytes. While nobody knows, nothing of a cursor is confirmed or denied.
//! Next: `unproved_task.rs`, `get.rs`, `delete.rs`; the rules are in `pure/session/credential.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info};

use crate::pure::limits::PROOFS_MAX;
use crate::pure::log::Millis;
use crate::pure::refusal;
use crate::pure::rpc::RequestId;
use crate::pure::session::{
    Allowance, CredentialHash, Credentials, Draw, Moment, Presented, Record, Shown, Standing,
};
use crate::relay::Relay;
use crate::relay::answer::{Answer, Call, Opening, RETRY_AFTER, Refused};
use crate::relay::delete;
use crate::relay::exchange::{Sent, WholeAnswer};
use crate::relay::get;
use crate::relay::headers;
use crate::relay::mailbox::Mailbox;
use crate::relay::passing::{self, Passing};
use crate::relay::pool::{BackendAnswer, Pool, Request, Unanswered};
use crate::relay::session::Session;
use crate::relay::ticket::Repeats;
use crate::relay::unproved_task::Unproved;
use crate::relay::world::World;
use crate::telemetry::words;

/// How long a proof may take, with the waiting for a replica that refuses connections.
pub(crate) const PROOF_MAX: Duration = Duration::from_secs(10);

/// How long a GET waits for its proof before it is held on comments: whoever asks wants a byte soon.
const GET_PATIENCE: Duration = Duration::from_secs(2);

/// How long a DELETE may take, its proof included.
pub(crate) const DELETE_MAX: Duration = delete::DELETE_MAX.saturating_add(PROOF_MAX);

/// How long the rest of a ping's answer is read so that its connection can be used again.
const REST_MAX: Duration = Duration::from_secs(1);

/// The name of the ping. Nothing else of ours asks on a session under this name.
const PING: &str = "proof";

/// What is under a session's lock.
pub(crate) type Recorded = Record<Arc<Mailbox>, Beside>;

/// What is kept beside a session's record, under the same lock.
#[derive(Default)]
pub(crate) struct Beside {
    /// Who may be answered from memory.
    pub(crate) credentials: Credentials,
    /// Requests that must not run twice.
    pub(crate) repeats: Repeats,
}

/// What a backend's answer says of the credential that it was asked with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Nothing: there was no answer, or one that any stranger may get too.
    Nothing,
    /// It was accepted (2xx).
    Accepted,
    /// It was refused (401, 403).
    Refused,
}

impl Heard {
    /// Of an exchange.
    pub(crate) fn of<W: World>(sent: &Result<Sent<W>, Unanswered>) -> Self {
        match sent {
            Ok(Sent::Answer(incoming)) => Self::of_status(incoming.head.status),
            Ok(Sent::Whole(answer)) => Self::of_status(answer.status()),
            Ok(Sent::SessionGone | Sent::Refused | Sent::NotRun | Sent::Strange) | Err(_) => Self::Nothing,
        }
    }

    fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Refused,
            // Not "anything else": what stands before a server redirects, limits and fails for strangers too.
            _ if status.is_success() => Self::Accepted,
            _ => Self::Nothing,
        }
    }
}

/// Notes what was heard of a credential.
pub(crate) fn note<W: World>(
    record: &mut Recorded,
    relay: &Relay<W>,
    pool: &Pool<W>,
    (shown, heard): (Shown, Heard),
    now: Millis,
) {
    match heard {
        Heard::Nothing => {}
        Heard::Refused => record.beside.credentials.refuse(shown.hash()),
        Heard::Accepted => {
            let unix = match &shown {
                // Its own end is known already.
                Shown::Newest(_) => 0,
                Shown::Other(_) => relay.world.unix_seconds(),
            };
            let rule = pool.config.session.resume_principal;
            let moment = Moment { now, unix };
            record.beside.credentials.accept(shown, rule, moment);
        }
    }
}

impl<W: World> Session<W> {
    /// What a request shows: hashed only if it is not the newest accepted credential.
    pub(crate) fn shown(&self, relay: &Relay<W>, fields: &HeaderMap) -> Shown {
        let names = &self.pool.credentials;
        let newest = self.record().beside.credentials.recognise(names, fields);
        newest.map_or_else(|| self.read_credential(relay, fields), Shown::Newest)
    }

    /// Reads and hashes a credential.
    pub(crate) fn read_credential(&self, relay: &Relay<W>, fields: &HeaderMap) -> Shown {
        let presented = Presented::of(relay.keys.current(), &self.pool.credentials, fields);
        Shown::Other(Box::new(presented))
    }

    /// The fields of a request of ours in its client's name: the newest credential that the backend accepted.
    pub(crate) fn own_fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::new();
        self.record()
            .beside
            .credentials
            .lend(&self.pool.credentials, &mut fields);
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        fields.insert(ACCEPT, accept);
        if let Some(revision) = self.revision.header() {
            fields.insert(headers::PROTOCOL_VERSION, HeaderValue::from_static(revision));
        }
        fields
    }

    /// A POST of ours in its client's name.
    pub(crate) fn own_post(&self, body: impl Into<Bytes>) -> Request {
        Request::posted(self.own_fields(), body)
    }

    /// Whether what a request shows is another principal's.
    pub(crate) fn is_strangers(&self, relay: &Relay<W>, fields: &HeaderMap) -> bool {
        let shown = self.shown(relay, fields);
        self.standing_of(&shown, relay.now()) == Standing::Stranger
    }

    fn standing_of(&self, shown: &Shown, now: Millis) -> Standing {
        let rule = self.pool.config.session.resume_principal;
        self.record().beside.credentials.standing(shown, rule, now)
    }
}

/// What a proof came to.
#[derive(Clone)]
enum Proof {
    UnderWay,
    Accepted,
    Denied(WholeAnswer),
    SessionGone,
    /// The backend could not be reached, or said neither yes nor no.
    Unknown,
}

impl Proof {
    const fn word(&self) -> words::Proved {
        match self {
            Self::Accepted => words::Proved::Accepted,
            Self::Denied(_) => words::Proved::Denied,
            Self::SessionGone => words::Proved::SessionGone,
            Self::UnderWay | Self::Unknown => words::Proved::Unknown,
        }
    }
}

/// The proofs of one session that are under way.
#[derive(Default)]
pub(crate) struct Proofs {
    under_way: Mutex<Vec<(CredentialHash, watch::Receiver<Proof>)>>,
    unknown: Mutex<Allowance>,
}

/// A proof to wait for.
enum Joined {
    /// It is under way.
    Waiting(watch::Receiver<Proof>),
    /// It is to be begun, and told here.
    Begin(watch::Sender<Proof>, watch::Receiver<Proof>),
    /// Too many are under way, or were asked about in vain lately.
    TooMany,
}

/// What is known of a credential that is to be proved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The backend accepted it once.
    Accepted,
    /// Nothing: it may be made up.
    Unknown,
}

impl Proofs {
    fn unknown(&self) -> MutexGuard<'_, Allowance> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, hash: CredentialHash, before: Before, now: Millis) -> Joined {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose task is gone was told, or never will be.
        under_way.retain(|(_, proof)| proof.has_changed().is_ok());
        if let Some((_, proof)) = under_way.iter().find(|(of, _)| *of == hash) {
            return Joined::Waiting(proof.clone());
        }
        if under_way.len() == PROOFS_MAX {
            return Joined::TooMany;
        }
        match before {
            Before::Accepted => {}
            Before::Unknown if self.unknown().draw(now) == Draw::Granted => {}
            Before::Unknown => return Joined::TooMany,
        }
        let (told, proof) = watch::channel(Proof::UnderWay);
        under_way.push((hash, proof.clone()));
        Joined::Begin(told, proof)
    }
}

/// Whether a request may be answered from memory.
pub(crate) enum Admitted {
    /// It may.
    Yes,
    /// The session does not exist for it.
    Stranger,
    /// The backend does not accept its credential: its answer.
    Denied(WholeAnswer),
    /// The backend does not know the session.
    SessionGone,
    /// Nobody knows yet.
    NotYet,
}

/// Judges the credential in these fields, with a ping if it must be; waits so long for that.
pub(crate) async fn admit<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    fields: &HeaderMap,
    patience: Duration,
) -> Admitted {
    let shown = session.shown(relay, fields);
    match session.standing_of(&shown, relay.now()) {
        Standing::Accepted => return Admitted::Yes,
        Standing::Stranger => {
            info!(session = %session.label(), "another principal asked for a session's streams");
            return Admitted::Stranger;
        }
        Standing::Unproved => {}
    }
    let before = if session.record().beside.credentials.knows(shown.hash()) {
        Before::Accepted
    } else {
        Before::Unknown
    };
    let mut proof = match session.proofs().join(shown.hash(), before, relay.now()) {
        Joined::Waiting(proof) => proof,
        Joined::TooMany => return Admitted::NotYet,
        Joined::Begin(told, proof) => {
            let (relay, session, fields) = (Arc::clone(relay), Arc::clone(session), fields.clone());
            tokio::spawn(async move {
                let asked = timeout(PROOF_MAX, prove(&relay, &session, fields, shown));
                let proof = asked.await.unwrap_or(Proof::Unknown);
                match (&proof, before) {
                    (Proof::Accepted, Before::Unknown) => session.proofs().unknown().give_back(),
                    (_, Before::Accepted | Before::Unknown) => {}
                }
                session.pool.instruments.proofs.one(proof.word());
                let _ = told.send(proof);
            });
            proof
        }
    };
    let is_over = |proof: &Proof| !matches!(proof, Proof::UnderWay);
    match timeout(patience, proof.wait_for(is_over)).await {
        Ok(Ok(proof)) => match &*proof {
            Proof::Accepted => Admitted::Yes,
            Proof::Denied(answer) => Admitted::Denied(answer.clone()),
            Proof::SessionGone => Admitted::SessionGone,
            Proof::UnderWay | Proof::Unknown => Admitted::NotYet,
        },
        Ok(Err(_)) | Err(_) => Admitted::NotYet,
    }
}

/// Asks the backend whether it accepts these fields on this session.
async fn prove<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    mut fields: HeaderMap,
    shown: Shown,
) -> Proof {
    let both = HeaderValue::from_static("application/json, text/event-stream");
    fields.insert(ACCEPT, both);
    let ping = Request::posted(fields, refusal::ping(&RequestId::own(PING)));
    let sent = session.send(relay, ping).await;
    let heard = Heard::of(&sent);
    debug!(session = %session.label(), ?heard, "a credential was put to the backend");
    note(
        &mut session.record(),
        relay,
        &session.pool,
        (shown, heard),
        relay.now(),
    );
    match (sent, heard) {
        (Ok(Sent::Answer(incoming)), Heard::Accepted) => {
            read_on::<W>(incoming);
            Proof::Accepted
        }
        (Ok(Sent::Answer(incoming)), Heard::Refused) => WholeAnswer::read::<W>(incoming)
            .await
            .map_or(Proof::Unknown, Proof::Denied),
        (Ok(Sent::Whole(answer)), Heard::Refused) => Proof::Denied(answer),
        (Ok(Sent::SessionGone), _) => Proof::SessionGone,
        (Ok(Sent::Answer(_) | Sent::Whole(_) | Sent::Refused | Sent::NotRun | Sent::Strange), _)
        | (Err(_), _) => Proof::Unknown,
    }
}

/// The head has said it; the rest is read only to give the connection back.
fn read_on<W: World>(incoming: BackendAnswer<W>) {
    tokio::spawn(async move {
        let _ = timeout(REST_MAX, passing::content::<W>(incoming)).await;
    });
}

/// Answers a GET of a session.
pub(crate) async fn get<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: Box<Call>,
) -> Answer<Passing<W>> {
    match admit(relay, session, &call.headers, GET_PATIENCE).await {
        Admitted::Yes => {
            let _held = session.held(relay);
            get::get(relay, session, &call).await
        }
        Admitted::Stranger | Admitted::SessionGone => Answer::Refused(Refused::SessionGone),
        Admitted::Denied(answer) => answer.into_answer(),
        Admitted::NotYet => {
            info!(session = %session.label(), "a client is held until its backend has judged its credential");
            Answer::Stream(Box::new(Opening {
                headers: headers::of_unproved_stream(),
                ticket: Box::new(Unproved::new(relay, session, call)),
            }))
        }
    }
}

/// Answers a DELETE of a session.
pub(crate) async fn delete<W: World>(
    relay: &Arc<Relay<W>>,
    session: &Arc<Session<W>>,
    call: Box<Call>,
) -> Answer<Passing<W>> {
    match admit(relay, session, &call.headers, PROOF_MAX).await {
        Admitted::Yes => delete::delete(relay, session, call).await,
        Admitted::Stranger | Admitted::SessionGone => Answer::Refused(Refused::SessionGone),
        Admitted::Denied(answer) => answer.into_answer(),
        Admitted::NotYet => Answer::Refused(Refused::Unproved {
            retry_after: RETRY_AFTER,
        }),
    }
}

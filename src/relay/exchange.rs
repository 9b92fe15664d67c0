//! A session's exchanges with its backend, and the words in which backends say that a session is gone.
//! Law: "gone" is a 404, two kinds of 400 and one kind of 401, on a request that carries our session, and nothing else
//! (wire contract, section 2). Whatever else a backend says is the client's to read.
//! Next: `post.rs`, `standalone.rs`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, StatusCode};
use memchr::memmem;
use tokio::time::Instant;
use tracing::{debug, info};

use crate::config::resolved::Sessions;
use crate::pure::refusal::{self, Withdrawal};
use crate::pure::rpc::RequestId;
use crate::pure::session::{Asks, Generation, LossCause, OnSessionLoss, Phase};
use crate::pure::session_token::Transport;
use crate::relay::Relay;
use crate::relay::answer::{Answer, NotExecuted};
use crate::relay::doubt;
use crate::relay::headers;
use crate::relay::home::Home;
use crate::relay::http_sse::stream::Refusal;
use crate::relay::passing::{self, Content, Passing};
use crate::relay::pool::{BackendAnswer, Request, Unanswered};
use crate::relay::recover::{self, Fit, Lost};
use crate::relay::session::Session;
use crate::relay::standing::Ready;
use crate::relay::world::World;
use crate::routing::{Duty, Wants};
use crate::upstream::{Deadline, SendError};

/// Whose address stands for a session in the choice of a replica: the session's, not its client's, so nobody's.
pub(crate) const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How long a backend may take to hear of a cancel.
pub(crate) const CANCEL_MAX: Duration = Duration::from_secs(5);

/// What came of an exchange.
pub(crate) enum Sent<W: World> {
    /// The backend's answer; its body is still to be read.
    Answer(BackendAnswer<W>),
    /// The backend's answer, which had to be read to be understood.
    Whole(WholeAnswer),
    /// The session is over.
    SessionGone,
    /// It was not sent: the model must be told first that the session was lost.
    Refused,
    /// It was not executed: the session was lost before, and goes on.
    NotRun,
    /// Another start of the backend answered it, which knows nothing of the session: what came of it means nothing.
    Strange,
}

/// An answer that was read whole. Boxed: it is rare, and would make what every call comes to large.
#[derive(Clone)]
pub(crate) struct WholeAnswer(Box<Whole>);

#[derive(Clone)]
struct Whole {
    status: StatusCode,
    fields: HeaderMap,
    body: Bytes,
}

impl WholeAnswer {
    /// Its status.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    fn new(status: StatusCode, fields: HeaderMap, body: Bytes) -> Self {
        Self(Box::new(Whole { status, fields, body }))
    }

    /// How long its body is, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.body.len()
    }

    /// Reads an answer whole.
    ///
    /// # Errors
    /// Its body broke, or is longer than any that is read whole.
    pub(crate) async fn read<W: World>(answer: BackendAnswer<W>) -> Option<Self> {
        let (status, fields) = (answer.head.status, answer.head.headers.clone());
        match passing::content::<W>(answer).await {
            Ok(Content::Whole(body)) => Some(Self::new(status, fields, body)),
            Ok(Content::More(_)) | Err(_) => None,
        }
    }

    /// Whether it says that a credential is not accepted.
    pub(crate) fn denies(&self) -> bool {
        matches!(self.0.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }

    /// As the client gets it.
    pub(crate) fn into_answer<W: World>(self) -> Answer<Passing<W>> {
        let Whole { status, fields, body } = *self.0;
        let mut fields = headers::to_client(fields);
        fields.remove(http::header::CONTENT_LENGTH);
        passing::whole(status, fields, body)
    }
}

/// What a backend's answer is, as far as the session is concerned.
pub(crate) enum Understood<W: World> {
    /// An answer; its body is still to be read.
    Answer(BackendAnswer<W>),
    /// An answer that had to be read to be understood.
    Whole(WholeAnswer),
    /// It does not know the session: it has executed nothing.
    Gone,
    /// It bears the sign of another start of the backend than the session's: it knows nothing of the session, and has
    /// executed what it was asked.
    OtherInstance,
}

impl<W: World> Session<W> {
    /// Sends a request of this session, waiting for its replica if that refuses connections, and for the session if it
    /// is being begun anew.
    ///
    /// # Errors
    /// [`Unanswered`] says whether it was sent.
    pub(crate) async fn send(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        mut request: Request,
    ) -> Result<Sent<W>, Unanswered> {
        self.call(relay, &mut request, Asks::Other).await.1
    }

    /// The same, and which life of the session it was sent in.
    pub(crate) async fn call(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        request: &mut Request,
        asks: Asks,
    ) -> (Generation, Result<Sent<W>, Unanswered>) {
        // The clock is read when something goes wrong, not for each call.
        let mut until = None;
        loop {
            let home = match self.ready(relay, asks, &request.headers).await {
                Ready::Go(home) => home,
                // Its stream has said what became of it, with the session's end.
                Ready::Gone if request.post.is_some() => {
                    return (self.home().generation, Ok(Sent::Strange));
                }
                not => return (self.home().generation, not_ready(not)),
            };
            let generation = home.generation;
            if generation > Generation::FIRST && recover::fit(self, generation, asks, request) == Fit::Nothing
            {
                return (generation, Ok(Sent::NotRun));
            }
            let own = home.known_by();
            let answered = if self.is_pinned(&home) {
                let sent = self
                    .pool
                    .send_once(&home.replica, own, request, Deadline::Never)
                    .await;
                sent.map_err(|error| self.unanswered(&home, error))
            } else {
                // Any replica takes any request: there is nothing that only one of them knows.
                let anywhere = (NOBODY, Wants::Exchange);
                let sending = self.pool.send_any(anywhere, own, request, Deadline::Never);
                Box::pin(sending).await.map(|(_, answer)| answer)
            };
            let answer = match answered {
                Ok(answer) => answer,
                // Not a byte of it was written: it waits until its replica is back and knows the session, or the session
                // stands elsewhere. A replica that comes and goes must not hold it for ever.
                Err(Unanswered::NotSent(NotExecuted::Unavailable))
                    if self.is_pinned(&home)
                        && Instant::now() < *until.get_or_insert_with(|| self.patience_of_two()) =>
                {
                    self.standing.doubt();
                    continue;
                }
                Err(why) => {
                    if let Unanswered::Lost(_) = why {
                        self.standing.doubt();
                    }
                    return (generation, Err(why));
                }
            };
            let understood = self.understand(&home, answer).await;
            if let (Understood::Gone, Some(post)) = (&understood, request.post) {
                // Before its stream hears of the loss: the answer to the POST says that it was not executed.
                match self.post_is_refused(post) {
                    Refusal::InTime => {}
                    Refusal::TooLate => return (generation, Ok(Sent::Strange)),
                }
            }
            return match self.found(relay, &home, understood) {
                Ok(Sent::NotRun) => (generation, self.not_run(relay, request, asks).await),
                judged => (generation, judged),
            };
        }
    }

    /// The backend had lost the session when this request came there: nothing was executed, and it is not sent again.
    /// What its client is told depends on what becomes of the session.
    async fn not_run(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        request: &Request,
        asks: Asks,
    ) -> Result<Sent<W>, Unanswered> {
        match self.ready(relay, Asks::Other, &request.headers).await {
            Ready::Gone => Ok(Sent::SessionGone),
            Ready::Denied(answer) => Ok(Sent::Whole(answer)),
            Ready::Go(_) | Ready::Refuse | Ready::Late(_) => match (asks, self.loss_rule()) {
                (Asks::Tool, OnSessionLoss::Announce) => Ok(Sent::Refused),
                (Asks::Tool | Asks::Other | Asks::Notices, _) => Ok(Sent::NotRun),
            },
        }
    }

    /// The same as [`Session::send`], once: nobody waits for a replica that is away.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub(crate) async fn send_once(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        mut request: Request,
        deadline: Deadline,
    ) -> Result<Sent<W>, Unanswered> {
        let home = self.home();
        let generation = home.generation;
        if generation > Generation::FIRST
            && recover::fit(self, generation, Asks::Notices, &mut request) == Fit::Nothing
        {
            return Ok(Sent::NotRun);
        }
        let own = home.known_by();
        let sent = match (home.replica.duty(), self.is_pinned(&home)) {
            // Its replica is on its way out or gone, and any other takes what is the session's.
            (Duty::Draining | Duty::Drained, false) => {
                let anywhere = (NOBODY, Wants::Exchange);
                let sending = self.pool.send_any(anywhere, own, &request, deadline);
                Box::pin(sending).await.map(|(_, answer)| answer)
            }
            (Duty::Serving, _) | (Duty::Draining | Duty::Drained, true) => {
                let sending = self.pool.send_once(&home.replica, own, &request, deadline);
                sending.await.map_err(Unanswered::from)
            }
        };
        match sent {
            Ok(answer) => {
                let understood = self.understand(&home, answer).await;
                self.found(relay, &home, understood)
            }
            Err(why) => {
                if why == Unanswered::NotSent(NotExecuted::Unavailable) && self.phase() == Phase::Live {
                    // Nobody waits for this one; but whether the session is lost is found out without being asked.
                    doubt::look_into(relay, self, &home);
                }
                Err(why)
            }
        }
    }

    /// The end of the time for which a request may wait for a replica twice: until it is given up, and for another one.
    fn patience_of_two(&self) -> Instant {
        Instant::now() + 2 * self.pool.config.exchange.replica_retry_max
    }

    fn unanswered(&self, home: &Home, error: SendError) -> Unanswered {
        debug!(session = %self.label(), upstream = %self.pool.config.name, replica = %home.replica.authority(), %error, "backend did not answer");
        error.into()
    }

    /// Whether only one replica knows it.
    pub(crate) fn is_pinned(&self, home: &Home) -> bool {
        match (self.transport, self.pool.config.sessions) {
            // Whatever the server shares, one connection to one replica carries it.
            (Transport::HttpSse, _) => true,
            (Transport::Streamable, Sessions::Replica) => home.backend_id.is_some(),
            (Transport::Streamable, Sessions::Shared | Sessions::None) => false,
        }
    }

    /// What follows from an answer.
    fn found(
        self: &Arc<Self>,
        relay: &Arc<Relay<W>>,
        home: &Home,
        understood: Understood<W>,
    ) -> Result<Sent<W>, Unanswered> {
        Ok(match understood {
            Understood::Answer(answer) => Sent::Answer(answer),
            Understood::Whole(answer) => Sent::Whole(answer),
            Understood::Gone => {
                info!(session = %self.label(), upstream = %self.pool.config.name, "backend does not know the session any more");
                match relay.lost(self, home.generation, LossCause::Gone) {
                    Lost::Over => Sent::SessionGone,
                    Lost::GoesOn => Sent::NotRun,
                }
            }
            Understood::OtherInstance => {
                let _ = relay.lost(self, home.generation, LossCause::Restarted);
                Sent::Strange
            }
        })
    }

    /// What an answer to a request of this session, sent to this home, says of the session.
    pub(crate) async fn understand(&self, home: &Home, mut answer: BackendAnswer<W>) -> Understood<W> {
        let Some(_) = &home.backend_id else {
            return Understood::Answer(answer);
        };
        let status = answer.head.status;
        let doubtful = match status {
            StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => true,
            StatusCode::UNAUTHORIZED => !answer.head.headers.contains_key(WWW_AUTHENTICATE),
            _ => false,
        };
        if !doubtful {
            let header = self.pool.config.session.instance_header.as_deref();
            if self.is_pinned(home) && home.is_contradicted_by(&answer.head.headers, header) {
                return Understood::OtherInstance;
            }
            return Understood::Answer(answer);
        }
        let fields = std::mem::take(&mut answer.head.headers);
        let body = match Box::pin(passing::content::<W>(answer)).await {
            Ok(Content::Whole(body)) => body,
            // No server says that a session is gone at such length, nor in half an answer.
            Ok(Content::More(_)) | Err(_) => Bytes::new(),
        };
        if says_gone(status, &body) {
            Understood::Gone
        } else {
            Understood::Whole(WholeAnswer::new(status, fields, body))
        }
    }
}

fn not_ready<W: World>(why: Ready) -> Result<Sent<W>, Unanswered> {
    match why {
        Ready::Go(_) | Ready::Refuse => Ok(Sent::Refused),
        Ready::Gone => Ok(Sent::SessionGone),
        Ready::Denied(answer) => Ok(Sent::Whole(answer)),
        Ready::Late(why) => Err(Unanswered::NotSent(why)),
    }
}

fn says_gone(status: StatusCode, body: &[u8]) -> bool {
    let says = |words: &str| memmem::find(body, words.as_bytes()).is_some();
    match status {
        // A server that does not know `ping` and says so in this way has answered a ping of ours, on its session.
        StatusCode::NOT_FOUND => !(says("-32601") && says(RequestId::OWN)),
        StatusCode::BAD_REQUEST => says("No valid session ID") || says("Server not initialized"),
        StatusCode::UNAUTHORIZED => says("Session not found"),
        _ => false,
    }
}

impl<W: World> Session<W> {
    /// Tells the backend that nobody waits for these requests any more.
    pub(crate) fn cancel_upstream(self: &Arc<Self>, relay: &Arc<Relay<W>>, open: &[RequestId]) {
        for id in open {
            let cancel = self.cancel_of(id);
            let (session, relay) = (Arc::clone(self), Arc::clone(relay));
            tokio::spawn(async move { session.send_cancel(&relay, cancel).await });
        }
    }

    /// The word that nobody waits for a request any more.
    pub(crate) fn cancel_of(&self, id: &RequestId) -> Request {
        let body = Bytes::from(refusal::cancelled(id, Withdrawal::ClientAway));
        self.own_post(self.outward(body))
    }

    /// Sends it once.
    pub(crate) async fn send_cancel(self: &Arc<Self>, relay: &Arc<Relay<W>>, cancel: Request) {
        let sent = self.send_once(relay, cancel, Deadline::after(CANCEL_MAX));
        if sent.await.is_err() {
            info!(session = %self.label(), "a cancel did not reach the backend");
        }
    }
}

//! A session's exchanges with its backend, and the words in which backends say that a session is gone.
//! Law: "gone" is a 404, two kinds of 400 and one kind of 401, on a request that carries our session, and nothing else
//! (wire contract, section 2). Whatever else a backend says is the client's to read.
//! Next: `post.rs`, `standalone.rs`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use memchr::memmem;
use tracing::info;

use crate::config::resolved::Sessions;
use crate::pure::refusal::{self, Withdrawal};
use crate::pure::rpc::RequestId;
use crate::pure::session::Ended;
use crate::relay::Relay;
use crate::relay::answer::Answer;
use crate::relay::headers;
use crate::relay::passing::{self, Content, Passing};
use crate::relay::pool::{BackendAnswer, Request, Unanswered};
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::upstream::Deadline;

/// Whose address stands for a session in the choice of a replica: the session's, not its client's, so nobody's.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// How long a backend may take to hear of a cancel.
const CANCEL_MAX: Duration = Duration::from_secs(5);

/// What came of an exchange.
pub(crate) enum Sent<W: World> {
    /// The backend's answer; its body is still to be read.
    Answer(BackendAnswer<W>),
    /// The backend's answer, which had to be read to be understood.
    Whole(WholeAnswer),
    /// The backend does not know the session; it has ended here too.
    SessionGone,
}

/// An answer that was read whole.
#[derive(Clone)]
pub(crate) struct WholeAnswer {
    status: StatusCode,
    fields: HeaderMap,
    body: Bytes,
}

impl WholeAnswer {
    /// Its status.
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    /// Reads an answer whole.
    ///
    /// # Errors
    /// Its body broke, or is longer than any that is read whole.
    pub(crate) async fn read<W: World>(answer: BackendAnswer<W>) -> Option<Self> {
        let (status, fields) = (answer.head.status, answer.head.headers.clone());
        match passing::content::<W>(answer).await {
            Ok(Content::Whole(body)) => Some(Self { status, fields, body }),
            Ok(Content::More(_)) | Err(_) => None,
        }
    }

    /// Whether it says that a credential is not accepted.
    pub(crate) fn denies(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }

    /// As the client gets it.
    pub(crate) fn into_answer<W: World>(self) -> Answer<Passing<W>> {
        let mut fields = headers::to_client(self.fields);
        fields.remove(http::header::CONTENT_LENGTH);
        passing::whole(self.status, fields, self.body)
    }
}

impl<W: World> Session<W> {
    /// Sends a request of this session, waiting for its replica if that refuses connections.
    ///
    /// # Errors
    /// [`Unanswered`] says whether it was sent.
    pub(crate) async fn send(&self, relay: &Arc<Relay<W>>, request: Request) -> Result<Sent<W>, Unanswered> {
        let own = self.backend_id.as_ref();
        let answer = if self.is_pinned() {
            self.pool.send_to(self.replica(), own, request).await?
        } else {
            // Any replica takes any request: there is nothing that only one of them knows.
            let sending = self.pool.send_any(NOBODY, own, request, Deadline::Never);
            Box::pin(sending).await?.1
        };
        self.judge(relay, answer).await
    }

    /// The same, once: nobody waits for a replica that is away.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub(crate) async fn send_once(
        &self,
        relay: &Arc<Relay<W>>,
        request: Request,
        deadline: Deadline,
    ) -> Result<Sent<W>, Unanswered> {
        let answer = self
            .pool
            .send_once(self.replica(), self.backend_id.as_ref(), &request, deadline)
            .await?;
        self.judge(relay, answer).await
    }

    fn is_pinned(&self) -> bool {
        match self.pool.config.sessions {
            Sessions::Replica => self.backend_id.is_some(),
            Sessions::Shared | Sessions::None => false,
        }
    }

    async fn judge(
        &self,
        relay: &Arc<Relay<W>>,
        mut answer: BackendAnswer<W>,
    ) -> Result<Sent<W>, Unanswered> {
        let status = answer.head.status;
        let doubtful = match status {
            StatusCode::NOT_FOUND if self.backend_id.is_some() => return Ok(self.gone(relay)),
            StatusCode::BAD_REQUEST => self.backend_id.is_some(),
            StatusCode::UNAUTHORIZED => {
                self.backend_id.is_some() && !answer.head.headers.contains_key(WWW_AUTHENTICATE)
            }
            _ => false,
        };
        if !doubtful {
            return Ok(Sent::Answer(answer));
        }
        let fields = std::mem::take(&mut answer.head.headers);
        let body = match Box::pin(passing::content::<W>(answer)).await {
            Ok(Content::Whole(body)) => body,
            // No server says that a session is gone at such length, nor in half an answer.
            Ok(Content::More(_)) | Err(_) => Bytes::new(),
        };
        if says_gone(status, &body) {
            Ok(self.gone(relay))
        } else {
            Ok(Sent::Whole(WholeAnswer { status, fields, body }))
        }
    }

    fn gone(&self, relay: &Arc<Relay<W>>) -> Sent<W> {
        info!(session = %self.label(), upstream = %self.pool.config.name, "backend does not know the session any more");
        relay.end_session(self, Ended::BackendLost);
        Sent::SessionGone
    }
}

fn says_gone(status: StatusCode, body: &[u8]) -> bool {
    let says = |words: &str| memmem::find(body, words.as_bytes()).is_some();
    match status {
        StatusCode::BAD_REQUEST => says("No valid session ID") || says("Server not initialized"),
        StatusCode::UNAUTHORIZED => says("Session not found"),
        _ => false,
    }
}

impl<W: World> Session<W> {
    /// Tells the backend that nobody waits for these requests any more.
    pub(crate) fn cancel_upstream(self: &Arc<Self>, relay: &Arc<Relay<W>>, open: &[RequestId]) {
        for id in open {
            let body = Bytes::from(refusal::cancelled(id, Withdrawal::ClientAway));
            let mut fields = self.own_fields();
            fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let (session, relay) = (Arc::clone(self), Arc::clone(relay));
            tokio::spawn(async move {
                let request = Request::own(Method::POST, fields, body);
                if session
                    .send_once(&relay, request, Deadline::after(CANCEL_MAX))
                    .await
                    .is_err()
                {
                    info!(session = %session.label(), "a cancel did not reach the backend");
                }
            });
        }
    }
}

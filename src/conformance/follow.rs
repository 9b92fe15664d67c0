//! What a good client does after a cut: it comes back with its cursor, reads on, and comes back again when it is polled.
//! Law: it never gives up before the time is over that the sequence takes without a cut, so "nothing came" is no haste;
//! and it never asks for more than the protocol lets it ask for.
//! Next: `bench.rs`.

use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep_until};

use crate::conformance::account::{Account, Came, Ended, Of, Said, Told};
use crate::conformance::outcome::Tried;
use crate::conformance::session::Session;
use crate::conformance::stream::{Event, Next, Over, Stream};
use crate::conformance::target::Content;
use crate::pure::guard::Verdict;

/// Behind the last message: what comes twice comes within this time.
const LINGER: Duration = Duration::from_millis(250);

/// A server that still holds the old connection refuses for a moment (409); a client tries so often.
const CONFLICTS_MAX: u32 = 3;

/// Empty streams in a row, with the cursor that did not move, until it is a loop.
const EMPTIES_MAX: u32 = 3;

/// How long a client waits before it comes back where the server says nothing.
const RETRY: Duration = Duration::from_millis(300);

/// Longest `retry` that is obeyed.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// A client that comes back to a sequence.
pub(super) struct Follower<'a> {
    pub(super) session: &'a Session,
    pub(super) account: &'a Account,
    /// The label that ends the sequence; none where nothing is expected.
    pub(super) last: Option<&'a str>,
    /// The newest id.
    pub(super) cursor: Option<String>,
    /// The id that was presented on this connection.
    pub(super) presented: Option<String>,
    /// Until when the sequence must be over.
    pub(super) until: Instant,
}

/// What one connection came to.
enum Connection {
    Complete,
    Late,
    Over(Over),
}

impl Follower<'_> {
    /// Comes back until the sequence is over, the client is told, or the time is.
    pub(super) async fn follow(mut self) -> Tried<Came> {
        let mut came = Came::default();
        let (mut conflicts, mut empties) = (0, 0);
        loop {
            self.presented = self.cursor.clone();
            let answer = self.session.listen(self.cursor.as_deref()).await?;
            let mut stream = match answer.content {
                Content::Events(stream) => stream,
                Content::Text(_) if answer.status == StatusCode::CONFLICT && conflicts < CONFLICTS_MAX => {
                    conflicts += 1;
                    sleep_until((Instant::now() + RETRY).min(self.until)).await;
                    continue;
                }
                Content::Text(text) => {
                    came.end = Ended::NoStream(answer.status);
                    if !answer.status.is_success() {
                        came.told = came.told.or(Some(Told::Refused(answer.status)));
                    } else if let Said::Error(error) = self.account.read(&text) {
                        came.told = came.told.or(Some(Told::Error(error)));
                    }
                    return Ok(came);
                }
            };
            if let Some(Ok(Verdict::Reset { reason, .. })) = answer.verdict.as_deref().map(Verdict::parse) {
                self.tell(&mut came, Told::Reset(reason.as_str().to_owned()));
            }
            let before = self.cursor.clone();
            let mut retry = RETRY;
            match self.read(&mut stream, &mut came, &mut retry).await {
                Connection::Complete => {
                    came.end = Ended::Complete;
                    return Ok(came);
                }
                Connection::Late => {
                    came.end = Ended::Open;
                    return Ok(came);
                }
                Connection::Over(over) => {
                    empties = if self.cursor == before { empties + 1 } else { 0 };
                    if empties == EMPTIES_MAX || Instant::now() >= self.until || came.told.is_some() {
                        came.end = match over {
                            Over::Ended => Ended::Empty,
                            Over::Broke(error) => Ended::Broke(error),
                        };
                        return Ok(came);
                    }
                    sleep_until((Instant::now() + retry).min(self.until)).await;
                }
            }
        }
    }

    /// Reads a stream that is open already.
    pub(super) async fn read_open(mut self, stream: &mut Stream) -> Came {
        let mut came = Came::default();
        let mut retry = RETRY;
        came.end = match self.read(stream, &mut came, &mut retry).await {
            Connection::Complete => Ended::Complete,
            Connection::Late => Ended::Open,
            Connection::Over(Over::Ended) => Ended::Empty,
            Connection::Over(Over::Broke(error)) => Ended::Broke(error),
        };
        came
    }

    async fn read(&mut self, stream: &mut Stream, came: &mut Came, retry: &mut Duration) -> Connection {
        let mut complete = false;
        loop {
            match stream.next(self.until).await {
                Next::Event(event) => {
                    if let Some(ms) = event.retry {
                        *retry = Duration::from_millis(ms).min(RETRY_MAX);
                    }
                    if self.take(&event, came) {
                        complete = true;
                        self.until = self.until.min(Instant::now() + LINGER);
                    }
                }
                Next::Over(_) | Next::Late if complete => return Connection::Complete,
                Next::Over(over) => return Connection::Over(over),
                Next::Late => return Connection::Late,
            }
        }
    }

    /// Takes an event; whether the sequence is complete with it.
    fn take(&mut self, event: &Event, came: &mut Came) -> bool {
        if let Some(id) = &event.id {
            self.cursor = Some(id.clone());
        }
        if event.kind == "reset" {
            self.tell(came, Told::Reset(event.data.clone()));
            return false;
        }
        match self.account.read(&event.data) {
            Said::Own(label) => {
                if event.id.is_some() && event.id == self.presented {
                    came.again = Some(label);
                    return false;
                }
                let complete = self.last == Some(label.as_str());
                came.labels.push(label);
                came.times.push(Instant::now());
                complete
            }
            Said::Error(error) => {
                came.told = came.told.take().or(Some(Told::Error(error)));
                true
            }
            Said::Notice(notice) => {
                match self.account.of {
                    Of::Emission => self.tell(came, Told::Notice(notice)),
                    Of::Call { .. } => {}
                }
                false
            }
            Said::Foreign(what) => {
                came.foreign.push(what);
                false
            }
            Said::Aside => false,
        }
    }

    /// Once told, a client knows: what else comes is waited for a moment only.
    fn tell(&mut self, came: &mut Came, told: Told) {
        if came.told.is_none() {
            came.told = Some(told);
            self.until = self.until.min(Instant::now() + 2 * LINGER);
        }
    }
}

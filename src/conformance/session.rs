//! A client's session at the server under trial: initialize, calls, listening.
//! Law: it does what an official SDK does, in the same order, and counts its request ids from 0 in every session, as
//! they do: what mixes sessions up by those ids is seen only so.
//! Absent on purpose: coming back after a cut (`follow.rs`).
//! Next: `follow.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::conformance::account::{Account, Of, RESULT, Said, Token, error_of};
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::stream::{Event, Next, Over, Stream};
use crate::conformance::target::{About, Answer, Content, Question, Target};
use crate::conformance::tool::Tool;
use crate::conformance::trace::Trace;
use crate::pure::revision::Revision;
use crate::pure::rpc::{self, quoted};

/// Longest that a server is waited for that is asked what it has, perhaps for the first time in its life: nothing is
/// judged yet.
const FIRST_WORDS_MAX: Duration = Duration::from_secs(60);

/// What a session shares with every other one of the run.
pub(super) struct Run {
    pub(super) target: Target,
    /// Longest wait for what must come, beside the time that a call takes.
    pub(super) timeout: Duration,
    /// The revision that sessions ask for.
    pub(super) revision: Revision,
    /// The run's own name, in every token of it.
    pub(super) name: String,
    pub(super) tokens: AtomicU64,
}

/// One session.
pub(super) struct Session {
    pub(super) run: Arc<Run>,
    pub(super) trace: Trace,
    /// What the server named it, if it has sessions.
    pub(super) id: Option<String>,
    pub(super) revision: Revision,
    /// The server's answer to `initialize`.
    pub(super) greeting: String,
    next: AtomicU64,
}

/// A call under way.
pub(super) struct Running {
    pub(super) account: Account,
    pub(super) stream: Stream,
    /// Its own messages as far as they were read.
    pub(super) had: Vec<String>,
    /// The message with its result, once that was had.
    pub(super) result: Option<String>,
    /// Ids that came, with the number of its own messages at or before each.
    pub(super) cursors: Vec<Cursor>,
}

/// An id that came, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    pub(super) id: String,
    /// So many of the sequence's own messages stand at or before it.
    pub(super) had: usize,
}

impl Session {
    /// Opens a session.
    pub(super) async fn open(run: &Arc<Run>, trace: &Trace) -> Tried<Self> {
        let mut session = Self {
            run: Arc::clone(run),
            trace: trace.clone(),
            id: None,
            revision: run.revision,
            greeting: String::new(),
            next: AtomicU64::new(0),
        };
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{{}},"clientInfo":{{"name":"throughline-conformance","version":"{}"}}}}}}"#,
            session.next_id(),
            run.revision,
            env!("CARGO_PKG_VERSION"),
        );
        let until = session.soon();
        let ask = Question {
            method: Method::POST,
            session: None,
            revision: None,
            cursor: None,
            about: About::Nothing,
            body,
        };
        let answer = run.target.ask(trace, ask, until).await?;
        session.id = answer.session.clone();
        session.greeting = response_of(answer, "initialize", until).await?;
        let spoken =
            rpc::lookup(session.greeting.as_bytes(), &["result", "protocolVersion"]).and_then(rpc::text);
        session.revision = spoken
            .and_then(|text| Revision::parse(text.as_bytes()))
            .ok_or_else(|| Finding::fail("initialize was answered with no known protocolVersion"))?;
        session
            .tell(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .await?;
        Ok(session)
    }

    /// Until when something that takes no time of its own must have come.
    pub(super) fn soon(&self) -> Instant {
        Instant::now() + self.run.timeout
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn token(&self) -> Token {
        Token::new(&self.run.name, self.run.tokens.fetch_add(1, Ordering::Relaxed))
    }

    /// POSTs a message.
    pub(super) async fn post(&self, body: String) -> Tried<Answer> {
        self.send(Method::POST, None, body).await
    }

    /// POSTs a notification.
    pub(super) async fn tell(&self, body: &str) -> Tried<Answer> {
        self.post(body.to_owned()).await
    }

    /// Asks for the standalone stream, or for what follows a cursor.
    pub(super) async fn listen(&self, cursor: Option<&str>) -> Tried<Answer> {
        self.send(Method::GET, cursor, String::new()).await
    }

    /// Ends the session.
    pub(super) async fn delete(&self) -> Tried<Answer> {
        self.send(Method::DELETE, None, String::new()).await
    }

    async fn send(&self, method: Method, cursor: Option<&str>, body: String) -> Tried<Answer> {
        let ask = Question {
            method,
            session: self.id.as_deref(),
            revision: Some(self.revision),
            cursor,
            about: About::Nothing,
            body,
        };
        self.run.target.ask(&self.trace, ask, self.soon()).await
    }

    /// Asks and reads the whole response.
    pub(super) async fn request(&self, method: &str, params: &str) -> Tried<String> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{method}","params":{params}}}"#,
            self.next_id()
        );
        let until = Instant::now() + FIRST_WORDS_MAX.max(self.run.timeout);
        response_of(self.post(body).await?, method, until).await
    }

    /// The standalone stream, or a skip if there is none.
    pub(super) async fn standing(&self) -> Tried<Stream> {
        let answer = self.listen(None).await?;
        match answer.content {
            Content::Events(stream) => Ok(stream),
            Content::Text(_) => Err(Finding::skipped(format!(
                "there is no standalone stream (GET is answered with {})",
                answer.status.as_u16()
            ))),
        }
    }

    /// The body of a call of this tool, under this token, and the account of it.
    pub(super) fn call_body(&self, tool: &Tool) -> (String, Account) {
        let (id, token) = (self.next_id(), self.token());
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{},"arguments":{},"_meta":{{"progressToken":{}}}}}}}"#,
            quoted(&tool.name),
            tool.arguments(&token),
            quoted(token.as_str()),
        );
        let of = Of::Call {
            id,
            tagged: tool.tagged,
        };
        (body, Account { of, token })
    }

    /// Calls a tool whose answer is to be a stream.
    pub(super) async fn call(&self, tool: &Tool) -> Tried<Running> {
        let (body, account) = self.call_body(tool);
        Running::of(self.post(body).await?, account)
    }

    /// Has a tool say its messages on the standalone stream.
    pub(super) async fn emit(&self, tool: &Tool) -> Tried<Account> {
        let (body, account) = self.call_body(tool);
        let until = self.soon();
        let response = response_of(self.post(body).await?, &tool.name, until).await?;
        if rpc::lookup(response.as_bytes(), &["error"]).is_some() {
            return Err(Finding::fail(format!("the tool failed: {}", error_of(&response))));
        }
        if is_refusal(&response) {
            return Err(Finding::fail("the tool answered that it failed"));
        }
        Ok(Account {
            of: Of::Emission,
            token: account.token,
        })
    }
}

impl Running {
    /// A call of which the head of the answer has come.
    pub(super) fn of(answer: Answer, account: Account) -> Tried<Self> {
        match answer.content {
            Content::Events(stream) => Ok(Self::reading(stream, account)),
            Content::Text(text) if answer.status.is_success() && text.contains("\"error\"") => {
                Err(Finding::fail(format!("the call failed: {}", error_of(&text))))
            }
            Content::Text(_) if answer.status.is_success() => Err(Finding::skipped(
                "calls are answered whole, as JSON: there is no stream to cut",
            )),
            Content::Text(_) => Err(Finding::fail(format!(
                "the call was refused with {}",
                answer.status.as_u16()
            ))),
        }
    }

    /// A sequence that is about to come on this stream.
    pub(super) const fn reading(stream: Stream, account: Account) -> Self {
        Self {
            account,
            stream,
            had: Vec::new(),
            result: None,
            cursors: Vec::new(),
        }
    }

    /// Reads until so many of its own messages were had.
    ///
    /// # Errors
    /// They did not come: without any cut something is wrong already.
    pub(super) async fn read(&mut self, count: usize, until: Instant) -> Tried<()> {
        while self.had.len() < count {
            match self.stream.next(until).await {
                Next::Event(event) => self.take(&event)?,
                Next::Over(Over::Ended) => return Err(Finding::fail("the stream ended before any cut")),
                Next::Over(Over::Broke(error)) => {
                    return Err(Finding::fail(format!("the stream broke before any cut: {error}")));
                }
                Next::Late => {
                    return Err(Finding::fail(
                        "what should come before the cut did not come in time",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Reads until its result was had.
    ///
    /// # Errors
    /// It did not come.
    pub(super) async fn read_to_result(&mut self, until: Instant) -> Tried<()> {
        while self.had.last().is_none_or(|label| label != RESULT) {
            let next = self.had.len() + 1;
            self.read(next, until).await?;
        }
        Ok(())
    }

    /// Takes one event.
    pub(super) fn take(&mut self, event: &Event) -> Tried<()> {
        match self.account.read(&event.data) {
            Said::Own(label) => {
                if label == RESULT {
                    self.result = Some(event.data.clone());
                }
                self.had.push(label);
            }
            Said::Error(error) => return Err(Finding::fail(format!("it failed before any cut: {error}"))),
            Said::Foreign(what) => return Err(Finding::silent(format!("mixed up: {what} came here"))),
            Said::Notice(_) | Said::Aside => {}
        }
        if let Some(id) = &event.id {
            self.cursors.push(Cursor {
                id: id.clone(),
                had: self.had.len(),
            });
        }
        Ok(())
    }

    /// The newest id.
    pub(super) fn cursor(&self) -> Option<&Cursor> {
        self.cursors.last()
    }

    /// The same, where a case can't do without one.
    pub(super) fn needs_cursor(&self) -> Tried<Cursor> {
        let newest = self.cursor().cloned();
        newest.ok_or_else(|| Finding::skipped("events carry no ids here"))
    }
}

/// Whether a response is a tool's own word that it failed.
pub(super) fn is_refusal(response: &str) -> bool {
    rpc::lookup(response.as_bytes(), &["result", "isError"]) == Some(b"true")
}

/// The response that an answer carries, whichever way.
pub(super) async fn response_of(answer: Answer, what: &str, until: Instant) -> Tried<String> {
    let status = answer.status;
    match answer.content {
        Content::Text(text) if status.is_success() => Ok(text),
        Content::Text(text) => {
            let text: String = text.chars().take(200).collect();
            Err(Finding::fail(format!(
                "{what} was answered with {}: {text}",
                status.as_u16()
            )))
        }
        Content::Events(mut stream) => loop {
            match stream.next(until).await {
                Next::Event(event) => {
                    let read = rpc::read(event.data.as_bytes());
                    if let Ok(rpc::Body::One(rpc::Message::Response { .. })) = read {
                        return Ok(event.data);
                    }
                }
                Next::Over(_) => {
                    return Err(Finding::fail(format!(
                        "{what} was never answered: the stream ended"
                    )));
                }
                Next::Late => return Err(Finding::fail(format!("{what} was not answered in time"))),
            }
        },
    }
}

//! What is found out before the first case: what the server speaks, what it offers, and what a call and an emission
//! are when nothing is cut.
//! Law: what a case expects is what this very server said uncut, twice the same, or it is not expected at all.
//! Next: `cases/mod.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::conformance::account::{RESULT, Tagged};
use crate::conformance::judge::Expected;
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::session::{Run, Running, Session};
use crate::conformance::stream::Next;
use crate::conformance::target::{About, Content, Question};
use crate::conformance::tool::{Tool, Tools};
use crate::conformance::trace::Trace;
use crate::pure::revision::{Era, Revision};
use crate::pure::rpc;

/// Pages of tools that are read.
const PAGES_MAX: usize = 16;

/// Longest that a tool may take without a cut. Cases wait that long for what does not come.
pub(super) const CALL_MAX: Duration = Duration::from_secs(60);

/// Fewest own messages of a sequence that can be cut in its middle.
const MESSAGES_MIN: usize = 4;

/// What a sequence is when nothing is cut.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) tool: Tool,
    /// The labels of its own messages, in their order.
    pub(super) labels: Vec<String>,
    /// From the request to the last message.
    pub(super) took: Duration,
}

impl Reference {
    /// What has to come behind so many of them.
    pub(super) fn behind(&self, had: usize) -> Expected {
        let (had, rest) = self.labels.split_at(had.min(self.labels.len()));
        Expected {
            had: had.to_vec(),
            rest: rest.to_vec(),
        }
    }

    /// The label that ends it.
    pub(super) fn last(&self) -> &str {
        self.labels.last().map_or(RESULT, String::as_str)
    }
}

/// What the cases work with.
pub(super) struct Bench {
    pub(super) run: Arc<Run>,
    /// The server's name and version, as it says.
    pub(super) server: String,
    pub(super) revision: Revision,
    pub(super) has_sessions: Sessions,
    pub(super) call: Tried<Reference>,
    pub(super) flood: Tried<Tool>,
    pub(super) emission: Tried<Reference>,
    /// The newest revision of the era without sessions, if the server speaks it.
    pub(super) stateless: Option<Revision>,
}

/// Whether the server names its sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sessions {
    Named,
    Nameless,
}

impl Bench {
    /// Finds out what there is. The trace is what was said on the way.
    ///
    /// # Errors
    /// The server could not be tried at all.
    pub(super) async fn prepare(run: Arc<Run>, tools: Tools, trace: &Trace) -> Tried<Self> {
        let session = Session::open(&run, trace).await?;
        let tools = tools.or_known(&tools_of(&session).await?);
        let none = |what: &str, flag: &str| {
            Finding::skipped(format!("no tool is known here that {what}; name one with {flag}"))
        };
        let call = match tools.progress {
            Some(tool) => reference_call(&run, trace, tool).await,
            None => Err(none("says progress", "--tool")),
        };
        let emission = match tools.notify {
            Some(tool) => reference_emission(&session, tool).await,
            None => Err(none("speaks on the standalone stream", "--notify-tool")),
        };
        let info = |name: &str| {
            let raw = rpc::lookup(session.greeting.as_bytes(), &["result", "serverInfo", name]);
            raw.and_then(rpc::text)
                .map(|text| text.into_owned())
                .unwrap_or_default()
        };
        Ok(Self {
            server: format!("{} {}", info("name"), info("version")).trim().to_owned(),
            revision: session.revision,
            has_sessions: match session.id {
                Some(_) => Sessions::Named,
                None => Sessions::Nameless,
            },
            flood: tools
                .flood
                .ok_or_else(|| none("says more than a server keeps", "--flood")),
            stateless: stateless(&session).await,
            call,
            emission,
            run,
        })
    }
}

async fn tools_of(session: &Session) -> Tried<Vec<String>> {
    let mut names = Vec::new();
    let mut params = "{}".to_owned();
    for _ in 0..PAGES_MAX {
        let page = session.request("tools/list", &params).await?;
        let list = rpc::lookup(page.as_bytes(), &["result", "tools"]).and_then(rpc::elements);
        for tool in list.unwrap_or_default() {
            names.extend(
                rpc::lookup(tool, &["name"])
                    .and_then(rpc::text)
                    .map(|name| name.into_owned()),
            );
        }
        match rpc::lookup(page.as_bytes(), &["result", "nextCursor"]) {
            Some(next) if next != b"null" => {
                params = format!(r#"{{"cursor":{}}}"#, String::from_utf8_lossy(next))
            }
            Some(_) | None => break,
        }
    }
    Ok(names)
}

/// Calls twice, in two sessions at once, and takes what both say.
async fn reference_call(run: &Arc<Run>, trace: &Trace, tool: Tool) -> Tried<Reference> {
    let (one, another) = (Session::open(run, trace).await?, Session::open(run, trace).await?);
    let (one, another) = tokio::join!(uncut(&one, &tool), uncut(&another, &tool));
    let (one, another) = (one?, another?);
    let tagged = match (one.tagged, another.tagged) {
        (Tagged::Yes, Tagged::Yes) => Tagged::Yes,
        (Tagged::Yes | Tagged::No, Tagged::Yes | Tagged::No) => Tagged::No,
    };
    if one.labels != another.labels {
        return Err(Finding::skipped(
            "the tool says other progress each time, so nothing can be told from what is missing; name one with --tool",
        ));
    }
    if one.labels.len() < MESSAGES_MIN {
        return Err(Finding::skipped(format!(
            "`{}` says too little to be cut in its middle: {} messages, and at least {MESSAGES_MIN} are needed; \
             name another one with --tool",
            tool.name,
            one.labels.len()
        )));
    }
    Ok(Reference {
        tool: Tool { tagged, ..tool },
        labels: one.labels,
        took: one.took.max(another.took),
    })
}

/// One call to its end.
struct Uncut {
    labels: Vec<String>,
    took: Duration,
    tagged: Tagged,
}

async fn uncut(session: &Session, tool: &Tool) -> Tried<Uncut> {
    let began = Instant::now();
    let until = began + CALL_MAX;
    let mut running = session.call(tool).await?;
    let tagged_result = loop {
        let event = match running.stream.next(until).await {
            Next::Event(event) => event,
            Next::Over(_) | Next::Late => {
                return Err(Finding::fail("uncut, the call was not answered"));
            }
        };
        let count = running.had.len();
        running.take(&event)?;
        if running.had.len() > count && running.had.last().is_some_and(|label| label == RESULT) {
            break event.data.contains(running.account.token.as_str());
        }
    };
    Ok(Uncut {
        labels: running.had,
        took: began.elapsed(),
        tagged: if tagged_result { Tagged::Yes } else { Tagged::No },
    })
}

/// Has the server speak on the standalone stream, until it has been silent for a while.
async fn reference_emission(session: &Session, tool: Tool) -> Tried<Reference> {
    let stream = session.standing().await?;
    let began = Instant::now();
    let account = session.emit(&tool).await?;
    let mut running = Running::reading(stream, account);
    let mut took = Duration::ZERO;
    loop {
        match running.stream.next(Instant::now() + session.run.timeout).await {
            Next::Event(event) => {
                let count = running.had.len();
                running.take(&event)?;
                if running.had.len() > count {
                    took = began.elapsed();
                }
                if took > CALL_MAX {
                    return Err(Finding::skipped(
                        "the tool speaks without end; name another one with --notify-tool",
                    ));
                }
            }
            Next::Over(_) => return Err(Finding::fail("uncut, the standalone stream ended")),
            Next::Late => break,
        }
    }
    if running.had.len() < MESSAGES_MIN {
        return Err(Finding::skipped(format!(
            "`{}` says too little on the standalone stream: {} messages, and at least {MESSAGES_MIN} are needed; \
             name another one with --notify-tool",
            tool.name,
            running.had.len()
        )));
    }
    Ok(Reference {
        tool,
        labels: running.had,
        took,
    })
}

/// The newest revision without sessions, if the server answers it.
async fn stateless(session: &Session) -> Option<Revision> {
    let revision = Revision::ALL
        .into_iter()
        .rev()
        .find(|revision| revision.era() == Era::Stateless)?;
    let ask = Question {
        method: Method::POST,
        session: None,
        revision: Some(revision),
        cursor: None,
        about: About::Method("server/discover"),
        body: stateless_body(revision, 0, "server/discover", ["", ""]),
    };
    let until = session.soon();
    let answer = session.run.target.ask(&session.trace, ask, until).await.ok()?;
    match answer.content {
        Content::Text(text) if answer.status.is_success() => {
            rpc::lookup(text.as_bytes(), &["result", "supportedVersions"]).map(|_| revision)
        }
        Content::Text(_) | Content::Events(_) => None,
    }
}

/// A request that stands for itself. The parts are members of `params` and of its `_meta`, each with a comma behind it.
pub(super) fn stateless_body(revision: Revision, id: u64, method: &str, [params, meta]: [&str; 2]) -> String {
    let own = format!(
        r#""io.modelcontextprotocol/protocolVersion":"{revision}","io.modelcontextprotocol/clientInfo":{{"name":"throughline-conformance","version":"{}"}},"io.modelcontextprotocol/clientCapabilities":{{}}"#,
        env!("CARGO_PKG_VERSION"),
    );
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{{meta}{own}}}}}}}"#
    )
}

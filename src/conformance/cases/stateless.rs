//! The era without sessions: no ids, no GET stream, no resumption, and a disconnect is a cancel.
//! Law: who can't resume must not look as though it could.
//! Next: `../report.rs`.

use http::Method;

use crate::conformance::account::Of;
use crate::conformance::bench::stateless_body;
use crate::conformance::cases::{BEFORE_CUT, Trial};
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::session::{Running, Session};
use crate::conformance::target::{About, Answer, Content, Question};
use crate::pure::revision::Revision;
use crate::pure::rpc::quoted;

fn revision(trial: &Trial) -> Tried<Revision> {
    let none = || Finding::skipped("the server does not speak the era without sessions");
    trial.bench.stateless.ok_or_else(none)
}

async fn ask(trial: &Trial, session: &Session, question: Question<'_>) -> Tried<Answer> {
    session
        .run
        .target
        .ask(&trial.trace, question, session.soon())
        .await
}

/// A call of this era, read up to the point where it is to be cut.
async fn half_a_call(trial: &Trial, session: &Session) -> Tried<Running> {
    let (call, revision) = (trial.call()?, revision(trial)?);
    let (_, account) = session.call_body(&call.tool);
    let Of::Call { id, .. } = account.of else {
        return Err(Finding::skipped("there is no call"));
    };
    let params = format!(
        r#""name":{},"arguments":{},"#,
        quoted(&call.tool.name),
        call.tool.arguments(&account.token)
    );
    let token = format!(r#""progressToken":{},"#, quoted(account.token.as_str()));
    let question = Question {
        method: Method::POST,
        session: None,
        revision: Some(revision),
        cursor: None,
        about: About::Tool(&call.tool.name),
        body: stateless_body(revision, id, "tools/call", [&params, &token]),
    };
    let mut running = Running::of(ask(trial, session, question).await?, account)?;
    running.read(BEFORE_CUT, trial.over(call)).await?;
    Ok(running)
}

pub(super) async fn no_ids(trial: Trial) -> Tried {
    revision(&trial)?;
    let session = trial.session().await?;
    let running = half_a_call(&trial, &session).await?;
    Ok(match running.cursor() {
        Some(cursor) => Finding::fail(format!("an event of this era has the id `{}`", cursor.id)),
        None => Finding::whole("events have no ids, so no client will think that it can resume"),
    })
}

pub(super) async fn no_resumption(trial: Trial) -> Tried {
    revision(&trial)?;
    let session = trial.session().await?;
    let running = half_a_call(&trial, &session).await?;
    running.stream.cut();
    let question = Question {
        method: Method::GET,
        session: None,
        revision: Some(revision(&trial)?),
        cursor: Some("1"),
        about: About::Nothing,
        body: String::new(),
    };
    let answer = ask(&trial, &session, question).await?;
    Ok(match answer.content {
        Content::Events(_) => {
            Finding::silent("a cursor is answered with 200 and a stream, in an era that has no cursors")
        }
        Content::Text(_) if answer.status.is_client_error() => {
            Finding::told(format!("refused with {}", answer.status.as_u16()))
        }
        Content::Text(_) => Finding::fail(format!("answered with {}", answer.status.as_u16())),
    })
}

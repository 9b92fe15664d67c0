//! Sessions that are not there: never given, or ended.
//! Law: 404 is the one answer that makes a client begin anew; success is the one that deceives it.
//! Next: `cancel.rs`.

use http::Method;

use crate::conformance::bench::Sessions;
use crate::conformance::cases::Trial;
use crate::conformance::judge;
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::target::{About, Content, Question};

fn needs_sessions(trial: &Trial) -> Tried<()> {
    match trial.bench.has_sessions {
        Sessions::Named => Ok(()),
        Sessions::Nameless => Err(Finding::skipped("the server names no sessions")),
    }
}

pub(super) async fn unknown(trial: Trial) -> Tried {
    needs_sessions(&trial)?;
    let session = trial.session().await?;
    let never_given = format!("{}0123456789abcdef", session.token().as_str());
    let ask = Question {
        method: Method::POST,
        session: Some(&never_given),
        revision: Some(session.revision),
        cursor: None,
        about: About::Nothing,
        body: r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_owned(),
    };
    let answer = session.run.target.ask(&trial.trace, ask, session.soon()).await?;
    Ok(judge::session_gone(answer.status))
}

pub(super) async fn deleted(trial: Trial) -> Tried {
    needs_sessions(&trial)?;
    let session = trial.session().await?;
    let answer = session.delete().await?;
    if !answer.status.is_success() {
        return Err(Finding::skipped(format!(
            "the server lets no client end its session (DELETE is answered with {})",
            answer.status.as_u16()
        )));
    }
    let called = session
        .post(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_owned())
        .await?;
    Ok(judge::session_gone(called.status))
}

pub(super) async fn deleted_listening(trial: Trial) -> Tried {
    needs_sessions(&trial)?;
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.needs_cursor()?;
    running.stream.cut();
    let answer = session.delete().await?;
    if !answer.status.is_success() {
        return Err(Finding::skipped(format!(
            "the server lets no client end its session (DELETE is answered with {})",
            answer.status.as_u16()
        )));
    }
    let answer = session.listen(Some(&cursor.id)).await?;
    match answer.content {
        Content::Events(_) => {
            let came = trial.present(&session, &running.account, &cursor.id).await?;
            Ok(judge::unmet_or_made_good(&came))
        }
        Content::Text(_) if answer.status.is_client_error() => {
            Ok(Finding::told(format!("refused with {}", answer.status.as_u16())))
        }
        Content::Text(_) => Ok(judge::session_gone(answer.status)),
    }
}

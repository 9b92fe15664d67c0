//! A restart of the server, by the user's own command, under a session that a client still holds.
//! Law: a restart may lose anything; what a client is never left with is a session that looks as though it went on.
//! Next: `stateless.rs`.

use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::conformance::account::error_of;
use crate::conformance::bench::{Reference, Sessions};
use crate::conformance::cases::Trial;
use crate::conformance::judge;
use crate::conformance::outcome::{Finding, How, Outcome, Tried};
use crate::conformance::session::{Running, Session, is_refusal};
use crate::conformance::target::Content;
use crate::pure::rpc;

/// Longest wait for the server to be back.
pub(super) const BACK_MAX: Duration = Duration::from_secs(30);

/// Time between two looks whether it is back.
const LOOK: Duration = Duration::from_millis(200);

/// Restarts the server and waits until it takes new sessions.
async fn restart(trial: &Trial) -> Tried<()> {
    let Some(command) = trial.restart.clone() else {
        return Err(Finding::skipped("needs --restart COMMAND"));
    };
    trial.trace.note(&format!("| {command}"));
    let status = tokio::task::spawn_blocking(move || shell(&command)).await;
    match status {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => return Err(Finding::skipped(format!("the restart command failed: {status}"))),
        Ok(Err(error)) => {
            return Err(Finding::skipped(format!(
                "the restart command did not run: {error}"
            )));
        }
        Err(error) => {
            return Err(Finding::skipped(format!(
                "the restart command did not run: {error}"
            )));
        }
    }
    let until = Instant::now() + BACK_MAX;
    loop {
        match trial.session().await {
            Ok(_) => return Ok(()),
            Err(found) if Instant::now() >= until => {
                return Err(Finding::fail(format!("it did not come back: {}", found.why)));
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

fn shell(command: &Arc<str>) -> std::io::Result<ExitStatus> {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(&**command)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    shell.status()
}

fn needs_restart(trial: &Trial) -> Tried<()> {
    match (&trial.restart, trial.bench.has_sessions) {
        (None, _) => Err(Finding::skipped("needs --restart COMMAND")),
        (Some(_), Sessions::Nameless) => Err(Finding::skipped("the server names no sessions")),
        (Some(_), Sessions::Named) => Ok(()),
    }
}

pub(super) async fn running_call(trial: Trial) -> Tried {
    needs_restart(&trial)?;
    let call = trial.call()?;
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    outlived(&trial, &session, running, call).await
}

/// Restarts the server under what is being read, cuts that, and comes back for the rest of it.
async fn outlived(trial: &Trial, session: &Session, running: Running, whole: &Reference) -> Tried {
    let cursor = running.cursor().cloned();
    let Running {
        account, stream, had, ..
    } = running;
    restart(trial).await?;
    stream.cut();
    let came = trial
        .come_back_late(session, &account, whole, cursor.as_ref())
        .await?;
    let at = cursor.map_or(had.len(), |cursor| cursor.had);
    Ok(judge::sequence(&whole.behind(at), &came))
}

pub(super) async fn next_call(trial: Trial) -> Tried {
    needs_restart(&trial)?;
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut before = session.call(&call.tool).await?;
    before.read(call.labels.len(), trial.over(call)).await?;
    let early = before.cursors.iter().find(|cursor| cursor.had == 1).cloned();
    let Running { account, stream, .. } = before;
    stream.cut();
    restart(&trial).await?;
    match (called(&trial, &session).await?, early) {
        (After::Told(found), _) => Ok(found),
        (After::Ran, None) => Ok(Finding::silent(RAN)),
        (After::Ran, Some(early)) => {
            // A server may well keep its sessions over a restart. Then it has kept this stream too.
            let came = trial.come_back(&session, &account, call, Some(&early)).await?;
            let found = judge::sequence(&call.behind(1), &came);
            Ok(match found.outcome {
                Outcome::Pass(How::Whole) => found,
                Outcome::Pass(How::Told) | Outcome::Fail | Outcome::Silent | Outcome::Skipped => {
                    Finding::silent(RAN)
                }
            })
        }
    }
}

const RAN: &str =
    "the call ran in the old session, and nothing shows that what the session held is still there";

/// What a call in a session from before the restart comes to.
enum After {
    /// The client knows.
    Told(Finding),
    /// It ran as though nothing had been.
    Ran,
}

async fn called(trial: &Trial, session: &Session) -> Tried<After> {
    let call = trial.call()?;
    let (body, account) = session.call_body(&call.tool);
    let answer = session.post(body).await?;
    let status = answer.status;
    let told = |why: &str| After::Told(Finding::told(why));
    let response = match answer.content {
        Content::Text(_) if !status.is_success() => return Ok(After::Told(judge::session_gone(status))),
        Content::Text(text) => text,
        Content::Events(stream) => {
            let mut running = Running::reading(stream, account);
            match running.read_to_result(trial.over(call)).await {
                Ok(()) => running.result.unwrap_or_default(),
                Err(found) => return Ok(told(&found.why)),
            }
        }
    };
    Ok(if is_refusal(&response) {
        told("told by the tool's own result: the call was not run")
    } else if rpc::lookup(response.as_bytes(), &["error"]).is_some() {
        told(&format!("told by an error: {}", error_of(&response)))
    } else {
        After::Ran
    })
}

pub(super) async fn listening(trial: Trial) -> Tried {
    needs_restart(&trial)?;
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let running = trial.half_an_emission(&session).await?;
    outlived(&trial, &session, running, emission).await
}

/// The silent re-origination: the new life has counted past the old cursor, so its numbers look right.
pub(super) async fn counted_past(trial: Trial) -> Tried {
    needs_restart(&trial)?;
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let running = trial.half_an_emission(&session).await?;
    let cursor = running.needs_cursor()?;
    restart(&trial).await?;
    running.stream.cut();
    let again = session.listen(None).await?;
    let Content::Events(stream) = again.content else {
        return Ok(judge::session_gone(again.status));
    };
    let Ok(account) = session.emit(&emission.tool).await else {
        return Ok(Finding::told("the old session takes no calls any more"));
    };
    let mut anew = Running::reading(stream, account);
    let _told_or_short = anew.read(emission.labels.len(), trial.over(emission)).await;
    let Running { account, stream, .. } = anew;
    stream.cut();
    let came = trial
        .come_back_late(&session, &account, emission, Some(&cursor))
        .await?;
    Ok(judge::sequence(&emission.behind(0), &came))
}

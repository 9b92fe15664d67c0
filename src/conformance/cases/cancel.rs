//! Cancelling against disconnecting: with sessions a lost connection is no cancel, and a cancel is one.
//! Law: what a client cancelled it does not wait for, so nothing of it can be lost; but it must not be kept coming back.
//! Next: `restart.rs`.

use tokio::time::Instant;

use crate::conformance::account::{Came, Ended, Of};
use crate::conformance::cases::Trial;
use crate::conformance::follow::Follower;
use crate::conformance::judge;
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::session::{Running, Session};

async fn cancel(session: &Session, running: &Running) -> Tried<()> {
    let Of::Call { id, .. } = running.account.of else {
        return Ok(());
    };
    let body = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"conformance"}}}}"#
    );
    let answer = session.tell(&body).await?;
    if !answer.status.is_success() {
        return Err(Finding::fail(format!(
            "a cancel was refused with {}",
            answer.status.as_u16()
        )));
    }
    Ok(())
}

pub(super) async fn explicit(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut running = trial.half_a_call(&session).await?;
    cancel(&session, &running).await?;
    let follower = Follower {
        session: &session,
        account: &running.account,
        last: Some(call.last()),
        cursor: None,
        presented: None,
        until: trial
            .over(call)
            .min(Instant::now() + call.took + session.run.timeout / 2),
    };
    let came = follower.read_open(&mut running.stream).await;
    Ok(cancelled(&came))
}

fn cancelled(came: &Came) -> Finding {
    if let Some(stranger) = came.foreign.first() {
        return Finding::silent(format!("mixed up: {stranger} came here"));
    }
    match (&came.told, &came.end) {
        (Some(told), _) => Finding::told(told.to_string()),
        (None, Ended::Complete) => Finding::whole("the tool had its way: its answer came all the same"),
        (None, Ended::Empty | Ended::Broke(_) | Ended::NoStream(_)) => Finding::whole("the stream ended"),
        (None, Ended::Open) => Finding::whole("nothing more comes; the stream is held open"),
    }
}

pub(super) async fn then_resume(trial: Trial) -> Tried {
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.needs_cursor()?;
    cancel(&session, &running).await?;
    let Running { account, stream, .. } = running;
    stream.cut();
    let came = trial.present(&session, &account, &cursor.id).await?;
    if came.foreign.is_empty() && came.end == Ended::Empty && came.told.is_none() {
        return Ok(judge::at_the_end(&came));
    }
    Ok(cancelled(&came))
}

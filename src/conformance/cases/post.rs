//! The answer to a call: cut in every way, and come back to.
//! Law: the call is made once; whatever comes of it comes once.
//! Next: `cursor.rs`.

use http::StatusCode;
use tokio::time::Instant;

use crate::conformance::account::{Account, Came, Ended, Of, RESULT, Told};
use crate::conformance::bench::Reference;
use crate::conformance::cases::{BEFORE_CUT, Trial, surely_over};
use crate::conformance::follow::Follower;
use crate::conformance::judge::{self, Expected};
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::session::{Cursor, Running, Session};
use crate::conformance::stream::{Next, Stream};
use crate::conformance::target::Content;

/// A repeated call whose answer comes in this part of the time that a call takes, in percent, did not run again: it is
/// repeated when a third is over.
const REPEAT_PERCENT_MAX: u32 = 90;

/// How a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    Close,
    Reset,
}

fn follower<'a>(
    session: &'a Session,
    account: &'a Account,
    call: &'a Reference,
    until: Instant,
) -> Follower<'a> {
    Follower {
        session,
        account,
        last: Some(call.last()),
        cursor: None,
        presented: None,
        until,
    }
}

pub(super) async fn uncut(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut running = session.call(&call.tool).await?;
    let follower = follower(&session, &running.account, call, trial.over(call));
    let came = follower.read_open(&mut running.stream).await;
    Ok(judge::sequence(&call.behind(0), &came))
}

pub(super) async fn two_at_once(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let (mut one, mut another) = (session.call(&call.tool).await?, session.call(&call.tool).await?);
    let first = follower(&session, &one.account, call, trial.over(call));
    let second = follower(&session, &another.account, call, trial.over(call));
    let (one, another) = tokio::join!(
        first.read_open(&mut one.stream),
        second.read_open(&mut another.stream)
    );
    let found = judge::sequence(&call.behind(0), &one);
    Ok(found.or_graver(judge::sequence(&call.behind(0), &another)))
}

pub(super) async fn cut_resume(trial: Trial, cut: Cut) -> Tried {
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    resume(&trial, &session, running, cut).await
}

/// Cuts a call and comes back to it.
async fn resume(trial: &Trial, session: &Session, running: Running, cut: Cut) -> Tried {
    let call = trial.call()?;
    let cursor = running.cursor().cloned();
    let Running {
        account, stream, had, ..
    } = running;
    match cut {
        Cut::Close => stream.cut(),
        Cut::Reset => stream.reset(),
    }
    let came = trial.come_back(session, &account, call, cursor.as_ref()).await?;
    let at = cursor.map_or(had.len(), |cursor| cursor.had);
    Ok(judge::sequence(&call.behind(at), &came))
}

pub(super) async fn cut_resume_with_get(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut standing = session.standing().await?;
    let running = trial.half_a_call(&session).await?;
    let Some(cursor) = running.cursor().cloned() else {
        // A client without a cursor has its standing stream, and nothing to ask for.
        let had = running.had.len();
        let Running { account, stream, .. } = running;
        stream.cut();
        let follower = follower(&session, &account, call, trial.over(call));
        let came = follower.read_open(&mut standing).await;
        return Ok(judge::sequence(&call.behind(had), &came));
    };
    let Running { account, stream, .. } = running;
    stream.cut();
    let came = trial.come_back(&session, &account, call, Some(&cursor)).await?;
    let found = judge::sequence(&call.behind(cursor.had), &came);
    Ok(found.or_graver(beside(&session, &mut standing).await))
}

/// Nothing of a call belongs on the standalone stream.
async fn beside(session: &Session, standing: &mut Stream) -> Finding {
    let account = Account {
        of: Of::Emission,
        token: session.token(),
    };
    let follower = Follower {
        session,
        account: &account,
        last: None,
        cursor: None,
        presented: None,
        until: Instant::now() + session.run.timeout / 10,
    };
    let came = follower.read_open(standing).await;
    match came.foreign.first() {
        Some(stranger) => Finding::silent(format!("mixed up: {stranger} came on the standalone stream")),
        None => Finding::whole("nothing of it came on the standalone stream"),
    }
}

pub(super) async fn cut_before_message(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut running = session.call(&call.tool).await?;
    let first = match running.stream.next(trial.over(call)).await {
        Next::Event(event) => event,
        Next::Over(_) | Next::Late => return Err(Finding::fail("nothing came on the answer's stream")),
    };
    // What is a message already is lost with the cut; only an id without one is had.
    let cursor = first
        .id
        .filter(|_| first.data.is_empty())
        .map(|id| Cursor { id, had: 0 });
    let Running { account, stream, .. } = running;
    stream.cut();
    let came = trial.come_back(&session, &account, call, cursor.as_ref()).await?;
    Ok(judge::sequence(&call.behind(0), &came))
}

pub(super) async fn cut_twice(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.needs_cursor()?;
    let Running { account, stream, .. } = running;
    stream.cut();
    let (came, stream) = open(&session, &cursor.id).await?;
    let Some(stream) = stream else {
        return Ok(judge::sequence(&call.behind(cursor.had), &came));
    };
    let mut again = Running::reading(stream, account);
    if again.read(1, trial.over(call)).await.is_err() {
        // It is judged by what comes on the connections that follow.
        again.had.clear();
    }
    let newest = again.cursor().map_or(cursor.clone(), |newest| Cursor {
        id: newest.id.clone(),
        had: cursor.had + newest.had,
    });
    let repeats = again
        .cursors
        .first()
        .is_some_and(|first| first.id == cursor.id && first.had == 1);
    if let (true, Some(first)) = (repeats, again.had.first()) {
        return Ok(judge::off_by_one(first));
    }
    if let Some(first) = again.had.first()
        && call.labels.get(cursor.had) != Some(first)
    {
        return Ok(Finding::silent(format!(
            "`{first}` came first behind the cursor, which is not what follows"
        )));
    }
    let Running { account, stream, .. } = again;
    stream.cut();
    let came = trial.come_back(&session, &account, call, Some(&newest)).await?;
    Ok(judge::sequence(&call.behind(newest.had), &came))
}

/// A resumed connection; without a stream, what it came to.
async fn open(session: &Session, cursor: &str) -> Tried<(Came, Option<Stream>)> {
    let answer = session.listen(Some(cursor)).await?;
    let mut came = Came::default();
    match answer.content {
        Content::Events(stream) => Ok((came, Some(stream))),
        Content::Text(_) => {
            came.end = Ended::NoStream(answer.status);
            if !answer.status.is_success() {
                came.told = Some(Told::Refused(answer.status));
            }
            Ok((came, None))
        }
    }
}

pub(super) async fn same_cursor_again(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.needs_cursor()?;
    let Running { account, stream, .. } = running;
    stream.cut();
    let (came, stream) = open(&session, &cursor.id).await?;
    let Some(stream) = stream else {
        return Ok(judge::sequence(&call.behind(cursor.had), &came));
    };
    // It dies before the client has read its first id, so the client has none but the old one.
    stream.reset();
    let came = trial.come_back(&session, &account, call, Some(&cursor)).await?;
    Ok(judge::sequence(&call.behind(cursor.had), &came))
}

pub(super) async fn earlier_cursor(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut running = session.call(&call.tool).await?;
    running.read(BEFORE_CUT + 1, trial.over(call)).await?;
    let earlier = running.cursors.iter().find(|cursor| cursor.had == 1).cloned();
    let Some(cursor) = earlier else {
        return Err(Finding::skipped("events carry no ids here"));
    };
    let Running { account, stream, .. } = running;
    stream.cut();
    let came = trial.come_back(&session, &account, call, Some(&cursor)).await?;
    Ok(judge::sequence(&call.behind(1), &came))
}

pub(super) async fn result_after_end(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.cursor().cloned();
    let Running {
        account, stream, had, ..
    } = running;
    stream.cut();
    surely_over(call).await;
    let came = trial.come_back(&session, &account, call, cursor.as_ref()).await?;
    let at = cursor.map_or(had.len(), |cursor| cursor.had);
    Ok(judge::sequence(&call.behind(at), &came))
}

pub(super) async fn end_mark(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let mut running = session.call(&call.tool).await?;
    running.read(call.labels.len(), trial.over(call)).await?;
    let cursor = running.needs_cursor()?;
    if cursor.had < call.labels.len() {
        return Err(Finding::skipped("the result carries no id"));
    }
    let Running { account, stream, .. } = running;
    stream.cut();
    let came = trial.present(&session, &account, &cursor.id).await?;
    Ok(judge::at_the_end(&came))
}

pub(super) async fn newest_reader(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.needs_cursor()?;
    let Running { account, stream, .. } = running;
    // The first connection is half open: the client has lost it, and the server does not know.
    let mut half_open = stream;
    let came = trial.come_back(&session, &account, call, Some(&cursor)).await?;
    let found = judge::sequence(&call.behind(cursor.had), &came);
    let old = follower(
        &session,
        &account,
        call,
        Instant::now() + session.run.timeout / 10,
    );
    let on_the_old = old.read_open(&mut half_open).await;
    let newest_has_it = came.labels.iter().any(|label| label == RESULT);
    let both = newest_has_it && on_the_old.labels.iter().any(|label| label == RESULT);
    Ok(if both {
        found.or_graver(Finding::fail(
            "the result was sent on both connections of one stream",
        ))
    } else {
        found
    })
}

pub(super) async fn repeated(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let (body, account) = session.call_body(&call.tool);
    let began = Instant::now();
    let mut running = Running::of(session.post(body.clone()).await?, account.clone())?;
    running.read(BEFORE_CUT, trial.over(call)).await?;
    let two_took = began.elapsed();
    running.stream.cut();
    let began = Instant::now();
    let answer = session.post(body).await?;
    let status = answer.status;
    let mut stream = match answer.content {
        Content::Events(stream) => stream,
        Content::Text(_) if status.is_client_error() => {
            return Ok(Finding::told(format!("refused with {}", status.as_u16())));
        }
        Content::Text(text) => return Ok(whole_answer(status, &text)),
    };
    let follower = follower(&session, &account, call, trial.over(call));
    let came = follower.read_open(&mut stream).await;
    let anew = call.labels.get(BEFORE_CUT - 1);
    let two = came.labels.iter().position(|label| Some(label) == anew);
    let two_again = two
        .and_then(|at| came.times.get(at))
        .map(|at| at.duration_since(began));
    let whole_again = came.times.last().map(|at| at.duration_since(began));
    // What ran before is there at once, or does not come again; a tool that runs again needs its time again.
    let slow = whole_again.is_some_and(|took| took >= call.took * REPEAT_PERCENT_MAX / 100);
    if slow && came.told.is_none() && two_again.is_some_and(|took| took >= two_took / 2) {
        return Ok(Finding::silent(format!(
            "repeated: the tool ran again without a word: the answer took {} ms, a whole call takes {} ms",
            whole_again.unwrap_or_default().as_millis(),
            call.took.as_millis()
        )));
    }
    let expected = Expected {
        had: Vec::new(),
        rest: vec![RESULT.to_owned()],
    };
    Ok(judge::sequence(&expected, &came))
}

fn whole_answer(status: StatusCode, text: &str) -> Finding {
    match (status.is_success(), text.contains("\"error\"")) {
        (true, true) => Finding::told(format!(
            "told by an error: {}",
            crate::conformance::account::error_of(text)
        )),
        (true, false) => Finding::whole("the call's own answer came"),
        (false, _) => Finding::fail(format!("answered with {}", status.as_u16())),
    }
}

pub(super) async fn same_request_id(trial: Trial) -> Tried {
    let (one, another) = (trial.session().await?, trial.session().await?);
    let (first, second) = tokio::join!(trial.half_a_call(&one), trial.half_a_call(&another));
    let (first, second) = (first?, second?);
    first.needs_cursor()?;
    let (first, second) = tokio::join!(
        resume(&trial, &one, first, Cut::Close),
        resume(&trial, &another, second, Cut::Close)
    );
    Ok(first?.or_graver(second?))
}

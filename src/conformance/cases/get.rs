//! The standalone stream: what is said while its listener is away, or has two connections, or one that is half open.
//! Law: what was said to a listener comes once, or the listener is told that it reads again.
//! Next: `session.rs`.

use tokio::time::Instant;

use crate::conformance::account::Came;
use crate::conformance::cases::{Trial, surely_over};
use crate::conformance::follow::Follower;
use crate::conformance::judge;
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::session::{Cursor, Running};
use crate::conformance::target::Content;

pub(super) async fn uncut(trial: Trial) -> Tried {
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let mut stream = session.standing().await?;
    let account = session.emit(&emission.tool).await?;
    let follower = Follower {
        session: &session,
        account: &account,
        last: Some(emission.last()),
        cursor: None,
        presented: None,
        until: trial.over(emission),
    };
    let came = follower.read_open(&mut stream).await;
    Ok(judge::sequence(&emission.behind(0), &came))
}

/// When the listener is back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Back {
    AtOnce,
    WhenAllIsSaid,
}

pub(super) async fn cut_resume(trial: Trial, back: Back) -> Tried {
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let running = trial.half_an_emission(&session).await?;
    let cursor = running.cursor().cloned();
    let Running {
        account, stream, had, ..
    } = running;
    stream.cut();
    match back {
        Back::AtOnce => {}
        Back::WhenAllIsSaid => surely_over(emission).await,
    }
    let came = trial
        .come_back(&session, &account, emission, cursor.as_ref())
        .await?;
    let at = cursor.map_or(had.len(), |cursor| cursor.had);
    Ok(judge::sequence(&emission.behind(at), &came))
}

pub(super) async fn same_cursor_again(trial: Trial) -> Tried {
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let running = trial.half_an_emission(&session).await?;
    let cursor = running.needs_cursor()?;
    let Running { account, stream, .. } = running;
    stream.cut();
    // The next connection dies before the client has read its first id.
    if let Content::Events(stream) = session.listen(Some(&cursor.id)).await?.content {
        stream.reset();
    }
    let came = trial
        .come_back(&session, &account, emission, Some(&cursor))
        .await?;
    Ok(judge::sequence(&emission.behind(cursor.had), &came))
}

pub(super) async fn half_open(trial: Trial) -> Tried {
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let running = trial.half_an_emission(&session).await?;
    let cursor: Option<Cursor> = running.cursor().cloned();
    let Running {
        account,
        stream: half_open,
        had,
        ..
    } = running;
    let came = trial
        .come_back(&session, &account, emission, cursor.as_ref())
        .await?;
    drop(half_open);
    let at = cursor.map_or(had.len(), |cursor| cursor.had);
    Ok(judge::sequence(&emission.behind(at), &came))
}

pub(super) async fn second(trial: Trial) -> Tried {
    let emission = trial.emission()?;
    let session = trial.session().await?;
    let mut first = session.standing().await?;
    let answer = session.listen(None).await?;
    let account = session.emit(&emission.tool).await?;
    let reader = |until: Instant| Follower {
        session: &session,
        account: &account,
        last: Some(emission.last()),
        cursor: None,
        presented: None,
        until,
    };
    let until = trial.over(emission);
    let mut second = match answer.content {
        Content::Events(stream) => stream,
        Content::Text(_) => {
            let came = reader(until).read_open(&mut first).await;
            let found = judge::sequence(&emission.behind(0), &came);
            let refused = Finding::told(format!("the second was refused with {}", answer.status.as_u16()));
            return Ok(refused.or_graver(found));
        }
    };
    let (one, another) = tokio::join!(
        reader(until).read_open(&mut first),
        reader(until).read_open(&mut second)
    );
    if let Some(twice) = one.labels.iter().find(|label| another.labels.contains(label)) {
        return Ok(Finding::fail(format!("`{twice}` was sent on both streams")));
    }
    // Which of the two a message comes on is the server's choice.
    let mut labels = [one.labels, another.labels].concat();
    labels.sort_by_key(|label| emission.labels.iter().position(|known| known == label));
    let both = Came {
        labels,
        foreign: [one.foreign, another.foreign].concat(),
        told: one.told.or(another.told),
        end: another.end,
        ..Came::default()
    };
    Ok(judge::sequence(&emission.behind(0), &both))
}

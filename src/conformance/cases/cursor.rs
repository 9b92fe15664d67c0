//! Cursors that this server can't meet or must not: each is to be told, none to be taken as though it were known.
//! Law: what belongs to another stream or another session never comes.
//! Next: `get.rs`.

use http::HeaderValue;
use tokio::time::Instant;

use crate::conformance::account::{Account, Of};
use crate::conformance::bench::CALL_MAX;
use crate::conformance::cases::{Trial, surely_over};
use crate::conformance::follow::Follower;
use crate::conformance::judge;
use crate::conformance::outcome::{Finding, Tried};
use crate::conformance::session::{Running, Session};

/// How far past the end a cursor of the future is.
const AHEAD: u64 = 1_000_000;

/// How long the oversized cursor is, in bytes: servers take fields of 8 KiB and more.
const OVERSIZED_BYTES: usize = 4_096;

pub(super) async fn other_stream(trial: Trial) -> Tried {
    let call = trial.call()?;
    let session = trial.session().await?;
    let (one, another) = tokio::join!(trial.half_a_call(&session), trial.half_a_call(&session));
    let (one, another) = (one?, another?);
    let (first, second) = (one.needs_cursor()?, another.needs_cursor()?);
    let (of_one, of_another) = (one.account.clone(), another.account.clone());
    one.stream.cut();
    another.stream.cut();
    let (one, another) = tokio::join!(
        trial.come_back(&session, &of_one, call, Some(&first)),
        trial.come_back(&session, &of_another, call, Some(&second)),
    );
    let found = judge::sequence(&call.behind(first.had), &one?);
    Ok(found.or_graver(judge::sequence(&call.behind(second.had), &another?)))
}

pub(super) async fn other_session_post(trial: Trial) -> Tried {
    let (owner, other) = (trial.session().await?, trial.session().await?);
    let running = trial.half_a_call(&owner).await?;
    let cursor = running.needs_cursor()?;
    let Running { account, stream, .. } = running;
    stream.cut();
    surely_over(trial.call()?).await;
    Ok(judge::unmet(&trial.present(&other, &account, &cursor.id).await?))
}

pub(super) async fn other_session_get(trial: Trial) -> Tried {
    let (owner, other) = (trial.session().await?, trial.session().await?);
    let running = trial.half_an_emission(&owner).await?;
    let cursor = running.needs_cursor()?;
    let Running { account, stream, .. } = running;
    stream.cut();
    surely_over(trial.emission()?).await;
    Ok(judge::unmet(&trial.present(&other, &account, &cursor.id).await?))
}

/// Presents a cursor that was never given, in a session that lives.
async fn never_given(trial: &Trial, session: &Session, cursor: &str) -> Tried {
    if HeaderValue::from_str(cursor).is_err() {
        return Err(Finding::skipped("no field can carry this cursor"));
    }
    let account = Account {
        of: Of::Emission,
        token: session.token(),
    };
    Ok(judge::unmet(&trial.present(session, &account, cursor).await?))
}

pub(super) async fn unknown(trial: Trial) -> Tried {
    let session = trial.session().await?;
    let cursor = format!("{}0123456789abcdef", session.token().as_str());
    never_given(&trial, &session, &cursor).await
}

pub(super) async fn malformed(trial: Trial) -> Tried {
    let session = trial.session().await?;
    never_given(&trial, &session, r#"%00/../{"id": [-1], "\"}~"#).await
}

pub(super) async fn oversized(trial: Trial) -> Tried {
    let session = trial.session().await?;
    never_given(&trial, &session, &"9".repeat(OVERSIZED_BYTES)).await
}

pub(super) async fn future(trial: Trial) -> Tried {
    let session = trial.session().await?;
    let running = trial.half_a_call(&session).await?;
    let cursor = running.needs_cursor()?;
    let Some(ahead) = ahead_of(&cursor.id) else {
        return Err(Finding::skipped("ids do not end in a number here"));
    };
    let Running { account, stream, .. } = running;
    stream.cut();
    surely_over(trial.call()?).await;
    Ok(judge::unmet_or_made_good(
        &trial.present(&session, &account, &ahead).await?,
    ))
}

/// The id that stands so far behind this one, where ids end in a number.
fn ahead_of(id: &str) -> Option<String> {
    let head = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let number: u64 = id[head.len()..].parse().ok()?;
    Some(format!("{head}{}", number.checked_add(AHEAD)?))
}

pub(super) async fn evicted(trial: Trial) -> Tried {
    let tool = trial.bench.flood.as_ref().map_err(Clone::clone)?;
    let session = trial.session().await?;
    let mut running = session.call(tool).await?;
    running.read_to_result(Instant::now() + CALL_MAX).await?;
    let first = running.cursors.iter().find(|cursor| cursor.had > 0).cloned();
    let Some(first) = first else {
        return Err(Finding::skipped("events carry no ids here"));
    };
    let Running {
        account, stream, had, ..
    } = running;
    stream.cut();
    let expected = judge::Expected {
        had: had[..first.had].to_vec(),
        rest: had[first.had..].to_vec(),
    };
    let follower = Follower {
        session: &session,
        account: &account,
        last: expected.rest.last().map(String::as_str),
        cursor: Some(first.id),
        presented: None,
        until: Instant::now() + CALL_MAX,
    };
    let came = follower.follow().await?;
    Ok(judge::sequence(&expected, &came))
}

pub(super) async fn unique_ids(trial: Trial) -> Tried {
    let session = trial.session().await?;
    let (one, another) = tokio::join!(trial.half_a_call(&session), trial.half_a_call(&session));
    let (one, another) = (one?, another?);
    one.needs_cursor()?;
    let seen = |running: &Running| -> Vec<String> {
        running.cursors.iter().map(|cursor| cursor.id.clone()).collect()
    };
    let (one, another) = (seen(&one), seen(&another));
    Ok(match one.iter().find(|id| another.contains(id)) {
        Some(id) => Finding::fail(format!("two streams of one session both gave the id `{id}`")),
        None => Finding::whole("no id of one stream was given on another"),
    })
}

#[cfg(test)]
mod tests {
    use super::ahead_of;

    #[test]
    fn a_number_at_the_end_can_be_raised() {
        for (id, ahead) in [
            ("7", Some("1000007")),
            ("a/0009", Some("a/1000009")),
            ("x.42", Some("x.1000042")),
            ("x.42-k", None),
            ("18446744073709551615", None),
            ("", None),
        ] {
            assert_eq!(ahead_of(id).as_deref(), ahead, "{id}");
        }
    }
}

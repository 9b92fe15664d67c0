//! A real SDK client among the raw ones: it calls, one call after the other, and is started anew when it can't go on.
//! Law: what its process says is all that is known of it; what an SDK loses by its own limits is given up, not judged.
//! It comes by a way that is never hurt, so that what it loses is lost behind the proxy, with it, or by its own end.
//! Next: `fault.rs`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::lab::{self, Process, Sdk};
use crate::oracle::Outcome;
use crate::pace::pass;
use crate::relay::TurnedAway;
use crate::signal::{self, Signal};
use crate::street::{Street, THE_PROXY};

/// What a client may take to start, or to end a call: the longest that an SDK waits by itself, and a margin.
const BOUND: Duration = Duration::from_secs(100);
/// How often an SDK comes back for a stream at least before it gives up: both official ones twice, by their defaults.
const COMES_BACK: u64 = 2;
/// Pause before another one is started.
const AGAIN: Duration = Duration::from_millis(300);
/// How long one that is paused stands still.
const PAUSE: Duration = Duration::from_secs(2);

/// What becomes of its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Nothing.
    Lives,
    /// It is killed in the middle of a call, again and again.
    IsKilled,
    /// It is stopped in the middle of a call, and goes on.
    IsPaused,
}

/// One that runs.
struct Client {
    process: Process,
    name: String,
    fate: Fate,
    street: Street,
    turned_away: TurnedAway,
}

/// What ended a call.
enum End {
    Told(Outcome),
    /// The process can't go on.
    Lost(String),
}

/// The whole of a client: one process after another, until the round ends.
pub(crate) async fn run(name: String, sdk: Sdk, fate: Fate, (street, turned_away): (Street, TurnedAway)) {
    for life in 0.. {
        if !street.goes_on() {
            return;
        }
        let oracle = street.oracle.clone();
        match timeout(BOUND, lab::connect(sdk, street.at)).await {
            Ok(Ok(process)) => {
                oracle.counted("SDK sessions");
                let client = Client {
                    process,
                    name: format!("{name}.{life}"),
                    fate,
                    street: street.clone(),
                    turned_away: turned_away.clone(),
                };
                client.live().await;
            }
            Ok(Err(_)) => oracle.counted("SDK could not connect"),
            Err(_) => oracle.violated(format!("{name}.{life}: {} does not get connected", sdk.name())),
        }
        pass(AGAIN).await;
    }
}

impl Client {
    /// Calls until the process or the round ends.
    async fn live(mut self) {
        let oracle = self.street.oracle.clone();
        for nth in 0.. {
            if !self.street.goes_on() {
                return;
            }
            let token = format!("{}:{nth}", self.name);
            let steps = 2 + self.street.chance.below(self.street.load.steps_max);
            oracle.called(&token);
            oracle.sent(&token, Some(THE_PROXY));
            let turned_away = self.turned_away.count();
            match timeout(BOUND, self.call(&token, steps)).await {
                Ok(Ok(End::Told(outcome))) => {
                    let is_result = outcome == Outcome::Result;
                    oracle.told(&token, outcome);
                    if !is_result {
                        pass(AGAIN).await;
                    }
                }
                Ok(Ok(End::Lost(why)) | Err(why)) => {
                    oracle.counted("SDK lost");
                    return oracle.gave_up(&token, &why);
                }
                // It does not come back any more, and waits for ever all the same: a proxy can do nothing about that.
                Err(_) if self.turned_away.count() >= turned_away + COMES_BACK => {
                    oracle.counted("SDK hung");
                    return oracle.gave_up(&token, "its SDK found no proxy, and waits without coming back");
                }
                Err(_) => {
                    oracle.violated(format!("{token}: has no outcome after {BOUND:?}"));
                    return oracle.gave_up(&token, "it hangs");
                }
            }
        }
    }

    async fn call(&mut self, token: &str, steps: u64) -> Result<End, String> {
        let oracle = self.street.oracle.clone();
        let interval = self.street.load.steps_interval_ms;
        let arguments = json!({"tag": token, "steps": steps, "interval_ms": interval});
        self.process.call(token, "slow", arguments).await?;
        let (mut last, mut is_told) = (0, false);
        while let Some(said) = self.process.next().await {
            match said["ev"].as_str() {
                Some("progress") if said["tag"] == token => {
                    self.street.event();
                    let step = said["p"].as_f64().unwrap_or_default() as u64;
                    if step <= last {
                        oracle.violated(format!("{token}: step {step} again, after {last}"));
                    } else if step > last + 1 && !is_told {
                        oracle.violated(format!("{token}: step {step} after {last}, and nothing was said"));
                    }
                    (last, is_told) = (step.max(last), false);
                    if let Some(end) = self.suffer(token, step).await? {
                        return Ok(end);
                    }
                }
                Some("progress") => oracle.violated(format!("{token}: progress of another call: {said}")),
                Some("log") if said["logger"] == "throughline" => is_told = true,
                Some("answer") if said["tag"] == token => {
                    self.street.event();
                    let Some(outcome) = outcome_of(&said, token) else {
                        return Err(said["text"].as_str().unwrap_or_default().to_owned());
                    };
                    if outcome == Outcome::Result && last != steps && !is_told {
                        oracle.violated(format!("{token}: its result came after step {last} of {steps}"));
                    }
                    return Ok(End::Told(outcome));
                }
                Some("answer") => oracle.violated(format!("{token}: an answer of another call: {said}")),
                Some(_) | None => {}
            }
        }
        Ok(End::Lost("its process ended".to_owned()))
    }

    /// What this step has in store for the process.
    async fn suffer(&mut self, token: &str, step: u64) -> Result<Option<End>, String> {
        let is_time = step == 2 && self.street.chance.percent(60);
        let pid = self.process.child().id();
        match self.fate {
            Fate::IsKilled if is_time => {
                self.hurt(token, "is killed");
                signal::tell(pid, Signal::Kill).await?;
                Ok(Some(End::Lost("it was killed".to_owned())))
            }
            Fate::IsPaused if is_time => {
                self.hurt(token, "is stopped");
                signal::tell(pid, Signal::Stop).await?;
                pass(PAUSE).await;
                signal::tell(pid, Signal::Cont).await?;
                Ok(None)
            }
            Fate::Lives | Fate::IsKilled | Fate::IsPaused => Ok(None),
        }
    }

    fn hurt(&self, token: &str, what: &str) {
        self.street.oracle.saw(format!("{token} {what}"));
        self.street.oracle.counted("hurts");
    }
}

/// What an answer says; `None` where the SDK speaks of its own connection, or of a session that is gone. An error never
/// says that the call was not run, whatever it says: the Python SDK asks for the list of tools behind a call, and gives the
/// error of that as the call's.
fn outcome_of(said: &Value, token: &str) -> Option<Outcome> {
    let text = said["text"].as_str().unwrap_or_default();
    let has = |words: &str| text.contains(words);
    Some(match said["outcome"].as_str() {
        Some("result") if text.strip_prefix(token) == Some(":done") => Outcome::Result,
        Some("tool_error") if has("session was restarted") => Outcome::NotExecuted("refused".to_owned()),
        Some("error") if has("\"reason\"") => Outcome::Unknown(text.to_owned()),
        Some("error") => return None,
        Some(_) | None => Outcome::Unknown(format!("a wrong answer: {said}")),
    })
}

//! A real SDK client among the others: it calls, one call after the other, and connects anew when its session is gone.
//! Law: what its process says is all that is known of it; a call of which it says nothing within `BOUND` is a fault.
//! Absent on purpose: a judgement of its notifications. Some SDKs give their stream up by themselves (`../interop`).
//! Next: `scenario.rs`.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;

use crate::call::{Outcome, Slow, order};
use crate::client::{BOUND, Setting, pace};
use crate::judge::{Ear, Fault, Heard};
use crate::lab::{self, Process, Sdk};

/// Pause before it connects again.
const AGAIN: Duration = Duration::from_millis(500);

/// Steps of its calls.
const STEPS: [u64; 4] = [2, 12, 5, 1];

/// The whole of a client: one process after another, until the run ends.
pub(crate) async fn run(sdk: Sdk, setting: Setting) {
    for life in 0.. {
        if !*setting.going.borrow() {
            return;
        }
        let name = format!("{}.{life}", sdk.name().replace(['.', ' '], ""));
        match timeout(BOUND, lab::connect(sdk, setting.at)).await {
            Ok(Ok(mut process)) => {
                setting.account.count("SDK sessions");
                calls(&mut process, &name, &setting).await;
            }
            Ok(Err(_)) => setting.account.count("SDK could not connect"),
            Err(_) => setting
                .account
                .found((Fault::NoOutcome, format!("{name}: connect"))),
        }
        pace(AGAIN).await;
    }
}

/// Calls until the session or the run ends.
async fn calls(process: &mut Process, name: &str, setting: &Setting) {
    let account = &setting.account;
    for nth in 0.. {
        if !*setting.going.borrow() {
            return;
        }
        let tag = format!("{name}.{nth}");
        let steps = STEPS[nth % STEPS.len()];
        let mut ear = Ear::default();
        ear.expect(&tag, steps);
        let outcome = match timeout(BOUND, call(process, &tag, steps, &mut ear, setting)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Never,
        };
        account.count(&format!("SDK {}", outcome.words()));
        account.ended(&tag, outcome.ran());
        if let Some(fault) = outcome.fault() {
            account.found((fault, format!("{tag}: {}", outcome.evidence())));
        }
        match (&outcome, ear.stands(&tag)) {
            (Outcome::Result, Heard::Waiting) => account.found((Fault::Silent, ear.evidence(&tag))),
            (Outcome::Result, Heard::Whole | Heard::Broken) => {}
            (Outcome::Gone | Outcome::GoneLater | Outcome::Lost(_) | Outcome::Never, _) => return,
            (Outcome::Wrong(_) | Outcome::Refused | Outcome::Failed { .. } | Outcome::Status(_), _) => {
                pace(AGAIN).await;
            }
        }
    }
}

async fn call(process: &mut Process, tag: &str, steps: u64, ear: &mut Ear, setting: &Setting) -> Outcome {
    let (tool, arguments) = order(Slow::of(setting.offers), tag, steps);
    if let Err(error) = process.call(tag, tool, arguments).await {
        return Outcome::Lost(error);
    }
    while let Some(said) = process.next().await {
        match said["ev"].as_str() {
            Some("progress") => {
                let step = said["p"].as_f64().unwrap_or_default() as u64;
                let own = said["tag"].as_str().unwrap_or_default();
                if let Err(found) = ear.hear(own, step) {
                    setting.account.found(found);
                }
            }
            Some("log") if said["logger"] == "throughline" => ear.told(),
            Some("answer") if said["tag"] == tag => return outcome_of(&said, tag),
            Some("answer") => {
                setting
                    .account
                    .found((Fault::Repeated, format!("{tag}: while it runs, {said}")));
            }
            Some(_) | None => {}
        }
    }
    Outcome::Lost("its process ended".to_owned())
}

fn outcome_of(said: &Value, tag: &str) -> Outcome {
    let text = said["text"].as_str().unwrap_or_default();
    let word = |name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\":"))?;
        Some(rest.split('"').nth(1)?.to_owned())
    };
    match said["outcome"].as_str() {
        Some("result") if text == format!("{tag}:done") || text.contains("completed") => Outcome::Result,
        Some("tool_error") if text.contains("session was restarted") => Outcome::Refused,
        Some("error") => match (word("reason"), ["Session not found", "Session terminated"]) {
            (Some(reason), _) => Outcome::Failed {
                reason,
                outcome: word("outcome").unwrap_or_else(|| "?".to_owned()),
            },
            // It may have run: the Python SDK asks for the list of tools behind a call, and says this of both.
            (None, gone) if gone.iter().any(|words| text.contains(words)) => Outcome::GoneLater,
            (None, _) => Outcome::Failed {
                reason: text.to_owned(),
                outcome: "?".to_owned(),
            },
        },
        Some(_) | None => Outcome::Wrong(said.to_string()),
    }
}

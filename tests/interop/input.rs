//! What a server asks before it answers, in the way of 2026-07-28, on the official Rust SDK: the questions of `lab/fixture.json`.
//! Law: it asks for what the client has declared, and for what is missing, once more; state that comes back is its own or refused.
//! Absent on purpose: the other revisions, where a server asks while it answers.
//! Next: `../lab/fixture.mjs`.

use hmac::{Hmac, Mac as _};
use rmcp::model::{ErrorData, InputRequiredResult, InputResponses};
use serde_json::Value;
use sha2::Sha256;

use crate::fixture::{Context, failed, fixture, typed};

/// What the state that a client brings back is sealed with: the process that sealed it is the only one that must know it.
const KEY: &[u8] = b"tests only";

/// What is brought back to a question that is asked before something is answered.
pub(crate) struct Back {
    /// The client's answers.
    pub(crate) responses: Option<InputResponses>,
    /// What it was given to bring back.
    pub(crate) state: Option<String>,
}

/// What is still to be asked before `name` is answered, in the way of 2026-07-28; only what the client has declared.
pub(crate) fn to_ask(
    name: &str,
    back: &Back,
    context: &Context,
) -> Result<Option<InputRequiredResult>, ErrorData> {
    let asks = &fixture()["asks"][name];
    let (Some(rounds), Some(declared)) = (asks["rounds"].as_array(), context.meta.client_capabilities())
    else {
        return Ok(None);
    };
    let declared = serde_json::to_value(declared).map_err(failed)?;
    let keeps = asks.get("keeps").is_some();
    let mut round = 0;
    if let Some(state) = back.state.as_ref().filter(|_| keeps) {
        let number = state.split('.').next().and_then(|number| number.parse().ok());
        round = number
            .filter(|number| *state == sealed(name, *number))
            .ok_or_else(|| ErrorData::invalid_params("Not the state that was given out", None))?;
    }
    let asked = |round: usize| {
        let mut asked = rounds[round].as_object().cloned().unwrap_or_default();
        asked.retain(|_, one| {
            let method = one["method"].as_str().unwrap_or_default();
            method
                .split('/')
                .next()
                .is_some_and(|what| declared.get(what).is_some())
        });
        asked
    };
    let has = |key: &String| {
        let responses = back.responses.as_ref();
        responses
            .and_then(|all| all.get(key))
            .is_some_and(Value::is_object)
    };
    if asked(round).keys().all(has) {
        round += 1;
    }
    if round == rounds.len() {
        return Ok(None);
    }
    let state = keeps.then(|| sealed(name, round));
    Ok(Some(InputRequiredResult::new(
        Some(typed(asked(round).into())?),
        state,
    )))
}

fn sealed(name: &str, round: usize) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).expect("any length will do");
    mac.update(format!("{name} {round}").as_bytes());
    let tag = mac.finalize().into_bytes();
    tag.iter()
        .fold(format!("{round}."), |text, byte| format!("{text}{byte:02x}"))
}

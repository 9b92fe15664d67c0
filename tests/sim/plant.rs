//! Faults planted on purpose, between what the proxy says and what its client takes it for: the oracle must find each.
//! Law: each stands for a way in which a proxy could break its promise; none can be told from such a proxy by a client.
//! Next: `weather.rs`.

use std::sync::Mutex;

use crate::chance::Chance;
use crate::http::{Event, Head};
use crate::oracle::{Oracle, Outcome};

/// A planted fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plant {
    None,
    /// Now and then an event is lost, with its position.
    LosesEvent,
    /// Now and then an event's message is lost; positions stay dense.
    LosesMessage,
    /// Now and then an event comes twice.
    RepeatsEvent,
    /// Now and then a message comes twice, at the next position each.
    RepeatsMessage,
    /// Resets are not said: neither the header nor the notices come.
    HushesResets,
    /// A process goes on with what another one knew.
    ClaimsAnothersEpoch,
    /// Whoever shows a session's token and any credential is answered.
    AnswersStrangers,
    /// What the store has taken and not yet promised to keep is shown.
    ShowsUnkept,
    /// Nothing is ever let go of, though nobody is there any more.
    KeepsWhatIsOver,
    /// An unknown outcome is told as if nothing had run.
    DeniesExecution,
    /// A message of another session comes.
    MixesSessions,
    /// Over HTTP+SSE, a session that is over is followed by another one in its place, and nothing is said.
    HushesEnds,
    /// Where the store fails to keep an event, or breaks a promise, it is taken for kept.
    HushesStore,
    /// What comes next after a reload is lost.
    LosesAfterReload,
    /// What comes next after a replica was told to drain is lost.
    LosesAfterOrder,
    /// What comes next after the proxy began to drain is lost.
    LosesAfterDrain,
    /// Now and then an answer is lost from a batch; positions stay dense.
    LosesAnswerOfBatch,
    /// A request without a session is sent again, by nobody's wish.
    SendsAgain,
    /// Who goes away from a request without a session is not missed: it runs on.
    HushesLeaving,
}

/// What a plant that strikes in the wake of something has seen of it.
#[derive(Default)]
pub(crate) struct Wake(Mutex<u64>);

impl Plant {
    /// Those that stand between one proxy and its client, whatever lies behind that.
    #[allow(dead_code, reason = "the chaos on real processes plants these")]
    pub(crate) const ON_THE_WAY: [Self; 7] = [
        Self::LosesEvent,
        Self::LosesMessage,
        Self::RepeatsEvent,
        Self::RepeatsMessage,
        Self::HushesResets,
        Self::DeniesExecution,
        Self::MixesSessions,
    ];

    pub(crate) const ALL: [Self; 19] = [
        Self::LosesEvent,
        Self::LosesMessage,
        Self::RepeatsEvent,
        Self::RepeatsMessage,
        Self::HushesResets,
        Self::ClaimsAnothersEpoch,
        Self::AnswersStrangers,
        Self::ShowsUnkept,
        Self::KeepsWhatIsOver,
        Self::DeniesExecution,
        Self::MixesSessions,
        Self::HushesEnds,
        Self::HushesStore,
        Self::LosesAfterReload,
        Self::LosesAfterOrder,
        Self::LosesAfterDrain,
        Self::LosesAnswerOfBatch,
        Self::SendsAgain,
        Self::HushesLeaving,
    ];

    /// What a client gets in place of a verdict on the cursor that it presented.
    pub(crate) fn verdict(self, head: &mut Head, asked: Option<&str>) {
        let verdict = head.fields.get_mut("throughline-continuity");
        let is_hushed = |verdict: &str| match self {
            Self::HushesResets => verdict.starts_with("reset"),
            Self::HushesEnds => verdict.starts_with("live") && asked.is_some(),
            Self::ClaimsAnothersEpoch => verdict.starts_with("reset; reason=epoch_changed"),
            Self::None
            | Self::LosesEvent
            | Self::LosesMessage
            | Self::RepeatsEvent
            | Self::RepeatsMessage
            | Self::DeniesExecution
            | Self::AnswersStrangers
            | Self::ShowsUnkept
            | Self::KeepsWhatIsOver
            | Self::HushesStore
            | Self::LosesAfterReload
            | Self::LosesAfterOrder
            | Self::LosesAfterDrain
            | Self::LosesAnswerOfBatch
            | Self::SendsAgain
            | Self::HushesLeaving
            | Self::MixesSessions => false,
        };
        let Some(verdict) = verdict.filter(|verdict| is_hushed(verdict)) else {
            return;
        };
        *verdict = match asked.and_then(|asked| asked.get(1..12)) {
            Some(epoch) => format!("resumed; epoch=\"{epoch}\""),
            None => "live".to_owned(),
        };
    }

    /// What a client gets in place of an event.
    pub(crate) fn events(self, event: Event, chance: &mut Chance) -> Vec<Event> {
        let data = event.data.as_deref().unwrap_or_default();
        let is_message = is_message(&event);
        let is_notice = data.contains("throughline");
        let saying = |data: &str| Event {
            event: None,
            data: Some(data.to_owned()),
            ..event.clone()
        };
        match self {
            Self::None
            | Self::DeniesExecution
            | Self::ClaimsAnothersEpoch
            | Self::AnswersStrangers
            | Self::ShowsUnkept
            | Self::KeepsWhatIsOver
            | Self::HushesEnds
            | Self::HushesStore
            | Self::LosesAfterReload
            | Self::LosesAfterOrder
            | Self::LosesAfterDrain
            | Self::LosesAnswerOfBatch
            | Self::SendsAgain
            | Self::HushesLeaving => vec![event],
            Self::HushesResets if is_notice => vec![saying("{}")],
            Self::HushesResets => vec![event],
            Self::LosesEvent
            | Self::LosesMessage
            | Self::RepeatsEvent
            | Self::RepeatsMessage
            | Self::MixesSessions
                if !is_message || !chance.percent(5) =>
            {
                vec![event]
            }
            Self::LosesEvent => Vec::new(),
            Self::LosesMessage => vec![saying("{}")],
            Self::RepeatsEvent => vec![event.clone(), event],
            Self::RepeatsMessage => {
                let next = event
                    .id
                    .as_deref()
                    .and_then(|id| id.rsplit_once('.'))
                    .map(|(prefix, seq)| format!("{prefix}.{}", seq.parse::<u64>().unwrap_or(0) + 1));
                vec![event.clone(), Event { id: next, ..event }]
            }
            Self::MixesSessions => vec![saying(
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"logger":"backend","data":{"tag":"somebody","seq":1}}}"#,
            )],
        }
    }

    /// Whether an event is lost, since something has just happened.
    pub(crate) fn takes(self, event: &Event, wake: &Wake, oracle: &Oracle) -> bool {
        let happened = match self {
            Self::LosesAfterReload => oracle.count("reloads"),
            Self::LosesAfterOrder => oracle.count("replicas drained"),
            Self::LosesAfterDrain => oracle.count("proxies drained"),
            Self::None
            | Self::LosesEvent
            | Self::LosesMessage
            | Self::RepeatsEvent
            | Self::RepeatsMessage
            | Self::HushesResets
            | Self::ClaimsAnothersEpoch
            | Self::AnswersStrangers
            | Self::ShowsUnkept
            | Self::KeepsWhatIsOver
            | Self::DeniesExecution
            | Self::MixesSessions
            | Self::HushesEnds
            | Self::HushesStore
            | Self::LosesAnswerOfBatch
            | Self::SendsAgain
            | Self::HushesLeaving => return false,
        };
        let mut seen = wake.0.lock().expect("no panic while it is held");
        let is_lost = happened > *seen && is_message(event);
        if is_lost {
            *seen = happened;
        }
        is_lost
    }

    /// What a client gets in place of an event of a batch.
    pub(crate) fn of_batch(self, event: Event, chance: &mut Chance) -> Event {
        let data = event.data.as_deref().unwrap_or_default();
        if self == Self::LosesAnswerOfBatch && data.contains("\"result\"") && chance.percent(20) {
            return Event {
                data: Some("{}".to_owned()),
                ..event
            };
        }
        event
    }

    /// What a client takes an outcome for.
    pub(crate) fn outcome(self, outcome: Outcome) -> Outcome {
        match (self, outcome) {
            (Self::DeniesExecution, Outcome::Unknown(why)) => Outcome::NotExecuted(why),
            (_, outcome) => outcome,
        }
    }
}

/// Whether a backend said it, and numbered it.
fn is_message(event: &Event) -> bool {
    let data = event.data.as_deref().unwrap_or_default();
    data.contains("progress") || data.contains("\"seq\"")
}

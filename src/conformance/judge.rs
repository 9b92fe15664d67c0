//! The judgement: what should have come, what came, and whether anybody said so.
//! Law: lost, repeated or mixed up without a word is *silent*; with a word it is a pass. What a server can't be asked for
//! by the protocol is no fault of its own. A refusal of the 5xx kind is a fault that the client can see.
//! Absent on purpose: sockets and time.
//! Next: `follow.rs`.

use http::StatusCode;

use crate::conformance::account::{Came, Ended, Told};
use crate::conformance::outcome::Finding;

/// What should come.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    /// Labels at or before the cursor: they may not come again.
    pub(super) had: Vec<String>,
    /// Labels behind it, in their order; the last one ends the sequence.
    pub(super) rest: Vec<String>,
}

/// Whether a sequence that goes on behind a cursor is honest.
pub(super) fn sequence(expected: &Expected, came: &Came) -> Finding {
    if let Some(stranger) = came.foreign.first() {
        return Finding::silent(format!("mixed up: {stranger} came here"));
    }
    if let Some(told) = &came.told {
        return refusal(told);
    }
    if let Some(again) = came.labels.iter().find(|label| expected.had.contains(label)) {
        return Finding::silent(format!(
            "repeated: `{again}`, which the cursor says was had, came again"
        ));
    }
    if let Some(twice) = twice(&came.labels) {
        return Finding::silent(format!("repeated: `{twice}` came twice"));
    }
    let known: Vec<&String> = came
        .labels
        .iter()
        .filter(|label| expected.rest.contains(label))
        .collect();
    let missing = expected.rest.len() - known.len();
    let finished = expected.rest.last().is_none_or(|last| came.labels.contains(last));
    match (missing, finished) {
        (0, _) if !known.iter().copied().eq(expected.rest.iter()) => {
            Finding::silent("mixed up: the messages came in another order")
        }
        (0, _) => match &came.again {
            Some(label) => off_by_one(label),
            None => Finding::whole(format!(
                "all {} messages behind the cursor came, each once",
                expected.rest.len()
            )),
        },
        (missing, true) => Finding::silent(format!(
            "lost: {missing} of {} messages are missing, and the last one came as though nothing were",
            expected.rest.len()
        )),
        (missing, false) => Finding::silent(format!(
            "lost: {missing} of {} messages are missing, the last one among them; {}",
            expected.rest.len(),
            without_a_word(&came.end)
        )),
    }
}

/// Whether a cursor that this server can't meet, or must not, is answered honestly.
pub(super) fn unmet(came: &Came) -> Finding {
    if let Some(stranger) = came
        .foreign
        .first()
        .or(came.labels.first())
        .or(came.again.as_ref())
    {
        return Finding::silent(format!(
            "mixed up: `{stranger}`, which no such cursor reaches, came"
        ));
    }
    match &came.told {
        Some(told) => refusal(told),
        None => Finding::silent(format!(
            "the cursor was taken as though it were known: {}",
            without_a_word(&came.end)
        )),
    }
}

/// The same for a cursor of the client's own stream: that the stream's result comes all the same is no mixing up, but
/// the client must be told that the cursor was not met.
pub(super) fn unmet_or_made_good(came: &Came) -> Finding {
    match (&came.told, came.foreign.is_empty()) {
        (Some(told), true) => refusal(told),
        (Some(_), false) | (None, _) => unmet(came),
    }
}

/// Whether coming back to a stream that was wholly read is answered so that a client stops.
pub(super) fn at_the_end(came: &Came) -> Finding {
    if let Some(stranger) = came.foreign.first() {
        return Finding::silent(format!("mixed up: {stranger} came here"));
    }
    if let Some(again) = came.labels.first() {
        return Finding::silent(format!("repeated: `{again}` came again behind the last id"));
    }
    if let Some(label) = &came.again {
        return off_by_one(label);
    }
    match (&came.told, &came.end) {
        (Some(told), _) => refusal(told),
        (None, Ended::Empty) => {
            Finding::fail("each time the answer is 200 and an empty stream: a client comes back for ever")
        }
        (None, Ended::Open | Ended::Complete) => {
            Finding::whole("nothing came again; the stream is held open")
        }
        (None, end @ (Ended::Broke(_) | Ended::NoStream(_))) => Finding::fail(without_a_word(end)),
    }
}

/// Whether a session that is no more is refused so that a client begins a new one.
pub(super) fn session_gone(status: StatusCode) -> Finding {
    match status {
        StatusCode::NOT_FOUND => Finding::told("refused with 404: a client begins a new session"),
        status if status.is_success() => Finding::silent(format!(
            "answered with {}, as though the session lived",
            status.as_u16()
        )),
        status => Finding::fail(format!(
            "refused with {}; only 404 makes a client begin a new session",
            status.as_u16()
        )),
    }
}

fn refusal(told: &Told) -> Finding {
    match told {
        Told::Refused(status) if status.is_server_error() => Finding::fail(format!(
            "answered with {}: an error of the server's, no refusal",
            status.as_u16()
        )),
        Told::Refused(_) | Told::Reset(_) | Told::Error(_) | Told::Notice(_) => {
            Finding::told(told.to_string())
        }
    }
}

pub(super) fn off_by_one(label: &str) -> Finding {
    Finding::fail(format!(
        "`{label}`, the message at the cursor, came again under the id that was presented; only what follows may come"
    ))
}

fn twice(labels: &[String]) -> Option<&String> {
    let mut before = labels.iter().enumerate();
    before
        .find(|(at, label)| labels[..*at].contains(label))
        .map(|(_, label)| label)
}

fn without_a_word(end: &Ended) -> String {
    match end {
        Ended::Open => "200, and the stream stays open without a word".to_owned(),
        Ended::Complete => "200, and the stream went on to its end without a word".to_owned(),
        Ended::Empty => "each time 200 and an empty stream, without a word".to_owned(),
        Ended::Broke(error) => format!("200, then the connection broke each time ({error})"),
        Ended::NoStream(status) => format!("{} and no stream, without a word", status.as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::outcome::{How, Outcome};

    const WHOLE: Outcome = Outcome::Pass(How::Whole);
    const TOLD: Outcome = Outcome::Pass(How::Told);

    fn labels(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn came(text: &str, told: Option<Told>, end: Ended) -> Came {
        Came {
            labels: labels(text),
            told,
            end,
            ..Came::default()
        }
    }

    fn check(found: &Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{}", found.why);
        assert!(found.why.contains(part), "no `{part}` in {}", found.why);
    }

    #[test]
    fn a_sequence_is_whole_told_or_silent() {
        let expected = Expected {
            had: labels("1 2"),
            rest: labels("3 4 result"),
        };
        let reset = || Some(Told::Reset("evicted".to_owned()));
        for (text, told, end, outcome, part) in [
            ("3 4 result", None, Ended::Complete, WHOLE, "all 3 messages"),
            (
                "2 3 4 result",
                None,
                Ended::Complete,
                Outcome::Silent,
                "repeated: `2`",
            ),
            (
                "3 4 4 result",
                None,
                Ended::Complete,
                Outcome::Silent,
                "`4` came twice",
            ),
            (
                "3 4 result result",
                None,
                Ended::Complete,
                Outcome::Silent,
                "`result` came twice",
            ),
            (
                "4 3 result",
                None,
                Ended::Complete,
                Outcome::Silent,
                "another order",
            ),
            (
                "result",
                None,
                Ended::Complete,
                Outcome::Silent,
                "lost: 2 of 3 messages",
            ),
            ("3 4", None, Ended::Open, Outcome::Silent, "stays open"),
            ("", None, Ended::Empty, Outcome::Silent, "an empty stream"),
            (
                "",
                None,
                Ended::NoStream(StatusCode::NO_CONTENT),
                Outcome::Silent,
                "204 and no stream",
            ),
            ("result", reset(), Ended::Complete, TOLD, "a reset: evicted"),
            (
                "3",
                Some(Told::Error("-32603 x".to_owned())),
                Ended::Complete,
                TOLD,
                "own error",
            ),
            (
                "",
                Some(Told::Refused(StatusCode::CONFLICT)),
                Ended::Open,
                TOLD,
                "409",
            ),
            (
                "",
                Some(Told::Refused(StatusCode::BAD_GATEWAY)),
                Ended::Open,
                Outcome::Fail,
                "502",
            ),
        ] {
            check(&sequence(&expected, &came(text, told, end)), outcome, part);
        }
        let mixed = Came {
            foreign: labels("stranger"),
            ..came("3 4 result", reset(), Ended::Complete)
        };
        check(&sequence(&expected, &mixed), Outcome::Silent, "stranger");
    }

    #[test]
    fn what_comes_again_under_the_cursor_itself_can_be_seen() {
        let again = |text: &str| Came {
            again: Some("2".to_owned()),
            ..came(text, None, Ended::Complete)
        };
        let expected = Expected {
            had: labels("1 2"),
            rest: labels("3 result"),
        };
        check(
            &sequence(&expected, &again("3 result")),
            Outcome::Fail,
            "`2`, the message at the cursor",
        );
        check(&sequence(&expected, &again("result")), Outcome::Silent, "lost");
        check(&at_the_end(&again("")), Outcome::Fail, "`2`");
        check(&unmet(&again("")), Outcome::Silent, "mixed up: `2`");
    }

    #[test]
    fn a_cursor_that_can_not_be_met_must_be_told() {
        for (text, told, end, outcome) in [
            (
                "",
                Some(Told::Refused(StatusCode::BAD_REQUEST)),
                Ended::Open,
                TOLD,
            ),
            (
                "",
                Some(Told::Refused(StatusCode::INTERNAL_SERVER_ERROR)),
                Ended::Open,
                Outcome::Fail,
            ),
            ("", Some(Told::Notice("x".to_owned())), Ended::Open, TOLD),
            ("", None, Ended::Open, Outcome::Silent),
            ("", None, Ended::Empty, Outcome::Silent),
            (
                "3",
                Some(Told::Reset("x".to_owned())),
                Ended::Open,
                Outcome::Silent,
            ),
        ] {
            check(&unmet(&came(text, told, end)), outcome, "");
        }
    }

    #[test]
    fn a_stream_that_was_wholly_read_must_not_loop() {
        for (text, told, end, outcome) in [
            (
                "",
                Some(Told::Refused(StatusCode::METHOD_NOT_ALLOWED)),
                Ended::Open,
                TOLD,
            ),
            ("", None, Ended::Open, WHOLE),
            ("", None, Ended::Empty, Outcome::Fail),
            ("result", None, Ended::Complete, Outcome::Silent),
        ] {
            check(&at_the_end(&came(text, told, end)), outcome, "");
        }
    }

    #[test]
    fn only_404_says_that_a_session_is_gone() {
        for (status, outcome) in [
            (404, TOLD),
            (200, Outcome::Silent),
            (202, Outcome::Silent),
            (400, Outcome::Fail),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            check(&session_gone(status), outcome, "");
        }
    }
}

//! The table of cases.
//! Law: one row for each, in the order of the reports; what a row promises is what its function does.
//! Next: `post.rs`.

use crate::conformance::cases::get::Back;
use crate::conformance::cases::post::Cut;
use crate::conformance::cases::{
    Case, Trial, Trying, Turn, cancel, cursor, get, post, restart, session, stateless,
};

const fn row(
    name: &'static str,
    does: &'static str,
    honest: &'static str,
    silent: &'static str,
    run: fn(Trial) -> Trying,
) -> Case {
    Case {
        name,
        does,
        honest,
        silent,
        turn: Turn::Together,
        run,
    }
}

impl Case {
    const fn alone(mut self) -> Self {
        self.turn = Turn::Alone;
        self
    }
}

/// Whole or told, as most cases end.
const REST: &str =
    "the rest comes, each message once and in order; or a refusal (4xx), the call's error, or a reset";
const LOST: &str = "messages or the result are missing, or come again, and no answer says so";
const REFUSED: &str = "a refusal (4xx), an error, or a reset";
const TAKEN: &str = "200 and a stream, as though the cursor were known";

/// Every case, in the order of the reports.
pub const CASES: &[Case] = &[
    row(
        "post/uncut",
        "a call is read to its end",
        "each message once, in order",
        LOST,
        |trial| Box::pin(post::uncut(trial)),
    ),
    row(
        "post/two-at-once",
        "two calls of one session run at the same time",
        "each stream carries its own call's messages only",
        "a message comes on the other call's stream",
        |trial| Box::pin(post::two_at_once(trial)),
    ),
    row(
        "post/cut",
        "the answer is cut (closed) after two messages; the client comes back at once",
        REST,
        LOST,
        |trial| Box::pin(post::cut_resume(trial, Cut::Close)),
    ),
    row(
        "post/reset",
        "the same, cut by a TCP reset",
        REST,
        LOST,
        |trial| Box::pin(post::cut_resume(trial, Cut::Reset)),
    ),
    row(
        "post/cut-while-listening",
        "the same with a standing GET stream open, which stays as it is",
        REST,
        "as above, or messages of the call come on the standing stream",
        |trial| Box::pin(post::cut_resume_with_get(trial)),
    ),
    row(
        "post/cut-before-message",
        "the answer is cut before its first message; a priming id is the cursor, if one came",
        REST,
        LOST,
        |trial| Box::pin(post::cut_before_message(trial)),
    ),
    row(
        "post/cut-twice",
        "the resumed connection is cut again, after a message more",
        REST,
        LOST,
        |trial| Box::pin(post::cut_twice(trial)),
    ),
    row(
        "post/same-cursor-again",
        "the resumed connection dies before its first id is read; the client has its old cursor only",
        REST,
        "what was sent on the dead connection is taken as had",
        |trial| Box::pin(post::same_cursor_again(trial)),
    ),
    row(
        "post/earlier-cursor",
        "the client comes back with the id of its first message and not with its newest",
        "everything behind that id; or a refusal, an error, a reset",
        LOST,
        |trial| Box::pin(post::earlier_cursor(trial)),
    ),
    row(
        "post/result-after-end",
        "the client comes back when the call is surely over",
        "the rest with the result; or a refusal, an error, a reset",
        "the result is gone without a word: the disconnect was taken for a cancel, or nothing was kept",
        |trial| Box::pin(post::result_after_end(trial)),
    ),
    row(
        "post/end-mark",
        "the client has all, and comes back with the last id of the stream",
        "a refusal (405), or a stream that is held open; never 200 and an empty stream each time (fail: a loop)",
        "what was had comes again",
        |trial| Box::pin(post::end_mark(trial)),
    ),
    row(
        "post/half-open",
        "the client comes back while the server still holds the connection that it lost",
        "the newest connection gets the rest; or 409. The result on both is a fail",
        LOST,
        |trial| Box::pin(post::newest_reader(trial)),
    ),
    row(
        "post/repeated",
        "the same POST is sent again, after its connection was lost",
        "the running call's answer; or a refusal or an error",
        "the tool runs a second time (the answer takes a whole call's time again)",
        |trial| Box::pin(post::repeated(trial)),
    ),
    row(
        "post/same-request-id",
        "two sessions make a call under the same request id; both are cut and come back",
        "each gets its own call's rest; or a refusal, an error, a reset",
        "one session gets the other's messages or result",
        |trial| Box::pin(post::same_request_id(trial)),
    ),
    row(
        "cursor/own-stream",
        "two calls of one session are cut; both come back at once, each with its own cursor",
        "each gets its own rest; or a refusal, an error, a reset",
        "a message of the other stream comes, or the rest is missing",
        |trial| Box::pin(cursor::other_stream(trial)),
    ),
    row(
        "cursor/of-another-session",
        "the cursor of a call is presented in another session",
        REFUSED,
        "the other session's messages come; or 200 and a stream, as though the cursor were known",
        |trial| Box::pin(cursor::other_session_post(trial)),
    ),
    row(
        "cursor/of-another-listener",
        "the cursor of a standing GET stream is presented in another session",
        REFUSED,
        "the other session's messages come; or 200 and a stream, as though the cursor were known",
        |trial| Box::pin(cursor::other_session_get(trial)),
    ),
    row(
        "cursor/unknown",
        "a cursor that was never given",
        REFUSED,
        TAKEN,
        |trial| Box::pin(cursor::unknown(trial)),
    ),
    row(
        "cursor/future",
        "a cursor a million past the last one of a stream (where ids end in a number)",
        REFUSED,
        TAKEN,
        |trial| Box::pin(cursor::future(trial)),
    ),
    row(
        "cursor/malformed",
        "a cursor of odd characters",
        REFUSED,
        TAKEN,
        |trial| Box::pin(cursor::malformed(trial)),
    ),
    row(
        "cursor/oversized",
        "a cursor of 4,096 bytes",
        REFUSED,
        TAKEN,
        |trial| Box::pin(cursor::oversized(trial)),
    ),
    row(
        "cursor/evicted",
        "a call that says more than servers keep; the client comes back behind its first message",
        "everything behind it; or a refusal, an error, a reset",
        "the rest comes with a hole in it, or nothing comes, without a word",
        |trial| Box::pin(cursor::evicted(trial)),
    ),
    row(
        "cursor/unique",
        "ids of two streams of one session are compared",
        "no id is given on both (else fail: such a cursor means two places)",
        "",
        |trial| Box::pin(cursor::unique_ids(trial)),
    ),
    row(
        "get/uncut",
        "a listener reads what the server says to it",
        "each message once, in order",
        LOST,
        |trial| Box::pin(get::uncut(trial)),
    ),
    row(
        "get/cut",
        "the standing stream is cut; the listener is back at once, with a cursor if ids were given",
        "the rest comes, each once; or a refusal, a reset, a list_changed, a warning",
        "what was said meanwhile is missing, and the new stream is 200 like any other",
        |trial| Box::pin(get::cut_resume(trial, Back::AtOnce)),
    ),
    row(
        "get/away",
        "the same; the listener is back when everything was said",
        "the rest comes, each once; or a refusal, a reset, a list_changed, a warning",
        "what was said meanwhile is missing, and the new stream is 200 like any other",
        |trial| Box::pin(get::cut_resume(trial, Back::WhenAllIsSaid)),
    ),
    row(
        "get/same-cursor-again",
        "the resumed connection dies before its first id is read",
        "the rest comes, each once; or a refusal, a reset, a list_changed, a warning",
        "what was sent on the dead connection is taken as had",
        |trial| Box::pin(get::same_cursor_again(trial)),
    ),
    row(
        "get/half-open",
        "the listener comes back while the server still holds the connection that it lost",
        "the newest connection gets the rest; or 409",
        LOST,
        |trial| Box::pin(get::half_open(trial)),
    ),
    row(
        "get/second",
        "a second GET without a cursor, while the first is open",
        "409, or each message comes on one of the two (on both: fail)",
        "messages come on neither",
        |trial| Box::pin(get::second(trial)),
    ),
    row(
        "session/unknown",
        "a request under a session id that was never given",
        "404 (any other refusal: fail, since only 404 makes a client begin a new session)",
        "success",
        |trial| Box::pin(session::unknown(trial)),
    ),
    row(
        "session/ended",
        "a request in a session that the client has ended by DELETE",
        "404 (any other refusal: fail)",
        "success",
        |trial| Box::pin(session::deleted(trial)),
    ),
    row(
        "session/ended-with-cursor",
        "the client comes back to a stream of a session that it has ended",
        "a refusal, an error, a reset",
        TAKEN,
        |trial| Box::pin(session::deleted_listening(trial)),
    ),
    row(
        "cancel/explicit",
        "a running call is cancelled by notifications/cancelled while its stream is open",
        "the stream ends, or an error or the result comes, or nothing more",
        "messages of another call come",
        |trial| Box::pin(cancel::explicit(trial)),
    ),
    row(
        "cancel/then-resume",
        "a running call is cancelled, its stream cut, and its cursor presented",
        "a refusal, an error, the result, or a stream held open; never 200 and an empty stream each time (fail: a loop)",
        "messages of another call come",
        |trial| Box::pin(cancel::then_resume(trial)),
    ),
    row(
        "stateless/no-ids",
        "a call of the era without sessions",
        "its events have no ids (else fail)",
        "",
        |trial| Box::pin(stateless::no_ids(trial)),
    ),
    row(
        "stateless/no-resumption",
        "a cursor is presented in the era without sessions",
        "a refusal (4xx)",
        "200 and a stream",
        |trial| Box::pin(stateless::no_resumption(trial)),
    ),
    row(
        "restart/running-call",
        "the server is restarted under a running call; the client comes back to it",
        REST,
        LOST,
        |trial| Box::pin(restart::running_call(trial)),
    )
    .alone(),
    row(
        "restart/next-call",
        "the server is restarted; the client makes its next call in the same session",
        "404, an error, or a tool result that says so; or the call runs, and streams from before are still there",
        "the call runs, and nothing shows that what the session held is still there",
        |trial| Box::pin(restart::next_call(trial)),
    )
    .alone(),
    row(
        "restart/listening",
        "the server is restarted under a listener, which comes back",
        "the rest comes; or a refusal, a reset, a list_changed, a warning",
        "what was said is missing, and the new stream is 200 like any other",
        |trial| Box::pin(restart::listening(trial)),
    )
    .alone(),
    row(
        "restart/counted-past",
        "after the restart the new life counts past the old cursor; then that cursor is presented",
        "a refusal, a reset; or everything that the new life said",
        "the new life's first messages are skipped: the silent re-origination",
        |trial| Box::pin(restart::counted_past(trial)),
    )
    .alone(),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::CASES;

    #[test]
    fn each_case_has_one_name_and_a_row_in_the_docs() {
        let names: BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        let mut table = String::from("| case | what is done | pass | silent |\n|---|---|---|---|\n");
        for case in CASES {
            table.push_str(&format!(
                "| `{}` | {} | {} | {} |\n",
                case.name, case.does, case.honest, case.silent
            ));
        }
        let docs = include_str!("../cases.md");
        assert!(
            docs.contains(&table),
            "src/conformance/cases.md must hold\n\n{table}"
        );
    }
}

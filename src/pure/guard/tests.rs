//! Tables for the guard: what was said, what came, what may be done.
//! Law: a row is a whole story, so that what sticks over reconnects is seen to stick.
//! Next: `mod.rs`.

use super::*;

/// What happens to a guard, in order.
enum Step {
    /// A connection with this verdict.
    Connect(&'static str),
    /// A connection without one.
    Silent,
    Began,
    Reread,
    /// An event of this position in generation A or B, and what becomes of it.
    A(&'static str, Effect<'static>, Result<Admit, Violation>),
    B(&'static str, Effect<'static>, Result<Admit, Violation>),
    /// An event with this id, type and data.
    Other(
        Option<&'static str>,
        &'static str,
        &'static str,
        Result<Admit, Violation>,
    ),
    /// What would be presented.
    Cursor(Option<&'static str>),
}

use Step::{A, B, Began, Connect, Cursor, Other, Reread, Silent};

const RUN: Result<Admit, Violation> = Ok(Admit::Run);
const PRIMED: Result<Admit, Violation> = Ok(Admit::Primed);
const UNKEYED: Effect<'static> = Effect::Unkeyed;
const TOLD: Cause = Cause::Told(Reason::BackendLost);

const LIVE: &str = r#"live; epoch="AAAAAAAAAAA""#;
const RESET: &str = r#"reset; reason=backend_lost; epoch="BAAAAAAAAAA""#;
const FROM_2: &str = r#"resumed; epoch="AAAAAAAAAAA"; from="2"; replayed=1; window=8"#;

fn doubt(doubt: Doubt) -> Result<Admit, Violation> {
    Err(Violation::Unverifiable(doubt))
}

fn missing(what: Missing) -> Result<Admit, Violation> {
    doubt(Doubt::Missing(what))
}

fn id(generation: char, tail: &str) -> String {
    format!("a{generation}AAAAAAAAAA.g.AAAAAAAAAAAAAAAA.{tail}")
}

fn check<L: Ledger>(story: &str, ledger: L, steps: &[Step]) {
    let mut guard = Guard::new(ledger);
    for (nth, step) in steps.iter().enumerate() {
        let (id, kind, data, effect, expected) = match step {
            Connect(verdict) => {
                guard.connected(Some(verdict));
                continue;
            }
            Silent => {
                guard.connected(None);
                continue;
            }
            Began => {
                guard.began();
                continue;
            }
            Reread => {
                guard.reread();
                continue;
            }
            Cursor(expected) => {
                let expected = expected.map(|tail| id(tail.chars().next().unwrap(), &tail[1..]));
                assert_eq!(
                    guard.cursor(),
                    expected.as_deref().map(str::as_bytes),
                    "{story}, step {nth}"
                );
                continue;
            }
            A(tail, effect, expected) => (Some(id('A', tail)), "", tail_data(tail), *effect, expected),
            B(tail, effect, expected) => (Some(id('B', tail)), "", tail_data(tail), *effect, expected),
            Other(id, kind, data, expected) => (id.map(str::to_owned), *kind, *data, UNKEYED, expected),
        };
        let event = Event {
            id: id.as_deref().map(str::as_bytes),
            kind: kind.as_bytes(),
            data: data.as_bytes(),
            effect,
        };
        assert_eq!(
            guard.event(event),
            *expected,
            "{story}, step {nth}: {:?}",
            guard.standing()
        );
    }
}

fn tail_data(tail: &str) -> &'static str {
    if tail.contains('-') { "" } else { "{}" }
}

#[test]
fn resumed_events_run() {
    for (story, then) in [
        ("primed", vec![A("2-x", UNKEYED, PRIMED), A("3", UNKEYED, RUN)]),
        ("the next one", vec![A("3", UNKEYED, RUN), A("4", UNKEYED, RUN)]),
        (
            "the same one again",
            vec![
                A("2", UNKEYED, Ok(Admit::Had)),
                A("3", UNKEYED, RUN),
                Cursor(Some("A3")),
            ],
        ),
        ("an end mark", vec![A("3~", UNKEYED, RUN), Cursor(Some("A3~"))]),
    ] {
        let mut steps = vec![Connect(LIVE), A("0-x", UNKEYED, PRIMED), Cursor(Some("A0-x"))];
        steps.extend([
            A("1", UNKEYED, RUN),
            A("2", UNKEYED, RUN),
            Cursor(Some("A2")),
            Connect(FROM_2),
        ]);
        steps.extend(then);
        check(story, NoLedger, &steps);
    }
}

#[test]
fn a_stream_that_began_anew_runs_only_what_did_not_run_before() {
    let steps = [
        Connect(LIVE),
        A("1", Effect::Keyed(b"one"), RUN),
        Connect(RESET),
        B("0-x", UNKEYED, PRIMED),
        B("1", Effect::Keyed(b"one"), Ok(Admit::Applied)),
        B("2", Effect::Keyed(b"two"), RUN),
        B("3", Effect::Keyed(b"two"), Ok(Admit::Applied)),
        B("4", Effect::Repeatable, RUN),
        B("5", UNKEYED, Err(Violation::Unkeyed(TOLD))),
        Cursor(Some("B4")),
        B("6", Effect::Keyed(b"six"), RUN),
        // It stays so when the new life is resumed: what the client holds is no prefix of it.
        Connect(r#"resumed; epoch="BAAAAAAAAAA"; from="6"; replayed=0; window=8"#),
        B("7", UNKEYED, Err(Violation::Unkeyed(TOLD))),
        Reread,
        Cursor(Some("B7")),
        B("8", UNKEYED, RUN),
    ];
    check("with a ledger", MemoryLedger::default(), &steps);
    let untold = Err(Violation::Untold(TOLD));
    let steps = [
        Connect(RESET),
        B("1", Effect::Keyed(b"one"), untold),
        B("2", Effect::Keyed(b"one"), untold),
        B("3", Effect::Repeatable, RUN),
    ];
    check("without a ledger", NoLedger, &steps);
}

#[test]
fn what_the_ids_show_counts_whatever_is_said() {
    let skipped = |missing| Err(Violation::Unkeyed(Cause::Seen(Break::Skipped { missing })));
    let back = |seen| {
        Err(Violation::Unkeyed(Cause::Seen(Break::WentBack {
            seen: Seq::new(seen),
        })))
    };
    let other = Err(Violation::Unkeyed(Cause::Seen(Break::OtherGeneration)));
    for (story, first) in [
        ("skipped", A("5", UNKEYED, skipped(2))),
        ("went back", A("1", UNKEYED, back(1))),
        ("another generation", B("3", UNKEYED, other)),
    ] {
        for verdict in [Some(FROM_2), None] {
            let connect = verdict.map_or(Silent, Connect);
            let steps = [Connect(LIVE), A("1", UNKEYED, RUN), A("2", UNKEYED, RUN), connect];
            let mut steps = Vec::from(steps);
            steps.push(match &first {
                A(tail, effect, expected) => A(tail, *effect, *expected),
                B(tail, effect, expected) => B(tail, *effect, *expected),
                _ => unreachable!("the stories end with an event"),
            });
            steps.push(Cursor(Some("A2")));
            check(story, NoLedger, &steps);
        }
    }
    let steps = [Connect(LIVE), A("1", UNKEYED, RUN), A("3", UNKEYED, skipped(1))];
    check("in the middle of a connection", NoLedger, &steps);
    check(
        "at its beginning",
        NoLedger,
        &[Connect(LIVE), A("2", UNKEYED, skipped(1))],
    );
    let steps = [
        Connect(LIVE),
        A("1", UNKEYED, RUN),
        A("1", UNKEYED, Ok(Admit::Had)),
    ];
    check("twice in one connection", NoLedger, &steps);
}

#[test]
fn what_can_not_be_verified_is_refused_until_the_state_was_read_again() {
    use NoVerdict::{Malformed, Several};
    let window = "resumed; epoch=\"AAAAAAAAAAA\"; from=\"2\"; replayed=1; window=0";
    let other_from = "resumed; epoch=\"AAAAAAAAAAA\"; from=\"1\"; replayed=1; window=8";
    let other_epoch = "resumed; epoch=\"BAAAAAAAAAA\"; from=\"2\"; replayed=1; window=8";
    let both = "live; epoch=\"AAAAAAAAAAA\", reset; reason=evicted; epoch=\"AAAAAAAAAAA\"";
    for (verdict, why) in [
        (None, Doubt::Missing(Missing::Window)),
        (Some("alive"), Doubt::Missing(Missing::Window)),
        (Some(window), Doubt::Missing(Missing::Window)),
        (Some("resumed"), Doubt::Header(Malformed)),
        (Some(both), Doubt::Header(Several)),
        (Some(LIVE), Doubt::NotWhatWasAsked),
        (Some(other_from), Doubt::Contradiction),
        (Some(other_epoch), Doubt::Contradiction),
    ] {
        let steps = [
            Connect(LIVE),
            A("1", UNKEYED, RUN),
            A("2", UNKEYED, RUN),
            verdict.map_or(Silent, Connect),
            A("3", UNKEYED, doubt(why)),
            A("4", Effect::Keyed(b"four"), doubt(why)),
            A("5", Effect::Repeatable, doubt(why)),
            Cursor(Some("A2")),
            // Neither good evidence nor a reset makes up for it.
            Connect(FROM_2),
            A("2-y", UNKEYED, PRIMED),
            A("3", UNKEYED, doubt(why)),
            Connect(RESET),
            B("1", Effect::Repeatable, doubt(why)),
            Reread,
            Cursor(Some("B1")),
            B("2", UNKEYED, RUN),
        ];
        check(verdict.unwrap_or("no verdict"), MemoryLedger::default(), &steps);
    }
    check(
        "not connected",
        NoLedger,
        &[A("1", UNKEYED, doubt(Doubt::NotConnected))],
    );
    check(
        "nothing asked",
        NoLedger,
        &[Silent, A("1", UNKEYED, missing(Missing::Request))],
    );
    let steps = [Connect(FROM_2), A("3", UNKEYED, doubt(Doubt::NotWhatWasAsked))];
    check("resumed without a cursor", NoLedger, &steps);
    let steps = [
        Connect(LIVE),
        A("1", UNKEYED, RUN),
        A("2", UNKEYED, RUN),
        Connect(FROM_2),
    ];
    let mut steps = Vec::from(steps);
    steps.push(Other(None, "", "{}", missing(Missing::FirstId)));
    check("no id", NoLedger, &steps);
}

#[test]
fn a_reset_in_the_middle_of_a_connection_is_told() {
    let data = std::str::from_utf8(NOTICE).unwrap();
    let epoch = Epoch::parse("BAAAAAAAAAA").unwrap();
    let reset = Ok(Admit::Reset {
        reason: Reason::BackendLost,
        epoch,
    });
    let steps = [
        Connect(LIVE),
        A("1", UNKEYED, RUN),
        Other(Some("aBAAAAAAAAAA.g.AAAAAAAAAAAAAAAA.1"), "reset", data, reset),
        Cursor(Some("B1")),
        B("2", UNKEYED, Err(Violation::Unkeyed(TOLD))),
        Reread,
        B("3", UNKEYED, RUN),
    ];
    check("a reset", NoLedger, &steps);
    let unread = doubt(Doubt::Notice);
    for odd in ["", "{}", r#"{"params":{"reason":"tired","epoch":"BAAAAAAAAAA"}}"#] {
        let steps = [
            Connect(LIVE),
            A("1", UNKEYED, RUN),
            Other(Some("aBAAAAAAAAAA.g.AAAAAAAAAAAAAAAA.1"), "reset", odd, unread),
            B("2", UNKEYED, unread),
        ];
        check(odd, NoLedger, &steps);
    }
}

/// What the proxy says, in the spelling of `refusal.rs`: the two must not part.
const NOTICE: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/throughline/reset","params":{"reason":"backend_lost","epoch":"BAAAAAAAAAA"}}"#;

#[test]
fn the_notice_is_the_proxys_own() {
    let epoch = Epoch::parse("BAAAAAAAAAA").unwrap();
    assert_eq!(
        crate::pure::refusal::reset_notice(Reason::BackendLost, epoch),
        NOTICE
    );
}

#[test]
fn another_servers_ids_run_once_and_are_never_called_resumed() {
    let steps = [
        Began,
        Other(Some("1"), "", "{}", RUN),
        Other(Some("2"), "", "{}", RUN),
        Silent,
        Other(Some("3"), "", "{}", missing(Missing::Generation)),
        Reread,
        Other(Some("4"), "", "{}", RUN),
        Silent,
        Other(Some("4"), "", "", Ok(Admit::Primed)),
        Other(Some("5"), "", "{}", missing(Missing::Generation)),
    ];
    check("numbers", NoLedger, &steps);
}

#[test]
fn a_kept_cursor_is_taken_up() {
    let cursor = id('A', "2");
    let mut guard = Guard::from_cursor(NoLedger, cursor.as_bytes());
    assert_eq!(guard.cursor(), Some(cursor.as_bytes()));
    guard.connected(Some(FROM_2));
    let next = id('A', "3");
    let event = Event {
        id: Some(next.as_bytes()),
        kind: b"",
        data: b"{}",
        effect: UNKEYED,
    };
    assert_eq!(guard.event(event), RUN);
    assert_eq!(
        guard.standing(),
        Standing::Continuous(Ground::Resumed(Evidence::NextEvent(Seq::new(3))))
    );
}

#[test]
fn a_key_that_was_given_back_runs_again() {
    let mut guard = Guard::new(MemoryLedger::default());
    guard.connected(Some(RESET));
    let once = id('B', "1");
    let twice = id('B', "2");
    for id in [&once, &twice] {
        let event = Event {
            id: Some(id.as_bytes()),
            kind: b"message",
            data: b"{}",
            effect: Effect::Keyed(b"k"),
        };
        assert_eq!(guard.event(event), RUN);
        guard.ledger_mut().release(b"k");
    }
}

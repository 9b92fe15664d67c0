//! Cursor and log to decision: the question that this program exists to answer (wire contract, sections 4 and 5).
//! Law: "resumed" is said only if every event after the cursor is held; a miss has a reason from the closed list, in
//! the contract's precedence. What is not known is never taken for continuity.
//! Absent on purpose: spelling and authenticity of cursors (`event_id/mod.rs`); what a reset says (`stream/reset.rs`).
//! Next: `stream/mod.rs`.

use std::fmt;

use crate::pure::epoch::{Epoch, EpochEnd, Reason, Seq, Tombstone};
use crate::pure::log::{EndMark, Refused, Replay, Span, TakenBy};

/// What an authentic `Last-Event-ID` of this session says, beside the stream it names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The life of the stream that it was given in.
    pub epoch: Epoch,
    /// The newest event that the client had; `START` from a priming id before the first event.
    pub seq: Seq,
    /// Whether it carries the end mark.
    pub mark: EndMark,
}

/// What is known of the stream that a cursor names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<'a> {
    /// The epoch that is readable now.
    pub now: Now,
    /// The ends that are still remembered.
    pub ended: &'a [Tombstone],
}

/// The epoch of a stream that is readable now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Now {
    /// This one.
    Readable {
        /// The epoch.
        epoch: Epoch,
        /// What is held of it.
        span: Span,
        /// Whether its last event was appended.
        end: EndMark,
    },
    /// None, and a store names an owner that is lost.
    OwnerLost,
    /// None.
    None,
}

/// What becomes of a resume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Nothing was missed. It goes on from here.
    UpToDate {
        /// The cursor, which is the newest event.
        at: Seq,
    },
    /// Exactly these events, then what comes.
    Replay {
        /// The cursor.
        from: Seq,
        /// How many events are held after it, at least one.
        events: u64,
    },
    /// Events after the cursor are gone.
    Gap {
        /// How many are gone.
        missing: u64,
        /// The oldest event still held; one past the newest if none is.
        oldest: Seq,
        /// What took them.
        reason: Reason,
    },
    /// The cursor's epoch is over, or not known here.
    OtherEpoch {
        /// Why it ended, as far as that is known.
        reason: Reason,
    },
    /// The cursor lies past the end of its epoch.
    FromTheFuture {
        /// The newest event of that epoch.
        last: Seq,
    },
    /// Nothing follows the cursor: it stands at the stream's end.
    Ended,
}

impl Resume {
    /// The reason for a reset; none if there is nothing to reset.
    pub const fn reason(&self) -> Option<Reason> {
        match *self {
            Self::UpToDate { .. } | Self::Replay { .. } | Self::Ended => None,
            Self::Gap { reason, .. } | Self::OtherEpoch { reason } => Some(reason),
            Self::FromTheFuture { .. } => Some(Reason::CursorFuture),
        }
    }

    /// The word for it in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UpToDate { .. } => "up_to_date",
            Self::Replay { .. } => "replay",
            Self::Gap { .. } => "gap",
            Self::OtherEpoch { .. } => "other_epoch",
            Self::FromTheFuture { .. } => "from_the_future",
            Self::Ended => "ended",
        }
    }
}

/// Decides what becomes of a GET with an authentic cursor (wire contract, section 5).
///
/// An end mark needs no memory: nothing ever follows it. A stream's tombstone answers before "unknown epoch" does.
pub fn decide(cursor: Cursor, known: Known<'_>) -> Resume {
    match cursor.mark {
        EndMark::Last => return Resume::Ended,
        EndMark::Open => {}
    }
    match known.now {
        Now::Readable { epoch, span, end } if epoch == cursor.epoch => within(cursor.seq, span, end),
        Now::Readable { .. } | Now::None => past(cursor, known.ended, Reason::EpochChanged),
        Now::OwnerLost => past(cursor, known.ended, Reason::OwnerLost),
    }
}

/// Decides within the epoch that is readable; `end` says whether its last event was appended.
pub fn within(after: Seq, span: Span, end: EndMark) -> Resume {
    match span.resume(after) {
        Ok(Replay { from, events: 0 }) => match end {
            EndMark::Open => Resume::UpToDate { at: from },
            EndMark::Last => Resume::Ended,
        },
        Ok(Replay { from, events }) => Resume::Replay { from, events },
        Err(Refused::Gap { missing, oldest, by }) => Resume::Gap {
            missing,
            oldest,
            reason: by.reason(),
        },
        Err(Refused::Future { last, .. }) => Resume::FromTheFuture { last },
        // A span has no epoch and can't refuse for it; the right word costs nothing.
        Err(Refused::EpochMismatch { .. }) => Resume::OtherEpoch {
            reason: Reason::EpochChanged,
        },
    }
}

/// A cursor of an epoch that is over, or was never known here.
fn past(cursor: Cursor, ended: &[Tombstone], unknown: Reason) -> Resume {
    let Some(tombstone) = ended
        .iter()
        .rev()
        .find(|tombstone| tombstone.epoch == cursor.epoch)
    else {
        return Resume::OtherEpoch { reason: unknown };
    };
    match tombstone.end {
        EpochEnd::Lost(reason) => Resume::OtherEpoch { reason },
        EpochEnd::Finished => {
            let gone = Span {
                first: tombstone.last.next(),
                last: tombstone.last,
                bytes: 0,
                taken_by: TakenBy::Window,
            };
            within(cursor.seq, gone, EndMark::Last)
        }
    }
}

impl TakenBy {
    /// The word for a gap that this left. A log that evicted nothing has no gap; its bounds are the honest guess.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Budget => Reason::Evicted,
            Self::Window | Self::Nothing => Reason::WindowExceeded,
        }
    }
}

/// What is known of a session's standalone stream when a GET comes without a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standalone {
    /// The session began here, and no connection was ever given an event of this stream.
    NeverWritten {
        /// What is held for the first connection.
        span: Span,
    },
    /// No connection was given an event of this stream here, but another proxy may have given one.
    PerhapsWrittenElsewhere {
        /// What is held here.
        span: Span,
    },
    /// The session began here, no connection was ever given an event of this stream, and what the backend said of it was
    /// lost since.
    NeverWrittenAndLost {
        /// What is held for the first connection.
        span: Span,
        /// Why it was lost.
        reason: Reason,
    },
    /// Events were given to a connection.
    Written {
        /// The newest event that a connection is known to have received.
        acked: Seq,
        /// What is held.
        span: Span,
    },
    /// The session is known from its token only: nobody can say that nothing was written.
    Revived,
}

/// What a GET without a cursor gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithoutCursor {
    /// `live`: everything, from the first event on, in the epoch that lives.
    Live,
    /// The epoch ends; a reset with this reason in a new one, then what was never acknowledged.
    Reset {
        /// The reason told.
        reason: Reason,
        /// What is shown again.
        again: Again,
    },
}

/// Events of the old epoch that go into the new one. They may appear twice; losing them would be silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    /// None is held that was not acknowledged.
    Nothing,
    /// Those after `after` up to `upto`, at least one, all held.
    Events {
        /// The newest event that is not shown again.
        after: Seq,
        /// The newest event that is.
        upto: Seq,
    },
}

/// Decides what a GET without a cursor gets: written is not received (wire contract, section 5).
pub fn without_cursor(standalone: Standalone) -> WithoutCursor {
    match standalone {
        Standalone::NeverWritten { span } => match span.resume(Seq::START) {
            Ok(_) => WithoutCursor::Live,
            Err(Refused::Gap { by, .. }) => WithoutCursor::Reset {
                reason: by.reason(),
                again: again(Seq::START, span),
            },
            Err(Refused::Future { .. } | Refused::EpochMismatch { .. }) => WithoutCursor::Live,
        },
        // Of what is held here nobody had anything yet.
        Standalone::PerhapsWrittenElsewhere { span } => WithoutCursor::Reset {
            reason: Reason::CursorUnknown,
            again: again(Seq::START, span),
        },
        Standalone::NeverWrittenAndLost { span, reason } => WithoutCursor::Reset {
            reason,
            again: again(Seq::START, span),
        },
        Standalone::Written { acked, span } => WithoutCursor::Reset {
            reason: Reason::CursorUnknown,
            again: again(acked, span),
        },
        Standalone::Revived => WithoutCursor::Reset {
            reason: Reason::CursorUnknown,
            again: Again::Nothing,
        },
    }
}

/// What of a span is shown again to a client that had everything up to `acked`.
pub fn again(acked: Seq, span: Span) -> Again {
    let after = acked.max(Seq::new(span.first.get().saturating_sub(1)));
    if after < span.last {
        Again::Events {
            after,
            upto: span.last,
        }
    } else {
        Again::Nothing
    }
}

/// Whether a session's standalone stream has a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// A connection receives it.
    Present,
    /// None does.
    Absent,
}

/// What a cursor gets that is not ours, or not this session's. Its stream part is never believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stranger {
    /// A private, primed stream of comments: it supersedes nothing.
    PrivateComments,
    /// The standalone stream, with a reset.
    StandaloneReset,
}

/// Decides what an unparseable or foreign cursor gets (wire contract, section 5).
pub const fn stranger(receiver: Receiver) -> Stranger {
    match receiver {
        Receiver::Present => Stranger::PrivateComments,
        Receiver::Absent => Stranger::StandaloneReset,
    }
}

/// The verdict that every SSE answer carries: `Throughline-Continuity` (wire contract, section 4). Prints its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict<'a> {
    /// Nothing is missing since the cursor.
    Resumed {
        /// The epoch as it stands in event ids.
        epoch: &'a str,
        /// The cursor, an authentic event id.
        from: &'a str,
        /// Events held after the cursor.
        replayed: u64,
        /// Events that the window holds at most.
        window: u32,
    },
    /// No cursor was asked, and nothing was ever written on this stream.
    Live,
    /// Continuity is not given.
    Reset {
        /// Why.
        reason: Reason,
        /// The epoch that begins, as it stands in event ids.
        epoch: &'a str,
    },
}

impl Verdict<'_> {
    /// The word for it in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Resumed { .. } => "resumed",
            Self::Live => "live",
            Self::Reset { .. } => "reset",
        }
    }
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        match self {
            Self::Resumed {
                epoch,
                from,
                replayed,
                window,
            } => {
                write!(
                    f,
                    r#"; epoch="{epoch}"; from="{from}"; replayed={replayed}; window={window}"#
                )
            }
            Self::Live => Ok(()),
            Self::Reset { reason, epoch } => write!(f, r#"; reason={reason}; epoch="{epoch}""#),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Epoch = Epoch::from_random(1);
    const OLD: Epoch = Epoch::from_random(2);
    const DONE: Epoch = Epoch::from_random(3);
    const STRANGE: Epoch = Epoch::from_random(4);

    fn span(first: u64, last: u64, taken_by: TakenBy) -> Span {
        Span {
            first: Seq::new(first),
            last: Seq::new(last),
            bytes: 1,
            taken_by,
        }
    }

    fn cursor(epoch: Epoch, seq: u64) -> Cursor {
        Cursor {
            epoch,
            seq: Seq::new(seq),
            mark: EndMark::Open,
        }
    }

    #[test]
    fn every_cursor_gets_the_contracts_answer() {
        let ended = [
            Tombstone {
                epoch: OLD,
                last: Seq::new(50),
                end: EpochEnd::Lost(Reason::BackendLost),
            },
            Tombstone {
                epoch: DONE,
                last: Seq::new(9),
                end: EpochEnd::Finished,
            },
        ];
        let readable = |span, end| Now::Readable {
            epoch: OURS,
            span,
            end,
        };
        let open = readable(span(11, 60, TakenBy::Window), EndMark::Open);
        let shed = readable(span(61, 60, TakenBy::Budget), EndMark::Open);
        let fresh = readable(span(1, 0, TakenBy::Nothing), EndMark::Open);
        let over = readable(span(1, 4, TakenBy::Nothing), EndMark::Last);
        let at_end = |epoch, seq| Cursor {
            mark: EndMark::Last,
            ..cursor(epoch, seq)
        };
        let gap = |missing, oldest, reason| Resume::Gap {
            missing,
            oldest: Seq::new(oldest),
            reason,
        };
        let other = |reason| Resume::OtherEpoch { reason };
        let future = |last| Resume::FromTheFuture { last: Seq::new(last) };
        let replay = |from, events| Resume::Replay {
            from: Seq::new(from),
            events,
        };
        let up_to_date = |at| Resume::UpToDate { at: Seq::new(at) };
        for (now, cursor, expected) in [
            (open, cursor(OURS, 60), up_to_date(60)),
            (open, cursor(OURS, 59), replay(59, 1)),
            (open, cursor(OURS, 10), replay(10, 50)),
            (open, cursor(OURS, 9), gap(1, 11, Reason::WindowExceeded)),
            (open, cursor(OURS, 0), gap(10, 11, Reason::WindowExceeded)),
            (open, cursor(OURS, 61), future(60)),
            (open, cursor(OURS, u64::MAX), future(60)),
            (shed, cursor(OURS, 59), gap(1, 61, Reason::Evicted)),
            (shed, cursor(OURS, 60), up_to_date(60)),
            (fresh, cursor(OURS, 0), up_to_date(0)),
            (fresh, cursor(OURS, 1), future(0)),
            (over, cursor(OURS, 0), replay(0, 4)),
            (over, cursor(OURS, 3), replay(3, 1)),
            (over, cursor(OURS, 4), Resume::Ended),
            (over, at_end(OURS, 4), Resume::Ended),
            // 50 of an old life is not 50 of this one, though this one has it.
            (open, cursor(OLD, 50), other(Reason::BackendLost)),
            (open, cursor(OLD, 51), other(Reason::BackendLost)),
            (open, cursor(STRANGE, 50), other(Reason::EpochChanged)),
            (open, at_end(STRANGE, 50), Resume::Ended),
            (Now::None, cursor(STRANGE, 0), other(Reason::EpochChanged)),
            (Now::OwnerLost, cursor(STRANGE, 0), other(Reason::OwnerLost)),
            (Now::OwnerLost, cursor(OLD, 0), other(Reason::BackendLost)),
            (Now::None, cursor(DONE, 9), Resume::Ended),
            (Now::None, cursor(DONE, 8), gap(1, 10, Reason::WindowExceeded)),
            (Now::None, cursor(DONE, 10), future(9)),
            (Now::None, at_end(DONE, 9), Resume::Ended),
        ] {
            let known = Known { now, ended: &ended };
            assert_eq!(decide(cursor, known), expected, "{cursor:?} at {now:?}");
        }
    }

    #[test]
    fn without_a_cursor_only_a_stream_never_written_is_live() {
        let reset = |reason, again| WithoutCursor::Reset { reason, again };
        let events = |after, upto| Again::Events {
            after: Seq::new(after),
            upto: Seq::new(upto),
        };
        let never = |span| Standalone::NeverWritten { span };
        let elsewhere = |span| Standalone::PerhapsWrittenElsewhere { span };
        let written = |acked, span| Standalone::Written {
            acked: Seq::new(acked),
            span,
        };
        for (standalone, expected) in [
            (never(span(1, 0, TakenBy::Nothing)), WithoutCursor::Live),
            (never(span(1, 7, TakenBy::Nothing)), WithoutCursor::Live),
            (
                never(span(4, 7, TakenBy::Window)),
                reset(Reason::WindowExceeded, events(3, 7)),
            ),
            (
                never(span(8, 7, TakenBy::Budget)),
                reset(Reason::Evicted, Again::Nothing),
            ),
            (
                elsewhere(span(1, 0, TakenBy::Nothing)),
                reset(Reason::CursorUnknown, Again::Nothing),
            ),
            (
                elsewhere(span(1, 7, TakenBy::Nothing)),
                reset(Reason::CursorUnknown, events(0, 7)),
            ),
            (
                elsewhere(span(4, 7, TakenBy::Window)),
                reset(Reason::CursorUnknown, events(3, 7)),
            ),
            (
                Standalone::NeverWrittenAndLost {
                    span: span(1, 7, TakenBy::Nothing),
                    reason: Reason::BackendLost,
                },
                reset(Reason::BackendLost, events(0, 7)),
            ),
            (
                written(3, span(1, 7, TakenBy::Nothing)),
                reset(Reason::CursorUnknown, events(3, 7)),
            ),
            (
                written(7, span(1, 7, TakenBy::Nothing)),
                reset(Reason::CursorUnknown, Again::Nothing),
            ),
            (
                written(0, span(5, 7, TakenBy::Window)),
                reset(Reason::CursorUnknown, events(4, 7)),
            ),
            (
                written(2, span(8, 7, TakenBy::Window)),
                reset(Reason::CursorUnknown, Again::Nothing),
            ),
            (Standalone::Revived, reset(Reason::CursorUnknown, Again::Nothing)),
        ] {
            assert_eq!(without_cursor(standalone), expected, "{standalone:?}");
        }
    }

    #[test]
    fn a_stranger_supersedes_nothing() {
        assert_eq!(stranger(Receiver::Present), Stranger::PrivateComments);
        assert_eq!(stranger(Receiver::Absent), Stranger::StandaloneReset);
    }

    #[test]
    fn the_verdict_prints_a_dictionary() {
        let resumed = Verdict::Resumed {
            epoch: "AAAAAAAAAAE",
            from: "aAAAAAAAAAAE.g.m.3",
            replayed: 12,
            window: 1024,
        };
        for (verdict, expected) in [
            (
                resumed,
                r#"resumed; epoch="AAAAAAAAAAE"; from="aAAAAAAAAAAE.g.m.3"; replayed=12; window=1024"#,
            ),
            (Verdict::Live, "live"),
            (
                Verdict::Reset {
                    reason: Reason::CursorFuture,
                    epoch: "AAAAAAAAAAE",
                },
                r#"reset; reason=cursor_future; epoch="AAAAAAAAAAE""#,
            ),
        ] {
            assert_eq!(verdict.to_string(), expected);
        }
    }
}

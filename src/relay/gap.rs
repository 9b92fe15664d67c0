//! What is known of events that a backend may have sent while nobody read its standalone stream.
//! Law: positive evidence is never given of what is known to be broken: whoever comes in between is told the reset at once,
//! with what is held, and told to read again when the backend's stream stands; before that it could change unseen.
//! Absent on purpose: how the stream is opened again (`upstream_get.rs`), and the words (`pure/stream/reset.rs`).
//! Next: `turn.rs`.

use crate::pure::epoch::{Reason, Seq};
use crate::pure::resume::{self, WithoutCursor};
use crate::pure::session::Written;
use crate::pure::stream::attach::Presented;
use crate::pure::stream::reset::Reread;
use crate::relay::headers::Verdict;
use crate::relay::reader::Reader;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::turn::Waiting;
use crate::relay::world::World;
use crate::store::StreamLog;

/// What may be missing, and nobody could be told yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gap {
    /// Nothing.
    None,
    /// The backend's stream has never stood since the client was told where the stream begins.
    Perhaps,
    /// The backend's stream was lost for this reason, and does not stand again.
    Certain(Reason),
}

impl Gap {
    /// Why, once it can be told.
    pub(crate) const fn reason(self) -> Option<Reason> {
        match self {
            Self::None => None,
            Self::Perhaps => Some(Reason::UpstreamGap),
            Self::Certain(reason) => Some(reason),
        }
    }
}

impl<W: World> StreamTask<W> {
    /// While a backend's standalone stream does not stand, what it sends goes nowhere: whoever was told where the stream
    /// begins is told of that once it stands.
    pub(crate) fn gap_until_it_stands(&self) -> Gap {
        match (&self.source, self.gap) {
            (Source::Opening(_) | Source::Waiting { .. }, Gap::None | Gap::Perhaps) => Gap::Perhaps,
            (Source::Opening(_) | Source::Waiting { .. }, certain @ Gap::Certain(_)) => certain,
            (
                Source::Reading(_)
                | Source::Draining(..)
                | Source::Polled { .. }
                | Source::Answering(..)
                | Source::Over,
                _,
            ) => Gap::None,
        }
    }

    /// When whoever listens is told to read again, at a reset for this reason: one whose answer says no more than that there
    /// is a gap, once that has an end.
    pub(crate) fn reread(&self, told: Reason, answered: Option<&(Presented, Waiting)>) -> Reread {
        match (self.gap, answered) {
            (Gap::Certain(reason), Some(_)) if reason == told => Reread::Later,
            (Gap::None | Gap::Perhaps | Gap::Certain(_), _) => Reread::Now,
        }
    }

    /// Answers a listener whose cursor can be met: all that follows it is held.
    pub(crate) fn met(&mut self, from: Seq, waiting: Waiting) {
        match self.gap {
            Gap::None | Gap::Perhaps => self.promise_resumed(from, waiting),
            Gap::Certain(reason) => {
                let again = resume::again(from, self.log.span());
                self.turn(reason, again, Some((Presented::Cursor, waiting)));
            }
        }
    }

    /// Answers a listener without a cursor.
    pub(crate) fn begin_anew(&mut self, waiting: Waiting) {
        match resume::without_cursor(self.standalone()) {
            WithoutCursor::Live => {
                self.gap = self.gap_until_it_stands();
                let verdict = Verdict::Live { epoch: self.epoch };
                self.promise(Seq::START, Presented::Nothing, verdict, waiting);
            }
            WithoutCursor::Reset { reason, again } => {
                self.turn(reason, again, Some((Presented::Nothing, waiting)));
            }
        }
    }

    fn standalone(&self) -> resume::Standalone {
        let span = self.log.span();
        match (self.session.standalone_written(), self.gap) {
            (Written::Never, _) if !self.relay.is_alone() => {
                resume::Standalone::PerhapsWrittenElsewhere { span }
            }
            (Written::Never, Gap::Certain(reason)) => {
                resume::Standalone::NeverWrittenAndLost { span, reason }
            }
            (Written::Never, Gap::None | Gap::Perhaps) => resume::Standalone::NeverWritten { span },
            (Written::Something, _) => {
                let acked = self.reader.as_ref().map_or(self.acked, Reader::acked);
                resume::Standalone::Written { acked, span }
            }
            (Written::Unknown, _) => resume::Standalone::Revived,
        }
    }
}

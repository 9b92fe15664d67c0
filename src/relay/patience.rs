//! What time asks of a stream: comments, ends, expiries, another try.
//! Law: looked at when the sweep reminds, never per event; the stream itself says when it wants to be reminded next.
//! Next: `sweep_task.rs`; the rule is `pure/stream/attach.rs`.

use std::sync::Arc;

use tracing::info;

use crate::pure::epoch::Reason;
use crate::pure::log::Millis;
use crate::pure::sse::encode;
use crate::pure::stream::attach::Due;
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::sweep_task::Sleeper;
use crate::relay::world::World;
use crate::store::StreamLog;

impl<W: World> StreamTask<W> {
    /// Does what is due. Call: at each wake; it looks only when the reminder's time has come.
    pub(crate) fn look_at_clock(&mut self, now: Millis) {
        if now < self.remind_at {
            return;
        }
        self.remind_at = Millis(u64::MAX);
        let patience = self.session.patience();
        if let Some(reader) = &mut self.reader {
            match patience.due(reader.standing(), now) {
                Due::Later(_) | Due::GiveUp => {}
                Due::Comment => reader.say(encode::COMMENT),
                Due::EndConnection => {
                    info!(session = %self.session.label(), stream = %self.name, "client took nothing for too long; its connection ends");
                    self.end_connection(now);
                }
            }
        }
        match &self.source {
            Source::Draining(_, until) if now >= *until => self.source = Source::Over,
            Source::Waiting { until, .. } if now >= *until => {
                self.ask_if_healthy(now);
            }
            Source::Answering(_, until) if now >= *until => self.not_reattached(Reason::BackendLost, now),
            Source::Draining(..) | Source::Waiting { .. } | Source::Answering(..) => {}
            Source::Reading(_) | Source::Opening(_) | Source::Polled { .. } | Source::Over => {}
        }
        self.look_at_pursuit(now);
        self.answer_early(now);
        self.log.shed(now, None);
        if self.reader.is_none()
            && self.awaited.is_none()
            && self.early.is_empty()
            && now >= self.expires_at()
        {
            self.expire();
        }
    }

    /// Asks for a reminder at the next time that matters, unless one stands that is early enough.
    pub(crate) fn ask_for_reminder(&mut self, now: Millis) {
        let patience = self.session.patience();
        let mut due = u64::MAX;
        if let Some(reader) = &self.reader {
            let wait = if reader.is_idle() {
                patience.keepalive
            } else {
                patience.stall
            };
            due = due.min(reader.took_at.0.saturating_add(wait.0));
        }
        match &self.source {
            Source::Draining(_, until) | Source::Waiting { until, .. } | Source::Answering(_, until) => {
                due = due.min(until.0);
            }
            Source::Reading(_) | Source::Opening(_) | Source::Polled { .. } | Source::Over => {}
        }
        if let Some(until) = self.pursuit_ends() {
            due = due.min(until.0);
        }
        if let Some(early) = self.early.first() {
            due = due.min(early.until.0);
        }
        if self.reader.is_none() && self.awaited.is_none() {
            due = due.min(self.expires_at().0);
        }
        // A reminder that stands is good enough unless it would come too late.
        if self.relay.sweep.moment(Millis(due), now) < self.remind_at {
            let sleeper = Sleeper::Stream(Arc::downgrade(&self.mailbox));
            self.remind_at = self.relay.sweep.remind(Millis(due), now, sleeper);
        }
    }
}

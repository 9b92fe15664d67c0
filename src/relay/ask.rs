//! What a client that (re)connects to a stream gets, and how its connection comes into the stream.
//! Law: the newest connection wins; the old one gets no further frame. A cursor is honoured whole or refused aloud.
//! Between the answer and the connection the position is held: what was promised can't be evicted meanwhile.
//! Next: `pure/resume.rs`, `pure/stream/attach.rs`, `gap.rs`, `turn.rs`.

use std::sync::Arc;

use http::HeaderMap;
use tracing::debug;

use crate::pure::epoch::{Reason, Seq};
use crate::pure::event_id::StreamName;
use crate::pure::log::{EndMark, Millis};
use crate::pure::refusal::{self, Failure};
use crate::pure::resume::{self, Again, Resume};
use crate::pure::sse::encode;
use crate::pure::stream::attach::{Boundary, Presented, Standing, succession};
use crate::pure::stream::{Agent, Answers, Greeting, Succession};
use crate::relay::again::Acknowledged;
use crate::relay::answer::{Attach, Opening, Tells};
use crate::relay::canned_task;
use crate::relay::farewell::Late;
use crate::relay::headers::{self, Verdict};
use crate::relay::mailbox::{Asked, Command, Mailbox, Reply};
use crate::relay::missed::{Missed, told_in_turn};
use crate::relay::outcome::FirstHead;
use crate::relay::reader::{Parting, Reader};
use crate::relay::sink::{ClientSink, Ending};
use crate::relay::source::Source;
use crate::relay::stream_task::StreamTask;
use crate::relay::turn::Waiting;
use crate::relay::world::World;
use crate::store::StreamLog;

/// A client that was answered and has not brought its connection yet.
pub(crate) struct Awaited {
    ask: u32,
    /// From here it will be served.
    pub(crate) from: Seq,
    /// The position that its priming event names.
    primed: Seq,
    agent: Agent,
    presented: Presented,
    /// Requests of a batch whose answers are held no more, and why: it is told before anything else.
    missed: Vec<Missed>,
}

/// A client that asks before the backend answered the first upstream GET: it waits for that answer, bounded.
pub(crate) struct Early {
    /// What it presents.
    pub(crate) asked: Asked,
    /// Who waits.
    pub(crate) waiting: Waiting,
    /// How long.
    pub(crate) until: Millis,
}

/// How long a first GET waits for the backend's head, in milliseconds, so that a 405 can be passed on.
const FIRST_HEAD_MS_MAX: u64 = 2_000;

/// Clients that wait for it at a time: more than one client ever opens. One more is answered at once.
const EARLY_MAX: usize = 8;

/// The way from an answer to its stream.
struct Ticket {
    mailbox: Arc<Mailbox>,
    ask: u32,
    tells: Tells,
    state: TicketState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TicketState {
    Open,
    Used,
}

impl Attach for Ticket {
    fn attach(mut self: Box<Self>, sink: Box<dyn ClientSink>) {
        self.state = TicketState::Used;
        self.mailbox.post(Command::Attach { ask: self.ask, sink });
    }

    fn tells(&self) -> Tells {
        self.tells
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.state == TicketState::Open {
            self.mailbox.post(Command::Abandon { ask: self.ask });
        }
    }
}

impl<W: World> StreamTask<W> {
    /// Answers a client that asks.
    pub(crate) fn ask(&mut self, asked: Asked, waiting: Waiting, now: Millis) {
        match self.name {
            StreamName::Post(_) => self.ask_post(asked, waiting, now),
            StreamName::HttpSse => self.ask_http_sse(asked, waiting),
            StreamName::Get => match &self.source {
                Source::Opening(_) if self.first_head == FirstHead::Due && self.early.len() < EARLY_MAX => {
                    let until = Millis(now.0 + FIRST_HEAD_MS_MAX);
                    self.early.push(Early {
                        asked,
                        waiting,
                        until,
                    });
                }
                Source::Opening(_)
                | Source::Reading(_)
                | Source::Draining(..)
                | Source::Waiting { .. }
                | Source::Polled { .. }
                | Source::Answering(..)
                | Source::Over => self.ask_standalone(asked, waiting),
            },
        }
    }

    fn ask_post(&mut self, asked: Asked, waiting: Waiting, now: Millis) {
        let seq = match asked {
            Asked::At(epoch, seq) if epoch == self.epoch => seq,
            Asked::Again => return self.ask_again(waiting, now),
            // Only a cursor of this very stream leads here.
            Asked::At(..) | Asked::Nothing | Asked::Unusable(_) => return waiting.answer(Reply::Closed),
        };
        match self.decide(seq) {
            Resume::Ended => waiting.answer(Reply::Ended),
            Resume::UpToDate { at: from } | Resume::Replay { from, .. } => {
                self.promise_resumed(from, waiting)
            }
            Resume::Gap { reason, .. } | Resume::OtherEpoch { reason } => {
                self.unmet(seq, reason, waiting, now)
            }
            // Of what it says it had, nothing is known.
            Resume::FromTheFuture { .. } => self.unmet(Seq::START, Reason::CursorFuture, waiting, now),
        }
    }

    /// A cursor that can't be honoured: the responses that are held, and an error for each request whose response is not,
    /// and which the client can't have had by then.
    fn unmet(&mut self, had: Seq, reason: Reason, waiting: Waiting, now: Millis) {
        let span = self.log.span();
        if self.life.is_over() && span.first <= span.last {
            let before_held = Seq::new(span.first.get().saturating_sub(1));
            let from = match self.life.brings() {
                // The last event is the one response.
                Answers::One => Seq::new(span.last.get().saturating_sub(1)),
                Answers::Several => before_held,
            };
            // Nobody stands past what the log promises, as far as that is held.
            let from = from.min(self.kept.max(before_held));
            let placed = self.life.placed_between(had, span.first);
            let missed = told_in_turn((had, from), placed, reason);
            let verdict = Verdict::Reset {
                reason,
                epoch: self.epoch,
            };
            self.promise(from, Presented::Cursor, verdict, waiting);
            if let Some(awaited) = &mut self.awaited {
                if !missed.is_empty() {
                    // A client that is cut before it heard of them presents this again, and hears of them again.
                    awaited.primed = had;
                }
                awaited.missed = missed;
            }
            return;
        }
        let mut unanswered = self.life.answers_between(had, Seq::new(u64::MAX));
        unanswered.extend(self.life.open_ids().iter().cloned());
        // From here on the requests have their outcome: what the backend still says is dropped.
        waiting.answer(Reply::Unmet { reason, unanswered });
        self.give_up(reason, now);
    }

    pub(crate) fn ask_standalone(&mut self, asked: Asked, waiting: Waiting) {
        match asked {
            // The epoch ended while the client was on its way: a position of the old one says nothing in the new one.
            // Whoever looks again finds how it ended.
            Asked::At(epoch, _) if epoch != self.epoch => waiting.answer(Reply::Closed),
            Asked::At(_, seq) => match self.decide(seq) {
                Resume::UpToDate { at: from } | Resume::Replay { from, .. } => self.met(from, waiting),
                Resume::Ended => waiting.answer(Reply::Ended),
                Resume::Gap { reason, .. } | Resume::OtherEpoch { reason } => {
                    self.turn(reason, Again::Nothing, Some((Presented::Cursor, waiting)));
                }
                Resume::FromTheFuture { .. } => {
                    self.turn(
                        Reason::CursorFuture,
                        Again::Nothing,
                        Some((Presented::Cursor, waiting)),
                    );
                }
            },
            Asked::Unusable(reason @ (Reason::CursorUnknown | Reason::CursorForeign))
                if self.reader.is_some() =>
            {
                // Whoever holds the stream keeps it: a cursor that proves nothing supersedes nobody.
                waiting.answer(Reply::Private(reason));
            }
            Asked::Again => waiting.answer(Reply::Closed),
            Asked::Unusable(reason) => self.turn(reason, Again::Nothing, Some((Presented::Cursor, waiting))),
            Asked::Nothing => self.begin_anew(waiting),
        }
    }

    pub(crate) fn decide(&self, seq: Seq) -> Resume {
        let end = if self.life.is_over() {
            EndMark::Last
        } else {
            EndMark::Open
        };
        if seq > self.kept {
            // Nobody was shown what the log does not promise yet.
            return Resume::FromTheFuture { last: self.kept };
        }
        resume::within(seq, self.log.span(), end)
    }

    pub(crate) fn promise_resumed(&mut self, from: Seq, waiting: Waiting) {
        let replayed = self.log.span().last.since(from);
        let window = self.session.pool.config.stream.replay_events_max;
        let verdict = Verdict::Resumed {
            epoch: self.epoch,
            from: from.get(),
            replayed,
            window,
        };
        self.promise(from, Presented::Cursor, verdict, waiting);
    }

    fn next_ask(&mut self) -> u32 {
        self.asks = self.asks.wrapping_add(1);
        self.asks
    }

    /// Promises a position to a client that will bring its connection.
    pub(crate) fn promise(&mut self, from: Seq, presented: Presented, verdict: Verdict, waiting: Waiting) {
        let Waiting { agent, reply } = waiting;
        let held = self
            .reader
            .as_ref()
            .map_or(from, |reader| reader.written().min(from));
        self.log.hold(Some(held));
        self.relay.verdict(&self.session, &self.name, verdict);
        let ask = self.next_ask();
        let ticket = Ticket {
            mailbox: Arc::clone(&self.mailbox),
            ask,
            tells: match (&self.name, verdict) {
                // What is held of an answer comes without a word on what is not.
                (StreamName::Post(_), Verdict::Reset { .. }) => Tells::InTheHead,
                (StreamName::Post(_) | StreamName::Get | StreamName::HttpSse, _) => Tells::OnTheStream,
            },
            state: TicketState::Open,
        };
        let headers = headers::of_stream(HeaderMap::new(), verdict);
        self.awaited = Some(Box::new(Awaited {
            ask,
            from,
            primed: from,
            agent,
            presented,
            missed: Vec::new(),
        }));
        // If the asker is gone, the ticket comes back as `Abandon`.
        let _ = reply.send(Reply::Open(Opening {
            headers,
            ticket: Box::new(ticket),
        }));
    }

    /// The first connection of a POST's answer, promised when the stream was made.
    pub(crate) fn first_opening(&mut self, headers: HeaderMap) -> Opening {
        let (ask, from) = (self.next_ask(), Seq::START);
        self.awaited = Some(Box::new(Awaited {
            ask,
            from,
            primed: from,
            agent: self.agent,
            presented: Presented::Cursor,
            missed: Vec::new(),
        }));
        let verdict = Verdict::Live { epoch: self.epoch };
        self.relay.verdict(&self.session, &self.name, verdict);
        let ticket = Ticket {
            mailbox: Arc::clone(&self.mailbox),
            ask,
            tells: Tells::OnTheStream,
            state: TicketState::Open,
        };
        Opening {
            headers: headers::of_stream(headers, verdict),
            ticket: Box::new(ticket),
        }
    }

    /// A client brings its connection.
    pub(crate) fn attach(&mut self, ask: u32, sink: Box<dyn ClientSink>, now: Millis) {
        let awaited = match self.awaited.take() {
            Some(awaited) if awaited.ask == ask => awaited,
            other => {
                // A newer client asked meanwhile: this one ends before it began, and may come back.
                self.awaited = other;
                let mut frames = Vec::new();
                if self.agent.bears_retry() {
                    encode::retry(&mut frames, self.relay.jittered_retry_ms(&self.session));
                }
                return self.see_off(Parting::saying(sink, frames), Ending::Close, Late::LetGo);
            }
        };
        self.make_way(awaited.presented, now);
        self.session.attached(now);
        self.strike_late();
        let first_words = self.first_words(&awaited);
        self.log.hold(Some(awaited.from));
        self.agent = awaited.agent;
        self.receipt = Acknowledged::Unknown;
        self.reader = Some(Reader::new(sink, awaited.from, first_words, now));
        if let Some(reason) = self.lost_its_log() {
            return self.tell_unkept(awaited.primed, reason, now);
        }
        self.client_came_to_poll(now);
        if self.name == StreamName::Get && self.relay.running.is_draining() {
            self.send_away(self.relay.jittered_retry_ms(&self.session), now);
        }
    }

    /// The connection that stands makes way for a newer one: it ends, or is set aside while it is alive.
    pub(crate) fn make_way(&mut self, presented: Presented, now: Millis) {
        let keepalive = Millis(self.session.pool.config.stream.keepalive.as_millis() as u64);
        let standing = self.reader.as_ref().map(|reader| Standing {
            took_at: reader.took_at,
            at: if reader.at_boundary() {
                Boundary::Whole
            } else {
                Boundary::Half
            },
        });
        let how = succession(standing, presented, now, keepalive);
        let Some(old) = self.release_reader(now) else {
            return;
        };
        match how {
            Succession::SetAside => {
                let parting = old.part(&self.log, self.kept);
                canned_task::hold(&self.relay, &self.session, self.agent, parting);
            }
            Succession::End | Succession::FinishFrame | Succession::Vacant => {
                debug!(session = %self.session.label(), stream = %self.name, "a newer connection took the stream");
                self.see_off(old.part(&self.log, self.kept), Ending::Close, Late::Reset);
            }
        }
    }

    /// What a connection is told before anything of the log: something at once, and an id where it is understood.
    fn first_words(&self, awaited: &Awaited) -> Vec<u8> {
        let mut frames = Vec::new();
        let id = self.prime_id(awaited.primed);
        if self.name == StreamName::HttpSse {
            self.announce(&id, &mut frames);
            return frames;
        }
        let greeting = self.session.greeting(awaited.agent);
        greet(
            &mut frames,
            &id,
            greeting,
            self.relay.base_retry_ms(&self.session),
        );
        let mut id = Vec::new();
        for Missed {
            id: request,
            reason,
            told_at,
        } in &awaited.missed
        {
            let failure = Failure::Reset {
                reason: *reason,
                epoch: self.epoch,
            };
            id.clear();
            // It stands outside the log, in the place of the answer that went.
            self.prefix.event(*told_at, &mut id);
            encode::frame(&mut frames, &id, b"", &refusal::error(request, failure));
        }
        frames
    }

    /// A client that asked went away before it brought its connection.
    pub(crate) fn abandon(&mut self, ask: u32, now: Millis) {
        if self.awaited.as_ref().is_none_or(|awaited| awaited.ask != ask) {
            return;
        }
        self.awaited = None;
        match &self.reader {
            Some(reader) => self.log.hold(Some(reader.written())),
            None => {
                self.log.hold(None);
                self.detached_since = now;
            }
        }
    }
}

/// Writes a greeting with this id.
pub(crate) fn greet(frames: &mut Vec<u8>, id: &[u8], greeting: Greeting, retry_ms: u64) {
    match greeting {
        Greeting::Prime => encode::prime(frames, id, Some(retry_ms)),
        Greeting::PrimeWithoutRetry => encode::prime(frames, id, None),
        Greeting::EarlyCursor => encode::frame(frames, id, b"ping", b"{}"),
        Greeting::Comment => frames.extend_from_slice(encode::COMMENT),
    }
}

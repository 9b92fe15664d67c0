//! A session that its backend has lost: it ends, or it is begun anew under the same client id, in the background.
//! Law: one loss is seen to once, whoever finds it; a client's DELETE wins; after the end nothing of it ever succeeds.
//! Streams are told at once: calls get their error. When the session stands again, listeners get their resync.
//! Absent on purpose: the rules (`pure/session/loss.rs`) and what is said to the new backend (`renew.rs`).
//! Next: `renew.rs`, `refuse.rs`, `aftermath.rs`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::config::resolved::Sessions;
use crate::pure::session::loss::{Attempt, Facts, Hopeless, Known, Leaves, Loss};
use crate::pure::session::{Asks, Ended, Generation, LossCause, Losses, OnSessionLoss, Phase, Restored};
use crate::pure::session_token::Transport;
use crate::relay::Relay;
use crate::relay::gate::{self, Heard};
use crate::relay::home::Home;
use crate::relay::mailbox::Command;
use crate::relay::pool::Request;
use crate::relay::renew::{self, Renewal, Renewed};
use crate::relay::running::LAST_WORDS_MAX;
use crate::relay::session::Session;
use crate::relay::world::World;
use crate::upstream::Deadline;

/// How long a change is waited for that may be missed, before it is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How long a credential that was refused is not tried again, unless another one is shown.
const DENIED_AGAIN: Duration = Duration::from_secs(10);

/// What becomes of a session that was found lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// It is being begun anew, or was already.
    GoesOn,
    /// It is over.
    Over,
}

/// What of a client's message is for the session's present life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    /// What there is to send.
    Something,
    /// Nothing: it answers requests that died with an earlier one.
    Nothing,
}

/// Makes a message fit the session's present life: ids of the backend's requests become its own again, and answers to
/// requests of an earlier life are left out and counted (wire contract, section 6).
pub(crate) fn fit<W: World>(
    session: &Session<W>,
    generation: Generation,
    asks: Asks,
    request: &mut Request,
) -> Fit {
    match asks {
        Asks::Notices => {}
        // A single request holds no answer; a batch may.
        Asks::Tool | Asks::Other if request.body.trim_ascii_start().starts_with(b"[") => {}
        Asks::Tool | Asks::Other => return Fit::Something,
    }
    let dropped = &session.pool.instruments.notices_dropped;
    match generation.restore(&request.body) {
        Restored::AsItCame => Fit::Something,
        Restored::Like {
            body,
            dropped: answers,
        } => {
            dropped.add(answers);
            request.body = Bytes::from(body);
            Fit::Something
        }
        Restored::Dropped { dropped: answers } => {
            dropped.add(answers);
            debug!(session = %session.label(), answers, "answers to an earlier life of the session were dropped");
            Fit::Nothing
        }
    }
}

impl<W: World> Session<W> {
    /// What is done if its backend loses it. Where sessions keep nothing, there is nothing to announce.
    pub(crate) fn loss_rule(&self) -> OnSessionLoss {
        match self.transport {
            Transport::Streamable => {}
            // Nobody can begin it anew: it lives and dies with its stream.
            Transport::HttpSse => return OnSessionLoss::Terminate,
        }
        match (self.pool.config.session.on_loss, self.pool.config.sessions) {
            (OnSessionLoss::Announce, Sessions::None) => OnSessionLoss::Reinitialize,
            (rule, Sessions::Replica | Sessions::Shared | Sessions::None) => rule,
        }
    }
}

impl<W: World> Relay<W> {
    /// The session was found lost in this life of it. Whoever finds it may say so; it is seen to once.
    pub(crate) fn lost(
        self: &Arc<Self>,
        session: &Arc<Session<W>>,
        of: Generation,
        cause: LossCause,
    ) -> Lost {
        match session.phase() {
            Phase::Live => {}
            Phase::Ending | Phase::Ended(_) => return Lost::Over,
        }
        let facts = Facts {
            rule: session.loss_rule(),
            opening: session.opening.as_ref().map_or(Known::No, |_| Known::Yes),
            called: session.standing.called(),
        };
        let now = self.now();
        let loss = session.standing.change(|losses| {
            if session.home().generation == of {
                losses.lost(facts, now)
            } else {
                Loss::Known
            }
        });
        match loss {
            Loss::Known => return Lost::GoesOn,
            Loss::End(_) | Loss::Recover => {}
        }
        let home = session.home();
        session.pool.instruments.sessions_lost.one(cause);
        warn!(upstream = %session.pool.config.name, replica = %home.replica.authority(), session = %session.label(), cause = cause.as_str(), "session was lost by its backend");
        match loss {
            Loss::End(why) => {
                let why = match session.transport {
                    Transport::Streamable => why,
                    Transport::HttpSse => Hopeless::Transport,
                };
                self.give_up(session, why);
                Lost::Over
            }
            Loss::Known | Loss::Recover => {
                for mailbox in session.mailboxes() {
                    mailbox.post(Command::Lost);
                }
                let work = recover(Arc::clone(self), Arc::clone(session), home, cause);
                tokio::spawn(work);
                Lost::GoesOn
            }
        }
    }

    fn give_up(&self, session: &Session<W>, why: Hopeless) {
        info!(session = %session.label(), why = why.as_str(), "lost session does not go on");
        self.end_session(session, Ended::BackendLost);
    }

    /// A session's new home: streams are told, then whoever waits goes on.
    fn regain(self: &Arc<Self>, session: &Arc<Session<W>>, renewed: Renewed) -> Result<(), Phase> {
        let Renewed { seat, signs } = renewed;
        let home = session.move_to(seat, signs)?;
        for mailbox in session.mailboxes() {
            mailbox.post(Command::Regained);
        }
        session.pool.instruments.sessions_regained.one();
        info!(upstream = %session.pool.config.name, replica = %home.replica.authority(), session = %session.label(), generation = %home.generation, "lost session goes on");
        session.standing.change(Losses::regained);
        Ok(())
    }
}

async fn recover<W: World>(relay: Arc<Relay<W>>, session: Arc<Session<W>>, old: Arc<Home>, cause: LossCause) {
    let over = match attempts(&relay, &session).await {
        Ok(()) => Over::No,
        Err(over) => over,
    };
    match over {
        Over::Hopeless(why) => relay.give_up(&session, why),
        Over::No => {}
        // Its end was its client's, or its time's; whoever ended it has told its backend.
        Over::Ended => return,
    }
    match cause.leaves() {
        Leaves::Nothing => {}
        Leaves::Something => take_leave(&session, &old).await,
    }
}

/// Why a session is not begun anew any more.
enum Over {
    No,
    Hopeless(Hopeless),
    Ended,
}

/// Which credentials were tried to begin a session anew.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    Nothing,
    /// One that is not accepted; what is offered goes next.
    Refused,
}

/// Whether there is another credential to try.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Another,
    Nothing,
}

impl Tried {
    /// Takes what was offered since the last one was refused.
    fn next<W: World>(self, session: &Session<W>) {
        match self {
            Self::Nothing => {}
            Self::Refused => {
                if let Some(offered) = session.standing.take_offered() {
                    session.standing.try_with(offered);
                }
            }
        }
    }

    /// It was not accepted: is there another one?
    fn refused<W: World>(&mut self, session: &Session<W>) -> Next {
        *self = Self::Refused;
        match session.standing.take_offered() {
            Some(offered) => {
                session.standing.try_with(offered);
                Next::Another
            }
            None => Next::Nothing,
        }
    }
}

/// Tries until the session stands again.
async fn attempts<W: World>(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>) -> Result<(), Over> {
    // The credential that was accepted before goes first: a request that waits has proved nothing yet.
    let mut tried = Tried::Nothing;
    let mut denied_until = Instant::now();
    loop {
        match session.phase() {
            Phase::Live => {}
            Phase::Ending => {
                session.standing.changed_until(Instant::now() + LOOK_AGAIN).await;
                continue;
            }
            Phase::Ended(_) => return Err(Over::Ended),
        }
        let now = relay.now();
        match session.standing.look(|losses| losses.attempt(now)) {
            Attempt::Now if session.standing.is_denied() && Instant::now() < denied_until => {
                // The client's next request may bring another credential; this one may be accepted again.
                session.standing.changed_until(Instant::now() + LOOK_AGAIN).await;
                continue;
            }
            Attempt::Now => tried.next(session),
            Attempt::At(at) => {
                let wait = Duration::from_millis(at.0.saturating_sub(now.0));
                session.standing.changed_until(Instant::now() + wait).await;
                continue;
            }
            Attempt::Never(why) => return Err(Over::Hopeless(why)),
        }
        let renewal = {
            // Waited for while this task is small: a crowd of sessions may be lost at one moment.
            let _few = session.pool.few_at_a_time().await;
            Box::pin(renew::renew(relay, session)).await
        };
        let now = relay.now();
        match renewal {
            Renewal::Nobody => session.standing.look(|losses| losses.unreached(now)),
            Renewal::Failed => session.standing.look(|losses| losses.reached(now)),
            Renewal::Denied(answer) => match tried.refused(session) {
                Next::Another => {}
                Next::Nothing => {
                    denied_until = Instant::now() + DENIED_AGAIN;
                    session.standing.set_denied(Some(answer));
                }
            },
            Renewal::Hopeless(why) => return Err(Over::Hopeless(why)),
            Renewal::Renewed(renewed) => {
                session.standing.set_denied(None);
                session.standing.look(|losses| losses.reached(now));
                if let Some(offer) = session.standing.take_tried() {
                    let shown = session.read_credential(relay, offer.fields());
                    let heard = (shown, Heard::Accepted);
                    gate::note(&mut session.record(), relay, &session.pool, heard, now);
                }
                let (seat, signs) = (renewed.seat.replica().clone(), renewed.signs.clone());
                if relay.regain(session, renewed).is_ok() {
                    return Ok(());
                }
                // A DELETE came meanwhile: what was just begun ends too.
                renew::end(session, &seat, &signs).await;
            }
        }
    }
}

/// The old backend may still hold the session: it is told that nobody comes back.
async fn take_leave<W: World>(session: &Session<W>, old: &Home) {
    let request = Request::own(Method::DELETE, session.own_fields(), Bytes::new());
    let deadline = Deadline::after(LAST_WORDS_MAX);
    let told = session
        .pool
        .send_once(&old.replica, old.known_by(), &request, deadline);
    if told.await.is_err() {
        debug!(session = %session.label(), "the old backend was not told that a session was left");
    }
}

//! A GET whose credential nobody has judged yet: held on comments until its backend has spoken.
//! Law: it confirms nothing: no verdict, no id, nothing of a cursor. When the credential is accepted, the true answer
//! follows on the same connection; whatever else comes of it, the connection ends with a `retry`, and the client's
//! next request hears it. It keeps no session alive.
//! Arms of its select, all cancel-safe: the client's going, the bell, the keep-alive's tick, the judgement.
//! Next: `gate.rs`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};

use crate::pure::session::Phase;
use crate::pure::sse::encode;
use crate::relay::Relay;
use crate::relay::answer::{Answer, Attach, Call, Tells};
use crate::relay::gate::{self, Admitted};
use crate::relay::reader::Parting;
use crate::relay::session::Session;
use crate::relay::sink::{ClientSink, Ending};
use crate::relay::world::World;
use crate::relay::{get, headers};
use crate::upstream::Backoff;

/// First wait before a backend is asked again, and the longest.
const AGAIN_BASE: Duration = Duration::from_millis(250);
const AGAIN_CAP: Duration = Duration::from_secs(10);

/// A GET that waits for its judgement.
pub(crate) struct Unproved<W: World> {
    relay: Arc<Relay<W>>,
    session: Arc<Session<W>>,
    call: Box<Call>,
}

impl<W: World> Unproved<W> {
    /// This one.
    pub(crate) fn new(relay: &Arc<Relay<W>>, session: &Arc<Session<W>>, call: Box<Call>) -> Self {
        Self {
            relay: Arc::clone(relay),
            session: Arc::clone(session),
            call,
        }
    }

    /// The next judgement, asked for after this wait.
    fn judged(&self, wait: Duration) -> Pin<Box<dyn Future<Output = Admitted> + Send>> {
        let (relay, session) = (Arc::clone(&self.relay), Arc::clone(&self.session));
        let fields = self.call.headers.clone();
        Box::pin(async move {
            sleep(wait).await;
            gate::admit(&relay, &session, &fields, gate::PROOF_MAX).await
        })
    }
}

impl<W: World> Attach for Unproved<W> {
    fn attach(self: Box<Self>, sink: Box<dyn ClientSink>) {
        tokio::spawn(held(*self, Parting::saying(sink, encode::COMMENT.to_vec())));
    }
}

/// How the holding ends.
enum Held {
    /// The client may have its answer.
    Admitted,
    /// It is sent away, to ask again.
    SentAway,
    /// It is gone.
    Gone,
}

async fn held<W: World>(unproved: Unproved<W>, mut parting: Parting) {
    match wait(&unproved, &mut parting).await {
        Held::Gone => return,
        Held::SentAway => {}
        Held::Admitted => {
            match get::get(&unproved.relay, &unproved.session, &unproved.call).await {
                Answer::Stream(opening) => match opening.ticket.tells() {
                    // What was sent are comments, whole: the stream begins as on a new connection.
                    Tells::OnTheStream => return opening.ticket.attach(parting.sink),
                    // The head was sent without a verdict: it asks again, and reads it there.
                    Tells::InTheHead => {}
                },
                Answer::Whole(_) | Answer::Passing(_) | Answer::Refused(_) => {}
            }
        }
    }
    let session = &unproved.session;
    if headers::agent_of(&unproved.call.headers).bears_retry() {
        encode::retry(&mut parting.rest, unproved.relay.jittered_retry_ms(session));
    }
    let bound = session.pool.config.stream.stall_max;
    if timeout(bound, parting.end(Ending::Close)).await.is_err() {
        parting.abort();
    }
}

async fn wait<W: World>(unproved: &Unproved<W>, parting: &mut Parting) -> Held {
    let Unproved { relay, session, .. } = unproved;
    let stream = &session.pool.config.stream;
    let mut tick = interval_at(tokio::time::Instant::now() + stream.keepalive, stream.keepalive);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::new(AGAIN_BASE, AGAIN_CAP);
    let mut judged = unproved.judged(backoff.next_wait(relay.chance()));
    loop {
        match timeout(stream.stall_max, parting.send()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Held::Gone,
        }
        let mut rung = std::pin::pin!(relay.bell.heard());
        rung.as_mut().enable();
        match session.phase() {
            Phase::Live | Phase::Ending => {}
            Phase::Ended(_) => return Held::SentAway,
        }
        if relay.running.is_draining() {
            return Held::SentAway;
        }
        select! {
            biased;
            _ = poll_fn(|cx| parting.sink.poll_gone(cx)) => return Held::Gone,
            () = rung => {}
            _ = tick.tick() => parting.and_say(encode::COMMENT),
            admitted = &mut judged => match admitted {
                Admitted::Yes => return Held::Admitted,
                Admitted::Stranger | Admitted::Denied(_) | Admitted::SessionGone => return Held::SentAway,
                Admitted::NotYet => judged = unproved.judged(backoff.next_wait(relay.chance())),
            },
        }
    }
}

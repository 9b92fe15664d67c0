//! The cases: a table of names, of what each does and what it means, and one small function for each.
//! Law: `../cases.md` says the same as this table, and a test holds that; a case has one name in reports, docs and flags.
//! Absent on purpose: judging (`../judge.rs`) and coming back (`../follow.rs`).
//! Next: `table.rs`, then `post.rs`, `cursor.rs`, `get.rs`, `session.rs`, `cancel.rs`, `restart.rs`, `stateless.rs`.

mod cancel;
mod cursor;
mod get;
mod post;
mod restart;
mod session;
mod stateless;
mod table;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::conformance::account::{Account, Came};
use crate::conformance::bench::{Bench, Reference};
use crate::conformance::follow::Follower;
use crate::conformance::outcome::Tried;
use crate::conformance::session::{Cursor, Running, Session};
use crate::conformance::trace::Trace;

pub use table::CASES;

/// So many messages of a sequence are had before the cut.
const BEFORE_CUT: usize = 2;

/// Beyond the time that a sequence takes: then it is surely over at the server.
const SURELY_OVER: Duration = Duration::from_millis(500);

/// One case under trial.
#[derive(Clone)]
pub(super) struct Trial {
    pub(super) bench: Arc<Bench>,
    pub(super) trace: Trace,
    /// The command that restarts the server, if the user gave one.
    pub(super) restart: Option<Arc<str>>,
}

/// A case that is being tried.
pub(super) type Trying = Pin<Box<dyn Future<Output = Tried> + Send>>;

/// Whether a case may be tried beside others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It may.
    Together,
    /// It may not: it takes the server away from all.
    Alone,
}

/// One case.
pub struct Case {
    /// Its name, the same everywhere.
    pub name: &'static str,
    /// What is done.
    pub does: &'static str,
    /// What an honest server does.
    pub honest: &'static str,
    /// What *silent* means here; empty where nothing can be lost silently.
    pub silent: &'static str,
    pub(super) turn: Turn,
    pub(super) run: fn(Trial) -> Trying,
}

impl Trial {
    async fn session(&self) -> Tried<Session> {
        Session::open(&self.bench.run, &self.trace).await
    }

    /// A call that was read up to the point where it is to be cut.
    async fn half_a_call(&self, session: &Session) -> Tried<Running> {
        let call = self.call()?;
        let mut running = session.call(&call.tool).await?;
        running.read(BEFORE_CUT, self.over(call)).await?;
        Ok(running)
    }

    /// An emission on a standalone stream, read up to the point where it is to be cut.
    async fn half_an_emission(&self, session: &Session) -> Tried<Running> {
        let emission = self.emission()?;
        let stream = session.standing().await?;
        let account = session.emit(&emission.tool).await?;
        let mut running = Running::reading(stream, account);
        running.read(BEFORE_CUT, self.over(emission)).await?;
        Ok(running)
    }

    fn call(&self) -> Tried<&Reference> {
        self.bench.call.as_ref().map_err(Clone::clone)
    }

    fn emission(&self) -> Tried<&Reference> {
        self.bench.emission.as_ref().map_err(Clone::clone)
    }

    /// Until when a sequence that begins now must be over.
    fn over(&self, reference: &Reference) -> Instant {
        Instant::now() + reference.took + self.bench.run.timeout
    }

    /// Comes back behind a cursor, or without one, until the sequence is over.
    async fn come_back(
        &self,
        session: &Session,
        account: &Account,
        reference: &Reference,
        cursor: Option<&Cursor>,
    ) -> Tried<Came> {
        let follower = returning(session, account, reference, cursor);
        follower.follow().await
    }

    /// The same after a restart: whoever stands before the server may take its time to learn what was lost.
    async fn come_back_late(
        &self,
        session: &Session,
        account: &Account,
        reference: &Reference,
        cursor: Option<&Cursor>,
    ) -> Tried<Came> {
        let mut follower = returning(session, account, reference, cursor);
        follower.until += restart::BACK_MAX;
        follower.follow().await
    }

    /// Presents a cursor of which nothing is to come.
    async fn present(&self, session: &Session, account: &Account, cursor: &str) -> Tried<Came> {
        let follower = Follower {
            session,
            account,
            last: None,
            cursor: Some(cursor.to_owned()),
            presented: None,
            until: session.soon(),
        };
        follower.follow().await
    }
}

fn returning<'a>(
    session: &'a Session,
    account: &'a Account,
    reference: &'a Reference,
    cursor: Option<&Cursor>,
) -> Follower<'a> {
    Follower {
        session,
        account,
        last: Some(reference.last()),
        cursor: cursor.map(|cursor| cursor.id.clone()),
        presented: None,
        until: session.soon() + reference.took,
    }
}

/// Waits until a sequence that has begun is surely over.
async fn surely_over(reference: &Reference) {
    sleep(reference.took + SURELY_OVER).await;
}

//! Where logs are kept: the contract that every store keeps.
//! Law: *log first, client second*: only what is kept may be shown. Nothing above this room knows which store it is.
//! An append may take time, or fail: `push` never waits, `poll_kept` says how far the promise reaches, and whether the log
//! can go on; what a loss comes to is the relay's (`relay/log_lost.rs`).
//! The epoch is the fencing token, and the log checks it: a writer that lost its claim is told `Fenced`.
//! Next: `store/memory.rs`.

use std::future::Future;
use std::task::{Context, Poll};

use crate::pure::epoch::{Epoch, Seq, Tombstone};
use crate::pure::log::{Bounds, Entry, Full, Millis, Position, Slices, Span, Struck, View};

pub mod memory;

#[cfg(test)]
pub(crate) mod contract;

/// What "kept" means in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// As long as this process lives.
    Memory,
    /// Written to this machine's disk and flushed.
    Fsync,
    /// Held by a shared service that outlives this process.
    Shared,
}

/// Names a stream's log across proxies: the session's uid and the stream part of its event ids; of a POST's also the
/// epoch, since an id may be used again.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StreamKey {
    /// The session's uid.
    pub session: [u8; 16],
    /// The stream part as it stands in an event id (`g`), of a POST's with its epoch (`pi7.AAECAwQFBgc`).
    pub stream: Box<str>,
}

/// What the opener wants of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The life that begins. It fences every earlier one.
    pub epoch: Epoch,
    /// How much it may hold.
    pub bounds: Bounds,
}

/// What a store knows of a stream that nobody here owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// Never heard of it.
    Nothing,
    /// A log of it is open, in this epoch, with this much kept.
    Alive {
        /// The epoch.
        epoch: Epoch,
        /// What is held of it.
        span: Span,
    },
    /// No log of it is open; these are the ends that are still remembered, newest last.
    Ended(Vec<Tombstone>),
}

/// Why a log can't go on. Sticky: the epoch must end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogLoss {
    /// Another owner claimed the stream.
    Fenced,
    /// The store lost events that it had promised to keep.
    Truncated {
        /// The newest position that is still whole.
        kept: Seq,
    },
    /// The store can't be reached or refused.
    Failed(String),
}

/// How a log is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// The stream is finished; the data stays readable until it expires.
    End,
    /// The data goes, the tombstone stays.
    Bury(Tombstone),
}

/// How the bytes that logs hold stand to their budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Within the budget.
    Within {
        /// Bytes still free.
        free: usize,
    },
    /// Over it.
    Over {
        /// By so many bytes, at least one.
        by: usize,
    },
}

/// A store of logs.
pub trait Store: Send + Sync + 'static {
    /// The owner's side of one log.
    type Log: StreamLog;

    /// What "kept" means here.
    fn promise(&self) -> Promise;

    /// Bytes of this process's memory that all its logs hold.
    fn held(&self) -> usize;

    /// How that stands to the budget (`memory.replay_max`).
    fn pressure(&self) -> Pressure;

    /// Begins a life of a stream's log.
    ///
    /// # Errors
    /// [`LogLoss::Failed`] if the store can't be reached, [`LogLoss::Fenced`] if a newer claim stands.
    fn open(&self, key: &StreamKey, claim: Claim) -> impl Future<Output = Result<Self::Log, LogLoss>> + Send;

    /// What is known of a stream, without owning it.
    ///
    /// # Errors
    /// [`LogLoss::Failed`] if the store can't be reached.
    fn peek(&self, key: &StreamKey) -> impl Future<Output = Result<Found, LogLoss>> + Send;
}

/// The owner's side of one log, fenced by its epoch.
pub trait StreamLog: Send + Unpin + 'static {
    /// Appends one event; never waits. The event is *not* kept before `poll_kept` says so.
    ///
    /// # Errors
    /// [`Full`]: its bounds are reached and a reader's position forbids eviction. Stop reading upstream.
    fn push(&mut self, entry: Entry<'_>, now: Millis) -> Result<Seq, Full>;

    /// How far the store's promise reaches; pending until it reaches past `past`.
    ///
    /// # Errors
    /// [`LogLoss`]: the epoch can't go on.
    fn poll_kept(&mut self, cx: &mut Context<'_>, past: Seq) -> Poll<Result<Seq, LogLoss>>;

    /// The wire bytes from `from` up to and including event `upto`, as slices of what is held. May offer fewer
    /// (a bounded number of slices); the caller sends them and asks again.
    fn view<'a>(&'a self, from: Position, upto: Seq, out: &mut Slices<'a>) -> View;

    /// The position that `sent` further bytes lead to. `sent` never exceeds what `view` offered.
    fn advance(&self, from: Position, sent: usize) -> Position;

    /// Puts other data in the place of an event's that must not be shown again: the first of `words` (each one line)
    /// that is no longer than what stood there, with spaces behind it. Its id, type and position stay, so that a replay
    /// has no hole. Call: never for a frame that is half sent.
    fn strike(&mut self, seq: Seq, words: &[&[u8]]) -> Struck;

    /// Forbids (or, with `None`, allows again) the eviction of anything after this position.
    fn hold(&mut self, reader: Option<Seq>);

    /// What is held.
    fn span(&self) -> Span;

    /// Lets go of what is too old, and, if `want` is given, of the oldest events until that many bytes are free.
    /// A held position is respected. Returns how many bytes went.
    fn shed(&mut self, now: Millis, want: Option<usize>) -> usize;

    /// Ends the log. Call: once, then nothing but `view`, `advance` and `span` (after [`Closing::End`]), or
    /// [`Closing::Bury`] after it. A fenced log may still be buried: how its own epoch ended, its owner knows best.
    ///
    /// # Errors
    /// [`LogLoss`]: the end could not be written.
    fn poll_close(&mut self, cx: &mut Context<'_>, how: Closing) -> Poll<Result<(), LogLoss>>;
}

//! The signals that end a process, SIGTERM and SIGINT from the keyboard, and the one that has it read its files again.
//! Law: the first one asks for a drain; a second one is somebody who will not wait: what runs is told, and then it ends;
//! a third one ends it at once.
//! Absent on purpose: what a drain is (`app.rs`), and what a reload is (`app/reload_task.rs`).
//! Next: `../app.rs`.

use std::io;

use super::Exit;
use crate::telemetry::lines::LastLines;

/// The signals that end a process, in the order in which they come.
pub struct Stop(Signals);

impl Stop {
    /// Catches them from the call on. Call: once, within a tokio runtime.
    ///
    /// # Errors
    /// The system does not let signals be caught.
    pub fn catch() -> io::Result<Self> {
        Signals::catch().map(Self)
    }

    /// Waits for the first one. Cancel-safe.
    pub async fn first(&mut self) {
        self.0.next().await;
    }

    /// Waits for the second one. From then on a third one ends the process with [`Exit::DrainRanOut`].
    pub async fn second(mut self) {
        self.0.next().await;
        tracing::warn!("a second signal cut the drain short");
        tokio::spawn(async move {
            self.0.next().await;
            tracing::warn!("a third signal ended the process");
            drop(LastLines);
            std::process::exit(Exit::DrainRanOut.code().into());
        });
    }
}

/// The signal that has a process read its configuration again: SIGHUP.
pub struct Hangup(HangupSignal);

impl Hangup {
    /// Catches it from the call on. Call: once, within a tokio runtime.
    ///
    /// # Errors
    /// The system does not let signals be caught.
    pub fn catch() -> io::Result<Self> {
        HangupSignal::catch().map(Self)
    }

    /// Waits for the next one. Cancel-safe.
    pub async fn next(&mut self) {
        self.0.next().await;
    }
}

#[cfg(unix)]
struct HangupSignal(tokio::signal::unix::Signal);

#[cfg(unix)]
impl HangupSignal {
    fn catch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self)
    }

    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
struct HangupSignal;

#[cfg(not(unix))]
impl HangupSignal {
    fn catch() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn catch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Cancel-safe.
    async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            // Either will do; both are asked, so that both wake.
            let terminate = self.terminate.poll_recv(cx);
            let interrupt = self.interrupt.poll_recv(cx);
            if terminate.is_ready() || interrupt.is_ready() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn catch() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        // Without a way to hear of Ctrl-C, the process runs until it is ended from outside.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

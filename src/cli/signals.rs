//! The signals that end a process: SIGTERM, and SIGINT from the keyboard.
//! Law: the first one asks for a drain; a second one is somebody who will not wait, and is obeyed.
//! Absent on purpose: what a drain is (`app.rs`).
//! Next: `../app.rs`.

use std::future::Future;
use std::io;

use super::Exit;

/// Ready at the first signal. From then on a second one ends the process with [`Exit::DrainRanOut`].
/// Call: once, within a tokio runtime; signals are caught from the call on, not from the first poll.
///
/// # Errors
/// The system does not let signals be caught.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut signals = Signals::catch()?;
    Ok(async move {
        signals.next().await;
        tokio::spawn(async move {
            signals.next().await;
            tracing::warn!("a second signal ended the drain");
            std::process::exit(Exit::DrainRanOut.code().into());
        });
    })
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

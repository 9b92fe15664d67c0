//! How the programs that try many things with real clients and servers go about it: a few at a time, in their order, and
//! with nothing left behind when they are told to end.
//! Next: `lab.rs`.

use std::future::Future;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// The words that this program was called with; what is run must have all of them in its name.
pub(crate) fn words() -> Vec<String> {
    let arguments = std::env::args().skip(1);
    arguments.filter(|word| !word.starts_with("--")).collect()
}

/// Does all of it, `at_once` at a time; what panicked is an error in its place.
pub(crate) async fn in_turns<T: Send + 'static>(
    at_once: usize,
    works: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<Result<T, JoinError>> {
    let turns = Arc::new(Semaphore::new(at_once));
    let mut tasks = Vec::new();
    for work in works {
        let turn = Arc::clone(&turns).acquire_owned().await;
        let turn = turn.expect("the turns are never closed");
        tasks.push(tokio::spawn(async move {
            let done = work.await;
            drop(turn);
            done
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await);
    }
    all
}

/// Does it unless this process is told to end; then what was started ends with it.
pub(crate) async fn unless_stopped<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut stop = signal(SignalKind::terminate()).expect("signals can be had");
    tokio::select! {
        biased;
        _ = stop.recv() => None,
        _ = tokio::signal::ctrl_c() => None,
        done = work => Some(done),
    }
}

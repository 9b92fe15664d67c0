//! Log lines on their way out: kept for a moment in memory, and written by a thread of their own.
//! Law: whoever logs never waits for whoever reads. What finds no room, or can't be written, is counted, and said as soon
//! as something can be written again. Lines are written whole and in order, many at once where many are there.
//! Why a thread, and no descriptor that does not block: standard error is shared with whoever started the process, and so
//! is that property of it. Why not the library's handle: a panic's message would wait for its lock.
//! Next: `subscriber.rs`.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use super::meters::Count;
use crate::pure::limits::{LOG_LINES_BYTES_KEPT, LOG_LINES_BYTES_MAX};

/// How long the end of the process waits for its last lines: a reader that is there has them in a moment.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// Lines that were lost, since the process began.
static LOST: LazyLock<Count> = LazyLock::new(|| Count(Counter::default()));

/// The lines of this process.
static OWN: OnceLock<Arc<Lines>> = OnceLock::new();

/// How many log lines were lost: for the metric.
pub(super) fn lost() -> Count {
    LOST.clone()
}

/// Begins to write lines to standard error, and what a panic says too. Call: once.
///
/// # Errors
/// Standard error can't be had, or no thread.
pub(super) fn begin() -> io::Result<Arc<Lines>> {
    let out = std::fs::File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let lines = Arc::new(Lines::default());
    let writing = Arc::clone(&lines);
    thread::Builder::new()
        .name("log".into())
        .spawn(move || writing.write_out(out, say_lost))?;
    let panicking = Arc::clone(OWN.get_or_init(|| Arc::clone(&lines)));
    std::panic::set_hook(Box::new(move |what| {
        let thread = thread::current();
        let name = thread.name().unwrap_or("without a name");
        let trace = std::backtrace::Backtrace::capture();
        let trace = match trace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("{trace}"),
            _ => String::new(),
        };
        panicking.push(format!("thread '{name}' {what}\n{trace}").as_bytes());
    }));
    Ok(lines)
}

/// The last lines are written, or given up after a while, when this is dropped.
#[derive(Debug)]
pub struct LastLines;

impl Drop for LastLines {
    fn drop(&mut self) {
        if let Some(lines) = OWN.get() {
            lines.flush(LAST_LINES_MAX);
        }
    }
}

fn say_lost(lines: u64) {
    tracing::error!(
        lines,
        "log lines were lost: they could not be written fast enough, or not at all"
    );
}

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// Something came.
    came: Condvar,
    /// All of it was written, or lost.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines that found no room since the last look.
    lost: u64,
    writer: Writer,
}

/// What the writing thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Writer {
    #[default]
    Idle,
    Busy,
}

impl Lines {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more line, or a few, if there is room.
    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.bytes.len() + line.len() > LOG_LINES_BYTES_MAX {
            waiting.lost += 1;
            LOST.one();
            return;
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if was_empty {
            self.came.notify_one();
        }
    }

    /// Waits for lines and puts them where there are none. How many found no room behind them.
    fn take(&self, into: &mut Vec<u8>) -> u64 {
        let mut waiting = self.waiting();
        waiting.writer = Writer::Idle;
        if waiting.bytes.is_empty() {
            self.done.notify_all();
        }
        while waiting.bytes.is_empty() {
            waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.writer = Writer::Busy;
        std::mem::swap(into, &mut waiting.bytes);
        std::mem::take(&mut waiting.lost)
    }

    /// Writes what comes, for ever. `say` is told how many lines were lost, once one could be written again.
    fn write_out(&self, mut out: impl Write, say: impl Fn(u64)) {
        let mut batch = Vec::new();
        let (mut lost, mut stands) = (0, Stands::AtALine);
        loop {
            batch.clear();
            batch.shrink_to(LOG_LINES_BYTES_KEPT);
            lost += self.take(&mut batch);
            match write_whole(&mut out, &batch, stands) {
                Ok(()) => {
                    stands = Stands::AtALine;
                    if lost > 0 {
                        say(std::mem::take(&mut lost));
                    }
                }
                Err(Unwritten { from, at }) => {
                    let rest = &batch[from..];
                    let lines = rest.iter().filter(|byte| **byte == b'\n').count() as u64;
                    LOST.add(lines);
                    (lost, stands) = (lost + lines, at);
                }
            }
        }
    }

    /// Waits until everything was written, for so long at most.
    fn flush(&self, wait: Duration) {
        let until = Instant::now() + wait;
        let mut waiting = self.waiting();
        while !(waiting.bytes.is_empty() && waiting.writer == Writer::Idle) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.done.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// One line at a time, as the library hands them over.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where what was written so far stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    AtALine,
    /// In a line that broke off.
    Within,
}

/// What could not be written: from here on.
#[derive(Debug, PartialEq, Eq)]
struct Unwritten {
    from: usize,
    at: Stands,
}

/// Writes all of it, behind the end of a line that broke off.
fn write_whole(out: &mut impl Write, batch: &[u8], stands: Stands) -> Result<(), Unwritten> {
    match stands {
        Stands::AtALine => {}
        Stands::Within => out.write_all(b"\n").map_err(|_| Unwritten {
            from: 0,
            at: Stands::Within,
        })?,
    }
    let mut from = 0;
    while from < batch.len() {
        match out.write(&batch[from..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                let at = match batch[..from].last() {
                    None | Some(b'\n') => Stands::AtALine,
                    Some(_) => Stands::Within,
                };
                return Err(Unwritten { from, at });
            }
            Ok(written) => from += written,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Takes so many bytes of each write, or fails, as told; then everything.
    struct Odd {
        takes: VecDeque<io::Result<usize>>,
        had: Vec<u8>,
    }

    impl Write for Odd {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = self.takes.pop_front().unwrap_or(Ok(bytes.len()))?;
            let taken = &bytes[..most.min(bytes.len())];
            self.had.extend_from_slice(taken);
            Ok(taken.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_broke_off_is_ended_before_the_next() {
        let check = |takes: Vec<io::Result<usize>>, stands, had: &str, left: Option<(usize, Stands)>| {
            let (takes, all) = (takes.into(), Vec::new());
            let mut out = Odd { takes, had: all };
            let written = write_whole(&mut out, b"one\ntwo\n", stands);
            let left = left.map(|(from, at)| Unwritten { from, at });
            assert_eq!(written.err(), left);
            assert_eq!(String::from_utf8(out.had).unwrap(), had);
        };
        let full = || Err(io::ErrorKind::StorageFull.into());
        let again = || Err(io::ErrorKind::Interrupted.into());
        check(vec![], Stands::AtALine, "one\ntwo\n", None);
        check(vec![Ok(2), again(), Ok(3)], Stands::AtALine, "one\ntwo\n", None);
        check(vec![full()], Stands::AtALine, "", Some((0, Stands::AtALine)));
        check(
            vec![Ok(4), full()],
            Stands::AtALine,
            "one\n",
            Some((4, Stands::AtALine)),
        );
        check(
            vec![Ok(5), full()],
            Stands::AtALine,
            "one\nt",
            Some((5, Stands::Within)),
        );
        check(vec![Ok(0)], Stands::AtALine, "", Some((0, Stands::AtALine)));
        check(vec![], Stands::Within, "\none\ntwo\n", None);
        check(vec![full()], Stands::Within, "", Some((0, Stands::Within)));
        check(
            vec![again(), Ok(1), full()],
            Stands::Within,
            "\n",
            Some((0, Stands::AtALine)),
        );
    }

    /// Says that it was asked to write, and waits until it is told what comes of it.
    struct Gate {
        asked: Sender<usize>,
        told: Receiver<io::Result<()>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            let _ = self.asked.send(lines);
            self.told.recv().unwrap_or(Ok(()))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_lost_is_said() {
        let lines = Arc::new(Lines::default());
        let (asked, asks) = channel();
        let (tell, told) = channel();
        let (say, said) = channel();
        let writing = Arc::clone(&lines);
        let out = Gate { asked, told };
        thread::spawn(move || writing.write_out(out, move |lost| say.send(lost).expect("it is heard")));
        let line = [&[b'x'; 1_023][..], b"\n"].concat();
        lines.push(&line);
        assert_eq!(asks.recv(), Ok(1), "it is being written, and nobody reads");
        let room = LOG_LINES_BYTES_MAX / line.len();
        for _ in 0..room + 7 {
            lines.push(&line);
        }
        assert_eq!(lines.waiting().lost, 7);
        // A write that fails loses its own lines, too; nothing is said before one succeeds.
        tell.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        assert_eq!(asks.recv(), Ok(room));
        tell.send(Ok(())).unwrap();
        assert_eq!(said.recv(), Ok(8));
        // And no more of them.
        lines.push(&line);
        assert_eq!(asks.recv(), Ok(1));
        tell.send(Ok(())).unwrap();
        lines.flush(Duration::from_secs(60));
        assert!(said.try_recv().is_err());
    }
}

//! The story of a process: arguments, then what they ask for, then an exit code.
//! Law: nothing is decided here. What a command does is in `cli.rs`, what a proxy is in `app.rs`.
//! Next: `cli.rs`, `app.rs`.

use std::cell::Cell;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use throughline::app::{App, Drained, StartError};
use throughline::cli::{self, Command, Exit};
use throughline::config::resolved::Config;
use throughline::config::{self, Flags};
use throughline::telemetry;
use throughline::telemetry::lines::LastLines;

/// A call allocates some twenty small things and frees them at once, across threads: glibc spends three times as much
/// on that, and gives less back after a storm.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often freed memory is given back. A look costs tens of microseconds with ten thousand sessions.
const TIDY_EVERY: Duration = Duration::from_secs(2);

/// How often it was time to.
static TIDINGS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The last of them that this thread has seen to.
    static TIDIED: Cell<u32> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(Command::Run(flags)) => {
            let _last = LastLines;
            run(&flags)
        }
        Ok(Command::Check(file, set)) => cli::check(&file, &set),
        Ok(Command::Decode(decode)) => cli::decode(&decode),
        Ok(Command::Conformance(ask)) => cli::conformance(&ask),
        Err(exit) => exit,
    }
    .into()
}

fn run(flags: &Flags) -> Exit {
    let (config, warnings) = match config::read(flags) {
        Ok(read) => read,
        Err(problems) => return complain(&problems, Exit::BadConfig),
    };
    if let Err(error) = telemetry::subscriber::set_up(&config.log) {
        return complain(&error, Exit::BadConfig);
    }
    for warning in warnings {
        tracing::warn!(key = warning.remark().key(), "{}", warning.remark().what());
    }
    let workers = match config.server.workers {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        set => set,
    };
    // One worker needs no other's work: the simpler scheduler has less to do per wake.
    let mut builder = if workers == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.on_thread_park(tidy_if_due);
    match builder.worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(config, flags.clone())),
        Err(error) => complain(&error, Exit::Failed),
    }
}

/// Gives back what this thread has freed and not used again, if it is time to. The allocator looks for such memory when
/// it is asked for more: who is idle after a storm would keep what the storm took.
#[allow(unsafe_code)]
fn tidy_if_due() {
    let now = TIDINGS.load(Ordering::Relaxed);
    if TIDIED.replace(now) != now {
        // SAFETY: it takes no pointer, and looks at nothing but what was freed; it may be called at any time by any thread.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

async fn call_to_tidy() {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        TIDINGS.fetch_add(1, Ordering::Relaxed);
    }
}

async fn serve(config: Config, flags: Flags) -> Exit {
    let (mut stop, hangup) = match cli::Stop::catch().and_then(|stop| Ok((stop, cli::Hangup::catch()?))) {
        Ok(signals) => signals,
        Err(error) => return complain(&error, Exit::Failed),
    };
    let mut app = match App::start(config).await {
        Ok(app) => app,
        Err(error @ (StartError::Serve(_) | StartError::Admin { .. })) => {
            return complain(&error, Exit::CannotBind);
        }
        Err(error @ (StartError::UpstreamTls(_) | StartError::Keys(_))) => {
            return complain(&error, Exit::BadConfig);
        }
    };
    app.follow(flags, hangup);
    tokio::spawn(call_to_tidy());
    stop.first().await;
    match app.drain_until(stop.second()).await {
        Drained::InOrder => Exit::Done,
        Drained::RanOut { .. } => Exit::DrainRanOut,
    }
}

fn complain(what: &dyn std::fmt::Display, exit: Exit) -> Exit {
    // What was logged comes first.
    drop(LastLines);
    // Nothing can be done for a closed standard error.
    let _ = writeln!(std::io::stderr(), "throughline: {what}");
    exit
}

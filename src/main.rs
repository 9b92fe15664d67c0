//! The story of a process: arguments, then what they ask for, then an exit code.
//! Law: nothing is decided here. What a command does is in `cli.rs`, what a proxy is in `app.rs`.
//! Next: `cli.rs`, `app.rs`.

use std::io::Write;
use std::process::ExitCode;

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
    match builder.worker_threads(workers).enable_all().build() {
        Ok(runtime) => runtime.block_on(serve(config, flags.clone())),
        Err(error) => complain(&error, Exit::Failed),
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

//! What a run is told: whom to load, in which mode, whose CPU time to read.
//! Law: every mode is bounded in time and in streams.
//! Next: `scan.rs`.

use clap::{Parser, Subcommand, ValueEnum};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Where a run stands on a curve: `sessions=9000`. Copied to the output.
#[derive(Clone)]
pub(crate) struct At {
    pub(crate) axis: String,
    pub(crate) value: u64,
}
impl std::str::FromStr for At {
    type Err = String;
    fn from_str(text: &str) -> Result<At, String> {
        let (axis, value) = text.split_once('=').ok_or("AXIS=NUMBER")?;
        Ok(At { axis: axis.to_string(), value: value.parse().map_err(|e| format!("{value}: {e}"))? })
    }
}

/// After which event of a held stream a client comes back.
#[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
pub(crate) enum Cursor {
    /// the first one: all others are replayed
    First,
    /// the last but one: what is measured is the way to it
    Last,
}

#[derive(Parser, Clone)]
pub(crate) struct Args {
    /// http://127.0.0.1:PORT/path, comma separated for several (stream i uses target i mod n)
    #[arg(long, global = true, default_value = "http://127.0.0.1:9101/mcp")]
    pub(crate) target: String,
    /// pid(s) of the proxy; children are added by themselves
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) proxy_pid: Vec<i32>,
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) mock_pid: Vec<i32>,
    /// admin address(es) of the mock servers
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) admin: Vec<String>,
    /// source addresses to take turns over (none: let the kernel choose)
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) src: Vec<Ipv4Addr>,
    /// label that is copied to the output
    #[arg(long, global = true, default_value = "")]
    pub(crate) name: String,
    /// where on a curve this run stands, e.g. sessions=9000
    #[arg(long, global = true)]
    pub(crate) at: Option<At>,
    /// do not send notifications/initialized
    #[arg(long, global = true)]
    pub(crate) no_initialized: bool,
    /// the certificate of https:// targets, in PEM (idle, hold, storm)
    #[arg(long, global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// speak HTTP/2 to https:// targets
    #[arg(long, global = true, requires = "ca")]
    pub(crate) http2: bool,
    #[command(subcommand)]
    pub(crate) mode: Mode,
}

#[derive(Subcommand, Clone)]
pub(crate) enum Mode {
    /// small JSON calls: closed loop, or open loop with --rate
    Json {
        #[arg(long, default_value_t = 16)]
        conns: usize,
        /// requests a second over all connections; 0 = closed loop
        #[arg(long, default_value_t = 0.0)]
        rate: f64,
        #[arg(long, default_value_t = 3.0)]
        secs: f64,
        #[arg(long, default_value_t = 0.5)]
        warm: f64,
        #[arg(long, default_value_t = 100)]
        bytes: u64,
    },
    /// POST calls answered by an SSE stream
    Sse {
        #[arg(long, default_value_t = 8)]
        streams: usize,
        /// events a call
        #[arg(long, default_value_t = 1000)]
        n: u64,
        #[arg(long, default_value_t = 200)]
        bytes: u64,
        /// 0 = as fast as it goes
        #[arg(long, default_value_t = 0)]
        interval_us: u64,
        #[arg(long, default_value_t = 1)]
        batch: u32,
        /// unpaced: let the server write every event by itself
        #[arg(long)]
        flush: bool,
        #[arg(long)]
        no_ids: bool,
        /// repeat calls until this many seconds are over (0 = one call a stream)
        #[arg(long, default_value_t = 3.0)]
        secs: f64,
        #[arg(long, default_value_t = 0.3)]
        warm: f64,
    },
    /// open many idle GET streams and look at the memory
    Idle {
        #[arg(long, default_value_t = 1000)]
        streams: usize,
        #[arg(long, default_value_t = 200)]
        conc: usize,
        /// hold them this long and measure the CPU of doing nothing
        #[arg(long, default_value_t = 2.0)]
        hold: f64,
        #[arg(long, default_value_t = 15000)]
        hb_ms: u64,
        /// bytes of the one event that each stream gets at its start (0 = none)
        #[arg(long, default_value_t = 200)]
        first: u64,
        /// after opening, wait this long before reading memory
        #[arg(long, default_value_t = 0.5)]
        settle: f64,
    },
    /// cut all streams at once; how long until every one has its next event?
    Storm {
        #[arg(long, default_value_t = 1000)]
        streams: usize,
        #[arg(long, default_value_t = 200)]
        conc: usize,
        /// client = client drops its connections (RST); server = mock cuts abruptly; clean = mock ends the bodies
        #[arg(long, default_value = "client")]
        cut: String,
        /// get = standalone GET streams; post = streams that answer a POST
        #[arg(long, default_value = "get")]
        kind: String,
        /// connections being set up at one time during the storm (0 = all at once)
        #[arg(long, default_value_t = 0)]
        storm_conc: usize,
        #[arg(long, default_value_t = 30.0)]
        timeout: f64,
        #[arg(long, default_value_t = 200)]
        bytes: u64,
    },
    /// hold idle sessions open until SIGTERM, while other runs load the proxy; one line when they stand, one at the end
    Hold {
        #[arg(long, default_value_t = 1000)]
        streams: usize,
        #[arg(long, default_value_t = 100)]
        conc: usize,
        #[arg(long, default_value_t = 15000)]
        hb_ms: u64,
        #[arg(long, default_value_t = 200)]
        first: u64,
        /// end after so many seconds, whatever happens
        #[arg(long, default_value_t = 300.0)]
        secs: f64,
    },
    /// come back again and again to streams whose events are held, and take them once more
    Replay {
        /// streams, each of a session of its own
        #[arg(long, default_value_t = 8)]
        streams: usize,
        /// events that each stream holds
        #[arg(long, default_value_t = 1000)]
        n: u64,
        #[arg(long, default_value_t = 200)]
        bytes: u64,
        #[arg(long, value_enum, default_value_t = Cursor::First)]
        after: Cursor,
        #[arg(long, default_value_t = 2.0)]
        secs: f64,
        #[arg(long, default_value_t = 0.3)]
        warm: f64,
    },
    /// start a proxy again and again: how long until it has answered a request?
    Start {
        #[arg(long, default_value_t = 15)]
        runs: usize,
        /// the proxy's command; it must stay in the foreground and end at SIGTERM
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
}

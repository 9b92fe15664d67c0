//! What a run is told: whom to load, in which mode, whose CPU time to read.
//! Law: every mode is bounded in time and in streams.
//! Next: `scan.rs`.

use clap::{Parser, Subcommand};
use std::net::Ipv4Addr;
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
    /// do not send notifications/initialized
    #[arg(long, global = true)]
    pub(crate) no_initialized: bool,
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
}

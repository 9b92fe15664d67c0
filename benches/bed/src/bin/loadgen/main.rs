//! The load generator: one mode a run, one JSON line on standard output (`hold`: one more when its streams stand).
//! Law: single-threaded, loopback only, every run bounded in time.
//! Next: `args.rs`.

use args::{Args, Mode};
use bed::raise_nofile;
use clap::Parser;
use client::{Ctx, Protocol, parse_target};
use cost::merge;
use serde_json::json;
use std::cell::Cell;
use std::rc::Rc;
use tls::Tls;

mod args;
mod client;
mod clock;
mod cost;
mod hold;
mod idle;
mod json;
mod raw;
mod replay;
mod scan;
mod sse;
mod start;
mod storm;
mod streams;
mod tls;

fn main() {
    let a = Args::parse();
    let nofile = raise_nofile();
    let rt = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ls = tokio::task::LocalSet::new();
    let code = ls.block_on(&rt, async {
        let protocol = if a.http2 { Protocol::Http2 } else { Protocol::Http1 };
        let tls = a.ca.as_deref().map(|ca| Tls::new(ca, protocol).expect("a certificate"));
        let ctx = Rc::new(Ctx {
            targets: a.target.split(',').map(parse_target).collect(),
            src: a.src.clone(),
            no_initialized: a.no_initialized,
            tls,
            next_src: Cell::new(0),
            errors: Default::default(),
        });
        let mut v = match a.mode.clone() {
            Mode::Json { conns, rate, secs, warm, bytes } => json::json_mode(&a, ctx.clone(), conns, rate, secs.min(120.0), warm, bytes).await,
            Mode::Sse { streams, n, bytes, interval_us, batch, flush, no_ids, secs, warm } => {
                sse::sse_mode(&a, ctx.clone(), streams, n, bytes, interval_us, batch, flush, no_ids, secs.min(120.0), warm).await
            }
            Mode::Idle { streams, conc, hold, hb_ms, first, settle } => idle::idle_mode(&a, ctx.clone(), streams.min(20_000), conc, hold, hb_ms, first, settle).await,
            Mode::Storm { streams, conc, cut, kind, storm_conc, timeout, bytes } => {
                storm::storm_mode(&a, ctx.clone(), streams.min(20_000), conc, &cut, &kind, storm_conc, timeout.min(120.0), bytes).await
            }
            Mode::Hold { streams, conc, hb_ms, first, secs } => hold::hold_mode(&a, ctx.clone(), streams.min(20_000), conc, hb_ms, first, secs.min(600.0)).await,
            Mode::Replay { streams, n, bytes, after, secs, warm } => {
                replay::replay_mode(&a, ctx.clone(), replay::Held { streams, n: n.max(2), bytes, after }, secs.min(120.0), warm).await
            }
            Mode::Start { runs, command } => start::start_mode(&ctx, runs.clamp(1, 1000), &command).await,
        };
        if ctx.tls.is_some() {
            let with = if a.http2 { "h2" } else { "tls" };
            let mode = format!("{}-{with}", v["mode"].as_str().unwrap_or_default());
            merge(&mut v, json!({"mode": mode}));
        }
        let errs = ctx.errors.borrow();
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        merge(&mut v, json!({"name": a.name, "target": a.target, "errors": errs.values().sum::<u64>(), "error_kinds": *errs, "nofile": nofile, "loadavg": load.split(' ').next().unwrap_or("")}));
        if let Some(at) = &a.at {
            merge(&mut v, json!({"axis": at.axis, "at": at.value}));
        }
        println!("{v}");
        0
    });
    // do not wait for thousands of sockets one by one
    std::process::exit(code);
}

//! All streams are cut at once: how long until each has its next event, or was told that it has none to expect.
//! Law: an answer by an error, or a stream that starts over after a reset, was told; silence and a hole are faults.
//! Next: `main.rs`.

use crate::args::Args;
use crate::client::{BoxErr, Ctx, admin, admin_all, connect, get};
use crate::cost::{Meter, hist, hist_json, merge, r3, r4, used_json};
use crate::streams::open_many;
use bed::now_ns;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde_json::json;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub(crate) async fn storm_mode(a: &Args, ctx: Rc<Ctx>, streams: usize, conc: usize, cut: &str, kind: &str, storm_conc: usize, timeout: f64, bytes: u64) -> serde_json::Value {
    admin_all(a, "/set", &format!("{{\"get_bytes\":{bytes},\"get_interval_us\":3600000000,\"get_first\":true,\"get_ids\":true,\"hb_ms\":15000}}")).await;
    let (v, _, open_s) = open_many(&ctx, streams, conc, kind == "post", bytes, true).await;
    let open = v.len();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let noid = v.iter().filter(|s| s.scan.last_id.is_empty()).count();
    let m = Meter::start(a);
    let sem = Rc::new(Semaphore::new(if storm_conc == 0 { 1 << 20 } else { storm_conc }));
    let t0 = now_ns();
    let deadline = tokio::time::Instant::now() + Duration::from_secs_f64(timeout);
    let reconnects = Rc::new(Cell::new(0u64));
    let retries = Rc::new(Cell::new(0u64));
    let masked = Rc::new(Cell::new(0u64));
    let told = Rc::new(Cell::new(0u64));
    if cut == "client" {
        for s in &v {
            s.c.kill();
        }
        // What is missed: one event on every stream that the proxy still holds open towards its backend.
        let fs: Vec<_> = a.admin.iter().map(|x| admin(x, "/emit", String::new())).collect();
        let _ = futures_util::future::join_all(fs).await;
    } else {
        let p = if cut == "clean" { "/cut?clean" } else { "/cut?abrupt" };
        // all mocks at (nearly) the same time
        let fs: Vec<_> = a.admin.iter().map(|x| admin(x, p, String::new())).collect();
        let _ = futures_util::future::join_all(fs).await;
    }
    let mut fu = FuturesUnordered::new();
    for mut s in v {
        let (ctx, sem, reconnects, retries, masked) = (ctx.clone(), sem.clone(), reconnects.clone(), retries.clone(), masked.clone());
        let told = told.clone();
        let client = cut == "client";
        fu.push(async move {
            let run = async {
                let seq0 = s.scan.last_seq;
                let e0 = s.scan.events;
                if !client {
                    // the old stream: either it goes on (the proxy hid the cut), or it ends
                    loop {
                        match s.body.frame().await {
                            Some(Ok(f)) => {
                                if let Some(d) = f.data_ref() {
                                    s.scan.feed(d, |_| {});
                                    if s.scan.events > e0 {
                                        masked.set(masked.get() + 1);
                                        return (true, s);
                                    }
                                }
                            }
                            _ => break,
                        }
                    }
                    if s.scan.told > 0 {
                        // The call has its outcome: an error. Nobody asks for more.
                        told.set(told.get() + 1);
                        return (true, s);
                    }
                }
                let mut wait = 5u64;
                loop {
                    let r: Result<(), BoxErr> = async {
                        let _p = sem.acquire().await.unwrap();
                        let mut c = connect(&ctx, &s.t).await?;
                        reconnects.set(reconnects.get() + 1);
                        let last = (!s.scan.last_id.is_empty()).then(|| s.scan.last_id.clone());
                        let r = c.send(&s.t, get(&s.t, &s.sid, last.as_deref())).await?;
                        if r.status() != StatusCode::OK {
                            return Err(format!("reconnect {}", r.status()).into());
                        }
                        s.body = r.into_body();
                        s.scan.carry.clear();
                        s.c = c;
                        Ok(())
                    }
                    .await;
                    match r {
                        Ok(()) => loop {
                            match s.body.frame().await {
                                Some(Ok(f)) => {
                                    if let Some(d) = f.data_ref() {
                                        s.scan.feed(d, |_| {});
                                        if s.scan.events > e0 {
                                            return (s.scan.last_seq == seq0 + 1, s);
                                        }
                                    }
                                }
                                _ => break,
                            }
                        },
                        Err(e) => ctx.err(format!("storm: {e}")),
                    }
                    retries.set(retries.get() + 1);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    wait = (wait * 2).min(200);
                }
            };
            let r = tokio::time::timeout_at(deadline, run).await;
            (now_ns() - t0, r)
        });
    }
    let mut h = hist();
    let mut exact = 0u64;
    let mut lost = 0u64;
    let (mut gaps, mut dups, mut resets) = (0u64, 0u64, 0u64);
    let mut keep = Vec::new();
    while let Some((d, r)) = fu.next().await {
        match r {
            Ok((ok, s)) => {
                let _ = h.record(d);
                exact += ok as u64;
                gaps += s.scan.gaps;
                dups += s.scan.dups;
                resets += s.scan.resets;
                keep.push(s);
            }
            Err(_) => lost += 1,
        }
    }
    let u = m.stop();
    drop(keep);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let n = open.max(1) as f64;
    let mut out = json!({"mode": format!("storm-{cut}-{kind}"), "streams": streams, "open": open, "open_s": r3(open_s), "recovered": h.len(), "exact_next_event": exact, "lost": lost,
        "all_back_s": r3(h.max() as f64 / 1e9), "masked_by_proxy": masked.get(), "told_error": told.get(), "told_reset": resets, "reconnects": reconnects.get(), "retries": retries.get(), "gaps": gaps, "dups": dups, "streams_without_ids": noid,
        "cpu_us_per_reconnect": r3(u.proxy_s / n * 1e6), "cpu_s_per_1k_reconnects": r4(u.proxy_s / n * 1e3)});
    merge(&mut out, hist_json(&h));
    merge(&mut out, used_json(&u));
    out
}

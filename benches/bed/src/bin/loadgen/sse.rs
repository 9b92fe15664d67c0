//! Calls that are answered by an event stream: bursts, or paced events whose latency is taken.
//! Law: every event carries its number and its time; a gap, a repeat or a short stream is a fault.
//! Next: `streams.rs`.

use crate::args::Args;
use crate::client::{BoxErr, Ctx};
use crate::cost::{Meter, hist, hist_json, merge, r3, r4, used_json};
use crate::raw::{FIRST_ID, Raw, renumber};
use crate::scan::Scan;
use bed::now_ns;
use bytes::Bytes;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

#[allow(clippy::too_many_arguments)]
pub(crate) async fn sse_mode(a: &Args, ctx: Rc<Ctx>, streams: usize, n: u64, bytes: u64, interval_us: u64, batch: u32, flush: bool, no_ids: bool, secs: f64, warm: f64) -> serde_json::Value {
    let mut cs = Vec::new();
    for i in 0..streams {
        let t = ctx.target(i).clone();
        match Raw::session(&ctx, &t).await {
            Ok((c, sid)) => cs.push((t, c, sid)),
            Err(e) => ctx.err(e),
        }
    }
    let body = Bytes::from(
        json!({"jsonrpc":"2.0","id":FIRST_ID,"method":"tools/call","params":{"name":"bench","arguments":{"mode":"sse","n":n,"bytes":bytes,"interval_us":interval_us,"ids":!no_ids,"batch":batch,"flush":flush}}}).to_string(),
    );
    let h = Rc::new(RefCell::new(hist()));
    let ttfe = Rc::new(RefCell::new(hist()));
    // totals within the measured window
    let ev = Rc::new(Cell::new(0u64));
    let by = Rc::new(Cell::new(0u64));
    let frames = Rc::new(Cell::new(0u64));
    let reads = Rc::new(Cell::new(0u64));
    let meas = Rc::new(Cell::new(false));
    let (gaps, dups, noid, finals, short) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let t_start = now_ns();
    let t_meas = t_start + (warm * 1e9) as u64;
    let t_end = t_meas + (secs * 1e9) as u64;
    let mut tasks = Vec::new();
    let paced = interval_us > 0;
    for (t, mut c, sid) in cs {
        let (ctx, h, ttfe, body, ev, by, frames, reads, meas) = (ctx.clone(), h.clone(), ttfe.clone(), body.clone(), ev.clone(), by.clone(), frames.clone(), reads.clone(), meas.clone());
        let (gaps, dups, noid, finals, short) = (gaps.clone(), dups.clone(), noid.clone(), finals.clone(), short.clone());
        tasks.push(tokio::task::spawn_local(async move {
            let (mut body, mut id) = (body.to_vec(), FIRST_ID);
            loop {
                renumber(&mut body, &mut id);
                let r: Result<bool, BoxErr> = async {
                    let t0 = now_ns();
                    let (st, _) = c.request(&t, "POST", Some(&sid), "", &body).await?;
                    if st != 200 {
                        let b = c.drain().await?;
                        return Err(format!("sse {st} {}", String::from_utf8_lossy(&b[..b.len().min(60)])).into());
                    }
                    let mut s = Scan::default();
                    let mut cut = false;
                    loop {
                        let (e0, b0, c0, r0) = (s.events, s.bytes, c.chunks, c.reads);
                        let mut now = 0;
                        let more = if paced {
                            // the clock is read after the read, once for all events that came with it
                            let (h, meas) = (&h, &meas);
                            c.next(|d| {
                                if now == 0 {
                                    now = now_ns();
                                }
                                let m = meas.get();
                                s.feed(d, |ts| {
                                    if m {
                                        let _ = h.borrow_mut().record(now.saturating_sub(ts).max(1));
                                    }
                                });
                            })
                            .await?
                        } else {
                            c.next(|d| s.feed(d, |_| {})).await?
                        };
                        let m = meas.get();
                        if !more {
                            break;
                        }
                        if now == 0 {
                            now = now_ns();
                        }
                        if m {
                            if e0 == 0 && s.events > 0 {
                                let _ = ttfe.borrow_mut().record(now - t0);
                            }
                            ev.set(ev.get() + s.events - e0);
                            by.set(by.get() + s.bytes - b0);
                            frames.set(frames.get() + c.chunks - c0);
                            reads.set(reads.get() + c.reads - r0);
                        }
                        if secs > 0.0 && now >= t_end {
                            cut = true;
                            break;
                        }
                    }
                    gaps.set(gaps.get() + s.gaps);
                    dups.set(dups.get() + s.dups);
                    finals.set(finals.get() + s.finals);
                    if s.last_id.is_empty() && s.events > 0 {
                        noid.set(noid.get() + 1);
                    }
                    if !cut && s.events != n {
                        short.set(short.get() + 1);
                    }
                    Ok(cut)
                }
                .await;
                match r {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(e) => {
                        ctx.err(e);
                        if let Ok(nc) = Raw::open(&ctx, &t).await {
                            c = nc;
                        }
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
                if secs == 0.0 || now_ns() >= t_end {
                    break;
                }
            }
            drop(c);
        }));
    }
    tokio::time::sleep(Duration::from_nanos(t_meas.saturating_sub(now_ns()))).await;
    meas.set(true);
    let m = Meter::start(a);
    if secs > 0.0 {
        tokio::time::sleep(Duration::from_nanos(t_end.saturating_sub(now_ns()))).await;
    } else {
        for t in tasks.iter_mut() {
            let _ = tokio::time::timeout(Duration::from_secs(60), t).await;
        }
    }
    let u = m.stop();
    let (e, b) = (ev.get(), by.get());
    meas.set(false);
    if secs > 0.0 {
        for t in tasks {
            let _ = tokio::time::timeout(Duration::from_secs(5), t).await;
        }
    }
    let ef = e.max(1) as f64;
    let nominal = if paced { streams as f64 * batch as f64 * 1e6 / interval_us as f64 } else { 0.0 };
    let mut v = json!({"mode": if paced { "sse-paced" } else if flush { "sse-flush" } else { "sse-fire" }, "streams": streams, "n": n, "bytes": bytes, "interval_us": interval_us, "batch": batch,
        "events": e, "events_per_s": (e as f64 / u.wall).round(), "nominal_events_per_s": nominal, "mb_per_s": r3(b as f64 / u.wall / 1e6), "wire_bytes_per_event": r3(b as f64 / ef),
        "events_per_chunk": r3(ef / frames.get().max(1) as f64), "events_per_read": r3(ef / reads.get().max(1) as f64),
        "cpu_s_per_1m_events": r4(u.proxy_s / ef * 1e6), "mock_s_per_1m_events": r4(u.mock_s / ef * 1e6), "loadgen_s_per_1m_events": r4(u.self_s / ef * 1e6),
        "gaps": gaps.get(), "dups": dups.get(), "short_streams": short.get(), "streams_without_ids": noid.get(), "finals": finals.get(),
        "first_event": hist_json(&ttfe.borrow())});
    if paced {
        merge(&mut v, hist_json(&h.borrow()));
    }
    merge(&mut v, used_json(&u));
    v
}

//! Idle streams: the memory of the proxy for each, and the CPU of doing nothing.
//! Law: memory is read before, while and after the streams stand.
//! Next: `hold.rs`.

use crate::args::Args;
use crate::client::{Ctx, admin_all};
use crate::cost::{Meter, hist_json, mem, merge, r3, tcp_mem_pages, used_json, with_children};
use crate::streams::open_many;
use bed::now_ns;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::BodyExt;
use serde_json::json;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) async fn idle_mode(a: &Args, ctx: Rc<Ctx>, streams: usize, conc: usize, hold: f64, hb_ms: u64, first: u64, settle: f64) -> serde_json::Value {
    admin_all(a, "/set", &format!("{{\"get_bytes\":{first},\"get_interval_us\":3600000000,\"get_first\":{},\"hb_ms\":{hb_ms}}}", first > 0)).await;
    // one stream first, so that code paths and pools are warm
    let (w, _, _) = open_many(&ctx, 1, 1, false, first, first > 0).await;
    drop(w);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let pids = with_children(&a.proxy_pid);
    let mpids = with_children(&a.mock_pid);
    let (r0, p0) = mem(&pids);
    let mm0 = mem(&mpids).0;
    let k0 = tcp_mem_pages();
    let m = Meter::start(a);
    let (mut v, h, open_s) = open_many(&ctx, streams, conc, false, first, first > 0).await;
    let uo = m.stop();
    tokio::time::sleep(Duration::from_secs_f64(settle)).await;
    let (r1, p1) = mem(&pids);
    let mm1 = mem(&mpids).0;
    let k1 = tcp_mem_pages();
    // read what comes (heartbeats) during the hold
    let m = Meter::start(a);
    let end = tokio::time::Instant::now() + Duration::from_secs_f64(hold);
    let dead = Rc::new(Cell::new(0u64));
    let hbs = Rc::new(Cell::new(0u64));
    let open = v.len();
    {
        let mut fu: FuturesUnordered<_> = v
            .iter_mut()
            .map(|s| {
                let (dead, hbs) = (dead.clone(), hbs.clone());
                async move {
                    loop {
                        match tokio::time::timeout_at(end, s.body.frame()).await {
                            Err(_) => return,
                            Ok(Some(Ok(f))) => {
                                if let Some(d) = f.data_ref() {
                                    s.scan.feed(d, |_| {});
                                    hbs.set(hbs.get() + 1);
                                }
                            }
                            Ok(_) => {
                                dead.set(dead.get() + 1);
                                return;
                            }
                        }
                    }
                }
            })
            .collect();
        while fu.next().await.is_some() {}
    }
    let uh = m.stop();
    let (r2, p2) = mem(&pids);
    let tc = now_ns();
    v.clear();
    drop(v);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let (r3_, p3) = mem(&pids);
    let n = open.max(1) as f64;
    let per = |a: u64, b: u64| ((a as f64 - b as f64) / n).round();
    let _ = tc;
    let mut out = json!({"mode": "idle", "streams": streams, "open": open, "open_s": r3(open_s), "opens_per_s": (n / open_s).round(),
        "rss_base_mb": r3(r0 as f64 / 1e6), "rss_open_mb": r3(r1 as f64 / 1e6), "rss_after_close_mb": r3(r3_ as f64 / 1e6),
        "rss_bytes_per_stream": per(r1, r0), "pss_bytes_per_stream": per(p1, p0), "rss_bytes_per_stream_after_hold": per(r2, r0), "pss_after_hold": per(p2, p0), "pss_after_close": per(p3, p0),
        "mock_rss_bytes_per_stream": per(mm1, mm0), "tcp_mem_bytes_per_stream": ((k1 as f64 - k0 as f64) * 4096.0 / n).round(),
        "open_cpu_us_per_stream": r3(uo.proxy_s / n * 1e6), "dead": dead.get(), "heartbeats": hbs.get(),
        "idle_cpu_ms_per_s": r3(uh.proxy_s / uh.wall * 1e3), "open_lat": hist_json(&h)});
    merge(&mut out, used_json(&uo));
    out
}

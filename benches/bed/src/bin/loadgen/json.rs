//! Small JSON calls: the next one when the last is answered, or at a fixed rate.
//! Law: at a fixed rate latency counts from the intended start, so that a stall is not hidden by the wait it causes.
//! Next: `sse.rs`.

use crate::args::Args;
use crate::client::{BoxErr, Ctx};
use crate::clock::Timer;
use crate::cost::{Meter, hist, hist_json, merge, r3, used_json};
use crate::raw::{FIRST_ID, Raw, renumber};
use bed::now_ns;
use bytes::Bytes;
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

pub(crate) async fn json_mode(a: &Args, ctx: Rc<Ctx>, conns: usize, rate: f64, secs: f64, warm: f64, bytes: u64) -> serde_json::Value {
    let mut cs = Vec::new();
    for i in 0..conns {
        let t = ctx.target(i).clone();
        match Raw::session(&ctx, &t).await {
            Ok((c, sid)) => cs.push((t, c, sid)),
            Err(e) => ctx.err(e),
        }
    }
    let k = cs.len().max(1) as f64;
    let body = Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{FIRST_ID},\"method\":\"tools/call\",\"params\":{{\"name\":\"bench\",\"arguments\":{{\"mode\":\"json\",\"bytes\":{bytes}}}}}}}"
    ));
    let h = Rc::new(RefCell::new(hist())); // corrected: from the intended start
    let hs = Rc::new(RefCell::new(hist())); // service time: from the actual start
    let t_start = now_ns();
    let t_meas = t_start + (warm * 1e9) as u64;
    let t_end = t_meas + (secs * 1e9) as u64;
    let bad = Rc::new(Cell::new(0u64));
    let mut tasks = Vec::new();
    for (i, (t, mut c, sid)) in cs.into_iter().enumerate() {
        let (ctx, h, hs, body, bad) = (ctx.clone(), h.clone(), hs.clone(), body.clone(), bad.clone());
        tasks.push(tokio::task::spawn_local(async move {
            let timer = Timer::new();
            let mut req = Raw::bytes(&t, "POST", Some(&sid), "", &body);
            let mut id = FIRST_ID;
            let mut b: Vec<u8> = Vec::with_capacity(4096);
            let gap = if rate > 0.0 { (k / rate * 1e9) as u64 } else { 0 };
            let mut due = t_start + if rate > 0.0 { (i as f64 / rate * 1e9) as u64 } else { 0 };
            loop {
                if rate > 0.0 {
                    timer.until(due).await;
                }
                let t0 = now_ns();
                let intended = if rate > 0.0 { due } else { t0 };
                if intended >= t_end {
                    break;
                }
                let r = async {
                    b.clear();
                    renumber(&mut req, &mut id);
                    let (st, _) = c.send(&req).await?;
                    while c.next(|d| b.extend_from_slice(d)).await? {}
                    Ok::<_, BoxErr>(st)
                }
                .await;
                let t1 = now_ns();
                match r {
                    Ok(st) => {
                        if st != 200 || memchr::memmem::find(&b, b"\"result\"").is_none() {
                            bad.set(bad.get() + 1);
                            if bad.get() == 1 {
                                ctx.err(format!("{st} {}", String::from_utf8_lossy(&b[..b.len().min(60)])));
                            }
                        } else if intended >= t_meas && t1 <= t_end + 2_000_000_000 {
                            let _ = h.borrow_mut().record(t1 - intended);
                            let _ = hs.borrow_mut().record(t1 - t0);
                        }
                    }
                    Err(e) => {
                        ctx.err(format!("request: {e}"));
                        match Raw::open(&ctx, &t).await {
                            Ok(n) => c = n,
                            Err(e) => {
                                ctx.err(format!("reconnect: {e}"));
                                tokio::time::sleep(Duration::from_millis(50)).await;
                            }
                        }
                    }
                }
                due += gap;
                if now_ns() > t_end + 3_000_000_000 {
                    break;
                }
            }
            (t, c, sid)
        }));
    }
    tokio::time::sleep(Duration::from_nanos(t_meas.saturating_sub(now_ns()))).await;
    let m = Meter::start(a);
    tokio::time::sleep(Duration::from_nanos(t_end.saturating_sub(now_ns()))).await;
    let n_at_end = hs.borrow().len();
    let u = m.stop();
    for t in tasks {
        if let Ok((t, mut c, sid)) = t.await {
            let _ = tokio::time::timeout(Duration::from_secs(2), async {
                if c.request(&t, "DELETE", Some(&sid), "", b"").await.is_ok() {
                    let _ = c.drain().await;
                }
            })
            .await;
        }
    }
    let (h, hs) = (h.borrow(), hs.borrow());
    let n = n_at_end.max(1) as f64;
    let mut v = json!({"mode": if rate > 0.0 { "json-open" } else { "json-closed" }, "conns": conns, "rate": rate, "requests": h.len(), "rps": (n / u.wall).round(), "bad": bad.get(),
        "cpu_s_per_1k_req": (u.proxy_s / n * 1e3 * 1e6).round() / 1e6, "cpu_us_per_req": r3(u.proxy_s / n * 1e6),
        "mock_us_per_req": r3(u.mock_s / n * 1e6), "loadgen_us_per_req": r3(u.self_s / n * 1e6)});
    merge(&mut v, hist_json(&h));
    merge(&mut v, json!({"service": hist_json(&hs)}));
    merge(&mut v, used_json(&u));
    v
}

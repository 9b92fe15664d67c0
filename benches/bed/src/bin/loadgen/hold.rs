//! Idle sessions that stand while another run loads the proxy: what does that cost more, the more of them there are?
//! Law: what comes on them is read, and one that ends meanwhile is a fault that is told.
//! Next: `replay.rs`.

use crate::args::Args;
use crate::client::{Ctx, admin_all};
use crate::cost::{Meter, mem, r3, with_children};
use crate::streams::open_many;
use futures_util::stream::{FuturesUnordered, StreamExt};
use http_body_util::BodyExt;
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) async fn hold_mode(a: &Args, ctx: Rc<Ctx>, streams: usize, conc: usize, hb_ms: u64, first: u64, secs: f64) -> serde_json::Value {
    let mut term = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
    let wants_event = first > 0;
    admin_all(a, "/set", &format!("{{\"get_bytes\":{first},\"get_interval_us\":3600000000,\"get_first\":{wants_event},\"hb_ms\":{hb_ms}}}")).await;
    // A few first, so that code paths and pools are warm.
    drop(open_many(&ctx, 10, 10, false, first, wants_event).await);
    let meter = Meter::start(a);
    let (mut held, _, open_s) = open_many(&ctx, streams, conc, false, first, wants_event).await;
    let opening = meter.stop();
    println!("{}", json!({"mode": "holding", "streams": streams, "open": held.len(), "open_s": r3(open_s)}));
    let mut ended = 0u64;
    let open = held.len();
    // What comes is read stream by stream as it comes: nothing here polls all of them.
    let mut reads: FuturesUnordered<_> = held
        .iter_mut()
        .map(|stream| async move {
            while let Some(Ok(frame)) = stream.body.frame().await {
                if let Some(data) = frame.data_ref() {
                    stream.scan.feed(data, |_| {});
                }
            }
        })
        .collect();
    let until = tokio::time::sleep(Duration::from_secs_f64(secs));
    tokio::pin!(until);
    loop {
        tokio::select! {
            _ = term.recv() => break,
            () = &mut until => break,
            Some(()) = reads.next() => ended += 1,
        }
    }
    let rss = mem(&with_children(&a.proxy_pid)).0;
    json!({"mode": "hold", "streams": streams, "open": open, "open_s": r3(open_s), "ended": ended,
        "cpu_us_per_open": r3(opening.proxy_s / open.max(1) as f64 * 1e6), "rss_mb": r3(rss as f64 / 1e6)})
}

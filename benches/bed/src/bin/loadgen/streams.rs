//! Many sessions, each with a stream that is held open.
//! Law: so many are being opened at a time, not more.
//! Next: `idle.rs`.

use crate::client::{BoxErr, Conn, Ctx, Target, connect, get, initialize, post};
use crate::cost::hist;
use crate::scan::Scan;
use bed::now_ns;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;

pub(crate) struct Stream {
    pub(crate) t: Target,
    pub(crate) c: Conn,
    pub(crate) sid: String,
    pub(crate) body: Incoming,
    pub(crate) scan: Scan,
}

/// A session and its stream: GET, or (post) a tools/call that answers with one event at once and then waits.
pub(crate) async fn open_stream(ctx: &Ctx, i: usize, post_kind: bool, bytes: u64, want_first: bool) -> Result<Stream, BoxErr> {
    let t = ctx.target(i).clone();
    let mut c = connect(ctx, &t).await?;
    let sid = initialize(ctx, &t, &mut c).await?;
    let req = if post_kind {
        post(
            &t,
            Some(&sid),
            Bytes::from(
                json!({"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bench","arguments":{"mode":"sse","n":1000000,"bytes":bytes,"interval_us":3_600_000_000u64,"first_now":true}}}).to_string(),
            ),
        )
    } else {
        get(&t, &sid, None)
    };
    let r: Response<Incoming> = c.send(&t, req).await?;
    if r.status() != StatusCode::OK {
        let st = r.status();
        let b = r.into_body().collect().await?.to_bytes();
        return Err(format!("open {st} {}", String::from_utf8_lossy(&b[..b.len().min(60)])).into());
    }
    let mut body = r.into_body();
    let mut scan = Scan::default();
    while want_first && scan.events == 0 {
        match body.frame().await {
            Some(Ok(f)) => {
                if let Some(d) = f.data_ref() {
                    scan.feed(d, |_| {});
                }
            }
            Some(Err(e)) => return Err(e.into()),
            None => return Err("stream ended before its first event".into()),
        }
    }
    Ok(Stream { t, c, sid, body, scan })
}

pub(crate) async fn open_many(ctx: &Rc<Ctx>, streams: usize, conc: usize, post_kind: bool, bytes: u64, want_first: bool) -> (Vec<Stream>, Histogram<u64>, f64) {
    let sem = Rc::new(Semaphore::new(conc.max(1)));
    let t0 = now_ns();
    let mut h = hist();
    let mut fu = FuturesUnordered::new();
    for i in 0..streams {
        let (sem, ctx) = (sem.clone(), ctx.clone());
        fu.push(async move {
            let _p = sem.acquire().await.unwrap();
            let t = now_ns();
            let r = tokio::time::timeout(Duration::from_secs(20), open_stream(&ctx, i, post_kind, bytes, want_first)).await;
            (r, now_ns() - t)
        });
    }
    let mut v = Vec::with_capacity(streams);
    while let Some((r, d)) = fu.next().await {
        match r {
            Ok(Ok(s)) => {
                let _ = h.record(d);
                v.push(s)
            }
            Ok(Err(e)) => ctx.err(e),
            Err(_) => ctx.err("open: timeout"),
        }
    }
    (v, h, (now_ns() - t0) as f64 / 1e9)
}

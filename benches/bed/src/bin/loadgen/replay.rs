//! Held events taken again: each stream's client goes and comes back with an old cursor, as fast as it is answered.
//! Law: each return must bring exactly what followed the cursor, in order; anything else is a fault that is counted.
//! Next: `start.rs`.

use crate::args::{Args, Cursor};
use crate::client::{BoxErr, Ctx, Target};
use crate::cost::{Meter, hist, hist_json, merge, r3, r4, used_json};
use crate::raw::{FIRST_ID, Raw};
use crate::scan::Scan;
use bed::{MARK, get_digits, now_ns};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// What is held, and where a client takes it up.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) streams: usize,
    /// events on each stream
    pub(crate) n: u64,
    pub(crate) bytes: u64,
    pub(crate) after: Cursor,
}

/// A stream that stands, and the cursor that its client comes back with.
struct Standing {
    t: Target,
    sid: String,
    conn: Raw,
    cursor: String,
    /// number of the event that the cursor is of
    seq: u64,
}

/// The id of the event with this number, as it came.
fn cursor_of(body: &[u8], seq: u64) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    text.split("\n\n").find_map(|event| {
        let at = event.find(std::str::from_utf8(MARK).ok()?)?;
        let number = get_digits(event.as_bytes().get(at + 23..at + 33)?)?;
        let id = event.lines().find_map(|line| line.strip_prefix("id:"))?;
        (number == seq).then(|| id.trim().to_string())
    })
}

/// A call answered by a stream that says `n` events at once and then nothing more.
async fn stand(ctx: &Ctx, i: usize, held: Held) -> Result<Standing, BoxErr> {
    let t = ctx.target(i).clone();
    let (mut conn, sid) = Raw::session(ctx, &t).await?;
    let call = json!({"jsonrpc":"2.0","id":FIRST_ID,"method":"tools/call","params":{"name":"bench","arguments":
        {"mode":"sse","n":1_000_000,"bytes":held.bytes,"interval_us":3_600_000_000u64,"batch":held.n,"first_now":true}}});
    let (status, _) = conn.request(&t, "POST", Some(&sid), "", call.to_string().as_bytes()).await?;
    if status != 200 {
        return Err(format!("stand {status}").into());
    }
    let (mut scan, mut body) = (Scan::default(), Vec::new());
    while scan.events < held.n {
        let more = conn
            .next(|d| {
                scan.feed(d, |_| {});
                body.extend_from_slice(d);
            })
            .await?;
        if !more {
            return Err("ended before all its events".into());
        }
    }
    let seq = match held.after {
        Cursor::First => 1,
        Cursor::Last => held.n - 1,
    };
    let cursor = cursor_of(&body, seq).ok_or("the event has no id")?;
    Ok(Standing { t, sid, conn, cursor, seq })
}

/// One return of a client: its connection is cut, and a new one brings what followed the cursor.
async fn come_back(ctx: &Ctx, standing: &mut Standing, n: u64) -> Result<Scan, BoxErr> {
    standing.conn = Raw::open(ctx, &standing.t).await?;
    let last = format!("last-event-id: {}\r\n", standing.cursor);
    let (status, _) = standing.conn.request(&standing.t, "GET", Some(&standing.sid), &last, b"").await?;
    if status != 200 {
        return Err(format!("return {status}").into());
    }
    let mut scan = Scan { last_seq: standing.seq, ..Scan::default() };
    while scan.events < n - standing.seq {
        if !standing.conn.next(|d| scan.feed(d, |_| {})).await? {
            return Err("ended within the replay".into());
        }
    }
    Ok(scan)
}

pub(crate) async fn replay_mode(a: &Args, ctx: Rc<Ctx>, held: Held, secs: f64, warm: f64) -> serde_json::Value {
    let mut standing = Vec::new();
    for i in 0..held.streams {
        match tokio::time::timeout(Duration::from_secs(20), stand(&ctx, i, held)).await {
            Ok(Ok(s)) => standing.push(s),
            Ok(Err(e)) => ctx.err(e),
            Err(_) => ctx.err("stand: timeout"),
        }
    }
    let open = standing.len();
    let measured = Rc::new(Cell::new(false));
    let (events, returns, faults) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let took = Rc::new(RefCell::new(hist()));
    let t_meas = now_ns() + (warm * 1e9) as u64;
    let t_end = t_meas + (secs * 1e9) as u64;
    let mut tasks = Vec::new();
    for mut s in standing {
        let (ctx, measured, events, returns, faults, took) = (ctx.clone(), measured.clone(), events.clone(), returns.clone(), faults.clone(), took.clone());
        tasks.push(tokio::task::spawn_local(async move {
            while now_ns() < t_end {
                let t0 = now_ns();
                match tokio::time::timeout(Duration::from_secs(10), come_back(&ctx, &mut s, held.n)).await {
                    Ok(Ok(scan)) => {
                        faults.set(faults.get() + scan.gaps + scan.dups + scan.resets + scan.told);
                        if measured.get() {
                            events.set(events.get() + scan.events);
                            returns.set(returns.get() + 1);
                            let _ = took.borrow_mut().record(now_ns() - t0);
                        }
                    }
                    Ok(Err(e)) => {
                        ctx.err(e);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(_) => ctx.err("return: timeout"),
                }
            }
        }));
    }
    tokio::time::sleep(Duration::from_nanos(t_meas.saturating_sub(now_ns()))).await;
    measured.set(true);
    let m = Meter::start(a);
    tokio::time::sleep(Duration::from_nanos(t_end.saturating_sub(now_ns()))).await;
    let u = m.stop();
    let (e, r) = (events.get(), returns.get());
    measured.set(false);
    for task in tasks {
        let _ = tokio::time::timeout(Duration::from_secs(12), task).await;
    }
    let (ef, rf) = (e.max(1) as f64, r.max(1) as f64);
    let mode = match held.after {
        Cursor::First => "replay",
        Cursor::Last => "return",
    };
    let mut v = json!({"mode": mode, "streams": held.streams, "open": open, "n": held.n, "bytes": held.bytes, "events": e, "returns": r,
        "events_per_s": (ef / u.wall).round(), "events_per_cpu_s": (ef / u.proxy_s.max(1e-9)).round(), "returns_per_s": (rf / u.wall).round(),
        "cpu_s_per_1m_events": r4(u.proxy_s / ef * 1e6), "cpu_us_per_return": r3(u.proxy_s / rf * 1e6),
        "mock_s_per_1m_events": r4(u.mock_s / ef * 1e6), "loadgen_s_per_1m_events": r4(u.self_s / ef * 1e6), "bad": faults.get()});
    merge(&mut v, hist_json(&took.borrow()));
    merge(&mut v, used_json(&u));
    v
}

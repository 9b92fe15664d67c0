//! A proxy started again and again: the time from its start to the first request that it has answered.
//! Law: it ends only the processes that it started itself, and each before the next one starts.
//! Next: `main.rs`.

use crate::client::{BoxErr, Ctx};
use crate::cost::{cpu_ns, mem, r3, with_children};
use crate::raw::Raw;
use bed::now_ns;
use serde_json::json;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A proxy that has not answered after this long did not start.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to reach it.
const PAUSE: Duration = Duration::from_micros(200);

/// What one start took, up to its first answer.
struct Started {
    wall_ms: f64,
    cpu_ms: f64,
    rss_mb: f64,
}

async fn end(mut child: Child) -> Result<(), BoxErr> {
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    for _ in 0..500 {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child.kill()?;
    child.wait()?;
    Err("did not end at SIGTERM".into())
}

async fn start(ctx: &Ctx, command: &[String]) -> Result<Started, BoxErr> {
    let t = ctx.target(0).clone();
    let t0 = now_ns();
    let child = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let answered = tokio::time::timeout(PATIENCE, async {
        loop {
            // Through to a server and back: what a client would wait for.
            match Raw::session(ctx, &t).await {
                Ok(session) => return session,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    })
    .await;
    let wall_ms = (now_ns() - t0) as f64 / 1e6;
    let pids = with_children(&[child.id() as i32]);
    let started = Started { wall_ms, cpu_ms: cpu_ns(&pids) as f64 / 1e6, rss_mb: mem(&pids).0 as f64 / 1e6 };
    let got = answered.map(|_| started).map_err(|_| "no answer".into());
    end(child).await?;
    got
}

pub(crate) async fn start_mode(ctx: &Ctx, runs: usize, command: &[String]) -> serde_json::Value {
    let mut all = Vec::new();
    for _ in 0..runs {
        match start(ctx, command).await {
            Ok(started) => all.push(started),
            Err(e) => ctx.err(e),
        }
    }
    let median = |of: fn(&Started) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).map(|v| r3(*v))
    };
    let least = all.iter().map(|s| s.wall_ms).min_by(f64::total_cmp).map(r3);
    json!({"mode": "start", "runs": all.len(), "start_ms": median(|s| s.wall_ms), "start_ms_least": least, "start_cpu_ms": median(|s| s.cpu_ms), "start_rss_mb": median(|s| s.rss_mb)})
}

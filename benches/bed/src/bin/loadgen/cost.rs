//! What processes cost: CPU time in nanoseconds, memory, and what others took of the machine meanwhile.
//! Why CPU time: other load on the machine moves it far less than it moves latency.
//! Next: `json.rs`.

use crate::args::Args;
use bed::now_ns;
use hdrhistogram::Histogram;
use serde_json::json;

pub(crate) fn with_children(pids: &[i32]) -> Vec<i32> {
    let mut out = pids.to_vec();
    let mut i = 0;
    while i < out.len() {
        let p = out[i];
        if let Ok(rd) = std::fs::read_dir(format!("/proc/{p}/task")) {
            for t in rd.flatten() {
                if let Ok(s) = std::fs::read_to_string(t.path().join("children")) {
                    for c in s.split_whitespace().filter_map(|c| c.parse().ok()) {
                        if !out.contains(&c) {
                            out.push(c);
                        }
                    }
                }
            }
        }
        i += 1;
    }
    out
}
/// nanoseconds on a CPU so far, whole process with its dead threads
pub(crate) fn cpu_ns(pids: &[i32]) -> u64 {
    pids.iter()
        .map(|&p| unsafe {
            let mut clk: libc::clockid_t = 0;
            let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            if libc::clock_getcpuclockid(p, &mut clk) != 0 || libc::clock_gettime(clk, &mut ts) != 0 {
                return 0;
            }
            ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
        })
        .sum()
}
/// user and system ticks (10 ms) from /proc/PID/stat
pub(crate) fn ticks(pids: &[i32]) -> (u64, u64) {
    let mut r = (0, 0);
    for p in pids {
        if let Ok(s) = std::fs::read_to_string(format!("/proc/{p}/stat")) {
            if let Some(rest) = s.rfind(')').map(|i| &s[i + 2..]) {
                let f: Vec<&str> = rest.split(' ').collect();
                r.0 += f[11].parse::<u64>().unwrap_or(0);
                r.1 += f[12].parse::<u64>().unwrap_or(0);
            }
        }
    }
    r
}
pub(crate) fn field_kb(path: &str, key: &str) -> u64 {
    std::fs::read_to_string(path)
        .ok()
        .and_then(|s| s.lines().find(|l| l.starts_with(key)).and_then(|l| l.split_whitespace().nth(1)?.parse().ok()))
        .unwrap_or(0)
}
/// (RSS, PSS) in bytes
pub(crate) fn mem(pids: &[i32]) -> (u64, u64) {
    let rss = pids.iter().map(|p| field_kb(&format!("/proc/{p}/status"), "VmRSS:")).sum::<u64>() * 1024;
    let pss = pids.iter().map(|p| field_kb(&format!("/proc/{p}/smaps_rollup"), "Pss:")).sum::<u64>() * 1024;
    (rss, pss)
}
pub(crate) fn sys_busy_ticks() -> (u64, u64) {
    let s = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let v: Vec<u64> = s.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|x| x.parse().ok()).collect();
    let steal = v.get(7).copied().unwrap_or(0);
    (v.iter().enumerate().filter(|(i, _)| ![3, 4, 7, 8, 9].contains(i)).map(|(_, x)| x).sum(), steal)
}
pub(crate) fn tcp_mem_pages() -> u64 {
    let s = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    s.lines().find(|l| l.starts_with("TCP:")).and_then(|l| l.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

pub(crate) struct Meter {
    pub(crate) proxy: Vec<i32>,
    pub(crate) mock: Vec<i32>,
    pub(crate) me: Vec<i32>,
    pub(crate) t0: u64,
    pub(crate) p0: u64,
    pub(crate) m0: u64,
    pub(crate) s0: u64,
    pub(crate) k0: (u64, u64),
    pub(crate) b0: (u64, u64),
}
pub(crate) struct Used {
    pub(crate) wall: f64,
    pub(crate) proxy_s: f64,
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
    pub(crate) mock_s: f64,
    pub(crate) self_s: f64,
    /// share of both cores that others took
    pub(crate) foreign: f64,
    pub(crate) steal: f64,
}
impl Meter {
    pub(crate) fn start(a: &Args) -> Meter {
        let proxy = with_children(&a.proxy_pid);
        let mock = with_children(&a.mock_pid);
        let me = vec![std::process::id() as i32];
        Meter { t0: now_ns(), p0: cpu_ns(&proxy), m0: cpu_ns(&mock), s0: cpu_ns(&me), k0: ticks(&proxy), b0: sys_busy_ticks(), proxy, mock, me }
    }
    pub(crate) fn stop(&self) -> Used {
        let wall = (now_ns() - self.t0) as f64 / 1e9;
        let d = |n: u64, o: u64| n.saturating_sub(o) as f64 / 1e9;
        let (k, b) = (ticks(&self.proxy), sys_busy_ticks());
        let proxy_s = d(cpu_ns(&self.proxy), self.p0);
        let mock_s = d(cpu_ns(&self.mock), self.m0);
        let self_s = d(cpu_ns(&self.me), self.s0);
        let busy = (b.0 - self.b0.0) as f64 / 100.0;
        let ncpu = std::thread::available_parallelism().map_or(2, |n| n.get()).max(2) as f64;
        let own = if self.proxy.iter().any(|p| self.mock.contains(p)) { mock_s.max(proxy_s) + self_s } else { proxy_s + mock_s + self_s };
        Used {
            wall,
            proxy_s,
            user_s: (k.0 - self.k0.0) as f64 / 100.0,
            sys_s: (k.1 - self.k0.1) as f64 / 100.0,
            mock_s,
            self_s,
            foreign: ((busy - own) / wall / ncpu).max(0.0),
            steal: (b.1 - self.b0.1) as f64 / 100.0 / wall / ncpu,
        }
    }
}
pub(crate) fn used_json(u: &Used) -> serde_json::Value {
    json!({"wall_s": r3(u.wall), "proxy_cpu_s": r4(u.proxy_s), "proxy_user_s": u.user_s, "proxy_sys_s": u.sys_s, "mock_cpu_s": r4(u.mock_s),
           "loadgen_cpu_s": r4(u.self_s), "foreign_cpu": r3(u.foreign), "steal": r3(u.steal)})
}
pub(crate) fn r3(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}
pub(crate) fn r4(x: f64) -> f64 {
    (x * 1e4).round() / 1e4
}
pub(crate) fn hist() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000_000, 3).unwrap()
}
pub(crate) fn us(h: &Histogram<u64>, q: f64) -> f64 {
    (h.value_at_quantile(q) as f64 / 1e3 * 10.0).round() / 10.0
}
pub(crate) fn hist_json(h: &Histogram<u64>) -> serde_json::Value {
    json!({"p50_us": us(h, 0.5), "p90_us": us(h, 0.9), "p99_us": us(h, 0.99), "p999_us": us(h, 0.999), "max_us": us(h, 1.0), "count": h.len()})
}
pub(crate) fn merge(a: &mut serde_json::Value, b: serde_json::Value) {
    if let (Some(a), serde_json::Value::Object(b)) = (a.as_object_mut(), b) {
        a.extend(b);
    }
}


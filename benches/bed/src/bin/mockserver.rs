//! Fast MCP-like Streamable HTTP backend for benchmarks. Single-threaded, no auth, loopback only.
//! Law: answers cost it as little as may be, so that what is measured is the proxy in front.
//!
//! POST initialize              -> JSON + Mcp-Session-Id
//! POST tools/call              -> arguments {"mode":"json"|"sse","n":N,"bytes":B,"interval_us":I,"ids":bool,
//!                                 "batch":K,"flush":bool}
//! GET  (+ Last-Event-ID)       -> standalone SSE stream, or resumption of the stream the id names
//! DELETE                       -> 200
//! Event ids are self-describing (`p.<n>.<bytes>.<interval_us>.<rpcid>.<nonce>[.<batch>]:<seq>`), so a resume is stateless.
//!
//! Admin (other port): POST /set {"get_bytes":..,"get_interval_us":..,"get_first":bool,"hb_ms":..,"get_ids":bool}
//!                     POST /cut?abrupt | /cut?clean ; POST /emit (one event on every paced stream) ; GET /stats
//! Next: `loadgen/main.rs`.

use bed::{now_ns, put_digits, raise_nofile};
use bytes::{BufMut, Bytes, BytesMut};
use clap::Parser;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use std::collections::HashSet;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

#[derive(Parser, Clone)]
struct Args {
    /// addresses to serve on, comma separated
    #[arg(long, default_value = "127.0.0.1:9101")]
    listen: String,
    #[arg(long, default_value = "127.0.0.1:9191")]
    admin: String,
    /// answer 404 to session ids that this process did not issue
    #[arg(long)]
    strict: bool,
    #[arg(long, default_value_t = 15000)]
    hb_ms: u64,
}

#[derive(Default)]
struct Shared {
    strict: bool,
    get_bytes: AtomicU64,
    get_interval_us: AtomicU64,
    get_first: AtomicBool,
    get_ids: AtomicBool,
    hb_ms: AtomicU64,
    sessions: Mutex<HashSet<[u8; 32]>>,
    cut: Arc<Notify>,
    cut_clean: AtomicBool,
    /// every paced stream sends its next event now
    emit: Arc<Notify>,
    conns: AtomicU64,
    inits: AtomicU64,
    posts: AtomicU64,
    gets: AtomicU64,
    resumes: AtomicU64,
    deletes: AtomicU64,
    unknown: AtomicU64,
    events: AtomicU64,
    open_streams: AtomicU64,
}

#[derive(Deserialize)]
struct Rpc<'a> {
    #[serde(borrow)]
    id: Option<&'a serde_json::value::RawValue>,
    method: Option<std::borrow::Cow<'a, str>>,
    params: Option<Params>,
}
#[derive(Deserialize, Default)]
#[serde(default)]
struct Params {
    arguments: Option<CallArgs>,
    #[serde(rename = "protocolVersion")]
    protocol_version: Option<String>,
}
#[derive(Deserialize, Clone)]
#[serde(default)]
struct CallArgs {
    mode: String,
    n: u64,
    bytes: u64,
    interval_us: u64,
    ids: bool,
    batch: u32,
    flush: bool,
    first_now: bool,
}
impl Default for CallArgs {
    fn default() -> Self {
        CallArgs { mode: "json".into(), n: 1, bytes: 200, interval_us: 0, ids: true, batch: 1, flush: false, first_now: false }
    }
}

const PRE: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"@";
const POST_: &str = "\"}}\n\n";

struct Sse {
    sh: Arc<Shared>,
    /// next sequence number to send, from 1
    next: u64,
    /// 0 = endless
    n: u64,
    interval: Duration,
    ids: bool,
    batch: u32,
    flush: bool,
    yielded: bool,
    /// `id: <prefix>:`
    id_prefix: Bytes,
    /// the data line and the blank line, ready but for time and sequence
    tmpl: BytesMut,
    fin: Option<Bytes>,
    buf: BytesMut,
    sleep: Option<Pin<Box<Sleep>>>,
    due: Instant,
    hb: Duration,
    cut: Pin<Box<OwnedNotified>>,
    emit: Pin<Box<OwnedNotified>>,
    counted: u64,
    done: bool,
}

impl Sse {
    #[allow(clippy::too_many_arguments)]
    fn new(sh: Arc<Shared>, from: u64, n: u64, bytes: u64, interval_us: u64, ids: bool, key: &str, fin: Option<Bytes>, first_now: bool) -> Sse {
        let json_min = PRE.len() - 6 + 20 + 1 + 10 + 1 + POST_.len() - 2;
        let pad = (bytes as usize).saturating_sub(json_min);
        let mut tmpl = BytesMut::with_capacity(PRE.len() + 32 + pad + POST_.len());
        tmpl.put_slice(PRE.as_bytes());
        tmpl.put_slice(b"00000000000000000000#0000000000#");
        tmpl.put_bytes(b'x', pad);
        tmpl.put_slice(POST_.as_bytes());
        let mut cut = Box::pin(sh.cut.clone().notified_owned());
        cut.as_mut().enable();
        let mut emit = Box::pin(sh.emit.clone().notified_owned());
        emit.as_mut().enable();
        let hb = Duration::from_millis(sh.hb_ms.load(Relaxed));
        let interval = Duration::from_micros(interval_us);
        sh.open_streams.fetch_add(1, Relaxed);
        Sse {
            next: from,
            n,
            interval,
            ids,
            batch: 1,
            flush: false,
            yielded: false,
            id_prefix: Bytes::from(format!("id: {key}:")),
            tmpl,
            fin,
            buf: BytesMut::new(),
            sleep: None,
            due: if first_now { Instant::now() } else { Instant::now() + interval },
            hb,
            cut,
            emit,
            counted: 0,
            done: false,
            sh,
        }
    }
    fn put_id(&mut self) {
        if self.ids {
            self.buf.put_slice(&self.id_prefix);
            let mut b = itoa::Buffer::new();
            let s = b.format(self.next);
            self.buf.put_slice(s.as_bytes());
            self.buf.put_u8(b'\n');
        }
    }
    fn put_event(&mut self) {
        self.put_id();
        let o = PRE.len();
        put_digits(&mut self.tmpl[o..o + 20], now_ns());
        put_digits(&mut self.tmpl[o + 21..o + 31], self.next);
        self.buf.put_slice(&self.tmpl);
        self.next += 1;
        self.counted += 1;
    }
    fn take(&mut self) -> Bytes {
        let b = self.buf.split().freeze();
        if self.buf.capacity() < 1024 && self.interval.is_zero() {
            self.buf.reserve(64 * 1024);
        }
        b
    }
}
impl Drop for Sse {
    fn drop(&mut self) {
        self.sh.events.fetch_add(self.counted, Relaxed);
        self.sh.open_streams.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug)]
struct Cut;
impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut")
    }
}
impl std::error::Error for Cut {}

enum MockBody {
    Full(Option<Bytes>),
    Sse(Box<Sse>),
}
impl Body for MockBody {
    type Data = Bytes;
    type Error = Cut;
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            MockBody::Full(b) => Poll::Ready(b.take().map(|b| Ok(Frame::data(b)))),
            MockBody::Sse(s) => {
                let s: &mut Sse = s;
                if s.done {
                    return Poll::Ready(None);
                }
                if s.cut.as_mut().poll(cx).is_ready() {
                    s.done = true;
                    if s.sh.cut_clean.load(Relaxed) {
                        return Poll::Ready(None);
                    }
                    return Poll::Ready(Some(Err(Cut)));
                }
                if s.n != 0 && s.next > s.n {
                    // all events sent: the final response, or the end
                    s.done = true;
                    if let Some(fin) = s.fin.take() {
                        s.put_id();
                        s.buf.put_slice(&fin);
                        return Poll::Ready(Some(Ok(Frame::data(s.take()))));
                    }
                    return Poll::Ready(None);
                }
                if s.interval.is_zero() {
                    if s.flush && !std::mem::replace(&mut s.yielded, true) && s.counted > 0 {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    s.yielded = false;
                    for _ in 0..s.batch.max(1) {
                        if s.n != 0 && s.next > s.n {
                            break;
                        }
                        s.put_event();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(s.take()))));
                }
                // paced
                if s.emit.as_mut().poll(cx).is_ready() {
                    s.emit.set(s.sh.emit.clone().notified_owned());
                    let _ = s.emit.as_mut().poll(cx);
                    s.due = Instant::now();
                }
                loop {
                    let now = Instant::now();
                    if now >= s.due {
                        s.due += s.interval;
                        for _ in 0..s.batch.max(1) {
                            s.put_event();
                        }
                        let b = s.take();
                        if let Some(sl) = s.sleep.as_mut() {
                            sl.as_mut().reset(next_wake(s.due, now, s.hb));
                        }
                        return Poll::Ready(Some(Ok(Frame::data(b))));
                    }
                    let (due, hb) = (s.due, s.hb);
                    let sl = s.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next_wake(due, now, hb))));
                    match sl.as_mut().poll(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(()) => {
                            let now = Instant::now();
                            if now < s.due {
                                sl.as_mut().reset(next_wake(s.due, now, s.hb));
                                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": hb\n\n")))));
                            }
                        }
                    }
                }
            }
        }
    }
    fn is_end_stream(&self) -> bool {
        matches!(self, MockBody::Full(None))
    }
    fn size_hint(&self) -> SizeHint {
        match self {
            MockBody::Full(b) => SizeHint::with_exact(b.as_ref().map_or(0, |b| b.len() as u64)),
            MockBody::Sse(_) => SizeHint::default(),
        }
    }
}
fn next_wake(due: Instant, now: Instant, hb: Duration) -> Instant {
    if hb.is_zero() {
        due
    } else {
        due.min(now + hb)
    }
}

fn full(status: StatusCode, body: impl Into<Bytes>) -> Response<MockBody> {
    let mut r = Response::new(MockBody::Full(Some(body.into())));
    *r.status_mut() = status;
    r
}
fn json(body: impl Into<Bytes>) -> Response<MockBody> {
    let mut r = full(StatusCode::OK, body);
    r.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("application/json"));
    r
}
fn sse(s: Sse) -> Response<MockBody> {
    let mut r = Response::new(MockBody::Sse(Box::new(s)));
    r.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static("text/event-stream"));
    r.headers_mut().insert("cache-control", hyper::header::HeaderValue::from_static("no-cache"));
    r
}

fn new_sid() -> ([u8; 32], String) {
    let mut r = [0u8; 16];
    getrandom::fill(&mut r).unwrap();
    r[6] = (r[6] & 0x0f) | 0x40;
    r[8] = (r[8] & 0x3f) | 0x80;
    let mut hex = [0u8; 32];
    const H: &[u8; 16] = b"0123456789abcdef";
    for (i, b) in r.iter().enumerate() {
        hex[2 * i] = H[(b >> 4) as usize];
        hex[2 * i + 1] = H[(b & 15) as usize];
    }
    let s = std::str::from_utf8(&hex).unwrap();
    let u = format!("{}-{}-{}-{}-{}", &s[0..8], &s[8..12], &s[12..16], &s[16..20], &s[20..32]);
    (hex, u)
}
fn parse_sid(h: &[u8]) -> Option<[u8; 32]> {
    let mut o = [0u8; 32];
    let mut k = 0;
    for &b in h {
        if b == b'-' {
            continue;
        }
        if k == 32 {
            return None;
        }
        o[k] = b;
        k += 1;
    }
    (k == 32).then_some(o)
}

fn final_event(rpcid: &str) -> Bytes {
    Bytes::from(format!(
        "data: {{\"jsonrpc\":\"2.0\",\"id\":{rpcid},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"done\"}}],\"isError\":false}}}}\n\n"
    ))
}

async fn handle(req: Request<hyper::body::Incoming>, sh: Arc<Shared>) -> Result<Response<MockBody>, Infallible> {
    let (parts, body) = req.into_parts();
    let sid = parts.headers.get("mcp-session-id");
    let check = |sid: Option<&hyper::header::HeaderValue>| -> Option<Response<MockBody>> {
        if !sh.strict {
            return None;
        }
        match sid {
            None => Some(full(StatusCode::BAD_REQUEST, "no session id")),
            Some(v) => match parse_sid(v.as_bytes()) {
                Some(k) if sh.sessions.lock().unwrap().contains(&k) => None,
                _ => {
                    sh.unknown.fetch_add(1, Relaxed);
                    Some(full(StatusCode::NOT_FOUND, "unknown session"))
                }
            },
        }
    };
    if parts.method == Method::POST {
        let body = match body.collect().await {
            Ok(b) => b.to_bytes(),
            Err(_) => return Ok(full(StatusCode::BAD_REQUEST, "body")),
        };
        let rpc: Rpc = match serde_json::from_slice(&body) {
            Ok(r) => r,
            Err(e) => return Ok(full(StatusCode::BAD_REQUEST, format!("json: {e}"))),
        };
        let method = rpc.method.as_deref().unwrap_or("");
        let id = rpc.id.map(|r| r.get()).unwrap_or("null");
        if method == "initialize" {
            sh.inits.fetch_add(1, Relaxed);
            let (k, u) = new_sid();
            sh.sessions.lock().unwrap().insert(k);
            let pv = rpc.params.and_then(|p| p.protocol_version).unwrap_or_else(|| "2025-06-18".into());
            let mut r = json(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"protocolVersion\":{},\"capabilities\":{{\"tools\":{{}},\"logging\":{{}}}},\"serverInfo\":{{\"name\":\"mock\",\"version\":\"1.0.0\"}}}}}}",
                serde_json::to_string(&pv).unwrap()
            ));
            r.headers_mut().insert("mcp-session-id", u.parse().unwrap());
            return Ok(r);
        }
        if let Some(r) = check(sid) {
            return Ok(r);
        }
        sh.posts.fetch_add(1, Relaxed);
        if rpc.id.is_none() {
            return Ok(full(StatusCode::ACCEPTED, Bytes::new()));
        }
        return Ok(match method {
            "tools/call" => {
                let a = rpc.params.and_then(|p| p.arguments).unwrap_or_default();
                if a.mode == "sse" {
                    let mut nonce = [0u8; 4];
                    getrandom::fill(&mut nonce).unwrap();
                    let key = format!("p.{}.{}.{}.{}.{:x}", a.n, a.bytes, a.interval_us, id.trim_matches('"'), u32::from_le_bytes(nonce));
                    // what comes at once comes at once again to a client that comes back for it
                    let key = if a.batch > 1 { format!("{key}.{}", a.batch) } else { key };
                    let mut s = Sse::new(sh.clone(), 1, a.n, a.bytes, a.interval_us, a.ids, &key, Some(final_event(id)), true);
                    // spread the paced streams over their interval
                    if a.interval_us > 0 && !a.first_now {
                        s.due = Instant::now() + Duration::from_micros(u32::from_le_bytes(nonce) as u64 % a.interval_us);
                    }
                    s.batch = a.batch;
                    s.flush = a.flush;
                    sse(s)
                } else {
                    let mut b = BytesMut::with_capacity(160 + a.bytes as usize);
                    b.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
                    b.put_slice(id.as_bytes());
                    b.put_slice(b",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
                    b.put_bytes(b'x', a.bytes as usize);
                    b.put_slice(b"\"}],\"isError\":false}}");
                    json(b.freeze())
                }
            }
            "tools/list" => json(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"tools\":[{{\"name\":\"bench\",\"description\":\"bench\",\"inputSchema\":{{\"type\":\"object\"}}}}]}}}}"
            )),
            "ping" | "logging/setLevel" => json(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")),
            _ => json(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32601,\"message\":\"method not found\"}}}}"
            )),
        });
    }
    if let Some(r) = check(sid) {
        return Ok(r);
    }
    if parts.method == Method::GET {
        sh.gets.fetch_add(1, Relaxed);
        let last = parts.headers.get("last-event-id").and_then(|v| v.to_str().ok());
        if let Some((key, seq)) = last.and_then(|l| l.rsplit_once(':')) {
            let seq: u64 = seq.parse().unwrap_or(0);
            let f: Vec<&str> = key.split('.').collect();
            let num = |i: usize| f.get(i).and_then(|v| v.parse::<u64>().ok()).unwrap_or(0);
            sh.resumes.fetch_add(1, Relaxed);
            let fin = (f[0] == "p").then(|| final_event(f.get(4).copied().unwrap_or("null")));
            // the next event (or what is left of its batch) is replayed at once, later ones keep the pace
            let mut s = Sse::new(sh.clone(), seq + 1, num(1), num(2), num(3), true, key, fin, true);
            let batch = num(6).max(1);
            s.batch = (batch - seq % batch) as u32;
            return Ok(sse(s));
        }
        let (b, i) = (sh.get_bytes.load(Relaxed), sh.get_interval_us.load(Relaxed));
        let mut nonce = [0u8; 4];
        getrandom::fill(&mut nonce).unwrap();
        let key = format!("g.0.{}.{}.0.{:x}", b, i, u32::from_le_bytes(nonce));
        let mut s = Sse::new(sh.clone(), 1, 0, b, i, sh.get_ids.load(Relaxed), &key, None, sh.get_first.load(Relaxed));
        if !sh.get_first.load(Relaxed) && i > 0 && i < 3_600_000_000 {
            s.due = Instant::now() + Duration::from_micros(u32::from_le_bytes(nonce) as u64 % i);
        }
        return Ok(sse(s));
    }
    if parts.method == Method::DELETE {
        sh.deletes.fetch_add(1, Relaxed);
        if let Some(k) = sid.and_then(|v| parse_sid(v.as_bytes())) {
            sh.sessions.lock().unwrap().remove(&k);
        }
        return Ok(full(StatusCode::OK, Bytes::new()));
    }
    Ok(full(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()))
}

#[derive(Deserialize)]
struct Set {
    get_bytes: Option<u64>,
    get_interval_us: Option<u64>,
    get_first: Option<bool>,
    get_ids: Option<bool>,
    hb_ms: Option<u64>,
}

async fn admin(req: Request<hyper::body::Incoming>, sh: Arc<Shared>) -> Result<Response<MockBody>, Infallible> {
    let (parts, body) = req.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    Ok(match parts.uri.path() {
        "/set" => match serde_json::from_slice::<Set>(&body) {
            Ok(s) => {
                if let Some(v) = s.get_bytes {
                    sh.get_bytes.store(v, Relaxed);
                }
                if let Some(v) = s.get_interval_us {
                    sh.get_interval_us.store(v, Relaxed);
                }
                if let Some(v) = s.get_first {
                    sh.get_first.store(v, Relaxed);
                }
                if let Some(v) = s.get_ids {
                    sh.get_ids.store(v, Relaxed);
                }
                if let Some(v) = s.hb_ms {
                    sh.hb_ms.store(v, Relaxed);
                }
                json("{}")
            }
            Err(e) => full(StatusCode::BAD_REQUEST, e.to_string()),
        },
        "/cut" => {
            sh.cut_clean.store(parts.uri.query() == Some("clean"), Relaxed);
            let n = sh.open_streams.load(Relaxed);
            sh.cut.notify_waiters();
            json(format!("{{\"cut\":{n}}}"))
        }
        "/emit" => {
            sh.emit.notify_waiters();
            json("{}")
        }
        "/reset" => {
            sh.sessions.lock().unwrap().clear();
            json("{}")
        }
        _ => json(format!(
            "{{\"conns\":{},\"inits\":{},\"posts\":{},\"gets\":{},\"resumes\":{},\"deletes\":{},\"unknown\":{},\"events\":{},\"open_streams\":{},\"sessions\":{}}}",
            sh.conns.load(Relaxed),
            sh.inits.load(Relaxed),
            sh.posts.load(Relaxed),
            sh.gets.load(Relaxed),
            sh.resumes.load(Relaxed),
            sh.deletes.load(Relaxed),
            sh.unknown.load(Relaxed),
            sh.events.load(Relaxed),
            sh.open_streams.load(Relaxed),
            sh.sessions.lock().unwrap().len()
        )),
    })
}

fn bind(addr: &str) -> tokio::net::TcpListener {
    let a: std::net::SocketAddr = addr.trim().parse().expect("address");
    assert!(a.ip().is_loopback(), "loopback only");
    let s = tokio::net::TcpSocket::new_v4().unwrap();
    s.set_reuseaddr(true).unwrap();
    s.bind(a).unwrap_or_else(|e| panic!("bind {a}: {e}"));
    s.listen(65535).unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args = Args::parse();
    raise_nofile();
    let sh = Arc::new(Shared { strict: args.strict, ..Default::default() });
    sh.get_bytes.store(200, Relaxed);
    sh.get_interval_us.store(3_600_000_000, Relaxed);
    sh.get_ids.store(true, Relaxed);
    sh.hb_ms.store(args.hb_ms, Relaxed);
    let al = bind(&args.admin);
    {
        let sh = sh.clone();
        tokio::spawn(async move {
            loop {
                let Ok((s, _)) = al.accept().await else { continue };
                let sh = sh.clone();
                tokio::spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(s), service_fn(|r| admin(r, sh.clone())))
                        .await;
                });
            }
        });
    }
    for a in args.listen.split(',') {
        let l = bind(a);
        let sh = sh.clone();
        tokio::spawn(async move {
            loop {
                let s = match l.accept().await {
                    Ok((s, _)) => s,
                    Err(e) => {
                        eprintln!("accept: {e}");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                };
                let _ = s.set_nodelay(true);
                sh.conns.fetch_add(1, Relaxed);
                let sh = sh.clone();
                tokio::spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(None)
                        .writev(false)
                        .max_buf_size(64 * 1024)
                        .serve_connection(TokioIo::new(s), service_fn(|r| handle(r, sh.clone())))
                        .await;
                });
            }
        });
    }
    eprintln!("mock on {} admin {}", args.listen, args.admin);
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    tokio::select! { _ = term.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
}

//! Connections and requests of one run: where to, from which address, and what went wrong.
//! Law: loopback only. A closed connection is reset, so that no port stays in TIME_WAIT and a cut looks like a cut.
//! Next: `raw.rs`.

use crate::args::Args;
use crate::tls::Tls;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;

pub(crate) type BoxErr = Box<dyn std::error::Error>;

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) addr: SocketAddr,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) encrypted: bool,
}
pub(crate) fn parse_target(s: &str) -> Target {
    let u: hyper::Uri = s.parse().expect("target url");
    let auth = u.authority().expect("authority").clone();
    let addr: SocketAddr = format!("{}:{}", auth.host(), auth.port_u16().unwrap_or(80)).parse().expect("literal address");
    assert!(addr.ip().is_loopback(), "loopback only");
    Target { addr, host: auth.to_string(), path: u.path().to_string(), encrypted: u.scheme_str() == Some("https") }
}

pub(crate) struct Ctx {
    pub(crate) targets: Vec<Target>,
    pub(crate) src: Vec<Ipv4Addr>,
    pub(crate) no_initialized: bool,
    /// for https:// targets
    pub(crate) tls: Option<Tls>,
    pub(crate) next_src: Cell<usize>,
    pub(crate) errors: RefCell<std::collections::BTreeMap<String, u64>>,
}
impl Ctx {
    pub(crate) fn err(&self, e: impl std::fmt::Display) {
        let mut s = e.to_string();
        s.truncate(80);
        *self.errors.borrow_mut().entry(s).or_default() += 1;
    }
    pub(crate) fn target(&self, i: usize) -> &Target {
        &self.targets[i % self.targets.len()]
    }
}

enum Requests {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub(crate) struct Conn {
    requests: Requests,
    /// of the driver task; ends with the connection
    pub(crate) task: tokio::task::JoinHandle<()>,
}
impl Conn {
    pub(crate) async fn send(&mut self, t: &Target, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, BoxErr> {
        Ok(match &mut self.requests {
            Requests::Http1(tx) => {
                tx.ready().await?;
                tx.send_request(request).await?
            }
            Requests::Http2(tx) => {
                tx.ready().await?;
                let scheme = if t.encrypted { "https" } else { "http" };
                *request.uri_mut() = format!("{scheme}://{}{}", t.host, t.path).parse()?;
                request.headers_mut().remove("host");
                tx.send_request(request).await?
            }
        })
    }

    pub(crate) fn kill(&self) {
        self.task.abort();
    }
}
impl Drop for Conn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) const INIT: &[u8] = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"loadgen","version":"1.0.0"}}}"#;

pub(crate) async fn tcp(ctx: &Ctx, t: &Target) -> Result<tokio::net::TcpStream, BoxErr> {
    let s = TcpSocket::new_v4()?;
    if !ctx.src.is_empty() {
        let k = ctx.next_src.get();
        ctx.next_src.set(k + 1);
        let one: libc::c_int = 1;
        unsafe {
            libc::setsockopt(s.as_raw_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &one as *const _ as *const _, 4);
        }
        s.bind(SocketAddr::V4(SocketAddrV4::new(ctx.src[k % ctx.src.len()], 0)))?;
    }
    // closing sends RST: no TIME_WAIT is left, and a cut looks like a cut
    let l = libc::linger { l_onoff: 1, l_linger: 0 };
    unsafe {
        libc::setsockopt(s.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &l as *const _ as *const _, std::mem::size_of_val(&l) as u32);
    }
    let s = s.connect(t.addr).await?;
    s.set_nodelay(true)?;
    Ok(s)
}
pub(crate) async fn connect(ctx: &Ctx, t: &Target) -> Result<Conn, BoxErr> {
    let s = tcp(ctx, t).await?;
    match &ctx.tls {
        Some(tls) if t.encrypted => speak(tls.over(t, s).await?, tls.protocol).await,
        Some(tls) => speak(s, tls.protocol).await,
        None => speak(s, Protocol::Http1).await,
    }
}

/// What is spoken over a connection, whatever its encryption.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + 'static>(s: S, protocol: Protocol) -> Result<Conn, BoxErr> {
    Ok(match protocol {
        Protocol::Http1 => {
            let (tx, conn) = http1::Builder::new().writev(false).handshake(TokioIo::new(s)).await?;
            let task = tokio::task::spawn_local(async move {
                let _ = conn.await;
            });
            Conn { requests: Requests::Http1(tx), task }
        }
        Protocol::Http2 => {
            let (tx, conn) = http2::handshake(Here, TokioIo::new(s)).await?;
            let task = tokio::task::spawn_local(async move {
                let _ = conn.await;
            });
            Conn { requests: Requests::Http2(tx), task }
        }
    })
}

/// Runs on this thread what hyper wants to be run beside a connection.
#[derive(Clone, Copy)]
struct Here;
impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

// hyper hands every chunk up as a frame of its own, which costs the client more than the parsing does;
// this one reads 64 KiB at a time and walks the chunks in place.
pub(crate) fn post(t: &Target, sid: Option<&str>, body: Bytes) -> Request<Full<Bytes>> {
    let mut b = Request::builder()
        .method(Method::POST)
        .uri(&t.path)
        .header("host", &t.host)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if let Some(s) = sid {
        b = b.header("mcp-session-id", s).header("mcp-protocol-version", "2025-06-18");
    }
    b.body(Full::new(body)).unwrap()
}
pub(crate) fn get(t: &Target, sid: &str, last: Option<&str>) -> Request<Full<Bytes>> {
    let mut b = Request::builder()
        .method(Method::GET)
        .uri(&t.path)
        .header("host", &t.host)
        .header("accept", "text/event-stream")
        .header("mcp-session-id", sid)
        .header("mcp-protocol-version", "2025-06-18");
    if let Some(l) = last {
        b = b.header("last-event-id", l);
    }
    b.body(Full::default()).unwrap()
}

pub(crate) async fn initialize(ctx: &Ctx, t: &Target, c: &mut Conn) -> Result<String, BoxErr> {
    let body = Bytes::from_static(INIT);
    let r = c.send(t, post(t, None, body)).await?;
    if r.status() != StatusCode::OK {
        let st = r.status();
        let b = r.into_body().collect().await?.to_bytes();
        return Err(format!("initialize: {st} {}", String::from_utf8_lossy(&b[..b.len().min(60)])).into());
    }
    let sid = r.headers().get("mcp-session-id").and_then(|v| v.to_str().ok()).unwrap_or("").to_string();
    r.into_body().collect().await?;
    if sid.is_empty() {
        return Err("initialize: no session id".into());
    }
    if !ctx.no_initialized {
        let r = c.send(t, post(t, Some(&sid), Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#))).await?;
        let st = r.status();
        r.into_body().collect().await?;
        if !st.is_success() {
            return Err(format!("initialized: {st}").into());
        }
    }
    Ok(sid)
}

pub(crate) async fn admin(addr: &str, path: &str, body: String) -> Result<Bytes, BoxErr> {
    let s = tokio::net::TcpStream::connect(addr).await?;
    let (mut tx, conn) = hyper::client::conn::http1::handshake(TokioIo::new(s)).await?;
    let h = tokio::task::spawn_local(async move {
        let _ = conn.await;
    });
    let r = tx.send_request(Request::post(path).header("host", "admin").body(Full::new(Bytes::from(body)))?).await?;
    let b = r.into_body().collect().await?.to_bytes();
    h.abort();
    Ok(b)
}
pub(crate) async fn admin_all(a: &Args, path: &str, body: &str) {
    for x in &a.admin {
        if let Err(e) = admin(x, path, body.to_string()).await {
            eprintln!("admin {x}{path}: {e}");
        }
    }
}

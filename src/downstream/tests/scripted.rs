//! What the client side's own tests stand on: a connection in memory, and somebody who answers by a script.
//! Law: nothing here waits for time; a paused clock drives what has a limit.
//! Next: `wire.rs`.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::config::live::Live;
use crate::config::resolved::Upstream;
use crate::config::{self, Flags};
use crate::downstream::endpoint::Routes;
use crate::downstream::front::{Bodies, Drain, Front, Limits, Link, Seats};
use crate::downstream::http_task;
use crate::downstream::meter::Meter;
use crate::downstream::origin::HostGate;
use crate::net::{Io, Unacked};
use crate::pure::log::Slices;
use crate::relay::answer::{Answer, Attach, Call, Opening, PassingBody, Refused, Serve};
use crate::relay::sink::{ClientSink, Ending, Gone};
use crate::telemetry::instruments::Instruments;

/// One end of a connection in memory.
#[derive(Debug)]
pub(crate) struct Pipe {
    io: DuplexStream,
    pub(crate) reset: Arc<AtomicBool>,
}

impl Io for Pipe {
    fn unacked(&self) -> Unacked {
        Unacked::Unknown
    }

    fn reset_on_close(&self) {
        self.reset.store(true, Ordering::SeqCst);
    }

    fn peer(&self) -> SocketAddr {
        ([192, 0, 2, 9], 4321).into()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Answers by the query: `json`, `stream`, `pass`, `wait`, `gone`.
pub(crate) struct Script {
    calls: UnboundedSender<(usize, Call)>,
    sinks: UnboundedSender<Box<dyn ClientSink>>,
    passing: Mutex<Option<UnboundedReceiver<io::Result<Bytes>>>>,
    dropped: UnboundedSender<()>,
}

impl Serve for Script {
    type Body = Pieces;

    async fn serve(&self, upstream: usize, call: Box<Call>) -> Answer<Pieces> {
        let text = String::from_utf8_lossy(&call.body).into_owned();
        let what = call.query.clone().unwrap_or_default();
        self.calls.send((upstream, *call)).unwrap();
        match &*what {
            "stream" => {
                let mut headers = HeaderMap::new();
                headers.insert("content-type", "text/event-stream".parse().unwrap());
                Answer::Stream(Box::new(Opening {
                    headers,
                    ticket: Box::new(Ticket(self.sinks.clone())),
                }))
            }
            "pass" => {
                let pieces = self.passing.lock().unwrap().take().expect("one passing body");
                let mut response = Response::new(Pieces(pieces));
                response
                    .headers_mut()
                    .insert("connection", "keep-alive, x-hop".parse().unwrap());
                response.headers_mut().insert("x-hop", "1".parse().unwrap());
                Answer::Passing(Box::new(response))
            }
            "wait" => {
                let _told = Told(self.dropped.clone());
                std::future::pending().await
            }
            "gone" => Answer::Refused(Refused::SessionGone),
            _ => Answer::Whole(Box::new(Response::new(format!("<{text}>").into()))),
        }
    }
}

struct Told(UnboundedSender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

struct Ticket(UnboundedSender<Box<dyn ClientSink>>);

impl Attach for Ticket {
    fn attach(self: Box<Self>, sink: Box<dyn ClientSink>) {
        let _ = self.0.send(sink);
    }
}

/// A passing body made of what a test sends.
pub(crate) struct Pieces(UnboundedReceiver<io::Result<Bytes>>);

impl PassingBody for Pieces {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.0.poll_recv(cx)
    }
}

/// What the script saw, and the other end of what it passes on.
pub(crate) struct Seen {
    pub(crate) calls: UnboundedReceiver<(usize, Call)>,
    pub(crate) sinks: UnboundedReceiver<Box<dyn ClientSink>>,
    pub(crate) pieces: UnboundedSender<io::Result<Bytes>>,
    pub(crate) dropped: UnboundedReceiver<()>,
}

impl Script {
    pub(crate) fn new() -> (Arc<Self>, Seen) {
        let (calls, seen_calls) = unbounded_channel();
        let (sinks, seen_sinks) = unbounded_channel();
        let (pieces, passing) = unbounded_channel();
        let (dropped, seen_dropped) = unbounded_channel();
        let script = Self {
            calls,
            sinks,
            passing: Mutex::new(Some(passing)),
            dropped,
        };
        (
            Arc::new(script),
            Seen {
                calls: seen_calls,
                sinks: seen_sinks,
                pieces,
                dropped: seen_dropped,
            },
        )
    }
}

/// One client on one connection, and what the script saw of it.
pub(crate) struct Bench {
    pub(crate) client: DuplexStream,
    pub(crate) seen: Seen,
    pub(crate) drain: Arc<Drain>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) reset: Arc<AtomicBool>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) connection_bytes: usize,
}

/// The limits of these tests: each far from the others.
pub(crate) const LIMITS: Limits = Limits {
    head_bytes_max: 1024,
    body_bytes_max: 64,
    head_timeout: Duration::from_secs(3),
    body_timeout: Duration::from_secs(7),
    idle_timeout: Duration::from_secs(60),
};

impl Bench {
    /// A connection whose pipe holds this many bytes in each direction.
    pub(crate) fn new(capacity: usize) -> Self {
        let (client, server) = tokio::io::duplex(capacity);
        let (script, seen) = Script::new();
        let drain = Arc::new(Drain::default());
        let front = Arc::new(Front {
            answers: script,
            routes: live(routes()),
            gate: live(HostGate::new(([127, 0, 0, 1], 8080).into(), &[], &[])),
            limits: live(LIMITS),
            drain: Arc::clone(&drain),
            instruments: Arc::new(Instruments::new(&[])),
            bodies: Bodies::new(0),
        });
        let seats = Seats::new(1);
        let reset = Arc::new(AtomicBool::new(false));
        let io = Pipe {
            io: server,
            reset: Arc::clone(&reset),
        };
        let seat = seats.take(&front.instruments.connections_live).unwrap();
        let link = Link::new(io, Meter::Writer, seat);
        let connection = http_task::connection(front, link);
        let connection_bytes = std::mem::size_of_val(&connection);
        let task = tokio::spawn(connection);
        Self {
            client,
            seen,
            drain,
            seats,
            reset,
            task,
            connection_bytes,
        }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads exactly this, the date aside.
    #[track_caller]
    pub(crate) fn expect<'a>(&'a mut self, expected: &'a str) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let mut got = String::new();
            while without_date(&got).len() < expected.len() {
                let mut byte = [0];
                match self.client.read(&mut byte).await.unwrap() {
                    0 => break,
                    _ => got.push(byte[0].into()),
                }
            }
            assert_eq!(without_date(&got), expected, "at {caller}");
        }
    }

    /// Reads to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        self.client.read_to_end(&mut rest).await.unwrap();
        without_date(std::str::from_utf8(&rest).unwrap())
    }

    pub(crate) async fn sink(&mut self) -> Box<dyn ClientSink> {
        self.seen.sinks.recv().await.unwrap()
    }
}

/// The text without its `date` lines; one that is not whole yet, or may become one, counts as absent.
fn without_date(text: &str) -> String {
    const DATE: &str = "date: ";
    let is_date = |line: &&str| line.starts_with(DATE) || DATE.starts_with(*line);
    text.split_inclusive("\r\n")
        .filter(|line| !is_date(line))
        .collect()
}

/// Offers parts once; `None` if the sink can't take anything now.
pub(crate) async fn offer(sink: &mut dyn ClientSink, parts: &[&[u8]]) -> Option<io::Result<usize>> {
    let mut slices = Slices::new();
    for part in parts {
        assert!(slices.push(part));
    }
    std::future::poll_fn(|cx| match sink.poll_send(cx, &slices) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Sends all of it, offering again what was not taken.
pub(crate) async fn send_all(sink: &mut dyn ClientSink, mut bytes: &[u8]) {
    loop {
        let mut slices = Slices::new();
        assert!(slices.push(bytes));
        let taken = std::future::poll_fn(|cx| sink.poll_send(cx, &slices))
            .await
            .unwrap();
        bytes = &bytes[taken..];
        if bytes.is_empty() {
            return;
        }
    }
}

pub(crate) async fn gone(sink: &mut dyn ClientSink) -> Gone {
    std::future::poll_fn(|cx| sink.poll_gone(cx)).await
}

/// Looks once whether the client is gone.
pub(crate) async fn gone_now(sink: &mut dyn ClientSink) -> Option<Gone> {
    std::future::poll_fn(|cx| match sink.poll_gone(cx) {
        Poll::Ready(gone) => Poll::Ready(Some(gone)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(crate) async fn end(sink: &mut dyn ClientSink, how: Ending) {
    std::future::poll_fn(|cx| sink.poll_end(cx, how)).await;
}

/// An HTTP/2 client over any connection.
pub(crate) async fn http2<T>(io: T) -> SendRequest<Full<Bytes>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io))
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

pub(crate) fn request(host: &str, path: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::post(format!("https://{host}{path}"))
        .body(Full::from(body))
        .unwrap()
}

/// Two upstreams: `/other`, then `/mcp`.
fn routes() -> Routes {
    let flags = Flags {
        upstreams: vec!["http://127.0.0.1:9/mcp".into()],
        ..Flags::default()
    };
    let (config, _) = config::read_in(&flags, &|_| None).unwrap();
    let upstream = |path: &str| {
        Arc::new(Upstream {
            path: path.into(),
            ..Upstream::clone(&config.upstreams[0])
        })
    };
    Routes::new(&[upstream("/other"), upstream("/mcp")])
}

fn live<T>(value: T) -> Arc<Live<T>> {
    Arc::new(Live::new(Arc::new(value)))
}

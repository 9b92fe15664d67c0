//! One connection while it speaks HTTP: hyper inside, and around it the loop that knows what hyper does not.
//! Law: the task ends with the connection, or with a takeover: then the socket is the stream's and nothing stays here.
//! Polled, in this order, all of them safe to drop: hyper, the desk (a takeover that waits), the call to drain, one
//! timer. The timer is moved only when it fires or a nearer limit begins, so a busy connection never touches it.
//! Absent on purpose: hyper's own time limits (they can't tell an idle connection from a slow head).
//! Next: `usual_task.rs`, then `tap.rs`.

use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncWriteExt, ReadBuf};
use tokio::time::sleep;

use crate::downstream::endpoint::{self, Foregone};
use crate::downstream::front::{Drain, Front, Limits, Link, note_receipt};
use crate::downstream::linger::linger;
use crate::downstream::reject::Unheard;
use crate::downstream::takeover::Takeover;
use crate::downstream::tap::{Desk, HeadLines, Phase, Scan, Tap};
use crate::downstream::usual_task::{self, Usual};
use crate::downstream::waits::{Told, Wait, Waits};
use crate::net::Io;
use crate::relay::answer::Serve;
use crate::telemetry::words::Turned;

/// Largest read buffer of an HTTP/1 connection, unless a head may be longer; it begins with 8 KiB. Also the most bytes
/// of an answer that hyper holds unsent before it waits for the client.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// How long an idle connection keeps hyper's state and buffer (some 12 KiB); above the pauses within a run of calls.
pub(crate) const REST_AFTER: Duration = Duration::from_secs(2);

/// Bytes read at once when a resting connection wakes; hyper reads the rest.
const WAKE_BYTES: usize = 2 * 1024;

/// Streams that one HTTP/2 connection may have at a time; the least that RFC 9113 recommends.
const STREAMS_MAX: u32 = 100;

/// Bytes of answers that may wait in one HTTP/2 stream: back-pressure is felt after them.
const STREAM_SEND_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a request body that a client may send ahead on one HTTP/2 stream.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// Bytes that a client may send ahead on one HTTP/2 connection.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Silence after which an HTTP/2 client is asked whether it lives.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// How long it may take to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// What an HTTP/2 client sends first (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How one turn of a connection in HTTP/1 ended.
pub(crate) enum Turn<T> {
    /// It has been idle for a while; it may go on without hyper.
    Idle(Link<T>),
    /// It is over; its end is still to be made orderly.
    Over(Link<T>),
    /// The client is gone, or idle for too long: nothing more is said.
    Gone,
    /// A head did not arrive in time.
    TooSlow(Link<T>),
    /// A stream takes it.
    Taken(Link<T>, Takeover),
    /// The client speaks HTTP/2 without having asked (prior knowledge).
    Http2(Link<T>),
}

/// Serves one connection that begins with HTTP/1, or goes on with it after a stream. What speaks is boxed, so that a
/// connection that rests is small.
pub(crate) async fn connection<T: Io, S: Serve>(front: Arc<Front<S>>, mut link: Link<T>) {
    let peer = link.io.peer().ip();
    loop {
        match speak(&front, link).await {
            Turn::Idle(idle) => match rest(&front, idle).await {
                Some(woken) => link = woken,
                None => return,
            },
            Turn::Over(link) => return Box::pin(linger(link)).await,
            Turn::Gone => return,
            Turn::TooSlow(link) => {
                front.refused(Unheard::HeadTooSlow.word(), peer);
                return Box::pin(refuse(link, Unheard::HeadTooSlow, front.limits.head_timeout)).await;
            }
            Turn::Taken(link, takeover) => return takeover.attach(link, front),
            Turn::Http2(link) => return Box::pin(http2_connection(front, link)).await,
        }
    }
}

/// Serves a connection while it speaks: without hyper as long as that can be, then with it.
async fn speak<T: Io, S: Serve>(front: &Arc<Front<S>>, link: Link<T>) -> Turn<T> {
    let usual = Box::pin(usual_task::turn(front, link)).await;
    match usual {
        Usual::Ended(turn) => turn,
        Usual::Unusual(unread, foregone) => Box::pin(http1_turn(front, unread, foregone)).await,
    }
}

/// Waits for the next request without hyper. `None` if the connection is over: by its peer, by time, or by the drain.
async fn rest<T: Io, S>(front: &Front<S>, mut link: Link<T>) -> Option<Link<T>> {
    let mut called = pin!(front.drain.called());
    called.as_mut().enable();
    if front.drain.has_begun() {
        return None;
    }
    let mut deadline = pin!(sleep(front.limits.idle_timeout.saturating_sub(REST_AFTER)));
    link.left = std::future::poll_fn(|cx| {
        let mut space = [MaybeUninit::uninit(); WAKE_BYTES];
        let mut woken = ReadBuf::uninit(&mut space);
        match Pin::new(&mut link.io).poll_read(cx, &mut woken) {
            Poll::Ready(Ok(())) if woken.filled().is_empty() => return Poll::Ready(None),
            Poll::Ready(Ok(())) => return Poll::Ready(Some(Bytes::copy_from_slice(woken.filled()))),
            Poll::Ready(Err(_)) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        if called.as_mut().poll(cx).is_ready() || deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await?;
    note_receipt(&link.io, &mut link.receipt);
    Some(link)
}

/// Says why a connection is not served, and ends it.
pub(crate) async fn refuse<T: Io>(mut link: Link<T>, why: Unheard, at_most: Duration) {
    let said = tokio::time::timeout(at_most, link.io.write_all(why.bytes())).await;
    if let Ok(Ok(())) = said {
        linger(link).await;
    }
}

/// What happened to hyper's connection while it was watched.
enum Seen {
    Finished(hyper::Result<()>),
    Taken(Takeover),
    Overdue(Phase),
}

/// Serves a connection with hyper. What is foregone is the answer to its first request.
async fn http1_turn<T: Io, S: Serve>(
    front: &Arc<Front<S>>,
    link: Link<T>,
    foregone: Option<Foregone<S>>,
) -> Turn<T> {
    let Link {
        io,
        left,
        meter,
        seat,
        receipt,
    } = link;
    let desk = Arc::new(Desk::default());
    let peer = io.peer().ip();
    let tap = Tap::new(io, left, Scan::Http1(HeadLines::new()), Arc::clone(&desk)).with_receipt(receipt);
    let foregone = Mutex::new(foregone);
    let service = service_fn(|request| {
        let foregone = foregone.lock().unwrap_or_else(PoisonError::into_inner).take();
        endpoint::http1(Arc::clone(front), Arc::clone(&desk), peer, request, foregone)
    });
    let mut http = http1_builder(**front.limits).serve_connection(TokioIo::new(tap), service);
    let waits = Waits::of(**front.limits, REST_AFTER.min(front.limits.idle_timeout));
    let seen = watch(
        &mut http,
        http1::Connection::graceful_shutdown,
        &desk,
        &front.drain,
        waits,
    )
    .await;
    let parts = http.into_parts();
    let read_ahead = parts.read_buf;
    let (io, unread, receipt) = parts.io.into_inner().into_parts();
    let mut link = Link {
        io,
        left: unread,
        meter,
        seat,
        receipt,
    };
    match seen {
        Seen::Taken(takeover) => {
            link.left = joined(read_ahead, link.left);
            Turn::Taken(link, takeover)
        }
        Seen::Finished(Err(error)) if error.is_parse() && read_ahead.starts_with(HTTP2_PREFACE) => {
            link.left = joined(read_ahead, link.left);
            Turn::Http2(link)
        }
        Seen::Finished(end) => {
            if let Some(why) = end.err().as_ref().and_then(misread) {
                front.refused(why, peer);
            }
            if desk.has_ended() {
                Turn::Gone
            } else {
                Turn::Over(link)
            }
        }
        Seen::Overdue(Phase::Head { .. }) => Turn::TooSlow(link),
        Seen::Overdue(Phase::Idle { .. }) if read_ahead.is_empty() && link.left.is_empty() => {
            Turn::Idle(link)
        }
        Seen::Overdue(Phase::Idle { .. } | Phase::Body { .. } | Phase::Stalled { .. } | Phase::Busy) => {
            Turn::Gone
        }
    }
}

/// hyper within our bounds. Time limits are ours.
fn http1_builder(limits: Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(limits.head_bytes_max)
        .max_buf_size(limits.head_bytes_max.max(BUFFER_BYTES_MAX))
        .header_read_timeout(None);
    builder
}

/// What hyper refused by itself, before there was a request.
fn misread(error: &hyper::Error) -> Option<Turned> {
    if error.is_parse_too_large() {
        Some(Turned::HeadTooLarge)
    } else {
        error.is_parse().then_some(Turned::Malformed)
    }
}

/// What was read ahead, and what was not read yet, in this order.
pub(crate) fn joined(ahead: Bytes, unread: Bytes) -> Bytes {
    match (ahead.is_empty(), unread.is_empty()) {
        (_, true) => ahead,
        (true, false) => unread,
        (false, false) => [ahead, unread].concat().into(),
    }
}

/// Serves one connection in HTTP/2.
pub(crate) async fn http2_connection<T: Io, S: Serve>(front: Arc<Front<S>>, link: Link<T>) {
    let Link {
        io,
        left,
        meter: _,
        seat,
        receipt: _,
    } = link;
    let desk = Arc::new(Desk::default());
    let peer = io.peer().ip();
    let tap = Tap::new(io, left, Scan::Nothing, Arc::clone(&desk));
    let service = {
        let (front, desk) = (Arc::clone(&front), Arc::clone(&desk));
        service_fn(move |request| endpoint::http2(Arc::clone(&front), Arc::clone(&desk), peer, request))
    };
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(front.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(STREAM_SEND_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut http = builder.serve_connection(TokioIo::new(tap), service);
    // How it ended is of no use to anybody: every stream of it has been told by its own body.
    let waits = Waits::of(**front.limits, front.limits.idle_timeout);
    let _ = watch(
        &mut http,
        http2::Connection::graceful_shutdown,
        &desk,
        &front.drain,
        waits,
    )
    .await;
    drop(seat);
}

/// Drives one of hyper's connections until it is over, taken, or overdue.
async fn watch<C>(http: &mut C, finish_up: fn(Pin<&mut C>), desk: &Desk, drain: &Drain, waits: Waits) -> Seen
where
    C: Future<Output = hyper::Result<()>> + Unpin,
{
    let mut called = pin!(drain.called());
    called.as_mut().enable();
    let mut told = Told::by(drain);
    let mut timer = pin!(sleep(waits.idle()));
    let mut wait = Wait::new(waits);
    std::future::poll_fn(move |cx| {
        loop {
            if let Poll::Ready(end) = Pin::new(&mut *http).poll(cx) {
                return Poll::Ready(Seen::Finished(end));
            }
            if let Some(takeover) = desk.take() {
                return Poll::Ready(Seen::Taken(takeover));
            }
            if told.hear(drain, called.as_mut(), cx) == Told::ToFinish {
                finish_up(Pin::new(&mut *http));
                continue;
            }
            return wait
                .poll_overdue(timer.as_mut(), desk.phase(), cx)
                .map(Seen::Overdue);
        }
    })
    .await
}

//! Accepts connections of the admin listener and answers one request on each.
//! Law: at most [`CONNECTIONS_MAX`] at a time, each over within [`CONNECTION_TIME_MAX`], whatever its peer does. One
//! more takes the place of the oldest: who connects and says nothing can't keep a prober out.
//! The one await is a `select!` over cancel-safe arms: the end, a finished connection, a new one.
//! Next: `telemetry/instruments.rs`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::Admin;

/// Most connections at a time; one more ends the oldest. A scraper and a prober need two.
const CONNECTIONS_MAX: usize = 64;
/// Longest life of a connection: a slow scraper on a bad line manages.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time for a request to arrive: it is one packet.
const HEAD_TIME_MAX: Duration = Duration::from_secs(3);
/// Longest request head, in bytes; the least that hyper works with.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Pause after a failed accept: what is missing then (file descriptors, memory) is not there at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is ready; connections that are open then are cut.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>, shutdown: impl Future<Output = ()> + Send) {
    let mut connections = JoinSet::new();
    // Those that are over are still named here for a while; ending them again does nothing.
    let mut oldest: VecDeque<AbortHandle> = VecDeque::with_capacity(CONNECTIONS_MAX);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    oldest.retain(|one| !one.is_finished());
                    if oldest.len() == CONNECTIONS_MAX
                        && let Some(one) = oldest.pop_front()
                    {
                        one.abort();
                    }
                    oldest.push_back(connections.spawn(connection(socket, admin.clone())));
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to accept an admin connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

async fn connection(socket: TcpStream, admin: Arc<Admin>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = admin.answer(&request);
        ready(Ok::<Response<Full<bytes::Bytes>>, Infallible>(
            response.map(Full::new),
        ))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(socket), service);
    // A peer that breaks off or is too slow is its own trouble; there is nothing to tell it.
    let _ = timeout(CONNECTION_TIME_MAX, connection).await;
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;
    use crate::admin::status::State;

    async fn start() -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let admin = Arc::new(Admin::for_tests(&[State::Unhealthy], &[]));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, admin, async move {
            let _ = stopped.await;
        }));
        (address, stop, task)
    }

    /// Sends literal bytes and compares the beginning of the answer and a part of it.
    async fn check(request: &[u8], begins: &str, holds: &str) {
        let (address, stop, task) = start().await;
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        match socket.read_to_end(&mut answer).await {
            Ok(_) => {}
            // Unread input turns the close into a reset; what came before it is the answer.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with(begins) && answer.contains(holds), "{answer}");
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn literal_requests() {
        check(
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "\r\n\r\nok\n",
        )
        .await;
        check(
            b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 503 ",
            "no_healthy_replica\n",
        )
        .await;
        check(
            b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "# EOF\n",
        )
        .await;
        check(
            b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "content-length: 3\r\n",
        )
        .await;
        check(
            b"PUT /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 405 ",
            "allow: GET, HEAD\r\n",
        )
        .await;
        check(b"nonsense\r\n\r\n", "HTTP/1.1 400 ", "").await;
        // One request for each connection: the second one is not answered.
        let two = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n";
        check(two, "HTTP/1.1 200 OK\r\n", "connection: close\r\n").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_cut() {
        let (address, stop, task) = start().await;
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"GET /healthz HT").await.unwrap();
        // The clock is paused and runs ahead only while everything waits.
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    #[tokio::test]
    async fn silent_connections_keep_nobody_out() {
        let (address, stop, task) = start().await;
        let mut silent = Vec::new();
        for _ in 0..3 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut socket = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        socket.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
        // The oldest were let go, without any time going by.
        let mut rest = Vec::new();
        let _ = silent[0].read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
        drop(silent);
        stop.send(()).unwrap();
        task.await.unwrap();
    }
}

//! The real network: TCP by tokio, with the socket options that a proxy of long, quiet streams needs.
//! Law: a peer that died without a word is found by the kernel (keep-alive, `TCP_USER_TIMEOUT`), not by a timer here.
//! Absent on purpose: TLS, HTTP, time limits (the caller bounds its waits).
//! Why `TCP_NOTSENT_LOWAT` towards clients: what sits unsent in the kernel can't be taken back when the client is gone.
//! Next: `net/outq.rs`.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, lookup_host};

use crate::net::{Authority, Io, Lack, Net, Unacked, outq};

/// Connections that may wait to be accepted. A reconnecting herd of clients arrives at once; the kernel caps it.
const BACKLOG: i32 = 4_096;

/// How long written bytes may stay unacknowledged before the kernel gives the peer up: two keep-alive comments.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Silence after which the kernel asks a peer whether it lives. Below the minute after which common middleboxes
/// forget a connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Time between two such questions.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Questions without an answer until the peer counts as dead.
const KEEPALIVE_RETRIES: u32 = 3;

/// Bytes that may wait unsent in the kernel towards a client: enough to keep a fast link busy between two wake-ups.
#[cfg(target_os = "linux")]
const NOTSENT_LOWAT: u32 = 64 * 1024;

/// The real network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp {
    _private: (),
}

impl Tcp {
    /// The real network. Its methods need a tokio runtime around them.
    pub const fn new() -> Self {
        Self { _private: () }
    }
}

/// One TCP connection.
#[derive(Debug)]
pub struct TcpIo {
    stream: TcpStream,
    /// The peer's. Apart, since a `SocketAddr` takes half as much again: there are two for each session.
    address: IpAddr,
    port: u16,
}

impl TcpIo {
    /// To a backend, just connected.
    fn dialled(stream: TcpStream, peer: SocketAddr) -> Self {
        tune(&SockRef::from(&stream));
        Self::of(stream, peer)
    }

    /// From a client, just accepted.
    fn accepted(stream: TcpStream, peer: SocketAddr) -> Self {
        // Linux hands the listener's options down, which spares a handful of system calls for each client.
        #[cfg(not(target_os = "linux"))]
        tune(&SockRef::from(&stream));
        Self::of(stream, peer)
    }

    const fn of(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            stream,
            address: peer.ip(),
            port: peer.port(),
        }
    }
}

/// Sets what every connection gets. A kernel that refuses an option still serves: the option only makes it better.
fn tune(socket: &Socket) {
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES),
    );
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(USER_TIMEOUT));
}

impl Io for TcpIo {
    fn unacked(&self) -> Unacked {
        outq::unacked(self.stream.as_fd())
    }

    fn reset_on_close(&self) {
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    fn may_read(&self) -> bool {
        // Nothing is done: what is known of the socket is only looked at, and stays known.
        self.stream.try_io(Interest::READABLE, || Ok(())).is_ok()
    }
}

impl AsyncRead for TcpIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TcpIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn connect(at: SocketAddr) -> io::Result<TcpIo> {
    match TcpStream::connect(at).await {
        Ok(stream) => Ok(TcpIo::dialled(stream, at)),
        Err(error) if Lack::of(&error) == Some(Lack::Ports) && !has_a_way(at) => {
            // It loses its number: no port of ours is missing.
            Err(io::Error::new(
                error.kind(),
                "this machine has no address from which it can be reached",
            ))
        }
        Err(error) => Err(error),
    }
}

/// Whether this machine has an address to speak from to that one: a datagram's socket wants no port of TCP's.
fn has_a_way(at: SocketAddr) -> bool {
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP));
    match socket.and_then(|socket| socket.connect(&at.into())) {
        Ok(()) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

/// A resolver that can't open its own files and sockets says only that there is no such name.
fn why_not_resolved(error: io::Error) -> io::Error {
    match Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)) {
        Ok(_) => error,
        Err(own) => own,
    }
}

impl Net for Tcp {
    type Io = TcpIo;
    type Listener = TcpListener;

    /// Resolves a name (an address literal is taken as it is) and tries its addresses in the resolver's order;
    /// the error is that of the last one, but that of an address that this machine could not try stands: the replica may
    /// be there.
    async fn dial(&self, to: &Authority) -> io::Result<TcpIo> {
        if let Ok(literal) = to.host.parse::<IpAddr>() {
            return connect(SocketAddr::new(literal, to.port)).await;
        }
        let found = lookup_host((&*to.host, to.port)).await;
        let mut outcome = io::Error::new(io::ErrorKind::NotFound, "the name resolves to no address");
        for at in found.map_err(why_not_resolved)? {
            match connect(at).await {
                Ok(stream) => return Ok(stream),
                Err(error) if Lack::of(&outcome).is_none() => outcome = error,
                Err(_) => {}
            }
        }
        Err(outcome)
    }

    fn listen(&self, at: SocketAddr) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for the connections of the previous life to leave TIME_WAIT.
        socket.set_reuse_address(true)?;
        tune(&socket);
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_notsent_lowat(NOTSENT_LOWAT);
        socket.bind(&at.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket.into())
    }

    fn local_addr(&self, listener: &TcpListener) -> io::Result<SocketAddr> {
        listener.local_addr()
    }

    async fn accept(&self, listener: &TcpListener) -> io::Result<TcpIo> {
        let (stream, peer) = listener.accept().await?;
        Ok(TcpIo::accepted(stream, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn authority(host: &str, at: SocketAddr) -> Authority {
        Authority {
            host: host.into(),
            port: at.port(),
        }
    }

    #[tokio::test]
    async fn a_connection_carries_bytes_both_ways_and_knows_its_peer() {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = net.local_addr(&listener).unwrap();
        for host in ["127.0.0.1", "localhost"] {
            let to = authority(host, at);
            let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
            let (mut a, mut b) = (dialled.unwrap(), accepted.unwrap());
            assert_eq!(a.peer(), at, "{host}");
            a.write_all(b"ping").await.unwrap();
            let mut got = [0; 4];
            b.read_exact(&mut got).await.unwrap();
            assert_eq!(&got, b"ping");
        }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_a_stalled_peer_never_took_is_counted() {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = authority("127.0.0.1", net.local_addr(&listener).unwrap());
        let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
        let (stalled, mut writer) = (dialled.unwrap(), accepted.unwrap());
        assert_eq!(writer.unacked(), Unacked::Bytes(0));

        // Fill both kernels' buffers: once a write would block, the peer's window is shut and bytes must wait here.
        let block = vec![b'x'; 1 << 20];
        std::future::poll_fn(|cx| {
            loop {
                match Pin::new(&mut writer).poll_write(cx, &block) {
                    Poll::Ready(outcome) => assert!(outcome.unwrap() > 0),
                    Poll::Pending => return Poll::Ready(()),
                }
            }
        })
        .await;
        let Unacked::Bytes(waiting) = writer.unacked() else {
            panic!("known on Linux")
        };
        assert!(waiting > 0, "{waiting}");
        drop(stalled);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn both_sides_have_their_options() {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = authority("127.0.0.1", net.local_addr(&listener).unwrap());
        let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
        let (dialled, accepted) = (dialled.unwrap().stream, accepted.unwrap().stream);
        for stream in [&dialled, &accepted] {
            let socket = SockRef::from(stream);
            assert!(socket.tcp_nodelay().unwrap());
            assert!(socket.keepalive().unwrap());
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_RETRIES);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        }
        assert_eq!(
            SockRef::from(&accepted).tcp_notsent_lowat().unwrap(),
            NOTSENT_LOWAT
        );
    }

    #[tokio::test]
    async fn reset_on_close_is_a_reset() {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = authority("127.0.0.1", net.local_addr(&listener).unwrap());
        let (dialled, accepted) = tokio::join!(net.dial(&to), net.accept(&listener));
        let (mut a, b) = (dialled.unwrap(), accepted.unwrap());
        b.reset_on_close();
        drop(b);
        let error = a.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_dead_port_is_refused() {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = authority("127.0.0.1", net.local_addr(&listener).unwrap());
        drop(listener);
        assert_eq!(
            net.dial(&to).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }

    #[tokio::test]
    async fn an_address_without_a_way_is_no_lack_of_ports() {
        let local: SocketAddr = "127.0.0.1:9".parse().unwrap();
        assert!(has_a_way(local));
        let nowhere = Authority {
            host: "no-such-name.invalid".into(),
            port: 9,
        };
        assert_eq!(Lack::of(&Tcp::new().dial(&nowhere).await.unwrap_err()), None);
        // Where IPv6 is off, its loopback has no way; where it is on, nobody listens there.
        let six = Authority {
            host: "::1".into(),
            port: 9,
        };
        assert_eq!(Lack::of(&Tcp::new().dial(&six).await.unwrap_err()), None);
    }
}

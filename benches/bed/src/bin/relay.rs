//! The floor under every proxy: bytes from one socket to another, nothing of them read. What it costs is the kernel's,
//! and that of one thread that waits for sockets.
//!   relay LISTEN UPSTREAM[,UPSTREAM]
//! Law: a connection of its own to a backend for each of a client, the backends in turn; no pool, no stickiness.
//! Next: `mockserver.rs`.

use std::io;
use std::net::SocketAddr;

use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Bytes moved at once towards the backend.
const UP_BYTES: usize = 8 * 1024;

/// Bytes moved at once towards the client: as much as the proxy under test reads at once.
const DOWN_BYTES: usize = 48 * 1024;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;

fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

async fn pass(mut client: TcpStream, backend: SocketAddr) -> io::Result<()> {
    let mut upstream = TcpStream::connect(backend).await?;
    upstream.set_nodelay(true)?;
    client.set_nodelay(true)?;
    copy_bidirectional_with_sizes(&mut client, &mut upstream, UP_BYTES, DOWN_BYTES).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    bed::raise_nofile();
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(backends)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: relay LISTEN UPSTREAM[,UPSTREAM]");
        std::process::exit(2);
    };
    let address = |text: &str| text.parse::<SocketAddr>().map_err(io::Error::other);
    let backends = backends.split(',').map(address).collect::<io::Result<Vec<_>>>()?;
    let listener = listener(address(&listen)?)?;
    for backend in backends.iter().cycle() {
        let (client, _) = listener.accept().await?;
        let backend = *backend;
        // Either side may go whenever it likes: that is its own affair.
        tokio::spawn(async move { pass(client, backend).await.ok() });
    }
    Ok(())
}

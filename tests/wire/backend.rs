//! A backend that a test plays by hand: it gets every request as it came and answers when the test says so.
//! For what real servers can't be made to do; real ones are in `tests/interop`.
//! Next: `client.rs`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::peer::{DEADLINE, Head, Peer};
use crate::port::Held;

/// How long one look at one of several backends takes. It bounds nothing: who looks, looks again.
const GLANCE: Duration = Duration::from_millis(5);

/// The backend.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    requests: Receiver<Exchange>,
    /// Requests that came while a test waited for another one.
    early: RefCell<VecDeque<Exchange>>,
    /// Exchanges that stay as they are until the test ends.
    parked: RefCell<Vec<Exchange>>,
    listener: TcpListener,
    port: Held,
    listening: JoinHandle<()>,
    /// Whether the test wants to see the proxy's own pings. Otherwise they are answered as a live session's are.
    sees_pings: Arc<AtomicBool>,
}

/// What the id of the proxy's own pings to a session in doubt looks like.
const PING: &str = r#""id":"throughline-alive""#;

/// One request, and the way to answer it.
pub(crate) struct Exchange {
    pub(crate) head: Head,
    pub(crate) body: String,
    peer: Option<Peer>,
    back: Sender<Peer>,
}

impl Backend {
    pub(crate) fn start() -> Self {
        Self::start_at(Held::any().expect("a port"))
    }

    /// Starts one where another one was.
    pub(crate) fn start_at(port: Held) -> Self {
        let address = port.address();
        let listener = TcpListener::bind(address).expect("the port");
        let (to_test, requests) = channel();
        let accepting = listener.try_clone().expect("a second handle");
        let sees_pings = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&sees_pings);
        let listening = thread::spawn(move || {
            for stream in accepting.incoming() {
                let Ok(stream) = stream else { return };
                let (to_test, seen) = (to_test.clone(), Arc::clone(&seen));
                thread::spawn(move || connection(Peer::new(stream), to_test, &seen));
            }
        });
        Self {
            address,
            requests,
            early: RefCell::default(),
            parked: RefCell::default(),
            listener,
            port,
            listening,
            sees_pings,
        }
    }

    /// From now on the proxy's own pings are the test's to answer.
    pub(crate) fn see_pings(&self) {
        self.sees_pings.store(true, Ordering::SeqCst);
    }

    /// Closes its port: connections to it are refused from now on. Shut down, not only closed: a process that another
    /// test is just starting may hold a copy for a moment. The port stays held, for another one there.
    pub(crate) fn close(self) -> Held {
        let shut = socket2::SockRef::from(&self.listener).shutdown(Shutdown::Both);
        shut.expect("the port closes");
        self.listening.join().expect("the listener ends");
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The next request.
    pub(crate) fn next(&self) -> Exchange {
        let early = self.early.borrow_mut().pop_front();
        early.unwrap_or_else(|| {
            self.requests
                .recv_timeout(DEADLINE)
                .expect("a request reaches the backend")
        })
    }

    /// A request that is there already, for tests that look at several backends in turn.
    pub(crate) fn try_next(&self) -> Option<Exchange> {
        let early = self.early.borrow_mut().pop_front();
        early.or_else(|| self.requests.recv_timeout(GLANCE).ok())
    }

    /// The next request with this method; others wait.
    pub(crate) fn next_of(&self, method: &str) -> Exchange {
        let mut early = self.early.borrow_mut();
        if let Some(at) = early.iter().position(|exchange| exchange.head.method() == method) {
            return early.remove(at).expect("it is there");
        }
        loop {
            let exchange = self
                .requests
                .recv_timeout(DEADLINE)
                .expect("a request reaches the backend");
            if exchange.head.method() == method {
                return exchange;
            }
            early.push_back(exchange);
        }
    }

    /// Accepts a credential that the proxy asks about, with a `ping` of its own.
    pub(crate) fn accepts(&self) {
        let ping = self.next_of("POST");
        assert!(is_proof(&ping), "a ping of the proxy's: {}", ping.body);
        ping.json(r#"{"jsonrpc":"2.0","id":"throughline-proof","result":{}}"#);
    }

    /// Leaves an exchange as it is until the test ends: closing it would make the proxy ask again, and a later case of
    /// the same test would take that for its own.
    pub(crate) fn park(&self, exchange: Exchange) {
        self.parked.borrow_mut().push(exchange);
    }

    /// Nothing came. Call: after an event that would have caused it.
    pub(crate) fn is_silent(&self) -> bool {
        if let Some(exchange) = self.early.borrow().front() {
            panic!("the backend got {} {}", exchange.head.start, exchange.body);
        }
        match self.requests.recv_timeout(Duration::ZERO) {
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => true,
            Ok(exchange) => panic!("the backend got {} {}", exchange.head.start, exchange.body),
        }
    }
}

/// Whether a request is the ping by which the proxy asks about a credential.
pub(crate) fn is_proof(exchange: &Exchange) -> bool {
    exchange.body == r#"{"jsonrpc":"2.0","id":"throughline-proof","method":"ping"}"#
}

fn connection(mut peer: Peer, to_test: Sender<Exchange>, sees_pings: &AtomicBool) {
    // Probes connect and leave; a backend does not mind.
    while let Ok(Some(head)) = peer.try_head(false) {
        let Ok(body) = peer.whole() else { return };
        let (back, returned) = channel();
        let body = String::from_utf8_lossy(&body).into_owned();
        if body.contains(PING) && !sees_pings.load(Ordering::SeqCst) {
            let alive = r#"{"jsonrpc":"2.0","id":"throughline-alive","result":{}}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                alive.len()
            );
            if peer.try_send(format!("{head}{alive}").as_bytes()).is_err() {
                return;
            }
            continue;
        }
        if to_test
            .send(Exchange {
                head,
                body,
                peer: Some(peer),
                back,
            })
            .is_err()
        {
            return;
        }
        match returned.recv() {
            Ok(kept) => peer = kept,
            Err(_) => return,
        }
    }
}

impl Exchange {
    fn peer(&mut self) -> &mut Peer {
        self.peer.as_mut().expect("an exchange that is not over")
    }

    /// Writes literal bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.peer().send(bytes);
    }

    /// Answers whole and keeps the connection.
    pub(crate) fn answer(mut self, status: u16, fields: &[(&str, &str)], body: &str) {
        let mut text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in fields {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.raw(text.as_bytes());
        self.keep();
    }

    pub(crate) fn json(self, body: &str) {
        self.answer(200, &[("content-type", "application/json")], body);
    }

    /// Begins an event stream.
    pub(crate) fn stream(mut self) -> Self {
        self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        self
    }

    /// Sends bytes of the event stream as one chunk.
    pub(crate) fn chunk(&mut self, bytes: &str) -> &mut Self {
        let framed = format!("{:x}\r\n{bytes}\r\n", bytes.len());
        self.raw(framed.as_bytes());
        self
    }

    /// Sends one event with this data.
    pub(crate) fn event(&mut self, data: &str) -> &mut Self {
        self.chunk(&format!("data: {data}\n\n"))
    }

    /// The same, where the proxy may have closed already.
    pub(crate) fn try_event(&mut self, data: &str) -> std::io::Result<()> {
        let text = format!("data: {data}\n\n");
        self.peer()
            .try_send(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    /// The proxy's port of this connection.
    pub(crate) fn port(&self) -> u16 {
        let peer = self.peer.as_ref().expect("an exchange that is not over");
        peer.stream.peer_addr().expect("a peer").port()
    }

    /// Ends the stream in an orderly way and keeps the connection.
    pub(crate) fn finish(mut self) {
        self.raw(b"0\r\n\r\n");
        self.keep();
    }

    /// Resets the connection.
    pub(crate) fn cut(mut self) {
        self.peer.take().expect("an exchange that is not over").cut();
    }

    /// Waits until the other side closed this connection.
    pub(crate) fn wait_closed(&mut self) {
        let mut rest = [0; 64];
        loop {
            match std::io::Read::read(&mut self.peer().stream, &mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return,
                Err(e) => panic!("waiting for the close: {e}"),
            }
        }
    }

    fn keep(&mut self) {
        let peer = self.peer.take().expect("an exchange that is not over");
        let _ = self.back.send(peer);
    }
}

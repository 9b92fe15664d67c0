//! A real browser: a page of another origin is an MCP client, loses its connection in the middle of a call, and resumes.
//! Law: the page does with `fetch` what any page may; what it could not read, it could not report.
//! Needs Chromium, which `tests/install.sh` sees to. Everything is bounded: a browser that does not report is killed.
//! Next: `wire/browsers.rs`, for what is said to browsers byte by byte.

#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/backend.rs"]
mod backend;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/client.rs"]
mod client;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/peer.rs"]
mod peer;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "interop/port.rs"]
mod port;
#[allow(dead_code, reason = "the wire tests use the rest of it")]
#[path = "wire/proxy.rs"]
mod proxy;

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::backend::Backend;
use crate::peer::Peer;
use crate::proxy::Proxy;

/// How long a browser may take from its start to its report. It bounds a hang, and measures nothing.
const BROWSER_MAX: Duration = Duration::from_secs(90);

/// A relay before the proxy that can reset every connection through it.
struct Relay {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn before(proxy: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let kept = Arc::clone(&open);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(proxy)) else {
                    return;
                };
                for (mut from, mut to) in [(&client, &server), (&server, &client)].map(|(from, to)| {
                    (
                        from.try_clone().expect("a handle"),
                        to.try_clone().expect("a handle"),
                    )
                }) {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
                kept.lock().expect("no panic").extend([client, server]);
            }
        });
        Self { address, open }
    }

    /// Resets every connection.
    fn cut(&self) {
        for stream in self.open.lock().expect("no panic").drain(..) {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What the page says to whoever served it.
enum Said {
    /// It has read an event, and the connection may be cut.
    Cut(Sender<()>),
    /// How it went.
    Report(Value),
}

/// Serves the page, and takes what it says.
fn serve_page(listener: TcpListener, html: String) -> Receiver<Said> {
    let (to_test, said) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (to_test, html) = (to_test.clone(), html.clone());
            thread::spawn(move || {
                let mut peer = Peer::new(stream);
                while let Ok(Some(head)) = peer.try_head(false) {
                    let body = peer.whole().unwrap_or_default();
                    let (status, page) = match (head.method(), head.target()) {
                        ("GET", "/") => (200, &*html),
                        ("POST", "/cut") => {
                            let (done, cut) = channel();
                            let _ = to_test.send(Said::Cut(done));
                            let _ = cut.recv();
                            (200, "")
                        }
                        ("POST", "/report") => {
                            let report = serde_json::from_slice(&body).unwrap_or(Value::Null);
                            let _ = to_test.send(Said::Report(report));
                            (200, "")
                        }
                        _ => (404, ""),
                    };
                    let length = page.len();
                    let text = format!(
                        "HTTP/1.1 {status} X\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{page}"
                    );
                    if peer.stream.write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    said
}

/// A browser with a profile of its own, killed with its test.
struct Browser {
    child: Child,
    profile: PathBuf,
}

impl Browser {
    /// Opens a page whose host is this name, which means this machine.
    fn open(host: &str, page: SocketAddr) -> Self {
        let own = format!("throughline-browser-{}-{}", std::process::id(), page.port());
        let profile = std::env::temp_dir().join(own);
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|program| {
                let asked = Command::new(program)
                    .arg("--version")
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                asked.is_ok_and(|status| status.success())
            })
            .expect("Chromium; tests/install.sh says how to get it");
        let child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .arg("--disable-dev-shm-usage")
            .arg(format!("--host-resolver-rules=MAP {host} 127.0.0.1"))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("--remote-debugging-port=0")
            .arg(format!("http://{host}:{}/", page.port()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Self { child, profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Waits for what the page says next.
fn hear(said: &Receiver<Said>, since: Instant) -> Said {
    match said.recv_timeout(BROWSER_MAX.saturating_sub(since.elapsed())) {
        Ok(said) => said,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            panic!("the browser did not report in {BROWSER_MAX:?}")
        }
    }
}

/// The client that the page is: it opens a session, calls, loses its connection, resumes, and reports what it read.
fn page(endpoint: SocketAddr) -> String {
    include_str!("browser/page.html").replace("ENDPOINT", &format!("http://{endpoint}/mcp"))
}

fn note(n: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{n}}}}}"#
    )
}

/// Plays the server: a session, and a call whose answer goes on after the cut.
fn play(backend: &Backend, cut: &Receiver<()>) {
    const INITIALIZED: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"1"}}}"#;
    loop {
        let exchange = backend.next();
        if exchange.body.contains(r#""initialize""#) {
            let fields = [("content-type", "application/json"), ("mcp-session-id", "b")];
            exchange.answer(200, &fields, INITIALIZED);
        } else if exchange.body.contains("tools/call") {
            let mut exchange = exchange.stream();
            exchange.event(&note(1));
            cut.recv().expect("the page is cut");
            exchange
                .event(&note(2))
                .event(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
            return exchange.finish();
        } else {
            exchange.answer(202, &[], "");
        }
    }
}

/// Lets a page of this host speak to a proxy that allows `app.example`, and answers what it reports.
fn report_of(host: &str) -> Value {
    let since = Instant::now();
    let backend = Backend::start();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let page_address = listener.local_addr().expect("an address");
    let allowed = format!(
        "server.allowed_origins=http://app.example:{}",
        page_address.port()
    );
    let proxy = Proxy::start(&[&backend.url()], &[&allowed]);
    let relay = Relay::before(proxy.address);
    let said = serve_page(listener, page(relay.address));
    let (go_on, cut) = channel();
    thread::spawn(move || play(&backend, &cut));
    let _browser = Browser::open(host, page_address);
    loop {
        match hear(&said, since) {
            Said::Cut(done) => {
                relay.cut();
                // The proxy knows that its client is gone before the server goes on.
                proxy.logged("client left");
                let _ = go_on.send(());
                let _ = done.send(());
            }
            Said::Report(report) => return report,
        }
    }
}

/// A page of an allowed origin is a client like any other.
#[test]
fn a_page_is_a_client() {
    let report = report_of("app.example");
    assert_eq!(report["error"], Value::Null, "{report}");
    assert_eq!(report["opened"], 200);
    assert!(
        report["session"].as_str().is_some_and(|id| id.starts_with("t1")),
        "{report}"
    );
    let says = |what: &str, start: &str| {
        let said = report[what].as_str();
        assert!(
            said.is_some_and(|said| said.starts_with(start)),
            "{what}: {report}"
        );
    };
    says("called", "live;");
    assert_eq!(
        report["cut"], "TypeError",
        "the browser saw its connection break: {report}"
    );
    says("resumed", "resumed;");
    assert_eq!(report["before"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["before"][0]["params"]["progress"], 1);
    // Exactly what it missed.
    assert_eq!(report["after"].as_array().map(Vec::len), Some(2), "{report}");
    assert_eq!(report["after"][0]["params"]["progress"], 2);
    assert_eq!(report["after"][1]["id"], 1);
    assert_eq!(report["gone"], 404, "a refusal can be read too: {report}");
}

/// A page of another origin gets nothing, not even to know why.
#[test]
fn a_page_of_another_origin_is_kept_out() {
    let report = report_of("evil.example");
    assert!(
        report["error"]
            .as_str()
            .is_some_and(|error| error.starts_with("TypeError")),
        "{report}"
    );
    assert_eq!(report["session"], Value::Null);
}

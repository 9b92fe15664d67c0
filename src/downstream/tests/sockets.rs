//! The client side over real sockets: what only a kernel does (resets, unread input), TLS, HTTP/2, the door's bounds.
//! Law: a read that waits for what must come is bounded by a deadline that only a hang reaches.
//! Next: `relay/mod.rs`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls;

use crate::config::{self, Flags};
use crate::downstream::tests::scripted::{Script, Seen, end, gone, http2, offer, request, send_all};
use crate::downstream::{Serving, serve};
use crate::net::Unacked;
use crate::net::tcp::Tcp;
use crate::relay::sink::{Ending, Gone};
use crate::telemetry::instruments::Instruments;
use crate::telemetry::words::Turned;

/// Only a hang takes this long.
const DEADLINE: Duration = Duration::from_secs(20);

const POST: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";
const GET_STREAM: &str = "GET /mcp?stream HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A server at work, and what its script saw.
struct Bed {
    serving: Serving,
    seen: Seen,
    instruments: Arc<Instruments>,
    at: SocketAddr,
    certificate: Option<rcgen::CertifiedKey<rcgen::KeyPair>>,
}

/// Plain HTTP, or TLS with a certificate of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    Plain,
    Tls,
}

impl Bed {
    /// A server whose settings are these `KEY=VALUE`.
    fn new(cover: Cover, settings: &[&str]) -> Self {
        let (config, certificate, _files) = configured(cover, settings);
        let (script, seen) = Script::new();
        let instruments = Arc::new(Instruments::new(&[]));
        let serving = serve(&Arc::new(Tcp::new()), &config, &script, &instruments).unwrap();
        let at = serving.local_addrs()[0];
        Self {
            serving,
            seen,
            instruments,
            at,
            certificate,
        }
    }

    /// Another configuration holds from now on.
    fn reconfigure(&mut self, cover: Cover, settings: &[&str]) {
        let (config, certificate, _files) = configured(cover, settings);
        let terms = self.serving.terms();
        terms.room().unwrap();
        terms.put_in_force(terms.prepare(&config).unwrap());
        self.certificate = certificate;
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    /// A TLS connection that offers these protocols.
    async fn shake_hands(&self, alpn: &[&[u8]]) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        let certificate = self.certificate.as_ref().unwrap().cert.der().clone();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|&name| name.to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = "localhost".try_into().unwrap();
        connector.connect(name, self.connect().await).await.unwrap()
    }

    fn turned(&self, why: Turned) -> u64 {
        self.instruments.refused.of(why).get()
    }
}

/// A configuration with these `KEY=VALUE`, and its certificate.
fn configured(
    cover: Cover,
    settings: &[&str],
) -> (
    config::resolved::Config,
    Option<rcgen::CertifiedKey<rcgen::KeyPair>>,
    Option<Scratch>,
) {
    let flags = Flags {
        upstreams: vec!["http://127.0.0.1:9/mcp".into()],
        set: settings.iter().map(|&setting| setting.into()).collect(),
        ..Flags::default()
    };
    let (mut config, _) = config::read_in(&flags, &|_| None).unwrap();
    config.listeners.truncate(1);
    config.listeners[0].address = ([127, 0, 0, 1], 0).into();
    let mut files = None;
    let certificate = (cover == Cover::Tls).then(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let directory = Scratch::new();
        config.listeners[0].tls = Some(config::resolved::TlsFiles {
            certificate: directory.write("certificate.pem", &made.cert.pem()),
            key: directory.write("key.pem", &made.signing_key.serialize_pem()),
        });
        files = Some(directory);
        made
    });
    (config, certificate, files)
}

/// A directory that goes when the test has ended.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("throughline-downstream-{}", uuid::Uuid::now_v7());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Fails the test instead of hanging it.
async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(DEADLINE, work).await.expect("it hangs")
}

/// Reads until the text ends like this.
async fn until(io: &mut (impl AsyncRead + Unpin), ending: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(ending.as_bytes()) {
        got.push(soon(io.read_u8()).await.unwrap());
    }
    String::from_utf8(got).unwrap()
}

async fn rest(io: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut text = String::new();
    soon(io.read_to_string(&mut text)).await?;
    Ok(text)
}

/// A call, a stream, and another call on one connection.
async fn call_stream_call(bed: &mut Bed, client: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    client.write_all(POST.as_bytes()).await.unwrap();
    assert!(until(client, "<{}>").await.starts_with("HTTP/1.1 200 OK\r\n"));
    client.write_all(GET_STREAM.as_bytes()).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    let before = sink.wire_bytes();
    send_all(&mut *sink, b"data: 1\n\n").await;
    until(client, "9\r\ndata: 1\n\n\r\n").await;
    assert!(sink.wire_bytes() >= before + "9\r\ndata: 1\n\n\r\n".len() as u64);
    assert!(matches!(sink.unacked(), Unacked::Bytes(_) | Unacked::Unknown));
    end(&mut *sink, Ending::Complete).await;
    until(client, "0\r\n\r\n").await;
    client.write_all(POST.as_bytes()).await.unwrap();
    until(client, "<{}>").await;
    assert_eq!(bed.serving.connections(), 1);
    assert_eq!(bed.instruments.connections_live.get(), 1);
}

#[tokio::test]
async fn a_connection_is_taken_over_and_handed_back() {
    let mut bed = Bed::new(Cover::Plain, &[]);
    let mut client = bed.connect().await;
    call_stream_call(&mut bed, &mut client).await;
    drop(client);
    soon(bed.serving.closed()).await;
}

#[tokio::test]
async fn a_connection_under_tls_is_too() {
    for alpn in [&[][..], &[&b"http/1.1"[..]][..]] {
        let mut bed = Bed::new(Cover::Tls, &[]);
        let mut client = bed.shake_hands(alpn).await;
        call_stream_call(&mut bed, &mut client).await;
        drop(client);
        soon(bed.serving.closed()).await;
    }
}

#[tokio::test]
async fn under_tls_an_event_that_counts_as_taken_is_on_the_wire() {
    let mut bed = Bed::new(Cover::Tls, &[]);
    let mut client = bed.shake_hands(&[]).await;
    client.write_all(GET_STREAM.as_bytes()).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    // The client reads nothing, so at some time no more is taken; what was taken is with the kernel, so that the
    // meter beneath TLS has counted all of it.
    let event = vec![b'x'; 16 * 1024];
    let (mut taken, start) = (0, sink.wire_bytes());
    while let Some(n) = offer(&mut *sink, &[&event]).await {
        taken += n.unwrap() as u64;
        assert!(sink.wire_bytes() - start >= taken, "{taken}");
    }
    assert!(taken > 0);
    drop(client);
    assert!(matches!(soon(gone(&mut *sink)).await, Gone::Fin | Gone::Reset));
}

#[tokio::test]
async fn a_reset_is_no_orderly_end() {
    let mut bed = Bed::new(Cover::Plain, &[]);
    for (reset, expected) in [(true, Gone::Reset), (false, Gone::Fin)] {
        let mut client = bed.connect().await;
        client.write_all(GET_STREAM.as_bytes()).await.unwrap();
        let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
        send_all(&mut *sink, b": hi\n\n").await;
        until(&mut client, ": hi\n\n\r\n").await;
        if reset {
            socket2::SockRef::from(&client)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
        drop(client);
        assert_eq!(soon(gone(&mut *sink)).await, expected);
    }
}

#[tokio::test]
async fn an_aborted_answer_is_a_reset_to_the_client() {
    let mut bed = Bed::new(Cover::Plain, &[]);
    let mut client = bed.connect().await;
    client.write_all(GET_STREAM.as_bytes()).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    send_all(&mut *sink, b": hi\n\n").await;
    until(&mut client, ": hi\n\n\r\n").await;
    end(&mut *sink, Ending::Abort).await;
    assert_eq!(
        rest(&mut client).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let bed = Bed::new(Cover::Plain, &["server.body_bytes_max=1KiB"]);
    let mut client = bed.connect().await;
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 262144\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&vec![b'x'; 262_144]).await.unwrap();
    let answer = rest(&mut client).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"),
        "{answer}"
    );
    assert_eq!(bed.turned(Turned::BodyTooLarge), 1);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_told_so() {
    let bed = Bed::new(Cover::Plain, &["server.head_bytes_max=8KiB"]);
    let mut client = bed.connect().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: {}",
        "y".repeat(64 * 1024)
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut client).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"),
        "{answer}"
    );
    assert_eq!(bed.turned(Turned::HeadTooLarge), 1);
}

#[tokio::test]
async fn connections_beyond_the_bound_are_told_so() {
    let mut bed = Bed::new(Cover::Plain, &["server.connections_max=1"]);
    let mut first = bed.connect().await;
    first.write_all(GET_STREAM.as_bytes()).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    let mut second = bed.connect().await;
    second.write_all(POST.as_bytes()).await.unwrap();
    let answer = rest(&mut second).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
        "{answer}"
    );
    assert_eq!(bed.turned(Turned::TooManyConnections), 1);
    // The parked stream held the seat; its connection's end frees it.
    end(&mut *sink, Ending::Close).await;
    rest(&mut first).await.unwrap();
    drop(first);
    soon(bed.serving.closed()).await;
    let mut third = bed.connect().await;
    third.write_all(POST.as_bytes()).await.unwrap();
    until(&mut third, "<{}>").await;
}

#[tokio::test]
async fn handshakes_are_bounded() {
    let bed = Bed::new(Cover::Tls, &["server.head_timeout=100ms"]);
    let mut silent = bed.connect().await;
    assert_eq!(rest(&mut silent).await.unwrap(), "");
    let mut plain = bed.connect().await;
    plain.write_all(POST.as_bytes()).await.unwrap();
    // An alert, then the end; what it says is TLS's business.
    let mut raw = Vec::new();
    let _ = soon(plain.read_to_end(&mut raw)).await;
    soon(bed.serving.closed()).await;
    assert_eq!(bed.turned(Turned::Tls), 2);
}

#[tokio::test]
async fn a_drain_lets_calls_finish_and_come_until_the_door_is_closed() {
    let mut bed = Bed::new(Cover::Plain, &[]);
    let mut idle = bed.connect().await;
    idle.write_all(POST.as_bytes()).await.unwrap();
    until(&mut idle, "<{}>").await;
    let mut parked = bed.connect().await;
    parked.write_all(GET_STREAM.as_bytes()).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    bed.serving.drain();
    assert_eq!(rest(&mut idle).await.unwrap(), "");
    // A call that comes now is answered, and its connection ends with it.
    let mut late = bed.connect().await;
    late.write_all(POST.as_bytes()).await.unwrap();
    let answer = rest(&mut late).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    bed.serving.close();
    // The door is shut once its task has run.
    while TcpStream::connect(bed.at).await.is_ok() {
        tokio::task::yield_now().await;
    }
    end(&mut *sink, Ending::Complete).await;
    assert!(rest(&mut parked).await.unwrap().ends_with("\r\n0\r\n\r\n"));
    drop((idle, parked, late));
    soon(bed.serving.closed()).await;
}

/// Calls and streams over one HTTP/2 connection.
async fn call_and_stream(bed: &mut Bed, mut client: SendRequest<Full<Bytes>>) {
    let answer = soon(client.send_request(request("localhost", "/mcp", "{}")))
        .await
        .unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.version()),
        (200, Version::HTTP_2)
    );
    assert_eq!(
        soon(answer.into_body().collect()).await.unwrap().to_bytes(),
        "<{}>"
    );

    // A whole stream.
    let streaming = client.send_request(request("localhost", "/mcp?stream", "{}"));
    let mut answer = soon(streaming).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        send_all(&mut *sink, event.as_bytes()).await;
        let frame = soon(answer.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), event);
    }
    end(&mut *sink, Ending::Complete).await;
    assert!(
        soon(answer.into_body().collect())
            .await
            .unwrap()
            .to_bytes()
            .is_empty()
    );

    // One that the proxy gives up.
    let streaming = client.send_request(request("localhost", "/mcp?stream", "{}"));
    let mut answer = soon(streaming).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    end(&mut *sink, Ending::Abort).await;
    assert!(soon(answer.body_mut().frame()).await.unwrap().is_err());

    // One that the client drops.
    let streaming = client.send_request(request("localhost", "/mcp?stream", "{}"));
    let answer = soon(streaming).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    drop(answer);
    assert_eq!(soon(gone(&mut *sink)).await, Gone::Reset);

    // Refusals, by `:authority` too.
    for (host, path, status) in [
        ("evil.example", "/mcp", 421),
        ("localhost", "/nothing", 404),
        ("localhost", "/mcp?gone", 404),
    ] {
        let answer = soon(client.send_request(request(host, path, "{}")))
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), status, "{host}{path}");
    }
}

#[tokio::test]
async fn http2_by_agreement() {
    let mut bed = Bed::new(Cover::Tls, &[]);
    let io = bed.shake_hands(&[b"h2", b"http/1.1"]).await;
    let client = http2(io).await;
    call_and_stream(&mut bed, client).await;
    soon(bed.serving.closed()).await;
}

#[tokio::test]
async fn http2_by_prior_knowledge() {
    let mut bed = Bed::new(Cover::Plain, &[]);
    let client = http2(bed.connect().await).await;
    call_and_stream(&mut bed, client).await;
    soon(bed.serving.closed()).await;
}

#[tokio::test]
async fn an_idle_http2_connection_goes_with_the_drain() {
    let mut bed = Bed::new(Cover::Plain, &[]);
    let mut client = http2(bed.connect().await).await;
    soon(client.send_request(request("localhost", "/mcp", "{}")))
        .await
        .unwrap();
    let streaming = client.send_request(request("localhost", "/mcp?stream", "{}"));
    let answer = soon(streaming).await.unwrap();
    let mut sink = soon(bed.seen.sinks.recv()).await.unwrap();
    bed.serving.drain();
    // A stream that runs is finished first.
    send_all(&mut *sink, b"data: 1\n\n").await;
    end(&mut *sink, Ending::Complete).await;
    assert_eq!(
        soon(answer.into_body().collect()).await.unwrap().to_bytes(),
        "data: 1\n\n"
    );
    soon(bed.serving.closed()).await;
}

/// A reload: names and bounds hold for the next request of whoever is connected, certificates for the next connection.
#[tokio::test]
async fn new_terms_hold_for_what_comes_and_nothing_is_cut() {
    const ASKED: &[u8] = b"POST /mcp HTTP/1.1\r\nhost: new.example\r\ncontent-length: 0\r\n\r\n";
    let status = async |client: &mut (dyn AsyncReadWrite + Unpin)| {
        client.write_all(ASKED).await.unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.push(soon(client.read_u8()).await.unwrap());
        }
        let text = String::from_utf8(text).unwrap().to_ascii_lowercase();
        let length = text.split_once("content-length: ").unwrap().1;
        let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        soon(client.read_exact(&mut body)).await.unwrap();
        text[9..12].to_owned()
    };
    let mut bed = Bed::new(Cover::Tls, &[]);
    let mut open = bed.shake_hands(&[]).await;
    assert_eq!(status(&mut open).await, "421");
    bed.reconfigure(Cover::Tls, &["server.allowed_hosts=new.example"]);
    assert_eq!(status(&mut open).await, "200");
    // The client trusts the new certificate alone.
    let mut next = bed.shake_hands(&[]).await;
    assert_eq!(status(&mut next).await, "200");
    // From TLS to plain, and a bound on connections: who is there stays.
    bed.reconfigure(
        Cover::Plain,
        &["server.allowed_hosts=new.example", "server.connections_max=3"],
    );
    let mut plain = bed.connect().await;
    assert_eq!(status(&mut plain).await, "200");
    let mut refused = Vec::new();
    soon(bed.connect().await.read_to_end(&mut refused)).await.unwrap();
    assert!(refused.starts_with(b"HTTP/1.1 503"), "{refused:?}");
    assert_eq!(status(&mut open).await, "200");
}

trait AsyncReadWrite: tokio::io::AsyncRead + tokio::io::AsyncWrite {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite> AsyncReadWrite for T {}

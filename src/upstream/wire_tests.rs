//! The client against backends that say literal bytes over real sockets, and its limits of time against a paused clock.
//! Law: nothing here waits for time to pass; a step waits for bytes, for an end, or for the runtime to see an event.
//! Each backend is a script: one list of steps for each connection that it will accept.
//! Next: `relay/mod.rs`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::Instant;

use crate::config::resolved::{self, Exchange, Scheme, UpstreamTls};
use crate::net::tcp::{Tcp, TcpIo};
use crate::net::test_authority::{Term, TestAuthority};
use crate::net::tls::{ClientTls, ServerTls, client_config, server_config};
use crate::net::transport::Transport;
use crate::net::{Authority, Io, Lack, Net, Unacked};
use crate::pure::http1::head::Reuse;
use crate::pure::sse::Block;
use crate::routing::Replica;
use crate::upstream::pool::Pool;
use crate::upstream::{
    Afterlife, Body, BodyError, Cause, Client, Data, Deadline, EventError, Outgoing, Read, SendError,
};

/// What a backend does on a connection. When its steps are done it closes the connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// Reads one request, head and declared body.
    Take,
    /// Reads so many bytes of a request.
    TakeBytes(usize),
    /// Writes.
    Say(Vec<u8>),
    /// Writes each byte alone, letting the other side run in between.
    Trickle(Vec<u8>),
    /// Waits until the other side closes. A byte that comes instead is told, and ends the connection.
    Hold,
    /// Reads whatever comes until the other side closes.
    Drain,
    /// Closes by a reset.
    Reset,
}

pub(crate) fn say(bytes: &str) -> Step {
    Step::Say(bytes.into())
}

/// A backend that follows its script.
pub(crate) struct Backend {
    pub(crate) replica: Arc<Replica>,
    /// Every request taken, as `connection: request`.
    pub(crate) taken: Arc<Mutex<Vec<String>>>,
    pub(crate) script: JoinHandle<()>,
}

impl Backend {
    pub(crate) async fn start(connections: Vec<Vec<Step>>) -> Self {
        Self::start_with("127.0.0.1", None, connections).await
    }

    pub(crate) async fn start_with(host: &str, tls: Option<ServerTls>, connections: Vec<Vec<Step>>) -> Self {
        let net = Tcp::new();
        let listener = net.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = net.local_addr(&listener).unwrap().port();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let taken_by_script = Arc::clone(&taken);
        let scheme = if tls.is_some() {
            Scheme::Https
        } else {
            Scheme::Http
        };
        let script = tokio::spawn(async move {
            let mut under_way = JoinSet::new();
            for (index, steps) in connections.into_iter().enumerate() {
                let io = net.accept(&listener).await.unwrap();
                let io = match &tls {
                    None => Transport::Plain(io),
                    Some(tls) => match tls.accept(io).await {
                        Ok(io) => io,
                        Err(_) => continue,
                    },
                };
                under_way.spawn(follow(io, index, steps, Arc::clone(&taken_by_script)));
            }
            under_way.join_all().await;
        });
        let authority = Authority {
            host: host.into(),
            port,
        };
        let replica = resolved::Replica {
            authority,
            scheme,
            path: "/mcp".into(),
        };
        Self {
            replica: Arc::new(Replica::new("tools", replica)),
            taken,
            script,
        }
    }
}

async fn follow(mut io: Transport<TcpIo>, index: usize, steps: Vec<Step>, taken: Arc<Mutex<Vec<String>>>) {
    for step in steps {
        match step {
            Step::Take => {
                let Some(request) = take(&mut io).await else {
                    return;
                };
                taken.lock().unwrap().push(format!("{index}: {request}"));
            }
            Step::TakeBytes(count) => {
                io.read_exact(&mut vec![0; count]).await.unwrap();
            }
            Step::Say(bytes) => {
                // The client may close early; that is the case being tested then.
                let _ = io.write_all(&bytes).await;
                let _ = io.flush().await;
            }
            Step::Trickle(bytes) => {
                for byte in bytes {
                    let _ = io.write_all(&[byte]).await;
                    yield_now().await;
                }
            }
            Step::Hold => {
                if matches!(io.read(&mut [0; 1024]).await, Ok(1..)) {
                    taken
                        .lock()
                        .unwrap()
                        .push(format!("{index}: (a byte that nobody waits for)"));
                    return;
                }
            }
            Step::Drain => while matches!(io.read(&mut [0; 1024]).await, Ok(1..)) {},
            Step::Reset => io.reset_on_close(),
        }
    }
}

/// One request as `METHOD target HTTP/1.1 body`; nothing if the connection ends instead.
async fn take(io: &mut Transport<TcpIo>) -> Option<String> {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") {
        if io.read(&mut byte).await.unwrap() == 0 {
            return None;
        }
        request.push(byte[0]);
    }
    let head = String::from_utf8(request).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    io.read_exact(&mut body).await.unwrap();
    let line = head.lines().next().unwrap();
    Some(
        format!("{line} {}", String::from_utf8_lossy(&body))
            .trim_end()
            .to_owned(),
    )
}

pub(crate) fn settings() -> Exchange {
    Exchange {
        connect_timeout: Duration::from_secs(5),
        initialize_max: Duration::from_secs(60),
        replica_retry_max: Duration::from_secs(10),
        idle_connections_max: 8,
        idle_timeout: Duration::from_secs(60),
        post_idle_max: Duration::from_secs(3),
        in_flight_max: 8,
        answer_bytes_max: 1 << 20,
    }
}

pub(crate) fn client(tls: Option<ClientTls>) -> Client<Tcp> {
    Client::new(Arc::new(Tcp::new()), settings(), tls)
}

static NO_FIELDS: OnceLock<HeaderMap> = OnceLock::new();

pub(crate) fn request(method: Method, body: &str) -> Outgoing<'static> {
    Outgoing {
        method,
        target: "/mcp",
        headers: NO_FIELDS.get_or_init(HeaderMap::new),
        withheld: |_| false,
        own: &[],
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

/// Sends and reads the answer whole: `status body`, or what went wrong.
pub(crate) async fn ask(client: &Client<Tcp>, replica: &Arc<Replica>, request: Outgoing<'_>) -> String {
    match client.send(replica, request, Deadline::Never).await {
        Err(SendError::NotSent(cause)) => format!("not sent: {}", cause.as_str()),
        Err(SendError::Unknown(cause)) => format!("unknown: {}", cause.as_str()),
        Ok(incoming) => {
            let status = incoming.head.status.as_u16();
            match incoming.body.collect(BODY_MAX).await {
                Ok(body) => format!("{status} {}", String::from_utf8_lossy(&body))
                    .trim_end()
                    .to_owned(),
                Err(error) => format!("{status} but {error}"),
            }
        }
    }
}

/// Longest body that the tests take, in bytes.
const BODY_MAX: usize = 16;

/// Sends these requests one after the other; each must be answered as told, on the connection told.
async fn check(connections: Vec<Vec<Step>>, asked: &[(Method, &str, &str)], taken: &[&str]) {
    let backend = Backend::start(connections).await;
    let client = client(None);
    for (method, body, expected) in asked {
        let got = ask(&client, &backend.replica, request(method.clone(), body)).await;
        assert_eq!(&got, expected, "{method} {body}");
        // Lets the backend take its next step, and the runtime see it.
        settle().await;
    }
    drop(client);
    assert_eq!(*backend.taken.lock().unwrap(), taken);
    assert_eq!(backend.replica.in_flight(), 0, "every lease is given back");
    backend.script.abort();
}

/// On a current-thread runtime each yield polls the sockets once; loopback delivers at once.
async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const POST: Method = Method::POST;
const GET: Method = Method::GET;

#[tokio::test]
async fn a_kept_connection_carries_the_next_request() {
    use Step::{Hold, Take};
    for answer in [
        OK,
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\no\r\n1\r\nk\r\n0\r\nt: v\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
    ] {
        check(
            vec![vec![Take, say(answer), Take, say(answer), Hold]],
            &[(POST, "a", "200 ok"), (POST, "b", "200 ok")],
            &["0: POST /mcp HTTP/1.1 a", "0: POST /mcp HTTP/1.1 b"],
        )
        .await;
    }
    for (method, answer, expected) in [
        (POST, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", "202"),
        (Method::DELETE, "HTTP/1.1 204 No Content\r\n\r\n", "204"),
        (
            Method::HEAD,
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n",
            "200",
        ),
    ] {
        let line = format!("0: {method} /mcp HTTP/1.1");
        check(
            vec![vec![Take, say(answer), Take, say(answer), Hold]],
            &[(method.clone(), "", expected), (method, "", expected)],
            &[&line, &line],
        )
        .await;
    }
}

#[tokio::test]
async fn a_connection_that_may_not_be_used_again_is_not() {
    use Step::{Hold, Reset, Take};
    let close = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    let until_close = "HTTP/1.1 200 OK\r\n\r\nok";
    let first: [Vec<Step>; 8] = [
        vec![Take, say(close)],
        vec![Take, say(until_close)],
        // Closed while idle: found before a byte of the second request.
        vec![Take, say(OK)],
        vec![Take, say(OK), Reset],
        // More than was asked for, with the answer or later.
        vec![Take, say(&format!("{OK}x")), Hold],
        vec![Take, say(OK), say("HTTP/1.1 408 Request Timeout\r\n\r\n"), Hold],
        vec![
            Take,
            say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nx"),
            Hold,
        ],
        vec![Take, say("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"), Hold],
    ];
    for steps in first {
        check(
            vec![steps, vec![Take, say(OK), Hold]],
            &[(POST, "a", "200 ok"), (POST, "b", "200 ok")],
            &["0: POST /mcp HTTP/1.1 a", "1: POST /mcp HTTP/1.1 b"],
        )
        .await;
    }
}

#[tokio::test]
async fn after_a_byte_the_outcome_is_unknown_and_nothing_is_sent_again() {
    use Step::{Reset, Take, TakeBytes};
    let huge = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(70_000));
    let second = || vec![Take, say(OK)];
    let first: [(Vec<Step>, &str); 6] = [
        (vec![Take], "unknown: early_eof"),
        (vec![Take, say("HTTP/1.1 2")], "unknown: early_eof"),
        (vec![TakeBytes(1), Reset], "unknown: broken"),
        (vec![Take, say("SSH-2.0-x\r\n")], "unknown: bad_head"),
        (
            vec![
                Take,
                say("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"),
            ],
            "unknown: bad_head",
        ),
        (vec![Take, say(&huge), Step::Hold], "unknown: bad_head"),
    ];
    for (steps, expected) in first {
        let takes = steps.iter().filter(|step| matches!(step, Take)).count();
        let mut taken = vec!["0: POST /mcp HTTP/1.1 a"; takes];
        taken.push("1: POST /mcp HTTP/1.1 b");
        check(
            vec![steps, second()],
            &[(POST, "a", expected), (POST, "b", "200 ok")],
            &taken,
        )
        .await;
    }
}

#[tokio::test]
async fn a_body_that_breaks_says_how() {
    use Step::{Hold, Take};
    let head = "HTTP/1.1 200 OK\r\n";
    let cases: [(&str, Vec<Step>, &str); 8] = [
        (
            "content-length: 3\r\n\r\nok",
            vec![],
            "200 but the connection ended before the body did",
        ),
        (
            "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n",
            vec![],
            "200 but the connection ended before the body did",
        ),
        (
            "transfer-encoding: chunked\r\n\r\n2\r\nok",
            vec![],
            "200 but the connection ended before the body did",
        ),
        (
            "transfer-encoding: chunked\r\n\r\n2\r\nokay",
            vec![Hold],
            "200 but malformed chunk: the upstream sent a chunk that is longer than its size",
        ),
        (
            "transfer-encoding: chunked\r\n\r\nzz\r\n",
            vec![Hold],
            "200 but malformed chunk: the upstream sent a chunk size that is no hexadecimal number",
        ),
        (
            "content-length: 17\r\n\r\n",
            vec![Hold],
            "200 but the body is longer than 16 bytes",
        ),
        (
            "transfer-encoding: chunked\r\n\r\n11\r\n12345678901234567\r\n",
            vec![Hold],
            "200 but the body is longer than 16 bytes",
        ),
        (
            "\r\n12345678901234567",
            vec![Hold],
            "200 but the body is longer than 16 bytes",
        ),
    ];
    for (answer, after, expected) in cases {
        let mut steps = vec![Take, say(&format!("{head}{answer}"))];
        steps.extend(after);
        check(
            vec![steps, vec![Take, say(OK)]],
            &[(POST, "a", expected), (POST, "b", "200 ok")],
            &["0: POST /mcp HTTP/1.1 a", "1: POST /mcp HTTP/1.1 b"],
        )
        .await;
    }
}

#[tokio::test]
async fn an_answer_is_the_same_at_every_split() {
    use Step::{Hold, Take, Trickle};
    let answers = [
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\nt: v\r\n\r\n",
    ];
    for answer in answers {
        let mut steps = Vec::new();
        for cut in 1..answer.len() {
            let (first, second) = answer.split_at(cut);
            steps.extend([Take, say(first), Step::Trickle(Vec::new()), say(second)]);
        }
        steps.extend([Take, Trickle(answer.into()), Hold]);
        let asked = vec![(POST, "a", "200 hello"); answer.len()];
        check(
            vec![steps],
            &asked,
            &vec!["0: POST /mcp HTTP/1.1 a"; answer.len()],
        )
        .await;
    }
}

#[tokio::test]
async fn an_answer_that_comes_before_the_request_is_written_is_taken() {
    let large = "x".repeat(32 << 20);
    let refusal = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno";
    // One backend reads the rest only after it has answered, the other never: its close is a reset.
    for first in [
        vec![Step::TakeBytes(1), say(refusal), Step::Drain],
        vec![Step::TakeBytes(1), say(refusal)],
    ] {
        let backend = Backend::start(vec![first, vec![Step::Take, say(OK)]]).await;
        let client = client(None);
        let incoming = client
            .send(&backend.replica, request(POST, &large), Deadline::Never)
            .await
            .unwrap();
        assert_eq!(
            (incoming.head.status.as_u16(), incoming.head.reuse),
            (413, Reuse::Close)
        );
        assert_eq!(incoming.body.collect(BODY_MAX).await.unwrap(), "no");
        assert_eq!(ask(&client, &backend.replica, request(POST, "b")).await, "200 ok");
        assert_eq!(*backend.taken.lock().unwrap(), ["1: POST /mcp HTTP/1.1 b"]);
    }
}

#[tokio::test]
async fn a_large_request_arrives_whole() {
    let large = "x".repeat(8 << 20);
    let backend = Backend::start(vec![vec![Step::Take, say(OK), Step::Hold]]).await;
    let client = client(None);
    assert_eq!(
        ask(&client, &backend.replica, request(POST, &large)).await,
        "200 ok"
    );
    let taken = backend.taken.lock().unwrap();
    assert_eq!(taken[0].len(), "0: POST /mcp HTTP/1.1 ".len() + large.len());
}

#[tokio::test]
async fn what_is_not_sent_says_so() {
    let backend = Backend::start(vec![]).await;
    // A script without connections drops its listener at once.
    backend.script.await.unwrap();
    let client = client(None);
    assert_eq!(
        ask(&client, &backend.replica, request(POST, "a")).await,
        "not sent: refused"
    );
    assert_eq!(backend.replica.troubles(), 1);
}

#[tokio::test]
async fn exchanges_under_way_are_bounded_and_standing_streams_do_not_count() {
    let wait = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n";
    let backend = Backend::start(vec![vec![Step::Take, say(wait), Step::Hold]]).await;
    let settings = Exchange {
        in_flight_max: 1,
        ..settings()
    };
    let client = Client::new(Arc::new(Tcp::new()), settings, None);
    let running = client
        .send(&backend.replica, request(POST, "a"), Deadline::Never)
        .await
        .unwrap();
    let refused = client
        .send(&backend.replica, request(POST, "b"), Deadline::Never)
        .await;
    assert_eq!(
        refused.err(),
        Some(SendError::NotSent(Cause::Overloaded { in_flight_max: 1 }))
    );
    drop(running);
    assert_eq!(backend.replica.in_flight(), 0);

    let backend = Backend::start(vec![vec![Step::Take, say(wait), Step::Hold]]).await;
    let standing = client
        .send(&backend.replica, request(GET, ""), Deadline::Never)
        .await
        .unwrap();
    assert_eq!(backend.replica.in_flight(), 0);
    drop(standing);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_carries_no_post_after_a_while_and_then_nothing() {
    use Step::{Hold, Take};
    let check = async |idle: u64, method: Method, connection: usize| {
        let again = || vec![Take, say(OK), Take, say(OK), Hold];
        let backend = Backend::start(vec![again(), again()]).await;
        let client = client(None);
        assert_eq!(ask(&client, &backend.replica, request(POST, "")).await, "200 ok");
        tokio::time::advance(Duration::from_secs(idle)).await;
        assert_eq!(
            ask(&client, &backend.replica, request(method.clone(), "")).await,
            "200 ok"
        );
        let expected = [
            "0: POST /mcp HTTP/1.1".to_owned(),
            format!("{connection}: {method} /mcp HTTP/1.1"),
        ];
        assert_eq!(*backend.taken.lock().unwrap(), expected, "{idle} s");
        let stay = client.sweep(&backend.replica);
        // Too old for a POST is not too old for a GET.
        assert_eq!(
            stay,
            if (4..=60).contains(&idle) && connection == 1 {
                2
            } else {
                1
            },
            "{idle} s, {method}"
        );
    };
    check(0, POST, 0).await;
    check(3, POST, 0).await;
    check(4, POST, 1).await;
    check(4, Method::DELETE, 1).await;
    check(4, GET, 0).await;
    check(60, GET, 0).await;
    check(61, GET, 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_in_time_is_unknown() {
    let backend = Backend::start(vec![vec![Step::Take, say("HTTP/1.1 200 OK\r\n"), Step::Hold]]).await;
    let client = client(None);
    let sent = client
        .send(
            &backend.replica,
            request(POST, "a"),
            Deadline::after(Duration::from_secs(9)),
        )
        .await;
    assert_eq!(sent.err(), Some(SendError::Unknown(Cause::HeadTimeout)));
    assert_eq!(backend.replica.in_flight(), 0);
}

/// Reads a body span by span: the spans joined by `|`, and how it ended.
async fn spans(mut body: Body<TcpIo>) -> (String, Result<Afterlife, BodyError>) {
    let mut got = Vec::new();
    loop {
        let polled = poll_fn(|cx| {
            body.poll_data(cx, &mut |span| {
                got.push(String::from_utf8_lossy(span).into_owned())
            })
        })
        .await;
        match polled {
            Ok(Data::Some) => {}
            Ok(Data::End(afterlife)) => {
                let again = poll_fn(|cx| body.poll_data(cx, &mut |_| panic!("nothing follows an end"))).await;
                assert_eq!(again, Ok(Data::End(afterlife)));
                return (got.join("|"), Ok(afterlife));
            }
            Err(error) => {
                let again =
                    poll_fn(|cx| body.poll_data(cx, &mut |_| panic!("nothing follows an error"))).await;
                assert_eq!(again, Err(error.clone()));
                return (got.join("|"), Err(error));
            }
        }
    }
}

#[tokio::test]
async fn a_body_is_handed_out_in_spans_and_tells_its_afterlife() {
    use Step::{Hold, Take};
    let check = async |answer: &str, then: Vec<Step>, expected: &str, end: Result<Afterlife, BodyError>| {
        let mut steps = vec![Take, say(answer)];
        steps.extend(then);
        let backend = Backend::start(vec![steps]).await;
        let incoming = client(None)
            .send(&backend.replica, request(POST, ""), Deadline::Never)
            .await
            .unwrap();
        assert_eq!(spans(incoming.body).await, (expected.to_owned(), end), "{answer}");
    };
    let pooled = || Ok(Afterlife::Pooled);
    let closed = || Ok(Afterlife::Closed);
    check(OK, vec![Hold], "ok", pooled()).await;
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    check(
        &format!("{chunked}1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"),
        vec![Hold],
        "a|bc",
        pooled(),
    )
    .await;
    check(
        &format!("{chunked}1\r\na\r\n2\r\nbc\r\n0\r\n\r\n!"),
        vec![Hold],
        "a|bc",
        closed(),
    )
    .await;
    check(
        &format!("{chunked}1\r\na\r\n"),
        vec![],
        "a",
        Err(BodyError::EarlyEof),
    )
    .await;
    check("HTTP/1.1 200 OK\r\n\r\nabc", vec![], "abc", closed()).await;
}

#[tokio::test]
async fn a_body_passed_on_is_the_same_bytes() {
    use Step::{Hold, Take};
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n";
    for (answer, expected) in [(OK, "ok"), (chunked, "abc")] {
        let backend = Backend::start(vec![vec![Take, say(answer), Hold]]).await;
        let incoming = client(None)
            .send(&backend.replica, request(POST, ""), Deadline::Never)
            .await
            .unwrap();
        let mut body = incoming.body;
        let mut got = Vec::new();
        while let Some(piece) = poll_fn(|cx| body.poll_bytes(cx)).await {
            got.extend_from_slice(&piece.unwrap());
        }
        assert_eq!(String::from_utf8(got).unwrap(), expected);
    }
}

/// Reads a stream to its end: `id=data` for each block, and how it ended.
async fn events(framing: &str, stream: &str) -> (Vec<String>, Result<Read, EventError>) {
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n{stream}");
    let backend = Backend::start(vec![vec![Step::Take, say(&answer)]]).await;
    let incoming = client(None)
        .send(&backend.replica, request(GET, ""), Deadline::Never)
        .await
        .unwrap();
    let (_, mut body) = incoming.into_events(64);
    let mut got = Vec::new();
    loop {
        let polled = poll_fn(|cx| {
            body.poll_events(cx, &mut |block: Block<'_>| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                got.push(format!(
                    "{}={}",
                    text(block.id.unwrap_or(b"-")),
                    text(block.data().unwrap_or(b"-"))
                ));
            })
        })
        .await;
        if polled != Ok(Read::Events) {
            let again =
                poll_fn(|cx| body.poll_events(cx, &mut |_: Block<'_>| panic!("nothing follows an end")))
                    .await;
            assert_eq!(again, polled, "an end is sticky");
            return (got, polled);
        }
    }
}

#[tokio::test]
async fn events_come_whole_and_the_end_is_told() {
    use crate::pure::sse::{Tail, TooLarge};
    let check = async |framing: &str, stream: &str, blocks: &[&str], end: Result<Read, EventError>| {
        let got = events(framing, stream).await;
        assert_eq!(
            got,
            (blocks.iter().map(ToString::to_string).collect(), end),
            "{stream:?}"
        );
    };
    let chunked = "transfer-encoding: chunked\r\n";
    let clean = || Ok(Read::End(Tail::Clean));
    check("", "id: 1\ndata: a\n\ndata: b\n\n", &["1=a", "-=b"], clean()).await;
    check(chunked, "9\r\ndata: a\n\n\r\n0\r\n\r\n", &["-=a"], clean()).await;
    check(
        chunked,
        "4\r\ndata\r\n5\r\n: a\n\n\r\n0\r\n\r\n",
        &["-=a"],
        clean(),
    )
    .await;
    check(
        "",
        "data: a\n\ndata: b\n",
        &["-=a"],
        Ok(Read::End(Tail::Unterminated { bytes: 7 })),
    )
    .await;
    check(
        chunked,
        "9\r\ndata: a\n\n\r\n",
        &["-=a"],
        Err(EventError::Body(BodyError::EarlyEof)),
    )
    .await;
    let large = format!("data: a\n\ndata: {}\n\ndata: c\n\n", "b".repeat(100));
    check(
        "",
        &large,
        &["-=a"],
        Err(EventError::TooLarge(TooLarge { max: 64 })),
    )
    .await;
}

#[tokio::test]
async fn an_https_replica_is_verified_and_its_connection_kept() {
    use Step::{Hold, Take};
    let authority = TestAuthority::new();
    let settings = UpstreamTls {
        authorities: Some(authority.file()),
        ..UpstreamTls::default()
    };
    let check = async |host: &str, certificate: &str, settings: &UpstreamTls, expected: [&str; 2]| {
        let server = server_config(&authority.issue(certificate, Term::Valid)).unwrap();
        let steps = || vec![Take, say(OK), Take, say(OK), Hold];
        let backend = Backend::start_with(host, Some(server), vec![steps(), steps()]).await;
        let client = client(Some(client_config(settings).unwrap()));
        for expected in expected {
            assert_eq!(
                ask(&client, &backend.replica, request(POST, "a")).await,
                expected,
                "{certificate} at {host}"
            );
            settle().await;
        }
        let first = "0: POST /mcp HTTP/1.1 a".to_owned();
        let both = if expected[0] == "200 ok" {
            vec![first.clone(), first]
        } else {
            vec![]
        };
        assert_eq!(*backend.taken.lock().unwrap(), both);
    };
    check("localhost", "localhost", &settings, ["200 ok", "200 ok"]).await;
    check("127.0.0.1", "127.0.0.1", &settings, ["200 ok", "200 ok"]).await;
    check(
        "localhost",
        "a.example",
        &settings,
        ["not sent: tls", "not sent: tls"],
    )
    .await;
    let named = UpstreamTls {
        server_name: Some("a.example".into()),
        ..settings.clone()
    };
    check("localhost", "a.example", &named, ["200 ok", "200 ok"]).await;
}

/// A connection whose peer is this test: reads and writes go as told. Behind the last read it is silent, or at its end.
pub(crate) struct Odd {
    reads: VecDeque<Vec<u8>>,
    then: Then,
    writes: VecDeque<io::Result<usize>>,
}

/// What an odd connection does behind its last read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    Silence,
    Eof,
}

impl Odd {
    /// Never says anything, and takes what it is told to take.
    fn silent(writes: Vec<io::Result<usize>>) -> Self {
        Self {
            reads: VecDeque::new(),
            then: Then::Silence,
            writes: writes.into(),
        }
    }

    /// Takes any request whole, and says these pieces, one for each read.
    fn saying(pieces: &[&[u8]], then: Then) -> Self {
        let reads = pieces.iter().map(|piece| piece.to_vec()).collect();
        Self {
            reads,
            then,
            writes: [Ok(usize::MAX)].into(),
        }
    }
}

impl AsyncRead for Odd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match (self.reads.pop_front(), self.then) {
            (Some(piece), Then::Silence | Then::Eof) => {
                buf.put_slice(&piece);
                Poll::Ready(Ok(()))
            }
            (None, Then::Eof) => Poll::Ready(Ok(())),
            (None, Then::Silence) => Poll::Pending,
        }
    }
}

impl AsyncWrite for Odd {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let write = self.writes.pop_front();
        write.map_or(Poll::Pending, |write| {
            Poll::Ready(write.map(|most| most.min(bytes.len())))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Io for Odd {
    fn unacked(&self) -> Unacked {
        Unacked::Unknown
    }

    fn reset_on_close(&self) {}

    fn peer(&self) -> SocketAddr {
        "192.0.2.1:80".parse().unwrap()
    }
}

/// How a dial fails.
#[derive(Clone, Copy)]
pub(crate) enum Fails {
    /// It is refused.
    Refused,
    /// This machine lacks something.
    Lacks(Lack),
}

/// A network whose connections fail as told, one script for each dial; when none is left, dials are refused.
pub(crate) struct OddNet {
    dials: Mutex<VecDeque<Result<Odd, Fails>>>,
}

impl OddNet {
    fn of(dials: impl IntoIterator<Item = Result<Odd, Fails>>) -> Arc<Self> {
        Arc::new(Self {
            dials: Mutex::new(dials.into_iter().collect()),
        })
    }

    /// Fails one dial after the other like this, then hands out so many connections and more.
    pub(crate) fn failing_first(fails: impl IntoIterator<Item = Fails>) -> Arc<Self> {
        let connections = (0..100).map(|_| Ok(Odd::silent(Vec::new())));
        Self::of(fails.into_iter().map(Err).chain(connections))
    }
}

pub(crate) fn replica() -> Arc<Replica> {
    let authority = Authority {
        host: "192.0.2.1".into(),
        port: 80,
    };
    let config = resolved::Replica {
        authority,
        scheme: Scheme::Http,
        path: "/mcp".into(),
    };
    Arc::new(Replica::new("tools", config))
}

impl Net for OddNet {
    type Io = Odd;
    type Listener = ();

    async fn dial(&self, _: &Authority) -> io::Result<Odd> {
        self.dials
            .lock()
            .unwrap()
            .pop_front()
            .unwrap_or(Err(Fails::Refused))
            .map_err(|fails| match fails {
                Fails::Refused => io::ErrorKind::ConnectionRefused.into(),
                Fails::Lacks(lack) => lack.error(),
            })
    }

    fn listen(&self, _: SocketAddr) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn local_addr(&self, (): &()) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn accept(&self, (): &()) -> io::Result<Odd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Everything that a reader of an event stream is told: the blocks, and how the stream ended (or that it goes on).
async fn told(pieces: &[&[u8]], then: Then) -> (Vec<String>, String) {
    let net = OddNet::of([Ok(Odd::saying(pieces, then))]);
    let client = Client::new(net, settings(), None);
    let replica = replica();
    let incoming = match client.send(&replica, request(GET, ""), Deadline::Never).await {
        Ok(incoming) => incoming,
        Err(error) => return (Vec::new(), error.to_string()),
    };
    let (_, mut body) = incoming.into_events(64);
    let mut blocks = Vec::new();
    let end = poll_fn(|cx| {
        loop {
            let polled = body.poll_events(cx, &mut |block: Block<'_>| blocks.push(format!("{block:?}")));
            match polled {
                Poll::Ready(Ok(Read::Events)) => {}
                Poll::Ready(end) => return Poll::Ready(format!("{end:?}")),
                Poll::Pending => return Poll::Ready("goes on".into()),
            }
        }
    })
    .await;
    (blocks, end)
}

#[tokio::test]
async fn an_event_stream_is_the_same_at_every_split() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let streams = [
        format!("{chunked}e\r\nid: 1\ndata: a\n\r\n1\r\n\n\r\n9\r\ndata: b\n\n\r\n0\r\n\r\n"),
        format!("{chunked}9\r\ndata: a\n\n\r\n6\r\ndata: \r\n0\r\nt: v\r\n\r\n"),
        format!("{chunked}9\r\ndata: a\n\n\r\n9\r\ndata: b\n\n!"),
        format!("{chunked}9\r\ndata: a\n\n\r\nx"),
        "HTTP/1.1 200 OK\r\n\r\n: hello\r\n\r\nretry: 9\rid: x\r\rdata: a\ndata: b\n\nda".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\ndata: a\n\nda!".to_owned(),
        format!(
            "HTTP/1.1 200 OK\r\n\r\ndata: a\n\ndata: {}\n\ndata: c\n\n",
            "b".repeat(80)
        ),
    ];
    for stream in streams {
        let bytes = stream.as_bytes();
        for then in [Then::Silence, Then::Eof] {
            let whole = told(&[bytes], then).await;
            assert!(
                whole.0.iter().any(|block| block.contains("data")),
                "{stream:?}: {whole:?}"
            );
            for cut in 1..bytes.len() {
                let (first, second) = bytes.split_at(cut);
                assert_eq!(
                    told(&[first, second], then).await,
                    whole,
                    "{stream:?} cut at {cut}, then {then:?}"
                );
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(
                told(&single, then).await,
                whole,
                "{stream:?} byte by byte, then {then:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_divides_not_sent_from_unknown() {
    let broken = || Err(io::ErrorKind::BrokenPipe.into());
    let check = async |writes: Vec<io::Result<usize>>, expected: SendError| {
        let client = Client::new(OddNet::of([Ok(Odd::silent(writes))]), settings(), None);
        let replica = replica();
        let deadline = Deadline::after(Duration::from_secs(1));
        let sent = client.send(&replica, request(POST, "body"), deadline).await;
        assert_eq!(sent.err(), Some(expected));
        assert_eq!(replica.in_flight(), 0);
    };
    let pipe = || Cause::Broken(io::ErrorKind::BrokenPipe);
    check(vec![broken()], SendError::NotSent(pipe())).await;
    check(vec![Ok(1), broken()], SendError::Unknown(pipe())).await;
    check(vec![Ok(1)], SendError::Unknown(Cause::HeadTimeout)).await;
    check(vec![], SendError::NotSent(Cause::HeadTimeout)).await;
    check(
        vec![Ok(0)],
        SendError::NotSent(Cause::Broken(io::ErrorKind::WriteZero)),
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pooled_connection_that_takes_no_byte_is_replaced_and_one_that_took_some_is_not() {
    let check =
        async |pooled: Vec<Vec<io::Result<usize>>>, dials: usize, expected: SendError, left: usize| {
            let net = OddNet::of((0..dials).map(|_| Ok(Odd::silent(Vec::new()))));
            let client = Client::new(Arc::clone(&net), settings(), None);
            let replica = replica();
            let pool = replica
                .slot_or_make(|| Pool::<Transport<Odd>>::new(8, Duration::from_secs(60)))
                .unwrap();
            for writes in pooled {
                pool.put(Transport::Plain(Odd::silent(writes)), Instant::now());
            }
            let deadline = Deadline::after(Duration::from_secs(1));
            let sent = client.send(&replica, request(POST, "body"), deadline).await;
            assert_eq!(sent.err(), Some(expected));
            assert_eq!(pool.sweep(Instant::now()), left);
            assert_eq!(
                net.dials.lock().unwrap().len(),
                0,
                "every connection offered was dialled"
            );
        };
    let broken = || Err(io::ErrorKind::BrokenPipe.into());
    let pipe = || Cause::Broken(io::ErrorKind::BrokenPipe);
    check(
        vec![vec![broken()], vec![broken()]],
        0,
        SendError::NotSent(Cause::Refused),
        0,
    )
    .await;
    check(vec![vec![broken()]], 1, SendError::NotSent(Cause::HeadTimeout), 0).await;
    check(
        vec![vec![broken()], vec![Ok(1), broken()]],
        0,
        SendError::Unknown(pipe()),
        1,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_this_machine_lacks_says_nothing_of_the_replica() {
    let check = async |fails: Fails, expected: Cause, troubles: u64| {
        let client = Client::new(OddNet::failing_first([fails]), settings(), None);
        let replica = replica();
        let deadline = Deadline::after(Duration::from_secs(1));
        let sent = client.send(&replica, request(POST, "body"), deadline).await;
        assert_eq!(sent.err(), Some(SendError::NotSent(expected)));
        assert_eq!((replica.troubles(), replica.in_flight()), (troubles, 0));
    };
    check(Fails::Refused, Cause::Refused, 1).await;
    for lack in [Lack::Descriptors, Lack::Files, Lack::Ports, Lack::Memory] {
        check(Fails::Lacks(lack), Cause::Lacking(lack), 0).await;
    }
}

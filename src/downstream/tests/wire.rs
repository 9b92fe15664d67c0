//! One connection, byte by byte: what hyper lets through, what is refused, takeover and hand-back, time limits.
//! Law: the clock is paused; nothing is decided by how fast the machine is.
//! Next: `sockets.rs`, the same over real sockets.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use crate::downstream::tests::scripted::{
    Bench, LIMITS, end, gone, gone_now, http2, offer, request, send_all,
};
use crate::relay::sink::{Ending, Gone};

/// Enough for everything at once.
const ROOMY: usize = 64 * 1024;

const POST: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}";
const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n<{}>";
const GET_STREAM: &str = "GET /mcp?stream HTTP/1.1\r\nhost: localhost\r\n\r\n";
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn json_calls_share_a_connection() {
    let mut bench = Bench::new(ROOMY);
    for _ in 0..3 {
        bench.send(POST).await;
        bench.expect(JSON).await;
        let (upstream, call) = bench.seen.calls.recv().await.unwrap();
        assert_eq!(
            (upstream, call.method.as_str(), &call.body[..]),
            (1, "POST", &b"{}"[..])
        );
        assert_eq!(call.peer.to_string(), "192.0.2.9");
        assert!(call.query.is_none());
    }
}

/// What is not usual, and what has no whole answer, goes through hyper: in order, once, on the same connection.
#[tokio::test(start_paused = true)]
async fn hyper_goes_on_where_a_request_or_its_answer_is_not_usual() {
    let chunked =
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let passing = POST.replace("/mcp", "/mcp?pass");
    let passed = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let rows = [
        (chunked, JSON),
        (&passing, passed),
        (
            "HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
        ),
    ];
    for (unusual, answer) in rows {
        for ahead in [Ahead::No, Ahead::Yes] {
            let mut bench = Bench::new(ROOMY);
            bench.seen.pieces.send(Ok(Bytes::from_static(b"x"))).unwrap();
            // Its end: nobody sends more.
            bench.seen.pieces = tokio::sync::mpsc::unbounded_channel().0;
            let requests = [POST, unusual, POST];
            match ahead {
                Ahead::No => {}
                Ahead::Yes => bench.send(&requests.concat()).await,
            }
            for (request, answer) in requests.into_iter().zip([JSON, answer, JSON]) {
                match ahead {
                    Ahead::No => bench.send(request).await,
                    Ahead::Yes => {}
                }
                bench.expect(answer).await;
                let (_, call) = bench.seen.calls.recv().await.unwrap();
                assert_eq!(call.method.as_str(), &request[..call.method.as_str().len()]);
            }
            assert!(bench.seen.calls.try_recv().is_err(), "each was asked once");
        }
    }
}

/// Some clients send a head, and its body only then: what follows it is the next request's, whoever writes the answer.
#[tokio::test(start_paused = true)]
async fn a_body_behind_its_head_is_waited_for() {
    let passing = POST.replace("/mcp", "/mcp?pass");
    let passed = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
    let rows = [(POST, JSON), (&passing, passed)];
    for (request, answer) in rows {
        let head = request.find("\r\n\r\n").unwrap() + 4;
        for came in [0, 1] {
            for behind in ["", POST] {
                let mut bench = Bench::new(ROOMY);
                bench.seen.pieces.send(Ok(Bytes::from_static(b"x"))).unwrap();
                bench.seen.pieces = tokio::sync::mpsc::unbounded_channel().0;
                let (begun, rest) = request.split_at(head + came);
                bench.send(begun).await;
                pass(Duration::from_millis(1)).await;
                bench.send(&format!("{rest}{behind}")).await;
                bench.expect(answer).await;
                if behind.is_empty() {
                    bench.send(POST).await;
                }
                bench.expect(JSON).await;
                for sent in [request, POST] {
                    let (_, call) = bench.seen.calls.recv().await.unwrap();
                    let body = sent.split_once("\r\n\r\n").unwrap().1;
                    assert_eq!(call.body, body.as_bytes());
                }
                assert!(bench.seen.calls.try_recv().is_err(), "each was asked once");
            }
        }
    }
}

/// A client that leaves behind a head asked for nothing.
#[tokio::test(start_paused = true)]
async fn half_a_request_is_none() {
    let mut bench = Bench::new(ROOMY);
    bench.send(&POST[..POST.len() - 1]).await;
    pass(Duration::from_millis(1)).await;
    bench.client.shutdown().await.unwrap();
    (&mut bench.task).await.unwrap();
    assert!(bench.seen.calls.try_recv().is_err());
}

/// Whether all requests are sent before the first answer.
#[derive(Clone, Copy)]
enum Ahead {
    No,
    Yes,
}

#[tokio::test(start_paused = true)]
async fn every_split_of_a_request_is_the_same_request() {
    let chunked = "POST /mcp?x HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, x-drop\r\nx-drop: 1\r\n\
                   x-keep: 2\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
    for request in [POST, chunked] {
        for split in 0..request.len() {
            let mut bench = Bench::new(ROOMY);
            let (a, b) = request.split_at(split);
            bench.send(a).await;
            tokio::task::yield_now().await;
            bench.send(b).await;
            bench.expect(JSON).await;
            let (_, call) = bench.seen.calls.recv().await.unwrap();
            assert_eq!(&call.body[..], b"{}");
            for absent in ["connection", "x-drop", "transfer-encoding"] {
                assert!(!call.headers.contains_key(absent), "{absent}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_takes_the_socket_and_gives_it_back() {
    let mut bench = Bench::new(ROOMY);
    for _ in 0..3 {
        bench.send(GET_STREAM).await;
        let mut sink = bench.sink().await;
        assert_eq!(offer(&mut *sink, &[b": hi", b"\n\n"]).await.unwrap().unwrap(), 6);
        bench.expect(&format!("{STREAM}6\r\n: hi\n\n\r\n")).await;
        assert_eq!(offer(&mut *sink, &[b"x"]).await.unwrap().unwrap(), 1);
        assert_eq!(gone_now(&mut *sink).await, None);
        end(&mut *sink, Ending::Complete).await;
        bench.expect("1\r\nx\r\n0\r\n\r\n").await;
        bench.send(POST).await;
        bench.expect(JSON).await;
    }
    assert_eq!(bench.seats.taken(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_connections_task_ends_at_the_takeover() {
    let mut bench = Bench::new(ROOMY);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    (&mut bench.task).await.unwrap();
    assert_eq!(bench.seats.taken(), 1, "the seat is the sink's");
    assert_eq!(offer(&mut *sink, &[]).await.unwrap().unwrap(), 0);
    bench.expect(STREAM).await;
    drop(sink);
    assert_eq!(bench.rest().await, "");
    assert_eq!(bench.seats.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_parked_sink_is_small() {
    use crate::downstream::tests::scripted::{Pipe, Script};
    let size = std::mem::size_of::<crate::downstream::sink_http1::Http1Sink<Pipe, Script>>();
    assert!(size <= 320, "{size} bytes");
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_during_a_stream_are_served_after_it() {
    let chunked_stream = "POST /mcp?stream HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n\
                          2\r\n{}\r\n0\r\n\r\n";
    for stream in [GET_STREAM, chunked_stream] {
        // Behind it in the same write, or later, cut anywhere.
        for split in (0..=POST.len()).step_by(7) {
            let mut bench = Bench::new(ROOMY);
            let (a, b) = POST.split_at(split);
            bench.send(&format!("{stream}{a}")).await;
            let mut sink = bench.sink().await;
            send_all(&mut *sink, b"e\n\n").await;
            bench.send(b).await;
            assert_eq!(gone_now(&mut *sink).await, None);
            send_all(&mut *sink, b"f\n\n").await;
            end(&mut *sink, Ending::Complete).await;
            let expected = format!("{STREAM}3\r\ne\n\n\r\n3\r\nf\n\n\r\n0\r\n\r\n{JSON}");
            bench.expect(&expected).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pipelining_client_is_bounded() {
    let mut bench = Bench::new(ROOMY);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    let flood = "x".repeat(ROOMY);
    bench.send(&flood).await;
    assert_eq!(gone_now(&mut *sink).await, None);
    // The rest stays in the pipe, so another write finds it full.
    let more = bench.client.write_all(flood.as_bytes());
    assert!(tokio::time::timeout(Duration::from_secs(1), more).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_answer_is_flushed_before_the_takeover() {
    // The pipe is too small for the first answer, so hyper holds a part of it when the stream is due.
    let mut bench = Bench::new(16);
    let requests = format!("{POST}{GET_STREAM}");
    let (mut reader, mut writer) = tokio::io::split(bench.client);
    let writing = tokio::spawn(async move { writer.write_all(requests.as_bytes()).await });
    let mut got = Vec::new();
    let mut sink = None;
    while sink.is_none() {
        let mut byte = [0];
        tokio::select! {
            biased;
            taken = bench.seen.sinks.recv() => sink = taken,
            n = reader.read(&mut byte) => { assert_eq!(n.unwrap(), 1); got.push(byte[0]); }
        }
    }
    writing.await.unwrap().unwrap();
    let mut sink = sink.unwrap();
    let sending = tokio::spawn(async move {
        send_all(&mut *sink, b"e\n\n").await;
        end(&mut *sink, Ending::Complete).await;
    });
    let rest = b"0\r\n\r\n";
    while !got.ends_with(rest) {
        let mut byte = [0];
        assert_eq!(reader.read(&mut byte).await.unwrap(), 1);
        got.push(byte[0]);
    }
    sending.await.unwrap();
    let text = String::from_utf8(got).unwrap();
    let text: String = text
        .split_inclusive("\r\n")
        .filter(|line| !line.starts_with("date: "))
        .collect();
    assert_eq!(text, format!("{JSON}{STREAM}3\r\ne\n\n\r\n0\r\n\r\n"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_every_byte_once() {
    for capacity in 1..64 {
        let mut bench = Bench::new(capacity);
        bench.send(GET_STREAM).await;
        let mut sink = bench.sink().await;
        let events: Vec<String> = (0..20)
            .map(|n| format!("id: {n}\ndata: 0123456789\n\n"))
            .collect();
        let expected = events.concat();
        let sending = tokio::spawn(async move {
            for event in events {
                send_all(&mut *sink, event.as_bytes()).await;
            }
            end(&mut *sink, Ending::Close).await;
        });
        let mut text = String::new();
        bench.client.read_to_string(&mut text).await.unwrap();
        sending.await.unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            String::from_utf8(dechunked(body.as_bytes())).unwrap(),
            expected,
            "{capacity}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn pending_means_that_nothing_was_taken() {
    // So whoever writes may change its mind: put a comment before the event that found no room.
    for capacity in 1..160 {
        let mut bench = Bench::new(capacity);
        let (mut reader, mut writer) = tokio::io::split(bench.client);
        writer.write_all(GET_STREAM.as_bytes()).await.unwrap();
        let mut sink = bench.seen.sinks.recv().await.unwrap();
        let (mut raw, mut taken_in_all) = (Vec::new(), Vec::new());
        for n in 0..6 {
            let event = format!("id: {n}\ndata: 0123456789\n\n").into_bytes();
            let mut message = event.clone();
            let mut begun = 0;
            while begun < message.len() {
                match offer(&mut *sink, &[&message[begun..]]).await {
                    Some(taken) => begun += taken.unwrap(),
                    None => {
                        if begun == 0 {
                            message = [b": hi\n\n", &event[..]].concat();
                        }
                        raw.push(reader.read_u8().await.unwrap());
                    }
                }
            }
            taken_in_all.extend_from_slice(&message);
            // The end of the chunk goes out without another event.
            while let (None, Some(byte)) = (gone_now(&mut *sink).await, read_now(&mut reader).await) {
                raw.push(byte);
            }
            assert!(
                raw.ends_with(b"\n\n\r\n"),
                "{capacity}: {:?}",
                String::from_utf8_lossy(&raw)
            );
        }
        raw.extend_from_slice(b"0\r\n\r\n");
        let text = String::from_utf8(raw).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(dechunked(body.as_bytes()), taken_in_all, "{capacity}");
    }
}

/// Lets time pass in small steps, everybody doing what they can in between.
async fn pass(time: Duration) {
    const STEP: Duration = Duration::from_millis(200);
    let begun = Instant::now();
    while begun.elapsed() < time {
        tokio::time::advance(STEP).await;
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
}

/// One byte, if there is one.
async fn read_now(reader: &mut (impl AsyncRead + Unpin)) -> Option<u8> {
    // A fresh budget: a task that has done much is told to wait although there is something.
    tokio::task::yield_now().await;
    let mut byte = [0];
    let mut buf = ReadBuf::new(&mut byte);
    std::future::poll_fn(|cx| {
        let _ = Pin::new(&mut *reader).poll_read(cx, &mut buf);
        Poll::Ready(())
    })
    .await;
    buf.filled().first().copied()
}

/// The payload of a chunked body that ends properly, with nothing behind it.
fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let line = bytes.iter().position(|&b| b == b'\r').unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        bytes = &bytes[line + 2..];
        if size == 0 {
            assert_eq!(bytes, b"\r\n");
            return out;
        }
        out.extend_from_slice(&bytes[..size]);
        assert_eq!(&bytes[size..size + 2], b"\r\n");
        bytes = &bytes[size + 2..];
    }
}

#[tokio::test(start_paused = true)]
async fn endings() {
    // Close: final chunk, then the end of the connection, although the client did not ask for it.
    let mut bench = Bench::new(ROOMY);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    end(&mut *sink, Ending::Close).await;
    assert_eq!(bench.rest().await, format!("{STREAM}0\r\n\r\n"));
    assert!(!bench.reset.load(Ordering::SeqCst));

    // The client asked for it.
    let mut bench = Bench::new(ROOMY);
    bench
        .send("GET /mcp?stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await;
    let mut sink = bench.sink().await;
    end(&mut *sink, Ending::Complete).await;
    let head = STREAM.trim_end().to_owned() + "\r\nconnection: close\r\n\r\n";
    assert_eq!(bench.rest().await, format!("{head}0\r\n\r\n"));

    // HTTP/1.0: no chunks.
    let mut bench = Bench::new(ROOMY);
    bench
        .send("GET /mcp?stream HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\n\r\n")
        .await;
    let mut sink = bench.sink().await;
    send_all(&mut *sink, b"data: 1\n\n").await;
    end(&mut *sink, Ending::Complete).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    assert_eq!(bench.rest().await, format!("{head}data: 1\n\n"));

    // Abort: no final chunk, a reset.
    let mut bench = Bench::new(ROOMY);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    send_all(&mut *sink, b"data: 1\n\n").await;
    end(&mut *sink, Ending::Abort).await;
    assert_eq!(bench.rest().await, format!("{STREAM}9\r\ndata: 1\n\n\r\n"));
    assert!(bench.reset.load(Ordering::SeqCst));
    assert_eq!(bench.seats.taken(), 0);

    // After the end nothing is sent, and nothing panics.
    assert!(offer(&mut *sink, &[b"x"]).await.unwrap().is_err());
    assert_eq!(gone_now(&mut *sink).await, Some(Gone::Fin));
    end(&mut *sink, Ending::Complete).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_ends_inside_a_chunk_fills_it_with_a_comment() {
    // Room for the head, the chunk's size and the first event; the second one never leaves.
    let first = "data: 1\n\n";
    let head = format!("{STREAM}12\r\n");
    let mut bench = Bench::new(head.len() + "date: \r\n".len() + 29 + first.len());
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    let taken = offer(&mut *sink, &[first.as_bytes(), b"data: 2\n\n"])
        .await
        .unwrap()
        .unwrap();
    assert_eq!(taken, first.len());
    let ending = tokio::spawn(async move { end(&mut *sink, Ending::Complete).await });
    bench
        .expect(&format!("{head}{first}:::::::\n\n\r\n0\r\n\r\n"))
        .await;
    ending.await.unwrap();
    assert!(!bench.reset.load(Ordering::SeqCst));
    bench.send(POST).await;
    bench.expect(JSON).await;
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_found_no_room_does_not_keep_an_answer_from_ending() {
    let mut bench = Bench::new(STREAM.len() + "date: \r\n".len() + 29);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    assert_eq!(offer(&mut *sink, &[]).await.unwrap().unwrap(), 0);
    assert!(offer(&mut *sink, &[b"data: never\n\n"]).await.is_none());
    let ending = tokio::spawn(async move { end(&mut *sink, Ending::Complete).await });
    bench.expect(&format!("{STREAM}0\r\n\r\n")).await;
    ending.await.unwrap();
    bench.send(POST).await;
    bench.expect(JSON).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_noticed() {
    // Parked.
    let mut bench = Bench::new(ROOMY);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    assert_eq!(gone_now(&mut *sink).await, None);
    drop(bench.client);
    assert_eq!(gone(&mut *sink).await, Gone::Fin);

    // Before there was an answer.
    let mut bench = Bench::new(ROOMY);
    bench
        .send("POST /mcp?wait HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        .await;
    bench.seen.calls.recv().await.unwrap();
    drop(bench.client);
    bench.seen.dropped.recv().await.unwrap();
    (&mut bench.task).await.unwrap();
    assert_eq!(bench.seats.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn bodies_pass_as_they_come() {
    let mut bench = Bench::new(ROOMY);
    bench
        .send("POST /mcp?pass HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}")
        .await;
    bench
        .expect("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    for _ in 0..2 {
        // Longer apart than any limit of an idle connection: it is not idle.
        tokio::time::advance(LIMITS.idle_timeout * 2).await;
        bench.seen.pieces.send(Ok(Bytes::from_static(b"piece"))).unwrap();
        bench.expect("5\r\npiece\r\n").await;
    }
    bench
        .seen
        .pieces
        .send(Err(std::io::ErrorKind::ConnectionReset.into()))
        .unwrap();
    assert_eq!(bench.rest().await, "", "no final chunk: it was not whole");
}

/// What one request on a connection of its own is answered with, the client waiting for the end.
async fn answer(request: &str) -> String {
    let mut bench = Bench::new(ROOMY);
    bench.send(request).await;
    bench.rest().await
}

#[track_caller]
fn check(answer: &str, status: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn shapes_that_are_refused() {
    let host = "host: localhost\r\n";
    let rows = [
        // Two ways to say where the body ends.
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            "400",
        ),
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n"
            ),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: 2, 2\r\n\r\n{{}}"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: +2\r\n\r\n{{}}"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: -2\r\n\r\n{{}}"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: 0x2\r\n\r\n{{}}"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length : 2\r\n\r\n{{}}"),
            "400",
        ),
        // Codings.
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
            "501",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
            "501",
        ),
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            "501",
        ),
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n"
            ),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.0\r\n{host}transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
            "400",
        ),
        // Chunks.
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\nx\r\n\r\n"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n2\r\n{{}}0\r\n\r\n"),
            "400",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n"),
            "400",
        ),
        // Heads.
        (format!("POST /mcp HTTP/1.1\r\n{host} folded: 1\r\n\r\n"), "400"),
        (format!("POST /mcp HTTP/1.1\r\n{host}bad name: 1\r\n\r\n"), "400"),
        (format!("POST /mcp HTTP/1.1\r\n{host}x: a\rb\r\n\r\n"), "400"),
        (format!("POST /mcp HTTP/1.1\r\n{host}x: a\0b\r\n\r\n"), "400"),
        (format!("POST /mcp HTTP/3.0\r\n{host}\r\n"), "400"),
        ("garbage\r\n\r\n".to_owned(), "400"),
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}x: {}\r\n\r\n",
                "y".repeat(LIMITS.head_bytes_max)
            ),
            "431",
        ),
        (
            format!("POST /{} HTTP/1.1\r\n", "y".repeat(LIMITS.head_bytes_max)),
            "431",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}{}\r\n", "a:\r\n".repeat(150)),
            "431",
        ),
        // Bodies.
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}content-length: 65\r\n\r\n{}",
                "x".repeat(65)
            ),
            "413",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: 99999999999\r\n\r\n"),
            "413",
        ),
        (
            format!(
                "POST /mcp HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n41\r\n{}\r\n0\r\n\r\n",
                "x".repeat(65)
            ),
            "413",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: 5\r\nexpect: 100-continue\r\n\r\n"),
            "100",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}content-length: 65\r\nexpect: 100-continue\r\n\r\n"),
            "413",
        ),
        // Who and where; `connection: close` only ends the test.
        (
            "POST /mcp HTTP/1.1\r\nconnection: close\r\n\r\n".to_owned(),
            "400",
        ),
        (
            "POST /mcp HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n".to_owned(),
            "421",
        ),
        (
            format!("POST /mcp HTTP/1.1\r\n{host}origin: http://evil.example\r\nconnection: close\r\n\r\n"),
            "403",
        ),
        (
            format!("POST /mcp/x HTTP/1.1\r\n{host}connection: close\r\n\r\n"),
            "404",
        ),
        (
            format!("TRACE /mcp HTTP/1.1\r\n{host}connection: close\r\n\r\n"),
            "405",
        ),
        (
            format!("GET /mcp?gone HTTP/1.1\r\n{host}connection: close\r\n\r\n"),
            "404",
        ),
    ];
    for (request, status) in rows {
        let answer = answer(&request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{request:?}\n{answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_say_what_to_do() {
    let rows = [
        (
            "POST /mcp HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n",
            "allowed_hosts",
        ),
        (
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\nconnection: close\r\n\r\n",
            "allowed_origins",
        ),
        (
            "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            "/other\n/mcp\n",
        ),
        (
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65\r\n\r\n",
            "64 bytes",
        ),
        (
            "GET /mcp?gone HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            r#""error":{"code":-32001,"message":"Session not found"}"#,
        ),
    ];
    for (request, words) in rows {
        let answer = answer(request).await;
        assert!(answer.contains(words), "{request:?}\n{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_does_not_end_a_connection_that_can_go_on() {
    let mut bench = Bench::new(ROOMY);
    bench
        .send("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let mut got = String::new();
    while !got.ends_with("/mcp\n") {
        got.push(bench.client.read_u8().await.unwrap().into());
    }
    check(&got, "404");
    bench.send(POST).await;
    bench.expect(JSON).await;
}

#[tokio::test(start_paused = true)]
async fn expect_is_honoured_before_a_stream_too() {
    let mut bench = Bench::new(ROOMY);
    bench
        .send(
            "POST /mcp?stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n",
        )
        .await;
    bench.expect("HTTP/1.1 100 Continue\r\n\r\n").await;
    bench.send("{}").await;
    let mut sink = bench.sink().await;
    end(&mut *sink, Ending::Complete).await;
    bench.expect(&format!("{STREAM}0\r\n\r\n")).await;
}

#[tokio::test(start_paused = true)]
async fn what_hyper_holds_unsent_goes_out_before_the_takeover() {
    let mut bench = Bench::new(16);
    let head =
        "POST /mcp?stream HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n";
    // The client does not wait for the 100, and does not read it either.
    bench.send(head).await;
    bench.send("{}").await;
    bench.seen.calls.recv().await.unwrap();
    tokio::task::yield_now().await;
    assert!(bench.seen.sinks.is_empty(), "a part of the 100 is still in hyper");
    bench.expect("HTTP/1.1 100 Continue\r\n\r\n").await;
    let mut sink = bench.sink().await;
    let ending = tokio::spawn(async move { end(&mut *sink, Ending::Complete).await });
    bench.expect(&format!("{STREAM}0\r\n\r\n")).await;
    ending.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_head_has_a_stream_only_if_it_is_not_a_head_request() {
    let mut bench = Bench::new(ROOMY);
    bench
        .send("HEAD /mcp?stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    bench
        .expect("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        .await;
    let mut sink = bench.sink().await;
    assert_eq!(gone(&mut *sink).await, Gone::Reset);
}

/// How long the connection stays open after this was sent.
async fn lasts(text: &str) -> (Duration, String) {
    let mut bench = Bench::new(ROOMY);
    bench.send(text).await;
    let begun = Instant::now();
    let rest = bench.rest().await;
    (begun.elapsed(), rest)
}

#[tokio::test(start_paused = true)]
async fn waits_are_bounded() {
    let second = Duration::from_secs(1);
    let (time, said) = lasts("").await;
    assert!(
        time >= LIMITS.idle_timeout && time < LIMITS.idle_timeout + second,
        "{time:?}"
    );
    assert_eq!(said, "");

    let (time, said) = lasts(POST).await;
    assert!(
        time >= LIMITS.idle_timeout && time < LIMITS.idle_timeout + second,
        "{time:?}"
    );
    assert_eq!(said, JSON);

    let (time, said) = lasts("POST /mcp HTTP/1.1\r\nhost: lo").await;
    assert!(
        time >= LIMITS.head_timeout && time < LIMITS.head_timeout + second,
        "{time:?}"
    );
    check(&said, "408");

    let (time, said) = lasts("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{").await;
    assert!(
        time >= LIMITS.body_timeout && time < LIMITS.body_timeout + second,
        "{time:?}"
    );
    check(&said, "408");
}

#[tokio::test(start_paused = true)]
async fn a_head_that_drips_is_cut_too() {
    let mut bench = Bench::new(ROOMY);
    let begun = Instant::now();
    for piece in ["P", "O", "S", "T", " ", "/"] {
        bench.send(piece).await;
        pass(Duration::from_millis(400)).await;
    }
    check(&bench.rest().await, "408");
    assert!(begun.elapsed() < LIMITS.head_timeout * 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_let_go() {
    let mut bench = Bench::new(16);
    bench.send(&POST[..16]).await;
    for piece in POST.as_bytes()[16..].chunks(16) {
        bench.send(std::str::from_utf8(piece).unwrap()).await;
    }
    bench.seen.calls.recv().await.unwrap();
    let begun = Instant::now();
    (&mut bench.task).await.unwrap();
    assert!(begun.elapsed() >= LIMITS.idle_timeout);
    assert_eq!(bench.seats.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_closes_what_is_idle_and_finishes_the_rest() {
    // Idle, before any request and after one.
    for first in ["", POST] {
        let mut bench = Bench::new(ROOMY);
        bench.send(first).await;
        if !first.is_empty() {
            bench.expect(JSON).await;
        }
        tokio::task::yield_now().await;
        bench.drain.begin();
        assert_eq!(bench.rest().await, "", "{first:?}");
    }

    // Busy with an answer.
    let mut bench = Bench::new(ROOMY);
    bench
        .send("POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{")
        .await;
    tokio::task::yield_now().await;
    bench.drain.begin();
    tokio::task::yield_now().await;
    bench.send("}").await;
    assert_eq!(
        bench.rest().await,
        "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\n<{}>"
    );

    // A stream that was open ends its connection; one that begins says so.
    let mut bench = Bench::new(ROOMY);
    bench.send(GET_STREAM).await;
    let mut sink = bench.sink().await;
    bench.drain.begin();
    end(&mut *sink, Ending::Complete).await;
    assert_eq!(bench.rest().await, format!("{STREAM}0\r\n\r\n"));
}

#[tokio::test(start_paused = true)]
async fn an_http2_client_that_takes_nothing_is_felt() {
    let Bench { client, mut seen, .. } = Bench::new(ROOMY);
    let mut client = http2(client).await;
    let answer = client
        .send_request(request("localhost", "/mcp?stream", "{}"))
        .await
        .unwrap();
    let mut sink = seen.sinks.recv().await.unwrap();
    let block = vec![b'x'; 64 * 1024];
    let sending = async {
        for _ in 0..64 {
            send_all(&mut *sink, &block).await;
        }
    };
    // The clock is paused: it moves only once nobody can do anything more.
    assert!(
        tokio::time::timeout(Duration::from_secs(1), sending)
            .await
            .is_err()
    );
    drop(answer);
    assert_eq!(gone(&mut *sink).await, Gone::Reset);
}

#[tokio::test(start_paused = true)]
async fn an_http2_client_that_goes_away_drops_what_it_asked_for() {
    let Bench { client, mut seen, .. } = Bench::new(ROOMY);
    let mut client = http2(client).await;
    // Before there is an answer.
    let asking = client.send_request(request("localhost", "/mcp?wait", "{}"));
    assert!(
        tokio::time::timeout(Duration::from_secs(1), asking)
            .await
            .is_err()
    );
    seen.dropped.recv().await.unwrap();
    // In the middle of one that passes.
    let asked = request("localhost", "/mcp?pass", "{}");
    let mut answer = client.send_request(asked).await.unwrap();
    seen.pieces.send(Ok("data: 1\n\n".into())).unwrap();
    answer.body_mut().frame().await.unwrap().unwrap();
    drop(answer);
    seen.pieces.closed().await;
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_is_bounded_in_time() {
    let Bench {
        client,
        mut seen,
        seats,
        task,
        ..
    } = Bench::new(ROOMY);
    let mut client = http2(client).await;
    let answer = client
        .send_request(request("localhost", "/mcp?stream", "{}"))
        .await
        .unwrap();
    let mut sink = seen.sinks.recv().await.unwrap();
    // A stream without events is not idle.
    pass(LIMITS.idle_timeout * 3).await;
    send_all(&mut *sink, b"data: 1\n\n").await;
    end(&mut *sink, Ending::Complete).await;
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "data: 1\n\n"
    );
    let begun = Instant::now();
    task.await.unwrap();
    let lasted = begun.elapsed();
    assert!(
        lasted >= LIMITS.idle_timeout && lasted < LIMITS.idle_timeout * 2,
        "{lasted:?}"
    );
    assert_eq!(seats.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_rested_goes_on() {
    let mut bench = Bench::new(ROOMY);
    for split in 0..POST.len() {
        pass(LIMITS.idle_timeout / 2).await;
        let (a, b) = POST.split_at(split);
        bench.send(a).await;
        tokio::task::yield_now().await;
        bench.send(b).await;
        bench.expect(JSON).await;
    }
    pass(LIMITS.idle_timeout / 2).await;
    assert!(!bench.task.is_finished());
    bench.drain.begin();
    assert_eq!(bench.rest().await, "");
    (&mut bench.task).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_rests_is_small() {
    let mut bench = Bench::new(ROOMY);
    bench.send(POST).await;
    bench.expect(JSON).await;
    let task = bench.connection_bytes;
    assert!(task <= 800, "{task} bytes");
}

#[tokio::test(start_paused = true)]
async fn an_offer_to_upgrade_is_passed_over() {
    let upgrade =
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n";
    let mut bench = Bench::new(ROOMY);
    for _ in 0..2 {
        bench
            .send(&format!(
                "POST /mcp HTTP/1.1\r\nhost: localhost\r\n{upgrade}content-length: 2\r\n\r\n{{}}"
            ))
            .await;
        bench.expect(JSON).await;
        let (_, call) = bench.seen.calls.recv().await.unwrap();
        assert!(!call.headers.contains_key("upgrade") && !call.headers.contains_key("http2-settings"));
        bench
            .send(&format!(
                "GET /mcp?stream HTTP/1.1\r\nhost: localhost\r\n{upgrade}\r\n"
            ))
            .await;
        bench.seen.calls.recv().await.unwrap();
        let mut sink = bench.sink().await;
        end(&mut *sink, Ending::Complete).await;
        bench.expect(&format!("{STREAM}0\r\n\r\n")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn long_bodies_share_a_budget() {
    use crate::downstream::front::{BODY_BYTES_FREE, Bodies, NoRoom};
    let bodies = Bodies::with_room(3 * BODY_BYTES_FREE);
    let (mut a, mut b) = (bodies.share(), bodies.share());
    assert_eq!(a.fit(BODY_BYTES_FREE), Ok(()));
    assert_eq!(a.fit(2 * BODY_BYTES_FREE), Ok(()));
    assert_eq!(b.fit(2 * BODY_BYTES_FREE), Err(NoRoom));
    assert_eq!(b.fit(BODY_BYTES_FREE), Ok(()));
    assert_eq!(a.fit(3 * BODY_BYTES_FREE), Ok(()));
    assert_eq!(a.fit(3 * BODY_BYTES_FREE + 1), Err(NoRoom));
    drop(a);
    assert_eq!(b.fit(3 * BODY_BYTES_FREE), Ok(()));
    assert_eq!(b.fit(usize::MAX), Err(NoRoom));
}

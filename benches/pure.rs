//! What one event costs on the pure path, in nanoseconds: decode, classify, rewrite and append, and all of it; and
//! what one id, one resume and one call cost.
//! Law: prints, judges nothing; the best of several runs, since the machine is shared. `cargo bench --bench pure`.
//! `-- only NAME BATCHES` runs one of them that often and takes no time: `instructions.sh` counts what it executes.
//! Absent on purpose: a benchmark library. One loop and one clock are enough to see a factor.
//! Next: `README.md`.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use http::Method;
use throughline::pure::epoch::{Epoch, Seq};
use throughline::pure::event_id::{EventId, IdPrefix, Rid, StreamName, Uid};
use throughline::pure::http1::chunk::{ChunkDecoder, END_OF_DATA, HEAD_BYTES_MAX, Step, write_head};
use throughline::pure::http1::head::read_response;
use throughline::pure::http1::request::{Reading, RequestBounds, read_usual};
use throughline::pure::keys::{KeyId, KeyRing};
use throughline::pure::log::{Bounds, EndMark, Entry, Millis, Position, Slices, Window};
use throughline::pure::rpc::{self, RequestId};
use throughline::pure::sse::{Block, Decoder, Text, encode};
use throughline::pure::stream::{Agent, Life, Take};

/// Events in one batch: about what one read of 64 KB brings.
const EVENTS: usize = 300;
/// Batches, of which the fastest counts.
const RUNS: usize = 2_000;

/// What is run: everything, on the clock, or one thing for a number of batches; or nothing, and the names are printed.
enum Asked {
    Times,
    Only { name: String, batches: usize },
    Names,
}

static ASKED: OnceLock<Asked> = OnceLock::new();

impl Asked {
    fn of(arguments: &[String]) -> Self {
        match arguments {
            [only, name, batches] if only == "only" => Self::Only {
                name: name.clone(),
                batches: batches.parse().expect("a number of batches"),
            },
            [names] if names == "names" => Self::Names,
            _ => Self::Times,
        }
    }
}

/// Runs `batch`, which handles [`EVENTS`] events, often, and prints what one event cost in the fastest run.
fn measure(name: &str, mut batch: impl FnMut() -> usize) {
    match ASKED.get_or_init(|| Asked::of(&std::env::args().skip(1).collect::<Vec<_>>())) {
        Asked::Times => {}
        Asked::Only { name: only, batches } => {
            if only == name {
                for _ in 0..*batches {
                    black_box(batch());
                }
            }
            return;
        }
        Asked::Names => return println!("{name}"),
    }
    let mut best = u128::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        black_box(batch());
        best = best.min(start.elapsed().as_nanos());
    }
    println!("{name:<36} {:>8.1} ns/event", best as f64 / EVENTS as f64);
}

/// Some events as a backend writes them, each with about `data_len` bytes of data.
fn events(line_end: &str, data_len: usize) -> Vec<Vec<u8>> {
    let text = "x".repeat(data_len - 60);
    let data = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":"{text}"}}"#);
    let one = |n: usize| {
        let id = format!("id: 01890a5d-ac96-774b-bcce-b302099a8057_{n}");
        ["event: message", &id, &format!("data: {data}"), "", ""]
            .join(line_end)
            .into_bytes()
    };
    (0..EVENTS).map(one).collect()
}

fn chunked(events: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for event in events {
        let mut head = [0; HEAD_BYTES_MAX];
        let len = write_head(&mut head, event.len());
        out.extend_from_slice(&head[..len]);
        out.extend_from_slice(event);
        out.extend_from_slice(END_OF_DATA);
    }
    out
}

fn decode(decoder: &mut Decoder, bytes: &[u8]) -> usize {
    let mut seen = 0;
    let fed = decoder.feed(bytes, &mut |block| seen += block.data().map_or(0, <[u8]>::len));
    assert!(fed.is_ok());
    seen
}

/// De-chunks a body and hands its data on.
fn dechunk(chunks: &mut ChunkDecoder, body: &[u8], mut on: impl FnMut(&[u8]) -> usize) -> usize {
    let (mut at, mut seen) = (0, 0);
    while let Ok(Step::Data { data, consumed }) = chunks.next(&body[at..]) {
        seen += on(data);
        at += consumed;
    }
    seen
}

/// What a log holds at most: the defaults.
const BOUNDS: Bounds = Bounds {
    events: 1_024,
    bytes: 8 << 20,
    age: Millis(600_000),
};

fn keys() -> KeyRing {
    let id = KeyId::new(b'a').expect("a letter");
    KeyRing::new((id, &[7; 32][..]), []).expect("a key")
}

fn stream() -> StreamName {
    StreamName::Post(Rid::from_request_id(&RequestId::from_raw(b"7").expect("an id")))
}

/// What every event of a backend goes through: de-chunked, decoded, classified, rewritten, appended, shown.
fn whole_path(events: &[Vec<u8>]) {
    let body = chunked(events);
    let (mut chunks, mut decoder) = (ChunkDecoder::new(), Decoder::new(1 << 20));
    let prefix = IdPrefix::new(
        keys().current(),
        &Uid::new([1; 16]),
        Epoch::from_random(2),
        &stream(),
    );
    let mut window = Window::new(Epoch::from_random(2), BOUNDS);
    let mut life = Life::standalone();
    let mut at = Position {
        after: Seq::START,
        skip: 0,
    };
    measure("all of it, into a full window", || {
        dechunk(&mut chunks, &body, |data| {
            let fed = decoder.feed(data, &mut |block: Block<'_>| {
                let Some(text) = block.text() else { return };
                let kind = rpc::classify_event(text.as_bytes());
                let Take::Append = life.take(&kind, block.event, Agent::Other) else {
                    return;
                };
                let entry = Entry {
                    prefix: prefix.as_bytes(),
                    end: EndMark::Open,
                    event: block.event,
                    data: text,
                };
                assert!(window.emit(entry, Millis(1)).is_ok());
            });
            assert!(fed.is_ok());
            0
        });
        let mut seen = 0;
        loop {
            let mut parts = Slices::new();
            let _ = window.view(at, window.span().last, &mut parts);
            if parts.is_empty() {
                return seen;
            }
            at = window.advance(at, parts.bytes());
            seen += parts.bytes();
        }
    });
}

/// What a log costs by itself, and what a cursor costs.
fn log_and_ids() {
    let (keys, uid, epoch) = (keys(), Uid::new([1; 16]), Epoch::from_random(2));
    let prefix = IdPrefix::new(keys.current(), &uid, epoch, &stream());
    let data = vec![b'x'; 200];
    let mut window = Window::new(epoch, BOUNDS);
    measure("rewrite and append, 200 bytes", || {
        for _ in 0..EVENTS {
            let entry = Entry {
                prefix: prefix.as_bytes(),
                end: EndMark::Open,
                event: b"",
                data: Text::of(black_box(&data)),
            };
            assert!(window.emit(entry, Millis(1)).is_ok());
        }
        EVENTS
    });
    let last = window.span().last.get();
    measure("resume within the window", || {
        (0..EVENTS as u64)
            .filter(|n| window.resume(epoch, Seq::new(last - black_box(n * 3))).is_ok())
            .count()
    });
    measure("make a stream's id, MAC included", || {
        let make = |n| IdPrefix::new(keys.current(), &uid, Epoch::from_random(black_box(n)), &stream());
        (0..EVENTS as u64).map(|n| make(n).as_bytes().len()).sum()
    });
    let mut id = Vec::new();
    prefix.event(Seq::new(1234), &mut id);
    measure("decode and verify a cursor", || {
        let proved = |id: &[u8]| EventId::decode(id).is_ok_and(|id| id.verify(&keys, &uid).is_ok());
        (0..EVENTS).filter(|_| proved(black_box(&id))).count()
    });
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bench","arguments":{"mode":"json","bytes":100}}}"#;
    measure("read a call", || {
        (0..EVENTS).filter(|_| rpc::read(black_box(call)).is_ok()).count()
    });
    let length = call.len();
    let mut request = format!(
        "POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:8080\r\naccept: application/json, text/event-stream\r\n\
         mcp-session-id: {}\r\nmcp-protocol-version: 2025-11-25\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n",
        "x".repeat(160)
    )
    .into_bytes();
    request.extend_from_slice(call);
    let request = Bytes::from(request);
    let bounds = RequestBounds {
        head_bytes_max: 32 * 1024,
        body_bytes_max: 4 << 20,
    };
    measure("read a request around it", || {
        (0..EVENTS)
            .filter(|_| matches!(read_usual(black_box(&request), bounds), Reading::Whole(_)))
            .count()
    });
    let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 156\r\n\
                   date: Mon, 30 Nov 2026 12:00:00 GMT\r\n\r\n";
    measure("read the head of an answer", || {
        (0..EVENTS)
            .filter(|_| read_response(black_box(answer), &Method::POST).is_ok())
            .count()
    });
}

fn main() {
    let mut decoder = Decoder::new(1 << 20);
    for data_len in [100, 200, 2_000] {
        for (name, line_end) in [("LF", "\n"), ("CR LF", "\r\n")] {
            let whole = events(line_end, data_len).concat();
            measure(&format!("decode, {data_len} bytes, {name}"), || {
                decode(&mut decoder, &whole)
            });
        }
    }
    let events = events("\n", 200);
    let whole = events.concat();
    measure("decode, one feed for each event", || {
        events.iter().map(|event| decode(&mut decoder, event)).sum()
    });
    measure("decode, cut at every 150 bytes", || {
        whole.chunks(150).map(|part| decode(&mut decoder, part)).sum()
    });

    let body = chunked(&events);
    let mut chunks = ChunkDecoder::new();
    measure("de-chunk", || dechunk(&mut chunks, &body, <[u8]>::len));
    measure("de-chunk and decode", || {
        dechunk(&mut chunks, &body, |data| decode(&mut decoder, data))
    });

    let data = vec![b'x'; 200];
    let mut out = Vec::new();
    measure("encode a frame", || {
        out.clear();
        for _ in 0..EVENTS {
            encode::frame(
                &mut out,
                b"1abcdefghijk.g.abcdefghijklmnop.1234",
                b"",
                black_box(&data),
            );
        }
        out.len()
    });
    let mut head = [0; HEAD_BYTES_MAX];
    measure("write a chunk head", || {
        (0..EVENTS)
            .map(|n| write_head(&mut head, black_box(200 + n)))
            .sum()
    });
    log_and_ids();
    whole_path(&events);
}

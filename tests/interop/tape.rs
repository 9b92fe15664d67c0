//! A tape: a TCP relay that passes everything on and keeps it, and reads JSON-RPC messages out of it afterwards.
//! Law: what is compared is bytes: a POST's body, a JSON answer's body, an event's data. Heads, ids, comments and framing are
//! each side's own.
//! Absent on purpose: HTTP/2 and pipelining, which no client of the lab uses.
//! Next: `relay.rs` of the quick start.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// What went over one connection.
#[derive(Clone, Default)]
struct Recorded {
    /// From the client.
    up: Vec<u8>,
    /// From the server.
    down: Vec<u8>,
}

type Shelf = Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>>;

/// A running tape. It ends when it is dropped.
pub(crate) struct Tape {
    address: SocketAddr,
    shelf: Shelf,
    task: JoinHandle<()>,
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tape {
    /// Starts one in front of `server`.
    pub(crate) async fn start(server: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shelf = Shelf::default();
        let kept = Arc::clone(&shelf);
        let task = tokio::spawn(async move {
            // The connections live in this set, so that they end with the tape.
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let recorded = Arc::<Mutex<Recorded>>::default();
                kept.lock()
                    .expect("nobody panics while holding it")
                    .push(Arc::clone(&recorded));
                connections.spawn(pass(client, server, recorded));
            }
        });
        Ok(Self { address, shelf, task })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The messages that went by until now.
    pub(crate) fn messages(&self) -> Messages {
        let mut messages = Messages::default();
        for recorded in self.shelf.lock().expect("nobody panics while holding it").iter() {
            let recorded = recorded.lock().expect("nobody panics while holding it").clone();
            messages.read(&recorded);
        }
        messages
    }
}

async fn pass(client: TcpStream, server: SocketAddr, recorded: Arc<Mutex<Recorded>>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _nodelay = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::join!(
        copy(from_client, to_server, |bytes| {
            let mut recorded = recorded.lock().expect("nobody panics while holding it");
            recorded.up.extend_from_slice(bytes);
        }),
        copy(from_server, to_client, |bytes| {
            let mut recorded = recorded.lock().expect("nobody panics while holding it");
            recorded.down.extend_from_slice(bytes);
        })
    );
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, keep: impl Fn(&[u8])) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(read) = from.read(&mut bytes).await {
        keep(&bytes[..read]);
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    let _gone = to.shutdown().await;
}

/// Messages in both directions.
#[derive(Default)]
pub(crate) struct Messages {
    /// Bodies of POSTs.
    posted: Vec<String>,
    /// What came in answer: to a POST with this body, or on the standalone stream.
    answered: BTreeMap<String, Vec<String>>,
    /// Bodies of POSTs that whoever sent them left before anything came in answer.
    unanswered: Vec<String>,
    /// POSTs whose answers were not waited for.
    left: Vec<String>,
}

/// The key of the standalone stream, which is no JSON.
const STANDALONE: &str = "GET";

impl Messages {
    fn read(&mut self, recorded: &Recorded) {
        let (mut up, mut down) = (&recorded.up[..], &recorded.down[..]);
        while let Some(request) = message(&mut up, Side::Request) {
            let (head, body) = (request.head, String::from_utf8_lossy(&request.body).into_owned());
            let answer = loop {
                match message(&mut down, Side::Answer) {
                    Some(interim) if interim.head.starts_with("http/1.1 1") => {}
                    other => break other,
                }
            };
            let Some(answer) = answer else {
                if head.starts_with("post") {
                    self.unanswered.push(body);
                }
                continue;
            };
            // What was refused is each side's own affair: it changed nothing.
            if !answer.head.starts_with("http/1.1 2") {
                continue;
            }
            let key = if head.starts_with("post") {
                self.posted.push(body.clone());
                if answer.end == End::Missing {
                    self.left.push(body.clone());
                }
                body
            } else if head.starts_with("get") {
                STANDALONE.to_owned()
            } else {
                continue;
            };
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            let payloads = self.answered.entry(key).or_default();
            match field(&answer.head, "content-type").as_deref() {
                Some(kind) if kind.starts_with("text/event-stream") => payloads.extend(events(&body)),
                Some(_) | None if body.is_empty() => {}
                Some(_) | None => payloads.push(body),
            }
        }
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> usize {
        self.posted.len() + self.answered.values().map(Vec::len).sum::<usize>()
    }

    /// The same where many sessions say the same bytes, so that nobody knows which answer was whose: each message as often here
    /// as there. Left out is what one of them took back or did not wait for (a POST that its client left at once among it: the
    /// backend may have answered it all the same), and the proxy's own pings.
    pub(crate) fn differences_of_many(&self, backend: &Self) -> Vec<String> {
        let cancelled = self.cancelled();
        let count = |messages: &Self| {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            let answers = messages.answered.iter().filter(|(key, _)| {
                let request = parsed(key);
                let own = request["method"] == "ping" && request["id"].as_str().is_some();
                !own && !cancelled.contains(&request["id"]) && !self.left.contains(key)
            });
            for message in messages.posted.iter().chain(answers.flat_map(|(_, list)| list)) {
                *counts.entry(message.clone()).or_default() += 1;
            }
            counts
        };
        let (here, there) = (count(self), count(backend));
        let messages = here.keys().chain(there.keys());
        let mut wrong: Vec<String> = messages
            .filter(|message| here.get(*message) != there.get(*message) && !self.unanswered.contains(message))
            .map(|message| {
                let times = |counts: &BTreeMap<String, usize>| counts.get(message).copied().unwrap_or(0);
                format!(
                    "{} times at the client, {} times at the server: {message}",
                    times(&here),
                    times(&there)
                )
            })
            .collect();
        wrong.sort_unstable();
        wrong.dedup();
        wrong
    }

    /// Ids of requests that the client took back.
    fn cancelled(&self) -> Vec<Value> {
        let notes = self
            .posted
            .iter()
            .chain(&self.unanswered)
            .map(|body| parsed(body));
        notes
            .filter(|note| note["method"] == "notifications/cancelled")
            .map(|note| note["params"]["requestId"].clone())
            .collect()
    }

    /// What is not the same as on the other side of the proxy. A request that the client took back is answered by the proxy at
    /// once; what its server still says of it goes nowhere.
    pub(crate) fn differences(&self, backend: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        let sorted = |list: &[String]| {
            let mut list = list.to_vec();
            list.sort_unstable();
            list
        };
        let (mut sent, arrived) = (sorted(&self.posted), sorted(&backend.posted));
        // What its sender did not wait for may have arrived all the same.
        for body in &self.unanswered {
            let count = |list: &[String]| list.iter().filter(|one| *one == body).count();
            if count(&arrived) > count(&sent) {
                sent.push(body.clone());
            }
        }
        sent.sort_unstable();
        if sent != arrived {
            wrong.push(format!("posted {sent:?}, and the server had {arrived:?}"));
        }
        let none = Vec::new();
        let cancelled = self.cancelled();
        for key in self.answered.keys().chain(backend.answered.keys()) {
            let came = self.answered.get(key).unwrap_or(&none);
            let left = backend.answered.get(key).unwrap_or(&none);
            let same = match parsed(key).get("id") {
                Some(id) if cancelled.contains(id) => is_cut_short(came, left),
                Some(_) | None => came == left,
            };
            if !same {
                wrong.push(format!(
                    "in answer to {key}: came {came:?}, and the server sent {left:?}"
                ));
            }
        }
        wrong.sort_unstable();
        wrong.dedup();
        wrong
    }
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_default()
}

/// Whether what came is what was sent up to some place, and then the proxy's word that the request was taken back.
fn is_cut_short(came: &[String], left: &[String]) -> bool {
    let own = |message: &String| parsed(message)["error"]["data"]["reason"] == "cancelled";
    let whole = came.iter().position(own).unwrap_or(came.len());
    whole + 1 >= came.len() && left.starts_with(&came[..whole])
}

/// Which message is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Answer,
}

/// Whether all of a message came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    There,
    Missing,
}

/// One HTTP message.
struct Taken {
    /// In lower case.
    head: String,
    /// Without framing, as much of it as came.
    body: Vec<u8>,
    end: End,
}

/// Takes one HTTP message off the front.
fn message(bytes: &mut &[u8], side: Side) -> Option<Taken> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let mut rest = &bytes[end..];
    let status = head.split(' ').nth(1).unwrap_or("");
    let empty = side == Side::Answer && (status.starts_with('1') || status == "204" || status == "304");
    let length = field(&head, "content-length").and_then(|length| length.parse::<usize>().ok());
    let (body, end) = if empty {
        (Vec::new(), End::There)
    } else if field(&head, "transfer-encoding").is_some_and(|how| how.contains("chunked")) {
        unchunked(&mut rest)
    } else if let Some(length) = length {
        let (body, after) = rest.split_at(length.min(rest.len()));
        rest = after;
        let end = if body.len() == length {
            End::There
        } else {
            End::Missing
        };
        (body.to_vec(), end)
    } else if side == Side::Answer {
        (std::mem::take(&mut rest).to_vec(), End::There)
    } else {
        (Vec::new(), End::There)
    };
    *bytes = rest;
    Some(Taken { head, body, end })
}

fn unchunked(bytes: &mut &[u8]) -> (Vec<u8>, End) {
    let mut body = Vec::new();
    while let Some(line) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = String::from_utf8_lossy(&bytes[..line]);
        let size = usize::from_str_radix(size.split(';').next().unwrap_or("").trim(), 16).unwrap_or(0);
        let after = &bytes[line + 2..];
        let whole = size.min(after.len());
        body.extend_from_slice(&after[..whole]);
        *bytes = &after[(whole + 2).min(after.len())..];
        if size == 0 {
            return (body, End::There);
        }
    }
    (body, End::Missing)
}

fn field(head: &str, name: &str) -> Option<String> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, value)| (key == name).then(|| value.trim().to_owned()))
}

/// Data of whole events that are messages: of type `message`, or of none, and not empty.
fn events(body: &str) -> Vec<String> {
    let body = body.replace("\r\n", "\n");
    let mut events: Vec<&str> = body.split("\n\n").collect();
    // What has no blank line behind it is no event.
    events.pop();
    let data = |event: &&str| {
        let lines: Vec<&str> = event
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect();
        lines.join("\n")
    };
    let is_message = |event: &&&str| {
        let kind = event.lines().find_map(|line| line.strip_prefix("event:"));
        kind.is_none_or(|kind| kind.trim() == "message")
    };
    let data = events.iter().filter(is_message).map(data);
    data.filter(|data| !data.is_empty()).collect()
}

//! From an HTTP request to a typed call: judged, matched whole to an upstream, stripped of what belongs to the hop,
//! read within bounds; and from the answer back to a response.
//! Law: the body is read whole before anybody is asked, so that who answers is never in the middle of a request.
//! Absent on purpose: which fields go on to a backend; that is the relay's.
//! Next: `body.rs`, `takeover.rs`.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::config::resolved::Upstream;
use crate::downstream::body::{AnswerBody, Kind};
use crate::downstream::framing::BodyEnd;
use crate::downstream::front::{Front, NoRoom, Share};
use crate::downstream::reject::{self, Reject};
use crate::downstream::sink_http1::After;
use crate::downstream::sink_http2;
use crate::downstream::takeover::Takeover;
use crate::downstream::tap::{Busy, Desk};
use crate::pure::http1::hop::drop_hop_by_hop;
use crate::relay::answer::{Answer, Call, Serve};

/// Which path is which upstream.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Routes {
    /// By the upstream's number; nothing for one that was taken out and whose path is another's now.
    paths: Box<[Option<Box<str>>]>,
}

impl Routes {
    /// The paths, in the order of the configuration.
    pub(crate) fn new(upstreams: &[Arc<Upstream>]) -> Self {
        let is_anothers = |one: &Upstream| {
            let mut others = upstreams.iter().filter(|other| !other.replicas.is_empty());
            one.replicas.is_empty() && others.any(|other| other.path == one.path)
        };
        let path = |one: &Arc<Upstream>| (!is_anothers(one)).then(|| one.path.clone());
        Self {
            paths: upstreams.iter().map(path).collect(),
        }
    }

    /// The upstream whose path this is, the whole of it.
    fn find(&self, path: &str) -> Option<usize> {
        self.paths.iter().position(|known| known.as_deref() == Some(path))
    }

    /// The paths that are served, one a line.
    fn served(&self) -> String {
        let paths: Vec<&str> = self.paths.iter().flatten().map(|path| &**path).collect();
        paths.join("\n")
    }
}

/// What an answer becomes on its connection.
type Reply<S> = Response<AnswerBody<<S as Serve>::Body>>;

/// An answer that was found before hyper had the request, and is hyper's to write.
pub(crate) type Foregone<S> = Result<Answer<<S as Serve>::Body>, Reject>;

/// Serves one HTTP/1 request, or answers it with what is known already. For an SSE answer it leaves a takeover on the
/// desk and stays pending for good.
pub(crate) async fn http1<S: Serve>(
    front: Arc<Front<S>>,
    desk: Arc<Desk>,
    peer: IpAddr,
    request: Request<Incoming>,
    foregone: Option<Foregone<S>>,
) -> Result<Reply<S>, Infallible> {
    let busy = desk.arrive();
    let (body_end, after) = manners(&request);
    let method = request.method().clone();
    let has_body = !request.body().is_end_stream();
    let answered = match foregone {
        None => answer(&front, &desk, peer, request).await,
        Some(Err(reject)) => Err(reject),
        Some(Ok(answer)) => {
            // It came whole before; taken from hyper's hands, so that the connection goes on behind it.
            let _ = read_whole(request.into_body(), usize::MAX, front.bodies.share()).await;
            Ok(answer)
        }
    };
    match answered {
        Ok(Answer::Stream(opening)) if method != Method::HEAD => {
            let after = if front.drain.has_begun() {
                After::Close
            } else {
                after
            };
            desk.leave(Takeover::new(opening, body_end, after));
            std::future::pending().await
        }
        Ok(answer) => {
            let mut response = reply(answer, busy);
            if front.drain.has_begun() {
                close_after(&mut response);
            }
            Ok(response)
        }
        Err(reject) => {
            front.refused(reject.word(), peer);
            let mut response = reject.response();
            // What may still come of a body is no request.
            if has_body || front.drain.has_begun() {
                close_after(&mut response);
            }
            Ok(response.map(|bytes| AnswerBody::new(Kind::Whole(bytes), busy)))
        }
    }
}

/// Serves one HTTP/2 request.
pub(crate) async fn http2<S: Serve>(
    front: Arc<Front<S>>,
    desk: Arc<Desk>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Reply<S>, Infallible> {
    let busy = desk.arrive();
    Ok(match answer(&front, &desk, peer, request).await {
        Ok(answer) => reply(answer, busy),
        Err(reject) => {
            front.refused(reject.word(), peer);
            reject
                .response()
                .map(|bytes| AnswerBody::new(Kind::Whole(bytes), busy))
        }
    })
}

/// The connection ends with this answer.
fn close_after<B>(response: &mut Response<B>) {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

/// What the connection allows after this request.
fn manners(request: &Request<Incoming>) -> (BodyEnd, After) {
    if request.version() == Version::HTTP_10 {
        return (BodyEnd::Closed, After::Close);
    }
    let close = request
        .headers()
        .get_all(CONNECTION)
        .iter()
        .flat_map(tokens)
        .any(is_close);
    (BodyEnd::Chunked, if close { After::Close } else { After::Reuse })
}

fn is_close(token: &str) -> bool {
    token.eq_ignore_ascii_case("close")
}

async fn answer<S: Serve>(
    front: &Front<S>,
    desk: &Desk,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Answer<S::Body>, Reject> {
    let (head, body) = request.into_parts();
    let upstream = judge(front, &head)?;
    judge_lengths(&head.headers, desk)?;
    let limits = &front.limits;
    let mut reading = pin!(read_whole(body, limits.body_bytes_max, front.bodies.share()));
    // Most bodies come with their head: no timer is made for them.
    let body = match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        Poll::Ready(read) => read?,
        Poll::Pending => match tokio::time::timeout(limits.body_timeout, reading).await {
            Ok(read) => read?,
            Err(_) => return Err(Reject::BodyTooSlow),
        },
    };
    let call = call(head, body, peer);
    Ok(front.answers.serve(upstream, call).await)
}

/// Answers a request that came whole without hyper.
pub(crate) async fn usual<S: Serve>(front: &Front<S>, peer: IpAddr, request: Request<Bytes>) -> Foregone<S> {
    let (head, body) = request.into_parts();
    let upstream = judge(front, &head)?;
    let call = call(head, body, peer);
    Ok(front.answers.serve(upstream, call).await)
}

/// Judges a request by what stands in its head; answers which upstream it is for.
fn judge<S>(front: &Front<S>, head: &Parts) -> Result<usize, Reject> {
    front.gate.judge(head.version, &head.uri, &head.headers)?;
    let Some(upstream) = front.routes.find(head.uri.path()) else {
        return Err(Reject::NoSuchPath {
            paths: front.routes.served(),
        });
    };
    if matches!(head.method, Method::CONNECT | Method::TRACE) {
        return Err(Reject::MethodNotServed);
    }
    Ok(upstream)
}

/// The typed request, without what belongs to the hop.
fn call(head: Parts, body: Bytes, peer: IpAddr) -> Call {
    let mut headers = head.headers;
    drop_hop_by_hop(&mut headers);
    Call {
        method: head.method,
        query: head.uri.query().map(Into::into),
        headers,
        body,
        peer,
    }
}

/// Refuses what hyper lets through and a server behind or before us might read in another way.
fn judge_lengths(fields: &HeaderMap, desk: &Desk) -> Result<(), Reject> {
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Ok(());
    };
    if desk.saw_two_lengths() || fields.contains_key(CONTENT_LENGTH) {
        return Err(Reject::Malformed {
            what: "both Transfer-Encoding and Content-Length",
        });
    }
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(Reject::CodingNotServed);
    }
    Ok(())
}

/// Reads a body whole. One that came in one piece is not copied.
async fn read_whole(mut body: Incoming, bytes_max: usize, mut share: Share<'_>) -> Result<Bytes, Reject> {
    let too_large = Reject::BodyTooLarge { bytes_max };
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large);
    }
    let mut pieces = Pieces::None;
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|_| Reject::BodyBroken)?;
        // Trailers of a request mean nothing to MCP.
        let Ok(data) = frame.into_data() else { continue };
        let length = pieces.len() + data.len();
        if length > bytes_max {
            return Err(too_large);
        }
        share.fit(length).map_err(|NoRoom| Reject::TooManyBodies)?;
        pieces.add(data);
    }
    Ok(pieces.join())
}

/// The pieces of a body so far.
enum Pieces {
    None,
    One(Bytes),
    Several(BytesMut),
}

impl Pieces {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(piece) => piece.len(),
            Self::Several(joined) => joined.len(),
        }
    }

    fn add(&mut self, data: Bytes) {
        match self {
            Self::None => *self = Self::One(data),
            Self::One(first) => {
                let mut joined = BytesMut::with_capacity(2 * (first.len() + data.len()));
                joined.extend_from_slice(first);
                joined.extend_from_slice(&data);
                *self = Self::Several(joined);
            }
            Self::Several(joined) => joined.extend_from_slice(&data),
        }
    }

    fn join(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(piece) => piece,
            Self::Several(joined) => joined.freeze(),
        }
    }
}

/// An answer as a response. A stream can only be one of HTTP/2 here, or the answer to a HEAD, which has no body.
fn reply<P>(answer: Answer<P>, busy: Busy) -> Response<AnswerBody<P>> {
    let mut response = match answer {
        Answer::Whole(response) => response.map(|bytes| AnswerBody::new(Kind::Whole(bytes), busy)),
        Answer::Passing(response) => response.map(|body| AnswerBody::new(Kind::Passing(body), busy)),
        Answer::Stream(opening) => {
            let (sink, body) = sink_http2::channel();
            opening.ticket.attach(Box::new(sink));
            let mut response = Response::new(AnswerBody::new(Kind::Stream(body), busy));
            *response.headers_mut() = opening.headers;
            response
        }
        Answer::Refused(refused) => {
            reject::refused(refused).map(|bytes| AnswerBody::new(Kind::Whole(bytes), busy))
        }
    };
    drop_hop_by_hop(response.headers_mut());
    response
}

/// The tokens of a list field. One that is no text has none.
fn tokens(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value
        .to_str()
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_whole() {
        let flags = crate::config::Flags {
            upstreams: vec!["http://127.0.0.1:9/mcp".into()],
            ..crate::config::Flags::default()
        };
        let (config, _) = crate::config::read_in(&flags, &|_| None).unwrap();
        let upstream = |path: &str, replicas: usize| {
            let mut one = Upstream::clone(&config.upstreams[0]);
            one.path = path.into();
            one.replicas.truncate(replicas);
            Arc::new(one)
        };
        let routes = Routes::new(&[upstream("/mcp", 1), upstream("/other/mcp", 1)]);
        for (path, upstream) in [
            ("/mcp", Some(0)),
            ("/other/mcp", Some(1)),
            ("/mcp/", None),
            ("/MCP", None),
            ("/mc", None),
            ("/", None),
            ("", None),
            ("*", None),
            ("//mcp", None),
            ("/%6dcp", None),
        ] {
            assert_eq!(routes.find(path), upstream, "{path}");
        }
        // One that was taken out keeps its path until another has it.
        let routes = Routes::new(&[upstream("/mcp", 0), upstream("/old", 0), upstream("/mcp", 1)]);
        assert_eq!((routes.find("/mcp"), routes.find("/old")), (Some(2), Some(1)));
        assert_eq!(routes.served(), "/old\n/mcp");
    }
}

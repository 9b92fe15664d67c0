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
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::config::resolved::{Metadata, Oauth, Upstream};
use crate::downstream::body::{AnswerBody, Kind};
use crate::downstream::cors;
use crate::downstream::framing::BodyEnd;
use crate::downstream::front::{Front, NoRoom, Share};
use crate::downstream::reject::{self, Reject};
use crate::downstream::sink_http1::After;
use crate::downstream::sink_http2;
use crate::downstream::takeover::Takeover;
use crate::downstream::tap::{Busy, Desk};
use crate::pure::http1::hop::drop_hop_by_hop;
use crate::pure::oauth;
use crate::relay::answer::{Answer, Call, Resource, Serve};

/// Which path is which upstream.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Routes {
    /// By the upstream's number; nothing for one that was taken out and whose path is another's now.
    paths: Box<[Option<Box<str>>]>,
    /// What passes beside them, by the same number.
    oauth: Box<[Oauth]>,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// The endpoint of the upstream with this number.
    Endpoint(usize),
    /// What passes beside that of the upstream with this number.
    Beside(usize),
}

impl Routes {
    /// The paths, in the order of the configuration.
    pub(crate) fn new(upstreams: &[Arc<Upstream>]) -> Self {
        let is_anothers = |one: &Upstream| {
            let mut others = upstreams.iter().filter(|other| !other.replicas.is_empty());
            one.replicas.is_empty() && others.any(|other| other.path == one.path)
        };
        let path = |one: &Arc<Upstream>| (!is_anothers(one)).then(|| one.path.clone());
        let oauth = |one: &Arc<Upstream>| {
            if one.replicas.is_empty() {
                Oauth::default()
            } else {
                one.oauth.clone()
            }
        };
        Self {
            paths: upstreams.iter().map(path).collect(),
            oauth: upstreams.iter().map(oauth).collect(),
        }
    }

    /// What this path leads to, the whole of it.
    fn find(&self, path: &str) -> Option<Found> {
        self.endpoint(path)
            .map(Found::Endpoint)
            .or_else(|| self.beside(path).map(Found::Beside))
    }

    fn endpoint(&self, path: &str) -> Option<usize> {
        self.paths.iter().position(|known| known.as_deref() == Some(path))
    }

    /// A path that was named is the one's who named it. Metadata of an endpoint is that one's; what is left is the first
    /// one's whose metadata passes.
    fn beside(&self, path: &str) -> Option<usize> {
        let named = |oauth: &Oauth| oauth.paths.iter().any(|known| &**known == path);
        if let Some(upstream) = self.oauth.iter().position(named) {
            return Some(upstream);
        }
        let metadata = oauth::Metadata::at(path)?;
        let passes = |upstream: &usize| match self.oauth[*upstream].metadata {
            Metadata::Pass => true,
            Metadata::Off => false,
        };
        let of_endpoint = metadata.whose().and_then(|path| self.endpoint(path));
        match (metadata, of_endpoint) {
            (_, Some(upstream)) => Some(upstream).filter(passes),
            // Below what is no endpoint there is nothing.
            (oauth::Metadata::Below { .. }, None) => None,
            (oauth::Metadata::OfHost { .. } | oauth::Metadata::OfPath { .. }, None) => {
                (0..self.oauth.len()).find(passes)
            }
        }
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
    let mut caller = None;
    let answered = match foregone {
        None => answer((&front, &desk), peer, request, &mut caller).await,
        // Such a request named no origin.
        Some(Err(reject)) => Err(reject),
        Some(Ok(answer)) => {
            // It came whole before; taken from hyper's hands, so that the connection goes on behind it.
            let _ = read_whole(request.into_body(), usize::MAX, front.bodies.share()).await;
            Ok(answer)
        }
    };
    match answered {
        Ok(Answer::Stream(mut opening)) if method != Method::HEAD => {
            cors::grant(caller.as_ref(), &mut opening.headers);
            let after = if front.drain.has_begun() {
                After::Close
            } else {
                after
            };
            desk.leave(Takeover::new(*opening, body_end, after));
            std::future::pending().await
        }
        Ok(answer) => {
            let mut response = reply(answer, busy);
            cors::grant(caller.as_ref(), response.headers_mut());
            if front.drain.has_begun() {
                close_after(&mut response);
            }
            Ok(response)
        }
        Err(reject) => {
            front.refused(reject.word(), peer);
            let mut response = reject.response();
            cors::grant(caller.as_ref(), response.headers_mut());
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
    let mut caller = None;
    let mut response = match answer((&front, &desk), peer, request, &mut caller).await {
        Ok(answer) => reply(answer, busy),
        Err(reject) => {
            front.refused(reject.word(), peer);
            reject
                .response()
                .map(|bytes| AnswerBody::new(Kind::Whole(bytes), busy))
        }
    };
    cors::grant(caller.as_ref(), response.headers_mut());
    Ok(response)
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

/// Answers a request; `caller` is the origin that may read the answer, once it is known to be let in.
async fn answer<S: Serve>(
    (front, desk): (&Front<S>, &Desk),
    peer: IpAddr,
    request: Request<Incoming>,
    caller: &mut Option<HeaderValue>,
) -> Result<Answer<S::Body>, Reject> {
    let (head, body) = request.into_parts();
    front.gate.judge(head.version, &head.uri, &head.headers)?;
    *caller = head.headers.get(ORIGIN).cloned();
    let (upstream, resource) = judge(front, &head.method, &head.uri)?;
    if cors::is_preflight(&head.method, &head.headers) {
        return Ok(Answer::Whole(Box::new(reject::preflight(cors::preflight(
            &head.headers,
        )))));
    }
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
    let call = call(head.method, &head.uri, head.headers, body, (peer, resource));
    Ok(front.answers.serve(upstream, call).await)
}

/// Answers a request that came whole without hyper.
pub(crate) async fn usual<S: Serve>(
    front: &Front<S>,
    peer: IpAddr,
    mut request: Box<Request<Bytes>>,
) -> Foregone<S> {
    front
        .gate
        .judge(request.version(), request.uri(), request.headers())?;
    let (upstream, resource) = judge(front, request.method(), request.uri())?;
    let method = std::mem::take(request.method_mut());
    let fields = std::mem::take(request.headers_mut());
    let body = std::mem::take(request.body_mut());
    let call = call(method, request.uri(), fields, body, (peer, resource));
    drop(request);
    Ok(front.answers.serve(upstream, call).await)
}

/// Judges a request that was let in by what stands in its head; answers which upstream it is for.
fn judge<S>(front: &Front<S>, method: &Method, uri: &Uri) -> Result<(usize, Resource), Reject> {
    let Some(found) = front.routes.find(uri.path()) else {
        return Err(Reject::NoSuchPath {
            paths: front.routes.served(),
        });
    };
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(Reject::MethodNotServed);
    }
    Ok(match found {
        Found::Endpoint(upstream) => (upstream, Resource::Endpoint),
        Found::Beside(upstream) => (upstream, Resource::Beside(uri.path().into())),
    })
}

/// The typed request, without what belongs to the hop.
fn call(
    method: Method,
    uri: &Uri,
    mut headers: HeaderMap,
    body: Bytes,
    (peer, resource): (IpAddr, Resource),
) -> Box<Call> {
    drop_hop_by_hop(&mut headers);
    Box::new(Call {
        resource,
        method,
        query: uri.query().map(Into::into),
        headers,
        body,
        peer,
    })
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
        Answer::Whole(response) => (*response).map(|bytes| AnswerBody::new(Kind::Whole(bytes), busy)),
        Answer::Passing(response) => (*response).map(|body| AnswerBody::new(Kind::Passing(body), busy)),
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
            assert_eq!(routes.find(path), upstream.map(Found::Endpoint), "{path}");
        }
        // One that was taken out keeps its path until another has it.
        let routes = Routes::new(&[upstream("/mcp", 0), upstream("/old", 0), upstream("/mcp", 1)]);
        let found = [routes.find("/mcp"), routes.find("/old")];
        assert_eq!(found, [Some(Found::Endpoint(2)), Some(Found::Endpoint(1))]);
        assert_eq!(routes.served(), "/old\n/mcp");
    }

    #[test]
    fn what_passes_beside_an_endpoint() {
        let (config, _) = crate::config::read_in(
            &crate::config::Flags {
                upstreams: vec!["http://127.0.0.1:9/mcp".into()],
                ..crate::config::Flags::default()
            },
            &|_| None,
        )
        .unwrap();
        let upstream = |path: &str, metadata: Metadata, paths: &[&str]| {
            let mut one = Upstream::clone(&config.upstreams[0]);
            one.path = path.into();
            one.oauth.metadata = metadata;
            one.oauth.paths = paths.iter().map(|path| (*path).into()).collect();
            Arc::new(one)
        };
        let routes = Routes::new(&[
            upstream("/a", Metadata::Off, &["/token"]),
            upstream("/b", Metadata::Pass, &["/authorize"]),
            upstream("/c", Metadata::Pass, &[]),
        ]);
        for (path, found) in [
            ("/token", Some(0)),
            ("/authorize", Some(1)),
            ("/authorize/", None),
            ("/.well-known/oauth-protected-resource", Some(1)),
            ("/.well-known/oauth-protected-resource/a", None),
            ("/.well-known/oauth-protected-resource/b", Some(1)),
            ("/.well-known/oauth-protected-resource/c", Some(2)),
            ("/.well-known/oauth-authorization-server/issuer", Some(1)),
            ("/c/.well-known/openid-configuration", Some(2)),
            ("/d/.well-known/openid-configuration", None),
            ("/.well-known/security.txt", None),
        ] {
            assert_eq!(routes.find(path), found.map(Found::Beside), "{path}");
        }
        let none = Routes::new(&[upstream("/a", Metadata::Off, &[])]);
        assert_eq!(none.find("/.well-known/oauth-protected-resource"), None);
    }
}

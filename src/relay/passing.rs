//! Answers of backends that are no event streams of ours: read whole when small, passed on as they come when not.
//! Law: a small answer is given only when it is whole, so that a backend that breaks in the middle of it costs one
//! call its outcome and not the client its connection.
//! Next: `post.rs`.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tracing::debug;

use crate::net::Net;
use crate::pure::http1::head::Framing;
use crate::relay::answer::{Answer, PassingBody, Refused};
use crate::relay::events_task::Events;
use crate::relay::headers;
use crate::relay::pool::BackendAnswer;
use crate::relay::world::World;
use crate::upstream::{Body, BodyError};

/// Up to here an answer is read whole before a byte of it is passed on, in bytes.
const WHOLE_BYTES_MAX: usize = 1 << 20;

/// A backend's body on its way through.
pub struct Passing<W: World>(Way<W>);

/// How it passes.
enum Way<W: World> {
    /// As it comes. Boxed: most answers are whole, and would be as large.
    Bytes(Box<Piecemeal<W>>),
    /// Frame by frame.
    Events(Box<Events<W>>),
}

/// A body that passes as it comes, and what was read of it before.
struct Piecemeal<W: World> {
    ahead: Option<Bytes>,
    body: Body<<W::Net as Net>::Io>,
}

impl<W: World> Passing<W> {
    /// An event stream.
    pub(crate) fn events(events: Events<W>) -> Self {
        Self(Way::Events(Box::new(events)))
    }

    fn bytes(ahead: Option<Bytes>, body: Body<<W::Net as Net>::Io>) -> Self {
        Self(Way::Bytes(Box::new(Piecemeal { ahead, body })))
    }
}

impl<W: World> PassingBody for Passing<W> {
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match &mut self.0 {
            Way::Events(events) => events.poll_bytes(cx),
            Way::Bytes(piecemeal) => match piecemeal.ahead.take() {
                Some(ahead) => Poll::Ready(Some(Ok(ahead))),
                None => {
                    let piece = ready!(piecemeal.body.poll_bytes(cx));
                    Poll::Ready(piece.map(|piece| piece.map_err(io::Error::other)))
                }
            },
        }
    }
}

/// What an answer's body turned out to be.
pub(crate) enum Content<W: World> {
    /// All of it.
    Whole(Bytes),
    /// Too much to hold; this follows.
    More(Passing<W>),
}

/// Reads a body whole if it is small enough.
///
/// # Errors
/// The body broke.
pub(crate) async fn read<W: World>(incoming: &mut BackendAnswer<W>) -> Result<Bytes, BodyError> {
    let mut all = BytesMut::new();
    loop {
        match poll_fn(|cx| incoming.body.poll_bytes(cx)).await {
            None => return Ok(all.freeze()),
            Some(piece) => all.extend_from_slice(&piece?),
        }
        if all.len() > WHOLE_BYTES_MAX {
            return Ok(all.freeze());
        }
    }
}

/// The content of an answer: whole if small, else as it comes.
///
/// # Errors
/// The body broke while it was read whole; nothing was passed on yet.
pub(crate) async fn content<W: World>(mut incoming: BackendAnswer<W>) -> Result<Content<W>, BodyError> {
    match incoming.head.framing {
        Framing::Empty => return Ok(Content::Whole(Bytes::new())),
        Framing::Length(n) if n > WHOLE_BYTES_MAX as u64 => {
            return Ok(Content::More(Passing::bytes(None, incoming.body)));
        }
        Framing::Length(_) => return incoming.body.collect(WHOLE_BYTES_MAX).await.map(Content::Whole),
        Framing::Chunked | Framing::UntilClose => {}
    }
    let ahead = read::<W>(&mut incoming).await?;
    if ahead.len() > WHOLE_BYTES_MAX {
        Ok(Content::More(Passing::bytes(Some(ahead), incoming.body)))
    } else {
        Ok(Content::Whole(ahead))
    }
}

/// Passes a backend's answer on, status and fields as they are, but for its session id.
///
/// # Errors
/// The body broke before anything was passed on.
pub(crate) async fn pass<W: World>(mut incoming: BackendAnswer<W>) -> Result<Answer<Passing<W>>, BodyError> {
    let status = incoming.head.status;
    if headers::is_event_stream(&incoming.head.headers) {
        return Ok(untouched(incoming, None));
    }
    let mut head = headers::to_client(std::mem::take(&mut incoming.head.headers));
    if let Some(body) = incoming.body.at_hand(WHOLE_BYTES_MAX) {
        // The length that it declared is its length.
        return Ok(whole(status, head, body));
    }
    // Boxed: it is rare, and would make every call's future large.
    Ok(match Box::pin(content::<W>(incoming)).await? {
        Content::Whole(body) => {
            head.remove(CONTENT_LENGTH);
            whole(status, head, body)
        }
        Content::More(body) => Answer::Passing(boxed(status, head, body)),
    })
}

/// The same for what is nobody's call: an answer that broke off is none.
pub(crate) async fn pass_on<W: World>(incoming: BackendAnswer<W>) -> Answer<Passing<W>> {
    pass(incoming).await.unwrap_or_else(|error| {
        debug!(%error, "backend's answer broke off");
        Answer::Refused(Refused::BackendUnreachable)
    })
}

/// Passes an answer on as it comes, event streams too; this was read of it already.
#[expect(clippy::boxed_local, reason = "every answer of a backend is in its box")]
pub(crate) fn untouched<W: World>(incoming: BackendAnswer<W>, ahead: Option<Bytes>) -> Answer<Passing<W>> {
    let head = headers::to_client(incoming.head.headers);
    let body = Passing::bytes(ahead, incoming.body);
    Answer::Passing(boxed(incoming.head.status, head, body))
}

/// Passes an event stream on, frame by frame. What is put between its frames is in no length that the backend declared.
pub(crate) fn framed<W: World>(status: StatusCode, head: HeaderMap, events: Events<W>) -> Answer<Passing<W>> {
    let mut head = headers::to_client(head);
    head.remove(CONTENT_LENGTH);
    Answer::Passing(boxed(status, head, Passing::events(events)))
}

/// A whole answer.
pub(crate) fn whole<W: World>(status: StatusCode, head: HeaderMap, body: Bytes) -> Answer<Passing<W>> {
    Answer::Whole(boxed(status, head, body))
}

/// A whole answer of JSON in our own name.
pub(crate) fn json<W: World>(mut head: HeaderMap, body: Bytes) -> Answer<Passing<W>> {
    head.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    whole(StatusCode::OK, head, body)
}

fn boxed<B>(status: StatusCode, head: HeaderMap, body: B) -> Box<Response<B>> {
    let mut response = Box::new(Response::new(body));
    *response.status_mut() = status;
    *response.headers_mut() = head;
    response
}

//! One connection while its client sends usual requests and gets whole answers: read, served and written without hyper.
//! Law: nothing is refused here. A request that is not usual or takes too long, and an answer that is not whole, go to
//! hyper, which reads the same bytes; what was found to be the answer goes with them, so that nothing is asked twice.
//! Polled, all of them safe to drop: the client, who may leave or send ahead, then its request's future; between
//! requests the connection, the call to drain, one timer. A client that leaves takes its request's future with it.
//! Why: `pure/http1/request.rs`. It also holds no buffer between two requests.
//! Next: `tap.rs`.

use std::future::poll_fn;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use tokio::io::ReadBuf;
use tokio::sync::futures::Notified;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Sleep, sleep};

use crate::downstream::endpoint::{self, Foregone};
use crate::downstream::framing::BodyEnd;
use crate::downstream::front::{Drain, Front, Limits, Link, note_receipt};
use crate::downstream::head;
use crate::downstream::http_task::{REST_AFTER, Turn, joined};
use crate::downstream::reject::Reject;
use crate::downstream::sink_http1::After;
use crate::downstream::takeover::Takeover;
use crate::downstream::tap::Phase;
use crate::downstream::waits::{Told, Wait, Waits};
use crate::net::Io;
use crate::pure::http1::head::has_no_body;
use crate::pure::http1::request::{Headed, Reading, RequestBounds, Usual as Whole, read_usual};
use crate::relay::answer::{Answer, Serve};

/// Bytes read at once; a usual request is not longer.
const READ_BYTES: usize = 8 * 1024;

/// Up to here a body is waited for that does not come with its head, in bytes; hyper waits for a longer one, within the
/// budget of bodies.
const REST_BYTES_MAX: usize = READ_BYTES;

/// Most bytes kept of requests that come before the answer; more stays in the kernel.
const AHEAD_BYTES_MAX: usize = 16 * 1024;

/// Up to here a body is copied behind its head, so that both go in one plain write, in bytes.
const JOINED_BYTES_MAX: usize = 4 * 1024;

/// How one turn without hyper ended.
pub(crate) enum Usual<T, S: Serve> {
    /// As any turn does.
    Ended(Turn<T>),
    /// The next request is hyper's to read, and its answer, if it is known already, hyper's to write.
    Unusual(Link<T>, Option<Foregone<S>>),
}

/// Serves a connection until something else than a usual request comes, or nothing.
pub(crate) async fn turn<T: Io, S: Serve>(front: &Arc<Front<S>>, mut link: Link<T>) -> Usual<T, S> {
    let mut called = pin!(front.drain.called());
    called.as_mut().enable();
    let waits = Waits::of(**front.limits, REST_AFTER.min(front.limits.idle_timeout));
    let timer = pin!(sleep(waits.idle()));
    let mut pause = Pause {
        told: Told::by(&front.drain),
        wait: Wait::new(waits),
        timer,
        called,
        drain: &front.drain,
        steps: 0,
    };
    let mut out = Vec::new();
    loop {
        let bytes = match pause.next(&mut link).await {
            Next::Bytes(bytes) => bytes,
            Next::Idle => return Usual::Ended(Turn::Idle(link)),
            Next::Over => return Usual::Ended(Turn::Over(link)),
            Next::Gone => return Usual::Ended(Turn::Gone),
        };
        let bounds = bounds(&front.limits);
        let arrived = match pause.request(&mut link, bytes, bounds).await {
            Ok(arrived) => arrived,
            Err(NotTaken::Hypers(bytes, reject)) => {
                link.left = bytes;
                return Usual::Unusual(link, reject.map(Err));
            }
            Err(NotTaken::Gone) => return Usual::Ended(Turn::Gone),
        };
        let method = arrived.request.method().clone();
        let mut ahead = Ahead::default();
        let answered = answered(front, &mut link.io, arrived.request, &mut ahead).await;
        let Some(answered) = answered else {
            return Usual::Ended(Turn::Gone);
        };
        let after = if front.drain.has_begun() {
            After::Close
        } else {
            After::Reuse
        };
        match answered {
            Ok(Answer::Whole(response)) if !has_no_body(response.status(), &method) => {
                link.left = joined(arrived.behind, ahead.bytes());
                if pause.write(&mut link.io, &mut out, response, after).await == Written::Not {
                    return Usual::Ended(Turn::Gone);
                }
            }
            Ok(Answer::Stream(opening)) => {
                link.left = joined(arrived.behind, ahead.bytes());
                let takeover = Takeover::new(*opening, BodyEnd::Chunked, after);
                return Usual::Ended(Turn::Taken(link, takeover));
            }
            foregone => {
                link.left = joined(joined(arrived.head, arrived.rest), ahead.bytes());
                return Usual::Unusual(link, Some(foregone));
            }
        }
        match after {
            After::Reuse => {}
            After::Close => return Usual::Ended(Turn::Over(link)),
        }
    }
}

/// How long a usual request may be.
fn bounds(limits: &Limits) -> RequestBounds {
    RequestBounds {
        head_bytes_max: limits.head_bytes_max,
        body_bytes_max: limits.body_bytes_max,
    }
}

/// Serves a request while its client is watched; nothing if the client left.
async fn answered<T: Io, S: Serve>(
    front: &Front<S>,
    io: &mut T,
    request: Box<Request<Bytes>>,
    ahead: &mut Ahead,
) -> Option<Foregone<S>> {
    let mut serving = pin!(endpoint::usual(front, io.peer().ip(), request));
    poll_fn(|cx| {
        // First: an answer that comes when its client is gone already was not taken by anybody.
        if let Poll::Ready(Left) = ahead.poll_left(io, cx) {
            return Poll::Ready(None);
        }
        serving.as_mut().poll(cx).map(Some)
    })
    .await
}

/// A request that came whole, and the bytes that it came in: hyper may have to read them again.
struct Arrived {
    request: Box<Request<Bytes>>,
    /// What was read first, from the request's start on.
    head: Bytes,
    /// What was read behind that.
    rest: Bytes,
    /// The last of these bytes, those of the next request.
    behind: Bytes,
}

impl Arrived {
    /// In one read.
    fn at_once(bytes: Bytes, whole: Whole) -> Self {
        Self {
            request: whole.request,
            behind: bytes.slice(whole.consumed..),
            head: bytes,
            rest: Bytes::new(),
        }
    }
}

/// Why a request whose first bytes have come is not taken here.
enum NotTaken {
    /// It is hyper's to read, these bytes first, and its refusal hyper's to write, if it has one.
    Hypers(Bytes, Option<Reject>),
    /// Its client left.
    Gone,
}

/// What came on a connection that was waited for.
enum Next {
    Bytes(Bytes),
    Idle,
    Over,
    Gone,
}

/// Whether an answer was written.
#[derive(PartialEq, Eq)]
enum Written {
    Whole,
    Not,
}

/// What may end the waits of a connection, asked for once for all of them.
struct Pause<'a, 'd> {
    told: Told,
    wait: Wait,
    timer: Pin<&'a mut Sleep>,
    called: Pin<&'a mut Notified<'d>>,
    drain: &'d Drain,
    /// Tells one wait from the next.
    steps: u32,
}

impl Pause<'_, '_> {
    /// Waits for the next bytes; those that were read already come first.
    async fn next<T: Io>(&mut self, link: &mut Link<T>) -> Next {
        if !link.left.is_empty() {
            return Next::Bytes(std::mem::take(&mut link.left));
        }
        self.steps = self.steps.wrapping_add(1);
        let idle = Phase::Idle { arrived: self.steps };
        poll_fn(|cx| {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut read = ReadBuf::uninit(&mut space);
            match Pin::new(&mut link.io).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(Next::Gone),
                Poll::Ready(Ok(())) => {
                    note_receipt(&link.io, &mut link.receipt);
                    return Poll::Ready(Next::Bytes(Bytes::copy_from_slice(read.filled())));
                }
                Poll::Ready(Err(_)) => return Poll::Ready(Next::Gone),
                Poll::Pending => {}
            }
            if self.told.hear(self.drain, self.called.as_mut(), cx) == Told::ToFinish {
                return Poll::Ready(Next::Over);
            }
            self.poll_overdue(idle, cx).map(|()| Next::Idle)
        })
        .await
    }

    /// Reads a request; its body is waited for, if that did not come with its head.
    async fn request<T: Io>(
        &mut self,
        link: &mut Link<T>,
        bytes: Bytes,
        bounds: RequestBounds,
    ) -> Result<Arrived, NotTaken> {
        match read_usual(&bytes, bounds) {
            Reading::Whole(whole) => Ok(Arrived::at_once(bytes, whole)),
            Reading::Headed(headed) if headed.missing() <= REST_BYTES_MAX => {
                self.rest(link, bytes, headed).await
            }
            Reading::Headed(_) | Reading::Unusual => Err(NotTaken::Hypers(bytes, None)),
        }
    }

    async fn rest<T: Io>(
        &mut self,
        link: &mut Link<T>,
        head: Bytes,
        headed: Headed,
    ) -> Result<Arrived, NotTaken> {
        self.steps = self.steps.wrapping_add(1);
        let begun = Phase::Body { arrived: self.steps };
        let mut came = Vec::new();
        let waited = poll_fn(|cx| {
            while came.len() < headed.missing() {
                match poll_onto(&mut came, &mut link.io, cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(left)) => return Poll::Ready(Err(left)),
                    Poll::Pending => return self.poll_overdue(begun, cx).map(Ok),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await;
        let rest = Bytes::from(came);
        match (waited, headed.followed_by(&rest)) {
            (Err(Left), _) => Err(NotTaken::Gone),
            (Ok(()), None) => Err(NotTaken::Hypers(joined(head, rest), Some(Reject::BodyTooSlow))),
            (Ok(()), Some(whole)) => Ok(Arrived {
                request: whole.request,
                behind: rest.slice(whole.consumed..),
                head,
                rest,
            }),
        }
    }

    /// Writes a whole answer. `out` is room that is used again.
    async fn write<T: Io>(
        &mut self,
        io: &mut T,
        out: &mut Vec<u8>,
        mut response: Box<Response<Bytes>>,
        after: After,
    ) -> Written {
        out.clear();
        head::of_whole(out, &response, after);
        let mut body = std::mem::take(response.body_mut());
        if body.len() <= JOINED_BYTES_MAX {
            out.extend_from_slice(&body);
            body = Bytes::new();
        }
        let mut head = &out[..];
        poll_fn(|cx| {
            loop {
                let wrote = if body.is_empty() && !head.is_empty() {
                    Pin::new(&mut *io).poll_write(cx, head)
                } else if !body.is_empty() {
                    Pin::new(&mut *io).poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(&body)])
                } else {
                    return match Pin::new(&mut *io).poll_flush(cx) {
                        Poll::Ready(Ok(())) => Poll::Ready(Written::Whole),
                        Poll::Ready(Err(_)) => Poll::Ready(Written::Not),
                        Poll::Pending => self.poll_stalled(cx),
                    };
                };
                match wrote {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Written::Not),
                    Poll::Ready(Ok(n)) => {
                        let of_head = n.min(head.len());
                        head = &head[of_head..];
                        body.advance(n - of_head);
                        self.steps = self.steps.wrapping_add(1);
                    }
                    Poll::Pending => return self.poll_stalled(cx),
                }
            }
        })
        .await
    }

    /// Ready when the client has taken nothing for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Written> {
        let stalled = Phase::Stalled { wrote: self.steps };
        self.poll_overdue(stalled, cx).map(|()| Written::Not)
    }

    fn poll_overdue(&mut self, phase: Phase, cx: &mut Context<'_>) -> Poll<()> {
        self.wait.poll_overdue(self.timer.as_mut(), phase, cx).map(drop)
    }
}

/// What a client sends while its request is served.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    watched: Watched,
}

/// Whether the task will be woken when its client sends on or leaves.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Watched {
    #[default]
    No,
    Yes,
}

/// The client has left.
struct Left;

impl Ahead {
    /// Ready when the client has ended its side, or is gone; what it sends ahead is kept within a bound.
    fn poll_left<T: Io>(&mut self, io: &mut T, cx: &mut Context<'_>) -> Poll<Left> {
        // Registered once: a task's waker stays the same, and it is woken more often by its request than by its client.
        if self.watched == Watched::Yes && !io.may_read() {
            return Poll::Pending;
        }
        while self.bytes.len() < AHEAD_BYTES_MAX {
            let Poll::Ready(read) = poll_onto(&mut self.bytes, io, cx) else {
                // Without budget the socket was not asked at all.
                self.watched = if has_budget_remaining() {
                    Watched::Yes
                } else {
                    Watched::No
                };
                return Poll::Pending;
            };
            self.watched = Watched::No;
            if let Err(left) = read {
                return Poll::Ready(left);
            }
        }
        // A client that sends this much without waiting is found gone by writing to it.
        Poll::Pending
    }

    fn bytes(self) -> Bytes {
        Bytes::from(self.bytes)
    }
}

/// Reads once, behind what is there.
fn poll_onto<T: Io>(there: &mut Vec<u8>, io: &mut T, cx: &mut Context<'_>) -> Poll<Result<(), Left>> {
    let mut space = [MaybeUninit::uninit(); READ_BYTES];
    let mut read = ReadBuf::uninit(&mut space);
    let outcome = ready!(Pin::new(io).poll_read(cx, &mut read));
    if outcome.is_err() || read.filled().is_empty() {
        return Poll::Ready(Err(Left));
    }
    there.extend_from_slice(read.filled());
    Poll::Ready(Ok(()))
}

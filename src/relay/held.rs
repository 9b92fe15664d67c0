//! Answers to POSTs that are remembered for a while: copied whole, bounded in all directions.
//! Law: what is not remembered though it ran is known to have run: a repeat of it is told so, never sent.
//! Short ones only, unless their client never took them; all sessions together share one allowance.
//! Next: `ticket.rs`, which settles a request with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::pure::epoch::Reason;
use crate::pure::limits::{REPEAT_ANSWER_BYTES_MAX, REPEAT_BYTES_MAX, REPEAT_TOTAL_BYTES_MAX};
use crate::pure::session::{Settled, Taken};
use crate::relay::answer::{Answer, Refused};
use crate::relay::headers;
use crate::relay::passing::Passing;
use crate::relay::world::World;

/// Bytes that the remembered answers of all sessions take.
#[derive(Clone, Default)]
pub(crate) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    /// Room for so many bytes, if there is any.
    fn take(&self, bytes: usize) -> Option<Room> {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let room = Room {
            of: Self(Arc::clone(&self.0)),
            bytes,
        };
        (before.saturating_add(bytes) <= REPEAT_TOTAL_BYTES_MAX).then_some(room)
    }
}

/// Bytes taken of the allowance, given back with this.
struct Room {
    of: Allowance,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A whole answer that is remembered: copied, so that it pins no buffer that it was read into.
pub(crate) struct Held {
    status: StatusCode,
    fields: HeldFields,
    body: Bytes,
    _room: Room,
}

/// The header fields of a remembered answer. Boxed where they are more than nearly every answer has: there are many.
enum HeldFields {
    /// `Content-Type: application/json`, as nearly every answer; the other fields were the first answer's only.
    Json,
    /// This `Content-Type`; the same.
    Kind(Box<HeaderValue>),
    /// These: whoever comes is the first who has them.
    All(Box<HeaderMap>),
}

impl Held {
    /// Remembers an answer if it is short enough for how it was taken.
    fn of(response: &Response<Bytes>, taken: Taken, allowance: &Allowance) -> Option<Self> {
        let body = response.body();
        let bytes_max = match taken {
            Taken::At(_) => REPEAT_ANSWER_BYTES_MAX,
            Taken::Not { .. } => REPEAT_BYTES_MAX,
        };
        if body.len() > bytes_max {
            return None;
        }
        let kind = headers::content_type(response.headers());
        let fields = match (taken, kind) {
            (Taken::Not { .. }, _) => HeldFields::All(Box::new(copied(response.headers()))),
            (Taken::At(_), Some(kind)) if kind != "application/json" => {
                HeldFields::Kind(Box::new(copy(kind)?))
            }
            (Taken::At(_), Some(_)) => HeldFields::Json,
            (Taken::At(_), None) => HeldFields::All(Box::default()),
        };
        Some(Self {
            _room: allowance.take(body.len() + fields.bytes())?,
            status: response.status(),
            fields,
            body: Bytes::copy_from_slice(body),
        })
    }

    /// As a client gets it.
    pub(crate) fn response(&self) -> Response<Bytes> {
        let mut response = Response::new(self.body.clone());
        *response.status_mut() = self.status;
        match &self.fields {
            HeldFields::Json => {
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
            }
            HeldFields::Kind(kind) => drop(response.headers_mut().insert(CONTENT_TYPE, (**kind).clone())),
            HeldFields::All(fields) => *response.headers_mut() = (**fields).clone(),
        }
        response
    }
}

impl HeldFields {
    /// What they take, about.
    fn bytes(&self) -> usize {
        match self {
            Self::Json => 0,
            Self::Kind(kind) => kind.len(),
            Self::All(fields) => {
                let lines = fields.iter();
                lines.map(|(name, value)| name.as_str().len() + value.len()).sum()
            }
        }
    }
}

/// A value in memory of its own: one that came over the wire pins the buffer that it was read into.
fn copy(value: &HeaderValue) -> Option<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).ok()
}

fn copied(fields: &HeaderMap) -> HeaderMap {
    let lines = fields.iter();
    lines
        .filter_map(|(name, value)| Some((name.clone(), copy(value)?)))
        .collect()
}

/// What is remembered of an answer.
pub(crate) fn settled<W: World>(
    answer: &Answer<Passing<W>>,
    taken: Taken,
    allowance: &Allowance,
) -> Settled<Held> {
    let unheld = |reason| Settled::Unheld {
        reason,
        until: taken.until(),
    };
    let refused_by_backend = |status: StatusCode| match (status, taken) {
        // Nothing ran for a credential that is not accepted.
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => true,
        // Whoever had any other refusal asks again on purpose; whoever had it not is still to have it.
        (_, Taken::At(_)) => !status.is_success(),
        (_, Taken::Not { .. }) => false,
    };
    match answer {
        Answer::Whole(response) if refused_by_backend(response.status()) => Settled::Forget,
        Answer::Passing(response) if refused_by_backend(response.status()) => Settled::Forget,
        Answer::Whole(response) => match Held::of(response, taken, allowance) {
            Some(answer) => Settled::Keep {
                answer,
                bytes: response.body().len(),
                until: taken.until(),
            },
            None => unheld(Reason::Evicted),
        },
        Answer::Passing(_) => unheld(Reason::Evicted),
        Answer::Refused(Refused::OutcomeUnknown { reason, .. }) => unheld(*reason),
        // Nothing ran. (A stream has told the ledger of itself.)
        Answer::Refused(_) | Answer::Stream(_) => Settled::Forget,
    }
}

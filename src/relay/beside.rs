//! What passes beside an MCP endpoint: OAuth's metadata and the paths that were named, and the backend's own address in
//! metadata and challenges, put into the words of the public one where that is configured.
//! Law: what is not metadata passes byte for byte; a token is never looked at.
//! Next: `stateless.rs`, which passes it.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, VARY, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue};

use crate::pure::oauth::{self, Metadata, Moved, Public};
use crate::relay::answer::{Answer, Resource};
use crate::relay::passing::Passing;
use crate::relay::pool::Pool;
use crate::relay::world::World;
use crate::routing::Replica;

/// Where a replica has what clients find at this path.
pub(super) fn at<W: World>(pool: &Pool<W>, replica: &Replica, path: &str) -> String {
    let moved = Moved {
        from: &pool.config.path,
        to: endpoint(replica),
    };
    match Metadata::at(path) {
        Some(_) => moved.path(path),
        None => path.to_owned(),
    }
}

/// The path of a replica's endpoint, without its query.
fn endpoint(replica: &Replica) -> &str {
    replica.path().split('?').next().unwrap_or("/")
}

fn public<'a, W: World>(pool: &'a Pool<W>, replica: &'a Replica, url: &'a str) -> Public<'a> {
    Public {
        own_origin: replica.origin(),
        url,
        endpoint: Moved {
            from: endpoint(replica),
            to: &pool.config.path,
        },
    }
}

/// Puts the public address into a challenge.
pub(super) fn publish_challenge<W: World>(
    pool: &Pool<W>,
    (replica, url): (&Replica, &str),
    fields: &mut HeaderMap,
) {
    if !fields.contains_key(WWW_AUTHENTICATE) {
        return;
    }
    let public = public(pool, replica, url);
    let challenges: Vec<HeaderValue> = fields
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .map(|value| {
            let changed = public.challenge(value.as_bytes());
            changed
                .and_then(|bytes| HeaderValue::from_bytes(&bytes).ok())
                .unwrap_or_else(|| value.clone())
        })
        .collect();
    fields.remove(WWW_AUTHENTICATE);
    for challenge in challenges {
        fields.append(WWW_AUTHENTICATE, challenge);
    }
}

/// Puts the public address into metadata.
pub(super) fn publish<W: World>(
    pool: &Pool<W>,
    replica: &Replica,
    resource: &Resource,
    answer: Answer<Passing<W>>,
) -> Answer<Passing<W>> {
    let is_metadata = |json: &[u8]| match resource {
        Resource::Endpoint => false,
        Resource::Beside(path) => Metadata::at(path).is_some() || oauth::describes_resource(json),
    };
    match (answer, &pool.config.oauth.public_url) {
        (Answer::Whole(mut response), url) if is_metadata(response.body()) => {
            // What is kept of it between here and a client is kept for each origin: only some may read it.
            response
                .headers_mut()
                .append(VARY, HeaderValue::from_static("Origin"));
            let Some(url) = url else {
                return Answer::Whole(response);
            };
            if let Some(changed) = public(pool, replica, url).document(response.body()) {
                *response.body_mut() = Bytes::from(changed);
                // They were of what the backend said.
                response.headers_mut().remove(ETAG);
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            Answer::Whole(response)
        }
        (answer, _) => answer,
    }
}

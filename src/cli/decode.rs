//! Says what an event id means, and with a key and a session's token whether it belongs there.
//! Law: neither the secret nor the backend's own session id is ever printed; what a client chose is printed without
//! control characters.
//! Next: `../pure/event_id/mod.rs`.

use std::fmt::Write as _;

use super::{Decode, Exit, answer, complain};
use crate::config::resolved::Secret;
use crate::config::{self, Flags};
use crate::pure::event_id::{Asked, EventId, Foreign, Mark, StreamName};
use crate::pure::keys::{KeyId, KeyRing};
use crate::pure::session_token::{self, NotOurs, Sealed};
use crate::telemetry::names::SessionTag;

/// The upstream's name where neither a flag nor a file says one: what a path of `/mcp` is named.
const UPSTREAM_DEFAULT: &str = "mcp";

/// The keys at hand, and the upstreams that a token may be of.
struct Known {
    keys: Option<KeyRing>,
    upstreams: Vec<String>,
}

/// Decodes an id and says what it means.
pub fn decode(ask: &Decode) -> Exit {
    let Ok(id) = EventId::decode(ask.event_id.as_bytes()) else {
        complain(
            "error: this is no event id of throughline (a client that presents it is told `cursor_unknown`)\n  \
             = an id looks like aAAECAwQFBgc.pi7.AAECAwQFBgcICQoL.42; quote it, so that the shell leaves it alone",
        );
        return Exit::Failed;
    };
    let mut out = meaning(&id);
    let exit = match &ask.session {
        None => {
            row(
                &mut out,
                "belongs to",
                "not checked: give --session TOKEN, and the secret by environment or file",
            );
            Exit::Done
        }
        Some(token) => match known(ask, id.kid) {
            Ok(known) => {
                let (verdict, exit) = belongs(&id, token, &known);
                row(&mut out, "belongs to", &verdict);
                exit
            }
            Err(exit) => exit,
        },
    };
    answer(&out);
    exit
}

fn row(out: &mut String, name: &str, value: &str) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "{name:<11} {value}");
}

/// What the id says by itself.
fn meaning(id: &EventId) -> String {
    let mut out = String::new();
    let stream = match &id.stream {
        StreamName::Get => "the session's GET stream".to_owned(),
        StreamName::Post(rid) => match rid.asked() {
            Asked::One(request) => format!("the answer to request {}", visible(request.as_str())),
            Asked::Batch(requests) => {
                let requests: Vec<String> =
                    requests.iter().map(|request| visible(request.as_str())).collect();
                format!("the answers to the requests {} of a batch", requests.join(", "))
            }
            Asked::Hashed => "the answer to a request whose id is too long to be spelled".to_owned(),
        },
    };
    let position = match id.mark {
        Mark::Event => format!("{}: the client had this event and those before it", id.seq),
        Mark::Prime(conn) => {
            let conn = String::from_utf8_lossy(conn.as_bytes()).into_owned();
            format!(
                "{}: a priming id (connection {conn}); the client had the events up to here",
                id.seq
            )
        }
        Mark::End => format!(
            "{}: the last event of its stream, nothing follows (a resume is answered 405)",
            id.seq
        ),
    };
    row(&mut out, "key", &id.kid.to_string());
    row(&mut out, "epoch", &id.epoch.spelled());
    row(&mut out, "stream", &stream);
    row(&mut out, "position", &position);
    out
}

/// What a client chose, without what a terminal would obey.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Reads the keys: from the configuration that is named, or the one secret of environment or file. That one is taken
/// to have the id's own kid, since nothing here says another.
fn known(ask: &Decode, kid: KeyId) -> Result<Known, Exit> {
    let flags = match &ask.config {
        Some(path) => Flags {
            config: Some(path.clone()),
            ..Flags::default()
        },
        None => Flags {
            upstreams: vec!["http://127.0.0.1/mcp".into()],
            secret_file: ask.secret_file.clone(),
            set: vec![format!("secret.kid={kid}")],
            ..Flags::default()
        },
    };
    let (config, _) = config::read(&flags).map_err(|problems| {
        complain(&problems.to_string());
        Exit::BadConfig
    })?;
    let named = config.upstreams.iter().map(|upstream| upstream.name.to_string());
    let upstreams = match (ask.upstreams.as_slice(), &ask.config) {
        ([], Some(_)) => named.collect(),
        ([], None) => vec![UPSTREAM_DEFAULT.to_owned()],
        (said, _) => said.to_vec(),
    };
    Ok(Known {
        keys: ring(&config.secrets),
        upstreams,
    })
}

fn ring(secrets: &[Secret]) -> Option<KeyRing> {
    let (newest, older) = secrets.split_first()?;
    let older = older
        .iter()
        .filter_map(|secret| Some((KeyId::new(secret.kid)?, secret.bytes.as_slice())));
    // The configuration has refused what a ring refuses.
    KeyRing::new((KeyId::new(newest.kid)?, &newest.bytes), older).ok()
}

/// Whether the id was made for the session of this token.
fn belongs(id: &EventId, token: &str, known: &Known) -> (String, Exit) {
    let Some(keys) = &known.keys else {
        return (
            "not checked: there is no secret (THROUGHLINE_SECRET, --secret-file or --config)".into(),
            Exit::Usage,
        );
    };
    let mut refused = NotOurs::Shape;
    for upstream in &known.upstreams {
        match session_token::open(keys, upstream, token.as_bytes()) {
            Ok(session) => return fits(id, keys, &session, upstream),
            Err(error) => refused = error,
        }
    }
    let upstreams = known.upstreams.join(", ");
    let verdict = match refused {
        NotOurs::Shape => "not checked: --session is no session token of throughline".to_owned(),
        NotOurs::UnknownKey(kid) => {
            format!("not checked: the token was made with the key {kid}, which is not at hand")
        }
        NotOurs::Forged => {
            format!("not checked: the token does not open with this secret for the upstream {upstreams}")
        }
        NotOurs::NotUnderstood => "not checked: another version of throughline made the token".to_owned(),
    };
    (verdict, Exit::Failed)
}

fn fits(id: &EventId, keys: &KeyRing, session: &Sealed, upstream: &str) -> (String, Exit) {
    let who = format!(
        "session {} of upstream {upstream} (revision {}, issued {} s after 1970)",
        SessionTag::of(session.uid.as_bytes()),
        session.revision.as_str(),
        session.issued
    );
    match id.verify(keys, &session.uid) {
        Ok(()) => (who, Exit::Done),
        Err(Foreign::WrongMac) => (
            format!("NOT {who}: the MAC does not fit (`cursor_foreign`)"),
            Exit::Failed,
        ),
        Err(Foreign::UnknownKey(kid)) => (
            format!("not checked: the id was made with the key {kid}, which is not at hand"),
            Exit::Failed,
        ),
    }
}

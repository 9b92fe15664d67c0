//! Says what an event id means, and with a key and a session's token whether it belongs there; or what a token means.
//! Law: neither the secret nor the backend's own session id is ever printed; what a client chose is printed without
//! control characters.
//! Next: `../pure/event_id/mod.rs`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::{Decode, Exit, answer, complain};
use crate::config::resolved::{Secret, Upstream};
use crate::config::{self, Flags};
use crate::pure::event_id::{Asked, EventId, Foreign, Mark, StreamName};
use crate::pure::keys::{KeyId, KeyRing};
use crate::pure::session_token::ReplicaKey;
use crate::pure::session_token::{self, NotOurs, Sealed, Transport};
use crate::telemetry::names::{SessionTag, utc};

/// The upstream's name where neither a flag nor a file says one: what a path of `/mcp` is named.
const UPSTREAM_DEFAULT: &str = "mcp";

/// The keys at hand, and the upstreams that a token may be of.
struct Known {
    keys: Option<KeyRing>,
    upstreams: Vec<String>,
    /// What a configuration says of them, if one was named.
    configured: Vec<Arc<Upstream>>,
}

/// How a session token begins: two letters that say so, and the name of a key (wire contract, section 2).
const TOKEN_BEGINS: &str = "t1";

/// Decodes an id or a token and says what it means.
pub fn decode(ask: &Decode) -> Exit {
    if let Some(kid) = kid_of_token(&ask.event_id) {
        return token(ask, kid);
    }
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

/// The name of a token's key, if the text looks like one.
fn kid_of_token(text: &str) -> Option<KeyId> {
    match text.strip_prefix(TOKEN_BEGINS)?.as_bytes() {
        [kid, b'.', ..] => KeyId::new(*kid),
        _ => None,
    }
}

/// What a session token says.
fn token(ask: &Decode, kid: KeyId) -> Exit {
    let known = match known(ask, kid) {
        Ok(known) => known,
        Err(exit) => return exit,
    };
    let (sealed, upstream) = match open(&ask.event_id, &known) {
        Ok(opened) => opened,
        Err((why, exit)) => {
            complain(&format!("error: {why}"));
            return exit;
        }
    };
    let mut out = String::new();
    row(&mut out, "key", &kid.to_string());
    row(
        &mut out,
        "session",
        &SessionTag::of(sealed.uid.as_bytes()).to_string(),
    );
    row(&mut out, "upstream", upstream);
    row(&mut out, "transport", sealed.transport.as_str());
    match sealed.transport {
        Transport::Streamable => row(&mut out, "revision", sealed.revision.as_str()),
        // It was made before anything was negotiated.
        Transport::HttpSse => {}
    }
    let issued = u64::from(sealed.issued);
    row(&mut out, "issued", &utc(issued));
    let configured = known.configured.iter().find(|one| *one.name == *upstream);
    let (max, said) = configured.map_or((SESSION_MAX_DEFAULT, " (if session_max is 24 h)"), |one| {
        (one.session.max, "")
    });
    let ends = utc(issued.saturating_add(max.as_secs()));
    row(&mut out, "ends by", &format!("{ends}{said}"));
    row(&mut out, "replica", &replica(sealed.replica, configured));
    let own = match &sealed.backend_id {
        Some(_) if sealed.transport == Transport::HttpSse => "the server has an endpoint of its own for it",
        Some(_) => "the server has an id of its own for it",
        None => "the server gave it no id: any replica takes it",
    };
    row(&mut out, "backend", own);
    answer(&out);
    Exit::Done
}

/// How long a session lives where nothing says otherwise.
const SESSION_MAX_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

/// A replica's key as a token has it, and whose it is if that can be said.
fn replica(key: ReplicaKey, configured: Option<&Arc<Upstream>>) -> String {
    let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let Some(upstream) = configured else {
        return format!("{hex} (give --config to see which one)");
    };
    let mut replicas = upstream.replicas.iter();
    let own = |authority: String| ReplicaKey::of(&upstream.name, &authority) == key;
    match replicas.find(|one| own(one.authority.to_string())) {
        Some(found) => format!("{hex}, {}", found.authority),
        None => format!("{hex}, which is none of those configured: the session is lost (`backend_lost`)"),
    }
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
        StreamName::HttpSse => "the one stream of a session over HTTP+SSE".to_owned(),
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
        Mark::End => {
            let status = match id.stream {
                StreamName::Get | StreamName::Post(_) => 405,
                StreamName::HttpSse => 404,
            };
            format!(
                "{}: the last event of its stream, nothing follows (a resume is answered {status})",
                id.seq
            )
        }
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
    let configured = match ask.config {
        Some(_) => config.upstreams.clone(),
        None => Vec::new(),
    };
    Ok(Known {
        keys: ring(&config.secrets),
        upstreams,
        configured,
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
    match (open(token, known), &known.keys) {
        (Ok((session, upstream)), Some(keys)) => fits(id, keys, &session, upstream),
        (Ok(_), None) => ("not checked".into(), Exit::Usage),
        (Err((why, exit)), _) => (format!("not checked: {why}"), exit),
    }
}

/// Opens a token, with the name of its upstream; or why it can't be, and how to end.
fn open<'a>(token: &str, known: &'a Known) -> Result<(Sealed, &'a str), (String, Exit)> {
    let Some(keys) = &known.keys else {
        let why = "there is no secret (THROUGHLINE_SECRET, --secret-file or --config)";
        return Err((why.into(), Exit::Usage));
    };
    let mut refused = NotOurs::Shape;
    for upstream in &known.upstreams {
        match session_token::open(keys, upstream, token.as_bytes()) {
            Ok(session) => return Ok((session, upstream)),
            Err(error) => refused = error,
        }
    }
    let upstreams = known.upstreams.join(", ");
    let why = match refused {
        NotOurs::Shape => "this is no session token of throughline".to_owned(),
        NotOurs::UnknownKey(kid) => {
            format!("the token was made with the key {kid}, which is not at hand")
        }
        NotOurs::Forged => {
            format!("the token does not open with this secret for the upstream {upstreams}")
        }
        NotOurs::NotUnderstood => "another version of throughline made the token".to_owned(),
    };
    Err((why, Exit::Failed))
}

fn fits(id: &EventId, keys: &KeyRing, session: &Sealed, upstream: &str) -> (String, Exit) {
    let who = format!(
        "session {} of upstream {upstream} (revision {}, issued {})",
        SessionTag::of(session.uid.as_bytes()),
        session.revision.as_str(),
        utc(u64::from(session.issued))
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

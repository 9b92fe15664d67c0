//! Reads one `[[upstream]]` with its tables.
//! Law: every key is asked for once, here; what keys mean together is judged by `check.rs`.
//! Next: `replicas.rs`, then `check.rs`.

use super::bounds;
use super::check;
use super::fields::Fields;
use super::files::Around;
use super::oauth;
use super::pem;
use super::raw::Raw;
use super::replicas;
use super::report::Origin;
use super::resolved::{
    Balance, EarlyCursor, Errors, EventStore, Exchange, Health, OnSessionLoss, Polling, Probe, Reattach,
    Replica, RequestIds, Scheme, Session, Sessions, Stream, Transport, Upstream, UpstreamTls,
};
use crate::pure::session::PrincipalRule;

/// The header fields that make up a credential if nothing is said (wire contract, section 9).
const CREDENTIAL_HEADERS_DEFAULT: [&str; 3] = ["authorization", "cookie", "x-api-key"];
/// Longest name of a header field, in bytes; most of them in a credential.
const HEADER_NAME_BYTES_MAX: usize = 64;
/// Most header fields that make up a credential: each is hashed on every request.
const CREDENTIAL_HEADERS_MAX: usize = 16;

/// An upstream, with the places that cross checks point at.
pub(super) struct Placed {
    /// The upstream.
    pub(super) upstream: Upstream,
    /// Where its name was said; `None` where its path is its name.
    pub(super) name_at: Option<Origin>,
    /// Where its path was said, or its replicas.
    pub(super) path_at: Origin,
}

/// Reads one upstream; `None` if it has no name, path or replicas, which is noted.
pub(super) fn read(fields: &mut Fields<'_, '_>, around: &Around<'_>, replay_memory: usize) -> Option<Placed> {
    let (replicas, drained) = replicas::read(fields);
    let path = path(fields, &replicas);
    let name = name(fields, path.as_deref());
    let transport = transport(fields);
    let sessions = [
        ("replica", Sessions::Replica),
        ("shared", Sessions::Shared),
        ("none", Sessions::None),
    ];
    let sessions = fields.word("sessions", &sessions).unwrap_or(Sessions::Replica);
    let event_store = [
        ("undeclared", EventStore::Undeclared),
        ("per-session", EventStore::PerSession),
    ];
    let event_store = fields
        .word("event_store", &event_store)
        .unwrap_or(EventStore::Undeclared);
    let request_ids = request_ids(fields);
    let errors = [("pass", Errors::Pass), ("jsonrpc", Errors::Jsonrpc)];
    let errors = fields.word("errors", &errors).unwrap_or(Errors::Pass);
    let balance = [
        ("least_sessions", Balance::LeastSessions),
        ("round_robin", Balance::RoundRobin),
        ("random", Balance::Random),
        ("consistent", Balance::Consistent),
    ];
    let balance = fields.word("balance", &balance).unwrap_or(Balance::LeastSessions);
    let drain_deadline = fields.time("drain_deadline", bounds::DRAIN_DEADLINE);
    let health = fields.inner("health", health);
    let tls = fields.inner("tls", |fields| tls(fields, around, &replicas));
    let exchange = fields.inner("exchange", exchange);
    let session = fields.inner("session", session);
    let stream = fields.inner("stream", |fields| stream(fields, replay_memory));
    let oauth = fields.inner("oauth", oauth::read);
    check::times(fields, &session, &stream);
    check::reattach(fields, &stream, (event_store, request_ids));
    let name_at = fields.raw("name").map(|node| node.at.clone());
    let path_at = fields.at_any(&["path", "replicas"]);
    let (name, path) = (name?, path?);
    if replicas.is_empty() {
        return None;
    }
    let upstream = Upstream {
        name,
        path,
        replicas,
        drained,
        transport,
        sessions,
        event_store,
        request_ids,
        errors,
        balance,
        drain_deadline,
        health,
        tls,
        exchange,
        session,
        stream,
        oauth,
    };
    Some(Placed {
        upstream,
        name_at,
        path_at,
    })
}

/// `transport`.
fn transport(fields: &mut Fields<'_, '_>) -> Transport {
    let transport = [
        ("auto", Transport::Auto),
        ("streamable", Transport::Streamable),
        ("sse", Transport::Sse),
    ];
    fields.word("transport", &transport).unwrap_or(Transport::Auto)
}

/// `isolate_request_ids`: `"auto"`, or yes or no.
fn request_ids(fields: &mut Fields<'_, '_>) -> RequestIds {
    match fields.raw("isolate_request_ids").map(|node| &node.value) {
        None => RequestIds::Auto,
        Some(Raw::Text(text)) if text == "auto" => RequestIds::Auto,
        Some(_) => match fields.switch("isolate_request_ids") {
            Some(true) => RequestIds::Isolated,
            Some(false) | None => RequestIds::Passed,
        },
    }
}

/// `path`, or the one path that all replicas have.
fn path(fields: &mut Fields<'_, '_>, replicas: &[Replica]) -> Option<Box<str>> {
    let at = fields.at("path");
    let Some(text) = fields.text("path") else {
        let paths = replicas
            .iter()
            .map(|replica| replica.path.split('?').next().unwrap_or("/"));
        let first = paths.clone().next()?;
        if let Some(other) = paths.into_iter().find(|path| *path != first) {
            let what = format!("is missing, and the replicas have no path in common (`{first}`, `{other}`)");
            fields.problem(
                &at,
                "path",
                what,
                "say at which path clients reach this upstream, e.g. path = \"/mcp\"",
            );
            return None;
        }
        if first == "/" {
            let at = fields.at("replicas");
            let what = "the replicas' path is `/`, so that clients must use it too";
            fields.warning(
                &at,
                "replicas",
                what,
                "most MCP servers are reached at /mcp: http://HOST:PORT/mcp",
            );
        }
        return Some(first.into());
    };
    let plain = text
        .bytes()
        .all(|c| c.is_ascii_graphic() && !matches!(c, b'?' | b'#' | b'\\'));
    if text.starts_with('/') && plain && text.len() <= bounds::PATH_BYTES_MAX {
        return Some(text.into());
    }
    let advice = "write a path without query, e.g. \"/mcp\"";
    let what = if text.len() > bounds::PATH_BYTES_MAX {
        format!("is longer than {} bytes", bounds::PATH_BYTES_MAX)
    } else {
        format!("`{text}` is not a path")
    };
    fields.problem(&at, "path", what, advice);
    None
}

/// `name`, or the path in letters that a label may have.
fn name(fields: &mut Fields<'_, '_>, path: Option<&str>) -> Option<Box<str>> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let Some(text) = fields.text("name") else {
        let name: String = path?
            .trim_matches('/')
            .chars()
            .map(|c| if allowed(c) { c } else { '-' })
            .take(bounds::NAME_BYTES_MAX)
            .collect();
        return Some(if name.is_empty() {
            "root".into()
        } else {
            name.into()
        });
    };
    if !text.is_empty() && text.len() <= bounds::NAME_BYTES_MAX && text.chars().all(allowed) {
        return Some(text.into());
    }
    let at = fields.at("name");
    let advice = format!(
        "write 1 to {} letters, digits, `_`, `-` or `.`",
        bounds::NAME_BYTES_MAX
    );
    fields.problem(&at, "name", format!("`{text}` is not a name"), advice);
    None
}

fn health(fields: &mut Fields<'_, '_>) -> Health {
    let probe = match fields.text("probe") {
        None | Some("connect") => Probe::Connect,
        Some("off") => Probe::Off,
        Some(path) if path.starts_with('/') && path.bytes().all(|c| c.is_ascii_graphic()) => {
            Probe::Http(path.into())
        }
        Some(other) => {
            let at = fields.at("probe");
            fields.problem(
                &at,
                "probe",
                format!("`{other}` is no probe"),
                "write \"connect\", \"off\" or a path such as \"/healthz\"",
            );
            Probe::Connect
        }
    };
    let health = Health {
        probe,
        interval: fields.time("interval", bounds::HEALTH_INTERVAL),
        timeout: fields.time("timeout", bounds::HEALTH_TIMEOUT),
        fall: narrow(fields.count("fall", bounds::FALL)),
        rise: narrow(fields.count("rise", bounds::RISE)),
        eject_after: narrow(fields.count("eject_after", bounds::EJECT_AFTER)),
        eject_time: fields.time("eject_time", bounds::EJECT_TIME),
        eject_time_max: fields.time("eject_time_max", bounds::EJECT_TIME_MAX),
    };
    check::health(fields, &health);
    health
}

/// A count whose range fits 32 bits.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn tls(fields: &mut Fields<'_, '_>, around: &Around<'_>, replicas: &[Replica]) -> UpstreamTls {
    let tls = pem::upstream(fields, around);
    if replicas.iter().any(|replica| replica.scheme == Scheme::Https) {
        pem::try_upstream(fields, &tls);
    }
    check::upstream_tls(fields, &tls, replicas);
    tls
}

fn exchange(fields: &mut Fields<'_, '_>) -> Exchange {
    let exchange = Exchange {
        connect_timeout: fields.time("connect_timeout", bounds::CONNECT),
        initialize_max: fields.time("initialize_max", bounds::INITIALIZE),
        replica_retry_max: fields.time("replica_retry_max", bounds::REPLICA_RETRY),
        idle_connections_max: fields.count("idle_connections_max", bounds::IDLE_CONNECTIONS),
        idle_timeout: fields.time("idle_timeout", bounds::UPSTREAM_IDLE),
        post_idle_max: fields.time("post_idle_max", bounds::POST_IDLE),
        in_flight_max: fields.count("in_flight_max", bounds::IN_FLIGHT),
        answer_bytes_max: fields.size("answer_bytes_max", bounds::ANSWER_BYTES),
    };
    check::exchange(fields, &exchange);
    exchange
}

fn session(fields: &mut Fields<'_, '_>) -> Session {
    let credential_headers = credential_headers(fields);
    let losses = [
        ("announce", OnSessionLoss::Announce),
        ("reinitialize", OnSessionLoss::Reinitialize),
        ("terminate", OnSessionLoss::Terminate),
    ];
    let on_loss = fields.word("on_session_loss", &losses);
    let instance_header = instance_header(fields);
    let principals = [
        ("accepted", PrincipalRule::Accepted),
        ("same", PrincipalRule::Same),
    ];
    let resume_principal = fields
        .word("resume_principal", &principals)
        .unwrap_or(PrincipalRule::Accepted);
    let session = Session {
        on_loss: on_loss.unwrap_or(OnSessionLoss::Announce),
        instance_header,
        sessions_max: fields.count("sessions_max", bounds::SESSIONS),
        idle: fields.time("session_idle", bounds::SESSION_IDLE),
        max: fields.time("session_max", bounds::SESSION_MAX),
        ping_after: fields.time("ping_after", bounds::PING_AFTER),
        streams_max: fields.count("streams_max", bounds::STREAMS),
        credential_headers,
        resume_principal,
    };
    check::session(fields, &session);
    session
}

/// `instance_header`: the name of a header field.
fn instance_header(fields: &mut Fields<'_, '_>) -> Option<Box<str>> {
    let name = fields.text("instance_header")?.to_ascii_lowercase();
    if name.len() <= HEADER_NAME_BYTES_MAX && http::HeaderName::from_bytes(name.as_bytes()).is_ok() {
        return Some(name.into());
    }
    let at = fields.at("instance_header");
    let advice = "write a name such as \"x-instance-id\"";
    fields.problem(
        &at,
        "instance_header",
        format!("`{name}` is not the name of a header field"),
        advice,
    );
    None
}

fn credential_headers(fields: &mut Fields<'_, '_>) -> Vec<Box<str>> {
    let Some(texts) = fields.texts("credential_headers") else {
        return CREDENTIAL_HEADERS_DEFAULT.map(Box::from).to_vec();
    };
    let at = fields.at("credential_headers");
    if texts.is_empty() {
        let what = "is empty, so that whoever knows a session's id may read its streams";
        fields.warning(
            &at,
            "credential_headers",
            what,
            "name the header fields by which clients prove who they are",
        );
    }
    if texts.len() > CREDENTIAL_HEADERS_MAX {
        let what = format!("names more than {CREDENTIAL_HEADERS_MAX} fields");
        fields.problem(
            &at,
            "credential_headers",
            what,
            "name those that say who the client is",
        );
    }
    let mut headers: Vec<Box<str>> = Vec::with_capacity(texts.len());
    for (text, at) in texts {
        let name = text.to_ascii_lowercase();
        if name.len() > HEADER_NAME_BYTES_MAX || http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            let advice = "write a name such as \"authorization\"";
            fields.problem(
                at,
                "credential_headers",
                format!("`{text}` is not the name of a header field"),
                advice,
            );
        } else if !headers.iter().any(|header| **header == *name) {
            headers.push(name.into());
        }
    }
    headers
}

fn stream(fields: &mut Fields<'_, '_>, replay_memory: usize) -> Stream {
    let early_cursor = match fields.switch("early_cursor") {
        Some(true) | None => EarlyCursor::On,
        Some(false) => EarlyCursor::Off,
    };
    let polling = [("pass", Polling::Pass), ("hold", Polling::Hold)];
    let polling = fields.word("polling", &polling).unwrap_or(Polling::Pass);
    let reattach = [("never", Reattach::Never), ("proved", Reattach::Proved)];
    let reattach = fields.word("reattach", &reattach).unwrap_or(Reattach::Never);
    let json_upgrade_after = match fields.raw("json_upgrade_after").map(|node| &node.value) {
        None => None,
        Some(Raw::Text(text)) if text == "off" => None,
        Some(_) => Some(fields.time("json_upgrade_after", bounds::JSON_UPGRADE)),
    };
    let stream = Stream {
        keepalive: fields.time("keepalive", bounds::KEEPALIVE),
        retry: fields.time("retry", bounds::RETRY),
        detached_max: fields.time("detached_max", bounds::DETACHED),
        stall_max: fields.time("stall_max", bounds::STALL),
        replay_events_max: narrow(fields.count("replay_events_max", bounds::REPLAY_EVENTS)),
        replay_bytes_max: fields.size("replay_bytes_max", bounds::REPLAY_BYTES),
        replay_age_max: fields.time("replay_age_max", bounds::REPLAY_AGE),
        event_bytes_max: fields.size("event_bytes_max", bounds::EVENT_BYTES),
        early_cursor,
        polling,
        json_upgrade_after,
        reattach,
        get_refused_max: fields.time("get_refused_max", bounds::GET_REFUSED),
        reattach_max: fields.time("reattach_max", bounds::REATTACH),
    };
    check::stream(fields, &stream, replay_memory);
    stream
}

//! What settings mean together: the checks that no single key can fail.
//! Law: a problem is what can't work; a warning is what works and is probably not meant.
//! Here the raw document becomes the resolved one.
//! Next: `resolved.rs`.

use std::net::SocketAddr;
use std::sync::Arc;

use super::bounds::{SERVERS_CLOSE_AFTER, UPSTREAMS_MAX};
use super::fields::Fields;
use super::files::Around;
use super::report::Origin;
use super::resolved::{
    Config, EventStore, Exchange, Health, Listener, Metadata, Peers, Probe, Reattach, Replica, RequestIds,
    Scheme, Server, Session, Stream, Upstream, UpstreamTls,
};
use super::secret;
use super::server::{self, ServerSide};
use super::units::{size_text, time_text};
use super::upstream::{self, Placed};

/// Reads a whole document; `None` if a part without which there is nothing to run is missing, which is noted.
pub(super) fn config(root: &mut Fields<'_, '_>, around: &Around<'_>) -> Option<Config> {
    let ServerSide { listeners, server } = root.inner("server", |fields| {
        let side = server::server(fields, around);
        check_listeners(fields, &side.listeners);
        check_server(fields, &side);
        side
    });
    let admin = root.inner("admin", |fields| {
        let admin = server::admin(fields);
        if let Some(address) = admin {
            check_admin(fields, address, &listeners);
        }
        admin
    });
    let secrets = secret::read(root, around);
    if secrets.is_empty() {
        let what = "there is no secret, so each start makes its own: a restart ends every session, \
                    and a second proxy can't serve the sessions of the first";
        root.warning(
            &Origin::Whole,
            "secret",
            what,
            "set THROUGHLINE_SECRET or [secret] file (openssl rand -base64 32)",
        );
        if server.peers == Peers::Possible {
            let what = "is \"possible\", but without a secret no other proxy can serve this one's sessions";
            root.warning(
                &Origin::Whole,
                "server.peers",
                what,
                "give each proxy the same secret",
            );
        }
    }
    let replay_bytes_max = root.inner("memory", server::memory);
    let log = root.inner("log", server::log);
    let placed = root.each("upstream", |fields| {
        upstream::read(fields, around, replay_bytes_max)
    });
    let given = placed.len();
    let placed: Vec<Placed> = placed.into_iter().flatten().collect();
    if given == 0 {
        let advice =
            "add [[upstream]] with replicas = [\"http://127.0.0.1:3001/mcp\"], or give --upstream URL";
        let at = root.at("upstream");
        root.problem(&at, "upstream", "there is no upstream", advice);
    }
    check_upstreams(root, &placed);
    let upstreams: Vec<Arc<Upstream>> = placed
        .into_iter()
        .map(|placed| Arc::new(placed.upstream))
        .collect();
    let listeners: Vec<Listener> = listeners.into_iter().map(|(listener, _)| listener).collect();
    if upstreams.is_empty() || listeners.is_empty() {
        return None;
    }
    Some(Config {
        listeners,
        admin,
        upstreams,
        secrets,
        server,
        replay_bytes_max,
        log,
        source: around.source(),
        files: around.named(),
    })
}

fn check_listeners(fields: &mut Fields<'_, '_>, listeners: &[(Listener, Origin)]) {
    for (index, (listener, at)) in listeners.iter().enumerate() {
        let same =
            |other: &(Listener, Origin)| other.0.address == listener.address && listener.address.port() != 0;
        if listeners[..index].iter().any(same) {
            let what = format!("{} is there twice", listener.address);
            fields.problem(at, "listen", what, "name each address once");
        }
    }
}

fn check_server(fields: &mut Fields<'_, '_>, ServerSide { listeners, server }: &ServerSide) {
    let open = listeners
        .iter()
        .find(|(listener, _)| !listener.address.ip().is_loopback());
    if let (Some((listener, at)), []) = (open, server.allowed_hosts.as_slice()) {
        let what = format!(
            "{} is open to other machines, but without allowed_hosts a request is refused (421) \
             unless its Host is the listener's own address",
            listener.address
        );
        fields.warning(
            at,
            "listen",
            what,
            "add allowed_hosts = [\"the.name.that.clients.use\"]",
        );
    }
    for (key, any, list) in [
        (
            "allowed_hosts",
            "a page on any site can reach this proxy by DNS rebinding",
            &server.allowed_hosts,
        ),
        (
            "allowed_origins",
            "a page on any site can speak to this proxy",
            &server.allowed_origins,
        ),
    ] {
        if list.iter().any(|item| &**item == "*") {
            let at = fields.at(key);
            fields.warning(
                &at,
                key,
                format!("allows everything: {any}"),
                "name what clients use instead",
            );
        }
    }
    check_bodies(fields, server);
}

fn check_bodies(fields: &mut Fields<'_, '_>, server: &Server) {
    if server.head_bytes_max > server.body_bytes_max {
        let at = fields.at_any(&["head_bytes_max", "body_bytes_max"]);
        let what = format!(
            "a head of {} is allowed, but a body of {} only",
            size_text(server.head_bytes_max),
            size_text(server.body_bytes_max)
        );
        fields.warning(&at, "body_bytes_max", what, "raise body_bytes_max");
    }
}

fn check_admin(fields: &mut Fields<'_, '_>, admin: SocketAddr, listeners: &[(Listener, Origin)]) {
    let at = fields.at("listen");
    let clash = listeners.iter().any(|(listener, _)| {
        let address = listener.address;
        let same_host =
            address.ip() == admin.ip() || address.ip().is_unspecified() || admin.ip().is_unspecified();
        address.port() == admin.port()
            && admin.port() != 0
            && same_host
            && address.is_ipv4() == admin.is_ipv4()
    });
    if clash {
        let what = format!("{admin} is an address of the proxy itself");
        fields.problem(
            &at,
            "listen",
            what,
            "give health and metrics their own port, or \"off\"",
        );
    }
    if !admin.ip().is_loopback() {
        let what = format!(
            "{admin} is open to other machines, and asks nobody who they are: whoever reaches it can drain replicas"
        );
        fields.warning(
            &at,
            "listen",
            what,
            "bind it to 127.0.0.1, or keep the port inside your network",
        );
    }
}

fn check_upstreams(root: &mut Fields<'_, '_>, placed: &[Placed]) {
    if placed.len() > UPSTREAMS_MAX {
        root.problem(
            &Origin::Whole,
            "upstream",
            format!("more than {UPSTREAMS_MAX} upstreams"),
            "run several proxies",
        );
    }
    for (
        index,
        Placed {
            upstream,
            name_at,
            path_at,
        },
    ) in placed.iter().enumerate()
    {
        let earlier = &placed[..index];
        if let Some(other) = earlier.iter().find(|other| other.upstream.path == upstream.path) {
            let what = format!(
                "`{}` is the path of upstream `{}` already",
                upstream.path, other.upstream.name
            );
            root.problem(path_at, "upstream.path", what, "give each upstream its own path");
            if name_at.is_none() {
                continue;
            }
        }
        if earlier.iter().any(|other| other.upstream.name == upstream.name) {
            let what = format!("`{}` is the name of another upstream already", upstream.name);
            let at = name_at.as_ref().unwrap_or(path_at);
            root.problem(at, "upstream.name", what, "give each upstream its own name");
        }
    }
    check_oauth(root, placed);
}

/// The metadata of a host, and a path beside the endpoints, can be one upstream's only.
fn check_oauth(root: &mut Fields<'_, '_>, placed: &[Placed]) {
    let mut passing = placed
        .iter()
        .filter(|one| one.upstream.oauth.metadata == Metadata::Pass);
    if let (Some(first), Some(other)) = (passing.next(), passing.next()) {
        let what = format!(
            "the host's own metadata (without a path at its end) is asked of upstream `{}` only, not of `{}`",
            first.upstream.name, other.upstream.name
        );
        let advice = "name the one first in the file whose clients look for it there";
        root.warning(&other.path_at, "upstream.oauth.metadata", what, advice);
    }
    let mut taken: Vec<(&str, &str)> = placed
        .iter()
        .map(|one| (&*one.upstream.path, &*one.upstream.name))
        .collect();
    for Placed {
        upstream, path_at, ..
    } in placed
    {
        for path in &upstream.oauth.paths {
            match taken.iter().find(|(known, _)| *known == &**path) {
                Some((_, owner)) => {
                    let what = format!("`{path}` is a path of upstream `{owner}` already");
                    root.problem(path_at, "upstream.oauth.paths", what, "name each path once");
                }
                None => taken.push((path, &upstream.name)),
            }
        }
    }
}

/// Probes must end before the next one begins.
pub(super) fn health(fields: &mut Fields<'_, '_>, health: &Health) {
    if health.probe != Probe::Off && health.timeout > health.interval {
        let at = fields.at_any(&["timeout", "interval"]);
        let what = format!(
            "a probe may take {}, but one is sent every {}",
            time_text(health.timeout),
            time_text(health.interval)
        );
        fields.problem(&at, "timeout", what, "make timeout at most interval");
    }
    if health.eject_time > health.eject_time_max {
        let at = fields.at_any(&["eject_time", "eject_time_max"]);
        let what = format!(
            "is longer than eject_time_max ({})",
            time_text(health.eject_time_max)
        );
        fields.problem(&at, "eject_time", what, "make it at most eject_time_max");
    }
}

/// TLS settings need an `https` replica.
pub(super) fn upstream_tls(fields: &mut Fields<'_, '_>, tls: &UpstreamTls, replicas: &[Replica]) {
    let UpstreamTls {
        authorities,
        server_name,
        client,
    } = tls;
    let said = authorities.is_some() || server_name.is_some() || client.is_some();
    if said && !replicas.is_empty() && replicas.iter().all(|replica| replica.scheme == Scheme::Http) {
        let at = fields.at_any(&["authorities", "server_name", "client_certificate"]);
        fields.warning(
            &at,
            "",
            "no replica is https, so this is not used",
            "write https:// in replicas, or take the table out",
        );
    }
}

/// Idle connections and time limits of exchanges.
pub(super) fn exchange(fields: &mut Fields<'_, '_>, exchange: &Exchange) {
    if exchange.post_idle_max >= SERVERS_CLOSE_AFTER {
        let at = fields.at("post_idle_max");
        let what = format!(
            "common servers close an idle connection after {}: a POST that meets the close fails, \
             and can't be sent again",
            time_text(SERVERS_CLOSE_AFTER)
        );
        fields.warning(
            &at,
            "post_idle_max",
            what,
            "keep it below 5s, unless you know the servers' own limit",
        );
    }
    if exchange.post_idle_max > exchange.idle_timeout {
        let at = fields.at_any(&["post_idle_max", "idle_timeout"]);
        let what = format!(
            "is longer than idle_timeout ({})",
            time_text(exchange.idle_timeout)
        );
        fields.problem(&at, "post_idle_max", what, "make it at most idle_timeout");
    }
    if exchange.connect_timeout > exchange.initialize_max {
        let at = fields.at_any(&["connect_timeout", "initialize_max"]);
        let what = format!(
            "is longer than initialize_max ({})",
            time_text(exchange.initialize_max)
        );
        fields.problem(&at, "connect_timeout", what, "make it at most initialize_max");
    }
}

/// A session can't idle longer than it lives.
pub(super) fn session(fields: &mut Fields<'_, '_>, session: &Session) {
    if session.idle > session.max {
        let at = fields.at_any(&["session_idle", "session_max"]);
        let what = format!("is longer than session_max ({})", time_text(session.max));
        fields.problem(&at, "session_idle", what, "make it at most session_max");
    }
}

/// The replay window and the times of a stream.
pub(super) fn stream(fields: &mut Fields<'_, '_>, stream: &Stream, replay_memory: usize) {
    if stream.keepalive >= stream.stall_max {
        let at = fields.at_any(&["keepalive", "stall_max"]);
        let what = format!("is not below stall_max ({})", time_text(stream.stall_max));
        let advice = "a stalled client is seen by its comments: make keepalive less than stall_max";
        fields.problem(&at, "keepalive", what, advice);
    }
    if stream.event_bytes_max > stream.replay_bytes_max {
        let at = fields.at_any(&["event_bytes_max", "replay_bytes_max"]);
        let what = format!(
            "is more than replay_bytes_max ({})",
            size_text(stream.replay_bytes_max)
        );
        fields.problem(
            &at,
            "event_bytes_max",
            what,
            "an event that the log can't hold can't be replayed: raise replay_bytes_max",
        );
    }
    if stream.replay_bytes_max > replay_memory {
        let at = fields.at("replay_bytes_max");
        let what = format!("is more than memory.replay_max ({})", size_text(replay_memory));
        fields.problem(
            &at,
            "replay_bytes_max",
            what,
            "lower it, or raise replay_max in [memory]",
        );
    }
    if stream.replay_age_max < stream.detached_max {
        let at = fields.at_any(&["replay_age_max", "detached_max"]);
        let what = format!(
            "is less than detached_max ({}): what came first in a client's absence is gone before it may come back",
            time_text(stream.detached_max)
        );
        fields.warning(&at, "replay_age_max", what, "make it at least detached_max");
    }
}

/// A proof by overlap can't tell one session from another: who wants it says that the server does.
pub(super) fn reattach(
    fields: &mut Fields<'_, '_>,
    stream: &Stream,
    (event_store, request_ids): (EventStore, RequestIds),
) {
    match (stream.reattach, event_store, request_ids) {
        (Reattach::Never, _, _)
        | (Reattach::Proved, EventStore::PerSession, _)
        | (Reattach::Proved, EventStore::Undeclared, RequestIds::Isolated) => {}
        (Reattach::Proved, EventStore::Undeclared, RequestIds::Auto | RequestIds::Passed) => {
            let at = fields.at("stream");
            let what = "is \"proved\", but nothing says that the server keeps the events of its sessions apart: \
                        one session might be shown another's";
            fields.problem(
                &at,
                "stream.reattach",
                what,
                "declare event_store = \"per-session\" if it does, or set isolate_request_ids = true",
            );
        }
    }
}

/// Times of streams against times of sessions.
pub(super) fn times(fields: &mut Fields<'_, '_>, session: &Session, stream: &Stream) {
    if stream.detached_max > session.idle {
        let at = fields.at_any(&["stream", "session"]);
        let what = format!(
            "stream.detached_max ({}) is longer than session.session_idle ({})",
            time_text(stream.detached_max),
            time_text(session.idle)
        );
        fields.warning(
            &at,
            "",
            what,
            "the session ends first: make session_idle at least detached_max",
        );
    }
}

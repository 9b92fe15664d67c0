//! Reads the tables of the client side: `server`, `admin`, `memory` and `log`.
//! Law: every key is asked for once, here; what keys mean together is judged by `check.rs`.
//! Next: `upstream.rs`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::bounds;
use super::fields::Fields;
use super::files::Around;
use super::pem;
use super::raw::{Node, Raw};
use super::report::Origin;
use super::resolved::{Listener, Log, LogFormat, Peers, Server, TlsFiles};

/// Where clients connect if nothing is said: this machine only.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// Where health and metrics are served if nothing is said: this machine only.
const ADMIN_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// Allows any host or any origin.
const ANY: &str = "*";
/// The filter of log lines if nothing is said.
const FILTER_DEFAULT: &str = "info";

/// The words for whether other proxies serve the same sessions.
const PEERS: [(&str, Peers); 2] = [("none", Peers::None), ("possible", Peers::Possible)];

/// The `server` table, with the places that cross checks point at.
pub(super) struct ServerSide {
    /// Listeners, each with its place.
    pub(super) listeners: Vec<(Listener, Origin)>,
    /// Bounds and times.
    pub(super) server: Server,
}

/// Reads the `server` table.
pub(super) fn server(fields: &mut Fields<'_, '_>, around: &Around<'_>) -> ServerSide {
    let listeners = listeners(fields, around);
    let allowed_hosts = allowed_hosts(fields);
    let allowed_origins = allowed_origins(fields);
    let server = Server {
        workers: fields.count("workers", bounds::WORKERS),
        allowed_hosts,
        allowed_origins,
        head_bytes_max: fields.size("head_bytes_max", bounds::HEAD_BYTES),
        body_bytes_max: fields.size("body_bytes_max", bounds::BODY_BYTES),
        head_timeout: fields.time("head_timeout", bounds::HEAD_TIMEOUT),
        body_timeout: fields.time("body_timeout", bounds::BODY_TIMEOUT),
        idle_timeout: fields.time("idle_timeout", bounds::SERVER_IDLE),
        connections_max: fields.count("connections_max", bounds::CONNECTIONS),
        drain_max: fields.time("drain_max", bounds::DRAIN),
        peers: fields.word("peers", &PEERS).unwrap_or(Peers::None),
    };
    ServerSide { listeners, server }
}

/// Reads `listen` and `tls`: the table `tls` holds for every address that says nothing else.
fn listeners(fields: &mut Fields<'_, '_>, around: &Around<'_>) -> Vec<(Listener, Origin)> {
    let tls = fields.inner("tls", |fields| pem::listener(fields, around));
    let Some(node) = fields.raw("listen") else {
        return vec![(
            Listener {
                address: LISTEN_DEFAULT,
                tls,
            },
            fields.at("listen"),
        )];
    };
    let items = match &node.value {
        Raw::Array(items) => items.as_slice(),
        Raw::Text(_) | Raw::Integer(_) | Raw::Boolean(_) | Raw::Table(_) | Raw::Foreign(_) => {
            std::slice::from_ref(node)
        }
    };
    if items.is_empty() {
        fields.problem(
            &node.at,
            "listen",
            "is empty",
            "name at least one address, e.g. \"127.0.0.1:8080\"",
        );
    }
    let mut listeners = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        if let Some(listener) = listener(fields, around, (index, item), tls.as_ref()) {
            listeners.push((listener, item.at.clone()));
        }
    }
    listeners
}

/// One item of `listen`: an address, or a table of an address and its own `tls`.
fn listener<'t>(
    fields: &mut Fields<'t, '_>,
    around: &Around<'_>,
    (index, item): (usize, &'t Node),
    tls: Option<&TlsFiles>,
) -> Option<Listener> {
    match &item.value {
        Raw::Text(text) => Some(Listener {
            address: address(fields, "listen", text, &item.at)?,
            tls: tls.cloned(),
        }),
        Raw::Table(table) => fields.item("listen", index, (table, &item.at), |fields| {
            let text = fields.text("address");
            let at = fields.at("address");
            let own = match fields.raw("tls").map(|node| &node.value) {
                None => tls.cloned(),
                Some(Raw::Text(word)) if word == "off" => None,
                Some(_) => fields.inner("tls", |fields| pem::listener(fields, around)),
            };
            let Some(text) = text else {
                fields.problem(
                    &at,
                    "address",
                    "is missing",
                    "write { address = \"127.0.0.1:8080\", tls = \"off\" }",
                );
                return None;
            };
            Some(Listener {
                address: address(fields, "address", text, &at)?,
                tls: own,
            })
        }),
        other @ (Raw::Integer(_) | Raw::Boolean(_) | Raw::Array(_) | Raw::Foreign(_)) => {
            let advice = "write \"ADDRESS:PORT\", e.g. \"127.0.0.1:8080\"";
            fields.problem(
                &item.at,
                "listen",
                format!("is {}, not an address", other.kind()),
                advice,
            );
            None
        }
    }
}

/// An address to bind. Names are refused: what a name means may change between two starts.
fn address(fields: &mut Fields<'_, '_>, key: &str, text: &str, at: &Origin) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let host = text.rsplit_once(':').map(|(host, _)| host);
    let advice = match (host, port) {
        (Some("" | "*"), Some(port)) => {
            format!("write \"127.0.0.1:{port}\" for this machine only, \"0.0.0.0:{port}\" for everyone")
        }
        (Some("localhost"), Some(port)) => format!("write \"127.0.0.1:{port}\" or \"[::1]:{port}\""),
        (None, Some(port)) => format!("write the address too, e.g. \"127.0.0.1:{port}\""),
        (_, _) => "write \"ADDRESS:PORT\", e.g. \"127.0.0.1:8080\"".to_owned(),
    };
    fields.problem(at, key, format!("`{text}` is not an address and a port"), advice);
    None
}

/// `allowed_hosts`: names or addresses, with or without a port, in lower case.
fn allowed_hosts(fields: &mut Fields<'_, '_>) -> Vec<Box<str>> {
    let mut hosts = Vec::new();
    for (text, at) in fields.texts("allowed_hosts").unwrap_or_default() {
        let advice = if is_authority(text) || text == ANY {
            hosts.push(text.to_ascii_lowercase().into());
            continue;
        } else if text.contains('/') {
            let name = text
                .split("://")
                .last()
                .and_then(|rest| rest.split('/').next())
                .unwrap_or_default();
            format!("write the name alone: \"{name}\"")
        } else if text.contains('*') {
            "name each host; \"*\" alone allows every one".to_owned()
        } else if text.parse::<Ipv6Addr>().is_ok() {
            format!("write it in brackets: \"[{text}]\"")
        } else {
            "write what clients send as Host, e.g. \"tools.example.com\"".to_owned()
        };
        fields.problem(at, "allowed_hosts", format!("`{text}` is not a host"), advice);
    }
    hosts
}

/// `allowed_origins`: as browsers send them, in lower case. Schemes other than http and https are opaque.
fn allowed_origins(fields: &mut Fields<'_, '_>) -> Vec<Box<str>> {
    let mut origins = Vec::new();
    for (text, at) in fields.texts("allowed_origins").unwrap_or_default() {
        let plain = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
        let graphic = plain.bytes().all(|c| c.is_ascii_graphic() && c != b',');
        let good = match plain.split_once("://") {
            Some(("http" | "https", host)) => is_authority(host),
            Some((scheme, rest)) => {
                graphic && !scheme.is_empty() && !rest.is_empty() && !rest.contains(['/', '*'])
            }
            None => plain == ANY || plain == "null",
        };
        if good {
            origins.push(plain.into());
        } else {
            let advice = "write SCHEME://HOST or SCHEME://HOST:PORT, e.g. \"https://app.example.com\"";
            fields.problem(
                at,
                "allowed_origins",
                format!("`{text}` is not an origin"),
                advice,
            );
        }
    }
    origins
}

/// Whether a text is `HOST` or `HOST:PORT`: a name, an IPv4 address or an IPv6 address in brackets.
fn is_authority(text: &str) -> bool {
    let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    let (host_is_good, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, after)) => (
            address.parse::<Ipv6Addr>().is_ok(),
            after.strip_prefix(':').or(after.is_empty().then_some("0")),
        ),
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, "0"));
            (!host.is_empty() && host.bytes().all(is_name), Some(port))
        }
    };
    let port_is_good =
        port.is_some_and(|port| port.bytes().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok());
    host_is_good && port_is_good
}

/// Reads the `admin` table; `None` = off.
pub(super) fn admin(fields: &mut Fields<'_, '_>) -> Option<SocketAddr> {
    match fields.text("listen") {
        None => Some(ADMIN_DEFAULT),
        Some("off") => None,
        Some(text) => {
            let at = fields.at("listen");
            address(fields, "listen", text, &at)
        }
    }
}

/// Reads the `memory` table.
pub(super) fn memory(fields: &mut Fields<'_, '_>) -> usize {
    fields.size("replay_max", bounds::REPLAY_MEMORY)
}

/// Reads the `log` table.
pub(super) fn log(fields: &mut Fields<'_, '_>) -> Log {
    let filter = fields.text("filter").unwrap_or(FILTER_DEFAULT);
    if let Err(what) = crate::telemetry::subscriber::check_filter(filter) {
        let at = fields.at("filter");
        let advice = "write a level (error, warn, info, debug, trace) or target=level, with commas between";
        fields.problem(&at, "filter", what, advice);
    }
    let formats = [
        ("auto", LogFormat::Auto),
        ("human", LogFormat::Human),
        ("json", LogFormat::Json),
    ];
    let format = fields.word("format", &formats).unwrap_or(LogFormat::Auto);
    Log {
        filter: filter.into(),
        format,
    }
}

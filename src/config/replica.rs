//! The address of a replica: `http://host:port/path` or `https://…`, and nothing else.
//! Law: one spelling for each replica, so that a duplicate is seen: host in lower case, port always there.
//! Absent on purpose: looking names up; that is done at each dial.
//! Next: `upstream.rs`.

use std::net::Ipv6Addr;

use http::uri::{self, PathAndQuery, Uri};

use super::resolved::{Replica, Scheme};
use crate::net::Authority;

/// Longest URL of a replica, in bytes.
const URL_BYTES_MAX: usize = 2_048;

/// Why a text is no replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NotAReplica {
    /// This is wrong; this is what to do. The text may be shown.
    Wrong(String, &'static str),
    /// It holds a user name or a password, and is not to be shown.
    Credentials,
}

/// What a good one looks like.
const SHAPE: &str = "write http://HOST:PORT/PATH, e.g. \"http://127.0.0.1:3001/mcp\"";

fn wrong<T>(what: String, advice: &'static str) -> Result<T, NotAReplica> {
    Err(NotAReplica::Wrong(what, advice))
}

/// Reads the URL of a replica.
pub(super) fn parse(text: &str) -> Result<Replica, NotAReplica> {
    if text.split(['/', '?', '#']).nth(2).unwrap_or(text).contains('@') {
        return Err(NotAReplica::Credentials);
    }
    if text.len() > URL_BYTES_MAX {
        return wrong(format!("is longer than {URL_BYTES_MAX} bytes"), SHAPE);
    }
    if text.contains('#') {
        return wrong(
            format!("`{text}` has a fragment"),
            "take the # and what follows out",
        );
    }
    let Ok(uri) = text.parse::<Uri>() else {
        return wrong(format!("`{text}` is not a URL"), SHAPE);
    };
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        Some(_) | None => {
            return wrong(
                format!("`{text}` begins with neither http:// nor https://"),
                SHAPE,
            );
        }
    };
    let Some(authority) = uri.authority() else {
        return wrong(format!("`{text}` has no host"), SHAPE);
    };
    let authority = Authority {
        host: host(authority)?,
        port: port(authority, scheme)?,
    };
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = if path.starts_with('/') {
        path.into()
    } else {
        format!("/{path}").into()
    };
    Ok(Replica {
        authority,
        scheme,
        path,
    })
}

/// The host in lower case, without brackets.
fn host(authority: &uri::Authority) -> Result<Box<str>, NotAReplica> {
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bare.is_some_and(|address| address.parse::<Ipv6Addr>().is_err()) {
        return wrong(
            format!("`{host}` is not an IPv6 address"),
            "write [ADDRESS]:PORT, e.g. http://[::1]:3001/mcp",
        );
    }
    if host.is_empty() {
        return wrong(format!("`{authority}` has no host"), SHAPE);
    }
    Ok(bare.unwrap_or(host).to_ascii_lowercase().into())
}

/// The port, or that of the scheme.
fn port(authority: &uri::Authority, scheme: Scheme) -> Result<u16, NotAReplica> {
    let after_host = authority
        .as_str()
        .get(authority.host().len()..)
        .unwrap_or_default();
    match (after_host, authority.port_u16(), scheme) {
        ("", _, Scheme::Http) => Ok(80),
        ("", _, Scheme::Https) => Ok(443),
        (_, Some(port), _) if port != 0 => Ok(port),
        (_, _, _) => wrong(
            format!("`{authority}` has no valid port"),
            "write a port from 1 to 65535, or leave it out",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(Scheme, &str, &str), &str>) {
        match (parse(text), expected) {
            (Ok(replica), Ok((scheme, authority, path))) => {
                assert_eq!(
                    (
                        replica.scheme,
                        replica.authority.to_string().as_str(),
                        &*replica.path
                    ),
                    (scheme, authority, path)
                );
            }
            (Err(NotAReplica::Wrong(what, _)), Err(expected)) => {
                assert!(what.contains(expected), "{text}: {what}")
            }
            (Err(NotAReplica::Credentials), Err("credentials")) => {}
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn replicas() {
        check(
            "http://127.0.0.1:3001/mcp",
            Ok((Scheme::Http, "127.0.0.1:3001", "/mcp")),
        );
        check(
            "https://Tools.Example.COM/mcp",
            Ok((Scheme::Https, "tools.example.com:443", "/mcp")),
        );
        check("http://tools", Ok((Scheme::Http, "tools:80", "/")));
        check("http://tools?key=1", Ok((Scheme::Http, "tools:80", "/?key=1")));
        check(
            "http://[::1]:3001/mcp?v=2",
            Ok((Scheme::Http, "[::1]:3001", "/mcp?v=2")),
        );
        check("http://tools/a@b", Ok((Scheme::Http, "tools:80", "/a@b")));
        check("HTTP://tools/", Ok((Scheme::Http, "tools:80", "/")));
        check("127.0.0.1:3001", Err("neither http:// nor"));
        check("ws://tools/mcp", Err("neither http:// nor"));
        check("/mcp", Err("neither http:// nor"));
        check("", Err("is not a URL"));
        check("http://", Err("is not a URL"));
        check("http://tools:0/", Err("no valid port"));
        check("http://tools:/", Err("no valid port"));
        check("http://tools:65536/", Err("port"));
        check("http://[zz]:1/", Err("IPv6"));
        check("http://tools/mcp#x", Err("fragment"));
        check("http://too ls/mcp", Err("is not a URL"));
        check("http://user:word@tools/mcp", Err("credentials"));
        check("user:word@tools", Err("credentials"));
    }
}

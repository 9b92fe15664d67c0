//! Who may ask: the rules for `Host` and `Origin` (wire contract, section 9), before anything else is looked at.
//! Law: `Origin` is judged against what is configured, never against the request's own `Host`: in DNS rebinding both
//! name the attacker.
//! Why ports are ignored unless one is configured: tunnels and port mappings change them, rebinding does not need to.
//! Why a listener on every address takes any address literal as `Host`: rebinding needs a *name*. As `Origin` it
//! takes loopback only, for a page may well be served from any address.
//! Next: `endpoint.rs`.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, HeaderMap, ORIGIN};
use http::{StatusCode, Uri, Version};

use crate::config::resolved::Server;
use crate::downstream::reject::Reject;

/// Anything goes, in either list.
const ANY: &str = "*";

/// What one listener accepts.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct HostGate {
    bound: IpAddr,
    any_host: Any,
    hosts: Vec<Allowed>,
    /// What clients of this listener usually send as `Host`, spelled as they do: taken without being read.
    usual: Vec<Box<str>>,
    any_origin: Any,
    origins: Vec<Origin>,
}

/// Whether a list has the wildcard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Any {
    Yes,
    No,
}

/// An entry of `allowed_hosts`.
#[derive(PartialEq, Eq, Debug)]
struct Allowed {
    host: Host,
    port: Option<u16>,
}

/// An entry of `allowed_origins`.
#[derive(PartialEq, Eq, Debug)]
enum Origin {
    /// `scheme://host[:port]`, the port filled in where the scheme has one.
    Tuple {
        scheme: Box<str>,
        host: Host,
        port: Option<u16>,
    },
    /// `null`, or an origin of a scheme whose host is no host name; compared as it is, in lower case.
    Opaque(Box<str>),
}

/// A host as it stands in `Host`, `:authority` or `Origin`: one spelling.
#[derive(PartialEq, Eq, Debug)]
enum Host {
    Address(IpAddr),
    /// Lower case, without the dot at the end.
    Name(Box<str>),
}

/// What a listener's own address makes of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Host,
    Origin,
}

/// Judges a request to another listener of this process, bound to this address, by the same rules.
///
/// # Errors
/// The status to refuse it with.
pub fn judge_caller(
    bound: SocketAddr,
    server: &Server,
    (version, target, fields): (Version, &Uri, &HeaderMap),
) -> Result<(), StatusCode> {
    HostGate::new(bound, &server.allowed_hosts, &server.allowed_origins)
        .judge(version, target, fields)
        .map_err(|reject| reject.response().status())
}

impl HostGate {
    /// The rules of a listener bound to this address.
    pub(crate) fn new(bound: SocketAddr, allowed_hosts: &[Box<str>], allowed_origins: &[Box<str>]) -> Self {
        let port = bound.port();
        let own = [bound.to_string().into(), format!("localhost:{port}").into()];
        let named = allowed_hosts.iter().cloned();
        let with_port = allowed_hosts.iter().map(|entry| format!("{entry}:{port}").into());
        let mut gate = Self {
            usual: Vec::new(),
            bound: bound.ip().to_canonical(),
            any_host: any(allowed_hosts),
            hosts: allowed_hosts
                .iter()
                .filter_map(|entry| authority(entry))
                .collect(),
            any_origin: any(allowed_origins),
            origins: allowed_origins
                .iter()
                .filter_map(|entry| Origin::parse(entry))
                .collect(),
        };
        // Only what the rules let in: this is a shorter way to the same answer.
        gate.usual = own
            .into_iter()
            .chain(named)
            .chain(with_port)
            .filter(|text| authority(text).is_some_and(|named| gate.takes_host(&named)))
            .collect();
        gate
    }

    /// Judges one request.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub(crate) fn judge(&self, version: Version, target: &Uri, fields: &HeaderMap) -> Result<(), Reject> {
        if self.is_usual(target, fields) {
            return Ok(());
        }
        match self.host(version, target, fields)? {
            Some(named) if !self.takes_host(&named) => {
                return Err(Reject::HostNotServed {
                    host: named.host.to_string(),
                });
            }
            Some(_) | None => {}
        }
        self.judge_origin(fields)
    }

    /// Whether one look at the fields finds a usual host, once, and no origin.
    fn is_usual(&self, target: &Uri, fields: &HeaderMap) -> bool {
        let mut host = None;
        for (name, value) in fields {
            if *name == ORIGIN || (*name == HOST && host.replace(value).is_some()) {
                return false;
            }
        }
        match (host, target.authority()) {
            (Some(host), None) => self.usual.iter().any(|usual| usual.as_bytes() == host.as_bytes()),
            (None, _) | (_, Some(_)) => false,
        }
    }

    fn judge_origin(&self, fields: &HeaderMap) -> Result<(), Reject> {
        let mut origins = fields.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let text = origin.to_str().unwrap_or_default();
        match Origin::parse(text) {
            Some(origin) if origins.next().is_none() && self.takes_origin(&origin) => Ok(()),
            Some(_) | None => Err(Reject::OriginNotAllowed {
                origin: text.to_owned(),
            }),
        }
    }

    /// The one host that a request names; `None` if it names none and need not.
    fn host(&self, version: Version, target: &Uri, fields: &HeaderMap) -> Result<Option<Allowed>, Reject> {
        let malformed = |what| Reject::Malformed { what };
        let mut values = fields.get_all(HOST).iter();
        let field = match values.next() {
            Some(value) => {
                let text = value
                    .to_str()
                    .map_err(|_| malformed("a Host field that is not a host"))?;
                Some(authority(text).ok_or(malformed("a Host field that is not a host"))?)
            }
            None => None,
        };
        if values.next().is_some() {
            return Err(malformed("more than one Host field"));
        }
        let target = match target.authority() {
            Some(text) => Some(authority(text.as_str()).ok_or(malformed("a target that is not a host"))?),
            None => None,
        };
        match (target, field) {
            (Some(target), Some(field)) if target != field => {
                Err(malformed("a Host field unlike the target's"))
            }
            (Some(named), Some(_) | None) | (None, Some(named)) => Ok(Some(named)),
            // Only HTTP/1.0 may leave it out; then only the wildcard lets it in.
            (None, None) if version != Version::HTTP_10 => Err(malformed("no Host field")),
            (None, None) if self.any_host == Any::Yes => Ok(None),
            (None, None) => Err(Reject::HostNotServed { host: String::new() }),
        }
    }

    fn takes_host(&self, named: &Allowed) -> bool {
        self.any_host == Any::Yes
            || self.is_own(&named.host, Role::Host)
            || self.hosts.iter().any(|allowed| allowed.takes(named))
    }

    /// The wildcard of `allowed_hosts` names no origin: it is set behind proxies that rewrite `Host`, and must not
    /// open the door to every web page.
    fn takes_origin(&self, origin: &Origin) -> bool {
        if self.any_origin == Any::Yes || self.origins.contains(origin) {
            return true;
        }
        match origin {
            Origin::Tuple { scheme, host, port } if matches!(&**scheme, "http" | "https") => {
                self.is_own(host, Role::Origin)
                    || self
                        .hosts
                        .iter()
                        .any(|allowed| allowed.host == *host && port_fits(allowed.port, *port))
            }
            Origin::Tuple { .. } | Origin::Opaque(_) => false,
        }
    }

    /// Whether a host is the listener's own address, or a name of it that no one else can give.
    fn is_own(&self, host: &Host, role: Role) -> bool {
        let loopback = match host {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => &**name == "localhost",
        };
        if loopback && (self.bound.is_loopback() || self.bound.is_unspecified()) {
            return true;
        }
        match (host, role) {
            (Host::Address(_), Role::Host) if self.bound.is_unspecified() => true,
            (Host::Address(address), Role::Host | Role::Origin) => *address == self.bound,
            (Host::Name(_), Role::Host | Role::Origin) => false,
        }
    }
}

impl Allowed {
    fn takes(&self, named: &Allowed) -> bool {
        self.host == named.host && port_fits(self.port, named.port)
    }
}

/// A configured port stands for itself; the ports that clients leave out stand for none as well.
fn port_fits(configured: Option<u16>, named: Option<u16>) -> bool {
    match (configured, named) {
        (None, _) => true,
        (Some(configured), Some(named)) => configured == named,
        (Some(configured), None) => matches!(configured, 80 | 443),
    }
}

fn any(list: &[Box<str>]) -> Any {
    if list.iter().any(|entry| &**entry == ANY) {
        Any::Yes
    } else {
        Any::No
    }
}

impl Origin {
    /// One origin, as browsers serialise it. A list of origins is none.
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text == ANY || text.contains(|c: char| c.is_ascii_whitespace() || c == ',') {
            return None;
        }
        let opaque = || Self::Opaque(text.to_ascii_lowercase().into());
        let Some((scheme, rest)) = text.split_once("://") else {
            return Some(opaque());
        };
        let scheme = scheme.to_ascii_lowercase();
        let default_port = match scheme.as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Some(opaque()),
        };
        // A trailing slash is what people write in configurations.
        let Allowed { host, port } = authority(rest.strip_suffix('/').unwrap_or(rest))?;
        Some(Self::Tuple {
            scheme: scheme.into(),
            host,
            port: port.or(Some(default_port)),
        })
    }
}

/// Reads `host[:port]`. No user information, no path, no other spelling of an address than the usual one.
fn authority(text: &str) -> Option<Allowed> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (literal, after) = rest.split_once(']')?;
            let address = IpAddr::V6(literal.parse().ok()?).to_canonical();
            (
                Host::Address(address),
                after.strip_prefix(':').or(after.is_empty().then_some("")),
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Host::parse(host)?, Some(port)),
            None => (Host::parse(text)?, Some("")),
        },
    };
    match port? {
        "" => Some(Allowed { host, port: None }),
        digits if digits.bytes().all(|b| b.is_ascii_digit()) => Some(Allowed {
            host,
            port: Some(digits.parse().ok()?),
        }),
        _ => None,
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(IpAddr::V4(address)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        (!name.is_empty() && name.bytes().all(is_name)).then(|| Self::Name(name.to_ascii_lowercase().into()))
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(PartialEq, Eq, Debug)]
    enum Verdict {
        In,
        Malformed,
        Host,
        Origin,
    }

    fn list(entries: &str) -> Vec<Box<str>> {
        entries.split_whitespace().map(Into::into).collect()
    }

    /// `request`: target, then fields by line; `rules`: address, then `hosts` and `origins` after `|`.
    #[track_caller]
    fn check(rules: &str, version: Version, request: &[&str], expected: Verdict) {
        let mut parts = rules.split('|');
        let bound = parts.next().unwrap().trim().parse().unwrap();
        let [hosts, origins] = [(); 2].map(|()| list(parts.next().unwrap_or_default()));
        let gate = HostGate::new(bound, &hosts, &origins);
        let target: Uri = request[0].parse().unwrap();
        let mut fields = HeaderMap::new();
        for field in &request[1..] {
            let (name, value) = field.split_once(": ").unwrap();
            let name: http::HeaderName = name.parse().unwrap();
            fields.append(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let verdict = match gate.judge(version, &target, &fields) {
            Ok(()) => Verdict::In,
            Err(Reject::Malformed { .. }) => Verdict::Malformed,
            Err(Reject::HostNotServed { .. }) => Verdict::Host,
            Err(Reject::OriginNotAllowed { .. }) => Verdict::Origin,
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(verdict, expected, "{rules} {request:?}");
    }

    #[track_caller]
    fn host(rules: &str, host: &str, expected: Verdict) {
        check(
            rules,
            Version::HTTP_11,
            &["/mcp", &format!("host: {host}")],
            expected,
        );
    }

    #[track_caller]
    fn origin(rules: &str, origin: &str, expected: Verdict) {
        let fields = ["/mcp", "host: 127.0.0.1:8080", &format!("origin: {origin}")];
        check(rules, Version::HTTP_11, &fields, expected);
    }

    const LOOPBACK: &str = "127.0.0.1:8080";
    const LOOPBACK6: &str = "[::1]:8080";
    const EVERYWHERE: &str = "0.0.0.0:8080";
    const PUBLIC: &str = "192.0.2.7:8080";

    #[test]
    fn hosts_of_a_loopback_listener() {
        for good in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "127.0.0.1:9",
            "127.9.9.9",
            "localhost",
            "LOCALHOST:8080",
            "localhost.",
            "localhost.:8080",
            "localhost:",
            "[::1]:8080",
            "[::1]",
            "[0:0::1]",
            "[::ffff:127.0.0.1]:8080",
        ] {
            host(LOOPBACK, good, Verdict::In);
            host(LOOPBACK6, good, Verdict::In);
        }
        for bad in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "192.0.2.7",
            "[2001:db8::1]",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0.0.0.0",
        ] {
            host(LOOPBACK, bad, Verdict::Host);
        }
    }

    #[test]
    fn hosts_that_are_none() {
        for bad in [
            "",
            ".",
            ":8080",
            "user@localhost",
            "user:pass@localhost",
            "localhost:8080:8080",
            "localhost:http",
            "localhost:+80",
            "localhost:99999",
            "localhost/mcp",
            "localhost?x",
            "localhost, evil.example",
            "local host",
            "::1",
            "[::1",
            "[::1]8080",
            "[fe80::1%25eth0]",
            "[localhost]",
            "[127.0.0.1]",
            "l\u{f6}calhost",
        ] {
            host(LOOPBACK, bad, Verdict::Malformed);
            host("127.0.0.1:8080 | *", bad, Verdict::Malformed);
        }
    }

    #[test]
    fn hosts_of_other_listeners() {
        host(PUBLIC, "192.0.2.7:8080", Verdict::In);
        host(PUBLIC, "192.0.2.8:8080", Verdict::Host);
        host(PUBLIC, "localhost:8080", Verdict::Host);
        host(EVERYWHERE, "192.0.2.7:8080", Verdict::In);
        host(EVERYWHERE, "[2001:db8::1]:8080", Verdict::In);
        host(EVERYWHERE, "localhost:8080", Verdict::In);
        host(EVERYWHERE, "proxy.example", Verdict::Host);
        host("[::]:8080", "127.0.0.1:8080", Verdict::In);
        host("[::]:8080", "proxy.example", Verdict::Host);
    }

    #[test]
    fn allowed_hosts() {
        let rules = "192.0.2.7:8080 | mcp.example Api.Example:8443 tls.example:443 [2001:db8::1]";
        for good in [
            "mcp.example",
            "MCP.example:1234",
            "mcp.example.",
            "api.example:8443",
            "tls.example",
            "tls.example:443",
            "[2001:db8::1]:99",
        ] {
            host(rules, good, Verdict::In);
        }
        for bad in [
            "x.mcp.example",
            "api.example",
            "api.example:8444",
            "tls.example:80",
        ] {
            host(rules, bad, Verdict::Host);
        }
        host("192.0.2.7:8080 | *", "whatever.example:1", Verdict::In);
    }

    #[test]
    fn where_the_host_stands() {
        let (h10, h11, h2) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        check(LOOPBACK, h11, &["/mcp"], Verdict::Malformed);
        check(LOOPBACK, h10, &["/mcp"], Verdict::Host);
        check("127.0.0.1:8080 | *", h10, &["/mcp"], Verdict::In);
        check("127.0.0.1:8080 | *", h11, &["/mcp"], Verdict::Malformed);
        check(
            LOOPBACK,
            h11,
            &["/mcp", "host: localhost", "host: localhost"],
            Verdict::Malformed,
        );
        check(
            LOOPBACK,
            h11,
            &["/mcp", "host: localhost", "host: evil.example"],
            Verdict::Malformed,
        );
        check(
            LOOPBACK,
            h11,
            &["http://localhost/mcp", "host: localhost"],
            Verdict::In,
        );
        check(LOOPBACK, h11, &["http://localhost/mcp"], Verdict::In);
        check(
            LOOPBACK,
            h11,
            &["http://evil.example/mcp", "host: localhost"],
            Verdict::Malformed,
        );
        check(
            LOOPBACK,
            h11,
            &["http://localhost/mcp", "host: evil.example"],
            Verdict::Malformed,
        );
        check(
            LOOPBACK,
            h11,
            &["http://evil.example/mcp", "host: evil.example"],
            Verdict::Host,
        );
        check(
            LOOPBACK,
            h11,
            &["http://user@localhost/mcp", "host: localhost"],
            Verdict::Malformed,
        );
        check(LOOPBACK, h2, &["http://localhost:8080/mcp"], Verdict::In);
        check(LOOPBACK, h2, &["http://evil.example/mcp"], Verdict::Host);
        check(
            LOOPBACK,
            h2,
            &["http://localhost/mcp", "host: evil.example"],
            Verdict::Malformed,
        );
        check(LOOPBACK, h2, &["/mcp", "host: localhost"], Verdict::In);
        check(LOOPBACK, h2, &["/mcp"], Verdict::Malformed);
    }

    #[test]
    fn origins() {
        for good in [
            "http://localhost",
            "http://LOCALHOST:6274",
            "https://127.0.0.1:3000",
            "http://[::1]:8080",
        ] {
            origin(LOOPBACK, good, Verdict::In);
            origin(EVERYWHERE, good, Verdict::In);
        }
        for bad in [
            "",
            "null",
            "https://evil.example",
            "http://127.0.0.1.evil.example",
            "http://localhost@evil.example",
            "http://localhost/path",
            "http://localhost, http://evil.example",
            "http://localhost http://evil.example",
            "ftp://localhost",
            "localhost",
            "*",
            "chrome-extension://abcdef",
        ] {
            origin(LOOPBACK, bad, Verdict::Origin);
            origin("127.0.0.1:8080 | *", bad, Verdict::Origin);
        }
        origin(EVERYWHERE, "http://198.51.100.1:8080", Verdict::Origin);
        let rules =
            "127.0.0.1:8080 | mcp.example api.example:8443 | https://app.example null vscode-webview://X/";
        for good in [
            "https://app.example",
            "https://APP.example:443",
            "null",
            "http://mcp.example:99",
            "https://api.example:8443",
            "vscode-webview://x/",
        ] {
            origin(rules, good, Verdict::In);
        }
        for bad in [
            "http://app.example",
            "https://app.example:8443",
            "https://api.example",
            "vscode-webview://y",
        ] {
            origin(rules, bad, Verdict::Origin);
        }
        origin("127.0.0.1:8080 | | *", "https://evil.example", Verdict::In);
    }

    #[test]
    fn an_origin_is_never_judged_against_the_host() {
        let request = [
            "/mcp",
            "host: 203.0.113.5:8080",
            "origin: http://203.0.113.5:8080",
        ];
        check(EVERYWHERE, Version::HTTP_11, &request, Verdict::Origin);
        let twice = [
            "/mcp",
            "host: localhost",
            "origin: http://localhost",
            "origin: http://localhost",
        ];
        check(LOOPBACK, Version::HTTP_11, &twice, Verdict::Origin);
    }
}

//! OAuth beside an MCP endpoint: where its metadata stands (RFC 9728, RFC 8414, OpenID Connect Discovery), and a backend's
//! own address in it, put into the words of the public one.
//! Law: only addresses of the backend's own origin are changed, and nothing else of a document or a challenge: the rest
//! is the backend's, byte for byte.
//! Absent on purpose: tokens, which pass, and any opinion on what they say.
//! Next: `relay/beside.rs`.

use memchr::memmem;

use crate::pure::rpc;

/// Whether a document describes a protected resource (RFC 9728, section 2): a challenge may name any path for it.
pub fn describes_resource(json: &[u8]) -> bool {
    ["resource", "authorization_servers"]
        .iter()
        .all(|name| rpc::lookup(json, &[name]).is_some())
}

/// Where metadata stands that a client looks for.
const METADATA: [&str; 3] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-authorization-server",
    OPENID,
];

const OPENID: &str = "/.well-known/openid-configuration";

/// A path of metadata, as far as it names whose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metadata<'a> {
    /// The host's.
    OfHost {
        /// The whole path.
        document: &'a str,
    },
    /// That of what stands at a path: `/.well-known/…/mcp`.
    OfPath {
        /// What stands before that path.
        document: &'a str,
        /// That path, with its slash.
        path: &'a str,
    },
    /// The same in the older way of OpenID Connect: `/mcp/.well-known/…`.
    Below {
        /// What stands before.
        path: &'a str,
    },
}

impl<'a> Metadata<'a> {
    /// What a path is, if it is one of metadata. One that a server may resolve to another place is none.
    pub fn at(path: &'a str) -> Option<Self> {
        if has_dot_segment(path) {
            return None;
        }
        for document in METADATA {
            if let Some(of) = path.strip_prefix(document) {
                let document = &path[..document.len()];
                return match of {
                    "" | "/" => Some(Self::OfHost { document: path }),
                    _ if of.starts_with('/') => Some(Self::OfPath { document, path: of }),
                    _ => None,
                };
            }
        }
        let path = path.strip_suffix(OPENID)?;
        Some(Self::Below { path })
    }

    /// The path whose metadata it is; `None`: the host's.
    pub const fn whose(self) -> Option<&'a str> {
        match self {
            Self::OfHost { .. } => None,
            Self::OfPath { path, .. } | Self::Below { path } => Some(path),
        }
    }
}

/// Whether a path may lead elsewhere than it reads. Servers resolve dot segments, some of them also where the dots or the
/// slashes are escaped, slashes are written backwards, or a parameter follows the dots.
fn has_dot_segment(path: &str) -> bool {
    let mut plain = path.to_ascii_lowercase();
    for (escaped, meant) in [("%2e", "."), ("%2f", "/"), ("%5c", "/"), ("%3b", ";")] {
        plain = plain.replace(escaped, meant);
    }
    let mut segments = plain.split(['/', '\\']);
    segments.any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// One path in place of another: an endpoint's here, and at its replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved<'a> {
    /// The path that is looked for.
    pub from: &'a str,
    /// What stands for it.
    pub to: &'a str,
}

impl Moved<'_> {
    /// The same path, where the endpoint stands elsewhere.
    pub fn path(self, path: &str) -> String {
        if let Some(metadata) = Metadata::at(path) {
            return match metadata {
                Metadata::OfPath { document, path } if path == self.from => format!("{document}{}", self.to),
                Metadata::Below { path } if path == self.from => format!("{}{OPENID}", self.to),
                Metadata::OfHost { .. } | Metadata::OfPath { .. } | Metadata::Below { .. } => path.to_owned(),
            };
        }
        match path.strip_prefix(self.from) {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '?', '#']) => {
                format!("{}{rest}", self.to)
            }
            Some(_) | None => path.to_owned(),
        }
    }
}

/// A backend's address and the public one.
#[derive(Clone, Copy, Debug)]
pub struct Public<'a> {
    /// The backend's origin, e.g. `http://127.0.0.1:3001`.
    pub own_origin: &'a str,
    /// What clients use in its place, without a slash at the end.
    pub url: &'a str,
    /// Where the endpoint stands at the backend, and for clients.
    pub endpoint: Moved<'a>,
}

impl Public<'_> {
    /// A JSON document with the public address in place of the backend's own, wherever a string begins with it.
    /// `None`: nothing is to be changed.
    pub fn document(self, json: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(json.len() + 64);
        let mut rest = json;
        let mut changed = None;
        while let Some(quote) = memchr::memchr(b'"', rest) {
            let (before, at) = rest.split_at(quote);
            let end = string_end(at);
            out.extend_from_slice(before);
            let token = &at[..end];
            match std::str::from_utf8(token)
                .ok()
                .and_then(|token| self.string(token))
            {
                Some(other) => {
                    out.extend_from_slice(other.as_bytes());
                    changed = Some(());
                }
                None => out.extend_from_slice(token),
            }
            rest = &at[end..];
        }
        out.extend_from_slice(rest);
        changed.map(|()| out)
    }

    /// A raw JSON string, if it is an address of the backend's.
    fn string(self, token: &str) -> Option<String> {
        let inside = token.strip_prefix('"')?.strip_suffix('"')?;
        let plain = inside.replace("\\/", "/");
        // What is written with other escapes is no address.
        if plain.contains('\\') {
            return None;
        }
        self.address(&plain).map(|address| format!("\"{address}\""))
    }

    /// A `WWW-Authenticate` with the public address in its `resource_metadata`. `None`: nothing is to be changed.
    pub fn challenge(self, value: &[u8]) -> Option<Vec<u8>> {
        const NAME: &[u8] = b"resource_metadata=\"";
        let start = memmem::find(value, NAME)? + NAME.len();
        let end = start + memchr::memchr(b'"', &value[start..])?;
        let address = self.address(std::str::from_utf8(&value[start..end]).ok()?)?;
        Some([&value[..start], address.as_bytes(), &value[end..]].concat())
    }

    /// The public address in place of one of the backend's.
    fn address(self, text: &str) -> Option<String> {
        let path = text.strip_prefix(self.own_origin)?;
        match path.chars().next() {
            None => Some(self.url.to_owned()),
            Some('/') => Some(format!("{}{}", self.url, self.endpoint.path(path))),
            // Another host, whose name begins alike.
            Some(_) => None,
        }
    }
}

/// Where the JSON string ends that begins here, behind its quote.
fn string_end(at: &[u8]) -> usize {
    let mut end = 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &at[end.min(at.len())..]) {
        let here = end + found;
        if at[here] == b'"' {
            return here + 1;
        }
        end = (here + 2).min(at.len());
    }
    at.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_metadata_stands() {
        let check = |path: &str, whose: Option<Option<&str>>| {
            assert_eq!(Metadata::at(path).map(Metadata::whose), whose, "{path}");
        };
        check("/.well-known/oauth-protected-resource", Some(None));
        check("/.well-known/oauth-protected-resource/", Some(None));
        check("/.well-known/oauth-protected-resource/mcp", Some(Some("/mcp")));
        check("/.well-known/oauth-authorization-server/a/b", Some(Some("/a/b")));
        check("/.well-known/openid-configuration", Some(None));
        check("/.well-known/openid-configuration/mcp", Some(Some("/mcp")));
        check("/mcp/.well-known/openid-configuration", Some(Some("/mcp")));
        check("/.well-known/oauth-protected-resources", None);
        check("/.well-known/other", None);
        check(
            "/.well-known/oauth-protected-resource/a..b/.c/d.",
            Some(Some("/a..b/.c/d.")),
        );
        for elsewhere in [
            "..",
            "../../admin",
            "./mcp",
            "a/..",
            "%2e%2E/admin",
            ".%2e/admin",
            "..%2fadmin",
            "..%5Cadmin",
            "..\\admin",
            "..;/admin",
            "..;v=1/admin",
            "..%3b/admin",
        ] {
            check(
                &format!("/.well-known/oauth-protected-resource/{elsewhere}"),
                None,
            );
            check(&format!("/{elsewhere}/.well-known/openid-configuration"), None);
        }
        check("/mcp", None);
    }

    #[test]
    fn a_path_moves_with_its_endpoint() {
        let moved = Moved {
            from: "/mcp",
            to: "/api/mcp",
        };
        for (path, expected) in [
            ("/mcp", "/api/mcp"),
            ("/mcp/x", "/api/mcp/x"),
            ("/mcpx", "/mcpx"),
            ("/token", "/token"),
            (
                "/.well-known/oauth-protected-resource",
                "/.well-known/oauth-protected-resource",
            ),
            (
                "/.well-known/oauth-protected-resource/mcp",
                "/.well-known/oauth-protected-resource/api/mcp",
            ),
            (
                "/.well-known/oauth-authorization-server/auth",
                "/.well-known/oauth-authorization-server/auth",
            ),
            (
                "/mcp/.well-known/openid-configuration",
                "/api/mcp/.well-known/openid-configuration",
            ),
        ] {
            assert_eq!(moved.path(path), expected);
        }
    }

    const PUBLIC: Public<'static> = Public {
        own_origin: "http://127.0.0.1:3001",
        url: "https://mcp.example.com/tools",
        endpoint: Moved {
            from: "/api/mcp",
            to: "/mcp",
        },
    };

    #[test]
    fn documents_name_the_public_address() {
        let check = |json: &str, expected: Option<&str>| {
            let found = PUBLIC.document(json.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{json}");
        };
        check(
            r#"{"resource": "http://127.0.0.1:3001/api/mcp","authorization_servers":["http://127.0.0.1:3001","https://auth.example"]}"#,
            Some(
                r#"{"resource": "https://mcp.example.com/tools/mcp","authorization_servers":["https://mcp.example.com/tools","https://auth.example"]}"#,
            ),
        );
        check(
            r#"{"token_endpoint":"http:\/\/127.0.0.1:3001\/token"}"#,
            Some(r#"{"token_endpoint":"https://mcp.example.com/tools/token"}"#),
        );
        for same in [
            r#"{"resource":"http://127.0.0.1:30011/mcp"}"#,
            r#"{"resource":"http://127.0.0.1:3001.evil.example/mcp"}"#,
            r#"{"text":"see \"http://127.0.0.1:3001/mcp\""}"#,
            r#"{"text":"at http://127.0.0.1:3001/mcp"}"#,
            r#"{"open":"http://127.0.0.1:3001"#,
            r#"{"open":"\"#,
            "",
        ] {
            check(same, None);
        }
    }

    #[test]
    fn what_describes_a_resource() {
        for (json, expected) in [
            (
                r#"{"resource":"http://a/mcp","authorization_servers":["http://b"]}"#,
                true,
            ),
            (r#"{"resource":"http://a/mcp"}"#, false),
            (r#"{"access_token":"t","token_type":"Bearer"}"#, false),
            ("<html>", false),
        ] {
            assert_eq!(describes_resource(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn challenges_name_the_public_address() {
        let check = |value: &str, expected: Option<&str>| {
            let found = PUBLIC.challenge(value.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{value}");
        };
        check(
            r#"Bearer error="invalid_token", resource_metadata="http://127.0.0.1:3001/.well-known/oauth-protected-resource/api/mcp", scope="a""#,
            Some(
                r#"Bearer error="invalid_token", resource_metadata="https://mcp.example.com/tools/.well-known/oauth-protected-resource/mcp", scope="a""#,
            ),
        );
        check(r#"Bearer resource_metadata="https://auth.example/x""#, None);
        check(r#"Bearer realm="http://127.0.0.1:3001/""#, None);
        check(r#"Bearer resource_metadata="http://127.0.0.1:3001"#, None);
        check("Basic", None);
    }
}

//! Reads what passes of a server's OAuth beside its endpoint.
//! Law: every key is asked for once, here; a path is matched whole, so that nothing passes that was not named.
//! Next: `check.rs`, for what it means beside other upstreams.

use super::bounds;
use super::fields::Fields;
use super::report::Origin;
use super::resolved::{Metadata, Oauth};

/// Reads the table.
pub(super) fn read(fields: &mut Fields<'_, '_>) -> Oauth {
    let metadata = [("off", Metadata::Off), ("pass", Metadata::Pass)];
    Oauth {
        metadata: fields.word("metadata", &metadata).unwrap_or_default(),
        public_url: public_url(fields),
        paths: paths(fields),
    }
}

fn public_url(fields: &mut Fields<'_, '_>) -> Option<Box<str>> {
    let text = fields.text("public_url")?;
    let plain = text.trim_end_matches('/');
    let rest = plain
        .strip_prefix("https://")
        .or_else(|| plain.strip_prefix("http://"));
    let good = rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.starts_with('/')
            && rest
                .bytes()
                .all(|c| c.is_ascii_graphic() && !matches!(c, b'?' | b'#' | b'"' | b'\\' | b'@'))
    });
    if good && plain.len() <= bounds::PATH_BYTES_MAX {
        return Some(plain.into());
    }
    let at = fields.at("public_url");
    let advice = "write what clients use before the path, e.g. \"https://mcp.example.com\"";
    fields.problem(&at, "public_url", format!("`{text}` is not an address"), advice);
    None
}

fn paths(fields: &mut Fields<'_, '_>) -> Vec<Box<str>> {
    let mut paths: Vec<Box<str>> = Vec::new();
    let given: Vec<(String, Origin)> = fields
        .texts("paths")
        .unwrap_or_default()
        .into_iter()
        .map(|(text, at)| (text.to_owned(), at.clone()))
        .collect();
    for (text, at) in given {
        let plain = text
            .bytes()
            .all(|c| c.is_ascii_graphic() && !matches!(c, b'?' | b'#' | b'\\'));
        if paths.len() == bounds::OAUTH_PATHS_MAX {
            let what = format!("has more than {} paths", bounds::OAUTH_PATHS_MAX);
            fields.problem(&at, "paths", what, "name those that clients and browsers need");
            break;
        }
        if plain && text.starts_with('/') && text.len() <= bounds::PATH_BYTES_MAX {
            paths.push(text.into());
        } else {
            let what = format!("`{text}` is not a path");
            fields.problem(&at, "paths", what, "write paths without query, e.g. [\"/token\"]");
        }
    }
    paths
}

//! Reads `replicas`: URLs, or tables of a URL and what holds for it.
//! Law: each replica is named once; a URL with credentials is refused, and is not repeated in what is said about it.
//! Next: `replica.rs`, which reads one URL.

use super::bounds;
use super::fields::Fields;
use super::raw::Raw;
use super::replica::{self, NotAReplica};
use super::report::Origin;
use super::resolved::Replica;
use crate::net::Authority;

/// What `replicas` looks like.
const EXAMPLE: &str = "write replicas = [\"http://127.0.0.1:3001/mcp\"]";

/// One item of `replicas`.
struct Item<'t> {
    url: &'t str,
    at: Origin,
    drain: Drain,
}

/// Whether a replica is to be drained.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drain {
    Yes,
    No,
}

/// The items of `replicas`: a URL, or a table of a URL and what holds for it.
fn items<'t>(fields: &mut Fields<'t, '_>) -> Option<Vec<Item<'t>>> {
    let node = fields.raw("replicas")?;
    let nodes = if let Raw::Array(items) = &node.value {
        items.as_slice()
    } else {
        std::slice::from_ref(node)
    };
    if nodes.is_empty() {
        fields.problem(&node.at, "replicas", "names no replica", EXAMPLE);
    }
    let mut items = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let item = if let Raw::Table(table) = &node.value {
            fields.item("replicas", index, (table, &node.at), |fields| {
                let (url, drain) = (fields.text("url"), fields.switch("drain"));
                let at = fields.at("url");
                if url.is_none() && fields.raw("url").is_none() {
                    let example = "write { url = \"http://127.0.0.1:3001/mcp\", drain = true }";
                    fields.problem(&at, "url", "is missing", example);
                }
                let drain = match drain {
                    Some(true) => Drain::Yes,
                    Some(false) | None => Drain::No,
                };
                url.map(|url| Item { url, at, drain })
            })
        } else {
            let (at, drain) = (node.at.clone(), Drain::No);
            fields
                .text_of("replicas", node)
                .map(|url| Item { url, at, drain })
        };
        items.extend(item);
    }
    Some(items)
}

/// `replicas`: URLs, each once; and which of them are to be drained.
pub(super) fn read(fields: &mut Fields<'_, '_>) -> (Vec<Replica>, Vec<Authority>) {
    let at = fields.at("replicas");
    let Some(items) = items(fields) else {
        fields.problem(&at, "replicas", "is missing", EXAMPLE);
        return (Vec::new(), Vec::new());
    };
    if items.len() > bounds::REPLICAS_MAX {
        let what = format!("names more than {} replicas", bounds::REPLICAS_MAX);
        fields.problem(&at, "replicas", what, "divide them among several upstreams");
        return (Vec::new(), Vec::new());
    }
    let mut drained = Vec::new();
    let mut replicas: Vec<Replica> = Vec::with_capacity(items.len());
    for Item { url, at, drain } in &items {
        match replica::parse(url) {
            Ok(replica) => {
                let twice = replicas
                    .iter()
                    .any(|other| other.authority == replica.authority && other.scheme == replica.scheme);
                if twice {
                    let what = format!("{} is there twice", replica.authority);
                    fields.problem(
                        at,
                        "replicas",
                        what,
                        "name each replica once; sessions are counted for each",
                    );
                } else {
                    if *drain == Drain::Yes {
                        drained.push(replica.authority.clone());
                    }
                    replicas.push(replica);
                }
            }
            Err(NotAReplica::Wrong(what, advice)) => fields.problem(at, "replicas", what, advice),
            Err(NotAReplica::Credentials) => {
                let what = "a URL with a user name or a password is refused";
                fields.problem(
                    &at.hidden(),
                    "replicas",
                    what,
                    "clients bring their own credentials, and they are passed on",
                );
            }
        }
    }
    if !replicas.is_empty() && drained.len() == replicas.len() {
        let what = "every replica is being drained, so that no session can begin";
        fields.warning(&at, "replicas", what, "take `drain = true` off the new ones");
    }
    (replicas, drained)
}

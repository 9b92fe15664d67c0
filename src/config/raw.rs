//! What the file and the flags say, as a tree whose every value knows where it was said.
//! Law: nothing is judged here but the shape of TOML itself; every syntax error is reported, not only the first.
//! The only door to the TOML reader.
//! Absent on purpose: types, defaults, keys. Why: a value from `--set` is read by the same code as one from the file.
//! Next: `fields.rs`.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::{Findings, Origin, Source};

/// A value and where it was said.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Where.
    pub(super) at: Origin,
    /// What.
    pub(super) value: Raw,
    /// The words of a flag, for a reader that wants text where TOML would see a number.
    pub(super) written: Option<Arc<str>>,
}

/// A value as TOML knows it.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    /// A table, inline or not.
    Table(Table),
    /// An array, of tables or not.
    Array(Vec<Node>),
    /// A string.
    Text(String),
    /// An integer that fits 64 bits.
    Integer(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// A kind that no setting has.
    Foreign(&'static str),
}

impl Raw {
    /// What it is, for a sentence like "is a table, not text".
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::Array(_) => "an array",
            Self::Text(_) => "text",
            Self::Integer(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::Foreign(kind) => kind,
        }
    }
}

/// A table: keys in no particular order.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The key.
    pub(super) key: Box<str>,
    /// Where the key stands.
    pub(super) key_at: Origin,
    /// The value.
    pub(super) node: Node,
}

impl Table {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| *entry.key == *key)
    }

    /// Every key with its value.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn put(&mut self, key: &str, node: Node) {
        match self.entries.iter_mut().find(|entry| *entry.key == *key) {
            Some(entry) => entry.node = node,
            None => self.entries.push(Entry {
                key: key.into(),
                key_at: node.at.clone(),
                node,
            }),
        }
    }

    /// The table under `key`, made if there is none; the kind of what stands there instead.
    fn descend(&mut self, key: &str, at: &Origin) -> Result<&mut Self, &'static str> {
        let place = match self.entries.iter().position(|entry| *entry.key == *key) {
            Some(place) => place,
            None => {
                self.put(key, Node::new(at.clone(), Raw::Table(Self::default())));
                self.entries.len() - 1
            }
        };
        match &mut self.entries[place].node.value {
            Raw::Table(table) => Ok(table),
            other => Err(other.kind()),
        }
    }
}

impl Node {
    fn table(&mut self) -> Option<&mut Table> {
        if let Raw::Table(table) = &mut self.value {
            Some(table)
        } else {
            None
        }
    }

    /// A value said at this place.
    pub(super) const fn new(at: Origin, value: Raw) -> Self {
        Self {
            at,
            value,
            written: None,
        }
    }
}

/// Reads a file's text. Syntax errors go to `findings`; what could be understood is returned.
pub(super) fn parse(source: &Source, findings: &mut Findings) -> Table {
    let (root, errors) = DeTable::parse_recoverable(&source.text);
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let at = if near_secret(&source.text, &span) {
            Origin::Hidden(span)
        } else {
            Origin::File(span)
        };
        findings.problem(&at, "", format!("not TOML: {}", error.message()), "");
    }
    table(root.into_inner(), &Origin::File)
}

/// Whether a syntax error stands in the table of secrets, where someone may have written one down.
fn near_secret(text: &str, span: &Range<usize>) -> bool {
    let before = text.get(..span.end.min(text.len())).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or(before).trim_start();
    let header = before
        .lines()
        .rev()
        .find(|line| line.trim_start().starts_with('['))
        .unwrap_or_default();
    header.contains("secret") || line.starts_with("secret")
}

fn table(from: DeTable<'_>, origin: &dyn Fn(Range<usize>) -> Origin) -> Table {
    let entries = from
        .into_iter()
        .map(|(key, value)| Entry {
            key_at: origin(key.span()),
            key: key.into_inner().as_ref().into(),
            node: node(value, origin),
        })
        .collect();
    Table { entries }
}

fn node(from: Spanned<DeValue<'_>>, origin: &dyn Fn(Range<usize>) -> Origin) -> Node {
    let at = origin(from.span());
    let value = match from.into_inner() {
        DeValue::String(text) => Raw::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Raw::Integer(number),
            Err(_) => Raw::Foreign("a number beyond 64 bits"),
        },
        DeValue::Boolean(value) => Raw::Boolean(value),
        DeValue::Array(items) => Raw::Array(items.into_iter().map(|item| node(item, origin)).collect()),
        DeValue::Table(inner) => Raw::Table(table(inner, origin)),
        DeValue::Float(_) => Raw::Foreign("a number with a fraction"),
        DeValue::Datetime(_) => Raw::Foreign("a date"),
    };
    Node::new(at, value)
}

/// One setting given on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    /// The whole flag, for messages.
    pub(super) said: &'a str,
    /// The key's path.
    pub(super) key: &'a str,
    /// The value as it was written.
    pub(super) value: &'a str,
}

impl Table {
    /// Puts the value of a flag into the tree, over what the file says. `upstream.KEY` means the one upstream,
    /// `upstream.NAME.KEY` the one of that name.
    pub(super) fn set(&mut self, given: Given<'_>, findings: &mut Findings) {
        let at = Origin::Flag(given.said.into());
        let mut path: Vec<&str> = given.key.split('.').collect();
        let Some(last) = path
            .pop()
            .filter(|last| !last.is_empty() && path.iter().all(|part| !part.is_empty()))
        else {
            findings.problem(
                &at,
                given.key,
                "is not a key",
                "write --set TABLE.KEY=VALUE, e.g. --set upstream.stream.keepalive=10s",
            );
            return;
        };
        let mut into = self;
        let mut path = path.into_iter();
        if let Some(rest) = given.key.strip_prefix("upstream.") {
            path.next();
            let (upstream, named) = match into.upstream_of(rest) {
                Ok(found) => found,
                Err(count) => {
                    let what = format!("means the one upstream, but there are {count}");
                    let advice = "name it: --set upstream.NAME.KEY=VALUE";
                    findings.problem(&at, given.key, what, advice);
                    return;
                }
            };
            for _ in 0..named {
                path.next();
            }
            into = upstream;
        }
        for part in path {
            into = match into.descend(part, &at) {
                Ok(table) => table,
                Err(kind) => {
                    findings.problem(
                        &at,
                        given.key,
                        format!("`{part}` is {kind}, not a table"),
                        "look the key up in config/full.toml",
                    );
                    return;
                }
            };
        }
        into.put(last, flag_value(given.value, &at));
    }

    /// Puts a value under `table.key`, in place of what stands there. A `table` that is none is left for its reader.
    pub(super) fn replace(&mut self, table: &str, key: &str, node: Node) {
        let at = node.at.clone();
        if let Ok(into) = self.descend(table, &at) {
            into.put(key, node);
        }
    }

    /// Takes `table.key` out of the tree.
    pub(super) fn remove(&mut self, table: &str, key: &str) {
        if let Ok(from) = self.descend(table, &Origin::Whole) {
            from.entries.retain(|entry| *entry.key != *key);
        }
    }

    /// Puts one upstream with these replicas into a tree that has none.
    pub(super) fn put_upstream(&mut self, replicas: Vec<Node>) {
        let at = replicas.first().map_or(Origin::Whole, |first| first.at.clone());
        let mut upstream = Self::default();
        upstream.put("replicas", Node::new(at.clone(), Raw::Array(replicas)));
        let upstream = Node::new(at.clone(), Raw::Table(upstream));
        self.put("upstream", Node::new(at, Raw::Array(vec![upstream])));
    }

    /// The upstream that the rest of a key is about, and how many parts of the rest are its name: the one that is named,
    /// else the only one. How many there are, if that does not tell.
    fn upstream_of(&mut self, rest: &str) -> Result<(&mut Self, usize), usize> {
        let entry = self.entries.iter_mut().find(|entry| &*entry.key == "upstream");
        let tables: Vec<&mut Self> = match entry.map(|entry| &mut entry.node.value) {
            Some(Raw::Array(upstreams)) => upstreams.iter_mut().filter_map(Node::table).collect(),
            Some(Raw::Table(table)) => vec![table],
            Some(_) | None => Vec::new(),
        };
        let count = tables.len();
        // A part that is a table of every upstream is no name where there is only one.
        let is_table = |name: &str| count == 1 && UPSTREAM_TABLES.contains(&name);
        let mut only = None;
        for table in tables {
            if let Some(name) = table.name()
                && !is_table(&name)
                && rest
                    .strip_prefix(&*name)
                    .is_some_and(|rest| rest.starts_with('.'))
            {
                return Ok((table, name.split('.').count()));
            }
            only = Some(table);
        }
        match (only, count) {
            (Some(table), 1) => Ok((table, 0)),
            (_, count) => Err(count),
        }
    }

    /// What an upstream is called: its name, else its path, or that of its first replica, without slashes.
    fn name(&self) -> Option<String> {
        let text = |key: &str| match self.get(key).map(|entry| &entry.node.value) {
            Some(Raw::Text(text)) => Some(text.as_str()),
            Some(Raw::Array(items)) => match items.first().map(|first| &first.value) {
                Some(Raw::Text(text)) => Some(text.as_str()),
                Some(_) | None => None,
            },
            Some(_) | None => None,
        };
        let path_of = |url: &'_ str| {
            let (_, rest) = url.split_once("://")?;
            let (_, path) = rest.split_once('/')?;
            path.split('?').next().map(str::to_owned)
        };
        text("name")
            .map(str::to_owned)
            .or_else(|| {
                let path = text("path")
                    .map(str::to_owned)
                    .or_else(|| path_of(text("replicas")?));
                path.map(|path| path.trim_matches('/').replace('/', "-"))
            })
            .filter(|name| !name.is_empty())
    }
}

/// The tables that each upstream may have.
const UPSTREAM_TABLES: [&str; 5] = ["health", "tls", "exchange", "session", "stream"];

/// The value of a flag: TOML if it is that, else the text as it stands (`15s`, `127.0.0.1:0`).
fn flag_value(written: &str, at: &Origin) -> Node {
    let value = match DeValue::parse(written) {
        Ok(value) => node(value, &|_| at.clone()).value,
        Err(_) => Raw::Text(written.into()),
    };
    Node {
        at: at.clone(),
        value,
        written: Some(written.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(table: &Table) -> String {
        let mut entries: Vec<String> = table
            .entries
            .iter()
            .map(|entry| format!("{}={}", entry.key, shown_node(&entry.node)))
            .collect();
        entries.sort();
        entries.join(" ")
    }

    fn shown_node(node: &Node) -> String {
        match &node.value {
            Raw::Table(inner) => format!("{{{}}}", shown(inner)),
            Raw::Array(items) => format!("[{}]", items.iter().map(shown_node).collect::<Vec<_>>().join(",")),
            Raw::Text(text) => format!("'{text}'"),
            Raw::Integer(number) => number.to_string(),
            Raw::Boolean(value) => value.to_string(),
            Raw::Foreign(kind) => format!("<{kind}>"),
        }
    }

    fn check(text: &str, sets: &[&str], expected: Result<&str, &str>) {
        let source = Source {
            name: "x.toml".into(),
            text: text.into(),
        };
        let mut findings = Findings::default();
        let mut root = parse(&source, &mut findings);
        for set in sets {
            let (key, value) = set.split_once('=').unwrap();
            root.set(
                Given {
                    said: &format!("--set {set}"),
                    key,
                    value,
                },
                &mut findings,
            );
        }
        match (findings.verdict(&source), expected) {
            (Ok(_), Ok(expected)) => assert_eq!(shown(&root), expected, "{text} {sets:?}"),
            (Err(problems), Err(expected)) => {
                assert!(
                    problems.to_string().contains(expected),
                    "{text} {sets:?}: {problems}"
                );
            }
            (got, expected) => panic!("{text} {sets:?}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_file_becomes_a_tree() {
        check("", &[], Ok(""));
        check(
            "a = 1\n[b]\nc = ['x', 2]\nd = true",
            &[],
            Ok("a=1 b={c=['x',2] d=true}"),
        );
        check(
            "[[u]]\na = 1\n[u.t]\nb = 2\n[[u]]\na = 3",
            &[],
            Ok("u=[{a=1 t={b=2}},{a=3}]"),
        );
        check("a = 1.5", &[], Ok("a=<a number with a fraction>"));
        check("a = 2020-01-01", &[], Ok("a=<a date>"));
        check("a = 99999999999999999999", &[], Ok("a=<a number beyond 64 bits>"));
        check("a = 0x10", &[], Ok("a=16"));
        check("a = ", &[], Err("x.toml:1:"));
    }

    #[test]
    fn every_syntax_error_is_reported() {
        let source = Source {
            name: "x.toml".into(),
            text: "a = = 1\nb = 2\nc = ]\n[d\n".into(),
        };
        let mut findings = Findings::default();
        parse(&source, &mut findings);
        let problems = findings.verdict(&source).unwrap_err();
        assert!(problems.remarks().len() >= 3, "{problems}");
    }

    #[test]
    fn a_syntax_error_among_secrets_shows_no_line() {
        check("[secret]\nfile = \"hush", &[], Err("x.toml:2:"));
        let source = Source {
            name: "x.toml".into(),
            text: "[secret]\nvalue = \"hush".into(),
        };
        let mut findings = Findings::default();
        parse(&source, &mut findings);
        let said = findings.verdict(&source).unwrap_err().to_string();
        assert!(!said.contains("hush"), "{said}");
    }

    #[test]
    fn a_flag_goes_over_the_file() {
        check("[a]\nb = 1", &["a.b=2"], Ok("a={b=2}"));
        check("", &["a.b.c=15s"], Ok("a={b={c='15s'}}"));
        check("", &["a.b=127.0.0.1:0"], Ok("a={b='127.0.0.1:0'}"));
        check("", &["a.b=['x','y']"], Ok("a={b=['x','y']}"));
        check("", &["a.b=\"5\""], Ok("a={b='5'}"));
        check("", &["a.b=x=y"], Ok("a={b='x=y'}"));
        check(
            "[[upstream]]\nreplicas = []",
            &["upstream.stream.retry=2s"],
            Ok("upstream=[{replicas=[] stream={retry='2s'}}]"),
        );
        check(
            "[[upstream]]\n[[upstream]]",
            &["upstream.path=/x"],
            Err("there are 2"),
        );
        let two = "[[upstream]]\nname = 'a'\n[[upstream]]\npath = '/b/c'";
        check(
            two,
            &["upstream.a.stream.retry=2s", "upstream.b-c.balance=random"],
            Ok("upstream=[{name='a' stream={retry='2s'}},{balance='random' path='/b/c'}]"),
        );
        check(two, &["upstream.d.balance=random"], Err("there are 2"));
        let dotted = "[[upstream]]\nname = 'a.b'\n[[upstream]]\nname = 'stream'";
        check(
            dotted,
            &["upstream.a.b.path=/x", "upstream.stream.retry=2s"],
            Ok("upstream=[{name='a.b' path='/x'},{name='stream' retry='2s'}]"),
        );
        check(
            "[[upstream]]\nname = 'stream'",
            &["upstream.stream.retry=2s"],
            Ok("upstream=[{name='stream' stream={retry='2s'}}]"),
        );
        check("", &["upstream.path=/x"], Err("there are 0"));
        check("a = 1", &["a.b=2"], Err("`a` is a number, not a table"));
        check("", &[".=2"], Err("is not a key"));
        check("", &["a..b=2"], Err("is not a key"));
        check("", &["=2"], Err("is not a key"));
    }
}

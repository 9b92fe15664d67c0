//! Reads a table key by key: asking for a key is what makes it known.
//! Law: what nobody asked for is an unknown key, and refused; a wrong value is noted and the default goes on,
//! so that one reading finds everything.
//! Absent on purpose: any key's name or meaning.
//! Next: `server.rs` and `upstream.rs`, which ask.

use std::time::Duration;

use super::bounds::Bounded;
use super::raw::{Entry, Node, Raw, Table};
use super::reading::{Known, Reading, Unknown, nearest};
use super::report::Origin;
use super::units::{self, NotAQuantity};

/// The path of a table, as it is shown (`upstream[0].stream`) and as it is known (`upstream.stream`).
#[derive(Clone, Debug, Default)]
struct Path {
    shown: String,
    known: String,
}

impl Path {
    fn child(&self, key: &str, index: Option<usize>) -> Self {
        let join = |to: &str, part: &str| {
            if to.is_empty() {
                part.to_owned()
            } else {
                format!("{to}.{part}")
            }
        };
        let shown = index.map_or_else(|| key.to_owned(), |index| format!("{key}[{index}]"));
        Self {
            shown: join(&self.shown, &shown),
            known: join(&self.known, key),
        }
    }
}

/// One table while it is read. A table that is missing reads as an empty one.
#[derive(Debug)]
pub(super) struct Fields<'t, 'r> {
    reading: &'r mut Reading,
    table: Option<&'t Table>,
    path: Path,
    at: Origin,
    asked: Vec<&'t str>,
}

/// Reads a whole document.
pub(super) fn document<R>(
    reading: &mut Reading,
    root: &Table,
    read: impl FnOnce(&mut Fields<'_, '_>) -> R,
) -> R {
    Fields::over(reading, Some(root), Path::default(), Origin::Whole, read)
}

impl<'t> Fields<'t, '_> {
    fn over<R>(
        reading: &mut Reading,
        table: Option<&'t Table>,
        path: Path,
        at: Origin,
        read: impl FnOnce(&mut Fields<'t, '_>) -> R,
    ) -> R {
        let mut fields = Fields {
            reading,
            table,
            path,
            at,
            asked: Vec::new(),
        };
        let value = read(&mut fields);
        let Fields {
            reading,
            table,
            path,
            asked,
            ..
        } = fields;
        for entry in table.map_or(&[][..], Table::entries) {
            if !asked.contains(&&*entry.key) {
                reading.unknown.push(Unknown {
                    at: entry.key_at.clone(),
                    path: path.child(&entry.key, None).shown,
                    table: path.known.clone(),
                    key: entry.key.clone(),
                });
            }
        }
        value
    }

    /// Where a key's value was said; where the table was, if it was not.
    pub(super) fn at(&self, key: &str) -> Origin {
        self.table
            .and_then(|table| table.get(key))
            .map_or_else(|| self.at.clone(), |entry| entry.node.at.clone())
    }

    /// Where the first of these keys that was said was said.
    pub(super) fn at_any(&self, keys: &[&str]) -> Origin {
        keys.iter()
            .find_map(|key| self.table.and_then(|table| table.get(key)))
            .map_or_else(|| self.at.clone(), |entry| entry.node.at.clone())
    }

    /// Notes a problem with a key.
    pub(super) fn problem(
        &mut self,
        at: &Origin,
        key: &str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let path = if key.is_empty() {
            self.path.shown.clone()
        } else {
            self.path.child(key, None).shown
        };
        self.reading.findings.problem(at, &path, what, advice);
    }

    /// Notes a warning about a key.
    pub(super) fn warning(
        &mut self,
        at: &Origin,
        key: &str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) {
        let path = if key.is_empty() {
            self.path.shown.clone()
        } else {
            self.path.child(key, None).shown
        };
        self.reading.findings.warning(at, &path, what, advice);
    }

    /// The value of a key as it stands. From here on the key is known.
    pub(super) fn raw(&mut self, key: &'static str) -> Option<&'t Node> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
            self.reading.known.push(Known {
                table: self.path.known.clone(),
                key,
            });
        }
        self.table
            .and_then(|table| table.get(key))
            .map(|Entry { node, .. }| node)
    }

    /// The entries whose keys nobody asked for so far; from here on they are known, and the caller's to report.
    pub(super) fn rest(&mut self) -> Vec<&'t Entry> {
        let entries = self.table.map_or(&[][..], Table::entries);
        let rest: Vec<&'t Entry> = entries
            .iter()
            .filter(|entry| !self.asked.contains(&&*entry.key))
            .collect();
        self.asked.extend(rest.iter().map(|entry| &*entry.key));
        rest
    }

    /// The text of a key, or `None` if it is missing or no text (which is noted).
    pub(super) fn text(&mut self, key: &'static str) -> Option<&'t str> {
        let node = self.raw(key)?;
        self.text_of(key, node)
    }

    /// The text of this value of a key.
    pub(super) fn text_of(&mut self, key: &str, node: &'t Node) -> Option<&'t str> {
        match (&node.value, &node.written) {
            (Raw::Text(text), _) => Some(text),
            // A flag has no quotes: `--set upstream.name=7` is text where text is wanted.
            (Raw::Integer(_) | Raw::Boolean(_) | Raw::Foreign(_), Some(written)) => Some(written),
            (other, _) => {
                self.problem(
                    &node.at,
                    key,
                    format!("is {}, not text", other.kind()),
                    "put it in quotes",
                );
                None
            }
        }
    }

    /// The texts of a key that is an array of texts, or one text; each with its place. `None` if it is missing.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<(&'t str, &'t Origin)>> {
        let node = self.raw(key)?;
        let Raw::Array(items) = &node.value else {
            return Some(
                self.text_of(key, node)
                    .map(|text| (text, &node.at))
                    .into_iter()
                    .collect(),
            );
        };
        Some(
            items
                .iter()
                .filter_map(|item| Some((self.text_of(key, item)?, &item.at)))
                .collect(),
        )
    }

    /// A time such as `"30s"`.
    pub(super) fn time(&mut self, key: &'static str, bounded: Bounded<Duration>) -> Duration {
        let Some(node) = self.raw(key) else {
            return bounded.default;
        };
        self.quantity(key, node, bounded, units::time, units::time_text)
    }

    /// A size such as `"8MiB"`.
    pub(super) fn size(&mut self, key: &'static str, bounded: Bounded<usize>) -> usize {
        let Some(node) = self.raw(key) else {
            return bounded.default;
        };
        self.quantity(key, node, bounded, units::size, units::size_text)
    }

    fn quantity<T: Copy + PartialOrd>(
        &mut self,
        key: &'static str,
        node: &'t Node,
        bounded: Bounded<T>,
        read: fn(&str) -> Result<T, NotAQuantity>,
        print: fn(T) -> String,
    ) -> T {
        let text = match (&node.value, &node.written) {
            (Raw::Text(text), _) => text.clone(),
            (Raw::Integer(number), _) => number.to_string(),
            (Raw::Table(_) | Raw::Array(_) | Raw::Boolean(_) | Raw::Foreign(_), _) => {
                let advice = format!("write a number and a unit, e.g. \"{}\"", print(bounded.default));
                self.problem(&node.at, key, format!("is {}", node.value.kind()), advice);
                return bounded.default;
            }
        };
        match read(&text) {
            Ok(value) => self.within(key, &node.at, value, bounded, print),
            Err(NotAQuantity { what, advice }) => {
                self.problem(&node.at, key, what, advice);
                bounded.default
            }
        }
    }

    fn within<T: Copy + PartialOrd>(
        &mut self,
        key: &str,
        at: &Origin,
        value: T,
        bounded: Bounded<T>,
        print: fn(T) -> String,
    ) -> T {
        let Bounded { default, least, most } = bounded;
        if value >= least && value <= most {
            return value;
        }
        let what = format!("{} is out of range", print(value));
        let advice = format!(
            "between {} and {}; the default is {}",
            print(least),
            print(most),
            print(default)
        );
        self.problem(at, key, what, advice);
        default
    }

    /// A plain number.
    pub(super) fn count(&mut self, key: &'static str, bounded: Bounded<usize>) -> usize {
        let Some(node) = self.raw(key) else {
            return bounded.default;
        };
        let print = |count: usize| count.to_string();
        match node.value {
            Raw::Integer(number) => match usize::try_from(number) {
                Ok(number) => self.within(key, &node.at, number, bounded, print),
                Err(_) => {
                    self.problem(
                        &node.at,
                        key,
                        format!("{number} is out of range"),
                        "no number here is negative",
                    );
                    bounded.default
                }
            },
            Raw::Text(_) | Raw::Boolean(_) | Raw::Array(_) | Raw::Table(_) | Raw::Foreign(_) => {
                let advice = format!("write a plain number without quotes, e.g. {}", bounded.default);
                self.problem(
                    &node.at,
                    key,
                    format!("is {}, not a number", node.value.kind()),
                    advice,
                );
                bounded.default
            }
        }
    }

    /// One of a few words; the first is the default.
    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(key)?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let advice = match nearest(text, all.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"? (one of {})", all.join(", ")),
            None => format!("one of {}", all.join(", ")),
        };
        let at = self.at(key);
        self.problem(&at, key, format!("`{text}` is none of its words"), advice);
        None
    }

    /// `true` or `false`.
    pub(super) fn switch(&mut self, key: &'static str) -> Option<bool> {
        let node = self.raw(key)?;
        let Raw::Boolean(value) = node.value else {
            self.problem(
                &node.at,
                key,
                format!("is {}", node.value.kind()),
                "write true or false, without quotes",
            );
            return None;
        };
        Some(value)
    }

    /// Reads the table under a key; a missing one reads as empty.
    pub(super) fn inner<R>(&mut self, key: &'static str, read: impl FnOnce(&mut Fields<'t, '_>) -> R) -> R {
        let node = self.raw(key);
        let path = self.path.child(key, None);
        let (table, at) = match node.map(|node| (&node.value, &node.at)) {
            Some((Raw::Table(table), at)) => (Some(table), at.clone()),
            Some((other, at)) => {
                let advice = format!("write it as a table: [{}]", path.known);
                self.problem(at, key, format!("is {}, not a table", other.kind()), advice);
                (None, at.clone())
            }
            None => (None, self.at.clone()),
        };
        Fields::over(self.reading, table, path, at, read)
    }

    /// Reads each table of the array under a key.
    pub(super) fn each<R>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Fields<'t, '_>) -> R,
    ) -> Vec<R> {
        let Some(node) = self.raw(key) else {
            return Vec::new();
        };
        let advice = format!("begin each with [[{}]]", self.path.child(key, None).known);
        let items = match &node.value {
            Raw::Array(items) => items.as_slice(),
            Raw::Table(_) => {
                self.problem(
                    &node.at,
                    key,
                    "is one table, not an array of tables",
                    advice.as_str(),
                );
                std::slice::from_ref(node)
            }
            other @ (Raw::Text(_) | Raw::Integer(_) | Raw::Boolean(_) | Raw::Foreign(_)) => {
                self.problem(
                    &node.at,
                    key,
                    format!("is {}, not an array of tables", other.kind()),
                    advice.as_str(),
                );
                &[]
            }
        };
        let mut read_one = |(index, item): (usize, &'t Node)| {
            let Raw::Table(table) = &item.value else {
                self.problem(
                    &item.at,
                    key,
                    format!("holds {}, not tables", item.value.kind()),
                    advice.as_str(),
                );
                return None;
            };
            let path = self.path.child(key, Some(index));
            Some(Fields::over(
                self.reading,
                Some(table),
                path,
                item.at.clone(),
                &mut read,
            ))
        };
        items.iter().enumerate().filter_map(&mut read_one).collect()
    }

    /// Reads a table that stands where an item of an array stands.
    pub(super) fn item<R>(
        &mut self,
        key: &'static str,
        index: usize,
        node: (&'t Table, &Origin),
        read: impl FnOnce(&mut Fields<'t, '_>) -> R,
    ) -> R {
        let path = self.path.child(key, Some(index));
        Fields::over(self.reading, Some(node.0), path, node.1.clone(), read)
    }
}

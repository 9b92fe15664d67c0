//! What one reading of a configuration brings to light, and the way from an unknown key to the one that was meant.
//! Law: a key exists if somebody asked for it; so the advice can't name a key that does not exist.
//! Absent on purpose: tables and values (`fields.rs`).
//! Next: `fields.rs`.

use super::report::{Findings, Origin};

/// How alike two words must be for one to be suggested for the other, from 0 to 1.
const ALIKE_MIN: f64 = 0.8;

/// A key that exists: its table's path (`upstream.stream`, no indices) and its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Known {
    /// The table's path; empty for the top.
    pub(super) table: String,
    /// The key.
    pub(super) key: &'static str,
}

/// One reading of one configuration.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// What was found.
    pub(super) findings: Findings,
    /// Every key that was asked for.
    pub(super) known: Vec<Known>,
    /// Every key that nobody asked for.
    pub(super) unknown: Vec<Unknown>,
}

/// A key that nobody asked for.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Where it stands.
    pub(super) at: Origin,
    /// Its path as it is shown.
    pub(super) path: String,
    /// Its table's path, no indices.
    pub(super) table: String,
    /// The key.
    pub(super) key: Box<str>,
}

impl Reading {
    /// Reports the keys that nobody asked for. Call: once, when every table was read.
    pub(super) fn finish(mut self) -> Findings {
        for Unknown { at, path, table, key } in std::mem::take(&mut self.unknown) {
            let advice = self.advice(&table, &key);
            let at = if may_be_secret(&key) { at.hidden() } else { at };
            self.findings.problem(&at, &path, "unknown key", advice);
        }
        self.findings
    }

    fn advice(&self, table: &str, key: &str) -> String {
        let home = |table: &str| match table {
            "" => "the top of the file".to_owned(),
            "upstream" => "[[upstream]]".to_owned(),
            _ => format!("[{table}]"),
        };
        let here: Vec<&'static str> = self
            .known
            .iter()
            .filter(|known| known.table == table)
            .map(|k| k.key)
            .collect();
        if let Some(near) = nearest(key, here.iter().copied()) {
            return format!("did you mean `{near}`?");
        }
        if let Some(known) = self.known.iter().find(|known| known.key == key) {
            return format!("`{key}` belongs in {}", home(&known.table));
        }
        if let Some(near) = nearest(key, self.known.iter().map(|known| known.key)) {
            let known = self.known.iter().find(|known| known.key == near);
            return format!(
                "did you mean `{near}` in {}?",
                home(known.map_or("", |known| &known.table))
            );
        }
        let mut here = here;
        here.sort_unstable();
        here.dedup();
        format!("{} knows: {}", home(table), here.join(", "))
    }
}

/// Whether a key that does not exist sounds like one whose value is nobody's business.
fn may_be_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["secret", "pass", "token", "credential", "private"]
        .iter()
        .any(|word| key.contains(word))
}

/// Longest word that anybody can have meant another word by, in bytes. Comparing costs the product of both lengths.
const WORD_BYTES_MAX: usize = 64;

/// The word most like `word`, if any is alike enough.
pub(super) fn nearest<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let plain = word.to_ascii_lowercase().replace('-', "_");
    words
        .map(|candidate| (alike(&plain, candidate), candidate))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// How alike two words are, from 0 to 1: by their beginning, by one slip of the finger, or since one is a part of the
/// other (`idle`, `session_idle`).
fn alike(word: &str, candidate: &str) -> f64 {
    let by_letters = strsim::jaro_winkler(word, candidate);
    let slip = word.len() > 2 && strsim::damerau_levenshtein(word, candidate) == 1;
    let by_slip = if slip { 0.95 } else { 0.0 };
    let part = word.len() > 2 && candidate.split('_').any(|part| part == word);
    let by_part = if part { ALIKE_MIN } else { 0.0 };
    by_letters.max(by_slip).max(by_part)
}

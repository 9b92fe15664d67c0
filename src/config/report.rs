//! What is wrong with a configuration, said so that a person can put it right.
//! Law: all problems at once, each with its place, its key, what is wrong and what to do.
//! A line that may hold a secret is never shown.
//! Absent on purpose: any judgement; `fields.rs` and its callers judge.
//! Next: `raw.rs`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::files::Seen;

/// Longest piece of a source line that is shown, in characters: what fits a terminal beside the margin.
const EXCERPT_CHARS_MAX: usize = 120;

/// Longest key, and longest sentence with what somebody wrote in it, that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 512;

/// Most problems (and warnings) that are told at once: nobody reads more, and each costs a count of lines.
const REMARKS_MAX: usize = 100;

/// Where a value comes from, before lines are counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// These bytes of the file.
    File(Range<usize>),
    /// The same, but the line must not be shown.
    Hidden(Range<usize>),
    /// This flag of the command line, as it was given.
    Flag(Arc<str>),
    /// Nothing that was said: the value is missing, or the file as a whole is meant.
    Whole,
}

impl Origin {
    /// The same place, its line not to be shown.
    pub(super) fn hidden(&self) -> Self {
        match self {
            Self::File(span) | Self::Hidden(span) => Self::Hidden(span.clone()),
            Self::Flag(said) => {
                let end = if said.starts_with("--set ") {
                    said.find('=')
                } else {
                    said.find(' ')
                };
                Self::Flag(said[..end.unwrap_or(said.len())].into())
            }
            Self::Whole => Self::Whole,
        }
    }

    fn start(&self) -> usize {
        match self {
            Self::File(span) | Self::Hidden(span) => span.start,
            Self::Whole => usize::MAX - 1,
            Self::Flag(_) => usize::MAX,
        }
    }
}

/// The file that a configuration was read from, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    /// Its name as the operator wrote it; empty if there is none.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
}

/// One thing found, before lines are counted.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// Where.
    pub(super) at: Origin,
    /// Key path, e.g. `upstream[0].stream.keepalive`; empty if no key is meant.
    pub(super) key: String,
    /// What is wrong.
    pub(super) what: String,
    /// What to do.
    pub(super) advice: String,
}

/// Where in the operator's words something stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In a file.
    Line {
        /// The file's name as it was given.
        file: String,
        /// Line, counted from 1.
        line: usize,
        /// Column in characters, counted from 1.
        column: usize,
    },
    /// In a flag of the command line, quoted as it was given.
    Flag(String),
    /// In no one place: the file (or, with an empty name, the command line) as a whole.
    Whole {
        /// The file's name as it was given; empty where there is no file.
        file: String,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Flag(said) => f.write_str(said),
            Self::Whole { file } if file.is_empty() => f.write_str("command line"),
            Self::Whole { file } => f.write_str(file),
        }
    }
}

/// A piece of a source line and the part of it that is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Excerpt {
    text: String,
    indent: usize,
    width: usize,
}

/// One thing found in a configuration, with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    place: Place,
    key: String,
    what: String,
    advice: String,
    excerpt: Option<Excerpt>,
}

impl Remark {
    fn new(finding: Finding, source: &Source) -> Self {
        let Finding {
            at,
            key,
            what,
            advice,
        } = finding;
        let (place, excerpt) = match &at {
            Origin::File(span) => {
                let (place, excerpt) = locate(source, span);
                (place, Some(excerpt))
            }
            Origin::Hidden(span) => (locate(source, span).0, None),
            Origin::Flag(said) => (Place::Flag(shown(said.to_string())), None),
            Origin::Whole => (
                Place::Whole {
                    file: source.name.clone(),
                },
                None,
            ),
        };
        Self {
            place,
            key: shown(key),
            what: shown(what),
            advice: shown(advice),
            excerpt,
        }
    }

    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The key that is meant, e.g. `upstream[0].stream.keepalive`; empty if none is.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What to do about it.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        writeln!(f, "{}", self.what)?;
        if let (Some(excerpt), Place::Line { line, .. }) = (&self.excerpt, &self.place) {
            let number = line.to_string();
            let margin = number.len();
            writeln!(f, "  {:margin$} |", "")?;
            writeln!(f, "  {number} | {}", excerpt.text)?;
            writeln!(
                f,
                "  {:margin$} | {:indent$}{:^<width$}",
                "",
                "",
                "",
                indent = excerpt.indent,
                width = excerpt.width
            )?;
        }
        if self.advice.is_empty() {
            Ok(())
        } else {
            writeln!(f, "  = {}", self.advice)
        }
    }
}

/// The text, cut where it is longer than anybody reads.
fn shown(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(SHOWN_CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Counts lines and columns, and cuts the line to what can be shown.
fn locate(source: &Source, span: &Range<usize>) -> (Place, Excerpt) {
    let text = source.text.as_str();
    let start = floor_boundary(text, span.start);
    let end = floor_boundary(text, span.end.max(start));
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let line_end = text[start..]
        .find('\n')
        .map_or(text.len(), |newline| start + newline);
    let line = text[..start].matches('\n').count() + 1;
    let before = text[line_start..start].chars().count();
    let meant = text[start..end.clamp(start, line_end)]
        .trim_end()
        .chars()
        .count()
        .max(1);
    let skipped = before.saturating_sub(EXCERPT_CHARS_MAX / 2);
    let shown: String = text[line_start..line_end]
        .trim_end()
        .chars()
        .skip(skipped)
        .take(EXCERPT_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let indent = before - skipped;
    let width = meant.min(EXCERPT_CHARS_MAX - indent);
    let place = Place::Line {
        file: source.name.clone(),
        line,
        column: before + 1,
    };
    (
        place,
        Excerpt {
            text: shown,
            indent,
            width,
        },
    )
}

/// The last character boundary at or before `at`, within the text.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Something that is allowed and probably not meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning(Remark);

impl Warning {
    /// What it says, in parts.
    pub fn remark(&self) -> &Remark {
        &self.0
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warning: {}", self.0)
    }
}

/// Everything that is wrong with a configuration, in the order of the file; at least one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems {
    file: String,
    remarks: Vec<Remark>,
    count: usize,
    warnings: Vec<Warning>,
    files: Vec<Seen>,
}

impl Problems {
    /// One problem with the whole of a file.
    pub(super) fn single(source: &Source, what: &str, advice: &str) -> Self {
        let finding = Finding {
            at: Origin::Whole,
            key: String::new(),
            what: what.into(),
            advice: advice.into(),
        };
        Self {
            file: source.name.clone(),
            remarks: vec![Remark::new(finding, source)],
            count: 1,
            warnings: Vec::new(),
            files: Vec::new(),
        }
    }

    /// What is wrong, in the order of the file; at most 100 of them.
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// The same, with the files that were read or should have been: a change of one may put it right.
    pub(super) fn in_files(self, files: Vec<Seen>) -> Self {
        Self { files, ..self }
    }

    /// The files that were read or should have been.
    pub fn files(&self) -> &[Seen] {
        &self.files
    }

    /// What is allowed and probably not meant, beside what is wrong.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for remark in &self.remarks {
            writeln!(f, "error: {remark}")?;
        }
        let place = if self.file.is_empty() {
            "command line"
        } else {
            &self.file
        };
        match (self.count, self.remarks.len()) {
            (1, _) => write!(f, "{place}: 1 problem"),
            (many, shown) if shown < many => {
                write!(f, "{place}: {many} problems; the first {shown} are shown")
            }
            (many, _) => write!(f, "{place}: {many} problems"),
        }
    }
}

impl std::error::Error for Problems {}

/// Everything found so far, and the keys that exist.
#[derive(Debug, Default)]
pub(super) struct Findings {
    problems: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl Findings {
    /// Notes something that must be put right.
    pub(super) fn problem(
        &mut self,
        at: &Origin,
        key: &str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.problems.push(Finding {
            at: at.clone(),
            key: key.into(),
            what: what.into(),
            advice: advice.into(),
        });
    }

    /// Notes something that is allowed and probably not meant.
    pub(super) fn warning(
        &mut self,
        at: &Origin,
        key: &str,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.warnings.push(Finding {
            at: at.clone(),
            key: key.into(),
            what: what.into(),
            advice: advice.into(),
        });
    }

    /// The verdict: `Ok` with the warnings if nothing is wrong.
    pub(super) fn verdict(self, source: &Source) -> Result<Vec<Warning>, Problems> {
        let place = |mut findings: Vec<Finding>| -> Vec<Remark> {
            findings.sort_by_key(|finding| finding.at.start());
            findings.truncate(REMARKS_MAX);
            findings
                .into_iter()
                .map(|finding| Remark::new(finding, source))
                .collect()
        };
        let count = self.problems.len();
        let warnings: Vec<Warning> = place(self.warnings).into_iter().map(Warning).collect();
        if count == 0 {
            Ok(warnings)
        } else {
            let file = source.name.clone();
            Err(Problems {
                file,
                remarks: place(self.problems),
                count,
                warnings,
                files: Vec::new(),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, span: Range<usize>, expected: &str) {
        let source = Source {
            name: "x.toml".into(),
            text: text.into(),
        };
        let mut findings = Findings::default();
        findings.problem(&Origin::File(span), "a.b", "is wrong", "put it right");
        let problems = findings.verdict(&source).unwrap_err();
        assert_eq!(problems.remarks()[0].to_string(), expected);
    }

    #[test]
    fn a_remark_shows_its_line() {
        check(
            "a = 1\nb = 2\n",
            10..11,
            "x.toml:2:5: a.b: is wrong\n    |\n  2 | b = 2\n    |     ^\n  = put it right\n",
        );
        // A span over several lines is marked on its first one.
        check(
            "a = 1\nb = 2\n",
            0..11,
            "x.toml:1:1: a.b: is wrong\n    |\n  1 | a = 1\n    | ^^^^^\n  = put it right\n",
        );
        // Columns are characters; control characters don't reach the terminal.
        check(
            "é\t= 1\r\n",
            5..6,
            "x.toml:1:5: a.b: is wrong\n    |\n  1 | é = 1\n    |     ^\n  = put it right\n",
        );
        // A span inside a character or past the end is no panic.
        check(
            "é",
            1..9,
            "x.toml:1:1: a.b: is wrong\n    |\n  1 | é\n    | ^\n  = put it right\n",
        );
        check(
            "",
            7..9,
            "x.toml:1:1: a.b: is wrong\n    |\n  1 | \n    | ^\n  = put it right\n",
        );
    }

    #[test]
    fn a_long_line_is_cut() {
        let text = format!("{} = 1", "x".repeat(1_000));
        let source = Source {
            name: "x.toml".into(),
            text,
        };
        let (place, excerpt) = locate(&source, &(1_003..1_004));
        assert_eq!(
            place,
            Place::Line {
                file: "x.toml".into(),
                line: 1,
                column: 1_004
            }
        );
        assert!(excerpt.text.chars().count() <= EXCERPT_CHARS_MAX);
        assert_eq!(excerpt.text.chars().nth(excerpt.indent), Some('1'));
    }

    #[test]
    fn nobody_reads_a_million_problems() {
        let source = Source {
            name: "x.toml".into(),
            text: "a\n".repeat(1_000),
        };
        let mut findings = Findings::default();
        for at in 0..1_000 {
            findings.problem(&Origin::File(at..at + 1), "", "no", "");
        }
        let problems = findings.verdict(&source).unwrap_err();
        assert_eq!(problems.remarks().len(), REMARKS_MAX);
        assert!(
            problems
                .to_string()
                .ends_with("x.toml: 1000 problems; the first 100 are shown"),
            "{problems}"
        );
    }

    #[test]
    fn a_hidden_line_is_not_shown() {
        let source = Source {
            name: "x.toml".into(),
            text: "secret = \"hush-hush\"".into(),
        };
        let mut findings = Findings::default();
        findings.problem(&Origin::File(9..20).hidden(), "secret", "no", "");
        findings.problem(
            &Origin::Flag("--set secret=hush-hush".into()).hidden(),
            "secret",
            "no",
            "",
        );
        let said = findings.verdict(&source).unwrap_err().to_string();
        assert!(
            said.contains("x.toml:1:10: secret: no") && said.contains("--set secret: secret: no"),
            "{said}"
        );
        assert!(!said.contains("hush"), "{said}");
    }
}

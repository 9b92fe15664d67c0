//! Holds the house up: reads the sources and checks the laws that a compiler can't.
//! Law: each law is one function from a source to its violations, and a table below shows that it fires.
//! Absent on purpose: anything that clippy or rustc already checks.
//! Next: `pure_alone.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in shipped lines (tests at its foot don't count): "about 400".
const FILE_LINES_MAX: usize = 440;
/// Longest function, in lines.
const FUNCTION_LINES_MAX: usize = 70;
/// Most arguments of a function, `self` not counted.
const ARGUMENTS_MAX: usize = 5;
/// A card's fewest and most lines. `lib.rs` is the map and may be longer; so may a bench that says how it is run.
const CARD_LINES: std::ops::RangeInclusive<usize> = 3..=8;

/// The floors, from the bottom; a room may use rooms below its own.
const FLOORS: &[(&str, u8)] = &[
    ("pure", 0),
    ("config", 1),
    ("telemetry", 1),
    ("net", 1),
    ("store", 2),
    ("routing", 2),
    ("upstream", 3),
    ("relay", 4),
    ("downstream", 5),
    ("admin", 5),
    ("conformance", 5),
    ("app", 6),
    ("cli", 6),
    ("main", 6),
    ("lib", 6),
];

/// One dependency, one door: where each outside crate may be named. `*` is vocabulary for every room but the pure one.
const DOORS: &[(&str, &[&str])] = &[
    ("base64", &["pure"]),
    ("bytes", &["*", "pure"]),
    ("chacha20poly1305", &["pure"]),
    ("clap", &["cli"]),
    ("dashmap", &["relay"]),
    ("getrandom", &["net"]),
    ("hmac", &["pure"]),
    ("http", &["*", "pure"]),
    ("http_body", &["downstream"]),
    ("http_body_util", &["admin", "downstream"]),
    ("httparse", &["pure"]),
    ("hyper", &["admin", "downstream"]),
    ("hyper_util", &["admin", "downstream"]),
    ("libc", &["net"]),
    ("memchr", &["*", "pure"]),
    ("libmimalloc_sys", &["main"]),
    ("mimalloc", &["main"]),
    ("pingora_ketama", &["routing"]),
    ("prometheus_client", &["telemetry"]),
    ("rustls_native_certs", &["net"]),
    ("serde", &["config"]),
    ("sha2", &["pure"]),
    ("socket2", &["net"]),
    ("strsim", &["config"]),
    ("tokio", &["*"]),
    ("tokio_rustls", &["net"]),
    ("toml", &["config"]),
    ("tracing", &["*"]),
    ("tracing_subscriber", &["telemetry"]),
    ("uuid", &["relay"]),
    ("zeroize", &["config", "pure"]),
];

/// One source file.
struct Source {
    /// Path below `src`, e.g. `pure/log.rs`.
    path: String,
    text: String,
}

/// A violation: the line, and what is wrong with it.
type Violation = (usize, String);

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// The room: the first part of the path.
    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or("");
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// Lines before the tests at the foot, with their numbers. A file of tests ships nothing.
    fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
            || self.path.contains("/tests/");
        let text = if tests { "" } else { &self.text };
        let mut lines = text.lines().enumerate().peekable();
        std::iter::from_fn(move || {
            let (at, line) = lines.next()?;
            let tests = line == "#[cfg(test)]"
                && lines
                    .peek()
                    .is_some_and(|(_, next)| next.starts_with("mod tests"));
            (!tests).then_some((at + 1, line))
        })
    }

    /// Shipped lines without comments and without what stands in strings.
    fn code(&self) -> impl Iterator<Item = (usize, String)> {
        self.shipped()
            .map(|(at, line)| (at, bare(line)))
            .filter(|(_, line)| !line.trim().is_empty())
    }

    /// Functions: the first line, the last line, the signature in one line.
    fn functions(&self) -> Vec<(usize, usize, String)> {
        let lines: Vec<(usize, String)> = self.code().collect();
        let mut found = Vec::new();
        for (place, (at, line)) in lines.iter().enumerate() {
            let bare = line.trim_start();
            let indent = line.len() - bare.len();
            let is_function = words(line).take_while(|word| *word != "fn").all(|word| {
                matches!(
                    word,
                    "pub" | "crate" | "super" | "const" | "async" | "unsafe" | "in"
                )
            }) && words(line).any(|word| word == "fn");
            if !is_function {
                continue;
            }
            let mut signature = String::new();
            let mut last = *at;
            for (at, line) in &lines[place..] {
                if !signature.ends_with('{') && !signature.ends_with(';') && !signature.ends_with('}') {
                    signature.push_str(line.trim());
                }
                last = *at;
                let bare = line.trim_start();
                let closes = line.len() - bare.len() == indent;
                if closes && (bare.starts_with('}') || signature.ends_with(';') || signature.ends_with('}')) {
                    break;
                }
            }
            found.push((*at, last, signature));
        }
        found
    }
}

/// A line up to its comment, strings emptied.
fn bare(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if !out.ends_with('\'') => {
                while let Some(inner) = chars.next() {
                    match inner {
                        '\\' => drop(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                out.push_str("\"\"");
            }
            '/' if chars.peek() == Some(&'/') => break,
            _ => out.push(c),
        }
    }
    out
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

/// The names of other rooms that a line uses.
fn rooms_used(line: &str) -> Vec<String> {
    let mut used = Vec::new();
    for rest in line.split("crate::").skip(1) {
        if let Some(list) = rest.strip_prefix('{') {
            let list = list.split('}').next().unwrap_or(list);
            used.extend(
                list.split(',')
                    .filter_map(|part| words(part).next())
                    .map(str::to_owned),
            );
        } else {
            used.extend(words(rest).next().map(str::to_owned));
        }
    }
    used
}

fn floor(room: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(name, _)| *name == room)
        .map(|(_, floor)| *floor)
}

fn the_card(source: &Source) -> Vec<Violation> {
    let card: Vec<&str> = source
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    let mut wrong = Vec::new();
    if card.is_empty() {
        wrong.push((1, "the file does not open with its card".to_owned()));
    } else if !card.iter().any(|line| line.contains("Next:")) {
        wrong.push((card.len(), "the card does not say what to read next".to_owned()));
    } else if !CARD_LINES.contains(&card.len())
        && source.path != "lib.rs"
        && !source.path.starts_with("benches/")
    {
        wrong.push((
            1,
            format!("the card has {} lines, not {CARD_LINES:?}", card.len()),
        ));
    }
    wrong
}

/// Files that a card names stand beside it, below `src`, or below the root.
fn the_way_on(source: &Source) -> Vec<Violation> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("src").join(&source.path);
    let beside = file.parent().expect("it is below the root");
    let is_file = |name: &&str| {
        let path = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        (name.ends_with(".rs") || name.ends_with(".md")) && name.chars().all(path)
    };
    let cards = source.text.lines().enumerate();
    cards
        .take_while(|(_, line)| line.starts_with("//!"))
        .flat_map(|(at, line)| line.split('`').skip(1).step_by(2).map(move |name| (at + 1, name)))
        .filter(|(_, name)| is_file(name))
        .filter(|(_, name)| {
            let places = [beside, &root.join("src"), root];
            !places.iter().any(|place| place.join(name).is_file())
        })
        .map(|(at, name)| (at, format!("`{name}` is not there")))
        .collect()
}

fn the_size(source: &Source) -> Vec<Violation> {
    let lines = source.shipped().count();
    if lines > FILE_LINES_MAX {
        vec![(lines, format!("{lines} shipped lines"))]
    } else {
        Vec::new()
    }
}

fn the_functions(source: &Source) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (first, last, signature) in source.functions() {
        if last - first + 1 > FUNCTION_LINES_MAX {
            wrong.push((first, format!("a function of {} lines", last - first + 1)));
        }
        let arguments = arguments(&signature);
        let counted = arguments
            .iter()
            .filter(|argument| words(argument).any(|word| word != "mut" && word != "self"));
        let counted = counted
            .filter(|argument| !argument.trim_start_matches(['&', ' ']).starts_with("self"))
            .count();
        if counted > ARGUMENTS_MAX {
            wrong.push((first, format!("a function of {counted} arguments")));
        }
        if arguments.iter().any(|argument| argument.ends_with(": bool")) {
            wrong.push((first, "a bool argument: name the two cases".to_owned()));
        }
    }
    wrong
}

/// The arguments in a signature, split at the commas between them.
fn arguments(signature: &str) -> Vec<String> {
    let after_name = signature.split_once("fn ").map_or("", |(_, rest)| rest);
    let (mut angle, mut round, mut started) = (0i32, 0i32, false);
    let mut list = vec![String::new()];
    let mut before = ' ';
    for c in after_name.chars() {
        match c {
            '<' => angle += 1,
            '>' if before != '-' => angle -= 1,
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            _ => {}
        }
        if started && round == 0 {
            break;
        }
        match c {
            '(' if !started && angle == 0 => started = true,
            ',' if round == 1 && angle == 0 => list.push(String::new()),
            _ if started => list.last_mut().expect("it has one").push(c),
            _ => {}
        }
        before = c;
    }
    list.iter()
        .map(|argument| argument.trim().to_owned())
        .filter(|argument| !argument.is_empty())
        .collect()
}

fn no_glob_imports(source: &Source) -> Vec<Violation> {
    let globs = ["use super::*", "use crate::*"];
    let hit = |line: &str| globs.iter().any(|glob| line.contains(glob));
    source
        .code()
        .filter(|(_, line)| hit(line))
        .map(|(at, line)| (at, line.trim().to_owned()))
        .collect()
}

fn the_pure_words(source: &Source) -> Vec<Violation> {
    if source.room() != "pure" {
        return Vec::new();
    }
    let banned = [
        "tokio",
        "async",
        "Instant",
        "SystemTime",
        "Mutex",
        "RwLock",
        "tracing",
        "await",
        "println",
        "eprintln",
    ];
    let hit = |line: &str| words(line).find(|word| banned.contains(word)).map(str::to_owned);
    source
        .code()
        .filter_map(|(at, line)| Some((at, format!("{:?} in a pure file", hit(&line)?))))
        .collect()
}

fn the_floors(source: &Source) -> Vec<Violation> {
    let Some(own) = floor(source.room()) else {
        return vec![(1, format!("room {:?} has no floor", source.room()))];
    };
    let mut wrong = Vec::new();
    for (at, line) in source.code() {
        for used in rooms_used(&line) {
            if used != source.room() && floor(&used).is_some_and(|floor| floor > own) {
                wrong.push((at, format!("{} reaches up to {used}", source.room())));
            }
        }
    }
    wrong
}

fn the_doors(source: &Source) -> Vec<Violation> {
    let mut wrong = Vec::new();
    for (at, line) in source.code() {
        for (name, rooms) in DOORS {
            let named = line.match_indices(&format!("{name}::")).any(|(place, _)| {
                let before = line[..place].chars().next_back().unwrap_or(' ');
                !before.is_alphanumeric() && before != '_' && before != ':'
            });
            let room = source.room();
            let open = rooms.contains(&room) || (rooms.contains(&"*") && room != "pure");
            if named && !open && room != "main" {
                wrong.push((at, format!("{name} is named outside its door ({rooms:?})")));
            }
        }
    }
    wrong
}

fn the_names(source: &Source) -> Vec<Violation> {
    let vague = ["manager", "util", "utils", "common", "helper", "helpers", "misc"];
    let mut wrong = Vec::new();
    if source
        .path
        .split(['/', '_', '.'])
        .any(|part| vague.contains(&part))
    {
        wrong.push((1, "a file name that says nothing".to_owned()));
    }
    for (at, line) in source.code() {
        let mut before = "";
        for word in words(&line) {
            let declared = matches!(before, "mod" | "struct" | "enum" | "trait" | "fn" | "type");
            let lower = word.to_ascii_lowercase();
            if declared
                && vague
                    .iter()
                    .any(|vague| lower.starts_with(vague) || lower.ends_with(vague))
            {
                wrong.push((at, format!("{word:?} says nothing")));
            }
            before = word;
        }
    }
    wrong
}

/// Only one room knows the revisions by name or by date; the others ask it.
fn the_revisions(source: &Source) -> Vec<Violation> {
    if source.path == "pure/revision.rs" {
        return Vec::new();
    }
    let named = [
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-28",
    ];
    source
        .shipped()
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter(|(_, line)| {
            line.contains("Revision::V") || named.iter().any(|date| line.contains(&format!("\"{date}")))
        })
        .map(|(at, line)| (at, line.trim().to_owned()))
        .collect()
}

fn no_sleeps(source: &Source) -> Vec<Violation> {
    let shipped = source.shipped().count();
    let mut wrong = Vec::new();
    for (at, line) in source.text.lines().enumerate() {
        let in_tests = at >= shipped || source.path.starts_with("tests/");
        let banned = if in_tests {
            &["thread::sleep", "time::sleep(", "#[ignore"][..]
        } else {
            &["thread::sleep"][..]
        };
        // The names stand in this file as strings.
        if banned.iter().any(|banned| line.contains(banned)) && !source.path.ends_with("house.rs") {
            wrong.push((at + 1, line.trim().to_owned()));
        }
    }
    wrong
}

fn sources(below: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join(below), &mut files);
    files.sort();
    let name = |file: &PathBuf| {
        let base = if below == "src" {
            root.join("src")
        } else {
            root.to_owned()
        };
        file.strip_prefix(base)
            .expect("it is below the root")
            .to_string_lossy()
            .into_owned()
    };
    files
        .iter()
        .map(|file| Source {
            path: name(file),
            text: fs::read_to_string(file).expect("a source"),
        })
        .collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Applies a law to sources and names every violation at once.
fn check(folders: &[&str], law: fn(&Source) -> Vec<Violation>) {
    let mut wrong = Vec::new();
    let mut read = 0;
    for source in folders.iter().flat_map(|folder| sources(folder)) {
        read += 1;
        wrong.extend(
            law(&source)
                .into_iter()
                .map(|(at, what)| format!("{}:{at}: {what}", source.path)),
        );
    }
    assert!(read > 0, "no source was read");
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_its_card() {
    check(&["src", "tests", "examples", "benches"], the_card);
}

#[test]
fn cards_lead_to_files_that_are_there() {
    check(&["src"], the_way_on);
}

#[test]
fn files_are_short() {
    check(&["src"], the_size);
}

#[test]
fn functions_are_short_and_take_few_arguments() {
    check(&["src"], the_functions);
}

#[test]
fn nothing_is_imported_by_glob() {
    check(&["src", "examples"], no_glob_imports);
}

#[test]
fn the_pure_floor_is_pure() {
    check(&["src"], the_pure_words);
}

#[test]
fn imports_only_go_down() {
    check(&["src"], the_floors);
}

#[test]
fn rooms_of_one_floor_do_not_use_each_other_in_a_circle() {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources("src") {
        let used = source
            .code()
            .flat_map(|(_, line)| rooms_used(&line))
            .filter(|used| floor(used).is_some());
        uses.entry(source.room().to_owned())
            .or_default()
            .extend(used.filter(|used| used != source.room()));
    }
    for (room, used) in &uses {
        for other in used {
            let (room, other) = (room.as_str(), other.as_str());
            // The first floor is one level: where to dial, what to log and which certificate are each other's data.
            let first = floor(room) == Some(1) && floor(other) == Some(1);
            let back = !first && uses.get(other).is_some_and(|uses| uses.contains(room));
            assert!(!back, "{room} and {other} use each other");
        }
    }
}

#[test]
fn each_dependency_has_one_door() {
    check(&["src"], the_doors);
}

#[test]
fn the_door_table_is_the_manifest() {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("a manifest");
    let section = manifest
        .split("\n[dependencies]\n")
        .nth(1)
        .expect("dependencies")
        .split("\n[")
        .next()
        .unwrap_or("");
    let declared: BTreeSet<String> = section
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0.trim().replace('-', "_")))
        .collect();
    let known: BTreeSet<String> = DOORS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(declared, known);
}

#[test]
fn names_say_something() {
    check(&["src", "tests", "examples"], the_names);
}

#[test]
fn one_room_knows_the_revisions() {
    check(&["src"], the_revisions);
}

#[test]
fn no_test_sleeps_or_is_ignored() {
    check(&["src", "tests"], no_sleeps);
}

#[test]
fn each_law_fires() {
    type Law = fn(&Source) -> Vec<Violation>;
    let long_file =
        "//! A.\n//! B.\n//! Next: C.\n".to_owned() + &"const A: u8 = 1;\n".repeat(FILE_LINES_MAX);
    let long_function = format!(
        "impl A {{\n    pub fn long(&self) {{\n{}    }}\n}}\n",
        "        work();\n".repeat(70)
    );
    let cases: &[(&str, Law, &str, &str, usize)] = &[
        ("no card", the_card, "a.rs", "use std::io;\n", 1),
        ("no next", the_card, "a.rs", "//! A.\n//! B.\n//! C.\n", 1),
        ("short card", the_card, "a.rs", "//! A. Next: B.\n", 1),
        ("good card", the_card, "a.rs", "//! A.\n//! B.\n//! Next: C.\n", 0),
        (
            "no way on",
            the_way_on,
            "pure/a.rs",
            "//! Next: `none.rs`, `../none.md`.\n",
            2,
        ),
        (
            "a way on",
            the_way_on,
            "pure/a.rs",
            "//! Next: `log/mod.rs`, `../relay/post.rs`, `relay/post.rs`, `fn.x`.\n",
            0,
        ),
        ("long file", the_size, "a.rs", &long_file, 1),
        (
            "tests don't count",
            the_size,
            "a.rs",
            &format!("//! A\n#[cfg(test)]\nmod tests {{\n{long_file}}}\n"),
            0,
        ),
        ("long function", the_functions, "a.rs", &long_function, 1),
        (
            "six arguments",
            the_functions,
            "a.rs",
            "fn a(\n    a: A,\n    b: B<C, D>,\n    c: C,\n    d: D,\n    e: E,\n    f: F,\n) {\n}\n",
            1,
        ),
        (
            "five and self",
            the_functions,
            "a.rs",
            "impl A {\n    fn a(&mut self, a: (A, B), b: B, c: C, d: D, e: E) {}\n}\n",
            0,
        ),
        (
            "bool",
            the_functions,
            "a.rs",
            "pub(crate) async fn a(b: bool) -> u8 {\n}\n",
            1,
        ),
        (
            "bool answer",
            the_functions,
            "a.rs",
            "fn a(b: fn() -> bool) -> bool {\n    true\n}\n",
            0,
        ),
        ("glob", no_glob_imports, "a.rs", "use super::*;\n", 1),
        (
            "glob in tests",
            no_glob_imports,
            "a.rs",
            "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n",
            0,
        ),
        ("tokio", the_pure_words, "pure/a.rs", "use tokio::net;\n", 1),
        (
            "clock",
            the_pure_words,
            "pure/a.rs",
            "let a = std::time::Instant::now();\n",
            1,
        ),
        ("elsewhere", the_pure_words, "net/a.rs", "async fn a() {}\n", 0),
        ("comment", the_pure_words, "pure/a.rs", "// no tokio here\n", 0),
        ("up", the_floors, "store/a.rs", "use crate::relay::sink;\n", 1),
        (
            "up in a list",
            the_floors,
            "pure/a.rs",
            "use crate::{pure::log, net};\n",
            1,
        ),
        (
            "down",
            the_floors,
            "relay/a.rs",
            "use crate::pure::log::Seq;\n",
            0,
        ),
        ("unknown room", the_floors, "cellar/a.rs", "fn a() {}\n", 1),
        ("wrong door", the_doors, "relay/a.rs", "use hyper::body;\n", 1),
        (
            "right door",
            the_doors,
            "downstream/a.rs",
            "use hyper::body;\n",
            0,
        ),
        ("vocabulary", the_doors, "relay/a.rs", "use tokio::sync;\n", 0),
        ("own path", the_doors, "relay/a.rs", "use crate::http::body;\n", 0),
        ("vague file", the_names, "relay/util.rs", "", 1),
        (
            "vague name",
            the_names,
            "relay/a.rs",
            "struct SessionManager;\n",
            1,
        ),
        ("a date", the_revisions, "relay/a.rs", "a == \"2025-11-25\"\n", 1),
        (
            "a revision",
            the_revisions,
            "relay/a.rs",
            "Revision::V2026_07_28\n",
            1,
        ),
        (
            "a comment",
            the_revisions,
            "relay/a.rs",
            "// of \"2025-11-25\"\n",
            0,
        ),
        (
            "their room",
            the_revisions,
            "pure/revision.rs",
            "\"2025-11-25\"\n",
            0,
        ),
        ("plain name", the_names, "relay/a.rs", "struct Registry;\n", 0),
        (
            "sleep in a test",
            no_sleeps,
            "tests/a.rs",
            "tokio::time::sleep(a).await;\n",
            1,
        ),
        ("ignored", no_sleeps, "tests/a.rs", "#[ignore]\n", 1),
        (
            "shipped wait",
            no_sleeps,
            "relay/a.rs",
            "tokio::time::sleep(a).await;\n",
            0,
        ),
    ];
    for (name, law, path, text, violations) in cases {
        let found = law(&Source::new(path, text));
        assert_eq!(found.len(), *violations, "{name}: {found:?}");
    }
}

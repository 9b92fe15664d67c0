//! Configurations of any shape: the shipped ones, mutilated by chance.
//! Law: whatever a file says, it is read in bounded time without a panic, twice in the same way, and what is refused is
//! refused by name. A seed fails again: `THROUGHLINE_SEED=N cargo test --test config_shapes one_seed -- --nocapture`.
//! A long hunt: `THROUGHLINE_SEEDS=1000000 cargo test --release --test config_shapes a_hunt -- --nocapture`.
//! Next: `config.rs`.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use throughline::config::{self, Flags};

/// Seeds of every run, and fresh ones beside them.
const FIXED: u64 = 500;
const FRESH: u64 = 200;

/// Values that have surprised readers of configurations.
const VALUES: [&str; 32] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "nan",
    "-inf",
    "true",
    "\"\"",
    "\"0s\"",
    "\"-1s\"",
    "\"1\"",
    "\"99999999999999999999h\"",
    "\"30s \"",
    "\"0B\"",
    "\"18446744073709551616B\"",
    "\"8MiB\"",
    "[]",
    "[[]]",
    "{}",
    "{ a = 1 }",
    "1979-05-27",
    "\"\\u0000\"",
    "\"\u{202e}\u{1f600}\"",
    "\"http://\"",
    "\"http://[::1]:0/mcp\"",
    "\"https://a.example:65536/\"",
    "\"0.0.0.0:0\"",
    "\"..\"",
    "\"/dev/zero\"",
    "'''\nx\n'''",
];

/// Chance, by its seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// One mutilation of a text's lines.
fn mutilate(lines: &mut Vec<String>, chance: &mut Chance) {
    let at = chance.below(lines.len());
    let other = chance.below(lines.len());
    match chance.below(9) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at].clone()),
        2 => lines.swap(at, other),
        3 => {
            // What is said as a comment is said.
            if let Some(said) = lines[at].strip_prefix("# ") {
                lines[at] = said.to_owned();
            }
        }
        4 | 5 => {
            if let Some((key, _)) = lines[at].split_once('=') {
                lines[at] = format!("{key}= {}", VALUES[chance.below(VALUES.len())]);
            }
        }
        6 => {
            let mut bytes = std::mem::take(&mut lines[at]).into_bytes();
            let place = chance.below(bytes.len() + 1);
            match bytes.get_mut(place) {
                Some(byte) => *byte = chance.next() as u8,
                None => bytes.push(chance.next() as u8),
            }
            lines[at] = String::from_utf8_lossy(&bytes).into_owned();
        }
        7 => lines.insert(at, "[".repeat(1 + chance.below(300))),
        _ => {
            let long = "x".repeat(1 << chance.below(18));
            lines.insert(at, format!("{long} = \"{long}\""));
        }
    }
    if lines.is_empty() {
        lines.push(String::new());
    }
}

fn document(seed: u64) -> String {
    let mut chance = Chance(seed);
    let name = ["full.toml", "minimal.toml"][chance.below(2)];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    let text = std::fs::read_to_string(path).expect("a shipped file");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=chance.below(6) {
        mutilate(&mut lines, &mut chance);
    }
    lines.join("\n")
}

/// What is said of a file, or that it is good.
fn verdict(path: &Path) -> Option<String> {
    let flags = Flags {
        config: Some(path.into()),
        ..Flags::default()
    };
    config::read_in(&flags, &|_| None)
        .err()
        .map(|problems| problems.to_string())
}

/// A file of this process's own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("throughline-shapes-{}-{name}.toml", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Whether the document of this seed was refused.
fn refused(seed: u64, file: &Scratch) -> bool {
    let text = document(seed);
    std::fs::write(&file.0, &text).expect("written");
    let rerun = format!("THROUGHLINE_SEED={seed} cargo test --test config_shapes one_seed -- --nocapture");
    let said = std::panic::catch_unwind(|| verdict(&file.0)).unwrap_or_else(|_| panic!("{rerun}"));
    assert_eq!(said, verdict(&file.0), "{rerun}");
    let Some(said) = said else { return false };
    // Each problem says where, and what to do; a long line of the file is not repeated whole.
    assert!(said.contains("error: "), "{said}\n{rerun}");
    let place = format!("{}:", file.0.display());
    assert!(said.contains(&place), "{said}\n{rerun}");
    assert!(said.len() < 64 * 1024, "{} bytes are said\n{rerun}", said.len());
    true
}

fn play(seeds: impl Iterator<Item = u64>, name: &str) {
    let file = Scratch::new(name);
    let (mut played, mut not) = (0, 0);
    for seed in seeds {
        played += 1;
        not += usize::from(refused(seed, &file));
    }
    println!("{played} documents, {not} refused");
    assert!(not > 0 && not < played, "{not} of {played} were refused");
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn fixed_seeds() {
    play(0..FIXED, "fixed");
}

#[test]
fn fresh_seeds() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let first = now.as_nanos() as u64 >> 8;
    println!("fresh seeds from {first}");
    play((0..FRESH).map(|nth| first.wrapping_add(nth)), "fresh");
}

#[test]
fn a_hunt() {
    if let Some(count) = from_environment("THROUGHLINE_SEEDS") {
        play(1_000_000..1_000_000 + count, "hunt");
    }
}

#[test]
fn one_seed() {
    let Some(seed) = from_environment("THROUGHLINE_SEED") else {
        return;
    };
    let file = Scratch::new("one");
    std::fs::write(&file.0, document(seed)).expect("written");
    println!("{}\n{:?}", document(seed), verdict(&file.0));
    refused(seed, &file);
}

//! Configurations: a file, and behind a NUL what `--set` is given. Nothing panics, and what is refused is explained.
//! Law: each complaint says what is wrong and what to do, in bounded words; reading twice says the same.
//! Absent on purpose: files that a configuration names; what they may hold is tested with real ones.
//! Next: `../src/lib.rs`.
#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use throughline::config::{self, Flags};

/// A hundred complaints, each with its line of the file.
const COMPLAINTS_BYTES_MAX: usize = 256 * 1024;

/// The file that is written anew for each input.
fn file() -> &'static PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = std::env::temp_dir().join(format!("throughline-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the file");
        folder.join("throughline.toml")
    })
}

/// What is said of a configuration.
fn said(flags: &Flags) -> String {
    match config::read_in(flags, &|_| None) {
        Ok((_, warnings)) => {
            let each = warnings.iter().map(|warning| {
                let remark = warning.remark();
                format!("{}: {}\n", remark.key(), remark.what())
            });
            each.collect()
        }
        Err(problems) => {
            assert!(!problems.remarks().is_empty());
            for remark in problems.remarks() {
                // What a text would have to be to be TOML is in what is wrong with it.
                let is_syntax = remark.what().starts_with("not TOML: ");
                assert!(!remark.what().is_empty(), "{problems}");
                assert!(!remark.advice().is_empty() || is_syntax, "{problems}");
            }
            problems.to_string()
        }
    }
}

fuzz_target!(|input: &str| {
    let (text, set) = match input.split_once('\0') {
        Some((text, set)) => (text, vec![set.to_owned()]),
        None => (input, Vec::new()),
    };
    std::fs::write(file(), text).expect("the file is written");
    let flags = Flags {
        config: Some(file().clone()),
        set,
        ..Flags::default()
    };
    let first = said(&flags);
    assert!(first.len() < COMPLAINTS_BYTES_MAX, "{} bytes", first.len());
    assert_eq!(first, said(&flags));
});

//! A table in the docs of what a test run saw.
//! Law: the file is what was seen, or the run fails; `THROUGHLINE_WRITE_MATRIX=1` writes it anew.
//! Next: `../matrix.rs`.

use std::path::Path;

/// Compares a table with its file, or writes it.
///
/// # Errors
/// The lines that were seen and are not in the file, or why it could not be written.
pub(crate) fn keep(name: &str, table: &str) -> Result<(), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("THROUGHLINE_WRITE_MATRIX").is_some() {
        return std::fs::write(&file, table).map_err(|error| error.to_string());
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    if written == table {
        return Ok(());
    }
    let seen = table
        .lines()
        .filter(|line| !written.lines().any(|other| other == *line));
    let seen: Vec<&str> = seen.collect();
    Err(format!(
        "{name} says otherwise; this was seen:\n{}\n",
        seen.join("\n")
    ))
}

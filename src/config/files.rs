//! What stands around a configuration: the environment, and the files that it names.
//! Law: a file is read with a bound, and never waited for (no pipe, no device).
//! A path in the file is relative to the file; a path in a flag is relative to where the process was started.
//! Next: `secret.rs`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::report::Origin;

/// The environment and the directory that paths are relative to.
pub(super) struct Around<'a> {
    base: PathBuf,
    source: Option<PathBuf>,
    /// Every file that was named so far, the configuration itself first.
    named: RefCell<Vec<Seen>>,
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl<'a> Around<'a> {
    /// What stands around this file, if there is one. Call: before it is read, so that a later change is seen.
    pub(super) fn new(file: Option<&Path>, variable: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        let base = file
            .and_then(Path::parent)
            .map(Path::to_path_buf)
            .unwrap_or_default();
        let named = RefCell::new(
            file.map(|path| Seen::now(path.to_path_buf()))
                .into_iter()
                .collect(),
        );
        Self {
            base,
            source: file.map(Path::to_path_buf),
            named,
            variable,
        }
    }

    /// The value of an environment variable; empty counts as absent.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// The file that is meant by a path said at this place.
    pub(super) fn path(&self, written: &str, at: &Origin) -> PathBuf {
        let path = match at {
            Origin::File(_) | Origin::Hidden(_) => self.base.join(written),
            Origin::Flag(_) | Origin::Whole => PathBuf::from(written),
        };
        let mut named = self.named.borrow_mut();
        if !named.iter().any(|seen| seen.path == path) {
            named.push(Seen::now(path.clone()));
        }
        path
    }

    /// The configuration's own file.
    pub(super) fn source(&self) -> Option<PathBuf> {
        self.source.clone()
    }

    /// Every file that was named, as it looked then.
    pub(super) fn named(&self) -> Vec<Seen> {
        self.named.borrow().clone()
    }
}

/// A whole file, if it is a plain one of at most `most` bytes; else what is wrong, in a few words.
pub(super) fn bytes(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| format!("can't be read: {}", plain(&error));
    let metadata = std::fs::metadata(path).map_err(said)?;
    if metadata.is_dir() {
        return Err("is a directory".into());
    }
    if !metadata.is_file() {
        return Err("is not a plain file".into());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(said)?
        .take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(said)?;
    if bytes.len() > most {
        return Err(format!("is longer than {most} bytes"));
    }
    Ok(bytes)
}

/// The same, as text.
pub(super) fn text(path: &Path, most: usize) -> Result<String, String> {
    String::from_utf8(bytes(path, most)?).map_err(|_| "is not UTF-8 text".into())
}

/// What shows that a file was changed or replaced, links followed: a mounted configuration is replaced by turning a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    identity: (u64, u64),
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// Of the file at this path, if there is one.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            identity: identity(&metadata),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_metadata: &std::fs::Metadata) -> (u64, u64) {
    (0, 0)
}

/// A file, and how it looked just before it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Where it is.
    pub path: PathBuf,
    /// Nothing if there was none.
    pub stamp: Option<Stamp>,
}

impl Seen {
    /// As it looks now.
    pub fn now(path: PathBuf) -> Self {
        let stamp = Stamp::of(&path);
        Self { path, stamp }
    }
}

/// An I/O error in the words of people.
fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

/// Whether others than its owner may read a file; unknown counts as no.
#[cfg(unix)]
pub(super) fn open_to_others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Whether others than its owner may read a file; unknown counts as no.
#[cfg(not(unix))]
pub(super) fn open_to_others(_path: &Path) -> Option<u32> {
    None
}

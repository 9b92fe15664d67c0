//! The evidence of one case: what was sent and what came, one line each, with the time since the case began.
//! Law: bounded in lines and in bytes, and what was left out is said; no field that may hold a credential is written.
//! Next: `target.rs`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Lines kept from the beginning of a case.
const FIRST_LINES: usize = 40;

/// Lines kept from its end: a case that ends badly shows why there.
const LAST_LINES: usize = 40;

/// Bytes of a line that are kept; an event id of throughline and the beginning of a message fit in.
const LINE_BYTES_MAX: usize = 320;

/// The evidence of one case. Clones write into the same.
#[derive(Clone)]
pub(super) struct Trace {
    began: Instant,
    lines: Arc<Mutex<Lines>>,
}

#[derive(Default)]
struct Lines {
    first: Vec<String>,
    last: VecDeque<String>,
    left_out: usize,
}

impl Trace {
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            lines: Arc::default(),
        }
    }

    /// Notes one line.
    pub(super) fn note(&self, line: &str) {
        let mut text = format!("{:>6} ms  ", self.began.elapsed().as_millis());
        for c in line.chars() {
            if text.len() + c.len_utf8() > LINE_BYTES_MAX {
                text.push('…');
                break;
            }
            if c.is_control() {
                // Writing to a string can't fail.
                let _ = write!(text, "{}", c.escape_default());
            } else {
                text.push(c);
            }
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.first.len() < FIRST_LINES {
            lines.first.push(text);
            return;
        }
        if lines.last.len() == LAST_LINES {
            lines.last.pop_front();
            lines.left_out += 1;
        }
        lines.last.push_back(text);
    }

    /// What was noted.
    pub(super) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = lines.first.clone();
        if lines.left_out > 0 {
            all.push(format!("… {} lines left out …", lines.left_out));
        }
        all.extend(lines.last.iter().cloned());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_says_what_it_left_out() {
        let trace = Trace::begin();
        for n in 0..200 {
            trace.note(&format!("line {n} {}\n", "ü".repeat(400)));
        }
        let lines = trace.lines();
        assert_eq!(lines.len(), FIRST_LINES + LAST_LINES + 1);
        assert!(lines[0].contains("line 0 ") && lines.last().unwrap().contains("line 199 "));
        assert_eq!(lines[FIRST_LINES], "… 120 lines left out …");
        let longest = lines.iter().map(String::len).max().unwrap();
        assert!(longest <= LINE_BYTES_MAX + '…'.len_utf8(), "{longest}");
        let trace = Trace::begin();
        trace.note("a\nb\u{1b}[31m");
        assert!(trace.lines()[0].ends_with(r"a\nb\u{1b}[31m"));
    }
}

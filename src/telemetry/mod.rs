//! What the proxy tells its operator: one vocabulary of names, one struct of instruments, one set-up of log lines.
//! Law: a word in a metric's label is the word in the log and in the documentation.
//! Absent on purpose: traces; a stream lives for hours, and a span for each would only hold memory.
//! Next: `names.rs`, `words.rs`, `asked.rs`, `meters.rs`, `of_upstream.rs`, `instruments.rs`,
//! `subscriber.rs`, `lines.rs`.

mod asked;
pub mod instruments;
pub mod lines;
pub mod meters;
pub mod names;
mod of_upstream;
pub mod subscriber;
pub mod words;

pub use instruments::Instruments;
pub use subscriber::set_up;

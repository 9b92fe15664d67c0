//! The locks and atomics of what is tried in every order.
//! Law: re-exports and nothing else. `tests/interleavings.rs` has a module of this name with locks of its own, so that
//! it tries the shipped files and no twin of them.
//! Next: `queue.rs`.

pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

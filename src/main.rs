//! The story of a process; it begins when there is something to run.
//! Law: nothing is decided here.
//! Next: `lib.rs`.

fn main() {}

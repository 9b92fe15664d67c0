//! Server-Sent Events: bytes to blocks and back, at any split of the bytes.
//! Law: what a decoder says depends on the bytes alone, never on how they were cut into reads.
//! Absent on purpose: what an event means, and the id that a reader should remember; both are the caller's.
//! Why our own: the parsers at hand copy each event, and none bounds its size.
//! Next: `frame.rs`, then `decode.rs`, `encode.rs` and `whole.rs`.

mod decode;
pub mod encode;
mod frame;
mod usual;
mod whole;

pub use decode::{BOM, Decoder, OnBlock};
pub(in crate::pure) use frame::is_message;
pub use frame::{Block, Line, Tail, Text, TooLarge};
pub use whole::Whole;

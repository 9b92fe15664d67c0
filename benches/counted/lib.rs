//! The pure floor alone, by path, for `../pure.rs`.
//! Law: nothing of the proxy but that floor.
//! Next: `../instructions.sh`.

#[path = "../../src/pure/mod.rs"]
pub mod pure;

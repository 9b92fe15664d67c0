//! The pure floor, compiled alone, for the fuzz targets.
//! Law: nothing but the pure floor is fuzzed here; what needs a socket belongs to the simulation.
//! Next: `../fuzz_targets/sse_decode.rs`.

#[path = "../../src/pure/mod.rs"]
pub mod pure;

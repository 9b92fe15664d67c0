//! Compiles the pure floor as its own crate root: an import from a higher floor is a compiler error here.
//! Law: inside this crate `crate::pure::…` is all there is.
//! The floor's own tests run with the library's; this target has no harness, so that they don't run twice.
//! Next: `house.rs`.
#![forbid(unsafe_code)]
#![allow(
    unused,
    unreachable_pub,
    missing_docs,
    reason = "only whether it compiles matters here"
)]

#[path = "../src/pure/mod.rs"]
pub mod pure;

fn main() {
    println!("pure: compiles alone");
}

#!/usr/bin/env bash
# Installs what the tests need and runs every test, the fast ones first. `.ci/run` calls it. Safe to repeat.
# Needs a Rust toolchain with a C compiler, and what tests/install.sh needs.
#
#   tests/run.sh            everything: about half an hour on two cores, most of it compiling
#   tests/run.sh fast       without the real clients and servers
set -euo pipefail
cd "$(dirname "$0")/.."
began=$SECONDS

step() { printf '\n== %s (%d s)\n' "$1" "$((SECONDS - began))"; }

for tool in rustfmt clippy; do
  cargo "${tool/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$tool"
done

step "format"
cargo fmt --check

step "lints"
cargo clippy --locked --lib --bins --examples --benches --tests --test interop --test aware --test browser --test modern --test deploy --test chaos --test conformance --test matrix --test continuity -- -D warnings

step "unit, house, wire, config, README tests and the simulation"
# Tests over sockets wait for each other's ends and for configured times far more than they compute.
RUST_TEST_THREADS=16 cargo test --locked

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --quiet

step "every fuzz target, for a moment"
fuzz/smoke.sh

if [ "${1:-all}" = fast ]; then
  step "done, fast tests only"
  exit 0
fi

step "the quick start"
cargo run --locked --release --example quickstart -- --once

step "installation"
cargo install --path . --locked --root target/installed

step "packages of the real clients and servers"
tests/install.sh

step "the check for authors of clients, in JavaScript and Python"
cargo test --locked --test aware

step "a page as a client, in a real browser"
cargo test --locked --test browser

step "interoperability"
cargo test --locked --test interop
cargo test --locked --test modern

step "the official conformance suite, for servers and for clients"
cargo test --locked --test conformance

step "the matrix of official SDKs"
cargo test --locked --test matrix

step "the continuity suite, directly and through the proxy"
cargo test --locked --test continuity

step "a rolling deploy under load"
cargo test --locked --test deploy

# Each fault once; `cargo test --test chaos -- --events 100000` is the long form.
step "chaos on real processes"
cargo test --locked --test chaos

step "done"

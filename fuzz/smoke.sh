#!/usr/bin/env bash
# Builds every fuzz target and runs each for a few seconds: that none has rotted, and that none finds anything at once.
# A long run of one target is `cargo fuzz` (README.md); this needs neither it nor a nightly toolchain.
#   fuzz/smoke.sh [SECONDS]     of each target; 3 if it is not said
# A finding is written to fuzz/artifacts/TARGET/.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-3}
# What `cargo fuzz -s none` passes: coverage for libFuzzer, and nothing that a stable compiler refuses.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions"
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --locked --release --target "$host"
for source in fuzz_targets/*.rs; do
  target=$(basename "$source" .rs)
  dict=$(ls "dict/$target.dict" "dict/${target%%_*}.dict" 2>/dev/null | head -1 || true)
  mkdir -p "corpus/$target" "artifacts/$target"
  [ "$target" != config ] || cp ../config/*.toml corpus/config/
  printf '%-16s' "$target"
  log=$(mktemp)
  if ! "target/$host/release/$target" "corpus/$target" -max_total_time="$seconds" -max_len=1024 -verbosity=1 \
    ${dict:+-dict="$dict"} -artifact_prefix="artifacts/$target/" >"$log" 2>&1; then
    cat "$log"
    echo "fuzz: $target found something" >&2
    exit 1
  fi
  sed -n 's/^Done \([0-9]*\) runs.*/\1 runs/p' "$log"
  rm -f "$log"
done

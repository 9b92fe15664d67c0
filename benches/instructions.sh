#!/usr/bin/env bash
# Instructions of one event, id or call on the pure path, counted by callgrind: the same on every run of one build, on a
# busy machine too. Compared with instructions.txt; a count beyond the tolerance fails.
#   bash benches/instructions.sh            compare
#   bash benches/instructions.sh record     write instructions.txt anew, after a change that was meant
# Needs valgrind. Counts depend on the compiler and on what the CPU has (AVX2): record and compare on the same kind.
set -eu
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOLERANCE=${TOLERANCE:-5} # per cent
EVENTS=300                # of one batch, as in pure.rs
FEW=10 MANY=60            # batches; the difference leaves out what is done once
BASE=$HERE/instructions.txt
OUT=${OUT:-$HERE/../target/benches}
mkdir -p "$OUT"
cargo build --release --quiet --manifest-path "$HERE/counted/Cargo.toml" --target-dir "$OUT/counted"
BENCH=$OUT/counted/release/counted

counted() { # NAME BATCHES
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$BENCH" only "$1" "$2" 2>&1 |
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p'
}
"$BENCH" names | while IFS= read -r name; do
  few=$(counted "$name" $FEW); many=$(counted "$name" $MANY)
  printf '%s\t%d\n' "$name" $(((many - few) / ((MANY - FEW) * EVENTS)))
done >"$OUT/instructions.txt"

if [ "${1:-}" = record ]; then
  cp "$OUT/instructions.txt" "$BASE"; cat "$BASE"; exit 0
fi
awk -F'\t' -v tolerance="$TOLERANCE" '
  NR == FNR { before[$1] = $2; next }
  !($1 in before) { printf "%-36s %28d  not recorded\n", $1, $2; next }
  { change = before[$1] ? ($2 - before[$1]) * 100 / before[$1] : 0
    worse = change > tolerance; failed += worse
    printf "%-36s %8d -> %8d %+7.1f %%%s\n", $1, before[$1], $2, change, worse ? "  MORE" : "" }
  END { exit failed > 0 }' "$BASE" "$OUT/instructions.txt"

#!/usr/bin/env bash
# What is measured of throughline beside the comparison: replay from memory, start, size, two workers. See README.md.
#   bash benches/alone.sh [-r ROUNDS]
set -u
. "$(dirname "$0")/lib.sh"
ROUNDS=5
while getopts r: option; do
  case $option in
    r) ROUNDS=$OPTARG;;
    *) exit 2;;
  esac
done
build
RESULTS=$OUT/alone-$(date +%m%d-%H%M%S).jsonl; : >"$RESULTS"
trap stop_all EXIT; trap 'exit 130' INT TERM
BEGAN=$(date +%s); uptime
start_backends
SECS=${SECS:-1}
OWN_FLAGS=${FLAGS:-}
BOTH=${BOTH:-$LOAD_CPU,$PROXY_CPU}

with() { # FLAGS... : throughline afresh, with these beside the ones asked for
  FLAGS="$OWN_FLAGS $*"; stop_proxy throughline; start_proxy throughline || exit 1
}
# A window as the default is, and one of the most events that `replay_bytes_max` holds of these.
replay() {
  with
  load throughline "$RESULTS" replay --streams 8 --n 1000 --bytes 200 --secs "$SECS"
  with --set upstream.stream.replay_events_max=16384
  load throughline "$RESULTS" replay --streams 8 --n 16000 --bytes 200 --secs "$SECS"
}
# The workers and the load share both cores, so that both workers run.
workers() { # COUNT
  local proxy_cpu=$PROXY_CPU load_cpu=$LOAD_CPU
  PROXY_CPU=$BOTH LOAD_CPU=${WORKERS_LOAD_CPU:-$BOTH}
  with --set "server.workers=$1"
  load throughline "$RESULTS" json --conns 64 --secs "$SECS" --warm 0.3 --at "workers=$1"
  load throughline "$RESULTS" sse --streams 16 --n 2000 --bytes 200 --secs "$SECS" --at "workers=$1"
  PROXY_CPU=$proxy_cpu LOAD_CPU=$load_cpu
}
starts() { # NAME
  start_proxy "$1" || exit 1
  stop_proxy "$1" # it is known now how it is started
  local pinned=; [ "$PIN" = 1 ] && pinned="taskset -c $PROXY_CPU"
  ( on "$LOAD_CPU" timeout 100 "$BIN/loadgen" --name "$1" --target "${URLS[$1]}" start --runs 5 -- $pinned ${COMMANDS[$1]} ) >>"$RESULTS"
}

for ((round = 1; round <= ROUNDS; round++)); do
  replay
  for count in $( ((round % 2)) && echo 1 2 || echo 2 1 ); do workers "$count"; done
  stop_proxy throughline; FLAGS=$OWN_FLAGS
  starts throughline
  ! command -v nginx >/dev/null || starts nginx
done
stripped=$RUN/stripped; strip -g -o "$stripped" "$PROXY" 2>/dev/null || cp "$PROXY" "$stripped"
echo "{\"mode\":\"size\",\"name\":\"throughline\",\"bytes\":$(stat -L -c %s "$PROXY"),\"without_debug_bytes\":$(stat -c %s "$stripped")}" >>"$RESULTS"
rm -f "$stripped"
uptime
echo "took $(($(date +%s) - BEGAN)) s; every measurement: $RESULTS"
python3 "$HERE/alone.py" "$RESULTS"

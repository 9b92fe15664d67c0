#!/usr/bin/env bash
# Growth, drawn: what a call and an event cost the proxy as idle sessions and the window grow. See README.md.
#   bash benches/growth.sh [-r ROUNDS] [-s "SESSIONS ..."] [-w "EVENTS ..."] [-p "PROXY ..."]
# Writes target/benches/growth-*.jsonl and benches/growth.svg, and prints a table.
set -u
. "$(dirname "$0")/lib.sh"
ROUNDS=3
SESSIONS="10 100 1000 9000"
WINDOWS="128 512 2048 8192 16384"
PROXIES="nginx throughline"
while getopts r:s:w:p: option; do
  case $option in
    r) ROUNDS=$OPTARG;;
    s) SESSIONS=$OPTARG;;
    w) WINDOWS=$OPTARG;;
    p) PROXIES=$OPTARG;;
    *) exit 2;;
  esac
done
if ! command -v nginx >/dev/null; then
  echo "nginx is not installed and is left out; on Debian: apt-get install nginx-light" >&2
  PROXIES=$(printf '%s\n' $PROXIES | grep -vx nginx | tr '\n' ' ')
fi
# A proxy needs two sockets for a session that stands; the load, its upstreams and the listeners need some hundreds.
MOST=$((($(ulimit -n) - 400) / 2))
for count in $SESSIONS; do
  if [ "$count" -gt "$MOST" ]; then echo "$count sessions need more than the $(ulimit -n) open files allowed here: at most $MOST" >&2; exit 2; fi
done
build
RESULTS=$OUT/growth-$(date +%m%d-%H%M%S).jsonl; : >"$RESULTS"
trap 'release "$RESULTS"; stop_all' EXIT; trap 'exit 130' INT TERM
BEGAN=$(date +%s); uptime
start_backends
SECS=${SECS:-0.8}
OWN_FLAGS=${FLAGS:-}

as_sessions_grow() { # PROXY COUNT
  FLAGS=$OWN_FLAGS afresh "$1" && hold "$1" "$2" || exit 1
  load "$1" "$RESULTS" json --conns 16 --secs "$SECS" --warm 0.3 --at "sessions=$2"
  load "$1" "$RESULTS" sse --streams 8 --n 2000 --bytes 200 --secs "$SECS" --at "sessions=$2"
  release "$RESULTS"
}
# Bursts longer than the window, so that it is full and each event drives one out; then clients that come back to a full
# one, with a cursor at its beginning and at its end. 28 places are left for what the proxy adds.
as_window_grows() { # EVENTS
  local held=$(($1 - 28))
  FLAGS="$OWN_FLAGS --set upstream.stream.replay_events_max=$1" afresh throughline || exit 1
  load throughline "$RESULTS" sse --streams 4 --n 40000 --bytes 200 --secs "$SECS" --at "window=$1"
  load throughline "$RESULTS" replay --streams 4 --n "$held" --bytes 200 --secs "$SECS" --at "window=$1"
  load throughline "$RESULTS" replay --streams 4 --n "$held" --bytes 200 --secs "$SECS" --after last --at "window=$1"
}

set -- $PROXIES
for ((round = 1; round <= ROUNDS; round++)); do
  for count in $SESSIONS; do
    for proxy in "$@"; do as_sessions_grow "$proxy" "$count"; done
  done
  case " $PROXIES " in *" throughline "*) for events in $WINDOWS; do as_window_grows "$events"; done;; esac
  for proxy in "$@"; do stop_proxy "$proxy"; done
  first=$1; shift; set -- "$@" "$first"
done
uptime
echo "took $(($(date +%s) - BEGAN)) s; every measurement: $RESULTS"
python3 "$HERE/plot.py" "$RESULTS" "${SVG:-$HERE/growth.svg}"

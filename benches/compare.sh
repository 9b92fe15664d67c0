#!/usr/bin/env bash
# Whole processes compared, in one run: throughline beside nginx, HAProxy and no proxy at all. See README.md.
#   bash benches/compare.sh [-r ROUNDS] [-m "MODE ..."] [-p "PROXY ..."] [NAME=URL=COMMAND ...]
# In every round every mode goes over all proxies, the order turned by one each round. A further proxy is started by
# its COMMAND (which must stay in the foreground) and is asked at its URL.
set -u
. "$(dirname "$0")/lib.sh"
ROUNDS=3
MODES="json-closed json-open sse-fire sse-flush sse-paced replay idle storm-client storm-server storm-post"
PROXIES="direct nginx haproxy throughline"
while getopts r:m:p: option; do
  case $option in
    r) ROUNDS=$OPTARG;;
    m) MODES=$OPTARG;;
    p) PROXIES=$OPTARG;;
    *) exit 2;;
  esac
done
shift $((OPTIND - 1))
for program in nginx haproxy; do
  if ! command -v "$program" >/dev/null; then
    echo "$program is not installed and is left out; on Debian: apt-get install nginx-light haproxy" >&2
    PROXIES=$(printf '%s\n' $PROXIES | grep -vx "$program" | tr '\n' ' ')
  fi
done
build
RESULTS=$OUT/$(date +%m%d-%H%M%S).jsonl; : >"$RESULTS"
trap stop_all EXIT; trap 'exit 130' INT TERM
BEGAN=$(date +%s); uptime
start_backends
for further in "$@"; do
  name=${further%%=*}; rest=${further#*=}
  URLS[$name]=${rest%%=*}; COMMANDS[$name]=${rest#*=}; PROXIES="$PROXIES $name"
done
for proxy in $PROXIES; do start_proxy "$proxy" || exit 1; done
set -- $PROXIES
for ((round = 1; round <= ROUNDS; round++)); do
  for mode in $MODES; do
    for proxy in "$@"; do
      case $mode in
        json-closed)  load "$proxy" "$RESULTS" json --conns 16 --secs "${SECS:-2}" --warm 0.3;;
        json-open)    load "$proxy" "$RESULTS" json --conns 16 --rate "${RATE:-2000}" --secs "${SECS:-2}" --warm 0.3;;
        sse-fire)     load "$proxy" "$RESULTS" sse --streams 8 --n 2000 --bytes 200 --secs "${SECS:-2}";;
        sse-flush)    load "$proxy" "$RESULTS" sse --streams 8 --n 2000 --bytes 200 --flush --secs "${SECS:-2}";;
        sse-paced)
          load "$proxy" "$RESULTS" sse --streams 500 --n 100000 --bytes 200 --interval-us 50000 --secs "${PACED_SECS:-3}" --warm 0.5
          # throughline reads on for clients that may come back: 500 streams more in every measurement that follows.
          afresh "$proxy";;
        replay)       load "$proxy" "$RESULTS" replay --streams 8 --n 1000 --bytes 200 --secs "${SECS:-2}";;
        idle)         afresh "$proxy"; load "$proxy" "$RESULTS" idle --streams "${IDLE:-2000}" --conc 100 --settle 3 --hold 1;;
        idle-tls|idle-h2)
          [ -n "${TLS_URLS[$proxy]:-}" ] && [ -s "$RUN/tls.pem" ] || continue
          TLS=1 afresh "$proxy"
          if [ "$mode" = idle-tls ]; then url=${TLS_URLS[$proxy]}; protocol=; else url=${HTTP2_URLS[$proxy]}; protocol=--http2; fi
          TARGET=$url load "$proxy" "$RESULTS" idle --streams "${IDLE:-2000}" --conc 100 --settle 3 --hold 1 --ca "$RUN/tls.pem" $protocol;;
        storm-client) afresh "$proxy"; load "$proxy" "$RESULTS" storm --streams "${STORM:-1000}" --cut client;;
        storm-server) afresh "$proxy"; load "$proxy" "$RESULTS" storm --streams "${STORM:-1000}" --cut server;;
        storm-post)   afresh "$proxy"; load "$proxy" "$RESULTS" storm --streams "${STORM:-1000}" --cut server --kind post;;
        *) echo "no mode is called $mode" >&2; exit 2;;
      esac
    done
  done
  first=$1; shift; set -- "$@" "$first"
done
uptime
echo "took $(($(date +%s) - BEGAN)) s; every measurement: $RESULTS"
python3 "$HERE/summarise.py" "$RESULTS"

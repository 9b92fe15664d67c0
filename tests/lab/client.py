"""A real MCP client on the official Python SDK, 1.x or 2.x: whichever the interpreter's environment holds.

It does what it is told on standard input and says what it saw on standard output, one JSON object a line each;
client.mjs speaks the same two vocabularies. It judges nothing: losses and repeats are counted by who reads it.
Told:  {"do":"call","tag":..,"tool":..,"arguments":{..}} · {"do":"matrix"} (see matrix.py) · {"do":"quit"}
Says:  {"ev":"ready",..} · {"ev":"progress","tag","p"} · {"ev":"log","logger","data"} · {"ev":"answer","tag","outcome","text"} · {"ev":"fatal","text"}
Next: matrix.py.

    client.py URL [sse]
"""

import asyncio
import importlib.metadata
import json
import logging
import os
import sys

import matrix
import mcp.types as types
from mcp import ClientSession

VERSION = importlib.metadata.version("mcp")
logging.disable(logging.CRITICAL)
inbox = matrix.Inbox()


def say(**fields):
    print(json.dumps(fields, default=str), flush=True)


def words(error):
    """An error in one line; groups of one are opened."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    inner = getattr(error, "error", None)
    data = getattr(inner, "data", None)
    return f"{type(error).__name__}: {error}" + (f" {json.dumps(data, default=str)}" if data else "")


async def on_log(params):
    say(ev="log", logger=params.logger, level=params.level, data=params.data)
    await inbox.on_log(params)


async def call(session, tag, tool, arguments):
    async def on_progress(progress, total, message):
        say(ev="progress", tag=tag, p=progress)

    try:
        result = await session.call_tool(tool, arguments, progress_callback=on_progress)
        failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
        text = result.content[0].text if result.content else ""
        say(ev="answer", tag=tag, outcome="tool_error" if failed else "result", text=text)
    except Exception as error:
        say(ev="answer", tag=tag, outcome="error", text=words(error))


async def lines():
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def obey(session, cancel=None):
    tasks = []
    async for order in lines():
        if order["do"] == "matrix":
            tasks.append(asyncio.create_task(matrix.drive(session, inbox, cancel, say, words)))
        elif order["do"] == "call":
            tasks.append(asyncio.create_task(call(session, order["tag"], order["tool"], order["arguments"])))
        else:
            break
    say(ev="left")
    os._exit(0)


async def main(url, over="streamable"):
    if over == "sse":
        from mcp.client.sse import sse_client

        async with sse_client(url) as (read, write):
            async with ClientSession(read, write, logging_callback=on_log) as session:
                answer = await session.initialize()
                say(ev="ready", sdk=VERSION, protocol=str(getattr(answer, "protocolVersion", None) or answer.protocol_version))
                await obey(session)
    elif VERSION.startswith("2"):
        from mcp import Client

        async def nothing():
            """Giving up the wait is enough for this SDK to say so to the server."""

        async with Client(
            url, mode="legacy", logging_callback=on_log, message_handler=inbox.on_message,
            sampling_callback=matrix.on_sample, elicitation_callback=matrix.on_elicit,
        ) as client:
            say(ev="ready", sdk=VERSION, protocol=str(client.session.protocol_version))
            await obey(client, nothing)
    else:
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(url) as (read, write, _):
            async with ClientSession(
                read, write, logging_callback=on_log, message_handler=inbox.on_message,
                sampling_callback=matrix.on_sample, elicitation_callback=matrix.on_elicit,
            ) as session:

                async def cancel():
                    """This SDK has no call for it: an application sends the notification, with the id that it has counted."""
                    params = types.CancelledNotificationParams(requestId=session._request_id - 1, reason="no more")
                    note = types.CancelledNotification(method="notifications/cancelled", params=params)
                    await session.send_notification(types.ClientNotification(note))

                answer = await session.initialize()
                say(ev="ready", sdk=VERSION, protocol=answer.protocolVersion)
                await obey(session, cancel)


try:
    asyncio.run(main(*sys.argv[1:]))
except BaseException as error:
    say(ev="fatal", text=words(error))
    os._exit(1)

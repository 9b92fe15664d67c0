"""A client for the official conformance suite's client mode, on the official Python SDK, 1.x or 2.x.

The suite starts it with the URL of its server as the last argument, and names the scenario and the revision in the environment.
It does what every scenario asks for: connect (with OAuth where the server wants it), list tools, call them, leave.
Law: what a scenario judges is the SDK's own doing; nothing is done here for one scenario's sake but the schema that is echoed.
With LAB_REACHED_AT=http://ADDRESS the server of URL is found there, as where its name leads to a proxy; the SDK never knows.
Next: conformance.mjs.

    conformance.py URL
"""

import asyncio
import importlib.metadata
import json
import os
import sys
import urllib.parse

import mcp.types as types
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

TWO = importlib.metadata.version("mcp").startswith("2")
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
CALLBACK = "http://localhost:8123/callback"


class Keeper:
    """What an application keeps for OAuth, in memory; the browser is a request that follows no redirect."""

    def __init__(self):
        self.tokens = None
        self.client = None
        self.callback = {}
        if "client_id" in CONTEXT:
            self.client = OAuthClientInformationFull(
                client_id=CONTEXT["client_id"], client_secret=CONTEXT.get("client_secret"), redirect_uris=[CALLBACK],
                token_endpoint_auth_method="client_secret_basic" if CONTEXT.get("client_secret") else "none",
            )

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info

    async def redirect(self, url):
        async with create_mcp_http_client() as browser:
            answer = await browser.get(url)
        self.callback = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(answer.headers["location"]).query))

    async def called_back(self):
        if TWO:
            from mcp.client.auth import AuthorizationCodeResult

            return AuthorizationCodeResult(code=self.callback["code"], state=self.callback.get("state"), iss=self.callback.get("iss"))
        return self.callback["code"], self.callback.get("state")


def led(client, server):
    """Has the connections to `server` made to $LAB_REACHED_AT."""
    transport, Url = client._transport, type(client.base_url)
    server, there = Url(server), Url(os.environ["LAB_REACHED_AT"])
    handle = transport.handle_async_request

    async def handle_there(request):
        known = request.url
        if (known.host, known.port) == (server.host, server.port):
            request.url = known.copy_with(host=there.host, port=there.port)
        response = await handle(request)
        request.url = known
        return response

    transport.handle_async_request = handle_there


def sample(schema, tools):
    """A value for each argument that a tool requires."""
    first = tools[0]
    values = {"string": "x", "number": 2, "integer": 2, "boolean": True, "array": [], "object": schema_of(first)}

    def value(one):
        kind = one.get("type", "string")
        return one.get("const", one.get("enum", [values.get(kind if isinstance(kind, str) else kind[0], "x")])[0])

    return {name: value(one) for name, one in schema.get("properties", {}).items()}


def schema_of(tool):
    return tool.input_schema if TWO else tool.inputSchema


async def on_elicit(context, params):
    schema = params.requested_schema if TWO else params.requestedSchema
    defaults = {name: one["default"] for name, one in schema["properties"].items() if "default" in one}
    return types.ElicitResult(action="accept", content=defaults)


async def use(session):
    tools = (await session.list_tools()).tools
    failed = None
    for tool in tools:
        try:
            await session.call_tool(tool.name, sample(schema_of(tool), tools))
        except Exception as error:
            failed = failed or error
    if failed:
        raise failed


async def main(url):
    keeper = Keeper()
    metadata = OAuthClientMetadata(
        client_name="lab-python", redirect_uris=[CALLBACK], response_types=["code"],
        grant_types=["authorization_code", "refresh_token"],
    )
    auth = OAuthClientProvider(
        server_url=url, client_metadata=metadata, storage=keeper, redirect_handler=keeper.redirect,
        callback_handler=keeper.called_back, client_metadata_url="https://conformance-test.local/client-metadata.json",
    )
    async with create_mcp_http_client(auth=auth) as http:
        if "LAB_REACHED_AT" in os.environ:
            led(http, url)
        if TWO:
            from mcp import Client

            mode = REVISION if REVISION == "2026-07-28" else "legacy"
            async with Client(streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=on_elicit) as client:
                await use(client)
        else:
            async with streamable_http_client(url, http_client=http) as (read, write, _):
                async with ClientSession(read, write, elicitation_callback=on_elicit) as session:
                    await session.initialize()
                    await use(session)


asyncio.run(main(sys.argv[1]))

"""What the official conformance suite and the matrix of SDKs ask of a server, on a Python SDK's low-level server, 1.x or 2.x.

fixture.json says what stands still, this says what moves. Same words, same tools and same observations as fixture.mjs.
Law: it answers as the SDK does; nothing here knows of proxies.
Next: fixture.mjs.
"""

import asyncio
import contextlib
import hmac
import json
import os
import pathlib
import re
import secrets

import anyio
import mcp.types as types

# A server that ends a stream to be polled says when to come back, in milliseconds; not with $LAB_NO_RETRY.
RETRY = None if "LAB_NO_RETRY" in os.environ else 500
FIXTURE = json.loads(pathlib.Path(__file__).with_name("fixture.json").read_text())
background = set()


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def filled(value, values):
    """Puts arguments into `{name}`, wherever a text has it."""
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda hole: str(values.get(hole[1], hole[0])), value)
    if isinstance(value, list):
        return [filled(one, values) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, values) for key, one in value.items()}
    return value


def read(uri):
    match = re.fullmatch(r"test://template/(.+)/data", uri)
    return filled(FIXTURE["template"], {"id": match[1]}) if match else FIXTURE["contents"].get(uri)


def user_says(words):
    return types.SamplingMessage(role="user", content=types.TextContent(type="text", text=words))


class Ask:
    """A call's context, in one shape for both lines of the SDK."""

    def __init__(self, context, say):
        self.session, self.say = context.session, say
        self.request_id = context.request_id
        self.token = progress_token(context.meta)
        self.close_stream = context.close_sse_stream

    async def log(self, data):
        await self.session.send_log_message("info", data, related_request_id=self.request_id)

    async def progress(self, progress, total, message=None):
        if self.token is not None:
            await self.session.send_progress_notification(self.token, progress, total, message, related_request_id=str(self.request_id))

    def later(self, work):
        task = asyncio.get_running_loop().create_task(work)
        background.add(task)
        task.add_done_callback(background.discard)


def progress_token(meta):
    if meta is None:
        return None
    return meta.get("progress_token") if isinstance(meta, dict) else meta.progressToken


async def test_tool_with_logging(ask):
    for data in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        await ask.log(data)
        await anyio.sleep(0.05)
    return text("logged")


async def test_tool_with_progress(ask):
    for progress in [0, 50, 100]:
        await ask.progress(progress, 100)
        await anyio.sleep(0.05)
    return text("progressed")


async def test_sampling(ask, prompt):
    answer = await ask.session.create_message(messages=[user_says(prompt)], max_tokens=100, related_request_id=ask.request_id)
    return text(f"LLM response: {answer.content.text}")


async def test_reconnection(ask):
    if ask.close_stream:
        await ask.close_stream()
    await anyio.sleep(0.1)
    return text("reconnected")


async def slow(ask, tag, steps, interval_ms):
    ask.say(ev="began", tag=tag)
    try:
        for step in range(1, int(steps) + 1):
            await anyio.sleep(interval_ms / 1000)
            with contextlib.suppress(anyio.ClosedResourceError):
                await ask.progress(step, steps, f"{tag}:{step}")
    except anyio.get_cancelled_exc_class():
        ask.say(ev="cancelled", tag=tag)
        raise
    ask.say(ev="ended", tag=tag)
    return text(f"{tag}:done")


async def emit(ask, tag, n, interval_ms):
    async def go():
        for seq in range(1, int(n) + 1):
            await anyio.sleep(interval_ms / 1000)
            await ask.session.send_log_message("info", {"tag": tag, "seq": seq})

    ask.later(go())
    return text(f"{tag}:emitting")


async def touch(ask, uri):
    await ask.session.send_resource_updated(uri)
    return text("touched")


async def change_tools(ask):
    await ask.session.send_tool_list_changed()
    return text("changed")


def question(tool):
    async def elicit(ask, **given):
        asked = {**given, **FIXTURE["elicitations"][tool]}
        answer = await ask.session.elicit_form(asked["message"], asked["requestedSchema"], related_request_id=ask.request_id)
        return text(f"User response: action={answer.action}, content={json.dumps(answer.content or {})}")

    return elicit


MOVING = {
    one.__name__: one
    for one in [test_tool_with_logging, test_tool_with_progress, test_sampling, test_reconnection, slow, emit, touch, change_tools]
} | {tool: question(tool) for tool in FIXTURE["elicitations"]}


KEY = secrets.token_bytes(32)


def sealed(name, round):
    return f"{round}.{hmac.digest(KEY, f'{name} {round}'.encode(), 'sha256').hex()}"


def to_ask(params, context, refuse):
    """What is still to be asked before something is answered, in the way of 2026-07-28; only what the client has declared."""
    name, state = params["name"], params.get("requestState")
    asks = FIXTURE["asks"].get(name)
    if asks is None or getattr(context, "protocol_version", "") != "2026-07-28":
        return None
    declared = context.session.client_capabilities.model_dump(by_alias=True, exclude_none=True)
    round = 0
    if "keeps" in asks and state is not None:
        round = int(re.match(r"\d*", state)[0] or 0)
        if not hmac.compare_digest(state, sealed(name, round)):
            raise refuse("Not the state that was given out")

    def asked():
        return {key: one for key, one in asks["rounds"][round].items() if "even" in asks or one["method"].split("/")[0] in declared}

    responses = params.get("inputResponses") or {}
    if all(isinstance(responses.get(key), dict) for key in asked()):
        round += 1
    if round == len(asks["rounds"]):
        return None
    more = {"requestState": sealed(name, round)} if "keeps" in asks else {}
    return {"resultType": "input_required", "inputRequests": asked(), **more}


def answers(refuse, say):
    """What is answered to each method: parameters and the call's context in, the result's JSON out."""

    async def call(params, context):
        if params["name"] in FIXTURE["results"]:
            return FIXTURE["results"][params["name"]]
        if "answer" in FIXTURE["asks"].get(params["name"], {}):
            return to_ask(params, context, refuse) or text(FIXTURE["asks"][params["name"]]["answer"])
        if params["name"] not in MOVING:
            raise refuse(f"Unknown tool: {params['name']}")
        return await MOVING[params["name"]](Ask(context, say), **(params.get("arguments") or {}))

    async def read_resource(params, _):
        found = read(params["uri"])
        if found is None:
            raise refuse("Resource not found", {"uri": params["uri"]})
        return {"contents": [found]}

    async def get_prompt(params, context):
        if params["name"] not in FIXTURE["messages"]:
            raise refuse(f"Unknown prompt: {params['name']}")
        return to_ask(params, context, refuse) or {"messages": filled(FIXTURE["messages"][params["name"]], params.get("arguments") or {})}

    def always(result):
        async def same(_params, _context):
            return result

        return same

    words = {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}
    return {
        "ListTools": always({"tools": FIXTURE["tools"]}),
        "CallTool": call,
        "ListResources": always({"resources": FIXTURE["resources"]}),
        "ListResourceTemplates": always({"resourceTemplates": FIXTURE["templates"]}),
        "ReadResource": read_resource,
        "Subscribe": always({}),
        "Unsubscribe": always({}),
        "ListPrompts": always({"prompts": FIXTURE["prompts"]}),
        "GetPrompt": get_prompt,
        "Complete": always({"completion": words}),
        "SetLevel": always({}),
    }


def result_of(name, value):
    if value.get("resultType") == "input_required":
        return types.InputRequiredResult.model_validate(value)
    return getattr(types, f"{name}Result", types.EmptyResult).model_validate(value)


def app_of_one(store, stateless, say):
    """SDK 1.x: handlers by request type, and the session manager in a Starlette application of our own."""
    from mcp.server.lowlevel import NotificationOptions, Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.exceptions import McpError
    from starlette.applications import Starlette
    from starlette.routing import Route

    class Fixture(Server):
        def create_initialization_options(self, *_given):
            return super().create_initialization_options(NotificationOptions(tools_changed=True, resources_changed=True))

    server = Fixture("lab-python", version="1")
    refuse = lambda words, data=None: McpError(types.ErrorData(code=types.INVALID_PARAMS, message=words, data=data))

    def handler(name, answer):
        async def handle(request):
            params = request.params.model_dump(mode="json", by_alias=True) if request.params else {}
            return types.ServerResult(result_of(name, await answer(params, server.request_context)))

        return handle

    for name, answer in answers(refuse, say).items():
        server.request_handlers[getattr(types, f"{name}Request")] = handler(name, answer)
    local = ["127.0.0.1:*", "localhost:*", "[::1]:*"]
    security = TransportSecuritySettings(allowed_hosts=local, allowed_origins=[f"http://{one}" for one in local])
    manager = StreamableHTTPSessionManager(server, event_store=store, stateless=stateless, security_settings=security, retry_interval=RETRY)

    class Endpoint:
        async def __call__(self, scope, receive, send):
            await manager.handle_request(scope, receive, send)

    return Starlette(routes=[Route("/mcp", Endpoint())], lifespan=lambda _: manager.run())


def app_of_two(store, stateless, say):
    """SDK 2.x: handlers by name; its own application serves 2026-07-28 beside the session era."""
    from mcp import MCPError
    from mcp.server.lowlevel import NotificationOptions, Server

    def handler(name, answer):
        async def handle(context, params):
            given = params.model_dump(mode="json", by_alias=True) if params else {}
            return result_of(name, await answer(given, context))

        return handle

    names = {
        "ListTools": "on_list_tools", "CallTool": "on_call_tool", "ListResources": "on_list_resources",
        "ListResourceTemplates": "on_list_resource_templates", "ReadResource": "on_read_resource",
        "Subscribe": "on_subscribe_resource", "Unsubscribe": "on_unsubscribe_resource", "ListPrompts": "on_list_prompts",
        "GetPrompt": "on_get_prompt", "Complete": "on_completion", "SetLevel": "on_set_logging_level",
    }
    refuse = lambda words, data=None: MCPError(types.INVALID_PARAMS, words, data)
    handlers = {names[name]: handler(name, answer) for name, answer in answers(refuse, say).items()}

    class Fixture(Server):
        def create_initialization_options(self, *_given):
            return super().create_initialization_options(NotificationOptions(tools_changed=True, resources_changed=True))

    server = Fixture("lab-python", version="1", **handlers)
    return server.streamable_http_app(event_store=store, stateless_http=stateless, retry_interval=RETRY)

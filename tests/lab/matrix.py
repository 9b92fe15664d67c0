"""One drive through everything that a client and a server do together, for the matrix of SDKs; a client of client.py is given in.

Each feature says one line: ok, or why not. What needs a broken connection relies on whoever breaks it; see tests/interop/matrix.rs.
Law: it demands what the user of an SDK would: each answer, each message once and in order. Same features as matrix.mjs.
Next: matrix.mjs.
"""

import anyio
import mcp.types as types

PATIENCE = 15


class Inbox:
    """What has come, and a way to wait for more of it."""

    def __init__(self):
        self.logs, self.updated, self.changed = [], [], 0

    async def on_log(self, params):
        self.logs.append(params.data)

    async def on_message(self, message):
        note = getattr(message, "root", message)
        if isinstance(note, types.ResourceUpdatedNotification):
            self.updated.append(str(note.params.uri))
        if isinstance(note, types.ToolListChangedNotification):
            self.changed += 1

    async def until(self, enough, what):
        with anyio.move_on_after(PATIENCE):
            while not enough():
                await anyio.sleep(0.02)
            return
        raise TimeoutError(f"{what} did not come: {vars(self)}")


async def on_sample(context, params):
    return types.CreateMessageResult(role="assistant", content=types.TextContent(type="text", text="sampled"), model="lab")


async def on_elicit(context, params):
    return types.ElicitResult(action="accept", content={"username": "u", "email": "e"})


def same(seen, must):
    if seen != must:
        raise ValueError(f"{seen} instead of {must}")


def features(session, inbox):
    """The features of a session, which both lines of the SDK give under the same names."""

    async def call(name, given=None, on_progress=None):
        with anyio.fail_after(PATIENCE):
            result = await session.call_tool(name, given or {}, progress_callback=on_progress)
        if getattr(result, "is_error", None) or getattr(result, "isError", None):
            raise ValueError(result.content[0].text)
        return result.content[0].text

    async def progressing(name, given=None):
        seen = []

        async def on_progress(progress, total, message):
            seen.append(progress)

        return await call(name, given, on_progress), seen

    async def resume():
        await call("emit", {"tag": "resume", "n": 20, "interval_ms": 50})
        mine = lambda: [data["seq"] for data in inbox.logs if isinstance(data, dict) and data.get("tag") == "resume"]
        await inbox.until(lambda: 20 in mine(), "the last message")
        same(mine(), list(range(1, 21)))

    async def cut():
        same(await progressing("slow", {"tag": "cut", "steps": 8, "interval_ms": 100}), ("cut:done", [1, 2, 3, 4, 5, 6, 7, 8]))

    async def progress():
        same(await progressing("test_tool_with_progress"), ("progressed", [0, 50, 100]))

    async def sampling():
        same(await call("test_sampling", {"prompt": "hello"}), "LLM response: sampled")

    async def elicitation():
        text = await call("test_elicitation", {"message": "who?"})
        if "action=accept" not in text or '"u"' not in text:
            raise ValueError(text)

    async def logging():
        await session.set_logging_level("info")
        await call("test_tool_with_logging")
        wanted = ["Tool execution started", "Tool processing data", "Tool execution completed"]
        await inbox.until(lambda: all(words in inbox.logs for words in wanted), "a log message")

    async def subscription():
        uri = "test://watched-resource"
        await session.subscribe_resource(uri)
        await call("touch", {"uri": uri})
        await inbox.until(lambda: uri in inbox.updated, "the update")
        await session.unsubscribe_resource(uri)

    async def list_changed():
        await call("change_tools")
        await inbox.until(lambda: inbox.changed, "the change")

    async def cancellation(cancel):
        begun, ended = anyio.Event(), []

        async def on_progress(progress, total, message):
            begun.set()

        async def running():
            ended.append(await call("slow", {"tag": "cancel", "steps": 100, "interval_ms": 100}, on_progress))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running)
            await begun.wait()
            await cancel()
            tasks.cancel_scope.cancel()
        if ended:
            raise ValueError(f"it ended: {ended}")

    return [resume, cut, progress, sampling, elicitation, logging, subscription, list_changed, cancellation]


async def drive(session, inbox, cancel, say, words):
    """`cancel` is what an application does beside giving up its wait."""
    say(ev="feature", name="initialize", outcome="ok")
    for feature in features(session, inbox):
        try:
            await (feature(cancel) if feature.__name__ == "cancellation" else feature())
            say(ev="feature", name=feature.__name__, outcome="ok")
        except Exception as error:
            say(ev="feature", name=feature.__name__, outcome="failed", why=words(error))
    say(ev="driven")

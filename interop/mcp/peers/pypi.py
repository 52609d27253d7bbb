"""The client and the server of PyPI's `mcp`: MCP 2025-11-25 with 1.x, 2026-07-28 with 2.x.

    python pypi.py server                      on standard input and output
    python pypi.py http [BYTES]                on a free port, with POSTs of at most so many bytes
    python pypi.py client '{"command", "args", "calls": [{"up", "down"}]}'
    python pypi.py client '{"url", "calls", "extras": {"parallel", "units", "folder"}}'
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import socket
import sys
from importlib.metadata import version
from pathlib import Path

import anyio
import mcp.types as types
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

# What goes wrong is told by the client.
logging.disable(logging.CRITICAL)

MODERN = not version("mcp").startswith("1.")
if MODERN:
    from mcp import Client
    from mcp.server.mcpserver import Context, MCPServer as Server
else:
    from mcp import ClientSession
    from mcp.server.fastmcp import Context, FastMCP as Server

# As `words.mjs` has them.
UNIT = 'a "quoted" \\ é 漢 🚢\n'
PROGRESS = [(0, 3), (1, 3), (3, 3)]
ANSWER_END = "!"
COLOUR = "blue"
QUESTION = "Which colour?"

# The client of 2.x takes events of 1 MiB unless it is told otherwise, the one of 1.x any.
MAX_EVENT = {"max_sse_event_size": 64 << 20} if MODERN else {}

# How often is looked whether a file is there.
LOOK_SECONDS = 0.01


def about(text):
    data = text.encode()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def tell(line):
    print(json.dumps(line), flush=True)


class Form(BaseModel):
    colour: str


async def exchange(data: str, down: int, context: Context, unit: str = UNIT) -> list[str]:
    for value, total in PROGRESS:
        await context.report_progress(value, total)
    return [unit * down, json.dumps(about(data))]


async def wait(folder: str) -> str:
    Path(folder, "started").touch()
    try:
        await anyio.sleep_forever()
    finally:
        Path(folder, "cancelled").touch()


def prompt(units):
    content = types.TextContent(type="text", text=UNIT * units)
    return [types.SamplingMessage(role="user", content=content)]


async def ask(units: int, context: Context) -> list[str]:
    session = context.request_context.session
    options = {"max_tokens": 100, "related_request_id": context.request_id}
    sampled = await session.create_message(messages=prompt(units), **options)
    form = await context.elicit(QUESTION, Form)
    return [json.dumps(about(sampled.content.text)), form.data.colour]


async def ask_in_rounds(units: int, context: Context) -> "list[str] | types.InputRequiredResult":
    if context.protocol_version != "2026-07-28":
        return await ask(units, context)
    answers = context.input_responses
    if answers:
        sampled, form = answers["sampled"], answers["form"]
        return [json.dumps(about(sampled.content.text)), form.content["colour"]]
    message = types.CreateMessageRequestParams(messages=prompt(units), max_tokens=100)
    form = types.ElicitRequestFormParams(message=QUESTION, requested_schema=Form.model_json_schema())
    requests = {
        "sampled": types.CreateMessageRequest(params=message),
        "form": types.ElicitRequest(params=form),
    }
    return types.InputRequiredResult(input_requests=requests)


def serve(mode, limit):
    settings = {} if MODERN or limit is None else {"max_request_body_size": limit}
    server = Server("pypi", **settings)
    server.add_tool(exchange, structured_output=False)
    server.add_tool(wait, structured_output=False)
    server.add_tool(ask_in_rounds if MODERN else ask, name="ask", structured_output=False)
    if mode == "server":
        server.run("stdio")
    else:
        app = {"max_request_body_size": limit} if MODERN and limit is not None else {}
        asyncio.run(serve_http(server.streamable_http_app(**app)))


async def serve_http(app):
    import uvicorn

    # A client may keep its stream open; nobody waits for it at the end.
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


async def make_calls(plan, agreed, call, cancellable):
    tell({"version": agreed})

    async def exchange(sizes):
        progress = []

        async def heard(value, total, message):
            progress.append([value, total])

        other = {"unit": sizes["unit"]} if "unit" in sizes else {}
        arguments = {"data": other.get("unit", UNIT) * sizes["up"], "down": sizes["down"], **other}
        try:
            result = await call("exchange", arguments, progress_callback=heard)
            texts = [part.text for part in result.content]
            return {"text": about(texts[0]), "heard": json.loads(texts[1]), "progress": progress}
        except Exception as error:
            known = getattr(error, "error", None)
            fields = {name: getattr(known, name, None) for name in ("code", "data")}
            return {"error": {"message": str(error), **fields}}

    for sizes in plan["calls"]:
        tell(await exchange(sizes))
    extras = plan.get("extras")
    if extras is None:
        return
    tell({"parallel": await asyncio.gather(*map(exchange, extras["parallel"]))})
    result = await call("ask", {"units": extras["units"]})
    sampled, elicited = (part.text for part in result.content)
    tell({"sampled": json.loads(sampled), "elicited": elicited})
    folder = Path(extras["folder"])
    await cancellable("wait", {"folder": str(folder)}, lambda: appears(folder / "started"))
    await appears(folder / "cancelled")
    tell({"cancelled": "cancelled"})
    # The session lives on.
    tell(await exchange({"up": 1, "down": 1}))


async def appears(path):
    while not path.exists():
        await asyncio.sleep(LOOK_SECONDS)


async def sample(context, params):
    content = types.TextContent(type="text", text=params.messages[0].content.text + ANSWER_END)
    return types.CreateMessageResult(role="assistant", model="none", content=content)


async def fill_in(context, params):
    return types.ElicitResult(action="accept", content={"colour": COLOUR})


CALLBACKS = {"sampling_callback": sample, "elicitation_callback": fill_in}


def transport(plan):
    if "url" in plan:
        return streamable_http_client(plan["url"], **MAX_EVENT)
    return stdio_client(StdioServerParameters(command=plan["command"], args=plan["args"]))


async def ask_modern(plan):
    async with Client(transport(plan), **CALLBACKS) as client:

        async def cancellable(name, arguments, when):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, name, arguments)
                await when()
                tasks.cancel_scope.cancel()

        await make_calls(plan, client.protocol_version, client.call_tool, cancellable)


async def ask_session(plan):
    async with contextlib.AsyncExitStack() as stack:
        read, write, *_ = await stack.enter_async_context(transport(plan))
        session = await stack.enter_async_context(ClientSession(read, write, **CALLBACKS))
        agreed = await session.initialize()

        async def cancellable(name, arguments, when):
            # 1.x has no call for it: the id is the one that the next request gets.
            params = types.CancelledNotificationParams(requestId=session._request_id)
            cancelled = types.ClientNotification(types.CancelledNotification(params=params))
            call = asyncio.ensure_future(session.call_tool(name, arguments))
            await when()
            await session.send_notification(cancelled)
            # A server answers what was cancelled with an error, or not at all.
            call.cancel()
            await asyncio.wait([call])

        await make_calls(plan, agreed.protocolVersion, session.call_tool, cancellable)


if sys.argv[1] == "client":
    asyncio.run((ask_modern if MODERN else ask_session)(json.loads(sys.argv[2])))
else:
    serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)

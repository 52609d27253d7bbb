"""The client and the server of PyPI's `mcp`: MCP 2025-11-25 with 1.x, 2026-07-28 with 2.x.

    python pypi.py server
    python pypi.py client '{"command", "args", "calls": [{"up", "down"}]}'
"""

import asyncio
import hashlib
import json
import logging
import sys
from importlib.metadata import version

from mcp.client.stdio import StdioServerParameters, stdio_client

# What goes wrong is told by the client.
logging.disable(logging.CRITICAL)

MODERN = not version("mcp").startswith("1.")

# As `words.mjs` has them.
UNIT = 'a "quoted" \\ é 漢 🚢\n'
PROGRESS = [(0, 3), (1, 3), (3, 3)]


def about(text):
    data = text.encode()
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def tell(line):
    print(json.dumps(line), flush=True)


def serve():
    if MODERN:
        from mcp.server.mcpserver import Context, MCPServer as Server
    else:
        from mcp.server.fastmcp import Context, FastMCP as Server
    server = Server("pypi")

    async def exchange(data: str, down: int, context: Context) -> list[str]:
        for value, total in PROGRESS:
            await context.report_progress(value, total)
        return [UNIT * down, json.dumps(about(data))]

    # The context is found by its annotation, which is known here alone.
    exchange.__annotations__["context"] = Context
    server.add_tool(exchange, structured_output=False)
    server.run("stdio")


async def make_calls(calls, agreed, call):
    tell({"version": agreed})
    for plan in calls:
        progress = []

        async def heard(value, total, message):
            progress.append([value, total])

        arguments = {"data": UNIT * plan["up"], "down": plan["down"]}
        try:
            result = await call("exchange", arguments, progress_callback=heard)
            texts = [part.text for part in result.content]
            tell({"text": about(texts[0]), "heard": json.loads(texts[1]), "progress": progress})
        except Exception as error:
            code = getattr(getattr(error, "error", None), "code", None)
            tell({"error": {"code": code, "message": str(error)}})


async def ask(plan):
    server = StdioServerParameters(command=plan["command"], args=plan["args"])
    if MODERN:
        from mcp import Client

        async with Client(server) as client:
            await make_calls(plan["calls"], client.protocol_version, client.call_tool)
    else:
        from mcp import ClientSession

        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            agreed = await session.initialize()
            await make_calls(plan["calls"], agreed.protocolVersion, session.call_tool)


if sys.argv[1] == "server":
    serve()
else:
    asyncio.run(ask(json.loads(sys.argv[2])))

"""An MCP server over its standard streams, of both eras, that knows nothing of HTTP."""

import json
import os
import sys

META = "io.modelcontextprotocol/"
asked = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def answer(number, text):
    send({"id": number, "result": {"content": [{"type": "text", "text": text}]}})


def tool(number, name, arguments, token):
    if name == "echo":
        answer(number, arguments.get("text", ""))
    elif name == "large":
        answer(number, "x" * arguments["size"])
    elif name == "who":
        answer(number, str(os.getpid()))
    elif name == "steps":
        for step in (1, 2, 3):
            params = {"progressToken": token, "progress": step, "total": 3}
            send({"method": "notifications/progress", "params": params})
        answer(number, "done")
    elif name == "ask":
        asked["s1"] = number
        send({"id": "s1", "method": "sampling/createMessage", "params": {"messages": []}})
    elif name == "news":
        answer(number, "soon")
        send({"method": "notifications/tools/list_changed"})
    elif name == "wait":
        send({"method": "notifications/message", "params": {"level": "info", "data": "waiting"}})
    elif name == "die":
        os._exit(3)


for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        answer(asked.pop(number), json.dumps(message["result"]))
    elif method == "initialize":
        version = params.get("protocolVersion", "2025-06-18")
        info = {"name": "test", "version": "1"}
        send({"id": number, "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info}})
    elif method == "server/discover":
        send({"id": number, "result": {"supportedVersions": ["2026-07-28"]}})
    elif method == "tools/list":
        region = {"type": "string", "x-mcp-header": "Region"}
        schema = {"type": "object", "properties": {"text": region}}
        send({"id": number, "result": {"tools": [{"name": "echo", "inputSchema": schema}]}})
    elif method == "tools/call":
        token = (params.get("_meta") or {}).get("progressToken")
        tool(number, params["name"], params.get("arguments") or {}, token)
    elif method == "subscriptions/listen":
        params = {"_meta": {META + "subscriptionId": number}}
        send({"method": "notifications/subscriptions/acknowledged", "params": params})
    elif method == "notifications/cancelled":
        sys.stderr.write(f"cancelled {json.dumps(params['requestId'])}\n")
        sys.stderr.flush()
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})

sys.stderr.write("input ended\n")

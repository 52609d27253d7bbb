"""An MCP server over its standard streams that knows nothing of relays, in plain Python."""

import hashlib
import json
import os
import sys

VERSION = "io.modelcontextprotocol/protocolVersion"
UNITS = {"ascii": "abcdefghijklmnopqrstuvwxyz0123456789", "cjk": "运输大消息🚢"}
client, ready = None, False
heard = []


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def tool(name, arguments, token):
    if name == "text":
        unit = UNITS[arguments["kind"]]
        return unit * -(-arguments["size"] // len(unit.encode()))
    if name == "digest":
        return hashlib.sha256(arguments["data"].encode()).hexdigest()
    if name == "steps":
        for step in (0, 1, 2):
            params = {"progressToken": token, "progress": step, "total": 2, "message": "a step"}
            send({"method": "notifications/progress", "params": params})
        return "done"
    if name == "heard":
        return " ".join(heard)
    if name == "note":
        params = {"level": "info", "data": "x" * arguments["size"]}
        send({"method": "notifications/message", "params": params})
        return "noted"
    if name == "about":
        key = os.environ.get("BREAKBULK_NOSTR_KEY", "no key")
        return f"{client} {os.getpid()} {key}"
    if name == "die":
        os._exit(3)
    return None


sys.stdin.reconfigure(encoding="utf-8")
sys.stdout.reconfigure(encoding="utf-8")
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    heard.append(method)
    if "id" not in message:
        ready = ready or method == "notifications/initialized"
        continue
    if method == "initialize":
        client = params["clientInfo"]["name"]
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    elif method == "server/discover":
        result = {"supportedVersions": ["2026-07-28", "2025-06-18"]}
    elif not ready and VERSION not in params.get("_meta", {}):
        send({"id": message["id"], "error": {"code": -32002, "message": "not initialized"}})
        continue
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        text = tool(params["name"], params.get("arguments", {}), token)
        if text is None:
            continue
        result = {"content": [{"type": "text", "text": text}]}
    else:
        result = {}
    send({"id": message["id"], "result": result})

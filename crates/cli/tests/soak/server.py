"""A target of the soak over its standard streams: answers each request with the digest of the text that came
and a text of the wanted size, and writes the request down before that. It serves MCP as well."""

import hashlib
import json
import os
import sys

diary = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)


def text(number, size):
    """The same as `text::text` of the test."""
    parts = []
    for block in range(-(-size // 4096)):
        parts.append(hashlib.sha256(f"{number}:{block}".encode()).hexdigest() * 64)
    return "".join(parts)[:size]


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def answer(arguments):
    number = arguments["number"]
    # One write: other servers write to the same file.
    os.write(diary, f"{number}\n".encode())
    digest = hashlib.sha256(arguments["text"].encode()).hexdigest()
    return {"number": number, "digest": digest, "text": text(number, arguments["size"])}


for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "work":
        send({"id": number, "result": answer(params)})
    elif method == "tools/call":
        send({"id": number, "result": {"content": [], "structuredContent": answer(params["arguments"])}})
    elif method == "initialize":
        version, info = params["protocolVersion"], {"name": "soak", "version": "1"}
        send({"id": number, "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info}})
    elif number is not None:
        send({"id": number, "error": {"code": -32601, "message": "no such method"}})

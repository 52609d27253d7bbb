# A server: answers each request with a text of `params.size` letters, and sends notifications back.
import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = "x" * message["params"]["size"]
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n"
    sys.stdout.write(line)
    sys.stdout.flush()

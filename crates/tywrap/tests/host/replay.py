"""A bridge that says again what another one said.

It answers what a bridge is with the first line it was given, every call before the recorded ones with
null, and once it has all the recorded ones it writes what was recorded and ends as was recorded.
"""

import json
import os
import sys

script = json.loads(os.environ["REPLAY"])
calls = set(script["calls"])


def end():
    for line in script["stdout"]:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    sys.stderr.write(script["stderr"])
    sys.stderr.flush()
    os._exit(script["rc"])


for line in sys.stdin:
    message = json.loads(line)
    if "__tywrap_frame__" in message and message["seq"] + 1 < message["total"]:
        continue
    if message["id"] in calls:
        calls.remove(message["id"])
        if not calls:
            end()
    else:
        first = {"id": message["id"], "protocol": "tywrap/1", "result": None}
        print(script["meta"] if message["id"] == -1 else json.dumps(first), flush=True)

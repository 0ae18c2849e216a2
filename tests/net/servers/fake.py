"""A server written by hand, for what no good server does. The first argument says what."""

import json
import os
import sys
import time

how = sys.argv[1]


def answer(message, **result):
    print(
        json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}), flush=True
    )


for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "server/discover":
        answer(message, supportedVersions=["2026-07-28"], capabilities={"tools": {}}, ttlMs=0, cacheScope="public")
    elif how == "exit" and message["method"] == "tools/call":
        print("giving up", file=sys.stderr)
        sys.exit(3)
    elif how == "kill" and message["method"] == "tools/call":
        os.kill(os.getpid(), 9)
    elif how == "close" and message["method"] == "tools/call":
        os.close(1)
        time.sleep(60)
    elif how == "orphan" and message["method"] == "tools/call":
        # A child of its own goes on and holds the output open.
        if os.fork() == 0:
            time.sleep(60)
        os._exit(4)
    elif how == "chatty" and message["method"] == "tools/call":
        for _ in range(200):
            sys.stderr.write("x" * 10_000 + "\n")
        answer(message, content=[])

"""Not a server: what Hypercorn on trio costs, with the answers ready and nothing checked.

python ceiling_server.py hypercorn|trio PORT

`hypercorn` is the ceiling, a bare ASGI application under stock Hypercorn. `trio` is the floor of the cost: no HTTP
parser, one task a connection, one read and one write a call.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import orjson
import trio
from slow_log import mark
from tools import EXTRA_SCHEMA, extra_tools

_TEXT = "the quick brown fox jumps over it"
_CALL = orjson.Fragment(orjson.dumps({"content": [{"type": "text", "text": _TEXT}], "resultType": "complete"}))
_TOOLS = [{"name": name, "description": text, "inputSchema": EXTRA_SCHEMA} for name, text in extra_tools()]
_LIST = orjson.Fragment(orjson.dumps({"tools": _TOOLS, "resultType": "complete"}))
_SSE = b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0}}\n\n'


def answer(request: dict[str, Any]) -> bytes:
    """The body of the answer."""
    result = _LIST if request["method"] == "tools/list" else _CALL
    return orjson.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})


async def app(scope: Any, receive: Any, send: Any) -> None:
    """The application."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    request = orjson.loads(body)
    if request["params"].get("name") == "slow":
        await hold(request["params"]["arguments"], receive, send)
        return
    out = answer(request)
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(out))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": out})


async def hold(arguments: dict[str, Any], receive: Any, send: Any) -> None:
    """The `slow` tool: it lasts until the client goes away."""
    if arguments.get("progress"):
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": _SSE, "more_body": True})
    mark("start", arguments["tag"])
    while (await receive())["type"] != "http.disconnect":
        pass
    mark("cancelled", arguments["tag"])


async def raw(stream: trio.SocketStream) -> None:
    """One connection without a parser."""
    held = b""
    while data := await stream.receive_some(65536):
        held += data
        head, blank, body = held.partition(b"\r\n\r\n")
        lower = head.lower()
        length = int(lower[lower.find(b"content-length:") + 15 :].partition(b"\r\n")[0]) if blank else 0
        if not blank or len(body) < length:
            continue
        held = body[length:]
        out = answer(orjson.loads(body[:length]))
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(out)
        await stream.send_all(head + out)


if __name__ == "__main__":
    kind, port = sys.argv[1:]
    if kind == "trio":
        trio.run(partial(trio.serve_tcp, raw, int(port), host="127.0.0.1"))
    else:
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.errorlog = None
        trio.run(partial(serve, app, config))

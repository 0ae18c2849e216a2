"""Not a server: what trio and orjson alone cost, with a task and a cancel scope for every call.

It answers everything with the text of its arguments, checks nothing and writes all answers of one turn at once.
"""

from __future__ import annotations

from typing import Any

import orjson
import trio
from slow_log import mark


async def work(request: dict[str, Any]) -> bytes:
    """One call."""
    arguments = request["params"]["arguments"]
    if request["params"]["name"] == "slow":
        mark("start", arguments["tag"])
        try:
            await trio.sleep(arguments["seconds"])
        except trio.Cancelled:
            mark("cancelled", arguments["tag"])
            raise
        mark("done", arguments["tag"])
        return b""
    result = {"content": [{"type": "text", "text": arguments["text"]}], "resultType": "complete"}
    return orjson.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + b"\n"


async def main() -> None:
    """Serve until the input ends."""
    source, sink = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
    out: list[bytes] = []
    calls: dict[int, trio.CancelScope] = {}
    wake = trio.lowlevel.ParkingLot()

    async def run(request: dict[str, Any]) -> None:
        with trio.CancelScope(deadline=trio.current_time() + 60) as scope:
            calls[request["id"]] = scope
            out.append(await work(request))
            wake.unpark()
        del calls[request["id"]]

    async def write() -> None:
        while True:
            if not out:
                await wake.park()
            data = b"".join(out)
            out.clear()
            await sink.send_all(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        held = b""
        while data := await source.receive_some(65536):
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                request = orjson.loads(line)
                if request["method"] == "tools/call":
                    nursery.start_soon(run, request)
                elif request["method"] == "notifications/cancelled":
                    if request["params"]["requestId"] in calls:
                        calls[request["params"]["requestId"]].cancel()
                else:
                    out.append(orjson.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {}}) + b"\n")
                    wake.unpark()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)

"""One `timeout` for a call, over all the requests that it takes; the time of whoever answers a question is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Client, HeaderMismatch, Limits, RequestTimeout
from trio_mcp.client.answers import Answers
from trio_mcp.client.channel import Channel, Listener

WORKING = {"resultType": "task", "taskId": "a", "status": "working", "ttlMs": None, "pollIntervalMs": 1000}
DONE = {"resultType": "complete", "content": []}
MORE = {"resultType": "input_required", "requestState": "x"}
ASKS = {**MORE, "inputRequests": {"q": {"method": "elicitation/create", "params": {"message": "?"}}}}


class Slow(Channel):
    """Answers each request after a second."""

    def __init__(self, reply: Callable[[int, str], Any]) -> None:
        self.reply = reply
        self.asked: list[str] = []

    @property
    def peer(self) -> str:
        return "slow"

    async def call(self, method: str, params: dict[str, Any], listener: Listener) -> dict[str, Any]:
        self.asked.append(method)
        await trio.sleep(1)
        answer = self.reply(len(self.asked), method)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


async def ponder(params: dict[str, Any]) -> dict[str, Any]:
    await trio.sleep(100)
    return {}


def client(reply: Callable[[int, str], Any]) -> tuple[Client, Slow]:
    channel = Slow(reply)
    return Client(channel, info={}, limits=Limits(), answers=Answers(elicit=ponder)), channel


@pytest.mark.parametrize("default", [False, True])
async def test_rounds_share_the_time(default: bool, autojump_clock: MockClock) -> None:
    channel = Slow(lambda number, method: MORE)
    one = Client(channel, info={}, limits=Limits(client_timeout=2.5) if default else Limits())
    with pytest.raises(RequestTimeout, match=r"no answer from slow within 2\.5 s"):
        await one.call_tool("t", timeout=None if default else 2.5)
    assert trio.current_time() == pytest.approx(2.5)
    assert len(channel.asked) == 3


async def test_the_time_of_whoever_answers_is_left_out(autojump_clock: MockClock) -> None:
    one, _ = client(lambda number, method: DONE if number == 3 else ASKS)
    await one.call_tool("t", timeout=3.5)
    assert trio.current_time() == pytest.approx(203)


async def test_the_time_of_whoever_answers_is_left_out_of_a_task_as_well(autojump_clock: MockClock) -> None:
    def reply(number: int, method: str) -> Any:
        if method == "tasks/get":
            return {**WORKING, "status": "completed", "result": DONE}
        return ASKS if number == 1 else WORKING

    one, channel = client(reply)
    await one.call_tool("t", timeout=4.5)
    assert channel.asked == ["tools/call", "tools/call", "tasks/get"]
    assert trio.current_time() == pytest.approx(104)


async def test_pages_share_the_time(autojump_clock: MockClock) -> None:
    one, channel = client(lambda number, method: {"tools": [], "nextCursor": f"{number}"})
    with pytest.raises(RequestTimeout, match=r"tools/list: no answer from slow within 2\.5 s"):
        await one.list_tools(timeout=2.5)
    assert trio.current_time() == pytest.approx(2.5)
    assert len(channel.asked) == 3


async def test_a_call_that_is_made_again_with_other_headers_shares_the_time(autojump_clock: MockClock) -> None:
    def reply(number: int, method: str) -> Any:
        return {"tools": []} if method == "tools/list" else HeaderMismatch("no") if number == 1 else DONE

    one, channel = client(reply)
    with pytest.raises(RequestTimeout, match=r"within 2\.5 s"):
        await one.call_tool("t", timeout=2.5)
    assert channel.asked == ["tools/call", "tools/list", "tools/call"]
    assert trio.current_time() == pytest.approx(2.5)

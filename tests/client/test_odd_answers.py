"""Answers over lines that are not for a call, or not readable: noted in the log, and the call that they were meant for ends."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import InvalidResponse, Limits, RequestTimeout, open_client

from .test_client import result, scripted

UNREADABLE = {
    "no result": '{"jsonrpc":"2.0","result":null,"id":ID}',
    "no version": '{"id":ID,"result":{}}',
    "a result and an error": '{"jsonrpc":"2.0","id":ID,"result":{},"error":{"code":1,"message":""}}',
    "an error without a code": '{"jsonrpc":"2.0","error":{"message":"x"},"id":ID}',
    "an infinite number, the id in front": '{"jsonrpc":"2.0","id":ID,"result":{"x":1e999}}',
    "an infinite number, the id at the end": '{"jsonrpc":"2.0","result":{"x":1e999},"id":ID}',
    "half a character, the id at the end": '{"result":{"x":"\\ud800"}, "id": ID , "jsonrpc": "2.0" }',
    "the id as text": '{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}',
    "an error with the id as text": '{"jsonrpc":"2.0","id":"ID","error":{"code":-32600,"message":"x"}}',
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_call_whose_answer_cannot_be_read_ends_at_once(
    kind: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        return [UNREADABLE[kind].replace("ID", str(message["id"])).encode() + b"\n"]

    async with scripted(reply) as stream, open_client(stream) as client:
        with pytest.raises(InvalidResponse, match="the answer of the stream cannot be read"):
            await client.call_tool("t")
        assert trio.current_time() == 0
    assert caplog.records[-1].levelno == logging.WARNING


async def test_an_answer_to_what_was_not_asked_is_noted_and_told_by_the_timeout(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        return [{**result(message, content=[]), "id": id} for id in (message["id"] + 7, 0, -1, "x", "")]

    async with scripted(reply) as stream, open_client(stream) as client:
        with pytest.raises(RequestTimeout, match='answered a request with the id "", which was not sent'):
            await client.call_tool("t", timeout=3)
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 5


async def test_a_second_answer_is_noted_and_is_nobodys(caplog: pytest.LogCaptureFixture) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        text = {"type": "text", "text": message["params"]["name"]}
        return [result(message, content=[text]), result(message, content=[{**text, "text": "again"}])]

    caplog.set_level(logging.DEBUG, "trio_mcp.client")
    async with scripted(reply) as stream, open_client(stream) as client:
        assert [(await client.call_tool(name)).text for name in "ab"] == ["a", "b"]
    assert "an answer to request 2, which has ended" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


async def test_a_line_without_an_end_fails_the_call_that_it_is_for_and_no_later_one(autojump_clock: MockClock) -> None:
    def reply(message: dict[str, Any]) -> Any:
        if message["method"] != "tools/call":
            return None
        good = json.dumps(result(message, content=[])).encode() + b"\n"
        return [b"x" * 5_000] if message["params"]["name"] == "bad" else [b"the end\n" + good]

    async with scripted(reply) as stream, open_client(stream, limits=Limits(answer_bytes=1_000)) as client:
        with pytest.raises(InvalidResponse, match="wrote a line over 1000 bytes"):
            await client.call_tool("bad")
        assert trio.current_time() == 0
        assert (await client.call_tool("good")).content == ()

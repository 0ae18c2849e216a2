"""Whatever a server of an older revision does to calls that overlap, in virtual time: each call settles once and in its own way,
what may have run is not run again, and nothing is left behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from trio_mcp import ConnectionClosed, HttpError, ProtocolError, RequestTimeout

from ..scaled import scaled
from .legacy_peers import EXIT, Lines, Seen, Web, answer, error, lines, old


@dataclass
class Step:
    """One call: when it is made, what becomes of it at the server, after how long, and when its caller leaves."""

    at: float
    fate: str
    takes: float
    leaves: float


SECONDS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 5.0])
HTTP = ("json", "sse", "double", "cut", "cut with no id", "lost", "restart", "error", "500", "never")
LINES = ("json", "double", "error", "never")


def plans(fates: tuple[str, ...]) -> st.SearchStrategy[list[Step]]:
    leaves = st.sampled_from([0.5, 1.0, 3.0, 50.0, 50.0])
    return st.lists(st.builds(Step, SECONDS, st.sampled_from(fates), SECONDS, leaves), min_size=1, max_size=8)


def result(name: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": name}]}


class Fates:
    """What the server does to each call; how often it ran is counted."""

    def __init__(self, steps: list[Step], web: Web) -> None:
        self.steps = {f"call {number}": step for number, step in enumerate(steps)}
        self.web = web
        self.ran: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.losses = 0
        self.messages: dict[str, dict[str, Any]] = {}

    def lose(self) -> None:
        self.losses += 1
        self.web.sessions.clear()

    async def call(self, seen: Seen) -> Any:
        name = seen.message["params"]["name"]
        step = self.steps[name]
        if step.fate in ("lost", "restart") and name not in self.refused:
            self.refused.add(name)
            self.lose()
            if step.fate == "restart":
                for stream in self.web.streams:
                    stream.cut()
            return 404
        self.ran[name] += 1
        self.messages[name] = seen.message
        if step.fate in ("json", "error", "500", "never", "lost", "restart"):
            await trio.sleep(500 if step.fate == "never" else step.takes)
            return {"error": error(-32602, name), "500": 500}.get(step.fate, result(name))
        await trio.sleep(step.takes)
        stream = self.web.stream()
        if step.fate.startswith("cut"):
            stream.event(None, id=None if "no id" in step.fate else name, retry=300)
            stream.cut()
        else:
            for _ in range(2 if step.fate == "double" else 1):
                stream.event(answer(seen.message, result(name)), id=name)
        return stream

    def get(self, seen: Seen) -> Any:
        stream = self.web.stream()
        if seen.last is None or seen.last not in self.messages:
            return stream  # what belongs to no call: nothing, and it stays open
        stream.event(answer(self.messages[seen.last], result(seen.last)))
        return stream


def check(name: str, step: Step, outcome: Any, troubled: bool, losses: int = 0) -> None:
    if isinstance(outcome, RequestTimeout):
        return  # the caller left; it may always be that it had to wait for others
    if troubled and isinstance(outcome, ConnectionClosed):
        return  # a stream that a restart has cut
    if losses and step.fate == "cut" and isinstance(outcome, ConnectionClosed):
        return  # its session was lost before it could be taken up again
    if isinstance(outcome, HttpError) and outcome.status == 404:
        # It lost two sessions, one after the other, and was not run.
        assert losses >= 2
        return
    if step.fate == "error":
        assert isinstance(outcome, ProtocolError)
        assert str(outcome) == f"{name} (code -32602)"
    elif step.fate == "500":
        assert isinstance(outcome, HttpError)
    elif step.fate == "cut with no id":
        assert isinstance(outcome, ConnectionClosed)
    else:
        assert outcome.text == name


async def play(client: Any, steps: list[Step]) -> dict[str, list[Any]]:
    outcomes: dict[str, list[Any]] = {f"call {number}": [] for number in range(len(steps))}

    async def call(name: str, step: Step) -> None:
        await trio.sleep(step.at)
        try:
            outcomes[name].append(await client.call_tool(name, timeout=step.leaves))
        except Exception as exc:
            outcomes[name].append(exc)

    with trio.fail_after(400):
        async with trio.open_nursery() as nursery:
            for number, step in enumerate(steps):
                nursery.start_soon(call, f"call {number}", step)
    return outcomes


@settings(max_examples=scaled(60), deadline=None)
@given(plans(HTTP), st.booleans())
def test_over_http(steps: list[Step], closes_early: bool) -> None:
    async def run() -> None:
        web = Web()
        fates = Fates(steps, web)
        web.replies.update({"tools/call": fates.call, "GET": fates.get})
        before = trio.lowlevel.current_statistics().tasks_living
        async with web.client(eras=["legacy"]) as client:
            if closes_early:
                with trio.move_on_after(2):
                    await play(client, steps)
                outcomes = {}
            else:
                outcomes = await play(client, steps)
        assert trio.lowlevel.current_statistics().tasks_living == before
        troubled = any(step.fate == "restart" for step in steps)
        for name, got in outcomes.items():
            assert len(got) == 1
            check(name, fates.steps[name], got[0], troubled, fates.losses)
        assert all(times == 1 for times in fates.ran.values())
        # One new session at most for each that was lost.
        assert 1 <= len(web.of("initialize")) <= 1 + fates.losses
        assert len(web.of("notifications/initialized")) <= len(web.of("initialize"))
        told = [seen.message["params"]["requestId"] for seen in web.of("notifications/cancelled")]
        assert len(told) == len(set(told))
        assert set(told) <= {seen.message["id"] for seen in web.of("tools/call")}

    trio.run(run, clock=MockClock(autojump_threshold=0))


@settings(max_examples=scaled(60), deadline=None)
@given(plans(LINES), st.one_of(st.none(), SECONDS))
def test_over_lines(steps: list[Step], ends: float | None) -> None:
    async def run() -> None:
        named = {f"call {number}": step for number, step in enumerate(steps)}
        ran: Counter[str] = Counter()

        async def call(message: dict[str, Any]) -> Any:
            name = message["params"]["name"]
            step = named[name]
            ran[name] += 1
            await trio.sleep(500 if step.fate == "never" else step.takes)
            outcome = error(-32602, name) if step.fate == "error" else result(name)
            return [answer(message, outcome)] * (2 if step.fate == "double" else 1)

        async def end(peer: Lines) -> None:
            if ends is not None:
                await trio.sleep(ends)
                await peer.send(EXIT)

        before = trio.lowlevel.current_statistics().tasks_living
        async with lines(old(tools_call=call), eras=["legacy"]) as (client, peer), trio.open_nursery() as nursery:
            nursery.start_soon(end, peer)
            outcomes = await play(client, steps)
        assert trio.lowlevel.current_statistics().tasks_living == before
        for name, got in outcomes.items():
            assert len(got) == 1
            check(name, named[name], got[0], ends is not None)
        assert all(times == 1 for times in ran.values())
        left = sum(isinstance(got[0], RequestTimeout) for got in outcomes.values())
        assert len(peer.of("notifications/cancelled")) <= left

    trio.run(run, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("fate", HTTP)
def test_each_fate_alone(fate: str) -> None:
    """So that none is only there by chance."""
    seen: list[Any] = []

    async def run() -> None:
        web = Web()
        fates = Fates([Step(0, fate, 1, 50)], web)
        web.replies.update({"tools/call": fates.call, "GET": fates.get})
        async with web.client(eras=["legacy"]) as client:
            outcomes = await play(client, [*fates.steps.values()])
        seen.extend(outcomes["call 0"])
        assert fates.ran["call 0"] == 1

    trio.run(run, clock=MockClock(autojump_threshold=0))
    if fate == "never":
        assert isinstance(seen[0], RequestTimeout)
    else:
        check("call 0", Step(0, fate, 1, 50), seen[0], False)
        assert not isinstance(seen[0], RequestTimeout)

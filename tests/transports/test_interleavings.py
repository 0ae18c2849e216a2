"""Random interleavings of requests, answers, cancels and disconnects on one connection.

A model walks beside the server. Whatever happens, each request settles exactly once: it is answered once, or it was
cancelled and nothing comes after the cancel, or the connection ended first. None is lost, none is answered twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Limits
from trio_mcp.testing import RawPeer, open_raw, request

from ..scaled import scaled
from .model import Handlers, make_server

DRAIN = 2.0
# The queue has room for every id, so that a cancel is always read at once and the model knows what it meets.
LIMITS = Limits(connection_running=3, connection_waiting=8, drain_timeout=DRAIN, request_timeout=20, write_buffer=2_000)


ids = st.sampled_from([1, 2, "1", "2", 0, -7, "", 2**53 + 1])
requests = st.tuples(
    st.just("request"),
    ids,
    st.sampled_from(["work", "work", "work", "fail", "missing"]),
    st.sampled_from([0, 0, 0.5, 1, 3, 30]),
    st.sampled_from([1, 10, 5_000]),
)
cancels = st.tuples(st.just("cancel"), ids | st.sampled_from([99, None, True, 1.0]))
pauses = st.tuples(st.just("pause"), st.sampled_from([0, 0.1, 0.5, 1, 5]))
endings = st.sampled_from(["close input", "vanish", "cancel the serving", "leave"])


@dataclass
class Model:
    """The requests as the test knows them."""

    tags: dict[int, Any] = field(default_factory=dict)
    open: dict[Any, int] = field(default_factory=dict)
    answers: dict[int, list[Any]] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    tokens: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def take(self, message: dict[str, Any]) -> None:
        if message.get("method") == "notifications/progress":
            tag = message["params"]["progressToken"]
            if tag in self.cancelled or self.answers[tag]:
                self.errors.append(f"progress for {tag} after it was settled")
            return
        key = (type(message["id"]), message["id"])
        tag_or_none = self.open.pop(key, None)
        if tag_or_none is None:
            self.errors.append(f"an answer that nobody waits for: {str(message)[:200]}")
        else:
            self.answers[tag_or_none].append(message)


async def play(actions: list[Any], ending: str, cuts: list[int]) -> None:
    seen, model = Handlers(), Model()
    async with open_raw(make_server(seen, LIMITS)) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(listen, peer, model)
        for tag, action in enumerate(actions):
            await perform(peer, model, tag, action, cuts)
        # Everything that is running may run out, unless the connection ends first.
        if ending == "leave":
            await trio.sleep(500)
        before = dict(model.open)
        now = trio.current_time()
        if ending == "close input":
            await peer.close_input()
        elif ending == "vanish":
            await peer.vanish()
        elif ending == "cancel the serving":
            peer.serving.cancel()
        else:
            await peer.close_input()
        await peer.ended.wait()
        assert trio.current_time() - now <= DRAIN + 0.01
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert model.errors == []
    assert sorted(seen.started) == sorted(seen.finished), "a handler is still running"
    assert len(set(seen.started)) == len(seen.started), "a request ran twice"
    for tag, answers in model.answers.items():
        assert len(answers) <= 1
        if tag in model.cancelled:
            assert answers == []
    if ending == "leave":
        assert before == {}, "a request was lost"
        unanswered = [tag for tag, answers in model.answers.items() if not answers and tag not in model.cancelled]
        assert unanswered == []


async def listen(peer: RawPeer, model: Model) -> None:
    try:
        while (line := await peer.receive_line()) is not None:
            model.take(json.loads(line))
    except trio.ClosedResourceError:
        pass


async def perform(peer: RawPeer, model: Model, tag: int, action: Any, cuts: list[int]) -> None:
    if action[0] == "pause":
        await trio.sleep(action[1])
        return
    if action[0] == "cancel":
        message: Any = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": action[1]},
        }
        await send_in_pieces(peer, message, cuts)
        await wait_all_tasks_blocked()
        # What was under way when the server read the cancel is over without an answer.
        found = model.open.pop((type(action[1]), action[1]), None)
        if found is not None:
            model.cancelled.add(found)
        return
    _, id, tool, seconds, size = action
    key = (type(id), id)
    if key in model.open:
        return
    model.open[key] = tag
    model.answers[tag] = []
    arguments = {"tag": tag} if tool == "fail" else {"tag": tag, "seconds": seconds, "size": size}
    message = request(id, "tools/call", name=tool, arguments=arguments, meta={"progressToken": tag})
    await send_in_pieces(peer, message, cuts)


async def send_in_pieces(peer: RawPeer, message: Any, cuts: list[int]) -> None:
    data = json.dumps(message).encode() + b"\n"
    for cut in cuts:
        if 0 < cut < len(data):
            await peer.send_bytes(data[:cut])
            data = data[cut:]
    await peer.send_bytes(data)


@settings(max_examples=scaled(150))
@given(
    actions=st.lists(requests | requests | cancels | pauses, max_size=25),
    ending=endings,
    cuts=st.lists(st.integers(1, 60), max_size=4),
)
def test_each_request_settles_exactly_once(actions: list[Any], ending: str, cuts: list[int]) -> None:
    async def run() -> None:
        with trio.fail_after(10_000):
            await play(actions, ending, cuts)

    trio.run(run, clock=MockClock(autojump_threshold=0))

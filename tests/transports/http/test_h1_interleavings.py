"""Random interleavings of requests, answers, hang-ups and drains over several HTTP/1.1 connections.

A model walks beside the server. Whatever happens, each request settles exactly once: it is answered once and in order,
or its client left and nothing comes after that, or the serving ended first. None is lost, none is answered twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Limits

from ...scaled import scaled
from ..model import Handlers, make_server
from .helpers import BOTH, IDLE, Answer, Peer, Site, call, http, open_site

CONNECTIONS = 3
DEADLINE = 20.0
# Each connection is read whatever waits on it, so that a hang-up is always noticed at once.
LIMITS = Limits(running=2, waiting=2, request_timeout=DEADLINE, pipelined=1_000, write_buffer=2_000)


# One connection has more to do than the others, so that requests wait behind each other.
numbers = st.sampled_from([0, 0, *range(CONNECTIONS)])
requests = st.tuples(
    st.just("request"),
    numbers,
    st.sampled_from(["work", "work", "work", "fail", "missing", "notification", "garbage body", "put"]),
    st.sampled_from([0, 0, 0.5, 1, 3, 30]),
    st.sampled_from([1, 10, 5_000]),
    st.sampled_from([BOTH, BOTH, "application/json", "text/event-stream"]),
)
leavings = st.tuples(st.just("leave"), numbers, st.booleans())
drains = st.tuples(st.just("drain"), numbers)
pauses = st.tuples(st.just("pause"), st.sampled_from([0, 0.1, 0.5, 1, 5]))
endings = st.sampled_from(["run out", "run out", "leave", "drain", "cancel"])


@dataclass
class Sent:
    """A request, and what came for it."""

    tag: int
    tool: str
    answers: list[Answer] = field(default_factory=list)


@dataclass
class Client:
    """One connection as the test knows it."""

    peer: Peer
    sent: list[Sent] = field(default_factory=list)
    next: int = 0
    gone: bool = False
    drained: bool = False

    async def listen(self) -> None:
        """Read answers in the order of the requests."""
        while True:
            try:
                answer = await self.peer.head()
                item = self.sent[self.next]
                self.next += 1
                item.answers.append(answer)
                await self.peer.rest(answer)
            except (EOFError, trio.ClosedResourceError):
                return


@dataclass
class World:
    """The connections, live and past."""

    site: Site
    nursery: trio.Nursery
    seen: Handlers
    live: list[Client] = field(default_factory=list)
    past: list[Client] = field(default_factory=list)

    def open(self) -> Client:
        client = Client(self.site.connect())
        self.nursery.start_soon(client.listen)
        return client

    async def retire(self, client: Client, settled: bool) -> None:
        """A client leaves: its handlers end at once and none of its requests starts any more.

        Args:
            client: Which.
            settled: Whether it waits until nothing moves; else what it sent last arrives together with its end.
        """
        if settled:
            await wait_all_tasks_blocked()
        client.gone = True
        now = trio.current_time()
        before = client.peer.sent
        await client.peer.leave()
        await wait_all_tasks_blocked()
        assert trio.current_time() == now
        assert client.peer.ended.is_set()
        assert not settled or client.peer.sent == before, "something was sent after the client left"
        tags = {item.tag for item in client.sent}
        started = [tag for tag in self.seen.started if tag in tags]
        assert sorted(started) == sorted(tag for tag in self.seen.finished if tag in tags)
        self.past.append(client)


def message_of(tag: int, tool: str, seconds: float, size: int, accept: str) -> bytes:
    if tool == "put":
        return http(verb="PUT")
    if tool == "garbage body":
        return http(body=b"{]", accept=accept)
    if tool == "notification":
        return http({"jsonrpc": "2.0", "method": "notifications/x"}, accept=accept)
    arguments = {"tag": tag} if tool != "work" else {"tag": tag, "seconds": seconds, "size": size}
    return http(
        call(tag, tool, {"progressToken": tag}, **arguments), accept=accept, chunks=[7] if tag % 3 == 0 else None
    )


async def send_in_pieces(peer: Peer, data: bytes, cuts: list[int]) -> None:
    for cut in cuts:
        if 0 < cut < len(data):
            await peer.send(data[:cut])
            await wait_all_tasks_blocked()
            data = data[cut:]
    await peer.send(data)


async def perform(world: World, tag: int, action: Any, cuts: list[int]) -> None:
    if action[0] == "pause":
        await trio.sleep(action[1])
        return
    number = action[1]
    client = world.live[number]
    if action[0] == "leave":
        await world.retire(client, action[2])
        world.live[number] = world.open()
    elif action[0] == "drain":
        client.drained = True
        client.peer.connection.drain()
    elif not client.peer.ended.is_set() and not client.drained:
        client.sent.append(Sent(tag, action[2]))
        await send_in_pieces(client.peer, message_of(tag, *action[2:]), cuts)


def check_answer(item: Sent, answer: Answer) -> None:
    expected = {"notification": 202, "garbage body": 400, "put": 405, "missing": 400}.get(item.tool, 200)
    if answer.status == 503:
        assert expected in (200, 400)
        assert answer.json["id"] == item.tag
        return
    if answer.fields.get("content-type") == "text/event-stream":
        # The stream was asked for before the error was known.
        assert (answer.status, expected) in {(200, 200), (200, 400)}
    else:
        assert answer.status == expected
    if expected in (202, 405) or not answer.complete:
        return
    if answer.fields["content-type"] == "text/event-stream":
        *before, last = answer.events
        assert [event["params"]["progressToken"] for event in before] == [item.tag] * len(before)
    else:
        last = answer.json
    assert last.get("id") == (None if item.tool == "garbage body" else item.tag)


async def play(actions: list[Any], ending: str, cuts: list[int]) -> None:
    seen = Handlers()
    async with open_site(make_server(seen, LIMITS)) as site, trio.open_nursery() as nursery:
        world = World(site, nursery, seen)
        world.live = [world.open() for _ in range(CONNECTIONS)]
        for tag, action in enumerate(actions):
            await perform(world, tag, action, cuts)
        if ending == "leave":
            for client in world.live:
                await world.retire(client, client.next % 2 == 0)
        elif ending == "drain":
            for client in world.live:
                client.drained = True
                client.peer.connection.drain()
            # What is being answered may wait behind the requests of the others, and then take its own time.
            with trio.fail_after(DEADLINE * 3):
                for client in world.live:
                    await client.peer.ended.wait()
        elif ending == "run out":
            await trio.sleep(1_000)
        if ending != "cancel":
            await wait_all_tasks_blocked()
            assert site.statistics == IDLE
        nursery.cancel_scope.cancel()

    assert sorted(seen.started) == sorted(seen.finished), "a handler is still running"
    assert len(set(seen.started)) == len(seen.started), "a request ran twice"
    for client in [*world.live, *world.past]:
        assert client.next <= len(client.sent)
        for item in client.sent:
            assert len(item.answers) <= 1
            for answer in item.answers:
                check_answer(item, answer)
        if ending == "run out" and not client.gone and not client.drained:
            unanswered = [item.tag for item in client.sent if not any(answer.complete for answer in item.answers)]
            assert unanswered == [], "a request was lost"
        if client.drained and not client.gone and ending in ("run out", "drain"):
            assert all(answer.complete for item in client.sent for answer in item.answers)


@settings(max_examples=scaled(150))
@given(
    actions=st.lists(requests | requests | requests | leavings | drains | pauses, max_size=25),
    ending=endings,
    cuts=st.lists(st.integers(1, 400), max_size=4),
)
def test_each_request_settles_exactly_once(actions: list[Any], ending: str, cuts: list[int]) -> None:
    async def run() -> None:
        with trio.fail_after(10_000):
            await play(actions, ending, cuts)

    trio.run(run, clock=MockClock(autojump_threshold=0))

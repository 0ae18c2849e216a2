"""The events of a session: their order, their bounds, and who takes them."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Limits
from trio_mcp.server.peer.events import Event, EventLog, EventStore, EventStream


class Reader:
    """A connection that keeps what it is given.

    Attributes:
        took: Ids and messages of events.
        told: What was said besides.
        alive: Whether it can be written to.
        ended: Whether nothing more comes.
    """

    def __init__(self) -> None:
        self.took: list[tuple[str, bytes]] = []
        self.told: list[bytes] = []
        self.alive = True
        self.ended = False
        self.full = False
        self._room = trio.lowlevel.ParkingLot()

    async def wait_room(self) -> None:
        await self._room.park()

    def go_on(self) -> None:
        self.full = False
        self._room.unpark_all()

    def send(self, event: Event, id: str) -> bool:
        assert not self.ended
        if self.alive:
            self.took.append((id, event.message))
        return self.alive

    def tell(self, message: bytes) -> None:
        self.told.append(message)

    def end(self) -> None:
        self.ended = True


def make(most: int = 1_000, **limits: int) -> tuple[EventStore, EventLog]:
    store = EventStore(most)
    return store, EventLog(store, Limits(**limits))


def put(stream: EventStream, *texts: bytes, at_once: bool = True) -> None:
    for text in texts:
        stream.post(text, at_once=at_once)


async def read(stream: EventStream) -> Reader:
    """Everything that there is now."""
    reader = Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.pump, reader)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    stream.detach(reader)
    return reader


async def test_events_come_in_order_with_ids_that_name_their_stream() -> None:
    _, log = make()
    one, two = log.open_stream(), log.open_stream()
    put(one, b"a")
    put(two, b"b")
    put(one, b"c")
    put(log.standalone, b"d")
    assert (await read(one)).took == [("1-1", b"a"), ("1-2", b"c")]
    assert (await read(two)).took == [("2-1", b"b")]
    assert (await read(log.standalone)).took == [("0-1", b"d")]
    assert (one.place, two.place) == ("1-2", "2-1")
    assert (await read(one)).took == []


async def test_a_stream_is_rewound_to_any_event_and_no_further() -> None:
    _, log = make()
    stream = log.open_stream()
    put(stream, b"a", b"b", b"c")
    for number in range(6):
        stream.rewind(number)
        assert [message for _, message in (await read(stream)).took] == [b"a", b"b", b"c"][number:]
    found = log.find("1-2")
    assert found == (stream, 2)
    for unknown in ("1-4", "2-1", "0-1", "", "1", "1-", "-1", "a-1", "1-a", "1--1", "1- 1", "٣-1", "1-" + "0" * 40):
        assert log.find(unknown) is None


async def test_one_connection_takes_a_stream_at_a_time() -> None:
    _, log = make()
    stream = log.open_stream()
    old, new = Reader(), Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.pump, old)
        await wait_all_tasks_blocked()
        put(stream, b"a")
        nursery.start_soon(stream.pump, new)
        await wait_all_tasks_blocked()
        put(stream, b"b")
        # One that was replaced has no say any more.
        stream.detach(old)
        put(stream, b"c")
        stream.post(b"d", last=True)
    assert (old.took, old.ended) == ([("1-1", b"a")], False)
    assert [message for _, message in new.took] == [b"b", b"c", b"d"]
    assert new.ended


async def test_what_a_connection_cannot_take_waits_for_the_next_one() -> None:
    _, log = make()
    stream = log.open_stream()
    broken = Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.pump, broken)
        await wait_all_tasks_blocked()
        broken.alive = False
        put(stream, b"a", b"b")
    assert broken.ended
    assert stream.taker is None
    assert [message for _, message in (await read(stream)).took] == [b"a", b"b"]


async def test_what_need_not_go_at_once_waits_for_room_and_keeps_its_order() -> None:
    _, log = make()
    stream, reader = log.standalone, Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.pump, reader)
        await wait_all_tasks_blocked()
        reader.full = True
        put(stream, b"a", at_once=False)
        # This one may, and still does not overtake.
        put(stream, b"b")
        await wait_all_tasks_blocked()
        assert reader.took == []
        reader.go_on()
        await wait_all_tasks_blocked()
        assert [message for _, message in reader.took] == [b"a", b"b"]
        reader.full = True
        put(stream, b"c")
        assert reader.took[-1][1] == b"c"
        nursery.cancel_scope.cancel()


async def test_a_notice_that_waits_is_not_said_twice_and_one_that_was_sent_is() -> None:
    _, log = make()
    stream = log.standalone
    for key in "aba":
        stream.post(key.encode(), key)
    stream.post(b"x")
    stream.post(b"a", "a")
    assert [message for _, message in (await read(stream)).took] == [b"a", b"b", b"x"]
    stream.post(b"a", "a")
    assert [message for _, message in (await read(stream)).took] == [b"a"]


async def test_the_oldest_events_of_a_session_go_first_and_that_is_told() -> None:
    for limits in ({"session_events": 3}, {"session_bytes": 6}):
        store, log = make(**limits)
        stream = log.standalone
        put(stream, b"aa", b"bb", b"cc", b"dd", b"ee")
        assert (log.bytes, store.bytes) == (6, 6)
        assert stream.lost == 2
        reader = await read(stream)
        assert [message for _, message in reader.took] == [b"cc", b"dd", b"ee"]
        (note,) = reader.told
        assert json.loads(note)["params"]["data"].startswith("2 messages were dropped")
        assert (stream.lost, (await read(stream)).told) == (0, [])
        # Also those that were sent, where the client has not received them.
        stream.rewind(1)
        assert json.loads((await read(stream)).told[0])["params"]["data"].startswith("1 messages")


async def test_the_oldest_events_of_a_server_go_first_whose_ever_they_are() -> None:
    store = EventStore(6)
    logs = [EventLog(store, Limits()) for _ in range(3)]
    for log in logs:
        put(log.standalone, b"aa")
    put(logs[2].standalone, b"bb", b"cc")
    assert store.bytes == 6
    assert [log.bytes for log in logs] == [0, 0, 6]
    assert [log.standalone.lost for log in logs] == [1, 1, 0]


async def test_one_event_larger_than_the_bounds_is_kept_alone() -> None:
    store, log = make(10, session_bytes=10)
    put(log.standalone, b"a" * 9)
    put(log.standalone, b"b" * 50)
    assert store.bytes == log.bytes == 50
    assert (await read(log.standalone)).took == [("0-2", b"b" * 50)]
    put(log.standalone, b"c")
    assert store.bytes == log.bytes == 1


async def test_an_answer_that_was_dropped_is_an_error_and_the_stream_is_forgotten() -> None:
    _, log = make(session_events=2)
    stream = log.open_stream()
    stream.subject = "mine"
    stream.post(b"answer", last=True)
    put(log.standalone, b"a", b"b", b"c")
    assert log.streams[1] is stream
    reader = await read(stream)
    (error,) = reader.told
    assert (json.loads(error)["id"], json.loads(error)["error"]["code"]) == ("mine", -32600)
    assert reader.ended
    assert 1 not in log.streams


async def test_a_stream_whose_answer_was_taken_is_forgotten_with_its_last_event() -> None:
    _, log = make(session_events=2)
    stream = log.open_stream()
    stream.subject = 1
    stream.post(b"answer", last=True)
    await read(stream)
    assert log.find("1-1") == (stream, 1)
    put(log.standalone, b"a", b"b")
    assert log.find("1-1") is None


def test_streams_are_bounded_and_those_go_first_whose_answer_was_taken() -> None:
    _, log = make(session_events=3)
    waiting, taken = log.open_stream(), log.open_stream()
    waiting.subject = taken.subject = 1
    waiting.post(b"w", last=True)
    taken.attach(reader := Reader())
    taken.post(b"t", last=True)
    assert reader.ended
    running = [log.open_stream(), log.open_stream()]
    assert list(log.streams) == [1, 3, 4]
    running.append(log.open_stream())
    assert list(log.streams) == [3, 4, 5]
    # Those that are under way are never forgotten.
    running.append(log.open_stream())
    assert list(log.streams.values()) == running


@pytest.mark.parametrize("known", [False, True])
def test_a_stream_on_which_nothing_was_said_is_kept_where_its_client_may_come_back(known: bool) -> None:
    _, log = make()
    stream = log.open_stream()
    stream.attach(reader := Reader())
    stream.finish(known)
    assert reader.ended
    assert (log.find("1-0") is not None) == known


async def test_nothing_is_kept_once_the_session_is_over() -> None:
    store, log = make()
    stream, reader = log.open_stream(), Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.pump, reader)
        await wait_all_tasks_blocked()
        put(stream, b"a")
        put(log.standalone, b"b")
        log.clear()
    assert reader.ended
    put(stream, b"c")
    put(log.standalone, b"d")
    assert (store.bytes, log.bytes, log.streams) == (0, 0, {})
    # A connection that comes now has nothing to wait for.
    await log.standalone.pump(late := Reader())
    assert (late.took, late.ended) == ([], True)

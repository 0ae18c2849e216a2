"""Sessions over HTTP with any history: calls, questions, streams that are cut anywhere and taken up again, the ends of sessions
and of the server.

A machine plays the clients, in virtual time, with a model beside it. Whatever happens: of each stream every event comes once
and in order, or the client is told how many are missing; nothing of one session is seen in another; and of a session that is
over, places and bytes come back.
"""

from __future__ import annotations

import queue
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import outcome
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.scaled import scaled
from trio_mcp import Context, Limits, Server

from .session_helpers import REVISIONS, Client, Exchange, SessionSite, ask, events_in, hello, open_sessions, tell, use

T = TypeVar("T")

revisions = st.sampled_from(REVISIONS[1:])

SESSIONS = 4
IDLE = 100.0
STREAMS = 3


class Run:
    """A run of trio that goes on between the steps of a machine, in the same thread."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._over: outcome.Outcome[None] | None = None
        self.clock = MockClock()
        self._send, self._steps = trio.open_memory_channel[Callable[[], Awaitable[None]]](1)
        self._token: trio.lowlevel.TrioToken | None = None
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._todo.put,
            done_callback=self._ended,
            clock=self.clock,
            host_uses_signal_set_wakeup_fd=True,
        )
        self._until(lambda: self._token is not None)

    def _ended(self, result: outcome.Outcome[None]) -> None:
        self._over = result

    def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            assert self._over is None, self._over
            self._turn()

    def _turn(self) -> None:
        try:
            turn = self._todo.get(timeout=60)
        except queue.Empty:
            raise AssertionError("nothing moves any more, and the step has not ended") from None
        turn()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async for step in self._steps:
            await step()

    def step(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run this, until nothing moves any more."""
        results: list[outcome.Outcome[T]] = []

        async def work() -> None:
            result = await outcome.acapture(fn)
            await wait_all_tasks_blocked()
            results.append(result)

        assert self._token is not None
        self._token.run_sync_soon(self._send.send_nowait, work)
        self._until(lambda: bool(results))
        return results[0].unwrap()

    def close(self) -> None:
        assert self._token is not None
        if self._over is None:
            self._token.run_sync_soon(self._send.close)
        while self._over is None:
            self._turn()
        self._over.unwrap()


class Track:
    """One stream, as its client knows it.

    Attributes:
        said: What was said on it, in order.
        last: Number of the newest event that has arrived; None where the next one may be any.
        number: Of the stream, once it is known.
        over: Whether its client has all of it, or was told that the rest is lost.
        opened: Whether there is a stream at all.
    """

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.last: int | None = 0
        self.number: str | None = None
        self.over = False
        self.opened = False


class Connection:
    """A request whose answer is read as far as the client gets."""

    def __init__(self, exchange: Exchange, track: Track) -> None:
        self.exchange = exchange
        self.track = track
        self.read = 0
        self.dead = False


class Task:
    """A call of `run`."""

    def __init__(self, member: Member, tag: str) -> None:
        self.member = member
        self.tag = tag
        self.track = Track()
        self.steps = 0
        self.gone = self.ended = self.cancelled = False
        self.asking = False


class Member:
    """A session."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.alive = True
        self.alone = Track()
        self.alone.number = "0"
        self.connections: list[Connection] = []
        self.tasks: list[Task] = []
        self.questions: dict[int, Task] = {}
        self.events = 0

    @property
    def running(self) -> list[Task]:
        return [task for task in self.tasks if not task.ended]


class Sessions(RuleBasedStateMachine):
    """The clients of one server."""

    def __init__(self) -> None:
        super().__init__()
        self.run = Run()
        self.members: list[Member] = []
        self.boxes: dict[str, trio.MemorySendChannel[str]] = {}
        self.inboxes: dict[str, trio.MemoryReceiveChannel[str]] = {}
        self.ended: set[str] = set()
        self.answers: dict[str, list[str]] = {}
        self.number = 0
        self.site: SessionSite
        self.ring = 256
        self.leave = trio.Event()
        self.left = trio.Event()

    # -- the server

    async def work(self, tag: str, ctx: Context) -> str:
        number = 0
        try:
            async for what in self.inboxes[tag]:
                if what == "say":
                    number += 1
                    await ctx.report_progress(number)
                elif what == "ask":
                    self.answers[tag].append((await ctx.list_roots())[0]["uri"])
                elif what == "close":
                    await ctx.close_stream()
                else:
                    return f"end of {tag}"
        finally:
            self.ended.add(tag)
        raise AssertionError("the test has closed a box")

    async def _serve(self) -> None:
        limits = Limits(
            sessions=SESSIONS,
            session_idle=IDLE,
            session_events=self.ring,
            session_streams=STREAMS,
            running=1_000,
            request_timeout=1_000_000,
            question_timeout=1_000_000,
            drain_timeout=1,
        )
        server: Server[None] = Server("machine", version="1", limits=limits)
        server.tool(self.work)
        async with open_sessions(server) as self.site:
            await self.leave.wait()
            places = self.site.engine.executor.statistics()
            working = sum(len(one.running) for one in self.members)
            asking = sum(task.asking for one in self.members for task in one.running)
            # Whoever waits for a client has no place.
            assert (places.running, places.waiting) == (working - asking, 0)
        self.left.set()

    def _begin(self) -> None:
        self.leave, self.left = trio.Event(), trio.Event()

        async def begin() -> None:
            trio.lowlevel.spawn_system_task(self._serve)

        self.run.step(begin)

    def _end(self) -> None:
        async def end() -> None:
            self.leave.set()
            for _ in range(4):
                await wait_all_tasks_blocked()
                self.run.clock.jump(1)
            with trio.fail_after(10):
                await self.left.wait()

        self.run.step(end)
        for member in self.members:
            self._forget(member)

    @initialize(ring=st.sampled_from([4, 12, 256]), revisions=st.lists(revisions, min_size=2, max_size=3))
    def begin(self, ring: int, revisions: list[str]) -> None:
        self.ring = ring
        self._begin()
        for revision in revisions:
            self._open(revision)
            self._call(self.members[-1])

    def teardown(self) -> None:
        try:
            for member in self._alive():
                self._catch_up(member)
            for number, member in enumerate(self._alive()):
                if number % 2:
                    self._delete(member)
            self._end()
        finally:
            self.run.close()

    # -- choosing

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member.alive]

    def _running(self) -> list[Task]:
        return [task for member in self._alive() for task in member.running]

    def _post(self, member: Member, message: Any) -> Exchange:
        return self.run.step(lambda: member.client.ask(message))

    def _forget(self, member: Member) -> None:
        """Its session is over."""
        member.alive = False
        for task in member.running:
            task.ended = task.cancelled = True
        member.questions.clear()

    # -- rules

    @precondition(lambda self: len(self.members) < 12)
    @rule(data=st.data(), what=st.sampled_from(["open", "open", "open", "time", "time", "delete", "restart"]))
    def begin_or_end(self, data: st.DataObject, what: str) -> None:
        # One rule for what ends much, so that most of a history is life.
        if what == "open" or not self._alive():
            self._open(data.draw(revisions))
        elif what == "delete":
            self._delete(data.draw(st.sampled_from(self._alive())))
        elif what == "time":
            self._pass_time(data.draw(st.sampled_from([1.0, 30.0, 60.0, 99.0, 150.0])))
        else:
            self._restart()

    def _open(self, revision: str) -> None:
        sessions = self.site.engine.sessions.all()
        idle = sorted((one for one in sessions if one.idle), key=lambda one: one.last_used)
        exchange = self.run.step(lambda: self.site.stranger().ask(hello(0, revision)))
        if len(sessions) >= SESSIONS:
            if not idle:
                assert exchange.status == 503
                return
            (gone,) = [one for one in self._alive() if one.client.id not in self._ids()]
            ended = next(one for one in idle if one.id == gone.client.id)
            assert ended.last_used == idle[0].last_used
            self._forget(gone)
        assert exchange.status == 200
        client = Client(self.site, exchange.fields_sent["mcp-session-id"], revision)
        self.members.append(Member(client))
        self.run.step(lambda: client.ask(tell("initialized")))

    def _ids(self) -> set[str]:
        return {one.id for one in self.site.engine.sessions.all()}

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def call(self, data: st.DataObject) -> None:
        self._call(data.draw(st.sampled_from(self._alive())))

    def _call(self, member: Member) -> None:
        self.number += 1
        task = Task(member, f"t{self.number}")
        self.boxes[task.tag], self.inboxes[task.tag] = trio.open_memory_channel[str](10)
        self.answers[task.tag] = []

        async def send() -> Exchange:
            return member.client.send(use(self.number, "work", token=task.tag, tag=task.tag))

        exchange = self.run.step(send)
        assert exchange.status == 0
        member.tasks.append(task)
        member.connections.append(Connection(exchange, task.track))

    @precondition(lambda self: self._running())
    @rule(
        data=st.data(),
        whats=st.lists(st.sampled_from(["say", "say", "say", "ask", "close", "end"]), min_size=1, max_size=4),
    )
    def go_on(self, data: st.DataObject, whats: list[str]) -> None:
        """A handler does something."""
        for what in whats:
            self._go_on(data, what)

    def _go_on(self, data: st.DataObject, what: str) -> None:
        tasks = [task for task in self._running() if not task.asking]
        if not tasks:
            return
        task = data.draw(st.sampled_from(tasks))

        async def push() -> None:
            await self.boxes[task.tag].send(what)

        self.run.step(push)
        if what == "say":
            task.steps += 1
            self._said(task, task.steps)
        elif what == "ask":
            task.asking = True
            self._said(task, "roots/list")
        elif what == "close":
            if task.member.client.revision == "2025-11-25" and not task.gone:
                task.track.opened = task.gone = True
        else:
            task.ended = True
            assert task.tag in self.ended
            self._answered(task)

    def _said(self, task: Task, what: Any) -> None:
        """It says something while it runs."""
        member = task.member
        member.events += 1
        if task.gone and not task.track.opened:
            # There is no stream of its own that its client could know of.
            member.alone.said.append((task.tag, what))
        else:
            task.track.opened = True
            task.track.said.append((task.tag, what))

    def _answered(self, task: Task) -> None:
        if task.track.opened:
            task.member.events += 1
            task.track.said.append((task.tag, "end"))
        elif task.gone:
            task.track.over = True

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def keep_alive(self, data: st.DataObject) -> None:
        """A host says that nothing was sent for long."""
        connections = [
            one for member in self._alive() for one in member.connections if not one.exchange.done and not one.dead
        ]
        if not connections:
            return
        connection = data.draw(st.sampled_from(connections))

        async def silent() -> None:
            connection.exchange.silent()

        self.run.step(silent)
        connection.track.opened = True

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def log(self, data: st.DataObject) -> None:
        """Something that belongs to no call."""
        member = data.draw(st.sampled_from(self._alive()))
        self.number += 1
        tag = f"log {self.number}"

        async def say() -> None:
            member.client.session.log("error", tag)

        self.run.step(say)
        member.events += 1
        member.alone.said.append((tag, "log"))

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), resume=st.booleans())
    def get(self, data: st.DataObject, resume: bool) -> None:
        member = data.draw(st.sampled_from(self._alive()))
        for connection in member.connections:
            self._read(member, connection)
        alone = member.alone
        if resume and alone.last:
            for connection in member.connections:
                connection.dead = connection.dead or connection.track is alone
            self._resume(member, alone)
            return
        exchange = self.run.step(member.client.get)
        assert exchange.status == 200
        # What was lost on the way is not asked for.
        alone.last = None
        member.connections.append(Connection(exchange, alone))

    def _resume(self, member: Member, track: Track) -> Connection | None:
        known = f"{track.number}-{track.last}"
        exchange = self.run.step(lambda: member.client.get(last=known))
        if exchange.status == 204:
            assert track.last == len(track.said)
            track.over = True
            return None
        if exchange.status == 400:
            assert track is not member.alone
            assert self._overflowed(member), "an event was forgotten without need"
            track.over = True
            return None
        assert exchange.status == 200
        connection = Connection(exchange, track)
        member.connections.append(connection)
        return connection

    def _overflowed(self, member: Member) -> bool:
        return member.events > self.ring or len(member.tasks) > self.ring

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), told=st.booleans(), part=st.floats(0, 1))
    def cut(self, data: st.DataObject, told: bool, part: float) -> None:
        """A connection breaks; the server may hear of it or not, and some of what it has sent may be lost."""
        connections = [(member, one) for member in self._alive() for one in member.connections if not one.dead]
        if not connections:
            return
        member, connection = data.draw(st.sampled_from(connections))
        size = len(connection.exchange.data)
        self._read(member, connection, connection.read + int(part * (size - connection.read)))
        connection.dead = True
        if told:

            async def vanish() -> None:
                connection.exchange.vanish()

            self.run.step(vanish)
            for task in member.tasks:
                if task.track is connection.track and connection is self._first(member, task):
                    task.gone = True

    def _first(self, member: Member, task: Task) -> Connection:
        """The connection that brought a call."""
        return next(one for one in member.connections if one.track is task.track)

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def take_up(self, data: st.DataObject) -> None:
        """The client asks for the rest of the stream of a call."""
        choices = [
            (member, task.track)
            for member in self._alive()
            for task in member.tasks
            if task.track.number is not None and not task.track.over
            if all(one.dead for one in member.connections if one.track is task.track)
        ]
        if choices:
            self._resume(*data.draw(st.sampled_from(choices)))

    @precondition(lambda self: self._alive())
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        connections = [(member, one) for member in self._alive() for one in member.connections if not one.dead]
        if connections:
            self._read(*data.draw(st.sampled_from(connections)))

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), slow=st.booleans())
    def pace(self, data: st.DataObject, slow: bool) -> None:
        """A client reads its stream of what belongs to no call, or does not."""
        streams = [one for member in self._alive() for one in member.connections if one.track is member.alone]
        if not streams:
            return
        exchange = data.draw(st.sampled_from(streams)).exchange

        async def change() -> None:
            exchange.slow = slow
            if not slow:
                exchange.go_on()

        self.run.step(change)

    @precondition(lambda self: any(member.questions for member in self._alive()))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([member for member in self._alive() if member.questions]))
        id = data.draw(st.sampled_from(sorted(member.questions)))
        message = {"jsonrpc": "2.0", "id": id, "result": {"roots": [{"uri": f"file:///{id}"}]}}
        for other in self._alive():
            if other is not member and id not in other.questions and not any(task.asking for task in other.running):
                assert self._post(other, message).status == 202
        task = member.questions.pop(id)
        before = len(self.answers[task.tag])
        assert self._post(member, message).status == 202
        if not task.ended:
            assert self.answers[task.tag][before:] == [f"file:///{id}"]
            task.asking = False

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self._running()))
        member, id = task.member, int(task.tag[1:])
        for other in self._alive():
            if other is not member:
                self._post(other, tell("cancelled", requestId=id))
        assert task.tag not in self.ended
        self._post(member, tell("cancelled", requestId=id))
        assert task.tag in self.ended
        task.ended = task.cancelled = True
        if task.asking:
            task.asking = False
            self._said(task, "cancelled")
        elif task.gone and not task.track.opened:
            task.track.over = True

    def _delete(self, member: Member) -> None:
        exchange = self.run.step(member.client.delete)
        assert exchange.status == 204
        assert member.client.id not in self._ids()
        assert all(one.exchange.done or one.exchange.gone for one in member.connections)
        self._hurry(member)
        assert all(one.exchange.returned.is_set() for one in member.connections)
        assert {task.tag for task in member.tasks} <= self.ended
        self._forget(member)
        assert self._post(member, ask(1, "ping")).status == 404

    def _pass_time(self, seconds: float) -> None:
        idle = {one.id: one.last_used for one in self.site.engine.sessions.all() if one.idle}

        async def jump() -> None:
            self.run.clock.jump(seconds)

        self.run.step(jump)
        now = self.run.clock.current_time()
        expired = {id for id, used in idle.items() if used + IDLE <= now}
        for member in self._alive():
            assert (member.client.id in self._ids()) == (member.client.id not in expired)
            if member.client.id in expired:
                self._forget(member)
                assert self._post(member, tell("initialized")).status == 404

    def _restart(self) -> None:
        self._end()
        self._begin()
        member = self.members[-1]
        member.client._site = self.site
        assert self.run.step(member.client.get).status == 404

    # -- what a client reads

    def _read(self, member: Member, connection: Connection, end: int | None = None) -> None:
        """Read on, to `end` bytes of the answer."""
        exchange, track = connection.exchange, connection.track
        if connection.dead or not exchange.status:
            return
        if not exchange.sse:
            if end is None or end == len(exchange.data):
                self._take(member, track, exchange.json)
                connection.dead = track.over = True
            return
        data = bytes(exchange.data[:end])
        whole = data.rpartition(b"\n\n")[0] + b"\n\n" if b"\n\n" in data else b""
        for id, message in events_in(whole[connection.read :]):
            self._event(member, track, id, message)
        connection.read = max(connection.read, len(whole))
        if end is None and exchange.over.is_set():
            connection.dead = True

    def _event(self, member: Member, track: Track, id: str | None, message: Any) -> None:
        if id is None:
            assert self._overflowed(member), "events were dropped without need"
            if "error" in message:
                assert track.said[-1][1] == "end"
                track.over = True
            else:
                lost = int(message["params"]["data"].partition(" ")[0])
                assert lost > 0
                track.last = None if track.last is None else track.last + lost
            return
        stream, _, number = id.partition("-")
        assert track.number in (None, stream), "an event of another stream"
        track.number = stream
        if message is None:
            assert member.client.revision == "2025-11-25"
            assert track is member.alone or number == "0"
            track.last = int(number)
            return
        if track.last is not None:
            assert int(number) == track.last + 1, (track.last, id, message)
        track.last = int(number)
        self._take(member, track, message)

    def _take(self, member: Member, track: Track, message: Any) -> None:
        """A message must be the one that was said there."""
        if "method" not in message:
            tag, what = f"t{message['id']}", "end"
            assert message["result"]["content"][0]["text"] == f"end of {tag}"
            assert any(task.tag == tag and task.track is track and not task.cancelled for task in member.tasks)
            track.over = True
        elif message["method"] == "notifications/progress":
            tag, what = message["params"]["progressToken"], message["params"]["progress"]
        elif message["method"] == "notifications/message":
            tag, what = message["params"]["data"], "log"
        elif message["method"] == "roots/list":
            assert track.last is not None
            tag, what = track.said[track.last - 1]
            task = next(task for task in member.tasks if task.tag == tag)
            if task.asking:
                member.questions[message["id"]] = task
        else:
            assert message["method"] == "notifications/cancelled"
            assert track.last is not None
            tag, what = track.said[track.last - 1]
            member.questions.pop(message["params"]["requestId"], None)
        if track.last:
            assert track.said[track.last - 1] == (tag, what)
        else:
            assert what == "end" and not track.said

    def _hurry(self, member: Member) -> None:
        """It reads everything from now on: whoever waits for room has it."""

        async def hurry() -> None:
            for connection in member.connections:
                connection.exchange.go_on()

        self.run.step(hurry)

    def _catch_up(self, member: Member) -> None:
        """Every stream is read to its end; nothing is missing."""

        self._hurry(member)
        for connection in member.connections:
            self._read(member, connection)
        for track in [task.track for task in member.tasks]:
            if track.number is None or track.over:
                continue
            if all(one.dead for one in member.connections if one.track is track):
                connection_or_none = self._resume(member, track)
                if connection_or_none is not None:
                    self._read(member, connection_or_none)
            assert track.over or track.last == len(track.said)
        alone = member.alone
        if alone.last:
            for connection in member.connections:
                connection.dead = connection.dead or connection.track is alone
            found = self._resume(member, alone)
            assert found is not None
            self._read(member, found)
            assert alone.last == len(alone.said)


def test_sessions_with_any_history() -> None:
    run_state_machine_as_test(Sessions, settings=settings(max_examples=scaled(60), stateful_step_count=40))

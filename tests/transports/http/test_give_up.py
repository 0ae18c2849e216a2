"""The end of a host's patience: calls that run, and those that come later, are answered that the server ends."""

from __future__ import annotations

from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.scopes.call import ENDING
from trio_mcp.scopes.executor import ExecutorStatistics

from .helpers import call, http, make, open_site


async def test_what_runs_and_what_comes_later_is_answered_that_the_server_ends(autojump_clock: MockClock) -> None:
    server, _ = make()
    async with open_site(server) as site:
        busy, later = site.connect(), site.connect()
        await busy.send(http(call(1, "slow", seconds=50)))
        await wait_all_tasks_blocked()
        site.endpoint.give_up()
        site.endpoint.give_up()
        answer = await busy.answer()
        assert (answer.status, answer.json["id"]) == (504, 1)
        assert answer.json["error"] == {"code": 504, "message": ENDING}
        answer = await later.ask(call(2, "slow", seconds=50))
        assert (answer.status, answer.json["error"]["code"]) == (504, 504)
        await wait_all_tasks_blocked()
        assert site.engine.executor.statistics() == ExecutorStatistics(0, 0)

"""A server that is stopped during its end, and continued: that time counts against nobody."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

from .helpers import Running

_MAY = 3.0
"""What each may take in `servers/waits.py`."""


def wait_for(path: Path, text: str) -> None:
    end = time.monotonic() + 30
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < end, f"{text!r} did not come"
        time.sleep(0.005)


def test_the_time_of_a_stop_is_given_back_to_whoever_was_waited_for(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers: list[tuple[Running, Path, Path]] = []
        for who in ("lifespan", "call", "thread"):
            log, go = tmp_path / f"{who} log", tmp_path / f"{who} go"
            env = {"WHO": who, "LOG": str(log), "GO": str(go)}
            server = stack.enter_context(Running("waits.py", env=env))
            server.call(1, "ping")
            if who == "call":
                wait_for(log, "waits")
            else:
                assert server.message(30)["id"] == 1
            server.close_input()
            wait_for(log, "waits")
            server.process.send_signal(signal.SIGSTOP)
            servers.append((server, log, go))
        # Longer than it may take, so that without the gift its time is over.
        time.sleep(_MAY + 0.5)
        for server, _, _ in servers:
            server.process.send_signal(signal.SIGCONT)
        # The watchdog had its turn now, which it would have used.
        time.sleep(0.3)
        for _, _, go in servers:
            go.touch()
        for server, log, _ in servers:
            assert server.process.wait(30) == 0, server.errors()
            assert log.read_text().split("\n")[:2] == ["waits", "went on"]

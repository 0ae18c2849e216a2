"""Copy bytes between a client and its server on stdio, unchanged, and write down each line.

    python tap.py LOG -- command ...

LOG gets one JSON object a line: who sent it ("client" or "server"), when (monotonic, in ns), the process of this tap
(one for each connection), and the line itself. A line is written down before it is passed on, so the log is in the
order of cause and effect. The end of input, SIGINT, SIGTERM and the exit status are passed on too. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType


def copy(source: int, target: int, log: int, sender: str) -> None:
    """Copy until the source ends or nobody reads the target."""
    rest = b""
    while data := os.read(source, 65536):
        *lines, rest = (rest + data).split(b"\n")
        write_down(log, sender, lines)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
        except BrokenPipeError:
            return
    if rest:
        write_down(log, sender, [rest])


def write_down(log: int, sender: str, lines: list[bytes]) -> None:
    """Append lines. One write each to a file opened for appending: the two directions do not mix."""
    for line in lines:
        entry = {
            "sender": sender,
            "ns": time.monotonic_ns(),
            "tap": os.getpid(),
            "line": line.decode(errors="backslashreplace"),
        }
        os.write(log, json.dumps(entry).encode() + b"\n")


def main(log_path: str, command: list[str]) -> int:
    """Run the command under the tap; return its status as a shell would."""
    log = os.open(Path(log_path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    child_in, child_out = child.stdin, child.stdout

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)

    def client_to_server() -> None:
        copy(0, child_in.fileno(), log, "client")
        child_in.close()

    threading.Thread(target=client_to_server, daemon=True).start()
    copy(child_out.fileno(), 1, log, "server")
    os.close(1)
    status = child.wait()
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    separator = sys.argv.index("--")
    status = main(sys.argv[1], sys.argv[separator + 1 :])
    os._exit(status)  # the thread may still wait for input that nobody wants

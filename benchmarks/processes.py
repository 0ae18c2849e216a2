"""Cores, priorities, CPU time and memory of the processes under test (Linux).

The server has one core, the load the other. Both get precedence on their core where that is allowed: the server nice
-20 and a 1 ms slice, the load real-time (it is one thread, and nothing waits for it). Without it another busy process on
the machine shows up as a few milliseconds of latency. `TRIO_MCP_BENCH_PRIORITIES=0` switches it off.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = [
    "Cores",
    "busy_seconds",
    "cpu_seconds",
    "pin_load",
    "pss_mb",
    "rss_mb",
    "spawn",
    "stop",
    "wait_quiet",
]

_TICK = os.sysconf("SC_CLK_TCK")
_PRIORITIES = os.environ.get("TRIO_MCP_BENCH_PRIORITIES", "1") != "0"
_SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


@dataclass(frozen=True)
class Cores:
    """Which core is whose."""

    server: int
    load: int

    @classmethod
    def choose(cls) -> Cores:
        """The first two cores that this process may use; one and the same when there is no second."""
        if not sys.platform.startswith("linux"):
            raise SystemExit("benchmarks need Linux: cores are pinned, and figures are read from /proc")
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[1] if len(cores) > 1 else cores[0])

    @property
    def shared(self) -> bool:
        """Whether server and load have to share a core."""
        return self.server == self.load


def _prioritise(core: int) -> bool:
    """Pin this process to a core, with precedence there; False when that is not allowed (the pinning stays)."""
    os.sched_setaffinity(0, {core})
    if not _PRIORITIES:
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    except OSError:
        return False
    number = _SYS_SCHED_SETATTR.get(os.uname().machine)
    if number is not None:
        # struct sched_attr: size, policy, flags, nice, priority, runtime (the slice, Linux >= 6.12), deadline, period
        attributes = struct.pack("<IIQiIQQQ", 48, 0, 0, -20, 0, 1_000_000, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, ctypes.create_string_buffer(attributes, 48), 0)
    return True


def pin_load(cores: Cores) -> bool:
    """Make this process the load; returns whether priorities are in force."""
    if not _prioritise(cores.load) or cores.shared:
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        pass
    return True


def spawn(command: Sequence[str], cores: Cores, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a server on its core, with pipes for its standard input and output; what it logs is thrown away."""
    environment = {**os.environ, "NODE_ENV": "production", **(env or {})}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        environment.pop(name, None)
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        preexec_fn=lambda: _prioritise(cores.server) and None,
    )


def stop(process: subprocess.Popen[bytes], grace: float = 3.0, *, by_input: bool = True) -> None:
    """End a server that was started here: by the end of its input (if that is its way), then SIGTERM, then SIGKILL."""
    try:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(grace if by_input else 0)
    except (OSError, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, all its threads, by its CPU clock (nanoseconds, not ticks)."""
    # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel, as clock_getcpuclockid gives it.
    return time.clock_gettime((~pid << 3) | 2)


def _kib(path: str, field: str) -> int:
    with open(path) as file:
        for line in file:
            if line.startswith(field):
                return int(line.split()[1])
    raise ValueError(f"{path} has no {field}")


def rss_mb(pid: int) -> float:
    """Resident memory now, in MB of 10⁶ bytes."""
    return _kib(f"/proc/{pid}/status", "VmRSS:") * 1024 / 1e6


def pss_mb(pid: int) -> float:
    """The same with shared pages counted in proportion."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Pss:") * 1024 / 1e6


def busy_seconds(core: int) -> float:
    """How long a core has been busy so far, with all processes together."""
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith(f"cpu{core} "):
                user, nice, system, _idle, _wait, irq, soft, steal = (int(word) for word in line.split()[1:9])
                return (user + nice + system + irq + soft + steal) / _TICK
    raise ValueError(f"/proc/stat has no cpu{core}")


def wait_quiet(cores: Cores, limit: float, most: float = 0.2) -> float:
    """Wait, at most `limit` seconds, until others leave the server's core alone; returns its last reading (0 to 1)."""
    end = time.monotonic() + limit
    while True:
        before, begin = busy_seconds(cores.server), time.monotonic()
        time.sleep(0.3)
        busy = (busy_seconds(cores.server) - before) / (time.monotonic() - begin)
        if busy < most or time.monotonic() > end:
            return busy
        time.sleep(0.7)

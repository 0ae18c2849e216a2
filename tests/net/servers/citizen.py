"""A server that does what a process should survive. The environment says how:

`LOG` a file for what happens; `NOISE` prints everywhere; `CLOSE` seconds that the lifespan takes to end, `HOLD` the same
shielded; `LIMITS` a JSON object.
"""

import atexit
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_mcp import Limits, Server, serve_stdio

NOISE = "NOISE" in os.environ
LIMITS = Limits(**json.loads(os.environ.get("LIMITS", "{}")))


def note(text: str) -> None:
    with open(os.environ.get("LOG", os.devnull), "a") as file:
        file.write(f"{text}\n")


def noise(text: str) -> None:
    """Without a line end, so that the next message would be glued to it."""
    if NOISE:
        print(text, end=" ", flush=True)
        os.write(1, f"written {text} ".encode())
        subprocess.run(["printf", f"child {text} "], check=True)


@asynccontextmanager
async def life(server: object) -> AsyncIterator[None]:
    noise("start")
    note("in")
    yield
    await trio.sleep(float(os.environ.get("CLOSE", "0")))
    with trio.CancelScope(shield="HOLD" in os.environ):
        await trio.sleep(float(os.environ.get("HOLD", "0")))
    noise("end")
    note("out")


server = Server("citizen", version="1", lifespan=life, limits=LIMITS)


@server.tool
async def ping() -> str:
    return "pong"


@server.tool(task_support="optional")
async def work() -> str:
    """Become a task, and print also while the server drains."""
    for _ in range(1000):
        noise("task")
        await trio.sleep(0.05)
    return "done"


@server.tool
async def fail() -> str:
    raise RuntimeError("x" * 1000)


@server.tool
async def loud() -> str:
    print("p" * 50_000)
    sys.stderr.write("e" * 50_000)
    os.write(2, b"w" * 50_000)
    return "said"


@server.tool
async def say() -> str:
    print("said")
    return "said"


@server.tool
def loud_child() -> str:
    subprocess.run(["head", "-c", "150000", "/dev/zero"], stdout=2, check=True)
    return "said"


@server.tool
async def block() -> str:
    note("blocking")
    time.sleep(60)  # noqa: ASYNC251 - it is what this is about
    return "late"


@server.tool(task_support="required")
async def block_task() -> str:
    with trio.CancelScope(shield=True):
        note("blocking")
        await trio.sleep(60)
    return "late"


@server.tool
async def crash() -> str:
    os.kill(os.getpid(), signal.SIGSEGV)
    return "never"


@server.tool
async def die(number: int) -> str:
    os.kill(os.getpid(), number)
    return "never"


@server.tool
def read() -> str:
    with open("/etc/passwd") as file:
        return file.read()[:4]


@server.tool
def handlers() -> list[str]:
    """What a forked child finds."""
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        found = [str(signal.getsignal(getattr(signal, name))) for name in ("SIGTERM", "SIGHUP", "SIGINT")]
        os.write(sink, json.dumps([*found, str(signal.set_wakeup_fd(-1))]).encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as file:
        out: list[str] = json.load(file)
    os.waitpid(pid, 0)
    return out


@server.tool
def terminated() -> list[int | None]:
    """Workers that are ended as soon as they are there."""
    context = multiprocessing.get_context("fork")
    out = []
    for _ in range(20):
        worker = context.Process(target=time.sleep, args=(30,))
        worker.start()
        worker.terminate()
        worker.join(5)
        out.append(worker.exitcode)
        worker.kill()
    return out


@server.tool
def pool() -> list[str]:
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return list(workers.imap(str, range(10)))


@server.tool
def leave(daemon: bool) -> int:
    """Leave a child process behind."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=daemon)
    child.start()
    assert child.pid is not None
    return child.pid


@server.tool
def leave_quiet() -> int:
    """Leave a grandchild that holds none of the standard streams."""
    null = subprocess.DEVNULL
    return subprocess.Popen(["sleep", "60"], stdin=null, stdout=null, stderr=null).pid


if NOISE:
    sys.stdout.write("import ")
    atexit.register(noise, "exit")

if __name__ == "__main__":
    if sys.argv[1:] == ["embedded"]:
        trio.run(serve_stdio, server)
        print("mine")
    else:
        server.run()

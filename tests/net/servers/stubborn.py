"""A server that ignores the end of its input and SIGTERM. `LOG` gets its process id."""

import os
import signal
import time

import trio
from tools import server

from trio_mcp import serve_stdio

signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.environ["LOG"], "w") as file:
    file.write(str(os.getpid()))
trio.run(serve_stdio, server)
while True:
    time.sleep(1)

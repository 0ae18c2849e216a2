"""trio_mcp measured beside its peers: small servers on every library, one load, one table.

`python -m benchmarks` measures, over a pipe (`stdio`) and over HTTP (`http`), and in sessions with `--era legacy`; `python -m
benchmarks profile` shows where the time of a call goes. Linux only: cores are pinned, and memory and CPU time are read
from `/proc`.

    wire.py          the messages, written by hand: no client library on the load's side
    processes.py     cores, priorities, CPU time, memory
    environments.py  the peers' own environments, made once
    servers.py       the servers under test, by name
    load.py          a number of calls kept in flight over a pipe
    http_load.py     a number of HTTP connections kept busy
    http2_load.py    the same with streams of HTTP/2
    events.py        what a slow tool says about its calls
    results.py       figures, and the rounds that give them
    stdio.py         what is measured over a pipe
    http.py          what is measured over HTTP
    http2.py         what is measured over HTTP/2, beside HTTP/1.1
    legacy.py        what is measured in sessions, over a pipe and over HTTP
    machine.py       what a run was made with
    table.py         medians, ratios, targets
    page.py          the page of the documentation: page.md and sessions.md with the figures of figures.json
    profiling.py     where the time goes
    peers/           the servers
"""

"""Every bound of the project: its default, its unit and why it is what it is.

Nothing in `trio_mcp` waits, queues or buffers without a number from here. One frozen object is passed down from the
`Server` or the client; `dataclasses.replace(DEFAULT, running=8)` makes another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["DEFAULT", "TASK_RESULT_MOST", "TASK_TTL_MOST", "Limits"]

TASK_TTL_MOST = 86_400.0
"""Longest that a task can be found: a store that is never asked to forget grows for ever."""
TASK_RESULT_MOST = 4_194_304
"""Longest result of a task that can be allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a server or a client. Sizes are bytes, times are seconds.

    Raises:
        ValueError: a bound is zero or negative.
    """

    # -- messages
    message_bytes: int = 2_000_000
    """Longest message accepted. A longer line is answered with -32600 and thrown away as it arrives, never held. Room
    for a base64 image of a megapixel; larger data belongs in a resource link."""
    json_depth: int = 128
    """Deepest nesting of arrays and objects accepted. Real messages stay below 20; recursive code that walks a value
    (ours, a validator's, a handler's) overflows a small thread stack somewhere past 400."""
    integer_digits: int = 1_000
    """Longest integer accepted. Integers outside 64 bits arrive exact, never rounded; turning digits into a number
    takes time that grows with their square, so their count has a bound."""
    id_bytes: int = 256
    """Longest request id or progress token, in UTF-8. Each is echoed and kept while the request runs."""

    # -- the executor
    running: int = 64
    """Requests of one server that run at once, over all its connections."""
    waiting: int = 256
    """Requests of one server that wait for a place. One more is refused as busy: a caller that hears so at once can
    go elsewhere, one that waits behind 256 others cannot."""
    connection_running: int = 8
    """Requests of one stdio (or byte stream) connection that run at once: one peer does not take all of `running`."""
    connection_waiting: int = 1_024
    """Requests of one stdio connection that wait. One more is answered as busy: its reader goes on, since it alone hears
    cancellations and the end of input."""
    connection_waiting_bytes: int = 16_777_216
    """Bytes of such requests: eight of the longest, or 16 KiB for each."""
    request_timeout: float = 600.0
    """Longest that one request may run, from the moment it gets its place. Longer work wants a task."""
    listeners: int = 256
    """Streams of one server that listen for changes at once (subscriptions/listen). They take no place of `running`, since
    they only wait."""
    connection_listeners: int = 32
    """Such streams of one stdio (or byte stream) connection: one peer does not take all of `listeners`. A program needs one;
    a proxy has one for each of the programs behind it."""
    listened_uris: int = 1_000
    """Resources that one such stream may name. What is not sent yet is held for each once, so this bounds that as well."""
    retry_after: float = 1.0
    """What a refused caller is told to wait."""
    worker_threads: int = 64
    """Threads that run plain `def` handlers of one server. As many as `running`, since each running request needs at
    most one; a thread that was abandoned by a cancellation counts until its function returns."""

    # -- tasks
    tasks_active: int = 100
    """Tasks of one caller that are not finished, over all processes that share a store. Each holds a worker in memory, and
    a plain `def` tool a thread as well."""
    tasks_stored: int = 10_000
    """Tasks of one caller that are kept, finished ones included."""
    task_result_bytes: int = 1_048_576
    """Longest result of a task that is kept, at most 4 MiB: it is held until the task expires, and told each time that the
    client asks. Larger data belongs in a resource."""
    task_ttl: float = 3_600.0
    """How long a task can be found, from its creation; a tool's own `timeout` is added. With it at most a day. What has ended can
    be read for ten seconds more, or for three times `task_poll`."""
    task_poll: float = 1.0
    """How often a client is told to look at a task that has run for a while; at a young one more often."""
    task_flush: float = 0.25
    """Between two writes of what running tasks say of themselves. Progress may come a thousand times a second."""
    task_sweep: float = 10.0
    """Between two looks for tasks that have expired, or whose process has ended."""
    task_settle: float = 2.0
    """How long the end of a task may take to be stored when the server ends."""
    task_retry: float = 1.0
    """Between two attempts to store the end of a task while the store fails."""
    task_attempts: int = 3
    """How often a restartable task is begun, so that one that brings its process down does not do so for ever. A server that
    is ended in order does not count."""

    # -- writing
    write_buffer: int = 1_048_576
    """Bytes of finished messages that may wait for a slow reader. Above it handlers wait for room before they answer
    or report, so the memory behind one stalled peer is this plus one message for each running request."""
    read_chunk: int = 65_536
    """Bytes asked for in one read: the size of a Linux pipe, so one wake-up takes all that is there."""

    # -- HTTP
    connections: int = 1_024
    """Connections of one HTTP endpoint. The next one waits in the backlog of the system until one ends. Fewer where the
    system does not allow as many open files."""
    spare_files: int = 128
    """Files that the connections of an HTTP endpoint leave for tools, the log and the task store, out of what the system allows
    to be open at once."""
    head_bytes: int = 32_768
    """Longest request head: eight times what the longest names and a token need."""
    head_timeout: float = 10.0
    """How long a request head may take to arrive, from its first byte (and a TLS handshake, whole)."""
    body_timeout: float = 10.0
    """How long a request body may take to arrive after its head."""
    idle_timeout: float = 75.0
    """How long a connection may stay without a request: above the 60 s after which common proxies open a new one."""
    write_stall: float = 5.0
    """How long a peer may take nothing of what is written before it counts as gone. A slow one takes something; over a socket
    the kernel tells so in steps of up to 64 KiB, so one that reads less than 16 KB a second can be taken for gone."""
    pipelined: int = 8
    """Requests that wait parsed on one HTTP/1.1 connection behind the one that is answered."""
    read_ahead: int = 262_144
    """Bytes of all that waits on one HTTP/1.1 connection, parsed or not. What comes beyond it is answered with 503, and the
    connection is closed: it is read all the time, so that a hang-up is heard, and what is read is not held for ever."""
    silence: float = 5.0
    """How long an HTTP answer may wait in silence before it becomes an event stream: a proxy that sees no byte for a
    minute hangs up."""
    keep_alive: float = 15.0
    """Between the comments on an event stream that has nothing to say."""
    bodies_bytes: int = 67_108_864
    """Bytes of request bodies of one HTTP endpoint that are held at once, over all its connections, until they are parsed.
    What comes beyond it is answered with 503."""
    h2_streams: int = 100
    """Requests of one HTTP/2 connection at once. The next one is refused alone, and may be tried again."""
    h2_period: float = 10.0
    """Over which the frames of an HTTP/2 client are counted."""
    h2_resets: int = 200
    """Requests that one HTTP/2 client may begin and give up, or spoil, in that time: each costs a task, and counts
    for no bound of requests that run. A person cancels one, an agent a few dozen."""
    h2_pings: int = 1_000
    """PING frames in that time. A client that measures the link sends one a round trip."""
    h2_settings: int = 50
    """SETTINGS frames in that time: each may change the windows of all streams. A client sends two in all."""
    h2_priorities: int = 1_000
    """PRIORITY frames in that time. They mean nothing any more; old browsers send a few a request."""
    h2_empty: int = 100
    """Frames in that time that carry nothing: empty DATA, and types that are unknown."""
    h2_small: int = 1_000
    """Pieces of bodies below 64 bytes in that time. Each costs as much to read as 16 KiB."""
    h2_updates: int = 1_000
    """WINDOW_UPDATE frames in that time, besides 16 for each frame of data that was sent."""
    h2_fragments: int = 16
    """CONTINUATION frames of one head, which fits in two."""
    h2_control: int = 65_536
    """Bytes of answers to such frames that may wait for a client that does not read."""
    slow_link: int = 8_192
    """Slowest link over which an HTTP/2 client is waited for when its windows are shut and it does not say what it
    has read."""

    # -- sessions (revisions before 2026-07-28)
    sessions: int = 10_000
    """Sessions of one HTTP endpoint. One more takes the place of the one that has idled longest; it is refused only where each
    of them has a call or a stream."""
    session_idle: float = 1_800.0
    """How long a session may stay without a call, a message or a stream. Many clients never end theirs."""
    session_events: int = 256
    """Events of a session that are kept for a client that comes back after its connection broke, and streams that are known."""
    session_bytes: int = 1_048_576
    """Bytes of these events. The oldest go first."""
    sessions_bytes: int = 67_108_864
    """Bytes of such events of all sessions of a server. The oldest go first."""
    session_streams: int = 8
    """Streams that a client may hold open with GET in one session. One more ends the oldest; clients keep one for each call that
    they gave up."""
    session_requests: int = 64
    """Questions and pings to one client that wait for an answer at once."""
    session_ping: float = math.inf
    """Between two pings to a client that has a stream open, and how long it may take to answer one; otherwise its session ends.
    Off, since some clients answer none."""
    question_timeout: float = 600.0
    """How long the answer to one question may take in a session: as long as `state_lifetime`, in which a person answers there."""
    question_tries: int = 3
    """How often a question is asked in a session whose answers do not fit it."""
    resume_after: float = 1.0
    """After how many seconds a client is told to come back to a stream that was closed so that it polls."""
    batch_messages: int = 100
    """Messages in one batch (2025-03-26 only)."""

    # -- ending
    drain_timeout: float = 2.0
    """How long running requests may go on after the end of input, SIGTERM, SIGINT or the cancellation of the serving
    scope. Below the patience of the hosts that launch servers (they kill after 2 to 5 s)."""
    lifespan_timeout: float = 10.0
    """How long the end of the lifespan may take, after requests and tasks have ended. Enough to hand in what is open; a host
    that started the server may have less patience."""
    exit_timeout: float = 2.0
    """How long threads and child processes that are left may keep a process that serves and does nothing else, once the
    server has ended."""

    # -- the client
    client_timeout: float = 300.0
    """Longest that a client waits for one answer, when the caller has no deadline of its own."""
    connect_timeout: float = 30.0
    """Longest that `open_client` waits for the first answer. Starting a packaged server may install it first."""
    answer_bytes: int = 64_000_000
    """Longest message that a client accepts. A client asked for it and chose the server, so it takes more than a server
    takes from anyone."""
    probe_patience: float = 3.0
    """How long a server may be silent at `server/discover` until it is asked by `initialize` as well: some older ones ignore
    what they do not know."""
    client_events: int = 256
    """Progress and log messages that may wait for the caller's callbacks, a call. Beyond it the oldest is dropped: the
    latest progress is the one that counts, and a slow callback must not stop the answers of other calls."""
    client_rounds: int = 16
    """Most rounds of questions that a client answers within one request, so that a server cannot ask for ever."""
    client_pages: int = 1_000
    """Most pages that a list call follows, so that a server that repeats its cursor cannot hold the caller for ever."""
    child_exit: float = 5.0
    """How long a child process may take to exit after its standard input was closed: above twice `drain_timeout` (requests,
    then tasks), so a server of this project always ends by itself."""
    child_terminate: float = 2.0
    """How long its process group may take to exit after SIGTERM; then SIGKILL."""
    child_reap: float = 1.0
    """How long to wait for the exit status of a process that is certainly ending."""
    stderr_tail: int = 4_096
    """Bytes of a child's last error output that are kept for the message of `ConnectionClosed`."""

    # -- rounds of input
    state_bytes: int = 1_048_576
    """Largest `requestState` that is sent: the client sends it back in one message, beside its arguments."""
    state_lifetime: float = 600.0
    """How long a `requestState` may be used: a person answers a form in minutes, a thief has no longer."""

    # -- URI templates
    template_bytes: int = 1_024
    """Longest URI template."""
    template_variables: int = 32
    """Most variables in a URI template."""
    uri_bytes: int = 8_192
    """Longest URI that is matched against templates."""

    # -- what is said about bad input
    shown_value: int = 80
    """Characters of a wrong value that an error message repeats."""
    shown_errors: int = 50
    """Lines of one error message; the rest is counted."""
    shown_names: int = 30
    """Names that an error message lists when it says what there is."""
    status_chars: int = 4_096
    """Characters of the status message of a task, which is told each time that the client asks and stored with each change; and
    of the message of an error that is too large to send. The rest is cut."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"limits: {name} must be positive, not {getattr(self, name)!r}")
        for name, most in (("task_ttl", TASK_TTL_MOST), ("task_result_bytes", TASK_RESULT_MOST)):
            if getattr(self, name) > most:
                raise ValueError(f"limits: {name} must be at most {most}, not {getattr(self, name)!r}")


DEFAULT = Limits()

"""Answers out: the table of states, and what must never be written."""

from __future__ import annotations

import pytest

from trio_mcp.wire.answers import Answer, AnswerState, LocalProtocolError
from trio_mcp.wire.heads import Request

from .helpers import DATE


def make(method: str = "POST", *, http10: bool = False, keep_alive: bool = True) -> Answer:
    request = Request(method)
    request.http10, request.keep_alive = http10, keep_alive
    return Answer(request)


def respond(answer: Answer) -> bytes:
    return answer.respond(200, DATE, b"text/plain", b"x")


def start(answer: Answer) -> bytes:
    return answer.start(200, DATE, ())


STEPS = {"respond": respond, "start": start, "chunk": lambda answer: answer.chunk(b"x"), "end": Answer.end}
TABLE = {
    AnswerState.NOTHING: {"respond": AnswerState.DONE, "start": AnswerState.STREAM},
    AnswerState.STREAM: {"chunk": AnswerState.STREAM, "end": AnswerState.DONE},
    AnswerState.DONE: {},
}
WAYS = {AnswerState.NOTHING: [], AnswerState.STREAM: ["start"], AnswerState.DONE: ["respond"]}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("state", AnswerState)
def test_each_step_in_each_state(state: AnswerState, step: str) -> None:
    answer = make()
    for before in WAYS[state]:
        STEPS[before](answer)
    assert answer.state is state
    if step in TABLE[state]:
        assert STEPS[step](answer)
        assert answer.state is TABLE[state][step]
    else:
        with pytest.raises(LocalProtocolError):
            STEPS[step](answer)
        assert answer.state is state


def test_a_whole_answer() -> None:
    data = make().respond(404, DATE, b"text/plain", b"no", [(b"allow", b"POST")])
    assert data == (
        b"HTTP/1.1 404 Not Found\r\ndate: "
        + DATE
        + b"\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nallow: POST\r\n\r\nno"
    )
    assert make().respond(202, DATE, b"text/plain", b"") == (
        b"HTTP/1.1 202 Accepted\r\ndate: " + DATE + b"\r\ncontent-length: 0\r\n\r\n"
    )
    assert b"content-length" not in make().respond(204, DATE, b"text/plain", b"")


def test_pieces() -> None:
    answer = make()
    data = answer.start(200, DATE, [(b"content-type", b"text/event-stream")])
    assert data.endswith(b"transfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n")
    assert (answer.chunk(b"x" * 17), answer.chunk(b""), answer.end()) == (
        b"11\r\n" + b"x" * 17 + b"\r\n",
        b"",
        b"0\r\n\r\n",
    )


def test_http_1_0_has_no_chunks_and_ends_with_the_connection() -> None:
    answer = make(http10=True)
    assert b"transfer-encoding" not in answer.start(200, DATE, ())
    assert (answer.chunk(b"x"), answer.end(), answer.keep_alive) == (b"x", b"", False)
    assert b"connection: keep-alive\r\n" in respond(make(http10=True))


def test_head_gets_no_body() -> None:
    assert respond(make("HEAD")).endswith(b"content-length: 1\r\n\r\n")
    answer = make("HEAD")
    start(answer)
    assert (answer.chunk(b"x"), answer.end()) == (b"", b"")


@pytest.mark.parametrize(
    "field", [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a\r\nb", b"c"), (b"a", b"\r"), (b"a", b"\0")]
)
def test_a_field_cannot_hold_another_one(field: tuple[bytes, bytes]) -> None:
    for step in (
        lambda answer: answer.respond(200, DATE, b"text/plain", b"x", [field]),
        lambda a: a.start(200, DATE, [field]),
    ):
        answer = make()
        with pytest.raises(LocalProtocolError):
            step(answer)
        assert answer.state is AnswerState.NOTHING
        respond(answer)


def test_what_cannot_be_framed() -> None:
    for status in (100, 101, 199, 299, 999):
        with pytest.raises(LocalProtocolError):
            make().respond(status, DATE, b"text/plain", b"")
    for status in (204, 304):
        with pytest.raises(LocalProtocolError):
            make().respond(status, DATE, b"text/plain", b"x")
        with pytest.raises(LocalProtocolError):
            make().start(status, DATE, ())


def test_a_refused_request_of_http_1_0_keeps_nothing_open() -> None:
    answer = make(http10=True, keep_alive=False)
    assert b"connection: close\r\n" in respond(answer)

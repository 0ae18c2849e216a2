"""What is wrong on an HTTP/2 connection, and what is said to it: RFC 9113, with the cases of h2spec that concern a server."""

from __future__ import annotations

import time

import pytest

from trio_mcp.wire.http2 import Http2
from trio_mcp.wire.http2_events import Ended, Fatal, Head, Reset
from trio_mcp.wire.http2_fields import Malformed, check_request
from trio_mcp.wire.http2_library import PREFACE

from .http2_frames import (
    ACK,
    CANCEL,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GET,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    POST,
    PRIORITY,
    PRIORITY_FLAG,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    START,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Fields,
    block,
    frame,
    frames,
    head,
    rst,
    said,
    server,
    settings,
    update,
)

OPEN = head(1)
DONE = head(1, end=True)
LARGE = b"x" * 16_385
UNFINISHED = frame(HEADERS, END_STREAM, 1, block(GET))

CONNECTION: dict[str, tuple[bytes, int]] = {
    "3.4 no preface": (b"GET / HTTP/1.1\r\n\r\n", PROTOCOL_ERROR),
    "3.4 the first frame is no SETTINGS": (PREFACE + frame(PING, 0, 0, bytes(8)), PROTOCOL_ERROR),
    "3.4 the first frame is an acknowledgement": (PREFACE + frame(SETTINGS, ACK, 0), PROTOCOL_ERROR),
    "4.2 DATA above the longest frame": (START + OPEN + frame(DATA, 0, 1, LARGE), FRAME_SIZE_ERROR),
    "4.2 HEADERS above the longest frame": (START + frame(HEADERS, 5, 1, LARGE), FRAME_SIZE_ERROR),
    "4.2 a frame is too long before it is there": (START + frame(9, 0, 1, length=2**24 - 1), FRAME_SIZE_ERROR),
    "4.3 a block that cannot be decoded": (START + frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"), COMPRESSION_ERROR),
    "4.3 a field that the table does not have": (START + frame(HEADERS, 5, 1, b"\xbf"), COMPRESSION_ERROR),
    "4.3 index 0": (START + frame(HEADERS, 5, 1, b"\x80"), COMPRESSION_ERROR),
    "4.3 a table above what is allowed": (START + frame(HEADERS, 5, 1, b"\x3f\xff\xff\x03"), COMPRESSION_ERROR),
    "4.3 a change of the table behind fields": (START + frame(HEADERS, 5, 1, b"\x82\x20"), COMPRESSION_ERROR),
    "4.3 Huffman padding that is none": (START + frame(HEADERS, 5, 1, b"\x00\x81\x00\x01a"), COMPRESSION_ERROR),
    "4.3 PRIORITY in a head": (START + UNFINISHED + frame(PRIORITY, 0, 1, bytes(5)), PROTOCOL_ERROR),
    "4.3 a head in a head": (START + UNFINISHED + head(3), PROTOCOL_ERROR),
    "4.3 an unknown type in a head": (START + UNFINISHED + frame(0x16, 0, 1), PROTOCOL_ERROR),
    "5.1 DATA on an idle stream": (START + frame(DATA, 1, 1, b"x"), PROTOCOL_ERROR),
    "5.1 RST_STREAM on an idle stream": (START + rst(1), PROTOCOL_ERROR),
    "5.1 RST_STREAM on an idle stream beside an open one": (START + OPEN + rst(3), PROTOCOL_ERROR),
    "5.1 DATA on an idle stream beside an open one": (START + OPEN + frame(DATA, 1, 3, b"x"), PROTOCOL_ERROR),
    "5.1 WINDOW_UPDATE on an idle stream beside an open one": (START + OPEN + update(3, 1), PROTOCOL_ERROR),
    "5.1 WINDOW_UPDATE on an idle stream": (START + update(1, 100), PROTOCOL_ERROR),
    "5.1 WINDOW_UPDATE of 0 on an idle stream": (START + update(1, 0), PROTOCOL_ERROR),
    "5.1 CONTINUATION on an idle stream": (START + frame(CONTINUATION, 4, 1, block(GET)), PROTOCOL_ERROR),
    "5.1.1 an even stream": (START + head(2), PROTOCOL_ERROR),
    "5.1.1 a lower stream": (START + head(5) + head(3), PROTOCOL_ERROR),
    "6.1 DATA of no stream": (START + frame(DATA, 0, 0, b"x"), PROTOCOL_ERROR),
    "6.1 more padding than DATA": (START + OPEN + frame(DATA, PADDED, 1, b"\x06xxxx"), PROTOCOL_ERROR),
    "6.2 HEADERS of no stream": (START + head(0), PROTOCOL_ERROR),
    "6.2 more padding than HEADERS": (START + frame(HEADERS, 5 | PADDED, 1, b"\xff" + block(GET)), PROTOCOL_ERROR),
    "6.2 CONTINUATION of another stream": (START + UNFINISHED + frame(CONTINUATION, 4, 3), PROTOCOL_ERROR),
    "6.2 a stream that depends on itself": (
        START + frame(HEADERS, 5 | PRIORITY_FLAG, 1, b"\x00\x00\x00\x01\xff" + block(GET)),
        PROTOCOL_ERROR,
    ),
    "6.3 PRIORITY of no stream": (START + frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    "6.3 a short PRIORITY on an idle stream": (START + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "6.4 RST_STREAM of no stream": (START + rst(0), PROTOCOL_ERROR),
    "6.4 a short RST_STREAM": (START + OPEN + frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    "6.5 an acknowledgement with a payload": (START + frame(SETTINGS, ACK, 0, bytes(6)), FRAME_SIZE_ERROR),
    "6.5 SETTINGS of a stream": (START + frame(SETTINGS, 0, 1, bytes(6)), PROTOCOL_ERROR),
    "6.5 SETTINGS that are cut": (START + frame(SETTINGS, 0, 0, bytes(5)), FRAME_SIZE_ERROR),
    "6.5.2 ENABLE_PUSH 2": (START + settings((2, 2)), PROTOCOL_ERROR),
    "6.5.2 a window above 2^31-1": (START + settings((4, 2**31)), FLOW_CONTROL_ERROR),
    "6.5.2 frames below 16,384": (START + settings((5, 16_383)), PROTOCOL_ERROR),
    "6.5.2 frames above 2^24-1": (START + settings((5, 2**24)), PROTOCOL_ERROR),
    "6.6 PUSH_PROMISE": (START + OPEN + frame(PUSH_PROMISE, 4, 1, b"\0\0\0\2" + block(GET)), PROTOCOL_ERROR),
    "6.7 PING of a stream": (START + frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "6.7 a short PING": (START + frame(PING, 0, 0, bytes(6)), FRAME_SIZE_ERROR),
    "6.8 GOAWAY of a stream": (START + frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "6.8 a short GOAWAY": (START + frame(GOAWAY, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "6.9 WINDOW_UPDATE of 0": (START + update(0, 0), PROTOCOL_ERROR),
    "6.9 a short WINDOW_UPDATE": (START + frame(WINDOW_UPDATE, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    "6.9.1 the window of the connection above 2^31-1": (START + update(0, 2**31 - 1), FLOW_CONTROL_ERROR),
    "6.9.2 a change that brings a window above 2^31-1": (
        START + OPEN + update(1, 1) + settings((4, 2**31 - 1)),
        FLOW_CONTROL_ERROR,
    ),
    "6.10 CONTINUATION of no stream": (START + UNFINISHED + frame(CONTINUATION, 4, 0), PROTOCOL_ERROR),
    "6.10 CONTINUATION behind the end": (START + DONE + frame(CONTINUATION, 4, 1), PROTOCOL_ERROR),
    "6.10 CONTINUATION behind DATA": (
        START + OPEN + frame(DATA, 0, 1, b"x") + frame(CONTINUATION, 4, 1),
        PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("case", CONNECTION)
def test_an_error_of_the_connection_ends_it_with_its_code(case: str) -> None:
    data, code = CONNECTION[case]
    one = server(b"")
    *_, last = one.receive(data, 0.0)
    assert isinstance(last, Fatal)
    assert last.code == code
    assert said(one.take(0.0))[-1:] == [("GOAWAY", code)]
    assert one.closed
    assert one.streams == 0
    assert one.receive(START + OPEN, 0.0) == []
    assert one.take(0.0) == b""


STREAM: dict[str, tuple[bytes, int]] = {
    "5.1 a second head behind the end": (DONE + head(1, end=True), STREAM_CLOSED),
    "5.1 DATA behind the end": (DONE + frame(DATA, 1, 1, b"x"), STREAM_CLOSED),
    "6.3 a short PRIORITY": (OPEN + frame(PRIORITY, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    "5.3 PRIORITY on itself": (OPEN + frame(PRIORITY, 0, 1, b"\0\0\0\1\0"), PROTOCOL_ERROR),
    "6.9 WINDOW_UPDATE of 0": (OPEN + update(1, 0), PROTOCOL_ERROR),
    "6.9.1 a window above 2^31-1": (OPEN + update(1, 2**31 - 1), FLOW_CONTROL_ERROR),
    "8.1 trailers that do not end": (OPEN + head(1, [(b"x", b"y")]), PROTOCOL_ERROR),
    "8.1 pseudo fields in trailers": (OPEN + head(1, [(b":path", b"/")], end=True), PROTOCOL_ERROR),
    "8.1.1 less than was promised": (
        head(1, [*POST, (b"content-length", b"3")]) + frame(DATA, 1, 1, b"xx"),
        PROTOCOL_ERROR,
    ),
    "8.1.1 more than was promised": (
        head(1, [*POST, (b"content-length", b"1")]) + frame(DATA, 0, 1, b"xx"),
        PROTOCOL_ERROR,
    ),
    "8.1.1 more than was promised, in several": (
        head(1, [*POST, (b"content-length", b"1")]) + frame(DATA, 0, 1, b"x") + frame(DATA, 1, 1, b"x"),
        PROTOCOL_ERROR,
    ),
    "8.1.1 nothing, where something was promised": (
        head(1, [*POST, (b"content-length", b"1")], end=True),
        PROTOCOL_ERROR,
    ),
    "8.1.1 trailers before the end of what was promised": (
        head(1, [*POST, (b"content-length", b"1")]) + head(1, [(b"x", b"y")], end=True),
        PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("case", STREAM)
def test_an_error_of_a_stream_resets_it_alone(case: str) -> None:
    data, code = STREAM[case]
    one = server()
    events = one.receive(data, 0.0)
    assert not any(isinstance(event, Fatal) for event in events)
    assert events == [] or isinstance(events[-1], Reset) or isinstance(events[0], Head)
    assert one.streams == 0
    assert said(one.take(0.0)) == [("RST 1", code)]
    assert [type(event) for event in one.receive(head(3, end=True), 0.0)] == [Head]


def test_a_stream_that_was_told_of_and_is_reset_is_told_of() -> None:
    for data, code in STREAM.values():
        one = server()
        events = one.receive(data, 0.0)
        if events and not one.streams:
            assert events[-1] == Reset(1, code)
            assert sum(isinstance(event, Reset) for event in events) == 1


FINE: dict[str, bytes] = {
    "4.1 an unknown type": frame(0x16, 0, 0, b"anything"),
    "4.1 unknown flags": frame(PING, 0x16, 0, bytes(8)),
    "4.1 the reserved bit": b"\x00\x00\x08\x06\x00\x80\x00\x00\x00" + bytes(8),
    "5.1 PRIORITY on an idle stream": frame(PRIORITY, 0, 7, bytes(5)),
    "5.1 WINDOW_UPDATE behind the end": DONE + update(1, 100),
    "5.1 PRIORITY behind the end": DONE + frame(PRIORITY, 0, 1, bytes(5)),
    "5.1 frames on a stream that was reset": OPEN + rst(1) + update(1, 5) + rst(1) + frame(PRIORITY, 0, 1, bytes(5)),
    "6.5 an unknown setting": settings((0xFF, 1), (0x1234, 2**32 - 1)),
    "6.5.3 the last of equal settings counts": settings((4, 100), (4, 1)),
    "6.8 GOAWAY": frame(GOAWAY, 0, 0, bytes(8)),
    "6.8 GOAWAY with an unknown code and a text": frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\xff" + b"why"),
    "6.2 padded": frame(HEADERS, 5 | PADDED, 1, b"\x03" + block(GET) + bytes(3)),
    "6.2 with a priority": frame(HEADERS, 5 | PRIORITY_FLAG, 1, bytes(4) + b"\xff" + block(GET)),
    "6.10 in pieces": UNFINISHED + frame(CONTINUATION, 0, 1, block([(b"a", b"b")])) + frame(CONTINUATION, 4, 1),
    "8.1 trailers": OPEN + frame(DATA, 0, 1, b"x") + head(1, [(b"x", b"y")], end=True),
}


@pytest.mark.parametrize("case", FINE)
def test_what_is_odd_and_allowed_is_borne(case: str) -> None:
    one = server()
    assert not any(isinstance(event, Fatal | Reset) and event.code != CANCEL for event in one.receive(FINE[case], 0.0))
    assert said(one.take(0.0)) == []
    assert [type(event) for event in one.receive(head(9, end=True), 0.0)] == [Head]


def test_settings_and_pings_are_acknowledged() -> None:
    one = server()
    one.receive(settings((4, 1)) + frame(PING, 0, 0, b"12345678"), 0.0)
    assert frames(one.take(0.0)) == [(SETTINGS, ACK, 0, b""), (PING, ACK, 0, b"12345678")]


# -- fields (section 8)


def without(name: bytes) -> Fields:
    return [field for field in POST if field[0] != name]


def changed(name: bytes, value: bytes) -> Fields:
    return [(key, value if key == name else old) for key, old in POST]


BAD_FIELDS: dict[str, Fields] = {
    "8.2 an upper-case name": [*POST, (b"X-Test", b"ok")],
    "8.2.1 an empty name": [*POST, (b"", b"ok")],
    "8.2.1 a blank in a name": [*POST, (b"x y", b"ok")],
    "8.2.1 a colon in a name": [*POST, (b"x:y", b"ok")],
    "8.2.1 a name outside of ASCII": [*POST, (b"x\xff", b"ok")],
    "8.2.1 NUL": [*POST, (b"x", b"a\x00b")],
    "8.2.1 CR": [*POST, (b"x", b"a\rb")],
    "8.2.1 LF": [*POST, (b"x", b"a\nb")],
    "8.2.1 a blank before a value": [*POST, (b"x", b" a")],
    "8.2.1 a tab behind a value": [*POST, (b"x", b"a\t")],
    "8.2.2 connection": [*POST, (b"connection", b"keep-alive")],
    "8.2.2 keep-alive": [*POST, (b"keep-alive", b"1")],
    "8.2.2 proxy-connection": [*POST, (b"proxy-connection", b"close")],
    "8.2.2 transfer-encoding": [*POST, (b"transfer-encoding", b"chunked")],
    "8.2.2 upgrade": [*POST, (b"upgrade", b"h2c")],
    "8.2.2 TE": [*POST, (b"te", b"trailers, deflate")],
    "8.3 an unknown pseudo field": [*POST, (b":test", b"ok")],
    "8.3 :protocol": [*POST, (b":protocol", b"websocket")],
    "8.3 a pseudo field of an answer": [*POST, (b":status", b"200")],
    "8.3 a pseudo field behind the others": [*without(b":path"), (b"x", b"y"), (b":path", b"/")],
    "8.3.1 no method": without(b":method"),
    "8.3.1 no scheme": without(b":scheme"),
    "8.3.1 no path": without(b":path"),
    "8.3.1 an empty path": changed(b":path", b""),
    "8.3.1 a path that is none": changed(b":path", b"mcp"),
    "8.3.1 * where it means nothing": changed(b":path", b"*"),
    "8.3.1 a blank in a path": changed(b":path", b"/m cp"),
    "8.3.1 a path outside of ASCII": changed(b":path", b"/mcp\xff\xc3"),
    "8.3.1 a method outside of ASCII": changed(b":method", b"POST\xe9"),
    "8.3.1 an empty method": changed(b":method", b""),
    "8.3.1 an empty authority": changed(b":authority", b""),
    "8.3.1 a user in the authority": changed(b":authority", b"me@localhost"),
    "8.3.1 an authority outside of ASCII": changed(b":authority", b"\xff\xfe:80"),
    "8.3.1 the host is another": [*POST, (b"host", b"evil.example")],
    "8.3.1 two hosts": [*without(b":authority"), (b"host", b"a"), (b"host", b"a")],
    "8.3.1 neither authority nor host": without(b":authority"),
    "8.5 CONNECT": [(b":method", b"CONNECT"), (b":authority", b"localhost:80")],
    "8.5 CONNECT with a path": changed(b":method", b"CONNECT"),
    "8.1.1 a length that is no number": [*POST, (b"content-length", b"-1")],
    "8.1.1 a length that is a sum": [*POST, (b"content-length", b"1, 1")],
    "8.1.1 two lengths": [*POST, (b"content-length", b"1"), (b"content-length", b"2")],
    "8.1.1 a length of a thousand digits": [*POST, (b"content-length", b"1" * 100)],
    **{f"8.3.1 {field[0].decode()} twice": [*POST, field] for field in POST},
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_a_malformed_request_is_reset_and_never_told_of(case: str) -> None:
    one = server()
    before = one.receive(head(1, end=True), 0.0)
    assert one.receive(head(3, BAD_FIELDS[case]), 0.0) == []
    assert said(one.take(0.0)) == [("RST 3", PROTOCOL_ERROR)]
    assert len(before) == one.streams == 1
    assert [type(event) for event in one.receive(head(5, end=True), 0.0)] == [Head]


def test_a_field_that_was_right_once_does_not_make_another_right() -> None:
    one = server()
    fine = [*POST, (b"x", b"ok"), (b"te", b"trailers")]
    for stream in (1, 3):
        assert [type(event) for event in one.receive(head(stream, fine, end=True), 0.0)] == [Head]
    for number, bad in enumerate((b"o\x00k", b" ok", b"")):
        events = one.receive(head(5 + 2 * number, [*POST, (b"x", bad)], end=True), 0.0)
        assert [type(event) for event in events] == ([Head] if bad == b"" else [])


def test_what_the_head_of_a_request_says() -> None:
    cookies = [
        (b"cookie", b"a=1"),
        (b"accept", b"a"),
        (b"cookie", b"b=2"),
        (b"accept", b"b"),
        (b"content-length", b"7"),
    ]
    request = check_request([*changed(b":path", b"/mcp?x=1"), *cookies, (b"host", b"LOCALHOST")], set())
    assert (request.method, request.path, request.length) == ("POST", "/mcp?x=1", 7)
    assert request.headers == {
        b"cookie": b"a=1; b=2",
        b"accept": b"a, b",
        b"content-length": b"7",
        b"host": b"localhost",
    }
    assert check_request([*without(b":authority"), (b"host", b"here")], set()).headers[b"host"] == b"here"
    options = [(b":method", b"OPTIONS"), (b":scheme", b"http"), (b":path", b"*"), (b":authority", b"x")]
    assert check_request(options, set()).path == "*"
    with pytest.raises(Malformed):
        check_request([], set())


# -- bounds


def continued(count: int) -> bytes:
    return UNFINISHED + frame(CONTINUATION, 0, 1) * count


def opened(count: int, tail: bytes | None = None) -> bytes:
    return b"".join(
        head(2 * number + 1, end=True) + (rst(2 * number + 1) if tail is None else tail) for number in range(count)
    )


def malformed(count: int) -> bytes:
    return b"".join(head(2 * number + 1, without(b":path"), end=True) for number in range(count))


def refused(count: int) -> bytes:
    return opened(2 + count, b"")


FLOODS = {
    "h2_resets": (lambda n: opened(n), {}),
    "h2_resets by fault": (lambda n: malformed(n), {}),
    "h2_resets by refusal": (lambda n: refused(n), {"h2_streams": 2}),
    "h2_pings": (lambda n: frame(PING, 0, 0, bytes(8)) * n, {}),
    "h2_settings": (lambda n: settings((4, 70_000)) * (n - 1), {}),
    "h2_priorities": (lambda n: frame(PRIORITY, 0, 9, bytes(5)) * n, {}),
    "h2_empty": (lambda n: OPEN + frame(DATA, 0, 1) * n, {}),
    "h2_empty by types": (lambda n: frame(0x16, 0, 0) * n, {}),
    "h2_small": (lambda n: OPEN + frame(DATA, 0, 1, b"x") * n, {}),
    "h2_updates": (lambda n: update(0, 1) * n, {}),
    "h2_fragments": (lambda n: continued(n), {}),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_the_connection_one_above_its_bound(flood: str) -> None:
    make, more = FLOODS[flood]
    name = flood.split()[0]
    one = server(**{name: 20}, **more)
    assert not any(isinstance(event, Fatal) for event in one.receive(make(20), 0.0))
    one = server(**{name: 20}, **more)
    assert isinstance(one.receive(make(21), 0.0)[-1], Fatal)
    assert said(one.take(0.0))[-1] == ("GOAWAY", ENHANCE_YOUR_CALM)


@pytest.mark.parametrize("flood", [name for name in FLOODS if "resets" not in name and "fragments" not in name])
def test_what_comes_slowly_is_no_flood(flood: str) -> None:
    make, more = FLOODS[flood]
    name = flood.split()[0]
    one = server(**{name: 20}, **more)
    data = make(20)
    for turn in range(5):
        events = one.receive(data if turn == 0 or OPEN not in data else data[len(OPEN) :], turn * 10.0)
        assert not any(isinstance(event, Fatal) for event in events)
        one.take(turn * 10.0)


def after_much_data(now: float) -> Http2:
    """A connection that takes 20 updates of a window, and has sent ten frames of data."""
    one = server(h2_updates=20)
    one.receive(head(1, end=True) + settings((4, 2**30)) + update(0, 2**30), 0.0)
    one.send_head(1, b"\x88")
    one.send_data(1, bytes(16_384 * 10), end=True)
    while one.take(now):
        pass
    return one


def test_window_updates_for_data_that_was_sent_are_no_flood() -> None:
    one = after_much_data(0.0)
    assert one.receive(update(0, 1) * 160, 0.0) == []


def test_data_that_was_sent_may_be_taken_much_later() -> None:
    one = after_much_data(9.0)
    assert one.receive(update(0, 1) * 100, 11.0) == []
    assert one.receive(update(0, 1) * 79, 12.0) == []
    assert isinstance(one.receive(update(0, 1) * 21, 22.0)[-1], Fatal)


def test_streams_that_a_drain_refuses_do_not_end_the_one_that_is_answered() -> None:
    one = server(h2_resets=20)
    one.receive(OPEN + frame(DATA, END_STREAM, 1, b"x"), 0.0)
    one.drain()
    for number in range(1_000):
        assert one.receive(head(2 * number + 3, end=True), 1.0) == []
        assert said(one.take(1.0)) == [(f"RST {2 * number + 3}", REFUSED_STREAM)]
    # Whoever does not read what it is told is left all the same.
    data = b"".join(head(2 * number + 2_003, end=True) for number in range(6_000))
    assert any(isinstance(event, Fatal) for event in one.receive(data, 1.0))


def test_one_stream_too_many_is_refused_alone() -> None:
    one = server(h2_streams=3)
    events = one.receive(b"".join(head(stream) for stream in (1, 3, 5, 7)) + frame(DATA, 1, 7, b"x"), 0.0)
    assert [event.stream for event in events if isinstance(event, Head)] == [1, 3, 5]
    assert said(one.take(0.0))[0] == ("RST 7", REFUSED_STREAM)
    assert one.receive(rst(3) + head(9), 0.0)[1:] == server().receive(head(9), 0.0)


def test_settings_that_are_unknown_are_not_kept() -> None:
    one = server(h2_settings=1_000)
    for number in range(100):
        one.receive(settings(*((7 + number * 100 + n, n) for n in range(100))), 0.0)
    assert len(one._h2.remote_settings) < 10


def test_a_head_is_bounded_as_it_is_sent_and_as_it_is_decoded() -> None:
    one = server(head_bytes=1_000)
    filler = frame(CONTINUATION, 0, 1, block([(b"x", b"y" * 100)]) * 5)
    assert one.receive(UNFINISHED + filler, 0.0) == []
    assert isinstance(one.receive(filler, 0.0)[-1], Fatal)
    # One field of the table, again and again: a byte each.
    one = server(head_bytes=1_000)
    bomb = block(GET) + b"\x40\x01a\x7e" + b"b" * 126 + b"\xbe" * 500
    assert one.receive(frame(HEADERS, 5, 1, bomb), 0.0)[-1] == Fatal(ENHANCE_YOUR_CALM, one_reason(one, bomb))
    # All of it in single bytes, to the bound and one literal above.
    for tail in (b"", b"\x00\x01c\x01d" * 1_000):
        one = server(head_bytes=1_000)
        field = b"\x40\x01a\x5e" + b"b" * 94 + b"\x00\x01x\x01y"  # 127 bytes with its 32
        one.receive(frame(HEADERS, 5, 1, block(GET) + field), 0.0)
        count = 900 if not tail else 15
        events = one.receive(
            frame(HEADERS, 5, 3, b"\x82" + b"\xbe" * count + tail[: 900 if count == 15 else None]), 0.0
        )
        assert isinstance(events[-1], Fatal)
        assert events[-1].code == ENHANCE_YOUR_CALM
    # Between the bound and its double the head is told of, with its size, and can be refused alone.
    (event,) = server(head_bytes=1_000).receive(frame(HEADERS, 5, 1, block(GET) + (b"\x00\x01a\x01b") * 30), 0.0)
    assert isinstance(event, Head)
    assert 1_000 < event.request.size < 2_000


def one_reason(one: object, bomb: bytes) -> str:
    (event,) = server(head_bytes=1_000).receive(frame(HEADERS, 5, 1, bomb), 0.0)
    assert isinstance(event, Fatal)
    return event.reason


def test_answers_to_a_client_that_does_not_read_are_bounded() -> None:
    one = server(h2_pings=100_000)
    pings = frame(PING, 0, 0, bytes(8)) * 100
    for _ in range(38):
        assert one.receive(pings, 0.0) == []
    assert isinstance(one.receive(pings, 0.0)[-1], Fatal)
    one = server(h2_pings=100_000)
    for _ in range(100):
        assert one.receive(pings, 0.0) == []
        one.take(0.0)


def test_a_body_that_is_not_taken_is_bounded_by_the_window() -> None:
    one = server()
    events = one.receive(OPEN + frame(DATA, 0, 1, bytes(16_384)) * 3 + frame(DATA, 0, 1, bytes(16_383)), 0.0)
    assert sum(getattr(event, "size", 0) for event in events) == 65_535
    assert frames(one.take(0.0)) == []
    assert one.receive(frame(DATA, 0, 1, b"x"), 0.0)[-1].code == FLOW_CONTROL_ERROR


def test_trailers_are_ignored_and_end_the_body() -> None:
    one = server()
    events = one.receive(OPEN + frame(DATA, 0, 1, b"x") + head(1, [(b"x", b"y")], end=True), 0.0)
    assert events[-1] == Ended(1)


def test_a_field_that_is_repeated_by_its_number_costs_little() -> None:
    fields = [*GET, *[(b"x", b"y" * 3_000)] * 18]
    check_request(fields, set())
    spent: list[float] = []
    for _ in range(5):
        begin = time.process_time()
        for _ in range(50):
            check_request(fields, set())
        spent.append(time.process_time() - begin)
    # 2.7 MB each time; whatever else the machine does may cost one of them more.
    assert min(spent) < 0.03

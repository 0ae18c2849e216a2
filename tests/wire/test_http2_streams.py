"""The server's half of HTTP/2 over any bytes, and with the client's half of the `h2` library."""

from __future__ import annotations

import math
import random
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import hyperframe.frame as hf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.limits import DEFAULT
from trio_mcp.wire.http2 import Http2
from trio_mcp.wire.http2_events import Body, Ended, Event, Fatal, GoneAway, Head, Reset
from trio_mcp.wire.http2_fields import encode_head
from trio_mcp.wire.http2_library import Connection

from ..scaled import scaled
from .http2_frames import (
    ACK,
    CANCEL,
    DATA,
    END_STREAM,
    GET,
    GOAWAY,
    HEADERS,
    NO_ERROR,
    PING,
    POST,
    REFUSED_STREAM,
    RST_STREAM,
    START,
    block,
    fields_of,
    frame,
    frames,
    head,
    rst,
    said,
    server,
    update,
)
from .http2_frames import settings as settings_frame

# -- any bytes

_number = st.integers(0, 2**31 - 1)
_stream = st.sampled_from([0, 1, 1, 3, 5, 7, 2, 9, 1001])
_text = st.binary(max_size=20)
_block = st.one_of(
    st.sampled_from(
        [block(GET), block(POST), block([*POST, (b"content-length", b"3")]), block([(b"x", b"y")]), b"\x82"]
    ),
    _text,
)


def _flags(names: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), unique=True)


@st.composite
def _frame(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 11))
    stream = draw(_stream)
    on = stream or 1
    if kind == 0:
        return _bytes(hf.DataFrame(on, draw(_text), flags=draw(_flags(["END_STREAM"]))))
    if kind in (1, 2):
        flags = draw(_flags(["END_STREAM", "END_HEADERS", "PRIORITY"]))
        return _bytes(hf.HeadersFrame(on, draw(_block), flags=flags, depends_on=draw(_stream)))
    if kind == 3:
        return _bytes(hf.PriorityFrame(on, depends_on=draw(_stream), stream_weight=3))
    if kind == 4:
        return _bytes(hf.RstStreamFrame(on, error_code=draw(_number)))
    if kind == 5:
        values = draw(st.dictionaries(st.integers(0, 10), _number, max_size=4))
        return _bytes(hf.SettingsFrame(0, settings=values))
    if kind == 6:
        return _bytes(hf.PingFrame(0, draw(st.binary(min_size=8, max_size=8)), flags=draw(_flags(["ACK"]))))
    if kind == 7:
        return _bytes(hf.GoAwayFrame(0, last_stream_id=draw(_stream), error_code=draw(_number)))
    if kind == 8:
        return _bytes(hf.WindowUpdateFrame(stream, window_increment=draw(st.integers(1, 2**31 - 1))))
    if kind == 9:
        return _bytes(hf.ContinuationFrame(on, draw(_block), flags=draw(_flags(["END_HEADERS"]))))
    return frame(draw(st.integers(0, 255)), draw(st.integers(0, 255)), stream, draw(_text))


def _bytes(one: hf.Frame) -> bytes:
    return bytes(one.serialize())


_input = st.lists(_frame(), max_size=12).map(lambda parts: START + b"".join(parts))


@st.composite
def _spoiled(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(_input))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


def hear(data: bytes, cuts: list[int]) -> tuple[list[Event], bytes]:
    """What is heard, and what is said, when bytes come in pieces."""
    one = Http2(DEFAULT, 0.0)
    events, out, start = [], one.take(0.0), 0
    for end in [*sorted(cuts), len(data)]:
        events += one.receive(data[start:end], 0.0)
        out += one.take(0.0)
        start = end
    return events, out


@given(data=st.one_of(_input, _spoiled()), numbers=st.data())
def test_any_cut_gives_the_same_events(data: bytes, numbers: st.DataObject) -> None:
    cuts = numbers.draw(st.lists(st.integers(0, len(data)), max_size=8))
    whole = hear(data, [])
    for pieces in (cuts, list(range(len(data)))):
        events, out = hear(data, pieces)
        assert events == whole[0]
        assert [part for part in frames(out) if part[0] == GOAWAY] == [
            part for part in frames(whole[1]) if part[0] == GOAWAY
        ]


def check_order(events: list[Event]) -> None:
    """What must hold of all events."""
    state: dict[int, str] = {}
    for index, event in enumerate(events):
        if isinstance(event, Fatal):
            assert index == len(events) - 1
        elif isinstance(event, Head):
            assert event.stream not in state
            assert event.stream % 2 == 1
            state[event.stream] = "ended" if event.ended else "open"
        elif isinstance(event, Body):
            assert state[event.stream] == "open"
        elif isinstance(event, Ended):
            assert state[event.stream] == "open"
            state[event.stream] = "ended"
        elif isinstance(event, Reset):
            assert state[event.stream] in ("open", "ended")
            state[event.stream] = "over"


@given(data=st.one_of(_input, _spoiled(), st.binary(max_size=100).map(lambda tail: START + tail)))
def test_events_have_an_order_whatever_comes(data: bytes) -> None:
    check_order(hear(data, [])[0])


def spoil(rng: random.Random, data: bytes) -> bytes:
    """Change some bytes."""
    out = bytearray(data)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(out))
        what = rng.randrange(4)
        if what == 0:
            out[at] = rng.randrange(256)
        elif what == 1:
            del out[at : at + rng.randrange(1, 12)]
        elif what == 2:
            out[at:at] = rng.randbytes(rng.randrange(1, 12))
        else:
            out[at:at] = out[max(0, at - 30) : at]
        if not out:
            break
    return bytes(out)


PARTS = [
    *[head(1), head(1, end=True), head(3, [*POST, (b"content-length", b"5")]), head(5, [(b"x", b"y")], end=True)],
    *[frame(DATA, flags, stream, b"hello") for flags in (0, 1, 8) for stream in (1, 3)],
    *[rst(1), rst(3), update(0, 2**30), update(1, 2**30), update(3, 0), frame(PING, 0, 0, bytes(8))],
    *[settings_frame((4, 1)), settings_frame((4, 2**31 - 1)), settings_frame((1, 0), (5, 2**20))],
    *[frame(GOAWAY, 0, 0, bytes(8)), frame(HEADERS, 1, 7, block(GET)), frame(9, 4, 7), frame(2, 0, 1, bytes(5))],
]


def mutated(seed: int) -> None:
    """One stream of spoiled frames, in pieces, with answers given to what is heard; nothing may be raised."""
    rng = random.Random(seed)
    data = START + b"".join(rng.choice(PARTS) for _ in range(rng.randrange(12)))
    data = spoil(rng, data)
    one = Http2(DEFAULT, 0.0)
    events: list[Event] = []
    out, now, open_streams = b"", 0.0, []
    while data:
        size = rng.choice((1, 5, 30, 1_000, 1_000))
        new = one.receive(data[:size], now)
        data = data[size:]
        events += new
        for event in new:
            if isinstance(event, Head):
                open_streams.append(event.stream)
            elif isinstance(event, Body):
                (one.open_window if rng.random() < 0.7 else one.refuse_body)(event.stream, event.size)
        for stream in [stream for stream in open_streams if rng.random() < 0.4]:
            open_streams.remove(stream)
            if rng.random() < 0.2:
                one.reset(stream, CANCEL)
            else:
                one.send_head(stream, encode_head(200, []))
                one.send_data(stream, bytes(rng.choice((0, 10, 100_000))), end=rng.random() < 0.9)
        if rng.random() < 0.05:
            one.drain()
        now += rng.choice((0, 0, 0, 3.0))
        events += one.look(now)
        if rng.random() < 0.5:
            out += one.take(now, 20_000)
    out += one.take(now)
    frames(out)
    check_order(events)
    assert one.answers.waiting >= 0
    assert one.closed == any(isinstance(event, Fatal) for event in events)


def test_spoiled_streams_raise_nothing() -> None:
    for seed in range(300):
        mutated(seed)


@pytest.mark.soak
def test_many_spoiled_streams_raise_nothing() -> None:
    for seed in range(1_000, 1_000 + scaled(5_000)):
        mutated(seed)


# -- fields


_name = st.sampled_from([b":method", b"accept", b"x", b"content-length", b"cookie"])
_lists = st.lists(st.lists(st.tuples(_name, st.binary(max_size=6)), max_size=6), min_size=1, max_size=5)


@given(lists=_lists, huffman=st.booleans(), resize=st.sampled_from([None, 0, 60, 4_096]))
def test_repeated_fields_are_looked_up_as_hpack_decodes_them(
    lists: list[list[tuple[bytes, bytes]]], huffman: bool, resize: int | None
) -> None:
    encoder, plain = hpack.Encoder(), hpack.Decoder()
    ours: Any = Connection(DEFAULT)
    for number, fields in enumerate([*lists, *lists]):
        if number == 1 and resize is not None:
            encoder.header_table_size = resize
        data = encoder.encode(fields, huffman=huffman)
        assert ours.decoder.decode(data) == []
        assert ours.fields == plain.decode(data, raw=True) == fields


@given(data=st.binary(max_size=30))
def test_what_cannot_be_decoded_is_the_same_as_for_hpack(data: bytes) -> None:
    ours: Any = Connection(DEFAULT)
    plain = hpack.Decoder()
    for _ in range(2):
        try:
            expected = list(plain.decode(data, raw=True))
        except (hpack.HPACKError, IndexError, TypeError, ValueError):
            with pytest.raises(h2.exceptions.ProtocolError):
                ours.decoder.decode(data)
            return
        ours.decoder.decode(data)
        assert ours.fields == expected


@given(
    status=st.integers(200, 599),
    fields=st.lists(
        st.tuples(
            st.sampled_from([b"content-type", b"date", b"vary", b"x-long-name-of-a-field" * 9]), st.binary(max_size=400)
        ),
        max_size=5,
    ),
)
def test_the_head_of_an_answer_is_what_hpack_reads(status: int, fields: list[tuple[bytes, bytes]]) -> None:
    assert fields_of(encode_head(status, fields)) == [(b":status", b"%d" % status), *fields]


# -- with the client's half of `h2`


class Client:
    """The client's half, and the server's, and what goes between them."""

    def __init__(self, window: int = 65_535, **limits: Any) -> None:
        self.server = server(b"", **limits)
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None, validate_outbound_headers=False)
        )
        self.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window}
        )
        self.h2.initiate_connection()
        self.events: list[h2.events.Event] = []
        self.order: list[int] = []
        self.bodies: dict[int, bytes] = {}
        self.now = 0.0

    def send(self) -> list[Event]:
        return self.server.receive(self.h2.data_to_send(), self.now)

    def take(self, *, give: bool = True) -> None:
        for event in self.h2.receive_data(self.server.take(self.now)):
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived):
                assert event.stream_id is not None and event.data is not None
                self.order.append(event.stream_id)
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                if give and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)

    def ask(self, body: bytes | None = None) -> int:
        stream: int = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, POST, end_stream=body is None)
        if body is not None:
            self.h2.send_data(stream, body, end_stream=True)
        return stream

    def heard(self, kind: type[h2.events.Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def answer(one: Http2, stream: int, body: bytes) -> None:
    one.send_head(stream, encode_head(200, [(b"content-length", b"%d" % len(body))]))
    one.send_data(stream, body, end=True)


@settings(max_examples=scaled(30))
@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 16_384, 16_385, 65_535, 65_536, 200_000]), min_size=1, max_size=5),
    window=st.sampled_from([1, 100, 65_535, 2**31 - 1]),
)
def test_every_answer_arrives_whole_within_any_window(sizes: list[int], window: int) -> None:
    if window < 1_000:
        sizes = [min(size, 200 * window) for size in sizes]
    client = Client(window, h2_updates=100_000)
    streams = [client.ask() for _ in sizes]
    client.send()
    bodies = {
        stream: bytes([number % 256]) * size for number, (stream, size) in enumerate(zip(streams, sizes, strict=True))
    }
    for stream, body in bodies.items():
        answer(client.server, stream, body)
    for _ in range(3_000):
        client.take()
        if client.server.streams == 0:
            break
        assert client.send() == []
    assert client.server.streams == 0
    assert client.server.answers.waiting == 0
    assert {stream: client.bodies.get(stream, b"") for stream in bodies} == bodies
    assert sorted(event.stream_id for event in client.heard(h2.events.StreamEnded)) == streams


def test_streams_are_served_in_turn_a_frame_each() -> None:
    client = Client(2**20)
    streams = [client.ask() for _ in range(3)]
    client.h2.increment_flow_control_window(2**20)
    client.send()
    for stream in streams:
        answer(client.server, stream, bytes(40_000))
    while client.server.streams:
        client.take()
    assert client.order == streams * 3


def test_a_stream_whose_window_is_shut_holds_up_no_other() -> None:
    client = Client(10)
    shut = client.ask()
    client.send()
    answer(client.server, shut, bytes(1_000))
    client.take(give=False)
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 20})
    client.send()
    others = []
    # The first comes while there is some room, and the second when there is none.
    for _ in range(2):
        others.append(client.ask())
        client.send()
        answer(client.server, others[-1], bytes(15))
        client.take(give=False)
        client.take(give=False)
    assert {stream: len(body) for stream, body in client.bodies.items()} == {shut: 20, **dict.fromkeys(others, 15)}
    assert client.server.answers.pending(shut) == 980
    client.h2.reset_stream(shut)
    assert client.send() == [Reset(shut, NO_ERROR)]
    assert (client.server.streams, client.server.answers.waiting) == (0, 0)


def test_bodies_arrive_and_windows_open_for_those_that_are_taken() -> None:
    client = Client()
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, POST)
    for number in range(30):
        client.h2.send_data(stream, bytes([number]) * 16_000, end_stream=number == 29)
        for event in client.send():
            if isinstance(event, Body):
                assert event.data == bytes([number]) * 16_000
                client.server.open_window(stream, event.size)
        client.take()
    assert client.server.receive(b"", 0.0) == []


def refused_early() -> tuple[Client, int]:
    """A client whose body is refused, and answered, while it comes."""
    client = Client()
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, POST)
    client.send()
    client.server.refuse_body(stream)
    answer(client.server, stream, b"no")
    client.take()
    assert (client.bodies[stream], client.server.streams) == (b"no", 0)
    return client, stream


@pytest.mark.parametrize("ends", [True, False])
def test_what_comes_behind_an_answer_is_dropped_for_a_moment(ends: bool) -> None:
    """There are clients that take a reset for the answer."""
    client, stream = refused_early()
    for _ in range(20):
        client.h2.send_data(stream, bytes(16_000))
        assert client.send() == []
        client.take()
    if ends:
        client.h2.end_stream(stream)
        client.send()
    assert client.server.due() == (math.inf if ends else pytest.approx(1.0))
    client.server.look(1.0)
    client.take()
    assert [event.error_code for event in client.heard(h2.events.StreamReset)] == ([] if ends else [NO_ERROR])


def test_what_is_dropped_behind_an_answer_has_a_bound() -> None:
    client, stream = refused_early()
    sent = 0
    while not client.heard(h2.events.StreamReset):
        client.h2.send_data(stream, bytes(16_000))
        client.send()
        client.take()
        sent += 16_000
        assert sent <= 4 * DEFAULT.message_bytes + 16_000
    assert sent > 4 * DEFAULT.message_bytes - 16_000


def test_the_streams_whose_bodies_are_dropped_have_a_bound() -> None:
    one = server(h2_streams=2)
    for stream in (1, 3, 5):
        one.receive(head(stream), 0.0)
        one.refuse_body(stream)
        answer(one, stream, b"no")
        resets = [part[2] for part in frames(one.take(0.0)) if part[0] == 3]
    # The oldest is given up for the third.
    assert resets == [1]
    assert one.due() == 1.0


def test_a_refused_body_still_comes_back_to_the_window_of_the_connection() -> None:
    one = server()
    one.receive(head(1), 0.0)
    one.refuse_body(1)
    for _ in range(3):
        assert one.receive(frame(DATA, 0, 1, bytes(16_000)), 0.0) == []
    updates = [part for part in frames(one.take(0.0)) if part[0] == 8 and part[2] == 0]
    assert sum(int.from_bytes(part[3], "big") for part in updates) == 3 * 16_000


def test_informational_heads_and_then_the_answer() -> None:
    client = Client()
    stream = client.h2.get_next_available_stream_id()
    client.h2.send_headers(stream, POST)
    client.send()
    client.server.send_continue(stream)
    answer(client.server, stream, b"yes")
    client.take()
    assert client.heard(h2.events.InformationalResponseReceived)[0].headers == [(b":status", b"100")]
    assert client.heard(h2.events.ResponseReceived)[0].headers == [(b":status", b"200"), (b"content-length", b"3")]


# -- the end


def test_the_drain_finishes_what_is_open_refuses_what_is_new_and_says_goaway_last() -> None:
    client = Client()
    old = client.ask()
    client.send()
    client.server.drain()
    new = client.ask()
    assert client.send() == []
    answer(client.server, old, bytes(100_000))
    while client.server.streams:
        client.take()
        client.send()
    client.take()
    assert len(client.bodies[old]) == 100_000
    assert [(event.stream_id, event.error_code) for event in client.heard(h2.events.StreamReset)] == [
        (new, REFUSED_STREAM)
    ]
    (end,) = client.heard(h2.events.ConnectionTerminated)
    assert (end.error_code, end.last_stream_id) == (NO_ERROR, old)
    assert client.events[-1] is end


def test_a_goaway_of_the_client_lets_its_streams_go_on() -> None:
    one = server()
    one.receive(head(1), 0.0)
    assert one.receive(frame(GOAWAY, 0, 0, bytes(8)), 0.0) == [GoneAway(0)]
    assert one.receive(frame(DATA, END_STREAM, 1, b"x"), 0.0) == [Body(1, b"x", 1), Ended(1)]
    answer(one, 1, b"yes")
    assert [part[0] for part in frames(one.take(0.0))] == [HEADERS, DATA]


def test_a_reset_drops_what_waits() -> None:
    one = server()
    one.receive(head(1, end=True), 0.0)
    answer(one, 1, bytes(500_000))
    one.reset(1, CANCEL)
    one.send_data(1, b"more")
    assert (one.answers.waiting, one.streams) == (0, 0)
    assert [part[0] for part in frames(one.take(0.0))] == [HEADERS, RST_STREAM]


# -- windows that stay shut: `write_stall` is 5 s


def ping_of(data: bytes) -> bytes | None:
    pings = [payload for kind, flags, _, payload in frames(data) if kind == PING and not flags & ACK]
    return pings[0] if pings else None


def stalled(window: int = 100, size: int = 1_000) -> Http2:
    one = server()
    one.receive(settings_frame((4, window)) + head(1, end=True), 0.0)
    one.take(0.0)
    answer(one, 1, bytes(size))
    one.take(0.0)
    one.take(0.0)
    return one


def test_a_client_that_reads_and_gives_a_stream_no_room_loses_that_stream_alone() -> None:
    one = stalled()
    assert one.answers.due() == 1.25
    assert one.look(1.25) == []
    asked = ping_of(one.take(1.25))
    assert asked is not None
    one.receive(frame(PING, ACK, 0, asked), 1.5)
    assert one.answers.due() == 5.25
    assert one.look(5.2) == []
    assert one.look(5.25) == [Reset(1, CANCEL)]
    assert said(one.take(5.25)) == [("RST 1", CANCEL)]
    assert not one.closed
    assert one.answers.due() == float("inf")


def test_a_question_for_another_stream_gives_a_stream_no_more_time() -> None:
    one = stalled()
    for now in (1.25, 3.5, 4.75):
        if now == 3.5:
            one.receive(head(3, end=True), 2.0)
            answer(one, 3, bytes(1_000))
            one.take(2.0)
        one.look(now)
        one.receive(b"".join(frame(PING, ACK, 0, ping) for ping in [ping_of(one.take(now))] if ping), now)
    assert one.look(5.0) == [Reset(1, CANCEL)]
    assert one.look(7.2) == []
    assert one.look(7.25) == [Reset(3, CANCEL)]


def test_a_window_that_is_shut_behind_the_question_has_a_question_of_its_own() -> None:
    one = stalled()
    one.look(1.25)
    asked = ping_of(one.take(1.25))
    one.receive(head(3, end=True), 1.5)
    answer(one, 3, bytes(1_000))
    one.take(1.5)
    assert asked is not None
    one.receive(frame(PING, ACK, 0, asked), 2.0)
    assert one.look(2.75) == []
    again = ping_of(one.take(2.75))
    assert again not in (None, asked)
    # The answer to the first, once more, says nothing.
    one.receive(frame(PING, ACK, 0, asked), 4.0)
    assert one.look(5.75) == [Reset(1, CANCEL)]
    one.receive(frame(PING, ACK, 0, again or b""), 6.0)
    assert one.look(9.7) == []
    assert one.look(9.75) == [Reset(3, CANCEL)]


def test_a_client_that_gives_room_in_time_loses_nothing() -> None:
    one = stalled()
    for second in range(1, 10):
        now = second * 4.0
        assert one.look(now) == []
        one.receive(b"".join(frame(PING, ACK, 0, ping) for ping in [ping_of(one.take(now))] if ping), now)
        one.receive(update(1, 100), now)
        one.take(now)
    assert one.streams == 0


def test_on_a_slow_link_the_time_begins_when_all_was_read() -> None:
    one = stalled(60_000, 100_000)
    one.look(1.25)
    asked = ping_of(one.take(1.25))
    assert asked is not None
    # What is on its way takes 7 s over the slowest link.
    assert one.look(8.0) == []
    one.receive(frame(PING, ACK, 0, asked), 8.0)
    assert one.answers.due() == 11.75
    one.receive(update(1, 60_000) + update(0, 60_000), 11.0)
    one.take(11.0)
    assert one.streams == 0


def test_a_client_that_does_not_say_what_it_has_read_is_gone_after_what_that_may_take() -> None:
    one = stalled(60_000, 100_000)
    one.look(1.25)
    due = 1.25 + 3.75 + 60_000 / 8_192
    assert one.answers.due() == due
    assert one.look(due - 0.1) == []
    assert isinstance(one.look(due)[-1], Fatal)
    assert one.closed


def test_a_client_that_gives_the_connection_no_room_is_gone() -> None:
    one = stalled(2**30, 100_000)
    assert one.answers.due() == 1.25
    one.look(1.25)
    asked = ping_of(one.take(1.25))
    assert asked is not None
    one.receive(frame(PING, ACK, 0, asked), 2.0)
    assert one.look(5.7) == []
    assert isinstance(one.look(5.75)[-1], Fatal)


def test_a_shut_window_of_the_connection_with_nothing_behind_it_is_no_stall() -> None:
    one = stalled(2**30, 100_000)
    one.receive(rst(1), 1.0)
    assert one.answers.due() == float("inf")
    assert one.look(100.0) == []

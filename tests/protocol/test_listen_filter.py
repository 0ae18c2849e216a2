"""What a listener hears, against a model of it: any filter, any capabilities, any notices, in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp import InvalidParams, Limits, Server, ServerBusy
from trio_mcp.limits import DEFAULT
from trio_mcp.protocol.listening import ListenFilter, agree
from trio_mcp.scopes.notices import Notice, Notices, Subscription
from trio_mcp.testing import open_raw, request

from ..scaled import scaled

UPDATED = "notifications/resources/updated"
KINDS = ["tools", "prompts", "resources"]
# URIs that differ by little: nothing is normalized, and nothing is a pattern or a prefix.
NEAR = ["a:1", "a:1/", "A:1", "a:%31", "a:*", "", "a:é", "a:e\u0301"]
URIS = st.sampled_from(NEAR) | st.text(max_size=3)
FLAG = st.sampled_from([True, True, True, False, None])
FILTERS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        **{f"{kind}ListChanged": FLAG for kind in KINDS},
        "resourceSubscriptions": st.none() | st.lists(URIS, max_size=6),
        "loggingListChanged": st.just(True),
        "ListChanged": st.just(True),
    },
)
CAPABILITIES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        **{kind: st.fixed_dictionaries({}, optional={"listChanged": FLAG}) for kind in KINDS[:2]},
        "resources": st.fixed_dictionaries({}, optional={"listChanged": FLAG, "subscribe": FLAG}),
        "logging": st.just({"listChanged": True, "subscribe": True}),
    },
)
LISTS = [f"notifications/{kind}/list_changed" for kind in KINDS]
POOL: list[Notice] = [*((method, None) for method in LISTS), *((UPDATED, uri) for uri in NEAR)]
NOTICES: st.SearchStrategy[Notice] = st.one_of(
    st.tuples(st.sampled_from(LISTS), st.none()),
    st.tuples(st.just(UPDATED), URIS),
    st.tuples(st.sampled_from(["notifications/message", "notifications/logging/list_changed", ""]), st.none() | URIS),
)


ALL = {kind: {"listChanged": True, "subscribe": True} for kind in KINDS}

# -- the model: every notice that is to be told, and the filter that says so


def wanted(requested: dict[str, Any], capabilities: dict[str, Any]) -> set[Notice]:
    out: set[Notice] = set()
    for kind in KINDS:
        if requested.get(f"{kind}ListChanged") is True and capabilities.get(kind, {}).get("listChanged") is True:
            out.add((f"notifications/{kind}/list_changed", None))
    if capabilities.get("resources", {}).get("subscribe") is True:
        out |= {(UPDATED, uri) for uri in requested.get("resourceSubscriptions") or []}
    return out


def acknowledged(requested: dict[str, Any], told: set[Notice]) -> dict[str, Any]:
    out: dict[str, Any] = {f"{method.split('/')[1]}ListChanged": True for method, uri in told if uri is None}
    uris = [uri for _, uri in told if uri is not None]
    if uris:
        out["resourceSubscriptions"] = sorted(uris, key=requested["resourceSubscriptions"].index)
    return out


@given(FILTERS, CAPABILITIES, st.lists(NOTICES, max_size=20))
def test_a_filter_is_what_the_model_says(
    requested: dict[str, Any], capabilities: dict[str, Any], notices: list[Notice]
) -> None:
    told = wanted(requested, capabilities)
    found = agree(requested, capabilities, DEFAULT)
    assert found.agreed == acknowledged(requested, told)
    assert bool(found) is bool(told)
    for notice in [*notices, *told, *POOL]:
        assert found.wants(*notice) is (notice in told)
    # What was acknowledged asks for itself.
    assert agree(found.agreed, capabilities, DEFAULT).agreed == found.agreed


@given(st.lists(st.text(max_size=5), max_size=6), CAPABILITIES, st.integers(1, 5), st.integers(1, 5))
def test_a_filter_is_bounded_whatever_can_be_told(
    uris: list[str], capabilities: dict[str, Any], most: int, longest: int
) -> None:
    limits = Limits(listened_uris=most, uri_bytes=longest)
    if len(set(uris)) > most or any(len(uri) > longest for uri in uris):
        with pytest.raises(InvalidParams, match="subscriptions/listen"):
            agree({"resourceSubscriptions": uris}, capabilities, limits)
    else:
        assert len(agree({"resourceSubscriptions": uris}, capabilities, limits).uris) <= most


# -- fan-out


class Listener:
    """A subscription, and what the model expects of it: each notice once, where it first came."""

    def __init__(self, told: set[Notice], subscription: Subscription) -> None:
        self.told = told
        self.subscription = subscription
        self.waiting: list[Notice] = []

    def offered(self, notice: Notice) -> None:
        if notice in self.told and notice not in self.waiting:
            self.waiting.append(notice)


STEPS = st.lists(
    st.sampled_from(POOL) | st.sampled_from(POOL[:5]) | st.integers(0, 3) | st.just("leave"), min_size=10, max_size=40
)


@given(st.lists(st.sets(st.sampled_from(POOL), min_size=3), min_size=1, max_size=4), STEPS)
async def test_each_listener_hears_what_the_model_says_whenever_it_reads(
    asked: list[set[Notice]], steps: list[Notice | int | str]
) -> None:
    notices = Notices(len(asked))
    notices.publish(UPDATED, "a:1")
    with notices.open():
        filters = [agree(acknowledged({"resourceSubscriptions": NEAR}, told), ALL, DEFAULT) for told in asked]
        held = [notices.subscribe(each.wants) for each in filters]
        listeners = [Listener(told, one.__enter__()) for told, one in zip(asked, held, strict=True)]
        with pytest.raises(ServerBusy), notices.subscribe(ListenFilter({}).wants):
            raise AssertionError("one too many")
        for step in steps:
            if isinstance(step, tuple):
                notices.publish(*step)
                for listener in listeners:
                    listener.offered(step)
            elif isinstance(step, int):
                listener = listeners[step % len(listeners)]
                if listener.waiting:
                    assert await listener.subscription.next() == listener.waiting
                    listener.waiting = []
            elif len(listeners) > 1:
                listeners.pop()
                held.pop().__exit__(None, None, None)
                assert len(notices) == len(listeners)
        for listener, one in zip(listeners, held, strict=True):
            listener.subscription.end()
            if listener.waiting:
                assert await listener.subscription.next() == listener.waiting
            assert await listener.subscription.next() is None
            one.__exit__(None, None, None)
    assert len(notices) == 0


# -- on the wire


def server_of(kinds: set[str]) -> Server[Any]:
    server = Server("some")
    if "tools" in kinds:
        server.tool(lambda: None, name="t")
    if "prompts" in kinds:
        server.prompt(name="p")(lambda: "")
    if "resources" in kinds:
        server.resource("a:fixed", name="r")(lambda: "")
    return server


WIRE = st.fixed_dictionaries(
    {},
    optional={
        **{f"{kind}ListChanged": st.booleans() for kind in KINDS},
        "resourceSubscriptions": st.lists(URIS, max_size=4),
    },
)
CHANGES = st.sampled_from(KINDS) | st.tuples(URIS)


@settings(max_examples=scaled(40))
@given(WIRE, st.sets(st.sampled_from(KINDS)), st.lists(st.lists(CHANGES, max_size=6), max_size=4))
async def test_the_wire_says_what_the_model_says(
    requested: dict[str, Any], kinds: set[str], bursts: list[list[str | tuple[str]]]
) -> None:
    server = server_of(kinds)
    told = wanted(requested, {kind: ALL[kind] for kind in kinds})
    tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": "s"}}
    async with open_raw(server) as peer:
        await peer.send(request("s", "subscriptions/listen", notifications=requested))
        first = await peer.receive()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"] == {**tag, "notifications": acknowledged(requested, told)}
        if not told:
            assert (await peer.receive())["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "s"
        for burst in bursts:
            expected: dict[Notice, None] = {}
            for change in burst:
                if isinstance(change, tuple):
                    notice: Notice = (UPDATED, change[0])
                    server.notify_resource_updated(change[0])
                else:
                    notice = (f"notifications/{change}/list_changed", None)
                    server._changed(change)
                if notice in told:
                    expected[notice] = None
            for method, uri in expected:
                params = tag if uri is None else {**tag, "uri": uri}
                assert await peer.receive() == {"jsonrpc": "2.0", "method": method, "params": params}
            # And nothing else.
            await peer.send(request("d", "server/discover"))
            assert (await peer.receive())["id"] == "d"

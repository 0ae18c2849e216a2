"""Questions in several rounds, and changes that a client listens to, between other people's clients and servers and ours.

All of it over stdio and over HTTP/1.1, with every message checked against the schema.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

from trio_mcp import MissingClientCapability, open_client

from .serving import Wire, opened
from .wire_log import REVISION, Message, changes, methods, read_log, results

pytestmark = pytest.mark.timeout(300)

FORMS: dict[str, dict[str, Any]] = {
    "Who goes to Rome?": {"name": "Ada", "age": 36},
    "Is that all?": {"sure": True},
}
ROOTS = [{"uri": "file:///home/ada", "name": "home"}]
VERSE = ["assistant", "O Rome!", "poet"]
WHO_ASKED = ["Who goes to Rome?", ["age", "name"]]
SURE_ASKED = ["Is that all?", ["sure"]]
VERSE_ASKED = [[{"role": "user", "content": {"type": "text", "text": "A verse on Rome for Ada."}}], 50]
REALLY_ASKED = ["Really?", ["sure"]]

ANSWERED = {
    "revision": REVISION,
    "plan": {
        "number": 4711,
        "who": ["accept", FORMS["Who goes to Rome?"]],
        "sure": ["accept", FORMS["Is that all?"]],
        "verse": VERSE,
        "roots": ROOTS,
    },
    "declined": [{"type": "text", "text": "decline"}],
    "asked": [WHO_ASKED, SURE_ASKED, VERSE_ASKED, "roots", REALLY_ASKED],
}
HEARD = {
    "revision": REVISION,
    "honored": {"toolsListChanged": True, "resourceSubscriptions": ["note://today"]},
    "changes": [["ResourceUpdated", {"uri": "note://today"}], ["ToolsListChanged", {}]],
    "new": ["shoot"],
    "says": [{"type": "text", "text": "I am shoot"}],
}
CHANGES = [
    ["notifications/subscriptions/acknowledged", None],
    ["notifications/resources/updated", "note://today"],
    ["notifications/tools/list_changed", None],
]


each_transport = pytest.mark.parametrize("over", ["stdio", "http"])
each_client = pytest.mark.parametrize("client", ["mcp_rounds_client.py", "ts_rounds_client.mjs"])
each_server = pytest.mark.parametrize("server", ["mcp_rounds_server.py", "ts_rounds_server.mjs"])


def run(command: list[str]) -> Any:
    """What a client prints."""
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True).stdout)


def marked(marks: Path) -> list[str]:
    """What the server marked, in order."""
    return marks.read_text().split()


def plan_calls(messages: list[Message]) -> list[Any]:
    """The parameters of each request for `plan`, in order."""
    bodies = [message.body for message in messages if message.sender == "client" and not message.closed]
    return [
        body["params"] for body in bodies if body["method"] == "tools/call" and body["params"].get("name") == "plan"
    ]


def retries(messages: list[Message]) -> list[dict[str, Any]]:
    """What each request had that answered a question, in order."""
    bodies = [message.body for message in messages if message.sender == "client" and not message.closed]
    members = ("inputResponses", "requestState")
    found = [{name: body["params"][name] for name in members if name in body.get("params", {})} for body in bodies]
    return [answer for answer in found if answer]


@each_transport
@each_client
def test_their_client_answers_our_server(over: str, client: str, wire: Wire, marks: Path) -> None:
    with wire.target(over, "rounds_server.py") as target:
        assert run([*wire.command(client), "ask", *target]) == ANSWERED
    # One run for each of four questions and one to the end; what stands in `once` ran in the first of them only.
    assert marked(marks) == ["run", "reserve", "run", "run", "run", "run"]
    messages = wire.messages()
    calls = plan_calls(messages)
    assert [len(params.get("inputResponses", {})) for params in calls] == [0, 1, 1, 1, 1]
    states = [result["requestState"] for result in results(messages, "input_required")]
    assert [params.get("requestState") for params in calls] == [None, *states[:4]]
    # Sealed, and so neither as it is nor in Base64. With its quotes: three letters come by chance.
    for state in states:
        assert "4711" not in state
        assert b'"Ada"' not in base64.urlsafe_b64decode(state + "==")


@each_transport
@each_client
def test_their_client_listens_to_our_server(over: str, client: str, wire: Wire, marks: Path) -> None:
    with wire.target(over, "rounds_server.py") as target:
        assert run([*wire.command(client), "listen", *target]) == HEARD
    messages = read_log(wire.log)
    assert "subscriptions/listen" in methods(messages)
    assert changes(messages) == CHANGES
    problems = wire.schema.problems(messages)
    if over == "http" and client.endswith(".mjs"):
        # It closes the response, and says so in a POST of its own, too: on another connection, which the log cannot join.
        assert problems.pop().startswith("client: cancels a request that was never made: ")
    assert problems == []


@each_transport
@each_server
async def test_our_client_answers_their_server(over: str, server: str, wire: Wire, marks: Path) -> None:
    asked: list[Any] = []

    async def elicit(params: dict[str, Any]) -> dict[str, Any] | bool:
        asked.append([params["message"], sorted(params["requestedSchema"]["properties"])])
        return FORMS.get(params["message"], False)

    async def sample(params: dict[str, Any]) -> dict[str, Any]:
        asked.append([params["messages"], params["maxTokens"]])
        return {"role": "assistant", "content": {"type": "text", "text": "O Rome!"}, "model": "poet"}

    def roots() -> list[dict[str, Any]]:
        asked.append("roots")
        return ROOTS

    with wire.target(over, server) as target:
        async with open_client(
            opened(target), eras=["modern"], on_elicit=elicit, on_sample=sample, roots=roots
        ) as client:
            result = (await client.call_tool("plan", {"place": "Rome"}, raise_on_error=True)).structured_content
            declined = (await client.call_tool("ask_once", raise_on_error=True)).text
    assert result == {
        "who": FORMS["Who goes to Rome?"],
        "sure": FORMS["Is that all?"],
        "verse": VERSE,
        "roots": ROOTS,
    }
    assert declined == "decline"
    # The second round has two questions, and they may be answered in any order.
    assert asked[0] == WHO_ASKED
    assert sorted(asked[1:3], key=str) == sorted([SURE_ASKED, VERSE_ASKED], key=str)
    assert asked[3:] == ["roots", REALLY_ASKED]
    assert marked(marks) == ["run"]
    messages = wire.messages()
    calls = plan_calls(messages)
    assert [len(params.get("inputResponses", {})) for params in calls] == [0, 1, 2, 1]
    states = [result.get("requestState") for result in results(messages, "input_required")]
    assert [params.get("requestState") for params in calls] == [None, *states[:3]]


@each_transport
async def test_our_client_is_asked_by_all_that_may_ask(over: str, wire: Wire, marks: Path) -> None:
    asked: list[Any] = []

    def elicit(params: dict[str, Any]) -> dict[str, Any] | bool:
        asked.append([params["mode"], params["message"], params.get("url")])
        return {"name": "Ada"} if params["mode"] == "form" else True

    with wire.target(over, "ts_rounds_server.mjs") as target:
        async with open_client(opened(target), eras=["modern"], on_elicit=elicit) as client:
            resource = (await client.read_resource("note://mine")).to_wire()["contents"]
            prompt = (await client.get_prompt("letter")).to_wire()["messages"]
            visited = (await client.call_tool("visit", raise_on_error=True)).text
            later = (await client.call_tool("later", raise_on_error=True)).text
    assert resource == [{"uri": "note://mine", "text": "The note of Ada"}]
    assert prompt == [{"role": "user", "content": {"type": "text", "text": "Write to Ada"}}]
    assert (visited, later) == ("accept", "now")
    assert asked == [
        ["form", "Whose note?", None],
        ["form", "To whom?", None],
        ["url", "Please pay.", "https://pay.example/1"],
    ]
    messages = wire.messages()
    questions = results(messages, "input_required")
    # With questions there is no state here, and where there is a state there are no questions.
    assert [sorted({*question} & {"inputRequests", "requestState"}) for question in questions] == [
        *[["inputRequests"]] * 3,
        ["requestState"],
    ]
    assert [sorted(members) for members in retries(messages)] == [*[["inputResponses"]] * 3, ["requestState"]]


@each_transport
async def test_our_client_cannot_be_asked(over: str, wire: Wire, marks: Path) -> None:
    with wire.target(over, "ts_rounds_server.mjs") as target:
        async with open_client(opened(target), eras=["modern"], on_sample=lambda params: "O Rome!") as client:
            plan = {"name": "plan", "arguments": {"place": "Rome"}}
            for method, params in (("tools/call", plan), ("prompts/get", {"name": "letter"})):
                with pytest.raises(MissingClientCapability) as caught:
                    await client.request(method, params)
                assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    messages = wire.messages()
    assert results(messages, "input_required") == []


@each_transport
@each_server
async def test_our_client_listens_to_their_server(over: str, server: str, wire: Wire, marks: Path) -> None:
    with wire.target(over, server) as target:
        async with open_client(opened(target), eras=["modern"]) as client:
            before = {tool.name for tool in await client.list_tools()}
            async with client.listen(tools=True, uris=["note://today"]) as listening:
                assert listening.agreed == HEARD["honored"]
                await client.call_tool("touch", {"uri": "note://other"}, raise_on_error=True)
                await client.call_tool("touch", {"uri": "note://today"}, raise_on_error=True)
                with trio.fail_after(20):
                    first = await anext(listening)
                await client.call_tool("grow", {"name": "shoot"}, raise_on_error=True)
                with trio.fail_after(20):
                    second = await anext(listening)
            assert [(first.kind, first.uri), (second.kind, second.uri)] == [
                ("resource", "note://today"),
                ("tools", None),
            ]
            assert {tool.name for tool in await client.list_tools()} - before == {"shoot"}
            assert (await client.call_tool("shoot")).text == "I am shoot"
    messages = wire.messages()
    assert changes(messages) == CHANGES

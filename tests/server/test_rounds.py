"""Rounds of input: a handler asks, the request ends, and goes on with the answer (basic/patterns/mrtr)."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import trio
import trio.lowlevel

from trio_mcp import (
    Context,
    Elicited,
    InputNeeded,
    InputRequired,
    InvalidParams,
    InvalidResponse,
    Limits,
    MissingClientCapability,
    ProtocolError,
    RegistrationError,
    Server,
    form_question,
    open_client,
    open_server,
    roots_question,
    sample_question,
    url_question,
)
from trio_mcp.testing import RawPeer, open_raw, request

FORMS = {"elicitation": {"form": {}}}
META = "io.modelcontextprotocol/clientCapabilities"
KEYS = [b"k" * 32]


async def call(peer: RawPeer, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One tools/call as it is on the wire, from a client that can do everything.

    Raises:
        ProtocolError: the answer is an error.
    """
    capabilities = more.pop(
        "capabilities", {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
    )
    message = request(1, "tools/call", name=name, arguments=arguments or {}, **more)
    message["params"]["_meta"][META] = capabilities
    await peer.send(message)
    answer = await peer.receive()
    if "error" in answer:
        raise ProtocolError.from_wire(answer["error"])
    result: dict[str, Any] = answer["result"]
    return result


def accepted(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@dataclass
class Booking:
    people: int
    where: Literal["inside", "outside"] = "inside"


def restaurant(**options: Any) -> Server[Any]:
    server = Server("restaurant", **options)

    @server.tool
    async def book(day: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"How many on {day}?", Booking)
        if not answer.accepted:
            return answer.action
        again = await ctx.elicit("Sure?", {"sure": bool})
        assert answer.value is not None
        return f"{answer.value.people} {answer.value.where}, {again.value}"

    return server


async def test_a_question_ends_the_request_and_the_retry_goes_on() -> None:
    async with open_raw(restaurant()) as peer:
        first = await call(peer, "book", {"day": "Monday"})
        assert first["resultType"] == "input_required"
        assert first["inputRequests"] == {
            "elicit-1": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "How many on Monday?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {
                            "people": {"type": "integer"},
                            "where": {"type": "string", "enum": ["inside", "outside"], "default": "inside"},
                        },
                        "required": ["people"],
                    },
                },
            }
        }
        answers = {"elicit-1": accepted(people=3)}
        second = await call(peer, "book", {"day": "Monday"}, inputResponses=answers, requestState=first["requestState"])
        assert list(second["inputRequests"]) == ["elicit-2"]
        last = await call(
            peer,
            "book",
            {"day": "Monday"},
            inputResponses={"elicit-2": accepted(sure=True)},
            requestState=second["requestState"],
        )
        # The answer of the first round came with the state.
        assert last["resultType"] == "complete"
        assert last["content"] == [{"type": "text", "text": "3 inside, {'sure': True}"}]


async def test_the_client_answers_by_itself() -> None:
    asked = []

    def elicit(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return (
            {"people": 2, "where": "outside"} if "people" in params["requestedSchema"]["properties"] else {"sure": True}
        )

    async with open_client(restaurant(), on_elicit=elicit) as client:
        result = await client.call_tool("book", {"day": "Monday"})
    assert result.text == "2 outside, {'sure': True}"
    assert asked == ["How many on Monday?", "Sure?"]


@pytest.mark.parametrize(("returned", "action"), [(False, "decline"), (None, "cancel")])
async def test_a_user_may_say_no_or_nothing(returned: Any, action: str) -> None:
    async def elicit(params: dict[str, Any]) -> Any:
        await trio.lowlevel.checkpoint()
        return returned

    async with open_client(restaurant(), on_elicit=elicit) as client:
        assert (await client.call_tool("book", {"day": "Monday"})).text == action


@pytest.mark.parametrize(
    "answer",
    [
        accepted(people="three"),
        accepted(people=3, where="on the roof"),
        accepted(),
        {"action": "accept"},
        {"action": "maybe"},
        {"content": {"people": 3}},
        "yes",
        None,
        [],
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_for_again(answer: Any) -> None:
    async with open_raw(restaurant()) as peer:
        first = await call(peer, "book", {"day": "Monday"})
        try:
            again = await call(
                peer,
                "book",
                {"day": "Monday"},
                inputResponses={"elicit-1": answer},
                requestState=first["requestState"],
            )
        except InvalidParams as exc:
            assert "inputResponses" in exc.message
        else:
            assert again["resultType"] == "input_required"
            assert again["inputRequests"] == first["inputRequests"]


MODEL = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}


@pytest.mark.parametrize("missing", [None, *MODEL])
async def test_an_answer_of_a_model_is_whole_or_asked_for_again(missing: str | None) -> None:
    server = Server("s")

    @server.tool
    async def sample(ctx: Context) -> str:
        answer = await ctx.sample("Say hi")
        return f"{answer['model']} {answer['role']}: {answer['content']['text']}"

    answer = {key: value for key, value in MODEL.items() if key != missing}
    async with open_raw(server) as peer:
        first = await call(peer, "sample")
        again = await call(peer, "sample", inputResponses={"sample-1": answer}, requestState=first["requestState"])
        assert again["resultType"] == ("complete" if missing is None else "input_required")


async def test_answers_to_what_nobody_asked_are_ignored() -> None:
    async with open_raw(restaurant()) as peer:
        first = await call(peer, "book", {"day": "Monday"}, inputResponses={"other": accepted(people=1)})
        assert list(first["inputRequests"]) == ["elicit-1"]


async def test_a_handler_that_only_looks_at_the_answers_is_not_run_with_a_foreign_state() -> None:
    ran = []
    server = Server("s")

    @server.tool
    async def ask(n: int, ctx: Context) -> str:
        ran.append(n)
        return str((await ctx.elicit("?", {"x": int})).value)

    async with open_raw(server) as peer:
        first = await call(peer, "ask", {"n": 1})
        state = first["requestState"]
        for arguments, changed in (
            ({"n": 2}, state),
            ({"n": 1}, state[:-2] + ("AA" if state[-2:] != "AA" else "BB")),
            ({"n": 1}, "x"),
            ({"n": 1}, ""),
        ):
            with pytest.raises(InvalidParams, match="requestState"):
                await call(peer, "ask", arguments, inputResponses={"elicit-1": accepted(x=1)}, requestState=changed)
        assert ran == [1]
        done = await call(peer, "ask", {"n": 1}, inputResponses={"elicit-1": accepted(x=1)}, requestState=state)
        assert done["content"][0]["text"] == "{'x': 1}"


async def test_any_replica_with_the_same_keys_serves_the_next_round() -> None:
    answers = {"elicit-1": accepted(people=1)}
    async with open_raw(restaurant(state_keys=KEYS)) as one, open_raw(restaurant(state_keys=KEYS)) as two:
        first = await call(one, "book", {"day": "Monday"})
        second = await call(two, "book", {"day": "Monday"}, inputResponses=answers, requestState=first["requestState"])
        assert list(second["inputRequests"]) == ["elicit-2"]
    async with open_raw(restaurant()) as stranger:
        with pytest.raises(InvalidParams, match="not of this request, caller and server"):
            await call(stranger, "book", {"day": "Monday"}, inputResponses=answers, requestState=first["requestState"])


async def test_the_first_key_seals_and_all_of_them_open() -> None:
    old, new = b"o" * 32, b"n" * 32
    answers = {"elicit-1": accepted(people=1)}
    async with (
        open_raw(restaurant(state_keys=[old])) as before,
        open_raw(restaurant(state_keys=[new, old])) as between,
        open_raw(restaurant(state_keys=[new])) as after,
    ):
        for one, two in ((before, between), (between, after)):
            state = (await call(one, "book", {"day": "Monday"}))["requestState"]
            second = await call(two, "book", {"day": "Monday"}, inputResponses=answers, requestState=state)
            assert list(second["inputRequests"]) == ["elicit-2"]


async def test_an_old_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr("trio_mcp.server.ask.rounds.time.time", lambda: now[0])
    async with open_raw(restaurant()) as peer:
        first = await call(peer, "book", {"day": "Monday"})
        now[0] += 601
        with pytest.raises(InvalidParams, match="expired"):
            await call(peer, "book", {"day": "Monday"}, inputResponses={}, requestState=first["requestState"])


def test_keys_are_checked_when_the_server_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for keys in ([], [b"short"], ["k" * 32]):
        with pytest.raises(RegistrationError, match="state_keys: expected one or more keys of 32 bytes"):
            Server("s", state_keys=keys)  # type: ignore[arg-type]
    monkeypatch.setenv("TRIO_MCP_STATE_KEYS", ", ".join(base64.b64encode(key * 32).decode() for key in (b"a", b"b")))
    assert Server("s").state_keys == [b"a" * 32, b"b" * 32]
    monkeypatch.setenv("TRIO_MCP_STATE_KEYS", "not base64!")
    with pytest.raises(RegistrationError, match="TRIO_MCP_STATE_KEYS: expected 32 bytes in Base64"):
        Server("s")


# -- capabilities


@pytest.mark.parametrize(
    ("kind", "capabilities", "required"),
    [
        ("form", {}, {"elicitation": {"form": {}}}),
        ("form", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("sample", {"elicitation": {}}, {"sampling": {}}),
        ("sample-tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("roots", {"sampling": {}}, {"roots": {}}),
    ],
)
async def test_a_client_is_asked_only_for_what_it_declared(
    kind: str, capabilities: dict[str, Any], required: dict[str, Any]
) -> None:
    server = Server("s")

    @server.tool
    async def ask(kind: str, ctx: Context) -> None:
        if kind == "form":
            await ctx.elicit("?", {"x": int})
        elif kind == "url":
            await ctx.elicit_url("?", "https://example.com")
        elif kind == "roots":
            await ctx.list_roots()
        elif kind == "sample":
            await ctx.sample("?")
        else:
            await ctx.sample("?", tools=[])

    async with open_raw(server) as peer:
        with pytest.raises(MissingClientCapability) as caught:
            await call(peer, "ask", {"kind": kind}, capabilities=capabilities)
        assert caught.value.code == -32021
        assert caught.value.data == {"requiredCapabilities": required}
        assert (await call(peer, "ask", {"kind": kind}))["resultType"] == "input_required"


async def test_an_empty_elicitation_capability_means_forms() -> None:
    async with open_raw(restaurant()) as peer:
        first = await call(peer, "book", {"day": "Monday"}, capabilities={"elicitation": {}})
        assert first["resultType"] == "input_required"


async def test_what_a_client_can_answer_is_what_it_declares() -> None:
    server = Server("s")

    @server.tool
    async def declared(ctx: Context) -> dict[str, Any]:
        return ctx.client_capabilities

    tasks = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with open_client(server) as client:
        assert (await client.call_tool("declared")).data == tasks
    async with open_client(server, on_elicit=lambda params: None, on_sample=lambda params: "", roots=[]) as client:
        assert (await client.call_tool("declared")).data == {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {"tools": {}},
            "roots": {},
            **tasks,
        }


# -- the other questions


async def test_different_questions_in_one_round() -> None:
    server = Server("s")
    rounds: list[None] = []

    @server.tool
    async def everything(ctx: Context) -> list[Any]:
        rounds.append(None)
        answers = await ctx.ask(
            {
                "form": form_question("Who?", {"name": str}),
                "url": url_question("Pay here", "https://example.com/pay"),
                "model": sample_question("Say hi", max_tokens=5, systemPrompt="Be brief"),
                "roots": roots_question(),
            }
        )
        return [answers["form"].value, answers["url"].action, answers["model"]["content"]["text"], answers["roots"]]

    def elicit(params: dict[str, Any]) -> Any:
        return {"name": "Ann"} if params["mode"] == "form" else True

    async with open_client(server, on_elicit=elicit, on_sample=lambda params: "hi", roots=["file:///a"]) as client:
        answer = (await client.call_tool("everything")).data
    assert answer == [{"name": "Ann"}, "accept", "hi", [{"uri": "file:///a"}]]
    assert len(rounds) == 2


async def test_sampling_roots_and_urls() -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.tool
    async def everything(ctx: Context) -> list[Any]:
        sampled = await ctx.sample("Say hi", max_tokens=5, systemPrompt="Be brief")
        roots = await ctx.list_roots()
        visited = await ctx.elicit_url("Pay here", "https://example.com/pay")
        return [sampled["content"]["text"], roots, visited.accepted, visited.value]

    def sample(params: dict[str, Any]) -> str:
        seen.append(params)
        return "hi"

    def elicit(params: dict[str, Any]) -> bool:
        seen.append(params)
        return True

    roots = ["file:///home/ada", {"uri": "file:///srv", "name": "srv"}]
    async with open_client(server, on_elicit=elicit, on_sample=sample, roots=lambda: roots) as client:
        result = await client.call_tool("everything")
    assert result.data == ["hi", [{"uri": "file:///home/ada"}, {"uri": "file:///srv", "name": "srv"}], True, None]
    assert seen == [
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Say hi"}}],
            "maxTokens": 5,
            "systemPrompt": "Be brief",
        },
        {"mode": "url", "message": "Pay here", "url": "https://example.com/pay"},
    ]


async def test_several_questions_go_in_one_round_and_only_the_missing_ones_again() -> None:
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> list[Any]:
        answers = await ctx.ask(
            {"name": form_question("Name?", {"name": str}), "age": form_question("Age?", {"age": int})}
        )
        return [answers["name"].value, answers["age"].action]

    async with open_raw(server) as peer:
        first = await call(peer, "both")
        assert list(first["inputRequests"]) == ["name", "age"]
        second = await call(
            peer, "both", inputResponses={"name": accepted(name="Ada")}, requestState=first["requestState"]
        )
        assert list(second["inputRequests"]) == ["age"]
        # An answer counts as soon as it is there, also when its round asked for more.
        answers = {"age": {"action": "decline"}}
        last = await call(peer, "both", inputResponses=answers, requestState=second["requestState"])
        assert last["structuredContent"] == [{"name": "Ada"}, "decline"]
        # What was recorded wins over what is sent again: the handler may have acted on it.
        answers["name"] = accepted(name="Grace")
        last = await call(peer, "both", inputResponses=answers, requestState=second["requestState"])
        assert last["structuredContent"] == [{"name": "Ada"}, "decline"]


async def test_prompts_and_resources_ask_too() -> None:
    server = Server("s")

    @server.prompt
    async def greet(ctx: Context) -> str:
        answer: Elicited[Any] = await ctx.elicit("Name?", {"name": str})
        return f"Hello {answer.value['name'] if answer.value else '?'}"

    @server.resource("x://a")
    async def secret(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"name": str})
        return answer.action

    async with open_client(server, on_elicit=lambda params: {"name": "Ada"}) as client:
        prompt = await client.get_prompt("greet")
        assert prompt.messages[0].content.text == "Hello Ada"  # type: ignore[union-attr]
        assert (await client.read_resource("x://a")).text == "accept"


async def test_a_plain_def_asks_through_its_thread() -> None:
    server = Server("s")

    @server.tool
    def ask(ctx: Context) -> str:
        answer = trio.from_thread.run(functools.partial(ctx.elicit, "Name?", {"name": str}))
        return str(answer.value["name"])

    async with open_client(server, on_elicit=lambda params: {"name": "Ada"}) as client:
        assert (await client.call_tool("ask")).text == "Ada"


async def test_a_question_is_asked_through_a_nursery_and_an_except_of_the_handlers() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                answer = await ctx.elicit("Name?", {"name": str})
                nursery.cancel_scope.cancel()
        except Exception:
            return "swallowed"
        return str(answer.value)

    async with open_client(server, on_elicit=lambda params: {"name": "Ada"}) as client:
        assert (await client.call_tool("ask")).text == "{'name': 'Ada'}"


async def test_named_questions_may_be_skipped() -> None:
    server = Server("s")
    loud = [True]

    @server.tool
    async def ask(ctx: Context) -> str:
        if loud[0]:
            loud[0] = False
            await ctx.elicit("First?", {"x": int}, key="first")
        return str((await ctx.elicit("Second?", {"y": int}, key="second")).value)

    def elicit(params: dict[str, Any]) -> dict[str, Any]:
        return {next(iter(params["requestedSchema"]["properties"])): 1}

    async with open_client(server, on_elicit=elicit) as client:
        assert (await client.call_tool("ask")).text == "{'y': 1}"


# -- once


async def test_once_runs_once_over_all_rounds() -> None:
    server = Server("s")
    ran: list[str] = []

    @server.tool
    async def order(ctx: Context) -> list[Any]:
        async def reserve() -> int:
            await trio.lowlevel.checkpoint()
            ran.append("reserve")
            return 4711

        number = await ctx.once("reserve", reserve)
        await ctx.elicit("Buy?", {"sure": bool})
        await ctx.elicit("Really?", {"sure": bool})
        return [number, await ctx.once("reserve", reserve)]

    async with open_client(server, on_elicit=lambda params: {"sure": True}) as client:
        assert (await client.call_tool("order")).data == [4711, 4711]
        assert ran == ["reserve"]
        await client.call_tool("order")
        assert ran == ["reserve"] * 2


async def test_a_value_of_once_is_json() -> None:
    server = Server("s", expose_errors=True)

    @server.tool
    async def bad(ctx: Context) -> None:
        async def make() -> object:
            return object()

        await ctx.once("thing", make)

    async with open_client(server) as client:
        result = await client.call_tool("bad")
    assert result.is_error
    assert "ctx.once('thing'): the value is kept as JSON" in result.text


# -- by hand


async def test_input_required_by_hand() -> None:
    server = Server("s")
    request = {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        },
    }

    @server.tool
    async def greet(ctx: Context) -> str | InputRequired:
        answer = ctx.input_responses.get("user_name")
        if answer is None:
            return InputRequired({"user_name": request}, state={"step": 1})
        return f"Hello {answer['content']['name']}, {ctx.request_state}"

    @server.tool
    async def wait(ctx: Context) -> str | InputRequired:
        return InputRequired({}, state=1) if ctx.request_state is None else "done"

    async with open_client(server, on_elicit=lambda params: {"name": "Ada"}) as client:
        assert (await client.call_tool("greet")).text == "Hello Ada, {'step': 1}"
        assert (await client.call_tool("wait")).text == "done"
    async with open_raw(server) as peer:
        first = await call(peer, "greet")
        assert first["inputRequests"] == {"user_name": request}
        # Without the state it is a first round that happens to bring answers.
        result = await call(peer, "greet", inputResponses={"user_name": accepted(name="Bo")})
        assert result["content"][0]["text"] == "Hello Bo, None"
        with pytest.raises(MissingClientCapability):
            await call(peer, "greet", capabilities={})


def test_input_required_wants_something() -> None:
    with pytest.raises(ValueError, match="InputRequired needs requests or a state"):
        InputRequired({})


@pytest.mark.parametrize("request_", [{"method": "tools/list"}, {"method": "ping"}])
async def test_a_request_that_a_server_may_not_make_is_an_error_of_the_tool(request_: dict[str, Any]) -> None:
    server = Server("s", expose_errors=True)

    @server.tool
    async def bad() -> InputRequired:
        return InputRequired({"x": request_})

    async with open_client(server) as client:
        result = await client.call_tool("bad")
    assert result.is_error
    assert "none that a server may ask with" in result.text


# -- forms


@pytest.mark.parametrize(
    "form",
    [
        {"x": list[dict[str, int]]},
        {"x": dict[str, int]},
        {"x": Booking},
        {"x": tuple[int, str]},
        {"x": int | str},
        {"x": Any},
        {"x": complex},
        int,
        "text",
    ],
)
async def test_a_form_that_forms_cannot_have_is_an_error_of_the_tool(form: Any) -> None:
    server = Server("s", expose_errors=True)

    @server.tool
    async def bad(ctx: Context) -> None:
        await ctx.elicit("?", form)

    async with open_client(server, on_elicit=lambda params: {}) as client:
        result = await client.call_tool("bad")
    assert result.is_error
    assert "form: " in result.text


# -- the client


async def test_a_client_without_a_callback_says_what_it_was_asked() -> None:
    server = Server("s")
    questions = {"name": {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {}}}}

    @server.tool
    async def pushy(ctx: Context) -> InputRequired:
        # Only a server that does not look at the capabilities would do this.
        ctx.client_capabilities.update(FORMS)
        return InputRequired(questions, state=1)

    async with open_client(server) as client:
        with pytest.raises(InputNeeded) as caught:
            await client.call_tool("pushy")
        assert "name: elicitation/create" in str(caught.value)
        assert caught.value.requests == questions
        assert caught.value.state


async def test_a_server_cannot_ask_for_ever() -> None:
    server = Server("s")
    asked: list[int] = []

    @server.tool
    async def nag(ctx: Context) -> InputRequired:
        asked.append(1)
        return InputRequired({}, state=(ctx.request_state or 0) + 1)

    async with open_client(server) as client:
        with pytest.raises(InvalidResponse, match="asked for input more than 16 times"):
            await client.call_tool("nag")
    assert len(asked) == 16 + 1


async def test_a_callback_that_raises_ends_the_call() -> None:
    class No(Exception):
        pass

    def elicit(params: dict[str, Any]) -> None:
        raise No

    async with open_client(restaurant(), on_elicit=elicit) as client:
        with pytest.raises(No):
            await client.call_tool("book", {"day": "Monday"})


async def test_while_the_user_thinks_nothing_runs_on_the_server(autojump_clock: trio.testing.MockClock) -> None:
    server = restaurant(limits=Limits(running=1, waiting=1))

    async def think(params: dict[str, Any]) -> None:
        await trio.sleep_forever()

    async with (
        open_server(server) as running,
        open_client(running, on_elicit=think) as patient,
        open_client(running) as other,
        trio.open_nursery() as nursery,
    ):
        for _ in range(5):
            nursery.start_soon(patient.call_tool, "book", {"day": "Monday"})
            await trio.sleep(10)
        assert await other.list_tools()
        nursery.cancel_scope.cancel()


# -- an answer counts for the question that was asked


async def test_another_question_is_asked_although_its_key_has_an_answer() -> None:
    server = Server("s")
    files = [1]

    @server.tool
    async def delete(ctx: Context) -> str:
        answer = await ctx.elicit(f"Delete {files[0]} file(s)?", {"sure": bool})
        return f"deleted {files[0]}" if answer.accepted else "nothing"

    async with open_raw(server) as peer:
        first = await call(peer, "delete")
        files[0] = 3000
        yes = {"elicit-1": accepted(sure=True)}
        second = await call(peer, "delete", inputResponses=yes, requestState=first["requestState"])
        # The key was another question's, so this one has a key of its own.
        [(key, asked)] = second["inputRequests"].items()
        assert asked["params"]["message"] == "Delete 3000 file(s)?"
        assert key != "elicit-1"
        third = await call(peer, "delete", inputResponses=yes, requestState=second["requestState"])
        assert third["resultType"] == "input_required"
        last = await call(
            peer, "delete", inputResponses={key: accepted(sure=True)}, requestState=second["requestState"]
        )
        assert last["content"][0]["text"] == "deleted 3000"


async def test_an_answer_without_the_state_of_its_question_counts_for_nothing() -> None:
    async with open_raw(restaurant()) as peer:
        found = await call(peer, "book", {"day": "Monday"}, inputResponses={"elicit-1": accepted(people=3)})
        assert list(found["inputRequests"]) == ["elicit-1"]


async def test_a_named_question_may_be_answered_before_it_is_asked() -> None:
    server = Server("s")

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"Hello {(await ctx.elicit('Name?', {'name': str}, key='name')).value}"

    async with open_raw(server) as peer:
        done = await call(peer, "greet", inputResponses={"name": accepted(name="Ada"), "other": accepted()})
        assert done["content"][0]["text"] == "Hello {'name': 'Ada'}"
        # But not once something was asked: then the answers are those to what was asked.
        assert (await call(peer, "greet", inputResponses={"name": accepted()}))["resultType"] == "input_required"


async def test_two_questions_under_one_key_and_a_key_like_a_number() -> None:
    server = Server("s")

    @server.tool
    async def names(ctx: Context) -> list[Any]:
        one = await ctx.elicit("First name?", {"text": str}, key="name")
        two = await ctx.elicit("Last name?", {"text": str}, key="name")
        three = await ctx.elicit("Town?", {"text": str}, key="elicit-1")
        four = await ctx.elicit("Street?", {"text": str})
        again = await ctx.elicit("First name?", {"text": str}, key="name")
        return [answer.value["text"] for answer in (one, two, three, four, again) if answer.value]

    replies = {"First name?": "Ada", "Last name?": "Lovelace", "Town?": "London", "Street?": "St James's"}
    async with open_client(server, on_elicit=lambda params: {"text": replies[params["message"]]}) as client:
        assert (await client.call_tool("names")).data == ["Ada", "Lovelace", "London", "St James's", "Ada"]


@pytest.mark.parametrize("tidy", [False, True])
async def test_questions_that_are_asked_at_once_go_out_in_one_round(tidy: bool) -> None:
    server = Server("s")

    @server.tool
    async def trip(ctx: Context) -> dict[str, Any]:
        said: dict[str, Any] = {}

        async def ask(text: str) -> None:
            try:
                said[text] = (await ctx.elicit(text, {"x": str})).value["x"]  # type: ignore[index]
            finally:
                if tidy:
                    with trio.CancelScope(shield=True):
                        await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            # trio starts them in any order.
            for text in ("Name?", "City?", "Day?"):
                nursery.start_soon(ask, text)
        return said

    rounds = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        rounds.append(params["message"])
        return {"x": f"answer to {params['message']}"}

    async with open_raw(server) as peer:
        first = await call(peer, "trip")
        assert {item["params"]["message"] for item in first["inputRequests"].values()} == {"Name?", "City?", "Day?"}
    for _ in range(5):
        rounds.clear()
        async with open_client(server, on_elicit=answer) as client:
            said = (await client.call_tool("trip")).data
        assert said == {text: f"answer to {text}" for text in ("Name?", "City?", "Day?")}
        assert sorted(rounds) == ["City?", "Day?", "Name?"]


async def test_a_question_that_was_given_up_is_not_sent() -> None:
    server = Server("s")

    @server.tool
    async def hurry(ctx: Context) -> str:
        # Given up between the question and the end of the round: trio runs the two in any order, so several times.
        for number in range(10):
            scope = trio.CancelScope()

            async def old(scope: trio.CancelScope, number: int) -> None:
                with scope:
                    await ctx.elicit(f"Old {number}?", {"x": str})

            async with trio.open_nursery() as nursery:
                nursery.start_soon(old, scope, number)
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
                scope.cancel()
        return str((await ctx.elicit("New?", {"x": str})).value)

    async with open_raw(server) as peer:
        first = await call(peer, "hurry")
        assert [item["params"]["message"] for item in first["inputRequests"].values()] == ["New?"]


async def test_a_form_without_required_fields_may_be_accepted_without_a_word() -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> Any:
        return (
            await ctx.elicit("Anything else?", {"type": "object", "properties": {"note": {"type": "string"}}})
        ).value

    async with open_raw(server) as peer:
        first = await call(peer, "ask")
        answer = {"elicit-1": {"action": "accept"}}
        done = await call(peer, "ask", inputResponses=answer, requestState=first["requestState"])
        assert done["structuredContent"] == {}


@pytest.mark.parametrize("url", ["javascript:alert(1)", "ftp://a/b", "https://", "example.com", "https://a b"])
def test_a_page_to_visit_is_one_of_the_web(url: str) -> None:
    with pytest.raises(ValueError, match="a URL that begins with https:// or http://, not"):
        url_question("Visit", url)


async def test_what_has_to_travel_is_bounded() -> None:
    server = Server("s", limits=Limits(state_bytes=10_000), expose_errors=True)

    @server.tool
    async def ask(ctx: Context) -> None:
        async def large() -> str:
            return "x" * 20_000

        await ctx.once("large", large)
        await ctx.elicit("?", {"x": int})

    async with open_raw(server) as peer:
        result = await call(peer, "ask")
        assert "limits.state_bytes is 10,000. Keep less in ctx.once" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("more", "missing"), [({"tools": []}, "sampling.tools"), ({"includeContext": "allServers"}, "sampling.context")]
)
async def test_low_level_questions_need_what_was_declared_too(more: dict[str, Any], missing: str) -> None:
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> InputRequired:
        return InputRequired(
            {"s": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1, **more}}}
        )

    async with open_raw(server) as peer:
        with pytest.raises(MissingClientCapability, match=missing):
            await call(peer, "ask", capabilities={"sampling": {}})

"""The server that the official conformance suite asks about: it has the tools, resources and prompts that it names.

python tests/conformance/everything_server.py --port 8000         port 0 takes a free one
python tests/conformance/everything_server.py --stdio

Prints the URL of the endpoint once it listens; SIGINT and SIGTERM end it. Besides those of the suite there are tools for other
people's clients: `test_slow`, `test_cancelled_count`, `test_list_roots`, `test_update_resource`.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import wave
from collections.abc import Sequence
from typing import Annotated, Any

import trio

from trio_mcp import (
    Audio,
    Context,
    Elicited,
    EmbeddedResource,
    Header,
    HttpServer,
    Image,
    InputRequired,
    InternalError,
    MissingClientCapability,
    PromptMessage,
    Question,
    ResourceContents,
    Server,
    Text,
    ToolError,
    form_question,
)
from trio_mcp.serve import run_http, run_stdio

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)


def silence() -> bytes:
    """A WAV file of ten samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 1, 8000, 0, "NONE", ""))
        sound.writeframes(b"\x80" * 10)
    return file.getvalue()


server = Server(
    "everything",
    version="1.0",
    title="Everything",
    instructions="Each tool shows one thing; its description says which.",
)


# -- tasks

NameForm = {"name": str}


@server.tool
async def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


@server.tool(task_support="optional")
async def slow_compute(seconds: float = 2, label: str = "") -> str:
    """Compute for some seconds; a task when it takes long."""
    await trio.sleep(seconds)
    return f"Computed {label or 'something'} in {seconds:g} s."


@server.tool(task_support="required")
async def failing_job() -> str:
    """Fail after a second, in a way that the model may read."""
    await trio.sleep(1)
    raise ToolError("the job did not work out")


@server.tool(task_support="required")
async def protocol_error_job() -> str:
    """Fail after a while with an error of the protocol."""
    await trio.sleep(0.3)
    raise InternalError("the job went wrong")


@server.tool(task_support="required", task_inline_ms=0)
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before a file is deleted, as a task from the start."""
    answer = await ctx.elicit(f"Delete {filename}?", {"confirm": bool})
    sure = answer.value is not None and answer.value["confirm"]
    return f"{filename} is {'deleted' if sure else 'kept'}."


@server.tool(task_support="required", task_inline_ms=0)
async def multi_input(ctx: Context) -> str:
    """Ask two things at once."""
    answers = await ctx.ask(
        {"name": form_question("Who?", {"name": str}), "confirm": form_question("Sure?", {"confirm": bool})}
    )
    return f"{answers['name'].value}, {answers['confirm'].value}"


@server.tool(task_support="required")
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name in line, then become a task."""
    answer = await ctx.elicit("What is your name?", NameForm, key="user_name")
    await trio.sleep(0.5)
    return f"Hello, {answer.value['name'] if answer.value else 'stranger'}!"


# -- tools


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools."""
    server.tool(silence, name="test_passing")
    server.remove_tool("test_passing")
    return "The list has changed."


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts."""
    server.prompt(name="test_passing")(lambda: "Gone.")
    server.remove_prompt("test_passing")
    return "The list has changed."


@server.tool
async def test_custom_header(region: Annotated[str, Header("Region")]) -> str:
    """Take an argument that travels in a header, too."""
    return region


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(**contact: Any) -> str:
    """Tool with JSON Schema 2020-12 features."""
    return f"{len(contact)} arguments"


@server.tool
async def test_simple_text() -> str:
    """Answer with one text."""
    return "One simple text."


@server.tool
async def test_image_content() -> Image:
    """Answer with a picture of one pixel."""
    return Image(PIXEL, "image/png")


@server.tool
async def test_audio_content() -> Audio:
    """Answer with a moment of silence."""
    return Audio(silence(), "audio/wav")


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource that is sent along."""
    return EmbeddedResource(ResourceContents("Sent along.", "test://embedded-resource", "text/plain"))


@server.tool
async def test_multiple_content_types() -> Sequence[Text | Image | EmbeddedResource]:
    """Answer with a text, a picture and a resource."""
    resource = ResourceContents('{"mixed":true}', "test://mixed-content-resource", "application/json")
    return [Text("Three kinds of content:"), Image(PIXEL, "image/png"), EmbeddedResource(resource)]


@server.tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool fails, as it is meant to.")


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for step in (0, 50, 100):
        await ctx.report_progress(step, total=100, message=f"{step} of 100")
        await trio.sleep(0.05)
    return "Three reports."


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Write three log lines, with a pause between them."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.log("info", line, logger="everything")
        await trio.sleep(0.05)
    return "Three lines."


@server.tool
async def test_reconnection(ctx: Context) -> str:
    """Close the stream of the answer, and answer after a while, when the client has come back."""
    await ctx.close_stream()
    await trio.sleep(0.3)
    return "Answered after all."


cancelled: list[str] = []
"""The labels of the slow calls that were cancelled."""


@server.tool(task_support="optional")
async def test_slow(ctx: Context, seconds: float = 1, label: str = "") -> str:
    """Work for some seconds, and report progress ten times a second: 1, 2, 3 and so on."""
    end, step = trio.current_time() + seconds, 0
    try:
        while trio.current_time() < end:
            step += 1
            await ctx.report_progress(step, message=f"at {step}")
            await trio.sleep(0.1)
    except trio.Cancelled:
        cancelled.append(label)
        raise
    return f"slow {label} done"


@server.tool
async def test_cancelled_count() -> str:
    """How many slow calls were cancelled since the server began."""
    return str(len(cancelled))


@server.tool
async def test_update_resource(uri: str) -> str:
    """Tell those who listen that a resource has changed."""
    server.notify_resource_updated(uri)
    return "Told."


@server.tool
async def test_logging_tool(ctx: Context) -> str:
    """Write a log line of each weight; the client gets those that it asked for."""
    for level in ("debug", "info", "warning", "error"):
        await ctx.log(level, f"a line of level {level}", logger="everything")
    return "Four lines."


@server.tool
async def test_missing_capability(ctx: Context) -> str:
    """Need sampling; a client that did not declare it is refused."""
    if "sampling" not in ctx.client_capabilities:
        raise MissingClientCapability("This tool needs sampling", {"requiredCapabilities": {"sampling": {}}})
    return "The client can sample."


# -- tools that ask


def greeting(answer: Elicited[Any]) -> str:
    """What to say to a user who was asked for a name."""
    return f"Hello, {answer.value['name']}!" if answer.value else f"The user said {answer.action}."


def outcome(said: str, answer: Elicited[Any]) -> str:
    """What the user did, as the suite wants to read it."""
    return f"{said}: action={answer.action}, content={json.dumps(answer.value or {})}"


@server.tool
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user something."""
    # Nothing is required: each suite fills in other fields, and an answer that does not fit would be asked for again.
    fields = ("response", "username", "email")
    form = {"type": "object", "properties": {name: {"type": "string", "title": name.title()} for name in fields}}
    return outcome("User response", await ctx.elicit(message, form))


@server.tool
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user with a form whose fields are filled in already."""
    form = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    }
    return outcome("Elicitation completed", await ctx.elicit("Please review the values", form))


@server.tool
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user with a form that has choices of each kind."""
    choices = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{name} choice"} for n, name in enumerate(("First", "Second", "Third"), 1)
    ]
    form = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": choices},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": choices}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }
    return outcome("Elicitation completed", await ctx.elicit("Please choose", form))


@server.tool
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model what it is told to ask."""
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer['content']['text']}"


@server.tool
async def test_list_roots(ctx: Context) -> str:
    """The URIs of the client's roots."""
    return f"Roots: {' '.join(root['uri'] for root in await ctx.list_roots())}"


@server.tool
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask the user for a name."""
    return greeting(await ctx.elicit("What is your name?", {"name": str}, key="user_name"))


@server.tool
async def test_streaming_elicitation(ctx: Context) -> str:
    """Say something on the way, then ask the user: the question ends the request, it is none of its own."""
    await ctx.report_progress(1, total=2, message="thinking")
    return greeting(await ctx.elicit("What is your name?", {"name": str}, key="user_name"))


@server.tool
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return str(answer["content"]["text"])


@server.tool
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask the client for its roots."""
    roots = await ctx.list_roots(key="client_roots")
    return f"The roots are {', '.join(root['uri'] for root in roots)}."


@server.tool
async def test_input_required_result_request_state(ctx: Context) -> str | InputRequired:
    """Ask by hand, and look at the state that comes back."""
    answer = ctx.input_responses.get("confirm")
    if ctx.request_state != "asked" or answer is None:
        confirm = form_question("Please confirm", {"ok": bool})
        return InputRequired({"confirm": confirm.to_wire()}, state="asked")
    return f"state-ok, and the user said {answer['action']}."


@server.tool
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the client's model and the client at once."""
    prompt = PromptMessage(Text("Generate a greeting"))
    answers = await ctx.ask(
        {
            "user_name": form_question("What is your name?", {"name": str}),
            "greeting": Question(
                "sampling/createMessage", {"messages": [prompt.to_wire()], "maxTokens": 50}, {"sampling": {}}
            ),
            "client_roots": Question("roots/list", {}, {"roots": {}}),
        }
    )
    said, roots = answers["greeting"]["content"]["text"], answers["client_roots"]
    return f"{greeting(answers['user_name'])} {said} There are {len(roots)} roots."


@server.tool
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask the user twice, one after the other."""
    name = await ctx.elicit("Step 1: What is your name?", {"name": str}, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", {"color": str}, key="step2")
    return f"{greeting(name)} {color.value['color'] if color.value else 'No color'} it is."


@server.tool
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask the user to confirm; a state that was changed on the way is refused."""
    answer = await ctx.elicit("Please confirm", {"ok": bool}, key="confirm")
    return f"The user said {answer.action}."


@server.tool
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask the client whatever it can answer, and nothing else."""
    said = []
    if "sampling" in ctx.client_capabilities:
        answer = await ctx.sample("Generate a greeting", max_tokens=50, key="greeting")
        said.append(str(answer["content"]["text"]))
    if "elicitation" in ctx.client_capabilities:
        said.append(greeting(await ctx.elicit("What is your name?", {"name": str}, key="user_name")))
    return " ".join(said) or "The client can answer nothing."


# -- resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "A static text."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("test://watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text for those who want to hear of its changes."""
    return "A text that is watched."


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> dict[str, str]:
    """Data of any id."""
    return {"id": id, "data": f"data of {id}"}


# -- prompts


@server.prompt
def test_simple_prompt() -> str:
    """One text."""
    return "A simple prompt."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """One text with two arguments in it.

    Args:
        arg1: The first.
        arg2: The second.
    """
    return f"The first is {arg1!r}, the second {arg2!r}."


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    """Some cities."""
    return [city for city in ("paris", "parma", "rome") if city.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:
    """A resource that is sent along, and what to do with it.

    Args:
        resourceUri: The URI of the resource.
    """
    resource = EmbeddedResource(ResourceContents("The text of the resource.", resourceUri, "text/plain"))
    return [PromptMessage(resource), PromptMessage(Text("Read the resource above."))]


@server.prompt
def test_prompt_with_image() -> list[PromptMessage]:
    """A picture, and what to do with it."""
    return [PromptMessage(Image(PIXEL, "image/png")), PromptMessage(Text("Look at the picture above."))]


@server.prompt
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt about what the user says it is about."""
    answer = await ctx.elicit("What context should the prompt use?", {"context": str}, key="user_context")
    return f"The context is {answer.value['context'] if answer.value else 'not known'}."


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description="A server for the official conformance suite.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, help="where to listen on 127.0.0.1; 0 takes a free port")
    where.add_argument("--stdio", action="store_true", help="serve on standard input and output")
    parser.add_argument("--sse", action="store_true", help="with --port: serve HTTP+SSE (2024-11-05) as well, at /sse")
    given = parser.parse_args()
    if given.stdio:
        return run_stdio(server)

    def ready(http: HttpServer) -> None:
        print(http.urls[0], flush=True)

    return run_http(server, f"127.0.0.1:{given.port}", ready, sse=given.sse)


if __name__ == "__main__":
    sys.exit(main())

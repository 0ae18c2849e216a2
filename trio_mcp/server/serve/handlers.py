"""One function a method: from checked parameters to a result. The serving does the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

import trio

from ...convert.codec import Mismatch, Pace, render
from ...convert.pieces import is_large
from ...errors import InvalidParams, MethodNotFound, ProtocolError, ResourceNotFound
from ...limits import Limits
from ...protocol.cursors import page_after
from ...protocol.jsontext import loads, shorten
from ...protocol.meta import declared_settings
from ...protocol.revisions import ERAS
from ...protocol.tasks import TASKS, Mode, mode_of
from ...protocol.uri_template import Climbs
from ...scopes.call import Call
from ..ask.context import Context
from ..declare.extensions import ExtensionResult, check_declared
from ..declare.registry import Prompt, Resource, Tool, did_you_mean
from ..declare.signature import Handler
from ..peer.questions import InputRequired
from ..tasks.tasks import cancel_task, get_task, update_task
from .completion import complete
from .listening import listen
from .results import extension_result, is_data, prompt_result, read_result, tool_result
from .serving import Serving

__all__ = ["HANDLERS", "error_result", "run_tool"]

Result = dict[str, Any]
T = TypeVar("T")

# A union written in place is made anew each time.
_OTHER: Final = (InputRequired, ExtensionResult)


def error_result(text: str) -> Result:
    """A tool execution error, for the model to read."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


async def discover(serving: Serving, call: Call) -> bytes:
    """`server/discover`."""
    return serving.page("server/discover", serving.discovery, call)


async def list_items(serving: Serving, call: Call) -> bytes:
    """The four lists: one page of the registry, encoded once for each state of it."""
    member, items = serving.registry.list_of(call.method)
    cursor = call.params.get("cursor")
    start, end, following = page_after(call.method, cursor, list(items), serving.server.page_size)

    def make() -> Result:
        page: Result = {member: [_definition(call, item) for item in list(items.values())[start:end]]}
        if following is not None:
            page["nextCursor"] = following
        return page

    # A client can make a cursor of each item; what it makes is not kept.
    keep = start % serving.server.page_size == 0
    return serving.page(f"{call.method} {start}", make, call, keep=keep)


def _definition(call: Call, item: Tool | Resource | Prompt) -> dict[str, Any]:
    """An item of a list. Whether a tool can be a task stands in an extension of the modern revision."""
    if call.dialect is None or not call.dialect.tasks or not isinstance(item, Tool) or item.task_support == "forbidden":
        return item.wire
    return {**item.wire, "execution": {"taskSupport": item.task_support}}


async def call_tool(serving: Serving, call: Call) -> Result | bytes:
    """`tools/call`: an unknown tool is a protocol error, wrong arguments and failures are for the model."""
    name = call.params["name"]
    tool = serving.registry.tools.get(name)
    if tool is None:
        raise InvalidParams(did_you_mean("tool", name, serving.registry.tools, serving.limits))
    if call.dialect is not None:
        mode = session_mode(call, tool)
    else:
        mode = Mode.INLINE if tool.task_support == "forbidden" else _mode(call, tool)
    arguments = call.params.get("arguments") or {}
    try:
        if arguments and is_large(arguments):
            values = await in_pieces(tool.handler.load_in_pieces(arguments))
        else:
            values = tool.handler.load(arguments)
    except Mismatch as exc:
        return error_result(f"Invalid arguments for tool {name!r}:\n{render(exc, serving.limits)}")
    if mode is not Mode.INLINE:
        return await serving.tasks.call(call, tool, values, mode)
    call.limit(tool.timeout)
    return await run_tool(serving, call, tool, values, Context(serving, call), serving.threads)


def _mode(call: Call, tool: Tool) -> Mode:
    capabilities = call.meta.client_capabilities
    declared = declared_settings(capabilities, TASKS) is not None
    mode = mode_of(tool.task_support, declared, ERAS[call.meta.protocol_version])
    if mode is Mode.REFUSED:
        check_declared(f"Tool {tool.name!r} runs as a task only: it", capabilities, TASKS)
    return mode


def session_mode(call: Call, tool: Tool) -> Mode:
    """What happens to a call of a session: there the client says which call becomes a task (2025-11-25, basic/utilities/tasks).

    Raises:
        MethodNotFound: the tool cannot be called in this way.
    """
    assert call.dialect is not None
    asked = call.dialect.tasks and type(call.params.get("task")) is dict
    if asked and tool.task_support == "forbidden":
        raise MethodNotFound(f"Tool {tool.name!r} does not run as a task: call it without `task`")
    if not asked and tool.task_support == "required":
        how = "call it with `task`" if call.dialect.tasks else f"revision {call.dialect.revision} has no tasks"
        raise MethodNotFound(f"Tool {tool.name!r} runs as a task only: {how}")
    return Mode.TASK if asked else Mode.INLINE


async def run_tool(
    serving: Serving,
    call: Call,
    tool: Tool,
    values: dict[str, Any],
    context: Context[Any],
    threads: trio.CapacityLimiter,
) -> Result:
    """Run the function of a tool, and make a result of what it returns."""
    if context._goes_on:
        await context.rounds.go_on()
    value = await tool.handler.call(values, context, threads)
    if isinstance(value, _OTHER):
        value = await _waited(tool.handler, values, context, threads, value)
        if isinstance(value, _OTHER):
            return _other_result(call, context, value)
    if type(value) is not str and is_data(tool, value) and is_large(value):
        data = await in_pieces((tool.output or serving.any).pieces(value, True, Pace()))
        return tool_result(tool, value, serving.any, data)
    return tool_result(tool, value, serving.any)


async def _waited(
    handler: Handler, values: dict[str, Any], context: Context[Any], threads: trio.CapacityLimiter, value: Any
) -> Any:
    """What a handler returns once it asks no more in the low-level way, where its questions can be waited for."""
    while isinstance(value, InputRequired) and context.rounds.waits:
        await context.rounds.low_level_wait(value)
        value = await handler.call(values, context, threads)
    return value


async def in_pieces(steps: Generator[None, None, T]) -> T:
    """What a conversion comes to, with others running between its pieces."""
    while True:
        try:
            next(steps)
        except StopIteration as exc:
            made: T = exc.value
            return made
        await trio.lowlevel.checkpoint()


def _other_result(call: Call, context: Context[Any], value: InputRequired | ExtensionResult) -> Result:
    """A result of another type than `complete`."""
    return context.rounds.low_level(value) if isinstance(value, InputRequired) else extension_result(call, value)


async def read_resource(serving: Serving, call: Call) -> Result:
    """`resources/read`: fixed URIs first, then the templates in order."""
    uri = call.params["uri"]
    resource, raw = find_resource(serving, uri)
    if resource is None:
        raise ResourceNotFound(uri)
    values = _text_arguments(resource.handler, raw, f"Invalid params for {uri}", serving.limits)
    call.limit(resource.timeout)
    context: Context[Any] = Context(serving, call)
    try:
        value = await resource.handler.call(values, context, serving.threads)
    except ResourceNotFound as exc:
        raise exc if exc.uri is not None else ResourceNotFound(uri, exc.given) from exc
    if isinstance(value, _OTHER):
        value = await _waited(resource.handler, values, context, serving.threads, value)
        if isinstance(value, _OTHER):
            return _other_result(call, context, value)
    result = read_result(resource, uri, value, serving.any)
    result.update(resource.hints)
    return result


def find_resource(serving: Serving, uri: str) -> tuple[Resource | None, dict[str, Any]]:
    """The resource that serves a URI, and the values of its template.

    Raises:
        InvalidParams: a template matches, but a value climbs out of its segment.
    """
    fixed = serving.registry.resources.get(uri)
    if fixed is not None:
        return fixed, {}
    for resource in serving.registry.templates.values():
        assert resource.template is not None
        try:
            values = resource.template.match(uri, serving.limits)
        except Climbs as exc:
            raise InvalidParams(f"Invalid params: uri {shorten(uri)}: {exc}") from None
        if values is not None:
            return resource, values
    return None, {}


async def get_prompt(serving: Serving, call: Call) -> Result:
    """`prompts/get`."""
    name = call.params["name"]
    prompt: Prompt | None = serving.registry.prompts.get(name)
    if prompt is None:
        raise InvalidParams(did_you_mean("prompt", name, serving.registry.prompts, serving.limits))
    values = _text_arguments(
        prompt.handler, call.params.get("arguments") or {}, f"Invalid arguments for prompt {name!r}", serving.limits
    )
    call.limit(prompt.timeout)
    context: Context[Any] = Context(serving, call)
    value = await prompt.handler.call(values, context, serving.threads)
    if isinstance(value, _OTHER):
        value = await _waited(prompt.handler, values, context, serving.threads, value)
        if isinstance(value, _OTHER):
            return _other_result(call, context, value)
    return prompt_result(prompt, value, serving.any)


def _text_arguments(handler: Handler, raw: dict[str, Any], what: str, limits: Limits) -> dict[str, Any]:
    """Arguments that travel as text (prompts, templates): a parameter that is no text takes the JSON value of it.

    Raises:
        InvalidParams: with one line for each thing that is wrong.
    """
    known = {parameter.name: parameter.codec.kinds for parameter in handler.parameters}
    values = dict(raw)
    for name, text in raw.items():
        kinds = known.get(name, frozenset({"str"}))
        if isinstance(text, str) and kinds and "str" not in kinds:
            try:
                # As in a message: no NaN and no infinity, which JSON has not.
                values[name] = loads(text.encode(), limits)
            except (ProtocolError, ValueError):
                pass
    try:
        return handler.load(values)
    except Mismatch as exc:
        raise InvalidParams(f"{what}:\n{render(exc, limits)}") from None


HANDLERS: Final[dict[str, Callable[[Serving, Call], Awaitable[Result | bytes]]]] = {
    "server/discover": discover,
    "completion/complete": complete,
    "subscriptions/listen": listen,
    "tools/list": list_items,
    "tools/call": call_tool,
    "resources/list": list_items,
    "resources/templates/list": list_items,
    "resources/read": read_resource,
    "prompts/list": list_items,
    "prompts/get": get_prompt,
    "tasks/get": lambda serving, call: get_task(serving.tasks, call),
    "tasks/update": lambda serving, call: update_task(serving.tasks, call),
    "tasks/cancel": lambda serving, call: cancel_task(serving.tasks, call),
}
"""Rows of the method table, as functions. One that returns bytes has written the whole result itself."""

"""The options that registrations take: one list each."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from ...errors import RegistrationError
from ...protocol.tasks import TaskSupport

__all__ = ["CacheScope", "Icons", "Options", "PromptOptions", "ResourceOptions", "ToolOptions", "check_options"]

Icons = Sequence[Any]
CacheScope = Literal["public", "private"]


class Options(TypedDict, total=False):
    """What every registration takes.

    Attributes:
        name: Its name; otherwise the function's.
        title: For display; otherwise made of the name.
        description: For the model, or for people where it is a prompt's; otherwise the docstring.
        timeout: Seconds that one call may run; otherwise `limits.request_timeout`.
        icons: As in basic/index, section `icons`.
        meta: The `_meta` of the definition.
    """

    name: str | None
    title: str | None
    description: str | None
    timeout: float | None
    icons: Icons | None
    meta: Any


class PromptOptions(Options, total=False):
    """What a prompt takes: nothing more."""


class ToolOptions(Options, total=False):
    """What a tool takes besides.

    Attributes:
        annotations: Hints: readOnlyHint, destructiveHint, idempotentHint, openWorldHint.
        structured: Whether the result has structured content and an output schema. None: yes, unless the return
            type is text, None, content blocks, or missing.
        input_schema: A JSON Schema (2020-12) of your own for the arguments, of type object. They are checked against it
            first; the function may take `**arguments`.
        output_schema: One for the structured result; what does not fit is logged and not sent.
        task_support: Whether a call may become a task when the client takes one: "forbidden" (the default: it is answered in
            line), "optional", or "required" (a client that takes none is refused).
        task_inline_ms: Milliseconds until it becomes one; otherwise those of the server. 0: at once.
        restartable: Whether an unfinished task may be run again, with the same arguments, after its process has ended.
            Otherwise, and by default, it has failed.
    """

    annotations: Any
    structured: bool | None
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    task_support: TaskSupport
    task_inline_ms: int | None
    restartable: bool


class ResourceOptions(Options, total=False):
    """What a resource takes besides.

    Attributes:
        mime_type: Its media type; otherwise text/plain, application/octet-stream or application/json, by the value.
        annotations: Hints: audience, priority, lastModified.
        size: Its size in bytes.
        cache_ttl: Seconds that a client may keep what it read; 0 is the default.
        cache_scope: Who may share such a copy. "private" is the default, since what a resource holds may depend on who asks.
    """

    mime_type: str | None
    annotations: Any
    size: int | None
    cache_ttl: float
    cache_scope: CacheScope


def check_options(kind: str, options: Mapping[str, Any], known: type[Options]) -> None:
    """Refuse an option that there is not.

    Raises:
        RegistrationError: with the one that was perhaps meant, and all that there are.
    """
    names = sorted(known.__annotations__)
    for name in options:
        if name not in known.__annotations__:
            close = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {close[0]}=…?" if close else "."
            raise RegistrationError(f"@server.{kind}({name}=…): no such option{hint} There is: {', '.join(names)}")

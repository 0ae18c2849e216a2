"""What a server offers: the registered components, and one immutable snapshot of them."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...convert.codec import Codec
from ...errors import RegistrationError
from ...limits import Limits
from ...protocol.legacy import wraps
from ...protocol.param_headers import HeaderParam, InvalidHeader, header_params
from ...protocol.tasks import TaskSupport
from ...protocol.uri_template import BadTemplate, UriTemplate
from .signature import Handler

__all__ = ["Prompt", "Registry", "Resource", "Tool", "did_you_mean"]

_COMPARED: Final = 256
"""Characters of the longest name for which one like it is looked for."""

logger: logging.Logger = logging.getLogger("trio_mcp.server")

_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class Tool:
    """A registered tool: `wire` is its definition as `tools/list` shows it.

    `headers` are the arguments that travel in headers, too. `output` is the codec of its structured result; None when it
    returns content blocks, text or nothing. `wraps`: whether revisions that know objects only get its result inside of one.
    """

    __slots__ = (
        "handler",
        "headers",
        "name",
        "output",
        "restartable",
        "task_inline_ms",
        "task_support",
        "timeout",
        "wire",
        "wraps",
    )

    def __init__(
        self,
        handler: Handler,
        wire: dict[str, Any],
        output: Codec | None,
        timeout: float | None,
        task_support: TaskSupport = "forbidden",
        task_inline_ms: int | None = None,
        restartable: bool = False,
    ) -> None:
        self.handler: Handler = handler
        try:
            self.headers: tuple[HeaderParam, ...] = header_params(handler.input_schema)
        except InvalidHeader as exc:
            raise handler.error(str(exc)) from None
        self.name: str = handler.name
        self.wire: dict[str, Any] = wire
        self.wraps: bool = wraps(wire.get("outputSchema"))
        self.output: Codec | None = output
        self.timeout: float | None = timeout
        if task_support not in ("forbidden", "optional", "required"):
            raise handler.error(f"task_support is 'forbidden', 'optional' or 'required', not {task_support!r}")
        if task_support == "forbidden" and (restartable or task_inline_ms is not None):
            raise handler.error("restartable and task_inline_ms are for tools with task_support")
        self.task_support: TaskSupport = task_support
        self.task_inline_ms: int | None = None if task_inline_ms is None else check_inline(handler, task_inline_ms)
        self.restartable: bool = restartable


class Resource:
    """A registered resource or resource template (`template` is None for a fixed URI). `hints` are those for caching."""

    __slots__ = ("handler", "hints", "mime_type", "template", "timeout", "uri", "wire")

    def __init__(
        self,
        handler: Handler,
        uri: str,
        template: UriTemplate | None,
        wire: dict[str, Any],
        mime_type: str | None,
        timeout: float | None,
        hints: dict[str, Any],
    ) -> None:
        self.hints: dict[str, Any] = hints
        self.handler: Handler = handler
        self.uri: str = uri
        self.template: UriTemplate | None = template
        self.wire: dict[str, Any] = wire
        self.mime_type: str | None = mime_type
        self.timeout: float | None = timeout


class Prompt:
    """A registered prompt."""

    __slots__ = ("handler", "name", "timeout", "wire")

    def __init__(self, handler: Handler, wire: dict[str, Any], timeout: float | None) -> None:
        self.handler: Handler = handler
        self.name: str = handler.name
        self.wire: dict[str, Any] = wire
        self.timeout: float | None = timeout


class Registry:
    """One state of what is offered. Never changed: a registration makes another.

    Attributes:
        tools: By name, in order of registration.
        resources: Those with a fixed URI, by URI.
        templates: The others, by template; the first that matches serves.
        prompts: By name.
        completions: Functions that complete, by prompt or template and argument.
        extensions: Settings by identifier.
        pages: Encoded lists, filled by whoever asks first.
        capabilities: Those that follow from what is registered (server/discover), or were declared before: whoever was told of
            one goes on to use it, and an empty list is an answer.
    """

    __slots__ = ("capabilities", "completions", "extensions", "pages", "prompts", "resources", "templates", "tools")

    def __init__(
        self,
        tools: Mapping[str, Tool],
        resources: Mapping[str, Resource],
        templates: Mapping[str, Resource],
        prompts: Mapping[str, Prompt],
        completions: Mapping[tuple[str, str], Handler] | None = None,
        extensions: Mapping[str, dict[str, Any]] | None = None,
        declared: Iterable[str] = (),
    ) -> None:
        self.tools: dict[str, Tool] = dict(tools)
        self.resources: dict[str, Resource] = dict(resources)
        self.templates: dict[str, Resource] = dict(templates)
        self.prompts: dict[str, Prompt] = dict(prompts)
        self.completions: dict[tuple[str, str], Handler] = dict(completions or {})
        self.pages: dict[str, bytes] = {}
        self.extensions: dict[str, dict[str, Any]] = dict(extensions or {})
        self.capabilities: dict[str, Any] = self._capabilities(frozenset(declared))

    def list_of(self, method: str) -> tuple[str, Mapping[str, Tool | Resource | Prompt]]:
        """What a list method lists: the member of its result, and the items by what identifies them."""
        lists: dict[str, tuple[str, Mapping[str, Tool | Resource | Prompt]]] = {
            "tools/list": ("tools", self.tools),
            "resources/list": ("resources", self.resources),
            "resources/templates/list": ("resourceTemplates", self.templates),
            "prompts/list": ("prompts", self.prompts),
        }
        return lists[method]

    def _capabilities(self, declared: frozenset[str]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.tools or "tools" in declared:
            out["tools"] = {"listChanged": True}
        if self.resources or self.templates or "resources" in declared:
            out["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts or "prompts" in declared:
            out["prompts"] = {"listChanged": True}
        if self.prompts or self.templates or "completions" in declared:
            out["completions"] = {}
        out["logging"] = {}
        if self.extensions:
            out["extensions"] = self.extensions
        return out


def check_inline(handler: Handler, milliseconds: int) -> int:
    """A window that is one."""
    if type(milliseconds) is not int or milliseconds < 0:
        raise handler.error(f"task_inline_ms is a number of milliseconds, 0 or more, not {milliseconds!r}")
    return milliseconds


def check_name(kind: str, name: str) -> None:
    """Check a name; one that hosts may refuse, since the specification asks for another, is told to the log (server/tools,
    section Tool Names).

    Raises:
        RegistrationError: it is empty, over 128 characters or holds control characters.
    """
    if not name or len(name) > 128 or _CONTROL.search(name):
        raise RegistrationError(f"{kind} {name!r}: a name has 1 to 128 characters and no control characters")
    if kind == "tool" and _TOOL_NAME.fullmatch(name) is None:
        logger.warning(
            "tool %r: hosts may refuse this name; the specification asks for letters A to Z, digits, '_', '-' and '.'",
            name,
        )


def parse_uri(kind: str, uri: str, limits: Limits) -> UriTemplate | None:
    """The template, when the text is one.

    Raises:
        RegistrationError: it is neither a URI nor a template that we can match.
    """
    if "{" not in uri and "}" not in uri:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", uri) or re.search(r"\s", uri):
            raise RegistrationError(f"{kind} {uri!r}: not a URI; it needs a scheme, as in 'notes://{uri.strip()}'")
        return None
    try:
        return UriTemplate(uri, limits)
    except BadTemplate as exc:
        raise RegistrationError(f"{kind} {uri!r}: {exc}") from None


def did_you_mean(what: str, name: str, names: Iterable[str], limits: Limits) -> str:
    """`Unknown tool: ad; did you mean 'add'? There is: add, sub`."""
    known = list(names)
    # The comparison takes as long as the text that a client sends, and one of that length is no mistake in spelling.
    close = difflib.get_close_matches(name, known, 1) if len(name) <= _COMPARED else []
    hint = f"; did you mean {close[0]!r}?" if close else "."
    shown = ", ".join(known[: limits.shown_names]) + (", …" if len(known) > limits.shown_names else "")
    return f"Unknown {what}: {name[:128]}{hint} There is: {shown or 'nothing'}"

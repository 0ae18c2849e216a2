"""The method table: one row a method.

A row says what `params` look like beyond `_meta`, which server capability or extension the method belongs to, in which
eras it exists, which member a transport mirrors into `Mcp-Name`, and whether it lasts until somebody ends it. Adding a
method is adding a row.

The schemas are ours and fixed, so fastjsonschema (which generates code) may see them. Each is compiled on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import fastjsonschema

from ..errors import InvalidParams
from .jsontext import shorten
from .revisions import Era
from .tasks import TASKS

__all__ = ["METHODS", "NOTIFICATIONS", "SESSION_METHODS", "Method"]

_MODERN: Final = frozenset({Era.MODERN})
_BOTH: Final = frozenset({Era.MODERN, Era.LEGACY})
_LEGACY: Final = frozenset({Era.LEGACY})


class Method:
    """One row of the table."""

    __slots__ = ("_plain", "_validate", "capability", "eras", "extension", "lasting", "mirror", "name", "schema")

    def __init__(
        self,
        name: str,
        schema: dict[str, Any],
        *,
        eras: frozenset[Era] = _BOTH,
        capability: str | None = None,
        extension: str | None = None,
        mirror: str | None = None,
        lasting: bool = False,
    ) -> None:
        self.name: str = name
        self.schema: dict[str, Any] = schema
        self.eras: frozenset[Era] = eras
        self.capability: str | None = capability
        self.extension: str | None = extension
        self.mirror: str | None = mirror
        self.lasting: bool = lasting
        self._validate: Callable[[Any], Any] | None = None
        self._plain = _plain(schema)

    def check(self, params: dict[str, Any]) -> None:
        """Check the `params` of a request (all members but `_meta`, which `RequestMeta` reads).

        Raises:
            InvalidParams: with the member, what it should be and what came.
        """
        for name, types in self._plain:
            if type(params.get(name, _MISSING)) not in types:
                break
        else:
            return
        validate = self._validate
        if validate is None:
            validate = self._validate = fastjsonschema.compile(self.schema, use_default=False, use_formats=False)
        try:
            validate(params)
        except fastjsonschema.JsonSchemaValueException as exc:
            raise InvalidParams(f"Invalid params for {self.name}: {_explain(exc)}") from None


class _Missing:
    """Of a member that is not there."""


_MISSING: Final = _Missing()
_TYPES: Final[dict[str, type]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "object": dict,
    "string": str,
}


def _plain(schema: dict[str, Any]) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """The types with which each member passes without its schema: those that the schema takes whatever the value is.

    What does not pass so may still be right: most members are plain, and the schema costs several times as much.
    """
    rows: list[tuple[str, tuple[type, ...]]] = []
    for name, rules in schema.get("properties", {}).items():
        kinds = rules.get("type", ())
        types = [_TYPES[kind] for kind in ((kinds,) if isinstance(kinds, str) else kinds)] if len(rules) == 1 else []
        if name not in schema.get("required", ()):
            types.append(_Missing)
        rows.append((name, tuple(types)))
    return tuple(rows)


def _explain(exc: fastjsonschema.JsonSchemaValueException) -> str:
    path = ".".join(str(part) for part in exc.path[1:]) or "params"
    if exc.rule == "required":
        missing = [name for name in exc.rule_definition if name not in exc.value]
        return f"missing {', '.join(missing)}"
    if exc.rule == "type":
        kinds = [exc.rule_definition] if isinstance(exc.rule_definition, str) else exc.rule_definition
        return f"{path} must be {' or '.join(kinds)}, got {shorten(exc.value)}"
    return f"{path} {exc.message.removeprefix(exc.name or '').strip()}, got {shorten(exc.value)}"


def _params(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return schema


_STRING: Final = {"type": "string"}
_BOOLEAN: Final = {"type": "boolean"}
_OBJECT: Final = {"type": "object"}
# The answers to a server's questions (basic/patterns/mrtr): objects by key.
_ANSWERS: Final = {"type": "object", "additionalProperties": _OBJECT}
_RETRY: Final = {"inputResponses": _ANSWERS, "requestState": _STRING}
# `arguments: null` counts as none: clients send it, and the schema of a tool decides about the rest.
_ARGUMENTS: Final = {"type": ["object", "null"]}
_PROMPT_ARGUMENTS: Final = {"type": ["object", "null"], "additionalProperties": _STRING}
_PAGE: Final = _params(cursor=_STRING)

METHODS: Final[dict[str, Method]] = {
    row.name: row
    for row in (
        Method("server/discover", _params(), eras=_MODERN),
        Method(
            "completion/complete",
            _params(
                ("ref", "argument"),
                ref=_params(("type",), type={"enum": ["ref/prompt", "ref/resource"]}, name=_STRING, uri=_STRING),
                argument=_params(("name", "value"), name=_STRING, value=_STRING),
                context=_params(arguments={"type": "object", "additionalProperties": _STRING}),
            ),
            capability="completions",
        ),
        Method(
            "subscriptions/listen",
            _params(
                ("notifications",),
                notifications=_params(
                    toolsListChanged=_BOOLEAN,
                    promptsListChanged=_BOOLEAN,
                    resourcesListChanged=_BOOLEAN,
                    resourceSubscriptions={"type": "array", "items": _STRING},
                    taskIds={"type": "array", "items": _STRING},
                ),
            ),
            eras=_MODERN,
            lasting=True,
        ),
        Method("tools/list", _PAGE, capability="tools"),
        Method(
            "tools/call",
            _params(("name",), name=_STRING, arguments=_ARGUMENTS, **_RETRY),
            capability="tools",
            mirror="name",
        ),
        Method("resources/list", _PAGE, capability="resources"),
        Method("resources/templates/list", _PAGE, capability="resources"),
        Method("resources/read", _params(("uri",), uri=_STRING, **_RETRY), capability="resources", mirror="uri"),
        Method("prompts/list", _PAGE, capability="prompts"),
        Method(
            "prompts/get",
            _params(("name",), name=_STRING, arguments=_PROMPT_ARGUMENTS, **_RETRY),
            capability="prompts",
            mirror="name",
        ),
        Method("tasks/get", _params(("taskId",), taskId=_STRING), extension=TASKS, eras=_MODERN, mirror="taskId"),
        Method("tasks/cancel", _params(("taskId",), taskId=_STRING), extension=TASKS, eras=_MODERN, mirror="taskId"),
        Method(
            "tasks/update",
            _params(("taskId", "inputResponses"), taskId=_STRING, inputResponses=_ANSWERS),
            extension=TASKS,
            eras=_MODERN,
            mirror="taskId",
        ),
    )
}
"""Requests that a client may send, by name."""

_TASK: Final = _params(ttl={"type": ["number", "null"]})
_TASK_ID: Final = _params(("taskId",), taskId=_STRING)

SESSION_METHODS: Final[dict[str, Method]] = {
    **{name: row for name, row in METHODS.items() if Era.LEGACY in row.eras},
    **{
        row.name: row
        for row in (
            Method("ping", _params(), eras=_LEGACY),
            Method("logging/setLevel", _params(("level",), level=_STRING), eras=_LEGACY, capability="logging"),
            Method("resources/subscribe", _params(("uri",), uri=_STRING), eras=_LEGACY, capability="resources"),
            Method("resources/unsubscribe", _params(("uri",), uri=_STRING), eras=_LEGACY, capability="resources"),
            Method(
                "tools/call",
                _params(("name",), name=_STRING, arguments=_ARGUMENTS, task=_TASK),
                eras=_LEGACY,
                capability="tools",
                mirror="name",
            ),
            Method("tasks/get", _TASK_ID, eras=_LEGACY, extension=TASKS),
            Method("tasks/result", _TASK_ID, eras=_LEGACY, extension=TASKS),
            Method("tasks/cancel", _TASK_ID, eras=_LEGACY, extension=TASKS),
            Method("tasks/list", _PAGE, eras=_LEGACY, extension=TASKS),
        )
    },
}
"""Requests that a client of a session may send, by name."""

NOTIFICATIONS: Final[dict[str, Method]] = {
    row.name: row
    for row in (
        Method("notifications/cancelled", _params(("requestId",), requestId={"type": ["string", "integer"]})),
        Method("notifications/initialized", _params(), eras=_LEGACY),
    )
}
"""Notifications that a client may send, by name. Any other is ignored."""

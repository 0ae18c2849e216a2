"""The revisions with sessions (2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05): how what a server has is said in each.

The rest of the project speaks the modern revision. A `Dialect` cuts down what is newer than the revision of a session.
Its clients would ignore members that they do not know, but kinds of content that they do not know spoil a whole result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..errors import InvalidParams, InvalidRequest, MissingClientCapability, ProtocolError, ResourceNotFound
from ..limits import DEFAULT, Limits
from .envelope import is_request_id
from .jsontext import shorten
from .meta import RequestMeta
from .revisions import LEGACY

__all__ = [
    "DIALECTS",
    "NO_HEADER",
    "RELATED_TASK",
    "RESOURCE_NOT_FOUND",
    "Dialect",
    "Hello",
    "legacy_meta",
    "negotiate",
    "read_hello",
    "wraps",
]

NO_HEADER: Final = "2025-03-26"
"""The revision of a request without a version header and without a session (2025-11-25, basic/transports)."""

RESOURCE_NOT_FOUND: Final = -32002
"""The code that these revisions have for it (server/resources, section Error Handling)."""

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""In `_meta`: the task that a message belongs to (2025-11-25, basic/utilities/tasks)."""

_MODERN_ONLY: Final = ("resultType", "ttlMs", "cacheScope")
_LISTS: Final = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
# Members of definitions and of `serverInfo`, by the first revision that has them. Those that are older are not named.
_SINCE: Final = {
    "annotations": "2025-03-26",
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
    "description": "2025-11-25",
    "websiteUrl": "2025-11-25",
}


class Hello(NamedTuple):
    """What a client says in `initialize`.

    Attributes:
        revision: The one that it asks for.
        capabilities: As sent.
        client_info: As sent, or None where it has no name.
    """

    revision: str
    capabilities: dict[str, Any]
    client_info: dict[str, Any] | None


def read_hello(params: Mapping[str, Any]) -> Hello:
    """Read the parameters of `initialize`.

    Raises:
        InvalidParams: a member is missing or has the wrong shape; the message names it.
    """
    revision = params.get("protocolVersion")
    if type(revision) is not str:
        raise InvalidParams(f"Invalid params for initialize: protocolVersion must be a string, got {_got(revision)}")
    capabilities = params.get("capabilities", {})
    if type(capabilities) is not dict:
        raise InvalidParams(f"Invalid params for initialize: capabilities must be an object, got {_got(capabilities)}")
    client = params.get("clientInfo")
    if client is not None and type(client) is not dict:
        raise InvalidParams(f"Invalid params for initialize: clientInfo must be an object, got {_got(client)}")
    return Hello(revision, capabilities, client)


def _got(value: Any) -> str:
    return "nothing" if value is None else shorten(value)


def negotiate(revision: str) -> Dialect:
    """The dialect of a session: of the revision that was asked for, or of the latest that there is (basic/lifecycle, section
    Version Negotiation). Each of them may be spoken, so nothing is gained by an older one."""
    return DIALECTS.get(revision) or DIALECTS[LEGACY[0]]


def legacy_meta(
    dialect: Dialect,
    hello: Hello,
    log_level: str,
    params: Mapping[str, Any],
    limits: Limits = DEFAULT,
) -> RequestMeta:
    """What one request of a session says about itself: most was said when the session was opened.

    Raises:
        InvalidParams: `_meta` has the wrong shape.
    """
    raw = params.get("_meta")
    token = None
    if raw is not None:
        if type(raw) is not dict:
            raise InvalidParams(f"Invalid params: _meta must be an object, got {shorten(raw)}")
        token = raw.get("progressToken")
        if token is not None and not is_request_id(token, limits):
            raise InvalidParams(
                f"Invalid params: _meta['progressToken'] must be a string of at most {limits.id_bytes} bytes or a 64-bit "
                f"integer, got {shorten(token)}"
            )
    return RequestMeta(dialect.revision, hello.capabilities, hello.client_info, log_level, token, raw)


def wraps(schema: Mapping[str, Any] | None) -> bool:
    """Whether data of this schema may be something else than an object: these revisions have objects only."""
    if schema is None:
        return False
    return _root(schema).get("type") != "object"


def _root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref")
    if type(name) is str and name.startswith("#/$defs/"):
        found = schema.get("$defs", {}).get(name.removeprefix("#/$defs/"))
        return found if type(found) is dict else schema
    return schema


class Dialect:
    """One revision.

    Attributes:
        revision: Its name.
        audio: Whether content may be sound.
        links: Whether content may be a link to a resource, and results may have data.
        elicitation: Whether the client may be asked for input.
        modes: Whether it may be asked to visit a page, and forms have all their fields.
        tasks: Whether calls may become tasks.
        progress_text: Whether progress has words.
        batches: Whether several messages may come in one array.
        primed: Whether a stream begins with an event without data, which only tells its id.
    """

    __slots__ = (
        "_hidden",
        "audio",
        "batches",
        "elicitation",
        "links",
        "modes",
        "primed",
        "progress_text",
        "revision",
        "tasks",
    )

    def __init__(self, revision: str) -> None:
        self.revision: str = revision
        self.audio: bool = revision >= "2025-03-26"
        self.progress_text: bool = self.audio
        self.links: bool = revision >= "2025-06-18"
        self.elicitation: bool = self.links
        self.modes: bool = revision >= "2025-11-25"
        self.tasks: bool = self.modes
        self.primed: bool = self.modes
        self.batches: bool = revision == "2025-03-26"
        self._hidden = frozenset(name for name, since in _SINCE.items() if since > revision)

    def __repr__(self) -> str:
        return f"<Dialect {self.revision}>"

    # -- the answer to `initialize`

    def capabilities(self, modern: Mapping[str, Any], tasks: bool, *, alone: bool = False) -> dict[str, Any]:
        """What a server can do, from what it tells of itself in the modern revision.

        Args:
            modern: That.
            tasks: Whether it has tasks.
            alone: Whether each request stands alone, so that it tells nobody of changes and keeps no level of log lines.
        """
        if alone:
            return {name: {} for name in modern if name not in ("extensions", "logging")}
        # 2024-11-05 completes as well, and has no name for it: whoever looks for the later one finds it.
        out = {name: value for name, value in modern.items() if name != "extensions"}
        if tasks and self.tasks:
            out["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return out

    def welcome(
        self, info: Mapping[str, Any], capabilities: Mapping[str, Any], instructions: str | None
    ) -> dict[str, Any]:
        """The result of `initialize`."""
        out: dict[str, Any] = {
            "protocolVersion": self.revision,
            "capabilities": capabilities,
            "serverInfo": {name: value for name, value in info.items() if name not in self._hidden},
        }
        if instructions is not None:
            out["instructions"] = instructions
        return out

    # -- results

    def result(self, method: str, result: dict[str, Any], *, wrapped: bool = False) -> dict[str, Any]:
        """A result as this revision has it.

        Args:
            method: Of the request.
            result: As the modern revision has it. It may be changed.
            wrapped: Whether the tool promises data that may be no object.
        """
        for name in _MODERN_ONLY:
            result.pop(name, None)
        if method == "tools/call":
            self._tool_result(result, wrapped)
        elif method == "prompts/get" and not self.links:
            for message in result["messages"]:
                message["content"] = self._block(message["content"])
        elif method in _LISTS:
            name = _LISTS[method]
            result[name] = [self._definition(method, item) for item in result[name]]
        return result

    def _tool_result(self, result: dict[str, Any], wrapped: bool) -> None:
        if not self.links:
            result.pop("structuredContent", None)
            result["content"] = [self._block(block) for block in result.get("content", ())]
        elif "structuredContent" in result:
            data = result["structuredContent"]
            if wrapped or type(data) is not dict:
                result["structuredContent"] = {"result": data}

    def _block(self, block: dict[str, Any]) -> dict[str, Any]:
        """Content of a kind that this revision does not have, as text: its clients would refuse the whole result."""
        kind = block.get("type")
        if kind == "resource_link" and not self.links:
            name = block.get("title") or block.get("name")
            return {"type": "text", "text": f"{name}: {block.get('uri')}"}
        if kind == "audio" and not self.audio:
            size = len(block.get("data", "")) * 3 // 4
            return {"type": "text", "text": f"[audio, {block.get('mimeType')}, {size} bytes]"}
        return block

    def _definition(self, method: str, wire: Mapping[str, Any]) -> dict[str, Any]:
        """An item of a list. A description is as old as the protocol there."""
        hidden = self._hidden - {"description"}
        if method != "tools/list":
            # Hints are newer for tools; for resources they have always been there.
            hidden -= {"annotations"}
        out = {name: value for name, value in wire.items() if name not in hidden}
        schema = out.get("outputSchema")
        if schema is not None:
            out["outputSchema"] = _wrapped(schema) if wraps(schema) else _plain({"type": "object", **schema})
        if "inputSchema" in out:
            out["inputSchema"] = _plain(out["inputSchema"])
        if "arguments" in out and "title" in hidden:
            arguments = out["arguments"]
            out["arguments"] = [{key: item[key] for key in item if key != "title"} for item in arguments]
        return out

    def error(self, error: ProtocolError) -> ProtocolError:
        """An error with a code that this revision has."""
        if isinstance(error, ResourceNotFound):
            return ProtocolError(error.message, error.data, code=RESOURCE_NOT_FOUND)
        if isinstance(error, MissingClientCapability):
            return InvalidRequest(error.message)
        return error

    # -- what the client is asked

    def question(self, method: str, params: dict[str, Any], page_id: str) -> dict[str, Any]:
        """The parameters of a question as this revision has them.

        Args:
            method: Of the question.
            params: As the modern revision has them.
            page_id: An id for a page that is to be visited.

        Raises:
            MissingClientCapability: it has no such question.
        """
        if method != "elicitation/create":
            return params
        if not self.elicitation:
            raise MissingClientCapability(
                f"revision {self.revision} has no elicitation", {"requiredCapabilities": {"elicitation": {}}}
            )
        if self.modes:
            return {"elicitationId": page_id, **params} if params.get("mode") == "url" else params
        if params.get("mode") == "url":
            raise MissingClientCapability(
                f"revision {self.revision} has forms only, and no pages to visit",
                {"requiredCapabilities": {"elicitation": {"url": {}}}},
            )
        schema = params["requestedSchema"]
        fields = {name: self._field(name, field) for name, field in schema["properties"].items()}
        return {
            "message": params["message"],
            "requestedSchema": {**schema, "properties": fields},
        }

    def _field(self, name: str, field: dict[str, Any]) -> dict[str, Any]:
        if field.get("type") == "array":
            raise MissingClientCapability(
                f"field {name!r}: forms of revision {self.revision} have no choice of several",
                {"requiredCapabilities": {"elicitation": {"form": {}}}},
            )
        if "oneOf" not in field:
            return field
        choices = field["oneOf"]
        plain = {key: value for key, value in field.items() if key != "oneOf"}
        return {
            **plain,
            "enum": [item["const"] for item in choices],
            "enumNames": [item.get("title", item["const"]) for item in choices],
        }


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose properties are objects: before 2026-07-28 nothing else may stand there."""
    fields = schema.get("properties")
    if type(fields) is not dict or not any(type(field) is bool for field in fields.values()):
        return schema
    plain: dict[bool, dict[str, Any]] = {True: {}, False: {"not": {}}}
    return {**schema, "properties": {n: plain[one] if type(one) is bool else one for n, one in fields.items()}}


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of an object that has the data as its member `result`."""
    # What is referred to is found from the root.
    inner = {name: value for name, value in schema.items() if name not in ("$defs", "definitions", "$schema")}
    out = {name: schema[name] for name in ("$schema",) if name in schema}
    out |= {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return out | {name: schema[name] for name in ("$defs", "definitions") if name in schema}


DIALECTS: Final[dict[str, Dialect]] = {revision: Dialect(revision) for revision in LEGACY}
"""By revision, the latest first."""

"""Extensions of the protocol (basic/index, section Extension Negotiation): an entry in the capabilities with settings, methods
and result types of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ...convert.codec import Codec
from ...errors import MissingClientCapability, RegistrationError
from ...protocol.jsontext import find_unwritable
from ...protocol.meta import declared_settings
from ...protocol.methods import METHODS, Method
from ...protocol.tasks import TASKS
from .signature import Handler, caller_names

__all__ = [
    "Extension",
    "ExtensionMethod",
    "ExtensionResult",
    "ExtensionSet",
    "check_declared",
]

F = TypeVar("F", bound=Callable[..., Any])

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_IDENTIFIER: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_RESERVED: Final = frozenset({"complete", "input_required", "task"})


@dataclass(frozen=True, slots=True)
class ExtensionResult:
    """A result of a type that an extension defines. Made by `Extension.result`.

    Attributes:
        extension: The identifier of the extension; the client must have declared it.
        kind: The `resultType`.
        members: The other members of the result.
    """

    extension: str
    kind: str
    members: dict[str, Any]


class ExtensionMethod:
    """A method of an extension: its row, and the function that serves it."""

    __slots__ = ("handler", "output", "row")

    def __init__(self, handler: Handler, row: Method, output: Codec | None) -> None:
        self.handler: Handler = handler
        self.row: Method = row
        self.output: Codec | None = output


class Extension:
    """An extension that a server speaks: `Server("shop", extensions=[extension])`.

    It stands in the server's capabilities. Its methods answer only clients that declared it on the request, and so do its
    result types. Its keys in `_meta` are in `ctx.meta`, and go out with `meta=` of a tool or of a result.

    Args:
        identifier: A name with a prefix that its author owns: `com.example/audit`.
        settings: The value of its entry in the capabilities; JSON.

    Raises:
        RegistrationError: the identifier has no prefix, is that of an extension that is built in, or settings are not JSON.
    """

    def __init__(self, identifier: str, settings: Mapping[str, Any] | None = None) -> None:
        if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
            raise RegistrationError(
                f"Extension({identifier!r}): expected a prefix and a name, as in 'com.example/audit'"
            )
        if identifier == TASKS:
            raise RegistrationError(
                f"Extension({identifier!r}): it is built in; say @server.tool(task_support='optional')"
            )
        self.identifier: str = identifier
        self.settings: dict[str, Any] = dict(settings or {})
        bad = find_unwritable(self.settings)
        if bad:
            raise RegistrationError(f"Extension({identifier!r}, settings): {bad}")
        self.methods: dict[str, ExtensionMethod] = {}

    def __repr__(self) -> str:
        return f"<Extension {self.identifier}: {len(self.methods)} methods>"

    def method(self, name: str, /) -> Callable[[F], F]:
        """Register a method: `@extension.method("com.example/audit/tail")`.

        The function's parameters are those of the request; a parameter of type `Context` is filled in. It returns an object
        (a dict, dataclass, …), None for an empty result, or what `result` makes.

        Args:
            name: The method. No client can call one that the protocol has itself.

        Raises:
            RegistrationError: the name is taken, or the function cannot be a method.
        """
        names = caller_names(1)
        if not isinstance(name, str) or not name or name.startswith("notifications/") or re.search(r"\s", name):
            raise RegistrationError(f"@extension.method needs the name of a request, got {name!r}")

        def register(function: F) -> F:
            handler = Handler(function, "method", name, names)
            if name in METHODS or name in self.methods:
                raise handler.error("a method of this name is there already")
            output = None
            if handler.returns not in (Handler.UNANNOTATED, Any, None, ExtensionResult):
                output, _ = handler.output()
            row = Method(name, {"type": "object"}, extension=self.identifier)
            self.methods[name] = ExtensionMethod(handler, row, output)
            return function

        return register

    def result(self, kind: str, members: Mapping[str, Any] | None = None) -> ExtensionResult:
        """A result of a type of this extension. A tool, resource, prompt or method may return it.

        A client that did not declare the extension gets -32021 instead; `ctx.extension(identifier)` tells before.

        Args:
            kind: The `resultType`; a name with a prefix keeps it apart from others.
            members: The other members of the result.

        Raises:
            ValueError: the type is one of the protocol's own.
        """
        if not kind or kind in _RESERVED:
            raise ValueError(f"extension.result({kind!r}): this type is the protocol's own")
        return ExtensionResult(self.identifier, kind, dict(members or {}))


class ExtensionSet:
    """The extensions of a server.

    Attributes:
        settings: By identifier.
    """

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, Any]] = {}
        self._all: list[Extension] = []

    def add(self, extension: Extension) -> None:
        """Add one.

        Raises:
            RegistrationError: it is there already, or one of its methods is.
        """
        if not isinstance(extension, Extension):
            raise RegistrationError(f"expected an Extension, got {extension!r}")
        if extension.identifier in self.settings:
            raise RegistrationError(f"the extension {extension.identifier!r} is there already")
        for name in extension.methods:
            if self.find(name) is not None:
                raise RegistrationError(f"extension {extension.identifier!r}: the method {name!r} is there already")
        self._all.append(extension)
        self.settings[extension.identifier] = extension.settings

    def find(self, method: str) -> ExtensionMethod | None:
        """A method of one of them."""
        for extension in self._all:
            if method in extension.methods:
                return extension.methods[method]
        return None


def check_declared(call_method: str, client_capabilities: dict[str, Any], identifier: str) -> None:
    """Raise `MissingClientCapability` unless the client declared an extension."""
    if declared_settings(client_capabilities, identifier) is None:
        raise MissingClientCapability(
            f"{call_method} needs the extension {identifier}, which the client did not declare on this request",
            {"requiredCapabilities": {"extensions": {identifier: {}}}},
        )

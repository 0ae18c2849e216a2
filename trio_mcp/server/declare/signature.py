"""From a function to what the protocol needs of it: parameters, schemas, and a way to call it.

Works for `async def` and plain `def`, bound and static methods, partials and callable objects, wrapped functions and
postponed annotations. What cannot be filled by name, or has a type that JSON cannot express, is refused when it is
registered, with the name of the function and the parameter.
"""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Generator, Mapping
from typing import Annotated, Any, Final

import trio

from ...convert.codec import Codec, Found, JSONSchema, Mismatch, Pace, Unsupported
from ...convert.compiler import Compiler
from ...convert.json_schema import BadSchema, GivenSchema
from ...convert.notes import MISSING
from ...convert.shapes import is_field, told_error
from ...errors import RegistrationError
from ...protocol.param_headers import with_reachable_marks
from ...scopes.groups import unwrapped
from .context_base import is_context
from .docstring import parse_docstring
from .parameters import EMPTY, Parameter

__all__ = ["Handler", "caller_names", "title_of"]

_MISSING: Final = object()
_COMPARED: Final = 50
"""Unexpected arguments whose names are compared with those that there are: `limits.shown_errors` are shown."""


class Handler:
    """A user's function, understood.

    Args:
        fn: The function.
        kind: "tool", "resource" or "prompt": for messages.
        name: Its registered name; None takes the function's own.
        localns: Names for annotations in strings that are not globals of the function's module.

    Attributes:
        fn: The function.
        name: The registered name.
        text: The docstring without its parameter section.
        parameters: In order, without the context.
        returns: The resolved return annotation, or `inspect.Parameter.empty`.
        input_schema: A JSON Schema of type object.

    Raises:
        RegistrationError: with the function, the parameter and the reason.
    """

    UNANNOTATED: Final = EMPTY

    __slots__ = (
        "_by_name",
        "_context",
        "_fills",
        "_given",
        "_kind",
        "_localns",
        "_rest",
        "fn",
        "input_schema",
        "is_async",
        "name",
        "parameters",
        "returns",
        "text",
    )

    def __init__(
        self,
        fn: Any,
        kind: str,
        name: str | None,
        localns: Mapping[str, Any],
        given: dict[str, Any] | None = None,
    ) -> None:
        self._kind = kind
        if name is not None and not isinstance(name, str):
            raise RegistrationError(f"{kind} {fn!r}: name: expected a text, got {name!r}")
        self._given: GivenSchema | None = None
        self._rest = False
        self._localns = dict(localns)
        self.fn: Any = fn
        self.name: str = name if name is not None else _own_name(fn, kind)
        if given is not None:
            self._given = self._given_schema(given)
        target = _function_of(fn)
        signature = self._signature(fn, target)
        hints = self._hints(target, signature)
        doc = parse_docstring(_doc_of(fn, target))
        self.text: str = doc.text
        self.is_async: bool = _is_async(fn, target, self)
        self.returns: Any = hints.get("return", EMPTY)
        self._context: str | None = None
        self.parameters: list[Parameter] = []
        compiler = Compiler(localns=self._localns)
        for item in signature.parameters.values():
            if item.kind is item.VAR_KEYWORD:
                self._rest = True
                continue
            annotation = hints.get(item.name, Any)
            self._check_meant(item.name, annotation, item.name in hints)
            if is_context(annotation):
                if self._context is not None:
                    raise self.error(f"parameter {item.name!r}: a second Context")
                self._context = item.name
                continue
            self.parameters.append(self._parameter(item, annotation, doc.parameters, compiler))
        self._by_name = {parameter.name: parameter for parameter in self.parameters}
        self._fills = [(item.name, item.load, item.required, item.supply) for item in self.parameters]
        self.input_schema: dict[str, Any] = self._schema(compiler)

    def error(self, text: str) -> RegistrationError:
        """A registration error about this function."""
        return RegistrationError(f"{self._kind} {self.name!r}: {text}")

    # -- understanding

    def _check_meant(self, name: str, annotation: Any, typed: bool) -> None:
        """A context that would become an argument, which a model would have to fill in."""
        other = f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"
        if name in ("ctx", "context") and not typed:
            raise self.error(
                f"parameter {name!r} has no type; write {name}: Context (from trio_mcp import Context), or a type of your own"
            )
        if other.endswith(".Context") and other.startswith(("mcp.", "fastmcp.")):
            raise self.error(f"parameter {name!r} is a {other}; this server gives a trio_mcp.Context")

    def _signature(self, fn: Any, target: Any) -> inspect.Signature:
        try:
            signature = inspect.signature(fn)
        except (ValueError, TypeError):
            raise self.error(f"{fn!r} has no signature that can be read") from None
        parameters = list(signature.parameters.values())
        if (
            parameters
            and parameters[0].name in ("self", "cls")
            and parameters[0].annotation is EMPTY
            and isinstance(fn, types.FunctionType)
            and "." in fn.__qualname__.rpartition("<locals>.")[2]
        ):
            raise self.error(
                f"{fn.__qualname__} is a method that is not bound to an object; register the bound method, "
                f"as in server.{self._kind}(instance.{fn.__name__})"
            )
        for item in parameters:
            if item.kind is item.POSITIONAL_ONLY:
                raise self.error(f"parameter {item.name!r} is positional-only; arguments come by name")
            if item.kind is item.VAR_POSITIONAL:
                raise self.error(f"parameter '*{item.name}': a variable number of arguments cannot be described")
            if item.kind is item.VAR_KEYWORD and self._given is None:
                raise self.error(
                    f"parameter '**{item.name}': arguments of any name cannot be described"
                    + ("; input_schema=… says what they are" if self._kind == "tool" else "")
                )
        return signature

    def _hints(self, target: Any, signature: inspect.Signature) -> dict[str, Any]:
        """Annotations, resolved where the function was written, one by one so that an error can name the parameter."""
        raw = dict(getattr(target, "__annotations__", {}))
        globalns = getattr(target, "__globals__", {})
        # Names of the class body and of enclosing functions, which a string annotation cannot reach by itself.
        localns = {**self._localns, **_closure_names(target)}
        self._localns = localns
        out: dict[str, Any] = {}
        for name, annotation in raw.items():
            if name != "return" and name not in signature.parameters:
                continue
            holder = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                out[name] = typing.get_type_hints(holder, globalns, localns, include_extras=True)[name]
            except NameError as exc:
                where = "the return type" if name == "return" else f"parameter {name!r}"
                raise self.error(f"{where}: the name {exc.name!r} in {annotation!r} cannot be resolved") from None
            except Exception as exc:  # what is written in a string is run, so anything may happen
                where = "the return type" if name == "return" else f"parameter {name!r}"
                raise self.error(f"{where}: {annotation!r} is not a type: {told_error(exc)}") from None
        return out

    def _parameter(
        self, item: inspect.Parameter, annotation: Any, described: Mapping[str, str], compiler: Compiler
    ) -> Parameter:
        default = item.default
        if is_field(default):
            # `x: int = Field(3, ge=1)`: pydantic's spelling of a default and its bounds.
            annotation, default = Annotated[annotation, default], EMPTY
        try:
            codec, notes = compiler.compile_noted(annotation)
            supply: Callable[[], Any] | None = None
            if notes is not None and default is EMPTY:
                # Python knows nothing of these.
                supply = notes.factory
                if notes.default is not MISSING:
                    default = notes.default
                    supply = functools.partial(copy.deepcopy, default)
        except Unsupported as exc:
            where = "".join(f" → {name}" for name in exc.where)
            raise self.error(f"parameter {item.name!r}{where}: {exc.message}") from None
        except RecursionError:
            raise self.error(f"parameter {item.name!r}: {annotation!r} refers to itself without an end") from None
        told = notes.members.get("description") if notes is not None else None
        return Parameter(item.name, codec, default, told or described.get(item.name), supply)

    def _given_schema(self, given: dict[str, Any]) -> GivenSchema:
        try:
            schema = GivenSchema(given)
        except BadSchema as exc:
            raise self.error(f"input_schema: {exc}") from None
        if schema.schema.get("type") != "object":
            raise self.error('input_schema: arguments are an object: it needs "type": "object"')
        return schema

    def _schema(self, compiler: Compiler) -> JSONSchema:
        if self._given is not None:
            names = {item.name for item in self.parameters}
            for name in self._given.schema.get("properties", {}):
                if name == self._context:
                    raise self.error(
                        f"input_schema has the property {name!r}, and the Context is passed as that; "
                        "give the parameter another name"
                    )
                if name not in names and not self._rest:
                    raise self.error(
                        f"input_schema has the property {name!r}, the function has no such parameter; it may take **arguments"
                    )
            return self._given.schema
        schema: JSONSchema = {"type": "object"}
        if self.parameters:
            schema["properties"] = {item.name: item.schema for item in self.parameters}
        required = [item.name for item in self.parameters if item.required]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        return with_reachable_marks(compiler.with_definitions(schema, [item.codec for item in self.parameters]))

    def output(self) -> tuple[Codec, JSONSchema]:
        """The codec of the return type, and its schema.

        Raises:
            RegistrationError: the type cannot be expressed as JSON.
        """
        compiler = Compiler(output=True, localns=self._localns)
        try:
            codec = compiler.compile(Any if self.returns is EMPTY else self.returns)
        except Unsupported as exc:
            where = "".join(f" → {name}" for name in exc.where)
            raise self.error(f"the return type{where}: {exc.message}") from None
        return codec, compiler.root_schema(codec)

    # -- calling

    def load(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments from the arguments of a call.

        Raises:
            Mismatch: with one problem for each thing that is wrong.
        """
        if self._given is not None:
            self._given.check(arguments)
        values: dict[str, Any] = {}
        found: Found | None = None
        taken = 0
        for name, load, required, supply in self._fills:
            value = arguments.get(name, _MISSING)
            if value is _MISSING:
                if required:
                    found = found or Found()
                    found.note(f"missing, expected {self._by_name[name].codec.expects}", name)
                elif supply is not None:
                    values[name] = supply()
                continue
            taken += 1
            try:
                values[name] = load(value)
            except Mismatch as exc:
                found = found or Found()
                found.under(name, exc)
        return self._loaded(arguments, values, taken, found)

    def load_in_pieces(self, arguments: dict[str, Any]) -> Generator[None, None, dict[str, Any]]:
        """The same as `load`, as a generator that yields where others may run: for large arguments.

        Raises:
            Mismatch: with one problem for each thing that is wrong.
        """
        if self._given is not None:
            yield from self._given.check_in_pieces(arguments, Pace())
        values: dict[str, Any] = {}
        found: Found | None = None
        taken = 0
        pace = Pace()
        for name, _, required, supply in self._fills:
            value = arguments.get(name, _MISSING)
            if value is _MISSING:
                if required:
                    found = found or Found()
                    found.note(f"missing, expected {self._by_name[name].codec.expects}", name)
                elif supply is not None:
                    values[name] = supply()
                continue
            taken += 1
            try:
                values[name] = yield from self._by_name[name].codec.pieces(value, False, pace)
            except Mismatch as exc:
                found = found or Found()
                found.under(name, exc)
            yield
        return self._loaded(arguments, values, taken, found)

    def _loaded(
        self, arguments: dict[str, Any], values: dict[str, Any], taken: int, found: Found | None
    ) -> dict[str, Any]:
        if taken < len(arguments) and self._rest:
            if self._context in arguments:
                found = found or Found()
                found.note(f"unexpected, {self.name} takes no such argument", self._context)
            values.update((name, value) for name, value in arguments.items() if name not in self._by_name)
        elif taken < len(arguments):
            found = found or Found()
            self._unexpected(arguments, found)
        if found:
            raise found.mismatch()
        return values

    def _unexpected(self, arguments: Mapping[str, Any], found: Found) -> None:
        names = list(self._by_name)
        takes = f"takes {', '.join(names)}" if names else "takes no arguments"
        asked = 0
        for name in arguments:
            if name in self._by_name:
                continue
            # To compare names takes long, and only the first lines are shown.
            close = difflib.get_close_matches(name, names, 1) if asked < _COMPARED and len(name) < 100 else ()
            asked += 1
            hint = f"; did you mean {close[0]!r}?" if close else ""
            found.note(f"unexpected, {self.name} {takes}{hint}", name)

    async def call(self, values: dict[str, Any], context: Any, threads: trio.CapacityLimiter) -> Any:
        """Call the function: an `async def` here, a plain `def` in a thread that a cancellation abandons."""
        if self._context is not None:
            values[self._context] = context
        if self.is_async:
            return await (self.fn(**values) if self._context is None else self._in_nursery(values, context))
        # Boxed, since trio refuses a coroutine as the result of a thread; a plain wrapper around an async function
        # hands one back, and it is run here.
        (result,) = await trio.to_thread.run_sync(lambda: (self.fn(**values),), abandon_on_cancel=True, limiter=threads)
        return await result if inspect.isawaitable(result) else result

    async def _in_nursery(self, values: dict[str, Any], context: Any) -> Any:
        """Call an async function that may start tasks: they end with it, and a crash of one is its own.

        The nursery is opened by the task that runs the function, so it moves along when the call becomes a task.
        """
        try:
            async with trio.open_nursery() as nursery:
                context.begin(nursery)
                value = await self.fn(**values)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup:
            # Only where it failed: an error of the function is not to be found in a group that it did not make.
            with unwrapped():
                raise
        return value


def _own_name(fn: Any, kind: str) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None)
    if name is None:
        name = type(fn).__name__
    if name == "<lambda>":
        raise RegistrationError(f"{kind}: a lambda has no name of its own; pass name=…")
    return str(name)


def _function_of(fn: Any) -> Any:
    """The function whose annotations and module count: under partials, wrappers and `__call__`."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif not inspect.isroutine(fn) and not inspect.isclass(fn) and callable(fn):
            fn = type(fn).__call__
        else:
            return fn


def _doc_of(fn: Any, target: Any) -> str | None:
    if inspect.isroutine(fn):
        return inspect.getdoc(fn)
    if isinstance(fn, functools.partial):
        return inspect.getdoc(target)
    return inspect.getdoc(target) or inspect.getdoc(type(fn))


def _is_async(fn: Any, target: Any, handler: Handler) -> bool:
    call = None if inspect.isroutine(fn) else _function_of(fn)
    for candidate in (fn, target, call):
        if inspect.isasyncgenfunction(candidate) or inspect.isgeneratorfunction(candidate):
            raise handler.error("a generator cannot be a handler; return a list, and report progress as it grows")
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or (call is not None and inspect.iscoroutinefunction(call))


def _closure_names(target: Any) -> dict[str, Any]:
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
    if code is None or not cells:
        return {}
    out: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return out


def caller_names(depth: int) -> dict[str, Any]:
    """The local names where a decorator was applied: types of a function's body are visible nowhere else.

    Args:
        depth: Frames above this call.
    """
    frame = sys._getframe(depth + 1)
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def title_of(name: str) -> str:
    """A name as a title: `read_file` becomes "Read file"."""
    words = name.replace("_", " ").replace("-", " ").replace(".", " ").split()
    text = " ".join(words)
    return text[:1].upper() + text[1:]

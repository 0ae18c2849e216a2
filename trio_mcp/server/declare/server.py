"""`Server`: what a person registers tools, resources and prompts on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, Generic, Literal, TypeVar, Unpack, overload

from ...errors import MCPError, RegistrationError
from ...limits import DEFAULT, Limits
from ...protocol.revisions import MODERN, Era
from ...tasks.store import TaskStore
from .completion import check_completion
from .context_base import LifespanT
from .definitions import (
    cache_hints,
    check_eras,
    check_function,
    check_info,
    check_resource,
    check_server,
    check_timeout,
    check_variables,
    check_wire,
    definition,
    resource_annotations,
    tool_annotations,
)
from .extensions import Extension
from .offers import Offers
from .options import CacheScope, Icons, PromptOptions, ResourceOptions, ToolOptions, check_options
from .output import inlined_for, output_of
from .registry import Prompt, Resource, Tool, check_name, parse_uri
from .signature import Handler, caller_names
from .state_keys import state_keys as make_state_keys

__all__ = ["Server"]

F = TypeVar("F", bound=Callable[..., Any])


class Server(Offers, Generic[LifespanT]):
    """A server, as a set of registered components. It does nothing until it is served.

    Args:
        name: Its name, for programs.
        version: Its version.
        title: Its name, for people.
        instructions: For the model: how to use this server.
        description: For people: what it is.
        website_url: Where to read more.
        icons: As in basic/index, section `icons`.
        lifespan: A function that takes the server and returns an async context manager. It is entered once, before
            the first request, inside the server's nursery, and left after the last; its value is `ctx.lifespan`.
        limits: Bounds; see `trio_mcp.limits`.
        page_size: Items on one page of a list.
        cache_ttl: Seconds that a client may keep a list, or what `server/discover` tells (server/utilities/caching).
        cache_scope: Who may share such a copy: "public" (anyone) or "private" (the same caller).
        state_keys: Keys of 32 bytes that seal what travels through a client between two rounds of a request. The first
            seals, all open. Without them: `TRIO_MCP_STATE_KEYS` in the environment (Base64, separated by commas), or a
            random key, which another process does not have.
        tasks: Where tasks are kept; without it in memory, and they end with the server.
        task_inline_ms: Milliseconds that a call which may become a task is given to end in line.
        extensions: Extensions that the server speaks.
        inline_refs: Whether the schemas of tools are written without `$ref`, for hosts that do not follow references. Types that
            refer to themselves are refused then.
        eras: Which kinds of revisions are spoken: "modern" (2026-07-28), "legacy" (2025-11-25 and older, with sessions), or both.
        expose_errors: Whether the text of unexpected exceptions goes to the peer. For development.

    Raises:
        RegistrationError: an argument is not what it should be.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        instructions: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Icons | None = None,
        lifespan: Callable[[Any], AbstractAsyncContextManager[LifespanT]] | None = None,
        limits: Limits = DEFAULT,
        expose_errors: bool = False,
        page_size: int = 50,
        cache_ttl: float = 0,
        cache_scope: CacheScope = "public",
        state_keys: Sequence[bytes] | None = None,
        tasks: TaskStore | None = None,
        task_inline_ms: int = 100,
        extensions: Sequence[Extension] = (),
        inline_refs: bool = False,
        eras: Collection[Literal["modern", "legacy"]] = ("modern", "legacy"),
    ) -> None:
        check_server(name, version, limits, lifespan, page_size, tasks, task_inline_ms)
        super().__init__(limits, tasks)
        self.name: str = name
        self.version: str = version
        self.title: str | None = title
        self.instructions: str | None = instructions
        self.description: str | None = description
        self.website_url: str | None = website_url
        self.icons: Icons | None = icons
        self.lifespan: Callable[[Any], AbstractAsyncContextManager[LifespanT]] | None = lifespan
        self.expose_errors: bool = expose_errors
        self.page_size: int = page_size
        self.state_keys: list[bytes] = make_state_keys(state_keys)
        self.hints: dict[str, Any] = cache_hints("Server", cache_ttl, cache_scope)
        self.revisions: Final = MODERN
        self.task_inline_ms: int = task_inline_ms
        self.inline_refs: bool = inline_refs
        self.eras: frozenset[Era] = check_eras(eras)
        about = {"name": name, "version": version, "title": title, "description": description}
        self._info = check_info({**about, "websiteUrl": website_url, "icons": icons}, instructions)
        self._open = False
        for extension in extensions:
            self.add_extension(extension)

    def __repr__(self) -> str:
        counts = f"{len(self._tools)} tools, {len(self._resources) + len(self._templates)} resources"
        return f"<Server {self.name!r}: {counts}, {len(self._prompts)} prompts>"

    def info(self) -> dict[str, Any]:
        """The `Implementation` object that says who this is."""
        return dict(self._info)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Held while the server is open.

        Raises:
            MCPError: it is open already.
        """
        if self._open:
            raise MCPError(
                f"Server {self.name!r} is open already; to serve it in several ways at once, open it once with "
                "open_server(server) and pass what that gives to serve_stdio, serve_stream or open_client"
            )
        self._open = True
        try:
            with self.notices.open():
                yield
        finally:
            self._open = False

    def run(self) -> None:
        """Serve on standard input and output until they end, and exit the process: the last line of a server's file.

        SIGINT and SIGTERM end it within `limits.drain_timeout`. Inside a program of your own that runs trio already,
        use `serve_stdio`.

        Raises:
            SystemExit: at the end; status 0 after the end of input or a signal, 1 when it could not serve.
        """
        # What serves stands above what is served, and is loaded by those who run this.
        sys.exit(importlib.import_module("trio_mcp.serve").run_stdio(self))

    # -- registration

    @overload
    def tool(self, fn: F, /, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def tool(self, fn: None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, fn: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
        """Register a tool: `@server.tool`, `@server.tool(...)` or `server.tool(function, ...)`.

        Parameters and their descriptions come from the signature and the docstring; a parameter of type `Context` is
        filled in. The function may be `async def`, or plain `def`: then it runs in a thread.

        Args:
            fn: The function.
            options: As `ToolOptions` has them.

        Returns:
            The function itself, or a decorator.

        Raises:
            RegistrationError: the function cannot be a tool, or the name is taken; the text says why and where.
        """
        names = caller_names(1)
        check_options("tool", options, ToolOptions)

        def register(function: Any) -> Any:
            handler = Handler(function, "tool", options.get("name"), names, options.get("input_schema"))
            check_name("tool", handler.name)
            if handler.name in self._tools:
                raise handler.error("a tool of this name is registered already")
            output, schema = output_of(handler, options.get("structured"), options.get("output_schema"))
            wire = definition(handler, options)
            wire["inputSchema"] = (
                inlined_for(handler, handler.input_schema) if self.inline_refs else handler.input_schema
            )
            if schema is not None:
                wire["outputSchema"] = inlined_for(handler, schema) if self.inline_refs else schema
            if annotations := options.get("annotations"):
                wire["annotations"] = tool_annotations(handler, annotations)
            check_wire(handler, wire, self.limits)
            self._tools[handler.name] = Tool(
                handler,
                wire,
                output,
                check_timeout(handler, options.get("timeout"), options.get("task_support", "forbidden")),
                options.get("task_support", "forbidden"),
                options.get("task_inline_ms"),
                options.get("restartable", False),
            )
            self._changed("tools")
            return function

        return register if fn is None else register(check_function(fn, "tool"))

    def resource(self, uri: str, /, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Register a resource: `@server.resource("notes://today")`, or a template `@server.resource("notes://{day}")`.

        The function's parameters are the variables of the template. It returns text, bytes, any JSON value,
        `ResourceContents` or a list of them, or a `ReadResourceResult`.

        Args:
            uri: A URI, or a URI template (RFC 6570).
            options: As `ResourceOptions` has them.

        Raises:
            RegistrationError: the URI or the template is not valid or taken, or its variables are not the parameters.
        """
        if not isinstance(uri, str):
            raise RegistrationError(f"@server.resource needs the URI: @server.resource('notes://today'), got {uri!r}")
        names = caller_names(1)
        check_options("resource", options, ResourceOptions)
        mime_type, size = options.get("mime_type"), options.get("size")

        def register(function: F) -> F:
            template = parse_uri("resource", uri, self.limits)
            handler = Handler(function, "resource", options.get("name"), names)
            if uri in self._resources or uri in self._templates:
                raise handler.error(f"a resource at {uri!r} is registered already")
            check_variables(handler, uri, template.names if template else (), template.optional if template else ())
            wire = definition(handler, options)
            wire["uriTemplate" if template else "uri"] = uri
            if mime_type is not None:
                wire["mimeType"] = mime_type
            if annotations := options.get("annotations"):
                wire["annotations"] = resource_annotations(handler, annotations)
            if size is not None and not template:
                wire["size"] = size
            check_resource(handler, mime_type, size)
            check_wire(handler, wire, self.limits)
            ttl, scope = options.get("cache_ttl", 0), options.get("cache_scope", "private")
            hints = cache_hints(f"resource {uri!r}", ttl, scope)
            timeout = check_timeout(handler, options.get("timeout"))
            entry = Resource(handler, uri, template, wire, mime_type, timeout, hints)
            (self._templates if template else self._resources)[uri] = entry
            self._changed("resources")
            return function

        return register

    @overload
    def prompt(self, fn: F, /, **options: Unpack[PromptOptions]) -> F: ...

    @overload
    def prompt(self, fn: None = None, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...

    def prompt(self, fn: Any = None, /, **options: Unpack[PromptOptions]) -> Any:
        """Register a prompt: `@server.prompt`, `@server.prompt(...)` or `server.prompt(function)`.

        Arguments arrive as text; a parameter of another type takes the JSON value of the text (`"3"` for an int). The
        function returns text, a content block, a `PromptMessage`, a list of these, or a `GetPromptResult`.

        Args:
            fn: The function.
            options: As `PromptOptions` has them.

        Raises:
            RegistrationError: the function cannot be a prompt, or the name is taken.
        """
        names = caller_names(1)
        check_options("prompt", options, PromptOptions)

        def register(function: Any) -> Any:
            handler = Handler(function, "prompt", options.get("name"), names)
            check_name("prompt", handler.name)
            if handler.name in self._prompts:
                raise handler.error("a prompt of this name is registered already")
            wire = definition(handler, options)
            if handler.parameters:
                wire["arguments"] = [
                    {
                        "name": item.name,
                        **({"description": item.description} if item.description else {}),
                        "required": item.required,
                    }
                    for item in handler.parameters
                ]
            check_wire(handler, wire, self.limits)
            self._prompts[handler.name] = Prompt(handler, wire, check_timeout(handler, options.get("timeout")))
            self._changed("prompts")
            return function

        return register if fn is None else register(check_function(fn, "prompt"))

    def completion(self, ref: str, argument: str, /) -> Callable[[F], F]:
        """Register what completes an argument: `@server.completion("greet", "name")`.

        The function takes `value`, the text so far, and may take `arguments` (those that are chosen already, by name) and a
        Context. It returns a list of text, the best first, or a `Completion`.

        Args:
            ref: The name of a prompt, or the text of a resource template, that is registered already.
            argument: Its argument.

        Raises:
            RegistrationError: there is no such prompt, template or argument, or it is completed already.
        """
        names = caller_names(1)

        def register(function: F) -> F:
            handler = Handler(function, "completion", f"{ref}.{argument}", names)
            key = check_completion(handler, self.registry, ref, argument)
            if key in self._completions:
                raise handler.error("a completion of this argument is registered already")
            self._completions[key] = handler
            self._registry = None
            return function

        return register

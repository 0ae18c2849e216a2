"""`Client`: what a program calls a server with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from ..errors import HeaderMismatch, LegacyServer, MCPError, RequestTimeout, ToolError
from ..limits import Limits
from ..protocol.content import optional
from ..protocol.jsontext import find_unwritable
from ..protocol.meta import LOG_LEVELS, SERVER_INFO, request_meta
from ..protocol.results import CallToolResult, GetPromptResult, ReadResourceResult, require
from ..protocol.revisions import ERAS, LATEST, Era
from ..protocol.tasks import TASKS
from .answers import Answers
from .channel import Channel, Listener, LogCallback, ProgressCallback
from .era import era_error
from .listening import Changes, open_changes
from .listing import PromptInfo, ResourceInfo, ResourceTemplateInfo, ToolInfo, all_pages
from .rounds import Patience, ask
from .tasks import RemoteTask, StateCallback, TaskState

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """One server, as a program calls it. Made by `open_client`; calls may overlap freely.

    Every call may be cancelled: leaving a cancel scope around it stops the work on the server. Every call takes a
    `timeout` in seconds; without one `limits.client_timeout` counts.

    Attributes:
        server_info: What the server says it is (`name`, `version`, …); empty when it does not.
        capabilities: What it can do.
        instructions: How it wants to be used, or None.
        protocol_version: The revision in use.
        limits: Bounds.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        info: dict[str, Any],
        limits: Limits,
        answers: Answers | None = None,
        extensions: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self._extensions = dict(extensions or {})
        self._answers = answers or Answers()
        self._channel = channel
        self._info = info
        self.limits: Limits = limits
        self.server_info: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        self.instructions: str | None = None
        self.protocol_version: str = LATEST

    def speak(
        self,
        channel: Channel,
        revision: str,
        info: dict[str, Any],
        capabilities: dict[str, Any],
        instructions: str | None,
    ) -> None:
        """Called when the server has answered `initialize`: speak an older revision from now on."""
        self._channel, self.protocol_version = channel, revision
        self.server_info, self.capabilities, self.instructions = info, capabilities, instructions

    @property
    def era(self) -> Era:
        """Whether the server speaks the modern revision, or an older one in a session."""
        return ERAS[self.protocol_version]

    def __repr__(self) -> str:
        return f"<Client of {self._channel.peer}>"

    @property
    def peer(self) -> str:
        """What the client is connected to: a command, a URL or a name."""
        return self._channel.peer

    @property
    def reconnects(self) -> bool:
        """Whether a request may succeed after one that failed with `ConnectionClosed`."""
        return self._channel.reconnects

    # -- the general form

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        log_level: str = "info",
        meta: dict[str, Any] | None = None,
        result_types: Collection[str] = (),
    ) -> dict[str, Any]:
        """Send any request; return its complete result as it came.

        Args:
            method: The method.
            params: Its parameters, without the `_meta` that every request has.
            timeout: Seconds to wait for the answer, over all its rounds, without the time that answering questions takes.
            on_progress: Called with progress, total, message; plain or async, in this task.
            on_log: Called with level, data, logger. The server sends nothing without it. On stdio a log line does not
                say which call it belongs to: every call under way that asked for lines of its level hears it.
            log_level: The least severe level to ask for.
            meta: More members for `_meta`, for instance `traceparent`.
            result_types: Types of results, besides "complete", that the caller knows what to do with: those of an extension.
                "task" tells the server that the request may become a task.

        Raises:
            ProtocolError: the server answered with an error; the class tells which.
            RequestTimeout: no answer in time. The server is told to stop.
            ConnectionClosed: the connection ended.
            InputNeeded: the server asks for input that this client cannot give.
            InvalidResponse: the answer is not a complete result.
            ValueError: the parameters are not JSON, or the request is over `limits.message_bytes` or `limits.json_depth`.
        """
        return await self._request(
            method,
            params,
            self._patience(timeout),
            on_progress=on_progress,
            on_log=on_log,
            log_level=log_level,
            meta=meta,
            result_types=result_types,
        )

    async def _request(
        self,
        method: str,
        params: dict[str, Any] | None,
        patience: Patience,
        *,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        log_level: str = "info",
        meta: dict[str, Any] | None = None,
        result_types: Collection[str] = (),
    ) -> dict[str, Any]:
        if log_level not in LOG_LEVELS:
            raise ValueError(f"log_level: no level {log_level!r}; the levels are {', '.join(LOG_LEVELS)}")
        bad = find_unwritable(params) if params else None
        if bad:
            raise ValueError(f"{method}: the parameters cannot be sent: {bad}")
        message = dict(params) if params else {}
        message["_meta"] = request_meta(
            self._info,
            self._capabilities("task" in result_types),
            self.protocol_version,
            log_level=log_level if on_log else None,
            extra=meta,
        )
        most = self.limits.client_events

        def listen() -> Listener:
            return Listener(on_progress, on_log, log_level, most=most)

        return await ask(self._channel, method, message, listen, patience, self._answers, self.limits, result_types)

    def _patience(self, timeout: float | None) -> Patience:
        return Patience(self.limits.client_timeout if timeout is None else timeout)

    def _capabilities(self, tasks: bool) -> dict[str, Any]:
        """What this client declares on a request."""
        extensions = {**self._extensions, TASKS: {}} if tasks else self._extensions
        return {**self._answers.capabilities, "extensions": extensions} if extensions else self._answers.capabilities

    async def answers_to(self, requests: dict[str, Any], method: str) -> dict[str, Any]:
        """Answers to questions of the server, from the callbacks of this client, by key.

        Raises:
            InputNeeded: there is no callback for one of them.
            InvalidResponse: one is none that a server may ask.
        """
        answers: dict[str, Any] = (await self._answers.answer({"inputRequests": requests}, method))["inputResponses"]
        return answers

    async def discover(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Ask the server who it is (server/discover). `open_client` has done so already.

        Raises:
            LegacyServer: it does not speak a revision that this client speaks, or may not.
            MCPError: as for `request`.
        """
        try:
            result = await self.request("server/discover", timeout=timeout)
        except MCPError as exc:
            told = era_error(exc, self.peer)
            if told is exc:
                raise
            raise told from exc
        versions = require(result, "supportedVersions", list, "server/discover")
        if LATEST not in versions:
            raise LegacyServer(f"{self.peer} speaks {', '.join(map(str, versions))}, not {LATEST}")
        self.capabilities = require(result, "capabilities", dict, "server/discover")
        self.instructions = optional(result, "instructions", str)
        info = (optional(result, "_meta", dict) or {}).get(SERVER_INFO)
        self.server_info = info if isinstance(info, dict) else {}
        return result

    # -- tools

    async def list_tools(self, *, timeout: float | None = None) -> list[ToolInfo]:
        """All tools, over all pages. Empty when the server has none.

        Raises:
            MCPError: as for `request`.
        """
        return await self._list("tools/list", "tools", ToolInfo.from_wire, self._patience(timeout))

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        log_level: str = "info",
        raise_on_error: bool = False,
        meta: dict[str, Any] | None = None,
        on_task: StateCallback | None = None,
    ) -> CallToolResult:
        """Call a tool, and wait for its result, also when the server makes a task of the call.

        Then `timeout` is the time for all of it, and without one it takes as long as it takes. Leaving the call cancels the
        task; `start_tool` gives one that stays.

        Args:
            name: Its name.
            arguments: By name, JSON values.
            timeout: As for `request`, and so are the callbacks, `log_level` and `meta`.
            on_progress: Hears progress.
            on_log: Hears log lines.
            log_level: The least severe level to ask for.
            raise_on_error: Raise `ToolError` for a result with `isError`, instead of returning it.
            meta: More members for `_meta`.
            on_task: Called with each state of the task that the call has become.

        Raises:
            TaskCancelled: it became a task, and somebody cancelled that.
            ToolError: with the text of the failed result, if asked for.
            MCPError: as for `request`.
        """
        patience = self._patience(timeout)
        task = await self._start_tool(
            name, arguments, patience, on_progress=on_progress, on_log=on_log, log_level=log_level, meta=meta
        )
        if task.id is None:
            answer = await task.result()
        else:
            left = None if timeout is None else patience.left
            try:
                answer = await task.result(timeout=left, on_state=on_task)
            except RequestTimeout:
                if timeout is None:
                    raise  # of one look at the task
                told = f"tools/call: no result from {self.peer} within {timeout:g} s; the task that it became was cancelled"
                raise RequestTimeout(told) from None
            finally:
                if task.state is None or not task.state.final:
                    await task.end()
        if answer.is_error and raise_on_error:
            raise ToolError(answer.text or f"tool {name!r} failed")
        return answer

    async def start_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        log_level: str = "info",
        meta: dict[str, Any] | None = None,
    ) -> RemoteTask:
        """Call a tool without waiting for more than the server's first answer: a task, or the result if that was quick.

        The server decides. `task.result()` gives the result in both cases; `task.id` finds a task again, from any program.

        Args:
            name: Its name.
            arguments: By name, JSON values.
            timeout: Seconds to wait for the first answer; the others are those of `request`, too.
            on_progress: Hears progress, until the call becomes a task.
            on_log: Hears log lines, until then.
            log_level: The least severe level to ask for.
            meta: More members for `_meta`.

        Raises:
            MCPError: as for `request`.
        """

        return await self._start_tool(
            name,
            arguments,
            self._patience(timeout),
            on_progress=on_progress,
            on_log=on_log,
            log_level=log_level,
            meta=meta,
        )

    async def _start_tool(
        self, name: str, arguments: dict[str, Any] | None, patience: Patience, **options: Any
    ) -> RemoteTask:
        async def call() -> dict[str, Any]:
            return await self._request(
                "tools/call",
                {"name": name, "arguments": arguments or {}},
                patience,
                result_types=("task",),
                **options,
            )

        try:
            result = await call()
        except HeaderMismatch:
            # Arguments that go into headers are known from the list, and may have changed since (streamable-http, section
            # Client Behavior). Nothing has run: the server refused before.
            await self._list("tools/list", "tools", ToolInfo.from_wire, patience)
            result = await call()
        if result.get("resultType") == "task":
            state = TaskState.from_wire(result, "tools/call")
            return RemoteTask(self, state.id, state)
        return RemoteTask(self, None, TaskState("", "completed", result=result))

    def task(self, id: str) -> RemoteTask:
        """A task that was started before, here or anywhere.

        Args:
            id: Its `id`.
        """
        return RemoteTask(self, id)

    # -- resources

    async def list_resources(self, *, timeout: float | None = None) -> list[ResourceInfo]:
        """All resources with a fixed URI. Empty when the server has none."""
        return await self._list("resources/list", "resources", ResourceInfo.from_wire, self._patience(timeout))

    async def list_resource_templates(self, *, timeout: float | None = None) -> list[ResourceTemplateInfo]:
        """All resource templates. Empty when the server has none."""
        return await self._list(
            "resources/templates/list", "resourceTemplates", ResourceTemplateInfo.from_wire, self._patience(timeout)
        )

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        log_level: str = "info",
        meta: dict[str, Any] | None = None,
    ) -> ReadResourceResult:
        """Read a resource. The arguments are those of `request`.

        Raises:
            InvalidParams: there is no such resource.
            MCPError: as for `request`.
        """
        result = await self.request(
            "resources/read",
            {"uri": uri},
            timeout=timeout,
            on_progress=on_progress,
            on_log=on_log,
            log_level=log_level,
            meta=meta,
        )
        return ReadResourceResult.from_wire(result)

    # -- changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
        tasks: Sequence[str] = (),
    ) -> AbstractAsyncContextManager[Changes]:
        """Hear of changes while a block lasts (basic/patterns/subscriptions).

            async with client.listen(tools=True, uris=["notes://today"]) as changes:
                async for change in changes:
                    print(change.kind, change.uri)

        The block begins when the server has acknowledged; `changes.agreed` says what it can tell. The iteration ends when
        the server ends it, and raises `ConnectionClosed` when the connection does. A change that happens again before it is
        taken is one change.

        Args:
            tools: Whether to hear that the list of tools has changed.
            prompts: The same for prompts.
            resources: The same for resources and templates.
            uris: Resources whose updates to hear of.
            tasks: Ids of tasks to hear of: first how each stands, then each change, in `change.task`.

        Raises:
            MethodNotFound: the server tells no changes.
            MCPError: as for `request`.
        """
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True
            for kind, want in (("tools", tools), ("prompts", prompts), ("resources", resources))
            if want
        }
        if uris:
            wanted["resourceSubscriptions"] = list(uris)
        if tasks:
            wanted["taskIds"] = list(tasks)
        meta = request_meta(self._info, self._capabilities(bool(tasks)), self.protocol_version)
        return open_changes(self._channel, {"notifications": wanted, "_meta": meta}, self.limits)

    # -- prompts

    async def list_prompts(self, *, timeout: float | None = None) -> list[PromptInfo]:
        """All prompts. Empty when the server has none."""
        return await self._list("prompts/list", "prompts", PromptInfo.from_wire, self._patience(timeout))

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, str] | None = None,
        *,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
        on_log: LogCallback | None = None,
        log_level: str = "info",
        meta: dict[str, Any] | None = None,
    ) -> GetPromptResult:
        """Get a prompt. Its arguments are texts; the others are those of `request`.

        Raises:
            InvalidParams: there is no such prompt, or an argument is wrong.
            MCPError: as for `request`.
        """
        result = await self.request(
            "prompts/get",
            {"name": name, "arguments": arguments or {}},
            timeout=timeout,
            on_progress=on_progress,
            on_log=on_log,
            log_level=log_level,
            meta=meta,
        )
        return GetPromptResult.from_wire(result)

    async def complete(
        self,
        ref: str,
        argument: str,
        value: str = "",
        *,
        arguments: dict[str, str] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Ask for suggestions for an argument (server/utilities/completion).

        Args:
            ref: The name of a prompt, or the text of a resource template (anything with `://` or `{` in it is one).
            argument: Which argument.
            value: What is typed so far.
            arguments: The others that are chosen already.
            timeout: As for `request`.

        Returns:
            An object with `values`, and perhaps `total` and `hasMore`.

        Raises:
            MCPError: as for `request`.
        """
        template = "://" in ref or "{" in ref
        params: dict[str, Any] = {
            "ref": {"type": "ref/resource", "uri": ref} if template else {"type": "ref/prompt", "name": ref},
            "argument": {"name": argument, "value": value},
        }
        if arguments:
            params["context"] = {"arguments": arguments}
        result = await self.request("completion/complete", params, timeout=timeout)
        completion: dict[str, Any] = require(result, "completion", dict, "completion/complete")
        require(completion, "values", list, "completion/complete")
        return completion

    # -- pages

    async def _list(self, method: str, key: str, read: Callable[[Any], T], patience: Patience) -> list[T]:
        async def page(params: dict[str, Any]) -> dict[str, Any]:
            return await self._request(method, params, patience)

        items = await all_pages(page, method, key, self._channel.learn_tools if key == "tools" else list, self.limits)
        return [read(item) for item in items]

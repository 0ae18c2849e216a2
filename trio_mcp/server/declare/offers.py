"""What a server offers right now, as it changes, and who is told."""

from __future__ import annotations

from collections.abc import Callable

from ...limits import Limits
from ...protocol.listening import LIST_CHANGED, RESOURCE_UPDATED
from ...protocol.tasks import TASKS
from ...scopes.notices import Notices
from ...tasks.memory import MemoryTaskStore
from ...tasks.store import TaskStore
from ..peer.session import Session
from .completion import CompletionKey
from .extensions import Extension, ExtensionSet
from .registry import Prompt, Registry, Resource, Tool
from .signature import Handler

__all__ = ["Offers"]


class Offers:
    """Components by name, and a snapshot of them.

    Attributes:
        limits: Bounds.
        task_store: Where tasks are kept. May be replaced while the server is not open.
        extensions: The extensions that are spoken.
        notices: Those who listen for changes.
        list_sessions: The sessions that are open, while the server is.
        has_tasks: Whether work goes on that has outlived its request; may be called from any thread.
        stage: Where the life of the server stands: `closed`, `entering` the lifespan, `open` or `leaving` it; and since when
            (`time.monotonic`). May be read from any thread.
    """

    def __init__(self, limits: Limits, task_store: TaskStore | None) -> None:
        self.limits: Limits = limits
        self.task_store: TaskStore = MemoryTaskStore() if task_store is None else task_store
        # A store that was brought may hold tasks from before.
        self._speaks_tasks = task_store is not None
        self.extensions: ExtensionSet = ExtensionSet()
        self.has_tasks: Callable[[], bool] = bool
        self.list_sessions: Callable[[], list[Session]] = list
        self.stage: tuple[str, float] = ("closed", 0.0)
        self.notices: Notices = Notices(limits.listeners, retry_after=limits.retry_after)
        self._tools: dict[str, Tool] = {}
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, Resource] = {}
        self._prompts: dict[str, Prompt] = {}
        self._completions: dict[CompletionKey, Handler] = {}
        self._registry: Registry | None = None
        self._declared: set[str] = set()

    @property
    def sessions(self) -> list[Session]:
        """The clients that have opened a session (2025-11-25 and older), while the server is open. Those of the modern revision
        have none: each of their requests stands alone."""
        return self.list_sessions()

    @property
    def registry(self) -> Registry:
        """An immutable snapshot of what is registered; the same object until something changes."""
        if self._registry is None:
            settings = self.extensions.settings
            if self._speaks_tasks or any(tool.task_support != "forbidden" for tool in self._tools.values()):
                # From then on, for there may be tasks of tools that are registered no more.
                self._speaks_tasks = True
                settings = {TASKS: {}, **settings}
            self._registry = Registry(
                self._tools,
                self._resources,
                self._templates,
                self._prompts,
                self._completions,
                settings,
                self._declared,
            )
            self._declared.update(self._registry.capabilities)
        return self._registry

    def add_extension(self, extension: Extension) -> None:
        """Speak an extension.

        Raises:
            RegistrationError: it is there already, or one of its methods is.
        """
        self.extensions.add(extension)
        self._registry = None

    def remove_tool(self, name: str) -> None:
        """Take a tool back; calls that run go on.

        Raises:
            KeyError: there is none of this name.
        """
        del self._tools[name]
        self._changed("tools")

    def remove_resource(self, uri: str) -> None:
        """Take a resource or template back.

        Raises:
            KeyError: there is none at this URI.
        """
        del (self._templates if uri in self._templates else self._resources)[uri]
        self._forget(uri)
        self._changed("resources")

    def remove_prompt(self, name: str) -> None:
        """Take a prompt back.

        Raises:
            KeyError: there is none of this name.
        """
        del self._prompts[name]
        self._forget(name)
        self._changed("prompts")

    def _forget(self, ref: str) -> None:
        self._completions = {key: handler for key, handler in self._completions.items() if key[0] != ref}

    def _changed(self, kind: str) -> None:
        self._registry = None
        self.notices.publish(LIST_CHANGED[kind])

    # -- telling those who listen

    def notify_resource_updated(self, uri: str) -> None:
        """Tell those who listen for it that what a resource holds has changed (subscriptions/listen).

        Not async, never waits, callable from any thread. A listener that has not heard of the last change of this URI yet
        hears of both as one. Changes of the lists (tools, resources, prompts) are told by themselves.

        Args:
            uri: Of a resource, or one that a template serves.
        """
        self.notices.publish(RESOURCE_UPDATED, uri)

"""The client: calls, results, callbacks. No transport."""

from .channel import Channel, Listener
from .client import Client
from .listening import Change, Changes
from .listing import PromptArgument, PromptInfo, ResourceInfo, ResourceTemplateInfo, ToolInfo
from .tasks import RemoteTask, TaskState

__all__ = [
    "Change",
    "Changes",
    "Channel",
    "Client",
    "Listener",
    "PromptArgument",
    "PromptInfo",
    "RemoteTask",
    "ResourceInfo",
    "ResourceTemplateInfo",
    "TaskState",
    "ToolInfo",
]

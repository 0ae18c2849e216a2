"""The client: calls, results, callbacks. No transport."""

from .channel import Channel, Listener
from .client import Client
from .listing import PromptArgument, PromptInfo, ResourceInfo, ResourceTemplateInfo, ToolInfo

__all__ = [
    "Channel",
    "Client",
    "Listener",
    "PromptArgument",
    "PromptInfo",
    "ResourceInfo",
    "ResourceTemplateInfo",
    "ToolInfo",
]

"""What a listener holds and is told."""

from __future__ import annotations

from trio_mcp.scopes.notices import Notices


async def test_what_has_changed_before_the_end_is_told_before_the_end() -> None:
    notices = Notices(1)
    with notices.open(), notices.subscribe(lambda method, uri: uri != "other") as subscription:
        notices.publish("changed", "one")
        notices.publish("changed", "other")
        notices.publish("changed", "one")
        subscription.end()
        assert await subscription.next() == [("changed", "one")]
        assert await subscription.next() is None

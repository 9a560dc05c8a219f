"""Messages that no consumer can read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.background.consumers import BODY

if TYPE_CHECKING:
    import redis

UNREADABLE = '{"order_id": '


def publish_unreadable(access: StoreAccess, stream: str) -> None:
    """Add a message to a stream whose body breaks off."""
    client = access.administrator()
    try:
        client.xadd(stream, {BODY: UNREADABLE})
        client.incr(f"{stream}:published")
    finally:
        client.close()


def remove_unreadable(access: StoreAccess, stream: str) -> None:
    """Delete all messages of a stream that no consumer can read; the consumers see that they are gone."""
    client = access.administrator()
    try:
        if found := unreadable_messages(client, stream):
            client.xdel(stream, *found)
    finally:
        client.close()


def unreadable_messages(client: redis.Redis, stream: str) -> list[str]:
    """Return the identities of the messages of a stream that no consumer can read."""
    entries: Any = client.xrange(stream) or []
    return [identity for identity, fields in entries if fields and not is_readable(fields.get(BODY, "{}"))]


def is_readable(body: str) -> bool:
    """Say whether a message's body is what consumers understand: JSON.

    >>> is_readable('{"order_id": "1"}'), is_readable("{order")
    (True, False)
    """
    try:
        json.loads(body)
    except ValueError:
        return False
    return True

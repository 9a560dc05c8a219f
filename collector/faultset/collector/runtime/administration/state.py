"""What the store of this pod allows and refuses at present."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.file_limits import file_limit
from faultset.collector.runtime.administration.messages import unreadable_messages

if TYPE_CHECKING:
    import redis

_NOTHING = "faultset:none"
"""Key that no store has."""


def store_state(access: StoreAccess, *, stream: str | None = None) -> dict[str, Any]:
    """Return what a store says to its application and its administrator.

    `write_refused` and `consume_refused` hold the reasons, empty without; `file_limit` the bytes that a file of the
    server may have, and `file_write` how its last write ended; `unreadable` the number of messages of a stream that
    nobody can read.
    """
    administrator, application = access.administrator(), access.application()
    try:
        found: dict[str, Any] = {
            "write_refused": _refusal(application, "DEL", _NOTHING),
            "consume_refused": _refusal(
                application, "XREADGROUP", "GROUP", "none", "none", "COUNT", "1", "STREAMS", _NOTHING, ">"
            ),
            "file_limit": file_limit(access),
            "file_write": administrator.info("persistence").get("aof_last_write_status", "ok"),
        }
        if stream is not None:
            found["unreadable"] = len(unreadable_messages(administrator, stream))
        return found
    finally:
        administrator.close()
        application.close()


def _refusal(client: redis.Redis, *command: str) -> str:
    """Return why a command that changes nothing is refused; empty when it is not, or there is only nothing to read."""
    import redis

    try:
        client.execute_command(*command)
    except redis.ResponseError as error:
        return "" if str(error).startswith("NOGROUP") else str(error)
    return ""

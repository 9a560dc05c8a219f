"""What an administrator can do inside the pod of a store, whatever runs there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class StoreAdministration(Protocol):
    """The administrator of one store; every method raises PlatformError where the store cannot do it or refuses."""

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Begin to hold everything in the store locked for a time, again and again; return at once."""
        ...

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Begin to run a long query, again and again; return at once."""
        ...

    def limit_files(self, leave: int) -> None:
        """Let the server's files grow by so many bytes and no more."""
        ...

    def free_files(self) -> None:
        """Let the server's files grow again."""
        ...

    def publish_unreadable(self, stream: str) -> None:
        """Publish a message that nobody can read."""
        ...

    def remove_unreadable(self, stream: str) -> None:
        """Remove all messages that nobody can read."""
        ...

    def state(self, stream: str | None) -> dict[str, Any]:
        """Return what the store says to its application and its administrator.

        `write_refused` and `consume_refused` hold the reasons, empty without; `file_limit` the bytes that a file of
        the server may have, and `file_write`, where the server says it, how its last write ended; `unreadable` the
        number of messages of a stream that nobody can read.
        """
        ...

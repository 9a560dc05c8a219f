"""What an administrator can do inside the pod of a store, whatever runs there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Never

from faultset.core.errors import PlatformError


class StoreAdministration(ABC):
    """The administrator of one store; every method raises PlatformError where the store cannot do it or refuses.

    What a kind of store does not override it cannot do.

    Attributes
    ----------
    system
        What the store is, for messages.
    """

    system: ClassVar[str]

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Begin to hold everything in the store locked for a time, again and again; return at once."""
        self._cannot("locks")

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Begin to run a long query, again and again; return at once."""
        self._cannot("queries")

    def limit_files(self, leave: int) -> None:
        """Let the server's files grow by so many bytes and no more."""
        self._cannot("files")

    def free_files(self) -> None:
        """Let the server's files grow again."""
        self._cannot("files")

    def publish_unreadable(self, stream: str) -> None:
        """Publish a message that nobody can read."""
        self._cannot("messages")

    def remove_unreadable(self, stream: str) -> None:
        """Remove all messages that nobody can read."""
        self._cannot("messages")

    @abstractmethod
    def state(self, stream: str | None) -> dict[str, Any]:
        """Return what the store says to its application and its administrator.

        `write_refused` and `consume_refused` hold the reasons, empty without; `file_limit` the bytes that a file of
        the server may have, and `file_write`, where the server says it, how its last write ended; `unreadable` the
        number of messages of a stream that nobody can read.
        """

    def _cannot(self, what: str) -> Never:
        raise PlatformError(f"{self.system} has no {what}; choose another store")

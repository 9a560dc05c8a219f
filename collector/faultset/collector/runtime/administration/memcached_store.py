"""The administrator of a memcached, who has next to nothing to do: it knows no accounts, locks, queries or files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Never

from faultset.core.errors import PlatformError


class MemcachedAdministration:
    """See `StoreAdministration`."""

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Raise PlatformError."""
        self._cannot("locks")

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Raise PlatformError."""
        self._cannot("queries")

    def limit_files(self, leave: int) -> None:
        """Raise PlatformError."""
        self._cannot("files")

    def free_files(self) -> None:
        """Raise PlatformError."""
        self._cannot("files")

    def publish_unreadable(self, stream: str) -> None:
        """Raise PlatformError."""
        self._cannot("messages")

    def remove_unreadable(self, stream: str) -> None:
        """Raise PlatformError."""
        self._cannot("messages")

    def state(self, stream: str | None) -> dict[str, Any]:
        """Return that nothing is refused: nothing can be."""
        return {"write_refused": "", "consume_refused": "", "file_limit": None}

    def _cannot(self, what: str) -> Never:
        raise PlatformError(f"memcached has no {what}; choose another store")

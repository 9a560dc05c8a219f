"""The administrator of a store over Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.file_limits import free_files, limit_files
from faultset.collector.runtime.administration.long_queries import begin_locking, begin_reporting
from faultset.collector.runtime.administration.messages import publish_unreadable, remove_unreadable
from faultset.collector.runtime.administration.state import store_state
from faultset.collector.runtime.administration.store_administration import StoreAdministration


class RedisAdministration(StoreAdministration):
    """See `StoreAdministration`."""

    system = "redis"

    def __init__(self, access: StoreAccess):
        self._access = access

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Pause all clients."""
        begin_locking(self._access, on_ms=on_ms, off_ms=off_ms, seconds=seconds, pid_file=pid_file)

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Compare documents in a script, while nobody else is answered."""
        begin_reporting(self._access, on_ms=on_ms, off_ms=off_ms, seconds=seconds, pid_file=pid_file)

    def limit_files(self, leave: int) -> None:
        """Limit the append-only file."""
        limit_files(self._access, leave)

    def free_files(self) -> None:
        """Take the limit back."""
        free_files(self._access)

    def publish_unreadable(self, stream: str) -> None:
        """Add an entry to a stream."""
        publish_unreadable(self._access, stream)

    def remove_unreadable(self, stream: str) -> None:
        """Delete entries of a stream."""
        remove_unreadable(self._access, stream)

    def state(self, stream: str | None) -> dict[str, Any]:
        """Try commands that change nothing."""
        return store_state(self._access, stream=stream)

"""What an administrator does inside the pod of a store, by which faults break stores and repair them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Never

from faultset.collector.runtime.stores.driver import AdminAction, StoreAccess
from faultset.core.errors import PlatformError


class StoreAdministrator(ABC):
    """The administrator of one store.

    Every method raises PlatformError where the store cannot do it or refuses. An administrator overrides what its
    kind of store can do.

    Attributes
    ----------
    system
        Kind of the store, for messages.
    """

    system: str

    def __init__(self, access: StoreAccess):
        self.access = access

    @abstractmethod
    def perform(self, action: AdminAction) -> None:
        """Change the application's account, or delete all data; the change survives a restart."""

    @abstractmethod
    def state(self, stream: str | None = None) -> dict[str, Any]:
        """Return what the store allows and refuses at present.

        `write_refused` and `consume_refused` hold the reasons, empty if nothing is refused. `file_limit` is the limit
        of the server's files in bytes or None, and `file_write`, where the server reports it, how its last write
        ended. `unreadable` is the number of unreadable messages of a stream.
        """

    def lock(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Start to lock and unlock the whole store repeatedly; return at once."""
        self.cannot("locks")

    def report(self, *, on_ms: int, off_ms: int, seconds: float, pid_file: Path) -> None:
        """Start to run a long query repeatedly; return at once."""
        self.cannot("queries")

    def limit_files(self, leave: int) -> None:
        """Limit the growth of the server's files to a number of bytes."""
        self.cannot("files")

    def free_files(self) -> None:
        """Lift the limit of the server's files."""
        self.cannot("files")

    def publish_unreadable(self, stream: str) -> None:
        """Publish a message that no consumer can read."""
        self.cannot("messages")

    def remove_unreadable(self, stream: str) -> None:
        """Remove all messages that no consumer can read."""
        self.cannot("messages")

    def cannot(self, feature: str) -> Never:
        """Raise PlatformError for something that this kind of store does not have."""
        raise PlatformError(f"{self.system} has no {feature}; choose another store")

    def require_account(self, action: AdminAction, exists: bool) -> None:
        """Raise PlatformError if an action changes an account that does not exist."""
        if not exists and action not in ("create-account", "remove-account", "empty-store"):
            access = self.access
            raise PlatformError(
                f"the store at {access.address}:{access.port} has no account {access.account}; create it first"
            )

"""The contract of a store driver: everything that is particular to one kind of store.

A driver starts the server inside the store's container, and creates the clients of services and the administrator, by
which faults break the store and repair it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from faultset.collector.runtime.http.client import Names
from faultset.collector.runtime.http.status import ErrorTexts
from faultset.collector.runtime.signals.metrics import Metrics

if TYPE_CHECKING:
    from faultset.collector.runtime.stores.administrator import StoreAdministrator
    from faultset.collector.runtime.stores.client import StoreClient


class StoreError(Exception):
    """A store that cannot be reached, refuses or does not answer; the text is the modelled client's.

    Attributes
    ----------
    kind
        unreachable, login, rights, broken, timeout or other
    """

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


class Account(NamedTuple):
    """Login credentials of a client."""

    username: str
    password: str


AdminAction = Literal[
    "grant-rights",
    "revoke-rights",
    "revoke-writing",
    "revoke-consuming",
    "create-account",
    "remove-account",
    "set-password",
    "require-password",
    "empty-store",
]
"""What a store's administrator changes of the application's account or data. Each action does one thing, so that none
repairs more than the fault it undoes."""


Capability = Literal["accounts", "rights", "locks", "files", "memory-limit", "connection-limit"]
"""What a fault may need of a store: accounts, and rights that can be revoked; locks and queries that block others;
files whose size can be limited; limits of memory, at which it refuses writes, and of connections."""


class AdminChange(NamedTuple):
    """An action of a store's administrator and its undo."""

    action: AdminAction
    undo: AdminAction


REVOKE_RIGHTS = AdminChange("revoke-rights", "grant-rights")
"""The application's account may log in but run no command."""
REVOKE_WRITING = AdminChange("revoke-writing", "grant-rights")
"""The application's account may read and no longer write."""
REVOKE_CONSUMING = AdminChange("revoke-consuming", "grant-rights")
"""The application's account may publish messages and no longer take any."""
REMOVE_ACCOUNT = AdminChange("remove-account", "create-account")
"""The application's account no longer exists."""
REQUIRE_PASSWORD = AdminChange("require-password", "set-password")
"""The application's account needs a password that nobody knows."""
REWRITE_PASSWORD = AdminChange("set-password", "set-password")
"""The application's account is given the password that it has."""
EMPTY_STORE = AdminChange("empty-store", "empty-store")
"""Everything that is stored is deleted; to take it back deletes it again."""


class Credentials(NamedTuple):
    """The passwords of a store."""

    administrator: str
    application: str


class StoreAccess(NamedTuple):
    """Where an administrator reaches a store, with the application's account and all passwords."""

    address: str
    port: int
    account: str
    credentials: Credentials


@dataclass(frozen=True, kw_only=True)
class StoreAddress:
    """Where a store is and how one logs in.

    Attributes
    ----------
    connect_timeout_s
        How long to try to reach it; the driver's default if None.
    """

    name: str
    port: int
    database: str
    account: Account
    connect_timeout_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClientContext:
    """What clients of stores share with the rest of their process.

    Attributes
    ----------
    local
        Source address of connections; any if None.
    """

    names: Names
    local: str | None
    metrics: Metrics
    texts: ErrorTexts


class StoreDriver(ABC):
    """One kind of store.

    Attributes
    ----------
    name
        What `faultset-store NAME` starts.
    port
        Where the server listens.
    keeps_data
        Whether it has a volume; a store without one starts empty.
    carries_messages
        Whether it is a broker: its clients publish and consume.
    capabilities
        Capabilities that faults may require.
    """

    name: str
    port: int
    keeps_data: bool
    carries_messages: bool = False
    capabilities: frozenset[Capability] = frozenset(get_args(Capability))

    @property
    def system(self) -> str:
        """Return the name of the system in spans and metrics."""
        return self.name

    @abstractmethod
    def prepare(self, folder: Path, *, account: str, credentials: Credentials) -> None:
        """Fill an empty data folder with what the server needs.

        Parameters
        ----------
        account
            Name of the application's account.
        """

    def is_prepared(self, folder: Path) -> bool:
        """Return whether a data folder has what the server needs."""
        return any(folder.iterdir())

    @abstractmethod
    def server_argv(
        self, folder: Path, *, address: str, max_memory_kib: int | None = None, max_clients: int | None = None
    ) -> list[str]:
        """Return the command of the server; raise PlatformError when this machine has none.

        Parameters
        ----------
        max_memory_kib
            Limit of the stored data; the driver's default if None.
        max_clients
            Limit of the number of connections; the server's default if None.
        """

    @abstractmethod
    def client(self, store: StoreAddress, context: ClientContext) -> StoreClient:
        """Return a client; it is not connected yet."""

    @abstractmethod
    def administrator(self, access: StoreAccess) -> StoreAdministrator:
        """Return the administrator of a running server."""

    @staticmethod
    def account_name(*, password: bool) -> str:
        """Return the name of the application's account.

        Parameters
        ----------
        password
            Whether the application's configuration has a password, which faults of rights and accounts need.
        """
        return "admin" if password else "app"

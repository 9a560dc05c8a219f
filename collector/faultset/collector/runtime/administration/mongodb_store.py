"""The administrator of a store that speaks MongoDB's protocol."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.open_files import open_file_sizes
from faultset.collector.runtime.administration.process_limits import file_size_limits, limit_file_size
from faultset.collector.runtime.administration.server_processes import listening_process
from faultset.collector.runtime.administration.store_administration import StoreAdministration
from faultset.collector.runtime.stores.originals.mongodb import SERVER_USER
from faultset.collector.runtime.stores.originals.mongodb_accounts import (
    ADMINISTRATOR,
    application_databases,
    connected,
    refusal_text,
)
from faultset.core.errors import PlatformError

if TYPE_CHECKING:
    import pymongo
    from pymongo.collection import Collection

_FILLING = "filling"
"""Collection with whose documents files are filled."""
_LARGE, _SMALL = "x" * 16_000, "x" * 200
_MOST_WRITES, _LAST_WRITES = 1000, 10
_NOTHING = "faultset"
"""Database that no store has."""


class MongoAdministration(StoreAdministration):
    """See `StoreAdministration`."""

    system = "mongodb"

    def __init__(self, access: StoreAccess):
        self._access = access

    def limit_files(self, leave: int) -> None:
        """Let no file become larger than the largest is, and fill them until the server refuses what is written.

        SQLite writes a log of limited length, from its beginning when what it holds has gone to the database: only
        when neither may grow are writes refused for good.
        """
        pid = self._process()
        sizes = open_file_sizes(pid, (".sqlite", ".sqlite-wal"))
        if not sizes:
            raise PlatformError("the store has no file of SQLite, whose size could be limited; choose another store")
        limit_file_size(pid, str(max(sizes) + leave), SERVER_USER)
        with self._administrator("limit-files") as client:
            for name in application_databases(client):
                _fill(client[name][_FILLING])

    def free_files(self) -> None:
        """Let files grow as far as they might at the server's start, and remove what filled them."""
        pid = self._process()
        limit_file_size(pid, file_size_limits(pid)[1], SERVER_USER)
        with self._administrator("free-files") as client:
            for name in application_databases(client):
                client[name].drop_collection(_FILLING)

    def state(self, stream: str | None) -> dict[str, Any]:
        """Try a command that changes nothing, as the application."""
        from pymongo.errors import OperationFailure

        access, refused = self._access, ""
        password = access.credentials.application
        with connected(access.address, access.port, access.account, password, what="state") as client:
            try:
                client[_NOTHING][_NOTHING].delete_one({"_id": _NOTHING})
            except OperationFailure as error:
                refused = refusal_text(error)
        limit, most = file_size_limits(self._process())
        return {
            "write_refused": refused,
            "consume_refused": "",
            "file_limit": None if limit == most else int(limit),
        }

    def _administrator(self, what: str) -> AbstractContextManager[pymongo.MongoClient[dict[str, Any]]]:
        access = self._access
        return connected(access.address, access.port, ADMINISTRATOR, access.credentials.administrator, what=what)

    def _process(self) -> int:
        """Return the server's process: the one that listens at the store's address."""
        address, port = self._access.address, self._access.port
        found = listening_process(address, port)
        if found is None:
            raise PlatformError(f"no process listens at {address}:{port}; see that the store runs")
        return found


def _fill(collection: Collection[dict[str, Any]]) -> None:
    """Write until the server refuses even to change a document, which needs less room than a new one."""

    def insert_large() -> Any:
        return collection.insert_many([{"document": _LARGE} for _ in range(16)])

    def insert_small() -> Any:
        return collection.insert_one({"document": _SMALL})

    def change() -> Any:
        return collection.update_one({"_id": "last"}, {"$inc": {"number": 1}}, upsert=True)

    while True:
        for write in (insert_large, insert_small):
            if not _is_refused(write, _MOST_WRITES):
                raise PlatformError(
                    "the server goes on writing although its files may not grow; stop others that write"
                )
        if _is_refused(change, _LAST_WRITES):
            return


def _is_refused(write: Callable[[], Any], times: int) -> bool:
    """Say whether a write is refused when it is tried so many times."""
    from pymongo.errors import OperationFailure

    for _ in range(times):
        try:
            write()
        except OperationFailure:
            return True
    return False

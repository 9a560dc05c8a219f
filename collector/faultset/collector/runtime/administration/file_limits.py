"""Limits of the files that a store writes: beyond one, writes fail as they do on a full volume."""

from __future__ import annotations

import resource

from faultset.collector.runtime.administration.access import StoreAccess
from faultset.collector.runtime.administration.open_files import open_file_sizes
from faultset.core.errors import PlatformError


def limit_files(access: StoreAccess, leave: int) -> None:
    """Let the files that the server appends to grow by so many bytes and no more; raise PlatformError without one."""
    pid = _server(access)
    sizes = open_file_sizes(pid, (".aof",))
    if not sizes:
        raise PlatformError("the store writes no file; limit one that keeps its data on a volume")
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(sizes) + leave, most))


def free_files(access: StoreAccess) -> None:
    """Let the server's files grow as far as they might at its start."""
    pid = _server(access)
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))


def file_limit(access: StoreAccess) -> int | None:
    """Return how many bytes a file of the server may have; None when nobody has limited it."""
    limit, most = resource.prlimit(_server(access), resource.RLIMIT_FSIZE)
    return None if limit == most else limit


def _server(access: StoreAccess) -> int:
    client = access.administrator()
    try:
        return int(client.info("server")["process_id"])
    finally:
        client.close()

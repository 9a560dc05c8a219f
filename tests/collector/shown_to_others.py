"""What the processes of a command show to other users of the machine: sockets, arguments, environments."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def listening_addresses(pid: int) -> set[str]:
    """Return the addresses on which a process and its descendants listen."""
    found = set()
    for process in family(pid):
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN or not connection.raddr:
                    found.add(connection.laddr.ip)
    return found


def shown_texts(pid: int) -> Iterator[str]:
    """Yield arguments and environments of a process and its descendants."""
    for process in family(pid):
        with contextlib.suppress(psutil.Error, OSError):
            yield " ".join(process.cmdline())
            yield Path(f"/proc/{process.pid}/environ").read_bytes().decode(errors="replace")


def open_to_others(folder: Path) -> list[Path]:
    """Return what other users may read below a folder that they can enter."""
    if os.stat(folder).st_mode & 0o077 == 0:
        return []
    return [path for path in folder.rglob("*") if path.lstat().st_mode & 0o077]

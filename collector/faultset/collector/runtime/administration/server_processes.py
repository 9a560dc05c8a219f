"""Which processes belong to a store's server; containers have no library for that."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"


def process_tree(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return a process and all that come from it, parents before their children."""
    children: dict[int, list[int]] = {}
    for one in _processes(proc):
        try:
            status = (proc / str(one) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # the command's name, which comes before, may hold spaces and brackets
        parent = int(status.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(one)
    found = [pid]
    for one in found:
        found += sorted(children.get(one, ()))
    return found


def listening_process(address: str, port: int, proc: Path = Path("/proc")) -> int | None:
    """Return the process that listens at an address of IPv4 itself, not at all addresses; None without one."""
    packed = struct.unpack("=I", socket.inet_aton(address))[0]
    place = f"{packed:08X}:{port:04X}"
    rows = [line.split() for line in (proc / "net" / "tcp").read_text(encoding="ascii").splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1] == place and row[3] == _LISTENING}
    for one in _processes(proc) if sockets else ():
        try:
            if any(str(link.readlink()) in sockets for link in (proc / str(one) / "fd").iterdir()):
                return one
        except OSError:
            continue
    return None


def _processes(proc: Path) -> Iterator[int]:
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())

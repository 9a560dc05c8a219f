"""Which processes belong to a store's server; containers have no library for that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


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


def _processes(proc: Path) -> Iterator[int]:
    return (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())

"""Processes of a store's server: their children, and the size of their files. Containers have no library for that."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from faultset.collector.runtime.stores.users import argv_as_user
from faultset.core.errors import PlatformError

_FILE_SIZE = "Max file size"


def process_tree(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return a process and all its descendants, parents before their children."""
    children: dict[int, list[int]] = {}
    for child in (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        with suppress(OSError):
            status = (proc / str(child) / "stat").read_text(encoding="utf-8", errors="replace")
            # the command's name, which comes before, may hold spaces and brackets
            children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(child)
    tree = [pid]
    for parent in tree:
        tree += sorted(children.get(parent, ()))
    return tree


def open_file_sizes(pid: int, suffix: str) -> list[int]:
    """Return the bytes of the files with a suffix that a process has open; it may close some meanwhile.

    Raises
    ------
    PlatformError
        The process does not exist, or belongs to another user.
    """
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError as error:
        raise PlatformError(f"the files of the store's server cannot be read ({error}); see its log") from error
    sizes = []
    for link in links:
        with suppress(FileNotFoundError):
            target = os.readlink(link)
            if target.endswith(suffix):
                sizes.append(os.stat(target).st_size)
    return sizes


def file_size_limits(pid: int) -> tuple[str, str]:
    """Return the soft and hard limit of the size of a process' files, in bytes or `unlimited`."""
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    limits = next(line for line in lines if line.startswith(_FILE_SIZE))
    soft, hard = limits.removeprefix(_FILE_SIZE).split()[:2]
    return soft, hard


def limit_file_size(pid: int, limit: str, user: str) -> None:
    """Limit the files of a server's process, as the server's user: root may have lost that right."""
    argv = argv_as_user(["prlimit", f"--pid={pid}", f"--fsize={limit}:"], user)
    result = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    # a process that serves one connection may have ended meanwhile
    if result.returncode and Path(f"/proc/{pid}").exists():
        raise PlatformError(f"cannot limit the files of process {pid}: {result.stderr.strip()}")

"""How large the files of a server's process may become, where it does not run as root."""

from __future__ import annotations

import subprocess
from pathlib import Path

from faultset.collector.runtime.stores.originals.users import argv_as_user
from faultset.core.errors import PlatformError

_FILE_SIZE = "Max file size"


def file_size_limits(pid: int) -> tuple[str, str]:
    """Return how many bytes a file of a process may have, and the most that it may be allowed, or `unlimited`."""
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    found = next(line for line in lines if line.startswith(_FILE_SIZE))
    limit, most = found.removeprefix(_FILE_SIZE).split()[:2]
    return limit, most


def limit_file_size(pid: int, limit: str, user: str) -> None:
    """Limit the files of a process of a server, as the server's user: root may have lost that right."""
    argv = argv_as_user(["prlimit", f"--pid={pid}", f"--fsize={limit}:"], user)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    # a process that serves one connection may have ended meanwhile
    if done.returncode and Path(f"/proc/{pid}").exists():
        raise PlatformError(f"the files of process {pid} cannot be limited: {done.stderr.strip()}")

"""The programs that containers of the local platform can run, and where commands are looked up."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAMS: dict[str, str] = {
    "faultset-service": "faultset.collector.runtime.service:main",
    "faultset-store": "faultset.collector.runtime.stores.server:main",
    "faultset-wait": "faultset.collector.runtime.http.waiting:main",
}
"""Programs that a container's process becomes by forking a parent that has imported them already."""

SCRIPTS: dict[str, str] = {
    **PROGRAMS,
    "faultset-work": "faultset.collector.runtime.background.work:main",
}
"""Programs that `exec` finds in a container beside those of the system."""

PRELOADED = (
    "faultset.collector.runtime.service",
    "faultset.collector.runtime.stores.server",
    "faultset.collector.runtime.http.waiting",
    "faultset.collector.load.process",
)

PAUSE = ("/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done')


def write_scripts(folder: Path, redis: Mapping[str, str]) -> None:
    """Fill a folder with the commands that containers have: ours, and those of the store.

    Parameters
    ----------
    folder
        Made if need be; goes first on the containers' PATH.
    redis
        Path of each Redis program by name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in SCRIPTS.items():
        module, _, attribute = function.partition(":")
        code = f"import sys; from {module} import {attribute}; sys.exit({attribute}())"
        script = folder / name
        command = f"exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
        script.write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    for name, path in redis.items():
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(path)


def search_path(folder: Path) -> str:
    """Return the PATH of containers."""
    return os.pathsep.join([str(folder), "/usr/local/bin", "/usr/bin", "/bin"])


def find_program(argv: tuple[str, ...] | list[str], path: str) -> str | None:
    """Return the file that a command runs, or None when there is none on `path`."""
    return shutil.which(argv[0], path=path)

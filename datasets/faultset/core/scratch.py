"""Temporary folders that say whose they are, and the removal of those whose process was killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"faultset-(dask|labels|fetched|methods|cut|copy)-(\d+)-(\d+)-(\d+)-\w+")


def make_scratch(purpose: str) -> Path:
    """Make a temporary folder whose name says which process it belongs to, and remove those of processes that ended.

    Parameters
    ----------
    purpose
        dask, labels, fetched, methods, cut or copy.
    """
    remove_abandoned()
    owner = f"{_namespace()}-{os.getpid()}-{_started(os.getpid())}"
    return Path(tempfile.mkdtemp(prefix=f"faultset-{purpose}-{owner}-"))


@contextlib.contextmanager
def scratch(purpose: str) -> Iterator[str]:
    """Yield a temporary folder that is removed afterwards."""
    folder = make_scratch(purpose)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove the temporary folders of this user whose process, of this process namespace, has ended."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).iterdir():
            match = _NAME.fullmatch(folder.name)
            if match is None:
                continue
            namespace, process, started = map(int, match.groups()[1:])
            with contextlib.suppress(OSError):
                mine = not folder.is_symlink() and folder.is_dir() and folder.stat().st_uid == os.getuid()
                if mine and namespace == _namespace() and _started(process) != started:
                    shutil.rmtree(folder, ignore_errors=True)


def _namespace() -> int:
    """Return the number of the namespace that process ids are of; another container may share the folder."""
    return os.stat("/proc/self/ns/pid").st_ino


def _started(process: int) -> int | None:
    """Return when a process started, in ticks since boot; None when it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])

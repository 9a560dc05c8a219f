"""Confine a method's process to code, system files and the telemetry of its episodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from faultset.core.landlock import confine, landlock_version
from faultset.datasets.cache import FOLDER as CACHE_FOLDER
from faultset.datasets.format.context import CONTEXT_FILE
from faultset.datasets.format.episodes import EPISODES, TELEMETRY
from faultset.datasets.format.versions import VERSIONS
from faultset.evaluators.execution.runners.messages import MethodProcess

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/sys", "/nix/store", "/run/current-system")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_WRITABLE_DEVICES = ("/dev/null",)
_DATASET_ENTRIES = (EPISODES, VERSIONS, CACHE_FOLDER, "campaigns", "README.md", ".failed", ".running")
NOT_ISOLATED = "not isolated"


def describe_confinement() -> str:
    """Describe how methods are isolated, in a few words."""
    if landlock_version():
        return "each method in its own process, which can read only its view"
    return f"{NOT_ISOLATED}: this kernel has no Landlock, so a method could read the truth or change the data"


def confine_method(process: MethodProcess, scratch: str) -> None:
    """Restrict the files that this process can access; do nothing without Landlock.

    Parameters
    ----------
    scratch
        Folder that the process may write to.
    """
    hidden = [os.path.realpath(path) for path in _list_hidden(process)]
    installed = {sys.prefix, sys.base_prefix, sys.exec_prefix, *(entry for entry in sys.path if entry), *process.code}
    roots = {os.path.realpath(path) for path in (*_SYSTEM, *installed)}
    readable: list[str] = [*_DEVICES]
    listable: list[str] = []
    for root in sorted(roots):
        allowed, traversed = _list_readable(root, hidden)
        readable += allowed
        listable += traversed
    for episode in process.episodes:
        readable += _list_episode_paths(Path(episode), process.tables)
        listable.append(os.path.join(episode, TELEMETRY))
    writable = [scratch, *_WRITABLE_DEVICES]
    caches = {Path(episode).parent.parent / CACHE_FOLDER for episode in process.episodes}
    for cache in caches:
        if not cache.is_symlink() and cache.is_dir():
            if process.built_in:
                writable.append(str(cache))
            elif process.tables is None or "metrics" in process.tables:
                readable += _list_cached_frames(cache, process.episodes)
    confine(readable, writable, listable)


def _list_hidden(process: MethodProcess) -> Iterator[str]:
    yield from process.hidden
    for episode in process.episodes:
        yield from dataset_paths(Path(episode))


def dataset_paths(episode: Path) -> list[str]:
    """Return the files and folders of the dataset that an episode folder belongs to."""
    return [str(episode.parent.parent / name) for name in _DATASET_ENTRIES]


def _list_readable(root: str, hidden: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the paths of a folder that contain nothing hidden, and the folders on the way to them."""
    hidden_inside = [path for path in hidden if path == root or path.startswith(root.rstrip("/") + "/")]
    if not hidden_inside:
        return [root], []
    if root in hidden_inside:
        return [], []
    allowed, traversed = [], [root]
    try:
        entries = sorted(os.listdir(root))
    except OSError:
        return [], []
    for name in entries:
        nested = _list_readable(os.path.realpath(os.path.join(root, name)), hidden_inside)
        allowed += nested[0]
        traversed += nested[1]
    return allowed, traversed


def _list_episode_paths(episode: Path, tables: tuple[str, ...] | None) -> list[str]:
    telemetry = episode / TELEMETRY
    if tables is None:
        return [str(episode / CONTEXT_FILE), str(telemetry)]
    return [str(episode / CONTEXT_FILE), *(str(telemetry / f"{table}.parquet") for table in tables)]


def _list_cached_frames(cache: Path, episodes: Iterable[str]) -> list[str]:
    names = {Path(episode).name for episode in episodes}
    try:
        return [str(path) for path in cache.iterdir() if path.name.partition("-")[0] in names]
    except OSError:
        return []

"""Folders in which workers of a campaign run episodes, beside the episodes of the dataset.

Every run of an episode on a worker has a folder of its own in `.workers/`, which is laid out like a dataset. So runs of
one episode on two machines never meet; the first that is finished is renamed into the dataset, others are removed.
"""

from __future__ import annotations

import errno
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from faultset.collector.episodes.working_folders import FAILED, RUNNING
from faultset.core.errors import DataError
from faultset.core.files import flush, write_text
from faultset.core.locks import ProcessIdentity
from faultset.core.reading.regular_files import read_regular
from faultset.datasets.format.episodes import EPISODES

WORKERS = ".workers"
_OWNER = "owner.json"
_NEW = ".new"
_LARGEST_OWNER_BYTES = 8192


@dataclass(frozen=True, kw_only=True)
class WorkerFolder:
    """The folder of one run of an episode on a worker, and the worker's process."""

    path: Path
    owner: ProcessIdentity

    @staticmethod
    def make(root: Path, episode: str) -> WorkerFolder:
        """Make a folder for a run of an episode that this process cares for."""
        owner = ProcessIdentity.current()
        path = root / WORKERS / f"{episode}-{secrets.token_hex(8)}"
        new = path.with_name(f"{_NEW}-{path.name}")
        new.mkdir(parents=True)
        # a folder is seen by others with its owner in it, or not at all
        write_text(new / _OWNER, owner.model_dump_json())
        new.rename(path)
        return WorkerFolder(path=path, owner=owner)

    def hand_over(self, root: Path, episode: str) -> bool:
        """Rename the finished episode into the dataset; say False when the dataset has it already."""
        target = root / EPISODES / episode
        target.parent.mkdir(exist_ok=True)
        try:
            (self.path / EPISODES / episode).rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            return False
        flush(target.parent)
        return True

    def keep_logs(self, root: Path, logs: Path | None) -> Path | None:
        """Move what a failed episode has left for a diagnosis to the dataset's folder, and return where it is."""
        if logs is None:
            return None
        kept = root / FAILED / logs.name
        kept.parent.mkdir(exist_ok=True)
        shutil.rmtree(kept, ignore_errors=True)
        with suppress(OSError):
            logs.rename(kept)
        return kept if kept.exists() else None

    def remove(self) -> None:
        """Remove the folder, unless an episode in it is still to be undone."""
        if not any((self.path / RUNNING).glob("*.json")):
            shutil.rmtree(self.path, ignore_errors=True)


def worker_folders(root: Path) -> Iterator[WorkerFolder]:
    """Yield the folders of runs that a dataset has, those that are going on among them."""
    for path in sorted((root / WORKERS).glob("*/")):
        if path.name.startswith(_NEW) or path.is_symlink():
            continue
        with suppress(DataError, ValidationError):
            text = read_regular(path / _OWNER, limit_bytes=_LARGEST_OWNER_BYTES, below=root)
            yield WorkerFolder(path=path, owner=ProcessIdentity.model_validate_json(text))

"""Working folders of running episodes, which are found again after a crash.

A working folder lies in the system's folder for temporary files, because socket paths must be short. The dataset
holds a note of it in `.running/`, with the process that owns it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from faultset.core.files import replace_text

RUNNING = ".running"


@dataclass(frozen=True, kw_only=True)
class WorkingFolder:
    """Working folder of one episode and the note that leads to it."""

    folder: Path
    note: Path
    owner: int
    owner_started: float
    platform: str

    @property
    def journal(self) -> Path:
        """The episode's journal."""
        return self.folder / "journal.jsonl"

    @staticmethod
    def claim(root: Path, episode: str, platform: str) -> WorkingFolder:
        """Make a working folder for an episode that this process runs."""
        folder = Path(tempfile.mkdtemp(prefix="faultset-"))
        notes = root / RUNNING
        notes.mkdir(parents=True, exist_ok=True)
        note = notes / f"{episode}.json"
        owner, started = os.getpid(), psutil.Process().create_time()
        record = {"folder": str(folder), "owner": owner, "owner_started": started, "platform": platform}
        replace_text(note, json.dumps(record), durable=False)
        return WorkingFolder(folder=folder, note=note, owner=owner, owner_started=started, platform=platform)

    def is_abandoned(self) -> bool:
        """Say whether the process that ran the episode is gone."""
        try:
            owner = psutil.Process(self.owner)
            # where process 1 reaps nobody, a process that ended stays as a zombie
            return owner.status() == psutil.STATUS_ZOMBIE or abs(owner.create_time() - self.owner_started) > 1.0
        except psutil.NoSuchProcess:
            return True

    def release(self) -> None:
        """Remove the folder and its note."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.note.unlink(missing_ok=True)


def working_folders(root: Path) -> Iterator[WorkingFolder]:
    """Yield the working folders that a dataset's notes lead to."""
    for note in sorted((root / RUNNING).glob("*.json")):
        record = json.loads(note.read_text())
        yield WorkingFolder(
            folder=Path(record["folder"]),
            note=note,
            owner=int(record["owner"]),
            owner_started=float(record["owner_started"]),
            platform=record["platform"],
        )

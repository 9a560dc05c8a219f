"""Working folders of running episodes, which are found again after a crash.

A working folder lies in the system's folder for temporary files, because socket paths must be short. The dataset
holds a note of it in `.running/`, with the process that owns it. A note is only believed when the folder that it leads
to is one of ours: by its name, place, owner, and a marker inside that repeats the note.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultset.core.errors import DataError, PlatformError
from faultset.core.files import replace_text
from faultset.core.locks import ProcessIdentity
from faultset.core.reading.regular_files import read_regular

RUNNING = ".running"
FAILED = ".failed"
MARKER = "working-folder.json"
_PREFIX = "faultset-"
_FOLDER_NAME = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}")
_LARGEST_NOTE_BYTES = 8192


class WorkingFolderNote(BaseModel):
    """What a dataset says of an episode's working folder; the folder's marker says the same.

    Attributes
    ----------
    token
        Random, and part of the folder's name: nobody who has not seen the folder knows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    episode: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")
    folder: str = Field(max_length=4096, pattern=r"^/[^\x00-\x1f\x7f]*$")
    token: str = Field(pattern=r"^[0-9a-f]{32}$")
    owner: ProcessIdentity
    platform: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


@dataclass(frozen=True, kw_only=True)
class WorkingFolder:
    """Working folder of one episode and the note that leads to it."""

    path: Path
    note: WorkingFolderNote

    @property
    def folder(self) -> Path:
        """The folder."""
        return Path(self.note.folder)

    @property
    def journal(self) -> Path:
        """The episode's journal."""
        return self.folder / "journal.jsonl"

    @staticmethod
    def claim(root: Path, episode: str, platform: str) -> WorkingFolder:
        """Make a working folder for an episode that this process runs.

        Raises
        ------
        PlatformError
            An earlier run of the episode has left one that holds what undoes its changes.
        """
        token = secrets.token_hex(16)
        folder = Path(tempfile.gettempdir()).resolve() / f"{_PREFIX}{token[:16]}"
        notes = root / RUNNING
        notes.mkdir(parents=True, exist_ok=True)
        path = notes / f"{episode}.json"
        if path.exists() or path.is_symlink():
            raise PlatformError(
                f"an earlier run of episode {episode} is not undone (note {path}); run faultset recover"
            )
        owner = ProcessIdentity.current()
        note = WorkingFolderNote(episode=episode, folder=str(folder), token=token, owner=owner, platform=platform)
        # the note comes first: a process killed in between leaves a note without a folder, never the reverse
        replace_text(path, note.model_dump_json(), durable=False)
        folder.mkdir(mode=0o700)
        (folder / MARKER).write_text(note.model_dump_json(), encoding="utf-8")
        return WorkingFolder(path=path, note=note)

    def objection(self) -> str:
        """Say why the folder is not known to be ours; empty when it is, or when it is gone."""
        folder = self.folder
        if not _FOLDER_NAME.fullmatch(folder.name) or folder.name != f"{_PREFIX}{self.note.token[:16]}":
            return f"{folder} is not named as a working folder is"
        try:
            found = folder.lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{folder} cannot be looked at ({error.strerror})"
        place = Path(tempfile.gettempdir()).resolve()
        if folder.parent != place:
            return f"{folder} does not lie in {place}; set TMPDIR to {folder.parent} if it is right"
        if not stat.S_ISDIR(found.st_mode):
            return f"{folder} is no folder"
        if found.st_uid != os.geteuid():
            return f"{folder} belongs to another user"
        if not any(folder.iterdir()):
            return ""
        try:
            marker = _read_note(folder / MARKER)
        except DataError:
            return f"{folder} has no marker of a working folder"
        return "" if marker == self.note else f"the marker in {folder} is of another working folder"

    def release(self) -> None:
        """Remove the folder and its note; raise DataError when the folder is not known to be ours."""
        if objection := self.objection():
            raise DataError(objection)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.path.unlink(missing_ok=True)


def working_folders(root: Path) -> Iterator[WorkingFolder | DataError]:
    """Yield the working folders that a dataset's notes lead to; for a note that is none of ours, what is wrong."""
    for path in sorted((root / RUNNING).glob("*.json")):
        try:
            note = _read_note(path)
            if note.episode != path.stem:
                raise DataError(f"{path} must be of episode {path.stem}, but is of {note.episode}")
            yield WorkingFolder(path=path, note=note)
        except DataError as error:
            yield error


def remove_torn_notes(root: Path) -> None:
    """Remove notes that a killed process had not finished to write."""
    for path in (root / RUNNING).glob(".*.tmp"):
        if re.fullmatch(r"\.[A-Za-z0-9-]{1,64}\.json\.[0-9a-f]{8}\.tmp", path.name):
            with suppress(OSError):
                path.unlink()


def _read_note(path: Path) -> WorkingFolderNote:
    """Return a note; raise DataError when it is none."""
    try:
        return WorkingFolderNote.model_validate_json(read_regular(path, limit_bytes=_LARGEST_NOTE_BYTES))
    except ValidationError:
        raise DataError(f"{path} is no note of a working folder") from None

"""Working folders of running episodes, which can be found again after a crash.

Socket paths must be short, so working folders are in the system's folder for temporary files. For each of them, the
dataset has a note in `.running/` that names the owning process. A note is valid only if its folder has the expected
name, parent and owner, and a marker with the same content.
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
from faultset.core.regular_files import read_regular

RUNNING = ".running"
FAILED = ".failed"
MARKER = "working-folder.json"
_PREFIX = "faultset-"
_FOLDER_NAME = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}")
_LARGEST_NOTE_BYTES = 8192


class WorkingFolderNote(BaseModel):
    """A dataset's note of an episode's working folder; the folder's marker has the same content."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    episode: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$")
    folder: str = Field(max_length=4096, pattern=r"^/[^\x00-\x1f\x7f]*$")
    token: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Random token in the folder's name, so that it cannot be guessed."""
    owner: ProcessIdentity
    platform: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


@dataclass(frozen=True, kw_only=True)
class WorkingFolder:
    """Working folder of one episode and its note."""

    path: Path
    note: WorkingFolderNote

    @property
    def folder(self) -> Path:
        return Path(self.note.folder)

    @property
    def journal(self) -> Path:
        return self.folder / "journal.jsonl"

    @staticmethod
    def claim(root: Path, episode: str, platform: str) -> WorkingFolder:
        """Create a working folder for an episode of this process; raise PlatformError if one remains."""
        token = secrets.token_hex(16)
        folder = Path(tempfile.gettempdir()).resolve() / f"{_PREFIX}{token[:16]}"
        notes = root / RUNNING
        notes.mkdir(parents=True, exist_ok=True)
        path = notes / f"{episode}.json"
        if path.exists() or path.is_symlink():
            raise PlatformError(
                f"the changes of an earlier run of episode {episode} are not undone (note {path}). Run faultset recover"
            )
        owner = ProcessIdentity.current()
        note = WorkingFolderNote(episode=episode, folder=str(folder), token=token, owner=owner, platform=platform)
        # the note comes first, so that a process killed in between never leaves a folder without a note
        replace_text(path, note.model_dump_json(), durable=False)
        folder.mkdir(mode=0o700)
        (folder / MARKER).write_text(note.model_dump_json(), encoding="utf-8")
        return WorkingFolder(path=path, note=note)

    def objection(self) -> str:
        """Return why the folder may belong to another program; empty when it may be removed or is missing."""
        folder = self.folder
        if not _FOLDER_NAME.fullmatch(folder.name) or folder.name != f"{_PREFIX}{self.note.token[:16]}":
            return f"{folder} does not have the name of a working folder"
        try:
            status = folder.lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{folder} cannot be read ({error.strerror})"
        parent = Path(tempfile.gettempdir()).resolve()
        if folder.parent != parent:
            return f"{folder} is not in {parent}; set TMPDIR to {folder.parent} if it should be"
        if not stat.S_ISDIR(status.st_mode):
            return f"{folder} is not a folder"
        if status.st_uid != os.geteuid():
            return f"{folder} belongs to another user"
        if not any(folder.iterdir()):
            return ""
        try:
            marker = _read_note(folder / MARKER)
        except DataError:
            return f"{folder} does not contain a valid {MARKER}"
        return "" if marker == self.note else f"{folder / MARKER} is for another working folder"

    def release(self) -> None:
        """Remove the folder and its note; raise DataError if the folder may belong to another program."""
        if objection := self.objection():
            raise DataError(objection)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.path.unlink(missing_ok=True)


def working_folders(root: Path) -> Iterator[WorkingFolder | DataError]:
    """Yield the working folder of each note in a dataset; for an invalid note, an error."""
    for path in sorted((root / RUNNING).glob("*.json")):
        try:
            note = _read_note(path)
            if note.episode != path.stem:
                raise DataError(f"{path} must be for episode {path.stem}, but is for {note.episode}")
            yield WorkingFolder(path=path, note=note)
        except DataError as error:
            yield error


def remove_torn_notes(root: Path) -> None:
    """Remove notes that killed processes left half-written."""
    for path in (root / RUNNING).glob(".*.tmp"):
        if re.fullmatch(r"\.[A-Za-z0-9-]{1,64}\.json\.[0-9a-f]{8}\.tmp", path.name):
            with suppress(OSError):
                path.unlink()


def _read_note(path: Path) -> WorkingFolderNote:
    """Read a note; raise DataError if it is invalid."""
    try:
        return WorkingFolderNote.model_validate_json(read_regular(path, limit_bytes=_LARGEST_NOTE_BYTES))
    except ValidationError:
        raise DataError(f"{path} is not a note of a working folder") from None

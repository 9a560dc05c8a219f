"""The output folder of a campaign: what it may hold, and the removal of what killed runs left in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from faultset.collector.episodes.working_folders import working_folders
from faultset.collector.platforms.hosts import PlatformHost
from faultset.core.errors import DataError


def check_output_folder(root: Path) -> None:
    """Refuse an output folder that holds something else.

    Raises
    ------
    DataError
        The path is a file, or a folder with content that is no dataset.
    """
    if root.exists() and not root.is_dir():
        raise DataError(f"--out must be a folder, but {root} is a file; name another")
    ours = {"episodes", "versions", "campaigns", "README.md", ".running", ".failed"}
    if root.exists() and (content := {p.name for p in root.iterdir()}) and not content & ours:
        raise DataError(
            f"{root} holds {sorted(content)[0]!r} and is not a faultset dataset; name an empty or new folder with --out"
        )


def remove_abandoned(root: Path, host_of: Callable[[str], PlatformHost | None]) -> list[str]:
    """Undo and remove what killed runs left; return the episodes concerned.

    Parameters
    ----------
    host_of
        Returns the host of a platform, or None to leave its episodes alone this time.

    Raises
    ------
    PlatformError
        Something could not be undone; what leads to it stays, so that it can be tried again.
    """
    removed = []
    for folder in working_folders(root):
        host = host_of(folder.platform) if folder.is_abandoned() else None
        if host is not None:
            host.undo_abandoned(folder.journal)
            removed.append(folder.note.stem)
            folder.release()
    for unfinished in (root / "episodes").glob("*.incomplete"):
        episode = unfinished.name.removesuffix(".incomplete")
        if not (root / ".running" / f"{episode}.json").exists():
            shutil.rmtree(unfinished, ignore_errors=True)
    return removed

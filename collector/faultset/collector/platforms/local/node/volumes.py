"""Folders that stand for what containers mount."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from faultset.collector.platforms.local.controllers.commands import Mount
from faultset.collector.runtime.mounts import VARIABLE as MOUNTS
from faultset.collector.spec.containers import DATA_PATH, SPEC_PATH
from faultset.core.files import replace_text

_SPEC_FOLDER, _, _SPEC_FILE = SPEC_PATH.rpartition("/")
CREDENTIALS_PATH = "/var/run/secrets/faultset"


class Volumes:
    """All folders of an episode's pods.

    Parameters
    ----------
    root
        Where they are made; `pods` ends with its pods, `volumes` with the episode.
    """

    def __init__(self, root: Path):
        self._root = root

    def working_folder(self, pod: str, container: str) -> Path:
        """Return the folder a container starts in, made if need be."""
        folder = self._root / "pods" / pod / container
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def mount(self, pod: str, container: str, mounts: Iterable[Mount]) -> dict[str, str]:
        """Make or renew what a container mounts; return the variables that tell it where."""
        for mount in mounts:
            place = self._place(pod, container, mount.path)
            if mount.files is not None:
                _write_files(place, mount.files)
            elif not place.exists():
                volume = self._root / "volumes" / str(mount.volume)
                volume.mkdir(parents=True, exist_ok=True)
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(volume)
        paths = {mount.path: self._place(pod, container, mount.path) for mount in mounts}
        made = {MOUNTS: json.dumps({path: str(place) for path, place in paths.items()})}
        if _SPEC_FOLDER in paths:
            made["FAULTSET_APP"] = str(paths[_SPEC_FOLDER] / _SPEC_FILE)
        if DATA_PATH in paths:
            made["FAULTSET_DATA"] = str(paths[DATA_PATH])
        if CREDENTIALS_PATH in paths:
            made["FAULTSET_CREDENTIALS"] = str(paths[CREDENTIALS_PATH])
        return made

    def forget(self, pod: str, uid: str, *, has_successor: bool = False) -> None:
        """Remove what belonged to a pod alone.

        Parameters
        ----------
        has_successor
            Whether another pod of that name runs already, and uses its folder.
        """
        if not has_successor:
            shutil.rmtree(self._root / "pods" / pod, ignore_errors=True)
        shutil.rmtree(self._root / "volumes" / "pod" / uid, ignore_errors=True)

    def _place(self, pod: str, container: str, path: str) -> Path:
        return self._root / "pods" / pod / container / "mounts" / path.strip("/")


def _write_files(folder: Path, files: dict[str, str] | object) -> None:
    assert isinstance(files, dict)
    folder.mkdir(parents=True, exist_ok=True)
    for name in set(os.listdir(folder)) - set(files):
        (folder / name).unlink()
    for name, text in files.items():
        replace_text(folder / name, text, durable=False)

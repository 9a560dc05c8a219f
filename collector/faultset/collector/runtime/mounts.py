"""Files that a container mounts, under the paths that its manifest names.

A platform without file systems of containers' own says in FAULTSET_MOUNTS where each mounted folder really is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "FAULTSET_MOUNTS"
"""Environment variable: a JSON object from the path of each mounted folder to where it is."""


def mounted(path: str, variables: Mapping[str, str] | None = None) -> Path:
    """Return where a file or folder is that the manifest names by a path.

    >>> mounted("/etc/flags/a.json", {"FAULTSET_MOUNTS": '{"/etc/flags": "/tmp/x"}'})
    PosixPath('/tmp/x/a.json')
    >>> mounted("/etc/flags/a.json", {})
    PosixPath('/etc/flags/a.json')
    """
    places: dict[str, str] = json.loads((os.environ if variables is None else variables).get(VARIABLE, "{}"))
    for folder in sorted(places, key=len, reverse=True):
        if path == folder or path.startswith(f"{folder}/"):
            return Path(places[folder] + path[len(folder) :])
    return Path(path)


class WatchedText:
    """A text file that is read again whenever it has changed.

    Parameters
    ----------
    path
        May not exist; the text is None then.
    """

    def __init__(self, path: Path):
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._text: str | None = None

    def read(self) -> str | None:
        """Return the text, None while there is no file."""
        try:
            status = os.stat(self.path)
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version != self._version:
                self._text, self._version = self.path.read_text(encoding="utf-8"), version
        except OSError:
            self._text = self._version = None
        return self._text

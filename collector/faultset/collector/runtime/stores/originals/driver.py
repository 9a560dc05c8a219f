"""The base class of drivers of original servers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from faultset.collector.runtime.stores.driver import StoreDriver
from faultset.core.errors import PlatformError, UsageError

_FURTHER_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/lib/postgresql/*/bin")
"""Where distributions put servers beside the folders of the PATH."""


class OriginalDriver(StoreDriver):
    """A store that runs its original server instead of Redis.

    Attributes
    ----------
    role
        Name of the driver that it replaces.
    programs
        Programs that the server needs.
    to_install
        Package of Debian that has these programs.
    client_library
        Optional Python package that the client needs.
    """

    role: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    to_install: ClassVar[str]
    client_library: ClassVar[str | None] = None

    @property
    def system(self) -> str:
        """Return the role's name: spans and metrics say what the store is."""
        return self.role

    @abstractmethod
    def version(self) -> str:
        """Return the name and version of the server that is installed; raise PlatformError."""

    def location(self) -> str | None:
        """Return where the server is installed; None where it is not."""
        return find_program(self.programs[0])

    def program(self, name: str) -> str:
        """Return the path of a program of the server; raise PlatformError when it is not installed."""
        found = find_program(name)
        if found is None:
            raise PlatformError(
                f"--stores original needs the program {name} for {self.role}, but it is not on the PATH; install "
                f"{self.to_install}, or name other kinds with --stores"
            )
        return found

    def reported_version(self, program: str) -> str:
        """Return what a program of the server says of its version; raise PlatformError when it does not run."""
        ended = subprocess.run(
            [self.program(program), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        if ended.returncode or not ended.stdout.strip():
            said = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise PlatformError(
                f"{program} does not run here: its --version ended with code {ended.returncode} ({said}); install it "
                "anew"
            )
        return ended.stdout.strip()

    def check(self) -> None:
        """Raise UsageError without the client library, and PlatformError without the server."""
        if self.client_library is not None and importlib.util.find_spec(self.client_library) is None:
            raise UsageError(
                f"--stores original needs the Python package {self.client_library} for {self.role}, but it is not "
                "installed; install faultset[stores]"
            )
        for name in self.programs:
            self.program(name)


def find_program(name: str) -> str | None:
    """Return the path of a program on the PATH, or where distributions put servers; the newest of several."""
    found = shutil.which(name)
    if found is not None:
        return found
    for pattern in _FURTHER_FOLDERS:
        folders = sorted(Path("/").glob(pattern.lstrip("/")), key=lambda folder: (len(str(folder)), str(folder)))
        for folder in reversed(folders):
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
    return None

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
"""Folders outside the PATH where distributions install servers."""


class OriginalDriver(StoreDriver):
    """Driver of a store that runs its original server instead of Redis.

    Attributes
    ----------
    role
        Name of the Redis driver that it replaces.
    programs
        Programs that the server needs.
    to_install
        Debian package with these programs.
    client_library
        Optional Python package that the client needs.
    """

    role: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    to_install: ClassVar[str]
    client_library: ClassVar[str | None] = None

    @property
    def system(self) -> str:
        """Return the name of the role, which spans and metrics use."""
        return self.role

    @abstractmethod
    def version(self) -> str:
        """Return the name and version of the installed server; raise PlatformError if there is none."""

    def location(self) -> str | None:
        """Return the path of the server; None if it is not installed."""
        return find_program(self.programs[0])

    def program(self, name: str) -> str:
        """Return the path of a program of the server; raise PlatformError if it is not installed."""
        path = find_program(name)
        if path is None:
            raise PlatformError(
                f"--stores original needs the program {name} for {self.role}, but it is not on the PATH; install "
                f"{self.to_install}, or name other kinds with --stores"
            )
        return path

    def reported_version(self, program: str) -> str:
        """Return the output of a program's `--version`; raise PlatformError if it fails."""
        result = subprocess.run(
            [self.program(program), "--version"], capture_output=True, text=True, timeout=10, check=False
        )
        if result.returncode or not result.stdout.strip():
            message = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise PlatformError(
                f"{program} --version ended with code {result.returncode} ({message}); reinstall {self.to_install}"
            )
        return result.stdout.strip()

    def check(self) -> None:
        """Raise UsageError if the client library is missing, and PlatformError if the server is."""
        if self.client_library is not None and importlib.util.find_spec(self.client_library) is None:
            raise UsageError(
                f"--stores original needs the Python package {self.client_library} for {self.role}, but it is not "
                "installed; install faultset[stores]"
            )
        for name in self.programs:
            self.program(name)


def find_program(name: str) -> str | None:
    """Return the path of a program on the PATH or in the folders of distributions, preferring the newest version."""
    path = shutil.which(name)
    if path is not None:
        return path
    for pattern in _FURTHER_FOLDERS:
        folders = sorted(Path("/").glob(pattern.lstrip("/")), key=lambda folder: (len(str(folder)), str(folder)))
        for folder in reversed(folders):
            if os.access(folder / name, os.X_OK):
                return str(folder / name)
    return None

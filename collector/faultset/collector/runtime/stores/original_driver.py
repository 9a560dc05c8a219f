"""The base class of drivers of original servers, their users, and limits of their files."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from faultset.collector.runtime.stores.driver import StoreDriver
from faultset.core.errors import PlatformError, UsageError

_READ_CAPABILITY = "dac_read_search"
"""Capability that the server's user keeps if root has it, to reach its files in folders that only root may enter."""
_READ_CAPABILITY_BIT = 2
_STATUS_FILE = Path("/proc/self/status")

_OPTIONS_OF_ROOT = ("--ipc",)
"""Options of `unshare` for private shared memory. Root needs no user namespace, which would prevent changing users."""
_OPTIONS_OF_OTHERS = ("--user", "--map-current-user", "--ipc")
"""The same options for other users, who need a user namespace, which most systems allow."""
_FILE_SIZE = "Max file size"
_FURTHER_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/lib/postgresql/*/bin")
"""Folders outside the PATH where distributions install servers."""


def server_user(preferred: str) -> pwd.struct_passwd | None:
    """Return the user that a server should run as: the preferred one or `nobody`; None to keep the current user.

    Only root changes users; raise PlatformError if neither user exists or `setpriv` is not installed.
    """
    if os.geteuid() != 0:
        return None
    if shutil.which("setpriv") is None:
        raise PlatformError(
            "servers of --stores original must not run as root, but setpriv, which changes the user, is not installed; "
            "install util-linux, or run as another user"
        )
    for name in (preferred, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PlatformError(
        f"servers of --stores original must not run as root, but neither the user {preferred} nor nobody exists; "
        "create one, or run as another user"
    )


def argv_as_user(argv: Sequence[str], preferred: str) -> list[str]:
    """If this user is root, return a command that runs without root's rights and ends with its parent; else `argv`."""
    user = server_user(preferred)
    if user is None:
        return [*argv]
    capabilities = f"-all,+{_READ_CAPABILITY}" if _may_read_everything() else "-all"
    rights = [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}", f"--bounding-set={capabilities}"]
    ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [str(shutil.which("setpriv")), *ids, *rights, "--pdeathsig=KILL", "--", *argv]


def _may_read_everything() -> bool:
    """Return whether root may enter any folder, which containers usually forbid."""
    match = re.search(r"^CapBnd:\s*([0-9a-f]+)$", _STATUS_FILE.read_text(encoding="ascii"), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> _READ_CAPABILITY_BIT & 1)


def argv_with_private_memory(argv: Sequence[str]) -> list[str]:
    """Return a command whose shared memory is freed when its processes end, if this user may do that."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return [*argv]
    unshare_argv = [unshare, *(_OPTIONS_OF_ROOT if os.geteuid() == 0 else _OPTIONS_OF_OTHERS)]
    is_possible = subprocess.run([*unshare_argv, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    return [*unshare_argv, "--", *argv] if is_possible else [*argv]


def set_owner(path: Path, preferred: str) -> None:
    """Make the server's user the owner of a file or folder."""
    user = server_user(preferred)
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def process_tree(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Return a process and all its descendants, parents before their children."""
    children: dict[int, list[int]] = {}
    for child in (int(entry.name) for entry in proc.iterdir() if entry.name.isdigit()):
        with suppress(OSError):
            status = (proc / str(child) / "stat").read_text(encoding="utf-8", errors="replace")
            # the command's name comes first and may contain spaces and brackets
            children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(child)
    tree = [pid]
    for parent in tree:
        tree += sorted(children.get(parent, ()))
    return tree


def file_size_limits(pid: int) -> tuple[str, str]:
    """Return the soft and hard limits of the file size of a process, in bytes or `unlimited`."""
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    limits = next(line for line in lines if line.startswith(_FILE_SIZE))
    soft, hard = limits.removeprefix(_FILE_SIZE).split()[:2]
    return soft, hard


def limit_file_size(pid: int, limit: str, user: str) -> None:
    """Limit the file size of a server's process, as the server's user, because root may lack the right."""
    argv = argv_as_user(["prlimit", f"--pid={pid}", f"--fsize={limit}:"], user)
    result = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    # the process may have ended in the meantime
    if result.returncode and Path(f"/proc/{pid}").exists():
        raise PlatformError(f"the file size of process {pid} cannot be limited: {result.stderr.strip()}")


class OriginalDriver(StoreDriver):
    """Driver of a store that runs its original server instead of Redis."""

    role: ClassVar[str]
    """Name of the Redis driver that it replaces."""
    programs: ClassVar[tuple[str, ...]]
    """Programs that the server needs."""
    to_install: ClassVar[str]
    """Debian package with these programs."""
    client_library: ClassVar[str | None] = None
    """Optional Python package that the client needs."""

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

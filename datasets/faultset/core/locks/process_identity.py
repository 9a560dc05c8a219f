"""Which process is meant by a record on disk, and whether it still runs, as far as that can be known here."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Annotated, Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, Field

ProcessState = Literal["alive", "dead", "unknown"]
_Word = Annotated[str, Field(max_length=256, pattern=r"^[\x20-\x7e]*$")]


class ProcessIdentity(BaseModel):
    """A process among those of all machines, containers and boots that share a folder.

    Attributes
    ----------
    host
        Name of the machine or container.
    machine
        Id of the installed system; empty where there is none.
    boot
        Id that the kernel gave itself when it started.
    pid_namespace
        Within it process ids mean something.
    started
        When the process started, in the kernel's ticks after the boot, which no change of the clock moves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    host: _Word
    machine: _Word
    boot: _Word
    pid_namespace: _Word
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    started: Annotated[int, Field(ge=0, lt=2**63)]

    @classmethod
    def current(cls) -> Self:
        """Return the identity of this process."""
        return cls(
            host=platform.node(),
            machine=_read("/etc/machine-id"),
            boot=_read("/proc/sys/kernel/random/boot_id"),
            pid_namespace=_pid_namespace(),
            pid=os.getpid(),
            started=_start_of(os.getpid()),
        )

    def state(self) -> ProcessState:
        """Say whether the process runs; unknown when it belongs to another machine or container."""
        here = ProcessIdentity.current()
        if self.host != here.host or self.pid_namespace != here.pid_namespace:
            return "unknown"
        if self.boot != here.boot:
            # the same system, started anew
            return "dead" if self.machine and self.machine == here.machine else "unknown"
        try:
            # where process 1 reaps nobody, a process that ended stays as a zombie
            is_dead = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE or _start_of(self.pid) != self.started
        except psutil.NoSuchProcess:
            is_dead = True
        return "dead" if is_dead else "alive"

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()[:256]
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _start_of(pid: int) -> int:
    """Return when a process started; raise psutil.NoSuchProcess."""
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
        )
    except (OSError, IndexError):
        return int(psutil.Process(pid).create_time() * 100)

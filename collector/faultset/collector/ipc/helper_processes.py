"""The helper processes of an episode, and what they say when they end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faultset.collector.ipc.channel import Channel
from faultset.collector.ipc.launch import launch
from faultset.core.errors import PlatformError

_TAIL_LINES = 3


class HelperProcess:
    """One process that serves a socket.

    Parameters
    ----------
    name
        Names its socket and its log.
    function
        `module:function` to call in it.
    arguments
        Plain values; the socket goes first.
    sockets, logs
        Folders for the socket and for what it prints.
    """

    def __init__(self, name: str, function: str, arguments: Sequence[Any], *, sockets: Path, logs: Path):
        self.name = name
        self.socket = sockets / f"{name}.sock"
        self.socket.unlink(missing_ok=True)
        self._log = logs / f"{name}.log"
        self._process = launch(function, [str(self.socket), *arguments], folder=logs, log=self._log)

    def connect(self, *, timeout_s: float = 60.0) -> Channel:
        """Return a connection once the process serves; raise PlatformError if it ends before or is too late."""
        waited = 0.0
        while not self.socket.exists():
            try:
                self._process.wait(0.02)
            except subprocess.TimeoutExpired:
                waited += 0.02
                if waited > timeout_s:
                    raise PlatformError(f"{self.name} did not start within {timeout_s:g} s; see {self._log}") from None
                continue
            self.check()
        return Channel(self.socket, timeout_s=timeout_s)

    def check(self) -> None:
        """Raise PlatformError when the process has ended, or was stopped; one that was stopped is ended first."""
        code = self._process.poll()
        if code is not None:
            raise PlatformError(f"{self.name} ended with code {code}; it said last: {self.last_lines()}")
        if is_stopped(self._process.pid):
            self._process.kill()
            self._process.wait()
            raise PlatformError(f"{self.name} was stopped by a signal, which spoils what it measures; let it run")

    def last_lines(self) -> str:
        """Return the last lines that the process printed."""
        return tail(self._log)

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """End the process; may be called twice."""
        try:
            self._process.terminate()
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def is_stopped(pid: int) -> bool:
    """Say whether a process was stopped by a signal and has not been continued."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"


def tail(path: Path, lines: int = _TAIL_LINES) -> str:
    """Return the last lines of a file in one line, or that there are none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return " | ".join(line.strip() for line in text.splitlines()[-lines:] if line.strip()) or "nothing"

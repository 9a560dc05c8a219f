"""Repair of a live system by another program, over that program's Unix socket.

Messages are JSON, one per line. The episode's process connects and sends a greeting with the tools. Each request then
names a tool, and each reply contains its result. The repair ends with the submission, or when the program closes the
connection.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

import anyio.to_thread

from faultset.agents.interface.session import MitigationSession
from faultset.core.errors import PlatformError
from faultset.datasets.tools.toolset import EpisodeTools

_MAX_LINE_LENGTH = 1 << 22


class RemoteOperator:
    """Delegates the repair to a program on a Unix socket; the mitigator `operator` of `faultset.mitigators`."""

    def mitigate(self, tools: EpisodeTools, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Serve the tools of a live episode to the program, and return the report of the session.

        Parameters
        ----------
        settings
            `socket`: path of the program's Unix socket.
        """
        session = MitigationSession(tools)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(settings["socket"]))
            with connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
                _write(lines, {"candidates": session.candidates, "tools": tools.schemas()})
                while session.answer is None and (line := lines.readline(_MAX_LINE_LENGTH)):
                    request = json.loads(line)
                    answer = session.call(str(request.get("name")), request.get("arguments"))
                    failed = answer.status == "invalid"
                    _write(lines, {"text": answer.text, "failed": failed, "report": session.report()})
        return session.report()


class OperatorConnection:
    """The program's end of the connection; a tool host for Inspect.

    Parameters
    ----------
    connection
        Socket accepted from the episode's process.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rw", encoding="utf-8", newline="\n")
        self._lock = anyio.Lock()
        greeting = self._read()
        self.schemas: list[dict[str, Any]] = greeting["tools"]
        self.candidates: list[str] = greeting["candidates"]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool of the live episode."""
        from faultset.agents.interface.inspect_tools import ToolReply

        async with self._lock:
            reply = await anyio.to_thread.run_sync(self._exchange, name, arguments, abandon_on_cancel=True)
        return ToolReply(**reply)

    def close(self) -> None:
        """End the repair; the system is then checked."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            # the episode has already ended
            return
        finally:
            self._connection.close()

    def _exchange(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        _write(self._lines, {"name": name, "arguments": arguments})
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline(_MAX_LINE_LENGTH)
        if not line:
            raise PlatformError("the live episode has ended, perhaps at its time limit; raise --within for more time")
        return json.loads(line)


def _write(lines: Any, message: Mapping[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")
    lines.flush()

"""Log lines in the shape of zerolog's console writer, and the two ways in which a Go program ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NoReturn

_DUMP = """\
panic: {message}

goroutine {goroutine} [running]:
github.com/rs/zerolog.(*Logger).Panic.func1({{0xc000118a80, 0x{size:x}}})
\t/go/pkg/mod/github.com/rs/zerolog/log.go:405 +0x2d
github.com/rs/zerolog.(*Event).msg(0xc0001a2060, {{0xc000118a80, 0x{size:x}}})
\t/go/pkg/mod/github.com/rs/zerolog/event.go:156 +0x2b8
main.main()
\t/workspace/{file} +0x5a5

goroutine 1 [IO wait]:
internal/poll.runtime_pollWait(0x7f2a5c3e8f18, 0x72)
\t/usr/local/go/src/runtime/netpoll.go:234 +0x89
net.(*netFD).accept(0xc000232000)
\t/usr/local/go/src/net/fd_unix.go:172 +0x35
net.(*TCPListener).Accept(0xc00020e0c0)
\t/usr/local/go/src/net/tcpsock.go:262 +0x3d
created by main.main
\t/workspace/{file}
exit status 2
"""


class Log:
    """Writes lines to the standard output of the process; the lines of one process never interleave.

    Parameters
    ----------
    level:
        `trace` writes a line per request; `info` only what the original shows.
    end:
        How the process ends; tests put something milder in place of `os._exit`.
    """

    def __init__(self, level: str = "trace", *, end: Callable[[int], NoReturn] = os._exit, output: int = 1):
        self.traces = level == "trace"
        self._end = end
        self._output = output

    def _write(self, level: str, caller: str, message: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        line = f"{stamp}.{int(now * 1000) % 1000:03d}Z {level} {caller} > {message}\n"
        write_all(self._output, line.encode())

    def trace(self, caller: str, message: str) -> None:
        """Write a line that the level `info` hides."""
        if self.traces:
            self._write("TRC", caller, message)

    def info(self, caller: str, message: str) -> None:
        """Write a line about normal operation."""
        self._write("INF", caller, message)

    def warning(self, caller: str, message: str) -> None:
        """Write a line about a request that makes no sense."""
        self._write("WRN", caller, message)

    def error(self, caller: str, message: str) -> None:
        """Write a line about a failure that the process survives."""
        self._write("ERR", caller, message)

    def fatal(self, caller: str, message: str) -> NoReturn:
        """Write a line and end the process with exit code 1."""
        self._write("FTL", caller, message)
        self._end(1)

    def panic(self, caller: str, message: str) -> NoReturn:
        """Write a line, and a dump on the standard error, and end the process with exit code 2."""
        self._write("PNC", caller, message)
        dump = _DUMP.format(message=message, goroutine=os.getpid() % 400 + 18, size=len(message), file=caller)
        write_all(2, dump.encode())
        self._end(2)


def write_all(output: int, data: bytes) -> None:
    """Write to a file descriptor at once; a reader that has gone is no reason to fail."""
    try:
        while data:
            data = data[os.write(output, data) :]
    except OSError:
        pass

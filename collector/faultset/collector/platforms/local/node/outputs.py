"""What containers print, on its way from their pipes to their log files."""

from __future__ import annotations

import os
import selectors

from faultset.collector.platforms.local.node.containers import Container

_READ = 1 << 16


class Outputs:
    """Pipes of all containers, read as soon as something comes.

    Parameters
    ----------
    selector
        Loop of the node.
    """

    def __init__(self, selector: selectors.BaseSelector):
        self._selector = selector
        self._pipes: dict[int, tuple[Container, str]] = {}

    def open(self, container: Container, *, stdout: int, stderr: int) -> None:
        """Read from the file descriptors into the container's log, until both have ended or `close` is called."""
        for stream, descriptor in (("stdout", stdout), ("stderr", stderr)):
            os.set_blocking(descriptor, False)
            self._pipes[descriptor] = (container, stream)
            self._selector.register(descriptor, selectors.EVENT_READ, lambda _, fd=descriptor: self._read(fd))

    def close(self, container: Container) -> None:
        """Read what is left of a container's output and close its log."""
        for descriptor in [fd for fd, (owner, _) in self._pipes.items() if owner is container]:
            self._read(descriptor)
            self._close_pipe(descriptor)
        container.log.close()

    def _read(self, descriptor: int) -> None:
        container, stream = self._pipes.get(descriptor, (None, ""))
        while container is not None:
            try:
                data = os.read(descriptor, _READ)
            except BlockingIOError:
                return
            if not data:
                self._close_pipe(descriptor)
                return
            container.log.feed(stream, data)
            if len(data) < _READ:
                return

    def _close_pipe(self, descriptor: int) -> None:
        if self._pipes.pop(descriptor, None) is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)

"""One address of the relay and the pods behind it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from random import Random

from faultset.collector.platforms.local.relay.connection import Connection
from faultset.collector.platforms.local.relay.listening_sockets import ListeningSockets
from faultset.collector.platforms.local.relay.messages import Target
from faultset.collector.platforms.local.relay.pods import Pod

_BACKLOG = 512
_ACCEPTS_PER_WAKE = 64

logger = logging.getLogger(__name__)


class Forward:
    """Listens on one address as long as some target accepts; otherwise the kernel refuses connections."""

    def __init__(
        self,
        name: str,
        address: tuple[str, int],
        *,
        rng: Random,
        kernel: ListeningSockets,
        by_ip: Callable[[str], Pod],
        by_name: Callable[[str | None], Pod],
    ):
        self.name = name
        self.address = address
        self._rng = rng
        self._kernel = kernel
        self._by_ip = by_ip
        self._by_name = by_name
        self._targets: tuple[Target, ...] = ()
        self._accepting: set[Target] = set()
        self._next = 0
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.error: str | None = None

    @property
    def listening(self) -> bool:
        """Whether connections are accepted now."""
        return self._listener is not None

    def retarget(self, targets: tuple[Target, ...]) -> None:
        """Lead new connections to other targets; established ones stay where they are."""
        if targets != self._targets:
            self._targets = targets
            self._accepting &= set(targets)
            self.probe()

    def probe(self) -> None:
        """Look which targets accept, and listen or stop listening accordingly.

        To be called often while not listening, and when a connection ended at the target's side.
        """
        for target in self._targets:
            if target in self._accepting and not self._kernel.silent:
                continue
            if self._kernel.accepting(target.ip, target.port):
                self._accepting.add(target)
            else:
                self._accepting.discard(target)
        self._adjust()

    def close(self) -> None:
        """Stop listening; established connections live on."""
        self._targets = ()
        self._accepting.clear()
        self._adjust()

    def _adjust(self) -> None:
        if self._accepting and self._listener is None:
            self._open()
        elif not self._accepting:
            self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _open(self) -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self.address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if self.error is None:
                logger.error("cannot listen on %s:%d for %s: %s", *self.address, self.name, error)
            self.error = str(error)
            return
        self.error = None
        self._listener = listener
        self._loop.add_reader(listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            if self._listener is None:
                return
            try:
                accepted, (client_ip, _) = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("cannot accept a connection to %s: %s", self.name, error)
                self._stop_listening()
                return
            accepted.setblocking(False)
            self._next += 1
            target = self._targets[self._next % len(self._targets)]
            task = self._loop.create_task(self._connect(accepted, client_ip, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket, client_ip: str, target: Target) -> None:
        client, pod = self._by_ip(client_ip), self._by_name(target.pod)
        connection = Connection(self._loop, self._rng, client, pod, on_target_end=self.probe)
        if not await connection.run(accepted, client_ip, (target.ip, target.port)):
            self._accepting.discard(target)
            self._adjust()
